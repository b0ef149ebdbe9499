//! Models of satellite links that need no recording. The LEO one has the structure that LeoCC (§3) found on
//! Starlink: every 15 s the network reconfigures, with a short outage, a spike of delay and a step of capacity.

use std::{ops::RangeInclusive, time::Duration};

use rand::Rng;
use rand_chacha::{ChaCha8Rng, rand_core::SeedableRng};
use starhaul_units::Bandwidth;

use crate::{DelaySeries, Error, Opportunities, Trace, parse::MAX_TRACE_DURATION, spec::setting};

/// The step of both models' series.
const GRID: Duration = Duration::from_millis(10);
/// In which a spike of delay falls to nothing.
const SPIKE_TIME: Duration = Duration::from_millis(50);

/// A low-orbit link with periodic reconfigurations. Its default is fitted on a recorded Starlink uplink of 120 s: mean rate
/// 48.7 Mbit/s, outages of 59–135 ms, one-way delay 7–68 ms with a median of 11 ms.
#[derive(Clone, Debug, PartialEq)]
pub struct LeoModel {
    /// How long the series lasts before it repeats; at least one interval, rounded up to whole ones.
    pub duration: Duration,
    /// Time between two reconfigurations.
    pub interval: Duration,
    /// Mean rate over all intervals.
    pub mean_rate: Bandwidth,
    /// By which share of the mean the rate of one interval may differ from it, 0 to 1.
    pub rate_spread: f64,
    /// By which share of an interval's rate the rate of one moment may differ from it, 0 to 1.
    pub rate_variation: f64,
    /// Length of the outage at each reconfiguration, in milliseconds.
    pub outage_ms: RangeInclusive<u64>,
    /// Base one-way delay of an interval, in milliseconds: its delay band.
    pub base_delay_ms: RangeInclusive<u64>,
    /// Random addition to the base, in milliseconds.
    pub delay_variation_ms: RangeInclusive<u64>,
    /// Delay right after an outage, in milliseconds; it falls back to the band within 50 ms.
    pub spike_ms: RangeInclusive<u64>,
}

impl Default for LeoModel {
    fn default() -> Self {
        Self {
            duration: Duration::from_secs(300),
            interval: Duration::from_secs(15),
            mean_rate: Bandwidth::from_kbit(48_700),
            rate_spread: 0.3,
            rate_variation: 0.15,
            outage_ms: 55..=130,
            base_delay_ms: 8..=10,
            delay_variation_ms: 0..=3,
            spike_ms: 31..=68,
        }
    }
}

impl LeoModel {
    /// The same with another mean rate, if one is given.
    pub fn with_rate(mut self, rate: Option<Bandwidth>) -> Self {
        self.mean_rate = rate.unwrap_or(self.mean_rate);
        self
    }

    /// A trace of this model. The same seed gives the same trace. Errors: settings that make no trace.
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
        // The comb may begin anywhere, so that runs of different seeds do not meet it at the same instant.
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
            delays.push((GRID, state.delay(self, age, &mut rng)));
        }
        let capacity = Opportunities::from_rates(rates).map_err(|why| no_trace("leo", why))?;
        Ok(Trace::new(capacity, DelaySeries::from_steps(delays)))
    }
}

/// What holds between two reconfigurations.
struct Interval {
    rate: Bandwidth,
    /// Multiplies the rate, and changes every 100 ms.
    factor: f64,
    outage: Duration,
    base_ms: u64,
    spike_ms: u64,
}

impl Interval {
    fn draw(model: &LeoModel, rng: &mut ChaCha8Rng) -> Self {
        let spread = model.rate_spread.clamp(0.0, 1.0);
        Self {
            rate: model
                .mean_rate
                .scaled(1.0 + spread * rng.random_range(-1.0..=1.0)),
            factor: 1.0,
            outage: Duration::from_millis(draw(&model.outage_ms, rng)),
            base_ms: draw(&model.base_delay_ms, rng),
            spike_ms: draw(&model.spike_ms, rng),
        }
    }

    /// One step of the grid, which begins `age` after the reconfiguration: nothing as long as the outage lasts.
    fn add_rates(
        &mut self,
        model: &LeoModel,
        age: Duration,
        rng: &mut ChaCha8Rng,
        rates: &mut Vec<(Duration, Bandwidth)>,
    ) {
        if age.as_millis().is_multiple_of(100) {
            let variation = model.rate_variation.clamp(0.0, 1.0);
            self.factor = 1.0 + variation * rng.random_range(-1.0..=1.0);
        }
        let silent = self.outage.saturating_sub(age).min(GRID);
        rates.push((silent, Bandwidth::ZERO));
        rates.push((GRID - silent, self.rate.scaled(self.factor)));
    }

    fn delay(&self, model: &LeoModel, age: Duration, rng: &mut ChaCha8Rng) -> Duration {
        let band = Duration::from_millis(self.base_ms + draw(&model.delay_variation_ms, rng));
        let spike = Duration::from_millis(self.spike_ms);
        let fallen = age.saturating_sub(self.outage).as_secs_f64() / SPIKE_TIME.as_secs_f64();
        band.max(spike.mul_f64(1.0 - fallen.min(1.0)))
    }
}

/// A geostationary link: a fixed rate and a delay that hardly moves. RTT 550–650 ms when both directions are of this model.
#[derive(Clone, Debug, PartialEq)]
pub struct GeoModel {
    /// How long the series lasts before it repeats.
    pub duration: Duration,
    /// The rate.
    pub rate: Bandwidth,
    /// One-way delay, in milliseconds; each link has its own, drawn from this range.
    pub base_delay_ms: RangeInclusive<u64>,
    /// Random addition to it, in milliseconds.
    pub delay_variation_ms: RangeInclusive<u64>,
}

impl Default for GeoModel {
    fn default() -> Self {
        Self {
            duration: Duration::from_secs(60),
            rate: Bandwidth::from_mbit(10),
            base_delay_ms: 275..=297,
            delay_variation_ms: 0..=3,
        }
    }
}

impl GeoModel {
    /// The same with another rate, if one is given.
    pub fn with_rate(mut self, rate: Option<Bandwidth>) -> Self {
        self.rate = rate.unwrap_or(self.rate);
        self
    }

    /// A trace of this model. The same seed gives the same trace. Errors: settings that make no trace.
    pub fn generate(&self, seed: u64) -> Result<Trace, Error> {
        let mut rng = ChaCha8Rng::seed_from_u64(seed);
        let capacity = Opportunities::from_rates([(self.duration, self.rate)])
            .map_err(|why| no_trace("geo", why))?;
        let base_ms = draw(&self.base_delay_ms, &mut rng);
        let delays = (0..steps(self.duration)).map(|_| {
            let variation_ms = draw(&self.delay_variation_ms, &mut rng);
            (GRID, Duration::from_millis(base_ms + variation_ms))
        });
        Ok(Trace::new(capacity, DelaySeries::from_steps(delays)))
    }
}

/// A value of the range; its start if it is empty.
fn draw(range: &RangeInclusive<u64>, rng: &mut ChaCha8Rng) -> u64 {
    if range.is_empty() {
        return *range.start();
    }
    rng.random_range(range.clone())
}

/// Whole steps of the grid.
fn steps(time: Duration) -> u32 {
    u32::try_from(time.as_millis() / GRID.as_millis()).unwrap_or(u32::MAX)
}

fn no_trace(model: &str, reason: impl ToString) -> Error {
    setting("synth", model, reason)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ms(ms: u64) -> Duration {
        Duration::from_millis(ms)
    }

    #[test]
    fn leo_has_a_comb_of_reconfigurations() {
        for seed in 0..5 {
            let trace = LeoModel::default().generate(seed).unwrap();
            let gaps = trace.capacity.gaps(ms(45));
            // an outage that lies across the end of the series shows as two shorter ones
            assert!(
                (19..=21).contains(&gaps.len()),
                "seed {seed}: {} gaps",
                gaps.len()
            );
            let first = gaps[0].0.as_millis() % 15_000;
            for (start, length) in &gaps {
                let off = (start.as_millis() + 22_500 - first) % 15_000;
                assert!(
                    (7_480..=7_520).contains(&off),
                    "seed {seed}: gap at {start:?}"
                );
                assert!(*length <= ms(135), "seed {seed}: gap of {length:?}");
                let spike = trace.delay.as_ref().unwrap().at(*start + *length);
                assert!(
                    spike > ms(20),
                    "seed {seed}: {spike:?} after the outage at {start:?}"
                );
            }
            let mean = trace.capacity.mean_rate().mbit();
            assert!((40.0..58.0).contains(&mean), "seed {seed}: {mean} Mbit/s");
            assert!(
                rate_of_intervals(&trace, &gaps) > 0.05,
                "seed {seed}: no steps of capacity"
            );
        }
    }

    /// Mean relative change of rate from one interval to the next.
    fn rate_of_intervals(trace: &Trace, gaps: &[(Duration, Duration)]) -> f64 {
        let rates: Vec<f64> = gaps
            .windows(2)
            .map(|pair| {
                let (from, to) = (pair[0].0 + pair[0].1, pair[1].0);
                let count = trace.capacity.until(to) - trace.capacity.until(from);
                Bandwidth::from_bytes_over(count * 1500, to - from).mbit()
            })
            .collect();
        let changes = rates.windows(2).map(|pair| (pair[1] / pair[0] - 1.0).abs());
        changes.sum::<f64>() / 18.0
    }

    #[test]
    fn leo_delays_lie_in_narrow_bands() {
        let delay = LeoModel::default().generate(1).unwrap().delay.unwrap();
        let mut values: Vec<_> = (0..30_000).map(|i| delay.at(ms(10) * i)).collect();
        values.sort();
        assert!(
            (ms(9)..=ms(12)).contains(&values[15_000]),
            "median {:?}",
            values[15_000]
        );
        assert!(
            (ms(7)..=ms(9)).contains(&values[0]),
            "least {:?}",
            values[0]
        );
        assert!(
            (ms(31)..=ms(68)).contains(&values[29_999]),
            "greatest {:?}",
            values[29_999]
        );
    }

    #[test]
    fn geo_keeps_its_rate_and_its_distance() {
        for seed in 0..20 {
            let trace = GeoModel::default().generate(seed).unwrap();
            let (least, greatest) = trace.delay.unwrap().range();
            assert!(
                ms(275) <= least && greatest <= ms(300),
                "seed {seed}: {least:?} to {greatest:?}"
            );
            assert!((trace.capacity.mean_rate().mbit() - 10.0).abs() < 0.01);
        }
    }

    #[test]
    fn a_seed_is_a_link() {
        let leo = |seed| LeoModel::default().generate(seed).unwrap();
        assert_eq!(leo(3), leo(3));
        assert_ne!(leo(3), leo(4));
    }

    #[test]
    fn impossible_models_are_refused() {
        let no_interval = LeoModel {
            interval: Duration::ZERO,
            ..LeoModel::default()
        };
        assert!(no_interval.generate(0).is_err());
        let endless = LeoModel {
            duration: Duration::MAX,
            ..LeoModel::default()
        };
        assert!(endless.generate(0).is_err());
        assert!(
            GeoModel::default()
                .with_rate(Some(Bandwidth::ZERO))
                .generate(0)
                .is_err()
        );
    }
}
