//! Random plans of ten nodes, and the slow way to find what arrives first.

use std::{collections::BTreeMap, time::Duration};

use proptest::prelude::*;
use starhaul_units::Bandwidth;

use super::{
    Contact, ContactPlan, Moment, NodeId,
    route::{Bookings, Query},
};

/// The node with this number.
pub(crate) fn node(number: u32) -> NodeId {
    format!("ipn:{number}.0").parse().unwrap()
}

/// So many seconds after 1970.
pub(crate) fn second(seconds: u64) -> Moment {
    Moment(Duration::from_secs(seconds))
}

prop_compose! {
    /// Between two of ten nodes, from 1 to 50 kbit/s.
    pub(crate) fn contact()(from in 0u32..10, hop in 1u32..10, start in 0u64..200, length in 1u64..60, rate in 1u64..50, light in 0u64..20) -> Contact {
        Contact {
            from: node(from + 1),
            to: node((from + hop) % 10 + 1),
            start: second(start),
            end: second(start + length),
            rate: Bandwidth::from_kbit(rate),
            light_time: Duration::from_secs(light),
        }
    }
}

/// The earliest arrival at each node over every sequence of contacts that visits no node twice.
pub(crate) fn arrivals(
    plan: &ContactPlan,
    query: &Query<'_>,
    bookings: &Bookings,
) -> BTreeMap<NodeId, Moment> {
    let mut best = BTreeMap::new();
    let mut visited = vec![query.from.clone()];
    try_all(
        plan,
        query.now,
        &mut visited,
        query,
        bookings,
        &mut |_, to, arrives| {
            let known = best.entry(to.clone()).or_insert(arrives);
            *known = arrives.min(*known);
        },
    );
    best
}

/// Calls `found` with the place of the first contact, the last node and the arrival of every such sequence.
fn try_all(
    plan: &ContactPlan,
    at: Moment,
    visited: &mut Vec<NodeId>,
    query: &Query<'_>,
    bookings: &Bookings,
    found: &mut dyn FnMut(usize, &NodeId, Moment),
) {
    let here = visited.last().unwrap().clone();
    for (place, contact) in plan.contacts().iter().enumerate() {
        if contact.from != here || visited.contains(&contact.to) {
            continue;
        }
        let begins = at.max(bookings.free(place, contact));
        let leaves = begins.plus(contact.rate.time_to_send(query.bytes));
        let arrives = leaves.plus(contact.light_time);
        if begins >= contact.end || leaves > contact.end || arrives > query.expiry {
            continue;
        }
        found(place, &contact.to, arrives);
        visited.push(contact.to.clone());
        try_all(
            plan,
            arrives,
            visited,
            query,
            bookings,
            &mut |_, to, arrives| found(place, to, arrives),
        );
        visited.pop();
    }
}

/// The earliest arrival at each node for each place of the first contact of a way.
pub(crate) fn arrivals_over(
    plan: &ContactPlan,
    query: &Query<'_>,
) -> BTreeMap<(NodeId, usize), Moment> {
    let mut best = BTreeMap::new();
    let (mut visited, bookings) = (vec![query.from.clone()], Bookings::default());
    try_all(
        plan,
        query.now,
        &mut visited,
        query,
        &bookings,
        &mut |first, to, arrives| {
            let known = best.entry((to.clone(), first)).or_insert(arrives);
            *known = arrives.min(*known);
        },
    );
    best
}
