//! A controller as every sender runs it, on a real path and in the lab, with what surrounds it: the filter of
//! reconfiguration signals, the sum of satellite segments, and the bound on the path's queue.

use std::time::{Duration, Instant};

use starhaul_units::Bandwidth;

use crate::{AckedPacket, Controller, PathSignal, Reconfigurations};

mod queue_guard;
mod rtt_floor;
mod segments;

use queue_guard::{QueueGuard, Verdict};
use rtt_floor::RttFloor;
use segments::Segments;

/// The queue bound never reduces the window below this many packets.
const MIN_WINDOW_PACKETS: u64 = 4;
/// What a pacer lets leave at once, and acknowledgements that come together leave in flight, beyond a rate limit's product with
/// the RTT.
const LIMITED_BURST: u64 = 16 * 1500;
/// Part of the rate of a train with which a controller goes on: arrivals of ten packets may show twice what the path carries.
const TRAIN_SHARE: f64 = 0.5;
/// … and what it may be at most, in windows of a start without it: a train does not tell a policer from a path.
const MOST_START: u64 = 32;
/// Pacing rate of a controller without a rate, in windows per smoothed RTT (RFC 9002 §7.7).
const PACING_GAIN: f64 = 1.25;

/// What a sender asks of the queue that its packets make in a path.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct QueueWish {
    /// The longest that packets may wait in it; `None`, the default, while nothing sent has a deadline.
    pub bound: Option<Duration>,
    /// People wait for a part of what is sent, while the rest takes all that the path carries
    /// ([`Controller::prefer_short_queue`]).
    pub short: bool,
}

/// A congestion controller and what a sender does around any controller. Signals go through this type; packets and
/// their losses go to the controller itself ([`PathController::controller_mut`]).
#[derive(Debug)]
pub struct PathController {
    controller: Box<dyn Controller>,
    rtt_floor: RttFloor,
    guard: QueueGuard,
    reconfigurations: Reconfigurations,
    segments: Segments,
    rate_limit: Option<Bandwidth>,
    wish: QueueWish,
    /// When this end came to another network: packets that left before say nothing of its path.
    arrived_at: Option<Instant>,
    /// The window with which the controller began.
    start_bytes: u64,
}

impl PathController {
    /// Runs `controller` on a path of which nothing is known.
    pub fn new(controller: Box<dyn Controller>) -> Self {
        Self {
            start_bytes: controller.cwnd(),
            controller,
            rtt_floor: RttFloor::default(),
            guard: QueueGuard::default(),
            reconfigurations: Reconfigurations::default(),
            segments: Segments::default(),
            rate_limit: None,
            wish: QueueWish::default(),
            arrived_at: None,
        }
    }

    /// Runs another controller on the same path.
    pub fn replace(&mut self, controller: Box<dyn Controller>) {
        self.start_bytes = controller.cwnd();
        self.controller = controller;
        self.controller.prefer_short_queue(self.wish.short);
    }

    /// Runs another controller after a migration to another network: RTTs and queue are measured anew, the record of
    /// signals stays.
    pub fn restart(&mut self, controller: Box<dyn Controller>) {
        self.replace(controller);
        self.rtt_floor = RttFloor::default();
        self.guard = QueueGuard::default();
        self.guard.bound = self.wish.bound;
    }

    /// After [`PathController::restart`], where packets of the former network may still be acknowledged: they left before `now`.
    pub fn on_other_network(&mut self, now: Instant) {
        self.rtt_floor.restart(now);
        self.guard.end_run();
        self.arrived_at = Some(now);
    }

    /// The controller, to read its state.
    pub fn controller(&self) -> &dyn Controller {
        &*self.controller
    }

    /// The controller, to report packets sent and lost, and the ends of acknowledgements.
    pub fn controller_mut(&mut self) -> &mut dyn Controller {
        &mut *self.controller
    }

    /// Sets what is asked of the path's queue.
    pub fn set_queue_wish(&mut self, wish: QueueWish) {
        self.wish = wish;
        self.guard.bound = wish.bound;
        self.controller.prefer_short_queue(wish.short);
    }

    /// Sets the greatest rate at which packets may leave, whatever the controller allows; `None`, the default, for no such bound.
    pub fn set_rate_limit(&mut self, limit: Option<Bandwidth>) {
        self.rate_limit = limit;
    }

    /// The bound of [`PathController::set_rate_limit`].
    pub fn rate_limit(&self) -> Option<Bandwidth> {
        self.rate_limit
    }

    /// Whether the rate limit alone keeps the flight to this: what the path delivers then says nothing of what it might, and
    /// a window that is not needed must not grow (RFC 9002 §7.8). A flight that takes longer than the least RTT waits in a
    /// queue: the path is slower than the limit.
    pub fn is_rate_limited(&self, flight_bytes: u64, smoothed_rtt: Option<Duration>) -> bool {
        let (Some(limit), Some(rtt)) = (self.rate_limit, self.rtt_floor.get().or(smoothed_rtt))
        else {
            return false;
        };
        let unqueued = limit.bytes_in(rtt + rtt / 4).saturating_add(LIMITED_BURST);
        flight_bytes <= unqueued.min(self.controller.full_window() / 2)
            && !self.guard.is_holding()
            && self.own_rate(smoothed_rtt).is_none_or(|own| limit < own)
    }

    /// A packet leaves, which the controller is told by itself; `is_limited`: the sender has less to send than it might.
    pub fn on_sent(&mut self, now: Instant, is_limited: bool) {
        self.guard.on_sent(now, is_limited);
    }

    /// A packet was acknowledged.
    pub fn on_ack(&mut self, packet: AckedPacket) {
        let rtt = packet.now.saturating_duration_since(packet.sent);
        self.on_rtt(packet.now, rtt, packet.bytes);
        self.controller.on_ack(packet);
    }

    /// Measures the path by an acknowledged packet that the controller must not see, as those of a handshake.
    pub fn on_rtt(&mut self, now: Instant, rtt: Duration, bytes: u64) {
        // A packet that left and arrived with the one before it, as most of a batch do, measures nothing new.
        let controller = &self.controller;
        let estimate = || controller.bandwidth_estimate();
        match self.guard.on_repeated(now, rtt, bytes, estimate) {
            Some(verdict) => self.heed(now, verdict),
            None => self.measure(now, rtt, bytes),
        }
    }

    fn measure(&mut self, now: Instant, rtt: Duration, bytes: u64) {
        let left = now.checked_sub(rtt);
        let is_of_former = |since| left.is_none_or(|left| left < since);
        if self.arrived_at.is_some_and(is_of_former) {
            return;
        }
        self.rtt_floor.update(now, rtt);
        let floor = self.rtt_floor.get().unwrap_or(rtt);
        let estimate = self.controller.bandwidth_estimate();
        let verdict = self.guard.on_ack(now, rtt, bytes, floor, estimate);
        self.heed(now, verdict);
    }

    /// Tells the controller what the queue's bound found.
    fn heed(&mut self, now: Instant, verdict: Verdict) {
        if let Some(rtt) = verdict.path_rtt {
            self.controller.on_path_rtt(now, rtt);
        }
        if verdict.queues {
            self.controller.on_queue(now);
        }
        if verdict.seems_longer && self.controller.on_longer_path() {
            self.guard.on_emptying(now);
        }
    }

    /// Bytes that may be in flight: the controller's window, or less where that keeps the queue within its bound.
    pub fn window(&self, mtu_bytes: u16) -> u64 {
        let cwnd = self.controller.cwnd();
        // A window-based controller limits its queue by losses, without an estimate; its window is left alone.
        match (self.controller.bandwidth_estimate(), self.rtt_floor.get()) {
            (Some(estimate), Some(floor)) => {
                let least = cwnd.min(MIN_WINDOW_PACKETS * u64::from(mtu_bytes));
                self.guard.window(cwnd, floor, estimate).max(least)
            }
            _ => cwnd,
        }
    }

    /// What the path carried when packets last waited in its queue, or has shown since, where that is less than the controller's estimate:
    /// `None` otherwise, and without a queue bound.
    pub fn shown_rate(&self) -> Option<Bandwidth> {
        let estimate = self.controller.bandwidth_estimate();
        self.guard.shown().filter(|_| estimate.is_some())
    }

    /// The rate at which packets leave. Without a rate of the controller's and an RTT, the window alone limits the
    /// first flight.
    pub fn pacing_rate(&self, smoothed_rtt: Option<Duration>) -> Bandwidth {
        let estimate = self.controller.bandwidth_estimate();
        let shown = self.guard.may_carry().filter(|_| estimate.is_some());
        self.own_rate(smoothed_rtt)
            .unwrap_or(Bandwidth::MAX)
            .min(shown.unwrap_or(Bandwidth::MAX))
            .min(self.rate_limit.unwrap_or(Bandwidth::MAX))
    }

    /// The rate of the controller, or of its window.
    fn own_rate(&self, smoothed_rtt: Option<Duration>) -> Option<Bandwidth> {
        let by_window = |rtt| Bandwidth::from_bytes_over(self.controller.cwnd(), rtt);
        let rate = self.controller.pacing_rate();
        rate.or_else(|| smoothed_rtt.map(|rtt| by_window(rtt).scaled(PACING_GAIN)))
    }

    /// The least RTT of the last 10 to 20 s.
    pub fn rtt_floor(&self) -> Option<Duration> {
        self.rtt_floor.get()
    }

    /// Takes a signal; returns whether it was news, which alone reaches the controller.
    pub fn on_signal(&mut self, now: Instant, signal: PathSignal) -> bool {
        match signal {
            PathSignal::Reconfiguration(event) => {
                let news = self.reconfigurations.accept(now, event);
                if let Some(event) = news {
                    self.rtt_floor.restart(event.at);
                    self.guard.on_other_path();
                    self.controller.on_reconfiguration(now, event);
                }
                news.is_some()
            }
            PathSignal::SegmentRtt { end, rtt } => {
                self.segments.update(now, end, rtt);
                if let Some(both) = self.segments.rtt() {
                    self.controller.on_segment_rtt(now, both);
                }
                true
            }
            PathSignal::TrainRate(rate) => self.on_train(rate),
        }
    }

    /// The path carried a train of packets at `rate`. Whether the controller begins with more than it would without it.
    fn on_train(&mut self, rate: Bandwidth) -> bool {
        let Some(rtt) = self.rtt_floor.get() else {
            return false;
        };
        let before = self.controller.cwnd();
        let carried = rate.scaled(TRAIN_SHARE).bytes_in(rtt);
        let window = carried.min(MOST_START * self.start_bytes);
        if window > before {
            self.controller.widen_start(window, rtt);
        }
        self.controller.cwnd() > before
    }

    /// The reconfigurations so far.
    pub fn reconfigurations(&self) -> Reconfigurations {
        self.reconfigurations
    }

    /// The RTT of the path's satellite segments together.
    pub fn segment_rtt(&self) -> Option<Duration> {
        self.segments.rtt()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{ControllerConfig, RateFeed};

    /// A path of 40 ms whose controller would send 100 Mbit/s.
    #[test]
    fn a_limit_explains_no_flight_that_waits_in_a_queue() {
        let now = Instant::now() + Duration::from_secs(60);
        let config = ControllerConfig::Dedicated(RateFeed::new(Bandwidth::from_mbit(100)));
        let mut path = PathController::new(config.build(now, 1500));
        let rtt = Duration::from_millis(40);
        path.on_rtt(now, rtt, 1500);
        assert!(!path.is_rate_limited(50_000, Some(rtt)));
        path.set_rate_limit(Some(Bandwidth::from_mbit(10)));
        // 10 Mbit/s for the round trip are 50 kB.
        assert!(path.is_rate_limited(50_000, Some(rtt)));
        assert!(!path.is_rate_limited(100_000, Some(rtt)));
        path.set_rate_limit(Some(Bandwidth::from_mbit(200)));
        assert!(!path.is_rate_limited(50_000, Some(rtt)));
    }

    /// From a satellite of 600 ms to a fixed line of 30: what was under way over the satellite is acknowledged over the line.
    #[test]
    fn late_packets_of_a_former_network_are_no_queue_in_this_one() {
        let ms = Duration::from_millis;
        let start = Instant::now() + Duration::from_secs(60);
        let bbr = || ControllerConfig::Bbr.build(start, 1500);
        let mut path = PathController::new(bbr());
        let bound = Some(ms(50));
        path.set_queue_wish(QueueWish {
            bound,
            short: false,
        });
        path.restart(bbr());
        path.on_other_network(start);
        path.controller_mut()
            .on_packet_sent(start, 0, 1500, 0, false);
        let now = start + ms(30);
        path.on_ack(AckedPacket {
            now,
            sent: start,
            packet_number: 0,
            bytes: 1500,
        });
        path.controller_mut().on_end_of_acks(now, 0);
        (1..=60).for_each(|step| path.on_rtt(now + ms(step), ms(400), 1500));
        assert_eq!(path.controller().state(), "startup");
        assert_eq!(path.window(1500), path.controller().cwnd());
    }

    /// A controller that follows another, or begins in another network, is asked for as short a queue.
    #[test]
    fn what_is_asked_of_the_queue_outlives_the_controller() {
        let now = Instant::now() + Duration::from_secs(60);
        let ours: ControllerConfig = "leocc2".parse().unwrap();
        let mut path = PathController::new(ours.build(now, 1500));
        let wish = QueueWish {
            bound: Some(Duration::from_millis(50)),
            short: true,
        };
        path.set_queue_wish(wish);
        path.replace(ours.build(now, 1500));
        let asked = format!("{:?}", path.controller());
        assert!(asked.contains("prefers_short_queue: true"), "{asked}");
        path.restart(ours.build(now, 1500));
        let asked = format!("{:?}", path.controller());
        assert!(asked.contains("prefers_short_queue: true"), "{asked}");
        assert_eq!(path.guard.bound, wish.bound);
    }
}
