//! The search for the earliest arrivals, and until when the ways that it finds are the earliest.
//!
//! What is ready at `t` is at the end of a sequence of contacts at the later one of two times: one at which it has waited for a contact, which
//! does not depend on `t`, and `t` with all that transmissions and light take. So the moment can be computed at which a way that waits
//! overtakes one that moves with `t`, and the one after which a contact is too short. Dijkstra's tree stays the best as long as neither
//! has come for any of its nodes: the condition of optimality is that no contact leads to a node earlier than the tree does.

use std::{
    cmp::Reverse,
    collections::{BTreeMap, BinaryHeap},
    time::Duration,
};

use super::{
    Contact, ContactPlan, Moment, NodeId,
    ways::{Bookings, Lasting, Query, Route},
};

/// The least difference of two moments.
const INSTANT: Duration = Duration::from_nanos(1);

/// When what is ready at a time arrives on one way. Of two that arrive at once, the one that takes less is the lesser.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Arrival {
    /// After so long, if it waits for no contact.
    takes: Duration,
    /// Not before this, as it waits for contacts.
    earliest: Moment,
    /// What is ready later than this comes too late for a contact.
    latest: Moment,
}

impl Arrival {
    /// At the node that has it.
    const fn ready(now: Moment) -> Self {
        Self {
            takes: Duration::ZERO,
            earliest: now,
            latest: Moment::MAX,
        }
    }

    /// When what is ready at `time` arrives.
    fn of(&self, time: Moment) -> Moment {
        self.earliest.max(time.plus(self.takes))
    }

    /// The same over one more contact, which is free from `free` on; `None` if it is too late for that now.
    fn over(&self, contact: &Contact, free: Moment, query: &Query<'_>) -> Option<Self> {
        let sending = contact.rate.time_to_send(query.bytes);
        let begins = self.of(query.now).max(free);
        if begins >= contact.end || begins.plus(sending) > contact.end {
            return None;
        }
        // It begins before the end, even if it takes no time.
        let last = contact.end.before(sending.max(INSTANT));
        let next = Self {
            takes: self
                .takes
                .saturating_add(sending)
                .saturating_add(contact.light_time),
            earliest: self
                .earliest
                .max(free)
                .plus(sending)
                .plus(contact.light_time),
            latest: self.latest.min(last.before(self.takes)),
        };
        let arrives = next.of(query.now);
        // At the end of all times nothing arrives.
        (arrives <= query.expiry && arrives < Moment::MAX).then_some(next)
    }

    /// Until when this way is not worse than another one to the same node, as it is not now.
    fn leads(&self, other: &Self) -> Moment {
        match other.takes < self.takes {
            // The other one waits, and this one comes nearer to its arrival.
            true => other.earliest.before(self.takes),
            false => Moment::MAX,
        }
    }

    /// Until when it is a way at all.
    fn lasts(&self, expiry: Moment) -> Moment {
        self.latest.min(expiry.before(self.takes))
    }
}

/// A node that was reached, and the place of the contact that leads there; of the first node there is none.
type Reached<'a> = BTreeMap<&'a NodeId, (Arrival, Option<usize>)>;

/// The earliest arrival at every node that can be reached in time, over contacts that may be used.
pub(super) fn search(
    plan: &ContactPlan,
    query: Query<'_>,
    bookings: &Bookings,
    may_be_used: impl Fn(&Contact) -> bool,
) -> Lasting {
    let over = |arrival: &Arrival, place: usize, contact: &Contact| {
        let free = bookings.free(place, contact);
        let is_left = contact.end > query.now && may_be_used(contact);
        is_left
            .then(|| arrival.over(contact, free, &query))
            .flatten()
    };
    let mut reached = Reached::new();
    let start = (query.now, 0_usize, Arrival::ready(query.now));
    let mut waiting = BinaryHeap::from([Reverse((start, query.from, None))]);
    while let Some(Reverse(((_, hops, arrival), node, by))) = waiting.pop() {
        if reached.contains_key(node) {
            continue;
        }
        for (place, contact) in plan.leaving(node) {
            if reached.contains_key(&contact.to) {
                continue;
            }
            if let Some(next) = over(&arrival, place, contact) {
                let found = (next.of(query.now), hops + 1, next);
                waiting.push(Reverse((found, &contact.to, Some(place))));
            }
        }
        reached.insert(node, (arrival, by));
    }
    let mut until = Moment::MAX;
    for (node, (arrival, _)) in &reached {
        until = until.min(arrival.lasts(query.expiry));
        for (place, contact) in plan.leaving(node) {
            let held = reached.get(&contact.to);
            let held = held.filter(|_| contact.to != *query.from);
            if let Some((held, _)) = held
                && let Some(other) = over(arrival, place, contact)
            {
                until = until.min(held.leads(&other));
            }
        }
    }
    let routes = reached.iter().filter(|(_, (_, by))| by.is_some());
    let routes = routes.map(|(node, (arrival, _))| {
        let route = Route {
            contacts: way(plan, &reached, node),
            arrival: arrival.of(query.now),
        };
        ((*node).clone(), route)
    });
    Lasting {
        routes: routes.collect(),
        until: until.max(query.now),
    }
}

/// The places of the contacts that lead to a node, the first one first.
fn way(plan: &ContactPlan, reached: &Reached<'_>, to: &NodeId) -> Vec<usize> {
    let (mut contacts, mut at) = (Vec::new(), to);
    while let Some((_, Some(place))) = reached.get(at)
        && let Some(contact) = plan.contacts().get(*place)
    {
        contacts.push(*place);
        at = &contact.from;
    }
    contacts.reverse();
    contacts
}
