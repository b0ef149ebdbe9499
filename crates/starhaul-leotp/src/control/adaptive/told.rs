//! What a signal that the hop was reconfigured changes (LeoCC §3). It is a hint: it changes no estimate by itself, but says which of two
//! explanations of the same delays is believed.
//!
//! To forget the base at the signal would take for the path what waits since an outage: that stays as long as all that is carried is sent. So a
//! longer delay is the path's own when it stayed although less was sent, for as long as it takes that to show; untold, only after two
//! rounds of which a quarter less arrived. A shorter base may hide below such a queue: a short drain looks for it, and again for twice as long
//! while it finds one. It begins once packets wait for at most a third longer than they should: a longer wait is a queue that drains, or a longer
//! path that shows itself without a signal, and another drain would disturb that.

use std::time::{Duration, Instant};

use super::{
    Adaptive, Arrived, DRAIN_MARGIN, DRAIN_SHARE, Drained, LEAST_DRAIN, LONG_QUEUE,
    LONGEST_SPACING, MOST_DRAIN, QUEUE_PACKETS, Shown, least_queue,
};

/// A signal counts for so many rounds in which data come, and this long at least: the path may change after it.
const COUNTS_ROUNDS: u32 = 8;
const COUNTS_FOR: Duration = Duration::from_secs(1);
/// What waits longer than this multiple of the queue that is kept waits for long.
const LONG: u32 = 2;
/// A delay stays as it is while it differs by less than this share of the wait.
const STAYS: f64 = 0.15;
/// After signals soon after one another drains begin no sooner than after so many rounds, and times what they last.
const DRAIN_AGAIN: u32 = 25;

/// What was said of the hop.
#[derive(Debug, Default)]
pub(super) struct Signals {
    told: Option<Told>,
    still: Option<Still>,
    /// When the last drain for this reason began.
    drained: Option<Instant>,
}

/// The hop was said to be another one.
#[derive(Clone, Copy, Debug, Default)]
struct Told {
    /// Until when that counts, once data have come.
    until: Option<Instant>,
    /// A longer base was taken.
    is_longer: bool,
    /// The base before the last drain, in microseconds, and how long that was.
    drain: Option<(i64, Duration)>,
    /// The last drain found no shorter base.
    is_sought: bool,
}

/// Packets wait for long, and as long as before: since when, and the least and greatest of the delays, in microseconds.
#[derive(Clone, Copy, Debug)]
struct Still {
    since: Instant,
    least: i64,
    most: i64,
}

impl Signals {
    /// The delays are other ones.
    pub(super) fn forget(&mut self) {
        (self.told, self.still) = (None, None);
    }
}

impl Adaptive {
    /// The hop was reconfigured, as far as is known.
    pub(crate) fn on_reconfiguration(&mut self) {
        self.signals.told = Some(Told::default());
    }

    /// Whether a signal counts.
    #[cfg(test)]
    pub(crate) fn is_told(&self) -> bool {
        self.signals.told.is_some()
    }

    /// Takes a signal into account. `waited`: how long packets wait if the base is right, in seconds. Returns whether it is not: the hop is
    /// longer, and the rate is what it carried before.
    pub(super) fn heed_signal(
        &mut self,
        packet: &Arrived,
        round: Duration,
        shown: &Shown,
        waited: f64,
    ) -> bool {
        let carried = self.carried();
        // Nothing came yet.
        if carried <= 0.0 {
            return false;
        }
        let now = packet.now;
        let waited = Duration::try_from_secs_f64(waited).unwrap_or_default();
        // By what the hop carried: of what arrives across an outage the queue would be a long one.
        let target = Duration::try_from_secs_f64(QUEUE_PACKETS * f64::from(packet.bytes) / carried);
        let target = target.unwrap_or(LONGEST_SPACING).min(LONGEST_SPACING);
        let target = target.max(least_queue(round));
        let is_draining = self.drain_until.is_some() || self.drained.is_some();
        let is_long = waited > target * LONG;
        let is_short = waited <= target.mul_f64(LONG_QUEUE);
        // What is sent less because packets wait arrives after a round trip, and behind what waits.
        let stayed = match is_long && !is_draining {
            true => {
                let still = self.note_still(now, shown.least_delay, waited);
                let lasted = now.saturating_duration_since(still.since);
                (lasted >= round + waited).then_some(still.least)
            }
            false => {
                self.signals.still = None;
                None
            }
        };
        let Some(told) = &mut self.signals.told else {
            return false;
        };
        let counts = (round * COUNTS_ROUNDS).max(COUNTS_FOR);
        if now > *told.until.get_or_insert(now + counts) {
            self.signals.told = None;
            return false;
        }
        match stayed {
            Some(delay) if !told.is_longer => {
                told.is_longer = true;
                self.take_longer(delay);
                return true;
            }
            // Below a queue that never was, nothing is hidden.
            _ if self.known > 0.0 && is_short && !is_draining && !told.is_sought => {
                self.seek_shorter(now, round, target);
            }
            _ => {}
        }
        false
    }

    fn note_still(&mut self, now: Instant, least_delay: i64, waited: Duration) -> Still {
        let new = Still {
            since: now,
            least: least_delay,
            most: least_delay,
        };
        let known = self.signals.still.unwrap_or(new);
        let (least, most) = (known.least.min(least_delay), known.most.max(least_delay));
        let spread = Duration::from_micros(most.saturating_sub(least).unsigned_abs());
        let still = match spread > waited.mul_f64(STAYS) {
            true => new,
            false => Still {
                since: known.since,
                least,
                most,
            },
        };
        self.signals.still = Some(still);
        still
    }

    fn take_longer(&mut self, base: i64) {
        self.base = Some(base);
        self.base_before = None;
        self.starving = None;
        self.doubted = None;
        self.signals.still = None;
        self.rate = self.carried().max(self.arrival);
    }

    /// Lets the queue drain for a moment, unless the last time showed that nothing is below it. That raises no base: among what came since it
    /// was known there may be packets of the former path.
    fn seek_shorter(&mut self, now: Instant, round: Duration, target: Duration) {
        let (Some(base), Some(told)) = (self.base(), &mut self.signals.told) else {
            return;
        };
        let least = target.mul_f64(DRAIN_MARGIN / (1.0 - DRAIN_SHARE));
        let least = least.clamp(round / LEAST_DRAIN, round * MOST_DRAIN);
        let pause = least.max(round) * DRAIN_AGAIN;
        let is_recent = |at: Instant| now.saturating_duration_since(at) < pause;
        let lasts = match told.drain {
            None if self.signals.drained.is_some_and(is_recent) => None,
            None => Some(least),
            Some((before, lasted)) => {
                let found = u64::try_from(before.saturating_sub(base)).unwrap_or(0);
                let is_shorter = Duration::from_micros(found) > target / 2;
                is_shorter.then(|| (lasted * 2).min(round * MOST_DRAIN))
            }
        };
        let Some(lasts) = lasts else {
            told.is_sought = true;
            return;
        };
        let until = now + lasts;
        told.drain = Some((base, lasts));
        told.until = told.until.max(Some(until + round * 2));
        self.signals.drained = Some(now);
        self.drain_until = Some(until);
        self.drained = Some(Drained {
            at: until + round,
            waited: i64::MAX,
            rate: DRAIN_SHARE * self.known.max(self.arrival),
        });
    }
}
