//! A pace that follows its rate at once: what was sent is owed from then on, at whatever the rate is later.

use std::time::{Duration, Instant};

/// The least rate in bytes per second, whatever is said, 1 kbit/s: news of a higher one may be lost.
const LEAST_RATE: f64 = 125.0;

/// What was sent last.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Pace {
    from: Option<Instant>,
    bytes: f64,
}

impl Pace {
    /// Until when nothing may leave at this rate, if that is not over. Packets may leave `slack` sooner, to be sent in batches, and the wait
    /// ends when several may leave at once.
    pub(crate) fn waits_until(&self, now: Instant, rate: f64, slack: Duration) -> Option<Instant> {
        let at = self.next(rate).filter(|at| *at > now + slack)?;
        Some(at - slack / 2)
    }

    /// When the next packet may leave at a rate in bytes per second; `None`: nothing was sent yet.
    pub(crate) fn next(&self, rate: f64) -> Option<Instant> {
        let wait = Duration::try_from_secs_f64(self.bytes / rate.max(LEAST_RATE));
        Some(self.from? + wait.unwrap_or_default())
    }

    /// A packet leaves that was there from `since` on; returns when it was due. That it leaves later is made up for, since
    /// programs are woken late and rates must not suffer from it; a pause before it was there is not.
    pub(crate) fn sent(&mut self, since: Instant, bytes: f64, rate: f64) -> Instant {
        let due = self.next(rate).map_or(since, |due| due.max(since));
        self.from = Some(due);
        self.bytes = bytes;
        due
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
        assert_eq!(pace.next(0.0), Some(now + Duration::from_millis(800)));
        pace.sent(now, 100.0, 1000.0);
        assert_eq!(pace.next(1000.0), Some(now + Duration::from_millis(200)));
    }

    #[test]
    fn batches_leave_as_fast_as_single_packets() {
        let (start, ms) = (Instant::now(), Duration::from_millis(1));
        let mut pace = Pace::default();
        let (mut now, mut sent, mut wakes) = (start, 0, 0);
        while now < start + ms * 1000 {
            match pace.waits_until(now, 1e6, ms * 4) {
                Some(until) => {
                    now = until + ms;
                    wakes += 1;
                }
                None => {
                    pace.sent(now, 1000.0, 1e6);
                    sent += 1;
                }
            }
        }
        assert!((1000..1008).contains(&sent), "{sent}");
        assert!(wakes < 400, "{wakes}");
    }

    #[test]
    fn late_departures_do_not_lower_the_rate_and_pauses_do_not_raise_it() {
        let (start, ms) = (Instant::now(), Duration::from_millis(1));
        let mut pace = Pace::default();
        let mut due = pace.sent(start, 10.0, 1000.0);
        // Each is woken half a packet's time late.
        for number in 1..100 {
            let now = pace.next(1000.0).unwrap() + ms * 5;
            due = pace.sent(now - ms * 8, 10.0, 1000.0);
            assert_eq!(due, start + ms * 10 * number);
        }
        let there = due + ms * 500;
        assert_eq!(pace.sent(there, 10.0, 1000.0), there);
        assert_eq!(pace.next(1000.0), Some(there + ms * 10));
    }
}
