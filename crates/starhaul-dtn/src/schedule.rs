//! The contact plan as the node follows it: which neighbours can be reached now, and over which of them each node is reached first.

mod hops;
mod table;
#[cfg(test)]
mod tests;
mod ways;

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{
        Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
    time::{Duration, SystemTime},
};

use hardy_eid_patterns::EidPattern;
use starhaul_ltp::LinkState;
use tokio::sync::Notify;

pub(crate) use self::hops::Way;
use self::{
    table::{SMALL, Table},
    ways::{Ways, carries},
};
use crate::{
    layers::{Layer, Layers},
    plan::{Contact, ContactPlan, Moment, NodeId, route::Bookings},
    silence::Silent,
};

/// What a node knows of contacts.
#[derive(Debug)]
pub(crate) struct Schedule {
    node: NodeId,
    plan: ContactPlan,
    /// The nodes that this one has planned contacts with, in either direction.
    planned: BTreeSet<NodeId>,
    /// The contacts that lead from here to each neighbour.
    neighbours: BTreeMap<NodeId, Ways>,
    /// When what the last contact with a node carries, in either direction, has arrived.
    ends: BTreeMap<NodeId, Moment>,
    /// The routes of the configuration: where the plan knows no way now, the first one that holds for a destination.
    configured: BTreeSet<(EidPattern, NodeId)>,
    bookings: Mutex<Bookings>,
    /// How often they changed.
    booked: AtomicU64,
    /// The neighbours that did not answer.
    silent: Mutex<Silent>,
    /// Over which layers neighbours are there and answer.
    layers: Mutex<Layers>,
    /// The next hops of bundles of each size.
    table: Mutex<Table>,
    /// The neighbours over which any node is reached first by bundles of any size, and when each was found to be last.
    firsts: Mutex<BTreeMap<NodeId, Moment>>,
    /// That hops were found that no evaluation of the plan knows of.
    news: Notify,
}

/// The time of a contact that a bundle was given, if its neighbour is in the plan.
#[derive(Debug)]
pub(crate) struct Booking {
    place: Option<usize>,
    bytes: u64,
}

/// Whether the contacts with a neighbour are long enough for a bundle.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fit {
    /// It can leave now.
    Now,
    /// What is left of an open contact is too short or booked; another is long enough, or this one without what is booked. Or there is
    /// no contact any more.
    Later,
    /// There are contacts, and neither what is left of an open one nor any that comes is long enough.
    Never,
}

impl Schedule {
    /// The plan as seen from `node`, and contacts that are always open.
    pub(crate) fn new(node: NodeId, plan: ContactPlan, always: Vec<Contact>) -> Self {
        let other = |contact: &Contact| match (&contact.from, &contact.to) {
            (from, to) if *from == node => Some(to.clone()),
            (from, to) if *to == node => Some(from.clone()),
            _ => None,
        };
        let planned = plan.contacts().iter().filter_map(other).collect();
        let plan = plan.with(always);
        let (mut places, mut ends) = (BTreeMap::<_, Vec<_>>::new(), BTreeMap::new());
        for (place, contact) in plan.contacts().iter().enumerate() {
            if contact.from == node {
                places.entry(contact.to.clone()).or_default().push(place);
            }
            if let Some(other) = other(contact) {
                let end = contact.end.plus(contact.light_time);
                let last = ends.entry(other).or_insert(end);
                *last = end.max(*last);
            }
        }
        let ways = places.into_iter();
        Self {
            planned,
            neighbours: ways
                .map(|(to, places)| (to, Ways::of(&plan, places)))
                .collect(),
            ends,
            configured: BTreeSet::new(),
            table: Mutex::new(Table::new(plan.contacts().len())),
            node,
            plan,
            bookings: Mutex::default(),
            booked: AtomicU64::new(0),
            silent: Mutex::default(),
            layers: Mutex::default(),
            firsts: Mutex::default(),
            news: Notify::new(),
        }
    }

    /// With these routes of the configuration.
    pub(crate) fn with_routes(
        mut self,
        routes: impl IntoIterator<Item = (EidPattern, NodeId)>,
    ) -> Self {
        self.configured.extend(routes);
        self
    }

    /// The present moment, by the system's clock.
    pub(crate) fn now() -> Moment {
        SystemTime::now().into()
    }

    /// Returns the contact plan.
    pub(crate) fn plan(&self) -> &ContactPlan {
        &self.plan
    }

    /// Whether contacts lead from here to a node. Others may be connected, too, of which no plan knows.
    pub(crate) fn is_neighbour(&self, node: &NodeId) -> bool {
        self.neighbours.contains_key(node)
    }

    /// Whether bundles may be sent to a neighbour now: a contact is open, and not booked to its end.
    pub(crate) fn is_open(&self, neighbour: &NodeId, now: Moment) -> bool {
        !self.is_planned(neighbour) || self.best(neighbour, now, SMALL, &self.bookings()).is_some()
    }

    /// What the plan says of the link to a neighbour.
    pub(crate) fn link(&self, neighbour: &NodeId, now: Moment) -> LinkState {
        let is_planned = self.is_planned(neighbour);
        LinkState {
            may_transmit: !is_planned || self.open(neighbour, now).next().is_some(),
            peer_transmits: !is_planned || self.plan.is_heard(neighbour, &self.node, now),
        }
    }

    /// The next contact that begins to a neighbour.
    pub(crate) fn next_contact(&self, neighbour: &NodeId, now: Moment) -> Option<&Contact> {
        let way = self.neighbours.get(neighbour)?.next(now)?;
        self.plan.contacts().get(way.place)
    }

    /// When the next contact begins or ends here.
    pub(crate) fn next_change(&self, now: Moment) -> Option<Moment> {
        let next = self.plan.next_change(&self.node, now);
        next.filter(|at| *at < Moment::MAX)
    }

    /// Whether the agent may know of a neighbour: it sends to one that it knows whatever arrives earlier over another.
    pub(crate) fn is_shown(&self, neighbour: &NodeId, now: Moment) -> bool {
        let is_wanted = !self.neighbours.contains_key(neighbour)
            || self.configured.iter().any(|(_, via)| via == neighbour)
            || self.firsts().contains_key(neighbour);
        is_wanted && self.is_open(neighbour, now)
    }

    /// Whether a neighbour should be there now: it is to be shown, or would be if it answered.
    pub(crate) fn is_due(&self, neighbour: &NodeId, now: Moment) -> bool {
        let is_silent = self.silent().until(neighbour, now) > now;
        self.is_shown(neighbour, now) || is_silent && self.is_open(neighbour, now)
    }

    /// A neighbour did not answer.
    pub(crate) fn failed(&self, neighbour: &NodeId, now: Moment) {
        if self.neighbours.contains_key(neighbour) {
            self.silent().failed(neighbour, now);
        }
    }

    /// A neighbour is there over a layer.
    pub(crate) fn came(&self, neighbour: &NodeId, layer: Layer) {
        self.layers().came(neighbour, layer);
    }

    /// A neighbour is not there any more over a layer. Returns whether it is over the other one.
    pub(crate) fn left(&self, neighbour: &NodeId, layer: Layer) -> bool {
        self.layers().left(neighbour, layer)
    }

    /// A neighbour did not answer over a layer. As long as the other one goes on, no way leads around it.
    pub(crate) fn failed_over(&self, neighbour: &NodeId, layer: Layer, now: Moment) {
        // A stranger takes no memory.
        if self.neighbours.contains_key(neighbour) && !self.layers().failed(neighbour, layer, now) {
            self.failed(neighbour, now);
        }
    }

    /// A neighbour took a bundle over a layer.
    pub(crate) fn worked_over(&self, neighbour: &NodeId, layer: Layer, now: Moment) {
        self.layers().worked(neighbour, layer, now);
    }

    /// Whether bundles are to go to a neighbour over this layer, and not over the other one alone.
    pub(crate) fn is_best_over(&self, neighbour: &NodeId, layer: Layer, now: Moment) -> bool {
        self.layers().is_best(neighbour, layer, now)
    }

    /// A neighbour did not take a bundle.
    pub(crate) fn refused(&self, neighbour: &NodeId, now: Moment) {
        if self.neighbours.contains_key(neighbour) {
            self.silent().refused(neighbour, now);
        }
    }

    /// A neighbour is not connected. Returns whether routes may be others now.
    pub(crate) fn absent(&self, neighbour: &NodeId, now: Moment) -> bool {
        self.neighbours.contains_key(neighbour) && self.silent().absent(neighbour, now)
    }

    /// A neighbour is there. Returns whether routes may be others now.
    pub(crate) fn worked(&self, neighbour: &NodeId, now: Moment) -> bool {
        self.silent().worked(neighbour, now)
    }

    /// When a neighbour that did not answer is tried again.
    pub(crate) fn next_attempt(&self, now: Moment) -> Option<Moment> {
        let over_a_layer = self.layers().next(now);
        self.silent()
            .next(now)
            .into_iter()
            .chain(over_a_layer)
            .min()
    }

    /// Books the open contact to a neighbour for a bundle that leaves now; `None` if the rest of the contact is too short.
    pub(crate) fn book(&self, neighbour: &NodeId, now: Moment, bytes: u64) -> Option<Booking> {
        if !self.is_planned(neighbour) {
            return Some(Booking { place: None, bytes });
        }
        let mut bookings = self.bookings();
        let place = self.best(neighbour, now, bytes, &bookings)?;
        bookings.book(&self.plan, place, now, bytes)?;
        self.booked.fetch_add(1, Ordering::Relaxed);
        let place = Some(place);
        Some(Booking { place, bytes })
    }

    /// Whether a bundle of so many bytes can leave to a neighbour now or at any time.
    pub(crate) fn fit(&self, neighbour: &NodeId, now: Moment, bytes: u64) -> Fit {
        let is_free = || self.best(neighbour, now, bytes, &self.bookings()).is_some();
        if !self.is_planned(neighbour) || is_free() {
            return Fit::Now;
        }
        let next = self.neighbours.get(neighbour);
        let next = next.and_then(|ways| ways.next(now));
        let coming = next.map(|way| way.most_bytes);
        let open = self.open(neighbour, now);
        let open = open.map(|(_, contact)| carries(contact, now)).max();
        // The last contact may just have ended: that says nothing of the bundle's size.
        match open.max(coming).is_none_or(|most| bytes <= most) {
            true => Fit::Later,
            false => Fit::Never,
        }
    }

    /// Bytes of the least contact of the plan between any nodes that is not over and carries so many, or of the largest if none does: over
    /// which of them a bundle will go is not known when it is made. `None` if none is left.
    pub(crate) fn least_contact(&self, now: Moment, least: u64) -> Option<u64> {
        let carried = || {
            let all = self.plan.contacts().iter();
            // One without an end carries all, and its bytes cannot be counted.
            let left = all.filter(move |contact| contact.end > now && contact.end < Moment::MAX);
            left.map(|contact| carries(contact, contact.start))
        };
        let suited = carried().filter(|bytes| *bytes >= least).min();
        suited.or_else(|| carried().max())
    }

    /// How long a signal takes to a neighbour now; no time where no contact says it.
    pub(crate) fn light_time(&self, neighbour: &NodeId, now: Moment) -> Duration {
        let open = self.open(neighbour, now);
        open.map(|(_, contact)| contact.light_time)
            .max()
            .unwrap_or_default()
    }

    /// A bundle did not leave: others may have its time.
    pub(crate) fn give_back(&self, booking: &Booking, now: Moment) {
        if let Some(place) = booking.place {
            self.bookings()
                .give_back(&self.plan, place, now, booking.bytes);
            self.booked.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Whether no contact with a neighbour is left in either direction.
    pub(crate) fn is_over(&self, neighbour: &NodeId, now: Moment) -> bool {
        self.is_planned(neighbour) && self.ends.get(neighbour).is_none_or(|end| *end <= now)
    }

    /// The open contacts with a neighbour, and their places in the plan: links may overlap.
    fn open(&self, neighbour: &NodeId, now: Moment) -> impl Iterator<Item = (usize, &Contact)> {
        let ways = self.neighbours.get(neighbour).into_iter();
        let begun = ways.flat_map(move |ways| ways.begun(now));
        let contacts = begun.filter_map(|place| Some((place, self.plan.contacts().get(place)?)));
        contacts.filter(move |(_, contact)| contact.is_open(now))
    }

    /// The place in the plan of the open contact over which a bundle arrives first.
    fn best(
        &self,
        neighbour: &NodeId,
        now: Moment,
        bytes: u64,
        bookings: &Bookings,
    ) -> Option<usize> {
        let fitting = self.open(neighbour, now).filter_map(|(place, contact)| {
            let leaves = bookings.leaves(place, contact, now, bytes)?;
            Some((leaves.plus(contact.light_time), place))
        });
        fitting.min().map(|(_, place)| place)
    }

    fn is_planned(&self, neighbour: &NodeId) -> bool {
        self.planned.contains(neighbour)
    }

    fn table(&self) -> MutexGuard<'_, Table> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn firsts(&self) -> MutexGuard<'_, BTreeMap<NodeId, Moment>> {
        self.firsts.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn silent(&self) -> MutexGuard<'_, Silent> {
        self.silent.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn layers(&self) -> MutexGuard<'_, Layers> {
        self.layers.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn bookings(&self) -> MutexGuard<'_, Bookings> {
        self.bookings.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
