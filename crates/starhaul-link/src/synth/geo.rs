//! The GEO model. There is no public recording of a geostationary link; the delay is that of light over 2 ×
//! 35,786–41,679 km (239–278 ms) plus the modems' frames.

use std::{ops::RangeInclusive, time::Duration};

use rand_chacha::{ChaCha8Rng, rand_core::SeedableRng};
use starhaul_units::Bandwidth;

use super::{GRID, draw, finish, no_trace, steps};
use crate::{Error, Opportunities, Trace};

/// A geostationary link: a fixed rate and a nearly constant delay. RTT 550–650 ms if both directions use it.
#[derive(Clone, Debug, PartialEq)]
pub struct GeoModel {
    /// Length of the series before it repeats.
    pub duration: Duration,
    /// The link's rate.
    pub rate: Bandwidth,
    /// One-way delay, in milliseconds; each link draws its own from this range.
    pub base_delay_ms: RangeInclusive<u64>,
    /// Random addition to it, in milliseconds.
    pub delay_variation_ms: RangeInclusive<u64>,
    /// Probability of random loss.
    pub loss: f64,
}

impl Default for GeoModel {
    fn default() -> Self {
        Self {
            duration: Duration::from_secs(60),
            rate: Bandwidth::from_mbit(10),
            base_delay_ms: 275..=297,
            delay_variation_ms: 0..=3,
            loss: 0.0,
        }
    }
}

impl GeoModel {
    /// The model with this rate, if one is given.
    pub fn with_rate(mut self, rate: Option<Bandwidth>) -> Self {
        self.rate = rate.unwrap_or(self.rate);
        self
    }

    /// Generates a trace. The same seed gives the same trace. Errors: settings that make no trace.
    pub fn generate(&self, seed: u64) -> Result<Trace, Error> {
        let mut rng = ChaCha8Rng::seed_from_u64(seed);
        let capacity = Opportunities::from_rates([(self.duration, self.rate)])
            .map_err(|why| no_trace("geo", why))?;
        let base_ms = draw(&self.base_delay_ms, &mut rng);
        let delays = (0..steps(self.duration)).map(|_| {
            let variation_ms = draw(&self.delay_variation_ms, &mut rng);
            (GRID, Duration::from_millis(base_ms + variation_ms))
        });
        finish("geo", capacity, delays.collect(), self.loss)
    }
}
