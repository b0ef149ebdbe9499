//! The sending end: releases packets within the controller's window and at its pacing rate.

use std::{
    collections::VecDeque,
    sync::Arc,
    time::{Duration, Instant},
};

use starhaul_cc::{Controller, Pacer, PathController};
use starhaul_link::Opportunities;
use starhaul_units::Bandwidth;

use crate::{
    Ack, AckPolicy, DataPacket, PACKET_BYTES, RecoveryStats, RttEstimator, Source,
    recovery::{Outcome, Recovery},
};

const MTU_BYTES: u16 = 1500;
/// Opportunities lie on a grid of milliseconds; a packet must be there before.
const AHEAD: Duration = Duration::from_micros(500);

/// A bulk sender. After each input, drain [`Sender::poll_transmit`] and come back at [`Sender::poll_timeout`].
#[derive(Debug)]
pub struct Sender {
    start: Instant,
    source: Source,
    path: PathController,
    pacer: Pacer,
    recovery: Recovery,
    retransmit: VecDeque<u64>,
    next_chunk: u64,
    probes: u32,
    /// When the pacer or the application releases the next packet.
    send_at: Option<Instant>,
    foresight: Option<Foresight>,
}

/// When the link can carry a packet, known beforehand.
#[derive(Clone, Debug)]
struct Foresight {
    /// Start of the opportunities.
    epoch: Instant,
    opportunities: Arc<Opportunities>,
    /// Number of opportunities used or missed.
    used: u64,
}

impl Sender {
    /// Creates a sender that begins at `start`; the peer acknowledges by `policy`.
    pub fn new(
        start: Instant,
        source: Source,
        policy: AckPolicy,
        controller: Box<dyn Controller>,
    ) -> Self {
        Self {
            start,
            source,
            path: PathController::new(controller),
            pacer: Pacer::new(start, MTU_BYTES),
            recovery: Recovery::new(policy.max_delay),
            retransmit: VecDeque::new(),
            next_chunk: 0,
            probes: 0,
            send_at: Some(start),
            foresight: None,
        }
    }

    /// Makes it the oracle that no sender can surpass: each packet leaves half a millisecond before the link, whose
    /// opportunities began at `epoch`, can carry it, whatever window and pacing rate are. Losses are found as by others.
    pub fn foresee(&mut self, epoch: Instant, opportunities: Arc<Opportunities>) {
        let used = opportunities.until(self.start.saturating_duration_since(epoch) + AHEAD);
        self.foresight = Some(Foresight {
            epoch,
            opportunities,
            used,
        });
    }

    /// The next packet to send now.
    pub fn poll_transmit(&mut self, now: Instant) -> Option<DataPacket> {
        self.send_at = None;
        if now < self.start {
            self.send_at = Some(self.start);
            return None;
        }
        if self.probes > 0 {
            self.probes -= 1;
            let chunk = self
                .take_chunk(now)
                .or_else(|| self.recovery.oldest_chunk());
            return chunk.map(|chunk| self.send(now, chunk));
        }
        let window = match &self.foresight {
            Some(_) => u64::MAX,
            None => self.path.window(MTU_BYTES),
        };
        if self.recovery.bytes_in_flight() + PACKET_BYTES > window {
            return None;
        }
        if self.retransmit.is_empty() {
            let ready = self.source.ready_at(self.start, self.next_chunk);
            if ready.is_none_or(|ready| ready > now) {
                self.send_at = ready;
                return None;
            }
        }
        if let Some(at) = self.next_release(now) {
            self.send_at = Some(at);
            return None;
        }
        let chunk = self.take_chunk(now)?;
        Some(self.send(now, chunk))
    }

    /// The application of a [`Source::Given`] has offered so many packets by now.
    pub fn offer(&mut self, now: Instant, packets: u64) {
        if let Source::Given(offered) = &mut self.source {
            *offered = packets.max(*offered);
            self.send_at = Some(now.max(self.start));
        }
    }

    /// When to call [`Sender::handle_timeout`] and [`Sender::poll_transmit`] again.
    pub fn poll_timeout(&self) -> Option<Instant> {
        [self.send_at, self.recovery.timeout()]
            .into_iter()
            .flatten()
            .min()
    }

    /// Handles the timer of [`Sender::poll_timeout`].
    pub fn handle_timeout(&mut self, now: Instant) {
        let outcome = self.recovery.on_timeout(now, &mut self.path);
        self.take(outcome);
    }

    /// Takes an acknowledgement. Returns the RTT if it gave a sample: that of the newest packet it names, the
    /// receiver's delay included.
    pub fn handle_ack(&mut self, now: Instant, ack: &Ack) -> Option<Duration> {
        let outcome = self.recovery.on_ack(now, ack, &mut self.path);
        let rtt = outcome.rtt;
        self.take(outcome);
        rtt
    }

    /// The controller and what surrounds it, to read its state or to pass signals that no packet carries.
    pub fn path(&mut self) -> &mut PathController {
        &mut self.path
    }

    /// Counters of the sender's packets.
    pub fn stats(&self) -> RecoveryStats {
        self.recovery.stats()
    }

    /// The sender's RTT estimate.
    pub fn rtt(&self) -> &RttEstimator {
        self.recovery.rtt()
    }

    /// Bytes of packets with open fate.
    pub fn bytes_in_flight(&self) -> u64 {
        self.recovery.bytes_in_flight()
    }

    /// The numbers of packets with open fate.
    pub fn in_flight(&self) -> impl Iterator<Item = u64> + '_ {
        self.recovery.in_flight()
    }

    /// The present pacing rate.
    pub fn pacing_rate(&self) -> Bandwidth {
        self.path.pacing_rate(self.recovery.rtt().smoothed())
    }

    /// When the next packet may leave; `None` for now.
    fn next_release(&mut self, now: Instant) -> Option<Instant> {
        let Some(Foresight {
            epoch,
            opportunities,
            used,
        }) = &mut self.foresight
        else {
            let rate = self.pacing_rate();
            return self.pacer.next_send(now, rate, PACKET_BYTES);
        };
        let at = *epoch + opportunities.time_of(*used + 1).saturating_sub(AHEAD);
        if at > now {
            return Some(at);
        }
        *used += 1;
        None
    }

    fn take(&mut self, outcome: Outcome) {
        self.retransmit.extend(outcome.lost_chunks);
        self.probes = self.probes.max(outcome.probes);
    }

    fn take_chunk(&mut self, now: Instant) -> Option<u64> {
        if let Some(chunk) = self.retransmit.pop_front() {
            return Some(chunk);
        }
        let ready = self.source.ready_at(self.start, self.next_chunk)?;
        if ready > now {
            return None;
        }
        self.next_chunk += 1;
        Some(self.next_chunk - 1)
    }

    fn send(&mut self, now: Instant, chunk: u64) -> DataPacket {
        let in_flight = self.recovery.bytes_in_flight();
        let number = self.recovery.on_sent(now, chunk);
        self.pacer.on_sent(now, PACKET_BYTES);
        let more = !self.retransmit.is_empty()
            || self
                .source
                .ready_at(self.start, self.next_chunk)
                .is_some_and(|ready| ready <= now);
        self.path
            .controller_mut()
            .on_packet_sent(now, number, PACKET_BYTES, in_flight, !more);
        DataPacket { number, chunk }
    }
}
