//! Paths that must be paid for, within the budget of their session.

use std::{collections::BTreeMap, time::Instant};

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
        let (Some(spending), Some(path)) = (&self.spending, self.table.get(&id)) else {
            return true;
        };
        let datagram = path.max_datagram() as u64;
        price(path.monitor.cost(), dearest(&self.table)).is_none_or(|price| {
            let allowance = spending.allowance(price, datagram);
            allowance.wait(now, datagram).is_zero()
        })
    }

    /// What all usable paths carry for the budget, which the cheapest of those with a price have first.
    pub(super) fn affordable_bandwidth(&self, spending: &Spending) -> Bandwidth {
        let dearest = dearest(&self.table);
        let mut total = Bandwidth::ZERO;
        let mut priced = Vec::new();
        for (_, path) in self.usable() {
            let rate = path.monitor.bandwidth();
            match price(path.monitor.cost(), dearest) {
                Some(price) => priced.push((price, rate)),
                None => total = total.saturating_add(rate),
            }
        }
        priced.sort_by(|a, b| a.0.total_cmp(&b.0));
        let mut left = 1.0;
        for (price, rate) in priced {
            let whole = spending.rate_at(price).bits_per_second() as f64;
            let part = rate.bits_per_second() as f64 / whole.max(1.0);
            let taken = part.min(left);
            if part > 0.0 {
                total = total.saturating_add(rate.scaled(taken / part));
            }
            left -= taken;
        }
        total
    }
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
