//! What an operator ordered of the paths to a peer while the gateway runs, on top of its configuration. Orders hold until they
//! are changed or the gateway ends; sessions and reloads come and go beneath them.

use std::collections::BTreeMap;

use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use starhaul_units::Bandwidth;
use tokio::sync::watch;

use crate::{
    config::{PathRule, SessionRule},
    status,
};

/// Highest price per byte, as in the configuration.
const MAX_COST: f64 = 1e12;
/// In place of a value: as the configuration has it.
const CONFIGURED: &str = "configured";
/// In place of a rate: no limit, whatever the configuration has.
const NONE: &str = "none";

/// A change of one path, as a client of the control socket writes it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PathChange {
    /// Name of the path.
    pub path: String,
    /// Name of the peer; needed where several have a path of that name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub peer: Option<String>,
    /// Out of service, or in service again.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub down: Option<bool>,
    /// Price per byte, or `configured`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cost: Option<String>,
    /// Greatest rate of our direction, as `5mbit`, or `none`, or `configured`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limit: Option<String>,
}

/// What is ordered of one path; by default nothing.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct Order {
    down: bool,
    cost: Option<f64>,
    /// `Some(None)`: no limit, even where the configuration has one.
    limit: Option<Option<Bandwidth>>,
}

/// The paths to one peer as configured, what is ordered of them, and the session rule that follows from both.
#[derive(Debug, Default)]
pub(crate) struct PathOrders(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    configured: Option<SessionRule>,
    orders: BTreeMap<String, Order>,
    /// To the task that keeps the session, if this side keeps one.
    rules: Option<watch::Sender<SessionRule>>,
}

impl PathOrders {
    /// Sets what is configured; `None` where this side keeps no session.
    pub(crate) fn configure(&self, rule: Option<SessionRule>) {
        let mut state = self.0.lock();
        if rule.is_none() {
            state.rules = None;
        }
        state.configured = rule;
        state.publish();
    }

    /// The session rule, now and as it changes; `rule` is the configured one.
    pub(crate) fn follow(&self, rule: SessionRule) -> watch::Receiver<SessionRule> {
        let mut state = self.0.lock();
        let (sender, receiver) = watch::channel(state.with_orders(&rule));
        state.configured = Some(rule);
        state.rules = Some(sender);
        receiver
    }

    /// Names of the paths that are to be in service.
    pub(crate) fn path_names(&self) -> Vec<String> {
        let state = self.0.lock();
        let configured = state.configured.iter();
        let paths = configured.flat_map(|rule| state.with_orders(rule).paths);
        paths.map(|path| path.name).collect()
    }

    /// Names of all configured paths, in service or not.
    pub(crate) fn all_names(&self) -> Vec<String> {
        let state = self.0.lock();
        let paths = state.configured.iter().flat_map(|rule| &rule.paths);
        paths.map(|path| path.name.clone()).collect()
    }

    /// The greatest rate of our direction of a path.
    pub(crate) fn rate_limit(&self, path: &str) -> Option<Bandwidth> {
        let state = self.0.lock();
        let ordered = state.orders.get(path).and_then(|order| order.limit);
        ordered.unwrap_or_else(|| state.rule(path)?.limit)
    }

    /// Takes an order.
    ///
    /// # Errors
    /// A value is impossible, the peer opened the path and only its limit can be set here, or no other path would be in service.
    pub(crate) fn order(&self, change: &PathChange) -> Result<(), String> {
        let mut state = self.0.lock();
        let name = &change.path;
        let mut order = state.orders.get(name).copied().unwrap_or_default();
        if (change.down.is_some() || change.cost.is_some()) && state.rule(name).is_none() {
            return Err(format!(
                "the peer opens path {name:?}: take it down or change its cost there; only its limit can be set here"
            ));
        }
        if let Some(cost) = &change.cost {
            order.cost = read_cost(cost)?;
        }
        if let Some(limit) = &change.limit {
            order.limit = read_limit(limit)?;
        }
        if let Some(down) = change.down {
            order.down = down;
        }
        if order.down && !state.another_serves(name) {
            return Err(format!(
                "path {name:?} is the last one in service: take another one up first"
            ));
        }
        match order == Order::default() {
            true => state.orders.remove(name),
            false => state.orders.insert(name.clone(), order),
        };
        state.publish();
        Ok(())
    }

    /// What differs from the configuration.
    pub(crate) fn snapshot(&self) -> Vec<status::PathOrder> {
        let state = self.0.lock();
        let orders = state.orders.iter();
        orders
            .map(|(path, order)| status::PathOrder {
                path: path.clone(),
                down: order.down,
                cost: order.cost,
                limit: order.limit.map(|limit| match limit {
                    Some(rate) => rate.to_string(),
                    None => NONE.to_owned(),
                }),
            })
            .collect()
    }
}

impl State {
    fn rule(&self, path: &str) -> Option<&PathRule> {
        let mut paths = self.configured.iter().flat_map(|rule| &rule.paths);
        paths.find(|rule| rule.name == path)
    }

    fn is_down(&self, path: &str) -> bool {
        self.orders.get(path).is_some_and(|order| order.down)
    }

    fn another_serves(&self, path: &str) -> bool {
        let mut paths = self.configured.iter().flat_map(|rule| &rule.paths);
        paths.any(|other| other.name != path && !self.is_down(&other.name))
    }

    fn with_orders(&self, rule: &SessionRule) -> SessionRule {
        let is_last = rule.paths.iter().all(|path| self.is_down(&path.name));
        let mut rule = rule.clone();
        // A reload may have removed all paths that were in service: then the orders cannot be kept.
        rule.paths
            .retain(|path| is_last || !self.is_down(&path.name));
        for path in &mut rule.paths {
            let cost = self.orders.get(&path.name).and_then(|order| order.cost);
            path.cost = cost.unwrap_or(path.cost);
        }
        rule
    }

    fn publish(&self) {
        let (Some(rules), Some(configured)) = (&self.rules, &self.configured) else {
            return;
        };
        let rule = self.with_orders(configured);
        rules.send_if_modified(|present| {
            let changed = *present != rule;
            *present = rule;
            changed
        });
    }
}

fn read_cost(text: &str) -> Result<Option<f64>, String> {
    if text == CONFIGURED {
        return Ok(None);
    }
    let cost = text.parse().ok();
    let cost = cost.filter(|cost| (0.0..=MAX_COST).contains(cost));
    cost.map(Some).ok_or_else(|| {
        format!(
            "cost: {text:?} is no price: write a number from 0 to {MAX_COST:e}, or {CONFIGURED}"
        )
    })
}

fn read_limit(text: &str) -> Result<Option<Option<Bandwidth>>, String> {
    match text {
        CONFIGURED => Ok(None),
        NONE => Ok(Some(None)),
        rate => match rate.parse() {
            Ok(Bandwidth::ZERO) => {
                Err("limit: a rate of zero carries nothing; take the path down instead".to_owned())
            }
            Ok(rate) => Ok(Some(Some(rate))),
            Err(error) => Err(format!("limit: {error}; or {NONE}, or {CONFIGURED}")),
        },
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;
    use crate::Config;

    fn rule(paths: &[(&str, &str)]) -> SessionRule {
        let key = starhaul_quic::Identity::generate().public_key();
        let mut text = format!(
            "identity.file = \"k\"\n[[peer]]\nname = \"far\"\npublic_key = \"{key}\"\n[[session]]\n"
        );
        for (name, more) in paths {
            text +=
                &format!("[[session.path]]\nname = \"{name}\"\nremote = \"192.0.2.1:1\"\n{more}\n");
        }
        let config = Config::parse(&text, Path::new("test.toml"));
        config
            .unwrap_or_else(|error| panic!("{error}"))
            .sessions
            .remove(0)
    }

    fn change(path: &str) -> PathChange {
        PathChange {
            path: path.to_owned(),
            ..PathChange::default()
        }
    }

    fn down(path: &str, down: bool) -> PathChange {
        PathChange {
            down: Some(down),
            ..change(path)
        }
    }

    #[test]
    fn orders_hold_over_reloads_and_the_last_path_stays_in_service() {
        let orders = PathOrders::default();
        let rules = orders.follow(rule(&[("a", ""), ("b", "cost = 3")]));
        let names = || {
            rules
                .borrow()
                .paths
                .iter()
                .map(|path| path.name.clone())
                .collect::<Vec<_>>()
        };
        orders.order(&down("a", true)).unwrap();
        assert_eq!(names(), ["b"]);
        assert!(
            orders
                .order(&down("b", true))
                .unwrap_err()
                .contains("last one")
        );
        orders.configure(Some(rule(&[("a", ""), ("b", ""), ("c", "")])));
        assert_eq!(names(), ["b", "c"]);
        assert_eq!(orders.path_names(), ["b", "c"]);
        // Only the path that is down is left: better that one than none.
        orders.configure(Some(rule(&[("a", "")])));
        assert_eq!(names(), ["a"]);
        orders.order(&down("a", false)).unwrap();
        assert!(orders.snapshot().is_empty());
    }

    #[test]
    fn values_replace_the_configured_ones_until_they_are_given_back() {
        let orders = PathOrders::default();
        let rules = orders.follow(rule(&[("a", "cost = 3\nlimit = \"5mbit\"")]));
        let set = |cost: Option<&str>, limit: Option<&str>| {
            orders.order(&PathChange {
                cost: cost.map(str::to_owned),
                limit: limit.map(str::to_owned),
                ..change("a")
            })
        };
        let now = || (rules.borrow().paths[0].cost, orders.rate_limit("a"));
        let mbit = |rate| Some(Bandwidth::from_mbit(rate));
        assert_eq!(now(), (3.0, mbit(5)));
        set(Some("0"), Some("2mbit")).unwrap();
        assert_eq!(now(), (0.0, mbit(2)));
        set(None, Some("none")).unwrap();
        assert_eq!(now(), (0.0, None));
        for (cost, limit) in [
            ("-1", "none"),
            ("NaN", "none"),
            ("1", "0mbit"),
            ("1", "fast"),
        ] {
            set(Some(cost), Some(limit)).unwrap_err();
            assert_eq!(now(), (0.0, None), "{cost} {limit}");
        }
        set(Some("configured"), Some("configured")).unwrap();
        assert_eq!(now(), (3.0, mbit(5)));
    }

    #[test]
    fn of_a_path_that_the_peer_opened_only_the_limit_can_be_set() {
        let orders = PathOrders::default();
        assert!(
            orders
                .order(&down("a", true))
                .unwrap_err()
                .contains("there")
        );
        let limit = PathChange {
            limit: Some("1mbit".to_owned()),
            ..change("a")
        };
        orders.order(&limit).unwrap();
        assert_eq!(orders.rate_limit("a"), Some(Bandwidth::from_mbit(1)));
    }
}
