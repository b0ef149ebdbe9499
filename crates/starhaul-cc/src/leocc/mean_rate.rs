//! The rate of rounds averaged over time, for paths whose changes no signal tells: a window that followed each round there would
//! follow the variation of the capacity a round trip late, which makes queues and idle time of the same variation.

use std::time::Duration;

use starhaul_units::Bandwidth;

use crate::limits::{real, window_bytes};

/// The time over which rounds are averaged: the capacity of a satellite link varies within about a second, so that two of them
/// hold its mean.
const MEMORY: Duration = Duration::from_secs(2);
/// A round that was faster than the mean counts so much more than one that was slower. Rounds are slower also for losses, idle
/// moments and the flow's own window, and never faster than the link.
const RISE: f64 = 3.0;

/// The mean since it began again, weighted by time.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct MeanRate {
    bits: Option<f64>,
    averaged: Duration,
}

impl MeanRate {
    /// Begins again at a rate which the next rounds correct.
    pub(super) fn restart_from(&mut self, rate: Bandwidth) {
        self.bits = Some(real(rate.bits_per_second()));
        self.averaged = Duration::ZERO;
    }

    /// Adds a round that took `elapsed`.
    pub(super) fn update(&mut self, rate: Bandwidth, elapsed: Duration) {
        let measured = real(rate.bits_per_second());
        self.averaged = (self.averaged + elapsed).min(MEMORY.max(elapsed));
        let mean = self.bits.unwrap_or(measured);
        let share = elapsed.as_secs_f64() / self.averaged.as_secs_f64().max(f64::MIN_POSITIVE);
        let share = if measured > mean { share * RISE } else { share };
        self.bits = Some(mean + (measured - mean) * share.min(1.0));
    }

    /// The mean; `None` before the first round.
    pub(super) fn get(&self) -> Option<Bandwidth> {
        let bits = self.bits?;
        Some(Bandwidth::from_bits_per_second(window_bytes(bits, 0)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ROUND: Duration = Duration::from_millis(100);

    #[test]
    fn it_rises_within_a_second_and_falls_within_some() {
        let mbit = Bandwidth::from_mbit;
        let mut mean = MeanRate::default();
        assert_eq!(mean.get(), None);
        (0..30).for_each(|_| mean.update(mbit(10), ROUND));
        assert_eq!(mean.get(), Some(mbit(10)));
        (0..10).for_each(|_| mean.update(mbit(20), ROUND));
        let risen = mean.get().unwrap();
        assert!(risen > mbit(17), "{risen:?}");
        (0..10).for_each(|_| mean.update(mbit(10), ROUND));
        let falling = mean.get().unwrap();
        assert!((mbit(13)..mbit(16)).contains(&falling), "{falling:?}");
        mean.restart_from(mbit(40));
        mean.update(mbit(5), ROUND);
        let corrected = mean.get().unwrap();
        assert_eq!(corrected, mbit(5), "the first round counts alone");
    }
}
