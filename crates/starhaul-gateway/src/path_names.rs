//! The addresses of a session's paths whose `remote` is a name: each is looked up by itself, so that a silent resolver
//! holds up no path that has an address.

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

/// How often a name without an address is asked again.
const ASK_INTERVAL: Duration = Duration::from_secs(10);
/// How long a session that has a path already waits for the names of the others.
const PATIENCE: Duration = Duration::from_secs(1);

/// The paths of a session with their addresses, as far as those are known.
#[derive(Debug)]
pub(crate) struct PathNames {
    peer: String,
    paths: Vec<Entry>,
    resolver: Resolver,
    /// Counts the times at which addresses were asked for.
    wanted: watch::Sender<u64>,
    /// Tells that an answer came.
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
    /// The last that the resolver gave, also when it gives none any more: better than no path.
    address: Option<SocketAddr>,
    /// Why there was no answer, or none of use; while a look-up is under way the last one's.
    problem: Option<String>,
    asked: Instant,
    /// Which of the askings the last answer belongs to.
    answered: u64,
}

/// A path that cannot be opened because its name has no address.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Unresolved {
    /// Of the path.
    pub(crate) name: String,
    /// As configured.
    pub(crate) remote: Target,
    /// Begins with "name does not resolve".
    pub(crate) problem: String,
}

impl PathNames {
    /// Of the paths of the session with `peer`, with the addresses that are known from before. Nothing is asked before
    /// [`PathNames::follow`].
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
                // From now on, so that no asking passes unseen before the task begins.
                let wanted = self.wanted.subscribe();
                tasks.spawn(self.clone().follow_one(index, name.clone(), wanted));
            }
        }
        tasks
    }

    /// Asks for all names again, and waits until each is answered; not longer than [`PATIENCE`] once some path has an
    /// address. Gives the address of each path.
    ///
    /// # Errors
    /// No path has one: why, for each.
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
                // The sender lives as long as we do.
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

    /// The paths that have none, and why.
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
                    () = tokio::time::sleep(ASK_INTERVAL) => {}
                    changed = wanted.changed() => if changed.is_err() { return },
                }
            }
        }
    }

    /// One look-up; `true` when it gave an address.
    async fn look_up(&self, index: usize, name: &str, number: u64) -> bool {
        let Some(entry) = self.paths.get(index) else {
            return true;
        };
        let rule = &entry.rule;
        // One at a time for each name, so that no bound is needed.
        let found = self
            .resolver
            .addresses_at_last(name, rule.remote.port, usize::MAX);
        let mut found = std::pin::pin!(found);
        let found = match tokio::time::timeout(LOOKUP_TIMEOUT, &mut found).await {
            Ok(found) => found,
            Err(_) => {
                // Nobody is kept waiting, and an answer that comes late is still one.
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

    /// Whether nothing more is to be waited for.
    fn is_settled(&self, number: u64) -> bool {
        matches!(self.rule.remote.host, Host::Ip(_)) || self.known.lock().answered >= number
    }
}
