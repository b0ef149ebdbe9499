//! The probers of satellite hops: one for each target and way out of this host, for all paths that share both (LeoCC
//! §4.1.1).

use std::{
    net::SocketAddr,
    time::{Duration, Instant},
};

use starhaul_cc::{PathEnd, PathSignal, ProbeMethod};
use starhaul_log::Seldom;
use starhaul_net::{
    WireMeter,
    prober::{ProbedBy, Prober, ProberConfig, ProberEvent, ProberStatus, Stage, Via},
};
use starhaul_quic::{Node, SessionHandle, SignalTarget};

use crate::inbox::{Inbox, Input, ProberId};

/// A prober rests when its paths carried nothing for this time, which is longer than most pauses.
const REST_AFTER: Duration = Duration::from_secs(10);
/// A busy driver checks for idle paths at most this often.
const PACE_INTERVAL: Duration = Duration::from_millis(10);
/// Each prober has a thread of high priority; a host has a few dishes at most.
const MAX_PROBERS: usize = 32;

/// The probers of an endpoint.
pub(crate) struct Probers {
    inbox: Inbox,
    entries: Vec<Entry>,
    next_id: u32,
    /// When it was last checked which paths are idle.
    paced_at: Option<Instant>,
}

struct Entry {
    id: ProberId,
    config: ProberConfig,
    prober: Prober,
    /// Bytes of the prober that its paths' meters know.
    counted: u64,
    paths: Vec<Follower>,
    /// Its lines of what it watches, and of why it cannot: a target may come and go all day.
    watches: Seldom,
    fails: Seldom,
}

/// A path that a prober serves.
struct Follower {
    paths: SignalTarget,
    /// Its far end.
    toward: Option<SocketAddr>,
    /// Counts its bytes on the wire.
    meter: Option<WireMeter>,
}

impl Probers {
    /// Creates the probers of the driver with this inbox; none runs yet.
    pub(crate) fn new(inbox: Inbox) -> Self {
        Self {
            inbox,
            entries: Vec::new(),
            next_id: 0,
            paced_at: None,
        }
    }

    /// Probes for these paths: by a prober that serves them already or can, else by a new one.
    pub(crate) fn follow(
        &mut self,
        paths: SignalTarget,
        config: ProberConfig,
        meter: Option<WireMeter>,
    ) {
        self.count_probes();
        let accepted = matches!(paths, SignalTarget::Path(..));
        let follower = Follower {
            paths,
            toward: config.toward,
            meter,
        };
        let mut entries = self.entries.iter_mut();
        if let Some(entry) = entries.find(|entry| is_shared(&entry.config, &config, accepted)) {
            entry.paths.retain(|other| other.paths != paths);
            entry.paths.push(follower);
            return;
        }
        if self.entries.len() >= MAX_PROBERS {
            tracing::warn!(
                "reconfigurations of a path are not watched: {MAX_PROBERS} probers run already"
            );
            return;
        }
        let id = ProberId(self.next_id);
        self.next_id += 1;
        match start(&self.inbox, id, &config) {
            Ok(prober) => self.entries.push(Entry {
                id,
                config,
                prober,
                counted: 0,
                paths: vec![follower],
                watches: Seldom::default(),
                fails: Seldom::default(),
            }),
            Err(error) => tracing::warn!(%error, "reconfigurations are not watched"),
        }
    }

    /// Counts what probes and their answers took, for each path that they serve.
    pub(crate) fn count_probes(&mut self) {
        self.entries.iter_mut().for_each(Entry::count_probes);
    }

    /// These paths are gone; a prober ends with its last path.
    pub(crate) fn leave(&mut self, paths: SignalTarget) {
        self.leave_all(|other| other == paths);
    }

    /// The session is gone, with all paths that its peer opened.
    pub(crate) fn leave_session(&mut self, session: SessionHandle) {
        self.leave_all(|paths| matches!(paths, SignalTarget::Path(of, _) if of == session));
    }

    fn leave_all(&mut self, gone: impl Fn(SignalTarget) -> bool) {
        self.count_probes();
        for entry in &mut self.entries {
            entry.paths.retain(|follower| !gone(follower.paths));
            entry.change_far_end(&self.inbox);
        }
        self.entries.retain(|entry| !entry.paths.is_empty());
    }

    /// Signals what a prober found to the node, for every path that it serves.
    pub(crate) fn on_event(&self, now: Instant, id: ProberId, event: ProberEvent, node: &mut Node) {
        // A prober may have ended since.
        let Some(entry) = self.entries.iter().find(|entry| entry.id == id) else {
            return;
        };
        let signal = match event {
            ProberEvent::Reconfiguration(event) => {
                tracing::debug!(outage = ?event.outage, confidence = event.confidence, "reconfiguration");
                PathSignal::Reconfiguration(event)
            }
            ProberEvent::SegmentRtt { rtt, .. } => {
                let end = PathEnd::Local;
                PathSignal::SegmentRtt { end, rtt }
            }
            ProberEvent::Stage(stage) => return entry.tell(now, stage),
            _ => return,
        };
        for follower in &entry.paths {
            node.signal(now, follower.paths, signal);
        }
    }

    /// Lets probers rest whose paths are idle, and resumes the others.
    pub(crate) fn pace(&mut self, now: Instant, node: &Node) {
        let soon = |at| now.saturating_duration_since(at) < PACE_INTERVAL;
        if self.entries.is_empty() || self.paced_at.is_some_and(soon) {
            return;
        }
        self.paced_at = Some(now);
        for entry in &self.entries {
            let paths = entry.paths.iter();
            let used = paths
                .filter_map(|follower| node.used_at(follower.paths))
                .max();
            let idle = used.map(|at| now.saturating_duration_since(at));
            entry.prober.rest(idle.is_none_or(|idle| idle > REST_AFTER));
        }
    }

    /// The status of the prober of these paths, if they have one.
    pub(crate) fn status(&self, paths: SignalTarget) -> Option<ProberStatus> {
        let serves = |entry: &&Entry| entry.paths.iter().any(|other| other.paths == paths);
        Some(self.entries.iter().find(serves)?.prober.status())
    }
}

impl Entry {
    /// Logs what it watches now, or why it cannot.
    fn tell(&self, now: Instant, stage: Stage) {
        match stage {
            Stage::Probing { target, found, by } => {
                let reason = found.map_or("configured", |found| found.by.reason());
                if let Some(others) = self.watches.is_due(now) {
                    tracing::info!(to = %target, by = by.name(), reason, others, "watches for reconfigurations");
                }
            }
            Stage::Waiting { problem } => {
                if let Some(others) = self.fails.is_due(now) {
                    tracing::warn!(%problem, others, "cannot watch for reconfigurations, will try again");
                }
            }
            _ => {}
        }
    }

    fn count_probes(&mut self) {
        let bytes = self.prober.wire_bytes();
        let new = usize::try_from(bytes - self.counted).unwrap_or(usize::MAX);
        self.counted = bytes;
        let meters = self.paths.iter().filter_map(|path| path.meter.as_ref());
        meters.for_each(|meter| meter.count(new));
    }

    /// Starts another prober if the far end that it probes has left; a hop on the way stays where it is.
    fn change_far_end(&mut self, inbox: &Inbox) {
        let Some(toward) = self.paths.first().map(|first| first.toward) else {
            return;
        };
        let mut far_ends = self.paths.iter().map(|follower| follower.toward);
        let is_there = far_ends.any(|toward| toward == self.config.toward);
        let by_icmp = match self.prober.status().stage {
            Stage::Probing { by, .. } => by != ProbedBy::UdpEcho,
            _ => false,
        };
        if is_there || by_icmp {
            return;
        }
        self.config.toward = toward;
        match start(inbox, self.id, &self.config) {
            Ok(prober) => {
                self.count_probes();
                self.prober = prober;
                self.counted = 0;
            }
            Err(error) => tracing::warn!(%error, "a prober keeps to a far end that has left"),
        }
    }
}

fn start(
    inbox: &Inbox,
    id: ProberId,
    config: &ProberConfig,
) -> Result<Prober, starhaul_net::Error> {
    let inbox = inbox.clone();
    let tell = move |event| inbox.send(Input::Prober(id, event));
    Prober::start(config.clone(), tell)
}

/// Whether one prober can serve both. If the way out is fixed, or all paths lead over one dish, the satellite is the same
/// whatever is behind it.
fn is_shared(one: &ProberConfig, other: &ProberConfig, one_dish: bool) -> bool {
    let fixed = (one_dish || one.via != Via::default()) && one.detection.method != ProbeMethod::Udp;
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Detection, PathSpec, ProbeMethod, paths::own_prober};

    #[test]
    fn paths_over_one_dish_share_a_prober_and_others_do_not() {
        let path = |interface: Option<&str>, remote: &str| {
            let mut path = PathSpec::new("leo", remote.parse().unwrap());
            path.interface = interface.map(Into::into);
            path.detection = Some(Detection::default());
            own_prober(&path).unwrap()
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
        far.detection.method = ProbeMethod::Udp;
        let mut elsewhere = far.clone();
        elsewhere.toward = Some("198.51.100.1:4600".parse().unwrap());
        assert!(
            !is_shared(&far, &elsewhere, true),
            "each far end answers for itself"
        );
    }
}
