//! How long acknowledgements stay away in a round because the link delivers in bursts. Those of a burst open the window at once and
//! pacing fills it over the time until the next one, so that less than the window is in flight on average.

use std::time::{Duration, Instant};

/// A longer silence is an outage (Δ_outage).
const LONGEST: Duration = Duration::from_millis(45);
/// The mean covers about this many rounds, one cycle.
const MEAN_ROUNDS: u32 = 8;

/// The longest gap between acknowledgements in a round, averaged over rounds.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Bunching {
    last: Option<Instant>,
    longest: Duration,
    mean: Duration,
}

impl Bunching {
    /// Acknowledgements came.
    pub(super) fn on_acks(&mut self, now: Instant) {
        let last = self.last.replace(now).unwrap_or(now);
        let gap = now.saturating_duration_since(last);
        if gap < LONGEST {
            self.longest = self.longest.max(gap);
        }
    }

    /// A round ended.
    pub(super) fn on_round(&mut self) {
        let longest = std::mem::take(&mut self.longest);
        self.mean = (self.mean * (MEAN_ROUNDS - 1) + longest) / MEAN_ROUNDS;
    }

    /// The mean of the longest gaps.
    pub(super) fn get(&self) -> Duration {
        self.mean
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bursts_count_and_outages_do_not() {
        let (mut bunching, mut now) = (Bunching::default(), Instant::now());
        for round in 0..100u32 {
            for _ in 0..5 {
                now += Duration::from_millis(16);
                // An outage in each tenth round, and four acknowledgements of a burst.
                if round % 10 == 0 {
                    now += Duration::from_millis(500);
                }
                (0..4u32).for_each(|n| bunching.on_acks(now + Duration::from_micros(50) * n));
            }
            bunching.on_round();
        }
        let found = bunching.get().as_millis();
        assert!((14..=16).contains(&found), "{found} ms");
    }
}
