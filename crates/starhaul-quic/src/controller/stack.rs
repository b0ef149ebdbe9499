//! What the QUIC stack below calls as its own `Controller`. It gets the window and never paces, because the node decides when a
//! datagram may leave before the session selects it.
//!
//! The stack tells of each packet by itself. What it tells of the packets of a batch, or of an acknowledgement, is taken together at its end,
//! under one lock: nothing is asked before.

use std::{any::Any, sync::Arc, time::Instant};

use noq_proto::{
    RttEstimator,
    congestion::{self, ControllerMetrics},
};
use parking_lot::MutexGuard;
use starhaul_cc::{CongestionEvent, LostPacket};

use super::{Carried, DatagramFate, PathControl, PathControlHandle, TrainFlight};

/// Most packets that are told of together: more make it no cheaper.
const MOST_TOGETHER: usize = 64;

/// See the [module](self).
#[derive(Debug)]
pub(super) struct Stack {
    handle: PathControlHandle,
    /// Packets that left since the end of the last batch.
    sent: Vec<Sent>,
    /// Packets that the acknowledgement names that is being read.
    acked: Vec<Acked>,
}

#[derive(Clone, Copy, Debug)]
struct Sent {
    now: Instant,
    bytes: u64,
    number: u64,
}

#[derive(Clone, Copy, Debug)]
struct Acked {
    now: Instant,
    sent: Instant,
    bytes: u64,
    number: u64,
}

impl Stack {
    pub(super) const fn new(handle: PathControlHandle) -> Self {
        Self {
            handle,
            sent: Vec::new(),
            acked: Vec::new(),
        }
    }

    fn tell(&mut self) {
        if !(self.sent.is_empty() && self.acked.is_empty()) {
            drop(self.told());
        }
    }

    /// The control, once it was told of all packets.
    fn told(&mut self) -> MutexGuard<'_, PathControl> {
        let mut control = self.handle.lock();
        for packet in self.sent.drain(..) {
            control.on_packet_sent(packet);
        }
        for packet in self.acked.drain(..) {
            control.acked(packet.now, packet.sent, packet.bytes, packet.number);
        }
        control
    }
}

impl PathControl {
    /// A packet that asks for an acknowledgement left.
    fn on_packet_sent(&mut self, packet: Sent) {
        let Sent {
            now,
            bytes,
            number: pn,
        } = packet;
        self.now = now;
        if self.confirmed && self.shown_from.is_none() {
            self.shown_from = Some(pn);
        }
        self.told_bytes += bytes;
        let in_flight = self.bytes_in_flight;
        let carried = self.match_datagram(pn, bytes);
        if let Some(record) = &mut self.record {
            let datagram = carried.and_then(Carried::datagram);
            record.on_sent(now, pn, bytes, datagram);
        }
        match carried {
            // Paced when it was given to the stack.
            Some(Carried::Datagram(_)) => {}
            // Its fate depends on its size, not on the path's capacity: the controller does not see it.
            Some(Carried::Probe) => {
                self.bytes_in_flight = in_flight.saturating_add(bytes);
                return;
            }
            Some(Carried::Train) => return,
            None => self.pacer.on_sent(now, bytes),
        }
        self.packet_size.on_sent(bytes);
        if in_flight.saturating_add(bytes) > self.path.controller().full_window() / 2 {
            // A sender that fills more than half the window is not app-limited.
            self.idle = false;
        }
        let flight = in_flight.saturating_add(bytes);
        let is_limited = self.idle || self.path.is_rate_limited(flight, self.smoothed_rtt);
        self.path.on_sent(now, is_limited);
        if self.is_shown(pn) {
            self.path
                .controller_mut()
                .on_packet_sent(now, pn, bytes, in_flight, is_limited);
        }
        // Until this packet is acknowledged, what the path delivers still shows the pause before it.
        self.idle &= self.drained;
        self.bytes_in_flight = in_flight.saturating_add(bytes);
    }
}

impl congestion::ControllerFactory for PathControlHandle {
    fn build(self: Arc<Self>, now: Instant, current_mtu: u16) -> Box<dyn congestion::Controller> {
        let mut control = self.lock();
        control.now = now;
        control.mtu = current_mtu;
        if control.built {
            // Migrated to an address that looks like another network, where nothing is known.
            control.abandon_outstanding();
            control.bytes_in_flight = 0;
            control.elsewhere = 0;
            control.train = TrainFlight::default();
            control.begin(now);
        }
        control.built = true;
        drop(control);
        Box::new(Stack::new(PathControlHandle::clone(&self)))
    }
}

impl congestion::Controller for Stack {
    fn on_packet_sent(&mut self, now: Instant, bytes: u16, pn: u64) {
        if !self.acked.is_empty() || self.sent.len() >= MOST_TOGETHER {
            self.tell();
        }
        self.sent.push(Sent {
            now,
            bytes: bytes.into(),
            number: pn,
        });
    }

    /// All packets of a batch were told of.
    fn on_sent(&mut self, _now: Instant, _bytes: u64, _largest_pn: u64) {
        self.tell();
    }

    fn on_ack(
        &mut self,
        now: Instant,
        sent: Instant,
        bytes: u64,
        pn: u64,
        _app_limited: bool,
        _rtt: &RttEstimator,
    ) {
        if !self.sent.is_empty() || self.acked.len() >= MOST_TOGETHER {
            self.tell();
        }
        self.acked.push(Acked {
            now,
            sent,
            bytes,
            number: pn,
        });
    }

    fn on_end_acks(
        &mut self,
        now: Instant,
        in_flight: u64,
        _app_limited: bool,
        _largest_packet_num_acked: Option<u64>,
    ) {
        let control = &mut *self.told();
        control.now = now;
        let unseen = control.train.bytes() + control.elsewhere;
        let in_flight = in_flight.saturating_sub(unseen);
        control.bytes_in_flight = in_flight;
        if control.shown_from.is_some() {
            control.path.controller_mut().on_end_of_acks(now, in_flight);
        }
        if let Some(record) = &mut control.record {
            record.on_end_of_acks(now, &control.path, in_flight, control.smoothed_rtt);
        }
    }

    fn on_packet_lost(&mut self, lost_bytes: u16, pn: u64, now: Instant) {
        let control = &mut *self.told();
        let bytes = u64::from(lost_bytes);
        control.now = now;
        if let Some(record) = &mut control.record {
            record.on_lost(now, pn, bytes);
        }
        if control.train.take(pn, bytes) {
            control.lost_unseen += bytes;
            return;
        }
        control.leaves_flight(pn, bytes);
        let is_probe = control.packet_size.is_probe(pn);
        // The stack added an acknowledgement, or the path became narrower: size is the reason, not congestion.
        let is_too_large = bytes > u64::from(control.packet_size.bytes());
        if control.packet_size.on_lost(now, pn, bytes) {
            control.on_packet_size();
        }
        if is_probe {
            control.lost_unseen += bytes;
            return;
        }
        if let Some(sequence) = control.outstanding.remove(pn, None) {
            control.fates.push(DatagramFate::Lost { at: now, sequence });
        }
        if is_too_large {
            control.lost_unseen += bytes;
        } else if control.is_shown(pn) {
            control.path.controller_mut().on_packet_lost(LostPacket {
                now,
                packet_number: pn,
                bytes,
            });
        }
    }

    fn on_congestion_event(
        &mut self,
        now: Instant,
        sent: Instant,
        is_persistent_congestion: bool,
        is_ecn: bool,
        lost_bytes: u64,
        largest_lost_pn: u64,
    ) {
        let control = &mut *self.told();
        control.now = now;
        let unseen = std::mem::take(&mut control.lost_unseen);
        let lost_bytes = lost_bytes.saturating_sub(unseen);
        if unseen > 0 && lost_bytes == 0 && !is_ecn {
            return;
        }
        if is_ecn && control.train.spans(largest_lost_pn) {
            return;
        }
        if is_persistent_congestion {
            control.train.give_up();
        }
        if control.is_shown(largest_lost_pn) {
            control
                .path
                .controller_mut()
                .on_congestion_event(CongestionEvent {
                    now,
                    sent,
                    persistent: is_persistent_congestion,
                    ecn: is_ecn,
                    lost_bytes,
                });
        }
    }

    fn on_spurious_congestion_event(&mut self) {
        let control = &mut *self.told();
        let now = control.now;
        control
            .path
            .controller_mut()
            .on_spurious_congestion_event(now);
    }

    fn on_mtu_update(&mut self, new_mtu: u16) {
        let control = &mut *self.told();
        control.mtu = new_mtu;
        control.pacer.on_mtu_update(new_mtu);
        control.path.controller_mut().on_mtu_update(new_mtu);
    }

    /// The node gives datagrams to the stack only within [`PathControl::permit`].
    fn window(&self) -> u64 {
        u64::MAX
    }

    fn metrics(&self) -> ControllerMetrics {
        let mut metrics = ControllerMetrics::default();
        // The stack does not pace a window so large; we pace.
        metrics.congestion_window = u64::MAX;
        metrics
    }

    fn clone_box(&self) -> Box<dyn congestion::Controller> {
        // Only done when the peer's port changed: the network behind it is the same.
        let mut control = self.handle.lock();
        control.abandon_outstanding();
        (control.bytes_in_flight, control.elsewhere) = (0, 0);
        control.train.abandon();
        // The stack reports no fate of older packets.
        let now = control.now;
        control.packet_size.abandon_sent(now);
        drop(control);
        Box::new(Self::new(self.handle.clone()))
    }

    fn initial_window(&self) -> u64 {
        self.handle.lock().path.controller().cwnd().max(1)
    }

    fn into_any(self: Box<Self>) -> Box<dyn Any> {
        self
    }
}
