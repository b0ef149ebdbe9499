//! One QUIC connection: its stage between TLS handshake and joined path, its control stream, and
//! its datagrams.

use std::{
    net::SocketAddr,
    num::NonZeroUsize,
    time::{Duration, Instant},
};

use bytes::Bytes;
use noq_proto::{
    Connection, ConnectionHandle, Dir, PathId as QuicPathId, ReadError, ReadableError, StreamId,
};
use starhaul_paths::PathId;
use starhaul_session::{PathDatagram, PathUpdate};

use crate::{
    CloseCode, LocalId, PublicKey, SessionHandle,
    controller::{PathControlHandle, Permit},
    join::{self, Exported},
    node::ConnKey,
    wire::{self, Malformed, Message},
};

/// Where a connection stands between its first packet and its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stage {
    /// TLS is not finished.
    Handshake,
    /// Client: TLS is finished; OPEN or JOIN is sent when the session is ready for it.
    Idle,
    /// Client: OPEN was sent.
    Opening,
    /// Client: JOIN was sent.
    Joining,
    /// Server: waits for OPEN or JOIN.
    AwaitHello,
    /// Part of the session; carries datagrams once the handshake is confirmed too.
    Joined,
    /// Closed by us or lost; only its last packets are left.
    Closed,
}

/// A path as the QUIC connection that carries it.
#[derive(Debug)]
pub(crate) struct Conn {
    pub(crate) key: ConnKey,
    pub(crate) local: LocalId,
    pub(crate) handle: ConnectionHandle,
    pub(crate) quic: Connection,
    pub(crate) control: PathControlHandle,
    pub(crate) stage: Stage,
    /// What it belongs to; a server learns that from OPEN or JOIN.
    pub(crate) owner: Option<(SessionHandle, PathId)>,
    /// When it must have reached the next stage.
    pub(crate) deadline: Option<Instant>,
    /// The handshake is confirmed, so that only one packet number space is left.
    pub(crate) confirmed: bool,
    /// Datagrams flow.
    pub(crate) up: bool,
    /// The QUIC stack may have something to send.
    pub(crate) dirty: bool,
    /// Stands in the node's queue.
    pub(crate) queued: bool,
    /// When the pacer allows the next datagram, while the session is believed to have one.
    pub(crate) paced_until: Option<Instant>,
    /// Version of the session at which it had nothing for this path.
    pub(crate) drained_at: Option<u64>,
    /// A datagram that must not share a packet with the one before it.
    pub(crate) next: Option<PathDatagram>,
    /// The timer registered for it.
    pub(crate) timer: Option<Instant>,
    stream: Option<StreamId>,
    received: Vec<u8>,
    unsent: Vec<u8>,
}

/// What limits datagrams on a connection.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Sizes {
    pub(crate) rtt: Duration,
    pub(crate) max_datagram: usize,
}

impl Conn {
    pub(crate) fn new(
        key: ConnKey,
        local: LocalId,
        handle: ConnectionHandle,
        quic: Connection,
        control: PathControlHandle,
        deadline: Instant,
    ) -> Self {
        Self {
            key,
            local,
            handle,
            quic,
            control,
            stage: Stage::Handshake,
            owner: None,
            deadline: Some(deadline),
            confirmed: false,
            up: false,
            dirty: true,
            queued: false,
            paced_until: None,
            drained_at: None,
            next: None,
            timer: None,
            stream: None,
            received: Vec::new(),
            unsent: Vec::new(),
        }
    }

    pub(crate) fn is_client(&self) -> bool {
        self.quic.side().is_client()
    }

    pub(crate) fn remote(&self) -> Option<SocketAddr> {
        let path = self.quic.network_path(QuicPathId::ZERO).ok()?;
        Some(path.remote())
    }

    pub(crate) fn rtt(&self) -> Option<Duration> {
        self.quic.rtt(QuicPathId::ZERO)
    }

    /// The key the peer proved to hold.
    pub(crate) fn peer_key(&self) -> Option<PublicKey> {
        crate::tls::peer_key(self.quic.crypto_session())
    }

    /// Whether the peer reads a hello that says the kind of link.
    pub(crate) fn may_say_link(&self) -> bool {
        let agreed = crate::tls::application_protocol(self.quic.crypto_session());
        agreed.as_deref() == Some(crate::tls::ALPN)
    }

    /// Keying material of this TLS session under `label` (RFC 8446 §7.5).
    pub(crate) fn export(&self, label: &[u8]) -> Option<Exported> {
        join::export(self.quic.crypto_session(), label)
    }

    /// Tells the peer why and stops using the connection.
    pub(crate) fn close(&mut self, now: Instant, code: CloseCode, reason: &str) {
        if self.stage != Stage::Closed {
            let reason = Bytes::copy_from_slice(reason.as_bytes());
            self.quic.close(now, code.to_wire(), reason);
            self.leave();
        }
    }

    /// The connection is of no more use to a session.
    pub(crate) fn leave(&mut self) {
        self.stage = Stage::Closed;
        self.owner = None;
        self.deadline = None;
        self.up = false;
        self.paced_until = None;
        self.dirty = true;
    }

    /// Opens the control stream (client).
    pub(crate) fn open_control(&mut self) -> bool {
        self.stream = self.quic.streams().open(Dir::Bi);
        self.stream.is_some()
    }

    /// Takes the control stream that the peer opened (server).
    pub(crate) fn accept_control(&mut self) {
        if let Some(stream) = self.quic.streams().accept(Dir::Bi) {
            self.stream.get_or_insert(stream);
        }
    }

    /// Sends a message on the control stream.
    pub(crate) fn send_message(&mut self, message: &Message) {
        self.unsent.extend(message.encode());
        self.flush_control();
    }

    fn flush_control(&mut self) {
        let Some(stream) = self.stream else { return };
        // A full window leaves the rest for the next call; the window is larger than all messages together.
        if let Ok(written) = self.quic.send_stream(stream).write(&self.unsent) {
            self.unsent.drain(..written);
            self.dirty = true;
        }
    }

    /// The next message from the peer, if it is whole.
    pub(crate) fn next_message(&mut self) -> Result<Option<Message>, Malformed> {
        self.read_control()?;
        let Some((message, size)) = wire::parse(&self.received)? else {
            return Ok(None);
        };
        self.received.drain(..size);
        Ok(Some(message))
    }

    fn read_control(&mut self) -> Result<(), Malformed> {
        /// More than the messages of one connection can have.
        const MAX_UNREAD: usize = 1024;
        let Some(stream) = self.stream else {
            return Ok(());
        };
        let mut recv = self.quic.recv_stream(stream);
        let mut chunks = match recv.read(true) {
            Ok(chunks) => chunks,
            Err(ReadableError::ClosedStream | ReadableError::IllegalOrderedRead) => return Ok(()),
        };
        loop {
            match chunks.next(MAX_UNREAD) {
                Ok(Some(chunk)) => self.received.extend_from_slice(&chunk.bytes),
                Ok(None) | Err(ReadError::Blocked) => break,
                Err(ReadError::Reset(_)) => {
                    return Err(Malformed("the control stream was reset"));
                }
            }
            if self.received.len() > MAX_UNREAD {
                return Err(Malformed("too much on the control stream"));
            }
        }
        if chunks.finalize().should_transmit() {
            self.dirty = true;
        }
        Ok(())
    }

    /// What the session should know of the path now.
    pub(crate) fn update(&mut self) -> PathUpdate {
        let sizes = self.sizes();
        self.control.lock().update(sizes.rtt, sizes.max_datagram)
    }

    /// What only the stack can tell; constant between two inputs.
    pub(crate) fn sizes(&mut self) -> Sizes {
        /// RFC 9002 §6.2.2: the RTT assumed before there is a sample.
        const INITIAL_RTT: Duration = Duration::from_millis(333);
        Sizes {
            rtt: self.rtt().unwrap_or(INITIAL_RTT),
            max_datagram: self.quic.datagrams().max_size().unwrap_or(0),
        }
    }

    /// What the session should know of the path, if one more of its datagrams may leave now in the
    /// same batch as those before.
    pub(crate) fn permit(&self, now: Instant, sizes: Sizes) -> Result<PathUpdate, Permit> {
        let mut control = self.control.lock();
        match control.permit(now) {
            Permit::Now => Ok(control.update(sizes.rtt, sizes.max_datagram)),
            wait => Err(wait),
        }
    }

    /// Gives a datagram to the stack, which sends it at the next [`Conn::poll_batch`]; false when
    /// it is too large.
    pub(crate) fn give(&mut self, now: Instant, datagram: PathDatagram) -> bool {
        let PathDatagram { payload, sequence } = datagram;
        let size = payload.len();
        let sent = self.quic.datagrams().send(payload, false).is_ok();
        if sent {
            self.control.lock().give(now, sequence, size);
            self.dirty = true;
        }
        sent
    }

    /// Bytes of datagrams that wait in the stack.
    pub(crate) fn waiting_bytes(&mut self) -> usize {
        let space = self.quic.datagrams().send_buffer_space();
        empty_send_buffer().saturating_sub(space)
    }

    /// What the stack wants to send: datagrams given to it, acknowledgements, control frames.
    pub(crate) fn poll_batch(
        &mut self,
        now: Instant,
        buffer: &mut Vec<u8>,
    ) -> Option<noq_proto::Transmit> {
        /// A closing connection wants one packet for each packet number space at once, and repeats
        /// the first one forever when it may not.
        const CLOSING_PACKETS: usize = 4;
        let given = {
            let mut control = self.control.lock();
            control.arm();
            control.given()
        };
        let most = if self.quic.is_closed() {
            CLOSING_PACKETS
        } else {
            given
        };
        let most = NonZeroUsize::new(most).unwrap_or(NonZeroUsize::MIN);
        let transmit = self.quic.poll_transmit(now, most, buffer);
        if given > 0 {
            let waiting = self.waiting_bytes();
            self.control.lock().settle(waiting);
        }
        if transmit.is_none() {
            self.dirty = false;
        }
        transmit
    }

    /// When it must be looked at without any input.
    pub(crate) fn next_timeout(&self) -> Option<Instant> {
        let times = [self.quic.poll_timeout(), self.deadline, self.paced_until];
        times.into_iter().flatten().min()
    }
}

/// What the stack reports as free when its buffer is empty.
fn empty_send_buffer() -> usize {
    crate::transport::DATAGRAM_SEND_BUFFER_BYTES - size_of::<noq_proto::Datagram>()
}
