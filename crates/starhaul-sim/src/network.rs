//! The links of a simulation, the routes over them, and the packets in flight.

use std::{
    collections::BTreeMap,
    net::SocketAddr,
    ops::{Index, IndexMut},
    sync::Arc,
    time::{Duration, Instant},
};

use rustc_hash::FxHashMap;
use starhaul_link::{Link, LinkSpec, Outcome, Passage, link_seed};

use crate::{Delivery, Load, MTU_BYTES, NodeId, Packet, schedule::Schedule};

/// Identifies a link of the network.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LinkId(usize);

/// The two links of a path made by [`Network::connect`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PathLinks {
    /// The link from the first address to the second.
    pub forward: LinkId,
    /// The link from the second address to the first.
    pub backward: LinkId,
}

/// Counters of packets that reached no link or no node.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct NetworkStats {
    /// Packets sent from a socket without address, or to an address without route.
    pub no_route: u64,
    /// Packets larger, with their headers, than [`MTU_BYTES`] or than a link of their route carries.
    pub too_large: u64,
    /// Packets that arrived at an address that no node had any more.
    pub no_receiver: u64,
}

/// Links, addresses, and routes between them, for packets that carry loads of type `P`.
#[derive(Debug)]
pub struct Network<P> {
    seed: u64,
    start: Instant,
    hops: Vec<Hop<P>>,
    /// When each link is due.
    schedule: Schedule,
    /// Links that the caller may have changed since they were scheduled.
    touched: Vec<usize>,
    addresses: FxHashMap<(NodeId, u32), SocketAddr>,
    sockets: FxHashMap<SocketAddr, (NodeId, u32)>,
    routes: FxHashMap<(SocketAddr, SocketAddr), Arc<Route>>,
    /// Routes that change later, those of one instant in the order of the calls.
    changes: BTreeMap<(Instant, u64), Route>,
    changes_told: u64,
    stats: NetworkStats,
}

/// A route from one address to another over these links.
#[derive(Debug)]
struct Route {
    from: SocketAddr,
    to: SocketAddr,
    links: Box<[LinkId]>,
}

/// A link and the network's state of it.
#[derive(Debug)]
struct Hop<P> {
    link: Link<Travelling<P>>,
    mtu_bytes: usize,
    /// Its deliveries, if it is watched.
    passages: Option<Vec<Passage>>,
}

/// A packet in flight along a route; the load of a network's links.
#[derive(Clone, Debug)]
pub struct Travelling<P> {
    route: Arc<Route>,
    hops_done: usize,
    /// When it arrived at the present link.
    since: Instant,
    /// Its queueing delay at the links before.
    waited: Duration,
    load: P,
}

impl<P: Load> Network<P> {
    /// Creates a network without links. Links take their seeds from `seed` ([`link_seed`]) and begin their traces at
    /// `start`.
    pub fn new(seed: u64, start: Instant) -> Self {
        Self {
            seed,
            start,
            hops: Vec::new(),
            schedule: Schedule::default(),
            touched: Vec::new(),
            addresses: FxHashMap::default(),
            sockets: FxHashMap::default(),
            routes: FxHashMap::default(),
            changes: BTreeMap::new(),
            changes_told: 0,
            stats: NetworkStats::default(),
        }
    }

    /// Binds a node's socket to an address, in place of its former one. Another socket with that address loses it.
    pub fn bind(&mut self, node: NodeId, local: u32, address: SocketAddr) {
        if let Some(loser) = self.sockets.insert(address, (node, local)) {
            self.addresses.remove(&loser);
        }
        if let Some(previous) = self.addresses.insert((node, local), address) {
            self.sockets.remove(&previous);
        }
    }

    /// Adds a link, which carries nothing until a route uses it.
    pub fn add_link(&mut self, spec: &LinkSpec) -> LinkId {
        let id = LinkId(self.hops.len());
        self.hops.push(Hop {
            link: Link::new(spec, link_seed(self.seed, id.0), self.start),
            mtu_bytes: MTU_BYTES,
            passages: None,
        });
        self.schedule.add();
        id
    }

    /// Sets the route from one address to another: these links, one after the other. Packets in flight keep their
    /// route. Links may serve several routes. An empty list drops all packets.
    pub fn set_route(&mut self, from: SocketAddr, to: SocketAddr, links: &[LinkId]) {
        self.use_route(Route::new(from, to, links));
    }

    /// Sets a route at a later instant, as constellations move. Changes of one instant apply in the order of the calls.
    pub fn set_route_at(
        &mut self,
        at: Instant,
        from: SocketAddr,
        to: SocketAddr,
        links: &[LinkId],
    ) {
        let route = Route::new(from, to, links);
        self.changes.insert((at, self.changes_told), route);
        self.changes_told += 1;
    }

    /// Removes a route: packets sent there from now on are lost.
    pub fn remove_route(&mut self, from: SocketAddr, to: SocketAddr) {
        self.routes.remove(&(from, to));
    }

    /// Sets the largest IP packet that a link carries: it drops larger ones without notice, as a path with an MTU black
    /// hole does.
    pub fn set_mtu(&mut self, link: LinkId, bytes: usize) {
        self.hops[link.0].mtu_bytes = bytes;
    }

    /// Connects two addresses by one new link in each direction.
    pub fn connect(
        &mut self,
        a: SocketAddr,
        b: SocketAddr,
        forward: &LinkSpec,
        backward: &LinkSpec,
    ) -> PathLinks {
        let path = PathLinks {
            forward: self.add_link(forward),
            backward: self.add_link(backward),
        };
        self.set_route(a, b, &[path.forward]);
        self.set_route(b, a, &[path.backward]);
        path
    }

    /// Cuts both directions: queued and arriving packets are lost until [`Network::restore`]; packets in flight arrive.
    pub fn cut(&mut self, now: Instant, path: PathLinks) {
        self[path.forward].set_down(now);
        self[path.backward].set_down(now);
    }

    /// Ends a cut.
    pub fn restore(&mut self, now: Instant, path: PathLinks) {
        self[path.forward].set_up(now);
        self[path.backward].set_up(now);
    }

    /// Puts a packet of `node` on the first link of its route.
    pub fn send(&mut self, now: Instant, node: NodeId, packet: Packet<P>) {
        self.change_routes(now);
        let Packet { local, to, load } = packet;
        let route = self.addresses.get(&(node, local)).and_then(|&from| {
            let route = self.routes.get(&(from, to))?;
            Some(Arc::clone(route))
        });
        let Some(route) = route else {
            self.stats.no_route += 1;
            return;
        };
        if load.bytes() > MTU_BYTES {
            self.stats.too_large += 1;
            return;
        }
        let travelling = Travelling {
            route,
            hops_done: 0,
            since: now,
            waited: Duration::ZERO,
            load,
        };
        self.enqueue(now, travelling);
    }

    /// The next packet that has reached its receiver by `now`. Of links due at one instant, the one with the least
    /// number comes first.
    pub fn poll(&mut self, now: Instant) -> Option<Delivery<P>> {
        self.change_routes(now);
        loop {
            self.reschedule();
            let number = self.schedule.due(now)?;
            let hop = &mut self.hops[number];
            let outcome = hop.link.poll(now);
            self.schedule.set(number, hop.link.next_event());
            let Some(arrival) = outcome.and_then(Outcome::arrived) else {
                continue;
            };
            let mut packet = arrival.packet;
            let waited = arrival.sent.saturating_duration_since(packet.since);
            if let Some(passages) = &mut hop.passages {
                passages.push(Passage {
                    at: arrival.due.saturating_duration_since(self.start),
                    bytes: arrival.bytes,
                    waited,
                    took: arrival.due.saturating_duration_since(packet.since),
                });
            }
            packet.waited += waited;
            packet.hops_done += 1;
            if packet.hops_done < packet.route.links.len() {
                self.enqueue(now, packet);
                continue;
            }
            match self.sockets.get(&packet.route.to) {
                Some(&(node, local)) => return Some(packet.delivered_to(node, local)),
                None => self.stats.no_receiver += 1,
            }
        }
    }

    /// When to call [`Network::poll`] next; `None` while no packet is in flight and no route changes.
    pub fn next_event(&mut self) -> Option<Instant> {
        self.reschedule();
        let change = self.changes.keys().next().map(|(at, _)| *at);
        [self.schedule.next(), change].into_iter().flatten().min()
    }

    /// Records from now on what a link delivers, for [`Network::take_passages`].
    pub fn watch(&mut self, link: LinkId) {
        self.hops[link.0].passages.get_or_insert_default();
    }

    /// The deliveries of a watched link since the last call, in order; empty for a link that is not watched.
    pub fn take_passages(&mut self, link: LinkId) -> Vec<Passage> {
        let passages = self.hops[link.0].passages.as_mut();
        passages.map(std::mem::take).unwrap_or_default()
    }

    /// Counters of packets that reached no link or no node; packets lost on links are in the links' own statistics.
    pub fn stats(&self) -> NetworkStats {
        self.stats
    }

    /// Puts a packet on the next link of its route, if there is one.
    fn enqueue(&mut self, now: Instant, mut packet: Travelling<P>) {
        let Some(&LinkId(number)) = packet.route.links.get(packet.hops_done) else {
            self.stats.no_route += 1;
            return;
        };
        let (hop, bytes) = (&mut self.hops[number], packet.load.bytes());
        if bytes > hop.mtu_bytes {
            self.stats.too_large += 1;
            return;
        }
        packet.since = now;
        hop.link.enqueue_in(packet.load.band(), now, bytes, packet);
        // A link that drops all arriving packets is never due; its drops are not reported, and nothing is kept.
        for _ in 0..hop.link.untold_drops() {
            hop.link.poll(now);
        }
        self.schedule.set(number, hop.link.next_event());
    }

    fn reschedule(&mut self) {
        for number in self.touched.drain(..) {
            let next = self.hops[number].link.next_event();
            self.schedule.set(number, next);
        }
    }

    fn change_routes(&mut self, now: Instant) {
        while let Some(entry) = self
            .changes
            .first_entry()
            .filter(|entry| entry.key().0 <= now)
        {
            let route = entry.remove();
            self.use_route(route);
        }
    }

    fn use_route(&mut self, route: Route) {
        self.routes.insert((route.from, route.to), Arc::new(route));
    }
}

impl Route {
    fn new(from: SocketAddr, to: SocketAddr, links: &[LinkId]) -> Self {
        Self {
            from,
            to,
            links: links.into(),
        }
    }
}

impl<P> Travelling<P> {
    fn delivered_to(self, node: NodeId, local: u32) -> Delivery<P> {
        Delivery {
            node,
            local,
            from: self.route.from,
            waited: self.waited,
            load: self.load,
        }
    }
}

/// Links are indexed by their id, to read their statistics or to change them while the network runs. An id of another
/// network may panic, like an index out of a vector's bounds.
impl<P> Index<LinkId> for Network<P> {
    type Output = Link<Travelling<P>>;

    fn index(&self, id: LinkId) -> &Link<Travelling<P>> {
        &self.hops[id.0].link
    }
}

impl<P> IndexMut<LinkId> for Network<P> {
    fn index_mut(&mut self, id: LinkId) -> &mut Link<Travelling<P>> {
        self.touched.push(id.0);
        &mut self.hops[id.0].link
    }
}
