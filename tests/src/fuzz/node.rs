//! Two whole stacks with a hostile network between them, before, during and after the handshake.
//!
//! TLS takes its ephemeral keys from the system, so ciphertexts differ from run to run; the tested promises do not
//! depend on them.

use std::{
    collections::{BTreeMap, BTreeSet, VecDeque},
    net::SocketAddr,
    time::{Duration, Instant},
};

use arbitrary::{Result, Unstructured};
use bytes::{Bytes, BytesMut};
use starhaul_cc::{
    ControllerConfig, LeoCcOptions, PathEnd, PathSignal, Reconfiguration, ReconfigurationSource,
};
use starhaul_quic::{
    Identity, LinkKind, LocalId, Node, NodeConfig, NodeEvent, PathSpec, PublicKey, SessionHandle,
    SignalTarget,
};
use starhaul_session::{BlockOptions, Event, Mode, StreamConfig, StreamId};

/// More operations than this make a run too slow for a fuzzer.
const MAX_OPERATIONS: usize = 400;
/// Greatest number of packets in flight to one side; more are lost.
const MAX_QUEUED: usize = 512;
/// Greatest number of recent packets that may be repeated.
const MAX_REMEMBERED: usize = 64;
/// Greatest number of steps without progress of time; a stack that needs more would never be idle.
const MAX_STEPS: usize = 20_000;

/// A client and a server over two paths. The input decides the fates of their packets, and the network's own packets:
/// only the client is accepted, delivered data were sent and are delivered once, and everything ends.
pub fn quic_node(data: &[u8]) {
    run_nodes(data);
}

/// What arrived in a run.
#[derive(Clone, Copy, Debug)]
pub struct NodeReport {
    /// Blocks that arrived whole.
    pub blocks: usize,
    /// Bytes of reliable streams.
    pub bytes: usize,
}

/// As [`quic_node`], with a report.
pub fn run_nodes(data: &[u8]) -> NodeReport {
    let mut source = Unstructured::new(data);
    let mut world = World::new();
    for _ in 0..MAX_OPERATIONS {
        if source.is_empty() || world.operate(&mut source).is_err() {
            break;
        }
    }
    world.come_to_an_end();
    NodeReport {
        blocks: world.sides.iter().map(|side| side.received.len()).sum(),
        bytes: world.sides[1].bytes.values().sum(),
    }
}

struct Packet {
    path: u32,
    from: SocketAddr,
    payload: Vec<u8>,
}

struct Side {
    node: Node,
    /// Packets in flight to this side.
    queue: VecDeque<Packet>,
    remembered: VecDeque<(u32, Vec<u8>)>,
    opened: BTreeSet<SessionHandle>,
    closed: BTreeSet<SessionHandle>,
    streams: Vec<(SessionHandle, StreamId)>,
    received: BTreeSet<(u64, u32, u32)>,
    /// Reliable streams: bytes written at the client, bytes read at the server, by the client's session and stream.
    bytes: BTreeMap<(u64, u32), usize>,
    partial: BTreeMap<(SessionHandle, StreamId), Vec<u8>>,
}

struct World {
    now: Instant,
    /// The client and the server.
    sides: [Side; 2],
    client_key: PublicKey,
    server_key: PublicKey,
    blocks_sent: u8,
}

fn address(side: usize, path: u32) -> SocketAddr {
    let path = u8::try_from(path).unwrap_or(u8::MAX);
    SocketAddr::from(([10, path, 0, u8::from(side == 1)], 4600))
}

/// The byte at `offset` in every reliable stream of a session of the client.
fn byte_of(session: u64, offset: usize) -> u8 {
    let number = session.to_be_bytes();
    number
        .get(offset)
        .copied()
        .unwrap_or((offset * 31).to_le_bytes()[0])
}

fn path_spec(path: u32) -> (LocalId, PathSpec) {
    let spec = PathSpec {
        cost: path.into(),
        link: match path {
            0 => LinkKind::Leo,
            _ => LinkKind::Other,
        },
        controller: match path {
            0 => ControllerConfig::LeoCc(LeoCcOptions::TARGET_QUEUE),
            _ => ControllerConfig::SaTcp,
        },
        ..PathSpec::new(format!("path{path}"), address(1, path))
    };
    (LocalId(path), spec)
}

impl World {
    fn new() -> Self {
        let now = Instant::now();
        let (client, server) = (
            Identity::from_secret([1; 32]),
            Identity::from_secret([2; 32]),
        );
        let (client_key, server_key) = (client.public_key(), server.public_key());
        let side = |identity, trusted, seed| {
            let config = NodeConfig {
                trusted,
                max_sessions: 4,
                accept_leo_controller: Some(ControllerConfig::LeoCc(LeoCcOptions::TARGET_QUEUE)),
                rng_seed: [seed; 32],
                ..NodeConfig::new(identity)
            };
            let mut node = Node::new(config, now).expect("a configuration that is right");
            for path in 0..2 {
                node.add_local(LocalId(path), true);
            }
            Side {
                node,
                queue: VecDeque::new(),
                remembered: VecDeque::new(),
                opened: BTreeSet::new(),
                closed: BTreeSet::new(),
                streams: Vec::new(),
                received: BTreeSet::new(),
                bytes: BTreeMap::new(),
                partial: BTreeMap::new(),
            }
        };
        let mut world = Self {
            now,
            sides: [
                side(client, Vec::new(), 1),
                side(server, vec![client_key], 2),
            ],
            client_key,
            server_key,
            blocks_sent: 0,
        };
        world.connect();
        world
    }

    fn operate(&mut self, source: &mut Unstructured<'_>) -> Result<()> {
        let operation: u8 = source.arbitrary()?;
        let to = usize::from(operation & 1);
        match operation {
            0..=99 => self.deliver_next(to, |_| ()),
            100..=119 => _ = self.sides[to].queue.pop_front(),
            120..=139 => {
                let back = usize::from(source.arbitrary::<u8>()?);
                let remembered = &self.sides[to].remembered;
                let again = remembered.get(back % remembered.len().max(1)).cloned();
                if let Some((path, payload)) = again {
                    self.deliver(
                        to,
                        Packet {
                            path,
                            from: address(1 - to, path),
                            payload,
                        },
                    );
                }
            }
            140..=169 => {
                let (at, flipped): (u16, u8) = source.arbitrary()?;
                self.deliver_next(to, |packet| {
                    let length = packet.payload.len().max(1);
                    if let Some(byte) = packet.payload.get_mut(usize::from(at) % length) {
                        *byte ^= flipped;
                    }
                });
            }
            170..=179 => {
                let length: u16 = source.arbitrary()?;
                self.deliver_next(to, |packet| packet.payload.truncate(length.into()));
            }
            180..=199 => {
                let (path, length): (bool, u8) = source.arbitrary()?;
                let long = source.ratio(1, 4)?;
                let length = usize::from(length).min(source.len());
                let mut payload = source.bytes(length)?.to_vec();
                if long {
                    // The packet that opens a connection must be padded to full size.
                    payload.resize(1200, 0);
                }
                let from = SocketAddr::from(([192, 0, 2, operation], u16::from(operation % 2)));
                self.deliver(
                    to,
                    Packet {
                        path: path.into(),
                        from,
                        payload,
                    },
                );
            }
            200..=209 => {
                let port = u16::from(operation & 2);
                let from = SocketAddr::from(([192, 0, 2, source.arbitrary()?], port));
                self.deliver_next(to, |packet| packet.from = from);
            }
            210..=229 => {
                let millis = u64::from(source.arbitrary::<u16>()? >> (operation % 16));
                self.advance(Duration::from_millis(millis));
            }
            230..=239 => self.exchange(usize::from(source.arbitrary::<u8>()?)),
            240..=241 => self.send_block(to),
            242..=243 => self.write(),
            244..=247 => self.detect(to, source.arbitrary()?),
            248..=249 => self.open_stream(to),
            250..=251 => {
                for session in self.sides[to].opened.clone() {
                    self.sides[to]
                        .node
                        .close(self.now, session, "closed by the test");
                }
                self.drain(to);
            }
            252..=253 => self.remove_or_add_path(),
            _ => self.connect(),
        }
        Ok(())
    }

    fn connect(&mut self) {
        let paths = vec![path_spec(0), path_spec(1)];
        let node = &mut self.sides[0].node;
        if let Ok(session) = node.connect(self.now, self.server_key, paths) {
            self.sides[0].opened.insert(session);
        }
        self.drain(0);
    }

    fn remove_or_add_path(&mut self) {
        let side = &mut self.sides[0];
        let Some(&session) = side.opened.difference(&side.closed).next() else {
            return;
        };
        let paths = side.node.path_status(session);
        match paths.first() {
            Some(path) if paths.len() > 1 => {
                side.node
                    .remove_path(self.now, session, path.path)
                    .expect("a path that is there");
            }
            _ => {
                // The session may have ended meanwhile.
                let _ = side.node.add_path(self.now, session, path_spec(0));
            }
        }
        self.drain(0);
    }

    fn open_stream(&mut self, at: usize) {
        let side = &mut self.sides[at];
        let Some(&session) = side.opened.difference(&side.closed).next() else {
            return;
        };
        if let Some(machine) = side.node.session(session)
            && let Ok(stream) = machine.open_stream(self.now, StreamConfig::default())
        {
            side.streams.push((session, stream));
        }
        self.drain(at);
    }

    /// The client writes to its last reliable stream, or to a new one. Each begins with the number of its session.
    fn write(&mut self) {
        let side = &mut self.sides[0];
        let Some(&session) = side.opened.difference(&side.closed).next() else {
            return;
        };
        let Some(machine) = side.node.session(session) else {
            return;
        };
        let of_session = |((of, stream), written): (&(u64, u32), &mut usize)| {
            (*of == session.0).then_some((*stream, *written))
        };
        let known = side.bytes.iter_mut().rev().find_map(of_session);
        let config = StreamConfig {
            mode: Mode::Reliable,
            ..StreamConfig::default()
        };
        let fresh = || {
            let opened = machine.open_stream(self.now, config);
            opened.ok().map(|stream| (stream.0, 0))
        };
        let Some((stream, written)) = known
            .filter(|(_, written)| *written < 40_000)
            .or_else(fresh)
        else {
            return;
        };
        let data: Vec<u8> = (written..written + 3000)
            .map(|at| byte_of(session.0, at))
            .collect();
        let taken = machine.write(self.now, StreamId(stream), &data);
        *side.bytes.entry((session.0, stream)).or_default() += taken.unwrap_or(0);
        self.drain(0);
    }

    /// The server reads a stream of the client.
    fn read(&mut self, session: SessionHandle, stream: StreamId) {
        let side = &mut self.sides[1];
        let Some(machine) = side.node.session(session) else {
            return;
        };
        let mut data = Vec::new();
        while let Ok(Some(bytes)) = machine.read(self.now, stream, usize::MAX)
            && !bytes.is_empty()
        {
            data.extend_from_slice(&bytes);
        }
        side.partial
            .entry((session, stream))
            .or_default()
            .extend(data);
        let whole = &side.partial[&(session, stream)];
        let Some(first) = whole.first_chunk::<8>() else {
            return;
        };
        let from = u64::from_be_bytes(*first);
        let same = whole.iter().enumerate();
        assert!(
            same.into_iter()
                .all(|(at, byte)| *byte == byte_of(from, at)),
            "bytes that nobody wrote"
        );
        side.bytes.insert((from, stream.0), whole.len());
    }

    /// Makes the network reliable: data written to open sessions arrive.
    fn heal(&mut self) {
        for _ in 0..2000 {
            self.exchange(1);
            let [client, server] = &self.sides;
            let missing = client.bytes.iter().any(|(key, written)| {
                let lives = !client.closed.contains(&SessionHandle(key.0));
                lives && server.bytes.get(key).copied().unwrap_or(0) < *written
            });
            if !missing {
                return;
            }
            if self.sides.iter().all(|side| side.queue.is_empty()) {
                let timers = self
                    .sides
                    .iter_mut()
                    .filter_map(|side| side.node.poll_timeout());
                let next = timers.min().unwrap_or(self.now);
                self.advance(next.saturating_duration_since(self.now));
            }
        }
        panic!("what was written to a session that lives did not arrive");
    }

    /// A detector at one side signals an event, and the RTT of its satellite segment.
    fn detect(&mut self, at: usize, (path, ago, confidence): (bool, u8, f64)) {
        let (node, now) = (&mut self.sides[at].node, self.now);
        let ago = Duration::from_millis(ago.into());
        let event = Reconfiguration {
            at: now - ago,
            outage: ago,
            source: ReconfigurationSource::Probe,
            confidence,
        };
        let (end, rtt) = (PathEnd::Local, ago);
        for signal in [
            PathSignal::Reconfiguration(event),
            PathSignal::SegmentRtt { end, rtt },
        ] {
            node.signal(now, SignalTarget::Local(LocalId(path.into())), signal);
        }
        self.drain(at);
    }

    fn send_block(&mut self, at: usize) {
        let side = &mut self.sides[at];
        let Some(&(session, stream)) = side.streams.last() else {
            return self.open_stream(at);
        };
        self.blocks_sent = self.blocks_sent.wrapping_add(1);
        let length = 1 + usize::from(self.blocks_sent) * 20;
        let block = Bytes::from(vec![self.blocks_sent; length]);
        if let Some(machine) = side.node.session(session) {
            // The stream may have ended with its session.
            let _ = machine.send_block(self.now, stream, block, BlockOptions::default());
        }
        self.drain(at);
    }

    fn deliver_next(&mut self, to: usize, change: impl FnOnce(&mut Packet)) {
        if let Some(mut packet) = self.sides[to].queue.pop_front() {
            change(&mut packet);
            self.deliver(to, packet);
        }
    }

    fn deliver(&mut self, to: usize, packet: Packet) {
        let payload = BytesMut::from(&packet.payload[..]);
        let local = LocalId(packet.path);
        self.sides[to]
            .node
            .handle_datagram(self.now, local, packet.from, 0, payload);
        self.drain(to);
    }

    /// Both sides get the packets in flight to them, and time for answers, so many times.
    fn exchange(&mut self, times: usize) {
        for _ in 0..times.min(40) {
            for to in [0, 1] {
                for _ in 0..self.sides[to].queue.len() {
                    self.deliver_next(to, |_| ());
                }
            }
            self.advance(Duration::from_millis(5));
        }
    }

    fn advance(&mut self, by: Duration) {
        self.now += by;
        for at in [0, 1] {
            // A timer's successor may itself be due at once.
            for _ in 0..3 {
                self.sides[at].node.handle_timeout(self.now);
                self.drain(at);
            }
            let next = self.sides[at].node.poll_timeout();
            assert!(
                next.is_none_or(|next| next > self.now),
                "woken for what was done"
            );
        }
    }

    fn drain(&mut self, at: usize) {
        for step in 0.. {
            assert!(step < MAX_STEPS, "the stack never rests");
            let Some(transmit) = self.sides[at].node.poll_transmit(self.now) else {
                break;
            };
            let path = transmit.local.0;
            assert_ne!(transmit.remote.port(), 0, "an answer to nobody");
            // Answers to forged addresses are dropped.
            let to = 1 - at;
            if transmit.remote != address(to, path) {
                continue;
            }
            for payload in transmit.contents.chunks(transmit.segment_size) {
                let there = &mut self.sides[to];
                if there.remembered.len() >= MAX_REMEMBERED {
                    there.remembered.pop_front();
                }
                there.remembered.push_back((path, payload.to_vec()));
                if there.queue.len() < MAX_QUEUED {
                    let from = address(at, path);
                    let payload = payload.to_vec();
                    there.queue.push_back(Packet {
                        path,
                        from,
                        payload,
                    });
                }
            }
        }
        while let Some(event) = self.sides[at].node.poll_event() {
            self.take(at, event);
        }
    }

    fn take(&mut self, at: usize, event: NodeEvent) {
        let side = &mut self.sides[at];
        match event {
            NodeEvent::Accepted { session, peer } => {
                assert_eq!((at, peer), (1, self.client_key), "a stranger got in");
                assert!(side.opened.insert(session), "accepted twice");
            }
            NodeEvent::Connected(session) => assert!(side.opened.contains(&session)),
            NodeEvent::Closed { session, .. } => {
                assert!(side.opened.contains(&session), "closed before it was open");
                assert!(side.closed.insert(session), "closed twice");
            }
            NodeEvent::Refused { .. } => panic!("nobody with another key is there"),
            NodeEvent::Session {
                session,
                event:
                    Event::BlockReceived {
                        stream,
                        block,
                        data,
                        ..
                    },
            } => {
                let first = data.first().copied().unwrap_or_default();
                let whole = data.len() == 1 + usize::from(first) * 20;
                assert!(
                    whole && data.iter().all(|byte| *byte == first),
                    "a block that nobody sent"
                );
                let new = side.received.insert((session.0, stream.0, block.0));
                assert!(new, "a block arrived twice");
            }
            NodeEvent::Session {
                session,
                event: Event::Readable(stream),
            } if at == 1 => self.read(session, stream),
            NodeEvent::PathUp { .. } | NodeEvent::PathDown { .. } | NodeEvent::Session { .. } => {}
        }
    }

    /// Both close; then each session has ended once, and no timer is set.
    fn come_to_an_end(&mut self) {
        self.exchange(10);
        self.heal();
        for at in [0, 1] {
            for session in self.sides[at].opened.clone() {
                self.sides[at].node.close(self.now, session, "the end");
            }
            self.drain(at);
        }
        for _ in 0..1000 {
            self.exchange(1);
            let next = self
                .sides
                .iter_mut()
                .filter_map(|side| side.node.poll_timeout());
            let Some(next) = next.min() else { break };
            self.advance(next.saturating_duration_since(self.now));
        }
        for side in &mut self.sides {
            assert_eq!(side.opened, side.closed, "a session never ended");
            assert_eq!(side.node.poll_timeout(), None, "something never ends");
        }
    }
}
