//! LEO links on longer paths and with other capacities, and links that no controller was tuned on, beside an oracle.

use std::time::Duration;

use starhaul_link::{DelaySeries, LeoModel, Opportunities, Trace};

use super::{
    case::{Changed, Kind, TraceCase},
    options::Options,
    traces::SYNTHETIC_TIME,
};
use crate::{Error, systems::System, traces::Direction};

/// Added to the delay of each direction.
const ADDED_MS: [u64; 5] = [0, 20, 40, 80, 130];
/// Multiples of the capacity.
const CAPACITIES: [f64; 3] = [0.1, 1.0, 3.0];
const ADDED_MS_QUICK: [u64; 2] = [0, 80];
const CAPACITIES_QUICK: [f64; 1] = [1.0];
/// Synthetic links beside the recorded ones.
const SYNTHETIC: usize = 10;
/// Links drawn at random.
const DRAWN: usize = 40;
const DRAWN_QUICK: usize = 10;
/// The links of one seed of the experiment and of the next are so far apart: even, so that even ones stay even.
const BETWEEN_SEEDS: u64 = 100_000;
/// Who runs beside the oracle unless others were asked for.
const SYSTEMS: [&str; 4] = ["leocc2", "bbr", "bbr3", "cubic"];

/// Every recorded link and some synthetic ones, on each path.
pub(super) fn grid(cases: &[TraceCase], options: &Options) -> Result<Vec<Changed>, Error> {
    let synthetic = options.links.unwrap_or(SYNTHETIC);
    let mut left = synthetic;
    let mut links = Vec::new();
    for case in cases {
        if case.kind == Kind::Synthetic && left == 0 {
            continue;
        }
        left -= usize::from(case.kind == Kind::Synthetic);
        let (delays, capacities): (&[u64], &[f64]) = match options.quick {
            true => (&ADDED_MS_QUICK, &CAPACITIES_QUICK),
            false => (&ADDED_MS, &CAPACITIES),
        };
        for &added_ms in delays {
            let added = Duration::from_millis(added_ms);
            for &times in capacities {
                links.push(Changed {
                    case: case.clone().with_trace(changed(&case.trace, added, times)?),
                    change: Some(format!("+{added_ms} ms × {times}")),
                });
            }
        }
    }
    Ok(links)
}

impl TraceCase {
    /// The same with so much more delay in each direction, which its name tells.
    pub(super) fn longer(&self, added: Duration) -> Result<Self, Error> {
        if added.is_zero() {
            return Ok(self.clone());
        }
        let trace = changed(&self.trace, added, 1.0)?;
        let mut case = self.clone().with_trace(trace);
        case.name += &format!(" +{} ms", added.as_secs_f64() * 1e3);
        Ok(case)
    }
}

/// The trace with a longer delay and another capacity.
fn changed(trace: &Trace, added: Duration, times: f64) -> Result<Trace, Error> {
    let ms = Duration::from_millis(1);
    let rates = trace.capacity.rates(ms).into_iter();
    let capacity = Opportunities::from_rates(rates.map(|rate| (ms, rate.scaled(times))))
        .map_err(|why| Error::Settings(format!("capacity × {times}: {why}")))?;
    let longer = |delay: &DelaySeries| {
        let steps = delay.steps();
        DelaySeries::from_steps(steps.map(|(span, delay)| (span.end - span.start, delay + added)))
    };
    let delay = match &trace.delay {
        Some(delay) => longer(delay),
        None => DelaySeries::from_steps([(ms, added)]),
    };
    let mut changed = Trace::new(capacity, delay)?;
    changed.loss.clone_from(&trace.loss);
    Ok(changed)
}

/// Links whose statistics are drawn anew for each number: 1, 2, 3… with the experiment's seed 1, others with each other seed.
pub(super) fn drawn(options: &Options) -> Result<Vec<Changed>, Error> {
    let seeds = options.seeds.unwrap_or_default();
    let usual = if options.quick { DRAWN_QUICK } else { DRAWN };
    let before = options.seed.wrapping_sub(1).wrapping_mul(BETWEEN_SEEDS);
    let numbers = (1..=u64::MAX).map(|number| before.wrapping_add(number));
    let numbers = numbers.filter(|number| seeds.contain(*number));
    let link = |number: u64| {
        let model = LeoModel {
            duration: SYNTHETIC_TIME,
            ..LeoModel::drawn(number)
        };
        let name = format!("drawn-{number:03}");
        let trace = model.generate(number)?;
        let case = TraceCase::new(name, Kind::Synthetic, Direction::Up, trace);
        Ok(Changed { case, change: None })
    };
    let links: Result<Vec<Changed>, Error> = numbers
        .take(options.links.unwrap_or(usual))
        .map(link)
        .collect();
    let seconds = Duration::from_secs(if options.quick { 30 } else { u64::MAX });
    let shorten = |link: Changed| Changed {
        case: link.case.shortened(seconds),
        ..link
    };
    Ok(links?.into_iter().map(shorten).collect())
}

/// Who runs over them: those asked for, or the usual ones; and the oracle.
pub(super) fn systems(options: &Options) -> Result<Vec<System>, Error> {
    let asked = options.systems.iter().map(String::as_str);
    let names: Vec<&str> = match options.systems.is_empty() {
        true => SYSTEMS.to_vec(),
        false => asked.collect(),
    };
    let mut systems: Vec<System> = names
        .into_iter()
        .map(System::named)
        .collect::<Result<_, _>>()?;
    systems.push(System::oracle());
    Ok(systems)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::experiments::leocc::Seeds;

    #[test]
    fn a_longer_path_keeps_the_swing_and_another_capacity_the_outages() {
        let trace = LeoModel::default().generate(1).unwrap();
        let other = changed(&trace, Duration::from_millis(80), 0.1).unwrap();
        let ms = Duration::from_millis;
        let (delay, longer) = (trace.delay.clone().unwrap(), other.delay.clone().unwrap());
        for step in 0..1000 {
            let at = ms(10) * step;
            assert_eq!(longer.at(at), delay.at(at) + ms(80));
        }
        let share = other.capacity.mean_rate().mbit() / trace.capacity.mean_rate().mbit();
        assert!((share - 0.1).abs() < 1e-3, "{share}");
        let gaps = |trace: &Trace| trace.capacity.gaps(ms(45)).len();
        assert_eq!(gaps(&other), gaps(&trace));
        assert_eq!(other.loss, trace.loss);
    }

    /// Three links as they are drawn.
    fn three(seed: u64, seeds: Seeds) -> Vec<TraceCase> {
        let options = Options {
            quick: true,
            links: Some(3),
            seeds: Some(seeds),
            seed,
            ..Options::default()
        };
        let drawn = drawn(&options).unwrap().into_iter();
        drawn.map(|link| link.case).collect()
    }

    fn names(cases: &[TraceCase]) -> Vec<&str> {
        cases.iter().map(|case| &*case.name).collect()
    }

    #[test]
    fn the_tuned_and_the_judging_links_are_others() {
        let (tuned, judging) = (three(1, Seeds::Even), three(1, Seeds::Odd));
        assert_eq!(names(&tuned), ["drawn-002", "drawn-004", "drawn-006"]);
        assert_eq!(names(&judging), ["drawn-001", "drawn-003", "drawn-005"]);
    }

    /// Links that have judged once judge nothing any more.
    #[test]
    fn each_seed_has_links_of_its_own_and_the_first_those_that_were_always_drawn() {
        for (number, case) in [1, 3, 5].into_iter().zip(three(1, Seeds::Odd)) {
            let model = LeoModel {
                duration: SYNTHETIC_TIME,
                ..LeoModel::drawn(number)
            };
            assert!(case.trace == model.generate(number).unwrap(), "{number}");
        }
        let judging = three(2, Seeds::Odd);
        let expected = ["drawn-100001", "drawn-100003", "drawn-100005"];
        assert_eq!(names(&judging), expected);
        let tuned = three(2, Seeds::Even);
        let expected = ["drawn-100002", "drawn-100004", "drawn-100006"];
        assert_eq!(names(&tuned), expected);
        // Whatever the seed, there are links.
        for seed in [0, u64::MAX] {
            assert_eq!(three(seed, Seeds::Odd).len(), 3, "{seed}");
        }
    }
}
