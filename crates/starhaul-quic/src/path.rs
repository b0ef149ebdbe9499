//! One QUIC connection: its stage between TLS handshake and joined path, its control stream, and its datagrams.

use std::{
    collections::VecDeque,
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
    /// Packets that were built but did not fit the last batch.
    pub(crate) held: VecDeque<Packet>,
    /// The timer registered for it.
    pub(crate) timer: Option<Instant>,
    /// A datagram given to the stack that has not left yet.
    pending: Option<u32>,
    /// Nothing but that datagram made the stack dirty.
    only_datagram: bool,
    stream: Option<StreamId>,
    received: Vec<u8>,
    unsent: Vec<u8>,
}

/// One UDP payload.
#[derive(Debug)]
pub(crate) struct Packet {
    pub(crate) remote: SocketAddr,
    pub(crate) ecn: u8,
    pub(crate) payload: Vec<u8>,
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
            held: VecDeque::new(),
            timer: None,
            pending: None,
            only_datagram: false,
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
        /// RFC 9002 §6.2.2: the RTT assumed before there is a sample.
        const INITIAL_RTT: Duration = Duration::from_millis(333);
        let max_datagram = self.quic.datagrams().max_size().unwrap_or(0);
        let smoothed_rtt = self.rtt().unwrap_or(INITIAL_RTT);
        let mut control = self.control.lock();
        control.set_smoothed_rtt(smoothed_rtt);
        PathUpdate {
            cwnd: control.cwnd(),
            bytes_in_flight: control.bytes_in_flight(),
            bandwidth: control.bandwidth(),
            smoothed_rtt,
            min_rtt: control.min_rtt().unwrap_or(smoothed_rtt),
            max_datagram,
        }
    }

    /// Whether a datagram of the session may leave now.
    pub(crate) fn permit(&mut self, now: Instant) -> Permit {
        if self.pending.is_some() {
            // The stack holds one back; it tells by itself when it goes on.
            return Permit::WindowFull;
        }
        self.control.lock().permit(now)
    }

    /// Gives a datagram to the stack; [`Conn::poll_packet`] sends it. `Some(sequence)` when it cannot be sent.
    pub(crate) fn queue_datagram(&mut self, datagram: PathDatagram) -> Option<u32> {
        match self.quic.datagrams().send(datagram.payload, false) {
            Ok(()) => {
                self.pending = Some(datagram.sequence);
                // Spares asking the stack again, in vain, after each datagram.
                self.only_datagram = !self.dirty;
                self.dirty = true;
                None
            }
            Err(_) => Some(datagram.sequence),
        }
    }

    /// The next packet of the stack, and the datagram that was lost inside it, if any. `payload` is a buffer to use.
    pub(crate) fn poll_packet(
        &mut self,
        now: Instant,
        mut payload: Vec<u8>,
    ) -> (Result<Packet, Vec<u8>>, Option<u32>) {
        /// A closing connection wants one packet for each packet number space at once, and repeats the first one forever
        /// when it may not.
        const CLOSING_PACKETS: NonZeroUsize = NonZeroUsize::new(4).expect("not zero");
        payload.clear();
        self.control.lock().arm();
        let most = match self.quic.is_closed() {
            true => CLOSING_PACKETS,
            false => NonZeroUsize::MIN,
        };
        let transmit = self.quic.poll_transmit(now, most, &mut payload);
        let dropped = self.settle_pending(transmit.is_some());
        let Some(transmit) = transmit else {
            self.dirty = false;
            self.only_datagram = false;
            return (Err(payload), dropped);
        };
        let packet = |payload| Packet {
            remote: transmit.destination,
            ecn: transmit.ecn.map_or(0, |ecn| ecn as u8),
            payload,
        };
        if let Some(size) = transmit.segment_size {
            let further = payload.chunks(size.max(1)).skip(1);
            self.held
                .extend(further.map(|payload| packet(payload.to_vec())));
            payload.truncate(size);
        }
        (Ok(packet(payload)), dropped)
    }

    /// Learns whether the pending datagram left in the packet just built, or was dropped by the stack because it had become
    /// too large for the path.
    fn settle_pending(&mut self, sent: bool) -> Option<u32> {
        let sequence = self.pending?;
        let space = self.quic.datagrams().send_buffer_space();
        if space < empty_send_buffer() {
            return None;
        }
        self.pending = None;
        if std::mem::take(&mut self.only_datagram) {
            self.dirty = false;
        }
        let noted = sent && self.control.lock().note_datagram(sequence);
        (!noted).then_some(sequence)
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
