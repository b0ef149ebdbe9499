//! Two gateways, and bundles between them that come late, twice, out of order or never.

use std::{
    collections::BTreeMap,
    time::{Duration, Instant},
};

use bytes::Bytes;
use starhaul_dtn_client::flows::{Event, FlowId, Limits, Machine, Read};

pub(crate) const LIFETIME: Duration = Duration::from_secs(600);
pub(crate) const HEADER: &[u8] = b"target";

/// What became of a stream at the end that accepted it.
#[derive(Debug, Default, PartialEq)]
pub(crate) struct Taken {
    pub(crate) bytes: Vec<u8>,
    pub(crate) has_ended: bool,
    pub(crate) failed: Option<u32>,
}

/// A gateway, and what its applications have.
pub(crate) struct Side {
    pub(crate) machine: Machine,
    pub(crate) streams: BTreeMap<FlowId, Taken>,
    pub(crate) datagrams: Vec<Bytes>,
    pub(crate) began: Vec<FlowId>,
    pub(crate) ended: usize,
    /// Whether its applications read.
    pub(crate) reads: bool,
}

impl Side {
    pub(crate) fn new(life: u64) -> Self {
        let limits = Limits {
            flows: 4,
            window: 1 << 20,
            part_bytes: 1000,
        };
        Self {
            machine: Machine::new(life, limits),
            streams: BTreeMap::new(),
            datagrams: Vec::new(),
            began: Vec::new(),
            ended: 0,
            reads: true,
        }
    }

    pub(crate) fn work(&mut self, now: Instant) {
        self.machine.handle_timeout(now);
        while let Some(event) = self.machine.poll_event() {
            match event {
                Event::Accepted(id, header) => {
                    assert_eq!(header, HEADER);
                    let again = self.streams.insert(id, Taken::default());
                    assert!(again.is_none(), "accepted twice");
                }
                Event::FlowBegan(id, header) => {
                    assert_eq!(header, HEADER);
                    self.began.push(id);
                }
                Event::Datagrams(_, datagrams) => self.datagrams.extend(datagrams),
                Event::FlowEnded(_) => self.ended += 1,
                Event::Readable(_) | Event::Writable(_) => {}
            }
        }
        if !self.reads {
            return;
        }
        for (id, taken) in &mut self.streams {
            if taken.has_ended || taken.failed.is_some() {
                continue;
            }
            loop {
                match self.machine.read(*id) {
                    Ok(Some(Read::Data(data))) => taken.bytes.extend_from_slice(&data),
                    Ok(Some(Read::End)) => {
                        taken.has_ended = true;
                        self.machine.finish(*id);
                        self.machine.release(*id);
                        break;
                    }
                    Ok(None) => break,
                    Err(code) => {
                        taken.failed = Some(code);
                        self.machine.release(*id);
                        break;
                    }
                }
            }
        }
    }
}

/// Two gateways and the bundles between them.
pub(crate) struct Net {
    pub(crate) now: Instant,
    pub(crate) sides: [Side; 2],
    /// When each arrives, and where.
    pub(crate) flying: Vec<(Instant, usize, Bytes)>,
    pub(crate) seed: u64,
    /// How long bundles take at most, in seconds.
    pub(crate) delay: u64,
    /// Of 100 bundles, how many come twice, and how many never.
    pub(crate) repeated: u64,
    pub(crate) lost: u64,
    /// From when until when no contact is open: bundles wait for its end, or expire.
    pub(crate) closed: Option<(Instant, Instant)>,
}

impl Net {
    pub(crate) fn new(seed: u64, delay: u64) -> Self {
        Self {
            now: Instant::now(),
            sides: [Side::new(101), Side::new(102)],
            flying: Vec::new(),
            seed: seed | 1,
            delay,
            repeated: 0,
            lost: 0,
            closed: None,
        }
    }

    pub(crate) fn random(&mut self, below: u64) -> u64 {
        // xorshift64.
        self.seed ^= self.seed << 13;
        self.seed ^= self.seed >> 7;
        self.seed ^= self.seed << 17;
        self.seed % below.max(1)
    }

    pub(crate) fn open(&mut self, side: usize) -> FlowId {
        let header = Bytes::from_static(HEADER);
        let opened = self.sides[side]
            .machine
            .open_stream(self.now, 0, header, LIFETIME);
        let id = opened.unwrap();
        self.sides[side].streams.insert(id, Taken::default());
        id
    }

    /// Sends what can be sent.
    pub(crate) fn send(&mut self) {
        for side in [0, 1] {
            self.sides[side].work(self.now);
            while let Some(transmit) = self.sides[side].machine.poll_transmit(self.now) {
                let copies = match self.random(100) {
                    chance if chance < self.lost => 0,
                    chance if chance < self.lost + self.repeated => 2,
                    _ => 1,
                };
                for _ in 0..copies {
                    let delay = Duration::from_millis(self.random(1000 * self.delay + 1));
                    let leaves = self.leaves();
                    if leaves <= self.now + transmit.lifetime {
                        self.flying
                            .push((leaves + delay, 1 - side, transmit.payload.clone()));
                    }
                }
                self.sides[side].machine.stored();
                self.sides[side].work(self.now);
            }
        }
    }

    /// When a bundle leaves that is stored now.
    pub(crate) fn leaves(&self) -> Instant {
        match self.closed {
            Some((begins, ends)) if (begins..ends).contains(&self.now) => ends,
            _ => self.now,
        }
    }

    /// Lets the next thing happen; `false` if there is nothing before `end`.
    pub(crate) fn step(&mut self, end: Instant) -> bool {
        self.send();
        let arrival = self.flying.iter().map(|(at, _, _)| *at).min();
        let timers = self
            .sides
            .iter()
            .filter_map(|side| side.machine.next_timeout());
        let Some(next) = arrival
            .into_iter()
            .chain(timers)
            .min()
            .filter(|next| *next <= end)
        else {
            self.now = end;
            return false;
        };
        self.now = self.now.max(next);
        let arrived = self.flying.iter().position(|(at, _, _)| *at <= self.now);
        if let Some(place) = arrived {
            let (_, side, payload) = self.flying.remove(place);
            self.sides[side]
                .machine
                .handle(self.now, 0, payload)
                .unwrap();
        }
        true
    }

    pub(crate) fn run(&mut self, time: Duration) {
        let end = self.now + time;
        while self.step(end) {}
    }

    /// Writes all, and finishes.
    pub(crate) fn write(&mut self, side: usize, id: FlowId, data: &[u8]) {
        let mut rest = data;
        for _ in 0..1_000_000 {
            let taken = self.sides[side].machine.write(id, rest).unwrap();
            rest = &rest[taken..];
            if rest.is_empty() {
                return self.sides[side].machine.finish(id);
            }
            let end = self.now + LIFETIME;
            self.step(end);
        }
        panic!("the far side gives no credit");
    }
}
