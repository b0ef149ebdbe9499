//! A hop that carries less than before, and a path that is longer by about as much as packets should wait: that delay passes for the queue that
//! is kept, whatever the hop carries from then on. A drain shows which it is, and need not be as rare as those that are made for no reason.

use std::time::{Duration, Instant};

use super::{Adaptive, DRAIN_MARGIN, DRAIN_SHARE, FORGOTTEN_ROUNDS, LONG_QUEUE, Shown};

/// Less than this share of the most since the last drain has a reason that may be gone.
const LESS: f64 = 0.9;
/// What the hop carried before is forgotten where it is at most so many times what it carries now.
const FORGOTTEN: f64 = 1.1;
/// Drains for this reason begin after so many rounds, and times what they last: they cost a hundredth of the rate at most.
const DRAIN_AGAIN: u32 = 25;
/// Each time that it was the reason again they come twice as late, so many times: hops that share a link have each other carry less by their
/// drains.
const MOST_DOUBLED: u32 = 4;

/// What the hop carries per second.
#[derive(Debug, Default)]
pub(super) struct Level {
    /// In the mean of some rounds, without drains.
    carried: f64,
    /// The most of it since the last drain.
    most: f64,
    learned: Option<Instant>,
    /// It carries less than before, and packets wait this long.
    fallen: Option<Duration>,
    /// Drains for this reason since one that came for none.
    repeated: u32,
}

impl Level {
    /// A drain begins: what was carried before is no reason for another one.
    pub(super) fn begin(&mut self) {
        self.most = self.carried;
        self.pause();
    }

    /// A drain comes for this reason, or because it is time for one.
    pub(super) fn note_reason(&mut self, is_fallen: bool) {
        self.repeated = match is_fallen {
            true => self.repeated.saturating_add(1),
            false => 0,
        };
    }

    /// Packets show nothing for now.
    pub(super) fn pause(&mut self) {
        (self.learned, self.fallen) = (None, None);
    }
}

impl Adaptive {
    pub(super) fn note_level(&mut self, now: Instant, round: Duration, shown: &Shown, wait: f64) {
        let is_draining = self.drain_until.is_some() || self.drained.is_some();
        let level = &mut self.level;
        if is_draining || shown.is_limited {
            level.pause();
            return;
        }
        level.fallen = None;
        let since = level.learned.replace(now);
        let since = since.map_or(0.0, |at| now.saturating_duration_since(at).as_secs_f64());
        let share = (since / (FORGOTTEN_ROUNDS * round.as_secs_f64())).min(1.0);
        level.carried = match level.carried > 0.0 {
            true => level.carried + (self.arrival - level.carried) * share,
            false => self.arrival,
        };
        level.most = level.most.max(level.carried);
        let is_less = level.carried < LESS * level.most && self.known < FORGOTTEN * level.carried;
        if is_less && wait <= LONG_QUEUE * shown.target {
            level.fallen = Duration::try_from_secs_f64(wait).ok();
        }
    }

    /// Whether a drain has to show if packets wait in a queue: `since` the last one.
    pub(super) fn is_fallen(&self, now: Instant, since: Instant, round: Duration) -> bool {
        self.level.fallen.is_some_and(|wait| {
            let drain = wait.mul_f64(DRAIN_MARGIN / (1.0 - DRAIN_SHARE));
            let again = DRAIN_AGAIN << self.level.repeated.min(MOST_DOUBLED);
            now.saturating_duration_since(since) > round.max(drain) * again
        })
    }
}
