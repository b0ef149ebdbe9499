//! Flows that share a link: of one kind, and beside Cubic and BBR.

use std::time::{Duration, Instant};

use starhaul_flow::{FlowNetwork, FlowSetup};

use super::{
    case::{DataLoss, TraceCase},
    job::{Job, Output},
    plan::Plan,
    results::{FairnessRow, Share},
    run::Signal,
    section::Section,
};
use crate::{Error, systems::System, traces::Direction};

/// Controllers beside which the others run.
pub(super) const BESIDE: [&str; 2] = ["cubic", "bbr"];
/// Flows begin so long after each other, and the figures after the last: …
const STAGGER: Duration = Duration::from_secs(1);
/// … then figures count so much later.
const SETTLE: Duration = Duration::from_secs(5);
/// All begin in this part of a short recording, settle in another, and are measured over what is left.
const PART: u32 = 4;

pub(super) fn jobs(plan: &Plan) -> Vec<Job<'_>> {
    let mut jobs = Vec::new();
    for system in plan.systems() {
        for case in cases(plan) {
            for &count in plan.flow_counts() {
                jobs.push(job(plan, case, vec![system.clone(); count]));
            }
            let others = BESIDE.iter().filter(|other| **other != system.name);
            for other in others.filter_map(|other| System::named(other).ok()) {
                jobs.push(job(plan, case, vec![system.clone(), other]));
            }
        }
    }
    jobs
}

/// Who gets what differs from link to link, so one is not enough; the downlinks' many packets would take longer than all else.
fn cases(plan: &Plan) -> Vec<&TraceCase> {
    let studied = plan.study_cases();
    let up: Vec<_> = studied
        .iter()
        .filter(|case| case.direction == Direction::Up)
        .collect();
    match up.is_empty() {
        true => studied.iter().take(1).collect(),
        false => up,
    }
}

fn job<'a>(plan: &'a Plan, case: &'a TraceCase, systems: Vec<System>) -> Job<'a> {
    Job {
        section: Section::Fairness,
        systems: systems.iter().map(|system| system.name.clone()).collect(),
        trace: &case.name,
        weight: case.weight(),
        time: case.time,
        work: Box::new(move |base| run(plan, case, &systems, base).map(Output::Fairness)),
    }
}

fn run(
    plan: &Plan,
    case: &TraceCase,
    systems: &[System],
    base: Instant,
) -> Result<FairnessRow, Error> {
    // No random loss: it would decide the shares of those that obey it.
    let path = case.path(DataLoss::Random(0.0), case.queue(plan.queue()))?;
    let mut world = FlowNetwork::new(&path, plan.seed(), base);
    let flows = u32::try_from(systems.len()).unwrap_or(u32::MAX).max(1);
    let stagger = STAGGER.min(case.time / PART / flows);
    let mut start = Duration::ZERO;
    for system in systems {
        let mut flow = FlowSetup::saturating(system.build(base + start));
        flow.start = start;
        world.add_flow(flow);
        start += stagger;
    }
    Signal::default().install(&mut world, case, plan.seed());
    let settled = start + SETTLE.min(case.time / PART);
    world.run(settled);
    world.restart_figures();
    world.run(case.time - settled);
    let metrics: Vec<_> = world
        .reports()
        .iter()
        .map(|report| report.metrics)
        .collect();
    let rates: Vec<f64> = metrics
        .iter()
        .map(|metrics| metrics.throughput_mbps)
        .collect();
    let shares = systems.iter().zip(&rates);
    Ok(FairnessRow {
        trace: case.name.clone(),
        flows: shares
            .map(|(system, &throughput_mbps)| Share {
                system: system.name.clone(),
                throughput_mbps,
            })
            .collect(),
        jain: jain(&rates),
        utilisation: metrics.iter().map(|metrics| metrics.utilisation).sum(),
        queue_delay_mean_ms: metrics.iter().map(|m| m.queue_delay_mean_ms).sum::<f64>()
            / f64::from(u32::try_from(metrics.len()).unwrap_or(1).max(1)),
    })
}

/// Jain's index: 1 for equal rates, 1/n when one flow has all.
fn jain(rates: &[f64]) -> f64 {
    let sum: f64 = rates.iter().sum();
    let squares: f64 = rates.iter().map(|rate| rate * rate).sum();
    let count = f64::from(u32::try_from(rates.len()).unwrap_or(1));
    sum * sum / (count * squares).max(f64::MIN_POSITIVE)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn jains_index_of_the_equal_and_of_the_greedy() {
        assert!((jain(&[3.0, 3.0, 3.0]) - 1.0).abs() < 1e-12);
        assert!((jain(&[5.0, 0.0, 0.0, 0.0]) - 0.25).abs() < 1e-12);
        assert!((jain(&[1.0, 3.0]) - 0.8).abs() < 1e-12);
    }
}
