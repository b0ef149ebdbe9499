//! Whether a path's bandwidth is known: while its controller starts, the estimate doubles each round trip.

use std::time::{Duration, Instant};

use starhaul_units::Bandwidth;

/// A round in which the estimate grows by less is one without growth …
const GROWTH: f64 = 1.25;
/// … and after so many of them in a row the path is full: the rule by which BBR ends its startup (draft-ietf-ccwg-bbr §5.3.1.2).
const ROUNDS: u8 = 3;
/// A path whose rate has fallen by more than this factor may have started anew.
const FALL: f64 = 2.0;

/// See the [module](self).
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Plateau {
    round: Option<Round>,
    best: Bandwidth,
    flat_rounds: u8,
}

#[derive(Clone, Copy, Debug)]
struct Round {
    ends: Instant,
    /// As much was in flight at each update as the path carries.
    was_full: bool,
}

impl Plateau {
    /// The estimate at `now`, and whether the path is in full use. Rounds in which it is not say nothing.
    pub(crate) fn update(&mut self, now: Instant, rtt: Duration, rate: Bandwidth, is_full: bool) {
        let round = self.round.get_or_insert(Round {
            ends: now + rtt,
            was_full: is_full,
        });
        round.was_full &= is_full;
        if now < round.ends {
            return;
        }
        let was_full = round.was_full;
        self.round = Some(Round {
            ends: now + rtt,
            was_full: is_full,
        });
        if rate.scaled(FALL) < self.best {
            // Its controller may start anew.
            (self.best, self.flat_rounds) = (rate, 0);
        } else if rate >= self.best.scaled(GROWTH) {
            (self.best, self.flat_rounds) = (rate, 0);
        } else if was_full {
            self.flat_rounds = self.flat_rounds.saturating_add(1);
        }
    }

    /// All that there was to send has left: the rate of this round is what was sent.
    pub(crate) const fn on_drained(&mut self) {
        if let Some(round) = &mut self.round {
            round.was_full = false;
        }
    }

    /// So many rounds of full use went by without growth.
    pub(crate) const fn is_reached(&self) -> bool {
        self.flat_rounds >= ROUNDS
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    /// The rates in kbit/s of rounds of 10 ms, each told twice, and whether the path was full.
    fn after(rounds: &[(u64, bool)]) -> bool {
        let mut plateau = Plateau::default();
        let mut now = Instant::now();
        for (kbit, is_full) in rounds {
            for _ in 0..2 {
                plateau.update(now, 10 * MS, Bandwidth::from_kbit(*kbit), *is_full);
                now += 5 * MS;
            }
        }
        plateau.is_reached()
    }

    #[test]
    fn three_full_rounds_without_growth_are_wanted() {
        let doubling = [(100, true), (200, true), (400, true), (800, true)];
        assert!(!after(&doubling));
        let then = |more: &[(u64, bool)]| after(&[&doubling, more].concat());
        assert!(!then(&[(900, true), (900, true)]));
        assert!(then(&[(900, true), (950, true), (900, true), (900, true)]));
        let idle = [(900, false); 10];
        assert!(!then(&idle), "nothing was asked of the path");
        let fallen = [
            (900, true),
            (900, true),
            (900, true),
            (900, true),
            (300, true),
            (350, true),
        ];
        assert!(!then(&fallen), "its controller starts anew");
        let grown = [
            (900, true),
            (900, true),
            (900, true),
            (900, true),
            (1_300, true),
            (1_300, true),
        ];
        assert!(!then(&grown), "it has become faster");
    }
}
