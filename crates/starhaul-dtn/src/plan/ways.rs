//! What a bundle asks of a plan, what is booked, and the ways that are found.

use std::collections::BTreeMap;

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

/// The ways to all nodes that can be reached, and until when they are the best.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Lasting {
    /// The way on which a bundle is at each node first.
    pub routes: BTreeMap<NodeId, Route>,
    /// The last moment at which a bundle of this size that leaves on these ways arrives as early as on any other, as long as nothing else is
    /// booked. The arrivals are those of a bundle that leaves now.
    pub until: Moment,
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
        let begins = now.max(self.free(place, contact));
        let leaves = begins.plus(contact.rate.time_to_send(bytes));
        (leaves <= contact.end && begins < contact.end).then_some(leaves)
    }

    /// From when on a contact is there, and what was booked has left.
    pub(super) fn free(&self, place: usize, contact: &Contact) -> Moment {
        let booked = self.0.get(&place).copied().unwrap_or_default();
        contact.start.max(booked)
    }
}
