//! How late packets left, as a histogram that tells whether a run in real time can be trusted.

use std::time::Duration;

/// Buckets per doubling, so that a quantile is at most 19 % too high.
const STEPS_PER_DOUBLING: f64 = 4.0;
/// Covers 1 µs to over 4 s.
const BUCKETS: usize = 90;

/// A histogram of delays between when something was due and when it was done.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Lateness {
    buckets: [u64; BUCKETS],
    count: u64,
    max: Duration,
}

impl Default for Lateness {
    fn default() -> Self {
        Self {
            buckets: [0; BUCKETS],
            count: 0,
            max: Duration::ZERO,
        }
    }
}

impl Lateness {
    /// Counts one more.
    pub fn record(&mut self, late: Duration) {
        let bucket = (0..BUCKETS - 1).find(|index| late <= upper_bound(*index));
        if let Some(count) = self.buckets.get_mut(bucket.unwrap_or(BUCKETS - 1)) {
            *count += 1;
        }
        self.count += 1;
        self.max = self.max.max(late);
    }

    /// Adds another histogram.
    pub fn merge(&mut self, other: &Self) {
        for (mine, theirs) in self.buckets.iter_mut().zip(other.buckets) {
            *mine += theirs;
        }
        self.count += other.count;
        self.max = self.max.max(other.max);
    }

    /// How many were counted.
    pub fn count(&self) -> u64 {
        self.count
    }

    /// The latest of all.
    pub fn max(&self) -> Duration {
        self.max
    }

    /// The lateness that the share `q` (0.0 to 1.0) did not exceed, rounded up by at most 19 %; zero when nothing was counted.
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

    /// Each bucket that is not empty: its upper bound and how many it holds.
    pub fn buckets(&self) -> impl Iterator<Item = (Duration, u64)> {
        let all = self.buckets.iter().enumerate();
        all.filter(|(_, count)| **count > 0)
            .map(|(index, count)| (upper_bound(index), *count))
    }
}

#[expect(clippy::cast_precision_loss, reason = "an index below 90")]
fn upper_bound(index: usize) -> Duration {
    Duration::from_secs_f64(1e-6 * (index as f64 / STEPS_PER_DOUBLING).exp2())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_are_close_and_never_flatter() {
        let mut lateness = Lateness::default();
        for micros in 1..=10_000 {
            lateness.record(Duration::from_micros(micros));
        }
        for (q, exact) in [(0.5, 5_000.0), (0.99, 9_900.0), (0.001, 10.0)] {
            let found = lateness.quantile(q).as_secs_f64() * 1e6;
            assert!(
                found >= exact && found <= exact * 1.2,
                "q={q}: {found} for {exact}"
            );
        }
        assert_eq!(lateness.quantile(1.0), Duration::from_millis(10));
    }

    #[test]
    fn merging_adds_and_nothing_is_too_late_to_count() {
        let (mut a, mut b) = (Lateness::default(), Lateness::default());
        assert_eq!(a.quantile(0.5), Duration::ZERO);
        a.record(Duration::ZERO);
        b.record(Duration::from_secs(3600));
        a.merge(&b);
        assert_eq!((a.count(), a.max()), (2, Duration::from_secs(3600)));
        assert_eq!(a.buckets().map(|(_, count)| count).sum::<u64>(), 2);
    }
}
