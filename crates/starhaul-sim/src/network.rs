//! The links of a simulation, who is reached over which of them, and what travels there.

use std::{
    collections::{HashMap, HashSet},
    net::SocketAddr,
    ops::{Index, IndexMut},
    sync::Arc,
    time::{Duration, Instant},
};

use bytes::Bytes;
use starhaul_link::{Band, Link, LinkSpec};

/// Bytes that IPv4 and UDP add to each payload on a link.
pub const HEADER_BYTES: usize = 28;
/// The largest IP packet that links carry.
pub const MTU_BYTES: usize = 1500;

/// A node of the simulation: its index in [`crate::Simulation::nodes`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct NodeId(pub usize);

/// A link of the network.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LinkId(usize);

/// The two links of a path made by [`Network::connect`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PathLinks {
    /// From the first address to the second.
    pub forward: LinkId,
    /// From the second to the first.
    pub backward: LinkId,
}

/// One UDP datagram to send.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Datagram {
    /// From which of the node's sockets.
    pub local: u32,
    /// To whom.
    pub to: SocketAddr,
    /// ECN bits of the IP header; links pass them on.
    pub ecn: u8,
    /// The UDP payload.
    pub payload: Bytes,
}

/// A datagram that arrived.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Delivery {
    /// At whom.
    pub node: NodeId,
    /// At which of the node's sockets.
    pub local: u32,
    /// From whom.
    pub from: SocketAddr,
    /// ECN bits of the IP header.
    pub ecn: u8,
    /// The UDP payload.
    pub payload: Bytes,
}

/// Datagrams that reached no link or no node.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct NetworkStats {
    /// Sent from a socket without address, or to where no route leads.
    pub no_route: u64,
    /// Larger, with their headers, than [`MTU_BYTES`] or than a link of their route carries.
    pub too_large: u64,
    /// Arrived at an address that no node had any more.
    pub no_receiver: u64,
}

/// A datagram that a watched link delivered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Passage {
    /// When it reached the far end.
    pub at: Instant,
    /// Its size with all headers.
    pub bytes: usize,
    /// From when it came to the link until its last byte was sent; from then on it travelled.
    pub waited: Duration,
    /// From when it came to the link until it reached the far end.
    pub took: Duration,
}

/// Links, addresses, and routes between them.
#[derive(Debug)]
pub struct Network {
    seed: u64,
    start: Instant,
    links: Vec<Link<Packet>>,
    addresses: HashMap<(NodeId, u32), SocketAddr>,
    sockets: HashMap<SocketAddr, (NodeId, u32)>,
    routes: HashMap<(SocketAddr, SocketAddr), Arc<[LinkId]>>,
    watched: HashMap<usize, Vec<Passage>>,
    /// Links that carry less than [`MTU_BYTES`].
    mtus: HashMap<usize, usize>,
    /// Addresses whose datagrams travel as ICMP.
    icmp: HashSet<SocketAddr>,
    stats: NetworkStats,
}

/// A datagram on its way along a route; what the links of a network carry.
#[derive(Clone, Debug)]
pub struct Packet {
    route: Arc<[LinkId]>,
    hops_done: usize,
    /// When it came to the present link.
    since: Instant,
    from: SocketAddr,
    to: SocketAddr,
    ecn: u8,
    payload: Bytes,
}

impl Network {
    /// A network without links, whose links take their seeds from `seed` and begin their traces at `start`.
    pub fn new(seed: u64, start: Instant) -> Self {
        Self {
            seed,
            start,
            links: Vec::new(),
            addresses: HashMap::new(),
            sockets: HashMap::new(),
            routes: HashMap::new(),
            watched: HashMap::new(),
            mtus: HashMap::new(),
            icmp: HashSet::new(),
            stats: NetworkStats::default(),
        }
    }

    /// Gives a node's socket its address, in place of the one that it had. Another socket with that address loses it.
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
        let id = LinkId(self.links.len());
        // An odd factor, so that networks of neighbouring seeds share no link seed.
        let seed = self
            .seed
            .wrapping_mul(0x9e37_79b9_7f4a_7c15)
            .wrapping_add(id.0 as u64);
        self.links.push(Link::new(spec, seed, self.start));
        id
    }

    /// Sends what goes from one address to another over these links, one after the other; what is under way keeps its
    /// route. Links may serve several routes. An empty chain leads nowhere.
    pub fn set_route(&mut self, from: SocketAddr, to: SocketAddr, links: &[LinkId]) {
        self.routes.insert((from, to), links.into());
    }

    /// Forgets a route: what is sent there from now on is lost.
    pub fn remove_route(&mut self, from: SocketAddr, to: SocketAddr) {
        self.routes.remove(&(from, to));
    }

    /// Says in which band of its links travels what is sent from this address; in that of data as long as nothing is said.
    pub fn set_band(&mut self, from: SocketAddr, band: Band) {
        match band {
            Band::Icmp => self.icmp.insert(from),
            Band::Data => self.icmp.remove(&from),
        };
    }

    /// The largest IP packet that a link carries from now on: larger ones are dropped without a word, as a path with a black hole does.
    pub fn set_mtu(&mut self, link: LinkId, bytes: usize) {
        self.mtus.insert(link.0, bytes);
    }

    /// Joins two addresses by one new link in each direction.
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

    /// Cuts both directions: what waits and what comes is lost until [`Network::restore`]; what is in flight arrives.
    pub fn cut(&mut self, now: Instant, path: PathLinks) {
        self[path.forward].set_down(now);
        self[path.backward].set_down(now);
    }

    /// Ends a cut.
    pub fn restore(&mut self, now: Instant, path: PathLinks) {
        self[path.forward].set_up(now);
        self[path.backward].set_up(now);
    }

    /// Puts a datagram of `node` on the first link of its route.
    pub fn send(&mut self, now: Instant, node: NodeId, datagram: Datagram) {
        let Datagram {
            local,
            to,
            ecn,
            payload,
        } = datagram;
        let route = self.addresses.get(&(node, local)).and_then(|&from| {
            let route = self.routes.get(&(from, to))?;
            Some((from, Arc::clone(route)))
        });
        let Some((from, route)) = route else {
            self.stats.no_route += 1;
            return;
        };
        if payload.len() + HEADER_BYTES > MTU_BYTES {
            self.stats.too_large += 1;
            return;
        }
        let packet = Packet {
            route,
            hops_done: 0,
            since: now,
            from,
            to,
            ecn,
            payload,
        };
        if self.enqueue(now, packet).is_some() {
            self.stats.no_route += 1;
        }
    }

    /// The next datagram that has reached its receiver by `now`.
    pub fn poll(&mut self, now: Instant) -> Option<Delivery> {
        loop {
            let due = |link: &Link<Packet>| link.next_event().is_some_and(|at| at <= now);
            let number = self.links.iter().position(due)?;
            let Some(arrival) = self.links[number].poll_arrival(now) else {
                continue;
            };
            let mut packet = arrival.packet;
            if let Some(passages) = self.watched.get_mut(&number) {
                passages.push(Passage {
                    at: arrival.due,
                    bytes: arrival.bytes,
                    waited: arrival.sent.saturating_duration_since(packet.since),
                    took: arrival.due.saturating_duration_since(packet.since),
                });
            }
            packet.hops_done += 1;
            if let Some(packet) = self.enqueue(now, packet) {
                match self.sockets.get(&packet.to) {
                    Some(&(node, local)) => return Some(packet.delivered_to(node, local)),
                    None => self.stats.no_receiver += 1,
                }
            }
        }
    }

    /// When to call [`Network::poll`] next; `None` while nothing travels.
    pub fn next_event(&self) -> Option<Instant> {
        self.links.iter().filter_map(Link::next_event).min()
    }

    /// Notes from now on what a link delivers, for [`Network::take_passages`].
    pub fn watch(&mut self, link: LinkId) {
        self.watched.entry(link.0).or_default();
    }

    /// What a watched link delivered since the last call, in its order; nothing of one that is not watched.
    pub fn take_passages(&mut self, link: LinkId) -> Vec<Passage> {
        let passages = self.watched.get_mut(&link.0);
        passages.map(std::mem::take).unwrap_or_default()
    }

    /// What reached no link or no node; what links lost is in their own statistics.
    pub fn stats(&self) -> NetworkStats {
        self.stats
    }

    /// Puts a packet on the next link of its route; gives it back at the end of the route.
    fn enqueue(&mut self, now: Instant, mut packet: Packet) -> Option<Packet> {
        let Some(&id) = packet.route.get(packet.hops_done) else {
            return Some(packet);
        };
        if self
            .mtus
            .get(&id.0)
            .is_some_and(|mtu| packet.payload.len() + HEADER_BYTES > *mtu)
        {
            self.stats.too_large += 1;
            return None;
        }
        packet.since = now;
        let band = match self.icmp.contains(&packet.from) {
            true => Band::Icmp,
            false => Band::Data,
        };
        self[id].enqueue_in(band, now, packet.payload.len() + HEADER_BYTES, packet);
        None
    }
}

impl Packet {
    fn delivered_to(self, node: NodeId, local: u32) -> Delivery {
        Delivery {
            node,
            local,
            from: self.from,
            ecn: self.ecn,
            payload: self.payload,
        }
    }
}

/// Links are reached by their id, to read their statistics or to change them while the network runs. Like an index of a
/// vector, an id of another network may panic.
impl Index<LinkId> for Network {
    type Output = Link<Packet>;

    fn index(&self, id: LinkId) -> &Link<Packet> {
        &self.links[id.0]
    }
}

impl IndexMut<LinkId> for Network {
    fn index_mut(&mut self, id: LinkId) -> &mut Link<Packet> {
        &mut self.links[id.0]
    }
}
