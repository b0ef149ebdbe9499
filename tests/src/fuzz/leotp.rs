//! LEOTP: the codec, a midnode that hears anything, and a small network whose packets are lost, repeated, reordered, replayed
//! and forged while relays restart, routes switch and the caches are far too small.

use std::{
    collections::BTreeMap,
    path::Path,
    time::{Duration, Instant},
};

use bytes::Bytes;
use starhaul_contents::config::Config;
use starhaul_leotp::{
    ContentId, ContentSecret, Event, FetchConfig, FetchId, NeighbourId, Node, NodeConfig,
    check_packet,
};

use super::{leotp_network::Wires, parts};

const CACHE_BYTES: usize = 8000;
const QUEUE_BYTES: usize = 20_000;
const SEGMENT_BYTES: usize = 200;
const PENDING: usize = 300;

const RESPONDER: u32 = 0;
const RELAYS: [u32; 3] = [1, 2, 3];
const REQUESTERS: [u32; 2] = [4, 5];
/// Links between nodes: 0 - (1 | 2) - 3 - (4 | 5).
const LINKS: [(u32, u32); 6] = [(0, 1), (0, 2), (1, 3), (2, 3), (3, 4), (3, 5)];

/// A relay's configuration in any text: it is read and described, or the error names the file.
pub fn relay_config(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else {
        return;
    };
    // It may name keys beside it, where there are none; files elsewhere are not to be read here.
    if text.contains("\"/") || text.contains("..") || text.contains(['\\', '\'']) {
        return;
    }
    match Config::parse(text, Path::new("fuzz.nowhere/relay.toml")) {
        Ok(config) => assert!(!config.describe().is_empty()),
        Err(error) => assert!(
            ["relay.toml", "fuzz.nowhere"]
                .iter()
                .any(|file| error.to_string().contains(file)),
            "names no file: {error}"
        ),
    }
}

/// What parses is written again as a packet that parses to the same.
pub fn leotp_packet(data: &[u8]) {
    let _ = check_packet(data);
}

/// Datagrams of known and unknown neighbours: none is believed without the key, and memory stays below its limits.
pub fn leotp_node(data: &[u8]) {
    let mut now = Instant::now();
    let mut net = Network::new(now, 1);
    net.settle();
    let before = net.wires.nodes[&3].stats();
    for (i, part) in parts(data).enumerate() {
        let from = u32::try_from(i % 5).unwrap_or(0);
        let Some(node) = net.wires.nodes.get_mut(&3) else {
            return;
        };
        node.handle_datagram(now, NeighbourId(from), part);
        let mut out = Vec::new();
        while node.poll_transmit(now, &mut out).is_some() {
            out.clear();
        }
        while node.poll_event().is_some() {}
        now += Duration::from_millis(part.first().copied().unwrap_or(0).into());
        node.handle_timeout(now);
        check_memory(node);
    }
    // Only the neighbours have the keys.
    let after = net.wires.nodes[&3].stats();
    assert_eq!(
        (after.data_received, after.repaired),
        (before.data_received, before.repaired)
    );
}

/// A network under random operations, two bytes each; then nothing is lost any more, and all that was asked for arrives.
pub fn leotp_chain(data: &[u8]) {
    let Some((&seed, operations)) = data.split_first() else {
        return;
    };
    let mut net = Network::new(Instant::now(), seed);
    for operation in operations.chunks_exact(2).take(400) {
        net.apply(operation[0], operation[1]);
    }
    net.finish();
}

struct Network {
    wires: Wires,
    /// Contents by their number, and how much of each transfer was read.
    contents: Vec<Bytes>,
    transfers: BTreeMap<(u32, FetchId), (usize, Vec<u8>)>,
    finished: usize,
}

impl Network {
    fn new(now: Instant, seed: u8) -> Self {
        let mut net = Self {
            wires: Wires::new(now, seed, &LINKS),
            contents: Vec::new(),
            transfers: BTreeMap::new(),
            finished: 0,
        };
        let lengths = [0, 1, 199, 200, 201, 5_000, 30_000];
        for (number, length) in lengths.into_iter().enumerate() {
            let bytes =
                (0..length).map(|i: usize| (i.wrapping_mul(31 + number) >> 3).to_le_bytes()[0]);
            net.contents.push(bytes.collect::<Vec<u8>>().into());
        }
        for id in 0..6 {
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
            contents: 20,
            ..NodeConfig::default()
        };
        let upstream = match id {
            1 | 2 => Some(0),
            3 => Some(1),
            4 | 5 => Some(3),
            _ => None,
        };
        let Some(node) = self.wires.begin(id, config, upstream) else {
            return;
        };
        if id == RESPONDER {
            for (number, bytes) in self.contents.iter().enumerate() {
                node.serve(content(number), &secret(), Box::new(bytes.clone()));
            }
        }
    }

    fn apply(&mut self, operation: u8, argument: u8) {
        let way = self.wires.way(argument);
        let amount = usize::from(argument >> 3);
        match operation % 16 {
            0 | 1 => self.fetch(REQUESTERS[usize::from(argument & 1)], amount),
            2..=5 => self.deliver_all(1 + amount / 4),
            6 => drop(self.wires.take(way, amount)),
            7 => self.wires.lose_half(way),
            8 => self.wires.repeat(way, amount),
            9 => self.wires.reverse(way),
            10 => self.advance(Duration::from_millis(amount as u64)),
            11 => self.advance(Duration::from_millis(amount as u64 * 40)),
            12 => self.wires.corrupt(way, amount, operation >> 4),
            13 => self.wires.replay(amount),
            14 if amount % 4 == 0 => {
                let relay = RELAYS[usize::from(argument & 3) % RELAYS.len()];
                self.begin(relay);
            }
            15 => {
                self.wires.set_upstream(3, 1 + u32::from(argument & 1));
            }
            _ => {}
        }
        self.drain();
    }

    fn fetch(&mut self, requester: u32, number: usize) {
        let number = number % self.contents.len();
        let mut config = FetchConfig::new(content(number), secret());
        config.start = if number == 5 { 1000 } else { 0 };
        config.window_bytes = 20_000;
        if let Some(node) = self.wires.nodes.get_mut(&requester) {
            let id = node.fetch(self.wires.now, config);
            self.transfers.insert((requester, id), (number, Vec::new()));
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
        self.wires.send();
        for node in self.wires.nodes.values_mut() {
            while let Some(event) = node.poll_event() {
                match event {
                    Event::Finished(_) => self.finished += 1,
                    Event::Failed(fetch, why) => panic!("{fetch:?} failed: {why}"),
                    _ => {}
                }
            }
            check_memory(node);
        }
        for (&(requester, fetch), (number, got)) in &mut self.transfers {
            if let Some(node) = self.wires.nodes.get_mut(&requester) {
                while let Some(bytes) = node.read(self.wires.now, fetch) {
                    let begin = if *number == 5 { 1000 } else { 0 };
                    let expected = &self.contents[*number][begin + got.len()..];
                    assert_eq!(
                        &bytes[..],
                        &expected[..bytes.len()],
                        "content {number} is damaged"
                    );
                    got.extend_from_slice(&bytes);
                }
            }
        }
    }

    fn settle(&mut self) {
        for _ in 0..20 {
            self.advance(Duration::from_millis(10));
            self.deliver_all(usize::MAX);
        }
    }

    /// Nothing is lost any more: every transfer ends, and then the network is silent.
    fn finish(&mut self) {
        for _ in 0..20_000 {
            self.advance(Duration::from_millis(5));
            self.deliver_all(usize::MAX);
            if self.finished == self.transfers.len() {
                break;
            }
        }
        for ((requester, fetch), (number, got)) in &self.transfers {
            let begin = if *number == 5 { 1000 } else { 0 };
            if self.contents[*number].len() - begin != got.len() {
                for (id, node) in &self.wires.nodes {
                    let met: Vec<u32> = (0..6)
                        .filter(|other| node.has_met(NeighbourId(*other)))
                        .collect();
                    eprintln!(
                        "{id}: met {met:?} {:?} pending {} memory {:?} timeout {:?}",
                        node.stats(),
                        node.pending_ranges(),
                        node.memory(),
                        node.poll_timeout()
                            .map(|at| at.saturating_duration_since(self.wires.now))
                    );
                }
            }
            let missing = self.contents[*number].len() - begin - got.len();
            let node = &self.wires.nodes[requester];
            assert_eq!(
                missing,
                0,
                "content {number} of {fetch:?} at {requester}: {:?}, {:?}",
                node.progress(*fetch),
                node.stats()
            );
        }
        assert_eq!(self.finished, self.transfers.len());
        // Relays forget what does not come for their patience of 10 s since the last of its content, and what is not asked for again after
        // 30 s, each of the next node after those of the one before.
        for _ in 0..280 {
            self.advance(Duration::from_millis(250));
            self.deliver_all(usize::MAX);
        }
        self.advance(Duration::from_secs(10));
        let under_way = self.wires.under_way();
        assert_eq!(under_way, 0, "datagrams of idle nodes");
    }
}

fn check_memory(node: &Node) {
    let (cache, queues) = node.memory();
    assert!(
        cache <= CACHE_BYTES && queues <= 4 * QUEUE_BYTES,
        "{cache} and {queues} bytes"
    );
    assert!(
        node.pending_ranges() <= PENDING + 2,
        "{} ranges",
        node.pending_ranges()
    );
}

fn content(number: usize) -> ContentId {
    ContentId([number.to_le_bytes()[0]; 16])
}

fn secret() -> ContentSecret {
    ContentSecret::new(&[5; 32])
}
