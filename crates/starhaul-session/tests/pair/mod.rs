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
use starhaul_link::{Link, LinkSpec, Loss};
use starhaul_session::{Event, Outcome, PathId, PathUpdate, Session, SessionConfig, Side};
use starhaul_units::Bandwidth;

/// UDP, IP and QUIC around a session datagram.
const OVERHEAD_BYTES: usize = 28 + 38;

pub struct Lane {
    pub rate: Bandwidth,
    pub rtt: Duration,
    pub cost: f64,
    pub links: [Link<Bytes>; 2],
    pub up: bool,
    next_send: [Instant; 2],
}

pub struct Pair {
    pub now: Instant,
    pub start: Instant,
    pub sessions: [Session; 2],
    pub lanes: BTreeMap<PathId, Lane>,
    pub events: [Vec<(Duration, Event)>; 2],
}

impl Pair {
    pub fn new(config: SessionConfig) -> Self {
        let now = Instant::now();
        let session = |side| Session::new(config.clone(), side, now);
        Self {
            now,
            start: now,
            sessions: [session(Side::Client), session(Side::Server)],
            lanes: BTreeMap::new(),
            events: [Vec::new(), Vec::new()],
        }
    }

    /// A path of `mbit` with `delay_ms` one way, paced just below its rate on both sides.
    pub fn lane(&mut self, id: u32, mbit: f64, delay_ms: u64, loss: f64, cost: f64, seed: u64) {
        let rate = Bandwidth::from_mbit(1).scaled(mbit);
        let delay = Duration::from_millis(delay_ms);
        let spec = LinkSpec::constant(rate, delay).with_loss(Loss::bernoulli(loss).unwrap());
        let links =
            [0, 1].map(|way| Link::new(&spec, seed * 31 + u64::from(id) * 2 + way, self.now));
        let lane = Lane {
            rate,
            rtt: delay * 2,
            cost,
            links,
            up: true,
            next_send: [self.now; 2],
        };
        self.lanes.insert(PathId(id), lane);
        self.attach(id);
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
            for (way, link) in lane.links.iter_mut().enumerate() {
                while let Some(datagram) = link.poll(self.now) {
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
        PathUpdate {
            cwnd: 100_000_000,
            bytes_in_flight: 0,
            bandwidth: self.rate,
            smoothed_rtt: self.rtt,
            min_rtt: self.rtt,
            max_datagram: 1320,
        }
    }
}
