//! LEOTP: a relay, a neighbour of it that has the key and says whatever it likes under the right numbers, and one that is honest: what that one
//! asks for arrives, and what the relay holds stays below its limits.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::{Duration, Instant},
};

use bytes::Bytes;
use starhaul_leotp::{
    ContentId, ContentSecret, Event, FetchConfig, FetchId, NeighbourId, Node, NodeConfig,
    RawPacket, SEAL_BYTES,
};

use super::leotp_network::Wires;

const CACHE_BYTES: usize = 8000;
const QUEUE_BYTES: usize = 20_000;
const SEGMENT_BYTES: u64 = 200;
const PENDING: usize = 300;
const CONTENTS: usize = 20;
const MOST_OPERATIONS: usize = 300;

const SERVER: u32 = 0;
const RELAY: u32 = 1;
const HOSTILE: u32 = 2;
const HONEST: u32 = 3;
/// Links between nodes.
const LINKS: [(u32, u32); 3] = [(SERVER, RELAY), (RELAY, HOSTILE), (RELAY, HONEST)];
/// The lengths of the contents, by their numbers; the last one is served by the hostile neighbour.
const LENGTHS: [usize; 6] = [0, 1, 200, 5_000, 30_000, 3_000];
const OF_HOSTILE: usize = 5;

/// The first bytes of packets, and what the one with data may say besides.
const CONTROL: u8 = 0x40;
const DATA: u8 = 0x80;
const DATA_FLAGS: u8 = 0x1c;
/// The greatest integer of a frame (RFC 9000 §16).
const GREATEST: u64 = (1 << 62) - 1;

/// A network under what the input says: operations of two bytes each, and what they take from it.
pub fn leotp_hostile(data: &[u8]) {
    let Some((&seed, rest)) = data.split_first() else {
        return;
    };
    let mut net = Net::new(Instant::now(), seed);
    let mut input = Input(rest);
    for _ in 0..MOST_OPERATIONS {
        if input.0.is_empty() {
            break;
        }
        let (operation, argument) = (input.byte(), input.byte());
        net.apply(operation, argument, &mut input);
    }
    net.finish();
}

/// Fuzzer input that is read to its end, and zeros behind it.
struct Input<'a>(&'a [u8]);

impl<'a> Input<'a> {
    fn byte(&mut self) -> u8 {
        self.bytes(1).first().copied().unwrap_or(0)
    }

    fn bytes(&mut self, count: usize) -> &'a [u8] {
        let (taken, rest) = self.0.split_at(count.min(self.0.len()));
        self.0 = rest;
        taken
    }

    /// An integer near what matters: segments, limits, and the greatest one.
    fn amount(&mut self) -> u64 {
        let byte = self.byte();
        let small = u64::from(byte & 31);
        match byte >> 5 {
            0 => small,
            1 | 2 => small * SEGMENT_BYTES,
            3 => small * SEGMENT_BYTES + 100,
            4 => small * 1000,
            5 => 1 << (small + 10),
            6 => (64 << 20) + small,
            _ => GREATEST - small,
        }
    }

    /// A frame with its kind, its handle and such integers.
    fn frame(&mut self, body: &mut Vec<u8>) {
        let (kind, names) = (1 + self.byte() % 9, self.byte());
        let handle = u64::from(names >> 4);
        body.push(kind);
        match kind {
            3 => write_integer(self.amount(), body),
            4 => [handle, self.amount()]
                .into_iter()
                .for_each(|value| write_integer(value, body)),
            5 => write_integer(self.amount(), body),
            7 => write_integer(handle, body),
            // Interests and voids.
            _ => {
                let start = self.amount();
                let length = self.amount().min(GREATEST - start);
                [handle, start, length]
                    .into_iter()
                    .for_each(|value| write_integer(value, body));
            }
        }
        match kind {
            // The last bits of a packet's number.
            3 | 5 => body.extend([0, 0, self.byte() & 1, self.byte()]),
            1 | 2 | 8 | 9 => body.extend(name(names & 15).0),
            _ => {}
        }
    }

    /// A segment that no responder sealed.
    fn data(&mut self, body: &mut Vec<u8>) {
        write_integer(u64::from(self.byte() & 3), body);
        write_integer(self.amount(), body);
        let length = usize::from(self.byte()) * 2;
        body.extend(vec![self.byte(); length + SEAL_BYTES]);
    }
}

/// Appends an integer of eight bytes.
fn write_integer(value: u64, body: &mut Vec<u8>) {
    body.extend((value.min(GREATEST) | (3 << 62)).to_be_bytes());
}

struct Net {
    wires: Wires,
    contents: Vec<Bytes>,
    /// What the honest neighbour fetches: the number of the content, and what was read of it.
    transfers: BTreeMap<FetchId, (usize, Vec<u8>)>,
    finished: BTreeSet<FetchId>,
    /// What the head of the hostile neighbour's next packet says.
    head: RawPacket<'static>,
}

impl Net {
    fn new(now: Instant, seed: u8) -> Self {
        let contents = LENGTHS.into_iter().enumerate().map(|(number, length)| {
            let bytes =
                (0..length).map(|i: usize| (i.wrapping_mul(31 + number) >> 3).to_le_bytes()[0]);
            Bytes::from(bytes.collect::<Vec<u8>>())
        });
        let mut net = Self {
            wires: Wires::new(now, seed, &LINKS),
            contents: contents.collect(),
            transfers: BTreeMap::new(),
            finished: BTreeSet::new(),
            head: RawPacket::default(),
        };
        for id in [SERVER, RELAY, HOSTILE, HONEST] {
            net.begin(id);
        }
        for _ in 0..20 {
            net.advance(Duration::from_millis(10));
            net.deliver(usize::MAX);
        }
        // What it says is taken as authentic, or nothing here would be tried.
        assert!(net.say(CONTROL, &[]));
        net
    }

    /// Begins a life of a node.
    fn begin(&mut self, id: u32) {
        let config = NodeConfig {
            cache_bytes: CACHE_BYTES,
            segment_bytes: 200,
            queue_bytes: QUEUE_BYTES,
            pending_ranges: PENDING,
            contents: CONTENTS,
            ..NodeConfig::default()
        };
        let upstream = match id {
            RELAY => Some(SERVER),
            HONEST => Some(RELAY),
            _ => None,
        };
        let now = self.wires.now;
        let Some(node) = self.wires.begin(id, config, upstream) else {
            return;
        };
        for (number, bytes) in self.contents.iter().enumerate() {
            let server = if number == OF_HOSTILE {
                HOSTILE
            } else {
                SERVER
            };
            if id == server {
                node.serve(content(number), &secret(), Box::new(bytes.clone()));
            }
        }
        if id == RELAY {
            node.set_route(now, content(OF_HOSTILE), Some(NeighbourId(HOSTILE)));
        }
    }

    fn apply(&mut self, operation: u8, argument: u8, input: &mut Input<'_>) {
        let mut body = Vec::new();
        match operation % 16 {
            0..=3 => {
                (0..=argument % 8).for_each(|_| input.frame(&mut body));
                self.say(CONTROL, &body);
            }
            4 => {
                self.say(CONTROL, input.bytes(argument.into()));
            }
            5 | 6 => {
                input.data(&mut body);
                self.say(DATA | ((operation >> 2) & DATA_FLAGS), &body);
            }
            7 => {
                let flags = DATA | ((operation >> 2) & DATA_FLAGS);
                self.say(flags, input.bytes(argument.into()));
            }
            8 => {
                let small = |byte: u8| u32::from(byte) * 20;
                self.head.skipped = u16::from(argument) * 3;
                self.head.sent_later = small(input.byte()) << (argument % 12);
                self.head.echoed_later = small(input.byte()) << (argument % 12);
            }
            9 | 10 => self.deliver(1 + usize::from(argument) / 16),
            11 => self.advance(Duration::from_millis(argument.into())),
            12 => self.advance(Duration::from_millis(argument.into()) * 10),
            13 | 14 => self.fetch(usize::from(argument)),
            _ => match argument % 4 {
                0 => self.begin(HOSTILE),
                1 => self.wires.lose_half(self.wires.way(argument >> 2)),
                2 => {
                    let way = self.wires.way(argument >> 2);
                    self.wires.take(way, usize::from(argument >> 4));
                }
                _ => self.deliver(usize::MAX),
            },
        }
        self.drain();
    }

    /// Lets the hostile neighbour send a packet, which arrives at once. Returns whether the relay took it for authentic.
    fn say(&mut self, flags: u8, body: &[u8]) -> bool {
        let packet = RawPacket {
            flags,
            body,
            ..std::mem::take(&mut self.head)
        };
        let (now, mut datagram) = (self.wires.now, Vec::new());
        let hostile = self.wires.nodes.get_mut(&HOSTILE);
        let is_written = hostile
            .is_some_and(|node| node.write_raw(now, NeighbourId(RELAY), &packet, &mut datagram));
        let relay = self.wires.nodes.get_mut(&RELAY).filter(|_| is_written);
        relay.is_some_and(|relay| relay.handle_datagram(now, NeighbourId(HOSTILE), &datagram))
    }

    fn fetch(&mut self, number: usize) {
        let number = number % self.contents.len();
        let config = FetchConfig {
            window_bytes: 20_000,
            ..FetchConfig::new(content(number), secret())
        };
        if let Some(node) = self.wires.nodes.get_mut(&HONEST) {
            let id = node.fetch(self.wires.now, config);
            self.transfers.insert(id, (number, Vec::new()));
        }
    }

    fn deliver(&mut self, count: usize) {
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
        self.wires.send();
        for (&id, node) in &mut self.wires.nodes {
            check_limits(id, node);
            while let Some(event) = node.poll_event() {
                match event {
                    Event::Finished(fetch) => {
                        self.finished.insert(fetch);
                    }
                    Event::Failed(fetch, why) => {
                        let number = self.transfers.remove(&fetch).map(|(number, _)| number);
                        // Who serves a content may deny it.
                        assert_eq!(number, Some(OF_HOSTILE), "{why}");
                    }
                    _ => {}
                }
            }
        }
        let Some(honest) = self.wires.nodes.get_mut(&HONEST) else {
            return;
        };
        for (&fetch, (number, got)) in &mut self.transfers {
            while let Some(bytes) = honest.read(self.wires.now, fetch) {
                let expected = self.contents[*number].get(got.len()..got.len() + bytes.len());
                assert_eq!(Some(&bytes[..]), expected, "content {number} is damaged");
                got.extend_from_slice(&bytes);
            }
        }
    }

    /// Nothing more is said or lost: all that the server has arrives, and nothing of the rest is remembered.
    fn finish(&mut self) {
        let of_server = |number: usize| number != OF_HOSTILE;
        for _ in 0..20_000 {
            self.advance(Duration::from_millis(5));
            self.deliver(usize::MAX);
            let mut awaited = self
                .transfers
                .iter()
                .filter(|(_, (number, _))| of_server(*number));
            if awaited.all(|(fetch, _)| self.finished.contains(fetch)) {
                break;
            }
        }
        for (fetch, (number, got)) in &self.transfers {
            let length = self.contents[*number].len();
            if of_server(*number) && got.len() != length {
                for (id, node) in &self.wires.nodes {
                    eprintln!("{id}: {:?}, {} ranges", node.stats(), node.pending_ranges());
                }
                panic!("{} of {length} bytes of content {number}", got.len());
            }
            assert!(!of_server(*number) || self.finished.contains(fetch));
        }
        if let Some(honest) = self.wires.nodes.get_mut(&HONEST) {
            self.transfers.keys().for_each(|fetch| honest.end(*fetch));
        }
        self.transfers.clear();
        for _ in 0..400 {
            self.advance(Duration::from_millis(250));
            self.deliver(usize::MAX);
        }
        let relay = &self.wires.nodes[&RELAY];
        assert_eq!((relay.pending_ranges(), relay.relayed_streams()), (0, 0));
    }
}

fn check_limits(id: u32, node: &Node) {
    let neighbours = LINKS.iter().filter(|(a, b)| [*a, *b].contains(&id)).count();
    let (cache, queues) = node.memory();
    assert!(
        cache <= CACHE_BYTES && queues <= neighbours * QUEUE_BYTES,
        "{cache} and {queues} bytes at {id}"
    );
    let (ranges, streams) = (node.pending_ranges(), node.relayed_streams());
    assert!(
        ranges <= PENDING + 2 && streams <= CONTENTS,
        "{ranges} ranges and {streams} streams at {id}"
    );
}

/// The name of a content, and names that are like it: of one more, of the other content of a stream, and of none.
fn name(number: u8) -> ContentId {
    let mut name = content(usize::from(number)).0;
    match usize::from(number) {
        0..=OF_HOSTILE => {}
        6 | 7 => {
            name = content(usize::from(number) - 3).0;
            name[8..].fill(0);
        }
        8..=10 => name[8..].fill(0),
        _ => name[..8].fill(7),
    }
    ContentId(name)
}

fn content(number: usize) -> ContentId {
    ContentId([number.to_le_bytes()[0]; 16])
}

fn secret() -> ContentSecret {
    ContentSecret::new(&[5; 32])
}
