//! Histogram of durations: lateness and waiting time of packets.

use std::time::Duration;

/// Buckets per doubling, so that a quantile is at most 4.5 % too high.
const STEPS_PER_DOUBLING: f64 = 16.0;
/// The buckets cover 1 µs to over 4 s.
const BUCKETS: usize = 360;

/// A histogram of durations.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Histogram {
    buckets: Box<[u64]>,
    count: u64,
    sum: Duration,
    max: Duration,
}

impl Default for Histogram {
    fn default() -> Self {
        Self {
            buckets: vec![0; BUCKETS].into(),
            count: 0,
            sum: Duration::ZERO,
            max: Duration::ZERO,
        }
    }
}

impl Histogram {
    /// Adds one duration.
    pub fn record(&mut self, duration: Duration) {
        if let Some(count) = self.buckets.get_mut(bucket(duration)) {
            *count += 1;
        }
        self.count += 1;
        self.sum = self.sum.saturating_add(duration);
        self.max = self.max.max(duration);
    }

    /// Adds another histogram.
    pub fn merge(&mut self, other: &Self) {
        for (mine, theirs) in self.buckets.iter_mut().zip(&other.buckets) {
            *mine += theirs;
        }
        self.count += other.count;
        self.sum = self.sum.saturating_add(other.sum);
        self.max = self.max.max(other.max);
    }

    /// Number of durations recorded.
    pub fn count(&self) -> u64 {
        self.count
    }

    /// The longest duration recorded.
    pub fn max(&self) -> Duration {
        self.max
    }

    /// The mean, zero without records.
    #[expect(
        clippy::cast_precision_loss,
        reason = "counts beyond 2^53 do not occur"
    )]
    pub fn mean(&self) -> Duration {
        match self.count {
            0 => Duration::ZERO,
            count => self.sum.div_f64(count as f64),
        }
    }

    /// The duration that the share `q` (0.0 to 1.0) did not exceed, rounded up by at most 4.5 %; zero without records.
    #[expect(
        clippy::cast_precision_loss,
        reason = "counts beyond 2^53 do not occur"
    )]
    pub fn quantile(&self, q: f64) -> Duration {
        let wanted = (self.count as f64 * q).max(1.0);
        let mut seen = 0;
        for (index, count) in self.buckets.iter().enumerate() {
            seen += count;
            if seen as f64 >= wanted {
                return upper_bound(index).min(self.max);
            }
        }
        self.max
    }

    /// The non-empty buckets: upper bound and count.
    pub fn buckets(&self) -> impl Iterator<Item = (Duration, u64)> {
        let all = self.buckets.iter().enumerate();
        all.filter(|(_, count)| **count > 0)
            .map(|(index, count)| (upper_bound(index), *count))
    }
}

/// The first bucket whose upper bound is not below `duration`.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "a cast from a float saturates, and the result is cut to the last bucket"
)]
fn bucket(duration: Duration) -> usize {
    let steps = (duration.as_secs_f64() * 1e6).max(1.0).log2() * STEPS_PER_DOUBLING;
    (steps.ceil() as usize).min(BUCKETS - 1)
}

#[expect(clippy::cast_precision_loss, reason = "an index below 360")]
fn upper_bound(index: usize) -> Duration {
    Duration::from_secs_f64(1e-6 * (index as f64 / STEPS_PER_DOUBLING).exp2())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_are_close_and_never_flatter() {
        let mut histogram = Histogram::default();
        for micros in 1..=10_000 {
            histogram.record(Duration::from_micros(micros));
        }
        for (q, exact) in [(0.5, 5_000.0), (0.99, 9_900.0), (0.001, 10.0)] {
            let found = histogram.quantile(q).as_secs_f64() * 1e6;
            // Durations have whole nanoseconds.
            assert!(
                found >= exact - 0.001 && found <= exact * 1.045,
                "q={q}: {found} for {exact}"
            );
        }
        assert_eq!(histogram.quantile(1.0), Duration::from_millis(10));
        let mean = histogram.mean().as_secs_f64() * 1e6;
        assert!((mean - 5000.5).abs() < 0.001, "{mean}");
    }

    #[test]
    fn merging_adds_and_nothing_is_too_long_to_count() {
        let (mut a, mut b) = (Histogram::default(), Histogram::default());
        assert_eq!((a.quantile(0.5), a.mean()), Default::default());
        a.record(Duration::ZERO);
        b.record(Duration::from_secs(3600));
        a.merge(&b);
        assert_eq!((a.count(), a.max()), (2, Duration::from_secs(3600)));
        assert_eq!(a.buckets().map(|(_, count)| count).sum::<u64>(), 2);
    }
}
