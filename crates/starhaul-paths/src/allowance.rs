//! What may leave on a path that must be paid for: a token bucket, seen from the path. Its owner fills it and takes from it.

use std::time::{Duration, Instant};

use starhaul_units::Bandwidth;

/// How much may leave on a path, and when.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Allowance {
    /// Greatest rate in the long run; zero for a path that may carry nothing.
    pub rate: Bandwidth,
    /// What this time brings at `rate` may leave at once when nothing left before.
    pub most: Duration,
    /// When as much as that may leave at once again.
    pub full_at: Instant,
}

impl Allowance {
    /// Time from `now` until the last of so many bytes may leave, if no others do; [`Duration::MAX`] or nearly so if they never may.
    pub fn wait(&self, now: Instant, bytes: u64) -> Duration {
        let missing = self.full_at.saturating_duration_since(now);
        let takes = self.rate.time_to_send(bytes);
        takes.saturating_add(missing).saturating_sub(self.most)
    }

    /// Bytes that may leave within `time` from `now`.
    pub fn bytes_within(&self, now: Instant, time: Duration) -> u64 {
        let missing = self.full_at.saturating_duration_since(now);
        let filled = time.saturating_add(self.most).saturating_sub(missing);
        self.rate.bytes_in(filled)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_left_leaves_at_once_and_the_rest_at_the_rate() {
        let now = Instant::now();
        let second = Duration::from_secs(1);
        let allowance = |missing: Duration| Allowance {
            rate: Bandwidth::from_bytes_per_second(1_000),
            most: second,
            full_at: now + missing,
        };
        assert_eq!(allowance(Duration::ZERO).wait(now, 1_000), Duration::ZERO);
        assert_eq!(allowance(Duration::ZERO).wait(now, 3_000), 2 * second);
        assert_eq!(allowance(second).wait(now, 500), second / 2);
        // A debt is paid first.
        assert_eq!(allowance(2 * second).wait(now, 500), 3 * second / 2);
        assert_eq!(allowance(second / 2).bytes_within(now, second), 1_500);
        assert_eq!(allowance(3 * second).bytes_within(now, second), 0);
        let nothing = Allowance {
            rate: Bandwidth::ZERO,
            ..allowance(Duration::ZERO)
        };
        assert!(nothing.wait(now, 1) > Duration::from_secs(1 << 40));
        assert_eq!(nothing.bytes_within(now, second), 0);
    }
}
