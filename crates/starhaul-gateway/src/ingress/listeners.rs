//! The sockets of all rules, and how they go from one configuration to the next.
//!
//! A socket outlives a change of its rule: the next rule on the same address takes it over as it is, so that no client that
//! connects or sends meanwhile is turned away. What the rule before has begun goes on as it began.

use std::{io::ErrorKind, sync::Arc, time::Duration};

use tokio::{sync::watch, task::JoinSet};

use super::{Rule, Service, Way as _};
use crate::{Error, config::IngressRule, limits::Limits};

/// How often a socket is bound that another one, which ends, was in the way of, and the pause between.
const TRIES: u32 = 10;
const PAUSE: Duration = Duration::from_millis(20);

/// A rule that the configuration asks for, and what carries it.
pub(crate) type Wanted<S> = (IngressRule<S>, <S as Service>::Way);

/// The rules of one kind of service; all end with it.
#[derive(Debug)]
pub(crate) struct Listeners<S: Service> {
    listening: Vec<ServedSocket<S>>,
    /// Bounds that all rules share.
    limits: Arc<Limits>,
}

/// A socket, and the rule that it serves now.
#[derive(Debug)]
struct ServedSocket<S: Service> {
    rule: watch::Sender<Arc<Rule<S>>>,
    // Ends its task when dropped.
    task: JoinSet<()>,
}

/// A prepared change: all sockets are bound that can be bound before the rules of now have ended.
pub(crate) struct ListenerChange<S: Service> {
    order: Vec<String>,
    /// For each socket of now, the rule that it serves next; `None` closes it.
    heirs: Vec<Option<Wanted<S>>>,
    bound: Vec<(Arc<Rule<S>>, S::Socket)>,
    /// Those that cannot be bound before another socket on their port has been closed.
    in_the_way: Vec<Wanted<S>>,
}

impl<S: Service> Listeners<S> {
    /// None yet; `limits` are those that all rules share.
    pub(crate) const fn new(limits: Arc<Limits>) -> Self {
        Self {
            listening: Vec::new(),
            limits,
        }
    }

    /// Finds the socket for each rule that is wanted, and binds those that are missing.
    ///
    /// # Errors
    /// An address cannot be listened on; nothing has changed.
    pub(crate) async fn prepare(&self, wanted: Vec<Wanted<S>>) -> Result<ListenerChange<S>, Error> {
        let order = wanted.iter().map(|(rule, _)| rule.name.clone()).collect();
        let (heirs, new) = self.heirs(wanted);
        let (mut bound, mut in_the_way) = (Vec::new(), Vec::new());
        for (rule, way) in new {
            let mut closing = self
                .listening
                .iter()
                .zip(&heirs)
                .filter(|(_, heir)| heir.is_none());
            if closing.any(|(old, _)| old.is_in_the_way(&rule)) {
                in_the_way.push((rule, way));
            } else {
                bound.push(self.bind(rule, way).await?);
            }
        }
        Ok(ListenerChange {
            order,
            heirs,
            bound,
            in_the_way,
        })
    }

    /// For each socket the rule that it serves next, and the rules that are left over.
    fn heirs(&self, mut wanted: Vec<Wanted<S>>) -> (Vec<Option<Wanted<S>>>, Vec<Wanted<S>>) {
        let mut heirs: Vec<Option<Wanted<S>>> = self.listening.iter().map(|_| None).collect();
        // A rule that is exactly the same comes before one that only has the same address.
        for fits in [ServedSocket::serves, ServedSocket::can_serve] {
            for (old, heir) in self
                .listening
                .iter()
                .zip(&mut heirs)
                .filter(|(_, heir)| heir.is_none())
            {
                let found = wanted.iter().position(|rule| fits(old, rule));
                *heir = found.map(|found| wanted.remove(found));
            }
        }
        (heirs, wanted)
    }

    /// Goes on to what was prepared; says what changed, and what could not be bound after all.
    pub(crate) async fn change(&mut self, next: ListenerChange<S>) -> (Vec<String>, Vec<Error>) {
        let (mut done, mut failed) = (Vec::new(), Vec::new());
        let mut kept = Vec::new();
        for (mut old, heir) in self.listening.drain(..).zip(next.heirs) {
            let Some(heir) = heir else {
                old.task.shutdown().await;
                done.push(format!("rule {} ended", old.rule.borrow().config.name));
                continue;
            };
            if !old.serves(&heir) {
                let rule = old.hand_over(heir).describe();
                done.push(format!("{rule}, on the socket that was there"));
            }
            kept.push(old);
        }
        self.listening = kept;
        let mut bound = next.bound;
        for (rule, way) in next.in_the_way {
            // Tasks that end at this moment may still hold the socket that was in the way.
            let mut tries = 1;
            let listener = loop {
                let listener = self.bind(rule.clone(), way.clone()).await;
                match &listener {
                    Err(error) if is_in_use(error) && tries < TRIES => {
                        tries += 1;
                        tokio::time::sleep(PAUSE).await;
                    }
                    _ => break listener,
                }
            };
            match listener {
                Ok(listener) => bound.push(listener),
                Err(error) => failed.push(error),
            }
        }
        for (rule, socket) in bound {
            done.push(rule.describe());
            self.listening.push(ServedSocket::start(rule, socket));
        }
        let place = |old: &ServedSocket<S>| {
            let rule = old.rule.borrow();
            next.order.iter().position(|name| *name == rule.config.name)
        };
        self.listening.sort_by_key(place);
        (done, failed)
    }

    async fn bind(
        &self,
        config: IngressRule<S>,
        way: S::Way,
    ) -> Result<(Arc<Rule<S>>, S::Socket), Error> {
        let bound = config.service.bind(config.listen).await;
        let (socket, address) = bound.map_err(|reason| Error::Listen {
            rule: config.name.clone(),
            address: config.listen,
            reason,
        })?;
        let rule = Rule::new(config, way, address, self.limits.clone());
        Ok((Arc::new(rule), socket))
    }

    /// The rules, in the order of the configuration.
    pub(crate) fn rules(&self) -> Vec<Arc<Rule<S>>> {
        let rules = self
            .listening
            .iter()
            .map(|listening| listening.rule.borrow().clone());
        rules.collect()
    }

    /// Ends all, and returns when they have ended.
    pub(crate) async fn end(&mut self) {
        for listening in &mut self.listening {
            listening.task.shutdown().await;
        }
    }
}

impl<S: Service> ServedSocket<S> {
    fn start(rule: Arc<Rule<S>>, socket: S::Socket) -> Self {
        let (rule, current) = watch::channel(rule);
        let mut task = JoinSet::new();
        task.spawn(S::serve(socket, current));
        Self { rule, task }
    }

    /// Whether it serves exactly this rule.
    fn serves(&self, (config, way): &Wanted<S>) -> bool {
        let rule = self.rule.borrow();
        rule.config == *config && rule.way.is_same(way)
    }

    /// Whether its socket is the one that this rule asks for. Where the kernel chose the port, a rule keeps its own.
    fn can_serve(&self, (config, _): &Wanted<S>) -> bool {
        let rule = self.rule.borrow();
        rule.address == config.listen
            || (rule.config.listen == config.listen && rule.config.name == config.name)
    }

    /// Whether this rule's socket may need this one to be closed first, as one on all addresses does.
    fn is_in_the_way(&self, config: &IngressRule<S>) -> bool {
        self.rule.borrow().address.port() == config.listen.port()
    }

    /// Serves this rule from now on. The counters are the socket's: they go on, as its connections do.
    fn hand_over(&self, (config, way): Wanted<S>) -> Arc<Rule<S>> {
        let rule = Arc::new(self.rule.borrow().next(config, way));
        self.rule.send_replace(rule.clone());
        rule
    }
}

fn is_in_use(error: &Error) -> bool {
    matches!(error, Error::Listen { reason, .. } if reason.kind() == ErrorKind::AddrInUse)
}
