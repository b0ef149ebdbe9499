//! Streams over gateway – 3 relays – gateway in virtual time: 20 Mbit/s, 10 ms and 1 % loss each way on each hop.

use std::{
    collections::{BTreeMap, VecDeque},
    sync::LazyLock,
    time::{Duration, Instant},
};

use starhaul_leotp::{
    ContentSecret, Event, NeighbourConfig, NeighbourId, NeighbourKey, Node, NodeConfig,
    StreamConfig, StreamEvent, StreamId, StreamRead, is_hello,
};
use starhaul_link::LinkSpec;
use starhaul_sim::{Datagram, Delivery, LinkId, Node as SimNode, Simulation, Udp};

use crate::acting::address;

const HOP: &str = "rate=20mbit,delay=10ms,loss=1%,queue=200p";
const PATH_RTT: Duration = Duration::from_millis(80);
const HOP_RTT: Duration = Duration::from_millis(20);
const MESSAGE: usize = 32;

/// What an application does with a stream.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Does {
    /// Sends back what it reads.
    Echo,
    /// Sends a message at intervals, and awaits it back.
    Ask,
    /// Writes this much, then finishes.
    Send(usize),
    /// Reads what the other side sends.
    Take,
}

struct Application {
    does: Does,
    written: usize,
    got: usize,
    /// Messages that are to come back, by when they were sent, and how long others took.
    asked: VecDeque<Instant>,
    took: Vec<Duration>,
    ended: Option<Instant>,
}

struct End {
    node: Node,
    streams: BTreeMap<StreamId, Application>,
    ask_at: Option<Instant>,
    ask_every: Duration,
    /// It does not run.
    is_down: bool,
    /// Neighbours whose addresses it has not learned yet.
    unknown: Option<NeighbourId>,
}

impl SimNode for End {
    type Load = Udp;

    fn handle_packet(&mut self, now: Instant, packet: Delivery<Udp>) {
        let from = NeighbourId(packet.from.port().into());
        if self.unknown == Some(from) && is_hello(&packet.load.payload) {
            self.unknown = None;
        }
        if self.is_down || self.unknown == Some(from) {
            return;
        }
        self.node.handle_datagram(now, from, &packet.load.payload);
        self.act(now);
    }

    fn poll_transmit(&mut self, now: Instant, out: &mut VecDeque<Datagram>) {
        let mut datagram = Vec::new();
        while !self.is_down
            && out.is_empty()
            && let Some(to) = self.node.poll_transmit(now, &mut datagram)
        {
            let datagram = std::mem::take(&mut datagram);
            if self.unknown != Some(to) {
                out.push_back(Datagram::udp(0, address(to.0), 0, datagram.into()));
            }
        }
    }

    fn poll_timeout(&mut self) -> Option<Instant> {
        if self.is_down {
            return None;
        }
        [self.node.poll_timeout(), self.ask_at]
            .into_iter()
            .flatten()
            .min()
    }

    fn handle_timeout(&mut self, now: Instant) {
        self.node.handle_timeout(now);
        if self.ask_at.is_some_and(|at| at <= now) {
            self.ask_at = Some(now + self.ask_every);
            let asking = self.streams.iter_mut();
            for (id, application) in asking.filter(|(_, it)| it.does == Does::Ask) {
                application.asked.push_back(now);
                let message = [1; MESSAGE];
                assert_eq!(self.node.write_stream(now, *id, &message), MESSAGE);
            }
        }
        self.act(now);
    }
}

impl End {
    fn open(&mut self, now: Instant, does: Does, other: u8) {
        let id = self.node.open_stream(now, &[other]).unwrap();
        self.streams.insert(id, Application::new(does));
        self.act(now);
    }

    fn act(&mut self, now: Instant) {
        let mut changed: Vec<StreamId> = Vec::new();
        while let Some(event) = self.node.poll_event() {
            let Event::Stream(event) = event else {
                continue;
            };
            match event {
                StreamEvent::Accepted(id) => {
                    let does = match self.node.stream_header(id).unwrap()[0] {
                        0 => Does::Echo,
                        1 => Does::Take,
                        megabytes => Does::Send(usize::from(megabytes) * 1_000_000),
                    };
                    assert!(self.node.answer_stream(now, id, b"welcome"));
                    self.streams.insert(id, Application::new(does));
                    changed.push(id);
                }
                StreamEvent::Answered(id) => {
                    assert_eq!(self.node.stream_header(id).unwrap(), &b"welcome"[..]);
                    changed.push(id);
                }
                StreamEvent::Readable(id) | StreamEvent::Writable(id) => changed.push(id),
                StreamEvent::Closed(id, why) => {
                    assert_eq!(why, starhaul_leotp::Outcome::Done, "{id:?}");
                }
            }
        }
        if self.streams.len() < 3 || changed.is_empty() {
            changed = self.streams.keys().copied().collect();
        }
        for id in changed {
            if let Some(application) = self.streams.get_mut(&id) {
                application.act(now, &mut self.node, id);
            }
        }
    }
}

impl Application {
    fn new(does: Does) -> Self {
        Self {
            does,
            written: 0,
            got: 0,
            asked: VecDeque::new(),
            took: Vec::new(),
            ended: None,
        }
    }

    fn act(&mut self, now: Instant, node: &mut Node, id: StreamId) {
        while let Some(read) = node.read_stream(now, id) {
            match read {
                StreamRead::End => {
                    self.ended = Some(now);
                    if !matches!(self.does, Does::Send(_)) {
                        node.finish_stream(now, id);
                    }
                }
                StreamRead::Data(data) if self.does == Does::Echo => {
                    assert_eq!(node.write_stream(now, id, &data), data.len());
                }
                StreamRead::Data(data) => {
                    if self.does == Does::Take {
                        assert!(
                            data[..] == *pattern(self.got, data.len()),
                            "at {}",
                            self.got
                        );
                    }
                    for _ in &data {
                        self.got += 1;
                        if self.does == Does::Ask && self.got.is_multiple_of(MESSAGE) {
                            let asked = self.asked.pop_front().unwrap();
                            self.took.push(now.duration_since(asked));
                        }
                    }
                }
            }
        }
        if let Does::Send(length) = self.does {
            while self.written < length {
                let data = pattern(self.written, length - self.written);
                let taken = node.write_stream(now, id, data);
                self.written += taken;
                if taken < data.len() {
                    return;
                }
            }
            node.finish_stream(now, id);
        }
    }
}

/// At most `most` bytes of the pattern that the streams carry; it repeats after a prime number of bytes.
fn pattern(at: usize, most: usize) -> &'static [u8] {
    const WRITE: usize = 100_000;
    const PERIOD: usize = 65_521;
    static PATTERN: LazyLock<Vec<u8>> = LazyLock::new(|| {
        let byte = |at: usize| ((at % PERIOD).wrapping_mul(2_654_435_761) >> 9).to_le_bytes()[0];
        (0..PERIOD + WRITE).map(byte).collect()
    });
    &PATTERN[at % PERIOD..][..most.min(WRITE)]
}

struct Chain {
    sim: Simulation<End>,
    links: Vec<LinkId>,
}

impl Chain {
    /// Node 1 accepts, node 5 opens.
    fn new(seed: u64) -> Self {
        Self::over(seed, HOP)
    }

    /// The same, over hops of this kind.
    fn over(seed: u64, hop: &str) -> Self {
        let start = Instant::now();
        let mut sim = Simulation::new(seed, start);
        for number in 1..=5_u32 {
            let mut random = [3; 32];
            random[..8].copy_from_slice(&(seed * 100 + u64::from(number)).to_le_bytes());
            let mut node = Node::new(start, NodeConfig::default(), random).unwrap();
            let mut streams = StreamConfig::new(ContentSecret::new(&[8; 32]));
            streams.accepts = number == 1;
            if [1, 5].contains(&number) {
                node.enable_streams(streams);
            }
            let id = sim.add_node(End {
                node,
                streams: BTreeMap::new(),
                ask_at: None,
                ask_every: Duration::ZERO,
                is_down: false,
                unknown: None,
            });
            sim.network.bind(id, 0, address(number));
        }
        let mut links = Vec::new();
        for at in 0..4_u32 {
            let spec: LinkSpec = hop.parse().unwrap();
            let path = sim
                .network
                .connect(address(at + 1), address(at + 2), &spec, &spec);
            links.extend([path.forward, path.backward]);
            let key = NeighbourConfig {
                key: NeighbourKey::new(&[at.to_le_bytes()[0]; 32]),
            };
            let index = usize::try_from(at).unwrap();
            let up = &mut sim.nodes[index].node;
            up.add_neighbour(start, NeighbourId(at + 2), key.clone())
                .unwrap();
            let down = &mut sim.nodes[index + 1].node;
            down.add_neighbour(start, NeighbourId(at + 1), key).unwrap();
            down.set_upstream(start, Some(NeighbourId(at + 1)));
        }
        sim.run_for(Duration::from_millis(500));
        Self { sim, links }
    }

    fn open(&mut self, does: Does, other: u8) {
        let now = self.sim.now();
        self.sim.nodes[4].open(now, does, other);
        // The simulation asks a node for packets after an event of it.
        self.sim.nodes[4].ask_at = Some(now);
        self.sim.nodes[4].ask_every = Duration::from_millis(50);
    }

    /// The relay in the middle is gone for half a second, and learns where the node behind it is only from what that says.
    fn restart_middle(&mut self) {
        self.restart(3, Duration::from_millis(500));
        self.sim.nodes[2].unknown = Some(NeighbourId(4));
    }

    /// A relay, by the number of its node, is gone for so long.
    fn restart(&mut self, number: u8, gap: Duration) {
        let relay = usize::from(number) - 1;
        self.sim.nodes[relay].is_down = true;
        self.sim.run_for(gap);
        let now = self.sim.now();
        let mut node = Node::new(now, NodeConfig::default(), [77; 32]).unwrap();
        for (other, hop) in [(number - 1, number - 2), (number + 1, number - 1)] {
            let key = NeighbourKey::new(&[hop; 32]);
            let config = NeighbourConfig { key };
            node.add_neighbour(now, NeighbourId(other.into()), config)
                .unwrap();
        }
        node.set_upstream(now, Some(NeighbourId(u32::from(number) - 1)));
        let relay = &mut self.sim.nodes[relay];
        (relay.node, relay.is_down) = (node, false);
    }

    /// How long it takes until more comes of the only stream of a node.
    fn resumes_after(&mut self, taker: usize) -> Duration {
        let start = self.sim.now();
        let before = self.got_at(taker);
        while self.got_at(taker) == before {
            self.sim.run_for(Duration::from_millis(1));
            let is_slow = self.sim.now() >= start + Duration::from_secs(30);
            assert!(!is_slow, "{:#?}", self.sim.nodes[taker].node.stats());
        }
        self.sim.now() - start
    }

    /// Bytes that the only stream of a node has brought.
    fn got_at(&self, taker: usize) -> usize {
        let mut streams = self.sim.nodes[taker].streams.values();
        streams.next().map_or(0, |stream| stream.got)
    }

    /// When the only stream of a node has brought all, within 30 s.
    fn ends_at(&mut self, taker: usize) -> Instant {
        let start = self.sim.now();
        loop {
            self.sim.run_for(Duration::from_millis(20));
            let taker = &self.sim.nodes[taker];
            let mut taking = taker.streams.values();
            if let Some(ended) = taking.next().and_then(|it| it.ended) {
                return ended;
            }
            let is_slow = self.sim.now() >= start + Duration::from_secs(30);
            assert!(!is_slow, "{:#?}", taker.node.stats());
        }
    }

    fn packets(&self) -> u64 {
        let links = self.links.iter();
        links
            .map(|link| self.sim.network[*link].stats().enqueued)
            .sum()
    }
}

#[expect(clippy::cast_precision_loss, reason = "a display value")]
fn mbit(bytes: usize, time: Duration) -> f64 {
    bytes as f64 * 8e-6 / time.as_secs_f64()
}

#[test]
fn an_echo_comes_back_within_the_path_and_two_hops() {
    for seed in 1..=2 {
        let mut chain = Chain::new(seed);
        chain.open(Does::Ask, 0);
        chain.sim.run_for(Duration::from_secs(150));
        let asker = chain.sim.nodes[4].streams.values().next().unwrap();
        let mut took = asker.took.clone();
        // The first waits for the stream.
        took.remove(0);
        took.sort();
        let [half, p99, most] =
            [took.len() / 2, took.len() * 99 / 100, took.len() - 1].map(|index| took[index]);
        println!(
            "seed {seed}: {} echoes: {half:?} {p99:?} {most:?}",
            took.len()
        );
        assert!(took.len() > 2900, "{}", took.len());
        assert!(p99 <= PATH_RTT + HOP_RTT * 2, "{p99:?}");
        assert!(most <= Duration::from_secs(1), "{most:?}");
    }
}

/// Beside a bulk transfer each way, over the same chain: messages of few bytes wait for no more than the packets that are leaving.
#[test]
fn an_echo_beside_bulk_transfers_comes_back_within_the_path_and_two_hops() {
    // 90 s at 20 Mbit/s.
    const LENGTH: usize = 225_000_000;
    for (does, other) in [(Does::Take, 225_u8), (Does::Send(LENGTH), 1)] {
        let seed = 10 + u64::from(other);
        let mut chain = Chain::new(seed);
        chain.open(Does::Ask, 0);
        chain.sim.run_for(Duration::from_secs(1));
        chain.open(does, other);
        // The bulk transfer has the path to itself, but for the messages.
        chain.sim.run_for(Duration::from_secs(4));
        let echoes = |chain: &Chain| {
            let mut asking = chain.sim.nodes[4].streams.values();
            let asker = asking.find(|stream| stream.does == Does::Ask).unwrap();
            asker.took.clone()
        };
        let bulk = |chain: &Chain| {
            let taker = if does == Does::Take { 4 } else { 0 };
            let mut taking = chain.sim.nodes[taker].streams.values();
            let taking = taking.find(|stream| stream.does == Does::Take).unwrap();
            assert!(taking.ended.is_none(), "it is over, seed {seed}");
            taking.got
        };
        let (before, got) = (echoes(&chain).len(), bulk(&chain));
        let time = Duration::from_secs(60);
        chain.sim.run_for(time);
        let rate = mbit(bulk(&chain) - got, time);
        let mut took = echoes(&chain).split_off(before);
        took.sort();
        let [half, p99, most] =
            [took.len() / 2, took.len() * 99 / 100, took.len() - 1].map(|index| took[index]);
        println!(
            "seed {seed}: {} echoes: {half:?} {p99:?} {most:?}, beside {rate:.2} Mbit/s",
            took.len()
        );
        assert!(took.len() > 1150, "{} echoes, seed {seed}", took.len());
        assert!(rate >= 17.0, "{rate} Mbit/s, seed {seed}");
        assert!(p99 <= PATH_RTT + HOP_RTT * 2, "{p99:?}, seed {seed}");
    }
}

#[test]
fn a_bulk_transfer_fills_the_path_each_way() {
    const LENGTH: usize = 20_000_000;
    for (does, other) in [(Does::Take, 20), (Does::Send(LENGTH), 1)] {
        let mut chain = Chain::new(4);
        let start = chain.sim.now();
        chain.open(does, other);
        let taker = if does == Does::Take { 4 } else { 0 };
        let ended = chain.ends_at(taker);
        let got = chain.sim.nodes[taker].streams.values().next().unwrap().got;
        let rate = mbit(LENGTH, ended - start);
        println!("{rate:.2} Mbit/s, {:?}", chain.sim.nodes[4].node.stats());
        assert_eq!(got, LENGTH);
        assert!(rate >= 17.0, "{rate} Mbit/s");
        chain.sim.run_for(Duration::from_secs(30));
        for end in &chain.sim.nodes {
            assert_eq!(
                (end.node.stream_memory(), end.node.streams_asked_for()),
                (0, 0)
            );
            assert_eq!((end.node.streams(), end.node.pending_ranges()), (0, 0));
            assert_eq!(end.node.relayed_streams(), 0);
        }
    }
}

#[test]
fn short_and_fast_hops_are_filled() {
    for (hop, megabytes, least) in [
        ("rate=100mbit,delay=50us,queue=1000p", 20, 90.0),
        ("rate=1gbit,delay=50us,queue=1000p", 50, 800.0),
        ("rate=1gbit,delay=1ms,queue=1000p", 50, 400.0),
    ] {
        let mut chain = Chain::over(1, hop);
        let start = chain.sim.now();
        chain.open(Does::Take, megabytes);
        let ended = chain.ends_at(4);
        let rate = mbit(usize::from(megabytes) * 1_000_000, ended - start);
        println!("{hop}: {rate:.0} Mbit/s");
        assert!(rate >= least, "{hop}: {rate} Mbit/s");
    }
}

#[test]
fn many_streams_share_the_path_fairly() {
    let mut chain = Chain::new(5);
    chain.open(Does::Take, 200);
    chain.sim.run_for(Duration::from_secs(2));
    for _ in 0..50 {
        chain.open(Does::Take, 200);
    }
    chain.sim.run_for(Duration::from_secs(3));
    let got = |chain: &Chain| -> Vec<usize> {
        let streams = chain.sim.nodes[4].streams.values();
        streams.map(|stream| stream.got).collect()
    };
    let before = got(&chain);
    chain.sim.run_for(Duration::from_secs(12));
    let gained: Vec<usize> = got(&chain).iter().zip(before).map(|(a, b)| a - b).collect();
    let rates: Vec<f64> = gained
        .iter()
        .map(|bytes| mbit(*bytes, Duration::from_secs(12)))
        .collect();
    let (sum, squares) = rates.iter().fold((0.0, 0.0), |(sum, squares), rate| {
        (sum + rate, squares + rate * rate)
    });
    let jain = sum * sum / (51.0 * squares);
    println!("{sum:.2} Mbit/s in all, Jain {jain:.4}, {rates:.2?}");
    assert!(jain > 0.95, "Jain {jain}: {rates:.2?}");
    assert!(sum > 16.0, "{sum} Mbit/s");
}

#[test]
fn an_idle_stream_costs_next_to_nothing() {
    let mut chain = Chain::new(6);
    chain.open(Does::Take, 0);
    chain.sim.run_for(Duration::from_secs(20));
    let before = chain.packets();
    chain.sim.nodes[4].ask_at = None;
    chain.sim.run_for(Duration::from_secs(600));
    let per_minute = (chain.packets() - before) / 10 / 4;
    println!("{per_minute} packets a minute and hop, both ways");
    assert!(per_minute <= 100, "{per_minute}");
    assert_eq!(chain.sim.nodes[4].node.streams(), 1);
    assert_eq!(chain.sim.nodes[0].node.streams(), 1);
}

/// Neither end had a reason to greet a relay that knew no more where one of them is: each stream ended as silent.
#[test]
fn streams_outlive_a_relay_that_restarts_without_the_address_behind_it() {
    let mut chain = Chain::new(7);
    chain.open(Does::Ask, 0);
    chain.sim.run_for(Duration::from_secs(3));
    chain.restart_middle();
    chain.sim.run_for(Duration::from_secs(10));
    let asker = chain.sim.nodes[4].streams.values().next().unwrap();
    let longest = asker.took.iter().max().unwrap();
    println!("{longest:?}");
    assert!(*longest < Duration::from_secs(5), "{longest:?}");
    assert!(asker.asked.len() < 20, "{} to come", asker.asked.len());

    const LENGTH: usize = 20_000_000;
    let mut chain = Chain::new(8);
    chain.open(Does::Send(LENGTH), 1);
    chain.sim.run_for(Duration::from_secs(3));
    chain.restart_middle();
    let got = |chain: &Chain| chain.sim.nodes[0].streams.values().next().unwrap().got;
    chain.sim.run_for(Duration::from_secs(1));
    let before = got(&chain);
    chain.sim.run_for(Duration::from_secs(4));
    assert!(got(&chain) > before, "{before} bytes");
    chain.ends_at(0);
    assert_eq!(got(&chain), LENGTH);

    // The same while neither side sends.
    let mut chain = Chain::new(9);
    chain.open(Does::Take, 0);
    chain.sim.run_for(Duration::from_secs(5));
    chain.restart_middle();
    chain.sim.run_for(Duration::from_secs(60));
    assert_eq!(chain.sim.nodes[4].node.streams(), 1);
    assert_eq!(chain.sim.nodes[0].node.streams(), 1);
}

/// A relay is away for long, and comes back with a new life: those beside it find it again, and the stream goes on at once.
#[test]
fn streams_go_on_as_soon_as_a_relay_is_back() {
    const LENGTH: usize = 8_000_000;
    let most = PATH_RTT * 2 + Duration::from_millis(100);
    for (does, other) in [(Does::Take, 8), (Does::Send(LENGTH), 1)] {
        for millis in [300, 1000, 2500, 3500, 5000] {
            for number in [2_u8, 3, 4] {
                let what = format!("relay {number} away for {millis} ms, {other}");
                let mut chain = Chain::new(20 + u64::from(number));
                chain.open(does, other);
                let taker = if does == Does::Take { 4 } else { 0 };
                chain.sim.run_for(Duration::from_millis(1500));
                assert!(chain.got_at(taker) > 0, "{what}");
                chain.restart(number, Duration::from_millis(millis));
                assert!(chain.got_at(taker) < LENGTH, "{what}");
                let resumed = chain.resumes_after(taker);
                println!("{what}: {resumed:?}");
                assert!(resumed <= most, "{what}: {resumed:?}");
                chain.ends_at(taker);
                assert_eq!(chain.got_at(taker), LENGTH, "{what}");
            }
        }
    }
}
