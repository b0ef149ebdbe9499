//! One sender over one bottleneck in virtual time: a rate, a drop-tail queue, a fixed delay and
//! random loss. The sender mostly has data and declares loss as RFC 9002 §6 does.

use std::{
    collections::VecDeque,
    time::{Duration, Instant},
};

use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;
use starhaul_cc::{AckedPacket, CongestionEvent, Controller, ControllerConfig, LostPacket, Pacer};
use starhaul_units::Bandwidth;

pub(crate) const PACKET_BYTES: u64 = 1452;
const MTU: u16 = 1452;
const PACKET_THRESHOLD: u64 = 3;

/// What the path does.
#[derive(Clone, Debug)]
pub(crate) struct Path {
    pub(crate) rate: Bandwidth,
    pub(crate) rtt: Duration,
    pub(crate) queue_bytes: u64,
    pub(crate) loss: f64,
    pub(crate) seed: u64,
    /// Each so many packets one is lost.
    pub(crate) loss_each: Option<u64>,
    /// From this time on the round trip takes so long, which must not be less than before.
    pub(crate) later_rtt: Option<(Duration, Duration)>,
    /// From this time on the bottleneck has this rate.
    pub(crate) later_rate: Option<(Duration, Bandwidth)>,
    /// From this time on the application has only so much to send.
    pub(crate) offered: Option<(Duration, Bandwidth)>,
    /// Nothing passes between these two times.
    pub(crate) outage: Option<(Duration, Duration)>,
}

impl Path {
    pub(crate) fn new(mbit: u64, rtt_ms: u64) -> Self {
        let (rate, rtt) = (Bandwidth::from_mbit(mbit), Duration::from_millis(rtt_ms));
        Self {
            rate,
            rtt,
            queue_bytes: rate.bytes_in(rtt),
            loss: 0.0,
            seed: 1,
            loss_each: None,
            later_rtt: None,
            offered: None,
            later_rate: None,
            outage: None,
        }
    }

    pub(crate) fn bdp(&self) -> u64 {
        self.rate.bytes_in(self.rtt)
    }

    pub(crate) fn queue_bdp(mut self, share: f64) -> Self {
        self.queue_bytes = self.rate.scaled(share).bytes_in(self.rtt);
        self
    }

    pub(crate) fn loss(mut self, loss: f64, seed: u64) -> Self {
        (self.loss, self.seed) = (loss, seed);
        self
    }

    pub(crate) fn run(&self, config: &ControllerConfig, seconds: u64) -> Run {
        let mut sender = Sender::new(self.clone(), config);
        sender.run(Duration::from_secs(seconds));
        sender.record
    }
}

/// The state after one incoming ACK.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Sample {
    pub(crate) at: Duration,
    pub(crate) delivered_bytes: u64,
    pub(crate) cwnd: u64,
    pub(crate) queue_bytes: u64,
    pub(crate) state: &'static str,
    pub(crate) estimate: Option<Bandwidth>,
}

/// What happened.
#[derive(Debug, Default)]
pub(crate) struct Run {
    pub(crate) samples: Vec<Sample>,
    pub(crate) lost: u64,
}

impl Run {
    /// Samples from `from` seconds on, before `to` seconds.
    pub(crate) fn between(&self, from: f64, to: f64) -> impl Iterator<Item = &Sample> {
        self.samples
            .iter()
            .filter(move |s| (from..to).contains(&s.at.as_secs_f64()))
    }

    pub(crate) fn rate_between(&self, from: f64, to: f64) -> Bandwidth {
        let delivered_at = |time: f64| {
            let after = self.samples.partition_point(|s| s.at.as_secs_f64() < time);
            after
                .checked_sub(1)
                .map_or(0, |i| self.samples[i].delivered_bytes)
        };
        let bytes = delivered_at(to) - delivered_at(from);
        Bandwidth::from_bytes_over(bytes, Duration::from_secs_f64(to - from))
    }

    /// Delivered share of `path`'s rate.
    pub(crate) fn share(&self, path: &Path, from: f64, to: f64) -> f64 {
        self.rate_between(from, to).mbit() / path.rate.mbit()
    }

    pub(crate) fn mean_queue(&self, from: f64, to: f64) -> f64 {
        let queues: Vec<f64> = self
            .between(from, to)
            .map(|s| s.queue_bytes as f64)
            .collect();
        queues.iter().sum::<f64>() / queues.len() as f64
    }
}

#[derive(Clone, Copy, Debug)]
struct InFlight {
    number: u64,
    sent: Instant,
}

struct Sender {
    path: Path,
    rng: ChaCha8Rng,
    start: Instant,
    now: Instant,
    controller: Box<dyn Controller>,
    pacer: Pacer,
    next_number: u64,
    /// When the application has its next packet.
    next_data: Instant,
    in_flight: VecDeque<InFlight>,
    link_free: Instant,
    /// When the acknowledgement of each packet that got through arrives.
    acks: VecDeque<(Instant, u64)>,
    last_progress: Instant,
    last_rtt: Duration,
    delivered_bytes: u64,
    record: Run,
}

impl Sender {
    fn new(path: Path, config: &ControllerConfig) -> Self {
        let start = Instant::now();
        Self {
            rng: ChaCha8Rng::seed_from_u64(path.seed),
            start,
            now: start,
            controller: config.build(start, MTU),
            pacer: Pacer::new(start, MTU),
            next_number: 0,
            next_data: start,
            in_flight: VecDeque::new(),
            link_free: start,
            acks: VecDeque::new(),
            last_progress: start,
            last_rtt: path.rtt,
            delivered_bytes: 0,
            record: Run::default(),
            path,
        }
    }

    fn run(&mut self, duration: Duration) {
        while self.now - self.start < duration {
            let send_at = self.send_what_may_leave();
            let timeout = self.last_progress + (self.last_rtt * 3).max(Duration::from_secs(1));
            let ack_at = self.acks.front().map(|(at, _)| *at);
            let timeout_at = (!self.in_flight.is_empty()).then_some(timeout);
            self.now = [send_at, ack_at, timeout_at]
                .into_iter()
                .flatten()
                .min()
                .expect("a sender with data waits for something")
                .max(self.now);
            if ack_at.is_some_and(|at| at <= self.now) {
                self.receive_ack();
            } else if timeout_at.is_some_and(|at| at <= self.now) {
                self.declare_lost(u64::MAX, true);
                self.last_progress = self.now;
            }
        }
    }

    fn send_what_may_leave(&mut self) -> Option<Instant> {
        while self.bytes_in_flight() + PACKET_BYTES <= self.controller.cwnd() {
            if let Some(rate) = self.controller.pacing_rate()
                && let Some(at) = self.pacer.next_send(self.now, rate, PACKET_BYTES)
            {
                return Some(at);
            }
            if self.now < self.next_data {
                return Some(self.next_data);
            }
            self.send();
        }
        None
    }

    fn send(&mut self) {
        let number = self.next_number;
        self.next_number += 1;
        if self.in_flight.is_empty() {
            self.last_progress = self.now;
        }
        let offered = self
            .path
            .offered
            .filter(|(from, _)| self.now - self.start >= *from);
        if let Some((_, rate)) = offered {
            self.next_data = self.now + rate.time_to_send(PACKET_BYTES);
        }
        let in_flight = self.bytes_in_flight();
        self.controller.on_packet_sent(
            self.now,
            number,
            PACKET_BYTES,
            in_flight,
            offered.is_some(),
        );
        self.pacer.on_sent(self.now, PACKET_BYTES);
        self.in_flight.push_back(InFlight {
            number,
            sent: self.now,
        });
        if self.queue_bytes() > self.path.queue_bytes
            || self.in_outage()
            || self
                .path
                .loss_each
                .is_some_and(|each| number.is_multiple_of(each))
            || self.rng.random_bool(self.path.loss)
        {
            return;
        }
        self.link_free = self.link_free.max(self.now) + self.rate().time_to_send(PACKET_BYTES);
        self.acks.push_back((self.link_free + self.rtt(), number));
    }

    fn receive_ack(&mut self) {
        let Some((_, number)) = self.acks.pop_front() else {
            return;
        };
        if let Some(at) = self.in_flight.iter().position(|p| p.number == number)
            && let Some(packet) = self.in_flight.remove(at)
        {
            self.last_rtt = self.now - packet.sent;
            self.delivered_bytes += PACKET_BYTES;
            self.controller.on_ack(AckedPacket {
                now: self.now,
                sent: packet.sent,
                packet_number: number,
                bytes: PACKET_BYTES,
            });
        }
        self.last_progress = self.now;
        self.declare_lost(number.saturating_sub(PACKET_THRESHOLD), false);
        let in_flight = self.bytes_in_flight();
        self.controller.on_end_of_acks(self.now, in_flight);
        self.record.samples.push(Sample {
            at: self.now - self.start,
            delivered_bytes: self.delivered_bytes,
            cwnd: self.controller.cwnd(),
            queue_bytes: self.queue_bytes(),
            state: self.controller.state(),
            estimate: self.controller.bandwidth_estimate(),
        });
    }

    /// Declares lost what is in flight with numbers up to `newest`; nothing is ever reordered.
    fn declare_lost(&mut self, newest: u64, persistent: bool) {
        let (mut lost_bytes, mut sent) = (0, None);
        while let Some(packet) = self.in_flight.front().copied()
            && packet.number <= newest
        {
            self.in_flight.pop_front();
            self.controller.on_packet_lost(LostPacket {
                now: self.now,
                packet_number: packet.number,
                bytes: PACKET_BYTES,
            });
            (lost_bytes, sent) = (lost_bytes + PACKET_BYTES, Some(packet.sent));
            self.record.lost += 1;
        }
        if let Some(sent) = sent {
            self.controller.on_congestion_event(CongestionEvent {
                now: self.now,
                sent,
                persistent,
                ecn: false,
                lost_bytes,
            });
        }
    }

    fn bytes_in_flight(&self) -> u64 {
        self.in_flight.len() as u64 * PACKET_BYTES
    }

    fn queue_bytes(&self) -> u64 {
        let backlog = self.link_free.saturating_duration_since(self.now);
        self.rate().bytes_in(backlog)
    }

    fn rtt(&self) -> Duration {
        match self.path.later_rtt {
            Some((from, rtt)) if self.now - self.start >= from => rtt,
            _ => self.path.rtt,
        }
    }

    fn rate(&self) -> Bandwidth {
        match self.path.later_rate {
            Some((from, rate)) if self.now - self.start >= from => rate,
            _ => self.path.rate,
        }
    }

    fn in_outage(&self) -> bool {
        let at = self.now - self.start;
        self.path
            .outage
            .is_some_and(|(from, to)| (from..to).contains(&at))
    }
}
