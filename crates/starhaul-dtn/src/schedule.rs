//! The contact plan as the node follows it: which neighbours can be reached now, and over which of them each node is reached first.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{Mutex, MutexGuard, PoisonError},
    time::{Duration, SystemTime},
};

use starhaul_ltp::LinkState;

use crate::{
    layers::{Layer, Layers},
    plan::{
        Contact, ContactPlan, Moment, NodeId,
        route::{Bookings, Query, Route, earliest, earliest_over},
    },
    silence::Silent,
};

/// Bytes of the bundle for which routes are computed; each bundle's own size counts when it leaves.
const TYPICAL_BYTES: u64 = 1 << 10;

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
    /// The nodes to which the configuration sends bundles, whatever the plan says.
    configured: BTreeSet<NodeId>,
    bookings: Mutex<Bookings>,
    /// The neighbours that did not answer.
    silent: Mutex<Silent>,
    /// Over which layers neighbours are there and answer.
    layers: Mutex<Layers>,
    /// The neighbours over which any node is reached first, when the plan was last evaluated.
    firsts: Mutex<BTreeSet<NodeId>>,
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

/// The contacts from here to one node, by their begin: a plan may have a million.
#[derive(Debug, Default)]
struct Ways {
    ways: Vec<Way>,
    /// The latest ends of spans of them, as a tree: that of all at 1, those of the halves of the span at `n` at `2n` and `2n + 1`.
    /// One long contact that began early hides no end of those after it.
    latest_ends: Vec<Moment>,
    /// How many the tree has place for, a power of two.
    width: usize,
}

#[derive(Debug)]
struct Way {
    start: Moment,
    /// The place in the plan.
    place: usize,
    /// The most bytes that this one or any that begins later carries.
    most_bytes: u64,
}

/// Those that have begun and are open, each found by as many steps as the tree is high.
struct Begun<'a> {
    ways: &'a Ways,
    now: Moment,
    /// Spans that have begun.
    count: usize,
    /// Spans that may hold some: the place in the tree, the first one, and how many.
    spans: Vec<(usize, usize, usize)>,
    #[cfg(test)]
    steps: usize,
}

impl Iterator for Begun<'_> {
    type Item = usize;

    fn next(&mut self) -> Option<usize> {
        while let Some((at, first, width)) = self.spans.pop() {
            #[cfg(test)]
            {
                self.steps += 1;
            }
            let latest_end = self.ways.latest_ends.get(at);
            if first >= self.count || latest_end.is_none_or(|end| *end <= self.now) {
                continue;
            }
            if width <= 1 {
                if let Some(way) = self.ways.ways.get(first) {
                    return Some(way.place);
                }
                continue;
            }
            let half = width / 2;
            self.spans.push((2 * at, first, half));
            self.spans.push((2 * at + 1, first + half, half));
        }
        None
    }
}

/// Bytes that a contact carries from now on, or in all if it has not begun.
fn carries(contact: &Contact, now: Moment) -> u64 {
    let length = contact.end.since(now.max(contact.start));
    contact.rate.bytes_in(length)
}

impl Ways {
    /// `places`, ordered by when they begin.
    fn of(plan: &ContactPlan, mut places: Vec<usize>) -> Self {
        let contact = |place: usize| plan.contacts().get(place);
        places.sort_by_key(|place| contact(*place).map(|contact| contact.start));
        let ways = places.into_iter().filter_map(|place| {
            let contact = contact(place)?;
            let way = Way {
                start: contact.start,
                place,
                most_bytes: carries(contact, contact.start),
            };
            Some((way, contact.end))
        });
        let (mut ways, ends): (Vec<Way>, Vec<Moment>) = ways.unzip();
        let mut most_bytes = 0;
        for way in ways.iter_mut().rev() {
            most_bytes = way.most_bytes.max(most_bytes);
            way.most_bytes = most_bytes;
        }
        let width = ways.len().next_power_of_two();
        let mut latest_ends = vec![Moment::default(); width];
        latest_ends.extend(ends);
        latest_ends.resize(2 * width, Moment::default());
        for at in (1..width).rev() {
            let halves = latest_ends.get(2 * at..2 * at + 2).unwrap_or_default();
            let latest = halves.iter().max().copied().unwrap_or_default();
            if let Some(end) = latest_ends.get_mut(at) {
                *end = latest;
            }
        }
        Self {
            ways,
            latest_ends,
            width,
        }
    }

    /// Those that have begun and are open, the last one first.
    fn begun(&self, now: Moment) -> Begun<'_> {
        Begun {
            ways: self,
            now,
            count: self.ways.partition_point(|way| way.start <= now),
            spans: vec![(1, 0, self.width)],
            #[cfg(test)]
            steps: 0,
        }
    }

    /// The next that begins.
    fn next(&self, now: Moment) -> Option<&Way> {
        let begun = self.ways.partition_point(|way| way.start <= now);
        self.ways.get(begun)
    }
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
            node,
            plan,
            bookings: Mutex::default(),
            silent: Mutex::default(),
            layers: Mutex::default(),
            firsts: Mutex::default(),
        }
    }

    /// With routes of the configuration over these neighbours.
    pub(crate) fn leading_over(mut self, neighbours: impl IntoIterator<Item = NodeId>) -> Self {
        self.configured.extend(neighbours);
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

    /// Whether bundles may be sent to a neighbour now: a contact is open, and not booked to its end.
    pub(crate) fn is_open(&self, neighbour: &NodeId, now: Moment) -> bool {
        !self.is_planned(neighbour)
            || self
                .best(neighbour, now, TYPICAL_BYTES, &self.bookings())
                .is_some()
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

    /// How each node of the plan is reached first: over neighbours that answer, if there is such a way.
    pub(crate) fn routes(&self, now: Moment) -> BTreeMap<NodeId, Route> {
        let silent = self.silent().clone();
        let bookings = {
            let mut bookings = self.bookings();
            bookings.forget_past(&self.plan, now);
            // Bundles leave while routes are looked for.
            bookings.clone()
        };
        let (bytes, expiry) = (TYPICAL_BYTES, Moment::MAX);
        let query = Query {
            from: &self.node,
            now,
            bytes,
            expiry,
        };
        // Its own later contacts are no other way: this one would be lost.
        let answers =
            |contact: &Contact| contact.from != self.node || now >= silent.until(&contact.to, now);
        let mut routes = earliest_over(&self.plan, query, &bookings, answers);
        if silent.is_any(now) {
            for (to, route) in earliest(&self.plan, query, &bookings) {
                routes.entry(to).or_insert(route);
            }
        }
        routes
    }

    /// The neighbour over which each node is reached first, where the contact with it is open. From now on, others are not shown.
    pub(crate) fn look(&self, now: Moment) -> BTreeMap<NodeId, NodeId> {
        let routes = self.routes(now).into_iter();
        let open = routes.filter_map(|(to, route)| {
            let first = route
                .first(&self.plan)
                .filter(|contact| contact.is_open(now))?;
            Some((to, first.to.clone()))
        });
        let hops: BTreeMap<NodeId, NodeId> = open.collect();
        *self.firsts() = hops.values().cloned().collect();
        hops
    }

    /// Whether the agent may know of a neighbour: it sends to one that it knows whatever arrives earlier over another.
    pub(crate) fn is_shown(&self, neighbour: &NodeId, now: Moment) -> bool {
        let is_wanted = !self.neighbours.contains_key(neighbour)
            || self.configured.contains(neighbour)
            || self.firsts().contains(neighbour);
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

    fn firsts(&self) -> MutexGuard<'_, BTreeSet<NodeId>> {
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

#[cfg(test)]
mod tests {
    use starhaul_units::Bandwidth;

    use super::*;

    fn node(number: u32) -> NodeId {
        format!("ipn:{number}.0").parse().unwrap()
    }

    fn second(seconds: u64) -> Moment {
        Moment(Duration::from_secs(seconds))
    }

    fn contact(from: u32, to: u32, seconds: std::ops::Range<u64>, rate: Bandwidth) -> Contact {
        Contact {
            from: node(from),
            to: node(to),
            start: second(seconds.start),
            end: second(seconds.end),
            rate,
            light_time: Duration::ZERO,
        }
    }

    #[test]
    fn a_neighbour_that_does_not_answer_is_left_out_while_there_is_another_way() {
        let rate = Bandwidth::from_mbit(1);
        // To 4 over 2, later over 3; to 5 over 2 alone.
        let plan = vec![
            contact(1, 2, 0..1000, rate),
            contact(2, 4, 0..1000, rate),
            contact(2, 5, 0..1000, rate),
            contact(1, 3, 0..1000, rate),
            contact(3, 4, 200..1000, rate),
        ];
        let schedule = Schedule::new(node(1), ContactPlan::new(plan), Vec::new());
        let via = |to: u32, now: Moment| {
            let routes = schedule.routes(now);
            routes[&node(to)].first(schedule.plan()).unwrap().to.clone()
        };
        let now = second(1);
        assert_eq!((via(4, now), via(5, now)), (node(2), node(2)));
        schedule.failed(&node(2), now);
        // A stranger takes no memory.
        schedule.failed(&node(9), now);
        assert_eq!((via(4, now), via(5, now)), (node(3), node(2)));
        let later = schedule.next_attempt(now).unwrap();
        assert_eq!(via(4, later), node(2));
        assert_eq!(schedule.next_attempt(later), None);
        schedule.failed(&node(2), later);
        assert_eq!(via(4, later), node(3));
        assert!(schedule.worked(&node(2), later));
        assert_eq!(via(4, later), node(2));
    }

    /// There is no other way, and the pass is not to be lost.
    #[test]
    fn a_later_contact_with_a_silent_neighbour_is_not_waited_for() {
        let rate = Bandwidth::from_mbit(1);
        let passes = [0..600, 5400..6000].map(|seconds| contact(1, 2, seconds, rate));
        let schedule = Schedule::new(node(1), ContactPlan::new(passes.to_vec()), Vec::new());
        let now = second(1);
        schedule.failed(&node(2), now);
        let hops = schedule.look(now);
        assert_eq!(hops.get(&node(2)), Some(&node(2)));
        assert!(schedule.is_shown(&node(2), now));
        assert!(!schedule.is_shown(&node(2), second(601)));
    }

    #[test]
    fn a_neighbour_of_a_configured_route_is_shown_whatever_arrives_first() {
        let (slow, fast) = (Bandwidth::from_kbit(1), Bandwidth::from_mbit(100));
        let plan = vec![
            contact(1, 2, 0..1000, slow),
            contact(1, 3, 0..1000, fast),
            contact(3, 2, 0..1000, fast),
        ];
        for via in [None, Some(node(2))] {
            let schedule = Schedule::new(node(1), ContactPlan::new(plan.clone()), Vec::new())
                .leading_over(via.clone());
            let now = second(1);
            assert_eq!(schedule.look(now)[&node(2)], node(3));
            assert_eq!(schedule.is_shown(&node(2), now), via.is_some());
            assert!(!schedule.is_shown(&node(2), second(1001)));
        }
    }

    #[test]
    fn a_neighbour_is_shown_while_what_goes_there_arrives_first() {
        let (slow, fast) = (Bandwidth::from_kbit(1), Bandwidth::from_mbit(100));
        let plan = vec![
            contact(1, 2, 0..1000, slow),
            contact(1, 3, 0..500, fast),
            contact(3, 2, 0..500, fast),
        ];
        // Over 4, which is always there, 5 is reached.
        let plan = ContactPlan::new([plan, vec![contact(4, 5, 0..1000, slow)]].concat());
        let always = Contact {
            end: Moment::MAX,
            ..contact(1, 4, 0..1, fast)
        };
        let schedule = Schedule::new(node(1), plan, vec![always]);
        let shown = |now: Moment| {
            schedule.look(now);
            let all = [2, 3, 4, 6].into_iter();
            let shown = all.filter(|number| schedule.is_shown(&node(*number), now));
            shown.collect::<Vec<_>>()
        };
        let now = second(1);
        // 6 is a stranger.
        assert_eq!(shown(now), [3, 4, 6]);
        let hops = schedule.look(now);
        assert_eq!((&hops[&node(2)], &hops[&node(5)]), (&node(3), &node(4)));
        assert!(!schedule.is_due(&node(2), now));
        schedule.failed(&node(3), now);
        assert_eq!(shown(now), [2, 3, 4, 6]);
        assert!(schedule.is_due(&node(3), now));
        assert_eq!(shown(second(600)), [2, 4, 6]);
        assert_eq!(schedule.next_change(second(1000)), None);
    }

    #[test]
    fn a_bundle_is_booked_over_the_open_contact_over_which_it_arrives_first() {
        let (slow, fast) = (Bandwidth::from_kbit(1), Bandwidth::from_mbit(100));
        let plan = vec![contact(1, 2, 0..86_400, slow), contact(1, 2, 0..600, fast)];
        let schedule = Schedule::new(node(1), ContactPlan::new(plan), Vec::new());
        let rate = |at: u64, bytes: u64| {
            let booking = schedule.book(&node(2), second(at), bytes)?;
            Some(schedule.plan.contacts()[booking.place?].rate)
        };
        assert_eq!(rate(0, 1000), Some(fast));
        // 8 s for each: after 74 the rest of the fast one is too short, and for the slow one each is too much.
        let large = (0..100).take_while(|_| rate(1, 100_000_000) == Some(fast));
        assert_eq!(large.count(), 74);
        assert_eq!(rate(1, 100_000_000), None);
        // What does not fit into the fast one any more goes over the slow one.
        assert_eq!(rate(595, 60_000_000), Some(fast));
        assert_eq!(rate(595, 3_000_000), Some(slow));
        assert!(schedule.is_open(&node(2), second(700)));
        assert!(!schedule.is_open(&node(2), second(86_399)));
    }

    /// A link that is always there beside passes of years: each bundle looks for the open ones.
    #[test]
    fn a_long_contact_does_not_make_the_search_for_open_ones_slow() {
        const PASSES: u64 = 10_000;
        let rate = Bandwidth::from_mbit(1);
        let passes = (0..PASSES).map(|pass| contact(1, 2, pass * 100..pass * 100 + 10, rate));
        let long = contact(1, 2, 0..PASSES * 100, rate);
        let plan = ContactPlan::new(passes.chain([long]).collect());
        let schedule = Schedule::new(node(1), plan, Vec::new());
        let ways = &schedule.neighbours[&node(2)];
        for (at, open) in [
            (5, 2),
            (50, 1),
            (PASSES * 100 - 95, 2),
            (PASSES * 100 - 5, 1),
            (PASSES * 100, 0),
        ] {
            let now = second(at);
            let mut begun = ways.begun(now);
            let found: BTreeSet<usize> = begun.by_ref().collect();
            let wanted = schedule.plan.contacts().iter().enumerate();
            let wanted = wanted.filter(|(_, contact)| contact.is_open(now));
            assert_eq!(found, wanted.map(|(place, _)| place).collect(), "{at}");
            assert_eq!(found.len(), open, "{at}");
            assert!(begun.steps < 200, "{at}: {} steps", begun.steps);
        }
    }

    #[test]
    fn files_are_cut_by_a_contact_that_is_left_and_carries_some_of_them() {
        let rate = Bandwidth::from_bits_per_second(9600);
        let plan = [
            contact(2, 3, 0..100, rate),
            contact(2, 3, 200..680, rate),
            contact(5, 6, 200..201, rate),
            contact(1, 2, 200..1200, rate),
        ];
        let schedule = Schedule::new(node(1), ContactPlan::new(plan.to_vec()), Vec::new());
        let least = |at, least| schedule.least_contact(second(at), least);
        assert_eq!(least(0, 65_536), Some(120_000));
        assert_eq!(least(100, 65_536), Some(576_000));
        assert_eq!(least(680, 65_536), Some(1_200_000));
        // Where none carries so much, the largest.
        assert_eq!(least(680, 2_000_000), Some(1_200_000));
        assert_eq!(least(1200, 65_536), None);
    }

    #[test]
    fn how_far_a_neighbour_is_says_the_open_contact() {
        let far = Contact {
            light_time: Duration::from_secs(8),
            ..contact(1, 2, 0..100, Bandwidth::from_mbit(1))
        };
        let schedule = Schedule::new(node(1), ContactPlan::new(vec![far]), Vec::new());
        let light_time = |to, at| schedule.light_time(&node(to), second(at));
        assert_eq!(light_time(2, 1), Duration::from_secs(8));
        assert_eq!([light_time(2, 100), light_time(3, 1)], [Duration::ZERO; 2]);
    }

    #[test]
    fn a_bundle_that_no_contact_carries_is_told_from_one_that_waits_for_the_next() {
        // Passes of 8 minutes carry 576 000 bytes each, a short one between them 60 000.
        let rate = Bandwidth::from_bits_per_second(9600);
        let passes = [0..480, 1000..1050, 6000..6480].map(|pass| contact(1, 2, pass, rate));
        let schedule = Schedule::new(node(1), ContactPlan::new(passes.to_vec()), Vec::new());
        let fit = |at: u64, bytes: u64| schedule.fit(&node(2), second(at), bytes);
        assert_eq!(fit(0, 576_000), Fit::Now);
        assert_eq!(fit(0, 576_001), Fit::Never);
        // It waits for the next pass, the last one.
        assert_eq!(
            (fit(100, 500_000), fit(1001, 500_000)),
            (Fit::Later, Fit::Later)
        );
        assert_eq!(
            (fit(6100, 500_000), fit(6100, 400_000)),
            (Fit::Never, Fit::Now)
        );
        // What is booked may be given back.
        let booking = schedule.book(&node(2), second(6100), 400_000).unwrap();
        assert_eq!(fit(6100, 400_000), Fit::Later);
        schedule.give_back(&booking, second(6100));
        assert_eq!(fit(6100, 400_000), Fit::Now);
        // After the last one it is not known whether it was too large.
        assert_eq!(fit(6480, 500_000), Fit::Later);
        // A neighbour that the plan does not name takes any.
        assert_eq!(schedule.fit(&node(7), second(0), u64::MAX), Fit::Now);
    }
}
