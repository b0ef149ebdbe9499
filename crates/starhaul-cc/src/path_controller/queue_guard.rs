//! Bounds the queue that a flow's own packets make before the bottleneck while deadlines are to be kept. A controller in
//! startup may fill a deep queue for seconds before it reacts, and everything sent then arrives late.

mod recent;
mod unanswered;

#[cfg(test)]
mod tests;

use std::{
    collections::VecDeque,
    time::{Duration, Instant},
};

use starhaul_units::Bandwidth;

use recent::Recent;
use unanswered::Unanswered;

/// A queue is recognized by the least of this many RTTs: one late acknowledgement is no queue.
const SAMPLES: usize = 8;
/// Shortest time over which deliveries are counted as a rate.
const LEAST_INTERVAL: Duration = Duration::from_millis(50);
/// If holding back for this time, and this many RTTs, does not shorten the queue, the path itself may have become longer: it is emptied,
/// for holding back alone may keep the queue as long as it is.
const PATIENCE: Duration = Duration::from_secs(1);
const PATIENCE_ROUNDS: u32 = 4;
/// A path is empty after so many RTTs.
const DRAIN_ROUNDS: u32 = 2;

/// Intervals over which round trips are compared with what was delivered in them, and how many of them may be outliers at each end.
const COMPARED: usize = 5;
const OUTLIERS: usize = 1;
/// Where deliveries differ by this factor while the excess of the round trips differs by less than this share of it, no queue of this
/// flow makes them long: a queue is as long as what is in it takes.
const DELIVERY_RATIO: f64 = 2.0;
const EXCESS_SHARE: u32 = 4;

/// On a path whose round trip is longer than the bound, what leaves in it until a queue is seen is more than may wait: startup ends with a queue
/// of this part of the bound. Shorter ones change their length by as much.
const STARTUP_SHARE: u32 = 8;
/// The first flights are answered one by one, up to 25 ms late each (`max_ack_delay`, RFC 9000 §18.2) and 10 for the timers.
const LEAST_SWELLING: Duration = Duration::from_millis(35);
/// So are those that leave one by one: where [`SAMPLES`] round trips end within this time, two packets of them came within that delay.
const SELDOM: Duration = Duration::from_millis(7 * 25);

/// Each interval without a queue may carry so much more than was shown, and after a return of which nothing is known, as in slow start.
const GROWTH: f64 = 1.25;
const RETURNED_GROWTH: f64 = 2.0;
/// What a queue showed counts for so long after it, as the least RTT does: a sender that has less to send than that never shows more, and
/// the path is seldom the same for longer.
const SHOWN_FOR: Duration = Duration::from_secs(20);
/// So many packets in a row without an acknowledgement, the first of which is late, show that the path was away.
const LOST_IN_A_ROW: usize = 8;
/// Full packets in the first round trip of a path that has returned, and in an interval that shows what it carries.
const FIRST_PACKETS: u64 = 4;
/// From so many times the least RTT on, a window of two bandwidth-delay products no longer fills a path that has become longer.
const LONGER: u32 = 2;
/// The patience with a path that seems longer, but is not, grows to so many times its first.
const MOST_PATIENCE: u32 = 32;

/// From so many acknowledgements of one instant and round trip on, the next one changes counts alone: two, of which the first may end an
/// interval or a pause, where no deadline is to be kept …
const SETTLED: usize = 2;
/// … and else, after these, those that fill the recent round trips, with which a queue may be found, one that begins to be emptied or was
/// no queue at all, and what follows from that.
const SETTLED_WITHIN_BOUND: usize = SETTLED + SAMPLES + 2;

/// What acknowledgements say of the path.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Verdict {
    /// Packets wait in a queue that startup should not make any longer.
    pub(super) queues: bool,
    /// The path's RTT without a queue, when it was found to be longer than before.
    pub(super) path_rtt: Option<Duration>,
    /// All round trips of late took so long that the path itself seems longer, which only an empty path can tell.
    pub(super) seems_longer: bool,
}

/// See the [module](self).
#[derive(Debug, Default)]
pub(super) struct QueueGuard {
    /// The longest that packets may wait in the queue; `None` while nothing sent has a deadline.
    pub(super) bound: Option<Duration>,
    /// The last round trips.
    recent: Recent,
    /// The path's RTT without a queue, once it has become longer than the least RTT.
    floor: Option<Duration>,
    /// It was long whatever was in flight.
    is_floor_sure: bool,
    interval: Option<Interval>,
    /// When the last acknowledgement came, and its round trip.
    last_ack: Option<(Instant, Duration)>,
    /// The end of the path's last pause, and whether nothing is known of what it carries since.
    resumed_at: Option<Instant>,
    is_resuming: bool,
    rate: Option<Bandwidth>,
    unanswered: Unanswered,
    /// The greatest packet.
    packet_bytes: u64,
    holding_since: Option<Instant>,
    /// What intervals delivered while holding back, and their least round trips.
    compared: VecDeque<(Bandwidth, Duration)>,
    /// What the path carried while packets queued, and what deliveries have shown since. A controller's estimate, the most of many
    /// round trips, outlives the rate by seconds, and would fill the queue again as soon as it is empty.
    shown: Option<Bandwidth>,
    /// When packets last waited in a queue, or through a pause, and showed it.
    shown_at: Option<Instant>,
    /// What is shown is a beginning.
    has_returned: bool,
    /// Since when the sender has had less to send than it might: what it delivers says nothing of what the path carries.
    limited_since: Option<Instant>,
    /// While the path is emptied to see whether holding back keeps a queue.
    draining: Option<Measuring>,
    longer_since: Option<Instant>,
    measuring: Option<Measuring>,
    /// Times the first patience; 0 is 1.
    patience: u32,
    /// The last acknowledgements, unless something else came after them.
    run: Option<Run>,
}

/// Acknowledgements that came together, of packets that left together.
#[derive(Clone, Copy, Debug)]
struct Run {
    now: Instant,
    rtt: Duration,
    least_rtt: Duration,
    bound: Option<Duration>,
    packets: usize,
    /// What the last one said of the queue.
    queues: bool,
}

/// In which deliveries are counted.
#[derive(Clone, Copy, Debug)]
struct Interval {
    since: Instant,
    bytes: u64,
    least_rtt: Duration,
}

impl Interval {
    const fn starting(since: Instant) -> Self {
        Self {
            since,
            bytes: 0,
            least_rtt: Duration::MAX,
        }
    }
}

/// The path is being emptied.
#[derive(Clone, Copy, Debug)]
struct Measuring {
    until: Instant,
    /// The least round trip before it, and since.
    before: Duration,
    least: Duration,
}

impl Measuring {
    const fn starting(before: Duration, until: Instant) -> Self {
        Self {
            until,
            before,
            least: before,
        }
    }

    /// Whether the round trips became shorter by less than half of what they exceeded `floor` by.
    fn is_longer(&self, floor: Duration) -> bool {
        self.least > floor + self.before.saturating_sub(floor) / 2
    }
}

impl QueueGuard {
    /// A packet leaves of a sender that has less to send than it might, if it `is_limited`.
    pub(super) fn on_sent(&mut self, now: Instant, is_limited: bool) {
        self.limited_since = match is_limited {
            true => self.limited_since.or(Some(now)),
            false => None,
        };
        self.unanswered.push(now);
        self.end_run();
    }

    /// What comes next is to be shown to [`QueueGuard::on_ack`], whatever was acknowledged before it.
    pub(super) fn end_run(&mut self) {
        self.run = None;
    }

    /// The path became another one, as a signal told: what earlier packets showed says nothing of it.
    pub(super) fn on_other_path(&mut self) {
        self.recent.clear();
        self.compared.clear();
        (self.floor, self.is_floor_sure) = (None, false);
        (self.interval, self.rate, self.shown) = (None, None, None);
        (self.holding_since, self.longer_since) = (None, None);
        self.draining = None;
        self.patience = 1;
        self.end_run();
    }

    /// A packet was acknowledged; `least_rtt` is the least RTT of the recent past, `estimate` the controller's.
    pub(super) fn on_ack(
        &mut self,
        now: Instant,
        rtt: Duration,
        bytes: u64,
        least_rtt: Duration,
        estimate: Option<Bandwidth>,
    ) -> Verdict {
        self.packet_bytes = self.packet_bytes.max(bytes);
        self.watch_return(now, rtt, least_rtt);
        self.watch_pause(now, rtt, least_rtt);
        self.add_recent(now, rtt);
        self.lower_floor(rtt, least_rtt);
        let path_rtt = self.count(now, rtt, bytes, least_rtt);
        self.watch(now, rtt, least_rtt);
        self.judge_shown(now, estimate);
        // A round trip that a pause made long tells nothing of what startup has reached.
        let queues = self.swells(least_rtt) && !self.is_of_pause(now, rtt);
        let seems_longer = self.seems_longer(now, rtt, least_rtt);
        self.continue_run(now, rtt, least_rtt, queues);
        Verdict {
            queues,
            path_rtt,
            seems_longer,
        }
    }

    /// A packet was acknowledged as those before it: at the same time, after the same round trip, and with the same least RTT. Does exactly
    /// what [`QueueGuard::on_ack`] would; `None`, and nothing, where it may do more than count. A batch that leaves as one is acknowledged
    /// as one, so that most packets of a fast path are such.
    pub(super) fn on_repeated(
        &mut self,
        now: Instant,
        rtt: Duration,
        bytes: u64,
        estimate: impl FnOnce() -> Option<Bandwidth>,
    ) -> Option<Verdict> {
        let run = self.run.as_mut()?;
        if run.rtt != rtt || run.now != now || run.bound != self.bound {
            return None;
        }
        let is_settled = run.packets >= SETTLED_WITHIN_BOUND;
        if !is_settled {
            if run.bound.is_some() || run.packets < SETTLED {
                return None;
            }
            run.packets += 1;
        }
        let queues = run.queues;
        self.packet_bytes = self.packet_bytes.max(bytes);
        if let Some(sent) = now.checked_sub(rtt) {
            self.unanswered.answer(sent);
        }
        if !is_settled {
            self.add_recent(now, rtt);
        }
        if let Some(interval) = &mut self.interval {
            interval.bytes = interval.bytes.saturating_add(bytes);
        }
        // The controller has learnt from the packet before.
        if self.shown.is_some() {
            self.judge_shown(now, estimate());
        }
        Some(Verdict {
            queues,
            ..Verdict::default()
        })
    }

    /// One more acknowledgement was judged.
    fn continue_run(&mut self, now: Instant, rtt: Duration, least_rtt: Duration, queues: bool) {
        let bound = self.bound;
        let is_same = |run: &Run| {
            (run.now, run.rtt) == (now, rtt) && (run.least_rtt, run.bound) == (least_rtt, bound)
        };
        let before = self.run.filter(is_same).map_or(0, |run| run.packets);
        self.run = Some(Run {
            now,
            rtt,
            least_rtt,
            bound,
            packets: before.saturating_add(1),
            queues,
        });
    }

    fn add_recent(&mut self, now: Instant, rtt: Duration) {
        if !self.is_resuming {
            self.recent.push(now, rtt, SAMPLES);
        }
    }

    /// What is shown counts while a deadline is to be kept, the controller thinks more of the path, and it is not too old.
    fn judge_shown(&mut self, now: Instant, estimate: Option<Bandwidth>) {
        let is_news = |shown: &Bandwidth| estimate.is_none_or(|estimate| *shown < estimate);
        let counts = self.bound.is_some() && !self.is_outdated(now);
        self.shown = self.shown.filter(is_news).filter(|_| counts);
        self.has_returned &= self.shown.is_some() && !self.is_holding();
    }

    /// The window that keeps the queue within its bound; `window` if that does. None of it while nothing is known of the path.
    pub(super) fn window(&self, window: u64, least_rtt: Duration, estimate: Bandwidth) -> u64 {
        let Some(bound) = self.bound else {
            return window;
        };
        if self.is_resuming {
            return 0;
        }
        let held = self.rate.filter(|_| self.is_holding());
        let Some(rate) = held.or_else(|| self.may_carry()) else {
            return window;
        };
        let floor = self.floor.unwrap_or(least_rtt);
        let waiting = if self.draining.is_some() {
            Duration::ZERO
        } else {
            bound
        };
        window.min(rate.min(estimate).bytes_in(floor.saturating_add(waiting)))
    }

    /// What the path is known to carry, where that is less than its controller thinks.
    pub(super) const fn shown(&self) -> Option<Bandwidth> {
        self.shown
    }

    /// Whether the queue that showed what the path carries is long gone. What is a beginning grows as fast as slow start, and needs no end.
    fn is_outdated(&self, now: Instant) -> bool {
        let since = |at| now.saturating_duration_since(at);
        !self.is_holding()
            && !self.has_returned
            && self.shown_at.is_some_and(|at| since(at) > SHOWN_FOR)
    }

    /// What may be tried: more than is shown.
    pub(super) fn may_carry(&self) -> Option<Bandwidth> {
        let growth = match self.has_returned {
            true => RETURNED_GROWTH,
            false => GROWTH,
        };
        self.shown.map(|shown| shown.scaled(growth))
    }

    /// What a path is taken to carry of which nothing is known, so that [`FIRST_PACKETS`] may be tried.
    fn first_rate(&self, least_rtt: Duration) -> Bandwidth {
        let bytes = FIRST_PACKETS * self.packet_bytes;
        Bandwidth::from_bytes_over(bytes, least_rtt).scaled(1.0 / RETURNED_GROWTH)
    }

    /// All that was under way is lost, and a later packet is acknowledged: the path was away, and may come back as another one. What its
    /// controller knows is as old as the outage.
    fn watch_return(&mut self, now: Instant, rtt: Duration, least_rtt: Duration) {
        let Some(sent) = now.checked_sub(rtt) else {
            return;
        };
        let first = self.unanswered.first().unwrap_or(now);
        let overtaken = self.unanswered.overtake(sent);
        self.unanswered.answer(sent);
        let usual = self.last_ack.map_or(least_rtt, |(_, rtt)| rtt);
        let waited = now.saturating_duration_since(first);
        if overtaken >= LOST_IN_A_ROW
            && waited > usual.saturating_add(least_rtt.max(LEAST_INTERVAL))
            && self.bound.is_some()
        {
            self.recent.clear();
            self.compared.clear();
            (self.holding_since, self.draining, self.rate) = (None, None, None);
            self.interval = Some(Interval::starting(now));
            (self.shown, self.shown_at) = (Some(self.first_rate(least_rtt)), Some(now));
            self.has_returned = true;
        }
    }

    fn swells(&self, least_rtt: Duration) -> bool {
        let floor = self.floor.unwrap_or(least_rtt);
        self.bound.is_some_and(|bound| {
            let most = match floor > bound {
                true => (bound / STARTUP_SHARE).max(LEAST_SWELLING),
                false => bound / 2,
            };
            self.limited_since.is_none()
                && self.recent.len() == SAMPLES
                && self.recent.least() > floor.saturating_add(most)
        })
    }

    pub(super) const fn is_holding(&self) -> bool {
        self.holding_since.is_some()
    }

    /// Acknowledgements that come again after a pause, of packets that waited through it, say nothing yet of what the path carries now:
    /// until they have been counted for an interval, or the first packet that left since is acknowledged.
    fn watch_pause(&mut self, now: Instant, rtt: Duration, least_rtt: Duration) {
        self.is_resuming &= self.is_of_pause(now, rtt);
        let whole = least_rtt.max(LEAST_INTERVAL);
        let last = self.last_ack.replace((now, rtt));
        let Some((at, usual)) = last else {
            return;
        };
        let gap = now.saturating_duration_since(at);
        let was_idle = gap > whole.saturating_add(rtt);
        let paused = gap > whole && rtt > usual.saturating_add(LEAST_INTERVAL);
        if was_idle || paused {
            self.interval = Some(Interval::starting(now));
        }
        if paused {
            // It may come back as another path: what earlier doubts found says nothing of it. Those of now go on, but for the pause: where a
            // path pauses often, they would never be over.
            let was_patient = std::mem::replace(&mut self.patience, 1) > 1;
            if let Some(draining) = &mut self.draining {
                draining.until += gap;
            }
            self.longer_since = self.longer_since.filter(|_| !was_patient);
            for since in [&mut self.holding_since, &mut self.longer_since] {
                *since = since.map(|since| since + gap);
            }
        }
        if paused && self.bound.is_some() {
            (self.resumed_at, self.is_resuming) = (Some(now), true);
            self.recent.clear();
        }
    }

    /// The packet left before the path's last pause ended.
    fn is_of_pause(&self, now: Instant, rtt: Duration) -> bool {
        self.resumed_at
            .is_some_and(|at| now.checked_sub(rtt).is_none_or(|sent| sent < at))
    }

    /// Counts deliveries as a rate, and what they show; returns the path's RTT if they show that.
    fn count(
        &mut self,
        now: Instant,
        rtt: Duration,
        bytes: u64,
        least_rtt: Duration,
    ) -> Option<Duration> {
        let interval = self.interval.get_or_insert(Interval::starting(now));
        interval.bytes = interval.bytes.saturating_add(bytes);
        interval.least_rtt = interval.least_rtt.min(rtt);
        let elapsed = now.saturating_duration_since(interval.since);
        if elapsed < least_rtt.max(LEAST_INTERVAL) {
            return None;
        }
        let rate = Bandwidth::from_bytes_over(interval.bytes, elapsed);
        let Interval {
            since,
            least_rtt: shortest,
            bytes: delivered,
        } = *interval;
        let was_limited = self.limited_since.is_some_and(|at| at + rtt <= since);
        self.interval = Some(Interval::starting(now));
        self.rate = (!was_limited).then_some(rate);
        let path_rtt = self.compare(rate, shortest, least_rtt);
        // What waited through the pause kept the path busy.
        let resumes = std::mem::take(&mut self.is_resuming) && self.is_of_pause(now, rtt);
        if self.is_holding() || resumes {
            self.shown_at = Some(now);
        }
        // What asks whether the path lives says nothing of what it carries.
        let is_little = resumes && !was_limited && delivered < FIRST_PACKETS * self.packet_bytes;
        if is_little {
            (self.holding_since, self.draining, self.rate) = (None, None, None);
            self.has_returned = true;
        }
        self.shown = match self.shown {
            shown if is_little => Some(shown.unwrap_or_default().max(self.first_rate(least_rtt))),
            _ if (self.is_holding() || resumes) && !was_limited => Some(rate),
            shown => shown.map(|shown| shown.max(rate)),
        };
        path_rtt
    }

    /// Finds round trips that are long whatever is in flight: they are the path's own.
    fn compare(&mut self, rate: Bandwidth, rtt: Duration, least_rtt: Duration) -> Option<Duration> {
        if !self.is_holding() || self.is_resuming {
            self.compared.clear();
            return None;
        }
        self.compared.push_back((rate, rtt));
        if self.compared.len() > COMPARED {
            self.compared.pop_front();
        }
        if self.compared.len() < COMPARED {
            return None;
        }
        let mut rates: Vec<Bandwidth> = self.compared.iter().map(|(rate, _)| *rate).collect();
        rates.sort_unstable();
        let rtts = self.compared.iter().map(|(_, rtt)| *rtt);
        let (shortest, longest) = rtts
            .fold((Duration::MAX, Duration::ZERO), |(least, most), rtt| {
                (least.min(rtt), most.max(rtt))
            });
        let floor = self.floor.unwrap_or(least_rtt);
        let excess = shortest.saturating_sub(floor);
        let is_same = longest - shortest < excess / EXCESS_SHARE;
        // Holding back itself keeps a queue as long as the bound, whatever the path carries.
        let bound = self.bound.unwrap_or_default();
        let is_other = longest.saturating_sub(floor) < bound / 4 * 3;
        let differ = rates[COMPARED - 1 - OUTLIERS] >= rates[OUTLIERS].scaled(DELIVERY_RATIO);
        (is_same && is_other && differ).then(|| {
            self.take_floor(shortest, true);
            self.compared.clear();
            shortest
        })
    }

    /// The path's RTT without a queue is this.
    fn take_floor(&mut self, rtt: Duration, is_sure: bool) {
        (self.floor, self.is_floor_sure) = (Some(rtt), is_sure);
        (self.holding_since, self.shown) = (None, None);
    }

    /// A shorter round trip shows that it was a queue after all, but for the jitter of a path that is longer for sure.
    fn lower_floor(&mut self, rtt: Duration, least_rtt: Duration) {
        let Some(floor) = self.floor.filter(|floor| rtt < *floor) else {
            return;
        };
        let half = least_rtt.saturating_add(floor.saturating_sub(least_rtt) / 2);
        self.floor = (self.is_floor_sure && rtt > half).then_some(rtt);
    }

    fn watch(&mut self, now: Instant, sample: Duration, least_rtt: Duration) {
        let Some(bound) = self.bound else {
            (self.holding_since, self.draining) = (None, None);
            return;
        };
        if self.recent.len() < SAMPLES {
            return;
        }
        let rtt = self.recent.least();
        let floor = self.floor.unwrap_or(least_rtt);
        if let Some(draining) = &mut self.draining {
            draining.least = draining.least.min(sample);
            let draining = *draining;
            if !draining.is_longer(floor) {
                (self.draining, self.holding_since) = (None, Some(now));
            } else if now >= draining.until {
                self.draining = None;
                self.take_floor(draining.least, false);
                return;
            }
        }
        let most = match self.are_answered_alone() {
            true => (bound / 2).max(LEAST_SWELLING),
            false => bound / 2,
        };
        if rtt <= floor.saturating_add(most) {
            (self.draining, self.holding_since) = (None, None);
            return;
        }
        let since = *self.holding_since.get_or_insert(now);
        let patience = PATIENCE.max(rtt.saturating_mul(PATIENCE_ROUNDS));
        let is_over = now.saturating_duration_since(since) > patience;
        // A round trip that a pause made long is no measure.
        if self.draining.is_none() && is_over && !self.is_of_pause(now, sample) {
            // What left before is acknowledged after a round trip, what leaves then after another.
            let until = now + rtt.saturating_mul(DRAIN_ROUNDS);
            self.draining = Some(Measuring::starting(rtt, until));
        }
    }

    /// The controller empties the path to measure it.
    pub(super) fn on_emptying(&mut self, now: Instant) {
        let before = self.recent.least();
        let until = now + PATIENCE.max(before.saturating_mul(PATIENCE_ROUNDS));
        self.measuring = Some(Measuring::starting(before, until));
        self.end_run();
    }

    /// Whether the round trips have been so long for so long that the path should be emptied to measure it; once each time.
    fn seems_longer(&mut self, now: Instant, sample: Duration, least_rtt: Duration) -> bool {
        let floor = self.floor.unwrap_or(least_rtt);
        if let Some(measuring) = &mut self.measuring {
            measuring.least = measuring.least.min(sample);
            let measuring = *measuring;
            if now >= measuring.until {
                self.measuring = None;
                // What was left of the excess when the path was empty is its length.
                let is_longer = measuring.is_longer(floor);
                if is_longer {
                    (self.floor, self.is_floor_sure) = (Some(measuring.least), false);
                }
                self.patience = if is_longer {
                    1
                } else {
                    (self.patience.max(1) * 2).min(MOST_PATIENCE)
                };
            }
            return false;
        }
        if self.bound.is_some() && self.recent.len() < SAMPLES {
            return false;
        }
        let rtt = self.recent.least();
        let is_long = self.bound.is_some() && rtt > floor.saturating_mul(LONGER);
        if !is_long {
            self.longer_since = None;
            return false;
        }
        let since = *self.longer_since.get_or_insert(now);
        let patience = PATIENCE.max(rtt.saturating_mul(PATIENCE_ROUNDS)) * self.patience.max(1);
        let is_over = now.saturating_duration_since(since) >= patience;
        self.longer_since = self.longer_since.filter(|_| !is_over);
        is_over
    }

    /// Whether the recent packets came so seldom that the peer may have waited for a second one with each answer.
    fn are_answered_alone(&self) -> bool {
        self.recent.spans().is_some_and(|took| took > SELDOM)
    }
}
