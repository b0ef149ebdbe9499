//! LEO links that no controller was tuned on: the statistics of each are drawn from ranges wider than what was recorded.

use std::time::Duration;

use rand::Rng;
use rand_chacha::{ChaCha8Rng, rand_core::SeedableRng};
use starhaul_units::Bandwidth;

use super::LeoModel;

/// The model's own random numbers are those of its seed.
const STREAM: u64 = 1;

impl LeoModel {
    /// Draws the statistics of a link. Evenly: an interval of 5 to 60 s, 0 to 30 ms of delay that varies (a share of it
    /// within tens of milliseconds, the rest over an interval), bursts 1 to 20 ms apart, rates of the intervals that differ
    /// by a factor of up to 1 to 5, a deviation of 0 to 0.3 within an interval, loss of 0 to 3 %, a one-way delay of 5 to
    /// 150 ms. Evenly by the logarithm: a mean rate of 5 to 150 Mbit/s, and a longest outage of up to 2 s, so that on half
    /// of the links it is shorter than 45 ms; no outage of a link is shorter than half of it. Not drawn: how fast the rate
    /// varies (the slow half within about a second), losses in a row, acknowledgements that a link holds back. The same
    /// seed draws the same statistics.
    pub fn drawn(seed: u64) -> Self {
        let mut rng = ChaCha8Rng::seed_from_u64(seed);
        rng.set_stream(STREAM);
        let swing_ms = rng.random_range(0..=30_u64);
        let variation_ms = rng.random_range(0..=swing_ms);
        let base_ms = rng.random_range(5..=150_u64);
        // Short outages are as frequent as long ones.
        let outage_ms = rng.random_range(0.0..=2000_f64.ln_1p()).exp_m1();
        let outage_ms = Duration::from_secs_f64(outage_ms / 1e3).as_millis();
        let outage_ms = u64::try_from(outage_ms).unwrap_or(u64::MAX);
        let mean_rate = 5.0 * 30_f64.powf(rng.random());
        Self {
            interval: Duration::from_millis(10 * rng.random_range(500..=6000)),
            mean_rate: Bandwidth::from_mbit(1).scaled(mean_rate),
            rate_spread: 0.0,
            rate_step: rng.random_range(1.0..=5.0),
            rate_variation: rng.random_range(0.0..=0.3),
            burst_ms: rng.random_range(1..=20),
            outage_ms: outage_ms / 2..=outage_ms,
            base_delay_ms: base_ms..=base_ms + rng.random_range(0..=10),
            delay_variation_ms: 0..=variation_ms,
            drift_ms: swing_ms - variation_ms,
            spike_ms: base_ms..=base_ms + rng.random_range(0..=60),
            loss: rng.random_range(0.0..=0.03),
            ..Self::default()
        }
    }
}
