//! Keeps a session with a peer open: opens it, serves it, and opens it again when it ended.

use std::{net::SocketAddr, path::PathBuf, sync::Arc, time::Duration};

use starhaul_endpoint::{Endpoint, PathSpec, RateFeed, Session};

use crate::{
    config::{PathRule, SessionRule},
    egress,
    egress_policy::CurrentPolicy,
    link::{Link, PeerState},
    resolve,
};

/// Pauses between attempts: doubled from the first to the last, and from the first again after a session that lasted.
const FIRST_PAUSE: Duration = Duration::from_millis(250);
const LONGEST_PAUSE: Duration = Duration::from_secs(15);
/// How often the names of paths that could not be resolved are asked again while a session lives.
const RESOLVE_INTERVAL: Duration = Duration::from_secs(10);

/// A session rule at work.
pub(crate) struct Connector {
    endpoint: Endpoint,
    peer: Arc<PeerState>,
    policy: Arc<CurrentPolicy>,
    /// Each path with its controller, whose feed outlives the session.
    paths: Vec<(PathRule, starhaul_endpoint::ControllerConfig)>,
}

impl Connector {
    /// The connector, and the feeds that its paths follow.
    pub(crate) fn new(
        endpoint: Endpoint,
        peer: Arc<PeerState>,
        policy: Arc<CurrentPolicy>,
        rule: SessionRule,
    ) -> (Self, Vec<(PathBuf, RateFeed)>) {
        let mut feeds = Vec::new();
        let paths = rule.paths.into_iter().map(|path| {
            let (controller, feed) = path.controller.build();
            feeds.extend(feed.map(|(rate, file)| (file.to_owned(), rate)));
            (path, controller)
        });
        let paths = paths.collect();
        (
            Self {
                endpoint,
                peer,
                policy,
                paths,
            },
            feeds,
        )
    }

    /// Works until dropped.
    pub(crate) async fn run(self) {
        let mut pause = FIRST_PAUSE;
        loop {
            let error = match self.open().await {
                Ok((session, unresolved)) => {
                    self.peer.connected();
                    let age = self.serve(session, unresolved).await;
                    if age > LONGEST_PAUSE {
                        pause = FIRST_PAUSE;
                    }
                    None
                }
                Err(error) => Some(error),
            };
            if let Some(error) = error {
                let failed = self.peer.connect_failed(error.clone());
                tracing::warn!(peer = self.peer.name, %error, failed, "no session yet, will try again");
            }
            tokio::time::sleep(pause).await;
            pause = (pause * 2).min(LONGEST_PAUSE);
        }
    }

    /// Opens the session over all paths whose names can be resolved; gives the others.
    async fn open(&self) -> Result<(Session, Vec<usize>), String> {
        let mut specs = Vec::new();
        let mut unresolved = Vec::new();
        let mut problem = String::new();
        for index in 0..self.paths.len() {
            match self.spec(index).await {
                Ok(spec) => specs.push(spec),
                Err(error) => {
                    unresolved.push(index);
                    problem = error;
                }
            }
        }
        if specs.is_empty() {
            return Err(problem);
        }
        let session = self.endpoint.connect(self.peer.public_key, specs).await;
        session
            .map(|session| (session, unresolved))
            .map_err(|error| error.to_string())
    }

    /// Serves the session until it ends; gives how long it lived.
    async fn serve(&self, session: Session, unresolved: Vec<usize>) -> Duration {
        let link = Arc::new(Link::new(&self.peer.name, session, true));
        tokio::select! {
            () = serve_link(link.clone(), &self.peer, &self.policy) => {}
            () = self.add_later(&link.session, unresolved) => {}
        }
        link.age()
    }

    /// Adds the paths whose names can be resolved at last. Never returns.
    async fn add_later(&self, session: &Session, mut unresolved: Vec<usize>) {
        while !unresolved.is_empty() {
            tokio::time::sleep(RESOLVE_INTERVAL).await;
            let mut still = Vec::new();
            for index in unresolved {
                match self.spec(index).await {
                    Ok(spec) => {
                        if let Err(error) = session.add_path(spec).await {
                            tracing::warn!(peer = self.peer.name, %error, "path not added");
                        }
                    }
                    Err(_) => still.push(index),
                }
            }
            unresolved = still;
        }
        std::future::pending().await
    }

    async fn spec(&self, index: usize) -> Result<PathSpec, String> {
        let (rule, controller) = self.paths.get(index).ok_or("no such path")?;
        let found = resolve::addresses(&rule.remote).await;
        let found = found.map_err(|error| {
            format!(
                "path {:?}: {} cannot be resolved: {error}",
                rule.name, rule.remote
            )
        })?;
        let fits = |address: &&SocketAddr| {
            rule.local
                .is_none_or(|local| local.is_ipv4() == address.is_ipv4())
        };
        let remote = found.iter().find(fits).ok_or_else(|| {
            format!(
                "path {:?}: {} has no address of its local address's IP version",
                rule.name, rule.remote
            )
        })?;
        Ok(PathSpec {
            name: rule.name.clone(),
            local: rule.local,
            interface: rule.interface.clone(),
            remote: *remote,
            cost: rule.cost,
            link: rule.link,
            controller: controller.clone(),
            detection: rule.detection.clone(),
        })
    }
}

/// Makes a session usable for rules and serves what the peer opens in it, until it ends.
pub(crate) async fn serve_link(link: Arc<Link>, peer: &PeerState, policy: &Arc<CurrentPolicy>) {
    // Also when this future is dropped half way.
    struct Listed<'p>(&'p PeerState, Arc<Link>);
    impl Drop for Listed<'_> {
        fn drop(&mut self) {
            self.0.remove(&self.1);
        }
    }
    tracing::info!(
        peer = peer.name,
        opened_by_us = link.opened_by_us,
        "session open"
    );
    peer.add(link.clone());
    let _listed = Listed(peer, link.clone());
    egress::serve(link.clone(), policy.clone()).await;
    let reason = link.session.closed().await;
    let reason = reason.as_deref().unwrap_or("closed in order");
    tracing::info!(peer = peer.name, reason, "session ended");
}
