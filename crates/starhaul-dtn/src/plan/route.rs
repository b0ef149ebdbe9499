//! Contact-graph routing (CCSDS 734.3 §3.2): the way on which a bundle arrives first.
//!
//! A bundle leaves over a contact when it is there, the contact is open, and what was booked before has left. A node that has it earlier
//! can wait, so an earlier arrival at a node is never worse, and Dijkstra's search over nodes finds the best way.

use std::{
    cmp::Reverse,
    collections::{BTreeMap, BinaryHeap},
};

use super::{Contact, ContactPlan, Moment, NodeId};

/// A bundle that looks for its way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Query<'a> {
    /// The node that has the bundle.
    pub from: &'a NodeId,
    /// The earliest time at which it may leave.
    pub now: Moment,
    /// Its bytes on the link.
    pub bytes: u64,
    /// When it is of no use any more.
    pub expiry: Moment,
}

/// Until when contacts are booked, by their place in the plan.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Bookings(BTreeMap<usize, Moment>);

/// A way to a node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Route {
    /// Places of its contacts in the plan, the first one first.
    pub contacts: Vec<usize>,
    /// When the last byte arrives.
    pub arrival: Moment,
}

impl Route {
    /// The contact over which the bundle leaves its node.
    pub fn first<'p>(&self, plan: &'p ContactPlan) -> Option<&'p Contact> {
        plan.contacts().get(*self.contacts.first()?)
    }
}

impl Bookings {
    /// Books a contact for a bundle that is there at `now`, and returns when its last byte leaves; `None` if the rest of the
    /// contact is too short.
    pub fn book(
        &mut self,
        plan: &ContactPlan,
        place: usize,
        now: Moment,
        bytes: u64,
    ) -> Option<Moment> {
        let leaves = self.leaves(place, plan.contacts().get(place)?, now, bytes)?;
        self.0.insert(place, leaves);
        Some(leaves)
    }

    /// Gives back what was booked for a bundle that did not leave, as far as it lies in the future.
    pub fn give_back(&mut self, plan: &ContactPlan, place: usize, now: Moment, bytes: u64) {
        if let (Some(booked), Some(contact)) = (self.0.get_mut(&place), plan.contacts().get(place))
        {
            let until = Moment(booked.0.saturating_sub(contact.rate.time_to_send(bytes)));
            *booked = until.max(now).min(*booked);
        }
    }

    /// Forgets contacts that are over.
    pub fn forget_past(&mut self, plan: &ContactPlan, now: Moment) {
        self.0.retain(|place, _| {
            plan.contacts()
                .get(*place)
                .is_some_and(|contact| contact.end > now)
        });
    }

    /// When the last byte of a bundle that is there at `now` leaves over a contact; `None` if it does not fit any more.
    pub fn leaves(
        &self,
        place: usize,
        contact: &Contact,
        now: Moment,
        bytes: u64,
    ) -> Option<Moment> {
        let booked = self.0.get(&place).copied().unwrap_or_default();
        let begins = now.max(contact.start).max(booked);
        let leaves = begins.plus(contact.rate.time_to_send(bytes));
        (leaves <= contact.end && begins < contact.end).then_some(leaves)
    }
}

/// The earliest arrival at every node that can be reached in time; equal ones with fewer contacts first.
pub fn earliest(
    plan: &ContactPlan,
    query: Query<'_>,
    bookings: &Bookings,
) -> BTreeMap<NodeId, Route> {
    earliest_over(plan, query, bookings, |_| true)
}

/// The same over those contacts that may be used.
pub fn earliest_over(
    plan: &ContactPlan,
    query: Query<'_>,
    bookings: &Bookings,
    may_be_used: impl Fn(&Contact) -> bool,
) -> BTreeMap<NodeId, Route> {
    let mut from_node: BTreeMap<&NodeId, Vec<(usize, &Contact)>> = BTreeMap::new();
    for (place, contact) in plan.contacts().iter().enumerate() {
        if contact.end > query.now && may_be_used(contact) {
            from_node
                .entry(&contact.from)
                .or_default()
                .push((place, contact));
        }
    }
    let mut found: BTreeMap<NodeId, Route> = BTreeMap::new();
    let mut waiting = BinaryHeap::from([Reverse((query.now, 0_usize, query.from, Vec::new()))]);
    while let Some(Reverse((at, hops, node, contacts))) = waiting.pop() {
        if found.contains_key(node) {
            continue;
        }
        for (place, contact) in from_node.get(node).into_iter().flatten() {
            if found.contains_key(&contact.to) {
                continue;
            }
            let leaves = bookings.leaves(*place, contact, at, query.bytes);
            let arrives = leaves.map(|leaves| leaves.plus(contact.light_time));
            if let Some(arrives) = arrives.filter(|arrives| *arrives <= query.expiry) {
                let contacts: Vec<usize> = contacts.iter().copied().chain([*place]).collect();
                waiting.push(Reverse((arrives, hops + 1, &contact.to, contacts)));
            }
        }
        found.insert(
            node.clone(),
            Route {
                contacts,
                arrival: at,
            },
        );
    }
    found.remove(query.from);
    found
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use proptest::prelude::*;
    use starhaul_units::Bandwidth;

    use super::*;

    fn node(number: u32) -> NodeId {
        format!("ipn:{number}.0").parse().unwrap()
    }

    fn second(seconds: u64) -> Moment {
        Moment(Duration::from_secs(seconds))
    }

    prop_compose! {
        fn contact()(from in 0u32..10, hop in 1u32..10, start in 0u64..200, length in 1u64..60, rate in 1u64..50, light in 0u64..20) -> Contact {
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

    /// The earliest arrival over every sequence of contacts that visits no node twice.
    fn try_all(
        plan: &ContactPlan,
        at: Moment,
        visited: &mut Vec<NodeId>,
        query: &Query<'_>,
        bookings: &Bookings,
        best: &mut BTreeMap<NodeId, Moment>,
    ) {
        let here = visited.last().unwrap().clone();
        for (place, contact) in plan.contacts().iter().enumerate() {
            if contact.from != here || visited.contains(&contact.to) {
                continue;
            }
            let booked = bookings.0.get(&place).copied().unwrap_or_default();
            let begins = at.max(contact.start).max(booked);
            let leaves = begins.plus(contact.rate.time_to_send(query.bytes));
            let arrives = leaves.plus(contact.light_time);
            if begins >= contact.end || leaves > contact.end || arrives > query.expiry {
                continue;
            }
            let known = best.entry(contact.to.clone()).or_insert(arrives);
            *known = (*known).min(arrives);
            visited.push(contact.to.clone());
            try_all(plan, arrives, visited, query, bookings, best);
            visited.pop();
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(1000))]
        #[test]
        fn ten_nodes_are_reached_as_early_as_the_best_of_all_ways(
            contacts in prop::collection::vec(contact(), 0..24),
            now in 0u64..60,
            bytes in 0u64..40_000,
            lifetime in 1u64..400,
            booked in prop::collection::vec((0usize..24, 0u64..100_000), 0..4),
        ) {
            let plan = ContactPlan::new(contacts);
            let mut bookings = Bookings::default();
            for (place, bytes) in booked {
                bookings.book(&plan, place, second(now), bytes);
            }
            let from = node(1);
            let query = Query { from: &from, now: second(now), bytes, expiry: second(now + lifetime) };
            let mut best = BTreeMap::new();
            try_all(&plan, query.now, &mut vec![from.clone()], &query, &bookings, &mut best);
            let found = earliest(&plan, query, &bookings);
            let arrivals: BTreeMap<NodeId, Moment> = found.iter().map(|(node, route)| (node.clone(), route.arrival)).collect();
            prop_assert_eq!(&arrivals, &best);
            // The contacts of each route join, and give its arrival.
            for (to, route) in &found {
                let (mut here, mut at) = (from.clone(), query.now);
                for place in &route.contacts {
                    let contact = &plan.contacts()[*place];
                    prop_assert_eq!(&here, &contact.from);
                    at = bookings.leaves(*place, contact, at, bytes).unwrap().plus(contact.light_time);
                    here = contact.to.clone();
                }
                prop_assert_eq!((&here, at), (to, route.arrival));
            }
        }
    }

    #[test]
    fn a_full_contact_is_left_for_the_next() {
        let contact = |start: u64| Contact {
            from: node(1),
            to: node(2),
            start: second(start),
            end: second(start + 10),
            rate: Bandwidth::from_kbit(8),
            light_time: Duration::from_secs(4),
        };
        let plan = ContactPlan::new(vec![contact(0), contact(100)]);
        let (from, to) = (node(1), node(2));
        let query = Query {
            from: &from,
            now: second(0),
            bytes: 4000,
            expiry: Moment::MAX,
        };
        let mut bookings = Bookings::default();
        assert_eq!(earliest(&plan, query, &bookings)[&to].arrival, second(8));
        assert_eq!(bookings.book(&plan, 0, second(0), 7000), Some(second(7)));
        assert_eq!(bookings.book(&plan, 0, second(0), 4000), None);
        assert_eq!(earliest(&plan, query, &bookings)[&to].arrival, second(108));
        // What did not leave leaves its time to others, as far as that has not passed.
        bookings.give_back(&plan, 0, second(2), 4000);
        assert_eq!(bookings.book(&plan, 0, second(2), 4000), Some(second(7)));
        bookings.give_back(&plan, 0, second(5), 4000);
        assert_eq!(bookings.book(&plan, 0, second(5), 4000), Some(second(9)));
        bookings.forget_past(&plan, second(10));
        assert_eq!(bookings, Bookings::default());
    }
}
