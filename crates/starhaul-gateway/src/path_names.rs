//! The addresses of a session's paths whose `remote` is a name: each is looked up by itself, so that a silent resolver
//! delays no path that has an address.

use std::{
    net::SocketAddr,
    sync::Arc,
    time::{Duration, Instant},
};

use parking_lot::Mutex;
use tokio::{sync::watch, task::JoinSet};

use crate::{
    config::PathRule,
    limits::Seldom,
    resolver::{LOOKUP_TIMEOUT, LookupError, Resolver},
    target::{Host, Target},
};

/// Interval between lookups of a name without an address.
const LOOKUP_INTERVAL: Duration = Duration::from_secs(10);
/// Time for which a session with one usable path waits for the names of the others.
const PATIENCE: Duration = Duration::from_secs(1);

/// The paths of a session with their addresses, as far as those are known.
#[derive(Debug)]
pub(crate) struct PathNames {
    peer: String,
    paths: Vec<Entry>,
    resolver: Resolver,
    /// Number of the last request for addresses.
    wanted: watch::Sender<u64>,
    /// Notifies of each answer of the resolver.
    answered: watch::Sender<()>,
}

#[derive(Debug)]
struct Entry {
    rule: PathRule,
    known: Mutex<Known>,
    log: Seldom,
}

#[derive(Debug)]
struct Known {
    /// The last address that the resolver gave; it is kept when a later lookup fails.
    address: Option<SocketAddr>,
    /// Why the last lookup that has ended gave no usable address.
    problem: Option<String>,
    /// Time of the last request.
    asked: Instant,
    /// Number of the request that was answered last.
    answered: u64,
}

/// A path that cannot be opened because its name has no address.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Unresolved {
    /// Name of the path.
    pub(crate) name: String,
    /// The configured name and port.
    pub(crate) remote: Target,
    /// Why it has no address; begins with "name does not resolve".
    pub(crate) problem: String,
}

impl PathNames {
    /// The paths of the session with `peer`, with the addresses that are known from before. [`PathNames::follow`] starts the
    /// lookups.
    pub(crate) fn new<'r>(
        peer: &str,
        paths: impl IntoIterator<Item = (&'r PathRule, Option<SocketAddr>)>,
        resolver: &Resolver,
    ) -> Self {
        let entry = |(rule, known): (&PathRule, Option<SocketAddr>)| Entry {
            known: Mutex::new(Known {
                address: match rule.remote.host {
                    Host::Ip(ip) => Some(SocketAddr::new(ip, rule.remote.port)),
                    Host::Name(_) => known,
                },
                problem: None,
                asked: Instant::now(),
                answered: 0,
            }),
            rule: rule.clone(),
            log: Seldom::default(),
        };
        Self {
            peer: peer.to_owned(),
            paths: paths.into_iter().map(entry).collect(),
            resolver: resolver.apart(),
            wanted: watch::Sender::new(0),
            answered: watch::Sender::new(()),
        }
    }

    /// Looks the names up, each in a task of its own that ends with the set.
    pub(crate) fn follow(self: &Arc<Self>) -> JoinSet<()> {
        let mut tasks = JoinSet::new();
        for (index, entry) in self.paths.iter().enumerate() {
            if let Host::Name(name) = &entry.rule.remote.host {
                // Subscribed here, so that no request before the task begins is missed.
                let wanted = self.wanted.subscribe();
                tasks.spawn(self.clone().follow_one(index, name.clone(), wanted));
            }
        }
        tasks
    }

    /// Looks all names up again and waits for each answer, but once a path has an address at most [`PATIENCE`]. Returns the
    /// address of each path.
    ///
    /// # Errors
    /// No path has an address; the text has the reason for each.
    pub(crate) async fn addresses(&self) -> Result<Vec<Option<SocketAddr>>, String> {
        let mut answered = self.answered.subscribe();
        let number = {
            let mut number = 0;
            self.wanted.send_modify(|wanted| {
                *wanted += 1;
                number = *wanted;
            });
            number
        };
        for entry in &self.paths {
            entry.known.lock().asked = Instant::now();
        }
        let until = tokio::time::Instant::now() + PATIENCE;
        while !self.paths.iter().all(|entry| entry.is_settled(number)) {
            let some = self.now().iter().any(Option::is_some);
            let asked_again = async {
                match some {
                    true => tokio::time::sleep_until(until).await,
                    false => std::future::pending().await,
                }
            };
            tokio::select! {
                // The sender lives as long as `self`.
                _ = answered.changed() => {}
                () = asked_again => break,
            }
        }
        let found = self.now();
        if found.iter().any(Option::is_some) {
            return Ok(found);
        }
        let problems = self.unresolved().into_iter();
        let problems = problems.map(|path| format!("path {:?}: {}", path.name, path.problem));
        Err(problems.collect::<Vec<_>>().join("; "))
    }

    /// Waits for the next answer of the resolver after `seen`.
    pub(crate) async fn changed(seen: &mut watch::Receiver<()>) {
        if seen.changed().await.is_err() {
            std::future::pending().await
        }
    }

    pub(crate) fn watch(&self) -> watch::Receiver<()> {
        self.answered.subscribe()
    }

    /// The address of each path now.
    pub(crate) fn now(&self) -> Vec<Option<SocketAddr>> {
        self.paths
            .iter()
            .map(|entry| entry.known.lock().address)
            .collect()
    }

    /// The paths without an address.
    pub(crate) fn unresolved(&self) -> Vec<Unresolved> {
        let unresolved = self.paths.iter().filter_map(|entry| {
            let known = entry.known.lock();
            known.address.is_none().then(|| Unresolved {
                name: entry.rule.name.clone(),
                remote: entry.rule.remote.clone(),
                problem: match &known.problem {
                    Some(problem) => format!("name does not resolve: {problem}"),
                    None => format!(
                        "name does not resolve: no answer yet, asked {:.0} s ago",
                        known.asked.elapsed().as_secs_f64()
                    ),
                },
            })
        });
        unresolved.collect()
    }

    async fn follow_one(
        self: Arc<Self>,
        index: usize,
        name: String,
        mut wanted: watch::Receiver<u64>,
    ) {
        while wanted.changed().await.is_ok() {
            loop {
                let number = *wanted.borrow_and_update();
                if self.look_up(index, &name, number).await {
                    break;
                }
                tokio::select! {
                    () = tokio::time::sleep(LOOKUP_INTERVAL) => {}
                    changed = wanted.changed() => if changed.is_err() { return },
                }
            }
        }
    }

    /// One lookup; `true` when it gave an address.
    async fn look_up(&self, index: usize, name: &str, number: u64) -> bool {
        let Some(entry) = self.paths.get(index) else {
            return true;
        };
        let rule = &entry.rule;
        // Each name has at most one lookup at a time, so that no bound is needed.
        let found = self
            .resolver
            .addresses_at_last(name, rule.remote.port, usize::MAX);
        let mut found = std::pin::pin!(found);
        let found = match tokio::time::timeout(LOOKUP_TIMEOUT, &mut found).await {
            Ok(found) => found,
            Err(_) => {
                // Waiting requests are answered now; a late answer is used as well.
                let problem = LookupError::NoAnswer(LOOKUP_TIMEOUT).to_string();
                entry.failed(&self.peer, problem, number);
                self.answered.send_replace(());
                found.await
            }
        };
        let fits = |address: &SocketAddr| {
            rule.local
                .is_none_or(|local| local.is_ipv4() == address.is_ipv4())
        };
        let found = match found {
            Ok(found) => found
                .into_iter()
                .find(fits)
                .ok_or_else(|| "it has no address of its local address's IP version".to_owned()),
            Err(error) => Err(error.to_string()),
        };
        let resolved = found.is_ok();
        match found {
            Ok(address) => entry.resolved(&self.peer, address, number),
            Err(problem) => entry.failed(&self.peer, problem, number),
        }
        self.answered.send_replace(());
        resolved
    }
}

impl Entry {
    fn resolved(&self, peer: &str, address: SocketAddr, number: u64) {
        let mut known = self.known.lock();
        if known.problem.take().is_some() || known.address != Some(address) {
            let (path, remote) = (&self.rule.name, &self.rule.remote);
            tracing::info!(peer, path, %remote, %address, "the name of a path resolves");
        }
        known.address = Some(address);
        known.answered = number;
    }

    fn failed(&self, peer: &str, problem: String, number: u64) {
        let mut known = self.known.lock();
        if let Some(withheld) = self.log.is_due(Instant::now()) {
            let (path, remote) = (&self.rule.name, &self.rule.remote);
            match known.address {
                None => {
                    tracing::warn!(peer, path, %remote, problem, withheld, "the name of a path does not resolve, will ask again")
                }
                Some(address) => {
                    tracing::warn!(peer, path, %remote, problem, withheld, %address, "the name of a path does not resolve, its last address is used")
                }
            }
        }
        known.problem = Some(problem);
        known.answered = number;
    }

    /// Whether request `number` needs no further answer for this path.
    fn is_settled(&self, number: u64) -> bool {
        matches!(self.rule.remote.host, Host::Ip(_)) || self.known.lock().answered >= number
    }
}
