//! Figures of a recording: capacity, delay, loss, outages, and the regular reconfigurations that LeoCC (§3) found on
//! Starlink, where every 15 s the path changes with an outage, a drop of capacity or a spike of delay.

use std::time::Duration;

use starhaul_units::Bandwidth;

use crate::{DelaySeries, Opportunities, Recording};

/// The figures of one recording.
#[derive(Clone, Debug, PartialEq)]
pub struct Summary {
    /// The time after which it repeats.
    pub duration: Duration,
    /// Figures of the capacity, if recorded.
    pub capacity: Option<CapacitySummary>,
    /// Figures of the one-way delay, if recorded.
    pub delay: Option<DelaySummary>,
    /// The mean probability of random loss.
    pub loss: Option<f64>,
    /// Those of [`Opportunities::outages`].
    pub outages: Vec<(Duration, Duration)>,
    /// Reconfigurations, if they are regular.
    pub reconfigurations: Option<Comb>,
}

/// Figures of the capacity; all but the mean are over whole seconds (or the whole recording if it is shorter).
#[derive(Clone, Debug, PartialEq)]
pub struct CapacitySummary {
    /// Mean over the whole period.
    pub mean: Bandwidth,
    /// Median over the seconds.
    pub median: Bandwidth,
    /// Rate of the slowest second.
    pub least: Bandwidth,
    /// Rate of the fastest second.
    pub greatest: Bandwidth,
}

/// Figures of the one-way delay, by share of time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DelaySummary {
    /// The least delay.
    pub least: Duration,
    /// The delay not exceeded in 5 % of the time.
    pub p5: Duration,
    /// The delay not exceeded in half of the time.
    pub median: Duration,
    /// The delay not exceeded in 95 % of the time.
    pub p95: Duration,
    /// The delay not exceeded in 99 % of the time.
    pub p99: Duration,
    /// The greatest delay.
    pub greatest: Duration,
}

/// Events at regular intervals.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Comb {
    /// Time between two instants.
    pub period: Duration,
    /// The time of the first event; less than the period.
    pub offset: Duration,
    /// The number of its instants with an event.
    pub found: u32,
    /// The number of its instants in the recording.
    pub expected: u32,
    /// The kind of events from which it was found.
    pub evidence: Evidence,
}

/// The events from which a [`Comb`] was found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Evidence {
    /// Times without capacity.
    Outages,
    /// Short times with less than a quarter of the usual capacity.
    CapacityDips,
    /// Delays far above the usual.
    DelaySpikes,
}

impl Evidence {
    /// The name in reports.
    pub fn name(self) -> &'static str {
        match self {
            Self::Outages => "outages",
            Self::CapacityDips => "dips of capacity",
            Self::DelaySpikes => "spikes of delay",
        }
    }
}

impl Summary {
    /// Computes the figures of a recording.
    pub fn of(recording: &Recording) -> Self {
        let outages = recording.capacity.as_deref().map(Opportunities::outages);
        let delay = recording.delay.as_deref();
        Self {
            duration: recording.period(),
            capacity: recording.capacity.as_deref().map(capacity_summary),
            delay: delay.map(delay_summary),
            loss: recording.loss.as_ref().map(|loss| loss.mean()),
            reconfigurations: reconfigurations(recording, outages.as_deref().unwrap_or_default()),
            outages: outages.unwrap_or_default(),
        }
    }
}

impl Comb {
    /// The instants of the comb in a recording of this duration.
    pub fn instants(&self, duration: Duration) -> impl Iterator<Item = Duration> {
        let next = |at: &Duration| at.checked_add(self.period);
        std::iter::successors(Some(self.offset), next).take_while(move |at| *at < duration)
    }
}

fn capacity_summary(capacity: &Opportunities) -> CapacitySummary {
    let mut seconds = capacity.rates(Duration::from_secs(1));
    seconds.sort();
    let of = |index: usize| seconds.get(index).copied().unwrap_or_default();
    CapacitySummary {
        mean: capacity.mean_rate(),
        median: of(seconds.len() / 2),
        least: of(0),
        greatest: of(seconds.len().saturating_sub(1)),
    }
}

fn delay_summary(delay: &DelaySeries) -> DelaySummary {
    let mut spans: Vec<_> = delay
        .steps()
        .map(|(span, value)| (value, span.end.saturating_sub(span.start)))
        .collect();
    spans.sort();
    let quantile = |percent: u32| {
        let wanted = delay.period() * percent / 100;
        let mut passed = Duration::ZERO;
        let reached = spans.iter().find(|(_, time)| {
            passed += *time;
            passed >= wanted
        });
        reached
            .or(spans.last())
            .map_or(Duration::ZERO, |span| span.0)
    };
    let (least, greatest) = delay.range();
    DelaySummary {
        least,
        p5: quantile(5),
        median: quantile(50),
        p95: quantile(95),
        p99: quantile(99),
        greatest,
    }
}

/// The first of the three kinds of events that has a comb.
fn reconfigurations(recording: &Recording, outages: &[(Duration, Duration)]) -> Option<Comb> {
    let duration = recording.period();
    let starts = outages.iter().map(|(start, _)| *start).collect();
    let by_outages = comb(starts, duration, Evidence::Outages);
    let capacity = recording.capacity.as_deref();
    let by_dips = || comb(dips(capacity?), duration, Evidence::CapacityDips);
    let delay = recording.delay.as_deref();
    // High spikes first; some paths have only low ones.
    let by_spikes = |spreads| comb(spikes(delay?, spreads), duration, Evidence::DelaySpikes);
    by_outages
        .or_else(by_dips)
        .or_else(|| by_spikes(3))
        .or_else(|| by_spikes(2))
}

/// Starts of intervals of 50 ms (the grid of some tables) that carry less than a quarter of the usual capacity.
fn dips(capacity: &Opportunities) -> Vec<Duration> {
    let step = Duration::from_millis(50);
    let rates = capacity.rates(step);
    let mut sorted = rates.clone();
    sorted.sort();
    let usual = sorted.get(sorted.len() / 2).copied().unwrap_or_default();
    let low = |rate: &Bandwidth| rate.bits_per_second() < usual.bits_per_second() / 4;
    let at = (0..).zip(&rates).filter(|(_, rate)| low(rate));
    first_of_each(at.map(|(index, _)| step * index))
}

/// Starts of delay spikes: above the median by 8 ms and by `spreads` times the distance from the median to the 95th
/// percentile.
fn spikes(delay: &DelaySeries, spreads: u32) -> Vec<Duration> {
    let summary = delay_summary(delay);
    let spread = summary.p95.saturating_sub(summary.median) * spreads;
    let limit = summary.median + spread.max(Duration::from_millis(8));
    let high = delay.steps().filter(|(_, value)| *value > limit);
    first_of_each(high.map(|(span, _)| span.start))
}

/// The first of each group of instants within half a second.
fn first_of_each(instants: impl Iterator<Item = Duration>) -> Vec<Duration> {
    let (mut firsts, mut last) = (Vec::new(), None);
    for at in instants {
        if last.is_none_or(|last| at.saturating_sub(last) > Duration::from_millis(500)) {
            firsts.push(at);
        }
        last = Some(at);
    }
    firsts
}

/// Greatest distance of an event from the comb's instant.
const TOLERANCE: Duration = Duration::from_millis(200);
/// Possible intervals of a comb.
const PERIODS: std::ops::RangeInclusive<Duration> =
    Duration::from_secs(4)..=Duration::from_secs(64);
/// More events than this are noise, and would slow the search.
const MAX_EVENTS: usize = 2_000;

/// The comb with most events, if it has at least three, on at least six in ten of its instants, and at least a third of
/// all events.
///
/// Each pair of events near each other in the list proposes an interval; the search then follows the events through the
/// recording.
fn comb(events: Vec<Duration>, duration: Duration, evidence: Evidence) -> Option<Comb> {
    if events.len() > MAX_EVENTS {
        return None;
    }
    let mut best: Option<(f64, Comb)> = None;
    for (index, from) in events.iter().enumerate() {
        for to in events.iter().skip(index + 1).take(4) {
            let period = *to - *from;
            if !PERIODS.contains(&period) {
                continue;
            }
            let Some(comb) = follow(&events, *from, period, duration, evidence) else {
                continue;
            };
            let hits = f64::from(comb.found);
            let (of_comb, of_events) =
                (hits / f64::from(comb.expected), hits / events.len() as f64);
            let score = 2.0 * of_comb * of_events / (of_comb + of_events);
            let possible = comb.found >= 3 && of_comb >= 0.6 && of_events >= 1.0 / 3.0;
            if possible && best.is_none_or(|(most, _)| score > most) {
                best = Some((score, comb));
            }
        }
    }
    best.map(|(_, comb)| comb)
}

/// Steps from `start` in both directions by `period`, each step from the last event found, then fits a line.
fn follow(
    events: &[Duration],
    start: Duration,
    period: Duration,
    duration: Duration,
    evidence: Evidence,
) -> Option<Comb> {
    let period = period.as_secs_f64();
    let mut met = vec![(0.0, start.as_secs_f64())];
    for direction in [1.0, -1.0] {
        let (mut anchor, mut steps, mut number) = (start.as_secs_f64(), 0.0, 0.0);
        loop {
            steps += 1.0;
            number += direction;
            let at = anchor + direction * steps * period;
            if at < 0.0 || at >= duration.as_secs_f64() {
                break;
            }
            if let Some(event) = nearest(events, at) {
                met.push((number, event));
                (anchor, steps) = (event, 0.0);
            }
        }
    }
    let count = met.len() as f64;
    let mean = |of: fn(&(f64, f64)) -> f64| met.iter().map(of).sum::<f64>() / count;
    let (x, y) = (mean(|met| met.0), mean(|met| met.1));
    let square: f64 = met.iter().map(|met| (met.0 - x) * (met.0 - x)).sum();
    let both: f64 = met.iter().map(|met| (met.0 - x) * (met.1 - y)).sum();
    if square <= 0.0 || both <= 0.0 {
        return None;
    }
    let period = both / square;
    // an instant just before 0 would be the last one's
    let offset = (y - x * period).rem_euclid(period);
    let period = Duration::try_from_secs_f64(period).ok()?;
    let mut comb = Comb {
        period,
        offset: Duration::try_from_secs_f64(offset).ok()?,
        found: u32::try_from(met.len()).ok()?,
        expected: 0,
        evidence,
    };
    comb.expected = u32::try_from(comb.instants(duration).count()).ok()?;
    comb.expected = comb.expected.max(comb.found);
    Some(comb)
}

/// The event nearest to `at`, in seconds, if one is near enough.
fn nearest(events: &[Duration], at: f64) -> Option<f64> {
    let wanted = Duration::try_from_secs_f64(at).ok()?;
    let after = events.partition_point(|event| *event < wanted);
    let around = events.get(after.saturating_sub(1)..(after + 1).min(events.len()))?;
    let distance = |event: &&Duration| event.abs_diff(wanted);
    let near = around.iter().min_by_key(distance)?;
    (near.abs_diff(wanted) <= TOLERANCE).then_some(near.as_secs_f64())
}

#[cfg(test)]
#[path = "statistics_tests.rs"]
mod tests;
