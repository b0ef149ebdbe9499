//! The agreement of two traces, for example a recording and the link that it was made through: where in the one the
//! other starts, and how far capacity, delay and outages differ from there on.

use std::time::Duration;

use starhaul_units::Bandwidth;

use crate::{DelaySeries, LossSeries, OPPORTUNITY_BYTES, Opportunities, Recording};

const SECOND: Duration = Duration::from_secs(1);
const MS: Duration = Duration::from_millis(1);
/// Step of the search through the first trace.
const COARSE: Duration = Duration::from_millis(10);
/// Length of the intervals whose capacity the search compares.
const STRETCH: Duration = Duration::from_millis(100);
/// Number of instants that the search compares.
const SAMPLES: usize = 1_000;
/// Greatest error of a delay sample, so that single samples do not decide the start.
const WRONG: Duration = Duration::from_millis(10);

/// The agreement of a second trace with a first one.
#[derive(Clone, Debug, PartialEq)]
pub struct Comparison {
    /// Where in the first trace, which repeats, the second starts.
    pub shift: Duration,
    /// The time compared: one period of the second.
    pub duration: Duration,
    /// The agreement of capacity, if both have one.
    pub capacity: Option<CapacityComparison>,
    /// The agreement of delay, if both have one.
    pub delay: Option<DelayComparison>,
    /// Mean random loss of both over the time compared, if both have one; 0 to 1.
    pub loss: Option<(f64, f64)>,
}

/// The agreement of the capacity of two traces.
#[derive(Clone, Debug, PartialEq)]
pub struct CapacityComparison {
    /// Mean rates of each whole second (of the whole time if it is shorter) in the first and the second trace.
    pub seconds: Vec<(Bandwidth, Bandwidth)>,
    /// Mean rates over the time compared.
    pub mean: (Bandwidth, Bandwidth),
    /// Median over the seconds of |second − first| / first.
    pub median_error: f64,
    /// 95th percentile of the same.
    pub p95_error: f64,
    /// Maximum of the same.
    pub greatest_error: f64,
    /// Outages of the first trace, from the start of the second: start and length.
    pub outages: Vec<(Duration, Duration)>,
    /// Outages of the second trace.
    pub outages_found: Vec<(Duration, Duration)>,
}

/// The agreement of the one-way delay of two traces, at instants 1 ms apart.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct DelayComparison {
    /// Median of |second − first| in ms.
    pub median_error_ms: f64,
    /// 95th percentile of the same.
    pub p95_error_ms: f64,
    /// Median of the second minus that of the first, in ms.
    pub level_error_ms: f64,
}

impl Comparison {
    /// Compares over one period of `second`, which starts `shift` after the start of `first`; without `shift`, at the
    /// best agreement.
    ///
    /// The search compares the delays at about a thousand instants and the capacity of as many intervals of 100 ms.
    pub fn of(first: &Recording, second: &Recording, shift: Option<Duration>) -> Self {
        let shift = shift.unwrap_or_else(|| best_shift(first, second));
        let duration = second.period();
        let capacity = both(&first.capacity, &second.capacity);
        let delay = both(&first.delay, &second.delay);
        let loss = both(&first.loss, &second.loss);
        Self {
            shift,
            duration,
            capacity: capacity.map(|(a, b)| compare_capacity(a, b, shift, duration)),
            delay: delay.map(|(a, b)| compare_delay(a, b, shift, duration)),
            loss: loss.map(|(a, b)| (mean_from(a, shift, duration), b.mean())),
        }
    }
}

fn both<'a, T>(
    first: &'a Option<std::sync::Arc<T>>,
    second: &'a Option<std::sync::Arc<T>>,
) -> Option<(&'a T, &'a T)> {
    Some((first.as_deref()?, second.as_deref()?))
}

/// The mean loss of a while.
fn mean_from(loss: &LossSeries, from: Duration, time: Duration) -> f64 {
    /// Instants at which it is looked at, in the middle of equal parts.
    const PARTS: u32 = 10_000;
    if loss.is_constant() {
        return loss.mean();
    }
    let part = time / PARTS;
    let at = |number: u32| loss.at(from + part * number + part / 2);
    (0..PARTS).map(at).sum::<f64>() / f64::from(PARTS)
}

/// Instants from 0 to below `end`.
fn instants(end: Duration, step: Duration) -> impl Iterator<Item = Duration> {
    std::iter::successors(Some(Duration::ZERO), move |at| at.checked_add(step))
        .take_while(move |at| *at < end)
}

/// Bytes that the capacity gives in `time` from `from` on.
fn bytes(capacity: &Opportunities, from: Duration, time: Duration) -> u64 {
    (capacity.until(from + time) - capacity.until(from)) * OPPORTUNITY_BYTES
}

/// The value that a share of the sorted values does not exceed.
fn quantile(sorted: &[f64], share: f64) -> f64 {
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "an index below the length of a slice"
    )]
    let index = (sorted.len() as f64 * share) as usize;
    let index = index.min(sorted.len().saturating_sub(1));
    sorted.get(index).copied().unwrap_or(0.0)
}

fn compare_capacity(
    first: &Opportunities,
    second: &Opportunities,
    shift: Duration,
    duration: Duration,
) -> CapacityComparison {
    let step = SECOND.min(duration).max(MS);
    let rate = |bytes: u64, time: Duration| Bandwidth::from_bytes_over(bytes, time);
    let whole = instants(duration, step).filter(|at| *at + step <= duration);
    let counts: Vec<_> = whole
        .map(|at| (bytes(first, shift + at, step), bytes(second, at, step)))
        .collect();
    let mut errors: Vec<f64> = counts
        .iter()
        // Without any capacity, one opportunity may be missed.
        .map(|&(a, b)| a.abs_diff(b) as f64 / a.max(OPPORTUNITY_BYTES) as f64)
        .collect();
    errors.sort_by(f64::total_cmp);
    CapacityComparison {
        seconds: counts
            .iter()
            .map(|&(a, b)| (rate(a, step), rate(b, step)))
            .collect(),
        mean: (
            rate(bytes(first, shift, duration), duration),
            rate(bytes(second, Duration::ZERO, duration), duration),
        ),
        median_error: quantile(&errors, 0.5),
        p95_error: quantile(&errors, 0.95),
        greatest_error: quantile(&errors, 1.0),
        outages: outages_from(first, shift, duration),
        outages_found: outages_from(second, Duration::ZERO, duration),
    }
}

/// The outages that begin in a part of a trace, which repeats; counted from the start of the part.
fn outages_from(
    capacity: &Opportunities,
    from: Duration,
    duration: Duration,
) -> Vec<(Duration, Duration)> {
    let of_period = capacity.outages();
    let periods = instants(from + duration, capacity.period().max(MS));
    let all = periods.flat_map(|period| {
        of_period
            .iter()
            .map(move |(at, length)| (period + *at, *length))
    });
    all.filter(|(at, _)| (from..from + duration).contains(at))
        .map(|(at, length)| (at - from, length))
        .collect()
}

fn compare_delay(
    first: &DelaySeries,
    second: &DelaySeries,
    shift: Duration,
    duration: Duration,
) -> DelayComparison {
    let ms = |delay: Duration| delay.as_secs_f64() * 1e3;
    let (mut a, mut b): (Vec<f64>, Vec<f64>) = instants(duration, MS)
        .map(|at| (ms(first.at(shift + at)), ms(second.at(at))))
        .unzip();
    let mut errors: Vec<f64> = a.iter().zip(&b).map(|(a, b)| (a - b).abs()).collect();
    for values in [&mut a, &mut b, &mut errors] {
        values.sort_by(f64::total_cmp);
    }
    DelayComparison {
        median_error_ms: quantile(&errors, 0.5),
        p95_error_ms: quantile(&errors, 0.95),
        level_error_ms: quantile(&b, 0.5) - quantile(&a, 0.5),
    }
}

/// The start in the first trace at which the second fits best.
fn best_shift(first: &Recording, second: &Recording) -> Duration {
    let best = |shifts: &mut dyn Iterator<Item = Duration>, phase: Duration| {
        let fit = Fit::new(first, second, phase);
        let scored = shifts.map(|shift| (fit.distance(shift), shift));
        scored
            .min_by(|a, b| a.0.total_cmp(&b.0))
            .map_or(Duration::ZERO, |(_, shift)| shift)
    };
    let coarse = best(&mut instants(first.period(), COARSE), COARSE / 2);
    let near = instants(COARSE * 3, MS).map(|by| (coarse + by).saturating_sub(COARSE * 3 / 2));
    // A second set of instants, at any point of the series' steps.
    best(&mut near.into_iter(), MS / 2)
}

/// The samples of the second trace that the search compares.
struct Fit<'a> {
    capacity: Option<&'a Opportunities>,
    stretches: Vec<(Duration, u64)>,
    usual: f64,
    delay: Option<&'a DelaySeries>,
    delays: Vec<(Duration, Duration)>,
}

impl<'a> Fit<'a> {
    fn new(first: &'a Recording, second: &'a Recording, phase: Duration) -> Self {
        let duration = second.period();
        let apart = duration / u32::try_from(SAMPLES).unwrap_or(u32::MAX);
        // The distance is no multiple of the series' own steps.
        let apart = apart.max(STRETCH / 7).max(MS);
        let capacity = both(&first.capacity, &second.capacity);
        let delay = both(&first.delay, &second.delay);
        let stretch = |at| capacity.map(|(_, second)| (at, bytes(second, at, STRETCH)));
        let stretches: Vec<_> = instants(duration, apart.max(STRETCH))
            .filter_map(stretch)
            .collect();
        let sum: u64 = stretches.iter().map(|(_, bytes)| bytes).sum();
        let value = |at: Duration| delay.map(|(_, second)| (at + phase, second.at(at + phase)));
        Self {
            usual: sum.max(1) as f64 / stretches.len().max(1) as f64,
            capacity: capacity.map(|(first, _)| first),
            stretches,
            delay: delay.map(|(first, _)| first),
            delays: instants(duration, apart).filter_map(value).collect(),
        }
    }

    /// The distance of both traces, 0 to 2.
    fn distance(&self, shift: Duration) -> f64 {
        let capacity = self.capacity.map_or(0.0, |first| {
            let stretch = |(at, found): &(Duration, u64)| {
                let off = bytes(first, shift + *at, STRETCH).abs_diff(*found);
                (off as f64 / self.usual).min(1.0)
            };
            mean(self.stretches.iter().map(stretch))
        });
        let delay = self.delay.map_or(0.0, |first| {
            let value = |(at, found): &(Duration, Duration)| {
                let off = first.at(shift + *at).abs_diff(*found);
                off.min(WRONG).as_secs_f64() / WRONG.as_secs_f64()
            };
            mean(self.delays.iter().map(value))
        });
        capacity + delay
    }
}

fn mean(values: impl ExactSizeIterator<Item = f64>) -> f64 {
    let count = values.len().max(1);
    values.sum::<f64>() / count as f64
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Model, Trace};

    fn model(model: Model, seed: u64) -> Trace {
        model
            .generate(None, Some(Duration::from_secs(60)), seed)
            .unwrap()
    }

    #[test]
    fn a_part_of_a_trace_is_found_where_it_was_cut() {
        for name in [Model::Leo, Model::Geo, Model::Cellular] {
            let whole = model(name, 3);
            let from = Duration::from_millis(23_456);
            let part = whole.cut(from..from + Duration::from_secs(12)).unwrap();
            let found = Comparison::of(&whole.into(), &part.into(), None);
            assert_eq!(found.shift, from, "{name:?}");
            let (capacity, delay) = (found.capacity.unwrap(), found.delay.unwrap());
            assert_eq!((capacity.greatest_error, capacity.seconds.len()), (0.0, 12));
            assert_eq!(capacity.outages, capacity.outages_found);
            assert_eq!((delay.p95_error_ms, delay.level_error_ms), (0.0, 0.0));
        }
    }

    #[test]
    fn errors_say_by_how_much_the_second_is_off() {
        let spec = |text: &str| {
            let spec = text.parse().unwrap();
            Recording::of_spec(&spec, Duration::from_secs(8)).unwrap()
        };
        let (a, b) = (
            spec("rate=10mbit,delay=20ms,loss=1%"),
            spec("rate=9mbit,delay=23ms,loss=2%"),
        );
        let found = Comparison::of(&a, &b, None);
        let (capacity, delay) = (found.capacity.unwrap(), found.delay.unwrap());
        assert!((capacity.median_error - 0.1).abs() < 0.001, "{capacity:?}");
        assert_eq!((delay.median_error_ms, delay.level_error_ms), (3.0, 3.0));
        assert_eq!(found.loss, Some((0.01, 0.02)));
        // The loss of the while in the first, and not of all of it.
        let steps = [(SECOND * 3, 0.0), (SECOND, 0.4), (SECOND * 12, 0.0)];
        let varied = Recording {
            loss: LossSeries::from_steps(steps).map(std::sync::Arc::new),
            ..a.clone()
        };
        let (first, second) = Comparison::of(&varied, &b, Some(SECOND * 2)).loss.unwrap();
        assert!(
            (first - 0.05).abs() < 1e-4 && second == 0.02,
            "{first} {second}"
        );
        // A second without capacity that was recorded as a tenth of the rest.
        let (first, second) = ([10, 0, 10], [10, 1, 10]);
        let trace = |mbit: [u64; 3]| {
            let rates = mbit.map(|mbit| (SECOND, Bandwidth::from_mbit(mbit)));
            Recording::from(Trace::new(Opportunities::from_rates(rates).unwrap(), None).unwrap())
        };
        let found = Comparison::of(&trace(first), &trace(second), Some(Duration::ZERO));
        let capacity = found.capacity.unwrap();
        assert!(capacity.median_error < 0.002, "{capacity:?}");
        assert!(capacity.greatest_error > 10.0, "{capacity:?}");
        assert_eq!(capacity.outages.len(), 1);
        assert_eq!(capacity.outages_found, []);
    }
}
