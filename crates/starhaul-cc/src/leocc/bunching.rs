//! How long acknowledgements stay away in a round because the link delivers in bursts. Those of a burst open the window at once and
//! pacing fills it over the time until the next one, so that less than the window is in flight on average.

use std::time::{Duration, Instant};

/// A longer silence is an outage (Δ_outage).
const LONGEST: Duration = Duration::from_millis(45);
/// The mean covers about this many rounds, one cycle.
const MEAN_ROUNDS: u32 = 8;
/// A gap is usual when one of half its length was in each of so many rounds before. After an outage two rounds are silent: that
/// in which packets pass again, and the next, for which nothing was in flight; a third, where the window had to grow again.
const USUAL_ROUNDS: usize = 4;

/// The longest gap between acknowledgements in a round, averaged over rounds.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Bunching {
    last: Option<Instant>,
    /// Of this round, without outages.
    longest: Duration,
    /// Of this round, with them.
    silence: Duration,
    mean: Duration,
    /// The longest gaps of the last rounds, the newest first.
    before: [Duration; USUAL_ROUNDS],
}

impl Bunching {
    /// Notes the arrival of acknowledgements. Of the time since the last ones the sender paused for `pause`.
    pub(super) fn on_acks(&mut self, now: Instant, pause: Duration) {
        let last = self.last.replace(now).unwrap_or(now);
        let gap = now.saturating_duration_since(last).saturating_sub(pause);
        if gap < LONGEST {
            self.longest = self.longest.max(gap);
        }
        self.silence = self.silence.max(gap);
    }

    /// Whether the round that took `elapsed` was silent for most of its time, which no link that delivers in bursts explains: what
    /// it delivered is no rate of the path.
    pub(super) fn was_silent(&self, elapsed: Duration) -> bool {
        let usual = self.before.iter().min().copied().unwrap_or_default();
        self.silence > LONGEST.max(elapsed / 2).max(usual * 2)
    }

    /// A round ended.
    pub(super) fn on_round(&mut self) {
        self.before.rotate_right(1);
        self.before[0] = std::mem::take(&mut self.silence);
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
                (0..4u32).for_each(|n| {
                    bunching.on_acks(now + Duration::from_micros(50) * n, Duration::ZERO)
                });
            }
            bunching.on_round();
        }
        let found = bunching.get().as_millis();
        assert!((14..=16).contains(&found), "{found} ms");
    }

    /// A round in which a link fell silent tells nothing of its rate, unless that is how it always delivers.
    #[test]
    fn an_unusual_silence_is_noticed_and_a_usual_one_is_not() {
        let ms = Duration::from_millis;
        let (mut bunching, mut now) = (Bunching::default(), Instant::now());
        let mut round = |gap: Duration| {
            now += gap;
            bunching.on_acks(now, Duration::ZERO);
            let silent = bunching.was_silent(gap + ms(20));
            bunching.on_round();
            silent
        };
        (0..10).for_each(|_| assert!(!round(ms(10))));
        assert!(round(ms(900)), "an outage");
        assert!(round(ms(100)), "for which nothing was in flight");
        assert!(!round(ms(30)));
        let heard: Vec<bool> = (0..6).map(|_| round(ms(80))).collect();
        assert_eq!(heard, [true, true, true, true, false, false], "bursts");
        assert!(round(ms(900)), "an outage beside bursts");
    }
}
