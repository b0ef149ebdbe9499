//! The parts of a gateway that can be exchanged while it runs: peers, sessions, ingress rules and the egress policy.
//!
//! The start and a reload are the same step: from what runs (at the start: nothing) to what the configuration asks for.
//! What is the same in both stays untouched.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use starhaul_endpoint::Endpoint;
use tokio::task::{JoinHandle, JoinSet};

use crate::{
    Config, Error,
    config::{Ingress, SessionRule},
    connect::Connector,
    egress_policy::CurrentPolicy,
    ingress::{Counters, Listener, Rule},
    link::PeerState,
    rate_feed,
};

/// What the other tasks see of the parts, in order of the configuration.
#[derive(Debug, Default)]
pub(crate) struct Seen {
    peers: Mutex<Vec<Arc<PeerState>>>,
    rules: Mutex<Vec<Arc<Rule>>>,
    pub(crate) policy: Arc<CurrentPolicy>,
}

/// The parts and their tasks, which end with it.
#[derive(Debug)]
pub(crate) struct Parts {
    endpoint: Endpoint,
    seen: Arc<Seen>,
    connectors: Vec<Connecting>,
    listeners: Vec<Listening>,
}

/// A session rule and what keeps its session open.
#[derive(Debug)]
struct Connecting {
    rule: SessionRule,
    peer: Arc<PeerState>,
    tasks: JoinSet<()>,
}

/// An ingress rule and what serves it.
#[derive(Debug)]
struct Listening {
    rule: Arc<Rule>,
    task: Task,
}

/// A task that ends when dropped.
#[derive(Debug)]
struct Task(JoinHandle<()>);

/// A socket that is bound for a rule and not yet served.
struct Bound {
    rule: Arc<Rule>,
    listener: Listener,
}

/// What a change of parts did.
#[derive(Debug, Default)]
pub(crate) struct Changes {
    /// For people, one line each.
    pub(crate) done: Vec<String>,
    /// Rules that could not take the place of another one on the same port.
    pub(crate) failed: Vec<Error>,
}

impl Seen {
    pub(crate) fn peers(&self) -> Vec<Arc<PeerState>> {
        lock(&self.peers).clone()
    }

    pub(crate) fn rules(&self) -> Vec<Arc<Rule>> {
        lock(&self.rules).clone()
    }
}

impl Parts {
    /// Nothing yet.
    pub(crate) fn new(endpoint: Endpoint, seen: Arc<Seen>) -> Self {
        Self {
            endpoint,
            seen,
            connectors: Vec::new(),
            listeners: Vec::new(),
        }
    }

    /// Goes from what runs to what `config` asks for.
    ///
    /// # Errors
    /// An address cannot be listened on, or the keys are refused; then nothing has changed.
    pub(crate) async fn change(&mut self, config: &Config) -> Result<Changes, Error> {
        let before = self.seen.peers();
        let peers = next_peers(config, &before);
        let (now, later) = self.bind_new(config, &peers).await?;
        let trusted = config.peers.iter().map(|peer| peer.public_key).collect();
        self.endpoint.set_trusted(trusted, peer_names(config))?;

        let mut changes = Changes::default();
        if *self.seen.policy.get() != config.egress {
            self.seen.policy.set(config.egress.clone());
            changes.done.push("egress".to_owned());
        }
        *lock(&self.seen.peers) = peers.clone();
        self.stop_old(config, &before, &peers, &mut changes).await;
        for bound in now {
            self.listen(bound, &mut changes);
        }
        for (rule, peer) in later {
            match bind(&rule, peer).await {
                Ok(bound) => self.listen(bound, &mut changes),
                Err(error) => changes.failed.push(error),
            }
        }
        self.connect_new(config, &peers, &mut changes);
        let in_order = config.ingress.iter().filter_map(|rule| {
            let found = self.listeners.iter();
            let mut found = found.filter(|listening| listening.rule.config.name == rule.name);
            found.next().map(|listening| listening.rule.clone())
        });
        *lock(&self.seen.rules) = in_order.collect();
        Ok(changes)
    }

    /// Binds the sockets of rules that are new, except where an old one must go first.
    async fn bind_new(
        &self,
        config: &Config,
        peers: &[Arc<PeerState>],
    ) -> Result<(Vec<Bound>, Vec<(Ingress, Arc<PeerState>)>), Error> {
        let (mut now, mut later) = (Vec::new(), Vec::new());
        for rule in &config.ingress {
            // A configuration changed by hand may name a peer that is not there; then nobody is asked for.
            let Some(peer) = find(peers, &rule.peer) else {
                continue;
            };
            if self.listeners.iter().any(|old| old.is(rule, peer)) {
                continue;
            }
            let port = rule.listen.port();
            let in_the_way = self.listeners.iter().any(|old| {
                let kept = config
                    .ingress
                    .iter()
                    .any(|rule| find(peers, &rule.peer).is_some_and(|peer| old.is(rule, peer)));
                !kept && old.rule.address.port() == port
            });
            if in_the_way {
                later.push((rule.clone(), peer.clone()));
            } else {
                now.push(bind(rule, peer.clone()).await?);
            }
        }
        Ok((now, later))
    }

    /// Ends what is not asked for any more, and the sessions of peers that are gone.
    async fn stop_old(
        &mut self,
        config: &Config,
        before: &[Arc<PeerState>],
        peers: &[Arc<PeerState>],
        changes: &mut Changes,
    ) {
        let wanted = |listening: &Listening| {
            config
                .ingress
                .iter()
                .any(|rule| find(peers, &rule.peer).is_some_and(|peer| listening.is(rule, peer)))
        };
        let (kept, gone): (Vec<_>, Vec<_>) = std::mem::take(&mut self.listeners)
            .into_iter()
            .partition(wanted);
        self.listeners = kept;
        for mut listening in gone {
            listening.task.end().await;
            changes
                .done
                .push(format!("rule {} ended", listening.rule.config.name));
        }
        let wanted = |connecting: &Connecting| {
            find(peers, &connecting.rule.peer)
                .is_some_and(|peer| Arc::ptr_eq(peer, &connecting.peer))
                && config.sessions.contains(&connecting.rule)
        };
        let (kept, gone): (Vec<_>, Vec<_>) = std::mem::take(&mut self.connectors)
            .into_iter()
            .partition(wanted);
        self.connectors = kept;
        for mut connecting in gone {
            let links = connecting.peer.links();
            connecting.tasks.shutdown().await;
            for link in links.iter().filter(|link| link.opened_by_us) {
                link.session
                    .close("the session's configuration changed")
                    .await;
            }
            changes
                .done
                .push(format!("session to {} ended", connecting.rule.peer));
        }
        for peer in before {
            if !peers.iter().any(|kept| Arc::ptr_eq(kept, peer)) {
                for link in peer.links() {
                    link.session
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

    fn listen(&mut self, bound: Bound, changes: &mut Changes) {
        let Bound { rule, listener } = bound;
        changes.done.push(format!(
            "{} rule {} serves {} by peer {}",
            rule.config.service.kind(),
            rule.config.name,
            rule.address,
            rule.peer.name
        ));
        let task = Task(tokio::spawn(listener.serve(rule.clone())));
        self.listeners.push(Listening { rule, task });
    }

    fn connect_new(&mut self, config: &Config, peers: &[Arc<PeerState>], changes: &mut Changes) {
        for rule in &config.sessions {
            let known = self
                .connectors
                .iter()
                .any(|other| other.rule.peer == rule.peer);
            let Some(peer) = find(peers, &rule.peer).filter(|_| !known) else {
                continue;
            };
            let (connector, feeds) = Connector::new(
                self.endpoint.clone(),
                peer.clone(),
                self.seen.policy.clone(),
                rule.clone(),
            );
            let mut tasks = JoinSet::new();
            tasks.spawn(connector.run());
            for (file, rate) in feeds {
                tasks.spawn(rate_feed::follow(file, rate));
            }
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
        for listening in &mut self.listeners {
            listening.task.end().await;
        }
        for connecting in &mut self.connectors {
            connecting.tasks.shutdown().await;
        }
    }
}

impl Listening {
    /// Whether it serves exactly this rule.
    fn is(&self, rule: &Ingress, peer: &Arc<PeerState>) -> bool {
        self.rule.config == *rule && Arc::ptr_eq(&self.rule.peer, peer)
    }
}

impl Task {
    async fn end(&mut self) {
        self.0.abort();
        // Cancelled, or it has ended before.
        let _ = (&mut self.0).await;
    }
}

impl Drop for Task {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// Names of peers by their keys, for the log.
pub(crate) fn peer_names(config: &Config) -> HashMap<starhaul_endpoint::PublicKey, String> {
    let names = config.peers.iter();
    names
        .map(|peer| (peer.public_key, peer.name.clone()))
        .collect()
}

/// The configured peers: those that are known already with their sessions, others fresh.
fn next_peers(config: &Config, before: &[Arc<PeerState>]) -> Vec<Arc<PeerState>> {
    let peers = config.peers.iter().map(|peer| {
        let known = find(before, &peer.name);
        let known = known.filter(|known| known.public_key == peer.public_key);
        known
            .cloned()
            .unwrap_or_else(|| Arc::new(PeerState::new(&peer.name, peer.public_key)))
    });
    peers.collect()
}

async fn bind(rule: &Ingress, peer: Arc<PeerState>) -> Result<Bound, Error> {
    let (listener, address) = Listener::bind(rule).await?;
    let rule = Arc::new(Rule {
        config: rule.clone(),
        peer,
        address,
        counters: Counters::default(),
    });
    Ok(Bound { rule, listener })
}

fn find<'p>(peers: &'p [Arc<PeerState>], name: &str) -> Option<&'p Arc<PeerState>> {
    peers.iter().find(|peer| peer.name == name)
}

/// What these locks guard is whole after every statement, so a panic elsewhere does not spoil it.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
