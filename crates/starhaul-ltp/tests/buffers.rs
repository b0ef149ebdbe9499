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
use starhaul_ltp::{Batch, Engine, EngineId, Event, Outgoing, PeerConfig};

/// What Linux grants without a privilege by default, as it counts it, and what it counts for a packet beside its data.
const BUFFER: usize = 2 * 212_992;
const PACKET: usize = 2800;
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
    filled: usize,
    turns: usize,
    /// When the receiver has time.
    free: Instant,
    lost: usize,
    batch: Batch,
}

impl World {
    fn new(delay: Duration, holds: usize, pause: Duration) -> Self {
        let (now, config) = (Instant::now(), PeerConfig::new(Duration::ZERO, None));
        let mut engines = [
            engine(SENDER, 1, &[RECEIVER], &config, now),
            engine(RECEIVER, 2, &[SENDER], &config, now),
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
            // As the kernel does: one that begins below the limit is kept.
            match self.filled < self.holds {
                true => {
                    self.filled += datagram.len() + PACKET;
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

    /// The receiver takes some of what waits.
    fn take(&mut self) {
        for datagram in self.buffer.drain(..AT_A_TIME.min(self.buffer.len())) {
            self.filled -= datagram.len() + PACKET;
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
