//! Over which neighbour bundles leave, by their size.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{Arc, atomic::Ordering},
    time::Duration,
};

use hardy_bpv7::eid::Eid;

use super::{
    Schedule,
    table::{Basis, Entry, Hops, LEAST, OVER_OPEN, SMALL},
};
use crate::plan::{
    Contact, Moment, NodeId,
    route::{Lasting, Query, Route, earliest_over},
};

/// How many configured routes lead from one to the next at most.
const MOST_ROUTES: usize = 8;
/// How long a neighbour is shown after it was the first on a way: bookings may have two take turns each second, and the queue of one that is
/// hidden is taken back.
const SHOWN: Duration = Duration::from_secs(60);

/// Where a bundle goes now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Way {
    /// The plan knows no way to its destination, for no size: wherever the agent sends it.
    Any,
    /// To this neighbour.
    Over(NodeId),
    /// It waits: over a later contact it arrives first.
    Later,
    /// No contacts that are left carry so large a bundle to its destination.
    Never,
}

impl Schedule {
    /// When to evaluate the plan again at the latest: a contact begins or ends here, or routes of bundles of a size hold no longer.
    pub(crate) fn next_look(&self, now: Moment) -> Option<Moment> {
        let routes = self.table().ends();
        self.next_change(now).into_iter().chain(routes).min()
    }

    /// Waits until the plan is to be evaluated sooner: a bundle has another next hop than was known.
    pub(crate) async fn news(&self) {
        self.news.notified().await;
    }

    /// How a small bundle reaches each node of the plan first: over neighbours that answer, if there is such a way.
    pub(crate) fn routes(&self, now: Moment) -> BTreeMap<NodeId, Route> {
        let left_out = self.silent().left_out(now);
        self.search(SMALL, now, &left_out, |_| true).routes
    }

    /// The same for a bundle of so many bytes, over contacts that may be used; and until when these routes hold.
    fn search(
        &self,
        bytes: u64,
        now: Moment,
        left_out: &BTreeSet<NodeId>,
        may_be_used: impl Fn(&Contact) -> bool,
    ) -> Lasting {
        let bookings = {
            let mut bookings = self.bookings();
            bookings.forget_past(&self.plan, now);
            // Bundles leave while routes are looked for.
            bookings.clone()
        };
        let query = Query {
            from: &self.node,
            now,
            bytes,
            expiry: Moment::MAX,
        };
        // Its own later contacts are no other way: this one would be lost.
        let answers = |contact: &Contact| {
            may_be_used(contact) && (contact.from != self.node || !left_out.contains(&contact.to))
        };
        let mut found = earliest_over(&self.plan, query, &bookings, answers);
        if !left_out.is_empty() {
            let all = earliest_over(&self.plan, query, &bookings, &may_be_used);
            found.until = found.until.min(all.until);
            for (to, route) in all.routes {
                found.routes.entry(to).or_insert(route);
            }
        }
        found
    }

    /// Looks for the hops of bundles of a size.
    fn entry(&self, size: u64, now: Moment, basis: Basis) -> Entry {
        let may_be_used = |contact: &Contact| {
            size != OVER_OPEN || contact.from != self.node || contact.is_open(now)
        };
        let found = self.search(size.max(LEAST), now, &basis.left_out, may_be_used);
        let (mut hops, mut until) = (Hops::new(), found.until);
        let begins = self.next_change(now).filter(|_| size == OVER_OPEN);
        if let Some(begins) = begins {
            // One more may be open then.
            until = until.min(begins.before(Duration::from_nanos(1)));
        }
        for (to, route) in found.routes {
            let Some(first) = route.first(&self.plan) else {
                continue;
            };
            let is_open = first.is_open(now);
            if !is_open {
                until = until.min(first.start.before(Duration::from_nanos(1)));
            }
            hops.insert(to, is_open.then(|| first.to.clone()));
        }
        Entry {
            hops: Arc::new(hops),
            since: now,
            until,
            basis,
        }
    }

    fn basis(&self, now: Moment) -> Basis {
        Basis {
            left_out: self.silent().left_out(now),
            bookings: self.booked.load(Ordering::Relaxed),
        }
    }

    /// The hops of a bundle of so many bytes, or of a somewhat larger one, and of how many.
    fn hops(&self, bytes: u64, now: Moment) -> (u64, Arc<Hops>) {
        let basis = self.basis(now);
        let size = {
            let mut table = self.table();
            let size = table.size(bytes);
            if let Some(hops) = table.find(size, now, &basis) {
                return (size, hops);
            }
            size
        };
        // Others find what they know meanwhile.
        let entry = self.entry(size, now, basis);
        let hops = entry.hops.clone();
        if self.table().put(size, entry) {
            self.news.notify_one();
        }
        (size, hops)
    }

    /// The hop to a node of a bundle of just so many bytes, by a search that is not kept.
    fn exact_hop(&self, bytes: u64, node: &NodeId, now: Moment) -> Option<Option<NodeId>> {
        let entry = self.entry(bytes, now, self.basis(now));
        let hop = entry.hops.get(node).cloned();
        let is_news = match &hop {
            Some(Some(hop)) => self.firsts().insert(hop.clone(), now).is_none(),
            Some(None) => self.table().await_end(now, entry.until),
            None => false,
        };
        if is_news {
            self.news.notify_one();
        }
        hop
    }

    /// Notes that a bundle of so many bytes is here. The first one of a size may have a way where those of others wait, of which the agent is to
    /// know.
    pub(crate) fn meet(&self, bytes: u64, now: Moment) {
        let is_known = self.table().meet(bytes, now);
        if !is_known {
            self.hops(bytes, now);
        }
    }

    /// Notes that a bundle waits until it has another next hop.
    pub(crate) fn await_other(&self) {
        self.table().await_other();
    }

    /// Where a bundle of so many bytes for an endpoint of another node goes now.
    pub(crate) fn way(&self, destination: &Eid, bytes: u64, now: Moment) -> Way {
        let planned = self.planned_way(destination, bytes, now);
        if let Way::Any | Way::Over(_) = planned {
            return planned;
        }
        // The agent does not come to these routes while it has one of the plan, be it for bundles of another size.
        let configured = self.configured_hop(destination, bytes, now);
        configured.map_or(planned, Way::Over)
    }

    /// The same by the plan alone.
    fn planned_way(&self, destination: &Eid, bytes: u64, now: Moment) -> Way {
        let Ok(node) = destination.to_node_id() else {
            return Way::Any;
        };
        let (size, hops) = self.hops(bytes, now);
        let mut hop = hops.get(&node).cloned();
        let mut is_reached = hop.is_some();
        if !is_reached && bytes > LEAST {
            is_reached = self.hops(LEAST, now).1.contains_key(&node);
        }
        if is_reached && size > bytes.max(LEAST) && !matches!(hop, Some(Some(_))) {
            // It may be short enough for a contact that a somewhat larger one has to miss.
            hop = self.exact_hop(bytes, &node, now);
        }
        match hop {
            Some(Some(hop)) => Way::Over(hop),
            Some(None) => Way::Later,
            None if is_reached => Way::Never,
            None => Way::Any,
        }
    }

    /// The neighbour to which configured routes lead now, one after the other.
    fn configured_hop(&self, destination: &Eid, bytes: u64, now: Moment) -> Option<NodeId> {
        let (mut to, mut last) = (destination.clone(), None);
        for _ in 0..MOST_ROUTES {
            let mut routes = self.configured.iter();
            let Some((_, via)) = routes.find(|(pattern, _)| pattern.matches(&to)) else {
                break;
            };
            to = via.clone().into();
            let is_open = || self.neighbours.contains_key(via) && self.is_open(via, now);
            match self.planned_way(&to, bytes, now) {
                Way::Over(hop) => return Some(hop),
                Way::Later | Way::Never if is_open() => return Some(via.clone()),
                Way::Later | Way::Never => {}
                // One that the plan does not name is there if the agent knows it.
                Way::Any => last = Some(via.clone()),
            }
        }
        last
    }

    /// The neighbour to which the agent gives what is for each node, where bundles of any known size can leave for it. From now on, neighbours
    /// that were first on no way for a minute are not shown. Bundles that are larger than small ones may go elsewhere ([`Schedule::way`]).
    pub(crate) fn look(&self, now: Moment) -> BTreeMap<NodeId, NodeId> {
        let basis = self.basis(now);
        let stale = self.table().stale(now, &basis);
        for size in stale {
            let entry = self.entry(size, now, basis.clone());
            self.table().put(size, entry);
        }
        let (table, mut firsts) = (self.table(), self.firsts());
        // What waits for one that does not answer goes another way.
        firsts.retain(|first, since| {
            let is_recent = *since <= now && now.since(*since) < SHOWN;
            is_recent && !basis.left_out.contains(first)
        });
        let mut agents = BTreeMap::new();
        let sized = table.hops().filter(|(size, _)| *size != OVER_OPEN);
        let reached: BTreeSet<&NodeId> = sized
            .flat_map(|(_, hops)| open(hops).map(|(to, _)| to))
            .collect();
        // Where sizes are not told apart, it may be the way of any.
        let may_leave = |to: &NodeId| table.is_full() || reached.contains(to);
        for (size, hops) in table.hops() {
            for (to, hop) in open(hops) {
                match size {
                    // It comes first.
                    OVER_OPEN if may_leave(to) => drop(agents.insert(to.clone(), hop.clone())),
                    OVER_OPEN => {}
                    SMALL => {
                        firsts.insert(hop.clone(), now);
                        agents.insert(to.clone(), hop.clone());
                    }
                    _ => drop(firsts.insert(hop.clone(), now)),
                }
            }
        }
        firsts.extend(agents.values().map(|hop| (hop.clone(), now)));
        agents
    }

    /// Whether bundles that wait may have a way since this was asked last.
    pub(crate) fn take_changed(&self) -> bool {
        self.table().take_changed()
    }
}

/// The nodes for which bundles can leave now, and to which neighbour.
fn open(hops: &Hops) -> impl Iterator<Item = (&NodeId, &NodeId)> {
    hops.iter()
        .filter_map(|(to, hop)| Some((to, hop.as_ref()?)))
}
