//! Input: packets go to the stack of their connection, and from there datagrams, acknowledgements and messages to the
//! session.

use std::{
    net::{IpAddr, SocketAddr},
    sync::Arc,
    time::Instant,
};

use bytes::BytesMut;
use noq_proto::{
    ConnectionHandle, DatagramEvent, EcnCodepoint, Event, FourTuple, Incoming, StreamEvent,
};

use starhaul_paths::PathId;
use starhaul_session::Session;

use super::{Deferred, Node, Socket, Source, TimerKey, transmit};
use crate::{
    CloseCode, Error, LocalId, Transmit,
    connection::{Connection, Stage},
    controller::{DatagramFate, PathControlHandle},
    proof::Next,
    transport,
};

/// Greatest number of answers to packets without a connection that wait for the driver.
const MAX_RESPONSES: usize = 64;

/// Bytes of the shortest UDP payload of a client that begins (RFC 9000 §14.1).
const LEAST_INITIAL_BYTES: usize = 1200;

/// Whether a packet is of a version that we do not speak, and too short to be answered (RFC 9000 §5.2.2): the answer would be longer, and
/// its address may be forged.
fn is_short_of_another_version(payload: &[u8]) -> bool {
    let [0x80..=u8::MAX, a, b, c, d, ..] = *payload else {
        return false;
    };
    let version = u32::from_be_bytes([a, b, c, d]);
    payload.len() < LEAST_INITIAL_BYTES && !matches!(version, 0 | 1)
}

impl Node {
    /// A UDP payload arrived on `local` from `remote`; `ecn` are the ECN bits of its IP header.
    pub fn handle_datagram(
        &mut self,
        now: Instant,
        local: LocalId,
        remote: SocketAddr,
        ecn: u8,
        payload: BytesMut,
    ) {
        self.handle_datagrams(now, local, (remote, None), ecn, [payload]);
    }

    /// The same for payloads that arrived together, oldest first, at less cost than one by one, and `to` which address of this host, where
    /// the socket has several: answers leave from there.
    pub fn handle_datagrams(
        &mut self,
        now: Instant,
        local: LocalId,
        (remote, to): (SocketAddr, Option<IpAddr>),
        ecn: u8,
        payloads: impl IntoIterator<Item = BytesMut>,
    ) {
        self.advance(now);
        // No answer could reach a sender there, so it is forged.
        if remote.port() == 0 {
            return;
        }
        let ecn = EcnCodepoint::from_bits(ecn);
        let mut response = std::mem::take(&mut self.buffer);
        // The connection of the payload before, which is often that of the next one.
        let mut current: Option<Box<Connection>> = None;
        for payload in payloads {
            let Some(socket) = self.locals.get_mut(&local) else {
                break;
            };
            if is_short_of_another_version(&payload) {
                continue;
            }
            let from = FourTuple::from_remote(socket.names.of(remote));
            response.clear();
            let event = socket
                .endpoint
                .handle(now, from, ecn, payload, &mut response);
            let Some(DatagramEvent::ConnectionEvent(handle, event)) = event else {
                self.finish_input(now, current.take());
                match event {
                    Some(DatagramEvent::NewConnection(incoming)) => {
                        self.accept(now, (local, to), incoming, &mut response);
                    }
                    Some(DatagramEvent::Response(answer)) => {
                        self.respond((local, to), answer, &response);
                    }
                    _ => {}
                }
                continue;
            };
            let key = socket.handles.get(handle.0).copied().flatten();
            if current.as_ref().map(|conn| conn.key) != key {
                self.finish_input(now, current.take());
                current = key.and_then(|key| self.conns.take(key));
            }
            if let Some(conn) = &mut current {
                conn.handle_event(event, to);
            }
        }
        self.finish_input(now, current);
        self.buffer = response;
    }

    /// Changes the name of an address, unless a handshake comes from there: the stack drops its packets from another one.
    fn change_name(&mut self, local: LocalId, next: Next) {
        let (Next::Forget(remote) | Next::Renew(remote)) = next else {
            return;
        };
        let is_joining = |conn: &Connection| {
            conn.local == local && conn.quic.is_handshaking() && conn.remote() == Some(remote)
        };
        let is_named = |socket: &Socket| socket.names.of(remote) != remote;
        let is_news =
            matches!(next, Next::Renew(_)) || self.locals.get(&local).is_some_and(is_named);
        if !is_news || self.conns.any(is_joining) {
            return;
        }
        if let Some(socket) = self.locals.get_mut(&local) {
            match next {
                Next::Renew(remote) => socket.names.renew(remote),
                _ => socket.names.forget(remote),
            }
        }
    }

    /// The stack of this connection has taken packets.
    fn finish_input(&mut self, now: Instant, conn: Option<Box<Connection>>) {
        let Some(mut conn) = conn else { return };
        let socket = self.locals.get(&conn.local);
        let next = socket.map_or(Next::Nothing, |socket| {
            conn.check_address(now, &socket.names)
        });
        self.change_name(conn.local, next);
        if let Some((session, _)) = conn.owner
            && let Some(state) = self.sessions.get_mut(&session)
        {
            state.heard_at = now;
        }
        self.process(now, &mut conn);
        self.put_back(conn);
        self.run_deferred(now);
    }

    fn accept(
        &mut self,
        now: Instant,
        (local, to): (LocalId, Option<IpAddr>),
        incoming: Incoming,
        response: &mut Vec<u8>,
    ) {
        let packet_bytes = self.packet_bytes();
        let pending = self.pending.total();
        let Some(socket) = self.locals.get_mut(&local) else {
            return;
        };
        let endpoint = &mut socket.endpoint;
        let source = Source::of(socket.names.real(incoming.remote_address()).ip());
        let (most, most_of_source) = (
            self.config.max_handshakes,
            self.config.max_handshakes_per_source,
        );
        let of_source = self.pending.held(source);
        if pending >= most || of_source >= most_of_source {
            self.refused_handshakes += 1;
            let answer = endpoint.refuse(incoming, response);
            return self.respond((local, to), answer, response);
        }
        let must_prove = pending >= most.div_ceil(4) || of_source >= most_of_source.div_ceil(4);
        if must_prove && incoming.may_retry() {
            if let Ok(answer) = endpoint.retry(incoming, response) {
                self.respond((local, to), answer, response);
            }
            return;
        }
        let control =
            PathControlHandle::new(self.config.accept_controller.clone(), now, packet_bytes);
        let mut config = (*self.server).clone();
        let keepalive = self.config.session.keepalive;
        let transport = transport::connection(&control, packet_bytes, keepalive);
        config.transport_config(transport);
        match endpoint.accept(incoming, now, response, Some(Arc::new(config))) {
            Ok((handle, quic)) => {
                let mut conn = self.insert_conn(now, local, handle, quic, control);
                conn.source = to;
                conn.pending = Some(source);
                self.pending.add(source);
                self.process(now, &mut conn);
                self.put_back(conn);
                self.run_deferred(now);
            }
            Err(error) => {
                if let Some(answer) = error.response {
                    self.respond((local, to), answer, response);
                }
            }
        }
    }

    fn respond(
        &mut self,
        (local, source): (LocalId, Option<IpAddr>),
        answer: noq_proto::Transmit,
        contents: &[u8],
    ) {
        if self.responses.len() >= MAX_RESPONSES {
            self.responses.pop_front();
        }
        let Some(contents) = contents.get(..answer.size) else {
            return;
        };
        let Some(socket) = self.locals.get(&local) else {
            return;
        };
        let response: Transmit = transmit(
            local,
            socket.names.real(answer.destination),
            source,
            answer.ecn.map_or(0, |ecn| ecn as u8),
            answer.size,
            contents.to_vec().into(),
        );
        self.responses.push_back(response);
    }

    /// Handles all events of a connection that input or time may have caused.
    pub(super) fn process(&mut self, now: Instant, conn: &mut Connection) {
        self.exchange_endpoint_events(conn);
        while let Some(event) = conn.quic.poll() {
            match event {
                Event::Connected => self.tls_finished(now, conn),
                Event::HandshakeConfirmed => {
                    conn.confirmed = true;
                    conn.control.lock().confirm();
                }
                Event::ConnectionLost { reason } => self.conn_lost(now, conn, &reason),
                Event::Stream(StreamEvent::Opened { .. }) => {
                    conn.accept_control();
                    self.read_messages(now, conn);
                }
                Event::Stream(StreamEvent::Readable { .. }) => self.read_messages(now, conn),
                _ => {}
            }
        }
        self.path_up_if_ready(now, conn);
        if conn.is_up() {
            self.report_fates(conn);
            self.deliver(now, conn);
        }
    }

    /// Reports the fates of datagrams to the session.
    pub(super) fn report_fates(&mut self, conn: &mut Connection) {
        let mut fates = std::mem::take(&mut self.fates);
        conn.control.lock().take_fates(&mut fates);
        if let Some((session, path)) = conn.owner
            && !fates.is_empty()
        {
            if let Some(state) = self.sessions.get_mut(&session) {
                tell_fates(&mut state.session, path, &fates);
            }
            self.touch(session);
        }
        fates.clear();
        self.fates = fates;
    }

    /// Passes received datagrams to the session.
    fn deliver(&mut self, now: Instant, conn: &mut Connection) {
        let Some((session, path)) = conn.owner else {
            return;
        };
        let Some(state) = self.sessions.get_mut(&session) else {
            return;
        };
        let Some(first) = conn.receive() else {
            return;
        };
        let payloads = std::iter::once(first).chain(std::iter::from_fn(|| conn.receive()));
        if let Err(violation) = state.session.handle_datagrams(now, path, payloads) {
            self.deferred.push_back(Deferred::EndSession {
                session,
                code: CloseCode::SessionViolation,
                reason: violation.to_string(),
                error: Some(Error::PeerViolation(violation.to_string())),
            });
        }
        while let Some(path) = state.session.poll_gone_path() {
            self.deferred
                .push_back(Deferred::PathGone { session, path });
        }
        while let Some((path, signal)) = state.session.poll_path_signal() {
            let signal = Deferred::Signal {
                session,
                path,
                signal,
            };
            self.deferred.push_back(signal);
        }
        self.touch(session);
    }

    fn exchange_endpoint_events(&mut self, conn: &mut Connection) {
        let Some(socket) = self.locals.get_mut(&conn.local) else {
            return;
        };
        while let Some(event) = conn.quic.poll_endpoint_events() {
            if let Some(answer) = socket.endpoint.handle_event(conn.handle, event) {
                conn.quic.handle_event(answer);
                conn.dirty = true;
            }
        }
    }

    /// A new connection takes its place in the node; the caller puts it back.
    pub(super) fn insert_conn(
        &mut self,
        now: Instant,
        local: LocalId,
        handle: ConnectionHandle,
        quic: noq_proto::Connection,
        control: PathControlHandle,
    ) -> Box<Connection> {
        let key = self.conns.reserve();
        if let Some(socket) = self.locals.get_mut(&local) {
            if socket.handles.len() <= handle.0 {
                socket.handles.resize(handle.0 + 1, None);
            }
            if let Some(place) = socket.handles.get_mut(handle.0) {
                *place = Some(key);
            }
        }
        let deadline = now + super::join::TLS_TIMEOUT;
        Box::new(Connection::new(
            key, local, handle, quic, control, now, deadline,
        ))
    }

    /// Returns a connection to its place and, if it may have something to send, to the queue.
    pub(super) fn put_back(&mut self, mut conn: Box<Connection>) {
        if self.is_over(&mut conn) {
            return;
        }
        if !conn.dirty && !conn.is_up() {
            self.set_conn_timer(&mut conn);
        } else if !conn.queued {
            conn.queued = true;
            self.ready.push_back(conn.key);
        }
        self.conns.put(conn);
    }

    /// Returns a connection without anything to send to its place.
    pub(super) fn settle(&mut self, mut conn: Box<Connection>) {
        if self.is_over(&mut conn) {
            return;
        }
        self.set_conn_timer(&mut conn);
        self.conns.put(conn);
    }

    /// Frees the place of a connection that the stack has drained.
    fn is_over(&mut self, conn: &mut Connection) -> bool {
        self.exchange_endpoint_events(conn);
        if !conn.quic.is_drained() {
            return false;
        }
        if conn.stage != Stage::Closed {
            self.process(self.now, conn);
        }
        if let Some(at) = conn.timer {
            self.timers.remove(&(at, TimerKey::Connection(conn.key)));
        }
        if let Some(source) = conn.pending.take() {
            self.pending.remove(source);
        }
        if let Some(socket) = self.locals.get_mut(&conn.local)
            && let Some(place) = socket.handles.get_mut(conn.handle.0)
            && *place == Some(conn.key)
        {
            *place = None;
        }
        if let Some(remote) = conn.remote() {
            self.change_name(conn.local, Next::Forget(remote));
        }
        self.conns.release(conn.key);
        true
    }
}

/// The session takes all acknowledgements of one instant together.
fn tell_fates(session: &mut Session, path: PathId, fates: &[DatagramFate]) {
    let alike = |a: &DatagramFate, b: &DatagramFate| matches!((a, b), (DatagramFate::Acked { at, .. }, DatagramFate::Acked { at: next, .. }) if at == next);
    for run in fates.chunk_by(alike) {
        match *run {
            [DatagramFate::Lost { at, sequence }] => {
                session.handle_transport_loss(at, path, sequence)
            }
            [DatagramFate::Acked { at, .. }, ..] => {
                let acked = run.iter().filter_map(|fate| match *fate {
                    DatagramFate::Acked { first, last, .. } => Some((first, last)),
                    DatagramFate::Lost { .. } => None,
                });
                session.handle_transport_ack_ranges(at, path, acked);
            }
            _ => {}
        }
    }
}
