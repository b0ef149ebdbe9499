//! One QUIC stream over one connection, with nothing of ours but the sockets, which use segmentation offload, and their buffers: packets are
//! decrypted where the kernel wrote them, as ours are, and what they carry is copied once, by the application that reads.

use std::{
    num::NonZeroUsize,
    os::fd::AsFd as _,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};

use bytes::BytesMut;
use noq_proto::{
    Connection, ConnectionHandle, DatagramEvent, Dir, EcnCodepoint, Endpoint, EndpointConfig,
    Event, FourTuple, ServerConfig, StreamEvent, StreamId, TransportConfig, VarInt,
};
use starhaul_endpoint::Identity;
use starhaul_net::{BindOptions, Poller, RecvBuffer, Transmit, UdpSocket, Waker};
use starhaul_quic::tls::pinned_configs;

use crate::{Contender, PACKET_BYTES, stream::CHUNK_BYTES};

/// Packets of one segmentation offload call.
const BATCH: NonZeroUsize = NonZeroUsize::new(44).unwrap();
/// Less than a socket buffers: QUIC ends a connection with more than 1024 holes in a stream.
const WINDOW_BYTES: u32 = 1 << 20;
/// Receive calls before the connection sends again.
const RECEIVE_TURNS: usize = 4;

pub(crate) struct Bare {
    shared: Arc<Shared>,
    wakers: [Waker; 2],
    threads: Vec<JoinHandle<()>>,
}

#[derive(Default)]
struct Shared {
    wanted: AtomicU64,
    delivered: AtomicU64,
    over: AtomicBool,
}

struct End {
    shared: Arc<Shared>,
    socket: UdpSocket,
    poller: Poller,
    endpoint: Endpoint,
    conn: Option<(ConnectionHandle, Connection)>,
    stream: Option<StreamId>,
    /// The connection is there.
    ready: bool,
    sent: u64,
    buffer: Vec<u8>,
    chunk: Vec<u8>,
    /// What the socket did not take.
    unsent: Option<(noq_proto::Transmit, usize)>,
}

impl Bare {
    pub(crate) fn new() -> Self {
        let shared = Arc::new(Shared::default());
        let identity = Identity::from_secret([3; 32]);
        let (client_config, server_config) = pinned_configs(&identity, &[], &transport()).unwrap();
        let server = End::new(&shared, Some(server_config));
        let mut client = End::new(&shared, None);
        let remote = server.socket.local_addr();
        let conn = client
            .endpoint
            .connect(Instant::now(), client_config, remote, "bare");
        client.conn = Some(conn.unwrap());
        let wakers = [client.poller.waker(), server.poller.waker()];
        let threads = [
            thread::spawn(move || client.run(true)),
            thread::spawn(move || server.run(false)),
        ];
        Self {
            shared,
            wakers,
            threads: threads.into(),
        }
    }
}

impl Contender for Bare {
    fn transfer(&mut self, bytes: u64) {
        let wanted = self.shared.wanted.fetch_add(bytes, Ordering::Relaxed) + bytes;
        self.wakers[0].wake();
        while self.shared.delivered.load(Ordering::Relaxed) < wanted {
            thread::sleep(Duration::from_millis(1));
        }
    }
}

impl Drop for Bare {
    fn drop(&mut self) {
        self.shared.over.store(true, Ordering::Relaxed);
        self.wakers.iter().for_each(Waker::wake);
        for thread in self.threads.drain(..) {
            let _ = thread.join();
        }
    }
}

impl End {
    fn new(shared: &Arc<Shared>, server: Option<ServerConfig>) -> Self {
        let address = "127.0.0.1:0".parse().unwrap();
        Self {
            shared: shared.clone(),
            socket: UdpSocket::bind(&BindOptions::new(address)).unwrap(),
            poller: Poller::new().unwrap(),
            endpoint: Endpoint::new(
                Arc::new(EndpointConfig::default()),
                server.map(Arc::new),
                true,
            ),
            conn: None,
            stream: None,
            ready: false,
            sent: 0,
            buffer: Vec::new(),
            chunk: vec![7; CHUNK_BYTES],
            unsent: None,
        }
    }

    fn run(mut self, is_client: bool) {
        let mut received = RecvBuffer::new();
        while !self.shared.over.load(Ordering::Relaxed) {
            let now = Instant::now();
            self.events(now);
            match is_client {
                true => self.write(),
                false => self.read(),
            }
            let blocked = !self.transmit(now);
            let timeout = self.conn.as_mut().and_then(|(_, conn)| conn.poll_timeout());
            let ready = self
                .poller
                .wait_fds(&[(self.socket.as_fd(), blocked)], timeout)
                .unwrap();
            if ready[0].readable {
                for _ in 0..RECEIVE_TURNS {
                    if !self.socket.try_recv(&mut received).unwrap() {
                        break;
                    }
                    self.receive(&mut received);
                    // The buffer receives again only into memory of which nothing is kept.
                    if !is_client {
                        self.read();
                    }
                }
            }
        }
    }

    fn receive(&mut self, received: &mut RecvBuffer) {
        let now = Instant::now();
        for mut message in received.take_messages() {
            let from = FourTuple::from_remote(message.remote);
            let ecn = EcnCodepoint::from_bits(message.ecn);
            while !message.contents().is_empty() {
                let packet = message.take(message.stride);
                self.handle(now, from, ecn, packet);
            }
        }
    }

    fn handle(
        &mut self,
        now: Instant,
        from: FourTuple,
        ecn: Option<EcnCodepoint>,
        packet: BytesMut,
    ) {
        let mut answer = Vec::new();
        match self.endpoint.handle(now, from, ecn, packet, &mut answer) {
            Some(DatagramEvent::ConnectionEvent(_, event)) => {
                self.conn.as_mut().unwrap().1.handle_event(event);
            }
            Some(DatagramEvent::NewConnection(incoming)) => {
                let accepted = self.endpoint.accept(incoming, now, &mut answer, None);
                self.conn = accepted.ok();
            }
            _ => {}
        }
    }

    fn events(&mut self, now: Instant) {
        let Some((handle, conn)) = &mut self.conn else {
            return;
        };
        if conn.poll_timeout().is_some_and(|at| at <= now) {
            conn.handle_timeout(now);
        }
        while let Some(event) = conn.poll_endpoint_events() {
            if let Some(answer) = self.endpoint.handle_event(*handle, event) {
                conn.handle_event(answer);
            }
        }
        while let Some(event) = conn.poll() {
            match event {
                Event::Connected => self.ready = true,
                Event::Stream(StreamEvent::Opened { .. }) => {
                    self.stream = conn.streams().accept(Dir::Uni);
                }
                _ => {}
            }
        }
    }

    /// The sending application.
    fn write(&mut self) {
        let Some((_, conn)) = self.conn.as_mut().filter(|_| self.ready) else {
            return;
        };
        let stream = *self
            .stream
            .get_or_insert_with(|| conn.streams().open(Dir::Uni).unwrap());
        let wanted = self.shared.wanted.load(Ordering::Relaxed);
        while self.sent < wanted {
            let most = usize::try_from(wanted - self.sent)
                .unwrap()
                .min(CHUNK_BYTES);
            match conn.send_stream(stream).write(&self.chunk[..most]) {
                Ok(written) => self.sent += written as u64,
                Err(_) => return,
            }
        }
    }

    /// The receiving application, which copies what it reads.
    fn read(&mut self) {
        let (Some((_, conn)), Some(stream)) = (&mut self.conn, self.stream) else {
            return;
        };
        let mut receiving = conn.recv_stream(stream);
        let mut chunks = receiving.read(true).unwrap();
        let mut at = 0;
        let mut bytes = 0;
        while let Ok(Some(chunk)) = chunks.next(CHUNK_BYTES) {
            if at + chunk.bytes.len() > CHUNK_BYTES {
                at = 0;
            }
            self.chunk[at..at + chunk.bytes.len()].copy_from_slice(&chunk.bytes);
            at += chunk.bytes.len();
            bytes += chunk.bytes.len() as u64;
        }
        let _ = chunks.finalize();
        self.shared.delivered.fetch_add(bytes, Ordering::Relaxed);
    }

    /// Sends until there is nothing more or the socket is full; whether it was not.
    fn transmit(&mut self, now: Instant) -> bool {
        loop {
            let (transmit, from) = match self.unsent.take() {
                Some(unsent) => unsent,
                None => {
                    let Some((_, conn)) = &mut self.conn else {
                        return true;
                    };
                    self.buffer.clear();
                    match conn.poll_transmit(now, BATCH, &mut self.buffer) {
                        Some(transmit) => (transmit, 0),
                        None => return true,
                    }
                }
            };
            let sent = self.socket.try_send(&Transmit {
                to: transmit.destination,
                from: None,
                ecn: transmit.ecn.map_or(0, |ecn| ecn as u8),
                contents: &self.buffer[from..transmit.size],
                segment_size: transmit.segment_size.unwrap_or(transmit.size),
            });
            let sent = from + sent.unwrap();
            if sent < transmit.size {
                self.unsent = Some((transmit, sent));
                return false;
            }
        }
    }
}

fn transport() -> Arc<TransportConfig> {
    let mut config = TransportConfig::default();
    config
        .keep_alive_interval(Some(Duration::from_secs(1)))
        .mtu_discovery_config(None)
        .initial_mtu(PACKET_BYTES)
        .min_mtu(PACKET_BYTES)
        .send_window(WINDOW_BYTES.into())
        .receive_window(VarInt::from_u32(WINDOW_BYTES))
        .stream_receive_window(VarInt::from_u32(WINDOW_BYTES));
    Arc::new(config)
}
