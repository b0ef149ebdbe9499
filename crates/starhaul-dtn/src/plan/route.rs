//! Contact-graph routing (CCSDS 734.3 §3.2): the way on which a bundle arrives first.
//!
//! A bundle leaves over a contact when it is there, the contact is open, and what was booked before has left. A node that has it earlier
//! can wait, so an earlier arrival at a node is never worse, and Dijkstra's search over nodes finds the best way.

use std::collections::BTreeMap;

pub use super::ways::{Bookings, Lasting, Query, Route};
use super::{Contact, ContactPlan, NodeId, search::search};

/// The earliest arrival at every node that can be reached in time; equal ones with fewer contacts first.
pub fn earliest(
    plan: &ContactPlan,
    query: Query<'_>,
    bookings: &Bookings,
) -> BTreeMap<NodeId, Route> {
    search(plan, query, bookings, |_| true).routes
}

/// The same over those contacts that may be used, and until when these ways are the earliest.
pub fn earliest_over(
    plan: &ContactPlan,
    query: Query<'_>,
    bookings: &Bookings,
    may_be_used: impl Fn(&Contact) -> bool,
) -> Lasting {
    search(plan, query, bookings, may_be_used)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use proptest::prelude::*;
    use starhaul_units::Bandwidth;

    use super::*;
    use crate::plan::{
        Moment,
        trials::{arrivals, contact, node, second},
    };

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
            let best = arrivals(&plan, &query, &bookings);
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

        /// At any moment until which they hold, what leaves on the same ways arrives as early as on those of a new search.
        #[test]
        fn ways_are_the_earliest_as_long_as_they_are_said_to_be(
            contacts in prop::collection::vec(contact(), 0..40),
            now in 0u64..100,
            bytes in 0u64..40_000,
            lifetime in 1u64..400,
            later in prop::collection::vec(0.0f64..=1.0, 8),
            booked in prop::collection::vec((0usize..40, 0u64..100_000), 0..4),
        ) {
            let plan = ContactPlan::new(contacts);
            let mut bookings = Bookings::default();
            for (place, bytes) in booked {
                bookings.book(&plan, place, second(now), bytes);
            }
            let (from, now) = (node(1), second(now));
            let expiry = now.plus(Duration::from_secs(lifetime));
            let query = Query { from: &from, now, bytes, expiry };
            let found = earliest_over(&plan, query, &bookings, |_| true);
            prop_assert!(found.until >= now);
            // After the last contact nothing changes.
            let lasts = found.until.since(now).min(Duration::from_secs(400));
            for part in later {
                let at = now.plus(lasts.mul_f64(part)).min(found.until);
                let anew = earliest(&plan, Query { now: at, ..query }, &bookings);
                prop_assert!(anew.keys().eq(found.routes.keys()), "{:?}", at);
                for (to, route) in &found.routes {
                    let mut here = at;
                    for place in &route.contacts {
                        let contact = &plan.contacts()[*place];
                        let leaves = bookings.leaves(*place, contact, here, bytes);
                        here = leaves.unwrap().plus(contact.light_time);
                    }
                    prop_assert_eq!(here, anew[to].arrival, "{} at {:?}", to, at);
                }
            }
        }
    }

    /// A way that waits overtakes one that does not, and a contact that ends has no room for what comes later than its light and the
    /// bundle's bytes allow.
    #[test]
    fn ways_hold_until_a_bundle_comes_too_late_or_earlier_over_another() {
        let contact =
            |from: u32, to: u32, seconds: std::ops::Range<u64>, light_time: u64| Contact {
                from: node(from),
                to: node(to),
                start: second(seconds.start),
                end: second(seconds.end),
                rate: Bandwidth::from_kbit(8),
                light_time: Duration::from_secs(light_time),
            };
        let plan = ContactPlan::new(vec![
            contact(1, 2, 0..100, 3),
            contact(2, 4, 0..20, 0),
            contact(1, 3, 0..100, 1),
            contact(3, 4, 50..100, 1),
        ]);
        let (from, to) = (node(1), node(4));
        let search = |at: u64, bytes: u64| {
            let query = Query {
                from: &from,
                now: second(at),
                bytes,
                expiry: Moment::MAX,
            };
            let mut found = earliest_over(&plan, query, &Bookings::default(), |_| true);
            let route = found.routes.remove(&to);
            let via = route.and_then(|route| Some(route.first(&plan)?.to.clone()));
            (via, found.until)
        };
        // A second for each 1000 bytes: it is at 2 after 3 s more, and is to be gone by 20.
        assert_eq!(search(0, 1000), (Some(node(2)), second(15)));
        assert_eq!(search(0, 4000), (Some(node(2)), second(9)));
        let after = Moment(second(15).0 + Duration::from_nanos(1));
        let query = Query {
            from: &from,
            now: after,
            bytes: 1000,
            expiry: Moment::MAX,
        };
        let found = earliest_over(&plan, query, &Bookings::default(), |_| true);
        assert_eq!(found.routes[&to].first(&plan).unwrap().to, node(3));
        // It waits at 3 until 50, and leaves there by 99: at the latest it leaves here at 97.
        assert_eq!(search(16, 1000), (Some(node(3)), second(97)));
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
