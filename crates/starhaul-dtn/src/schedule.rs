//! The contact plan as the node follows it: which neighbours can be talked to now, and over whom each node is reached first.

use std::{
    collections::BTreeMap,
    sync::{Mutex, MutexGuard, PoisonError},
    time::SystemTime,
};

use starhaul_ltp::LinkState;

use crate::plan::{
    Contact, ContactPlan, Moment, NodeId,
    route::{Bookings, Query, Route, earliest},
};

/// Bytes of the bundle for which routes are computed; each bundle's own size counts when it leaves.
const TYPICAL_BYTES: u64 = 1 << 10;

/// What a node knows of contacts.
#[derive(Debug)]
pub(crate) struct Schedule {
    node: NodeId,
    plan: ContactPlan,
    bookings: Mutex<Bookings>,
}

/// The time of a contact that a bundle was given, if its neighbour is in the plan.
#[derive(Debug)]
pub(crate) struct Booking {
    place: Option<usize>,
    bytes: u64,
}

impl Schedule {
    /// The plan as seen from `node`.
    pub(crate) fn new(node: NodeId, plan: ContactPlan) -> Self {
        Self {
            node,
            plan,
            bookings: Mutex::default(),
        }
    }

    /// The present moment, by the system's clock.
    pub(crate) fn now() -> Moment {
        SystemTime::now().into()
    }

    /// The plan.
    pub(crate) fn plan(&self) -> &ContactPlan {
        &self.plan
    }

    /// Whether bundles may be sent to a neighbour now: a contact is open, and not booked to its end.
    pub(crate) fn is_open(&self, neighbour: &NodeId, now: Moment) -> bool {
        !self.is_planned(neighbour)
            || self.open(neighbour, now).is_some_and(|place| {
                self.bookings()
                    .has_room(&self.plan, place, now, TYPICAL_BYTES)
            })
    }

    /// What the plan says of the link to a neighbour.
    pub(crate) fn link(&self, neighbour: &NodeId, now: Moment) -> LinkState {
        let is_planned = self.is_planned(neighbour);
        LinkState {
            may_transmit: !is_planned || self.open(neighbour, now).is_some(),
            peer_transmits: !is_planned || self.plan.is_heard(neighbour, &self.node, now),
        }
    }

    /// The next contact that begins to a neighbour.
    pub(crate) fn next_contact(&self, neighbour: &NodeId, now: Moment) -> Option<&Contact> {
        let contacts = self.plan.contacts().iter();
        let mut own =
            contacts.filter(|contact| contact.from == self.node && contact.to == *neighbour);
        own.find(|contact| contact.start > now)
    }

    /// When the next contact begins or ends here.
    pub(crate) fn next_change(&self, now: Moment) -> Option<Moment> {
        self.plan.next_change(&self.node, now)
    }

    /// How each node of the plan is reached first.
    pub(crate) fn routes(&self, now: Moment) -> BTreeMap<NodeId, Route> {
        let mut bookings = self.bookings();
        bookings.forget_past(&self.plan, now);
        let (bytes, expiry) = (TYPICAL_BYTES, Moment::MAX);
        earliest(
            &self.plan,
            Query {
                from: &self.node,
                now,
                bytes,
                expiry,
            },
            &bookings,
        )
    }

    /// Books the open contact to a neighbour for a bundle that leaves now; `None` if the rest of the contact is too short.
    pub(crate) fn book(&self, neighbour: &NodeId, now: Moment, bytes: u64) -> Option<Booking> {
        if !self.is_planned(neighbour) {
            return Some(Booking { place: None, bytes });
        }
        let place = self.open(neighbour, now)?;
        self.bookings().book(&self.plan, place, now, bytes)?;
        let place = Some(place);
        Some(Booking { place, bytes })
    }

    /// A bundle did not leave: others may have its time.
    pub(crate) fn give_back(&self, booking: &Booking, now: Moment) {
        if let Some(place) = booking.place {
            self.bookings()
                .give_back(&self.plan, place, now, booking.bytes);
        }
    }

    /// Whether no contact with a neighbour is left in either direction.
    pub(crate) fn is_over(&self, neighbour: &NodeId, now: Moment) -> bool {
        let own = [(&self.node, neighbour), (neighbour, &self.node)];
        let mut all = self.plan.contacts().iter();
        self.is_planned(neighbour)
            && !all.any(|contact| {
                own.contains(&(&contact.from, &contact.to))
                    && contact.end.plus(contact.light_time) > now
            })
    }

    /// The place in the plan of the open contact that lasts longest.
    fn open(&self, neighbour: &NodeId, now: Moment) -> Option<usize> {
        let contacts = self.plan.contacts().iter().enumerate();
        let open = contacts.filter(|(_, contact)| {
            contact.from == self.node && contact.to == *neighbour && contact.is_open(now)
        });
        open.max_by_key(|(_, contact)| contact.end)
            .map(|(place, _)| place)
    }

    fn is_planned(&self, neighbour: &NodeId) -> bool {
        self.plan.knows(&self.node, neighbour) || self.plan.knows(neighbour, &self.node)
    }

    fn bookings(&self) -> MutexGuard<'_, Bookings> {
        self.bookings.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
