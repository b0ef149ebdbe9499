//! The parts of a gateway that can be exchanged while it runs: peers, sessions, ingress rules and the egress policy.
//!
//! Start and reload are the same step: from the parts that run (at the start: none) to those of the configuration. Parts that
//! are the same in both stay untouched.

use std::{
    collections::{BTreeSet, HashMap},
    sync::Arc,
};

use parking_lot::Mutex;
use starhaul_endpoint::{Chain, Endpoint};
use tokio::task::JoinSet;

use crate::{
    Config, Error,
    bundles::Bundles,
    config::{Carrier, ConnectionService, DatagramService, IngressRule, SessionRule, TunnelRule},
    connect::Connector,
    egress::{Answers, Outlet},
    egress_policy::EgressPolicy,
    ingress::{ConnectionWay, DatagramWay, Listeners, Rules},
    kept::Kept,
    peer::PeerState,
    quota::{Key, keeper::Quotas},
    session_paths::describe_changes,
    tunnel::{SessionPorts, Tunnels},
};

/// The parts as other tasks see them, in order of the configuration.
#[derive(Debug)]
pub(crate) struct Seen {
    peers: Mutex<Vec<Arc<PeerState>>>,
    rules: Mutex<Rules>,
    pub(crate) outlet: Arc<Outlet>,
    pub(crate) quotas: Arc<Quotas>,
    kept: Arc<Kept>,
}

/// The parts and their tasks, which end with it.
#[derive(Debug)]
pub(crate) struct Parts {
    endpoint: Endpoint,
    chain: Option<Chain>,
    bundles: Option<Bundles>,
    seen: Arc<Seen>,
    connectors: Vec<Connecting>,
    datagrams: Listeners<DatagramService>,
    connections: Listeners<ConnectionService>,
    tunnels: Tunnels,
    /// Answers to connections in clients' names come to us.
    answers: Answers,
}

/// A session rule and the task that keeps its session open.
#[derive(Debug)]
struct Connecting {
    /// The configured rule; the connector follows what orders make of it.
    rule: SessionRule,
    peer: Arc<PeerState>,
    tasks: JoinSet<()>,
}

/// The result of a change of parts.
#[derive(Debug, Default)]
pub(crate) struct Changes {
    /// What was done, for people, one line each.
    pub(crate) done: Vec<String>,
    /// Rules that could not take the place of another one on the same port.
    pub(crate) failed: Vec<Error>,
}

impl Seen {
    /// No parts yet.
    pub(crate) fn new(outlet: Outlet, quotas: Quotas, kept: Kept) -> Self {
        Self {
            peers: Mutex::default(),
            rules: Mutex::default(),
            outlet: Arc::new(outlet),
            quotas: Arc::new(quotas),
            kept: Arc::new(kept),
        }
    }

    pub(crate) fn peers(&self) -> Vec<Arc<PeerState>> {
        self.peers.lock().clone()
    }

    pub(crate) fn rules(&self) -> Rules {
        self.rules.lock().clone()
    }

    /// From now on these are the peers. Orders belong to names: one that comes with another key has those of the former.
    fn exchange_peers(&self, next: &[Arc<PeerState>]) {
        let mut peers = self.peers.lock();
        for peer in next {
            if let Some(former) = find(&peers, &peer.name)
                && !Arc::ptr_eq(former, peer)
            {
                peer.orders.take_over(&former.orders);
            }
        }
        *peers = next.to_vec();
    }

    /// The configured peers: those that are known already with their sessions, others fresh.
    fn next_peers(&self, config: &Config, before: &[Arc<PeerState>]) -> Vec<Arc<PeerState>> {
        let peers = config.peers.iter().map(|peer| {
            let known = find(before, &peer.name);
            let known = known.filter(|known| known.public_key == peer.public_key);
            known.cloned().unwrap_or_else(|| {
                let (quotas, kept) = (self.quotas.clone(), self.kept.clone());
                let fresh = PeerState::new(&peer.name, peer.public_key, quotas, kept);
                Arc::new(fresh)
            })
        });
        peers.collect()
    }
}

impl Parts {
    /// No parts yet.
    pub(crate) fn new(
        endpoint: Endpoint,
        chain: Option<Chain>,
        bundles: Option<Bundles>,
        seen: Arc<Seen>,
    ) -> Self {
        let listening = SessionPorts::at(&endpoint.listen_addresses());
        Self {
            endpoint,
            chain,
            bundles,
            connectors: Vec::new(),
            datagrams: Listeners::new(seen.outlet.limits.clone()),
            connections: Listeners::new(seen.outlet.limits.clone()),
            tunnels: Tunnels::new(listening),
            answers: Answers::default(),
            seen,
        }
    }

    /// Starts, changes and ends parts so that those of `config` run.
    ///
    /// # Errors
    /// An address cannot be listened on, or the keys are refused; then nothing has changed.
    pub(crate) async fn change(&mut self, config: &Config) -> Result<Changes, Error> {
        let before = self.seen.peers();
        let peers = self.seen.next_peers(config, &before);
        let by_bundles = |peer: &str, lifetime| self.bundles.as_ref()?.way(peer, lifetime);
        let way = |rule: &IngressRule<DatagramService>| match rule.service.carrier {
            Carrier::Session | Carrier::Leotp => {
                find(&peers, &rule.peer).cloned().map(DatagramWay::Peer)
            }
            Carrier::Bundle(lifetime) => by_bundles(&rule.peer, lifetime).map(DatagramWay::Bundle),
        };
        let datagrams = with_ways(&config.datagram_rules, way);
        let datagrams = self.datagrams.prepare(datagrams).await?;
        let way = |rule: &IngressRule<ConnectionService>| match rule.service.carrier {
            Carrier::Session => find(&peers, &rule.peer).cloned().map(ConnectionWay::Peer),
            Carrier::Leotp => self.chain.clone().map(ConnectionWay::Chain),
            Carrier::Bundle(lifetime) => {
                by_bundles(&rule.peer, lifetime).map(ConnectionWay::Bundle)
            }
        };
        let connections = with_ways(&config.connection_rules, way);
        let connections = self.connections.prepare(connections).await?;
        let of_peer = |rule: &TunnelRule| Some((rule.clone(), find(&peers, &rule.peer)?.clone()));
        let tunnels = config.tunnels.iter().filter_map(of_peer).collect();
        let tunnels = self.tunnels.prepare(tunnels)?;
        let trusted = config.peers.iter().map(|peer| peer.public_key).collect();
        self.endpoint.set_trusted(trusted, peer_names(config))?;

        let mut changes = Changes::default();
        let policy = &self.seen.outlet.policy;
        if let Err(error) = self.answers.follow(&config.egress.clients).await {
            changes.failed.push(error);
        }
        let egress = EgressPolicy {
            // Answers to others would be lost.
            clients: self.answers.clients().to_vec(),
            ..config.egress.clone()
        };
        if *policy.get() != egress {
            policy.set(egress);
            changes.done.push("egress".to_owned());
        }
        self.seen.exchange_peers(&peers);
        self.stop_old(config, &before, &peers, &mut changes).await;
        for (done, failed) in [
            self.datagrams.change(datagrams).await,
            self.connections.change(connections).await,
            self.tunnels
                .change(tunnels, &self.seen.outlet.tunnels)
                .await,
        ] {
            changes.done.extend(done);
            changes.failed.extend(failed);
        }
        self.connect(config, &peers, &mut changes);
        self.seen.quotas.tell_unclaimed(&names_of_paths(config));
        *self.seen.rules.lock() = Rules {
            datagrams: self.datagrams.rules(),
            connections: self.connections.rules(),
        };
        Ok(changes)
    }

    /// Ends the sessions that are not configured any more, and those of peers that are not.
    async fn stop_old(
        &mut self,
        config: &Config,
        before: &[Arc<PeerState>],
        peers: &[Arc<PeerState>],
        changes: &mut Changes,
    ) {
        let wanted = |connecting: &Connecting| {
            let name = &connecting.peer.name;
            find(peers, name).is_some_and(|peer| Arc::ptr_eq(peer, &connecting.peer))
                && config.sessions.iter().any(|rule| rule.peer == *name)
        };
        let (kept, gone): (Vec<_>, Vec<_>) = std::mem::take(&mut self.connectors)
            .into_iter()
            .partition(wanted);
        self.connectors = kept;
        for mut connecting in gone {
            let mut sessions = connecting.peer.sessions();
            connecting.peer.orders.configure(None);
            connecting.tasks.shutdown().await;
            // Another one may have been opened until now.
            let later = connecting.peer.sessions().into_iter();
            let later = later.filter(|one| !sessions.iter().any(|known| Arc::ptr_eq(known, one)));
            sessions.extend(later.collect::<Vec<_>>());
            for session in sessions.iter().filter(|session| session.opened_by_us) {
                session
                    .inner
                    .close("the session is not configured any more")
                    .await;
                connecting.peer.settle(session);
            }
            changes
                .done
                .push(format!("session to {} ended", connecting.peer.name));
        }
        for peer in before {
            if !peers.iter().any(|kept| Arc::ptr_eq(kept, peer)) {
                for session in peer.sessions() {
                    session
                        .inner
                        .close("the peer is not configured any more")
                        .await;
                }
                changes.done.push(format!("peer {} removed", peer.name));
            }
        }
        for peer in peers {
            if !before.iter().any(|old| Arc::ptr_eq(old, peer)) {
                changes.done.push(format!("peer {} added", peer.name));
            }
        }
    }

    /// Opens the new sessions, and gives the others the paths that are configured now.
    fn connect(&mut self, config: &Config, peers: &[Arc<PeerState>], changes: &mut Changes) {
        for rule in &config.sessions {
            let mut known = self.connectors.iter_mut();
            if let Some(known) = known.find(|known| known.peer.name == rule.peer) {
                if known.rule != *rule {
                    let done = describe_changes(&rule.peer, &known.rule.paths, &rule.paths);
                    changes.done.extend(done);
                    known.rule = rule.clone();
                    known.peer.orders.configure(Some(rule.clone()));
                    known.peer.enforce_limits();
                }
                continue;
            }
            let Some(peer) = find(peers, &rule.peer) else {
                continue;
            };
            let rules = peer.orders.follow(rule.clone());
            let connector = Connector::new(
                self.endpoint.clone(),
                peer.clone(),
                self.seen.outlet.clone(),
                rules,
            );
            let mut tasks = JoinSet::new();
            tasks.spawn(connector.run());
            changes.done.push(format!(
                "session to {} over {} path(s)",
                rule.peer,
                rule.paths.len()
            ));
            self.connectors.push(Connecting {
                rule: rule.clone(),
                peer: peer.clone(),
                tasks,
            });
        }
    }

    /// Ends all tasks and returns when they have ended.
    pub(crate) async fn end(&mut self) {
        self.datagrams.end().await;
        self.connections.end().await;
        self.tunnels.end(&self.seen.outlet.tunnels).await;
        for connecting in &mut self.connectors {
            connecting.tasks.shutdown().await;
        }
    }
}

/// Names of peers by their keys, for the log.
pub(crate) fn peer_names(config: &Config) -> HashMap<starhaul_endpoint::PublicKey, String> {
    let names = config.peers.iter();
    names
        .map(|peer| (peer.public_key, peer.name.clone()))
        .collect()
}

/// The paths of the configuration.
fn names_of_paths(config: &Config) -> BTreeSet<Key> {
    let paths = config.sessions.iter().flat_map(|session| {
        let paths = session.paths.iter();
        paths.map(|path| Key {
            peer: session.peer.clone(),
            path: path.name.clone(),
        })
    });
    paths.collect()
}

/// Rules with what carries them; a configuration changed by its program may name a peer that it has not.
fn with_ways<S: Clone, W>(
    rules: &[IngressRule<S>],
    way: impl Fn(&IngressRule<S>) -> Option<W>,
) -> Vec<(IngressRule<S>, W)> {
    let rules = rules.iter();
    rules
        .filter_map(|rule| Some((rule.clone(), way(rule)?)))
        .collect()
}

fn find<'p>(peers: &'p [Arc<PeerState>], name: &str) -> Option<&'p Arc<PeerState>> {
    peers.iter().find(|peer| peer.name == name)
}
