//! One flow of one system over one trace.

use std::time::{Duration, Instant};

use rand::Rng;
use rand_chacha::{ChaCha8Rng, rand_core::SeedableRng};
use starhaul_cc::{DetectorConfig, ReconfigurationSource};
use starhaul_link::{LinkSpec, QueueLimit};
use starhaul_units::Bandwidth;

use super::{systems::System, traces::TraceCase};
use crate::{
    Error,
    flow::{Alarm, FlowReport, FlowSetup, PathSetup, World},
};

/// Delay of a ground link, one way.
const GROUND_DELAY: Duration = Duration::from_millis(5);
/// What a ground link queues.
const GROUND_QUEUE: QueueLimit = QueueLimit::Packets(500);

/// Where controllers hear of reconfigurations.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Signal {
    /// From a prober beside the flow, as in the field.
    Probe(DetectorConfig),
    /// From the truth, of which a share is missing, and with false ones in between at random.
    Altered { missing: f64, false_each: Duration },
}

impl Default for Signal {
    fn default() -> Self {
        Self::Probe(DetectorConfig::default())
    }
}

/// What one run needs.
#[derive(Clone, Debug)]
pub(super) struct Setup<'a> {
    pub(super) system: &'a System,
    pub(super) case: &'a TraceCase,
    pub(super) loss: f64,
    pub(super) queue: QueueLimit,
    pub(super) signal: Signal,
    /// A link of this rate behind the satellite.
    pub(super) ground: Option<Bandwidth>,
    pub(super) seed: u64,
    pub(super) sample_each: Option<Duration>,
}

/// What one run gave.
#[derive(Clone, Debug)]
pub(super) struct Outcome {
    pub(super) report: FlowReport,
    pub(super) alarms: Vec<Alarm>,
}

impl Setup<'_> {
    /// How long it takes, in any unit: packets.
    pub(super) fn weight(&self) -> f64 {
        self.case.weight()
    }

    /// `base` stands for virtual time 0; what it is does not matter.
    pub(super) fn run(&self, base: Instant) -> Result<Outcome, Error> {
        let mut path = self.case.path(self.loss, self.queue)?;
        self.add_ground(&mut path);
        let mut world = World::new(&path, self.seed, base);
        world.add_flow(FlowSetup::saturating(self.system.build(base)));
        self.signal.install(&mut world, self.case, self.seed);
        if let Some(interval) = self.sample_each {
            world.sample_each(interval);
        }
        world.run(self.case.time);
        let alarms = world.alarms().to_vec();
        let report = world.reports().into_iter().next();
        let report = report.ok_or_else(|| Error::Failed("a run without a flow".to_owned()))?;
        Ok(Outcome { report, alarms })
    }

    fn add_ground(&self, path: &mut PathSetup) {
        if let Some(rate) = self.ground {
            let link = LinkSpec::constant(rate, GROUND_DELAY).with_queue(GROUND_QUEUE);
            path.forward.push(link.clone());
            path.backward.insert(0, link);
        }
    }
}

impl Signal {
    /// Lets the flows of a world over `case` hear of reconfigurations.
    pub(super) fn install(self, world: &mut World, case: &TraceCase, seed: u64) {
        match self {
            Self::Altered {
                missing,
                false_each,
            } => alter(world, case, missing, false_each, seed),
            Self::Probe(config) if case.outages.iter().any(|outage| outage.sharp) => {
                world.probe(config, case.direction.probe_side());
            }
            // The grid of the trace hides its outages from probes: the truth is told when a probe would have found it.
            Self::Probe(_) => alter(world, case, 0.0, Duration::ZERO, seed),
        }
    }
}

fn alter(world: &mut World, case: &TraceCase, missing: f64, false_each: Duration, seed: u64) {
    let mut rng = ChaCha8Rng::seed_from_u64(seed);
    for outage in &case.outages {
        if rng.random::<f64>() < missing {
            continue;
        }
        let told = outage.end + case.news_take(outage.end);
        let length = outage.end - outage.start;
        world.tell(told, outage.end, length, ReconfigurationSource::GroundTruth);
    }
    if false_each.is_zero() {
        return;
    }
    let mut at = false_each.mul_f64(rng.random());
    while at < case.time {
        let told = at + case.news_take(at);
        world.tell(
            told,
            at,
            Duration::from_millis(50),
            ReconfigurationSource::GroundTruth,
        );
        at += false_each.mul_f64(rng.random_range(0.5..1.5));
    }
}
