//! A pace that follows its rate at once: what was sent is owed from then on, at whatever the rate is later.

use std::time::{Duration, Instant};

/// The least rate in bytes per second, whatever is said, 1 kbit/s: news of a higher one may be lost.
const LEAST_RATE: f64 = 125.0;
/// Where several packets leave in this time, those that had to wait leave together: a program is woken by whatever arrives, and would
/// send them in a system call for each few.
const BATCH: Duration = Duration::from_micros(250);

/// When the last packet was due, and its bytes.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Pace {
    from: Option<Instant>,
    bytes: f64,
    /// As much has left as might, and the next batch is not due yet.
    rests: bool,
}

impl Pace {
    /// Until when nothing may leave at this rate, if that is not over. Packets may leave `slack` sooner, to be sent in batches, and the wait
    /// ends when several may leave at once, at half of it at the latest.
    pub(crate) fn waits_until(
        &mut self,
        now: Instant,
        rate: f64,
        slack: Duration,
    ) -> Option<Instant> {
        let at = self.next(rate)?;
        let batch = match self.rests && self.spacing(rate) < BATCH {
            true => BATCH.min(slack / 2),
            false => Duration::ZERO,
        };
        self.rests = at > now + (slack - batch);
        self.rests.then(|| at - slack / 2)
    }

    /// When a wait for this pace ends; `None`: nothing was sent yet.
    pub(crate) fn wakes_at(&self, rate: f64, slack: Duration) -> Option<Instant> {
        self.next(rate)?.checked_sub(slack / 2)
    }

    /// When the next packet may leave at a rate in bytes per second; `None`: nothing was sent yet.
    pub(crate) fn next(&self, rate: f64) -> Option<Instant> {
        Some(self.from? + self.spacing(rate))
    }

    /// How long the last packet takes.
    fn spacing(&self, rate: f64) -> Duration {
        let spacing = Duration::try_from_secs_f64(self.bytes / rate.max(LEAST_RATE));
        spacing.unwrap_or_default()
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

    /// A relay is woken by each batch that arrives from either side: it sent what had become due since, a system call for a few packets.
    #[test]
    fn packets_of_a_fast_hop_leave_together_whatever_the_program_is_woken_for() {
        let (start, micros) = (Instant::now(), Duration::from_micros);
        let slack = micros(500);
        // Bytes per second, and how many wakes of the ten thousand send something at most.
        for (rate, most) in [(125e6, 850), (12.5e6, 850), (2.5e6, 350)] {
            let mut pace = Pace::default();
            let (mut sent, mut wakes) = (0_u32, 0);
            for number in 0..10_000 {
                let now = start + micros(20) * number;
                assert!(pace.next(rate).is_none_or(|at| at > now), "late at {now:?}");
                let before = sent;
                while pace.waits_until(now, rate, slack).is_none() {
                    pace.sent(now, 1500.0, rate);
                    sent += 1;
                }
                // And a timer that ends at once would wake the program for nothing.
                let waits = pace.waits_until(now, rate, slack);
                assert!(waits.is_some_and(|until| until > now));
                assert_eq!(waits, pace.wakes_at(rate, slack));
                wakes += u32::from(sent > before);
            }
            let paced = 0.2 * rate / 1500.0;
            let ahead = f64::from(sent) - paced;
            let most_ahead = slack.as_secs_f64() * rate / 1500.0 + 1.0;
            assert!((0.0..=most_ahead).contains(&ahead), "{ahead} at {rate}");
            assert!(wakes <= most, "{wakes} wakes for {sent} packets at {rate}");
        }
    }

    /// Where a packet takes longer, to wait for another one would only make it later.
    #[test]
    fn single_packets_of_a_slow_hop_leave_as_soon_as_they_may() {
        let (start, micros) = (Instant::now(), Duration::from_micros);
        let mut pace = Pace::default();
        pace.sent(start, 1500.0, 2.5e6);
        let slack = micros(500);
        assert_eq!(
            pace.waits_until(start, 2.5e6, slack),
            Some(start + micros(350))
        );
        assert_eq!(pace.waits_until(start + micros(100), 2.5e6, slack), None);
        // A higher rate counts at once.
        let mut pace = Pace::default();
        pace.sent(start, 1500.0, 1e3);
        assert!(pace.waits_until(start, 1e3, slack).is_some());
        assert_eq!(pace.waits_until(start, 125e6, slack), None);
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
