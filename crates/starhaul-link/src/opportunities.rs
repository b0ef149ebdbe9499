//! Capacity over time as delivery opportunities, the model of mahimahi's packet-delivery traces
//! (Netravali et al., USENIX ATC 2015, §3): each can carry 1500 bytes at one whole millisecond.

use std::{ops::Range, time::Duration};

use starhaul_units::Bandwidth;

/// The longest trace that is read or generated.
pub const MAX_TRACE_DURATION: Duration = Duration::from_secs(2 * 3600);

/// Least length of an outage: a gap between delivery opportunities that exceeds this, and also four times the mean gap
/// around it, as a slow link has few opportunities.
pub const OUTAGE: Duration = Duration::from_millis(45);

/// A gap is an outage only if it exceeds this multiple of the usual gap around it: at 100 kbit/s one opportunity comes
/// each 120 ms.
const UNUSUAL: u32 = 4;
/// Instants with opportunities, on either side, that give the usual gap.
const NEIGHBOURS: usize = 8;

/// Bytes that one delivery opportunity can carry: IP packets with all headers.
pub const OPPORTUNITY_BYTES: u64 = 1500;

/// Delivery opportunities on a grid of milliseconds, repeated without end.
///
/// The period is the half-open interval (0, last]: an opportunity stamped 0 ms is kept at the end of the period, where
/// mahimahi's loop repeats it. The one at the very start cannot be used, since the queue is still empty.
#[derive(Clone, PartialEq, Eq)]
pub struct Opportunities {
    /// Element `i` counts the opportunities stamped in (0, i] ms; never empty, and the last one is not 0.
    cumulative: Vec<u32>,
}

impl Opportunities {
    /// Creates opportunities for each rate for its time, one after the other; times are rounded down to milliseconds.
    /// The error is a text that says why these rates make no trace (too long, too fast, or no capacity).
    pub fn from_rates(
        rates: impl IntoIterator<Item = (Duration, Bandwidth)>,
    ) -> Result<Self, String> {
        // In bits/s · ms, so that no fraction of a packet is ever rounded away.
        const COST: u64 = OPPORTUNITY_BYTES * 8 * 1000;
        let mut builder = Builder::default();
        let mut credit = 0_u64;
        for (time, rate) in rates {
            for _ in 0..time.as_millis() {
                credit = credit.saturating_add(rate.bits_per_second());
                builder.advance(credit / COST)?;
                credit %= COST;
            }
        }
        builder.finish()
    }

    /// The time after which the series repeats.
    pub fn period(&self) -> Duration {
        Duration::from_millis(self.period_ms())
    }

    /// Number of opportunities in one period.
    pub fn per_period(&self) -> u64 {
        u64::from(self.cumulative.last().copied().unwrap_or(0))
    }

    /// The mean rate over a period.
    pub fn mean_rate(&self) -> Bandwidth {
        Bandwidth::from_bytes_over(self.per_period() * OPPORTUNITY_BYTES, self.period())
    }

    /// The rate of each interval of `step` (at least 1 ms) in one period, or of the whole period if that is shorter; an
    /// incomplete last interval is left out.
    pub fn rates(&self, step: Duration) -> Vec<Bandwidth> {
        let step = step.min(self.period()).max(Duration::from_millis(1));
        let count = self.period().as_nanos() / step.as_nanos();
        let rate = |index| {
            let packets = self.until(step * (index + 1)) - self.until(step * index);
            Bandwidth::from_bytes_over(packets * OPPORTUNITY_BYTES, step)
        };
        (0..u32::try_from(count).unwrap_or(u32::MAX))
            .map(rate)
            .collect()
    }

    /// Opportunities in (0, offset] since the start of the series, over all periods passed.
    pub fn until(&self, offset: Duration) -> u64 {
        let ms = u64::try_from(offset.as_millis()).unwrap_or(u64::MAX);
        let (periods, rest) = (ms / self.period_ms(), ms % self.period_ms());
        let partial = usize::try_from(rest)
            .ok()
            .and_then(|index| self.cumulative.get(index))
            .copied()
            .unwrap_or(0);
        periods
            .saturating_mul(self.per_period())
            .saturating_add(u64::from(partial))
    }

    /// When the `n`th opportunity comes, counted from 1 over all periods (0 is the start).
    pub fn time_of(&self, n: u64) -> Duration {
        let Some(before) = n.checked_sub(1) else {
            return Duration::ZERO;
        };
        let (periods, rank) = (before / self.per_period(), before % self.per_period());
        let ms = self
            .cumulative
            .partition_point(|&count| u64::from(count) <= rank);
        Duration::from_millis(
            periods
                .saturating_mul(self.period_ms())
                .saturating_add(ms as u64),
        )
    }

    /// The gaps of one period longer than `longer_than` between two neighbouring opportunities, or an opportunity and the
    /// period's end: start and length.
    pub fn gaps(&self, longer_than: Duration) -> Vec<(Duration, Duration)> {
        let mut gaps = Vec::new();
        let (mut last_ms, mut last_count) = (0_u64, 0);
        for (ms, &count) in (0_u64..).zip(&self.cumulative) {
            if count == last_count {
                continue;
            }
            let length = Duration::from_millis(ms - last_ms);
            if length > longer_than {
                gaps.push((Duration::from_millis(last_ms), length));
            }
            (last_ms, last_count) = (ms, count);
        }
        let last = Duration::from_millis(last_ms);
        let length = self.period().saturating_sub(last);
        if length > longer_than {
            gaps.push((last, length));
        }
        gaps
    }

    /// The outages of one period, as [`Self::is_outage`] tells them from a slow link's regular gaps: start and length.
    pub fn outages(&self) -> Vec<(Duration, Duration)> {
        let mut gaps = self.gaps(OUTAGE);
        gaps.retain(|(start, _)| self.is_outage(*start + Duration::from_millis(1)));
        gaps
    }

    /// Whether `offset` after the start of the series lies in an outage: between two neighbouring opportunities that
    /// are more than [`OUTAGE`] apart, and more than four times the usual gap (the median of the eight gaps before and
    /// the eight after). A regular gap of a slow link is no outage.
    pub fn is_outage(&self, offset: Duration) -> bool {
        let passed = self.until(offset);
        let (begin, end) = (self.time_of(passed), self.time_of(passed.saturating_add(1)));
        let length = end.saturating_sub(begin);
        if length <= OUTAGE {
            return false;
        }
        let mut usual = Vec::with_capacity(2 * NEIGHBOURS);
        let mut at = begin;
        while usual.len() < NEIGHBOURS && !at.is_zero() {
            let before = self.time_of(self.until(at.saturating_sub(Duration::from_millis(1))));
            usual.push(at.saturating_sub(before));
            at = before;
        }
        at = end;
        for _ in 0..NEIGHBOURS {
            let after = self.time_of(self.until(at).saturating_add(1));
            usual.push(after.saturating_sub(at));
            at = after;
        }
        usual.sort_unstable();
        let median = usual.get(usual.len() / 2).copied().unwrap_or_default();
        length > median.saturating_mul(UNUSUAL)
    }

    /// The opportunities in (`span.start`, `span.end`] of one period, counted from its start and repeated after its
    /// length; both are rounded down to milliseconds. `None` if there are none.
    pub(crate) fn cut(&self, span: &Range<Duration>) -> Option<Self> {
        let index = |at: Duration| usize::try_from(at.as_millis()).unwrap_or(usize::MAX);
        let end = index(span.end).min(self.cumulative.len() - 1);
        let part = self.cumulative.get(index(span.start)..=end)?;
        let before = *part.first()?;
        let offers = part.len() > 1 && part.last() > Some(&before);
        offers.then(|| Self {
            cumulative: part.iter().map(|count| count - before).collect(),
        })
    }

    fn period_ms(&self) -> u64 {
        (self.cumulative.len() as u64).saturating_sub(1).max(1)
    }
}

impl std::fmt::Debug for Opportunities {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(
            f,
            "Opportunities({} over {:?})",
            self.mean_rate(),
            self.period()
        )
    }
}

/// Collects opportunities in the order of their stamps.
#[derive(Debug)]
pub(crate) struct Builder {
    cumulative: Vec<u32>,
    at_zero: u32,
}

impl Default for Builder {
    fn default() -> Self {
        Self {
            cumulative: vec![0],
            at_zero: 0,
        }
    }
}

impl Builder {
    /// Adds one opportunity at `stamp_ms`, which must not lie before the previous one.
    pub(crate) fn push(&mut self, stamp_ms: u64) -> Result<(), String> {
        if stamp_ms == 0 && self.cumulative.len() == 1 {
            self.at_zero = self.at_zero.checked_add(1).ok_or_else(too_many)?;
            return Ok(());
        }
        let last_ms = self.cumulative.len() as u64 - 1;
        if stamp_ms < last_ms {
            return Err(format!(
                "{stamp_ms} ms lies before the previous {last_ms} ms"
            ));
        }
        let index = checked_ms(stamp_ms)?;
        let count = self.cumulative.last().copied().unwrap_or(0);
        self.cumulative.resize(index + 1, count);
        self.add_to_last(1)
    }

    /// Advances by one millisecond with `count` opportunities at its end.
    fn advance(&mut self, count: u64) -> Result<(), String> {
        checked_ms(self.cumulative.len() as u64)?;
        self.cumulative
            .push(self.cumulative.last().copied().unwrap_or(0));
        self.add_to_last(u32::try_from(count).map_err(|_| too_many())?)
    }

    pub(crate) fn finish(mut self) -> Result<Opportunities, String> {
        if self.cumulative.len() == 1 {
            return Err("offers no delivery opportunity after 0 ms".to_owned());
        }
        self.add_to_last(self.at_zero)?;
        match self.cumulative.last() {
            Some(0) => Err("never offers any capacity".to_owned()),
            _ => Ok(Opportunities {
                cumulative: self.cumulative,
            }),
        }
    }

    fn add_to_last(&mut self, count: u32) -> Result<(), String> {
        if let Some(last) = self.cumulative.last_mut() {
            *last = last.checked_add(count).ok_or_else(too_many)?;
        }
        Ok(())
    }
}

fn checked_ms(ms: u64) -> Result<usize, String> {
    usize::try_from(ms)
        .ok()
        .filter(|_| Duration::from_millis(ms) <= MAX_TRACE_DURATION)
        .ok_or_else(|| format!("{ms} ms is beyond the longest trace of {MAX_TRACE_DURATION:?}"))
}

fn too_many() -> String {
    format!("more than {} delivery opportunities", u32::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn series(stamps: &[u64]) -> Opportunities {
        let mut builder = Builder::default();
        for &stamp in stamps {
            builder.push(stamp).unwrap();
        }
        builder.finish().unwrap()
    }

    #[test]
    fn counting_and_timing_agree_over_several_periods() {
        let ms = Duration::from_millis;
        let trace = series(&[0, 2, 2, 5]);
        assert_eq!(trace.period(), ms(5));
        // the stamp of 0 ms returns with the loop, at 5 ms
        let times: Vec<_> = (1..=8).map(|n| trace.time_of(n)).collect();
        assert_eq!(times, [2, 2, 5, 5, 7, 7, 10, 10].map(ms));
        assert_eq!(
            [0, 1, 2, 4, 5, 12].map(|t| trace.until(ms(t))),
            [0, 0, 2, 2, 4, 10]
        );
        assert_eq!(trace.until(Duration::from_micros(1_999)), 0);
    }

    #[test]
    fn rates_lose_no_fraction_of_a_packet() {
        let rate = Bandwidth::from_kbit(1_001);
        let trace = Opportunities::from_rates([(Duration::from_secs(60), rate)]).unwrap();
        assert_eq!(trace.per_period(), 1_001 * 60 / 12);
        assert!(Opportunities::from_rates([]).is_err());
        assert!(Opportunities::from_rates([(Duration::from_secs(1), Bandwidth::ZERO)]).is_err());
        let too_fast = (Duration::from_secs(1), Bandwidth::MAX);
        assert!(Opportunities::from_rates([too_fast]).is_err());
        let too_long = (MAX_TRACE_DURATION * 2, Bandwidth::from_mbit(1));
        assert!(Opportunities::from_rates([too_long]).is_err());
    }

    #[test]
    fn a_part_begins_at_its_own_start() {
        let ms = Duration::from_millis;
        let trace = series(&[1, 2, 5, 5, 9, 20]);
        let part = trace.cut(&(ms(2)..ms(10))).unwrap();
        assert_eq!((part.period(), part.per_period()), (ms(8), 3));
        assert_eq!([1, 2, 3].map(|n| part.time_of(n)), [3, 3, 7].map(ms));
        // (9, 20) has no opportunity, and the trace ends there
        assert_eq!(trace.cut(&(ms(9)..ms(19))), None);
        assert_eq!(trace.cut(&(ms(20)..ms(30))), None);
        assert_eq!(trace.cut(&(ms(0)..ms(90))), Some(trace));
    }

    #[test]
    fn gaps_are_the_times_without_any_opportunity() {
        let trace = series(&[10, 11, 80, 81]);
        let ms = Duration::from_millis;
        assert_eq!(trace.gaps(ms(45)), [(ms(11), ms(69))]);
        assert_eq!(trace.gaps(ms(69)), []);
    }

    #[test]
    fn outages_are_no_regular_gaps_of_a_slow_link_and_may_end_a_trace() {
        let (slow, none) = (Bandwidth::from_kbit(100), Bandwidth::ZERO);
        let of = |parts: &[(u64, Bandwidth)]| {
            let parts = parts
                .iter()
                .map(|(s, rate)| (Duration::from_secs(*s), *rate));
            Opportunities::from_rates(parts).unwrap().outages()
        };
        assert_eq!(of(&[(60, slow)]), []);
        let [(start, length)] = of(&[(30, slow), (2, none), (28, slow)])[..] else {
            panic!("not one outage");
        };
        assert!(start > Duration::from_millis(29_800) && length >= Duration::from_secs(2));
        let fast = Bandwidth::from_mbit(10);
        let [(start, length)] = of(&[(8, fast), (3, none)])[..] else {
            panic!("not one outage at the end");
        };
        assert_eq!(start + length, Duration::from_secs(11));
        assert!(length >= Duration::from_secs(3), "{length:?}");
    }
}
