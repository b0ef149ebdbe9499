//! CUBIC (RFC 9438) with its Reno-friendly region, fast convergence and undo of spurious decreases,
//! and HyStart++ (RFC 9406) for the end of the first slow start. Windows are in bytes where the RFC has segments.

use std::time::{Duration, Instant};

use crate::{
    AckedPacket,
    hystart::{HyStart, Step},
    rtt::rtt_sample,
    window::Window,
    window_based::{Law, WindowBased},
};

/// Multiplicative decrease factor (RFC 9438 §4.6).
const BETA: f64 = 0.7;
/// RFC 9438 §5, in segments per second cubed.
const C: f64 = 0.4;
/// RFC 9438 §4.3: additive increase that equals Reno's rate with Cubic's decrease.
const ALPHA: f64 = 3.0 * (1.0 - BETA) / (1.0 + BETA);

/// Cubic's congestion control.
pub(crate) type Cubic = WindowBased<CubicLaw>;

/// The law: window growth by a cubic function of the time since the last decrease.
#[derive(Clone, Debug, Default)]
pub(crate) struct CubicLaw {
    hystart: HyStart,
    curve: Curve,
    /// Since when the window has been unused; that time does not count as growth.
    underused_since: Option<Instant>,
}

/// The curve of the next increases.
#[derive(Clone, Debug, Default)]
struct Curve {
    /// The window before the last decrease; `None` when slow start ended without a loss, and after persistent
    /// congestion.
    w_max: Option<f64>,
    /// The window just before the last decrease.
    cwnd_prior: f64,
    /// The growth epoch; begins with the first increase after a decrease.
    epoch: Option<Epoch>,
}

#[derive(Clone, Debug)]
struct Epoch {
    /// When it began; `start` is later by the time that does not count.
    began: Instant,
    start: Instant,
    k_secs: f64,
    hastened: bool,
    origin: f64,
    w_est: f64,
}

impl CubicLaw {
    /// RFC 9438 §5.8: time without use of the window does not count on the curve.
    fn pause(&mut self, unused: Duration) {
        if let Some(epoch) = &mut self.curve.epoch {
            epoch.start = epoch.start.checked_add(unused).unwrap_or(epoch.start);
        }
    }

    /// Scales the time to regain the window before the decrease by this share, if the epoch began since then.
    pub(crate) fn hasten(&mut self, since: Instant, share: f64) {
        if let Some(epoch) = &mut self.curve.epoch
            && epoch.began >= since
            && !epoch.hastened
        {
            epoch.hastened = true;
            epoch.k_secs *= share;
        }
    }

    fn slow_start(&mut self, window: &mut Window, packet: &AckedPacket, acked: f64) {
        let cwnd = window.cwnd_real();
        if !window.in_initial_slow_start() {
            return window.set_cwnd(cwnd + acked);
        }
        let newest_sent = window.newest_sent();
        match self
            .hystart
            .on_ack(packet.packet_number, rtt_sample(packet), newest_sent)
        {
            Step::Grow(share) => window.set_cwnd(cwnd + acked * share),
            Step::Exit => window.end_slow_start(),
        }
    }

    fn congestion_avoidance(&mut self, window: &mut Window, now: Instant, acked: f64) {
        let cwnd = window.cwnd_real();
        let segment = window.max_datagram();
        let rtt = window.smoothed_rtt().unwrap_or_default();
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
            return window.set_cwnd(cwnd.max(w_est));
        }
        let target = epoch
            .w_cubic(elapsed + rtt, segment)
            .clamp(cwnd, 1.5 * cwnd);
        window.set_cwnd(cwnd + (target - cwnd) / cwnd * acked);
    }
}

impl Law for CubicLaw {
    const NAME: &'static str = "cubic";

    fn on_acked(&mut self, window: &mut Window, packet: &AckedPacket, bytes: f64) {
        if let Some(since) = self.underused_since.take() {
            self.pause(packet.now.saturating_duration_since(since));
        }
        if window.in_slow_start() {
            self.slow_start(window, packet, bytes);
        } else {
            self.congestion_avoidance(window, packet.now, bytes);
        }
    }

    fn on_underused(&mut self, now: Instant) {
        self.underused_since.get_or_insert(now);
    }

    fn on_idle(&mut self, idle: Duration) {
        // Time without use of the window includes it.
        if self.underused_since.is_none() {
            self.pause(idle);
        }
    }

    fn decrease(&mut self, window: &mut Window) {
        let cwnd = window.cwnd_real();
        // RFC 9438 §4.7: a flow that did not regain its last maximum leaves room for others.
        let w_max = match self.curve.w_max {
            Some(w_max) if cwnd < w_max => cwnd * (1.0 + BETA) / 2.0,
            _ => cwnd,
        };
        self.curve = Curve {
            w_max: Some(w_max),
            cwnd_prior: cwnd,
            epoch: None,
        };
        window.decrease_to(cwnd * BETA);
    }

    /// RFC 9438 §4.8: the former maximum no longer applies.
    fn on_persistent_congestion(&mut self, _now: Instant) {
        self.curve.w_max = None;
        self.curve.epoch = None;
    }

    fn state(&self, window: &Window) -> &'static str {
        if window.in_initial_slow_start() && self.hystart.is_conservative() {
            "conservative_slow_start"
        } else {
            window.state()
        }
    }
}

impl Curve {
    /// The epoch in progress, or a new one from `cwnd` (RFC 9438 §4.2, §4.8, §4.10).
    fn epoch(&mut self, now: Instant, cwnd: f64, segment: f64) -> &mut Epoch {
        let origin = self.w_max.map_or(cwnd, |w_max| w_max.max(cwnd));
        self.epoch.get_or_insert_with(|| Epoch {
            began: now,
            start: now,
            k_secs: ((origin - cwnd) / segment / C).cbrt(),
            hastened: false,
            origin,
            w_est: cwnd,
        })
    }
}

impl Epoch {
    /// RFC 9438 §4.2, equation 1.
    fn w_cubic(&self, elapsed: Duration, segment: f64) -> f64 {
        C * (elapsed.as_secs_f64() - self.k_secs).powi(3) * segment + self.origin
    }
}
