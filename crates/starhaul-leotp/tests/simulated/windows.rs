//! Windows and memory of streams in virtual time: one stream fills a long path, many share it, readers that stop hold little, and what nothing uses is
//! there for others.

use std::{
    collections::{BTreeMap, BTreeSet, VecDeque},
    sync::LazyLock,
    time::{Duration, Instant},
};

use starhaul_leotp::{
    ContentSecret, Event, NeighbourConfig, NeighbourId, NeighbourKey, Node, NodeConfig, Outcome,
    StreamConfig, StreamEvent, StreamId, StreamRead,
};
use starhaul_link::LinkSpec;
use starhaul_sim::{Datagram, Delivery, Node as SimNode, Simulation, Udp};

use crate::acting::address;

const SEED: u64 = 1;
const MIB: usize = 1 << 20;
/// What all streams of a node may hold unless a test says otherwise.
const MEMORY: usize = 256 * MIB;
/// Several times what a path here holds, and far less than a window may be.
const SOME: usize = 12 * MIB;
/// Four hops, a round trip of 200 ms.
const LONG: [&str; 4] = ["rate=100mbit,delay=25ms,queue=1000p"; 4];
/// One hop with the same round trip.
const FAR: [&str; 1] = ["rate=100mbit,delay=100ms,queue=2000p"];

/// What the side that accepts a stream does, as the header says it; the other side does the reverse.
const SENDS: u8 = 0;
const TAKES: u8 = 1;

/// One side of a stream. The sending side sends without end.
struct Flow {
    sends: bool,
    reads: bool,
    written: usize,
    got: usize,
}

struct End {
    node: Node,
    flows: BTreeMap<StreamId, Flow>,
    closed: Vec<Outcome>,
}

impl SimNode for End {
    type Load = Udp;

    fn handle_packet(&mut self, now: Instant, packet: Delivery<Udp>) {
        let from = NeighbourId(packet.from.port().into());
        self.node.handle_datagram(now, from, &packet.load.payload);
        self.act(now);
    }

    fn poll_transmit(&mut self, now: Instant, out: &mut VecDeque<Datagram>) {
        // What left made room.
        self.act(now);
        let mut datagram = Vec::new();
        if let Some(NeighbourId(to)) = self.node.poll_transmit(now, &mut datagram) {
            out.push_back(Datagram::udp(0, address(to), 0, datagram.into()));
        }
    }

    fn poll_timeout(&mut self) -> Option<Instant> {
        self.node.poll_timeout()
    }

    fn handle_timeout(&mut self, now: Instant) {
        self.node.handle_timeout(now);
        self.act(now);
    }
}

impl End {
    fn act(&mut self, now: Instant) {
        let mut changed = BTreeSet::new();
        while let Some(event) = self.node.poll_event() {
            let Event::Stream(event) = event else {
                continue;
            };
            match event {
                StreamEvent::Accepted(id) => {
                    let does = self.node.stream_header(id).unwrap()[0];
                    assert!(self.node.answer_stream(now, id, b""));
                    self.flows.insert(id, Flow::new(does == SENDS));
                }
                StreamEvent::Closed(_, why) => self.closed.push(why),
                StreamEvent::Answered(_) | StreamEvent::Readable(_) | StreamEvent::Writable(_) => {}
            }
            changed.insert(event.stream());
        }
        for id in changed {
            self.act_on(now, id);
        }
    }

    fn act_on(&mut self, now: Instant, id: StreamId) {
        let Some(flow) = self.flows.get_mut(&id) else {
            return;
        };
        while flow.reads
            && let Some(StreamRead::Data(data)) = self.node.read_stream(now, id)
        {
            let expected = pattern(flow.got, data.len());
            assert!(data[..] == *expected, "{id:?} at {}", flow.got);
            flow.got += data.len();
        }
        while flow.sends {
            let data = pattern(flow.written, WRITE);
            let taken = self.node.write_stream(now, id, data);
            flow.written += taken;
            if taken < data.len() {
                break;
            }
        }
    }

    /// Changes what all streams do, and has them do it.
    fn set(&mut self, now: Instant, change: impl Fn(&mut Flow)) {
        self.flows.values_mut().for_each(change);
        let ids: Vec<StreamId> = self.flows.keys().copied().collect();
        ids.into_iter().for_each(|id| self.act_on(now, id));
    }

    fn got(&self) -> usize {
        self.flows.values().map(|flow| flow.got).sum()
    }
}

impl Flow {
    fn new(sends: bool) -> Self {
        Self {
            sends,
            reads: true,
            written: 0,
            got: 0,
        }
    }
}

/// Bytes written at once.
const WRITE: usize = 100_000;

/// At most this many bytes of what streams carry from a place on; it repeats after a prime number of bytes.
fn pattern(at: usize, most: usize) -> &'static [u8] {
    const PERIOD: usize = 65_521;
    static PATTERN: LazyLock<Vec<u8>> = LazyLock::new(|| {
        let byte = |at: usize| ((at % PERIOD).wrapping_mul(2_654_435_761) >> 9).to_le_bytes()[0];
        (0..PERIOD + WRITE).map(byte).collect()
    });
    &PATTERN[at % PERIOD..][..most.min(WRITE)]
}

#[expect(clippy::cast_precision_loss, reason = "a display value")]
fn mbit(bytes: usize, time: Duration) -> f64 {
    bytes as f64 * 8e-6 / time.as_secs_f64()
}

/// Nodes in a row: the first accepts, the last opens.
struct Row(Simulation<End>);

impl Row {
    fn new(links: &[&str], memory: usize) -> Self {
        let start = Instant::now();
        let mut sim = Simulation::new(SEED, start);
        let last = u32::try_from(links.len()).unwrap() + 1;
        for number in 1..=last {
            let seed = [number.to_le_bytes()[0]; 32];
            let mut node = Node::new(start, NodeConfig::default(), seed).unwrap();
            if [1, last].contains(&number) {
                node.enable_streams(StreamConfig {
                    accepts: number == 1,
                    memory_bytes: memory,
                    most_half_open: 1024,
                    ..StreamConfig::new(ContentSecret::new(&[8; 32]))
                });
            }
            let id = sim.add_node(End {
                node,
                flows: BTreeMap::new(),
                closed: Vec::new(),
            });
            sim.network.bind(id, 0, address(number));
        }
        for (up, link) in (1..).zip(links) {
            let spec: LinkSpec = link.parse().unwrap();
            sim.network
                .connect(address(up), address(up + 1), &spec, &spec);
            for (at, other) in [(up, up + 1), (up + 1, up)] {
                let key = NeighbourKey::new(&[up.to_le_bytes()[0]; 32]);
                let node = &mut sim.nodes[usize::try_from(at).unwrap() - 1].node;
                node.add_neighbour(start, NeighbourId(other), NeighbourConfig { key })
                    .unwrap();
                if other < at {
                    node.set_upstream(start, Some(NeighbourId(other)));
                }
            }
        }
        sim.run_for(Duration::from_secs(2));
        Self(sim)
    }

    fn run(&mut self, seconds: u64) {
        self.0.run_for(Duration::from_secs(seconds));
        for end in &self.0.nodes {
            assert_eq!(end.closed, [], "streams ended");
        }
    }

    /// Opens a stream of which the other side does this, and the opener the reverse.
    fn open(&mut self, does: u8) -> StreamId {
        let now = self.0.now();
        let opener = self.opener();
        let id = opener.node.open_stream(now, &[does]).unwrap();
        opener.flows.insert(id, Flow::new(does == TAKES));
        opener.act_on(now, id);
        id
    }

    fn opener(&mut self) -> &mut End {
        self.0.nodes.last_mut().unwrap()
    }

    fn set_opener(&mut self, change: impl Fn(&mut Flow)) {
        let now = self.0.now();
        self.opener().set(now, change);
    }

    fn set_acceptor(&mut self, change: impl Fn(&mut Flow)) {
        let now = self.0.now();
        self.0.nodes[0].set(now, change);
    }

    /// Bytes of streams that each end holds.
    fn memory(&self) -> [usize; 2] {
        let last = self.0.nodes.len() - 1;
        [0, last].map(|at| self.0.nodes[at].node.stream_memory())
    }

    /// The rate at which an end gets data meanwhile.
    fn rate(&mut self, taker: usize, seconds: u64) -> f64 {
        let before = self.0.nodes[taker].got();
        self.run(seconds);
        let got = self.0.nodes[taker].got() - before;
        mbit(got, Duration::from_secs(seconds))
    }
}

/// A window of 1 MiB carried 42 Mbit/s, whatever the hops did.
#[test]
fn one_stream_fills_a_long_path_each_way() {
    for (does, taker) in [(SENDS, 4), (TAKES, 0)] {
        let mut row = Row::new(&LONG, MEMORY);
        row.open(does);
        row.run(3);
        let rate = row.rate(taker, 2);
        let memory = row.memory();
        println!("{rate:.1} Mbit/s, {memory:?} bytes");
        assert!(rate > 80.0, "{rate} Mbit/s");
        // The path holds 2.5 MB.
        assert!(memory.iter().all(|bytes| *bytes < SOME), "{memory:?}");
    }
}

#[test]
fn one_stream_fills_a_long_path_that_loses() {
    let mut row = Row::new(
        &["rate=100mbit,delay=25ms,loss=0.1%,queue=1000p"; 4],
        MEMORY,
    );
    row.open(SENDS);
    row.run(4);
    let rate = row.rate(4, 2);
    println!("{rate:.1} Mbit/s");
    assert!(rate > 75.0, "{rate} Mbit/s");
}

#[test]
fn fifty_streams_share_a_long_path_fairly() {
    const COUNT: usize = 50;
    let mut row = Row::new(&LONG, MEMORY);
    for _ in 0..COUNT {
        row.open(SENDS);
    }
    row.run(3);
    let got = |row: &mut Row| -> Vec<usize> {
        let flows = row.opener().flows.values();
        flows.map(|flow| flow.got).collect()
    };
    let before = got(&mut row);
    row.run(3);
    let rates: Vec<f64> = got(&mut row)
        .iter()
        .zip(before)
        .map(|(after, before)| mbit(after - before, Duration::from_secs(3)))
        .collect();
    let (sum, squares) = rates.iter().fold((0.0, 0.0), |(sum, squares), rate| {
        (sum + rate, squares + rate * rate)
    });
    let jain = sum * sum / (COUNT as f64 * squares);
    println!("{sum:.1} Mbit/s in all, Jain {jain:.4}, {:?}", row.memory());
    assert!(jain > 0.95, "Jain {jain}: {rates:.2?}");
    assert!(sum > 80.0, "{sum} Mbit/s");
}

#[test]
fn a_reader_that_stops_holds_its_window_and_no_other_up() {
    let mut row = Row::new(&FAR, MEMORY);
    let [stopped, other] = [row.open(SENDS), row.open(SENDS)];
    row.run(5);
    row.opener().flows.get_mut(&stopped).unwrap().reads = false;
    row.run(4);
    let written = |row: &Row| -> usize {
        let flows = row.0.nodes[0].flows.values();
        flows.map(|flow| flow.written).min().unwrap()
    };
    let before = (written(&row), row.opener().flows[&stopped].got);
    let rate = row.rate(1, 2);
    let memory = row.memory();
    println!("the other one: {rate:.1} Mbit/s; {memory:?} bytes");
    assert!(rate > 75.0, "{rate} Mbit/s");
    assert!(memory.iter().all(|bytes| *bytes < SOME), "{memory:?}");
    let got = row.opener().flows[&stopped].got;
    assert_eq!(before, (written(&row), got), "its sender waits");
    assert!(before.0 - before.1 < SOME, "{before:?}");
    // It goes on where it stopped.
    row.set_opener(|flow| flow.reads = true);
    row.run(4);
    let went_on = row.opener().flows[&stopped].got - got;
    assert!(went_on > 10 * MIB, "{went_on} bytes");
    assert!(row.opener().flows[&other].got > 50 * MIB);
}

/// Each held 1 MiB, and would hold 64 if it had been read for a while.
#[test]
fn a_thousand_streams_that_nobody_reads_hold_no_more_than_they_may() {
    const COUNT: usize = 1000;
    const MOST: usize = 32 * MIB;
    let mut row = Row::new(&["rate=200mbit,delay=20ms,queue=4000p"], MOST);
    for _ in 0..COUNT {
        row.open(SENDS);
    }
    row.set_opener(|flow| flow.reads = false);
    // Each has the least window in any case, and what segments take beside their bytes.
    let bound = MOST + COUNT * (StreamConfig::LEAST_WINDOW * 3 / 2);
    for _ in 0..40 {
        row.run(1);
        let memory = row.memory();
        assert!(memory.iter().all(|bytes| *bytes < bound), "{memory:?}");
    }
    println!("{:?} of {bound} bytes", row.memory());
    assert_eq!(row.0.nodes[0].flows.len(), COUNT);
    assert!(row.memory()[1] > MOST / 4);
    row.set_opener(|flow| flow.reads = true);
    row.run(2);
    let least = row.opener().flows.values().map(|flow| flow.got).min();
    assert!(least > Some(StreamConfig::LEAST_WINDOW), "{least:?}");
}

#[test]
fn a_window_that_nothing_used_is_small_again() {
    for (pause, most) in [(0, SOME), (15, MIB * 5 / 4)] {
        let mut row = Row::new(&FAR, MEMORY);
        row.open(SENDS);
        row.run(4);
        let rate = row.rate(1, 1);
        assert!(rate > 80.0, "{rate} Mbit/s");
        row.set_acceptor(|flow| flow.sends = pause == 0);
        row.run(pause);
        row.set_opener(|flow| flow.reads = false);
        row.set_acceptor(|flow| flow.sends = true);
        row.run(3);
        let [_, held] = row.memory();
        println!("after {pause} s: {held} bytes");
        assert!(held < most, "after {pause} s: {held}");
        assert!(pause > 0 || held > 2 * MIB, "after {pause} s: {held}");
    }
}

/// What the idle ones were promised was all that there is.
#[test]
fn streams_that_are_idle_leave_their_windows_to_others() {
    let mut row = Row::new(&FAR, 32 * MIB);
    for _ in 0..300 {
        row.open(SENDS);
    }
    row.run(1);
    row.set_acceptor(|flow| flow.sends = false);
    row.run(15);
    row.open(SENDS);
    row.run(5);
    let rate = row.rate(1, 2);
    println!("{rate:.1} Mbit/s beside 300 idle ones");
    assert!(rate > 70.0, "{rate} Mbit/s");
}
