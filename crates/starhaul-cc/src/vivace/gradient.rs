//! The slope of the RTT over an interval by linear regression (Vivace §5), taken as zero when it is small or within the
//! noise.

use std::time::{Duration, Instant};

/// A slope below this is no congestion; the authors' code has 2 % where §5 has 1 %.
const FLAT: f64 = 0.02;

/// Running sums of a regression.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct RttGradient {
    origin: Option<(Instant, Duration)>,
    count: f64,
    x: f64,
    y: f64,
    xx: f64,
    xy: f64,
    yy: f64,
}

impl RttGradient {
    /// Adds a packet sent at `sent` with RTT `rtt`.
    pub(super) fn update(&mut self, sent: Instant, rtt: Duration) {
        let (first_sent, first_rtt) = *self.origin.get_or_insert((sent, rtt));
        // Relative to the first packet, to keep precision.
        let x = sent.saturating_duration_since(first_sent).as_secs_f64()
            - first_sent.saturating_duration_since(sent).as_secs_f64();
        let y = rtt.as_secs_f64() - first_rtt.as_secs_f64();
        self.count += 1.0;
        self.x += x;
        self.y += y;
        self.xx += x * x;
        self.xy += x * y;
        self.yy += y * y;
    }

    /// Slope in seconds of RTT per second; 0 when it falls, is flat or is within the noise.
    pub(super) fn rise(&self) -> f64 {
        if self.count < 3.0 {
            return 0.0;
        }
        let xx = self.xx - self.x * self.x / self.count;
        let xy = self.xy - self.x * self.y / self.count;
        let yy = self.yy - self.y * self.y / self.count;
        if xx <= 0.0 {
            return 0.0;
        }
        let slope = xy / xx;
        let residual = (yy - slope * xy).max(0.0);
        // Meng et al. (Proteus, SIGCOMM 2020), §5: the slope must exceed what the residuals of the regression could
        // cause over its time span. Evenly spaced samples span √12 standard deviations.
        let span = (12.0 * xx / self.count).sqrt();
        let error = (residual / self.count).sqrt() / span;
        if slope >= FLAT && slope > error {
            slope
        } else {
            0.0
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    fn rise(rtt_ms: impl Fn(u32) -> f64) -> f64 {
        let start = Instant::now();
        let mut gradient = RttGradient::default();
        for n in 0..50 {
            gradient.update(start + n * MS, Duration::from_secs_f64(rtt_ms(n) / 1e3));
        }
        gradient.rise()
    }

    #[test]
    fn a_filling_queue_rises_and_noise_does_not() {
        assert!((rise(|n| 40.0 + 0.1 * f64::from(n)) - 0.1).abs() < 1e-6);
        assert_eq!(rise(|n| 40.0 - 0.1 * f64::from(n)), 0.0);
        assert_eq!(rise(|n| 40.0 + 0.015 * f64::from(n)), 0.0);
        assert_eq!(rise(|n| if n % 7 < 3 { 40.0 } else { 52.0 }), 0.0);
    }
}
