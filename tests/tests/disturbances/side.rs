//! One end of the session: a whole node with its applications, on a clock of its own.

use std::{
    collections::VecDeque,
    sync::LazyLock,
    time::{Duration, Instant},
};

use bytes::Bytes;
use starhaul_quic::{Node, NodeEvent, SessionHandle};
use starhaul_session::{
    BlockId, BlockOptions, Event, Mode, Outcome, Session, StreamConfig, StreamId,
};
use starhaul_sim::{Datagram, Delivery, Node as SimNode, Udp};

/// A class of blocks that an application sends.
pub(super) struct Load {
    pub(super) bytes: usize,
    pub(super) deadline: Duration,
    pub(super) priority: u8,
}

/// What is sent in each direction, a block of each in every [`super::world::PERIOD`].
pub(super) const LOADS: [Load; 2] = [
    Load {
        bytes: 1500,
        deadline: Duration::from_millis(300),
        priority: 0,
    },
    Load {
        bytes: 20_000,
        deadline: Duration::from_millis(500),
        priority: 4,
    },
];

/// A block that this side sent.
pub(super) struct Block {
    pub(super) load: usize,
    pub(super) number: u32,
    pub(super) sent: Instant,
    pub(super) outcome: Option<(Instant, Outcome)>,
}

/// What became of a block of the peer.
#[derive(Clone, Copy, Default)]
pub(super) struct Arrival {
    pub(super) received: Option<Instant>,
    pub(super) is_missing: bool,
}

/// A clock that runs ahead of true time, and faster.
#[derive(Clone, Copy)]
pub(super) struct Clock {
    pub(super) start: Instant,
    pub(super) ahead: Duration,
    pub(super) faster_ppm: u32,
}

impl Clock {
    pub(super) fn true_to(start: Instant) -> Self {
        Self {
            start,
            ahead: Duration::ZERO,
            faster_ppm: 0,
        }
    }

    fn read(&self, now: Instant) -> Instant {
        let passed = now - self.start;
        now + self.ahead + passed * self.faster_ppm / 1_000_000
    }

    /// The first instant at which the clock shows `at` or more.
    fn when(&self, at: Instant) -> Instant {
        let shown = at.saturating_duration_since(self.start + self.ahead);
        let passed = shown.as_nanos() * 1_000_000 / u128::from(1_000_000 + self.faster_ppm);
        let passed = Duration::from_nanos(u64::try_from(passed).expect("a short run"));
        self.start + passed + Duration::from_nanos(2)
    }
}

pub(super) struct Side {
    pub(super) node: Node,
    pub(super) clock: Clock,
    pub(super) session: Option<SessionHandle>,
    /// Own streams, by load; the reliable one.
    pub(super) streams: Vec<StreamId>,
    pub(super) reliable: Option<StreamId>,
    /// The same of the peer, in the order of their opening.
    peers: Vec<StreamId>,
    peers_reliable: Option<StreamId>,
    pub(super) blocks: Vec<Block>,
    /// Blocks of the peer, by load and number.
    pub(super) arrivals: [Vec<Arrival>; LOADS.len()],
    pub(super) written: usize,
    pub(super) read: usize,
    /// The application takes events and reads.
    pub(super) is_awake: bool,
}

impl Side {
    pub(super) fn new(node: Node, clock: Clock) -> Self {
        // Room for the whole run, so that growth is the product's.
        Self {
            node,
            clock,
            session: None,
            streams: Vec::new(),
            reliable: None,
            peers: Vec::new(),
            peers_reliable: None,
            blocks: Vec::with_capacity(1 << 13),
            arrivals: std::array::from_fn(|_| Vec::with_capacity(1 << 12)),
            written: 0,
            read: 0,
            is_awake: true,
        }
    }

    pub(super) fn session(&mut self) -> &mut Session {
        let session = self.session.expect("the session is open");
        self.node.session(session).expect("the session lives")
    }

    /// Bytes that each path has carried to the peer.
    pub(super) fn bytes_sent(&mut self) -> Vec<u64> {
        let paths = self.session().path_stats();
        paths.iter().map(|path| path.bytes_sent).collect()
    }

    /// Opens a stream for each load, otherwise as `config` says, and a reliable one.
    pub(super) fn open_streams(&mut self, now: Instant, config: &StreamConfig) {
        let now = self.clock.read(now);
        for load in &LOADS {
            let config = StreamConfig {
                deadline: load.deadline,
                priority: load.priority,
                ..config.clone()
            };
            let stream = self.session().open_stream(now, config).expect("a stream");
            self.streams.push(stream);
        }
        let config = StreamConfig {
            mode: Mode::Reliable,
            priority: 7,
            ..StreamConfig::default()
        };
        self.reliable = Some(self.session().open_stream(now, config).expect("a stream"));
    }

    /// A block of each load, and some bytes.
    pub(super) fn send(&mut self, now: Instant) {
        let shown = self.clock.read(now);
        for (load, what) in LOADS.iter().enumerate() {
            let stream = self.streams[load];
            let number = self.blocks.len() / LOADS.len();
            let number = u32::try_from(number).expect("a short run");
            let data = content(load, number, what.bytes);
            let block = self
                .session()
                .send_block(shown, stream, data, BlockOptions::default())
                .expect("far below the bound of held bytes");
            assert_eq!(block, BlockId(number));
            self.blocks.push(Block {
                load,
                number,
                sent: now,
                outcome: None,
            });
        }
        let data = pattern(self.written, 2000);
        let stream = self.reliable.expect("it was opened");
        self.written += self
            .session()
            .write(shown, stream, data)
            .expect("an open stream");
    }

    /// As many bytes as there is room for.
    pub(super) fn fill(&mut self, now: Instant) {
        let shown = self.clock.read(now);
        let stream = self.reliable.expect("it was opened");
        loop {
            let data = pattern(self.written, MOST_AT_ONCE);
            let taken = self.session().write(shown, stream, data);
            let taken = taken.expect("an open stream");
            self.written += taken;
            if taken < data.len() {
                return;
            }
        }
    }

    pub(super) fn take_events(&mut self, now: Instant) {
        if !self.is_awake {
            return;
        }
        while let Some(event) = self.node.poll_event() {
            match event {
                NodeEvent::Accepted { session, .. } => self.session = Some(session),
                NodeEvent::Closed { error, .. } => panic!("the session ended: {error:?}"),
                NodeEvent::Session { event, .. } => self.take(now, event),
                _ => {}
            }
        }
    }

    fn take(&mut self, now: Instant, event: Event) {
        match event {
            Event::StreamOpened { stream, config } if config.mode == Mode::Reliable => {
                self.peers_reliable = Some(stream);
            }
            Event::StreamOpened { stream, .. } => self.peers.push(stream),
            Event::BlockReceived {
                stream,
                block,
                data,
                ..
            } => {
                let load = self.load_of(stream);
                let arrival = self.arrival(load, block);
                assert!(arrival.received.is_none(), "block {block:?} came twice");
                assert!(
                    !arrival.is_missing,
                    "block {block:?} came after it was given up"
                );
                arrival.received = Some(now);
                assert_eq!(
                    data,
                    content(load, block.0, LOADS[load].bytes),
                    "changed bytes"
                );
            }
            Event::BlockMissing { stream, block } => {
                let load = self.load_of(stream);
                let arrival = self.arrival(load, block);
                assert!(
                    arrival.received.is_none() && !arrival.is_missing,
                    "ended twice"
                );
                arrival.is_missing = true;
            }
            Event::BlockOutcome {
                stream,
                block,
                outcome,
            } => {
                let load = self.streams.iter().position(|own| *own == stream);
                let at = block.0 as usize * LOADS.len() + load.expect("an own stream");
                let known = self.blocks[at].outcome.replace((now, outcome));
                assert!(
                    known.is_none(),
                    "block {block:?}: {known:?}, and then {outcome:?}"
                );
            }
            Event::Readable(stream) => {
                assert_eq!(Some(stream), self.peers_reliable);
                self.read(now);
            }
            Event::Reset { stream, .. } | Event::Stopped { stream, .. } => {
                panic!("{stream:?} was given up");
            }
            _ => {}
        }
    }

    pub(super) fn read(&mut self, now: Instant) {
        let Some(stream) = self.peers_reliable else {
            return;
        };
        let now = self.clock.read(now);
        while let Some(bytes) = self
            .session()
            .read(now, stream, usize::MAX)
            .expect("an open stream")
        {
            for part in bytes.chunks(MOST_AT_ONCE) {
                let expected = pattern(self.read, part.len());
                assert!(part == expected, "changed bytes of a stream");
                self.read += part.len();
            }
        }
    }

    fn load_of(&self, stream: StreamId) -> usize {
        let mut peers = self.peers.iter();
        peers
            .position(|known| *known == stream)
            .expect("a stream of the peer")
    }

    fn arrival(&mut self, load: usize, block: BlockId) -> &mut Arrival {
        let arrivals = &mut self.arrivals[load];
        let at = block.0 as usize;
        if arrivals.len() <= at {
            arrivals.resize(at + 1, Arrival::default());
        }
        &mut arrivals[at]
    }
}

impl SimNode for Side {
    type Load = Udp;

    fn handle_packet(&mut self, now: Instant, packet: Delivery<Udp>) {
        self.node.handle_packet(self.clock.read(now), packet);
    }

    fn poll_transmit(&mut self, now: Instant, out: &mut VecDeque<Datagram>) {
        SimNode::poll_transmit(&mut self.node, self.clock.read(now), out);
        if out.is_empty() {
            self.take_events(now);
        }
    }

    fn poll_timeout(&mut self) -> Option<Instant> {
        let clock = self.clock;
        self.node.poll_timeout().map(|at| clock.when(at))
    }

    fn handle_timeout(&mut self, now: Instant) {
        self.node.handle_timeout(self.clock.read(now));
    }
}

fn content(load: usize, number: u32, bytes: usize) -> Bytes {
    Bytes::from_static(pattern(number as usize * 7 + load * 3, bytes))
}

/// What everything sent is cut from: made once, since making and comparing it would cost more than its transport.
static PATTERN: LazyLock<Vec<u8>> = LazyLock::new(|| {
    let byte_at = |at: usize| ((at % PERIOD).wrapping_mul(0x9E37_79B9) >> 13).to_le_bytes()[0];
    (0..PERIOD + MOST_AT_ONCE).map(byte_at).collect()
});
const PERIOD: usize = 1_000_003;
const MOST_AT_ONCE: usize = 1 << 16;

/// At most [`MOST_AT_ONCE`] bytes of the pattern from this offset on.
fn pattern(offset: usize, bytes: usize) -> &'static [u8] {
    &PATTERN[offset % PERIOD..][..bytes]
}
