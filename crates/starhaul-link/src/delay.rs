//! One-way delay over time: a step function that repeats, as in LeoReplayer's delay files.

use std::time::Duration;

/// One-way delay as a step function of time, repeated for ever.
#[derive(Clone, PartialEq, Eq)]
pub struct DelaySeries {
    /// When a value begins, and the value; the first begins at 0, and the beginnings increase.
    steps: Vec<(Duration, Duration)>,
    period: Duration,
}

impl DelaySeries {
    /// A series of values, each with the time for which it holds. `None` when they last no time at all.
    pub fn from_steps(steps: impl IntoIterator<Item = (Duration, Duration)>) -> Option<Self> {
        let mut series = Self {
            steps: Vec::new(),
            period: Duration::ZERO,
        };
        for (time, value) in steps {
            if time.is_zero() {
                continue;
            }
            if series.steps.last().is_none_or(|&(_, last)| last != value) {
                series.steps.push((series.period, value));
            }
            series.period = series.period.saturating_add(time);
        }
        (!series.steps.is_empty()).then_some(series)
    }

    /// The delay of what is sent `offset` after the start of the series.
    pub fn at(&self, offset: Duration) -> Duration {
        let nanos = offset.as_nanos() % self.period.as_nanos().max(1);
        let offset = Duration::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX));
        let after = self.steps.partition_point(|&(begin, _)| begin <= offset);
        self.steps
            .get(after.saturating_sub(1))
            .map_or(Duration::ZERO, |&(_, value)| value)
    }

    /// After how long the series begins again.
    pub fn period(&self) -> Duration {
        self.period
    }

    /// The least and the greatest delay of one period.
    pub fn range(&self) -> (Duration, Duration) {
        let values = || self.steps.iter().map(|&(_, value)| value);
        (
            values().min().unwrap_or_default(),
            values().max().unwrap_or_default(),
        )
    }

    /// The same series repeated after `period` in place of its own: cut when that is shorter, its last value held
    /// when it is longer, so that a delay wraps together with its capacity.
    pub(crate) fn with_period(mut self, period: Duration) -> Self {
        self.steps
            .retain(|&(begin, _)| begin.is_zero() || begin < period);
        self.period = period;
        self
    }
}

impl std::fmt::Debug for DelaySeries {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let (least, greatest) = self.range();
        write!(
            f,
            "DelaySeries({least:?} to {greatest:?} over {:?})",
            self.period
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_holds_from_its_beginning_until_the_next() {
        let ms = Duration::from_millis;
        let series = DelaySeries::from_steps([(ms(10), ms(5)), (ms(10), ms(7))]).unwrap();
        assert_eq!(
            [0, 9, 10, 19, 20, 30].map(|t| series.at(ms(t))),
            [5, 5, 7, 7, 5, 7].map(ms)
        );
        let longer = series.clone().with_period(ms(25));
        assert_eq!([24, 25].map(|t| longer.at(ms(t))), [7, 5].map(ms));
        let shorter = series.with_period(ms(10));
        assert_eq!([9, 10, 19].map(|t| shorter.at(ms(t))), [5, 5, 5].map(ms));
        assert_eq!(DelaySeries::from_steps([]), None);
    }
}
