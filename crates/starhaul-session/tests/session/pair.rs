//! Two sessions in virtual time over emulated links, each path paced at a known rate as by a dedicated controller.

#![allow(
    dead_code,
    unreachable_pub,
    clippy::unwrap_used,
    reason = "a harness of which each test uses a part"
)]

use std::{
    collections::BTreeMap,
    time::{Duration, Instant},
};

use bytes::Bytes;
use starhaul_link::{Delay, Link, LinkSpec, Loss, Rate, link_seed};
use starhaul_session::{
    BlockId, BlockOptions, Event, Outcome, PathId, PathUpdate, SchedulerChoice, Session,
    SessionConfig, Side, StreamConfig, StreamId,
};
use starhaul_units::Bandwidth;

/// UDP, IP and QUIC around a session datagram.
const OVERHEAD_BYTES: usize = 28 + 38;
/// First byte of what is no datagram of a session but the transport's acknowledgement.
const TRANSPORT_ACK: u8 = 0xff;
/// Datagrams that each of these names.
const ACKED_AGAIN: usize = 16;

pub struct Lane {
    pub rate: Bandwidth,
    pub rtt: Duration,
    pub cost: f64,
    pub links: [Link<Bytes>; 2],
    pub up: bool,
    pub max_datagram: usize,
    /// What the sessions are told of it, when not the truth.
    pub told: Option<PathUpdate>,
    /// The transport acknowledges every datagram over the path itself, at no cost.
    pub answers: bool,
    /// Numbers of the last datagrams that arrived, each way.
    arrived: [Vec<u8>; 2],
    next_send: [Instant; 2],
}

/// A datagram that a session gave to a path.
pub struct Sent {
    pub at: Duration,
    pub path: PathId,
    pub payload: Bytes,
}

/// What the header of a fragment says.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct SentFragment {
    pub at: Duration,
    pub path: PathId,
    pub stream: u32,
    pub block: u32,
    pub code: u8,
    pub index: u8,
    pub data_count: u8,
    pub redundancy_count: u8,
}

impl Sent {
    pub fn fragment(&self) -> Option<SentFragment> {
        let word = |at: usize| u32::from_be_bytes(self.payload[at..at + 4].try_into().unwrap());
        (self.payload[0] == 1).then(|| SentFragment {
            at: self.at,
            path: self.path,
            stream: word(9),
            block: word(13),
            code: self.payload[21],
            index: self.payload[23],
            data_count: self.payload[24],
            redundancy_count: self.payload[25],
        })
    }

    /// A frame of a reliable stream: stream and offset.
    pub fn frame(&self) -> Option<(u32, u64)> {
        let stream = || u32::from_be_bytes(self.payload[9..13].try_into().unwrap());
        let offset = || u64::from_be_bytes(self.payload[13..21].try_into().unwrap());
        (self.payload[0] == 2).then(|| (stream(), offset()))
    }
}

pub struct Pair {
    pub now: Instant,
    pub start: Instant,
    pub sessions: [Session; 2],
    pub lanes: BTreeMap<PathId, Lane>,
    pub events: [Vec<(Duration, Event)>; 2],
    /// Every datagram each side sent, in order.
    pub sent: [Vec<Sent>; 2],
}

impl Pair {
    pub fn new(config: SessionConfig) -> Self {
        Self::with_clocks(config, Duration::ZERO)
    }

    /// Both choose paths by this scheduler.
    pub fn by(scheduler: SchedulerChoice, config: SessionConfig) -> Self {
        let mut pair = Self::new(config.clone());
        let session = |side| {
            let scheduler = scheduler.build();
            Session::with_scheduler(config.clone(), side, pair.start, scheduler)
        };
        pair.sessions = [session(Side::Client), session(Side::Server)];
        pair
    }

    /// The server's clock began `ahead` before the client's.
    pub fn with_clocks(config: SessionConfig, ahead: Duration) -> Self {
        let now = Instant::now() + ahead;
        let session = |side, now| Session::new(config.clone(), side, now);
        Self {
            now,
            start: now,
            sessions: [
                session(Side::Client, now),
                session(Side::Server, now - ahead),
            ],
            lanes: BTreeMap::new(),
            events: [Vec::new(), Vec::new()],
            sent: [Vec::new(), Vec::new()],
        }
    }

    /// A path of `mbit` with `delay_ms` one way, paced just below its rate on both sides.
    pub fn lane(&mut self, id: u32, mbit: f64, delay_ms: u64, loss: f64, cost: f64, seed: u64) {
        let rate = Bandwidth::from_mbit(1).scaled(mbit);
        let delay = Duration::from_millis(delay_ms);
        let spec = LinkSpec::constant(rate, delay).with_loss(Loss::bernoulli(loss).unwrap());
        self.lane_of([&spec, &spec], cost, id, seed);
    }

    /// A path of links written as text, both of constant rate and delay.
    pub fn text_lane(&mut self, id: u32, spec: &str, cost: f64, seed: u64) {
        let spec: LinkSpec = spec.parse().unwrap();
        self.lane_of([&spec, &spec], cost, id, seed);
    }

    /// A path with a link for each direction, both of constant delay and the same constant rate.
    pub fn lane_of(&mut self, specs: [&LinkSpec; 2], cost: f64, id: u32, seed: u64) {
        let (Rate::Constant(rate), [Delay::Constant(there), Delay::Constant(back)]) =
            (specs[0].rate.clone(), specs.map(|spec| spec.delay.clone()))
        else {
            panic!("the harness paces at a constant rate");
        };
        let links = [0, 1].map(|way| {
            let number = 2 * usize::try_from(id).unwrap() + way;
            Link::new(specs[way], link_seed(seed, number), self.now)
        });
        let lane = Lane {
            rate,
            rtt: there + back,
            cost,
            links,
            up: true,
            max_datagram: 1320,
            told: None,
            answers: false,
            arrived: [Vec::new(), Vec::new()],
            next_send: [self.now; 2],
        };
        self.lanes.insert(PathId(id), lane);
        self.attach(id);
    }

    /// Cuts a path's links, or mends them; the sessions are not told.
    pub fn cut(&mut self, id: u32, is_cut: bool) {
        self.cut_ways(id, [is_cut; 2]);
    }

    /// The same for each direction by itself: the client's, the server's.
    pub fn cut_ways(&mut self, id: u32, are_cut: [bool; 2]) {
        let now = self.now;
        let links = &mut self.lanes.get_mut(&PathId(id)).unwrap().links;
        for (link, is_cut) in links.iter_mut().zip(are_cut) {
            if is_cut {
                link.set_down(now);
            } else {
                link.set_up(now);
            }
        }
    }

    /// Takes a path away from both sessions.
    pub fn detach(&mut self, id: u32) {
        self.lanes.remove(&PathId(id));
        for session in &mut self.sessions {
            session.remove_path(self.now, PathId(id));
        }
    }

    /// The transport of every path acknowledges what arrives, over the path itself.
    pub fn answer(&mut self) {
        self.lanes.values_mut().for_each(|lane| lane.answers = true);
    }

    pub fn attach(&mut self, id: u32) {
        let id = PathId(id);
        let update = self.lanes[&id].update();
        for session in &mut self.sessions {
            session.add_path(self.now, id, self.lanes[&id].cost, update);
        }
    }

    pub fn elapsed(&self) -> Duration {
        self.now - self.start
    }

    /// Runs until `until` after the start.
    pub fn run_until(&mut self, until: Duration) {
        let end = self.start + until;
        loop {
            self.drain();
            let next = self.next_event().filter(|next| *next <= end);
            let Some(next) = next else { break };
            assert!(next > self.now, "time stands still at {:?}", self.elapsed());
            self.now = next;
            self.deliver();
            for session in &mut self.sessions {
                if session.poll_timeout().is_some_and(|at| at <= self.now) {
                    session.handle_timeout(self.now);
                }
            }
        }
        self.now = end;
    }

    pub fn run_for(&mut self, time: Duration) {
        self.run_until(self.elapsed() + time);
    }

    fn next_event(&mut self) -> Option<Instant> {
        let mut all: Vec<Instant> = self
            .sessions
            .iter()
            .filter_map(Session::poll_timeout)
            .collect();
        for lane in self.lanes.values() {
            all.extend(lane.links.iter().filter_map(Link::next_event));
            all.extend(lane.next_send);
        }
        all.into_iter().filter(|at| *at > self.now).min()
    }

    fn deliver(&mut self) {
        for (id, lane) in &mut self.lanes {
            for way in 0..2 {
                while let Some(outcome) = lane.links[way].poll(self.now) {
                    let Some(arrival) = outcome.arrived() else {
                        continue;
                    };
                    let datagram = arrival.packet;
                    if let Some(numbers) = datagram.strip_prefix(&[TRANSPORT_ACK]) {
                        for number in numbers.chunks(4) {
                            let number = u32::from_be_bytes(number.try_into().unwrap());
                            self.sessions[1 - way].handle_transport_acks(self.now, *id, [number]);
                        }
                        continue;
                    }
                    let arrived = &mut lane.arrived[way];
                    arrived.extend_from_slice(&datagram[1..5]);
                    arrived.drain(..arrived.len().saturating_sub(4 * ACKED_AGAIN));
                    if lane.answers {
                        let answer = [&[TRANSPORT_ACK], arrived.as_slice()].concat();
                        lane.links[1 - way].enqueue(self.now, 1, answer.into());
                    }
                    self.sessions[1 - way]
                        .handle_datagram(self.now, *id, datagram)
                        .unwrap();
                }
            }
        }
    }

    fn drain(&mut self) {
        for side in 0..2 {
            let mut sent = true;
            while std::mem::take(&mut sent) {
                for (id, lane) in &mut self.lanes {
                    if !lane.up || lane.next_send[side] > self.now {
                        continue;
                    }
                    let session = &mut self.sessions[side];
                    session.update_path(self.now, *id, lane.update());
                    if let Some(datagram) = session.poll_datagram(self.now, *id) {
                        self.sent[side].push(Sent {
                            at: self.now - self.start,
                            path: *id,
                            payload: datagram.payload.clone(),
                        });
                        let bytes = datagram.payload.len() + OVERHEAD_BYTES;
                        lane.next_send[side] = self.now + lane.rate.time_to_send(bytes as u64);
                        lane.links[side].enqueue(self.now, bytes, datagram.payload);
                        sent = true;
                    }
                }
            }
            while let Some(event) = self.sessions[side].poll_event() {
                self.events[side].push((self.now - self.start, event));
            }
        }
    }

    /// Fragments that `side` sent, in order.
    pub fn fragments(&self, side: usize) -> Vec<SentFragment> {
        self.sent[side].iter().filter_map(Sent::fragment).collect()
    }

    /// The one outcome of a block that the client sent.
    pub fn outcome(&self, stream: StreamId, block: BlockId) -> Option<Outcome> {
        let mut found = self
            .outcomes(0)
            .into_iter()
            .filter(|(s, b, _)| (*s, *b) == (stream.0, block.0));
        let outcome = found.next();
        assert_eq!(found.next(), None, "a block ends once");
        outcome.map(|(_, _, outcome)| outcome)
    }

    /// The client opens a stream.
    pub fn open(&mut self, config: StreamConfig) -> StreamId {
        self.sessions[0].open_stream(self.now, config).unwrap()
    }

    /// The client sends a block of `bytes`.
    pub fn send(&mut self, stream: StreamId, bytes: usize, options: BlockOptions) -> BlockId {
        let data = pattern(stream.0 as usize, bytes);
        self.sessions[0]
            .send_block(self.now, stream, data, options)
            .unwrap()
    }

    /// Outcomes of blocks that `side` sent, in order of ending.
    pub fn outcomes(&self, side: usize) -> Vec<(u32, u32, Outcome)> {
        let outcome = |(_, event): &(Duration, Event)| match event {
            Event::BlockOutcome {
                stream,
                block,
                outcome,
            } => Some((stream.0, block.0, *outcome)),
            _ => None,
        };
        self.events[side].iter().filter_map(outcome).collect()
    }

    /// How many of the blocks that the client sent were in time.
    pub fn on_time(&self) -> usize {
        let outcomes = self.outcomes(0);
        outcomes
            .iter()
            .filter(|(_, _, outcome)| is_on_time(*outcome))
            .count()
    }

    /// Blocks that `side` received: when, stream, block, bytes, latency.
    pub fn received(&self, side: usize) -> Vec<(Duration, u32, u32, Bytes, Duration)> {
        let block = |(at, event): &(Duration, Event)| match event {
            Event::BlockReceived {
                stream,
                block,
                data,
                latency,
            } => Some((*at, stream.0, block.0, data.clone(), *latency)),
            _ => None,
        };
        self.events[side].iter().filter_map(block).collect()
    }
}

impl Lane {
    fn update(&self) -> PathUpdate {
        let truth = PathUpdate {
            cwnd: 100_000_000,
            bytes_in_flight: 0,
            bandwidth: self.rate,
            smoothed_rtt: self.rtt,
            min_rtt: self.rtt,
            max_datagram: self.max_datagram,
        };
        self.told.unwrap_or(truth)
    }
}

/// Bytes that differ from place to place and from seed to seed.
pub fn pattern(seed: usize, bytes: usize) -> Bytes {
    (0..bytes)
        .map(|at| ((at + seed).wrapping_mul(0x9E37_79B9) >> 13).to_le_bytes()[0])
        .collect()
}

pub const fn ms(milliseconds: u64) -> Duration {
    Duration::from_millis(milliseconds)
}

pub fn is_on_time(outcome: Outcome) -> bool {
    matches!(outcome, Outcome::Delivered { on_time: true, .. })
}
