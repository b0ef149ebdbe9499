//! Paths that must be paid for, within the budget of their session.

use std::{
    collections::BTreeMap,
    time::{Duration, Instant},
};

use starhaul_paths::PathId;
use starhaul_units::Bandwidth;

use super::{LAST_RESORT, Path, Paths};
use crate::spending::{Spending, SpendingStatus};

impl Paths {
    /// What the paths with a price may cost together from now on: bytes times cost, as a rate.
    pub(crate) fn set_budget(&mut self, now: Instant, budget: Bandwidth) {
        self.spending = Some(Spending::new(now, budget));
    }

    /// What [`Paths::set_budget`] said.
    pub(crate) fn budget(&self) -> Option<Bandwidth> {
        self.spending.as_ref().map(Spending::budget)
    }

    /// The part of the budget of a second that is left to be spent at once; below 0 when something is owed. `None` without a budget.
    pub(crate) fn budget_left(&self, now: Instant) -> Option<f64> {
        self.spending.as_ref().map(|spending| spending.left(now))
    }

    pub(crate) fn spending_status(&self, now: Instant) -> Option<SpendingStatus> {
        self.spending.as_ref().map(|spending| spending.status(now))
    }

    /// Tells each path what may leave on it, by which its arrivals are predicted.
    pub(crate) fn allot(&mut self, now: Instant) {
        let Some(spending) = &self.spending else {
            return;
        };
        // What is kept for the revision depends on no allowance.
        self.revision += 1;
        let dearest = dearest(&self.table);
        for path in self.table.values_mut() {
            let datagram = path.max_datagram() as u64;
            let price = price(path.monitor.cost(), dearest);
            let allowance = price.map(|price| spending.allowance(price, datagram));
            path.monitor.set_allowance(now, allowance);
        }
    }

    /// A packet of so many bytes leaves on a path.
    pub(crate) fn pay(&mut self, now: Instant, id: PathId, bytes: u64) {
        let Some(spending) = &mut self.spending else {
            return;
        };
        let cost = self.table.get(&id).map(|path| path.monitor.cost());
        let price = cost.and_then(|cost| price(cost, dearest(&self.table)));
        if let Some(price) = price {
            spending.pay(now, price, bytes);
            self.allot(now);
        }
    }

    /// Whether what is left pays for a datagram of any size on the path.
    pub(crate) fn may_pay(&self, now: Instant, id: PathId) -> bool {
        let Some(spending) = &self.spending else {
            return true;
        };
        let Some(path) = self.table.get(&id) else {
            return true;
        };
        let datagram = path.max_datagram() as u64;
        price(path.monitor.cost(), dearest(&self.table)).is_none_or(|price| {
            let allowance = spending.allowance(price, datagram);
            allowance.wait(now, datagram).is_zero()
        })
    }

    /// The bandwidth of these paths together.
    pub(crate) fn bandwidth_of<'a>(&self, paths: impl Iterator<Item = &'a Path>) -> Bandwidth {
        let rates = paths.map(|path| (path, path.monitor.bandwidth()));
        if self.spending.is_none() {
            return rates.map(|(_, rate)| rate).sum();
        }
        let second = Duration::from_secs(1);
        let each = rates.map(|(path, rate)| (path, second, rate.bytes_in(second)));
        Bandwidth::from_bytes_per_second(self.bytes_of(each))
    }

    /// What these paths bring together, where each by itself would bring so many bytes within a time of its own: those with a price share the
    /// budget, which the cheapest have first.
    pub(crate) fn bytes_of<'a>(
        &self,
        each: impl Iterator<Item = (&'a Path, Duration, u64)>,
    ) -> u64 {
        let Some(spending) = &self.spending else {
            return each.fold(0, |sum: u64, (.., bytes)| sum.saturating_add(bytes));
        };
        let dearest = dearest(&self.table);
        let (mut total, mut priced) = (0_u64, Vec::new());
        for (path, time, bytes) in each {
            match price(path.monitor.cost(), dearest) {
                Some(price) => priced.push((price, bytes, spending.rate_at(price).bytes_in(time))),
                None => total = total.saturating_add(bytes),
            }
        }
        priced.sort_by(|a, b| a.0.total_cmp(&b.0));
        let mut left = 1.0;
        for (_, bytes, affordable) in priced {
            // One alone may bring more than is earned meanwhile, of what is saved.
            let part = (bytes as f64 / affordable.max(1) as f64).min(1.0);
            if part > left {
                return total.saturating_add(scaled(bytes, left / part));
            }
            total = total.saturating_add(bytes);
            left -= part;
        }
        total
    }
}

/// A part, 0 to 1, of so many bytes.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "a part is no less than 0, and the cast saturates"
)]
const fn scaled(bytes: u64, part: f64) -> u64 {
    (bytes as f64 * part) as u64
}

/// The greatest price of any path that is no last resort.
fn dearest(table: &BTreeMap<PathId, Path>) -> f64 {
    let costs = table.values().map(|path| path.monitor.cost());
    costs.filter(|cost| *cost < LAST_RESORT).fold(0.0, f64::max)
}

/// The price of a byte, if it has one. The cost of a last resort is no price: it is paid for like the dearest other path.
fn price(cost: f64, dearest: f64) -> Option<f64> {
    if cost < LAST_RESORT {
        return (cost > 0.0).then_some(cost);
    }
    Some(if dearest > 0.0 { dearest } else { 1.0 })
}

#[cfg(test)]
mod tests {
    use starhaul_paths::PathUpdate;

    use super::*;

    /// Paths of 10 Mbit/s with these costs.
    fn paths(now: Instant, costs: &[f64]) -> Paths {
        let rtt = Duration::from_millis(40);
        let update = PathUpdate {
            cwnd: 1 << 20,
            bytes_in_flight: 0,
            bandwidth: Bandwidth::from_mbit(10),
            smoothed_rtt: rtt,
            min_rtt: rtt,
            max_datagram: 1_200,
        };
        let mut paths = Paths::default();
        for (id, cost) in (0..).zip(costs) {
            paths.add(now, PathId(id), *cost, update);
        }
        paths
    }

    fn set_budget(paths: &mut Paths, now: Instant, mbit: u64) {
        paths.set_budget(now, Bandwidth::from_mbit(mbit));
        paths.allot(now);
    }

    #[test]
    fn paths_with_a_price_share_the_budget_and_the_cheapest_have_it_first() {
        let now = Instant::now();
        let mut paths = paths(now, &[0.0, 2.0, 1.0]);
        assert_eq!(paths.bandwidth(), Bandwidth::from_mbit(30));
        let tenth = Duration::from_millis(100);
        // 10 Mbit/s without a price; of the others first those for 1, and for 2 what is left.
        for (budget, kbit) in [(4, 14_000), (12, 21_000), (20, 25_000), (40, 30_000)] {
            set_budget(&mut paths, now, budget);
            let carried = paths.bandwidth().bits_per_second() / 1_000;
            assert!(carried.abs_diff(kbit) <= 1, "{carried} for {budget}");
            let each = paths
                .usable()
                .map(|(_, path)| (path, tenth, path.monitor.bandwidth().bytes_in(tenth)));
            let bytes = paths.bytes_of(each);
            let wanted = Bandwidth::from_kbit(kbit).bytes_in(tenth);
            assert!(bytes.abs_diff(wanted) <= 20, "{bytes} for {budget}");
        }
    }

    /// None is a last resort but for its cost, and none carries data without being paid for.
    #[test]
    fn a_cost_that_is_no_price_is_paid_for_like_the_dearest() {
        let now = Instant::now();
        for cost in [f64::NAN, f64::INFINITY, 1e300, LAST_RESORT] {
            let mut paths = paths(now, &[cost, 4.0]);
            set_budget(&mut paths, now, 4);
            paths.pay(now, PathId(0), 62_500);
            // Half of a second's budget.
            assert!((paths.budget_left(now).unwrap_or(0.0) - 0.5).abs() < 1e-6);
            assert!(paths.may_pay(now, PathId(0)));
            paths.pay(now, PathId(1), 62_500);
            assert!(!paths.may_pay(now, PathId(0)), "{cost}");
        }
        // The least of prices costs next to nothing, and overflows nothing.
        let mut paths = paths(now, &[f64::MIN_POSITIVE, f64::from_bits(1)]);
        set_budget(&mut paths, now, 1);
        for path in [PathId(0), PathId(1)] {
            paths.pay(now, path, 1 << 40);
            assert!(paths.may_pay(now, path));
        }
        assert_eq!(paths.bandwidth(), Bandwidth::from_mbit(20));
    }
}
