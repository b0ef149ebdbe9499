//! A small LEOTP network in virtual time, whose datagrams are lost, repeated, reordered, replayed and forged, and whose nodes
//! begin new lives.

use std::{
    collections::BTreeMap,
    time::{Duration, Instant},
};

use starhaul_leotp::{NeighbourConfig, NeighbourId, NeighbourKey, Node, NodeConfig};

/// Datagrams under way between two nodes; more are lost.
const MOST_UNDER_WAY: usize = 2000;
/// Datagrams that are kept to be replayed.
const MOST_SEEN: usize = 100;

/// Nodes, and the datagrams between them.
pub(super) struct Wires {
    pub(super) now: Instant,
    pub(super) nodes: BTreeMap<u32, Node>,
    /// Links between nodes.
    links: &'static [(u32, u32)],
    flight: BTreeMap<(u32, u32), Vec<Vec<u8>>>,
    /// Some that arrived, to be replayed.
    seen: Vec<(u32, u32, Vec<u8>)>,
    lives: u8,
}

impl Wires {
    /// A network that has no nodes yet.
    pub(super) fn new(now: Instant, seed: u8, links: &'static [(u32, u32)]) -> Self {
        Self {
            now,
            nodes: BTreeMap::new(),
            links,
            flight: BTreeMap::new(),
            seen: Vec::new(),
            lives: seed,
        }
    }

    /// Begins a life of a node, with all its neighbours.
    pub(super) fn begin(
        &mut self,
        id: u32,
        config: NodeConfig,
        upstream: Option<u32>,
    ) -> Option<&mut Node> {
        self.lives = self.lives.wrapping_add(1);
        let mut seed = [self.lives; 32];
        seed[..4].copy_from_slice(&id.to_le_bytes());
        let mut node = Node::new(self.now, config, seed).ok()?;
        for &(a, b) in self.links {
            let other = match id {
                id if id == a => b,
                id if id == b => a,
                _ => continue,
            };
            let mut secret = [9; 32];
            secret[..8].copy_from_slice(&[a.to_le_bytes(), b.to_le_bytes()].concat());
            let key = NeighbourKey::new(&secret);
            let added = node.add_neighbour(self.now, NeighbourId(other), NeighbourConfig { key });
            assert_eq!(added, Ok(()));
        }
        node.set_upstream(self.now, upstream.map(NeighbourId));
        self.nodes.insert(id, node);
        self.nodes.get_mut(&id)
    }

    /// Asks another neighbour from now on.
    pub(super) fn set_upstream(&mut self, node: u32, upstream: u32) {
        if let Some(node) = self.nodes.get_mut(&node) {
            node.set_upstream(self.now, Some(NeighbourId(upstream)));
        }
    }

    /// The way that an operation is about.
    pub(super) fn way(&self, argument: u8) -> (u32, u32) {
        let (a, b) = self.links[usize::from(argument) % self.links.len()];
        if argument & 0x80 == 0 { (a, b) } else { (b, a) }
    }

    /// Takes a datagram out of a way, which loses it.
    pub(super) fn take(&mut self, way: (u32, u32), index: usize) -> Option<Vec<u8>> {
        let flight = self.flight.entry(way).or_default();
        (!flight.is_empty()).then(|| flight.remove(index % flight.len()))
    }

    pub(super) fn lose_half(&mut self, way: (u32, u32)) {
        let flight = self.flight.entry(way).or_default();
        let lost = flight.len() / 2;
        flight.drain(..lost);
    }

    pub(super) fn repeat(&mut self, way: (u32, u32), index: usize) {
        let flight = self.flight.entry(way).or_default();
        flight.extend(flight.get(index).cloned());
    }

    pub(super) fn reverse(&mut self, way: (u32, u32)) {
        self.flight.entry(way).or_default().reverse();
    }

    pub(super) fn corrupt(&mut self, way: (u32, u32), index: usize, bit: u8) {
        let Some(mut datagram) = self.take(way, index) else {
            return;
        };
        let at = usize::from(bit) * 7 % datagram.len().max(1);
        if let Some(byte) = datagram.get_mut(at) {
            *byte ^= 1 << (bit % 8);
        }
        self.hand_over(way, &datagram);
    }

    pub(super) fn replay(&mut self, index: usize) {
        if let Some((from, to, datagram)) = self.seen.get(index).cloned() {
            self.hand_over((from, to), &datagram);
        }
    }

    /// Delivers so many datagrams of each way.
    pub(super) fn deliver(&mut self, count: usize) {
        for &(a, b) in self.links {
            for way in [(a, b), (b, a)] {
                let flight = self.flight.entry(way).or_default();
                let arriving: Vec<Vec<u8>> = flight.drain(..count.min(flight.len())).collect();
                for datagram in arriving {
                    self.hand_over(way, &datagram);
                    if self.seen.len() < MOST_SEEN {
                        self.seen.push((way.0, way.1, datagram));
                    }
                }
            }
        }
    }

    fn hand_over(&mut self, (from, to): (u32, u32), datagram: &[u8]) {
        let now = self.now;
        if let Some(node) = self.nodes.get_mut(&to) {
            node.handle_datagram(now, NeighbourId(from), datagram);
        }
    }

    /// Lets all nodes send what may leave now.
    pub(super) fn send(&mut self) {
        for (&id, node) in &mut self.nodes {
            let mut datagram = Vec::new();
            while let Some(NeighbourId(to)) = node.poll_transmit(self.now, &mut datagram) {
                let flight = self.flight.entry((id, to)).or_default();
                if flight.len() < MOST_UNDER_WAY {
                    flight.push(std::mem::take(&mut datagram));
                }
                datagram.clear();
            }
        }
    }

    /// Datagrams that have not arrived.
    pub(super) fn under_way(&self) -> usize {
        self.flight.values().map(Vec::len).sum()
    }

    /// Goes on to the next timer until an instant; returns whether there was one.
    pub(super) fn step(&mut self, until: Instant) -> bool {
        let next = self.nodes.values().filter_map(Node::poll_timeout).min();
        let Some(next) = next.filter(|next| *next <= until) else {
            return false;
        };
        self.now = (self.now + Duration::from_micros(100)).max(next);
        for node in self.nodes.values_mut() {
            if node.poll_timeout().is_some_and(|at| at <= self.now) {
                node.handle_timeout(self.now);
            }
        }
        true
    }
}
