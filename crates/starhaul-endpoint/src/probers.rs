//! Who watches the satellite hops of paths: one prober for each way out of this host and target, for all paths that share it
//! (LeoCC §4.1.1).

use std::{
    net::SocketAddr,
    sync::{Arc, Weak},
    time::{Duration, Instant},
};

use parking_lot::Mutex;
use starhaul_net::prober::{
    ProbeMethod, ProbedBy, Prober, ProberConfig, ProberEvent, ProberStatus, Stage, Via,
};
use starhaul_quic::{LocalId, Node, SessionHandle};
use starhaul_session::PathId;

/// After so long without traffic, longer than most pauses, a prober rests.
const REST_AFTER: Duration = Duration::from_secs(10);
/// A driver at work does not look for idle paths in each of its turns.
const PACE_INTERVAL: Duration = Duration::from_millis(10);
/// Each has a thread that goes before others; a host has a few dishes at most.
const MAX_PROBERS: usize = 32;

/// Who wants to hear of reconfigurations.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Follower {
    /// A path of ours, by its socket.
    Socket(LocalId),
    /// A path that a peer opened to us; all of them share the listening socket, and lead over the dish of the configuration.
    Accepted(SessionHandle, PathId),
}

/// Lends a prober's thread the node that it tells.
pub(crate) trait NodeLender: Send + Sync + 'static {
    /// Calls `tell` with the node, and lets the driver act on what that did.
    fn with_node(&self, tell: impl FnOnce(&mut Node));
}

/// The probers of an endpoint.
#[derive(Default)]
pub(crate) struct Probers {
    entries: Vec<Entry>,
    /// When it was last seen which of them have work.
    paced_at: Option<Instant>,
}

struct Entry {
    config: ProberConfig,
    prober: Prober,
    followers: Followers,
}

/// The paths that a prober serves, and where each leads.
type Followers = Arc<Mutex<Vec<(Follower, Option<SocketAddr>)>>>;

impl Probers {
    /// A path wants to know; the first one of its kind starts a prober.
    pub(crate) fn follow(
        &mut self,
        follower: Follower,
        config: ProberConfig,
        shared: &Arc<impl NodeLender>,
    ) {
        let accepted = matches!(follower, Follower::Accepted(..));
        let serves = |entry: &&Entry| is_shared(&entry.config, &config, accepted);
        let told = (follower, config.toward);
        if let Some(entry) = self.entries.iter().find(serves) {
            let mut followers = entry.followers.lock();
            followers.retain(|(other, _)| *other != follower);
            followers.push(told);
            return;
        }
        if self.entries.len() >= MAX_PROBERS {
            tracing::warn!(
                "reconfigurations of a path are not watched: {MAX_PROBERS} probers run already"
            );
            return;
        }
        let followers = Arc::new(Mutex::new(vec![told]));
        match start(config.clone(), &followers, shared) {
            Ok(prober) => self.entries.push(Entry {
                config,
                prober,
                followers,
            }),
            Err(error) => tracing::warn!(%error, "reconfigurations are not watched"),
        }
    }

    /// The path is gone; the last one ends its prober.
    pub(crate) fn leave(&mut self, follower: Follower, shared: &Arc<impl NodeLender>) {
        self.leave_all(|other| other == follower, shared);
    }

    /// The session is gone, with all paths that its peer opened.
    pub(crate) fn leave_session(&mut self, session: SessionHandle, shared: &Arc<impl NodeLender>) {
        let of_it = |other| matches!(other, Follower::Accepted(handle, _) if handle == session);
        self.leave_all(of_it, shared);
    }

    fn leave_all(&mut self, gone: impl Fn(Follower) -> bool, shared: &Arc<impl NodeLender>) {
        self.entries.retain_mut(|entry| {
            let left = {
                let mut followers = entry.followers.lock();
                followers.retain(|(other, _)| !gone(*other));
                followers.clone()
            };
            entry.lead_to_someone(&left, shared);
            !left.is_empty()
        });
    }

    /// Lets those rest over whose paths nothing flows, and the others work.
    pub(crate) fn pace(&mut self, now: Instant, node: &Node) {
        let soon = |at| now.saturating_duration_since(at) < PACE_INTERVAL;
        if self.entries.is_empty() || self.paced_at.is_some_and(soon) {
            return;
        }
        self.paced_at = Some(now);
        for entry in &self.entries {
            let used = entry
                .followers
                .lock()
                .iter()
                .filter_map(used_at(node))
                .max();
            let idle = used.map(|at| now.saturating_duration_since(at));
            entry.prober.rest(idle.is_none_or(|idle| idle > REST_AFTER));
        }
    }

    /// How the prober of this path fares, if it has one.
    pub(crate) fn status(&self, follower: Follower) -> Option<ProberStatus> {
        let follows = |entry: &&Entry| {
            entry
                .followers
                .lock()
                .iter()
                .any(|(other, _)| *other == follower)
        };
        Some(self.entries.iter().find(follows)?.prober.status())
    }
}

impl Entry {
    /// A prober whose far end has left needs another one, unless it asks a hop on the way: that one stays where it is.
    fn lead_to_someone(
        &mut self,
        left: &[(Follower, Option<SocketAddr>)],
        shared: &Arc<impl NodeLender>,
    ) {
        let Some((_, toward)) = left.first() else {
            return;
        };
        let still_there = left.iter().any(|(_, toward)| *toward == self.config.toward);
        let by_icmp = match self.prober.status().stage {
            Stage::Probing { by, .. } => by != ProbedBy::UdpEcho,
            _ => false,
        };
        if still_there || by_icmp {
            return;
        }
        self.config.toward = *toward;
        match start(self.config.clone(), &self.followers, shared) {
            Ok(prober) => self.prober = prober,
            Err(error) => tracing::warn!(%error, "a prober keeps to a far end that has left"),
        }
    }
}

fn used_at(node: &Node) -> impl Fn(&(Follower, Option<SocketAddr>)) -> Option<Instant> {
    |(follower, _)| match *follower {
        Follower::Socket(local) => node.local_used_at(local),
        Follower::Accepted(session, path) => node.path_used_at(session, path),
    }
}

fn start(
    config: ProberConfig,
    followers: &Followers,
    shared: &Arc<impl NodeLender>,
) -> Result<Prober, starhaul_net::Error> {
    let (followers, shared) = (followers.clone(), Arc::downgrade(shared));
    Prober::start(config, move |event| tell(event, &followers, &shared))
}

/// Whether one prober does for both. Where the way out is fixed, or all paths lead over one dish, the satellite is the same wherever
/// packets go behind it.
fn is_shared(one: &ProberConfig, other: &ProberConfig, one_dish: bool) -> bool {
    let fixed = (one_dish || one.via != Via::default()) && one.method != ProbeMethod::Udp;
    let same_version =
        one.toward.map(|toward| toward.is_ipv4()) == other.toward.map(|toward| toward.is_ipv4());
    let toward = match fixed && same_version {
        true => one.toward,
        false => other.toward,
    };
    let other = ProberConfig {
        toward,
        ..other.clone()
    };
    *one == other
}

/// On the prober's thread.
fn tell(event: ProberEvent, followers: &Followers, shared: &Weak<impl NodeLender>) {
    let Some(shared) = shared.upgrade() else {
        return;
    };
    let now = Instant::now();
    match event {
        ProberEvent::Reconfiguration(event) => {
            tracing::debug!(outage = ?event.outage, confidence = event.confidence, "reconfiguration");
            let followers = followers.lock().clone();
            shared.with_node(|node| {
                for (follower, _) in followers {
                    match follower {
                        Follower::Socket(local) => {
                            _ = node.on_local_reconfiguration(now, local, event);
                        }
                        // A session that has just ended needs it no more.
                        Follower::Accepted(session, path) => {
                            _ = node.on_reconfiguration(now, session, path, event);
                        }
                    }
                }
            });
        }
        ProberEvent::SegmentRtt { rtt, .. } => {
            let followers = followers.lock().clone();
            shared.with_node(|node| {
                for (follower, _) in followers {
                    match follower {
                        Follower::Socket(local) => node.on_local_segment_rtt(now, local, rtt),
                        Follower::Accepted(session, path) => {
                            _ = node.on_segment_rtt(now, session, path, rtt);
                        }
                    }
                }
            });
        }
        ProberEvent::Stage(Stage::Probing { target, found, by }) => {
            let reason = found.map_or("configured", |found| found.by.reason());
            tracing::info!(%target, by = by.name(), reason, "watches for reconfigurations");
        }
        ProberEvent::Stage(Stage::Waiting { problem }) => {
            tracing::warn!(%problem, "cannot watch for reconfigurations, will try again");
        }
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Detection, PathSpec};

    #[test]
    fn paths_over_one_dish_share_a_prober_and_others_do_not() {
        let path = |interface: Option<&str>, remote: &str| {
            let mut path = PathSpec::new("leo", remote.parse().unwrap());
            path.interface = interface.map(Into::into);
            path.prober(&Detection::default())
        };
        let dish = path(Some("dish0"), "192.0.2.1:4600");
        for (other, shared) in [
            (path(Some("dish0"), "198.51.100.1:4600"), true),
            (path(Some("dish1"), "192.0.2.1:4600"), false),
            (path(None, "192.0.2.1:4600"), false),
            (path(Some("dish0"), "[2001:db8::1]:4600"), false),
        ] {
            assert_eq!(is_shared(&dish, &other, false), shared, "{other:?}");
        }
        let (one, other) = (path(None, "192.0.2.1:1"), path(None, "192.0.2.2:1"));
        assert!(
            !is_shared(&one, &other, false),
            "the kernel may send them different ways"
        );
        assert!(is_shared(&one, &other, true), "they all lead over one dish");
        let mut far = dish.clone();
        far.method = ProbeMethod::Udp;
        let mut elsewhere = far.clone();
        elsewhere.toward = Some("198.51.100.1:4600".parse().unwrap());
        assert!(
            !is_shared(&far, &elsewhere, true),
            "each far end answers for itself"
        );
    }
}
