//! How long an experiment takes on this computer, as busy as it is: measured by a short run of each system.

use std::{
    collections::BTreeMap,
    time::{Duration, Instant},
};

use super::{case::TraceCase, job::Job, plan::Plan, section::Section};
use crate::{
    kit::parallel::{cores, in_parallel},
    systems::System,
};

/// Virtual time of a measured run, which includes start-up and a reconfiguration or two.
const SAMPLE: Duration = Duration::from_secs(8);
/// What one core simulates in a second, about, where nothing could be measured.
const USUAL_PACKETS_PER_SECOND: f64 = 1e6;
/// A packet costs more among many flows, all of which each event visits.
const SHARED_LINK: f64 = 1.4;

/// Processor time of a packet, by system.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Pace {
    /// Seconds of one core per packet that a link could carry, by system.
    seconds: BTreeMap<String, f64>,
}

impl Pace {
    /// Runs each system for a short time over the first trace, on all cores at once as the experiment will.
    pub(super) fn measure(plan: &Plan) -> Self {
        let Some(case) = plan.cases().first() else {
            return Self {
                seconds: BTreeMap::new(),
            };
        };
        let case = case.clone().shortened(SAMPLE);
        let systems: Vec<&System> = plan.systems().iter().collect();
        let cost = |system: &&System| Some((system.name.clone(), cost(plan, system, &case)?));
        let costs = in_parallel(&systems, |_| 1.0, cost, &mut |_| {});
        Self {
            seconds: costs.into_iter().flatten().collect(),
        }
    }

    /// For how long these jobs keep all cores busy.
    pub(super) fn time(&self, jobs: &[Job<'_>]) -> f64 {
        let seconds = jobs.iter().map(|job| job.weight * self.per_packet(job));
        seconds.sum::<f64>() / f64::from(u32::try_from(cores()).unwrap_or(1))
    }

    fn per_packet(&self, job: &Job<'_>) -> f64 {
        let known = |name: &String| self.seconds.get(name).copied();
        // Systems that were not measured are variants of those that were.
        let all = self.seconds.values();
        let mean = || all.clone().sum::<f64>() / self.seconds.len() as f64;
        let usual = if self.seconds.is_empty() {
            1.0 / USUAL_PACKETS_PER_SECOND
        } else {
            mean()
        };
        let most = job.systems.iter().map(|name| known(name).unwrap_or(usual));
        let most = most.fold(0.0, f64::max);
        let most = if most > 0.0 { most } else { usual };
        match job.section {
            Section::Fairness => most * SHARED_LINK,
            _ => most,
        }
    }
}

/// Seconds per packet of one system; nothing where it cannot run, which the experiment will tell.
fn cost(plan: &Plan, system: &System, case: &TraceCase) -> Option<f64> {
    let setup = plan.setup(system, case, plan.first_study_loss(case));
    let began = Instant::now();
    setup.run(began).ok()?;
    Some(began.elapsed().as_secs_f64() / setup.weight().max(1.0))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn job(section: Section, weight: f64, systems: &[&str]) -> Job<'static> {
        Job {
            section,
            systems: systems.iter().map(|&name| name.to_owned()).collect(),
            trace: "x",
            weight,
            time: Duration::ZERO,
            work: Box::new(|_| Err(crate::Error::Failed("never run".to_owned()))),
        }
    }

    #[test]
    fn the_time_is_that_of_the_dearest_flow_of_each_run() {
        let seconds = [("cubic", 1e-6), ("vivace", 3e-6)];
        let pace = Pace {
            seconds: seconds.map(|(name, cost)| (name.to_owned(), cost)).into(),
        };
        let jobs = [
            job(Section::Scatter, 1e6, &["cubic"]),
            job(Section::Scatter, 1e6, &["vivace"]),
            job(Section::Fairness, 1e6, &["cubic", "vivace"]),
            job(Section::Ablation, 1e6, &["leocc-no-band"]),
        ];
        let expected = 1.0 + 3.0 + 3.0 * SHARED_LINK + 2.0;
        let on_one_core = pace.time(&jobs) * cores() as f64;
        assert!((on_one_core - expected).abs() < 1e-9, "{on_one_core}");
        let unknown = Pace {
            seconds: BTreeMap::new(),
        };
        let on_one_core = unknown.time(&jobs[..2]) * cores() as f64;
        assert!((on_one_core - 2.0).abs() < 1e-9, "{on_one_core}");
    }
}
