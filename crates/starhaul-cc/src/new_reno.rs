//! NewReno as in QUIC (RFC 9002 §7, appendix B), with the undo of spurious decreases (RFC 4015 §3.2).

use crate::{
    AckedPacket,
    window::Window,
    window_based::{Law, WindowBased},
};

/// Factor of a decrease (RFC 9002 §7.3.2).
const LOSS_REDUCTION_FACTOR: f64 = 0.5;

/// NewReno's congestion control.
pub(crate) type NewReno = WindowBased<Reno>;

/// The law: additive increase, multiplicative decrease.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Reno;

impl Law for Reno {
    const NAME: &'static str = "newreno";

    fn on_acked(&mut self, window: &mut Window, _packet: &AckedPacket, bytes: f64) {
        let cwnd = window.cwnd_real();
        let increase = if window.in_slow_start() {
            bytes
        } else {
            window.max_datagram() * bytes / cwnd
        };
        window.set_cwnd(cwnd + increase);
    }

    fn decrease(&mut self, window: &mut Window) {
        window.decrease_to(window.cwnd_real() * LOSS_REDUCTION_FACTOR);
    }
}
