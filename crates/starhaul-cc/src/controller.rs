//! The interface of every congestion controller: it takes each packet's sending and fate, and gives a window and a
//! pacing rate.

use std::{
    fmt,
    time::{Duration, Instant},
};

use starhaul_units::Bandwidth;

use crate::{PathModel, Reconfiguration};

/// One packet that the peer acknowledged.
#[derive(Clone, Copy, Debug)]
pub struct AckedPacket {
    /// When the acknowledgement arrived.
    pub now: Instant,
    /// When the packet was sent; `now - sent` is the RTT sample (it includes the peer's ack delay).
    pub sent: Instant,
    /// Packet number, increasing in order of sending.
    pub packet_number: u64,
    /// Size in bytes.
    pub bytes: u64,
}

/// One packet declared lost.
#[derive(Clone, Copy, Debug)]
pub struct LostPacket {
    /// When the loss was declared.
    pub now: Instant,
    /// Packet number, increasing in order of sending.
    pub packet_number: u64,
    /// Size in bytes.
    pub bytes: u64,
}

/// A group of losses (or an ECN mark) that a controller should treat as one signal.
#[derive(Clone, Copy, Debug)]
pub struct CongestionEvent {
    /// When the loss or the mark was declared.
    pub now: Instant,
    /// When the newest packet of the group was sent.
    pub sent: Instant,
    /// RFC 9002 §7.6: persistent congestion, all packets over a long period were lost.
    pub persistent: bool,
    /// The event is an ECN mark, not a loss.
    pub ecn: bool,
    /// Bytes lost; 0 for ECN.
    pub lost_bytes: u64,
}

/// Decides how many bytes may be in flight and how fast they leave. One per path and flow.
///
/// The caller reports every packet sent and its fate; in between it reads [`Controller::cwnd`] and
/// [`Controller::pacing_rate`]. The losses found with an ACK may be reported before or after its end.
pub trait Controller: fmt::Debug + Send + Sync {
    /// A packet of `bytes` was sent. `bytes_in_flight` counts the bytes in flight before it; `app_limited` is set if
    /// the sender had less to send than the controller allowed.
    fn on_packet_sent(
        &mut self,
        now: Instant,
        packet_number: u64,
        bytes: u64,
        bytes_in_flight: u64,
        app_limited: bool,
    );
    /// A packet was acknowledged.
    fn on_ack(&mut self, packet: AckedPacket);
    /// The end of one incoming ACK; `bytes_in_flight` is what remains.
    fn on_end_of_acks(&mut self, now: Instant, bytes_in_flight: u64);
    /// A packet was lost (called for each, before the group's [`Controller::on_congestion_event`]).
    fn on_packet_lost(&mut self, packet: LostPacket);
    /// Losses or an ECN mark, once per group.
    fn on_congestion_event(&mut self, event: CongestionEvent);
    /// The last congestion event was spurious: all its packets were acknowledged after all.
    fn on_spurious_congestion_event(&mut self, now: Instant);
    /// A reconfiguration of the satellite path, signalled at `now`, which may be later than [`Reconfiguration::at`].
    /// [`PathController`](crate::PathController) calls this once for each event. Ignored unless a controller overrides
    /// it.
    fn on_reconfiguration(&mut self, _now: Instant, _reconfiguration: Reconfiguration) {}
    /// The RTT of the satellite segment alone, measured by the prober of this host (LeoCC §4.3's RTT_term-PoP). Ignored
    /// unless a controller overrides it.
    fn on_segment_rtt(&mut self, _now: Instant, _rtt: Duration) {}
    /// The path seems to carry this window in each of its round trips: one that has not found the path's capacity yet may go on from there.
    /// Never reduces a window. Ignored unless a controller overrides it.
    fn widen_start(&mut self, _window_bytes: u64, _rtt: Duration) {}
    /// Packets wait in the path's queue for longer than their sender accepts, so startup has reached the path's
    /// capacity. Ignored unless a controller overrides it.
    fn on_queue(&mut self, _now: Instant) {}
    /// Whether people wait for a part of what is sent, while the rest takes all that the path carries: a shorter queue is then worth a
    /// few percent of the rate. Ignored unless a controller overrides it.
    fn prefer_short_queue(&mut self, _preferred: bool) {}
    /// All round trips of late took more than twice the least: the path itself may have become longer. Returns whether the controller
    /// empties the path to measure it, which none does that does not override it.
    fn on_longer_path(&mut self) -> bool {
        false
    }
    /// The path's RTT without a queue is known to be this, longer than the least RTT of late. Ignored unless a controller overrides it.
    fn on_path_rtt(&mut self, _now: Instant, _rtt: Duration) {}
    /// Sets the largest packet that the path carries, in bytes.
    fn on_mtu_update(&mut self, mtu_bytes: u16);
    /// Bytes that may be in flight; never 0.
    fn cwnd(&self) -> u64;
    /// The window apart from what a recovery or a measurement of the RTT takes of it for a while: how much is in flight beside it tells
    /// whether the path or the application limits the sender.
    fn full_window(&self) -> u64 {
        self.cwnd()
    }
    /// The rate at which to pace; `None` leaves it to the pacer (1.25 × cwnd per smoothed RTT).
    fn pacing_rate(&self) -> Option<Bandwidth>;
    /// The estimate of the path's capacity, if the controller has one.
    fn bandwidth_estimate(&self) -> Option<Bandwidth>;
    /// The share of full packets that the link itself loses, where a modem tells of its bit errors. `None` unless a controller overrides it.
    fn told_loss(&self) -> Option<f64> {
        None
    }
    /// The name under which the controller is configured, e.g. `cubic`.
    fn name(&self) -> &'static str;
    /// The controller's phase, for people, e.g. `startup`.
    fn state(&self) -> &'static str;
    /// The controller's model of the path, if it has one.
    fn model(&self) -> Option<PathModel> {
        None
    }
}
