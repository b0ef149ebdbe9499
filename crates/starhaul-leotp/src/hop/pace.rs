//! A pace that follows its rate at once: what was sent is owed from then on, at whatever the rate is later.

use std::time::{Duration, Instant};

/// The longest wait for one packet: news of a rate may be lost.
const LONGEST: Duration = Duration::from_secs(1);

/// What was sent last.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Pace {
    from: Option<Instant>,
    bytes: f64,
    /// So much sooner may packets leave, and so long a pause is made up for.
    slack: Duration,
}

impl Pace {
    /// A pace that hosts can keep whose timers are late by less than `slack`.
    pub(crate) fn with_slack(slack: Duration) -> Self {
        Self {
            slack,
            ..Self::default()
        }
    }

    /// Until when nothing may leave at this rate, if that is not over. It ends when several packets may leave at once.
    pub(crate) fn waits_until(&self, now: Instant, rate: f64) -> Option<Instant> {
        let at = self.next(rate).filter(|at| *at > now + self.slack)?;
        Some(at - self.slack / 2)
    }

    /// When the next packet may leave at a rate in bytes per second; `None`: nothing was sent yet.
    fn next(&self, rate: f64) -> Option<Instant> {
        let wait = Duration::try_from_secs_f64(self.bytes / rate.max(1.0));
        Some(self.from? + wait.unwrap_or(LONGEST).min(LONGEST))
    }

    /// A packet leaves. A long pause before it is not made up for.
    pub(crate) fn sent(&mut self, now: Instant, bytes: f64, rate: f64) {
        let due = self.next(rate);
        self.from = Some(due.map_or(now, |due| {
            due.max(now.checked_sub(self.slack).unwrap_or(now))
        }));
        self.bytes = bytes;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_left_late_is_made_up_for() {
        let start = Instant::now();
        let millis = |count| start + Duration::from_millis(count);
        let mut pace = Pace::with_slack(Duration::from_millis(4));
        let (mut now, mut sent) = (start, 0);
        while now < millis(1000) {
            match pace.waits_until(now, 1e6) {
                Some(until) => now = until + Duration::from_millis(3),
                None => {
                    pace.sent(now, 1000.0, 1e6);
                    sent += 1;
                }
            }
        }
        assert!((995..1010).contains(&sent), "{sent}");
        pace.sent(millis(5000), 1000.0, 1e6);
        assert_eq!(pace.waits_until(millis(5000), 1e6), None);
        for _ in 0..8 {
            pace.sent(millis(5000), 1000.0, 1e6);
        }
        assert_eq!(pace.waits_until(millis(5000), 1e6), Some(millis(5003)));
    }

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
