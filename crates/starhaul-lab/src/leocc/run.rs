//! One flow of one system over one trace.

use std::time::{Duration, Instant};

use starhaul_cc::{DetectorConfig, ReconfigurationSource};
use starhaul_link::QueueLimit;

use super::{
    systems::{Signal, System},
    traces::TraceCase,
};
use crate::{
    Error,
    flow::{Alarm, FlowReport, FlowSetup, World},
};

/// What one run needs.
#[derive(Clone, Debug)]
pub(super) struct Setup<'a> {
    pub(super) system: &'a System,
    pub(super) case: &'a TraceCase,
    pub(super) loss: f64,
    pub(super) queue: QueueLimit,
    pub(super) seed: u64,
    pub(super) sample_each: Option<Duration>,
}

/// What one run gave.
#[derive(Clone, Debug)]
pub(super) struct Outcome {
    pub(super) report: FlowReport,
    #[expect(dead_code, reason = "drawn")]
    pub(super) alarms: Vec<Alarm>,
}

impl Setup<'_> {
    /// `base` stands for virtual time 0; what it is does not matter.
    pub(super) fn run(&self, base: Instant) -> Result<Outcome, Error> {
        let path = self.case.path(self.loss, self.queue)?;
        let mut world = World::new(&path, self.seed, base);
        world.add_flow(FlowSetup::saturating(self.system.build(base)));
        if self.system.signal == Signal::Probe {
            tell(
                &mut world,
                self.case,
                self.seed,
                DetectorConfig::default(),
                self.loss,
            )?;
        }
        if let Some(interval) = self.sample_each {
            world.sample_each(interval);
        }
        world.run(self.case.time);
        let alarms = world.alarms().to_vec();
        let report = world.reports().into_iter().next();
        let report = report.ok_or_else(|| Error::Failed("a run without a flow".to_owned()))?;
        Ok(Outcome { report, alarms })
    }
}

/// Lets a prober find the reconfigurations; or, where the trace's grid hides them from probes, tells the truth when a probe would have.
pub(super) fn tell(
    world: &mut World,
    case: &TraceCase,
    seed: u64,
    detector: DetectorConfig,
    loss: f64,
) -> Result<(), Error> {
    if case.outages.iter().any(|outage| outage.sharp) {
        let path = case.path(loss, QueueLimit::Packets(100))?;
        if let (Some(forward), Some(backward)) = (path.forward.first(), path.backward.first()) {
            world.probe(detector, (forward, backward), seed.wrapping_add(1 << 32));
        }
        return Ok(());
    }
    for outage in &case.outages {
        let told = outage.end + case.base_rtt(outage.end);
        let length = outage.end - outage.start;
        world.tell(told, outage.end, length, ReconfigurationSource::GroundTruth);
    }
    Ok(())
}
