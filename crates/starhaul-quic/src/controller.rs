//! The sending side of one path: its congestion controller and pacer, and the fate of each datagram.
//!
//! The QUIC stack sees it as its own `Controller` ([`stack`]).

use std::{
    collections::VecDeque,
    sync::Arc,
    time::{Duration, Instant},
};

use parking_lot::{Mutex, MutexGuard};
use starhaul_cc::{AckedPacket, ControllerConfig, Pacer, PathController, PathSignal, QueueWish};
use starhaul_session::PathUpdate;
use starhaul_units::Bandwidth;

use crate::{
    packet_size::{PacketBytes, PacketSize},
    qlog::PathRecord,
};

mod fate;
mod outstanding;
mod stack;
mod train;

pub(crate) use fate::DatagramFate;
use fate::push_acked;
use outstanding::Outstanding;
pub(crate) use train::TRAIN_PACKETS;
use train::TrainFlight;

/// A connection that waits for the pacer asks it again after this time at the latest.
const LONGEST_PAUSE: Duration = Duration::from_millis(200);
/// An acknowledgement that the pacer keeps waiting for less than this leaves with the data.
const LEAST_PASSED: Duration = Duration::from_millis(2);
/// Packets due within this time leave as one batch.
const PACING_QUANTUM: Duration = Duration::from_micros(500);
/// Approximate bytes that a packet adds to its datagram: header, frame type and length, tag.
pub(crate) const PACKET_OVERHEAD: usize = 38;

/// Whether full datagrams may leave now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Permit {
    /// So many bytes of packets, one full packet at least.
    Now(u64),
    /// The pacer allows it later.
    At(Instant),
    /// The window is full until the next acknowledgement.
    WindowFull,
}

/// Shared by a connection and the QUIC stack below it.
#[derive(Clone, Debug)]
pub(crate) struct PathControlHandle(Arc<Mutex<PathControl>>);

/// The state behind a [`PathControlHandle`].
#[derive(Debug)]
pub(crate) struct PathControl {
    config: ControllerConfig,
    path: PathController,
    pacer: Pacer,
    mtu: u16,
    /// Ack-eliciting bytes without a fate; corrected by the stack's own count at each acknowledgement.
    bytes_in_flight: u64,
    /// Packets since the handshake was confirmed, and only these, are shown to the controller:
    /// earlier ones come from three packet number spaces whose numbers overlap.
    shown_from: Option<u64>,
    confirmed: bool,
    /// The application limits what is sent: the session ran out of data for the path, and the first packet since it had more than
    /// may leave at once has not left yet.
    idle: bool,
    /// The session had nothing left for the path when it was last polled.
    drained: bool,
    /// Datagrams given to the stack that have not left. They leave in this order, one in a packet.
    given: VecDeque<Given>,
    given_bytes: usize,
    /// Size of the last datagram that left since [`PathControl::arm`].
    matched: Option<usize>,
    /// A packet as large as a datagram left that can have been none.
    surplus: bool,
    now: Instant,
    smoothed_rtt: Option<Duration>,
    outstanding: Outstanding,
    fates: Vec<DatagramFate>,
    built: bool,
    packet_size: PacketSize,
    /// A probe of the packet size left since [`PathControl::arm`].
    probe_left: bool,
    train: TrainFlight,
    /// Bytes of probes, of trains and of too large packets lost since the last congestion event; the controller does not see them.
    lost_unseen: u64,
    /// Bytes of packets that the stack told of since its last batch.
    told_bytes: u64,
    /// Bytes under way that left before this end moved to another network.
    elsewhere: u64,
    record: Option<PathRecord>,
}

/// A datagram in the stack.
#[derive(Clone, Copy, Debug)]
struct Given {
    carried: Carried,
    size: usize,
}

#[derive(Clone, Copy, Debug)]
enum Carried {
    /// The session's, by its sequence number.
    Datagram(u32),
    /// A probe of the packet size.
    Probe,
    /// A packet of a train.
    Train,
}

impl Carried {
    /// The number of the session's datagram.
    const fn datagram(self) -> Option<u32> {
        match self {
            Self::Datagram(sequence) => Some(sequence),
            Self::Probe | Self::Train => None,
        }
    }
}

impl PathControlHandle {
    /// Control of a path with these sizes of packets.
    pub(crate) fn new(config: ControllerConfig, now: Instant, packet_bytes: PacketBytes) -> Self {
        let mtu = 1200;
        let PacketBytes { sure, most } = packet_bytes;
        Self(Arc::new(Mutex::new(PathControl {
            path: PathController::new(config.build(now, mtu)),
            config,
            pacer: Pacer::new(now, mtu),
            mtu,
            bytes_in_flight: 0,
            shown_from: None,
            confirmed: false,
            idle: false,
            drained: false,
            given: VecDeque::new(),
            given_bytes: 0,
            matched: None,
            surplus: false,
            now,
            smoothed_rtt: None,
            outstanding: Outstanding::default(),
            fates: Vec::new(),
            built: false,
            packet_size: PacketSize::new(now, sure, most),
            probe_left: false,
            train: TrainFlight::default(),
            lost_unseen: 0,
            told_bytes: 0,
            elsewhere: 0,
            record: None,
        })))
    }

    pub(crate) fn lock(&self) -> MutexGuard<'_, PathControl> {
        self.0.lock()
    }
}

impl PathControl {
    /// The handshake is confirmed: from now on there is one packet number space.
    pub(crate) fn confirm(&mut self) {
        self.confirmed = true;
    }

    /// From now on what happens is written there.
    pub(crate) fn set_record(&mut self, record: Option<PathRecord>) {
        self.record = record;
    }

    /// This end is at another network: nothing is known of its path, and its size is to be found. What is under way over the former
    /// one may still arrive; it neither fills the window nor tells the new controller anything.
    pub(crate) fn on_move(&mut self, now: Instant) {
        self.now = now;
        self.elsewhere = self.elsewhere.saturating_add(self.bytes_in_flight);
        self.bytes_in_flight = 0;
        self.train.leave();
        self.begin(now);
        self.path.on_other_network(now);
    }

    /// A controller that knows nothing, and the least packet size.
    fn begin(&mut self, now: Instant) {
        self.packet_size.restart(now);
        let bytes = self.packet_size.bytes();
        self.path.restart(self.config.build(now, bytes));
        self.pacer = Pacer::new(now, bytes);
        self.shown_from = None;
    }

    /// The fate of a packet is known: of one that left before this end moved, nothing else counts.
    fn leaves_flight(&mut self, number: u64, bytes: u64) {
        match self.elsewhere > 0 && !self.is_shown(number) {
            true => self.elsewhere = self.elsewhere.saturating_sub(bytes),
            false => self.bytes_in_flight = self.bytes_in_flight.saturating_sub(bytes),
        }
    }

    /// Changes the controller; the new one does not see packets that have left already.
    pub(crate) fn replace(&mut self, now: Instant, config: ControllerConfig) {
        self.path.replace(config.build(now, self.mtu));
        self.config = config;
        self.shown_from = None;
    }

    /// What may leave now, besides what was given to the stack.
    pub(crate) fn permit(&mut self, now: Instant) -> Permit {
        let mtu = u64::from(self.mtu);
        let window = self.path.window(self.mtu);
        let room = window.saturating_sub(self.bytes_committed());
        if room < mtu {
            return Permit::WindowFull;
        }
        let rate = self.path.pacing_rate(self.smoothed_rtt);
        let Some(at) = self.pacer.next_send(now, rate, mtu) else {
            return Permit::Now(room.min(self.pacer.allowance(now, rate)));
        };
        // If it has to wait, it waits until a few packets can leave as one batch.
        let quantum = rate.bytes_in(PACING_QUANTUM).clamp(mtu, 32 * mtu);
        let at = self.pacer.next_send(now, rate, quantum).unwrap_or(at);
        // The rate may change meanwhile, by a feed for example.
        Permit::At(at.min(now + LONGEST_PAUSE))
    }

    /// Bytes in flight once everything given to the stack has left.
    pub(crate) fn bytes_committed(&self) -> u64 {
        let given = self.given_bytes + self.given.len() * PACKET_OVERHEAD;
        self.bytes_in_flight.saturating_add(given as u64)
    }

    /// Sets the greatest rate at which packets may leave.
    pub(crate) fn set_rate_limit(&mut self, limit: Option<Bandwidth>) {
        self.path.set_rate_limit(limit);
    }

    /// Sets what the session asks of the path's queue.
    pub(crate) fn set_queue_wish(&mut self, wish: QueueWish) {
        self.path.set_queue_wish(wish);
    }

    /// The session was polled for what may leave now, and had less than that if it `drained`.
    pub(crate) fn on_polled(&mut self, drained: bool) {
        self.drained = drained;
        self.idle |= drained;
    }

    /// A datagram was given to the stack, by the pace or beside it.
    pub(crate) fn give(&mut self, now: Instant, sequence: u32, size: usize, is_paced: bool) {
        let carried = Carried::Datagram(sequence);
        match is_paced {
            true => self.push_given(now, carried, size),
            false => self.push_unpaced(carried, size),
        }
    }

    /// Whether a small packet may leave now that waits until then otherwise: the window has room, no limit of the rate holds for
    /// whatever leaves, and it would wait for longer than a batch may take.
    pub(crate) fn may_pass(&self, now: Instant, paced_until: Instant) -> bool {
        paced_until > now + LEAST_PASSED
            && self.path.rate_limit().is_none()
            && self.bytes_committed() + self.full_packet() <= self.path.window(self.mtu)
    }

    /// A probe of the packet size was given to the stack.
    pub(crate) fn give_probe(&mut self, now: Instant, size: usize) {
        self.packet_size.on_given();
        self.push_given(now, Carried::Probe, size);
    }

    /// The train leaves.
    pub(crate) fn begin_train(&mut self) {
        self.train.begin();
    }

    /// A packet of a train was given to the stack; nothing paces it.
    pub(crate) fn give_train(&mut self, size: usize) {
        self.push_unpaced(Carried::Train, size);
    }

    /// Whether a train is to leave now, to measure the path: once for each network.
    pub(crate) fn is_train_due(&mut self) -> bool {
        let rtt = self.path.rtt_floor().filter(|_| self.confirmed);
        let is_limited = self.path.rate_limit().is_some();
        self.train.is_due(rtt, is_limited)
    }

    fn push_given(&mut self, now: Instant, carried: Carried, size: usize) {
        self.push_unpaced(carried, size);
        self.pacer.on_sent(now, (size + PACKET_OVERHEAD) as u64);
    }

    fn push_unpaced(&mut self, carried: Carried, size: usize) {
        self.given.push_back(Given { carried, size });
        self.given_bytes += size;
    }

    /// Bytes of a full packet, as the window and the pacer count them.
    pub(crate) fn full_packet(&self) -> u64 {
        self.mtu.into()
    }

    /// The number of datagrams waiting in the stack.
    pub(crate) fn given(&self) -> usize {
        self.given.len()
    }

    /// At least the bytes of packets that they take.
    pub(crate) fn given_room(&self) -> usize {
        self.given_bytes + self.given.len() * 2 * PACKET_OVERHEAD
    }

    /// The stack is about to be polled.
    pub(crate) fn arm(&mut self) {
        self.matched = None;
        self.surplus = false;
        self.probe_left = false;
    }

    /// Whether a probe left when the stack was polled last.
    pub(crate) fn probe_left(&self) -> bool {
        self.probe_left
    }

    /// The packet size and the search for a larger one.
    pub(crate) fn packet_size(&mut self) -> &mut PacketSize {
        &mut self.packet_size
    }

    /// Whether the stack must send its own frames before it gets a datagram of this size.
    pub(crate) fn may_be_exceeded(&self, datagram_bytes: usize) -> bool {
        self.given.is_empty() && self.packet_size.may_be_exceeded(datagram_bytes)
    }

    /// The packet size changed.
    fn on_packet_size(&mut self) {
        let bytes = self.packet_size.bytes();
        self.pacer.on_mtu_update(bytes);
        self.path.controller_mut().on_mtu_update(bytes);
    }

    /// The stack was polled and still has `waiting_bytes` of datagrams. If that is not what is expected, because it dropped some
    /// or filled a packet with other frames, the fate of no datagram is certain, and all count as lost.
    pub(crate) fn settle(&mut self, waiting_bytes: usize) {
        if self.surplus || waiting_bytes != self.given_bytes {
            let now = self.now;
            for given in self.given.drain(..) {
                match given.carried {
                    Carried::Datagram(sequence) => {
                        self.fates.push(DatagramFate::Lost { at: now, sequence })
                    }
                    Carried::Probe => self.packet_size.on_probe_dropped(now),
                    Carried::Train => {}
                }
            }
            self.given_bytes = 0;
            self.abandon_outstanding();
        }
    }

    /// A packet left: the datagram that it carries, if it is one given to the stack.
    fn match_datagram(&mut self, number: u64, sent_bytes: u64) -> Option<Carried> {
        let bytes = usize::try_from(sent_bytes).unwrap_or(usize::MAX);
        let Some(&Given { carried, size }) = self.given.front() else {
            self.surplus |= self.matched.is_some_and(|size| bytes >= size);
            return None;
        };
        if bytes < size {
            return None;
        }
        self.given.pop_front();
        self.given_bytes -= size;
        self.matched = Some(size);
        let (now, fates) = (self.now, &mut self.fates);
        match carried {
            Carried::Datagram(sequence) => {
                self.outstanding.insert(number, now, sequence, |sequence| {
                    fates.push(DatagramFate::Lost { at: now, sequence });
                });
            }
            Carried::Probe => {
                self.packet_size.on_probe_sent(now, number);
                self.probe_left = true;
            }
            Carried::Train => self.train.on_sent(number, sent_bytes),
        }
        Some(carried)
    }

    fn acked(&mut self, now: Instant, sent: Instant, bytes: u64, number: u64) {
        self.now = now;
        if let Some(record) = &mut self.record {
            record.on_acked(number);
        }
        if self.train.take(number, bytes) {
            self.path
                .on_rtt(now, now.saturating_duration_since(sent), bytes);
            return;
        }
        self.leaves_flight(number, bytes);
        let is_probe = self.packet_size.is_probe(number);
        if self.packet_size.on_acked(now, sent, number, bytes) {
            self.on_packet_size();
        }
        if is_probe {
            return;
        }
        if let Some(sequence) = self.outstanding.remove(number, Some(sent)) {
            push_acked(&mut self.fates, now, sequence);
        }
        if self.is_shown(number) {
            self.path.on_ack(AckedPacket {
                now,
                sent,
                packet_number: number,
                bytes,
            });
        } else {
            self.path
                .on_rtt(now, now.saturating_duration_since(sent), bytes);
        }
    }

    pub(crate) fn has_fates(&self) -> bool {
        !self.fates.is_empty()
    }

    /// Moves the fates learned since the last call to `fates`, which must be empty.
    pub(crate) fn take_fates(&mut self, fates: &mut Vec<DatagramFate>) {
        std::mem::swap(&mut self.fates, fates);
    }

    /// Packets of so many bytes left together. The stack tells nothing of those that only acknowledge; they count for the limit of the path, which
    /// then holds back what comes behind them.
    pub(crate) fn on_batch(&mut self, now: Instant, bytes: u64) {
        let told = std::mem::take(&mut self.told_bytes);
        if self.path.rate_limit().is_some() {
            self.pacer.on_sent(now, bytes.saturating_sub(told));
        }
    }

    /// The transport's figures for the session.
    pub(crate) fn update(&mut self, smoothed_rtt: Duration, max_datagram: usize) -> PathUpdate {
        self.smoothed_rtt = Some(smoothed_rtt);
        let window_rate = Bandwidth::from_bytes_over(self.path.controller().cwnd(), smoothed_rtt);
        // An estimate from a handshake reflects only how little was sent; the rate that the controller allows at once is an
        // estimate as well. In steady state half of its window per RTT is at most its estimate.
        let pacing_rate = self.path.pacing_rate(self.smoothed_rtt);
        let allowed = window_rate.scaled(0.5).min(pacing_rate);
        let estimate = self.path.controller().bandwidth_estimate();
        let bandwidth = estimate.map_or(window_rate, |estimate| estimate.max(allowed));
        let limits = [self.path.rate_limit(), self.path.shown_rate()];
        let limit = limits.into_iter().flatten().min().unwrap_or(Bandwidth::MAX);
        PathUpdate {
            cwnd: self.path.window(self.mtu),
            bytes_in_flight: self.bytes_committed(),
            bandwidth: bandwidth.min(limit),
            smoothed_rtt,
            min_rtt: self.path.rtt_floor().unwrap_or(smoothed_rtt),
            max_datagram,
        }
    }

    /// The controller and the signals that it was given.
    pub(crate) fn path(&self) -> &PathController {
        &self.path
    }

    /// Takes a signal; returns whether it was news.
    pub(crate) fn on_signal(&mut self, now: Instant, signal: PathSignal) -> bool {
        let is_train = matches!(signal, PathSignal::TrainRate(_));
        if is_train && !self.train.take_result() {
            return false;
        }
        let is_news = self.path.on_signal(now, signal);
        if is_news && is_train {
            // Its burst was that of a first flight, which leaves at once.
            self.pacer = Pacer::new(now, self.mtu);
        }
        is_news
    }

    fn is_shown(&self, packet_number: u64) -> bool {
        self.shown_from.is_some_and(|from| packet_number >= from)
    }

    /// Declares all datagrams in flight lost: the stack moves to another address and reports no fate of older packets.
    fn abandon_outstanding(&mut self) {
        let now = self.now;
        let fates = &mut self.fates;
        self.outstanding.drain(|sequence| {
            fates.push(DatagramFate::Lost { at: now, sequence });
        });
    }
}

#[cfg(test)]
mod tests;
