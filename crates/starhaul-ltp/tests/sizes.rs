//! Segments whose size adapts, in virtual time: a processor that pays per call, packet and byte, and a path that loses packets. A call
//! carries a datagram, or all packets of a batch.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod pair;

use std::{
    collections::VecDeque,
    time::{Duration, Instant},
};

use bytes::Bytes;
use pair::{RECEIVER, SENDER, SERVICE, content};
use rand_chacha::{
    ChaCha8Rng,
    rand_core::{RngCore as _, SeedableRng as _},
};
use starhaul_ltp::{
    Batch, Engine, EngineConfig, EngineId, Outgoing, PeerConfig, RepairRate, SegmentSize,
    SizeReason,
};

const DELAY: Duration = Duration::from_millis(1);
/// Bytes of blocks under way.
const UNDER_WAY: u64 = 64_000_000;
/// Seconds of a system call.
const CALL: f64 = 100e-6;
/// Bytes of the headers of IP and UDP, and of IP.
const HEADERS: usize = 28;
const IP_HEADER: usize = 20;

/// What a system call takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Calls {
    /// One datagram.
    Single,
    /// All datagrams of a batch, if each is one packet, as segmentation offload takes them; else one datagram.
    Shared,
}

/// A path, and what sending costs.
#[derive(Clone, Copy, Debug)]
struct Model {
    calls: Calls,
    mtu: usize,
    /// The share of packets that is lost.
    loss: f64,
    /// Longer IP packets do not arrive.
    longest: usize,
    /// Datagrams of several packets do not arrive.
    drops_fragments: bool,
}

impl Model {
    fn new(mtu: usize, loss: f64) -> Self {
        Self {
            calls: Calls::Single,
            mtu,
            loss,
            longest: usize::MAX,
            drops_fragments: false,
        }
    }

    fn packets(&self, datagram: usize) -> usize {
        match datagram + HEADERS <= self.mtu {
            true => 1,
            false => (datagram + 8).div_ceil((self.mtu - IP_HEADER) / 8 * 8),
        }
    }

    /// Time of the sender's processor for a datagram, the first of its batch or not.
    fn cost(&self, datagram: usize, is_first: bool) -> Duration {
        let packets = self.packets(datagram);
        let call = match (self.calls, packets) {
            (Calls::Shared, 1) if !is_first => 0.0,
            _ => CALL,
        };
        Duration::from_secs_f64(call + 5e-6 * packets as f64 + 2e-9 * datagram as f64)
    }

    fn arrives(&self, datagram: usize, random: &mut ChaCha8Rng) -> bool {
        let packets = self.packets(datagram);
        if packets > 1 && self.drops_fragments || (datagram + HEADERS).min(self.mtu) > self.longest
        {
            return false;
        }
        let mut is_lost = || f64::from(random.next_u32()) / f64::from(u32::MAX) < self.loss;
        !(0..packets).any(|_| is_lost())
    }
}

/// A sender with data without end, and a receiver whose segments have a fixed size, as those of former versions.
struct World {
    model: Model,
    now: Instant,
    /// When the sender's processor has time.
    free: Instant,
    engines: [Engine; 2],
    flights: [VecDeque<(Instant, Vec<u8>)>; 2],
    batch: Batch,
    block: Bytes,
    random: ChaCha8Rng,
}

impl World {
    fn new(model: Model, size: SegmentSize, seed: u64) -> Self {
        Self::with_repair(model, size, None, seed)
    }

    fn with_repair(model: Model, size: SegmentSize, repair: Option<RepairRate>, seed: u64) -> Self {
        let now = Instant::now();
        let engine = |id: EngineId, peer, size| {
            let mut config = PeerConfig::new(Duration::ZERO, None);
            config.set_segment_size(size);
            config.set_repair(repair);
            let mut engine = Engine::new(EngineConfig::new(id, [7; 32]));
            engine.add_peer(now, peer, config).unwrap();
            engine.open_service(SERVICE);
            engine
        };
        let mut sender = engine(SENDER, RECEIVER, size);
        sender.set_path_mtu(now, RECEIVER, model.mtu);
        Self {
            model,
            now,
            free: now,
            engines: [sender, engine(RECEIVER, SENDER, SegmentSize::Bytes(1360))],
            flights: Default::default(),
            batch: Batch::new(65_507, 64),
            block: content(4_000_000, seed),
            random: ChaCha8Rng::seed_from_u64(seed),
        }
    }

    /// Bytes that arrive in a span.
    fn carried_in(&mut self, span: Duration) -> u64 {
        let before = self.engines[1].stats().red_bytes_received;
        let end = self.now + span;
        while self.now < end {
            self.step(end);
        }
        self.engines[1].stats().red_bytes_received - before
    }

    fn step(&mut self, end: Instant) {
        let now = self.now;
        for (at, from) in [SENDER, RECEIVER].into_iter().enumerate() {
            while self.flights[at].front().is_some_and(|(due, _)| *due <= now) {
                let (_, datagram) = self.flights[at].pop_front().unwrap();
                self.engines[1 - at].handle_datagrams(now, from, &datagram, datagram.len());
            }
        }
        for engine in &mut self.engines {
            engine.handle_timeout(now);
            while engine.poll_event().is_some() {}
        }
        while self.engines[1]
            .poll_transmit(now, &mut self.batch)
            .is_some()
        {
            for datagram in self.batch.contents().chunks(self.batch.segment_size()) {
                if self.model.arrives(datagram.len(), &mut self.random) {
                    self.flights[1].push_back((now + DELAY, datagram.to_vec()));
                }
            }
        }
        let has_sent = self.free <= now && self.send();
        let arrivals = self
            .flights
            .iter()
            .filter_map(|flight| Some(flight.front()?.0));
        let timers = self.engines.iter().filter_map(Engine::poll_timeout);
        let busy = (has_sent || self.free > now).then_some(self.free);
        let next = arrivals.chain(timers).chain(busy).min();
        self.now = next
            .unwrap_or(end)
            .max(now + Duration::from_nanos(1))
            .min(end);
    }

    /// Sends a batch, if there is one.
    fn send(&mut self) -> bool {
        while self.engines[0].send_bytes() < UNDER_WAY {
            let outgoing = Outgoing {
                to: RECEIVER,
                service: SERVICE,
                red: self.block.len() as u64,
                block: self.block.clone(),
            };
            self.engines[0].send(self.now, outgoing).unwrap();
        }
        if self.engines[0]
            .poll_transmit(self.now, &mut self.batch)
            .is_none()
        {
            return false;
        }
        self.free = self.now;
        let datagrams = self.batch.contents().chunks(self.batch.segment_size());
        for (number, datagram) in datagrams.enumerate() {
            self.free += self.model.cost(datagram.len(), number == 0);
            if self.model.arrives(datagram.len(), &mut self.random) {
                self.flights[0].push_back((self.free + DELAY, datagram.to_vec()));
            }
        }
        true
    }

    fn choice(&self) -> starhaul_ltp::SegmentChoice {
        self.engines[0].segment_choice(RECEIVER).unwrap()
    }
}

const WARM: Duration = Duration::from_millis(900);
/// Of thirty seeds each reached it.
const SEEDS: std::ops::Range<u64> = 1..4;
const MEASURED: Duration = Duration::from_millis(400);

fn adaptive_against_fixed(mtu: usize, calls: Calls, repair: Option<RepairRate>) {
    for (seed, loss) in SEEDS.flat_map(|seed| [0.0, 0.001, 0.01, 0.05].map(|loss| (seed, loss))) {
        let model = Model {
            calls,
            ..Model::new(mtu, loss)
        };
        let mut adaptive = World::with_repair(model, SegmentSize::Auto, repair, seed);
        adaptive.carried_in(WARM);
        let adapted = adaptive.carried_in(MEASURED);
        let coded = adaptive.engines[0].stats().repair_segments_sent;
        assert_eq!(coded, 0, "a retransmission is near, seed {seed}");
        let fixed = [1360, 8860, 11_484, 17_276, 34_652, 64_000].map(|bytes| {
            let mut world = World::new(model, SegmentSize::Bytes(bytes), seed);
            world.carried_in(MEASURED / 4);
            (world.carried_in(MEASURED), bytes)
        });
        let (best, bytes) = fixed.into_iter().max().unwrap();
        let choice = adaptive.choice();
        assert!(
            adapted as f64 >= 0.9 * best as f64,
            "MTU {mtu}, {calls:?} calls, loss {loss}, seed {seed}: {adapted} bytes with {choice:?}, {best} with {bytes}"
        );
    }
}

#[test]
fn over_ethernet_adaptive_segments_carry_as_much_as_the_best_fixed_ones() {
    adaptive_against_fixed(1500, Calls::Single, None);
}

#[test]
fn over_jumbo_frames_adaptive_segments_carry_as_much_as_the_best_fixed_ones() {
    adaptive_against_fixed(9000, Calls::Single, None);
}

#[test]
fn over_loopback_adaptive_segments_carry_as_much_as_the_best_fixed_ones() {
    adaptive_against_fixed(65_536, Calls::Single, None);
}

#[test]
fn over_ethernet_they_do_so_where_packets_share_calls() {
    adaptive_against_fixed(1500, Calls::Shared, None);
}

#[test]
fn over_jumbo_frames_they_do_so_where_packets_share_calls() {
    adaptive_against_fixed(9000, Calls::Shared, None);
}

#[test]
fn over_loopback_they_do_so_where_packets_share_calls() {
    adaptive_against_fixed(65_536, Calls::Shared, None);
}

/// Repair segments that follow the losses are made where a retransmission takes a second; elsewhere they change nothing.
#[test]
fn they_do_so_where_repair_segments_may_follow_the_losses() {
    adaptive_against_fixed(9000, Calls::Single, Some(RepairRate::Auto));
}

#[test]
fn a_path_that_drops_fragments_carries_what_single_packets_do() {
    let seed = 3;
    let model = Model {
        drops_fragments: true,
        ..Model::new(1500, 0.001)
    };
    let mut adaptive = World::new(model, SegmentSize::Auto, seed);
    adaptive.carried_in(WARM);
    let adapted = adaptive.carried_in(MEASURED * 2);
    let mut fixed = World::new(model, SegmentSize::Bytes(1360), seed);
    fixed.carried_in(WARM);
    let best = fixed.carried_in(MEASURED * 2);
    let choice = adaptive.choice();
    assert!(
        adapted * 10 >= best * 9,
        "{adapted} of {best}, {choice:?}, seed {seed}"
    );
    assert_eq!(
        (choice.data_bytes, choice.reason),
        (1360, SizeReason::BlackHole)
    );
    assert!(choice.black_holes == 1 && choice.probes <= 16, "{choice:?}");
}

/// No ICMP message tells that long packets are dropped from now on: reports stay away.
#[test]
fn a_path_that_begins_to_drop_long_packets_carries_short_ones() {
    let seed = 4;
    let mut world = World::new(Model::new(9000, 0.0), SegmentSize::Auto, seed);
    world.carried_in(WARM);
    assert!(world.choice().data_bytes >= 8860, "{:?}", world.choice());
    world.model.longest = 1500;
    world.carried_in(Duration::from_secs(3));
    let adapted = world.carried_in(MEASURED);
    let model = Model {
        longest: 1500,
        ..Model::new(9000, 0.0)
    };
    let mut fixed = World::new(model, SegmentSize::Bytes(1360), seed);
    let best = fixed.carried_in(MEASURED);
    let choice = world.choice();
    assert!(
        adapted * 10 >= best * 8,
        "{adapted} of {best}, {choice:?}, seed {seed}"
    );
    assert_eq!(choice.data_bytes, 1360, "{choice:?}");
}

/// A route with a smaller MTU is told of.
#[test]
fn sizes_follow_the_mtu_that_is_told() {
    let mut world = World::new(Model::new(9000, 0.0), SegmentSize::Auto, 5);
    world.carried_in(WARM);
    assert!(world.choice().data_bytes >= 8860);
    world.model.mtu = 1280;
    world.engines[0].set_path_mtu(world.now, RECEIVER, 1280);
    let choice = world.choice();
    assert_eq!((choice.data_bytes, choice.packets), (1140, 1), "{choice:?}");
    assert!(world.carried_in(MEASURED) > 1_000_000);
}
