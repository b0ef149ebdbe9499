//! Two nodes over two lossy, reordering paths, a load in both directions, and what the outcomes of its blocks must be.

use std::{
    net::SocketAddr,
    ops::Range,
    time::{Duration, Instant},
};

use starhaul_cc::ControllerConfig;
use starhaul_link::{Delay, LinkSpec, Rate};
use starhaul_quic::{Identity, LocalId, Node, NodeConfig, PathSpec};
use starhaul_session::{ExpiredCause, Outcome, SchedulerChoice, StreamConfig};
use starhaul_sim::{LinkId, NodeId, PathLinks, Simulation};
use starhaul_units::Bandwidth;

use super::side::{Clock, LOADS, Side};

/// Each can carry the whole load, of 4.7 Mbit/s with headers, alone. Loss and reordering strike acknowledgements, too.
pub(super) const LINKS: [&str; 2] = [
    "rate=20mbit,delay=30ms,jitter=2ms,loss=0.5%,reorder=1%:10ms,queue=200p",
    "rate=20mbit,delay=50ms,jitter=2ms,loss=1%,reorder=1%:10ms,queue=200p",
];
/// Between two blocks of a load.
pub(super) const PERIOD: Duration = Duration::from_millis(40);
/// By so much may the latency that the sender is told differ from the true one: one-way delays are measured up to half the
/// difference between the delays of both directions, which queues and jitter make.
const LATENCY_ERROR: Duration = Duration::from_millis(25);
const BOTH: [usize; 2] = [0, 1];

pub(super) struct World {
    pub(super) sim: Simulation<Side>,
    pub(super) links: Vec<PathLinks>,
    pub(super) name: String,
    start: Instant,
    /// Most bytes held for sending and received bytes, of each side, since last asked.
    pub(super) most_held: [(usize, usize); 2],
}

/// The address of a side on a path.
pub(super) fn address(side: usize, path: u32) -> SocketAddr {
    format!("10.{path}.0.{}:4600", side + 1)
        .parse()
        .expect("an address")
}

/// The links of both paths, there and back.
pub(super) fn links() -> [[LinkSpec; 2]; 2] {
    LINKS.map(|text| [0, 1].map(|_| text.parse().expect("a link")))
}

impl World {
    /// Both nodes after their handshake, with open streams.
    pub(super) fn new(scheduler: SchedulerChoice, seed: u64) -> Self {
        Self::with(scheduler, seed, links(), |_, _| {})
    }

    /// The same over these links, there and back, and with these settings of each side.
    pub(super) fn with(
        scheduler: SchedulerChoice,
        seed: u64,
        links: [[LinkSpec; 2]; 2],
        set: impl Fn(usize, (&mut NodeConfig, &mut Clock)),
    ) -> Self {
        let mut world = Self::connected(scheduler, seed, links, set);
        world.open_streams(&StreamConfig::default());
        world
    }

    /// The same with ways that take so much longer, and streams that hand their blocks on in order.
    pub(super) fn ordered(scheduler: SchedulerChoice, seed: u64, longer: Duration) -> Self {
        let mut links = links();
        for link in links.iter_mut().flatten() {
            if let Delay::Constant(delay) = &mut link.delay {
                *delay += longer;
            }
        }
        let mut world = Self::connected(scheduler, seed, links, |_, _| {});
        world.name += ", in order";
        world.open_streams(&StreamConfig {
            ordered: true,
            ..StreamConfig::default()
        });
        world
    }

    fn open_streams(&mut self, config: &StreamConfig) {
        let now = self.sim.now();
        let sides = self.sim.nodes.iter_mut();
        sides.for_each(|side| side.open_streams(now, config));
    }

    fn connected(
        scheduler: SchedulerChoice,
        seed: u64,
        links: [[LinkSpec; 2]; 2],
        set: impl Fn(usize, (&mut NodeConfig, &mut Clock)),
    ) -> Self {
        let start = Instant::now();
        let identities = [1, 2].map(|secret| Identity::from_secret([secret; 32]));
        let [client_key, server_key] = BOTH.map(|side| identities[side].public_key());
        let mut sim = Simulation::new(seed, start);
        for (side, identity) in identities.into_iter().enumerate() {
            let mut config = NodeConfig::new(identity);
            config.trusted = vec![client_key, server_key];
            config.scheduler = scheduler;
            config.accept_controller = ControllerConfig::Bbr;
            config.rng_seed = [u8::try_from(side).expect("of two") + 1; 32];
            let mut clock = Clock::true_to(start);
            set(side, (&mut config, &mut clock));
            let node = Node::new(config, start + clock.ahead).expect("a sound configuration");
            sim.add_node(Side::new(node, clock));
        }
        let mut paths = Vec::new();
        let mut specs = Vec::new();
        for (path, [there, back]) in (0..).zip(links) {
            for side in BOTH {
                sim.nodes[side].node.add_local(LocalId(path), side == 1);
                sim.network.bind(NodeId(side), path, address(side, path));
            }
            let (client, server) = (address(0, path), address(1, path));
            paths.push(sim.network.connect(client, server, &there, &back));
            let spec = PathSpec {
                cost: 0.0,
                controller: ControllerConfig::Bbr,
                ..PathSpec::new(format!("path{path}"), server)
            };
            specs.push((LocalId(path), spec));
        }
        let client = &mut sim.nodes[0];
        let now = start + client.clock.ahead;
        client.session = Some(
            client
                .node
                .connect(now, server_key, specs)
                .expect("sound paths"),
        );
        let mut world = Self {
            sim,
            links: paths,
            name: format!("{}, seed {seed}", scheduler.name()),
            start,
            most_held: [(0, 0); 2],
        };
        world.sim.run_for(Duration::from_secs(3));
        world
    }

    /// Both applications send for so long.
    pub(super) fn run_secs(&mut self, seconds: u64) {
        self.run(Duration::from_secs(seconds));
    }

    pub(super) fn run(&mut self, time: Duration) {
        let end = self.sim.now() + time;
        while self.sim.now() < end {
            let now = self.sim.now();
            self.sim.nodes.iter_mut().for_each(|side| side.send(now));
            self.sim.run_for(PERIOD);
            self.note_held();
        }
    }

    /// The client has more bytes to send than the paths carry, for so long; `change` may change the world in every [`PERIOD`].
    pub(super) fn run_full(&mut self, time: Duration, mut change: impl FnMut(&mut Self)) {
        let end = self.sim.now() + time;
        while self.sim.now() < end {
            change(self);
            let now = self.sim.now();
            self.sim.nodes[0].fill(now);
            self.sim.run_for(PERIOD);
        }
    }

    /// Datagrams of both sides that a path has lost since it came up.
    pub(super) fn lost_on(&mut self, path: usize) -> u64 {
        let sides = self.sim.nodes.iter_mut();
        sides
            .map(|side| side.session().path_stats()[path].datagrams_lost)
            .sum()
    }

    /// What the first path has carried, of each side; both paths are up.
    pub(super) fn bytes_on_first_path(&mut self) -> [u64; 2] {
        BOTH.map(|number| {
            let carried = self.sim.nodes[number].bytes_sent();
            assert_eq!(carried.len(), 2, "{}: paths of side {number}", self.name);
            carried[0]
        })
    }

    fn note_held(&mut self) {
        for (most, side) in self.most_held.iter_mut().zip(&mut self.sim.nodes) {
            let (sending, received) = side.session().held_bytes();
            *most = (most.0.max(sending), most.1.max(received));
        }
    }

    /// The time of an instant since the start.
    pub(super) fn since_start(&self, at: Instant) -> Duration {
        at - self.start
    }

    /// Time since the start.
    pub(super) fn elapsed(&self) -> Duration {
        self.sim.now() - self.start
    }

    /// Stops sending until all has ended.
    pub(super) fn rest(&mut self) {
        self.sim.run_for(Duration::from_secs(20));
        let now = self.sim.now();
        let written = BOTH.map(|side| self.sim.nodes[side].written);
        for (number, side) in self.sim.nodes.iter_mut().enumerate() {
            side.read(now);
            assert_eq!(
                side.session().held_bytes(),
                (0, 0),
                "{}: side {number} at rest",
                self.name
            );
            assert_eq!(
                side.read,
                written[1 - number],
                "{}: bytes of side {}",
                self.name,
                1 - number
            );
        }
    }

    /// The links of these directions of a path: 0 is the client's, 1 the server's.
    fn ways(&self, path: usize, ways: &[usize]) -> Vec<LinkId> {
        let PathLinks { forward, backward } = self.links[path];
        ways.iter().map(|way| [forward, backward][*way]).collect()
    }

    pub(super) fn cut(&mut self, path: usize, ways: &[usize]) {
        let now = self.sim.now();
        for link in self.ways(path, ways) {
            self.sim.network[link].set_down(now);
        }
    }

    pub(super) fn mend(&mut self, path: usize, ways: &[usize]) {
        let now = self.sim.now();
        for link in self.ways(path, ways) {
            self.sim.network[link].set_up(now);
        }
    }

    pub(super) fn set_rate(&mut self, path: usize, ways: &[usize], mbit: u64) {
        let now = self.sim.now();
        for link in self.ways(path, ways) {
            let rate = Rate::Constant(Bandwidth::from_mbit(mbit));
            self.sim.network[link].set_rate(now, rate);
        }
    }

    /// Blocks that were not on time: of which side, load, sent when, with what outcome.
    pub(super) fn late(&self) -> Vec<(usize, usize, Duration, Outcome)> {
        let mut late = Vec::new();
        for (number, side) in self.sim.nodes.iter().enumerate() {
            for block in &side.blocks {
                let (_, outcome) = block.outcome.expect("judged before");
                if !matches!(outcome, Outcome::Delivered { on_time: true, .. }) {
                    late.push((number, block.load, block.sent - self.start, outcome));
                }
            }
        }
        late
    }

    /// All blocks were on time, but those sent in `windows`.
    pub(super) fn assert_late_only_in(&self, windows: &[Range<Duration>]) {
        let late = self.late();
        let inside = |at: &Duration| windows.iter().any(|window| window.contains(at));
        let wrong: Vec<_> = late.iter().filter(|(_, _, at, _)| !inside(at)).collect();
        let shown = &wrong[..wrong.len().min(12)];
        assert!(
            wrong.is_empty(),
            "{}: {} late outside of {windows:?}: {shown:?}",
            self.name,
            wrong.len()
        );
    }

    /// All blocks that were sent.
    pub(super) fn blocks(&self) -> usize {
        self.sim.nodes.iter().map(|side| side.blocks.len()).sum()
    }

    /// What was delivered in time was also handed on in time, in the order of sending; nothing else was said to be delivered.
    /// Returns how many blocks were not.
    pub(super) fn judge_order(&self) -> usize {
        let mut missed = 0;
        for (side, peer) in [(0, 1), (1, 0)] {
            let [side_of, peer_of] = [side, peer].map(|number| &self.sim.nodes[number]);
            let mut latest = [self.start; LOADS.len()];
            for block in &side_of.blocks {
                let about = format!("{}: {} of load {}", self.name, block.number, block.load);
                let arrival = peer_of.arrivals[block.load].get(block.number as usize);
                let received = arrival.and_then(|arrival| arrival.received);
                let (_, outcome) = block.outcome.expect("every block ends");
                let Outcome::Delivered { on_time, .. } = outcome else {
                    missed += 1;
                    continue;
                };
                let received = received.unwrap_or_else(|| panic!("{about}: never handed on"));
                let latest = &mut latest[block.load];
                assert!(*latest <= received, "{about}: before the last");
                *latest = received;
                let (took, deadline) = (received - block.sent, LOADS[block.load].deadline);
                assert!(
                    !on_time || took <= deadline + LATENCY_ERROR,
                    "{about}: on time, but handed on after {took:?}"
                );
            }
        }
        missed
    }

    /// Each block has exactly one outcome, told in time, and the right one: what is said to be delivered was, at the time that
    /// is said, and what is said to be expired was not, unless no acknowledgement could come back: that of blocks of a side which
    /// arrived in its `unheard` span.
    pub(super) fn judge(&self, unheard: [Range<Duration>; 2]) {
        let name = &self.name;
        for (side, peer) in [(0, 1), (1, 0)] {
            let [side_of, peer_of] = [side, peer].map(|number| &self.sim.nodes[number]);
            for block in &side_of.blocks {
                let about = format!(
                    "{name}: block {} of load {} of side {side}, sent at {:?}",
                    block.number,
                    block.load,
                    block.sent - self.start
                );
                let Some((told, outcome)) = block.outcome else {
                    panic!("{about}: no outcome");
                };
                let deadline = LOADS[block.load].deadline;
                let arrival = peer_of.arrivals[block.load].get(block.number as usize);
                let arrival = arrival.copied().unwrap_or_default();
                let took = arrival.received.map(|at| at - block.sent);
                let told_after = told - block.sent;
                assert!(
                    told_after < deadline + PATIENCE,
                    "{about}: told after {told_after:?}"
                );
                match outcome {
                    Outcome::Delivered {
                        latency, on_time, ..
                    } => {
                        let took = took.unwrap_or_else(|| panic!("{about}: never delivered"));
                        let error = latency.abs_diff(took);
                        assert!(
                            error < LATENCY_ERROR,
                            "{about}: took {took:?}, told {latency:?}"
                        );
                        assert_eq!(on_time, latency <= deadline, "{about}: {latency:?}");
                    }
                    Outcome::Expired(cause) => {
                        let arrived = arrival.received.map(|at| at - self.start);
                        let was_heard = arrived.is_none_or(|at| !unheard[side].contains(&at));
                        let was_late = took.is_none_or(|took| took + LATENCY_ERROR > deadline);
                        assert!(
                            was_late || !was_heard,
                            "{about}: {outcome:?}, but arrived after {took:?}"
                        );
                        let reached = cause != ExpiredCause::Unreachable;
                        assert!(reached || took.is_none(), "{about}: {cause:?}, but arrived");
                    }
                    other => panic!("{about}: {other:?}"),
                }
            }
        }
    }
}

/// The outcome of a block is told so long after its deadline at the latest.
const PATIENCE: Duration = Duration::from_secs(3);
