//! Vegas (Brakmo and Peterson, 1995): keeps two to four packets of its own in the queue, estimated from the RTT's
//! excess over its minimum. Decreases on loss are Reno's, as in Linux.

use std::time::{Duration, Instant};

use crate::{
    AckedPacket,
    rtt::rtt_sample,
    window::Window,
    window_based::{Law, WindowBased},
};

/// Fewer packets queued than this: the window grows by one packet a round.
const ALPHA_PACKETS: f64 = 2.0;
/// More packets queued than this: the window shrinks by one packet a round.
const BETA_PACKETS: f64 = 4.0;
/// More packets queued than this end slow start.
const GAMMA_PACKETS: f64 = 1.0;
/// A round with fewer samples may consist of delayed acknowledgements only: grow as Reno.
const MIN_SAMPLES: u32 = 3;
const LOSS_REDUCTION_FACTOR: f64 = 0.5;

/// Vegas' congestion control.
pub(crate) type Vegas = WindowBased<VegasLaw>;

/// The law: one adjustment each round by the estimated queue.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct VegasLaw {
    /// Never expires: Vegas takes a longer path for a queue.
    base_rtt: Option<Duration>,
    round_min_rtt: Option<Duration>,
    samples: u32,
    /// In slow start the window grows only every other round, so that the rounds between measure the queue with a
    /// steady window.
    measuring: bool,
    /// The round ends when this packet is acknowledged; `None` before the first.
    round_end: Option<u64>,
}

impl VegasLaw {
    /// `last_rtt` is that of the first packet sent in the round; its acknowledgement ends the round.
    fn end_round(&mut self, window: &mut Window, last_rtt: Duration) {
        let (samples, round_min_rtt) = (self.samples, self.round_min_rtt.take());
        self.measuring = !self.measuring;
        self.samples = 0;
        let (Some(base), Some(round_min_rtt)) = (self.base_rtt, round_min_rtt) else {
            return;
        };
        // With a steady window the least RTT is free of jitter; in slow start it is out of date.
        let rtt = if window.in_slow_start() {
            last_rtt
        } else {
            round_min_rtt
        };
        let (cwnd, packet) = (window.cwnd_real(), window.max_datagram());
        if samples < MIN_SAMPLES {
            if !window.in_slow_start() {
                window.set_cwnd(cwnd + packet);
            }
            return;
        }
        // Packets in the queue: actual rate times queueing delay.
        let unqueued = cwnd * base.div_duration_f64(rtt);
        let queued = (cwnd - unqueued) / packet;
        if window.in_slow_start() {
            if queued > GAMMA_PACKETS {
                window.set_cwnd(cwnd.min(unqueued + packet));
                window.end_slow_start();
            }
        } else if queued > BETA_PACKETS {
            window.decrease_to(cwnd - packet);
        } else if queued < ALPHA_PACKETS {
            window.set_cwnd(cwnd + packet);
        }
    }
}

impl Law for VegasLaw {
    const NAME: &'static str = "vegas";

    fn on_feedback(&mut self, _window: &mut Window, packet: &AckedPacket) {
        let rtt = rtt_sample(packet);
        self.base_rtt = Some(self.base_rtt.map_or(rtt, |base| base.min(rtt)));
        self.round_min_rtt = Some(self.round_min_rtt.map_or(rtt, |min| min.min(rtt)));
        self.samples = self.samples.saturating_add(1);
    }

    fn on_acked(&mut self, window: &mut Window, packet: &AckedPacket, bytes: f64) {
        if window.in_slow_start() && !self.measuring {
            window.set_cwnd(window.cwnd_real() + bytes);
        }
        let newest_sent = window.newest_sent();
        if packet.packet_number >= *self.round_end.get_or_insert(newest_sent) {
            self.round_end = Some(newest_sent);
            self.end_round(window, rtt_sample(packet));
        }
    }

    fn decrease(&mut self, window: &mut Window) {
        window.decrease_to(window.cwnd_real() * LOSS_REDUCTION_FACTOR);
    }

    /// The path may be a different one now.
    fn on_persistent_congestion(&mut self, _now: Instant) {
        *self = Self::default();
    }
}
