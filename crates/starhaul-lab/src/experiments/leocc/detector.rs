//! What the detector finds of what is there, with and without a flow beside its probes.

use std::time::{Duration, Instant};

use starhaul_flow::{Alarm, FlowNetwork, FlowSetup};

use super::{
    case::TraceCase,
    job::{Job, Output},
    plan::Plan,
    reconfigurations::Outage,
    results::DetectorRow,
    run::Signal,
    section::Section,
};
use crate::{Error, systems::System};

/// An alarm counts as that of an outage until so long after its end.
const LATEST: Duration = Duration::from_millis(150);
/// What a run without a flow consists of.
const PROBES_PER_SECOND: f64 = 100.0;
/// What fills the queue beside the probes.
const BESIDE: [Option<&str>; 2] = [None, Some("cubic")];

pub(super) fn jobs(plan: &Plan) -> Vec<Job<'_>> {
    let mut jobs = Vec::new();
    for case in plan.cases().iter().filter(|case| case.is_sharp()) {
        for beside in BESIDE {
            for shared in [false, true] {
                if shared && beside.is_none() {
                    continue;
                }
                jobs.push(Job {
                    section: Section::Detector,
                    systems: beside.map(str::to_owned).into_iter().collect(),
                    trace: &case.name,
                    weight: match beside {
                        Some(_) => case.weight(),
                        None => case.time.as_secs_f64() * PROBES_PER_SECOND,
                    },
                    time: case.time,
                    work: Box::new(move |base| {
                        run(plan, case, beside, shared, base).map(Output::Detector)
                    }),
                });
            }
        }
    }
    jobs
}

fn run(
    plan: &Plan,
    case: &TraceCase,
    beside: Option<&str>,
    shared: bool,
    base: Instant,
) -> Result<DetectorRow, Error> {
    let mut path = case.path(plan.first_study_loss(case), case.queue(plan.queue()))?;
    for link in path.forward.iter_mut().chain(&mut path.backward) {
        link.icmp_band = !shared;
    }
    let mut world = FlowNetwork::new(&path, plan.seed(), base);
    if let Some(name) = beside {
        world.add_flow(FlowSetup::saturating(System::named(name)?.build(base)));
    }
    Signal::default().install(&mut world, case, plan.seed());
    world.run(case.time);
    let score = Score::of(world.alarms(), &case.outages, case.time);
    Ok(DetectorRow {
        trace: case.name.clone(),
        beside: beside.unwrap_or("nothing").to_owned(),
        queue: if shared { "shared" } else { "own" }.to_owned(),
        reconfigurations: score.truths,
        found: score.found,
        false_alarms: score.alarms - score.found,
        precision: share(score.found, score.alarms),
        recall: share(score.found, score.truths),
        latest_ms: score.latest.as_secs_f64() * 1e3,
    })
}

#[derive(Debug, Default, PartialEq)]
struct Score {
    truths: u32,
    alarms: u32,
    found: u32,
    /// The latest alarm after the end of its outage.
    latest: Duration,
}

impl Score {
    fn of(alarms: &[Alarm], outages: &[Outage], time: Duration) -> Self {
        let mut score = Self::default();
        let heard = outages.iter().filter(|outage| outage.end + LATEST <= time);
        let mut alarms: Vec<Duration> = alarms.iter().map(|alarm| alarm.told).collect();
        // Alarms of an outage that the run cut off are neither right nor wrong.
        let cut_off = outages.iter().find(|outage| outage.end + LATEST > time);
        alarms.retain(|told| cut_off.is_none_or(|outage| *told < outage.start));
        score.alarms = count(alarms.len());
        for outage in heard {
            score.truths += 1;
            let due = outage.start..=outage.end + LATEST;
            if let Some(at) = alarms.iter().position(|told| due.contains(told)) {
                let told = alarms.remove(at);
                score.found += 1;
                score.latest = score.latest.max(told.saturating_sub(outage.end));
            }
        }
        score
    }
}

fn count(number: usize) -> u32 {
    u32::try_from(number).unwrap_or(u32::MAX)
}

/// 1 of nothing.
fn share(part: u32, whole: u32) -> f64 {
    if whole == 0 {
        1.0
    } else {
        f64::from(part) / f64::from(whole)
    }
}

#[cfg(test)]
mod tests {
    use starhaul_cc::{Reconfiguration, ReconfigurationSource};

    use super::*;

    #[test]
    fn an_alarm_counts_once_and_only_in_time() {
        let ms = Duration::from_millis;
        let now = Instant::now();
        let alarm = |told| Alarm {
            told: ms(told),
            reconfiguration: Reconfiguration {
                at: now,
                outage: ms(60),
                source: ReconfigurationSource::Probe,
                confidence: 1.0,
            },
        };
        let outage = |start| Outage {
            start: ms(start),
            end: ms(start + 60),
            sharp: true,
        };
        let outages = [outage(1000), outage(2000), outage(3000), outage(3950)];
        let alarms = [1080, 1090, 2211, 3150, 3999].map(alarm);
        let expected = Score {
            truths: 3,
            alarms: 4,
            found: 2,
            latest: ms(90),
        };
        assert_eq!(Score::of(&alarms, &outages, ms(4000)), expected);
    }
}
