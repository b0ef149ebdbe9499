//! LTP: the codec, an engine that hears anything, and two engines whose segments are lost, repeated and reordered while
//! either is started anew.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::{Duration, Instant},
};

use bytes::Bytes;
use starhaul_ltp::{
    Batch, Coding, Encoding, Engine, EngineConfig, EngineId, Event, LinkState, Outgoing,
    PeerConfig, Profile, UnknownPeers, parse,
};

use super::parts;

const SERVICE: u64 = 1;
const IDS: [EngineId; 2] = [EngineId(1), EngineId(2)];
/// Datagrams under way; more are lost.
const MOST_UNDER_WAY: usize = 2000;
const MEMORY: usize = 1 << 20;

/// What parses, in either encoding, is written again as a segment that parses to the same, of the length foretold. With fixed fields there is
/// one way to write it.
pub fn ltp_segment(data: &[u8]) {
    let mut rest = data;
    while let Ok((segment, behind)) = parse(rest) {
        assert!(behind.len() < rest.len());
        let mut written = Vec::new();
        segment.write(&mut written);
        assert_eq!(written.len(), segment.encoded_len());
        assert_eq!(parse(&written), Ok((segment, [].as_slice())));
        if segment.encoding == Encoding::Fixed {
            assert_eq!(written, rest[..rest.len() - behind.len()]);
        }
        rest = behind;
    }
}

/// Datagrams of known and unknown engines, a block under way: memory stays below its limit, and all ends in the end, in either encoding.
pub fn ltp_engine(data: &[u8]) {
    for profile in [Profile::Rfc5326, Profile::Fixed] {
        hears_anything(profile, data);
    }
}

fn hears_anything(profile: Profile, data: &[u8]) {
    let mut now = Instant::now();
    let mut engine = engine(IDS[0], 1, profile, now);
    let red = colour(profile, 5000, 4000);
    send(&mut engine, now, IDS[1], 5000, red);
    let mut batch = Batch::new(65_507, 64);
    for (i, part) in parts(data).enumerate() {
        let from = if i % 5 == 4 { EngineId(9) } else { IDS[1] };
        // Some come as the kernel joins them.
        let datagrams = if i % 7 == 6 { 4 } else { 1 };
        let stride = part.len().div_ceil(datagrams).max(1);
        engine.handle_datagrams(now, from, part, stride);
        while engine.poll_transmit(now, &mut batch).is_some() {
            assert!(
                batch
                    .contents()
                    .chunks(batch.segment_size())
                    .all(|segment| parse(segment)
                        .is_ok_and(|(segment, _)| segment.encoding == profile.encoding()))
            );
        }
        while engine.poll_event().is_some() {}
        // A page may be begun, and one that began small may grow, beyond what was foreseen.
        assert!(engine.receive_memory() <= MEMORY + (engine.sessions().1 + 1) * (64 << 10));
        now += Duration::from_millis(part.first().copied().unwrap_or(0).into());
        engine.handle_timeout(now);
    }
    end([&mut engine], &mut now);
}

/// Two engines under random operations, two bytes each.
pub fn ltp_pair(data: &[u8]) {
    delivered_between_engines(data);
}

/// The same; returns how many red parts were delivered.
pub fn delivered_between_engines(data: &[u8]) -> usize {
    let Some((&seed, operations)) = data.split_first() else {
        return 0;
    };
    let mut pair = Pair::new(seed);
    for operation in operations.chunks_exact(2).take(500) {
        pair.apply(operation[0], operation[1]);
    }
    pair.finish();
    pair.delivered.len()
}

/// Of so many red bytes of a block: all of it, if the profile has blocks of one colour.
fn colour(profile: Profile, length: usize, red: usize) -> usize {
    match profile {
        Profile::Fixed if red > 0 => length,
        _ => red,
    }
}

struct Pair {
    now: Instant,
    profile: Profile,
    engines: [Engine; 2],
    lives: u8,
    /// Datagrams under way, by the engine that they reach.
    flight: [Vec<Vec<u8>>; 2],
    /// The blocks that were sent, by length: each has another.
    blocks: BTreeMap<usize, Bytes>,
    /// The engines were restarted: numbers may be used again.
    was_restarted: bool,
    /// A header was damaged, which nothing protects: a report may claim what did not arrive.
    was_corrupted: bool,
    /// Lengths of red parts that were delivered.
    delivered: BTreeSet<usize>,
    /// The red length of each session.
    red: BTreeMap<starhaul_ltp::SessionId, usize>,
    /// Those that are said to be delivered.
    sent: Vec<starhaul_ltp::SessionId>,
    outcomes: BTreeMap<starhaul_ltp::SessionId, u32>,
}

impl Pair {
    fn new(seed: u8) -> Self {
        let now = Instant::now();
        // Another bit decides on repair segments.
        let profile = match seed & 4 {
            0 => Profile::Rfc5326,
            _ => Profile::Fixed,
        };
        Self {
            now,
            profile,
            engines: [
                engine(IDS[0], seed, profile, now),
                engine(IDS[1], seed.wrapping_add(1), profile, now),
            ],
            lives: seed,
            flight: [Vec::new(), Vec::new()],
            blocks: BTreeMap::new(),
            was_restarted: false,
            was_corrupted: false,
            delivered: BTreeSet::new(),
            red: BTreeMap::new(),
            sent: Vec::new(),
            outcomes: BTreeMap::new(),
        }
    }

    fn apply(&mut self, operation: u8, argument: u8) {
        let side = usize::from(argument & 1);
        let amount = usize::from(argument >> 1);
        match operation % 16 {
            0 | 1 => {
                // Every block has a length of its own, which tells it from all others.
                let length = 1 + amount * 150 + self.blocks.len();
                let red = length * usize::from(operation >> 4) / 15;
                let red = colour(self.profile, length, red);
                if !self.blocks.contains_key(&red.max(1)) {
                    let block = send(
                        &mut self.engines[side],
                        self.now,
                        IDS[1 - side],
                        length,
                        red,
                    );
                    if let Some((session, block)) = block {
                        self.red.insert(session, red);
                        self.blocks.insert(red, block.slice(..red));
                    }
                }
            }
            2 | 3 => self.deliver(side, 1 + amount),
            4 => self.deliver_joined(side, 1 + amount),
            5 => drop(self.take(side, amount)),
            6 => {
                let copy = self.flight[side].get(amount).cloned();
                self.flight[side].extend(copy);
            }
            7 => self.flight[side].reverse(),
            8 | 9 => self.advance(Duration::from_millis(amount as u64 * 20)),
            10 => self.advance(Duration::from_secs(amount as u64)),
            11 => {
                let session = self.outcomes.keys().nth(amount).copied();
                session
                    .into_iter()
                    .for_each(|session| self.engines[side].cancel(self.now, session));
            }
            12 => {
                let state = LinkState {
                    may_transmit: amount & 1 == 0,
                    peer_transmits: amount & 2 == 0,
                };
                self.engines[side].set_link(self.now, IDS[1 - side], state);
            }
            13 => self.corrupt(side, amount, operation >> 4),
            14 if amount == 7 => self.restart(side, true),
            14 if amount == 8 => self.restart(side, false),
            _ => {}
        }
        self.drain();
    }

    fn take(&mut self, side: usize, index: usize) -> Option<Vec<u8>> {
        let flight = &mut self.flight[side];
        (!flight.is_empty()).then(|| flight.remove(index % flight.len()))
    }

    fn deliver(&mut self, side: usize, count: usize) {
        for _ in 0..count {
            let Some(datagram) = self.take(side, 0) else {
                break;
            };
            self.engines[side].handle_datagrams(self.now, IDS[1 - side], &datagram, datagram.len());
            self.drain();
        }
    }

    /// Delivers datagrams as the kernel joins them: of one length but for the last of a message, which may be shorter.
    fn deliver_joined(&mut self, side: usize, count: usize) {
        let mut left = count;
        while left > 0 {
            let Some(first) = self.take(side, 0) else {
                break;
            };
            let (stride, mut message) = (first.len(), first);
            left -= 1;
            let fits = |next: &Vec<u8>| next.len() <= stride;
            while left > 0
                && message.len().is_multiple_of(stride)
                && self.flight[side].first().is_some_and(fits)
            {
                message.extend(self.flight[side].remove(0));
                left -= 1;
            }
            self.engines[side].handle_datagrams(self.now, IDS[1 - side], &message, stride);
            self.drain();
        }
    }

    /// Bits change only in the header: damaged data are found by the checksum, but a block without one is trusted.
    fn corrupt(&mut self, side: usize, index: usize, bit: u8) {
        let Some(mut datagram) = self.take(side, index) else {
            return;
        };
        if let Some(byte) = datagram.get_mut(usize::from(bit / 8)) {
            *byte ^= 1 << (bit % 8);
        }
        self.engines[side].handle_datagrams(self.now, IDS[1 - side], &datagram, datagram.len());
        self.was_corrupted = true;
    }

    fn restart(&mut self, side: usize, with_same_numbers: bool) {
        if !with_same_numbers {
            self.lives = self.lives.wrapping_add(2);
        }
        self.engines[side] = engine(
            IDS[side],
            self.lives.wrapping_add(side.to_le_bytes()[0]),
            self.profile,
            self.now,
        );
        self.was_restarted = true;
    }

    fn advance(&mut self, time: Duration) {
        let until = self.now + time;
        for side in 0..2 {
            while let Some(at) = self.engines[side].poll_timeout().filter(|at| *at <= until) {
                self.now = self.now.max(at);
                self.engines[side].handle_timeout(self.now);
                self.drain();
            }
        }
        self.now = until;
    }

    fn drain(&mut self) {
        let mut batch = Batch::new(65_507, 64);
        for side in 0..2 {
            while self.engines[side]
                .poll_transmit(self.now, &mut batch)
                .is_some()
            {
                let segments = batch
                    .contents()
                    .chunks(batch.segment_size())
                    .map(<[u8]>::to_vec);
                self.flight[1 - side].extend(segments);
                self.flight[1 - side].truncate(MOST_UNDER_WAY);
            }
            while let Some(event) = self.engines[side].poll_event() {
                self.check(event);
            }
            assert!(self.engines[side].receive_memory() <= 2 * MEMORY);
        }
    }

    fn check(&mut self, event: Event) {
        match event {
            Event::RedPart {
                block, is_verified, ..
            } => {
                let (length, block) = (block.len(), block.into_bytes());
                let is_known = self.blocks.get(&length) == Some(&block);
                assert!(!is_verified || is_known, "a block that was not sent");
                self.delivered.insert(length);
            }
            Event::Sent { session } | Event::SendCancelled { session, .. } => {
                let outcomes = self.outcomes.entry(session).or_default();
                *outcomes += 1;
                assert!(
                    self.was_restarted || *outcomes == 1,
                    "{session} ended twice"
                );
                if matches!(event, Event::Sent { .. }) {
                    self.sent.push(session);
                }
            }
            _ => {}
        }
    }

    /// From here on nothing is lost: every session ends, one way or the other.
    fn finish(&mut self) {
        for side in 0..2 {
            let up = LinkState {
                may_transmit: true,
                peer_transmits: true,
            };
            self.engines[side].set_link(self.now, IDS[1 - side], up);
        }
        self.drain();
        for _ in 0..100_000 {
            if self.flight.iter().all(Vec::is_empty) {
                let next = self.engines.iter().filter_map(Engine::poll_timeout).min();
                let Some(next) = next else { break };
                let wait = next.saturating_duration_since(self.now);
                self.advance(wait);
            }
            self.deliver(0, 1);
            self.deliver(1, 1);
        }
        for engine in &self.engines {
            assert_eq!(engine.sessions(), (0, 0), "a session never ends");
            let held = (
                engine.receive_memory(),
                engine.send_bytes(),
                engine.timers(),
            );
            assert_eq!(held, (0, 0, 0));
        }
        if !self.was_restarted && !self.was_corrupted {
            for session in &self.sent {
                let red = self.red.get(session).copied().unwrap_or_default();
                let arrived = red == 0 || self.delivered.contains(&red);
                assert!(arrived, "{session} is said to be delivered, and is not");
            }
        }
    }
}

fn engine(id: EngineId, seed: u8, profile: Profile, now: Instant) -> Engine {
    let mut peer = PeerConfig::new(Duration::from_secs(1), None);
    peer.profile = profile;
    peer.segment_data = 300;
    peer.checkpoint_every = Some(7);
    peer.receive_memory = MEMORY;
    peer.sessions = 50;
    peer.retransmission_limit = 4;
    peer.coding = (seed % 2 == 1).then(|| Coding::new(0.1));
    peer.adapts_coding = seed % 4 == 2;
    let mut config = EngineConfig::new(id, [seed; 32]);
    config.receive_memory = MEMORY;
    config.unknown_peers = UnknownPeers::Accept {
        most: 1,
        config: Box::new(peer.clone()),
    };
    let mut engine = Engine::new(config);
    let other = if id == IDS[0] { IDS[1] } else { IDS[0] };
    // The two differ, so that it cannot be refused.
    engine.add_peer(now, other, peer).unwrap_or_default();
    engine.open_service(SERVICE);
    engine
}

fn send(
    engine: &mut Engine,
    now: Instant,
    to: EngineId,
    length: usize,
    red: usize,
) -> Option<(starhaul_ltp::SessionId, Bytes)> {
    let bytes = (0..length).map(|i| (i.wrapping_mul(length) >> 3).to_le_bytes()[0]);
    let block: Bytes = bytes.collect::<Vec<u8>>().into();
    let outgoing = Outgoing {
        to,
        service: SERVICE,
        block: block.clone(),
        red: red as u64,
    };
    let session = engine.send(now, outgoing).ok()?;
    Some((session, block))
}

/// Lets all timers run out, with a peer that is silent.
fn end<const N: usize>(engines: [&mut Engine; N], now: &mut Instant) {
    let mut batch = Batch::new(65_507, 64);
    for engine in engines {
        let up = LinkState {
            may_transmit: true,
            peer_transmits: true,
        };
        engine.set_link(*now, IDS[1], up);
        for _ in 0..100_000 {
            while engine.poll_transmit(*now, &mut batch).is_some() {}
            let Some(at) = engine.poll_timeout() else {
                break;
            };
            *now = (*now).max(at);
            engine.handle_timeout(*now);
        }
        assert_eq!(
            (engine.sessions(), engine.timers()),
            ((0, 0), 0),
            "a session never ends"
        );
        assert_eq!((engine.receive_memory(), engine.send_bytes()), (0, 0));
    }
}
