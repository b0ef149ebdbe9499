//! Senders over one bottleneck in virtual time: a rate, a drop-tail queue, a fixed delay and random loss. A sender
//! usually has data and declares loss as in RFC 9002 §6.

use std::{
    collections::VecDeque,
    time::{Duration, Instant},
};

use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;
use starhaul_cc::{
    AckedPacket, CongestionEvent, ControllerConfig, LostPacket, Pacer, PathController, PathSignal,
    Reconfiguration, ReconfigurationSource,
};
use starhaul_units::Bandwidth;

pub(crate) const PACKET_BYTES: u64 = 1452;
const MTU: u16 = 1452;
const PACKET_THRESHOLD: u64 = 3;

/// The properties of the path.
#[derive(Clone, Debug)]
pub(crate) struct Path {
    pub(crate) rate: Bandwidth,
    pub(crate) rtt: Duration,
    pub(crate) queue_bytes: u64,
    pub(crate) loss: f64,
    pub(crate) seed: u64,
    /// One packet of this many is lost.
    pub(crate) loss_each: Option<u64>,
    /// From this time on the RTT is this. Packets stay in order where it is less than before.
    pub(crate) later_rtt: Option<(Duration, Duration)>,
    /// From this time on the bottleneck has this rate.
    pub(crate) later_rate: Option<(Duration, Bandwidth)>,
    /// From this time on the application offers only this rate.
    pub(crate) offered: Option<(Duration, Bandwidth)>,
    /// No packet passes between these two times.
    pub(crate) outage: Option<(Duration, Duration)>,
    /// The times of reconfiguration signals to senders, in order.
    pub(crate) reconfigured: Vec<Duration>,
    /// The application has nothing to send between these two times.
    pub(crate) idle: Option<(Duration, Duration)>,
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
            reconfigured: Vec::new(),
            idle: None,
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
        let mut runs = self.run_all(&[(config.clone(), 0)], seconds);
        runs.remove(0)
    }

    /// Runs several flows, each from its start in seconds.
    pub(crate) fn run_all(&self, flows: &[(ControllerConfig, u64)], seconds: u64) -> Vec<Run> {
        let start = Instant::now();
        let end = start + Duration::from_secs(seconds);
        let mut bottleneck = Bottleneck::new(self.clone(), start);
        let mut senders: Vec<Sender> = flows
            .iter()
            .map(|(config, from)| {
                Sender::new(config, self.rtt, start, start + Duration::from_secs(*from))
            })
            .collect();
        while let Some(next) = senders.iter_mut().min_by_key(|sender| sender.wake)
            && next.wake < end
        {
            next.step(&mut bottleneck);
        }
        senders.into_iter().map(|sender| sender.record).collect()
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

/// The result of a run.
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

/// The bottleneck that all senders share.
struct Bottleneck {
    path: Path,
    rng: ChaCha8Rng,
    start: Instant,
    link_free: Instant,
}

impl Bottleneck {
    fn new(path: Path, start: Instant) -> Self {
        Self {
            rng: ChaCha8Rng::seed_from_u64(path.seed),
            start,
            link_free: start,
            path,
        }
    }

    /// When the acknowledgement of this packet arrives; `None` if the packet is lost.
    fn carry(&mut self, now: Instant, number: u64) -> Option<Instant> {
        let lost = self.queue_bytes(now) > self.path.queue_bytes
            || self.in_outage(now)
            || self
                .path
                .loss_each
                .is_some_and(|each| number.is_multiple_of(each))
            || self.rng.random_bool(self.path.loss);
        if lost {
            return None;
        }
        self.link_free = self.link_free.max(now) + self.rate(now).time_to_send(PACKET_BYTES);
        Some(self.link_free + self.rtt(now))
    }

    fn queue_bytes(&self, now: Instant) -> u64 {
        let backlog = self.link_free.saturating_duration_since(now);
        self.rate(now).bytes_in(backlog)
    }

    fn rtt(&self, now: Instant) -> Duration {
        match self.path.later_rtt {
            Some((from, rtt)) if now - self.start >= from => rtt,
            _ => self.path.rtt,
        }
    }

    /// When the application has data again, if it has none now.
    fn idle_until(&self, now: Instant) -> Option<Instant> {
        let (from, to) = self.path.idle?;
        (from..to)
            .contains(&(now - self.start))
            .then(|| self.start + to)
    }

    fn rate(&self, now: Instant) -> Bandwidth {
        match self.path.later_rate {
            Some((from, rate)) if now - self.start >= from => rate,
            _ => self.path.rate,
        }
    }

    fn in_outage(&self, now: Instant) -> bool {
        let at = now - self.start;
        self.path
            .outage
            .is_some_and(|(from, to)| (from..to).contains(&at))
    }

    fn offered(&self, now: Instant) -> Option<Bandwidth> {
        let (from, rate) = self.path.offered?;
        (now - self.start >= from).then_some(rate)
    }
}

struct Sender {
    start: Instant,
    /// When the sender has its next event.
    wake: Instant,
    path: PathController,
    pacer: Pacer,
    next_number: u64,
    /// When the application offers its next packet.
    next_data: Instant,
    in_flight: VecDeque<InFlight>,
    /// Arrival time of the acknowledgement of each packet that arrived.
    acks: VecDeque<(Instant, u64)>,
    last_progress: Instant,
    last_rtt: Duration,
    delivered_bytes: u64,
    /// Number of reconfigurations signalled so far.
    told: usize,
    record: Run,
}

impl Sender {
    fn new(config: &ControllerConfig, rtt: Duration, start: Instant, from: Instant) -> Self {
        Self {
            start,
            wake: from,
            path: PathController::new(config.build(from, MTU)),
            pacer: Pacer::new(from, MTU),
            next_number: 0,
            next_data: from,
            in_flight: VecDeque::new(),
            acks: VecDeque::new(),
            last_progress: from,
            last_rtt: rtt,
            delivered_bytes: 0,
            told: 0,
            record: Run::default(),
        }
    }

    /// Handles the events that are due and sets the next wake-up.
    fn step(&mut self, bottleneck: &mut Bottleneck) {
        let now = self.wake;
        self.tell_of_reconfigurations(now, bottleneck);
        if self.acks.front().is_some_and(|(at, _)| *at <= now) {
            self.receive_ack(now, bottleneck);
        } else if self.timeout().is_some_and(|at| at <= now) {
            self.declare_lost(now, u64::MAX, true);
            self.last_progress = now;
        }
        let send_at = self.send_what_may_leave(now, bottleneck);
        let ack_at = self.acks.front().map(|(at, _)| *at);
        self.wake = [send_at, ack_at, self.timeout()]
            .into_iter()
            .flatten()
            .min()
            .expect("a sender with data waits for something")
            .max(now);
    }

    fn tell_of_reconfigurations(&mut self, now: Instant, bottleneck: &Bottleneck) {
        while let Some(at) = bottleneck.path.reconfigured.get(self.told)
            && now - self.start >= *at
        {
            self.told += 1;
            let reconfiguration = Reconfiguration {
                at: now,
                outage: Duration::from_millis(60),
                source: ReconfigurationSource::GroundTruth,
                confidence: 1.0,
            };
            let signal = PathSignal::Reconfiguration(reconfiguration);
            self.path.on_signal(now, signal);
        }
    }

    fn timeout(&self) -> Option<Instant> {
        let patience = (self.last_rtt * 3).max(Duration::from_secs(1));
        (!self.in_flight.is_empty()).then_some(self.last_progress + patience)
    }

    fn send_what_may_leave(
        &mut self,
        now: Instant,
        bottleneck: &mut Bottleneck,
    ) -> Option<Instant> {
        while self.bytes_in_flight() + PACKET_BYTES <= self.path.window(MTU) {
            if let Some(rate) = self.path.controller().pacing_rate()
                && let Some(at) = self.pacer.next_send(now, rate, PACKET_BYTES)
            {
                return Some(at);
            }
            if let Some(until) = bottleneck.idle_until(now) {
                return Some(until);
            }
            if now < self.next_data {
                return Some(self.next_data);
            }
            self.send(now, bottleneck);
        }
        None
    }

    fn send(&mut self, now: Instant, bottleneck: &mut Bottleneck) {
        let number = self.next_number;
        self.next_number += 1;
        if self.in_flight.is_empty() {
            self.last_progress = now;
        }
        let offered = bottleneck.offered(now);
        if let Some(rate) = offered {
            self.next_data = now + rate.time_to_send(PACKET_BYTES);
        }
        let in_flight = self.bytes_in_flight();
        self.path.controller_mut().on_packet_sent(
            now,
            number,
            PACKET_BYTES,
            in_flight,
            offered.is_some(),
        );
        self.pacer.on_sent(now, PACKET_BYTES);
        self.in_flight.push_back(InFlight { number, sent: now });
        if let Some(at) = bottleneck.carry(now, number) {
            let before = self.acks.back().map_or(at, |(before, _)| *before);
            let at = at.max(before);
            self.acks.push_back((at, number));
        }
    }

    fn receive_ack(&mut self, now: Instant, bottleneck: &Bottleneck) {
        let Some((_, number)) = self.acks.pop_front() else {
            return;
        };
        if let Some(at) = self.in_flight.iter().position(|p| p.number == number)
            && let Some(packet) = self.in_flight.remove(at)
        {
            self.last_rtt = now - packet.sent;
            self.delivered_bytes += PACKET_BYTES;
            self.path.on_ack(AckedPacket {
                now,
                sent: packet.sent,
                packet_number: number,
                bytes: PACKET_BYTES,
            });
        }
        self.last_progress = now;
        self.declare_lost(now, number.saturating_sub(PACKET_THRESHOLD), false);
        let in_flight = self.bytes_in_flight();
        self.path.controller_mut().on_end_of_acks(now, in_flight);
        self.record.samples.push(Sample {
            at: now - self.start,
            delivered_bytes: self.delivered_bytes,
            cwnd: self.path.controller().cwnd(),
            queue_bytes: bottleneck.queue_bytes(now),
            state: self.path.controller().state(),
            estimate: self.path.controller().bandwidth_estimate(),
        });
    }

    /// Declares lost all packets in flight with numbers up to `newest`; packets are never reordered.
    fn declare_lost(&mut self, now: Instant, newest: u64, persistent: bool) {
        let (mut lost_bytes, mut sent) = (0, None);
        while let Some(packet) = self.in_flight.front().copied()
            && packet.number <= newest
        {
            self.in_flight.pop_front();
            self.path.controller_mut().on_packet_lost(LostPacket {
                now,
                packet_number: packet.number,
                bytes: PACKET_BYTES,
            });
            (lost_bytes, sent) = (lost_bytes + PACKET_BYTES, Some(packet.sent));
            self.record.lost += 1;
        }
        if let Some(sent) = sent {
            self.path
                .controller_mut()
                .on_congestion_event(CongestionEvent {
                    now,
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
}
