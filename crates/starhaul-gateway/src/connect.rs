//! Keeps a session with a peer open: opens it, serves it, and opens it again when it ended.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use starhaul_endpoint::{Endpoint, Error, PathSpec, Session};
use tokio::{sync::watch, task::JoinSet};

use crate::{
    causes::Causes,
    config::SessionRule,
    egress::{self, Outlet},
    path_names::PathNames,
    peer::{Attempts, PeerSession, PeerState},
    session_paths::{ConfiguredPath, next_paths},
};

/// Pauses between attempts: doubled from the first to the last, and from the first again after a session that lasted.
const FIRST_PAUSE: Duration = Duration::from_millis(250);
const LONGEST_PAUSE: Duration = Duration::from_secs(5);

/// Opens a session to a peer, again and again.
#[derive(Debug)]
pub(crate) struct Connector {
    endpoint: Endpoint,
    peer: Arc<PeerState>,
    outlet: Arc<Outlet>,
    /// The configured paths; they may change at any time.
    rules: watch::Receiver<SessionRule>,
    /// The paths of the rule as it was read last.
    paths: Vec<ConfiguredPath>,
    /// Their addresses, in the same order.
    names: Arc<PathNames>,
    /// The tasks that look the names up.
    lookups: JoinSet<()>,
}

impl Connector {
    pub(crate) fn new(
        endpoint: Endpoint,
        peer: Arc<PeerState>,
        outlet: Arc<Outlet>,
        rules: watch::Receiver<SessionRule>,
    ) -> Self {
        Self {
            endpoint,
            names: Arc::new(PathNames::new(&peer.name, [], &outlet.resolver)),
            peer,
            outlet,
            rules,
            paths: Vec::new(),
            lookups: JoinSet::new(),
        }
    }

    /// Keeps a session open until dropped.
    pub(crate) async fn run(mut self) {
        let mut pause = FIRST_PAUSE;
        let mut causes = Causes::default();
        self.read_rule();
        loop {
            if self.rules.has_changed().unwrap_or(false) {
                self.read_rule();
            }
            let mut rules = self.rules.clone();
            // Quotas and hours may put every path out of service.
            if self.paths.is_empty() {
                changed(&mut rules).await;
                continue;
            }
            let opened = tokio::select! {
                opened = self.open() => opened,
                // No session is open that could be lost.
                () = changed(&mut rules) => continue,
            };
            match opened {
                Ok((session, unresolved)) => {
                    *self.peer.attempts.lock() = Attempts::default();
                    causes = Causes::default();
                    let age = self.serve(session, unresolved).await;
                    if age > LONGEST_PAUSE {
                        pause = FIRST_PAUSE;
                    }
                }
                Err(error) => {
                    let failed = self.peer.connect_failed(error.clone());
                    if causes.is_news(Instant::now(), &error) {
                        tracing::warn!(peer = self.peer.name, %error, failed, "no session yet, will try again");
                    }
                }
            }
            tokio::select! {
                () = tokio::time::sleep(pause) => pause = (pause * 2).min(LONGEST_PAUSE),
                () = changed(&mut rules) => pause = FIRST_PAUSE,
            }
        }
    }

    /// Reads the rule as it is now; returns the names of paths that are not in it any more.
    fn read_rule(&mut self) -> Vec<String> {
        let rule = self.rules.borrow_and_update().clone();
        let names = self.paths.iter().map(|path| path.rule.name.clone());
        let gone = names.filter(|name| rule.paths.iter().all(|path| path.name != *name));
        let gone = gone.collect();
        self.paths = next_paths(rule.paths, std::mem::take(&mut self.paths));
        let known = self.paths.iter().map(|path| (&path.rule, path.remote));
        let names = PathNames::new(&self.peer.name, known, &self.outlet.resolver);
        self.names = Arc::new(names);
        self.lookups = self.names.follow();
        *self.peer.path_names.lock() = Some(self.names.clone());
        gone
    }

    /// Opens the session over all paths that have an address; returns the names of the others too.
    async fn open(&mut self) -> Result<(Session, Vec<String>), String> {
        let addresses = self.names.addresses().await?;
        let (mut specs, mut unresolved) = (Vec::new(), Vec::new());
        for (path, address) in self.paths.iter_mut().zip(addresses) {
            match address {
                Some(address) => specs.push(path.spec(address)),
                None => unresolved.push(path.rule.name.clone()),
            }
        }
        let session = self.endpoint.connect(self.peer.public_key, specs).await;
        session
            .map(|session| (session, unresolved))
            .map_err(|error| self.with_unresolved(&error))
    }

    fn with_unresolved(&self, error: &Error) -> String {
        let unresolved = self.names.unresolved().into_iter();
        let unresolved = unresolved.map(|path| format!("; path {:?}: {}", path.name, path.problem));
        format!("{error}{}", unresolved.collect::<String>())
    }

    /// Serves the session until it ends; returns its age.
    async fn serve(&mut self, session: Session, unresolved: Vec<String>) -> Duration {
        let session = Arc::new(PeerSession::new(
            &self.peer,
            session,
            true,
            &self.outlet.limits,
        ));
        let (peer, outlet) = (self.peer.clone(), self.outlet.clone());
        tokio::select! {
            () = serve_session(session.clone(), &peer, &outlet) => {}
            () = self.keep_paths(&session.inner, unresolved) => {}
        }
        session.age()
    }

    /// Changes the paths of an open session as the rule changes, and adds those whose names resolve later. Never returns.
    async fn keep_paths(&mut self, session: &Session, mut unresolved: Vec<String>) {
        // Names that resolved since the session was opened.
        unresolved = self.put(session, unresolved).await;
        let mut seen = self.names.watch();
        loop {
            tokio::select! {
                () = changed(&mut self.rules) => {
                    for name in self.read_rule() {
                        // Fails for a path whose name was never resolved.
                        let _ = session.retire_path(&name).await;
                    }
                    seen = self.names.watch();
                    // Paths without an address are added when they have one.
                    let _ = self.names.addresses().await;
                    let all = self.paths.iter().map(|path| path.rule.name.clone());
                    unresolved = self.put(session, all.collect()).await;
                }
                () = PathNames::changed(&mut seen), if !unresolved.is_empty() => {
                    unresolved = self.put(session, unresolved).await;
                }
            }
        }
    }

    /// Adds these paths to the session, or changes those that it has, as configured. Returns the names of those that have no
    /// address.
    async fn put(&mut self, session: &Session, names: Vec<String>) -> Vec<String> {
        let mut unresolved = Vec::new();
        let addresses = self.names.now();
        for (path, address) in self.paths.iter_mut().zip(addresses) {
            let name = path.rule.name.clone();
            if !names.contains(&name) {
                continue;
            }
            let Some(address) = address else {
                unresolved.push(name);
                continue;
            };
            if let Err(error) = change_or_add(session, path.spec(address)).await {
                tracing::warn!(peer = self.peer.name, path = name, %error, "path not taken");
            }
        }
        self.peer.enforce_limits();
        unresolved
    }
}

impl Drop for Connector {
    fn drop(&mut self) {
        *self.peer.path_names.lock() = None;
    }
}

async fn change_or_add(session: &Session, path: PathSpec) -> Result<(), Error> {
    match session.change_path(path.clone()).await {
        Err(Error::UnknownPath(_)) => session.add_path(path).await,
        changed => changed.map(drop),
    }
}

/// Resolves when the rule has changed.
async fn changed(rules: &mut watch::Receiver<SessionRule>) {
    if rules.changed().await.is_err() {
        // Its sender is gone: it cannot change any more.
        std::future::pending().await
    }
}

/// Makes a session usable for rules and serves what the peer opens in it, until it ends.
pub(crate) async fn serve_session(
    session: Arc<PeerSession>,
    peer: &PeerState,
    outlet: &Arc<Outlet>,
) {
    // Removes the session also when this future is dropped.
    struct Listed<'p>(&'p PeerState, Arc<PeerSession>);
    impl Drop for Listed<'_> {
        fn drop(&mut self) {
            self.0.remove(&self.1);
        }
    }
    // Of a session that begins without a line the end has none either.
    let others = peer.log.sessions.lock().take(Instant::now());
    if let Some(others) = others {
        let opened_by_us = session.opened_by_us;
        tracing::info!(peer = peer.name, opened_by_us, others, "session open");
    }
    peer.add(session.clone());
    peer.enforce_limits();
    let _listed = Listed(peer, session.clone());
    egress::serve(session.clone(), outlet.clone()).await;
    let reason = session.inner.closed().await;
    let reason = reason.as_deref().unwrap_or("closed in order");
    if others.is_some() {
        tracing::info!(peer = peer.name, reason, "session ended");
    }
}
