//! The search for a direction (Vivace §4.1): two pairs of intervals, each a little above and a little below the base
//! rate in random order. A trial gives a direction only if both pairs agree.

use super::{Outcome, Purpose};

/// ε: distance of a pair's rates from the base rate, as a share of it.
pub(super) const PROBE_SHARE: f64 = 0.05;
/// Intervals of a trial: two pairs.
pub(super) const INTERVALS: u8 = 4;

/// Two pairs of intervals around one rate.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Trial {
    higher_first: [bool; 2],
    sent: u8,
    told: u8,
    outcomes: [Option<Outcome>; INTERVALS as usize],
}

/// The common result of both pairs.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Finding {
    /// Utility gained per Mbit/s.
    pub(super) gradient: f64,
    /// The mean of all four intervals.
    pub(super) middle: Outcome,
}

impl Trial {
    /// Creates a trial; the two lowest bits of `chance` decide the order within each pair.
    pub(super) fn new(chance: u64) -> Self {
        Self {
            higher_first: [chance & 1 == 0, chance & 2 == 0],
            sent: 0,
            told: 0,
            outcomes: [None; INTERVALS as usize],
        }
    }

    /// The purpose of the next interval.
    pub(super) fn next(&mut self) -> Purpose {
        if self.sent >= INTERVALS {
            return Purpose::Waiting;
        }
        self.sent += 1;
        Purpose::Trial(self.sent - 1)
    }

    /// The rate of interval `number` relative to the base rate.
    pub(super) fn share(&self, number: u8) -> f64 {
        if self.is_higher(number) {
            1.0 + PROBE_SHARE
        } else {
            1.0 - PROBE_SHARE
        }
    }

    /// Takes the outcome of interval `number`. Returns whether it was the last one.
    pub(super) fn take(&mut self, number: u8, outcome: Option<Outcome>) -> bool {
        if let Some(slot) = self.outcomes.get_mut(usize::from(number)) {
            *slot = outcome;
            self.told += 1;
        }
        self.told >= INTERVALS
    }

    /// `None` when the pairs contradict each other, or an interval has no outcome.
    pub(super) fn finding(&self) -> Option<Finding> {
        let [a, b, c, d] = self.outcomes;
        let (a, b, c, d) = (a?, b?, c?, d?);
        let (first, second) = (slope(a, b)?, slope(c, d)?);
        if (first > 0.0) != (second > 0.0) {
            return None;
        }
        let mean = |pick: fn(Outcome) -> f64| (pick(a) + pick(b) + pick(c) + pick(d)) / 4.0;
        Some(Finding {
            gradient: (first + second) / 2.0,
            middle: Outcome {
                mbit: mean(|outcome| outcome.mbit),
                utility: mean(|outcome| outcome.utility),
                loss: mean(|outcome| outcome.loss),
            },
        })
    }

    fn is_higher(&self, number: u8) -> bool {
        let [first, second] = self.higher_first;
        let higher_first = if number < 2 { first } else { second };
        number.is_multiple_of(2) == higher_first
    }
}

/// Utility gained per Mbit/s between two rates; `None` when they are equal.
pub(super) fn slope(a: Outcome, b: Outcome) -> Option<f64> {
    let slope = (a.utility - b.utility) / (a.mbit - b.mbit);
    slope.is_finite().then_some(slope)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(chance: u64, utility: impl Fn(u8, f64) -> f64) -> Option<Finding> {
        let mut trial = Trial::new(chance);
        for number in 0..INTERVALS {
            assert_eq!(trial.next(), Purpose::Trial(number));
            let mbit = 10.0 * trial.share(number);
            let outcome = Outcome {
                mbit,
                utility: utility(number, mbit),
                loss: 0.0,
            };
            assert_eq!(trial.take(number, Some(outcome)), number == 3);
        }
        assert_eq!(trial.next(), Purpose::Waiting);
        trial.finding()
    }

    #[test]
    fn agreeing_pairs_give_the_gradient_in_whatever_order() {
        for chance in 0..4 {
            let finding = run(chance, |_, mbit| 3.0 - 2.0 * mbit).unwrap();
            assert!(
                (finding.gradient + 2.0).abs() < 1e-9,
                "{chance}: {finding:?}"
            );
            assert!((finding.middle.mbit - 10.0).abs() < 1e-9);
        }
    }

    #[test]
    fn contradicting_pairs_are_inconclusive() {
        for chance in 0..4 {
            let sign = |number| if number < 2 { 1.0 } else { -1.0 };
            assert_eq!(run(chance, |number, mbit| sign(number) * mbit), None);
        }
    }

    #[test]
    fn an_interval_that_tells_nothing_spoils_the_trial() {
        let mut trial = Trial::new(0);
        for number in 0..INTERVALS {
            let told = Outcome {
                mbit: 10.0 * trial.share(number),
                utility: 1.0,
                loss: 0.0,
            };
            trial.take(number, (number != 2).then_some(told));
        }
        assert_eq!(trial.finding(), None);
    }
}
