//! The paths of a session rule: what outlives their sessions, and what a changed rule changes.

use std::{
    net::SocketAddr,
    path::{Path, PathBuf},
};

use starhaul_endpoint::{ControllerConfig, PathSpec, RateFeed};
use tokio::task::JoinSet;

use crate::{
    config::{ControllerRule, PathRule},
    rate_feed,
};

/// A configured path at work.
#[derive(Debug)]
pub(crate) struct ConfiguredPath {
    pub(crate) rule: PathRule,
    /// Its feed outlives sessions.
    controller: ControllerConfig,
    /// The file or socket that says its rate, and who follows it.
    feed: Option<(PathBuf, JoinSet<()>)>,
    /// Where its remote was found last.
    pub(crate) remote: Option<SocketAddr>,
}

/// The paths that the rules ask for, with what those of the same name `before` them know already.
pub(crate) fn next_paths(
    rules: Vec<PathRule>,
    mut before: Vec<ConfiguredPath>,
) -> Vec<ConfiguredPath> {
    let paths = rules.into_iter().map(|rule| {
        let known = before.iter().position(|path| path.rule.name == rule.name);
        let known = known.map(|at| before.swap_remove(at));
        ConfiguredPath::new(rule, known)
    });
    paths.collect()
}

/// What becomes of the paths of a session with `peer`, for people.
pub(crate) fn describe_changes(peer: &str, before: &[PathRule], after: &[PathRule]) -> Vec<String> {
    let said = |path: &PathRule, what: &str| format!("path {} to {peer} {what}", path.name);
    let find = |paths: &[PathRule], name: &str| {
        let mut paths = paths.iter();
        paths.find(|path| path.name == name).cloned()
    };
    let gone = before.iter().filter(|old| find(after, &old.name).is_none());
    let gone = gone.map(|old| said(old, "removed"));
    let there = after.iter().filter_map(|new| {
        let Some(old) = find(before, &new.name) else {
            return Some(said(new, "added"));
        };
        let (moved, changed) = differences(&old, new);
        match (moved.is_empty(), changed.is_empty()) {
            (false, _) => {
                let keys = [moved, changed].concat().join(", ");
                Some(said(new, &format!("opened anew: {keys}")))
            }
            (true, false) => Some(said(
                new,
                &format!("changed in place: {}", changed.join(", ")),
            )),
            (true, true) => None,
        }
    });
    gone.chain(there).collect()
}

/// The keys that need another connection, and those that the living one takes.
fn differences(old: &PathRule, new: &PathRule) -> (Vec<&'static str>, Vec<&'static str>) {
    let differ = |keys: &[(&'static str, bool)]| {
        let keys = keys.iter().filter(|(_, differs)| *differs);
        keys.map(|(key, _)| *key).collect()
    };
    let rates = |rule: &PathRule| match &rule.controller {
        ControllerRule::Dedicated { rate, feed } => Some((*rate, feed.clone())),
        ControllerRule::SelfReliant(_) => None,
    };
    let same_kind = rates(old).is_some() && rates(new).is_some();
    let moved = differ(&[
        ("remote", old.remote != new.remote),
        ("local", old.local != new.local),
        ("interface", old.interface != new.interface),
        ("link", old.link != new.link),
    ]);
    let changed = differ(&[
        ("cost", old.cost.total_cmp(&new.cost).is_ne()),
        ("limit", old.limit != new.limit),
        ("monthly", old.quota != new.quota),
        ("active", old.hours != new.hours),
        ("controller", old.controller != new.controller && !same_kind),
        ("rate", same_kind && rates(old) != rates(new)),
        ("detect", old.detection != new.detection),
    ]);
    (moved, changed)
}

impl ConfiguredPath {
    fn new(rule: PathRule, before: Option<Self>) -> Self {
        let (controller, rate) = controller(&rule, before.as_ref());
        let known = before.as_ref();
        let known = known.filter(|old| old.rule.remote == rule.remote);
        let remote = known
            .filter(|old| old.rule.local == rule.local)
            .and_then(|old| old.remote);
        let same_feed = before
            .as_ref()
            .is_some_and(|old| old.controller == controller);
        let file = match &rule.controller {
            ControllerRule::Dedicated { feed, .. } => feed.as_deref(),
            ControllerRule::SelfReliant(_) => None,
        };
        let running = before.and_then(|old| old.feed);
        let running = running.filter(|(old, _)| same_feed && Some(old.as_path()) == file);
        Self {
            feed: running.or_else(|| Some(follow(file?, rate?))),
            rule,
            controller,
            remote,
        }
    }

    /// What a session is to make of it, whose name has the address `remote`.
    pub(crate) fn spec(&mut self, remote: SocketAddr) -> PathSpec {
        self.remote = Some(remote);
        let rule = &self.rule;
        PathSpec {
            name: rule.name.clone(),
            local: rule.local,
            interface: rule.interface.clone(),
            remote,
            cost: rule.cost,
            link: rule.link,
            controller: self.controller.clone(),
            detection: rule.detection,
        }
    }
}

/// The controller of a path, and its rate where that is told: the old one's, so that a living path hears of a change.
fn controller(
    rule: &PathRule,
    before: Option<&ConfiguredPath>,
) -> (ControllerConfig, Option<RateFeed>) {
    let old_rate = before.and_then(|old| match (&old.controller, &old.rule.controller) {
        (ControllerConfig::Dedicated(feed), ControllerRule::Dedicated { rate, .. }) => {
            Some((feed, rate))
        }
        _ => None,
    });
    match (&rule.controller, old_rate) {
        (ControllerRule::Dedicated { rate, feed: file }, Some((feed, old))) => {
            if rate != old {
                feed.set(*rate);
            }
            if file.is_none() {
                // Without the file, no modem will report that its bit errors have become fewer.
                feed.set_bit_error_rate(None);
            }
            (
                ControllerConfig::Dedicated(feed.clone()),
                Some(feed.clone()),
            )
        }
        _ => {
            let (controller, feed) = rule.controller.build();
            (controller, feed.map(|(rate, _)| rate))
        }
    }
}

fn follow(file: &Path, rate: RateFeed) -> (PathBuf, JoinSet<()>) {
    let mut following = JoinSet::new();
    following.spawn(rate_feed::follow(file.to_owned(), rate));
    (file.to_owned(), following)
}

#[cfg(test)]
mod tests {
    use starhaul_units::Bandwidth;

    use super::*;
    use crate::Config;

    /// The paths of a configuration with these tables.
    fn rules(paths: &str) -> Vec<PathRule> {
        let key = starhaul_quic::Identity::generate().public_key();
        let text = format!(
            "state = \"s\"\nidentity.file = \"k\"\n[[peer]]\nname = \"far\"\npublic_key = \"{key}\"\n[[session]]\n{paths}"
        );
        let config = Config::parse(&text, Path::new("test.toml"));
        config.unwrap_or_else(|error| panic!("{error}")).sessions[0]
            .paths
            .clone()
    }

    fn path(more: &str) -> String {
        format!("[[session.path]]\nname = \"a\"\nremote = \"192.0.2.1:1\"\n{more}\n")
    }

    #[test]
    fn each_difference_is_named_with_what_it_costs() {
        let b = "[[session.path]]\nname = \"b\"\nremote = \"192.0.2.1:1\"\n";
        let dedicated = "controller = \"dedicated\"\nrate = \"5mbit\"";
        for (before, after, said) in [
            (path(""), path(""), vec![]),
            (
                path(""),
                path("cost = 2"),
                vec!["path a to far changed in place: cost"],
            ),
            (
                path(""),
                path("monthly = \"50GB\""),
                vec!["path a to far changed in place: monthly"],
            ),
            (
                path("cost = 2"),
                path("interface = \"eth0\""),
                vec!["path a to far opened anew: interface, cost"],
            ),
            (
                path(dedicated),
                path(&dedicated.replace('5', "6")),
                vec!["path a to far changed in place: rate"],
            ),
            (
                path(dedicated),
                path("controller = \"cubic\""),
                vec!["path a to far changed in place: controller"],
            ),
            (
                path(""),
                b.to_owned(),
                vec!["path a to far removed", "path b to far added"],
            ),
        ] {
            let done = describe_changes("far", &rules(&before), &rules(&after));
            assert_eq!(done, said, "{before} {after}");
        }
    }

    #[tokio::test]
    async fn a_changed_rate_reaches_the_controller_of_the_living_path() {
        let text = |rate: &str, cost: u8| {
            path(&format!(
                "controller = \"dedicated\"\nrate = \"{rate}\"\ncost = {cost}"
            ))
        };
        let mut paths = next_paths(rules(&text("5mbit", 1)), Vec::new());
        let remote = "192.0.2.1:1".parse().unwrap();
        let before = paths[0].spec(remote);
        let ControllerConfig::Dedicated(feed) = &before.controller else {
            panic!("{before:?}");
        };
        assert_eq!(feed.rate(), Bandwidth::from_mbit(5));
        // A modem has said another rate; what does not concern the rate leaves that alone.
        feed.set(Bandwidth::from_mbit(3));
        let mut paths = next_paths(rules(&text("5mbit", 2)), paths);
        assert_eq!(feed.rate(), Bandwidth::from_mbit(3));
        let after = paths[0].spec(remote);
        assert_eq!(after.controller, before.controller);
        next_paths(rules(&text("9mbit", 2)), paths);
        assert_eq!(feed.rate(), Bandwidth::from_mbit(9));
    }
}
