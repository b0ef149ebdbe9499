//! Two nodes for a long time: paths that are lost and join again, thousands of short streams, blocks with deadlines,
//! with forged and replayed packets. No session ends, no data are lost, and memory returns to its level.
//!
//! An hour: `STARHAUL_SOAK_MINUTES=60 cargo test --release -p starhaul-system-tests --test soak -- --nocapture`.

use std::{
    alloc::System,
    collections::{BTreeMap, VecDeque},
    net::SocketAddr,
    time::{Duration, Instant},
};

use bytes::BytesMut;
use cap::Cap;
use rand::{Rng, RngCore};
use rand_chacha::{ChaCha8Rng, rand_core::SeedableRng};
use starhaul_cc::ControllerConfig;
use starhaul_quic::{Identity, LocalId, Node, NodeConfig, NodeEvent, PathSpec, SessionHandle};
use starhaul_session::{
    BlockId, BlockOptions, Event, Mode, Session, StreamConfig, StreamError, StreamId,
};
use starhaul_sim::{Datagram, Delivery, Node as SimNode, PathLinks, Simulation, Udp};

const SEED: u64 = 10;
const LINKS: [&str; 2] = [
    "rate=20mbit,delay=20ms,loss=1%",
    "rate=10mbit,delay=300ms,loss=1%",
];
/// Streams of each side in a minute.
const STREAMS_PER_MINUTE: u32 = 500;
const STEP: Duration = Duration::from_millis(20);
const STEPS_PER_MINUTE: u32 = 3000;
/// Mean number of steps between losses of a path.
const STEPS_PER_LOSS: u32 = 1000;
const REMEMBERED_PACKETS: usize = 512;

/// One end of the session in the simulator, and the state of its applications.
struct Side {
    node: Node,
    session: Option<SessionHandle>,
    /// Recent packets, for replay: socket, sender, bytes.
    seen: VecDeque<(u32, SocketAddr, Vec<u8>)>,
    /// Streams by number: bytes left to write, and bytes read.
    streams: BTreeMap<StreamId, Transfer>,
    /// Sent blocks without outcome.
    blocks: BTreeMap<(StreamId, BlockId), ()>,
    finished: u64,
    outcomes: u64,
    rejoined: u64,
}

#[derive(Default)]
struct Transfer {
    to_write: usize,
    written: usize,
    finished: bool,
    read: usize,
}

fn address(side: usize, path: u32) -> SocketAddr {
    format!("10.{path}.0.{}:4600", side + 1)
        .parse()
        .expect("an address")
}

fn byte_at(stream: StreamId, offset: usize) -> u8 {
    (offset * 31 + stream.0 as usize).to_le_bytes()[0]
}

/// Length of a stream's answer; both ends compute it from the number.
fn answer_bytes(stream: StreamId) -> usize {
    stream.0 as usize * 37 % 9000
}

impl Side {
    fn new(node: Node) -> Self {
        Self {
            node,
            session: None,
            seen: VecDeque::new(),
            streams: BTreeMap::new(),
            blocks: BTreeMap::new(),
            finished: 0,
            outcomes: 0,
            rejoined: 0,
        }
    }

    fn session(&mut self) -> &mut Session {
        let session = self.session.expect("the session is open");
        self.node.session(session).expect("the session lives")
    }

    fn take_events(&mut self) {
        while let Some(event) = self.node.poll_event() {
            match event {
                NodeEvent::Accepted { session, .. } => self.session = Some(session),
                NodeEvent::Closed { error, .. } => {
                    panic!("seed {SEED}: the session ended: {error:?}")
                }
                NodeEvent::PathUp { .. } => self.rejoined += 1,
                NodeEvent::Session { event, .. } => self.take(event),
                _ => {}
            }
        }
    }

    fn take(&mut self, event: Event) {
        match event {
            Event::StreamOpened { stream, config } if config.mode == Mode::Reliable => {
                let transfer = Transfer {
                    to_write: answer_bytes(stream),
                    ..Transfer::default()
                };
                assert!(
                    self.streams.insert(stream, transfer).is_none(),
                    "opened twice"
                );
            }
            Event::BlockOutcome { stream, block, .. } => {
                let known = self.blocks.remove(&(stream, block));
                assert!(known.is_some(), "{block:?} has two outcomes");
                self.outcomes += 1;
            }
            Event::Reset { stream, .. } | Event::Stopped { stream, .. } => {
                panic!("seed {SEED}: {stream:?} was given up");
            }
            _ => {}
        }
    }

    /// Writes, reads and ends streams as far as possible.
    fn serve(&mut self, now: Instant) {
        self.take_events();
        let mut streams = std::mem::take(&mut self.streams);
        let session = self.session();
        let mut ended = 0;
        streams.retain(|&id, transfer| {
            if !transfer.finished {
                let data: Vec<u8> = (transfer.written..transfer.to_write)
                    .map(|at| byte_at(id, at))
                    .collect();
                transfer.written += session.write(now, id, &data).expect("writable");
                if transfer.written == transfer.to_write {
                    session.finish(now, id).expect("once");
                    transfer.finished = true;
                }
            }
            loop {
                match session.read(now, id, usize::MAX) {
                    Ok(Some(bytes)) if bytes.is_empty() => {
                        ended += 1;
                        return false;
                    }
                    Ok(Some(bytes)) => {
                        let same = (transfer.read..).zip(&bytes[..]);
                        assert!(same.into_iter().all(|(at, byte)| byte_at(id, at) == *byte));
                        transfer.read += bytes.len();
                    }
                    Ok(None) => return true,
                    Err(error) => panic!("seed {SEED}: {id:?}: {error}"),
                }
            }
        });
        self.finished += ended;
        self.streams.append(&mut streams);
    }

    fn open(&mut self, now: Instant, bytes: usize) {
        let config = StreamConfig {
            mode: Mode::Reliable,
            ..StreamConfig::default()
        };
        match self.session().open_stream(now, config) {
            Ok(id) => {
                let transfer = Transfer {
                    to_write: bytes,
                    ..Transfer::default()
                };
                self.streams.insert(id, transfer);
            }
            // Blocked while there is no path; an application would wait.
            Err(StreamError::PeerStreams | StreamError::TooManyStreams(_)) => {}
            Err(error) => panic!("seed {SEED}: {error}"),
        }
    }
}

impl SimNode for Side {
    type Load = Udp;

    fn handle_packet(&mut self, now: Instant, packet: Delivery<Udp>) {
        if self.seen.len() >= REMEMBERED_PACKETS {
            self.seen.pop_front();
        }
        let bytes = packet.load.payload.to_vec();
        self.seen.push_back((packet.local, packet.from, bytes));
        self.node.handle_packet(now, packet);
    }

    fn poll_transmit(&mut self, now: Instant, out: &mut VecDeque<Datagram>) {
        SimNode::poll_transmit(&mut self.node, now, out);
        if out.is_empty() {
            self.take_events();
        }
    }

    fn poll_timeout(&mut self) -> Option<Instant> {
        self.node.poll_timeout()
    }

    fn handle_timeout(&mut self, now: Instant) {
        self.node.handle_timeout(now);
    }
}

struct Soak {
    sim: Simulation<Side>,
    links: Vec<PathLinks>,
    random: ChaCha8Rng,
    /// The path that is cut, in which directions, and until which step.
    cut: Option<(PathLinks, u32)>,
    block_streams: [Option<StreamId>; 2],
}

impl Soak {
    fn new() -> Self {
        let start = Instant::now();
        let identities = [1, 2].map(|secret| Identity::from_secret([secret; 32]));
        let [client_key, server_key] = [0, 1].map(|side: usize| identities[side].public_key());
        let mut sim = Simulation::new(SEED, start);
        for (identity, trusted) in identities.into_iter().zip([server_key, client_key]) {
            let mut config = NodeConfig::new(identity);
            config.trusted = vec![trusted];
            config.accept_controller = ControllerConfig::Bbr;
            config.rng_seed = [u8::from(trusted == client_key); 32];
            sim.add_node(Side::new(
                Node::new(config, start).expect("a sound configuration"),
            ));
        }
        let mut links = Vec::new();
        for (path, spec) in (0..).zip(LINKS) {
            for side in 0..2 {
                sim.nodes[side].node.add_local(LocalId(path), side == 1);
                sim.network
                    .bind(starhaul_sim::NodeId(side), path, address(side, path));
            }
            let spec = spec.parse().expect("a link");
            links.push(
                sim.network
                    .connect(address(0, path), address(1, path), &spec, &spec),
            );
        }
        let paths = (0..2).map(|path| {
            let spec = PathSpec {
                cost: 0.0,
                controller: ControllerConfig::Bbr,
                ..PathSpec::new(format!("path{path}"), address(1, path))
            };
            (LocalId(path), spec)
        });
        let session = sim.nodes[0]
            .node
            .connect(start, server_key, paths.collect());
        sim.nodes[0].session = Some(session.expect("sound paths"));
        let mut soak = Self {
            sim,
            links,
            random: ChaCha8Rng::seed_from_u64(SEED),
            cut: None,
            block_streams: [None; 2],
        };
        soak.sim.run_for(Duration::from_secs(4));
        for side in 0..2 {
            soak.sim.nodes[side].take_events();
            let config = StreamConfig {
                deadline: Duration::from_millis(800),
                ..StreamConfig::default()
            };
            let now = soak.sim.now();
            let opened = soak.sim.nodes[side].session().open_stream(now, config);
            soak.block_streams[side] = Some(opened.expect("a stream"));
        }
        soak
    }

    /// Cuts a path, in both directions or in one, and restores it after a while.
    fn meddle_with_paths(&mut self, step: u32) {
        let now = self.sim.now();
        if let Some((links, _)) = self.cut.take_if(|(_, until)| *until <= step) {
            self.sim.network.restore(now, links);
        }
        if step.is_multiple_of(STEPS_PER_LOSS) {
            let PathLinks { forward, backward } = self.links[self.random.random_range(0..2)];
            let (forward, backward) = match self.random.random_range(0..4) {
                0 => (forward, forward),
                1 => (backward, backward),
                _ => (forward, backward),
            };
            let links = PathLinks { forward, backward };
            self.sim.network.cut(now, links);
            self.cut = Some((links, step + self.random.random_range(50..900)));
        }
    }

    /// A replayed packet, changed or not, and a forged one; from any address, also from port 0.
    fn forge(&mut self) {
        let (now, side) = (self.sim.now(), self.random.random_range(0..2));
        let target = &mut self.sim.nodes[side];
        let at = self.random.random_range(0..target.seen.len().max(1));
        if let Some((local, from, mut payload)) = target.seen.get(at).cloned() {
            let strange = SocketAddr::from((
                self.random.random::<[u8; 4]>(),
                self.random.random::<u16>() & 0x3,
            ));
            let from = if self.random.random() { from } else { strange };
            if self.random.random() && !payload.is_empty() {
                let at = self.random.random_range(0..payload.len());
                payload[at] ^= 1 << self.random.random_range(0..8);
            }
            let payload = BytesMut::from(&payload[..]);
            target
                .node
                .handle_datagram(now, LocalId(local), from, 0, payload);
        }
        let mut garbage = vec![0; self.random.random_range(0..1500)];
        self.random.fill_bytes(&mut garbage);
        let from = SocketAddr::from((self.random.random::<[u8; 4]>(), 0));
        let local = LocalId(self.random.random_range(0..2));
        target
            .node
            .handle_datagram(now, local, from, 0, BytesMut::from(&garbage[..]));
    }

    fn step(&mut self, step: u32) {
        self.meddle_with_paths(step);
        if step.is_multiple_of(3) {
            self.forge();
        }
        for side in 0..2 {
            let now = self.sim.now();
            if step % (STEPS_PER_MINUTE / STREAMS_PER_MINUTE) == side {
                let bytes = self.random.random_range(0..20_000);
                self.sim.nodes[side as usize].open(now, bytes);
            }
            let stream = self.block_streams[side as usize].expect("opened at the start");
            let node = &mut self.sim.nodes[side as usize];
            let data = vec![7; self.random.random_range(1..4000)];
            if let Ok(block) =
                node.session()
                    .send_block(now, stream, data.into(), BlockOptions::default())
            {
                node.blocks.insert((stream, block), ());
            }
            node.serve(now);
        }
        self.sim.run_for(STEP);
    }

    /// Lets all paths work until nothing is in flight; returns the memory of both ends.
    fn come_to_rest(&mut self) -> [(usize, usize); 2] {
        if let Some((links, _)) = self.cut.take() {
            let now = self.sim.now();
            self.sim.network.restore(now, links);
        }
        for _ in 0..3000 {
            let now = self.sim.now();
            for node in &mut self.sim.nodes {
                node.serve(now);
            }
            self.sim.run_for(STEP);
        }
        [0, 1].map(|side| {
            let node = &mut self.sim.nodes[side];
            let open = node.streams.len();
            assert_eq!(
                open, 0,
                "seed {SEED}: side {side} has {open} streams that stand still"
            );
            assert!(
                node.blocks.is_empty(),
                "seed {SEED}: {:?} have no outcome",
                node.blocks
            );
            let alive = node.session().stream_stats();
            let alive = alive.iter().filter(|stats| !stats.ended).count();
            assert_eq!(alive, 2, "the two streams of blocks are left");
            node.session().held_bytes()
        })
    }
}

/// Counts allocated bytes; resident memory would depend on the allocator, too.
#[global_allocator]
static HEAP: Cap<System> = Cap::new(System, usize::MAX);

#[test]
fn sessions_outlive_lost_paths_streams_and_forgeries_and_leave_nothing_behind() {
    let minutes: u32 = match std::env::var("STARHAUL_SOAK_MINUTES") {
        Ok(text) => text
            .parse()
            .expect("STARHAUL_SOAK_MINUTES is a number of minutes"),
        Err(_) => 3,
    };
    let mut soak = Soak::new();
    let mut levels = Vec::new();
    for minute in 0..minutes {
        for step in 0..STEPS_PER_MINUTE {
            soak.step(minute * STEPS_PER_MINUTE + step);
        }
        // Between bursts all activity ends, so that levels can be compared.
        if minute % 10 == 0 || minute + 1 == minutes {
            let held = soak.come_to_rest();
            assert_eq!(held, [(0, 0); 2], "seed {SEED}, minute {minute}");
            levels.push(HEAP.allocated() / 1024);
        }
    }
    let sides = &soak.sim.nodes;
    println!(
        "{minutes} min: {} and {} streams, {} and {} blocks, {} and {} times a path came up; held at rest: nothing; \
         KiB allocated at rest: {levels:?}",
        sides[0].finished,
        sides[1].finished,
        sides[0].outcomes,
        sides[1].outcomes,
        sides[0].rejoined,
        sides[1].rejoined,
    );
    let expected = u64::from(minutes * STREAMS_PER_MINUTE * 2);
    for side in sides {
        assert!(
            side.finished * 10 >= expected * 9,
            "{} of {expected} streams",
            side.finished
        );
        assert!(side.rejoined > u64::from(minutes), "no path was lost");
    }
    // Buffers keep their greatest capacity, which the first minute may not reach.
    if let [first, .., last] = levels.as_slice() {
        assert!(
            last * 4 < first * 5,
            "memory grew from {first} to {last} KiB"
        );
    }
}
