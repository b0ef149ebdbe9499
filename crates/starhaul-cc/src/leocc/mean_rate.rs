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
    /// Rounds in a row that were faster and left no queue.
    faster: u32,
    restarted: bool,
}

impl MeanRate {
    /// Begins again at a rate that counts as much as the next round: that one may still be of what came before.
    pub(super) fn restart_from(&mut self, rate: Bandwidth) {
        self.bits = Some(real(rate.bits_per_second()));
        self.averaged = Duration::ZERO;
        self.restarted = true;
    }

    /// Adds a round that took `elapsed`. Each in a row that was faster than the mean and left no queue counts more than the one
    /// before: the capacity rose for good, and the window, which is all that limits the rate then, exceeds the mean by the target only.
    pub(super) fn update(&mut self, rate: Bandwidth, elapsed: Duration, queued: bool) {
        let measured = real(rate.bits_per_second());
        if std::mem::take(&mut self.restarted) {
            self.averaged = elapsed;
        }
        self.averaged = (self.averaged + elapsed).min(MEMORY.max(elapsed));
        let mean = self.bits.unwrap_or(measured);
        let share = elapsed.as_secs_f64() / self.averaged.as_secs_f64().max(f64::MIN_POSITIVE);
        let risen = measured > mean;
        self.faster = match risen && !queued {
            true => self.faster.saturating_add(1),
            false => 0,
        };
        let share = match risen {
            true => share * RISE * f64::from(self.faster.max(1)),
            false => share,
        };
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
        (0..30).for_each(|_| mean.update(mbit(10), ROUND, true));
        assert_eq!(mean.get(), Some(mbit(10)));
        (0..10).for_each(|_| mean.update(mbit(20), ROUND, true));
        let risen = mean.get().unwrap();
        assert!(risen > mbit(17), "{risen:?}");
        (0..10).for_each(|_| mean.update(mbit(10), ROUND, true));
        let falling = mean.get().unwrap();
        assert!((mbit(13)..mbit(16)).contains(&falling), "{falling:?}");
        mean.restart_from(mbit(40));
        mean.update(mbit(5), ROUND, true);
        let corrected = mean.get().unwrap();
        assert_eq!(corrected, Bandwidth::from_kbit(22_500), "both count alike");
        (0..4).for_each(|_| mean.update(mbit(60), ROUND, false));
        assert_eq!(mean.get(), Some(mbit(60)), "none of them left a queue");
    }
}
