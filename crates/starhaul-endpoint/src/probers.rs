//! Who watches the satellite hops of paths: one prober for each way out of this host and target, for all paths that share it
//! (LeoCC §4.1.1).

use std::{
    sync::{Arc, Mutex, PoisonError, Weak},
    time::Instant,
};

use starhaul_cc::DetectorConfig;
use starhaul_net::prober::{
    ProbeMethod, ProbeTarget, Prober, ProberConfig, ProberEvent, ProberStatus, Stage, Timetable,
    Via,
};
use starhaul_quic::LocalId;

use crate::{PathSpec, state::Shared};

/// How the satellite hop of a path is watched for reconfigurations. The default needs no tuning.
#[derive(Clone, Debug, PartialEq)]
pub struct Detection {
    /// Whom to probe.
    pub target: ProbeTarget,
    /// How to probe.
    pub method: ProbeMethod,
    /// Interval and thresholds; its schedule is made of `timetable`.
    pub detector: DetectorConfig,
    /// The operator's timetable, if it is known.
    pub timetable: Option<Timetable>,
}

impl Default for Detection {
    /// Finds whom to probe by itself, every 10 ms, by ICMP where it may; Δ_outage 45 ms, no timetable.
    fn default() -> Self {
        Self {
            target: ProbeTarget::Auto,
            method: ProbeMethod::Auto,
            detector: DetectorConfig::default(),
            timetable: None,
        }
    }
}

impl Detection {
    /// What this asks of a prober for a path.
    pub(crate) fn prober(&self, path: &PathSpec) -> ProberConfig {
        let local = path.local.map(|local| local.ip());
        ProberConfig {
            target: self.target,
            toward: Some(path.remote),
            method: self.method,
            via: Via {
                local: local.filter(|local| !local.is_unspecified()),
                interface: path.interface.clone(),
            },
            detector: self.detector,
            timetable: self.timetable,
        }
    }
}

/// The probers of an endpoint.
#[derive(Default)]
pub(crate) struct Probers(Vec<Entry>);

struct Entry {
    config: ProberConfig,
    prober: Prober,
    /// The sockets of the paths that it serves.
    locals: Arc<Mutex<Vec<LocalId>>>,
}

impl Probers {
    /// A path that leaves by `local` wants to know; the first one of its kind starts a prober.
    pub(crate) fn follow(&mut self, local: LocalId, config: ProberConfig, shared: &Arc<Shared>) {
        if let Some(entry) = self
            .0
            .iter()
            .find(|entry| is_shared(&entry.config, &config))
        {
            lock(&entry.locals).push(local);
            return;
        }
        let locals = Arc::new(Mutex::new(vec![local]));
        let (followers, shared) = (locals.clone(), Arc::downgrade(shared));
        match Prober::start(config.clone(), move |event| {
            tell(event, &followers, &shared);
        }) {
            Ok(prober) => self.0.push(Entry {
                config,
                prober,
                locals,
            }),
            Err(error) => tracing::warn!(%error, "reconfigurations are not watched"),
        }
    }

    /// The path is gone; the last one ends its prober.
    pub(crate) fn leave(&mut self, local: LocalId) {
        self.0.retain(|entry| {
            let mut locals = lock(&entry.locals);
            locals.retain(|other| *other != local);
            !locals.is_empty()
        });
    }

    /// How the prober of this socket's path fares, if it has one.
    pub(crate) fn status(&self, local: LocalId) -> Option<ProberStatus> {
        let mut entries = self.0.iter();
        let entry = entries.find(|entry| lock(&entry.locals).contains(&local))?;
        Some(entry.prober.status())
    }
}

/// Whether one prober does for both. Where the way out is fixed, the satellite is the same wherever packets go behind it.
fn is_shared(one: &ProberConfig, other: &ProberConfig) -> bool {
    let fixed = one.via != Via::default() && one.method != ProbeMethod::Udp;
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
fn tell(event: ProberEvent, locals: &Mutex<Vec<LocalId>>, shared: &Weak<Shared>) {
    let Some(shared) = shared.upgrade() else {
        return;
    };
    match event {
        ProberEvent::Reconfiguration(event) => {
            tracing::debug!(outage = ?event.outage, confidence = event.confidence, "reconfiguration");
            let locals = lock(locals).clone();
            let mut state = shared.lock();
            let now = Instant::now();
            for local in locals {
                state.node.on_local_reconfiguration(now, local, event);
            }
        }
        ProberEvent::SegmentRtt { rtt, .. } => {
            let locals = lock(locals).clone();
            let mut state = shared.lock();
            let now = Instant::now();
            for local in locals {
                state.node.on_local_segment_rtt(now, local, rtt);
            }
        }
        ProberEvent::Stage(Stage::Probing { target, found, by }) => {
            let reason = found.map_or("configured", |found| found.by.reason());
            tracing::info!(%target, by = by.name(), reason, "watches for reconfigurations");
            return;
        }
        ProberEvent::Stage(Stage::Waiting { problem }) => {
            tracing::warn!(%problem, "cannot watch for reconfigurations, will try again");
            return;
        }
        _ => return,
    }
    shared.wake_driver();
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_over_one_dish_share_a_prober_and_others_do_not() {
        let path = |interface: Option<&str>, remote: &str| {
            let mut path = PathSpec::new("leo", remote.parse().unwrap());
            path.interface = interface.map(Into::into);
            Detection::default().prober(&path)
        };
        let dish = path(Some("dish0"), "192.0.2.1:4600");
        for (other, shared) in [
            (path(Some("dish0"), "198.51.100.1:4600"), true),
            (path(Some("dish1"), "192.0.2.1:4600"), false),
            (path(None, "192.0.2.1:4600"), false),
            (path(Some("dish0"), "[2001:db8::1]:4600"), false),
        ] {
            assert_eq!(is_shared(&dish, &other), shared, "{other:?}");
        }
        let (one, other) = (path(None, "192.0.2.1:1"), path(None, "192.0.2.2:1"));
        assert!(
            !is_shared(&one, &other),
            "the kernel may send them different ways"
        );
        let mut far = dish.clone();
        far.method = ProbeMethod::Udp;
        let mut elsewhere = far.clone();
        elsewhere.toward = Some("198.51.100.1:4600".parse().unwrap());
        assert!(
            !is_shared(&far, &elsewhere),
            "each far end answers for itself"
        );
    }
}
