//! A client and a server with one link pair per path between them.

use std::{
    collections::VecDeque,
    net::SocketAddr,
    time::{Duration, Instant},
};

use bytes::Bytes;
use starhaul_cc::ControllerConfig;
use starhaul_paths::PathId;
use starhaul_session::{BlockOptions, Event, Mode, StreamConfig, StreamId};
use starhaul_sim::{Datagram, Delivery, NodeId, PathLinks, Simulation, Udp};

use super::rogue::Rogue;
use crate::{
    Error, Identity, LocalId, Node, NodeConfig, NodeEvent, PathSpec, PathStatus, PublicKey,
    SessionHandle,
};

/// Who takes part in a simulation.
pub(super) enum Party {
    Node(Box<TestNode>),
    Rogue(Box<Rogue>),
}

/// A node and what it told.
pub(super) struct TestNode {
    pub(super) node: Node,
    pub(super) events: Vec<NodeEvent>,
    /// Every packet that left: when, from which socket, how large.
    pub(super) sent: Vec<(Instant, u32, usize)>,
    /// Sizes of batches in packets.
    pub(super) batches: Vec<usize>,
}

pub(super) struct Net {
    pub(super) sim: Simulation<Party>,
    pub(super) links: Vec<PathLinks>,
    pub(super) session: SessionHandle,
    pub(super) start: Instant,
}

pub(super) const CLIENT: usize = 0;
pub(super) const SERVER: usize = 1;

pub(super) fn client_identity() -> Identity {
    Identity::from_secret([1; 32])
}

pub(super) fn server_identity() -> Identity {
    Identity::from_secret([2; 32])
}

pub(super) fn server_config() -> NodeConfig {
    let mut config = NodeConfig::new(server_identity());
    config.trusted = vec![client_identity().public_key()];
    config.rng_seed = [22; 32];
    config
}

pub(super) fn client_config() -> NodeConfig {
    let mut config = NodeConfig::new(client_identity());
    config.rng_seed = [11; 32];
    config
}

pub(super) fn client_address(path: u32) -> SocketAddr {
    format!("10.{path}.0.1:1000").parse().unwrap()
}

pub(super) fn server_address(path: u32) -> SocketAddr {
    format!("10.{path}.0.2:2000").parse().unwrap()
}

pub(super) fn path_spec(path: u32) -> (LocalId, PathSpec) {
    let spec = PathSpec {
        cost: path.into(),
        ..PathSpec::new(format!("link {path}"), server_address(path))
    };
    (LocalId(path), spec)
}

impl Net {
    /// Two nodes with one link pair per element of `specs`, the same in both directions; nothing
    /// has been sent.
    pub(super) fn new(seed: u64, specs: &[&str]) -> Self {
        let start = Instant::now();
        let node = |config| Node::new(config, start).unwrap();
        Self::with_parties(
            seed,
            start,
            Party::new(node(client_config())),
            Party::new(node(server_config())),
            specs,
        )
    }

    pub(super) fn with_parties(
        seed: u64,
        start: Instant,
        client: Party,
        server: Party,
        specs: &[&str],
    ) -> Self {
        let mut sim = Simulation::new(seed, start);
        let parties = [sim.add_node(client), sim.add_node(server)];
        let mut net = Self {
            sim,
            links: Vec::new(),
            session: SessionHandle(0),
            start,
        };
        for spec in specs {
            net.add_link(parties, spec);
        }
        net
    }

    /// A spec is that of both directions, or `client's | server's`.
    fn add_link(&mut self, [client, server]: [NodeId; 2], spec: &str) {
        let path = u32::try_from(self.links.len()).unwrap();
        for party in &mut self.sim.nodes {
            if let Party::Node(node) = party {
                node.node.add_local(LocalId(path), true);
            }
        }
        let (a, b) = (client_address(path), server_address(path));
        self.sim.network.bind(client, path, a);
        self.sim.network.bind(server, path, b);
        let (there, back) = spec.split_once('|').unwrap_or((spec, spec));
        let (there, back) = (there.parse().unwrap(), back.parse().unwrap());
        self.links
            .push(self.sim.network.connect(a, b, &there, &back));
    }

    /// A fresh server whose direction of every path is governed by `controller`.
    pub(super) fn accept_with(&mut self, controller: ControllerConfig) {
        let mut config = server_config();
        config.accept_controller = controller;
        let paths = u32::try_from(self.links.len()).unwrap();
        let now = self.sim.now();
        let server = self.server();
        server.node = Node::new(config, now).unwrap();
        (0..paths).for_each(|path| server.node.add_local(LocalId(path), true));
    }

    /// The client connects over all links.
    pub(super) fn connect(&mut self) {
        let paths = 0..u32::try_from(self.links.len()).unwrap();
        self.connect_with(
            server_identity().public_key(),
            paths.map(path_spec).collect(),
        );
    }

    pub(super) fn connect_with(&mut self, peer: PublicKey, paths: Vec<(LocalId, PathSpec)>) {
        let now = self.sim.now();
        self.session = self.client().node.connect(now, peer, paths).unwrap();
    }

    pub(super) fn run_ms(&mut self, millis: u64) {
        self.sim.run_for(Duration::from_millis(millis));
        for party in &mut self.sim.nodes {
            if let Party::Node(node) = party {
                node.drain_events();
            }
        }
    }

    pub(super) fn party(&mut self, index: usize) -> &mut TestNode {
        match &mut self.sim.nodes[index] {
            Party::Node(node) => node,
            Party::Rogue(_) => panic!("party {index} is no node"),
        }
    }

    pub(super) fn client(&mut self) -> &mut TestNode {
        self.party(CLIENT)
    }

    pub(super) fn server(&mut self) -> &mut TestNode {
        self.party(SERVER)
    }

    pub(super) fn rogue(&mut self) -> &mut Rogue {
        match &mut self.sim.nodes[CLIENT] {
            Party::Rogue(rogue) => rogue,
            Party::Node(_) => panic!("the client is no rogue"),
        }
    }

    /// The largest IP packets that a link carries from now on, there and back.
    pub(super) fn set_mtu(&mut self, path: usize, there: usize, back: usize) {
        let links = self.links[path];
        self.sim.network.set_mtu(links.forward, there);
        self.sim.network.set_mtu(links.backward, back);
    }

    pub(super) fn cut(&mut self, path: usize) {
        let now = self.sim.now();
        self.sim.network.cut(now, self.links[path]);
    }

    pub(super) fn restore(&mut self, path: usize) {
        let now = self.sim.now();
        self.sim.network.restore(now, self.links[path]);
    }

    /// The status of the session's paths at one side.
    pub(super) fn status(&mut self, index: usize) -> Vec<PathStatus> {
        // Both sides number their sessions alike while there is only one.
        let session = self.session;
        self.party(index).node.path_status(session)
    }

    /// Numbers of the paths that are up at one side.
    pub(super) fn up(&mut self, index: usize) -> Vec<u32> {
        let status = self.status(index);
        let up = status.into_iter().filter(|path| path.up);
        up.map(|path| path.path.0).collect()
    }

    /// Opens a stream at one side, which must have the session.
    pub(super) fn open_stream(&mut self, index: usize, mode: Mode) -> StreamId {
        let (now, session) = (self.sim.now(), self.session);
        let session = self.party(index).node.session(session).unwrap();
        session.open_stream(now, stream_config(mode)).unwrap()
    }

    pub(super) fn send_block(&mut self, index: usize, stream: StreamId, data: Vec<u8>) {
        let (now, session) = (self.sim.now(), self.session);
        let session = self.party(index).node.session(session).unwrap();
        session
            .send_block(now, stream, data.into(), BlockOptions::default())
            .unwrap();
    }
}

fn stream_config(mode: Mode) -> StreamConfig {
    StreamConfig {
        mode,
        deadline: Duration::from_secs(5),
        priority: 1,
        bandwidth: None,
        max_coding_rate: 0.5,
        ordered: false,
        label: Bytes::from_static(b"test"),
    }
}

impl TestNode {
    pub(super) fn drain_events(&mut self) {
        while let Some(event) = self.node.poll_event() {
            self.events.push(event);
        }
    }

    /// How the session ended, if it did.
    pub(super) fn closed(&self) -> Option<Option<Error>> {
        self.events.iter().find_map(|event| match event {
            NodeEvent::Closed { error, .. } => Some(error.clone()),
            _ => None,
        })
    }

    pub(super) fn connected(&self) -> bool {
        let connected = |event: &NodeEvent| matches!(event, NodeEvent::Connected(_));
        self.events.iter().any(connected)
    }

    pub(super) fn accepted(&self) -> Vec<PublicKey> {
        let accepted = self.events.iter().filter_map(|event| match event {
            NodeEvent::Accepted { peer, .. } => Some(*peer),
            _ => None,
        });
        accepted.collect()
    }

    /// How often a path came up and went down.
    pub(super) fn ups_and_downs(&self, number: u32) -> (usize, usize) {
        let count = |wanted: fn(&NodeEvent) -> Option<PathId>| {
            let paths = self.events.iter().filter_map(wanted);
            paths.filter(|path| path.0 == number).count()
        };
        let ups = count(|event| match event {
            NodeEvent::PathUp { path, .. } => Some(*path),
            _ => None,
        });
        let downs = count(|event| match event {
            NodeEvent::PathDown { path, .. } => Some(*path),
            _ => None,
        });
        (ups, downs)
    }

    /// Blocks that arrived.
    pub(super) fn blocks(&self) -> Vec<Bytes> {
        let blocks = self.events.iter().filter_map(|event| match event {
            NodeEvent::Session {
                event: Event::BlockReceived { data, .. },
                ..
            } => Some(data.clone()),
            _ => None,
        });
        blocks.collect()
    }
}

impl Party {
    pub(super) fn new(node: Node) -> Self {
        Self::Node(Box::new(TestNode {
            node,
            events: Vec::new(),
            sent: Vec::new(),
            batches: Vec::new(),
        }))
    }
}

impl starhaul_sim::Node for Party {
    type Load = Udp;

    fn handle_packet(&mut self, now: Instant, packet: Delivery<Udp>) {
        match self {
            Self::Node(party) => party.node.handle_packet(now, packet),
            Self::Rogue(rogue) => {
                rogue.handle_datagram(now, packet.local, packet.from, packet.load.payload.into());
            }
        }
    }

    fn poll_transmit(&mut self, now: Instant, out: &mut VecDeque<Datagram>) {
        match self {
            Self::Node(party) => party.poll_batch(now, out),
            Self::Rogue(rogue) => out.extend(rogue.poll_transmit(now)),
        }
    }

    fn poll_timeout(&mut self) -> Option<Instant> {
        match self {
            Self::Node(party) => party.node.poll_timeout(),
            Self::Rogue(rogue) => rogue.poll_timeout(),
        }
    }

    fn handle_timeout(&mut self, now: Instant) {
        match self {
            Self::Node(party) => party.node.handle_timeout(now),
            Self::Rogue(rogue) => rogue.handle_timeout(now),
        }
    }
}

impl TestNode {
    fn poll_batch(&mut self, now: Instant, out: &mut VecDeque<Datagram>) {
        starhaul_sim::Node::poll_transmit(&mut self.node, now, out);
        if out.is_empty() {
            return self.drain_events();
        }
        assert!(out.len() <= 64, "a batch of {}", out.len());
        self.batches.push(out.len());
        let sent = out.iter();
        self.sent
            .extend(sent.map(|packet| (now, packet.local, packet.load.payload.len())));
    }
}
