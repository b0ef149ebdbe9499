//! Adaptation of `leocc2`: the flight is held below the BDP by little more than the target queue, so that the link idles
//! for about that time however long the path is, and what is measured counts only once the queue is gone.

use std::time::{Duration, Instant};

use starhaul_units::Bandwidth;

use super::{LeoCc, Mode, adaptation::MAX_ADAPTATION};
use crate::limits::{real, window_bytes};

/// Time for which RTTs are sampled: two bursts and more of any link on which Δ_outage (45 ms) tells outages from bursts.
const SAMPLED: Duration = Duration::from_millis(50);
/// After so many attempts what is left of the queue is not this flow's, or the path became longer. LeoCC's two rounds,
/// and one for what the outage queued.
const ATTEMPTS: u32 = 3;
/// Adaptation lasts at most this many RTTs, or [`MAX_ADAPTATION`]: two for each attempt.
const MAX_ROUNDS: u32 = 2 * ATTEMPTS;

/// The deficit doubles so often at most: it is then beyond half of any BDP, its bound.
const MAX_DOUBLINGS: u32 = 8;

/// The flight is held below the BDP by at least this share of the time since the last Adaptation: what a round trip of it
/// costs is then an eighth of a percent. Short paths are emptied by half in this way, as in the paper. Flows that share a
/// queue need that: who joined later takes the others' queue for a part of the path, and a target alone would not drain
/// it.
const CHEAP_SHARE: u32 = 800;
/// A rate that fell to this share of what it was while RTTs were beyond the band fell by itself.
const FALLEN: f64 = 0.85;
/// Signals that follow the last one sooner than this many times the RTT and [`SAMPLED`], an Adaptation without a queue,
/// start none before that time is over. All flows over a path hear the same signals and so empty it together.
const SPACING: u32 = 8;

/// What is known while the path is emptied.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Emptying {
    /// The least RTT before.
    floor: Duration,
    /// How long Adaptation may last.
    pub(super) longest: Duration,
    target: Duration,
    /// The time by which the flight is less than the BDP in the first attempt.
    deficit: Duration,
    /// When a signal began the last one that a signal began.
    told: Option<Instant>,
    /// Whether a signal began this one.
    by_signal: bool,
    /// A signal came so soon after that one that it has started none yet.
    is_due: bool,
    /// The target rate before RTTs were beyond the band.
    pub(super) before: Bandwidth,
    attempts: u32,
    /// The bytes delivered when the flight fell below its bound.
    delivered_before: u64,
    /// When the first packet sent since then was acknowledged, and the least RTT.
    sampled: Option<(Instant, Duration)>,
}

impl Emptying {
    /// For how long the flight keeps the path busy.
    fn time(&self) -> Duration {
        let doubled = 1 << self.attempts.min(MAX_DOUBLINGS);
        let deficit = self.deficit.saturating_mul(doubled);
        self.floor.saturating_sub(deficit).max(self.floor / 2)
    }

    /// Whether a signal told of another path.
    pub(super) fn was_told(&self) -> bool {
        self.by_signal
    }

    /// Whether the link did not idle although the flight was below the BDP at the least RTT known: the RTT shrank with the flight, by
    /// more than half as much, since it was a queue that became shorter.
    fn was_busy(&self, rtt: Duration) -> bool {
        rtt < (self.time() + self.floor) / 2
    }
}

impl LeoCc {
    /// Begins to empty a path of this rate and least RTT; returns the bytes that may be in flight. Beside greedy flows the
    /// least RTT of late includes their queue, and half the BDP is given up at once, so that flows that take each other
    /// for greedy find out.
    pub(super) fn begin_emptying(&mut self, now: Instant, rate: Bandwidth, floor: Duration) -> u64 {
        let drained = self.competition.floor();
        let target = match self.competition.is_present() {
            true => floor,
            false => self.target_queue(),
        };
        let since_last = self
            .last_adaptation
            .map_or(Duration::MAX, |last| now.saturating_duration_since(last));
        let floor = drained.map_or(floor, |drained| drained.min(floor));
        let shorter = self.estimate.least_rtt();
        let shorter = shorter.filter(|least| least.saturating_add(target) < floor);
        let floor = shorter.unwrap_or(floor);
        self.emptying = Emptying {
            floor,
            longest: MAX_ADAPTATION.max(floor.saturating_mul(MAX_ROUNDS)),
            target,
            deficit: target.max(since_last / CHEAP_SHARE),
            told: self.emptying.told,
            by_signal: self.emptying.is_due || self.emptying.told == Some(now),
            ..Emptying::default()
        };
        self.emptied_bytes(rate)
    }

    /// Notes a signal. Returns whether the last one that emptied the path is so recent that doing it again now would cost too
    /// much of the time.
    pub(super) fn note_signal(&mut self, now: Instant) -> bool {
        let recent = self.was_told_lately(now);
        if !recent {
            self.emptying.told = Some(now);
        }
        match self.mode {
            // The first of several is what flows hear together, most of which cruise: those that happen to sample keep in step.
            Mode::Adaptation { .. } if recent => self.sample_anew(now),
            Mode::Cruise { .. } => self.emptying.is_due = recent,
            Mode::Adaptation { .. } | Mode::Startup | Mode::Drain { .. } => {}
        }
        recent
    }

    /// Whether a signal that came too soon is to be followed now.
    pub(super) fn is_signal_due(&mut self, now: Instant) -> bool {
        let is_due = self.emptying.is_due && self.options.adaptation && !self.was_told_lately(now);
        if is_due {
            self.emptying.told = Some(now);
        }
        is_due
    }

    fn was_told_lately(&self, now: Instant) -> bool {
        let told = self.emptying.told;
        told.is_some_and(|told| self.is_recent(now, told))
    }

    /// The path became another one while it is emptied: what was sampled so far is of the former one.
    fn sample_anew(&mut self, now: Instant) {
        if let Mode::Adaptation { drained, .. } = &mut self.mode {
            *drained = drained.map(|_| now);
        }
        self.emptying.by_signal = true;
        self.emptying.sampled = None;
        self.emptying.delivered_before = self.sampler.delivered_bytes();
        self.estimate.discard(now);
    }

    pub(super) fn is_recent(&self, now: Instant, at: Instant) -> bool {
        let emptied = self.emptying.floor.saturating_add(SAMPLED);
        now.saturating_duration_since(at) < emptied.saturating_mul(SPACING)
    }

    /// Whether the path became shorter than its band by more than the target: what is in flight then stands in its queue, and the RTT
    /// is as before.
    pub(super) fn seems_shorter(&self, now: Instant, rtt: Duration) -> bool {
        let low = self.estimate.band().map_or(rtt, |(low, _)| low);
        self.options.target_queue
            && rtt.saturating_add(self.target_queue()) < low
            && !self
                .last_adaptation
                .is_some_and(|at| self.is_recent(now, at))
    }

    /// What is in flight at `rate` when the link idles for the target in each round trip, twice as long in each further
    /// attempt; at least half the BDP.
    fn emptied_bytes(&self, rate: Bandwidth) -> u64 {
        let bytes = rate.bytes_in(self.emptying.time());
        window_bytes(real(bytes), self.min_cwnd())
    }

    /// Samples RTTs of packets that were sent since the flight fell below its bound, and ends the attempt when there are
    /// enough.
    pub(super) fn empty(&mut self, now: Instant, bytes_in_flight: u64, rtt: Duration) {
        let Mode::Adaptation {
            since,
            rate,
            cap_bytes,
            drained,
            ..
        } = &mut self.mode
        else {
            return;
        };
        let (since, rate, cap_bytes) = (*since, *rate, *cap_bytes);
        if now.saturating_duration_since(since) > self.emptying.longest {
            return self.leave_adaptation(now, rate);
        }
        let Some(at) = *drained else {
            if bytes_in_flight <= cap_bytes {
                *drained = Some(now);
                self.emptying.delivered_before = self.sampler.delivered_bytes();
            }
            return;
        };
        if now.checked_sub(rtt).is_none_or(|sent| sent < at) {
            return;
        }
        let (first, least) = self.emptying.sampled.unwrap_or((now, rtt));
        self.emptying.sampled = Some((first, least.min(rtt)));
        if now.saturating_duration_since(first) >= SAMPLED {
            let bytes = self.sampler.delivered_bytes() - self.emptying.delivered_before;
            let delivered = Bandwidth::from_bytes_over(bytes, now.saturating_duration_since(at));
            let mean = delivered.time_to_send(cap_bytes);
            let busy = self.emptying.was_busy(mean.max(least.min(rtt)));
            if busy || !self.is_emptied(least.min(rtt)) {
                return self.try_again(now, since, rate, least.min(rtt), delivered);
            }
            // The path became longer, and was no queue: a window that was too short for it made the rate fall further and further. Others,
            // who also keep an RTT above the band, make a rate fall less.
            let is_longer = least.min(rtt) > self.emptying.floor + self.emptying.target;
            let before = self.emptying.before;
            let has_fallen = rate < before.scaled(FALLEN);
            let rate = if is_longer && has_fallen {
                before
            } else {
                rate
            };
            self.leave_adaptation(now, rate);
        }
    }

    /// Whether the queue is gone; or not this flow's, as far as so many attempts tell.
    fn is_emptied(&self, least: Duration) -> bool {
        let Emptying {
            floor,
            target,
            attempts,
            ..
        } = self.emptying;
        least <= floor + target || attempts + 1 >= ATTEMPTS
    }

    /// Bounds the flight by what was delivered, which is the capacity while there is a queue.
    fn try_again(
        &mut self,
        now: Instant,
        since: Instant,
        rate: Bandwidth,
        least: Duration,
        delivered: Bandwidth,
    ) {
        self.emptying.attempts += 1;
        self.emptying.floor = self.emptying.floor.min(least);
        self.emptying.sampled = None;
        self.estimate.discard_rtt(now);
        self.mode = Mode::Adaptation {
            since,
            rate,
            cap_bytes: self.emptied_bytes(delivered),
            drained: None,
            rounds: 0,
        };
    }
}
