//! Two engines in virtual time over a simulated link.

#![allow(dead_code, unreachable_pub, reason = "each test uses its part")]

pub mod direct;

use std::{
    collections::VecDeque,
    time::{Duration, Instant},
};

use bytes::Bytes;
use starhaul_ltp::{
    Batch, Body, DataKind, End, Engine, EngineConfig, EngineId, Event, Outgoing, PeerConfig,
    Segment, SessionId, parse,
};
use starhaul_sim::{Delivery, HEADER_BYTES, Load, MTU_BYTES, Node, Packet, PathLinks, Simulation};

pub const SENDER: EngineId = EngineId(1);
pub const RECEIVER: EngineId = EngineId(2);
pub const SERVICE: u64 = 1;

/// The kinds of segments of RFC 5326 §3.1.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    Red,
    Checkpoint,
    RedEnd,
    Green,
    GreenEnd,
    Repair,
    Report,
    ReportAck,
    CancelBySender,
    CancelByReceiver,
    CancelAckToSender,
    CancelAckToReceiver,
}

impl Kind {
    pub fn of(segment: &Segment<'_>) -> Self {
        match segment.body {
            Body::Data(data) => match data.kind {
                DataKind::Red => Self::Red,
                DataKind::RedCheckpoint => Self::Checkpoint,
                DataKind::RedEnd | DataKind::RedEndOfBlock => Self::RedEnd,
                DataKind::Green => Self::Green,
                DataKind::GreenEndOfBlock => Self::GreenEnd,
            },
            Body::Repair(_) | Body::Parity(_) => Self::Repair,
            Body::Report(_) => Self::Report,
            Body::ReportAck { .. } => Self::ReportAck,
            Body::Cancel {
                by: End::Sender, ..
            } => Self::CancelBySender,
            Body::Cancel {
                by: End::Receiver, ..
            } => Self::CancelByReceiver,
            Body::CancelAck { by: End::Sender } => Self::CancelAckToSender,
            Body::CancelAck { by: End::Receiver } => Self::CancelAckToReceiver,
        }
    }
}

/// What becomes of a segment that an engine sends.
pub type Filter = Box<dyn FnMut(&Segment<'_>) -> bool>;

/// A UDP datagram on its way.
#[derive(Clone, Debug)]
pub struct Carried {
    payload: Bytes,
    /// Its size on a link, with the headers of IP and UDP.
    bytes: usize,
}

impl Carried {
    /// On a path with this MTU. The links of the simulation drop what is longer than [`MTU_BYTES`]: of that, what the path carries counts as
    /// just so long.
    fn new(payload: &[u8], mtu: usize) -> Self {
        let bytes = payload.len() + HEADER_BYTES;
        Self {
            payload: Bytes::copy_from_slice(payload),
            bytes: match bytes <= mtu {
                true => bytes.min(MTU_BYTES),
                false => bytes,
            },
        }
    }
}

impl Load for Carried {
    fn bytes(&self) -> usize {
        self.bytes
    }
}

/// An engine as a node of the simulation.
pub struct LtpNode {
    pub engine: Engine,
    peer: EngineId,
    to: std::net::SocketAddr,
    batch: Batch,
    pub events: Vec<(Instant, Event)>,
    /// Segments for which it is false are lost.
    pub passes: Filter,
    /// The same on their arrival.
    pub hears: Filter,
    /// Every segment that was to be sent.
    pub sent: Vec<Kind>,
    pub keeps_log: bool,
    /// Bytes of the longest IP packet of its own that the path carries; links carry [`MTU_BYTES`] at least.
    pub mtu: usize,
}

impl Node for LtpNode {
    type Load = Carried;

    fn handle_packet(&mut self, now: Instant, packet: Delivery<Carried>) {
        let payload = &packet.load.payload;
        if self.keeps_log && !(self.hears)(&parse(payload).unwrap().0) {
            return;
        }
        self.engine
            .handle_datagrams(now, self.peer, payload, payload.len());
        self.drain(now);
    }

    fn poll_transmit(&mut self, now: Instant, out: &mut VecDeque<Packet<Carried>>) {
        // The simulation asks again only after a packet, so a batch that was lost as a whole is followed by the next.
        while out.is_empty() && self.engine.poll_transmit(now, &mut self.batch).is_some() {
            self.pass(out);
        }
        self.drain(now);
    }

    fn poll_timeout(&mut self) -> Option<Instant> {
        self.engine.poll_timeout()
    }

    fn handle_timeout(&mut self, now: Instant) {
        self.engine.handle_timeout(now);
        self.drain(now);
    }
}

impl LtpNode {
    fn pass(&mut self, out: &mut VecDeque<Packet<Carried>>) {
        for segment in self.batch.contents().chunks(self.batch.segment_size()) {
            if self.keeps_log {
                let (parsed, rest) = parse(segment).unwrap();
                assert!(rest.is_empty());
                self.sent.push(Kind::of(&parsed));
                if !(self.passes)(&parsed) {
                    continue;
                }
            }
            out.push_back(Packet {
                local: 0,
                to: self.to,
                load: Carried::new(segment, self.mtu),
            });
        }
    }

    pub fn drain(&mut self, now: Instant) {
        while let Some(event) = self.engine.poll_event() {
            self.events.push((now, event));
        }
    }

    pub fn happened(&self) -> Vec<&Event> {
        self.events.iter().map(|(_, event)| event).collect()
    }

    pub fn count(&self, kind: Kind) -> usize {
        self.sent.iter().filter(|sent| **sent == kind).count()
    }

    /// The red parts delivered, in order.
    pub fn delivered(&self) -> Vec<Bytes> {
        let red = self.events.iter().filter_map(|(_, event)| match event {
            Event::RedPart { block, .. } => Some(block.clone().into_bytes()),
            _ => None,
        });
        red.collect()
    }

    /// The green bytes delivered, by offset.
    pub fn green(&self) -> Vec<(u64, Bytes)> {
        let green = self.events.iter().filter_map(|(_, event)| match event {
            Event::Green { offset, data, .. } => Some((*offset, data.clone())),
            _ => None,
        });
        green.collect()
    }
}

/// A sender and a receiver.
pub struct Pair {
    pub sim: Simulation<LtpNode>,
    pub path: PathLinks,
    pub start: Instant,
}

impl Pair {
    /// Both ends with the same configuration; `forward` and `backward` describe the links.
    pub fn new(seed: u64, config: &PeerConfig, forward: &str, backward: &str) -> Self {
        let start = Instant::now();
        let mut sim = Simulation::new(seed, start);
        let addresses = ["10.0.0.1:1113", "10.0.0.2:1113"].map(|a| a.parse().unwrap());
        for (i, (id, peer)) in [(SENDER, RECEIVER), (RECEIVER, SENDER)]
            .into_iter()
            .enumerate()
        {
            let mut key = [0; 32];
            key[..8].copy_from_slice(&(seed ^ id.0).to_le_bytes());
            let mut engine = Engine::new(EngineConfig::new(id, key));
            engine.add_peer(start, peer, config.clone()).unwrap();
            engine.open_service(SERVICE);
            let node = sim.add_node(LtpNode {
                engine,
                peer,
                to: addresses[1 - i],
                batch: Batch::new(65_507, 64),
                events: Vec::new(),
                passes: Box::new(|_| true),
                hears: Box::new(|_| true),
                sent: Vec::new(),
                keeps_log: true,
                mtu: MTU_BYTES,
            });
            sim.network.bind(node, 0, addresses[i]);
        }
        let path = sim.network.connect(
            addresses[0],
            addresses[1],
            &forward.parse().unwrap(),
            &backward.parse().unwrap(),
        );
        Self { sim, path, start }
    }

    pub fn send(&mut self, block: &Bytes, red: usize) -> SessionId {
        let (now, block) = (self.sim.now(), block.clone());
        let outgoing = Outgoing {
            to: RECEIVER,
            service: SERVICE,
            block,
            red: red as u64,
        };
        self.sim.nodes[0].engine.send(now, outgoing).unwrap()
    }

    pub fn sender(&mut self) -> &mut LtpNode {
        &mut self.sim.nodes[0]
    }

    pub fn receiver(&mut self) -> &mut LtpNode {
        &mut self.sim.nodes[1]
    }

    /// Runs until neither engine has a timer and nothing is in flight, and checks that nothing is left of any session.
    pub fn finish(&mut self) {
        let limit = self.sim.now() + Duration::from_secs(400 * 24 * 3600);
        assert!(self.sim.run_until_idle(limit), "a session never ends");
        for node in &self.sim.nodes {
            let engine = &node.engine;
            assert_eq!(engine.sessions(), (0, 0));
            assert_eq!(
                (
                    engine.receive_memory(),
                    engine.send_bytes(),
                    engine.timers()
                ),
                (0, 0, 0)
            );
        }
    }
}

/// Bytes that differ from segment to segment.
pub fn content(length: usize, seed: u64) -> Bytes {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let bytes = (0..length).map(|_| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state.to_le_bytes()[3]
    });
    bytes.collect::<Vec<u8>>().into()
}

/// Loses the first `count` segments of this kind.
pub fn lose(kind: Kind, count: usize) -> Filter {
    let mut left = count;
    Box::new(move |segment| {
        if left > 0 && Kind::of(segment) == kind {
            left -= 1;
            return false;
        }
        true
    })
}
