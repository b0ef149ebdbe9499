//! Our rule: the rate at which data arrived, corrected so that a queue of two packets stays at the hop.
//!
//! The queue follows from one-way delays, whose constant part may be anything. Losses count as carried, but for those that
//! may follow from the rate (`losses.rs`). While there is no queue the correction doubles every round trip, so that the start
//! and new capacity cost few of them. A delay that stays while less is sent than was carried before is no queue but another
//! path: it becomes the new base.

mod fallen;
mod losses;
#[cfg(test)]
mod tests;
mod told;

use std::{
    collections::VecDeque,
    time::{Duration, Instant},
};

use fallen::Level;
use losses::Losses;
use told::Signals;

use super::{Arrived, LEAST_ROUND, least_queue};

/// The queue that is kept at the hop, in packets.
const QUEUE_PACKETS: f64 = 2.0;
/// Where a queue shows many times in a round, a sender with little to send may send so much more than it did.
const TRIED_SHARE: f64 = 0.25;
/// Below this share of that queue there is none: packets of others pass between.
const NO_QUEUE: f64 = 1.0 / 3.0;
/// Packets wait in no queue where less than this share of what arrived before arrives, because less is sent. Batches and short rounds
/// let a measured rate move by less.
const OTHER_PATH_SHARE: f64 = 0.75;
/// Above this multiple of it there is more than the correction leaves.
const LONG_QUEUE: f64 = 4.0 / 3.0;
/// The share of a wrong queue that is corrected in a round-trip time.
const CORRECTED: f64 = 0.5;
/// Least rate while a queue drains, as a share of what the hop carried.
const LEAST_SHARE: f64 = 0.5;
/// Round trips over which a higher rate that the hop carried is forgotten.
const FORGOTTEN_ROUNDS: f64 = 4.0;
/// Rounds between two drains that show the base of the delay.
const DRAIN_ROUNDS: u32 = 100;
const DRAIN_AFTER: Duration = Duration::from_secs(5);
/// Between two drains the rate is measured anew so many times at least: at a low one, whose packets are far apart, it could not grow
/// otherwise.
const DRAIN_WINDOWS: u32 = 3;
const DRAIN_SHARE: f64 = 0.75;
/// A drain lasts as long as the queue needs, with this margin: at least this part of a round trip, and at most so many.
const DRAIN_MARGIN: f64 = 1.5;
const LEAST_DRAIN: u32 = 4;
const MOST_DRAIN: u32 = 8;
/// Where packets wait for too long over so many rounds, a drain shows whether that is a queue: not again within as many.
const DOUBTED_ROUNDS: u32 = 4;
/// Packets that a rate is measured over at least.
const LEAST_PACKETS: usize = 8;
const MOST_PACKETS: usize = 1 << 14;
/// Times between packets at the present rate after which a silence is one.
const MOST_SPACINGS: u32 = 16;
const LONGEST_SPACING: Duration = Duration::from_secs(1);

/// The rule of [`RateRule::Adaptive`](crate::RateRule::Adaptive).
#[derive(Debug, Default)]
pub(crate) struct Adaptive {
    window: VecDeque<Sample>,
    /// How many of the window were sent by a limited sender.
    limited: usize,
    /// Samples of the window that no later one undercuts: when they came, and their delays, which ascend.
    lowest: VecDeque<(Instant, i64)>,
    /// The same, exactly those of the window: their numbers, when they came, and their delays.
    recent: VecDeque<(u64, Instant, i64)>,
    /// The number of the window's first sample.
    first: u64,
    carried: f64,
    received: f64,
    /// The least delay of this period and of the last.
    base: Option<i64>,
    base_before: Option<i64>,
    period_since: Option<Instant>,
    drain_until: Option<Instant>,
    drained: Option<Drained>,
    /// Since when packets of a sender that is not limited have waited for too long.
    doubted: Option<Instant>,
    /// What arrived per second when the sender was not limited.
    arrival: f64,
    /// What the hop carried per second before it was reported to send less.
    known: f64,
    /// What it carried before it had a queue for the first time: less is sent into a hop than it carries where one before it is as slow.
    unqueued: f64,
    learned: Option<Instant>,
    starving: Option<Starving>,
    level: Level,
    signals: Signals,
    losses: Losses,
    rate: f64,
    /// The sender had enough to send, or the hop a queue.
    is_proven: bool,
    /// The factor of the correction while there is no queue.
    boost: f64,
    boosted: Option<Instant>,
}

#[derive(Clone, Copy, Debug)]
struct Sample {
    at: Instant,
    sent: i64,
    delay: i64,
    /// Bytes carried up to it, lost ones included.
    carried: f64,
    /// The same without lost ones.
    received: f64,
    bytes: f64,
    is_limited: bool,
}

/// Less is sent than was carried before, and still packets wait.
#[derive(Clone, Copy, Debug)]
struct Starving {
    since: Instant,
    /// The most that arrived per second meanwhile: a hop with a queue carries that whatever is sent.
    most: f64,
}

/// A drain, when what it left of the queue has arrived.
#[derive(Clone, Copy, Debug)]
struct Drained {
    at: Instant,
    /// How long packets waited before, in microseconds.
    waited: i64,
    /// Bytes per second meanwhile.
    rate: f64,
}

/// What the last packets show.
struct Shown {
    /// Bytes per second, at the sender and here.
    sent: f64,
    arrived: f64,
    /// The same without what is missing.
    received: f64,
    is_limited: bool,
    least_delay: i64,
    /// By how much the delay grew.
    growth: f64,
    /// The queue that is kept, in seconds.
    target: f64,
}

impl Adaptive {
    pub(crate) fn rate(&self) -> Option<f64> {
        (self.rate > 0.0).then_some(self.rate)
    }

    pub(crate) fn is_proven(&self) -> bool {
        self.is_proven
    }

    pub(crate) fn forget_delays(&mut self) {
        self.base = None;
        self.base_before = None;
        self.window.clear();
        self.limited = 0;
        self.lowest.clear();
        self.recent.clear();
        self.starving = None;
        (self.drained, self.doubted) = (None, None);
        self.level.pause();
        self.signals.forget();
    }

    pub(crate) fn on_repair(&mut self, bytes: usize) {
        let bytes = f64::from(u32::try_from(bytes).unwrap_or(u32::MAX));
        self.carried += bytes;
        self.received += bytes;
    }

    pub(crate) fn on_data(&mut self, packet: &Arrived) {
        let (bytes, round) = (f64::from(packet.bytes), packet.rtt.max(LEAST_ROUND));
        self.carried += bytes * f64::from(packet.missing.saturating_add(1).min(64));
        self.received += bytes;
        self.limited += usize::from(packet.is_limited);
        while self
            .lowest
            .pop_back_if(|(_, delay)| *delay >= packet.delay)
            .is_some()
        {}
        self.lowest.push_back((packet.now, packet.delay));
        while self
            .recent
            .pop_back_if(|(.., delay)| *delay >= packet.delay)
            .is_some()
        {}
        let number = self.first + self.window.len() as u64;
        self.recent.push_back((number, packet.now, packet.delay));
        self.window.push_back(Sample {
            at: packet.now,
            sent: packet.sent,
            delay: packet.delay,
            carried: self.carried,
            received: self.received,
            bytes,
            is_limited: packet.is_limited,
        });
        self.shorten(packet, round);
        self.observe_base(packet, round);
        let Some(shown) = self.shown(round) else {
            self.doubted = None;
            self.level.pause();
            return;
        };
        let base = self.base().unwrap_or(packet.delay);
        #[expect(clippy::cast_precision_loss, reason = "microseconds of a delay")]
        let waited = (self.recent_delay(packet, round) - base).max(0) as f64 / 1e6;
        let is_queued = waited > NO_QUEUE * shown.target;
        // What a limited sender sends drains a queue anyway.
        let is_doubtful = waited > LONG_QUEUE * shown.target && !shown.is_limited;
        self.doubted = is_doubtful.then(|| self.doubted.unwrap_or(packet.now));
        self.is_proven |= !shown.is_limited || is_queued;
        // What a limited sender sends says how much the hop carries at least.
        let is_measure = !shown.is_limited || is_queued && shown.growth > 0.0;
        self.arrival = if is_measure {
            shown.arrived
        } else {
            self.arrival.max(shown.arrived)
        };
        if !is_queued && self.known == 0.0 {
            self.unqueued = self.arrival;
        }
        let bound = self.losses.bound(packet, round, &shown);
        let wait = if is_queued { waited } else { f64::INFINITY };
        self.note_level(packet.now, round, &shown, wait);
        if let Some(bound) = bound {
            self.arrival = self.arrival.min(bound);
            self.known = match self.known {
                0.0 => bound,
                known => known.min(bound),
            };
        }
        if self.is_other_path(packet.now, round, &shown, waited) {
            self.base = Some(shown.least_delay);
            self.base_before = None;
            self.rate = self.carried();
            self.starving = None;
            return;
        }
        if self.heed_signal(packet, round, &shown, waited) {
            return;
        }
        self.correct(
            packet.now,
            &shown,
            waited - shown.target,
            is_queued,
            packet.rtt,
        );
        self.rate = bound.map_or(self.rate, |bound| self.rate.min(bound));
    }

    /// Keeps the packets of half a round, a few at least, and the last before them: what comes at once was carried since.
    fn shorten(&mut self, packet: &Arrived, round: Duration) {
        let is_old = |sample: &Sample| packet.now.saturating_duration_since(sample.at) >= round / 2;
        while let (Some(first), Some(second)) = (self.window.front(), self.window.get(1))
            && (first.at == second.at
                || self.window.len() > MOST_PACKETS
                || self.window.len() > 2 * LEAST_PACKETS && is_old(second))
        {
            self.forget_first();
        }
        // After a silence, what was before says nothing of the present. At a low rate, packets are this far apart.
        let spacing = Duration::try_from_secs_f64(f64::from(packet.bytes) / self.rate.max(1.0));
        let spacing = spacing.unwrap_or(LONGEST_SPACING).min(LONGEST_SPACING);
        let horizon = packet.rtt * 4 + Duration::from_millis(100) + spacing * MOST_SPACINGS;
        while self
            .window
            .front()
            .is_some_and(|first| packet.now.saturating_duration_since(first.at) > horizon)
        {
            self.forget_first();
        }
        let first = self.window.front().map(|first| first.at);
        while self
            .lowest
            .pop_front_if(|(at, _)| first.is_none_or(|first| *at < first))
            .is_some()
        {}
        while self
            .recent
            .pop_front_if(|(number, ..)| *number < self.first)
            .is_some()
        {}
    }

    fn forget_first(&mut self) {
        let gone = self.window.pop_front();
        self.first += u64::from(gone.is_some());
        self.limited -= usize::from(gone.is_some_and(|gone| gone.is_limited));
    }

    /// Learns the least delay, and drains the queue when it was not seen empty for long, or should be and is not.
    fn observe_base(&mut self, packet: &Arrived, round: Duration) {
        self.base = Some(
            self.base
                .map_or(packet.delay, |base| base.min(packet.delay)),
        );
        let since = *self.period_since.get_or_insert(packet.now);
        if self.drain_until.is_some_and(|until| packet.now >= until) {
            self.drain_until = None;
        }
        if self.drained.is_some_and(|drained| packet.now >= drained.at) {
            self.judge_drain();
        }
        let lasted = |since: Instant| packet.now.saturating_duration_since(since);
        let is_doubted = self
            .doubted
            .is_some_and(|doubted| lasted(doubted.max(since)) > round * DOUBTED_ROUNDS);
        let least = DRAIN_AFTER.max(round * DRAIN_ROUNDS);
        let is_over = lasted(since) >= least.max(self.span() * DRAIN_WINDOWS);
        let is_fallen = self.is_fallen(packet.now, since, round);
        if is_over || (is_doubted || is_fallen) && self.drained.is_none() {
            if is_over || !is_doubted {
                self.level.note_reason(!is_over);
            }
            self.drain(packet, round);
        }
    }

    /// From the first to the last packet of the window.
    fn span(&self) -> Duration {
        let ends = self.window.front().zip(self.window.back());
        ends.map_or(Duration::ZERO, |(first, last)| {
            last.at.saturating_duration_since(first.at)
        })
    }

    fn drain(&mut self, packet: &Arrived, round: Duration) {
        let base = self.base().unwrap_or(packet.delay);
        let waited = (self.recent_delay(packet, round) - base).max(0);
        let queue = Duration::from_micros(u64::try_from(waited).unwrap_or(0));
        let needed = queue.mul_f64(DRAIN_MARGIN / (1.0 - DRAIN_SHARE));
        let until = packet.now + needed.clamp(round / LEAST_DRAIN, round * MOST_DRAIN);
        self.drain_until = Some(until);
        self.drained = Some(Drained {
            at: until + round,
            waited,
            rate: DRAIN_SHARE * self.arrival,
        });
        self.period_since = Some(packet.now);
        self.base_before = self.base.take();
        self.level.begin();
    }

    /// Where most of the waiting is left when a queue of that length would be gone, it is the path's own delay.
    fn judge_drain(&mut self) {
        let waited = self.drained.take().map_or(0, |drained| drained.waited);
        let left = self
            .base
            .zip(self.base_before)
            .map(|(base, before)| base - before);
        if left.is_some_and(|left| left > 0 && left > waited / 2) {
            self.base_before = None;
        }
    }

    /// What the hop carried per second, as far as it had to show.
    fn carried(&self) -> f64 {
        match self.known > 0.0 {
            true => self.known,
            false => self.unqueued,
        }
    }

    fn base(&self) -> Option<i64> {
        [self.base, self.base_before].into_iter().flatten().min()
    }

    fn shown(&self, round: Duration) -> Option<Shown> {
        let (first, last) = (self.window.front()?, self.window.back()?);
        let elapsed = last.at.saturating_duration_since(first.at).as_secs_f64();
        #[expect(clippy::cast_precision_loss, reason = "microseconds of a short time")]
        let (sending, growth) = (
            (last.sent - first.sent) as f64 / 1e6,
            (last.delay - first.delay) as f64 / 1e6,
        );
        if self.window.len() < LEAST_PACKETS || elapsed <= 0.0 || sending <= 0.0 {
            return None;
        }
        let carried = last.carried - first.carried;
        let arrived = carried / elapsed;
        Some(Shown {
            sent: carried / sending,
            arrived,
            received: (last.received - first.received) / elapsed,
            is_limited: self.limited > 0,
            least_delay: self.lowest.front()?.1,
            growth,
            target: (QUEUE_PACKETS * last.bytes / arrived).max(least_queue(round).as_secs_f64()),
        })
    }

    /// The least delay of the last few packets.
    fn recent_delay(&self, packet: &Arrived, round: Duration) -> i64 {
        // The first of these that is recent is the least of all that are.
        let since = packet.now.checked_sub(round / 8);
        let old = self
            .recent
            .partition_point(|(_, at, _)| since.is_some_and(|since| *at < since));
        let recent = self.recent.get(old).map(|(.., delay)| *delay);
        let last = self.window.iter().rev().take(2).map(|sample| sample.delay);
        last.chain(recent).min().unwrap_or(packet.delay)
    }

    /// Whether the delay is that of another path: less was sent than was carried before, for longer than the news of it
    /// takes, and the delay did not fall. Where a queue is, the hop carries as much as it can: only what becomes less as less is
    /// sent shows that none is.
    fn is_other_path(&mut self, now: Instant, round: Duration, shown: &Shown, waited: f64) -> bool {
        let is_starving = self.rate < 0.9 * self.carried()
            && self.drain_until.is_none()
            && waited > LONG_QUEUE * shown.target;
        if !is_starving {
            self.starving = None;
            return false;
        }
        let starving = self.starving.get_or_insert(Starving {
            since: now,
            most: shown.arrived,
        });
        starving.most = starving.most.max(shown.arrived);
        now.saturating_duration_since(starving.since) > round * 2
            && shown.sent.max(shown.arrived) < OTHER_PATH_SHARE * starving.most
            && shown.growth.abs() < 0.1 * waited
    }

    /// `excess`: by how much packets wait longer than they should, in seconds.
    fn correct(
        &mut self,
        now: Instant,
        shown: &Shown,
        excess: f64,
        is_queued: bool,
        rtt: Duration,
    ) {
        let (is_short, round) = (rtt < LEAST_ROUND, rtt.max(LEAST_ROUND).as_secs_f64());
        let mut change = -excess * self.arrival * CORRECTED / round;
        if is_queued || self.losses.are_many() {
            self.boost = 1.0;
            self.boosted = Some(now);
        } else if self.known == 0.0 {
            // There was no queue yet: twice as much each round trip.
            change = self.arrival;
        } else if !shown.is_limited {
            let boosted = *self.boosted.get_or_insert(now);
            if now.saturating_duration_since(boosted).as_secs_f64() >= round {
                self.boost *= 2.0;
                self.boosted = Some(now);
            }
            change = (change * self.boost.max(1.0)).min(self.arrival / 2.0);
        } else if is_short {
            change = TRIED_SHARE * self.arrival;
        }
        let is_moving = shown.growth.abs() > NO_QUEUE * shown.target;
        // Packets that wait as long as before although less is sent may wait for no queue, and less arrives for that reason alone.
        let is_doubtful = self.doubted.is_some() && !is_moving;
        if is_queued && !shown.is_limited && !is_doubtful {
            let since = self
                .learned
                .replace(now)
                .map_or(0.0, |at| now.saturating_duration_since(at).as_secs_f64());
            let share = (since / (FORGOTTEN_ROUNDS * round)).min(1.0);
            self.known = self
                .arrival
                .max(self.known + (self.arrival - self.known) * share);
        }
        let floor = LEAST_SHARE * self.known.max(self.arrival);
        self.rate = match self.drain_until {
            // Where there is no queue after all, less arrives because less is sent.
            Some(_) => self
                .drained
                .map_or(floor, |drained| drained.rate)
                .max(floor),
            None if is_queued => (self.arrival + change).max(floor),
            // What was carried before may be tried at once.
            None => (self.arrival + change).max(self.known),
        };
    }
}
