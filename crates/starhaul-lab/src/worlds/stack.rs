//! Two hosts joined by simulated paths in virtual time: a sender, which opens the session, and a receiver.

use std::{
    collections::{HashMap, VecDeque},
    net::SocketAddr,
    time::{Duration, Instant},
};

use bytes::{Bytes, BytesMut};
use starhaul_cc::ControllerConfig;
use starhaul_demo::baseline::{ConnectionId, Controller, MpQuicEvent, MpQuicNode};
use starhaul_link::LinkSpec;
use starhaul_quic::{Identity, LocalId, Node, NodeConfig, NodeEvent, PathSpec, SessionHandle};
use starhaul_session::{Event, SchedulerChoice, Session, StreamConfig, StreamId};
use starhaul_sim::{Datagram, Delivery, Node as SimNode, NodeId, PathLinks, Simulation, Udp};

use crate::{Error, kit::Records};

const SENDER: NodeId = NodeId(0);
const RECEIVER: NodeId = NodeId(1);
/// Longest time that opening may take: several round trips of the slowest path with losses.
const OPENING_LIMIT: Duration = Duration::from_secs(20);

/// A path between the two hosts.
#[derive(Clone, Debug)]
pub struct PathSetup {
    /// From the sender to the receiver.
    pub forward: LinkSpec,
    /// From the receiver to the sender.
    pub backward: LinkSpec,
    /// Price per byte.
    pub cost: f64,
    /// Controller of the sender's direction; the baseline has its own.
    pub controller: ControllerConfig,
}

/// What the two Starhaul nodes of a world have in common.
#[derive(Clone, Debug)]
pub struct HostSettings {
    /// Bytes of UDP payload in the largest packets.
    pub packet_bytes: u16,
    /// Bytes of a block in one datagram.
    pub max_fragment_bytes: usize,
    /// Controller of the receiver's direction.
    pub accept_controller: ControllerConfig,
    /// The scheduler that chooses the paths.
    pub scheduler: SchedulerChoice,
    /// Where both nodes leave their qlog records.
    pub records: Records,
}

impl Default for HostSettings {
    /// 24 kB of DMTP are 20 fragments, as in the paper.
    fn default() -> Self {
        Self {
            packet_bytes: 1300,
            max_fragment_bytes: 1200,
            accept_controller: ControllerConfig::Bbr,
            scheduler: SchedulerChoice::default(),
            records: Records::default(),
        }
    }
}

/// Two hosts that run one system, with a session open between them.
pub struct World<S: SimNode> {
    sim: Simulation<S>,
    /// The links of each path, in the order of the setups.
    pub paths: Vec<PathLinks>,
    opened_at: Instant,
}

/// One end of Starhaul with its only session.
pub struct Starhaul {
    node: Node,
    handle: Option<SessionHandle>,
    events: VecDeque<Event>,
}

/// One end of the baseline with its connections by label.
pub struct MpQuic {
    node: MpQuicNode,
    /// The baseline answers on the socket at which the peer's address is reached.
    locals: HashMap<SocketAddr, u32>,
    connections: HashMap<String, ConnectionId>,
    labels: HashMap<ConnectionId, String>,
    blocks: VecDeque<(String, Bytes)>,
    /// Why a connection ended, if one did.
    lost: Option<String>,
}

impl<S: SimNode<Load = Udp>> World<S> {
    fn new(seed: u64, ends: [S; 2], paths: &[PathSetup]) -> Self {
        let start = Instant::now();
        let mut sim = Simulation::new(seed, start);
        for system in ends {
            sim.add_node(system);
        }
        let links = (0..)
            .zip(paths)
            .map(|(path, setup)| {
                let [near, far] = [address(0, path), address(1, path)];
                sim.network.bind(SENDER, u32::from(path), near);
                sim.network.bind(RECEIVER, u32::from(path), far);
                sim.network
                    .connect(near, far, &setup.forward, &setup.backward)
            })
            .collect();
        Self {
            sim,
            paths: links,
            opened_at: start,
        }
    }

    /// The simulator with its links.
    pub const fn sim(&mut self) -> &mut Simulation<S> {
        &mut self.sim
    }

    /// The node that sends.
    pub fn sender(&mut self) -> &mut S {
        &mut self.sim.nodes[SENDER.0]
    }

    /// The node that receives.
    pub fn receiver(&mut self) -> &mut S {
        &mut self.sim.nodes[RECEIVER.0]
    }

    /// Virtual time now.
    pub fn now(&self) -> Instant {
        self.sim.now()
    }

    /// Virtual time since the session was open.
    pub fn elapsed(&self) -> Duration {
        self.sim.now() - self.opened_at
    }

    /// Bytes that each path delivered so far towards the receiver, headers included.
    pub fn delivered_bytes(&self) -> Vec<u64> {
        self.paths
            .iter()
            .map(|path| self.sim.network[path.forward].stats().delivered_bytes)
            .collect()
    }

    /// Bytes that each path was given so far towards the receiver, headers included.
    pub fn given_bytes(&self) -> Vec<u64> {
        self.paths
            .iter()
            .map(|path| self.sim.network[path.forward].stats().enqueued_bytes)
            .collect()
    }

    /// Runs until `until` after the opening and lets `application` act at once, after every event and at the end; it
    /// says when, after the opening, it wants to act at the latest.
    pub fn run(
        &mut self,
        until: Duration,
        mut application: impl FnMut(&mut Self) -> Option<Duration>,
    ) {
        let until = self.opened_at + until;
        loop {
            let wanted = application(self).map_or(until, |at| self.opened_at + at);
            if !self
                .sim
                .step(wanted.max(self.now() + Duration::from_micros(1)).min(until))
                && self.now() >= until
            {
                application(self);
                return;
            }
        }
    }

    fn open(&mut self, mut ready: impl FnMut(&mut Self) -> bool) -> Result<(), Error> {
        let limit = self.now() + OPENING_LIMIT;
        while !ready(self) {
            if !self.sim.step(limit) && self.now() >= limit {
                return Err(Error::Failed(format!(
                    "the session was not open within {OPENING_LIMIT:?} of virtual time"
                )));
            }
        }
        self.opened_at = self.now();
        Ok(())
    }
}

impl World<Starhaul> {
    /// Two Starhaul nodes, once all paths of their session are up at the sender.
    ///
    /// # Errors
    /// The session is not open within 20 s of virtual time.
    pub fn starhaul(seed: u64, paths: &[PathSetup], records: &Records) -> Result<Self, Error> {
        let settings = HostSettings {
            records: records.clone(),
            ..HostSettings::default()
        };
        Self::starhaul_with(seed, paths, &[], &settings)
    }

    /// As [`World::starhaul`], while the paths with the numbers in `cut` are cut from the start on.
    ///
    /// # Errors
    /// As [`World::starhaul`].
    pub fn starhaul_without(seed: u64, paths: &[PathSetup], cut: &[usize]) -> Result<Self, Error> {
        Self::starhaul_with(seed, paths, cut, &HostSettings::default())
    }

    /// As [`World::starhaul_without`], between nodes with these settings.
    ///
    /// # Errors
    /// As [`World::starhaul`].
    pub fn starhaul_with(
        seed: u64,
        paths: &[PathSetup],
        cut: &[usize],
        settings: &HostSettings,
    ) -> Result<Self, Error> {
        let start = Instant::now();
        let [near, far] = [Identity::generate(), Identity::generate()];
        let far_key = far.public_key();
        let node = |identity: Identity, trusted, salt: u8| {
            let mut config = NodeConfig::new(identity);
            config.trusted = vec![trusted];
            config.accept_controller = settings.accept_controller.clone();
            config.scheduler = settings.scheduler;
            config.session.max_fragment_bytes = settings.max_fragment_bytes;
            config.packet_bytes = settings.packet_bytes;
            // What is measured is the same from the first packet on.
            config.sure_packet_bytes = settings.packet_bytes;
            config.qlog = settings.records.files();
            config.rng_seed = [salt; 32];
            config.rng_seed[..8].copy_from_slice(&seed.to_be_bytes());
            let mut node = Node::new(config, start)?;
            for local in 0..paths.len() {
                node.add_local(LocalId(u32::try_from(local).unwrap_or(u32::MAX)), salt == 1);
            }
            Ok::<_, Error>(Starhaul {
                node,
                handle: None,
                events: VecDeque::new(),
            })
        };
        let near_key = near.public_key();
        let ends = [node(near, far_key, 0)?, node(far, near_key, 1)?];
        let mut world = Self::new(seed, ends, paths);
        let configs = (0..)
            .zip(paths)
            .map(|(path, setup)| {
                let spec = PathSpec {
                    cost: setup.cost,
                    controller: setup.controller.clone(),
                    ..PathSpec::new(format!("path{path}"), address(1, path))
                };
                (LocalId(u32::from(path)), spec)
            })
            .collect();
        let now = world.now();
        for path in cut.iter().filter_map(|path| world.paths.get(*path)) {
            world.sim.network.cut(now, *path);
        }
        let handle = world.sender().node.connect(now, far_key, configs)?;
        world.sender().handle = Some(handle);
        let count = paths.len() - cut.len();
        // The receiver has each path once the sender has said something over it.
        world.open(|world| {
            world.receiver().take_events();
            world.sender().paths_up() == count && world.receiver().session().is_some()
        })?;
        Ok(world)
    }

    /// A stream from the sender to the receiver.
    ///
    /// # Errors
    /// The session refuses, or has ended.
    pub fn open_stream(&mut self, config: StreamConfig) -> Result<StreamId, Error> {
        let now = self.now();
        let session = self.sender().session();
        let stream = session.and_then(|session| session.open_stream(now, config).ok());
        stream.ok_or_else(|| Error::Failed("the session refused a stream".into()))
    }
}

/// The name of multipath QUIC with a controller among the systems of the lab.
pub const fn mpquic_name(controller: Controller) -> &'static str {
    match controller {
        Controller::NewReno => "mpquic",
        Controller::Cubic => "mpquic-cubic",
        Controller::Bbr => "mpquic-bbr",
    }
}

impl World<MpQuic> {
    /// Two baseline nodes, once all connections are up. They take further paths when those have answered: with short queues the baseline is
    /// twice as good as when it waits for them.
    ///
    /// # Errors
    /// They are not within 20 s of virtual time.
    pub fn mpquic(
        seed: u64,
        controller: Controller,
        paths: &[PathSetup],
        labels: &[&str],
    ) -> Result<Self, Error> {
        let end = |server: bool| {
            let peer = if server { 0 } else { 1 };
            let locals = (0..)
                .zip(paths)
                .map(|(path, _)| (address(peer, path), u32::from(path)))
                .collect();
            Ok::<_, Error>(MpQuic {
                node: MpQuicNode::new(server, controller, seed, seed ^ u64::from(server))?,
                locals,
                connections: HashMap::new(),
                labels: HashMap::new(),
                blocks: VecDeque::new(),
                lost: None,
            })
        };
        let mut world = Self::new(seed, [end(false)?, end(true)?], paths);
        let remotes: Vec<_> = (0..).zip(paths).map(|(path, _)| address(1, path)).collect();
        let now = world.now();
        for label in labels {
            world.sender().node.connect(now, label, &remotes)?;
        }
        world.open(|world| {
            [SENDER, RECEIVER]
                .iter()
                .all(|id| world.sim.nodes[id.0].up() == labels.len())
        })?;
        Ok(world)
    }

    /// That no connection has ended.
    ///
    /// # Errors
    /// Why one has: what it carried after that says nothing of it.
    pub fn check(&mut self) -> Result<(), Error> {
        for id in [SENDER, RECEIVER] {
            let node = &mut self.sim.nodes[id.0];
            node.take_events();
            if let Some(why) = &node.lost {
                return Err(Error::Flow(format!("multipath QUIC was lost: {why}")));
            }
        }
        Ok(())
    }
}

impl Starhaul {
    /// The session; absent before it is open and once it has ended.
    pub fn session(&mut self) -> Option<&mut Session> {
        self.handle.and_then(|handle| self.node.session(handle))
    }

    /// What happened since the last call.
    pub fn events(&mut self) -> VecDeque<Event> {
        self.take_events();
        std::mem::take(&mut self.events)
    }

    /// How many paths are up.
    pub fn paths_up(&mut self) -> usize {
        self.take_events();
        let status = self
            .handle
            .map(|handle| self.node.path_status(handle))
            .unwrap_or_default();
        status.iter().filter(|path| path.up).count()
    }

    fn take_events(&mut self) {
        while let Some(event) = self.node.poll_event() {
            match event {
                NodeEvent::Accepted { session, .. } => self.handle = Some(session),
                NodeEvent::Closed { .. } => self.handle = None,
                NodeEvent::Session { event, .. } => self.events.push_back(event),
                NodeEvent::Connected(_)
                | NodeEvent::PathUp { .. }
                | NodeEvent::PathDown { .. }
                | NodeEvent::Refused { .. } => {}
            }
        }
    }
}

impl MpQuic {
    /// Sends a block on the connection with this label.
    pub fn send_block(&mut self, label: &str, data: Bytes) {
        if let Some(connection) = self.connections.get(label) {
            self.node.send_block(*connection, data);
        }
    }

    /// The next block that arrived, with the label of its connection.
    pub fn poll_block(&mut self) -> Option<(String, Bytes)> {
        self.take_events();
        self.blocks.pop_front()
    }

    fn up(&mut self) -> usize {
        self.take_events();
        self.connections.len()
    }

    /// Ends all connections.
    #[cfg(test)]
    fn close(&mut self, now: Instant) {
        self.node.close(now);
    }

    fn take_events(&mut self) {
        while let Some(event) = self.node.poll_event() {
            match event {
                MpQuicEvent::Connected { connection, label } => {
                    self.labels.insert(connection, label.clone());
                    self.connections.insert(label, connection);
                }
                MpQuicEvent::BlockReceived { connection, data } => {
                    let label = self.labels.get(&connection).cloned().unwrap_or_default();
                    self.blocks.push_back((label, data));
                }
                MpQuicEvent::Lost { connection, reason } => {
                    let label = self.labels.get(&connection);
                    let label = label.map_or("before it was up", String::as_str);
                    self.lost.get_or_insert(format!("{label}: {reason}"));
                }
                MpQuicEvent::StreamOpened { .. } => {}
            }
        }
    }
}

impl SimNode for Starhaul {
    type Load = Udp;

    fn handle_packet(&mut self, now: Instant, packet: Delivery<Udp>) {
        self.node.handle_packet(now, packet);
    }

    fn poll_transmit(&mut self, now: Instant, out: &mut VecDeque<Datagram>) {
        SimNode::poll_transmit(&mut self.node, now, out);
    }

    fn poll_timeout(&mut self) -> Option<Instant> {
        self.node.poll_timeout()
    }

    fn handle_timeout(&mut self, now: Instant) {
        self.node.handle_timeout(now);
    }
}

impl SimNode for MpQuic {
    type Load = Udp;

    fn handle_packet(&mut self, now: Instant, packet: Delivery<Udp>) {
        let payload = BytesMut::from(packet.load.payload);
        self.node.handle_datagram(now, packet.from, payload);
    }

    fn poll_transmit(&mut self, now: Instant, out: &mut VecDeque<Datagram>) {
        let Some(batch) = self.node.poll_transmit(now) else {
            return;
        };
        let local = self.locals.get(&batch.remote).copied().unwrap_or_default();
        let payloads = batch.contents.chunks(batch.segment_size.max(1));
        let payloads = payloads.map(|payload| batch.contents.slice_ref(payload));
        out.extend(payloads.map(|payload| Datagram::udp(local, batch.remote, 0, payload)));
    }

    fn poll_timeout(&mut self) -> Option<Instant> {
        self.node.poll_timeout()
    }

    fn handle_timeout(&mut self, now: Instant) {
        self.node.handle_timeout(now);
    }
}

fn address(host: u8, path: u8) -> SocketAddr {
    ([10, host, 0, path], 443).into()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a failed call is a failed test")]

    use super::*;
    use crate::worlds::pipe::Pipe;

    fn two_paths() -> World<MpQuic> {
        let paths = [Pipe::new(10, 40, 0.0), Pipe::new(10, 600, 0.0)];
        let paths = paths.map(|pipe| pipe.setup().unwrap());
        World::mpquic(1, Controller::NewReno, &paths, &["one", "two"]).unwrap()
    }

    #[test]
    fn a_lost_connection_of_the_baseline_is_an_error() {
        let mut world = two_paths();
        world.check().unwrap();
        world.run(Duration::from_secs(1), |_| None);
        world.check().unwrap();
        let now = world.now();
        world.receiver().close(now);
        world.run(Duration::from_secs(2), |_| None);
        let error = world.check().unwrap_err();
        assert!(
            matches!(&error, Error::Flow(why) if why.contains("lost")),
            "{error}"
        );
    }
}
