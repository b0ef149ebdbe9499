//! How far the RTT moves by itself: its mean deviation while the flow's own queue should be steady. Bursts of the link,
//! the variation of its delay and that of its capacity over a round trip all show in it, and all flows over a path see the
//! same.

use std::time::{Duration, Instant};

/// The time over which deviations are averaged: that of BBR's least RTT, within which a path between two
/// reconfigurations stays the same.
const MEMORY: Duration = Duration::from_secs(10);
/// Deviations are from the mean of this many round trips, one cycle.
const MEAN_ROUNDS: u32 = 8;
/// A longer silence, or one of more than the RTT, is an outage (Δ_outage) or a pause of the application.
const SILENCE: Duration = Duration::from_millis(45);
/// A deviation is known from this time on.
const LEAST: Duration = Duration::from_secs(1);

/// The mean RTT and its mean deviation, weighted by time.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Deviation {
    mean_s: Option<f64>,
    deviation_s: f64,
    averaged_s: f64,
    last: Option<Instant>,
    /// When acknowledgements came again after a silence.
    resumed: Option<Instant>,
}

impl Deviation {
    /// Adds an RTT in cruise.
    pub(super) fn update(&mut self, now: Instant, rtt: Duration) {
        let elapsed = self
            .last
            .map_or(Duration::ZERO, |last| now.saturating_duration_since(last));
        // The first packet after an outage waited through it: its own RTT is as long as the silence.
        let usual = self.mean_s.map_or(rtt, seconds);
        if elapsed > SILENCE.max(usual) {
            self.pause();
            self.resumed = Some(now);
        }
        self.last = Some(now);
        let resumed = self.resumed;
        if resumed.is_some_and(|at| rtt > now.saturating_duration_since(at)) {
            return;
        }
        let (elapsed_s, rtt_s) = (elapsed.as_secs_f64(), rtt.as_secs_f64());
        let Some(mean) = self.mean_s else {
            self.mean_s = Some(rtt_s);
            return;
        };
        let whole = (rtt_s * f64::from(MEAN_ROUNDS)).max(f64::MIN_POSITIVE);
        self.mean_s = Some(mean + (rtt_s - mean) * (elapsed_s / whole).min(1.0));
        self.averaged_s = (self.averaged_s + elapsed_s).min(MEMORY.as_secs_f64());
        if self.averaged_s > 0.0 {
            let share = (elapsed_s / self.averaged_s).min(1.0);
            self.deviation_s += ((rtt_s - mean).abs() - self.deviation_s) * share;
        }
    }

    /// What follows is not compared with what was: the path changed, or the flow drains it.
    pub(super) fn pause(&mut self) {
        self.mean_s = None;
        self.last = None;
    }

    /// The mean deviation, once it is known.
    pub(super) fn get(&self) -> Option<Duration> {
        (self.averaged_s >= LEAST.as_secs_f64()).then(|| seconds(self.deviation_s))
    }
}

fn seconds(seconds: f64) -> Duration {
    Duration::try_from_secs_f64(seconds).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    /// Feeds an RTT each millisecond.
    fn fed(deviation: &mut Deviation, from: Instant, ms: u32, rtt: impl Fn(u32) -> Duration) {
        (0..ms).for_each(|n| deviation.update(from + MS * n, rtt(n)));
    }

    #[test]
    fn a_saw_tooth_deviates_by_a_quarter_and_a_constant_not_at_all() {
        let start = Instant::now();
        let mut saw = Deviation::default();
        fed(&mut saw, start, 500, |n| MS * (20 + n % 21));
        assert_eq!(saw.get(), None, "not yet known");
        fed(&mut saw, start + 500 * MS, 9500, |n| MS * (20 + n % 21));
        let found = saw.get().unwrap();
        assert!((MS * 9 / 2..MS * 11 / 2).contains(&found), "{found:?}");
        let mut constant = Deviation::default();
        fed(&mut constant, start, 5000, |_| 40 * MS);
        assert_eq!(constant.get(), Some(Duration::ZERO));
    }

    #[test]
    fn a_step_during_a_pause_is_no_deviation_and_old_ones_fade() {
        let start = Instant::now();
        let mut deviation = Deviation::default();
        fed(&mut deviation, start, 5000, |_| 40 * MS);
        deviation.pause();
        fed(&mut deviation, start + 6000 * MS, 5000, |_| 90 * MS);
        assert_eq!(deviation.get(), Some(Duration::ZERO));
        fed(&mut deviation, start + 11_000 * MS, 1000, |n| {
            MS * (70 + 40 * (n / 10 % 2))
        });
        let moved = deviation.get().unwrap();
        fed(&mut deviation, start + 12_000 * MS, 40_000, |_| 90 * MS);
        let faded = deviation.get().unwrap();
        assert!(moved > MS && faded < moved / 10, "{moved:?} {faded:?}");
    }

    #[test]
    fn the_first_rtt_after_a_silence_is_no_deviation() {
        let start = Instant::now();
        let mut deviation = Deviation::default();
        fed(&mut deviation, start, 5000, |_| 40 * MS);
        fed(&mut deviation, start + 20_000 * MS, 100, |_| 90 * MS);
        assert_eq!(deviation.get(), Some(Duration::ZERO));
    }

    /// What waited through an outage arrives when it is over, and its RTTs are the longer the earlier it was sent.
    #[test]
    fn what_an_outage_held_back_is_no_deviation() {
        for outage in [100_u32, 300, 1000] {
            let start = Instant::now();
            let mut deviation = Deviation::default();
            fed(&mut deviation, start, 5000, |_| 40 * MS);
            let over = start + (4999 + outage) * MS;
            for held in 0..40 {
                deviation.update(over, MS * (40 + outage - held));
            }
            fed(&mut deviation, over, 1000, |n| match n {
                0..40 => MS * (40 + outage),
                _ => 40 * MS,
            });
            let found = deviation.get().unwrap();
            assert!(found < MS, "{outage} ms: {found:?}");
        }
    }
}
