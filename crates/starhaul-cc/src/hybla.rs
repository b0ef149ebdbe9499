//! Hybla (Caini and Firrincieli, 2004): grows on every path as Reno does over 25 ms, so that a long RTT costs no
//! throughput. With the paper's companions: Hoe's bandwidth estimate as the first threshold of slow start, and packets
//! spaced over the RTT.

use std::time::{Duration, Instant};

use crate::{
    AckedPacket,
    limits::real,
    rtt::rtt_sample,
    window::Window,
    window_based::{Law, WindowBased},
};

/// RTT0: the RTT of the reference connection.
const REFERENCE_RTT: Duration = Duration::from_millis(25);
/// The first threshold of the reference connection, for paths without a bandwidth estimate.
const REFERENCE_SSTHRESH_BYTES: f64 = 65_535.0;
/// Hoe (1996) uses three packets sent together.
const ESTIMATE_PACKETS: u32 = 3;
const LOSS_REDUCTION_FACTOR: f64 = 0.5;
/// Bounds the exponent of 2^ρ; beyond it a step exceeds any threshold.
const MAX_DOUBLINGS: f64 = 32.0;
const MIN_PACING_GAIN: f64 = 1.25;

/// Hybla's congestion control.
pub(crate) type Hybla = WindowBased<HyblaLaw>;

/// The law: growth scaled by the ratio of the RTT to the reference.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct HyblaLaw {
    min_rtt: Option<Duration>,
    first_flight: FirstFlight,
}

/// The arrival rate of the packets that left together at the start.
#[derive(Clone, Copy, Debug, Default)]
struct FirstFlight {
    newest: Option<u64>,
    first_ack: Option<Instant>,
    last_ack: Option<Instant>,
    /// Bytes acknowledged after the first packet.
    bytes: f64,
    packets: u32,
    over: bool,
}

impl HyblaLaw {
    /// ρ from the least RTT, so that queueing does not make it more aggressive; at least 1.
    fn rho(&self) -> f64 {
        self.min_rtt
            .map_or(1.0, |rtt| rtt.div_duration_f64(REFERENCE_RTT).max(1.0))
    }

    fn slow_start(&mut self, window: &mut Window, bytes: f64) {
        if !self.first_flight.over && window.in_initial_slow_start() {
            return window.set_cwnd(window.cwnd_real() + bytes);
        }
        if window.in_initial_slow_start() {
            let rtt = self.min_rtt.unwrap_or(REFERENCE_RTT);
            let unknown = self.rho() * REFERENCE_SSTHRESH_BYTES;
            let estimate = self.first_flight.bytes_per_second();
            window.set_ssthresh(estimate.map_or(unknown, |rate| rate * rtt.as_secs_f64()));
        }
        let growth = self.rho().min(MAX_DOUBLINGS).exp2() - 1.0;
        let cwnd = window.cwnd_real();
        let grown = (cwnd + growth * bytes).min(window.ssthresh());
        window.set_cwnd(cwnd.max(grown));
    }
}

impl Law for HyblaLaw {
    const NAME: &'static str = "hybla";

    fn on_feedback(&mut self, window: &mut Window, packet: &AckedPacket) {
        let rtt = rtt_sample(packet);
        self.min_rtt = Some(self.min_rtt.map_or(rtt, |min| min.min(rtt)));
        self.first_flight.on_ack(packet, window.newest_sent());
    }

    fn on_acked(&mut self, window: &mut Window, _packet: &AckedPacket, bytes: f64) {
        if window.in_slow_start() {
            return self.slow_start(window, bytes);
        }
        let cwnd = window.cwnd_real();
        let increase = self.rho().powi(2) * window.max_datagram() * bytes / cwnd;
        // Bounds the growth of a window smaller than ρ² packets.
        window.set_cwnd(cwnd + increase.min(bytes));
    }

    fn decrease(&mut self, window: &mut Window) {
        window.decrease_to(window.cwnd_real() * LOSS_REDUCTION_FACTOR);
    }

    /// Spaces a window over the RTT, with room for its growth meanwhile.
    fn pacing_gain(&self, window: &Window) -> f64 {
        let rho = self.rho();
        let growth = if window.in_slow_start() {
            rho * std::f64::consts::LN_2
        } else {
            rho.powi(2) * window.max_datagram() / window.cwnd_real()
        };
        (1.0 + growth.min(MAX_DOUBLINGS)).max(MIN_PACING_GAIN)
    }
}

impl FirstFlight {
    fn on_ack(&mut self, packet: &AckedPacket, newest_sent: u64) {
        let newest = *self.newest.get_or_insert(newest_sent);
        if self.over {
            return;
        }
        self.over = packet.packet_number >= newest;
        if packet.packet_number > newest {
            return;
        }
        match self.first_ack {
            None => self.first_ack = Some(packet.now),
            Some(_) => {
                self.bytes += real(packet.bytes);
                self.packets += 1;
                self.last_ack = Some(packet.now);
            }
        }
    }

    /// `None` when too few packets left together, or all were acknowledged at once.
    fn bytes_per_second(&self) -> Option<f64> {
        let took = self.last_ack?.saturating_duration_since(self.first_ack?);
        (self.packets >= ESTIMATE_PACKETS && !took.is_zero())
            .then(|| self.bytes / took.as_secs_f64())
    }
}
