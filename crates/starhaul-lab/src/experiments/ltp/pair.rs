//! Two engines of LTP and the links between them, in virtual time.

use std::{
    collections::VecDeque,
    net::SocketAddr,
    time::{Duration, Instant},
};

use bytes::Bytes;
use starhaul_link::LinkSpec;
use starhaul_ltp::{
    Batch, Engine, EngineConfig, EngineId, Event, LinkState, Outgoing, PeerConfig, SessionId, Stats,
};
use starhaul_sim::{Datagram, Delivery, HEADER_BYTES, Node, PathLinks, Simulation, Udp};

use crate::Error;

const SENDER: EngineId = EngineId(1);
const RECEIVER: EngineId = EngineId(2);
const SERVICE: u64 = 1;
/// No run takes longer in virtual time.
const LONGEST: Duration = Duration::from_secs(30 * 24 * 3600);

/// A sender and a receiver, and a path between them.
pub(super) struct Pair {
    pub(super) sim: Simulation<End>,
    pub(super) start: Instant,
    path: PathLinks,
}

/// What the links of a pair carried.
#[derive(Clone, Copy, Debug)]
pub(super) struct Carried {
    /// Bytes toward the receiver, with all headers.
    pub(super) bytes: u64,
    /// The same without those of IP and UDP.
    pub(super) ltp_bytes: u64,
    /// Packets of the receiver.
    pub(super) answers: u64,
}

impl Pair {
    /// Both ends with the same configuration, and blocks of `block` alone between them; links as they are described.
    ///
    /// # Errors
    /// A link is described wrongly, or the configuration is.
    pub(super) fn new(
        seed: u64,
        config: &PeerConfig,
        (forward, backward): (&str, &str),
        block: &Bytes,
    ) -> Result<Self, Error> {
        let start = Instant::now();
        let mut sim = Simulation::new(seed, start);
        let addresses: [SocketAddr; 2] =
            [([10, 0, 0, 1], 1113).into(), ([10, 0, 0, 2], 1113).into()];
        for (i, (id, peer)) in [(SENDER, RECEIVER), (RECEIVER, SENDER)]
            .into_iter()
            .enumerate()
        {
            let mut key = [0; 32];
            key[..8].copy_from_slice(&(seed ^ id.0 << 32).to_le_bytes());
            let mut engine = Engine::new(EngineConfig::new(id, key));
            let added = engine.add_peer(start, peer, config.clone());
            added.map_err(|error| Error::Failed(error.to_string()))?;
            engine.open_service(SERVICE);
            let node = sim.add_node(End::new(engine, peer, addresses[1 - i], block.clone()));
            sim.network.bind(node, 0, addresses[i]);
        }
        let links = [forward, backward].map(|link| {
            let link: Result<LinkSpec, starhaul_link::Error> = link.parse();
            link.map_err(|error| Error::Failed(error.to_string()))
        });
        let [forward, backward] = links;
        let path = sim
            .network
            .connect(addresses[0], addresses[1], &forward?, &backward?);
        Ok(Self { sim, start, path })
    }

    /// The end that sends.
    pub(super) fn sender(&self) -> &End {
        &self.sim.nodes[0]
    }

    /// The end that receives.
    pub(super) fn receiver(&self) -> &End {
        &self.sim.nodes[1]
    }

    /// Offers blocks without end until so long after the start.
    pub(super) fn offer_for(&mut self, time: Duration) {
        let mut offered = 0;
        self.sim.run_until(self.start + time, |sim| {
            let now = sim.now();
            offered += sim.nodes[0].offer(now, offered);
            Some(now + Duration::from_millis(100))
        });
    }

    /// Begins to send a block now.
    ///
    /// # Errors
    /// The engine takes no more.
    pub(super) fn send(&mut self) -> Result<(), Error> {
        let now = self.sim.now();
        self.sim.nodes[0].send(now)
    }

    /// Runs until no session is left.
    ///
    /// # Errors
    /// One never ends.
    pub(super) fn finish(&mut self) -> Result<(), Error> {
        match self.sim.run_until_idle(self.start + LONGEST) {
            true => Ok(()),
            false => Err(Error::Failed("a session of LTP never ended".into())),
        }
    }

    /// Runs until so long after the start.
    pub(super) fn run_to(&mut self, time: Duration) {
        self.sim.run_until(self.start + time, |_| None);
    }

    /// Opens or closes both links, as the plan of both ends says: what is in flight arrives.
    pub(super) fn set_open(&mut self, is_open: bool) {
        let now = self.sim.now();
        match is_open {
            true => self.sim.network.restore(now, self.path),
            false => self.sim.network.cut(now, self.path),
        }
        for node in &mut self.sim.nodes {
            node.state.may_transmit = is_open;
            node.engine.set_link(now, node.peer, node.state);
        }
    }

    /// What the other end transmits begins or ends to arrive, a light time after the links opened or closed.
    pub(super) fn set_heard(&mut self, is_heard: bool) {
        let now = self.sim.now();
        for node in &mut self.sim.nodes {
            node.state.peer_transmits = is_heard;
            node.engine.set_link(now, node.peer, node.state);
        }
    }

    /// What the links carried by now.
    pub(super) fn carried(&self) -> Carried {
        let forward = self.sim.network[self.path.forward].stats();
        let headers = forward.enqueued * HEADER_BYTES as u64;
        Carried {
            bytes: forward.enqueued_bytes,
            ltp_bytes: forward.enqueued_bytes.saturating_sub(headers),
            answers: self.sim.network[self.path.backward].stats().enqueued,
        }
    }
}

/// An engine as a node.
pub(super) struct End {
    engine: Engine,
    peer: EngineId,
    state: LinkState,
    to: SocketAddr,
    batch: Batch,
    /// The content of every block.
    block: Bytes,
    /// When blocks had left for the first time, or were delivered.
    pub(super) noted: Vec<(SessionId, Instant)>,
    /// Sessions of blocks, and when they were given to the engine.
    pub(super) made: Vec<(SessionId, Instant)>,
    /// Blocks that are not as they were sent.
    pub(super) damaged: usize,
    /// Most memory that blocks received in part have taken.
    pub(super) memory: usize,
}

impl End {
    fn new(engine: Engine, peer: EngineId, to: SocketAddr, block: Bytes) -> Self {
        let state = LinkState {
            may_transmit: true,
            peer_transmits: true,
        };
        Self {
            engine,
            peer,
            state,
            to,
            batch: Batch::new(65_507, 64),
            block,
            noted: Vec::new(),
            made: Vec::new(),
            damaged: 0,
            memory: 0,
        }
    }

    /// Counters of the engine.
    pub(super) fn stats(&self) -> Stats {
        self.engine.stats()
    }

    fn send(&mut self, now: Instant) -> Result<(), Error> {
        let outgoing = Outgoing {
            to: self.peer,
            service: SERVICE,
            block: self.block.clone(),
            red: self.block.len() as u64,
        };
        let session = self.engine.send(now, outgoing);
        let session = session.map_err(|error| Error::Failed(error.to_string()))?;
        self.made.push((session, now));
        Ok(())
    }

    /// Sends blocks until two wait behind those that have left, of `offered` so far; returns how many.
    fn offer(&mut self, now: Instant, offered: usize) -> usize {
        let wanted = (self.noted.len() + 2).saturating_sub(offered);
        (0..wanted).take_while(|_| self.send(now).is_ok()).count()
    }

    fn drain(&mut self, now: Instant) {
        self.memory = self.memory.max(self.engine.receive_memory());
        while let Some(event) = self.engine.poll_event() {
            match event {
                Event::Transmitted { session } => self.noted.push((session, now)),
                Event::RedPart { session, block, .. } => {
                    self.noted.push((session, now));
                    self.damaged += usize::from(block.into_bytes() != self.block);
                }
                _ => {}
            }
        }
    }
}

impl Node for End {
    type Load = Udp;

    fn handle_packet(&mut self, now: Instant, packet: Delivery<Udp>) {
        let payload = &packet.load.payload;
        self.engine
            .handle_datagrams(now, self.peer, payload, payload.len());
        self.drain(now);
    }

    fn poll_transmit(&mut self, now: Instant, out: &mut VecDeque<Datagram>) {
        if self.engine.poll_transmit(now, &mut self.batch).is_some() {
            let segments = self.batch.contents().chunks(self.batch.segment_size());
            out.extend(
                segments
                    .map(|segment| Datagram::udp(0, self.to, 0, Bytes::copy_from_slice(segment))),
            );
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

/// A block of so many bytes, no two parts of which are alike.
pub(super) fn content(bytes: usize) -> Bytes {
    let bytes = (0..bytes).map(|i| (i.wrapping_mul(2_654_435_761) >> 13).to_le_bytes()[0]);
    bytes.collect::<Vec<u8>>().into()
}

/// The value that a share of some values does not exceed, in seconds.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "an index from a share"
)]
pub(super) fn percentile(sorted: &[Duration], share: f64) -> Option<f64> {
    let last = sorted.len().saturating_sub(1);
    let at = (last as f64 * share).round() as usize;
    sorted.get(at).map(Duration::as_secs_f64)
}
