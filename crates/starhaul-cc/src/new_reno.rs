//! NewReno as QUIC keeps it (RFC 9002 §7, appendix B), with the decrease taken back when the losses
//! prove spurious (RFC 4015 §3.2).

use std::time::Instant;

use starhaul_units::Bandwidth;

use crate::{
    AckedPacket, CongestionEvent, Controller, LostPacket,
    window::{Growth, Window},
};

/// RFC 9002 §7.3.2.
const LOSS_REDUCTION_FACTOR: f64 = 0.5;

/// Additive increase, multiplicative decrease.
#[derive(Clone, Debug)]
pub struct NewReno {
    window: Window,
    before_decrease: Option<BeforeDecrease>,
}

#[derive(Clone, Copy, Debug)]
struct BeforeDecrease {
    cwnd: f64,
    ssthresh: f64,
}

impl NewReno {
    /// A controller in slow start, for packets of at most `mtu_bytes`.
    pub fn new(mtu_bytes: u16) -> Self {
        Self {
            window: Window::new(mtu_bytes),
            before_decrease: None,
        }
    }
}

impl Controller for NewReno {
    fn on_packet_sent(
        &mut self,
        _now: Instant,
        packet_number: u64,
        bytes: u64,
        bytes_in_flight: u64,
        app_limited: bool,
    ) {
        self.window
            .on_packet_sent(packet_number, bytes, bytes_in_flight, app_limited);
    }

    fn on_ack(&mut self, packet: AckedPacket) {
        let Growth::Bytes(acked) = self.window.on_ack(&packet) else {
            return;
        };
        let cwnd = self.window.cwnd_real();
        let increase = if self.window.in_slow_start() {
            acked
        } else {
            self.window.max_datagram() * acked / cwnd
        };
        self.window.set_cwnd(cwnd + increase);
    }

    fn on_end_of_acks(&mut self, _now: Instant, _bytes_in_flight: u64) {
        self.window.on_end_of_acks();
    }

    fn on_packet_lost(&mut self, packet: LostPacket) {
        self.window.on_packet_lost(&packet);
    }

    fn on_congestion_event(&mut self, event: CongestionEvent) {
        if self.window.enter_recovery(&event) {
            let cwnd = self.window.cwnd_real();
            self.before_decrease = Some(BeforeDecrease {
                cwnd,
                ssthresh: self.window.ssthresh(),
            });
            self.window.decrease_to(cwnd * LOSS_REDUCTION_FACTOR);
        }
        if event.persistent {
            self.window.collapse();
        }
    }

    fn on_spurious_congestion_event(&mut self, _now: Instant) {
        if let Some(before) = self.before_decrease.take() {
            self.window.restore(before.cwnd, before.ssthresh);
        }
    }

    fn on_mtu_update(&mut self, mtu_bytes: u16) {
        self.window.on_mtu_update(mtu_bytes);
    }

    fn cwnd(&self) -> u64 {
        self.window.cwnd()
    }

    fn pacing_rate(&self) -> Option<Bandwidth> {
        self.window.pacing_rate()
    }

    fn bandwidth_estimate(&self) -> Option<Bandwidth> {
        None
    }

    fn name(&self) -> &'static str {
        "newreno"
    }

    fn state(&self) -> &'static str {
        self.window.state()
    }

    fn clone_box(&self) -> Box<dyn Controller> {
        Box::new(self.clone())
    }
}
