//! A pace that follows its rate at once: what was sent is owed from then on, at whatever the rate is later.

use std::time::{Duration, Instant};

/// The longest wait for one packet: news of a rate may be lost.
const LONGEST: Duration = Duration::from_secs(1);

/// What was sent last.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Pace {
    from: Option<Instant>,
    bytes: f64,
}

impl Pace {
    /// When the next packet may leave at a rate in bytes per second; `None`: nothing was sent yet.
    pub(crate) fn next(&self, rate: f64) -> Option<Instant> {
        let wait = Duration::try_from_secs_f64(self.bytes / rate.max(1.0));
        Some(self.from? + wait.unwrap_or(LONGEST).min(LONGEST))
    }

    /// A packet leaves. A pause before it is not made up for.
    pub(crate) fn sent(&mut self, now: Instant, bytes: f64, rate: f64) {
        let due = self.next(rate);
        self.from = Some(due.map_or(now, |due| due.max(now)));
        self.bytes = bytes;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_new_rate_counts_for_what_was_sent_before() {
        let now = Instant::now();
        let mut pace = Pace::default();
        assert_eq!(pace.next(1000.0), None);
        pace.sent(now, 100.0, 1000.0);
        assert_eq!(pace.next(1000.0), Some(now + Duration::from_millis(100)));
        assert_eq!(pace.next(10_000.0), Some(now + Duration::from_millis(10)));
        assert_eq!(pace.next(0.0), Some(now + LONGEST));
        pace.sent(now, 100.0, 1000.0);
        assert_eq!(pace.next(1000.0), Some(now + Duration::from_millis(200)));
    }
}
