//! A quantity over time as a step function that repeats: one-way delay (as in LeoReplayer's files) or random loss.

use std::{ops::Range, sync::Arc, time::Duration};

/// A step function of time that repeats without end.
#[derive(Clone, PartialEq)]
pub struct Series<T> {
    /// Start of each value, and the value; the first starts at 0, and the starts increase.
    steps: Vec<(Duration, T)>,
    period: Duration,
}

/// One-way delay over time.
pub type DelaySeries = Series<Duration>;

/// Random loss over time: the probability, 0 to 1, that a packet sent at that time is lost.
pub type LossSeries = Series<f64>;

impl Eq for DelaySeries {}

impl<T: Copy + Default + PartialEq> Series<T> {
    /// Creates a series of values, each with its duration. `None` when their total duration is zero.
    pub fn from_steps(steps: impl IntoIterator<Item = (Duration, T)>) -> Option<Self> {
        let mut builder = SeriesBuilder::default();
        for (time, value) in steps {
            builder.push(time, value);
        }
        builder.finish()
    }

    /// The value at `offset` after the start of the series.
    pub fn at(&self, offset: Duration) -> T {
        let nanos = offset.as_nanos() % self.period.as_nanos().max(1);
        let offset = Duration::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX));
        let after = self.steps.partition_point(|&(begin, _)| begin <= offset);
        self.steps
            .get(after.saturating_sub(1))
            .map_or(T::default(), |&(_, value)| value)
    }

    /// The time after which the series repeats.
    pub fn period(&self) -> Duration {
        self.period
    }

    /// The values of one period with their time ranges; neighbours differ.
    pub fn steps(&self) -> impl Iterator<Item = (Range<Duration>, T)> {
        let ends = self.steps.iter().skip(1).map(|&(begin, _)| begin);
        let ends = ends.chain([self.period]);
        let spans = self.steps.iter().zip(ends);
        spans.map(|(&(begin, value), end)| (begin..end, value))
    }

    /// Whether the series has a single value.
    pub fn is_constant(&self) -> bool {
        self.steps.len() == 1
    }

    /// The same series repeated after `period` in place of its own: cut when that is shorter, its last value held
    /// when it is longer, so that it wraps together with the capacity.
    pub(crate) fn with_period(mut self, period: Duration) -> Self {
        self.steps
            .retain(|&(begin, _)| begin.is_zero() || begin < period);
        self.period = period;
        self
    }

    /// The part of one period in `span`; `None` if that lies outside.
    pub(crate) fn cut(&self, span: &Range<Duration>) -> Option<Self> {
        Self::from_steps(self.steps().map(|(step, value)| {
            let (from, to) = (step.start.max(span.start), step.end.min(span.end));
            (to.saturating_sub(from), value)
        }))
    }
}

/// Collects the steps of a series and merges equal neighbours.
#[derive(Debug)]
pub(crate) struct SeriesBuilder<T>(Series<T>);

impl<T> Default for SeriesBuilder<T> {
    fn default() -> Self {
        Self(Series {
            steps: Vec::new(),
            period: Duration::ZERO,
        })
    }
}

impl<T: Copy + PartialEq> SeriesBuilder<T> {
    /// Appends a value that holds for `time`.
    pub(crate) fn push(&mut self, time: Duration, value: T) {
        let series = &mut self.0;
        if time.is_zero() {
            return;
        }
        if series.steps.last().is_none_or(|&(_, last)| last != value) {
            series.steps.push((series.period, value));
        }
        series.period = series.period.saturating_add(time);
    }

    /// The series; `None` when the total duration is zero.
    pub(crate) fn finish(self) -> Option<Series<T>> {
        (!self.0.steps.is_empty()).then_some(self.0)
    }
}

impl DelaySeries {
    /// The least and the greatest delay of one period.
    pub fn range(&self) -> (Duration, Duration) {
        let values = || self.steps.iter().map(|&(_, value)| value);
        (
            values().min().unwrap_or_default(),
            values().max().unwrap_or_default(),
        )
    }
}

impl LossSeries {
    /// A series of one probability; `None` if it is out of range.
    pub fn constant(probability: f64) -> Option<Self> {
        if !(0.0..=1.0).contains(&probability) {
            return None;
        }
        // The period follows that of the capacity.
        Self::from_steps([(Duration::from_millis(1), probability)])
    }

    /// The times at which all is lost; `None` if there are none.
    pub(crate) fn only_total(&self) -> Option<Arc<Self>> {
        let total = |loss: f64| if loss >= 1.0 { 1.0 } else { 0.0 };
        let steps = self
            .steps()
            .map(|(span, loss)| (span.end.saturating_sub(span.start), total(loss)));
        let series = Self::from_steps(steps)?;
        (series.mean() > 0.0).then(|| Arc::new(series))
    }

    /// The loss by either of two independent causes; the shorter of both keeps its last value.
    pub(crate) fn and(&self, other: &Self) -> Self {
        let period = self.period.max(other.period);
        let both = [self, other].map(|series| series.clone().with_period(period));
        let begins = both.iter().flat_map(|series| &series.steps);
        let mut begins: Vec<Duration> = begins.map(|(begin, _)| *begin).collect();
        begins.sort_unstable();
        begins.dedup();
        let ends = begins.iter().skip(1).copied().chain([period]);
        let steps = begins.iter().zip(ends).map(|(begin, end)| {
            let [one, two] = both.each_ref().map(|series| series.at(*begin));
            (end.saturating_sub(*begin), one + two * (1.0 - one))
        });
        Self::from_steps(steps).unwrap_or_else(|| self.clone())
    }

    /// The mean over one period.
    pub fn mean(&self) -> f64 {
        let weighted = |(span, loss): (Range<Duration>, f64)| {
            loss * span.end.saturating_sub(span.start).as_secs_f64()
        };
        self.steps().map(weighted).sum::<f64>() / self.period.as_secs_f64()
    }
}

impl<T> std::fmt::Debug for Series<T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(
            f,
            "Series({} steps over {:?})",
            self.steps.len(),
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

    #[test]
    fn a_part_keeps_its_values() {
        let ms = Duration::from_millis;
        let steps = [(ms(10), ms(5)), (ms(10), ms(7)), (ms(10), ms(9))];
        let series = DelaySeries::from_steps(steps).unwrap();
        let part = series.cut(&(ms(15)..ms(22))).unwrap();
        let steps: Vec<_> = part.steps().collect();
        assert_eq!(steps, [(ms(0)..ms(5), ms(7)), (ms(5)..ms(7), ms(9))]);
        assert_eq!(series.cut(&(ms(30)..ms(40))), None);
    }

    #[test]
    fn of_two_causes_of_loss_a_packet_may_meet_either() {
        let ms = Duration::from_millis;
        let one = LossSeries::from_steps([(ms(10), 0.5), (ms(10), 0.0), (ms(10), 1.0)]).unwrap();
        let other = LossSeries::from_steps([(ms(15), 0.5), (ms(5), 0.0)]).unwrap();
        let both: Vec<_> = one.and(&other).steps().collect();
        let expected = [
            (ms(0)..ms(10), 0.75),
            (ms(10)..ms(15), 0.5),
            (ms(15)..ms(20), 0.0),
            (ms(20)..ms(30), 1.0),
        ];
        assert_eq!(both, expected);
        assert_eq!(other.and(&one), one.and(&other));
    }

    #[test]
    fn the_mean_loss_is_weighted_by_time() {
        let ms = Duration::from_millis;
        let loss = LossSeries::from_steps([(ms(30), 0.0), (ms(10), 0.2)]).unwrap();
        assert!((loss.mean() - 0.05).abs() < 1e-12);
        assert_eq!(LossSeries::constant(1.5), None);
        assert_eq!(LossSeries::constant(f64::NAN), None);
    }
}
