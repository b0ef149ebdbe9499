//! Segments that a receiver gets together, as the kernel joins them, do what each of them does by itself.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod pair;

use std::time::{Duration, Instant};

use bytes::Bytes;
use pair::{
    RECEIVER, SENDER, SERVICE, content,
    direct::{accepting, delivered, engine, output, red, segment},
};
use rand_chacha::{
    ChaCha8Rng,
    rand_core::{RngCore as _, SeedableRng as _},
};
use starhaul_ltp::{
    AuthKey, Batch, Body, Checkpoint, Coding, Data, DataKind, Engine, Event, Outgoing, PeerConfig,
    Profile, SegmentSize, parse,
};

/// Bytes of a message at most.
const MOST_BYTES: usize = 65_535;
/// Bytes of each forged datagram but the last of a message.
const FORGED: usize = 100;

/// One of so many times.
fn one_in(random: &mut ChaCha8Rng, bound: u32) -> bool {
    random.next_u32().is_multiple_of(bound)
}

/// In every fourth world fields have fixed offsets, and blocks one colour.
fn profile(seed: u64) -> Profile {
    match seed % 4 {
        3 => Profile::Fixed,
        _ => Profile::Rfc5326,
    }
}

/// Some datagrams are lost, come twice, or overtake the one before them.
fn disturbed(datagrams: Vec<Vec<u8>>, random: &mut ChaCha8Rng) -> Vec<Vec<u8>> {
    let mut arrive: Vec<Vec<u8>> = Vec::new();
    for datagram in datagrams {
        match random.next_u32() % 30 {
            0 => {}
            1 => arrive.extend([datagram.clone(), datagram]),
            2 => arrive.insert(arrive.len().saturating_sub(1), datagram),
            _ => arrive.push(datagram),
        }
    }
    arrive
}

/// Datagrams as the kernel joins them: of one length but for the last, which may be shorter.
fn joined(datagrams: &[Vec<u8>]) -> Vec<(Vec<u8>, usize)> {
    let mut messages: Vec<(Vec<u8>, usize)> = Vec::new();
    for datagram in datagrams {
        match messages.last_mut() {
            Some((message, stride))
                if datagram.len() <= *stride
                    && message.len().is_multiple_of(*stride)
                    && message.len() + datagram.len() <= MOST_BYTES =>
            {
                message.extend_from_slice(datagram);
            }
            _ => messages.push((datagram.clone(), datagram.len())),
        }
    }
    messages
}

/// A sender, a receiver that gets its datagrams joined, and one that gets each by itself.
struct World {
    now: Instant,
    sender: Engine,
    together: Engine,
    alone: Engine,
    random: ChaCha8Rng,
}

impl World {
    fn new(seed: u64) -> Self {
        let mut random = ChaCha8Rng::seed_from_u64(seed);
        let (now, mut config) = (Instant::now(), PeerConfig::new(Duration::ZERO, None));
        let size = [64, 1360, 9000][random.next_u32() as usize % 3];
        config.set_segment_size(SegmentSize::Bytes(size));
        config.profile = profile(seed);
        config.checkpoint_every = one_in(&mut random, 2).then_some(20);
        config.coding = one_in(&mut random, 4).then(|| Coding::new(0.05));
        let receiver = || engine(RECEIVER, 2, &[SENDER], &config, now);
        Self {
            now,
            sender: engine(SENDER, 1, &[RECEIVER], &config, now),
            together: receiver(),
            alone: receiver(),
            random,
        }
    }

    /// Sends a block, of which so many bytes are red, until nothing is left of it; the red parts that either receiver has got.
    fn carry(&mut self, block: &Bytes, red: u64) -> [Vec<Bytes>; 2] {
        let outgoing = Outgoing {
            to: RECEIVER,
            service: SERVICE,
            block: block.clone(),
            red,
        };
        self.sender.send(self.now, outgoing).unwrap();
        let mut parts = [Vec::new(), Vec::new()];
        let mut rounds = 0;
        while self.sessions() > 0 {
            self.step();
            parts[0].extend(delivered(&mut self.together));
            parts[1].extend(delivered(&mut self.alone));
            delivered(&mut self.sender);
            rounds += 1;
            assert!(rounds < 10_000, "it does not end");
        }
        parts
    }

    fn sessions(&self) -> usize {
        let engines = [&self.sender, &self.together, &self.alone];
        let sessions = engines.map(|engine| engine.sessions());
        sessions.iter().map(|(sends, takes)| sends + takes).sum()
    }

    fn step(&mut self) {
        let leaves = output(&mut self.sender, self.now);
        let is_quiet = leaves.is_empty();
        let arrives = disturbed(leaves, &mut self.random);
        for (message, stride) in joined(&arrives) {
            self.together
                .handle_datagrams(self.now, SENDER, &message, stride);
        }
        for datagram in &arrives {
            self.alone
                .handle_datagrams(self.now, SENDER, datagram, datagram.len());
        }
        let answers = output(&mut self.together, self.now);
        assert_eq!(answers, output(&mut self.alone, self.now));
        assert_eq!(self.together.stats(), self.alone.stats());
        let is_quiet = is_quiet && answers.is_empty();
        for answer in disturbed(answers, &mut self.random) {
            self.sender
                .handle_datagrams(self.now, RECEIVER, &answer, answer.len());
        }
        if is_quiet {
            self.wait();
        }
    }

    /// Lets time pass until something is due.
    fn wait(&mut self) {
        let engines = [&mut self.sender, &mut self.together, &mut self.alone];
        let due = engines.iter().filter_map(|engine| engine.poll_timeout());
        self.now = due.min().unwrap_or(self.now).max(self.now);
        for engine in engines {
            engine.handle_timeout(self.now);
        }
    }
}

#[test]
fn segments_that_come_together_do_what_each_does_by_itself() {
    for seed in 0..60 {
        println!("seed {seed}");
        let mut world = World::new(seed);
        // The buffer of a block follows from those before it.
        for number in 0..3 {
            let length = 1 + world.random.next_u32() as usize % 300_000;
            let block = content(length, seed + number);
            let red = match one_in(&mut world.random, 3) {
                true => world.random.next_u32() as usize % length,
                false => length,
            };
            let red = match profile(seed) {
                Profile::Fixed if red > 0 => length,
                _ => red,
            };
            let expected: Vec<Bytes> = match red {
                0 => Vec::new(),
                red => vec![block.slice(..red)],
            };
            let [together, alone] = world.carry(&block, red as u64);
            assert!(together == expected, "seed {seed}");
            assert!(alone == expected, "seed {seed}");
        }
    }
}

/// Makes segments of which most go on where the one before ended, and others do anything else.
struct Forger {
    random: ChaCha8Rng,
    /// Sessions so far, the present one, and where its last data ended.
    sessions: u64,
    session: u64,
    end: u64,
}

impl Forger {
    /// Segments that come as one message.
    fn message(&mut self) -> Vec<Vec<u8>> {
        let (count, last) = (self.random.next_u32() % 40, self.random.next_u32() % 71);
        let mut all: Vec<Vec<u8>> = (0..count).map(|_| self.datagram(FORGED)).collect();
        all.push(self.datagram(30 + last as usize));
        all
    }

    /// One of so many bytes.
    fn datagram(&mut self, length: usize) -> Vec<u8> {
        let random = &mut self.random;
        if one_in(random, 40) {
            self.sessions += 1;
            // Another one, or one of before: it may be cancelled, or have ended.
            self.session = match one_in(random, 4) {
                true => 1 + u64::from(random.next_u32()) % self.sessions,
                false => self.sessions,
            };
            self.end = 0;
        }
        let some = u64::from(random.next_u32() % 500);
        let offset = match random.next_u32() % 40 {
            0 => 0,
            1 => self.end.saturating_sub(some),
            2 => self.end.saturating_add(some),
            3 => some * 200,
            4 if one_in(random, 10) => u64::MAX - some,
            _ => self.end,
        };
        let kind = match random.next_u32() % 150 {
            0..=2 => DataKind::RedCheckpoint,
            3..=5 => DataKind::RedEndOfBlock,
            6 => DataKind::RedEnd,
            7 => DataKind::Green,
            8 => DataKind::GreenEndOfBlock,
            _ => DataKind::Red,
        };
        let asks = matches!(
            kind,
            DataKind::RedCheckpoint | DataKind::RedEnd | DataKind::RedEndOfBlock
        );
        let checkpoint = Checkpoint {
            serial: 1 + some,
            // Of a report that was never made.
            report: u64::from(one_in(random, 8)),
        };
        let mut data = Data {
            kind,
            service: SERVICE + u64::from(one_in(random, 100)),
            offset,
            checkpoint: asks.then_some(checkpoint),
            payload: &[0],
        };
        let header = segment(self.session, Body::Data(data)).len() - 1;
        let mut payload = vec![0; length - header];
        random.fill_bytes(&mut payload);
        data.payload = &payload;
        self.end = offset.saturating_add(payload.len() as u64);
        let mut datagram = segment(self.session, Body::Data(data));
        if one_in(random, 100) {
            let at = random.next_u32() as usize % 12;
            datagram[at] ^= 1u8 << (random.next_u32() % 8);
        }
        datagram
    }
}

/// All that is seen of an engine, whose timers are told of this instant.
type Seen = (
    Vec<Vec<u8>>,
    Vec<Event>,
    (usize, usize, Option<Instant>, (usize, usize)),
);

fn seen(engine: &mut Engine, now: Instant) -> Seen {
    engine.handle_timeout(now);
    let leaves = output(engine, now);
    let events = std::iter::from_fn(|| engine.poll_event()).collect();
    let (timers, next) = (engine.timers(), engine.poll_timeout());
    let held = (engine.receive_memory(), timers, next, engine.sessions());
    (leaves, events, held)
}

/// Gaps, overlaps, ends in the middle, other services, cancelled and ended sessions, blocks that are too long, and no signatures.
#[test]
fn forged_segments_that_come_together_do_what_each_does_by_itself() {
    let (mut bytes, mut blocks) = (0, 0);
    for seed in 0..80 {
        println!("seed {seed}");
        let mut random = ChaCha8Rng::seed_from_u64(seed);
        let (mut now, mut config) = (Instant::now(), PeerConfig::new(Duration::ZERO, None));
        if one_in(&mut random, 2) {
            config.block_bytes = 20_000;
        }
        let (signs, awaits) = (one_in(&mut random, 8), one_in(&mut random, 3));
        config.auth = signs.then(|| AuthKey::new(b"secret", b"").unwrap());
        let receiver = || match awaits {
            true => accepting(&config, now),
            false => engine(RECEIVER, 2, &[SENDER], &config, now),
        };
        let (mut together, mut alone) = (receiver(), receiver());
        let mut forger = Forger {
            random,
            sessions: 1,
            session: 1,
            end: 0,
        };
        for _ in 0..100 {
            let all = forger.message();
            let is_believed = together.handle_datagrams(now, SENDER, &all.concat(), FORGED);
            let mut is_one_believed = false;
            for datagram in &all {
                is_one_believed |= alone.handle_datagrams(now, SENDER, datagram, FORGED);
            }
            assert_eq!(is_believed, is_one_believed, "seed {seed}");
            now += Duration::from_millis(u64::from(forger.random.next_u32() % 3000));
            let one = seen(&mut together, now);
            assert_eq!(one, seen(&mut alone, now), "seed {seed}");
            assert_eq!(together.stats(), alone.stats(), "seed {seed}");
            let delivered = |event: &&Event| matches!(event, Event::RedPart { .. });
            blocks += one.1.iter().filter(delivered).count();
        }
        let stats = together.stats();
        assert!(!signs || stats.red_bytes_received == 0, "seed {seed}");
        bytes += stats.red_bytes_received;
    }
    assert!(
        bytes > 100_000 && blocks > 20,
        "{bytes} bytes, {blocks} blocks"
    );
}

/// Where memory ends in the middle of a message, the segments before that are taken.
#[test]
fn segments_that_come_together_find_as_much_memory_as_each_by_itself() {
    let (now, mut random) = (Instant::now(), ChaCha8Rng::seed_from_u64(1));
    let mut config = PeerConfig::new(Duration::ZERO, None);
    config.receive_memory = 2_000_000;
    let receiver = || engine(RECEIVER, 2, &[SENDER], &config, now);
    let (mut together, mut alone) = (receiver(), receiver());
    for _ in 0..200 {
        let number = 1 + u64::from(random.next_u32() % 2);
        let count = 1 + u64::from(random.next_u32() % 30);
        // The first page of a block would grow with its data.
        let start = (64 << 10) + u64::from(random.next_u32() % 1_700_000);
        let all = (0..count).map(|i| red(number, start + i * 1000, &[7; 1000], false));
        let all: Vec<Vec<u8>> = all.collect();
        let stride = all[0].len();
        together.handle_datagrams(now, SENDER, &all.concat(), stride);
        for datagram in &all {
            alone.handle_datagrams(now, SENDER, datagram, stride);
        }
        assert_eq!(together.stats(), alone.stats());
        assert_eq!(together.receive_memory(), alone.receive_memory());
        assert!(together.receive_memory() <= config.receive_memory);
    }
    assert!(together.stats().dropped.no_room > 0);
}

/// What leaves of a block that was never sent before: each batch has segments of one length, of which the last alone may be shorter; each is
/// what the writer of any segment makes of it, and goes on where the one before it ended. Returns how many ask for a report.
fn check_output(
    engine: &mut Engine,
    now: Instant,
    block: &Bytes,
    most: (usize, usize),
    is_lending: bool,
) -> u64 {
    let batch = Batch::new(most.0, most.1);
    let mut batch = if is_lending { batch.lending() } else { batch };
    let (mut at, mut asking) = (0, 0);
    while engine.poll_transmit(now, &mut batch).is_some() {
        let (size, bytes) = (batch.segment_size(), batch.len());
        assert!(is_lending || !batch.is_scattered());
        batch.gather();
        assert_eq!(batch.contents().len(), bytes);
        assert_eq!(batch.contents().len().div_ceil(size), batch.segments());
        assert!(batch.segments() <= most.1.max(1));
        assert!(batch.segments() == 1 || batch.contents().len() <= most.0);
        for datagram in batch.contents().chunks(size) {
            let (segment, behind) = parse(datagram).unwrap();
            assert!(behind.is_empty());
            let mut written = Vec::new();
            segment.write(&mut written);
            assert!(written == datagram, "at {at}");
            let Body::Data(data) = segment.body else {
                panic!("{segment:?}");
            };
            assert_eq!(data.offset, at as u64);
            assert!(data.payload == &block[at..at + data.payload.len()]);
            at += data.payload.len();
            asking += u64::from(data.checkpoint.is_some());
        }
    }
    assert_eq!(at, block.len(), "all of it leaves");
    asking
}

/// Offsets need one byte, two, three and four, or always eight, lengths are odd, and blocks lie in one buffer or in two.
#[test]
fn what_leaves_as_a_run_is_what_each_segment_would_be() {
    let now = Instant::now();
    for size in [1, 7, 127, 129, 1359, 1360, 2047, 2048, 9001, 64_000] {
        let length = (size * 1700).clamp(20_000, 3_000_001);
        let block = content(length, size as u64);
        let (usual, fixed) = (Profile::Rfc5326, Profile::Fixed);
        for (every, head, mtu, profile) in [
            (None, 0, None, usual),
            (Some(1), 0, None, usual),
            (Some(20), 999, Some(1500), usual),
            (None, 100_003, Some(65_536), usual),
            (None, 0, None, fixed),
            (Some(20), 999, Some(1500), fixed),
        ] {
            let mut config = PeerConfig::new(Duration::ZERO, None);
            config.profile = profile;
            config.set_segment_size(match mtu {
                Some(_) => SegmentSize::Auto,
                None => SegmentSize::Bytes(size),
            });
            config.checkpoint_every = every;
            let limits = [(65_507, 64), (65_507, 1), (20_000, 5)];
            for (most, is_lending) in limits
                .into_iter()
                .flat_map(|most| [(most, false), (most, true)])
            {
                let mut sender = engine(SENDER, 1, &[RECEIVER], &config, now);
                if let Some(mtu) = mtu {
                    sender.set_path_mtu(now, RECEIVER, mtu);
                }
                let head = head.min(block.len());
                let outgoing = Outgoing {
                    to: RECEIVER,
                    service: SERVICE,
                    block: block.slice(..head),
                    red: length as u64,
                };
                sender
                    .send_with(now, outgoing, block.slice(head..), None)
                    .unwrap();
                let asking = check_output(&mut sender, now, &block, most, is_lending);
                let sent = sender.stats().data_segments_sent;
                assert_eq!(sent, sender.stats().segments_sent);
                let expected = sent.div_ceil(every.map_or(u64::MAX, u64::from));
                assert!(asking >= expected, "{asking} of {sent} ask");
            }
        }
    }
}

/// To tell the system of each short one would cost more than its copy.
#[test]
fn the_data_of_long_segments_stay_where_the_block_has_them() {
    let now = Instant::now();
    for (size, stay) in [(1360, false), (2048, true), (64_000, true)] {
        let mut config = PeerConfig::new(Duration::ZERO, None);
        config.set_segment_size(SegmentSize::Bytes(size));
        let mut sender = engine(SENDER, 1, &[RECEIVER], &config, now);
        let block = content(300_000, 1);
        let outgoing = Outgoing {
            to: RECEIVER,
            service: SERVICE,
            block: block.clone(),
            red: 300_000,
        };
        sender.send(now, outgoing).unwrap();
        let mut batch = Batch::new(65_507, 64).lending();
        assert!(sender.poll_transmit(now, &mut batch).is_some());
        let (place, mut is_there) = (block.as_ptr_range(), false);
        batch.for_each_part(|part| is_there |= place.contains(&part.as_ptr()));
        assert_eq!(is_there, stay, "{size}");
    }
}
