//! The LEO model. It has the structure that LeoCC (§3) found on Starlink: every 15 s the network reconfigures, with a
//! short outage, a spike of delay and a step of capacity; between reconfigurations both vary little.

use std::{ops::RangeInclusive, time::Duration};

use rand::Rng;
use rand_chacha::{ChaCha8Rng, rand_core::SeedableRng};
use starhaul_units::Bandwidth;

use super::{GRID, draw, finish, gaussian, no_trace, steps};
use crate::{Error, MAX_TRACE_DURATION, Opportunities, Trace};

/// Time in which a spike of delay decays.
const SPIKE_TIME: Duration = Duration::from_millis(50);
/// Autoregressive factor per grid step of the slow part of the rate: a third remains after a second.
const SLOW: f64 = 0.99;
/// Probability that the delay stays the same as 10 ms before.
const SAME_DELAY: f64 = 0.4;

/// A low-orbit link with periodic reconfigurations. Its defaults are fitted to a recorded Starlink uplink of 120 s:
/// mean rate 48.7 Mbit/s, outages of 59–135 ms, one-way delay 7–68 ms with a median of 11 ms. The loss is that with
/// which LeoCC's authors replay such an uplink.
#[derive(Clone, Debug, PartialEq)]
pub struct LeoModel {
    /// Length of the series before it repeats; at least one interval, rounded up to whole ones.
    pub duration: Duration,
    /// Time between two reconfigurations.
    pub interval: Duration,
    /// Mean rate over all intervals.
    pub mean_rate: Bandwidth,
    /// Greatest deviation of an interval's rate from the mean, as a share of it, 0 to 1.
    pub rate_spread: f64,
    /// Greatest ratio of the rates of two intervals, at least 1, besides that deviation: each interval's factor is
    /// drawn evenly by its logarithm.
    pub rate_step: f64,
    /// Standard deviation of the rate over 100 ms within an interval, as a share of the interval's rate, 0 to 1. Half
    /// of the variance is slow (about a second), half independent.
    pub rate_variation: f64,
    /// Time between bursts, in milliseconds: what the link could carry in it passes at its end. 1 is no burst.
    pub burst_ms: u64,
    /// Length of the outage at each reconfiguration, in milliseconds.
    pub outage_ms: RangeInclusive<u64>,
    /// Base one-way delay of an interval, in milliseconds: its delay band.
    pub base_delay_ms: RangeInclusive<u64>,
    /// Random addition to the base, in milliseconds.
    pub delay_variation_ms: RangeInclusive<u64>,
    /// Greatest change of the base within an interval, in milliseconds: it grows or falls evenly.
    pub drift_ms: u64,
    /// Delay right after an outage, in milliseconds; it falls back to the band within 50 ms.
    pub spike_ms: RangeInclusive<u64>,
    /// Probability of random loss.
    pub loss: f64,
}

impl Default for LeoModel {
    fn default() -> Self {
        Self {
            duration: Duration::from_secs(300),
            interval: Duration::from_secs(15),
            mean_rate: Bandwidth::from_kbit(48_700),
            rate_spread: 0.25,
            rate_step: 1.0,
            rate_variation: 0.1,
            burst_ms: 1,
            outage_ms: 50..=130,
            base_delay_ms: 7..=9,
            delay_variation_ms: 0..=4,
            drift_ms: 0,
            spike_ms: 31..=68,
            loss: 0.002,
        }
    }
}

impl LeoModel {
    /// The model with this mean rate, if one is given.
    pub fn with_rate(mut self, rate: Option<Bandwidth>) -> Self {
        self.mean_rate = rate.unwrap_or(self.mean_rate);
        self
    }

    /// Generates a trace. The same seed gives the same trace. Errors: settings that make no trace.
    pub fn generate(&self, seed: u64) -> Result<Trace, Error> {
        let steps_per_interval = steps(self.interval);
        let intervals = steps(self.duration)
            .div_ceil(steps_per_interval.max(1))
            .max(1);
        if self.interval < GRID || self.interval.saturating_mul(intervals) > MAX_TRACE_DURATION {
            return Err(no_trace(
                "leo",
                "its interval or duration is too short or too long",
            ));
        }
        let mut rng = ChaCha8Rng::seed_from_u64(seed);
        // The comb may start anywhere, so that runs of different seeds do not reconfigure at the same instant.
        let offset = rng.random_range(0..steps_per_interval);
        let mut state = Interval::draw(self, &mut rng);
        let (mut rates, mut delays) = (Vec::new(), Vec::new());
        for step in 0..intervals * steps_per_interval {
            let since = (step + steps_per_interval - offset) % steps_per_interval;
            if since == 0 {
                state = Interval::draw(self, &mut rng);
            }
            let age = GRID * since;
            state.add_rates(self, age, &mut rng, &mut rates);
            let delay = state.delay(self, age, &mut rng);
            delays.push((GRID, Duration::from_millis(delay)));
        }
        let rates = bursts(&rates, self.burst_ms);
        let capacity = Opportunities::from_rates(rates).map_err(|why| no_trace("leo", why))?;
        finish("leo", capacity, delays, self.loss)
    }
}

/// The state between two reconfigurations.
struct Interval {
    rate: Bandwidth,
    /// The slow part of the rate, as a share of it.
    slow: f64,
    outage: Duration,
    base_ms: u64,
    spike_ms: u64,
    variation_ms: u64,
    /// Change of the base over the interval; positive when the satellite moves away.
    drift_ms: f64,
}

impl Interval {
    fn draw(model: &LeoModel, rng: &mut ChaCha8Rng) -> Self {
        let spread = model.rate_spread.clamp(0.0, 1.0);
        let deviation = 1.0 + spread * rng.random_range(-1.0..=1.0);
        // Nothing is drawn for what a model does not have, so that its links stay the same.
        let factor = match model.rate_step {
            step if step > 1.0 => step.powf(rng.random_range(-0.5..=0.5)),
            _ => 1.0,
        };
        let drift_ms = match u32::try_from(model.drift_ms) {
            Ok(drift) if drift > 0 => f64::from(drift) * rng.random_range(-1.0..=1.0),
            _ => 0.0,
        };
        Self {
            drift_ms,
            rate: model.mean_rate.scaled(deviation * factor),
            slow: 0.0,
            outage: Duration::from_millis(draw(&model.outage_ms, rng)),
            base_ms: draw(&model.base_delay_ms, rng),
            spike_ms: draw(&model.spike_ms, rng),
            variation_ms: draw(&model.delay_variation_ms, rng),
        }
    }

    /// Adds one step of the grid, which begins `age` after the reconfiguration: no capacity during the outage.
    fn add_rates(
        &mut self,
        model: &LeoModel,
        age: Duration,
        rng: &mut ChaCha8Rng,
        rates: &mut Vec<(Duration, Bandwidth)>,
    ) {
        let part = model.rate_variation.clamp(0.0, 1.0) * std::f64::consts::FRAC_1_SQRT_2;
        self.slow = SLOW * self.slow + (1.0 - SLOW * SLOW).sqrt() * part * gaussian(rng);
        // Ten steps of independent parts make 100 ms.
        let fast = part * 10_f64.sqrt() * gaussian(rng);
        let factor = (1.0 + self.slow + fast).max(0.0);
        let silent = self.outage.saturating_sub(age).min(GRID);
        rates.push((silent, Bandwidth::ZERO));
        rates.push((GRID - silent, self.rate.scaled(factor)));
    }

    /// The delay in whole milliseconds, as in recordings.
    fn delay(&mut self, model: &LeoModel, age: Duration, rng: &mut ChaCha8Rng) -> u64 {
        if !rng.random_bool(SAME_DELAY) {
            self.variation_ms = draw(&model.delay_variation_ms, rng);
        }
        let passed = age.as_secs_f64() / model.interval.as_secs_f64();
        // A falling base begins above.
        let drift = self.drift_ms * passed + (-self.drift_ms).max(0.0);
        let band = self.base_ms + whole_ms(drift) + self.variation_ms;
        let fallen = age.saturating_sub(self.outage).as_millis();
        let left = SPIKE_TIME.as_millis().saturating_sub(fallen);
        let spike = u128::from(self.spike_ms) * left / SPIKE_TIME.as_millis();
        band.max(u64::try_from(spike).unwrap_or(u64::MAX))
    }
}

/// The same capacity, with that of each `burst_ms` at its end.
fn bursts(rates: &[(Duration, Bandwidth)], burst_ms: u64) -> Vec<(Duration, Bandwidth)> {
    if burst_ms <= 1 {
        return rates.to_vec();
    }
    let ms = Duration::from_millis(1);
    let (mut bursts, mut sum, mut count) = (Vec::new(), 0_u64, 0);
    for (time, rate) in rates {
        for _ in 0..time.as_millis() {
            sum = sum.saturating_add(rate.bits_per_second());
            count += 1;
            if count == burst_ms {
                let silent = ms * u32::try_from(burst_ms - 1).unwrap_or(u32::MAX);
                bursts.push((silent, Bandwidth::ZERO));
                bursts.push((ms, Bandwidth::from_bits_per_second(sum)));
                (sum, count) = (0, 0);
            }
        }
    }
    bursts
}

fn whole_ms(ms: f64) -> u64 {
    Duration::try_from_secs_f64(ms / 1e3).map_or(0, |time| {
        u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
    })
}
