//! Streams over a small LEOTP network whose packets are lost, repeated, reordered, replayed and forged while relays and ends
//! restart, routes switch, an opener moves to another relay, readers stop, and caches and queues are far too small.

use std::{
    collections::BTreeMap,
    time::{Duration, Instant},
};

use starhaul_leotp::{
    ContentSecret, Event, Node, NodeConfig, Outcome, StreamConfig, StreamEvent, StreamId,
    StreamRead,
};

use super::leotp_network::Wires;

const CACHE_BYTES: usize = 8000;
const QUEUE_BYTES: usize = 20_000;
const SEGMENT_BYTES: usize = 200;
const PENDING: usize = 600;
const BUFFER_BYTES: usize = 6000;
const MOST_STREAMS: usize = 12;
/// Streams in one run.
const MOST_OPENED: usize = 40;

const GATEWAY: u32 = 0;
const RELAYS: [u32; 4] = [1, 2, 3, 6];
const OPENERS: [u32; 2] = [4, 5];
/// Links between nodes: 0 - (1 | 2) - 3 - (4 | 5), and 1 - 6 - 4.
const LINKS: [(u32, u32); 8] = [
    (0, 1),
    (0, 2),
    (1, 3),
    (2, 3),
    (1, 6),
    (3, 4),
    (6, 4),
    (3, 5),
];

/// How the streams of a run ended.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Endings {
    /// Both sides sent and read all.
    pub done: usize,
    /// One side reset or refused it.
    pub reset: usize,
    /// It was never accepted, or an end began a new life.
    pub cut_off: usize,
    /// At least one side gave up.
    pub given_up: usize,
}

/// One side of a stream.
#[derive(Debug, Default)]
struct Side {
    node: u32,
    id: Option<StreamId>,
    /// Bytes that the node took, and that the application got.
    sent: usize,
    got: usize,
    is_reading: bool,
    is_finished: bool,
    has_read_end: bool,
    reset: Option<u64>,
    outcome: Option<Outcome>,
    /// The node began a new life.
    is_dead: bool,
}

/// A network under random operations, two bytes each; then nothing is lost any more, and all streams end.
pub fn run(data: &[u8]) -> Endings {
    let Some((&seed, operations)) = data.split_first() else {
        return Endings::default();
    };
    let mut net = Network::new(Instant::now(), seed);
    for operation in operations.chunks_exact(2).take(500) {
        net.apply(operation[0], operation[1]);
    }
    net.finish()
}

struct Network {
    wires: Wires,
    /// Streams by their number: the opener's side, and the other one once it was accepted.
    streams: Vec<[Side; 2]>,
    by_id: BTreeMap<(u32, StreamId), (usize, usize)>,
}

impl Network {
    fn new(now: Instant, seed: u8) -> Self {
        let mut net = Self {
            wires: Wires::new(now, seed, &LINKS),
            streams: Vec::new(),
            by_id: BTreeMap::new(),
        };
        for id in 0..7 {
            net.begin(id);
        }
        net
    }

    /// Begins a life of a node.
    fn begin(&mut self, id: u32) {
        let config = NodeConfig {
            cache_bytes: CACHE_BYTES,
            segment_bytes: SEGMENT_BYTES,
            queue_bytes: QUEUE_BYTES,
            pending_ranges: PENDING,
            contents: 60,
            ..NodeConfig::default()
        };
        let upstream = match id {
            1 | 2 => Some(0),
            3 | 6 => Some(1),
            4 | 5 => Some(3),
            _ => None,
        };
        let Some(node) = self.wires.begin(id, config, upstream) else {
            return;
        };
        if id == GATEWAY || OPENERS.contains(&id) {
            node.enable_streams(StreamConfig {
                accepts: id == GATEWAY,
                window_bytes: 0,
                buffer_bytes: BUFFER_BYTES,
                most_streams: MOST_STREAMS,
                most_half_open: 6,
                ..StreamConfig::new(ContentSecret::new(&[5; 32]))
            });
        }
        for side in self.streams.iter_mut().flatten() {
            if side.node == id && side.id.is_some() && side.outcome.is_none() {
                side.is_dead = true;
            }
        }
        self.by_id.retain(|(node, _), _| *node != id);
    }

    fn apply(&mut self, operation: u8, argument: u8) {
        let way = self.wires.way(argument);
        let amount = usize::from(argument >> 3);
        match operation % 20 {
            0 => self.open(OPENERS[usize::from(argument & 1)]),
            1 | 2 => self.write(usize::from(argument), operation),
            3 => self.change(usize::from(argument), operation),
            4..=8 => self.deliver_all(1 + amount / 4),
            9 => drop(self.wires.take(way, amount)),
            10 => self.wires.lose_half(way),
            11 => self.wires.repeat(way, amount),
            12 => self.wires.reverse(way),
            13 | 14 => self.advance(Duration::from_millis(amount as u64)),
            15 => self.advance(Duration::from_millis(amount as u64 * 40)),
            16 => self.wires.corrupt(way, amount, operation >> 4),
            17 => self.wires.replay(amount),
            18 if amount % 4 == 0 => {
                self.begin(RELAYS[usize::from(argument & 3)]);
            }
            // Ends restart seldom.
            18 if amount == 17 => self.begin([GATEWAY, 4, 5, 4][usize::from(argument & 3)]),
            19 => {
                let (node, upstream) = match argument & 3 {
                    0 => (3, 1),
                    1 => (3, 2),
                    2 => (4, 3),
                    _ => (4, 6),
                };
                self.wires.set_upstream(node, upstream);
            }
            _ => {}
        }
        self.drain();
    }

    fn open(&mut self, opener: u32) {
        let number = self.streams.len();
        if number >= MOST_OPENED {
            return;
        }
        let Some(node) = self.wires.nodes.get_mut(&opener) else {
            return;
        };
        let header = [number.to_le_bytes()[0]; 3];
        let Some(id) = node.open_stream(self.wires.now, &header) else {
            assert!(node.streams() >= MOST_STREAMS);
            return;
        };
        let side = Side {
            node: opener,
            id: Some(id),
            is_reading: true,
            ..Side::default()
        };
        self.streams.push([side, Side::default()]);
        self.by_id.insert((opener, id), (number, 0));
    }

    /// The side of a stream that an operation is about.
    fn side(&mut self, index: usize) -> Option<(usize, usize)> {
        let count = self.streams.len() * 2;
        let index = index.checked_rem(count)?;
        let (number, side) = (index / 2, index % 2);
        self.streams[number][side]
            .is_open()
            .then_some((number, side))
    }

    fn write(&mut self, index: usize, operation: u8) {
        let Some((number, which)) = self.side(index) else {
            return;
        };
        let length = [1, 30, 199, 1000, 5000, 9000][usize::from(operation >> 4) % 6];
        self.write_to(number, which, length);
    }

    fn write_to(&mut self, number: usize, which: usize, length: usize) {
        let side = &mut self.streams[number][which];
        if side.is_finished {
            return;
        }
        let data: Vec<u8> = (side.sent..side.sent + length)
            .map(|at| pattern(number, which, at))
            .collect();
        if let Some((node, id)) = self.wires.nodes.get_mut(&side.node).zip(side.id) {
            let taken = node.write_stream(self.wires.now, id, &data);
            assert!(taken <= data.len());
            side.sent += taken;
        }
    }

    /// Stops or goes on reading, finishes, or resets.
    fn change(&mut self, index: usize, operation: u8) {
        let Some((number, which)) = self.side(index) else {
            return;
        };
        let side = &mut self.streams[number][which];
        let Some((node, id)) = self.wires.nodes.get_mut(&side.node).zip(side.id) else {
            return;
        };
        match operation >> 5 {
            0..=3 => side.is_reading = !side.is_reading,
            4..=6 => {
                node.finish_stream(self.wires.now, id);
                side.is_finished = true;
            }
            _ => {
                node.reset_stream(self.wires.now, id, 100 + which as u64);
                side.reset = Some(100 + which as u64);
            }
        }
    }

    fn deliver_all(&mut self, count: usize) {
        self.wires.deliver(count);
        self.drain();
    }

    /// Advances the clock, through every timer.
    fn advance(&mut self, time: Duration) {
        let until = self.wires.now + time;
        for _ in 0..10_000 {
            self.drain();
            if !self.wires.step(until) {
                break;
            }
        }
        self.wires.now = self.wires.now.max(until);
    }

    fn drain(&mut self) {
        // What an application does lets more leave, and the reverse.
        for _ in 0..3 {
            self.wires.send();
            self.take_events();
            self.read();
        }
        for node in self.wires.nodes.values() {
            check_memory(node);
        }
    }

    fn take_events(&mut self) {
        for (&at, node) in &mut self.wires.nodes {
            while let Some(event) = node.poll_event() {
                let Event::Stream(event) = event else {
                    continue;
                };
                match event {
                    StreamEvent::Accepted(id) => {
                        let header = node.stream_header(id).unwrap_or_default();
                        let number = usize::from(header.first().copied().unwrap_or(255));
                        assert_eq!(&header[..], [header[0]; 3], "a header is damaged");
                        let side = &mut self.streams[number][1];
                        assert_eq!(side.id, None, "stream {number} is accepted twice");
                        (side.node, side.id, side.is_reading) = (at, Some(id), true);
                        if number % 7 == 6 {
                            side.reset = Some(66);
                            node.reset_stream(self.wires.now, id, 66);
                        } else {
                            assert!(node.answer_stream(self.wires.now, id, &[header[0], 1]));
                            self.by_id.insert((at, id), (number, 1));
                        }
                    }
                    StreamEvent::Answered(id) => {
                        let (number, _) = self.by_id[&(at, id)];
                        let header = node.stream_header(id).unwrap_or_default();
                        assert_eq!(&header[..], [number.to_le_bytes()[0], 1]);
                    }
                    StreamEvent::Closed(id, why) => {
                        let (number, which) = self.by_id[&(at, id)];
                        let side = &mut self.streams[number][which];
                        assert_eq!((side.outcome, side.reset), (None, None));
                        side.outcome = Some(why);
                    }
                    StreamEvent::Readable(_) | StreamEvent::Writable(_) => {}
                }
            }
        }
    }

    fn read(&mut self) {
        for (number, sides) in self.streams.iter_mut().enumerate() {
            for which in [0, 1] {
                let other = &sides[1 - which];
                let (sent, is_finished) = (other.sent, other.is_finished);
                let side = &mut sides[which];
                if !side.is_open() || !side.is_reading {
                    continue;
                }
                let Some((node, id)) = self.wires.nodes.get_mut(&side.node).zip(side.id) else {
                    continue;
                };
                while let Some(read) = node.read_stream(self.wires.now, id) {
                    match read {
                        StreamRead::Data(data) => {
                            for byte in data {
                                let expected = pattern(number, 1 - which, side.got);
                                assert_eq!(byte, expected, "stream {number} at {}", side.got);
                                side.got += 1;
                            }
                            assert!(side.got <= sent, "stream {number}: more than was sent");
                        }
                        StreamRead::End => {
                            assert!(is_finished && side.got == sent && !side.has_read_end);
                            side.has_read_end = true;
                        }
                    }
                }
            }
        }
    }

    /// Nothing is lost any more: every stream ends, both ends agree about it, and then the network is silent and empty.
    fn finish(&mut self) -> Endings {
        for number in 0..self.streams.len() {
            for which in [0, 1] {
                if self.streams[number][which].is_open() {
                    self.streams[number][which].is_reading = true;
                    self.write_to(number, which, 500);
                }
            }
        }
        for _ in 0..24_000 {
            self.advance(Duration::from_millis(5));
            self.deliver_all(usize::MAX);
            let mut is_over = true;
            for side in self.streams.iter_mut().flatten() {
                if side.is_open()
                    && let Some((node, id)) = self.wires.nodes.get_mut(&side.node).zip(side.id)
                {
                    is_over = false;
                    side.is_finished = true;
                    node.finish_stream(self.wires.now, id);
                }
            }
            if is_over {
                break;
            }
        }
        let mut endings = Endings::default();
        for (number, sides) in self.streams.iter().enumerate() {
            check_ending(number, sides, &mut endings);
        }
        for _ in 0..9000 {
            self.advance(Duration::from_millis(5));
            self.deliver_all(usize::MAX);
        }
        for (id, node) in &self.wires.nodes {
            let held = (node.streams(), node.stream_memory(), node.memory().1);
            assert_eq!(held, (0, 0, 0), "node {id} holds what is over");
            let held = (node.pending_ranges(), node.relayed_streams());
            assert_eq!(held, (0, 0), "node {id} holds what is over");
        }
        self.advance(Duration::from_secs(5));
        let under_way = self.wires.under_way();
        assert_eq!(under_way, 0, "datagrams of idle nodes");
        endings
    }
}

impl Side {
    /// Whether the application may use it.
    fn is_open(&self) -> bool {
        self.id.is_some() && self.outcome.is_none() && self.reset.is_none() && !self.is_dead
    }
}

fn check_ending(number: usize, sides: &[Side; 2], endings: &mut Endings) {
    assert!(
        !sides.iter().any(Side::is_open),
        "stream {number} did not end: {sides:?}"
    );
    let gave_up = |side: &Side| {
        side.is_dead
            || side.id.is_none()
            || matches!(side.outcome, Some(Outcome::Unknown | Outcome::Silent))
    };
    for which in [0, 1] {
        let (side, other) = (&sides[which], &sides[1 - which]);
        match side.outcome {
            Some(Outcome::Done) => {
                assert!(
                    side.has_read_end && other.has_read_end,
                    "{number}: {sides:?}"
                );
                assert_eq!((side.got, side.sent), (other.sent, other.got), "{number}");
                // A reset after both had read all is none.
                assert!(
                    other.outcome == Some(Outcome::Done) || gave_up(other) || other.reset.is_some(),
                    "stream {number}: {sides:?}"
                );
            }
            Some(Outcome::Reset(code) | Outcome::Refused(code)) => {
                assert_eq!(other.reset, Some(code), "stream {number}: {sides:?}");
            }
            Some(Outcome::Broken) => panic!("stream {number}: {sides:?}"),
            Some(Outcome::Unknown | Outcome::Silent) | None => {}
        }
    }
    if sides.iter().any(|side| side.is_dead || side.id.is_none()) {
        endings.cut_off += 1;
    } else if sides.iter().any(gave_up) {
        endings.given_up += 1;
    } else if sides.iter().all(|side| side.outcome == Some(Outcome::Done)) {
        endings.done += 1;
    } else {
        assert!(sides.iter().any(|side| side.reset.is_some()), "{sides:?}");
        endings.reset += 1;
    }
}

fn check_memory(node: &Node) {
    let (cache, queues) = node.memory();
    assert!(
        cache <= CACHE_BYTES && queues <= 4 * QUEUE_BYTES,
        "{cache} and {queues} bytes"
    );
    assert!(node.pending_ranges() <= PENDING + 2);
    assert!(node.streams() <= MOST_STREAMS && node.relayed_streams() <= 60);
    // Written, out of order, and not read, with what segments and buffers take beside.
    let most = 4 * BUFFER_BYTES + 3 * StreamConfig::LEAST_WINDOW;
    assert!(
        node.stream_memory() <= 2 * MOST_STREAMS * most,
        "{} bytes of streams",
        node.stream_memory()
    );
}

fn pattern(number: usize, which: usize, at: usize) -> u8 {
    (at.wrapping_mul(31 + 2 * number + which) >> 3).to_le_bytes()[0]
}
