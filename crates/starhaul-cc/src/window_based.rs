//! One controller for all window-based laws: it has the window, its recovery periods, and the undo of spurious
//! decreases (RFC 9438 §4.9.2, RFC 4015 §3.2); each [`Law`] has growth and decrease.

use std::{
    fmt,
    time::{Duration, Instant},
};

use starhaul_units::Bandwidth;

use crate::{
    AckedPacket, CongestionEvent, Controller, LostPacket, Reconfiguration,
    window::{Growth, Window},
};

/// The growth and decrease of a window.
pub(crate) trait Law: Clone + fmt::Debug + Default + Send + Sync + 'static {
    /// The name in configurations.
    const NAME: &'static str;

    /// A packet that needed the window was acknowledged: `bytes` of it may increase the window.
    fn on_acked(&mut self, window: &mut Window, packet: &AckedPacket, bytes: f64);
    /// Any packet was acknowledged; called before [`Law::on_acked`].
    fn on_feedback(&mut self, _window: &mut Window, _packet: &AckedPacket) {}
    /// A packet was acknowledged that did not need the window.
    fn on_underused(&mut self, _now: Instant) {}
    /// Sending begins again after nothing was in flight for this time, longer than a round trip.
    fn on_idle(&mut self, _idle: Duration) {}
    /// Decreases the window after a loss or mark outside the recovery period.
    fn decrease(&mut self, window: &mut Window);
    /// Persistent congestion; the window is about to restart.
    fn on_persistent_congestion(&mut self, _now: Instant) {}
    /// The path was reconfigured.
    fn on_reconfiguration(&mut self, _now: Instant, _event: &Reconfiguration) {}
    /// Undoes a decrease: the law is as it was `before`.
    fn restore(&mut self, before: Self) {
        *self = before;
    }
    /// Pacing rate in windows per RTT.
    fn pacing_gain(&self, window: &Window) -> f64 {
        window.default_pacing_gain()
    }
    /// The law's estimate of the path's capacity.
    fn bandwidth_estimate(&self) -> Option<Bandwidth> {
        None
    }
    /// The phase, for people and logs.
    fn state(&self, window: &Window) -> &'static str {
        window.state()
    }
}

/// A window controlled by the law `L`.
#[derive(Clone, Debug)]
pub(crate) struct WindowBased<L> {
    window: Window,
    law: L,
    before_decrease: Option<Box<BeforeDecrease<L>>>,
    /// When a packet was last sent or acknowledged.
    active_at: Option<Instant>,
}

#[derive(Clone, Debug)]
struct BeforeDecrease<L> {
    cwnd: f64,
    ssthresh: f64,
    law: L,
}

impl<L: Law> WindowBased<L> {
    /// Creates a controller in slow start, for packets of at most `mtu_bytes`.
    pub(crate) fn new(mtu_bytes: u16) -> Self {
        Self {
            window: Window::new(mtu_bytes),
            law: L::default(),
            before_decrease: None,
            active_at: None,
        }
    }

    /// A packet leaves while nothing is in flight. The next one of a small window waits for its turn as well, but for less than a
    /// round trip.
    fn on_resumed(&mut self, now: Instant) {
        let idle = self
            .active_at
            .map_or(Duration::ZERO, |at| now.saturating_duration_since(at));
        if self.window.smoothed_rtt().is_some_and(|rtt| idle > rtt) {
            self.law.on_idle(idle);
        }
    }

    fn undo_decrease(&mut self) {
        if let Some(before) = self.before_decrease.take()
            && self.window.cwnd_real() < before.cwnd
        {
            self.window.restore(before.cwnd, before.ssthresh);
            self.law.restore(before.law);
        }
    }
}

impl<L: Law> Controller for WindowBased<L> {
    fn on_packet_sent(
        &mut self,
        now: Instant,
        packet_number: u64,
        bytes: u64,
        bytes_in_flight: u64,
        app_limited: bool,
    ) {
        if bytes_in_flight == 0 {
            self.on_resumed(now);
        }
        self.active_at = self.active_at.max(Some(now));
        self.window
            .on_packet_sent(packet_number, bytes, bytes_in_flight, app_limited);
    }

    fn on_ack(&mut self, packet: AckedPacket) {
        let growth = self.window.on_ack(&packet);
        if growth == Growth::Unknown {
            return;
        }
        self.active_at = self.active_at.max(Some(packet.now));
        self.law.on_feedback(&mut self.window, &packet);
        match growth {
            Growth::Bytes(bytes) => self.law.on_acked(&mut self.window, &packet, bytes),
            Growth::Underused => self.law.on_underused(packet.now),
            Growth::InRecovery | Growth::Unknown => {}
        }
    }

    fn on_end_of_acks(&mut self, _now: Instant, _bytes_in_flight: u64) {
        self.window.on_end_of_acks();
    }

    fn on_packet_lost(&mut self, packet: LostPacket) {
        self.window.on_packet_lost(&packet);
    }

    fn on_congestion_event(&mut self, event: CongestionEvent) {
        if self.window.enter_recovery(&event) {
            self.before_decrease = Some(Box::new(BeforeDecrease {
                cwnd: self.window.cwnd_real(),
                ssthresh: self.window.ssthresh(),
                law: self.law.clone(),
            }));
            self.law.decrease(&mut self.window);
        }
        if event.persistent {
            self.law.on_persistent_congestion(event.now);
            self.window.collapse();
        }
    }

    fn on_spurious_congestion_event(&mut self, _now: Instant) {
        self.undo_decrease();
    }

    fn on_reconfiguration(&mut self, now: Instant, event: Reconfiguration) {
        self.law.on_reconfiguration(now, &event);
    }

    fn widen_start(&mut self, window_bytes: u64, _rtt: Duration) {
        self.window.widen_start(window_bytes);
    }

    fn on_mtu_update(&mut self, mtu_bytes: u16) {
        self.window.on_mtu_update(mtu_bytes);
    }

    fn cwnd(&self) -> u64 {
        self.window.cwnd()
    }

    fn pacing_rate(&self) -> Option<Bandwidth> {
        self.window.pacing_rate(self.law.pacing_gain(&self.window))
    }

    fn bandwidth_estimate(&self) -> Option<Bandwidth> {
        self.law.bandwidth_estimate()
    }

    fn name(&self) -> &'static str {
        L::NAME
    }

    fn state(&self) -> &'static str {
        self.law.state(&self.window)
    }
}
