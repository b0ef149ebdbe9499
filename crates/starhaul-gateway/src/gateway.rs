//! A running gateway: everything that the configuration asks for, started and stopped together.

use std::{collections::HashMap, net::SocketAddr, sync::Arc, time::Instant};

use starhaul_endpoint::{Endpoint, EndpointConfig, PublicKey, SessionConfig};
use tokio::task::JoinSet;

use crate::{
    Config, Error,
    connect::{Connector, serve_link},
    control::ControlSocket,
    egress_policy::EgressPolicy,
    ingress::{Counters, Listener, Rule},
    link::{Link, PeerState},
    rate_feed,
    status::{self, Status},
};

/// A running gateway; it stops when dropped, and then tells its peers nothing.
#[derive(Debug)]
pub struct Gateway {
    shared: Arc<Shared>,
    endpoint: Endpoint,
    tasks: JoinSet<()>,
}

/// What all tasks know.
#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) public_key: PublicKey,
    pub(crate) listen: Vec<SocketAddr>,
    pub(crate) started: Instant,
    pub(crate) peers: Vec<Arc<PeerState>>,
    pub(crate) rules: Vec<Arc<Rule>>,
}

impl Gateway {
    /// Binds everything and starts serving on the current tokio runtime. Sessions are opened in the background.
    ///
    /// # Errors
    /// The key cannot be read, or an address cannot be listened on.
    pub async fn start(config: Config) -> Result<Self, Error> {
        let identity = config.identity.load()?;
        let public_key = identity.public_key();
        let (accept_controller, accept_feed) = config.accept_controller.build();
        let accept_feed = accept_feed.map(|(rate, file)| (file.to_owned(), rate));
        let peers: HashMap<&str, Arc<PeerState>> = config
            .peers
            .iter()
            .map(|peer| {
                (
                    peer.name.as_str(),
                    Arc::new(PeerState::new(&peer.name, peer.public_key)),
                )
            })
            .collect();
        let (rules, listeners) = bind_rules(&config, &peers).await?;
        let control = ControlSocket::bind(&config.control).await?;
        let endpoint = Endpoint::bind(EndpointConfig {
            identity,
            trusted: config.peers.iter().map(|peer| peer.public_key).collect(),
            listen: config.listen.clone(),
            accept_controller,
            max_sessions: config.max_sessions,
            session: SessionConfig::default(),
        })
        .await?;

        let shared = Arc::new(Shared {
            public_key,
            listen: endpoint.listen_addresses(),
            started: Instant::now(),
            peers: config
                .peers
                .iter()
                .filter_map(|peer| peers.get(peer.name.as_str()).cloned())
                .collect(),
            rules,
        });
        let policy = Arc::new(config.egress);
        let mut tasks = JoinSet::new();
        let mut feeds: Vec<_> = accept_feed.into_iter().collect();
        for rule in config.sessions {
            if let Some(peer) = peers.get(rule.peer.as_str()) {
                let (connector, connector_feeds) =
                    Connector::new(endpoint.clone(), peer.clone(), policy.clone(), rule);
                tasks.spawn(connector.run());
                feeds.extend(connector_feeds);
            }
        }
        for (file, rate) in feeds {
            tasks.spawn(rate_feed::follow(file, rate));
        }
        tasks.spawn(accept(endpoint.clone(), shared.clone(), policy));
        for (listener, rule) in listeners.into_iter().zip(&shared.rules) {
            tasks.spawn(listener.serve(rule.clone()));
        }
        if let Some(control) = control {
            tasks.spawn(control.serve(shared.clone()));
        }
        Ok(Self {
            shared,
            endpoint,
            tasks,
        })
    }

    /// The same object that `starhaul status --json` prints.
    pub fn status(&self) -> serde_json::Value {
        // Neither a map with other keys than texts nor a failing writer is involved.
        serde_json::to_value(self.report()).unwrap_or_default()
    }

    /// The same, typed.
    pub fn report(&self) -> Status {
        self.shared.status()
    }

    /// Where peers are accepted, with the ports that the kernel chose.
    pub fn listen_addresses(&self) -> Vec<SocketAddr> {
        self.shared.listen.clone()
    }

    /// Where the ingress rule of this name listens, with the port that the kernel chose.
    pub fn ingress_address(&self, rule: &str) -> Option<SocketAddr> {
        let found = self
            .shared
            .rules
            .iter()
            .find(|other| other.config.name == rule);
        found.map(|rule| rule.address)
    }

    /// Resolves when a session with the peer of this name is open; never for a name that is not configured.
    pub async fn connected(&self, peer: &str) {
        let found = self.shared.peers.iter().find(|other| other.name == peer);
        match found {
            Some(peer) => peer.wait_for_link().await,
            None => std::future::pending().await,
        }
    }

    /// Stops serving, closes all sessions in order, and returns when the peers have been told.
    pub async fn shutdown(mut self) {
        self.tasks.shutdown().await;
        self.endpoint.close().await;
    }
}

impl Shared {
    pub(crate) fn status(&self) -> Status {
        status::status(self)
    }
}

async fn bind_rules(
    config: &Config,
    peers: &HashMap<&str, Arc<PeerState>>,
) -> Result<(Vec<Arc<Rule>>, Vec<Listener>), Error> {
    let mut rules = Vec::new();
    let mut listeners = Vec::new();
    for rule in &config.ingress {
        // A configuration changed by hand may name a peer that is not there; then nobody is asked for.
        let Some(peer) = peers.get(rule.peer.as_str()) else {
            continue;
        };
        let (listener, address) = Listener::bind(rule).await?;
        listeners.push(listener);
        rules.push(Arc::new(Rule {
            config: rule.clone(),
            peer: peer.clone(),
            address,
            counters: Counters::default(),
        }));
    }
    Ok((rules, listeners))
}

/// Serves the sessions that peers open.
async fn accept(endpoint: Endpoint, shared: Arc<Shared>, policy: Arc<EgressPolicy>) {
    let mut sessions = JoinSet::new();
    loop {
        let session = tokio::select! {
            session = endpoint.accept() => session,
            Some(_) = sessions.join_next() => continue,
        };
        let Some(session) = session else { return };
        // Only keys of configured peers are trusted.
        let Some(peer) = shared
            .peers
            .iter()
            .find(|peer| peer.public_key == session.peer())
        else {
            continue;
        };
        let (peer, policy) = (peer.clone(), policy.clone());
        let link = Arc::new(Link::new(&peer.name, session, false));
        sessions.spawn(async move { serve_link(link, &peer, &policy).await });
    }
}
