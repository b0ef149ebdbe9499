//! CUBIC (RFC 9438) with its Reno-friendly region, fast convergence and undo of spurious decreases,
//! and HyStart++ (RFC 9406) for the end of the first slow start. Windows are in bytes where the RFC has segments.

use std::time::{Duration, Instant};

use starhaul_units::Bandwidth;

use crate::{
    AckedPacket, CongestionEvent, Controller, LostPacket,
    hystart::{HyStart, Step},
    rtt::rtt_sample,
    window::{Growth, Window},
};

/// RFC 9438 §4.6.
const BETA: f64 = 0.7;
/// RFC 9438 §5, in segments per cubic second.
const C: f64 = 0.4;
/// RFC 9438 §4.3: grows like Reno although it decreases less.
const ALPHA: f64 = 3.0 * (1.0 - BETA) / (1.0 + BETA);

/// Window growth by a cubic function of the time since the last decrease.
#[derive(Clone, Debug)]
pub struct Cubic {
    window: Window,
    hystart: HyStart,
    curve: Curve,
    /// Since when acknowledgements tell of an unused window; that time does not count as growth.
    underused_since: Option<Instant>,
    before_decrease: Option<Box<BeforeDecrease>>,
}

/// What the next increases follow.
#[derive(Clone, Debug, Default)]
struct Curve {
    /// The window to come back to; `None` when slow start ended without a loss, and after
    /// persistent congestion.
    w_max: Option<f64>,
    /// The window just before the last decrease.
    cwnd_prior: f64,
    /// Begins with the first increase after a decrease.
    epoch: Option<Epoch>,
}

#[derive(Clone, Debug)]
struct Epoch {
    start: Instant,
    k_secs: f64,
    origin: f64,
    w_est: f64,
}

#[derive(Clone, Debug)]
struct BeforeDecrease {
    cwnd: f64,
    ssthresh: f64,
    curve: Curve,
}

impl Cubic {
    /// A controller in slow start, for packets of at most `mtu_bytes`.
    pub fn new(mtu_bytes: u16) -> Self {
        Self {
            window: Window::new(mtu_bytes),
            hystart: HyStart::default(),
            curve: Curve::default(),
            underused_since: None,
            before_decrease: None,
        }
    }

    fn slow_start(&mut self, packet: &AckedPacket, acked: f64) {
        let cwnd = self.window.cwnd_real();
        if !self.window.in_initial_slow_start() {
            return self.window.set_cwnd(cwnd + acked);
        }
        let newest_sent = self.window.newest_sent();
        match self
            .hystart
            .on_ack(packet.packet_number, rtt_sample(packet), newest_sent)
        {
            Step::Grow(share) => self.window.set_cwnd(cwnd + acked * share),
            Step::Exit => self.window.end_slow_start(),
        }
    }

    fn congestion_avoidance(&mut self, now: Instant, acked: f64) {
        let cwnd = self.window.cwnd_real();
        let segment = self.window.max_datagram();
        let rtt = self.window.smoothed_rtt().unwrap_or_default();
        let cwnd_prior = self.curve.cwnd_prior;
        let epoch = self.curve.epoch(now, cwnd, segment);
        let elapsed = now.saturating_duration_since(epoch.start);

        // RFC 9438 §4.3: once the window before the decrease is regained, grow just as Reno.
        let alpha = if epoch.w_est >= cwnd_prior {
            1.0
        } else {
            ALPHA
        };
        epoch.w_est += alpha * segment * acked / cwnd;
        if epoch.w_cubic(elapsed, segment) < epoch.w_est {
            let w_est = epoch.w_est;
            return self.window.set_cwnd(cwnd.max(w_est));
        }
        let target = epoch
            .w_cubic(elapsed + rtt, segment)
            .clamp(cwnd, 1.5 * cwnd);
        self.window.set_cwnd(cwnd + (target - cwnd) / cwnd * acked);
    }

    fn decrease(&mut self) {
        let cwnd = self.window.cwnd_real();
        self.before_decrease = Some(Box::new(BeforeDecrease {
            cwnd,
            ssthresh: self.window.ssthresh(),
            curve: self.curve.clone(),
        }));
        // RFC 9438 §4.7: a flow that did not come back to its last maximum leaves room for others.
        let w_max = match self.curve.w_max {
            Some(w_max) if cwnd < w_max => cwnd * (1.0 + BETA) / 2.0,
            _ => cwnd,
        };
        self.curve = Curve {
            w_max: Some(w_max),
            cwnd_prior: cwnd,
            epoch: None,
        };
        self.window.decrease_to(cwnd * BETA);
    }
}

impl Controller for Cubic {
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
        match self.window.on_ack(&packet) {
            Growth::Bytes(acked) => {
                if let Some(since) = self.underused_since.take() {
                    self.curve
                        .pause(packet.now.saturating_duration_since(since));
                }
                if self.window.in_slow_start() {
                    self.slow_start(&packet, acked);
                } else {
                    self.congestion_avoidance(packet.now, acked);
                }
            }
            Growth::Underused => {
                self.underused_since.get_or_insert(packet.now);
            }
            Growth::None => {}
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
            self.decrease();
        }
        if event.persistent {
            // RFC 9438 §4.8: what was the maximum before says nothing now.
            self.curve.w_max = None;
            self.curve.epoch = None;
            self.window.collapse();
        }
    }

    fn on_spurious_congestion_event(&mut self, _now: Instant) {
        if let Some(before) = self.before_decrease.take()
            && self.window.cwnd_real() < before.cwnd
        {
            self.window.restore(before.cwnd, before.ssthresh);
            self.curve = before.curve;
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
        "cubic"
    }

    fn state(&self) -> &'static str {
        if self.window.in_initial_slow_start() && self.hystart.is_conservative() {
            "conservative_slow_start"
        } else {
            self.window.state()
        }
    }

    fn clone_box(&self) -> Box<dyn Controller> {
        Box::new(self.clone())
    }
}

impl Curve {
    /// The epoch in progress, or a new one from `cwnd` (RFC 9438 §4.2, §4.8, §4.10).
    fn epoch(&mut self, now: Instant, cwnd: f64, segment: f64) -> &mut Epoch {
        let origin = self.w_max.map_or(cwnd, |w_max| w_max.max(cwnd));
        self.epoch.get_or_insert_with(|| Epoch {
            start: now,
            k_secs: ((origin - cwnd) / segment / C).cbrt(),
            origin,
            w_est: cwnd,
        })
    }

    /// RFC 9438 §5.8: time without use of the window is no time on the curve.
    fn pause(&mut self, unused: Duration) {
        if let Some(epoch) = &mut self.epoch {
            epoch.start = epoch.start.checked_add(unused).unwrap_or(epoch.start);
        }
    }
}

impl Epoch {
    /// RFC 9438 §4.2, equation 1.
    fn w_cubic(&self, elapsed: Duration, segment: f64) -> f64 {
        C * (elapsed.as_secs_f64() - self.k_secs).powi(3) * segment + self.origin
    }
}
