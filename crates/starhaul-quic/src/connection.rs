//! One QUIC connection: its stage between TLS handshake and joined path, its control stream, and
//! its datagrams.

use std::{
    collections::VecDeque,
    net::{IpAddr, SocketAddr},
    num::NonZeroUsize,
    time::{Duration, Instant},
};

use bytes::Bytes;
use noq_proto::{
    ConnectionEvent, ConnectionHandle, Datagrams, Dir, FrameStats, PathId as QuicPathId, ReadError,
    ReadableError, StreamId,
};
use starhaul_paths::PathId;
use starhaul_session::{Budget, PathDatagram, PathUpdate};

use crate::{
    CloseCode, LocalId, PublicKey, SessionHandle,
    controller::{PACKET_OVERHEAD, PathControlHandle, Permit},
    join::{self, Exported},
    node::{ConnectionKey, Source},
    proof::{self, Names, Proof},
    wire::{self, Malformed, Message},
};

/// The stage of a connection between its first packet and its end.
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
    /// Part of the session; carries datagrams once the handshake is confirmed on both sides.
    Joined,
    /// Up, and datagrams flow.
    Up,
    /// Closed by us or lost; only its last packets are left.
    Closed,
}

/// A QUIC connection, which carries a path once it has joined a session.
#[derive(Debug)]
pub(crate) struct Connection {
    pub(crate) key: ConnectionKey,
    pub(crate) local: LocalId,
    pub(crate) handle: ConnectionHandle,
    pub(crate) quic: noq_proto::Connection,
    pub(crate) control: PathControlHandle,
    pub(crate) stage: Stage,
    /// Its session and path; a server learns them from OPEN or JOIN.
    pub(crate) owner: Option<(SessionHandle, PathId)>,
    /// The address of this host to which the peer sends, where the socket has several.
    pub(crate) source: Option<IpAddr>,
    /// The source in whose share of connections that have not joined it counts.
    pub(crate) pending: Option<Source>,
    /// Time limit of the present stage.
    pub(crate) deadline: Option<Instant>,
    /// The handshake is confirmed, so that only one packet number space is left.
    pub(crate) confirmed: bool,
    /// The QUIC stack may have something to send.
    pub(crate) dirty: bool,
    /// It is in the node's queue.
    pub(crate) queued: bool,
    /// When the pacer allows the next datagram, while the session may have one.
    pub(crate) paced_until: Option<Instant>,
    /// Version of the session in which it had nothing for this path.
    pub(crate) drained_at: Option<u64>,
    /// Datagrams of the session that were not given to the stack yet.
    pub(crate) next: VecDeque<PathDatagram>,
    /// The first datagram that arrived, taken from the stack to test whether there is one.
    first: Option<Bytes>,
    /// When it last checked whether a probe of the packet size is due.
    probe_checked_at: Instant,
    /// Packets without datagrams that arrived since the stack last acknowledged any.
    unacknowledged: u32,
    /// The proof of the client's address (server).
    proof: Option<Proof>,
    /// Pings to which the stack added no acknowledgement.
    vain_pings: u32,
    /// Acknowledgements that the stack has sent.
    acks: u64,
    /// The timer registered for it.
    pub(crate) timer: Option<Instant>,
    stream: Option<StreamId>,
    received: Vec<u8>,
    unsent: Vec<u8>,
}

/// The limits of datagrams on a connection.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Sizes {
    pub(crate) rtt: Duration,
    /// The largest that the path is known to carry.
    pub(crate) max_datagram: usize,
    /// The largest that the stack puts in one packet.
    pub(crate) packet_room: usize,
}

/// So many bytes more than its room for one datagram the stack may find for two: it reckons with the longest packet number.
const JOINED_SLACK: usize = 16;

impl Connection {
    pub(crate) fn new(
        key: ConnectionKey,
        local: LocalId,
        handle: ConnectionHandle,
        quic: noq_proto::Connection,
        control: PathControlHandle,
        now: Instant,
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
            source: None,
            pending: None,
            deadline: Some(deadline),
            confirmed: false,
            dirty: true,
            queued: false,
            paced_until: None,
            drained_at: None,
            next: VecDeque::new(),
            first: None,
            probe_checked_at: now,
            unacknowledged: 0,
            proof: None,
            vain_pings: 0,
            acks: 0,
            timer: None,
            stream: None,
            received: Vec::new(),
            unsent: Vec::new(),
        }
    }

    /// Whether any datagram of the peer came.
    pub(crate) fn has_heard(&mut self) -> bool {
        self.quic.stats().udp_rx.datagrams > 0
    }

    pub(crate) fn is_client(&self) -> bool {
        self.quic.side().is_client()
    }

    /// Whether datagrams flow.
    pub(crate) fn is_up(&self) -> bool {
        self.stage == Stage::Up
    }

    pub(crate) fn remote(&self) -> Option<SocketAddr> {
        let path = self.quic.network_path(QuicPathId::ZERO).ok()?;
        let known = path.remote();
        Some(self.proof.as_ref().map_or(known, |proof| proof.real(known)))
    }

    pub(crate) fn rtt(&self) -> Option<Duration> {
        self.quic.rtt(QuicPathId::ZERO)
    }

    /// The key that the peer proved to own.
    pub(crate) fn peer_key(&self) -> Option<PublicKey> {
        crate::tls::peer_key(self.quic.crypto_session())
    }

    /// Whether the peer reads a hello with the kind of link.
    pub(crate) fn may_say_link(&self) -> bool {
        let agreed = crate::tls::application_protocol(self.quic.crypto_session());
        agreed.as_deref() == Some(crate::tls::ALPN)
    }

    /// Keying material of this TLS session under `label` (RFC 8446 §7.5).
    pub(crate) fn export(&self, label: &[u8]) -> Option<Exported> {
        join::export(self.quic.crypto_session(), label)
    }

    /// Closes the connection and sends the peer the reason.
    pub(crate) fn close(&mut self, now: Instant, code: CloseCode, reason: &str) {
        if self.stage != Stage::Closed {
            let reason = Bytes::copy_from_slice(reason.as_bytes());
            self.quic.close(now, code.to_wire(), reason);
            self.leave();
        }
    }

    /// Detaches the connection from its session.
    pub(crate) fn leave(&mut self) {
        self.stage = Stage::Closed;
        self.owner = None;
        self.deadline = None;
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

    /// The next datagram that arrived.
    pub(crate) fn receive(&mut self) -> Option<Bytes> {
        self.first.take().or_else(|| self.next_datagram())
    }

    /// Whether the path is up at the peer, too. The server's ACCEPT may be lost or overtaken, and a client that has not read it
    /// acknowledges and drops datagrams; so a server sends nothing before the first datagram, which a client sends at once.
    pub(crate) fn is_up_at_peer(&mut self) -> bool {
        if !self.is_client() {
            self.first = self.receive();
        }
        self.is_client() || self.first.is_some()
    }

    /// The transport's present figures for the session.
    pub(crate) fn update(&mut self) -> PathUpdate {
        let sizes = self.sizes();
        self.control.lock().update(sizes.rtt, sizes.max_datagram)
    }

    /// What a modem tells of the losses of the link.
    pub(crate) fn told_loss(&self) -> Option<f64> {
        self.control.lock().path().controller().told_loss()
    }

    /// The limits that only the stack knows; constant between two inputs.
    pub(crate) fn sizes(&mut self) -> Sizes {
        /// RFC 9002 §6.2.2: the RTT assumed before there is a sample.
        const INITIAL_RTT: Duration = Duration::from_millis(333);
        let packet_room = self.quic.datagrams().max_size().unwrap_or(0);
        Sizes {
            rtt: self.rtt().unwrap_or(INITIAL_RTT),
            max_datagram: packet_room.min(self.control.lock().packet_size().datagram_bytes()),
            packet_room,
        }
    }

    /// The transport's figures for the session, and how much may leave now, including the datagrams that wait.
    pub(crate) fn permit(
        &self,
        now: Instant,
        sizes: Sizes,
        most: usize,
    ) -> Result<(PathUpdate, Budget), Permit> {
        let mut control = self.control.lock();
        let bytes = match control.permit(now) {
            Permit::Now(bytes) => bytes,
            wait => return Err(wait),
        };
        let overhead = PACKET_OVERHEAD as u64;
        let waiting = self
            .next
            .iter()
            .map(|datagram| datagram.payload.len() as u64 + overhead);
        let budget = Budget {
            datagrams: most.saturating_sub(self.next.len()),
            bytes: bytes.saturating_sub(waiting.sum()),
            packet_bytes: control.full_packet(),
            overhead_bytes: overhead,
            shared_bytes: sizes.packet_room,
        };
        Ok((control.update(sizes.rtt, sizes.max_datagram), budget))
    }

    /// Gives the datagrams that wait to the stack, which sends each in a packet of its own at the next [`Connection::poll_batch`]. Two that
    /// it would put in one packet are kept apart: their fate must be the fate of one. Calls `lost` for those that became too large.
    pub(crate) fn give(
        &mut self,
        now: Instant,
        sizes: Sizes,
        is_paced: bool,
        mut lost: impl FnMut(u32),
    ) {
        let mut control = self.control.lock();
        let mut datagrams = self.quic.datagrams();
        let mut previous: Option<usize> = None;
        loop {
            let (count, is_next_too_large) = next_run(&self.next, sizes, previous);
            let run = self.next.drain(..count);
            let (payloads, sequences): (Vec<_>, Vec<_>) = run
                .map(|datagram| (datagram.payload, datagram.sequence))
                .unzip();
            let given = give_all(&mut datagrams, &payloads);
            for (payload, sequence) in payloads.iter().zip(&sequences).take(given) {
                control.give(now, *sequence, payload.len(), is_paced);
                self.dirty = true;
            }
            previous = payloads.last().map(Bytes::len).or(previous);
            if given < count {
                // The path became narrower between two calls; the session sends what is in it again.
                let mut left = payloads.into_iter().zip(sequences).skip(given);
                if let Some((_, sequence)) = left.next() {
                    lost(sequence);
                }
                let left = left.map(|(payload, sequence)| PathDatagram { payload, sequence });
                let behind = std::mem::replace(&mut self.next, left.collect());
                self.next.extend(behind);
                return;
            }
            if !is_next_too_large {
                return;
            }
            if let Some(datagram) = self.next.pop_front() {
                lost(datagram.sequence);
            }
        }
    }

    /// Limits the search to the largest packet that the peer takes.
    pub(crate) fn limit_packet_size(&mut self) {
        let most = self.quic.current_mtu();
        self.control.lock().packet_size().limit(most);
    }

    /// The size of the datagram for a probe of the packet size, if one is due and may leave now.
    pub(crate) fn probe_due(&mut self, now: Instant) -> Option<usize> {
        self.probe_checked_at = now;
        if self.paced_until.is_some_and(|at| at > now) || self.waiting_bytes() > 0 {
            return None;
        }
        let mut control = self.control.lock();
        let size = control.packet_size().due(now)?;
        match control.permit(now) {
            Permit::Now(_) => Some(size),
            Permit::At(at) => {
                self.paced_until = Some(at);
                None
            }
            Permit::WindowFull => None,
        }
    }

    /// Whether an acknowledgement may leave beside the data, which the pacer lets leave at `paced_until`, and nothing waits before it.
    pub(crate) fn may_pass(&self, now: Instant, paced_until: Instant) -> bool {
        self.next.is_empty() && self.control.lock().may_pass(now, paced_until)
    }

    /// The size of the datagrams of the train that is to leave now.
    pub(crate) fn train_due(&mut self) -> Option<usize> {
        if self.waiting_bytes() > 0 || !self.control.lock().is_train_due() {
            return None;
        }
        let sizes = self.sizes();
        // As small as those may be of which the stack puts only one in a packet: full ones would keep the first data over 100 kbit/s waiting
        // for a second.
        let least_alone = (sizes.packet_room + JOINED_SLACK) / 2 + 1;
        Some(least_alone.min(sizes.max_datagram))
    }

    /// Gives the datagrams of a train to the stack.
    pub(crate) fn give_train(&mut self, train: Vec<PathDatagram>) {
        let mut datagrams = self.quic.datagrams();
        let mut control = self.control.lock();
        control.begin_train();
        for datagram in train {
            let size = datagram.payload.len();
            if datagrams.send(datagram.payload, false).is_ok() {
                control.give_train(size);
                self.dirty = true;
            }
        }
    }

    /// Gives the datagram of a probe to the stack.
    pub(crate) fn give_probe(&mut self, now: Instant, payload: Bytes) {
        let size = payload.len();
        if self.quic.datagrams().send(payload, false).is_ok() {
            self.control.lock().give_probe(now, size);
            self.dirty = true;
        }
    }

    /// Whether the stack must send its own frames before it gets a datagram: it would put both in one packet, which may then be
    /// larger than the path carries.
    pub(crate) fn must_send_first(&mut self, datagram_bytes: usize) -> bool {
        /// After this many packets that are not ack-eliciting the stack adds an acknowledgement to the next packet.
        const ACKNOWLEDGES_AFTER: u32 = 10;
        /// Its own frames may take one more packet.
        const MOST_PINGS: u32 = 2;
        if !self.control.lock().may_be_exceeded(datagram_bytes) {
            return false;
        }
        if self.unacknowledged > ACKNOWLEDGES_AFTER {
            // Forged or replayed packets are never acknowledged.
            self.vain_pings += 1;
            if self.vain_pings > MOST_PINGS {
                (self.unacknowledged, self.vain_pings) = (0, 0);
                return self.dirty;
            }
            self.quic.ping();
            self.dirty = true;
        }
        self.dirty
    }

    /// A packet arrived `to` an address of this host. It is answered from there if it is the peer's: anybody can send from the peer's
    /// address to another of ours.
    pub(crate) fn handle_event(&mut self, event: ConnectionEvent, to: Option<IpAddr>) {
        match to.filter(|to| self.source != Some(*to)) {
            None => self.quic.handle_event(event),
            Some(to) => {
                // Frames are read of authentic packets only.
                let before = self.frames_read();
                self.quic.handle_event(event);
                if self.frames_read() != before {
                    self.source = Some(to);
                }
            }
        }
        self.dirty = true;
        self.unacknowledged = self.unacknowledged.saturating_add(1);
    }

    fn frames_read(&mut self) -> Option<FrameStats> {
        let stats = self.quic.path_stats(QuicPathId::ZERO);
        stats.map(|stats| stats.frame_rx)
    }

    /// Packets arrived together. Returns what follows for the client's address (server).
    pub(crate) fn check_address(&mut self, now: Instant, names: &Names) -> proof::Next {
        if self.is_client() {
            return proof::Next::Nothing;
        }
        let path = self.quic.network_path(QuicPathId::ZERO);
        let (Ok(path), Some(rtt)) = (path, self.rtt()) else {
            return proof::Next::Nothing;
        };
        let known = path.remote();
        let address = (known, names.real(known));
        let quic = &mut self.quic;
        let answers = || {
            let stats = quic.path_stats(QuicPathId::ZERO);
            stats.map_or(0, |stats| stats.frame_rx.path_response)
        };
        let proof = self.proof.get_or_insert_with(|| Proof::new(address, rtt));
        proof.heard(now, address, rtt, answers)
    }

    /// The next datagram that arrived.
    fn next_datagram(&mut self) -> Option<Bytes> {
        let datagram = self.quic.datagrams().recv()?;
        // The packet of a datagram is ack-eliciting.
        self.unacknowledged = self.unacknowledged.saturating_sub(1);
        Some(datagram)
    }

    /// The stack sent a packet: counts whether an acknowledgement was in it.
    fn on_stack_sent(&mut self) {
        let stats = self.quic.path_stats(QuicPathId::ZERO);
        let acks = stats.map_or(0, |stats| stats.frame_tx.acks);
        if std::mem::replace(&mut self.acks, acks) != acks {
            (self.unacknowledged, self.vain_pings) = (0, 0);
        }
    }

    /// Bytes of datagrams waiting in the stack.
    pub(crate) fn waiting_bytes(&mut self) -> usize {
        let space = self.quic.datagrams().send_buffer_space();
        empty_send_buffer().saturating_sub(space)
    }

    /// The next packets of the stack: datagrams given to it, acknowledgements, control frames.
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
        if transmit.is_some() && self.unacknowledged > 0 {
            self.on_stack_sent();
        }
        if self.control.lock().probe_left() {
            // A small packet leaves right after a probe: if it arrives and the probe does not, the size was the reason.
            self.quic.ping();
            self.dirty = true;
        }
        transmit
    }

    /// When the connection needs the time next.
    pub(crate) fn next_timeout(&self) -> Option<Instant> {
        let probe = self
            .is_up()
            .then(|| self.control.lock().packet_size().timeout());
        // A probe that is due but may not leave waits for the pacer or an acknowledgement.
        let probe = probe.flatten().filter(|at| *at > self.probe_checked_at);
        let times = [
            self.quic.poll_timeout(),
            self.deadline,
            self.paced_until,
            probe,
        ];
        times.into_iter().flatten().min()
    }
}

/// How many of the datagrams that wait the stack may have together behind one of `previous` bytes, so that it puts each in a packet of its own;
/// and whether the next one is too large.
fn next_run(
    waiting: &VecDeque<PathDatagram>,
    sizes: Sizes,
    mut previous: Option<usize>,
) -> (usize, bool) {
    let room = sizes.packet_room + JOINED_SLACK;
    for (count, datagram) in waiting.iter().enumerate() {
        let size = datagram.payload.len();
        if size > sizes.max_datagram {
            return (count, true);
        }
        if previous.is_some_and(|previous| previous + size <= room) {
            return (count, false);
        }
        previous = Some(size);
        if size * 2 <= room {
            return (count + 1, false);
        }
    }
    (waiting.len(), false)
}

/// Gives the stack datagrams, for all of which it finds its limits once; returns how many of them it took, the first ones.
fn give_all(datagrams: &mut Datagrams<'_>, payloads: &[Bytes]) -> usize {
    if payloads.is_empty() {
        return 0;
    }
    datagrams.send_many(payloads, false).unwrap_or_else(|_| {
        // It takes none if one is too large.
        let mut each = payloads.iter();
        each.position(|payload| datagrams.send(payload.clone(), false).is_err())
            .unwrap_or(payloads.len())
    })
}

/// Free space that the stack reports for an empty buffer.
fn empty_send_buffer() -> usize {
    crate::transport::DATAGRAM_SEND_BUFFER_BYTES - size_of::<noq_proto::Datagram>()
}

#[cfg(test)]
mod tests;
