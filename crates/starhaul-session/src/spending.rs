//! What the paths with a price may cost together: a token bucket that holds a second of the session's budget
//! ([`SessionConfig::budget`](crate::SessionConfig::budget)). It counts in time: a datagram takes as long from it as the budget takes to earn
//! its price.

use std::time::{Duration, Instant};

use starhaul_paths::Allowance;
use starhaul_units::Bandwidth;

/// What the budget earns in this time may be spent at once.
const MOST_SAVED: Duration = Duration::from_secs(1);
/// Beyond what it earns in this time, what leaves in any case owes nothing.
const MOST_OWED: Duration = Duration::from_secs(1);
/// What was spent is told of the last so many seconds.
const TOLD_SECONDS: usize = 10;

/// What a session spends on paths with a price, for people.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct SpendingStatus {
    /// What may be spent: a rate over a path of cost 1.
    pub budget: Bandwidth,
    /// What was spent in the last ten seconds, as such a rate.
    pub spent: Bandwidth,
    /// What is left of a second's budget to be spent at once, 0 to 1.
    pub left: f64,
}

/// The token bucket.
#[derive(Debug)]
pub(crate) struct Spending {
    budget: Bandwidth,
    /// When it will be full if nothing more is spent.
    full_at: Instant,
    start: Instant,
    /// Time that the budget takes to earn what was spent in each of the last seconds, and the number of the latest.
    spent: [Duration; TOLD_SECONDS],
    second: u64,
}

impl Spending {
    pub(crate) const fn new(now: Instant, budget: Bandwidth) -> Self {
        Self {
            budget,
            full_at: now,
            start: now,
            spent: [Duration::ZERO; TOLD_SECONDS],
            second: 0,
        }
    }

    pub(crate) const fn budget(&self) -> Bandwidth {
        self.budget
    }

    /// The rate that the budget pays for at a price per byte, which is above 0.
    pub(crate) fn rate_at(&self, price: f64) -> Bandwidth {
        self.budget.scaled(1.0 / price)
    }

    /// What may leave at this price, in datagrams of up to so many bytes: nothing where one of them costs more than is ever saved.
    pub(crate) fn allowance(&self, price: f64, datagram: u64) -> Allowance {
        let rate = self.rate_at(price);
        let is_payable = rate.time_to_send(datagram) <= MOST_SAVED;
        Allowance {
            rate: if is_payable { rate } else { Bandwidth::ZERO },
            most: MOST_SAVED,
            full_at: self.full_at,
        }
    }

    /// So many bytes leave at this price.
    pub(crate) fn pay(&mut self, now: Instant, price: f64, bytes: u64) {
        let most = MOST_SAVED + MOST_OWED;
        let takes = self.rate_at(price).time_to_send(bytes).min(most);
        self.full_at = (self.full_at.max(now) + takes).min(now + most);
        let second = self.second_of(now);
        for passed in (self.second + 1..=second).rev().take(TOLD_SECONDS) {
            self.spent[slot(passed)] = Duration::ZERO;
        }
        self.second = self.second.max(second);
        let spent = &mut self.spent[slot(self.second)];
        *spent = spent.saturating_add(takes);
    }

    /// The part of what may be saved that is left; below 0 when something is owed.
    pub(crate) fn left(&self, now: Instant) -> f64 {
        let missing = self.full_at.saturating_duration_since(now);
        1.0 - missing.as_secs_f64() / MOST_SAVED.as_secs_f64()
    }

    pub(crate) fn status(&self, now: Instant) -> SpendingStatus {
        let second = self.second_of(now).max(self.second);
        let first = (second + 1).saturating_sub(TOLD_SECONDS as u64);
        let spent: Duration = (first..=self.second).map(|at| self.spent[slot(at)]).sum();
        let told = now.saturating_duration_since(self.start + Duration::from_secs(first));
        let told = told.max(Duration::from_secs(1));
        SpendingStatus {
            budget: self.budget,
            spent: self.budget.scaled(spent.as_secs_f64() / told.as_secs_f64()),
            left: self.left(now).max(0.0),
        }
    }

    fn second_of(&self, now: Instant) -> u64 {
        now.saturating_duration_since(self.start).as_secs()
    }
}

fn slot(second: u64) -> usize {
    usize::try_from(second % TOLD_SECONDS as u64).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    #[test]
    fn a_second_of_the_budget_is_saved_and_dear_bytes_take_more_of_it() {
        let start = Instant::now();
        let mut spending = Spending::new(start, Bandwidth::from_bytes_per_second(10_000));
        let may = |spending: &Spending, now, price, bytes| {
            spending.allowance(price, 1_000).wait(now, bytes).is_zero()
        };
        assert!(may(&spending, start, 1.0, 10_000) && !may(&spending, start, 1.0, 10_001));
        assert!(may(&spending, start, 4.0, 2_500) && !may(&spending, start, 4.0, 2_501));
        spending.pay(start, 4.0, 2_000);
        assert!((spending.left(start) - 0.2).abs() < 1e-9);
        assert!(!may(&spending, start, 1.0, 2_001));
        assert!(may(&spending, start + SECOND / 2, 1.0, 7_000));
        // It never holds more.
        assert!(!may(&spending, start + 60 * SECOND, 1.0, 10_001));
    }

    #[test]
    fn a_datagram_that_costs_more_than_is_saved_never_leaves() {
        let now = Instant::now();
        let spending = Spending::new(now, Bandwidth::from_bytes_per_second(10_000));
        assert_eq!(spending.allowance(20.0, 1_000).rate, Bandwidth::ZERO);
        assert!(spending.allowance(10.0, 1_000).rate > Bandwidth::ZERO);
        let none = Spending::new(now, Bandwidth::ZERO);
        assert_eq!(none.allowance(1.0, 1).rate, Bandwidth::ZERO);
    }

    #[test]
    fn what_leaves_in_any_case_owes_a_second_at_most() {
        let now = Instant::now();
        let mut spending = Spending::new(now, Bandwidth::from_bytes_per_second(10_000));
        for price in [f64::MIN_POSITIVE, 1.0, 1e300] {
            spending.pay(now, price, 1_000_000);
        }
        assert!((spending.left(now) + 1.0).abs() < 1e-9);
        assert!(spending.left(now + SECOND) >= -1e-9);
    }

    #[test]
    fn what_was_spent_is_told_of_ten_seconds() {
        let start = Instant::now();
        let mut spending = Spending::new(start, Bandwidth::from_bytes_per_second(10_000));
        for second in 0..30 {
            spending.pay(start + second * SECOND, 2.0, 2_500);
        }
        let told = |after: u32| {
            spending
                .status(start + after * SECOND)
                .spent
                .bytes_per_second()
        };
        assert!((4_900..=5_600).contains(&told(30)), "{}", told(30));
        assert_eq!(told(60), 0);
    }
}
