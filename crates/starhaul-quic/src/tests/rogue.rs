//! A client that holds a trusted key but says what it likes on its connections.

use std::{
    net::SocketAddr,
    num::NonZeroUsize,
    time::{Duration, Instant},
};

use bytes::BytesMut;
use noq_proto::{
    Connection, ConnectionError, ConnectionHandle, DatagramEvent, Dir, Endpoint, Event, FourTuple,
    StreamId,
};
use rand_chacha::{ChaCha12Rng, rand_core::SeedableRng as _};
use starhaul_cc::ControllerConfig;
use starhaul_paths::PathId;
use starhaul_sim::Datagram;

use super::net::{client_identity, server_address, server_identity};
use crate::{
    CloseCode, Identity, LocalId,
    controller::PathControlHandle,
    join::{self, JOIN_LABEL, SESSION_LABEL, SessionKey},
    packet_size::PacketBytes,
    tls, transport,
    wire::{self, LinkKind, Message, PathHello, SessionId},
};

const KEEPALIVE: Duration = Duration::from_secs(5);

pub(super) struct Rogue {
    endpoint: Endpoint,
    rng: ChaCha12Rng,
    conns: Vec<RogueConn>,
    alpn: Vec<u8>,
}

struct RogueConn {
    handle: ConnectionHandle,
    /// From which of its sockets it sends.
    local: u32,
    /// Its host is gone: nothing leaves any more.
    vanished: bool,
    quic: Connection,
    stream: Option<StreamId>,
    received: Vec<u8>,
    lost: Option<ConnectionError>,
}

impl Rogue {
    pub(super) fn new(alpn: &[u8]) -> Self {
        let mut rng = ChaCha12Rng::from_seed([33; 32]);
        Self {
            endpoint: transport::endpoint(LocalId(0), &client_identity(), None, &mut rng),
            rng,
            conns: Vec::new(),
            alpn: alpn.to_vec(),
        }
    }

    /// A new connection; its number is returned.
    pub(super) fn connect(&mut self, now: Instant) -> usize {
        self.connect_as(now, &client_identity(), 0)
    }

    /// A new connection with this key from this socket.
    pub(super) fn connect_as(&mut self, now: Instant, identity: &Identity, local: u32) -> usize {
        let peer = server_identity().public_key();
        let crypto = tls::client_config(identity, peer, &[&self.alpn]).unwrap();
        let control = PathControlHandle::new(ControllerConfig::NewReno, now, PacketBytes::LEAST);
        let transport = transport::connection(&control, PacketBytes::LEAST, KEEPALIVE);
        let config = transport::outgoing(crypto, transport, &mut self.rng);
        let remote = server_address(0);
        let connected = self.endpoint.connect(now, config, remote, "starhaul");
        let (handle, quic) = connected.unwrap();
        self.conns.push(RogueConn {
            handle,
            local,
            vanished: false,
            quic,
            stream: None,
            received: Vec::new(),
            lost: None,
        });
        self.conns.len() - 1
    }

    /// The connection's host dies without closing it.
    pub(super) fn vanish(&mut self, conn: usize) {
        self.conns[conn].vanished = true;
    }

    /// Writes bytes to the control stream.
    pub(super) fn say(&mut self, conn: usize, bytes: &[u8]) {
        let conn = &mut self.conns[conn];
        let stream = conn
            .stream
            .unwrap_or_else(|| conn.quic.streams().open(Dir::Bi).unwrap());
        conn.stream = Some(stream);
        let written = conn.quic.send_stream(stream).write(bytes).unwrap();
        assert_eq!(written, bytes.len());
    }

    pub(super) fn send_datagram(&mut self, conn: usize, bytes: &'static [u8]) {
        let mut datagrams = self.conns[conn].quic.datagrams();
        datagrams.send(bytes.into(), false).unwrap();
    }

    /// A session's probe, as a client sends it when its path comes up.
    pub(super) fn probe(&mut self, conn: usize) {
        self.send_datagram(conn, b"\x04\0\0\0\0\0\0\0\0");
    }

    /// The message that the server answered.
    pub(super) fn answer(&mut self, conn: usize) -> Option<Message> {
        let conn = &mut self.conns[conn];
        let mut recv = conn.quic.recv_stream(conn.stream?);
        if let Ok(mut chunks) = recv.read(true) {
            while let Ok(Some(chunk)) = chunks.next(4096) {
                conn.received.extend_from_slice(&chunk.bytes);
            }
        }
        wire::parse(&conn.received)
            .unwrap()
            .map(|(message, _)| message)
    }

    pub(super) fn lost(&self, conn: usize) -> Option<&ConnectionError> {
        self.conns[conn].lost.as_ref()
    }

    /// The code with which the server closed a connection.
    pub(super) fn refused(&self, conn: usize) -> Option<CloseCode> {
        match self.lost(conn)? {
            ConnectionError::ApplicationClosed(close) => CloseCode::from_wire(close.error_code),
            other => panic!("not refused but {other}"),
        }
    }

    pub(super) fn session_key(&self, conn: usize) -> SessionKey {
        let session = self.conns[conn].quic.crypto_session();
        SessionKey::new(&join::export(session, SESSION_LABEL).unwrap())
    }

    /// A valid JOIN for a connection.
    pub(super) fn join(
        &self,
        conn: usize,
        key: &SessionKey,
        session: SessionId,
        path: u32,
    ) -> Message {
        let exported = join::export(self.conns[conn].quic.crypto_session(), JOIN_LABEL).unwrap();
        Message::Join {
            session,
            token: key.token(&exported, &session, PathId(path)),
            hello: hello(path),
        }
    }

    pub(super) fn handle_datagram(
        &mut self,
        now: Instant,
        _local: u32,
        from: SocketAddr,
        payload: BytesMut,
    ) {
        let from = FourTuple::from_remote(from);
        let event = self
            .endpoint
            .handle(now, from, None, payload, &mut Vec::new());
        if let Some(DatagramEvent::ConnectionEvent(handle, event)) = event {
            let conn = self.conns.iter_mut().find(|conn| conn.handle == handle);
            conn.unwrap().quic.handle_event(event);
        }
        self.settle();
    }

    pub(super) fn poll_transmit(&mut self, now: Instant) -> Option<Datagram> {
        let mut payload = Vec::new();
        let one = NonZeroUsize::MIN;
        let mut conns = self.conns.iter_mut().filter(|conn| !conn.vanished);
        let (local, transmit) = conns.find_map(|conn| {
            let transmit = conn.quic.poll_transmit(now, one, &mut payload)?;
            Some((conn.local, transmit))
        })?;
        self.settle();
        Some(Datagram::udp(
            local,
            transmit.destination,
            0,
            payload.into(),
        ))
    }

    pub(super) fn poll_timeout(&self) -> Option<Instant> {
        let alive = self.conns.iter().filter(|conn| !conn.vanished);
        alive.filter_map(|conn| conn.quic.poll_timeout()).min()
    }

    pub(super) fn handle_timeout(&mut self, now: Instant) {
        for conn in self.conns.iter_mut().filter(|conn| !conn.vanished) {
            conn.quic.handle_timeout(now);
        }
        self.settle();
    }

    fn settle(&mut self) {
        for conn in &mut self.conns {
            while let Some(event) = conn.quic.poll_endpoint_events() {
                // A drained connection keeps its handle here, so that the test can ask what became of it.
                if !event.is_drained()
                    && let Some(answer) = self.endpoint.handle_event(conn.handle, event)
                {
                    conn.quic.handle_event(answer);
                }
            }
            while let Some(event) = conn.quic.poll() {
                if let Event::ConnectionLost { reason } = event {
                    conn.lost = Some(reason);
                }
            }
        }
    }
}

pub(super) fn hello(path: u32) -> PathHello {
    PathHello {
        path: PathId(path),
        cost: 1.0,
        name: "rogue".to_owned(),
        link: LinkKind::Other,
    }
}

pub(super) fn open(nonce: u8, versions: Vec<u16>) -> Vec<u8> {
    let message = Message::Open {
        versions,
        nonce: [nonce; 16],
        hello: hello(0),
    };
    message.encode()
}
