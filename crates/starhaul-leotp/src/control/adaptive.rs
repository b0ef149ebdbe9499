//! Our rule: the rate at which data arrived, corrected so that a queue of two packets stays at the hop.
//!
//! The queue follows from one-way delays, whose constant part may be anything. Losses count as carried. While there is no
//! queue the correction doubles every round trip, so that the start and new capacity cost few of them. A delay that stays
//! while less is sent than was carried before is no queue but another path: it becomes the new base.

use std::{
    collections::VecDeque,
    time::{Duration, Instant},
};

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

/// Our rule.
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
    learned: Option<Instant>,
    starving: Option<Starving>,
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
    }

    pub(crate) fn on_repair(&mut self, bytes: usize) {
        self.carried += f64::from(u32::try_from(bytes).unwrap_or(u32::MAX));
    }

    pub(crate) fn on_data(&mut self, packet: &Arrived) {
        let (bytes, round) = (f64::from(packet.bytes), packet.rtt.max(LEAST_ROUND));
        self.carried += bytes * f64::from(packet.missing.saturating_add(1).min(64));
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
            bytes,
            is_limited: packet.is_limited,
        });
        self.shorten(packet, round);
        self.observe_base(packet, round);
        let Some(shown) = self.shown(round) else {
            self.doubted = None;
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
        if self.is_other_path(packet.now, round, &shown, waited) {
            self.base = Some(shown.least_delay);
            self.base_before = None;
            self.rate = self.known;
            self.starving = None;
            return;
        }
        self.correct(
            packet.now,
            &shown,
            waited - shown.target,
            is_queued,
            packet.rtt,
        );
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
        let is_over = lasted(since) >= DRAIN_AFTER.max(round * DRAIN_ROUNDS);
        if is_over || is_doubted && self.drained.is_none() {
            self.drain(packet, round);
        }
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
        let is_starving = self.rate < 0.9 * self.known
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
        if is_queued {
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

#[cfg(test)]
mod tests {
    use super::*;

    /// A hop of constant round-trip time in virtual time: what the control finds of it.
    struct Hop {
        start: Instant,
        control: Adaptive,
        /// Seconds.
        now: f64,
        busy_until: f64,
        last: f64,
        rates: VecDeque<(f64, f64)>,
        rtt: f64,
        /// The receiver sleeps so long at the end of each period.
        sleeps: (f64, f64),
        /// Packets that wait at most; others are lost.
        buffer: f64,
        lost: u32,
    }

    const RTT: f64 = 0.02;
    const BYTES: u32 = 1500;

    impl Hop {
        fn new() -> Self {
            Self {
                start: Instant::now(),
                control: Adaptive::default(),
                now: 0.0,
                busy_until: 0.0,
                last: 0.0,
                rates: [(0.0, 1e6)].into(),
                rtt: RTT,
                sleeps: (1.0, 0.0),
                buffer: f64::INFINITY,
                lost: 0,
            }
        }

        /// When the receiver sees what arrives then.
        fn awake_at(&self, at: f64) -> f64 {
            let (period, asleep) = self.sleeps;
            let wakes = (at / period).ceil() * period;
            if at > wakes - asleep { wakes } else { at }
        }

        /// Sends for a time over a hop of this capacity and one-way delay; returns bytes per second and the mean queue
        /// in seconds.
        fn run(&mut self, seconds: f64, capacity: f64, delay: f64) -> (f64, f64) {
            let (end, mut sent, mut waited) = (self.now + seconds, 0.0, 0.0);
            let bytes = f64::from(BYTES);
            while self.now < end {
                while self.rates.get(1).is_some_and(|(at, _)| *at <= self.now) {
                    self.rates.pop_front();
                }
                if self.busy_until - self.now > self.buffer * bytes / capacity {
                    self.lost += 1;
                    self.now += bytes / self.rates[0].1;
                    continue;
                }
                let leaves = self.busy_until.max(self.now) + bytes / capacity;
                self.busy_until = leaves;
                let micros = |seconds: f64| {
                    i64::try_from(Duration::from_secs_f64(seconds).as_micros()).unwrap()
                };
                let arrives = self.awake_at(leaves + delay);
                // What is overtaken tells nothing.
                let is_late = arrives < self.last;
                self.last = self.last.max(arrives);
                let taken = Arrived {
                    now: self.start + Duration::from_secs_f64(arrives),
                    sent: micros(self.now),
                    delay: micros(arrives) - micros(self.now) - 77_000,
                    bytes: BYTES,
                    missing: self.lost,
                    is_limited: false,
                    rtt: Duration::from_secs_f64(self.rtt),
                };
                if !is_late {
                    self.lost = 0;
                    self.control.on_data(&taken);
                }
                if let Some(rate) = self.control.rate() {
                    self.rates.push_back((arrives - delay + self.rtt, rate));
                }
                sent += bytes;
                waited += leaves - self.now - bytes / capacity;
                self.now += bytes / self.rates[0].1;
            }
            (sent / seconds, waited / (sent / bytes))
        }
    }

    /// What a look at each packet of the window finds.
    fn least_of_recent(control: &Adaptive, packet: &Arrived, round: Duration) -> i64 {
        let samples = control.window.iter().rev();
        let is_recent = |at: Instant| packet.now.saturating_duration_since(at) <= round / 8;
        let recent = samples.clone().take_while(|sample| is_recent(sample.at));
        let least = recent.chain(samples.take(2)).map(|sample| sample.delay);
        least.min().unwrap()
    }

    #[test]
    fn the_least_delay_of_the_last_packets_is_that_of_a_look_at_each() {
        let mut control = Adaptive::default();
        let (start, mut random) = (Instant::now(), 1_u64);
        let mut micros = 0;
        for number in 0..50_000_u32 {
            random = random
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1_442_695_040_888_963_407);
            let [a, b, c] = [40, 48, 56].map(|bits| i64::from((random >> bits).to_le_bytes()[0]));
            // Some come at once, some after a pause.
            micros += match a {
                0..100 => 0,
                255 => 200_000,
                more => more * 4,
            };
            let packet = Arrived {
                now: start + Duration::from_micros(micros.unsigned_abs()),
                sent: i64::from(number) * 300,
                delay: 1000 + b * b / 8,
                bytes: BYTES,
                missing: 0,
                is_limited: false,
                rtt: Duration::from_millis(5 + c.unsigned_abs()),
            };
            control.on_data(&packet);
            for millis in [8, 20, 300, 5000] {
                let round = Duration::from_millis(millis);
                let expected = least_of_recent(&control, &packet, round);
                assert_eq!(control.recent_delay(&packet, round), expected, "{number}");
            }
            if number % 10_000 == 9_999 {
                control.forget_delays();
            }
        }
    }

    #[test]
    fn the_capacity_is_found_soon_and_kept_with_a_short_queue() {
        let mut hop = Hop::new();
        let (_, worst) = hop.run(0.3, 2.5e6, 0.01);
        assert!(worst < 0.02, "{worst}");
        let (rate, queue) = hop.run(20.0, 2.5e6, 0.01);
        assert!(rate > 0.99 * 2.5e6, "{rate}");
        assert!(queue < 0.002, "{queue}");
    }

    #[test]
    fn a_base_that_is_known_costs_short_drains() {
        let mut hop = Hop::new();
        // What the start made of the base is corrected by the first drain, and found again by the second.
        hop.run(12.0, 2.5e6, 0.01);
        let (steady, _) = hop.run(0.25, 2.5e6, 0.01);
        // Three of a quarter of a round trip at most: 0.4 ms are not sent in each 5 s, where whole ones take 4.
        let quarters: Vec<_> = (0..60).map(|_| hop.run(0.25, 2.5e6, 0.01)).collect();
        let mean = quarters.iter().map(|(rate, _)| rate).sum::<f64>() / 60.0;
        assert!(mean > 0.9995 * steady, "{mean} of {steady}");
        assert!(
            quarters.iter().all(|(_, queue)| *queue < 0.00134),
            "{quarters:?}"
        );
    }

    #[test]
    fn steps_of_the_capacity_are_followed() {
        let mut hop = Hop::new();
        hop.run(2.0, 1.25e6, 0.01);
        let (mut rates, mut queues) = (0.0, 0.0);
        for _ in 0..5 {
            for capacity in [1.375e6, 1.125e6] {
                let (rate, queue) = hop.run(2.0, capacity, 0.01);
                rates += rate / 10.0;
                queues += queue / 10.0;
            }
        }
        assert!(rates > 0.985 * 1.25e6, "{rates}");
        assert!(queues < 0.004, "{queues}");
    }

    /// What arrives while a host sleeps is seen at once: neither a queue nor a faster hop.
    #[test]
    fn a_host_that_sleeps_changes_no_rate() {
        let hops = [
            (0.0002, 12.5e6),
            (0.0002, 125e6),
            (0.002, 125e6),
            (0.02, 12.5e6),
        ];
        for (rtt, capacity) in hops {
            for sleeps in [(1.0, 0.0), (0.1, 0.001), (0.05, 0.004), (0.01, 0.001)] {
                let mut hop = Hop::new();
                (hop.rtt, hop.sleeps) = (rtt, sleeps);
                hop.run(1.0, capacity, rtt / 2.0);
                let (rate, queue) = hop.run(4.0, capacity, rtt / 2.0);
                let what =
                    format!("{rtt} s, {capacity} B/s, asleep {sleeps:?}: {rate} B/s, {queue} s");
                assert!((0.96..1.01).contains(&(rate / capacity)), "{what}");
                assert!(queue < 0.0003_f64.max(1.1 * rtt / 32.0), "{what}");
            }
        }
    }

    #[test]
    fn a_buffer_of_some_packets_bounds_the_rate() {
        for (rtt, capacity, buffer) in [
            (0.1, 125e6, 200.0),
            (0.6, 12.5e6, 64.0),
            (0.02, 12.5e6, 32.0),
        ] {
            let mut hop = Hop::new();
            (hop.rtt, hop.buffer) = (rtt, buffer);
            hop.run(4.0, capacity, rtt / 2.0);
            let (rate, _) = hop.run(6.0, capacity, rtt / 2.0);
            let what = format!("{rtt} s, {capacity} B/s, {buffer} packets: {rate} B/s");
            assert!((0.95..1.03).contains(&(rate / capacity)), "{what}");
        }
    }

    #[test]
    fn a_longer_path_is_no_queue() {
        let mut hop = Hop::new();
        hop.run(2.0, 2.5e6, 0.01);
        let (rate, _) = hop.run(2.0, 2.5e6, 0.03);
        assert!(rate > 0.95 * 2.5e6, "{rate}");
        let (rate, queue) = hop.run(5.0, 2.5e6, 0.01);
        assert!(rate > 0.98 * 2.5e6, "{rate}");
        assert!(queue < 0.002, "{queue}");
    }

    /// The rate falls too slowly for it to be noticed within a few round trips.
    #[test]
    fn a_path_that_is_a_little_longer_is_no_queue() {
        for (rtt, longer) in [(0.08, 0.002), (0.08, 0.003), (0.08, 0.006), (0.3, 0.005)] {
            let mut hop = Hop::new();
            hop.rtt = rtt;
            hop.run(4.0, 2.5e6, rtt / 2.0);
            let rates: Vec<f64> = (0..12)
                .map(|_| hop.run(1.0, 2.5e6, rtt / 2.0 + longer).0 / 2.5e6)
                .collect();
            let mean = rates.iter().sum::<f64>() / 12.0;
            assert!(mean > 0.93, "{rtt} s, {longer} s longer: {rates:?}");
        }
    }

    /// As a satellite's link to the ground while it sets.
    #[test]
    fn a_capacity_that_falls_is_no_longer_path() {
        for (rtt, step) in [(0.008, 0.05), (0.008, 0.12), (0.02, 0.05), (0.02, 0.12)] {
            let mut hop = Hop::new();
            hop.rtt = rtt;
            let mut capacity = 1.25e6;
            hop.run(3.0, capacity, rtt / 2.0);
            while capacity > 0.5e6 {
                capacity *= 1.0 - step;
                let (_, queue) = hop.run(1.0, capacity, rtt / 2.0);
                let least = 4.0 * f64::from(BYTES) / capacity;
                let what = format!("{rtt} s, {step}, {capacity} B/s: {queue} s");
                assert!(queue < least.max(rtt / 4.0), "{what}");
            }
        }
    }

    #[test]
    fn what_a_busy_host_reads_at_once_is_no_rate() {
        let mut hop = Hop::new();
        hop.run(2.0, 2.5e6, 0.01);
        // What was sent in 24 ms is read within a tenth of one, when the last of it has arrived.
        let (read, spacing) = (hop.now + 0.036, f64::from(BYTES) / 2.5e6);
        for number in 0..40_u32 {
            let (sent, now) = (
                hop.now + spacing * f64::from(number),
                read + 2e-6 * f64::from(number),
            );
            let micros =
                |seconds: f64| i64::try_from(Duration::from_secs_f64(seconds).as_micros()).unwrap();
            hop.control.on_data(&Arrived {
                now: hop.start + Duration::from_secs_f64(now),
                sent: micros(sent),
                delay: micros(now) - micros(sent) - 77_000,
                bytes: BYTES,
                missing: 0,
                is_limited: false,
                rtt: Duration::from_secs_f64(RTT),
            });
            let rate = hop.control.rate().unwrap();
            assert!(rate < 2.0 * 2.5e6, "{rate} after {number}");
        }
    }
}
