//! A receiver whose socket holds little: what it does not take in time is lost, and its sender has to know before.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod pair;

use std::{
    collections::VecDeque,
    time::{Duration, Instant},
};

use pair::{
    RECEIVER, SENDER, SERVICE, content,
    direct::{accepting, converse, delivered, engine, output},
};
use starhaul_ltp::{Batch, Body, Engine, EngineId, Event, Outgoing, PeerConfig, parse};

/// What Linux grants without a privilege by default, as it counts it.
const BUFFER: usize = 2 * 212_992;
/// What it counts for a packet of Ethernet that comes over a link: a page, and what describes it.
const PAGE: usize = 4096 + 256;
/// What it counts for a packet over loopback beside a buffer of a power of two, in which its headers and further notes are, too.
const DESCRIPTION: usize = 256;
const HEADERS: usize = 28 + 64 + 320;
/// Longer buffers are pages, beside a short one.
const LONGEST_BUFFER: usize = 16 << 10;
/// Datagrams that a receiver takes at a time, and how long that takes it.
const AT_A_TIME: usize = 16;
const TAKING: Duration = Duration::from_micros(30);
/// After so many times something else has its processor for a while.
const TURNS: usize = 100;
const PAUSE: Duration = Duration::from_millis(30);

/// Two engines; what the sender sends arrives after `delay`, as soon as it is made, and waits in a buffer of `holds` bytes of memory.
struct World {
    now: Instant,
    delay: Duration,
    holds: usize,
    pause: Duration,
    engines: [Engine; 2],
    flights: [VecDeque<(Instant, Vec<u8>)>; 2],
    buffer: VecDeque<Vec<u8>>,
    /// Memory of what is there, and of what was taken but is still counted.
    filled: usize,
    taken: usize,
    /// The MTU of loopback; none over a link, over which all are packets of Ethernet.
    loopback: Option<usize>,
    turns: usize,
    /// When the receiver has time.
    free: Instant,
    lost: usize,
    batch: Batch,
}

impl World {
    fn new(delay: Duration, holds: usize, pause: Duration) -> Self {
        let config = PeerConfig::new(Duration::ZERO, None);
        Self::with(&config, delay, holds, pause)
    }

    /// Over loopback with this MTU, with segments of this size.
    fn over_loopback(mtu: usize, segment: Option<usize>) -> Self {
        let mut config = PeerConfig::new(Duration::ZERO, None);
        if let Some(bytes) = segment {
            (config.adapts_segments, config.segment_data) = (false, bytes);
        }
        let mut world = Self::with(&config, Duration::from_micros(10), BUFFER, PAUSE);
        world.loopback = Some(mtu);
        world.engines[0].set_on_this_host(RECEIVER, true);
        world.engines[0].set_path_mtu(world.now, RECEIVER, mtu);
        world
    }

    fn with(config: &PeerConfig, delay: Duration, holds: usize, pause: Duration) -> Self {
        let now = Instant::now();
        let mut engines = [
            engine(SENDER, 1, &[RECEIVER], config, now),
            engine(RECEIVER, 2, &[SENDER], config, now),
        ];
        for engine in &mut engines {
            engine.set_receive_buffer(BUFFER);
        }
        Self {
            now,
            delay,
            holds,
            pause,
            engines,
            flights: Default::default(),
            buffer: VecDeque::new(),
            filled: 0,
            taken: 0,
            loopback: None,
            turns: 0,
            free: now,
            lost: 0,
            batch: Batch::new(65_507, 64),
        }
    }

    /// Sends a block; how long that takes.
    fn send(&mut self, bytes: usize) -> Duration {
        let (begun, block) = (self.now, content(bytes, 1));
        let outgoing = Outgoing {
            to: RECEIVER,
            service: SERVICE,
            red: bytes as u64,
            block,
        };
        let session = self.engines[0].send(self.now, outgoing).unwrap();
        let mut is_sent = false;
        while !is_sent {
            let took = self.now - begun;
            assert!(took < Duration::from_secs(60), "{} lost", self.lost);
            self.step();
            while let Some(event) = self.engines[0].poll_event() {
                is_sent |= event == Event::Sent { session };
            }
            while self.engines[1].poll_event().is_some() {}
        }
        self.now - begun
    }

    fn step(&mut self) {
        let now = self.now;
        for engine in &mut self.engines {
            engine.handle_timeout(now);
        }
        let is_there = |flight: &VecDeque<(Instant, Vec<u8>)>| {
            let first = flight.front();
            first.is_some_and(|(at, _)| *at <= now)
        };
        while is_there(&self.flights[0]) {
            let (_, datagram) = self.flights[0].pop_front().unwrap();
            // As the kernel does: one that does not fit is lost.
            let memory = self.memory(datagram.len());
            match self.filled.saturating_add(memory) <= self.holds {
                true => {
                    self.filled += memory;
                    self.buffer.push_back(datagram);
                }
                false => self.lost += 1,
            }
        }
        while is_there(&self.flights[1]) {
            let (_, datagram) = self.flights[1].pop_front().unwrap();
            self.engines[0].handle_datagrams(now, RECEIVER, &datagram, datagram.len());
        }
        if self.free <= now && !self.buffer.is_empty() {
            self.take();
        }
        let due = now + self.delay;
        for at in [0, 1] {
            while self.engines[at]
                .poll_transmit(now, &mut self.batch)
                .is_some()
            {
                for datagram in self.batch.contents().chunks(self.batch.segment_size()) {
                    self.flights[at].push_back((due, datagram.to_vec()));
                }
            }
        }
        let flights = self.flights.iter();
        let arrivals = flights.filter_map(|flight| Some(flight.front()?.0));
        let timers = self.engines.iter().filter_map(Engine::poll_timeout);
        let busy = (!self.buffer.is_empty()).then_some(self.free);
        let next = arrivals.chain(timers).chain(busy).min();
        let least = now + Duration::from_nanos(1);
        self.now = next.map_or(least, |next| next.max(least));
    }

    /// What the kernel counts for a datagram.
    fn memory(&self, bytes: usize) -> usize {
        let Some(mtu) = self.loopback else {
            return PAGE;
        };
        let buffer = |bytes: usize| match bytes + HEADERS <= LONGEST_BUFFER {
            true => DESCRIPTION + (bytes + HEADERS).next_power_of_two(),
            false => DESCRIPTION + bytes + 1024,
        };
        // Fragments have a multiple of eight bytes behind their own header.
        let most = (mtu - 20) / 8 * 8;
        match bytes + 28 <= mtu {
            true => buffer(bytes),
            false => (bytes + 8) / most * buffer(most) + buffer((bytes + 8) % most),
        }
    }

    /// The receiver takes some of what waits.
    fn take(&mut self) {
        for _ in 0..AT_A_TIME {
            let Some(datagram) = self.buffer.pop_front() else {
                break;
            };
            self.taken += self.memory(datagram.len());
            // The kernel counts it as there until a quarter of the limit was taken, or nothing is left.
            if self.taken >= self.holds / 4 || self.buffer.is_empty() {
                self.filled -= std::mem::take(&mut self.taken);
            }
            self.engines[1].handle_datagrams(self.now, SENDER, &datagram, datagram.len());
        }
        self.turns += 1;
        self.free = self.now + TAKING;
        if self.turns.is_multiple_of(TURNS) {
            self.free += self.pause;
        }
    }
}

/// As over loopback, and in a local network.
#[test]
fn over_a_short_way_no_datagram_is_lost_to_a_small_buffer() {
    for micros in [10, 150] {
        let mut world = World::new(Duration::from_micros(micros), BUFFER, PAUSE);
        for bytes in [30_000, 8_000_000, 8_000_000] {
            let took = world.send(bytes);
            assert_eq!(world.lost, 0, "{micros} µs: {bytes} bytes");
            // The receiver's own work is some 11 ms, and some pauses.
            let most = Duration::from_secs(1);
            assert!(took < most, "{micros} µs: {bytes} bytes took {took:?}");
        }
    }
}

/// Segments of a size that is told fill several packets, or one of a long MTU, and the kernel counts more for them than their data.
#[test]
fn over_loopback_no_segment_of_any_size_is_lost_to_a_small_buffer() {
    for (mtu, segment) in [
        (1500, Some(1360)),
        (1500, Some(4400)),
        (1500, Some(64_000)),
        (4500, Some(4350)),
        (4500, Some(64_000)),
        (9000, Some(8860)),
        (9702, Some(64_000)),
        (65_536, Some(1360)),
        (65_536, Some(16_000)),
        (65_536, Some(64_000)),
        (1500, None),
        (9000, None),
        (65_536, None),
    ] {
        let mut world = World::over_loopback(mtu, segment);
        for bytes in [30_000, 8_000_000, 8_000_000] {
            let took = world.send(bytes);
            assert_eq!(world.lost, 0, "MTU {mtu}, {segment:?}: {bytes} bytes");
            let most = Duration::from_secs(1);
            assert!(
                took < most,
                "MTU {mtu}, {segment:?}: {bytes} bytes took {took:?}"
            );
        }
    }
}

/// What is under way over a long way is in no buffer, and a small one must not make it slow.
#[test]
fn over_a_long_way_a_small_buffer_limits_nothing() {
    let mut world = World::new(Duration::from_millis(20), usize::MAX, Duration::ZERO);
    let took = world.send(32_000_000);
    // With what the buffer holds in each round trip it would be a quarter of a minute.
    assert!(took < Duration::from_secs(1), "{took:?}");
    assert_eq!(world.lost, 0);
}

/// Several senders share the buffer.
#[test]
fn each_of_several_senders_is_told_its_share() {
    let (now, config) = (Instant::now(), PeerConfig::new(Duration::ZERO, None));
    let others: Vec<EngineId> = (10..14).map(EngineId).collect();
    let peers = [&[SENDER][..], &others].concat();
    let mut receiver = engine(RECEIVER, 2, &peers, &config, now);
    receiver.set_receive_buffer(BUFFER);
    let mut under_way = Vec::new();
    for begun in 0..=others.len() {
        // Each life of it has numbers of its own.
        let life = u8::try_from(10 + begun).unwrap();
        let mut sender = engine(SENDER, life, &[RECEIVER], &config, now);
        sender.set_receive_buffer(BUFFER);
        let block = |bytes: usize| Outgoing {
            to: RECEIVER,
            service: SERVICE,
            red: bytes as u64,
            block: content(bytes, 1),
        };
        // The report on a first block tells.
        sender.send(now, block(100_000)).unwrap();
        converse(&mut sender, &mut receiver, now);
        sender.send(now, block(4_000_000)).unwrap();
        let segments = output(&mut sender, now);
        under_way.push(segments.iter().map(Vec::len).sum::<usize>());
        // One more has begun a block that stays unfinished.
        if let Some(other) = others.get(begun) {
            let mut other = engine(*other, 3, &[RECEIVER], &config, now);
            other.send(now, block(10_000)).unwrap();
            let first = output(&mut other, now).swap_remove(0);
            receiver.handle_datagrams(now, other.id(), &first, first.len());
        }
    }
    assert!(under_way.is_sorted_by(|a, b| a >= b), "{under_way:?}");
    assert!((50_000..150_000).contains(&under_way[0]), "{under_way:?}");
    let last = under_way[others.len()];
    assert!((15_000..40_000).contains(&last), "{under_way:?}");
}

/// A store answers late, and is asked for nothing else where blocks have one segment each.
#[test]
fn small_blocks_leave_while_those_before_them_wait_to_be_accepted() {
    let now = Instant::now();
    let config = PeerConfig::new(Duration::ZERO, None);
    for bytes in [1000, 3000] {
        let mut sender = engine(SENDER, 1, &[RECEIVER], &config, now);
        let mut receiver = accepting(&config, now);
        sender.set_receive_buffer(BUFFER);
        receiver.set_receive_buffer(BUFFER);
        for number in 0..2000 {
            let outgoing = Outgoing {
                to: RECEIVER,
                service: SERVICE,
                red: bytes as u64,
                block: content(bytes, number),
            };
            sender.send(now, outgoing).unwrap();
        }
        converse(&mut sender, &mut receiver, now);
        assert_eq!(delivered(&mut receiver).len(), 2000, "{bytes} bytes each");
    }
}

/// A size that waits to be tried out is that of whole blocks to come. What is sent again counts as what it is, and has room beside it.
#[test]
fn repairs_do_not_wait_for_the_room_of_a_size_that_is_tried_out() {
    let now = Instant::now();
    let config = PeerConfig::new(Duration::ZERO, None);
    let mut sender = engine(SENDER, 1, &[RECEIVER], &config, now);
    let mut receiver = engine(RECEIVER, 2, &[SENDER], &config, now);
    sender.set_on_this_host(RECEIVER, true);
    // Less than a segment that fills a packet of loopback takes.
    sender.set_receive_buffer(64 << 10);
    receiver.set_receive_buffer(64 << 10);
    sender.set_path_mtu(now, RECEIVER, 65_536);
    let block = content(20_000, 1);
    let outgoing = Outgoing {
        to: RECEIVER,
        service: SERVICE,
        red: block.len() as u64,
        block: block.clone(),
    };
    sender.send(now, outgoing).unwrap();
    let segments = output(&mut sender, now);
    for (number, segment) in segments.iter().enumerate() {
        if ![2, 5, 8].contains(&number) {
            receiver.handle_datagrams(now, SENDER, segment, segment.len());
        }
    }
    for report in output(&mut receiver, now) {
        sender.handle_datagrams(now, RECEIVER, &report, report.len());
    }
    let again = output(&mut sender, now);
    let data = again.iter().filter(|datagram| {
        let (segment, _) = parse(datagram).unwrap();
        matches!(segment.body, Body::Data(data) if data.payload.len() <= 1360)
    });
    assert_eq!(data.count(), 3, "all that is lost leaves at once");
    for segment in &again {
        receiver.handle_datagrams(now, SENDER, segment, segment.len());
    }
    converse(&mut sender, &mut receiver, now);
    assert_eq!(delivered(&mut receiver), [block]);
}
