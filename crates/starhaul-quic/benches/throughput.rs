//! What a session costs beside the bare QUIC datagrams below it: both ends on one core, in memory, with all cryptography.
//!
//! Time is virtual, so that neither pacing nor round trips are measured, only work.

use std::{
    collections::VecDeque,
    net::SocketAddr,
    num::NonZeroUsize,
    sync::Arc,
    time::{Duration, Instant},
};

use bytes::{Bytes, BytesMut};
use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use noq_proto::{
    ClientConfig, Connection, ConnectionHandle, DatagramEvent, Endpoint, EndpointConfig, FourTuple,
    ServerConfig, TransportConfig,
    congestion::{self, Controller, ControllerFactory},
    crypto::rustls::{QuicClientConfig, QuicServerConfig},
};
use starhaul_cc::{ControllerConfig, RateFeed};
use starhaul_quic::{Identity, LocalId, Node, NodeConfig, NodeEvent, PathConfig, SessionHandle};
use starhaul_session::{BlockOptions, Event, Mode, StreamConfig, StreamId};
use starhaul_units::Bandwidth;

/// Bytes in one iteration.
const TOTAL: usize = 4 << 20;
const BLOCK: usize = 24_000;
const STEP: Duration = Duration::from_micros(200);
/// What may leave in a step.
const RATE: Bandwidth = Bandwidth::from_mbit(2000);

fn client_address() -> SocketAddr {
    ([10, 0, 0, 1], 1000).into()
}

fn server_address() -> SocketAddr {
    ([10, 0, 0, 2], 2000).into()
}

/// Two nodes and one open session.
struct Sessions {
    now: Instant,
    client: Node,
    server: Node,
    session: SessionHandle,
    stream: StreamId,
    received: usize,
}

impl Sessions {
    fn new(mode: Mode) -> Self {
        let now = Instant::now();
        let rate = ControllerConfig::Dedicated(RateFeed::new(RATE));
        let (alice, bob) = (Identity::generate(), Identity::generate());
        let mut config = NodeConfig::new(bob.clone());
        config.trusted = vec![alice.public_key()];
        config.accept_controller = rate.clone();
        let mut server = Node::new(config, now).expect("valid");
        let mut client = Node::new(NodeConfig::new(alice), now).expect("valid");
        client.add_local(LocalId(0), false);
        server.add_local(LocalId(0), true);
        let path = PathConfig {
            name: "memory".to_owned(),
            local: LocalId(0),
            remote: server_address(),
            cost: 0.0,
            controller: rate,
        };
        let session = client.connect(now, bob.public_key(), vec![path]);
        let mut sessions = Self {
            now,
            client,
            server,
            session: session.expect("valid"),
            stream: StreamId(0),
            received: 0,
        };
        // Long enough for the path MTU to be found.
        (0..10_000).for_each(|_| sessions.step());
        let config = StreamConfig {
            mode,
            deadline: Duration::from_secs(10),
            priority: 0,
            bandwidth: None,
            max_coding_rate: 0.2,
            ordered: false,
            label: Bytes::new(),
        };
        let (now, session) = (sessions.now, sessions.session);
        let state = sessions.client.session(session).expect("open");
        sessions.stream = state.open_stream(now, config).expect("valid");
        sessions
    }

    fn step(&mut self) {
        self.now += STEP;
        let now = self.now;
        for node in [&mut self.client, &mut self.server] {
            if node.poll_timeout().is_some_and(|at| at <= now) {
                node.handle_timeout(now);
            }
        }
        carry(&mut self.client, &mut self.server, client_address(), now);
        carry(&mut self.server, &mut self.client, server_address(), now);
        while let Some(event) = self.server.poll_event() {
            if let NodeEvent::Session {
                event: Event::BlockReceived { data, .. },
                ..
            } = event
            {
                self.received += data.len();
            }
        }
        while self.client.poll_event().is_some() {}
    }

    fn transfer(&mut self, block: &Bytes) {
        let goal = self.received + TOTAL / BLOCK * BLOCK;
        let (now, session) = (self.now, self.session);
        let state = self.client.session(session).expect("open");
        for _ in 0..TOTAL / BLOCK {
            let options = BlockOptions::default();
            let sent = state.send_block(now, self.stream, block.clone(), options);
            sent.expect("there is room");
        }
        while self.received < goal {
            self.step();
        }
    }
}

fn carry(from: &mut Node, to: &mut Node, address: SocketAddr, now: Instant) {
    while let Some(batch) = from.poll_transmit(now) {
        for packet in batch.contents.chunks(batch.segment_size) {
            to.handle_datagram(now, LocalId(0), address, batch.ecn, BytesMut::from(packet));
        }
    }
}

/// A window that never limits: the bare connection shall only be measured.
#[derive(Clone, Debug)]
struct Unlimited;

impl ControllerFactory for Unlimited {
    fn build(self: Arc<Self>, _now: Instant, _mtu: u16) -> Box<dyn Controller> {
        Box::new(Self)
    }
}

impl Controller for Unlimited {
    fn on_congestion_event(
        &mut self,
        _now: Instant,
        _sent: Instant,
        _persistent: bool,
        _ecn: bool,
        _lost_bytes: u64,
        _largest_lost: u64,
    ) {
    }

    fn on_mtu_update(&mut self, _mtu: u16) {}

    fn window(&self) -> u64 {
        u64::MAX / 2
    }

    fn clone_box(&self) -> Box<dyn congestion::Controller> {
        Box::new(self.clone())
    }

    fn initial_window(&self) -> u64 {
        self.window()
    }

    fn into_any(self: Box<Self>) -> Box<dyn std::any::Any> {
        self
    }
}

/// Two bare QUIC connections.
struct Bare {
    now: Instant,
    client: (Endpoint, ConnectionHandle, Connection),
    server: (Endpoint, ConnectionHandle, Connection),
    received: usize,
}

impl Bare {
    fn new() -> Self {
        let now = Instant::now();
        let mut transport = TransportConfig::default();
        transport
            .datagram_send_buffer_size(64 << 20)
            .datagram_receive_buffer_size(Some(64 << 20))
            .congestion_controller_factory(Arc::new(Unlimited));
        let transport = Arc::new(transport);
        let (client_crypto, server_crypto) = crypto();
        let mut config = ServerConfig::with_crypto(Arc::new(server_crypto));
        config.transport_config(transport.clone());
        let config = Some(Arc::new(config));
        let mut server = Endpoint::new(Arc::new(EndpointConfig::default()), config, true);
        let mut client = Endpoint::new(Arc::new(EndpointConfig::default()), None, true);
        let mut config = ClientConfig::new(Arc::new(client_crypto));
        config.transport_config(transport);
        let connected = client.connect(now, config, server_address(), "starhaul");
        let (handle, mut quic) = connected.expect("valid");
        let mut first = Vec::new();
        let _ = quic
            .poll_transmit(now, NonZeroUsize::MIN, &mut first)
            .expect("the first packet");
        let from = FourTuple::from_remote(client_address());
        let packet = BytesMut::from(&first[..]);
        let event = server.handle(now, from, None, packet, &mut Vec::new());
        let Some(DatagramEvent::NewConnection(incoming)) = event else {
            panic!("no connection")
        };
        let accepted = server.accept(incoming, now, &mut Vec::new(), None);
        let (server_handle, server_quic) = accepted.unwrap_or_else(|e| panic!("{}", e.cause));
        let mut bare = Self {
            now,
            client: (client, handle, quic),
            server: (server, server_handle, server_quic),
            received: 0,
        };
        (0..10_000).for_each(|_| bare.step());
        bare
    }

    fn step(&mut self) {
        self.now += STEP;
        let now = self.now;
        for (_, _, quic) in [&mut self.client, &mut self.server] {
            if quic.poll_timeout().is_some_and(|at| at <= now) {
                quic.handle_timeout(now);
            }
        }
        carry_bare(&mut self.client, &mut self.server, client_address(), now);
        carry_bare(&mut self.server, &mut self.client, server_address(), now);
        while let Some(datagram) = self.server.2.datagrams().recv() {
            self.received += datagram.len();
        }
    }

    fn transfer(&mut self, payload: &Bytes) {
        let size = self.client.2.datagrams().max_size().expect("open");
        let count = TOTAL / size;
        let goal = self.received + count * size;
        let mut left = count;
        while self.received < goal {
            // As much as the session's pacer lets go.
            let step = usize::try_from(RATE.bytes_in(STEP)).expect("small");
            let now = left.min(step / size);
            left -= now;
            for _ in 0..now {
                let sent = self.client.2.datagrams().send(payload.slice(..size), false);
                sent.expect("there is room");
            }
            self.step();
        }
    }
}

fn carry_bare(
    from: &mut (Endpoint, ConnectionHandle, Connection),
    to: &mut (Endpoint, ConnectionHandle, Connection),
    address: SocketAddr,
    now: Instant,
) {
    let mut buffer = Vec::new();
    let most = NonZeroUsize::new(64).expect("not zero");
    let address = FourTuple::from_remote(address);
    let mut batches = VecDeque::new();
    while let Some(transmit) = from.2.poll_transmit(now, most, &mut buffer) {
        let size = transmit.segment_size.unwrap_or(transmit.size);
        batches.push_back((size, std::mem::take(&mut buffer)));
        while let Some((size, batch)) = batches.pop_front() {
            for packet in batch.chunks(size) {
                let packet = BytesMut::from(packet);
                let event = to.0.handle(now, address, None, packet, &mut Vec::new());
                if let Some(DatagramEvent::ConnectionEvent(_, event)) = event {
                    to.2.handle_event(event);
                }
            }
        }
    }
    for (endpoint, handle, quic) in [from, to] {
        while let Some(event) = quic.poll_endpoint_events() {
            if let Some(event) = endpoint.handle_event(*handle, event) {
                quic.handle_event(event);
            }
        }
        while quic.poll().is_some() {}
    }
}

/// TLS between two raw keys, as sessions use it.
fn crypto() -> (QuicClientConfig, QuicServerConfig) {
    let (alice, bob) = (Identity::generate(), Identity::generate());
    starhaul_quic::bench::crypto(&alice, &bob)
}

fn throughput(c: &mut Criterion) {
    let payload = Bytes::from(vec![7; BLOCK]);
    let mut group = c.benchmark_group("datagrams");
    group.throughput(Throughput::Bytes(TOTAL as u64));
    group.sample_size(20);
    let mut bare = Bare::new();
    group.bench_function("bare", |b| b.iter(|| bare.transfer(&payload)));
    let modes = [
        ("session", Mode::None),
        ("session, retransmit", Mode::Retransmit),
        ("session, 20 % redundancy", Mode::Fec),
    ];
    for (name, mode) in modes {
        let mut sessions = Sessions::new(mode);
        group.bench_function(name, |b| b.iter(|| sessions.transfer(&payload)));
    }
    group.finish();
}

criterion_group!(benches, throughput);
criterion_main!(benches);
