//! The cellular model: Sprout's stochastic link (Winstein, Sivaraman, Balakrishnan, NSDI 2013, §3.1–3.2), with its
//! authors' parameters for LTE and 3G networks. Packets leave as a Poisson process whose rate does a random walk,
//! sticky at zero. Here the rate is drawn again after an outage, as in another cell: Sprout's walk, which continues
//! from zero, is a model for inference and would spend half of its time there. The delay has the retransmissions of
//! LTE's HARQ: 8 ms each (3GPP TS 36.213 §8), at a block error rate of 10 % (§7.2.3).

use std::{ops::RangeInclusive, time::Duration};

use rand::Rng;
use rand_chacha::{ChaCha8Rng, rand_core::SeedableRng};
use starhaul_units::Bandwidth;

use super::{GRID, draw, finish, gaussian, no_trace, steps};
use crate::{Error, MAX_TRACE_DURATION, OPPORTUNITY_BYTES, Opportunities, Trace};

const HARQ_ROUND_MS: u64 = 8;

/// A cellular link in motion: its capacity varies between zero and twice its mean within seconds.
#[derive(Clone, Debug, PartialEq)]
pub struct CellularModel {
    /// Length of the series before it repeats.
    pub duration: Duration,
    /// Mean rate; the greatest is about twice that.
    pub mean_rate: Bandwidth,
    /// Change of the rate in a second, as a share of the greatest rate (Sprout: 200 of 1000 packets per second).
    pub walk: f64,
    /// Rate per second at which an outage ends (Sprout: 1).
    pub outage_escape: f64,
    /// One-way delay, in milliseconds; each link draws its own from this range.
    pub base_delay_ms: RangeInclusive<u64>,
    /// Random addition to it, in milliseconds: the wait for a grant.
    pub delay_variation_ms: RangeInclusive<u64>,
    /// Probability of a block error, each of which costs 8 ms, 0 to below 1.
    pub block_errors: f64,
    /// Probability of random loss; HARQ and RLC leave almost none.
    pub loss: f64,
}

impl Default for CellularModel {
    fn default() -> Self {
        Self {
            duration: Duration::from_secs(300),
            mean_rate: Bandwidth::from_mbit(12),
            walk: 0.2,
            outage_escape: 1.0,
            base_delay_ms: 18..=26,
            delay_variation_ms: 0..=5,
            block_errors: 0.1,
            loss: 0.0,
        }
    }
}

impl CellularModel {
    /// The model with this mean rate, if one is given.
    pub fn with_rate(mut self, rate: Option<Bandwidth>) -> Self {
        self.mean_rate = rate.unwrap_or(self.mean_rate);
        self
    }

    /// Generates a trace. The same seed gives the same trace. Errors: settings that make no trace.
    pub fn generate(&self, seed: u64) -> Result<Trace, Error> {
        if self.duration > MAX_TRACE_DURATION {
            return Err(no_trace("cellular", "its duration is too long"));
        }
        let mut rng = ChaCha8Rng::seed_from_u64(seed);
        let shares = self.walk(&mut rng);
        let mean = shares.iter().sum::<f64>() / f64::from(steps(self.duration).max(1));
        let rates = shares.iter().map(|share| {
            let rate = self.mean_rate.scaled(share / mean);
            (GRID, poisson(rate, &mut rng))
        });
        let capacity = Opportunities::from_rates(rates).map_err(|why| no_trace("cellular", why))?;
        let base_ms = draw(&self.base_delay_ms, &mut rng);
        let delays = shares
            .iter()
            .map(|_| {
                (
                    GRID,
                    Duration::from_millis(base_ms + self.delay_ms(&mut rng)),
                )
            })
            .collect();
        finish("cellular", capacity, delays, self.loss)
    }

    /// The rate of each step of the grid, as a share of the greatest.
    fn walk(&self, rng: &mut ChaCha8Rng) -> Vec<f64> {
        let step = self.walk * GRID.as_secs_f64().sqrt();
        let escape = (self.outage_escape * GRID.as_secs_f64()).clamp(0.0, 1.0);
        let mut share: f64 = rng.random_range(0.0..=1.0);
        let mut shares = Vec::new();
        for _ in 0..steps(self.duration) {
            if share > 0.0 {
                share += step * gaussian(rng);
                // reflected above, held below
                share = share.min(2.0 - share).clamp(0.0, 1.0);
            } else if rng.random_bool(escape) {
                share = rng.random_range(0.0..=1.0);
            }
            shares.push(share);
        }
        shares
    }

    fn delay_ms(&self, rng: &mut ChaCha8Rng) -> u64 {
        let mut delay_ms = draw(&self.delay_variation_ms, rng);
        // A block is given up after four attempts (TS 36.321 §5.4.2, the usual maxHARQ-Tx).
        for _ in 0..3 {
            if !rng.random_bool(self.block_errors.clamp(0.0, 1.0)) {
                break;
            }
            delay_ms += HARQ_ROUND_MS;
        }
        delay_ms
    }
}

/// A rate at which a step of the grid carries a Poisson number of packets, with mean `rate`.
fn poisson(rate: Bandwidth, rng: &mut ChaCha8Rng) -> Bandwidth {
    let mean = rate.mbit() * 1e6 * GRID.as_secs_f64() / (8 * OPPORTUNITY_BYTES) as f64;
    if mean > 1e4 {
        // Too many to draw one by one; the spread is below 1 %.
        return rate;
    }
    // Exponential gaps until the step is over.
    let (mut count, mut at) = (0_u64, 0.0);
    loop {
        at -= (1.0 - rng.random::<f64>()).ln();
        if at > mean {
            return Bandwidth::from_bytes_over(count * OPPORTUNITY_BYTES, GRID);
        }
        count += 1;
    }
}
