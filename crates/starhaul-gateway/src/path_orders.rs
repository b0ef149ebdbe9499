//! What holds for the paths to a peer while the gateway runs, on top of its configuration: what an operator ordered, quotas and
//! hours. Orders hold until they are changed or the gateway ends, or beyond that if they are kept; sessions and reloads come and
//! go beneath them.

mod standing;
#[cfg(test)]
mod tests;
mod values;

use std::{collections::BTreeMap, sync::Arc};

use parking_lot::Mutex;
use starhaul_endpoint::PublicKey;
use starhaul_units::Bandwidth;
use tokio::sync::watch;

pub(crate) use self::standing::{Standing, Why};
pub use self::values::MAX_COST;
use self::{
    standing::Facts,
    values::{NONE, Order, read_used, show_hours, show_quota},
};
use crate::{
    config::{PathRule, SessionRule},
    kept::Kept,
    path_change::PathChange,
    quota::{
        Key,
        keeper::{Quotas, calendar},
    },
    status,
};

/// The paths to one peer as configured, what is ordered of them, and the session rule that follows from both, from their quotas
/// and their hours.
#[derive(Debug)]
pub(crate) struct PathOrders {
    state: Mutex<State>,
    /// Orders are kept in the sequence in which they were taken.
    keeping: Mutex<()>,
    kept: Arc<Kept>,
}

#[derive(Debug)]
struct State {
    peer: String,
    public_key: PublicKey,
    quotas: Arc<Quotas>,
    configured: Option<SessionRule>,
    orders: BTreeMap<String, Order>,
    /// What the log knows of each path.
    told: BTreeMap<String, Facts>,
    /// To the task that keeps the session, if this side keeps one.
    rules: Option<watch::Sender<SessionRule>>,
}

impl PathOrders {
    /// The orders of the paths to a peer: at first those that are kept.
    pub(crate) fn new(
        peer: &str,
        public_key: PublicKey,
        quotas: Arc<Quotas>,
        kept: Arc<Kept>,
    ) -> Self {
        let mut orders = BTreeMap::new();
        for change in kept.of_peer(peer) {
            match Order::default().changed(&change) {
                Ok(order) => _ = orders.insert(change.path, order),
                Err(problem) => {
                    tracing::error!(peer, path = change.path, problem, "a kept order is refused");
                }
            }
        }
        Self {
            state: Mutex::new(State {
                peer: peer.to_owned(),
                public_key,
                quotas,
                configured: None,
                orders,
                told: BTreeMap::new(),
                rules: None,
            }),
            keeping: Mutex::default(),
            kept,
        }
    }

    /// Takes what was ordered of the paths to a peer whose key was another one, and what the log knows of them.
    pub(crate) fn take_over(&self, former: &Self) {
        let (orders, told) = {
            let former = former.state.lock();
            (former.orders.clone(), former.told.clone())
        };
        let mut state = self.state.lock();
        (state.orders, state.told) = (orders, told);
    }

    /// Sets what is configured; `None` where this side keeps no session.
    pub(crate) fn configure(&self, rule: Option<SessionRule>) {
        let mut state = self.state.lock();
        if rule.is_none() {
            state.rules = None;
        }
        state.configured = rule;
        state.follow_quotas();
        state.publish();
    }

    /// The session rule, now and as it changes; `rule` is the configured one.
    pub(crate) fn follow(&self, rule: SessionRule) -> watch::Receiver<SessionRule> {
        let mut state = self.state.lock();
        state.configured = Some(rule.clone());
        state.follow_quotas();
        let (sender, receiver) = watch::channel(state.in_force(&rule));
        state.rules = Some(sender);
        receiver
    }

    /// Follows hours and quotas: changes the session rule if they do, and tells the log.
    pub(crate) fn refresh(&self) {
        let mut state = self.state.lock();
        state.tell();
        state.publish();
    }

    /// Names of the paths that are to be in service.
    pub(crate) fn path_names(&self) -> Vec<String> {
        let state = self.state.lock();
        let configured = state.configured.iter();
        let paths = configured.flat_map(|rule| state.in_force(rule).paths);
        paths.map(|path| path.name).collect()
    }

    /// Names of all configured paths, in service or not.
    pub(crate) fn all_names(&self) -> Vec<String> {
        let state = self.state.lock();
        let paths = state.configured.iter().flat_map(|rule| &rule.paths);
        paths.map(|path| path.name.clone()).collect()
    }

    /// Names of the paths that may carry nothing more, not even until another one is up.
    pub(crate) fn closed_names(&self) -> Vec<String> {
        let state = self.state.lock();
        let paths = state.configured.iter().flat_map(|rule| &rule.paths);
        let closed = paths.filter(|path| {
            let out = state.standing(path).out;
            out.is_some_and(|why| why != Why::Ordered)
        });
        closed.map(|path| path.name.clone()).collect()
    }

    /// The greatest rate of our direction of a path.
    pub(crate) fn rate_limit(&self, path: &str) -> Option<Bandwidth> {
        let state = self.state.lock();
        let ordered = state.orders.get(path).and_then(|order| order.limit);
        ordered.unwrap_or_else(|| state.rule(path)?.limit)
    }

    /// Takes an order.
    ///
    /// # Errors
    /// A value is impossible, the peer opened the path and only its limit can be set here, no other path would be in service, the
    /// path would not be in service although it shall be, or the order holds and cannot be kept.
    pub(crate) fn order(&self, change: &PathChange) -> Result<(), String> {
        if change.keep && !self.kept.has_folder() {
            return Err(
                "orders are kept in the folder \"state\" of the configuration, and it names none"
                    .to_owned(),
            );
        }
        let _keeping = change.keep.then(|| self.keeping.lock());
        let mut state = self.state.lock();
        state.order(change, self.kept.has_folder())?;
        state.publish();
        if !change.keep {
            return Ok(());
        }
        let peer = state.peer.clone();
        let order = state.orders.get(&change.path);
        let order = order.map(|order| order.as_change(&peer, &change.path));
        // The session goes on while the disk is waited for.
        drop(state);
        self.kept.keep(&peer, &change.path, order)
    }

    /// What differs from the configuration, and what will in the next life.
    pub(crate) fn snapshot(&self) -> Vec<status::PathOrder> {
        let state = self.state.lock();
        let kept = self.kept.of_peer(&state.peer).into_iter();
        let kept: BTreeMap<_, _> = kept.map(|change| (change.path.clone(), change)).collect();
        let mut names: Vec<_> = state.orders.keys().chain(kept.keys()).collect();
        names.sort();
        names.dedup();
        names
            .into_iter()
            .map(|path| {
                let order = state.orders.get(path).cloned().unwrap_or_default();
                let change = order.as_change(&state.peer, path);
                let kept = kept.get(path);
                status::PathOrder {
                    path: path.clone(),
                    down: order.down,
                    cost: order.cost,
                    limit: order.limit.map(|limit| match limit {
                        Some(rate) => rate.to_string(),
                        None => NONE.to_owned(),
                    }),
                    monthly: order.monthly.map(show_quota),
                    active: order
                        .active
                        .as_ref()
                        .map(|hours| show_hours(hours.as_ref())),
                    kept: kept == Some(&change),
                    kept_otherwise: kept.filter(|kept| **kept != change).cloned(),
                }
            })
            .collect()
    }

    /// What holds for each configured path.
    pub(crate) fn standings(&self) -> Vec<(String, Standing)> {
        let state = self.state.lock();
        let paths = state.configured.iter().flat_map(|rule| &rule.paths);
        paths
            .map(|path| (path.name.clone(), state.standing(path)))
            .collect()
    }
}

impl State {
    fn rule(&self, path: &str) -> Option<&PathRule> {
        let mut paths = self.configured.iter().flat_map(|rule| &rule.paths);
        paths.find(|rule| rule.name == path)
    }

    fn key(&self, path: &str) -> Key {
        Key {
            peer: self.peer.clone(),
            path: path.to_owned(),
        }
    }

    fn order_of(&self, path: &str) -> Order {
        self.orders.get(path).cloned().unwrap_or_default()
    }

    /// What holds for a configured path.
    fn standing(&self, path: &PathRule) -> Standing {
        let mut order = self.order_of(&path.name);
        // A reload may have removed all paths that were in service: then these orders cannot be kept. Quotas and hours can: they
        // hold for the last path, too.
        let mut paths = self.configured.iter().flat_map(|rule| &rule.paths);
        order.down &= !paths.all(|path| self.order_of(&path.name).down);
        order.standing(path, calendar(), || {
            self.quotas.usage(&self.key(&path.name))
        })
    }

    fn another_serves(&self, path: &str) -> bool {
        let mut paths = self.configured.iter().flat_map(|rule| &rule.paths);
        paths.any(|other| other.name != path && self.standing(other).out.is_none())
    }

    fn order(&mut self, change: &PathChange, has_folder: bool) -> Result<(), String> {
        let name = &change.path;
        let order = self.order_of(name).changed(change)?;
        let Some(rule) = self.rule(name).cloned() else {
            let PathChange {
                down,
                cost,
                monthly,
                used,
                active,
                ..
            } = change;
            if down.is_some()
                || [cost, monthly, used, active]
                    .into_iter()
                    .any(Option::is_some)
            {
                return Err(format!(
                    "the peer opens path {name:?}: order that there; only its limit can be set here"
                ));
            }
            self.set(name, order);
            return Ok(());
        };
        let quota = order.quota(&rule);
        if change.monthly.is_some() && quota.is_some() && !has_folder {
            return Err("monthly: the configuration names no folder \"state\" where the count could be kept".to_owned());
        }
        let used = change.used.as_deref().map(read_used).transpose()?;
        let key = self.key(name);
        if let Some(quota) = &quota {
            // To be counted changes nothing for the path, should the order be refused.
            self.quotas.follow(&key, self.public_key, quota.scheme);
        } else if used.is_some() {
            return Err(format!("used: path {name:?} has no quota"));
        }
        if change.down == Some(true) && !self.another_serves(name) {
            return Err(format!(
                "path {name:?} is the last one in service: take another one up first"
            ));
        }
        let standing = order.standing(&rule, calendar(), || {
            let usage = self.quotas.usage(&key)?;
            Some(match used {
                Some(used) => usage.given(used),
                None => usage,
            })
        });
        if change.down == Some(false) && standing.out.is_some() {
            return Err(format!("path {name:?}: {}", standing.remedy(name)));
        }
        if let Some(used) = used {
            self.quotas.set_used(&key, used);
        }
        self.set(name, order);
        Ok(())
    }

    fn set(&mut self, path: &str, order: Order) {
        match order == Order::default() {
            true => self.orders.remove(path),
            false => self.orders.insert(path.to_owned(), order),
        };
    }

    /// Counts what the paths with a quota carry.
    fn follow_quotas(&self) {
        let paths = self.configured.iter().flat_map(|rule| &rule.paths);
        for path in paths {
            if let Some(quota) = self.order_of(&path.name).quota(path) {
                let key = self.key(&path.name);
                self.quotas.follow(&key, self.public_key, quota.scheme);
            }
        }
    }

    /// The session rule under the present orders, quotas and hours.
    fn in_force(&self, rule: &SessionRule) -> SessionRule {
        let mut rule = rule.clone();
        rule.paths.retain_mut(|path| {
            let order = self.order_of(&path.name);
            let standing = self.standing(path);
            path.cost = match standing.costly {
                true => MAX_COST,
                false => order.cost.unwrap_or(path.cost),
            };
            standing.out.is_none()
        });
        rule
    }

    fn publish(&self) {
        let (Some(rules), Some(configured)) = (&self.rules, &self.configured) else {
            return;
        };
        let rule = self.in_force(configured);
        rules.send_if_modified(|present| {
            let changed = *present != rule;
            *present = rule;
            changed
        });
    }

    /// Writes what is new of quotas and hours into the log.
    fn tell(&mut self) {
        let paths = self.configured.iter().flat_map(|rule| &rule.paths);
        let now: BTreeMap<_, _> = paths
            .map(|path| {
                let standing = self.standing(path);
                let facts = standing.facts();
                let before = self.told.get(&path.name).copied().unwrap_or_default();
                facts.tell(before, &self.peer, &path.name, &standing);
                (path.name.clone(), facts)
            })
            .collect();
        self.told = now;
    }
}
