//! What the kernel received: many datagrams per call, joined by it (GRO), in memory that may be passed on without a copy.

use std::{
    io::{self, IoSliceMut},
    net::{IpAddr, SocketAddr},
    os::fd::AsFd,
    time::Duration,
};

use bytes::{Buf as _, BytesMut};
use noq_udp::{RecvMeta, UdpSocketState};

/// A received datagram.
#[derive(Clone, Copy, Debug)]
pub struct Datagram<'a> {
    /// The source address.
    pub remote: SocketAddr,
    /// The destination address on this host.
    pub local: Option<IpAddr>,
    /// ECN bits of the IP header (RFC 3168).
    pub ecn: u8,
    /// The UDP payload.
    pub payload: &'a [u8],
}

/// Datagrams of one sender that the kernel joined (GRO).
#[derive(Clone, Copy, Debug)]
pub struct Message<'a> {
    /// Address of the sender.
    pub remote: SocketAddr,
    /// To which of this host's addresses, if the kernel says so.
    pub local: Option<IpAddr>,
    /// The ECN bits of their IP headers.
    pub ecn: u8,
    /// Bytes of each datagram but the last, which may be shorter; at least 1.
    pub stride: usize,
    /// Their payloads, one behind the other.
    pub contents: &'a [u8],
    /// When the kernel received it, by the wall clock, where the socket asks for that.
    pub(crate) stamp: Option<Duration>,
}

/// Datagrams of one sender that the kernel joined, in the memory into which it received them.
#[derive(Debug)]
pub struct Lent<'a> {
    /// Address of the sender.
    pub remote: SocketAddr,
    /// To which of this host's addresses, if the kernel says so.
    pub local: Option<IpAddr>,
    /// The ECN bits of their IP headers.
    pub ecn: u8,
    /// Bytes of each datagram but the last, which may be shorter; at least 1.
    pub stride: usize,
    /// What was not taken out; only ever shortened from its beginning.
    contents: &'a mut BytesMut,
    is_lendable: bool,
}

impl Lent<'_> {
    /// The payloads that were not taken out, one behind the other.
    pub fn contents(&self) -> &[u8] {
        self.contents
    }

    /// Whether what is taken out is not copied. A byte kept of that keeps 64 KiB; where too much is kept the buffer lends nothing.
    pub const fn is_lendable(&self) -> bool {
        self.is_lendable
    }

    /// Takes the first bytes out, at most so many: in the memory of the buffer if that is [lendable](Lent::is_lendable), otherwise a copy.
    pub fn take(&mut self, bytes: usize) -> BytesMut {
        match self.is_lendable {
            true => self.contents.split_to(bytes.min(self.contents.len())),
            false => self.copy(bytes),
        }
    }

    /// Takes a copy of the first bytes out, at most so many.
    pub fn copy(&mut self, bytes: usize) -> BytesMut {
        let bytes = bytes.min(self.contents.len());
        let copy = BytesMut::from(self.contents.get(..bytes).unwrap_or_default());
        self.contents.advance(bytes);
        copy
    }
}

/// The buffer of [`UdpSocket::try_recv`](crate::UdpSocket::try_recv); one per thread is enough.
pub struct RecvBuffer {
    /// Each is empty and has room for [`CHUNK_BYTES`] before the kernel writes into it; then it contains a message.
    chunks: [BytesMut; CHUNKS],
    meta: [RecvMeta; CHUNKS],
    received: usize,
    /// The messages of the last receive were taken.
    is_taken: bool,
    /// Former chunks of which something is kept elsewhere: at most [`MOST_HELD`].
    held: Vec<BytesMut>,
}

impl RecvBuffer {
    /// Creates an empty buffer of 512 KiB. It takes up to 512 KiB more where what it has [lent](RecvBuffer::take_messages) is kept.
    pub fn new() -> Self {
        Self {
            chunks: std::array::from_fn(|_| BytesMut::zeroed(CHUNK_BYTES)),
            meta: [RecvMeta::default(); CHUNKS],
            received: 0,
            is_taken: false,
            held: Vec::new(),
        }
    }

    /// Receives available messages; returns their number.
    pub(crate) fn fill(&mut self, state: &UdpSocketState, socket: &impl AsFd) -> io::Result<usize> {
        (self.received, self.is_taken) = (0, false);
        self.restore();
        let mut slices = self
            .chunks
            .each_mut()
            .map(|chunk| IoSliceMut::new(writable(chunk)));
        self.received = state.recv(socket.into(), &mut slices, &mut self.meta)?;
        for (chunk, meta) in self.chunks.iter_mut().zip(&self.meta).take(self.received) {
            keep_written(chunk, meta.len);
        }
        Ok(self.received)
    }

    /// Makes each chunk empty and whole again, or replaces it by another while something of it is kept.
    fn restore(&mut self) {
        let Self { chunks, held, .. } = self;
        for chunk in chunks {
            chunk.clear();
            if !chunk.try_reclaim(CHUNK_BYTES) {
                let free = held
                    .iter_mut()
                    .position(|held| held.try_reclaim(CHUNK_BYTES));
                let mut other = match free {
                    Some(index) => held.swap_remove(index),
                    None => BytesMut::zeroed(CHUNK_BYTES),
                };
                other.clear();
                held.push(std::mem::replace(chunk, other));
            }
        }
        held.retain_mut(|held| !held.try_reclaim(CHUNK_BYTES));
    }

    /// Whether the last receive took as many messages as one call can: more may wait. Where it took fewer, none was left, or the next call
    /// tells an error; [`Poller::wait`](crate::Poller::wait) says when there is something again.
    pub fn is_full(&self) -> bool {
        self.received == CHUNKS
    }

    /// The datagrams of the last receive, in order of arrival. Those from port 0 are left out: they are forged, as no
    /// answer can be sent there (RFC 768).
    pub fn datagrams(&self) -> impl Iterator<Item = Datagram<'_>> {
        self.messages().flat_map(|message| {
            let payloads = message.contents.chunks(message.stride);
            payloads.map(move |payload| Datagram {
                remote: message.remote,
                local: message.local,
                ecn: message.ecn,
                payload,
            })
        })
    }

    /// The same datagrams as the kernel joined them; none once they were taken.
    pub fn messages(&self) -> impl Iterator<Item = Message<'_>> {
        let left = if self.is_taken { 0 } else { self.received };
        let messages = self.meta.iter().zip(&self.chunks).take(left);
        let messages = messages.filter(|(meta, _)| meta.addr.port() != 0);
        messages.map(|(meta, chunk)| Message {
            remote: meta.addr,
            local: meta.dst_ip,
            ecn: meta.ecn.map_or(0, |ecn| ecn as u8),
            stamp: meta.timestamp,
            stride: meta.stride.max(1),
            contents: chunk,
        })
    }

    /// The same messages, whose contents may be taken out without a copy, once for each receive. The next receive uses the memory again of
    /// which nothing is kept by then.
    pub fn take_messages(&mut self) -> impl Iterator<Item = Lent<'_>> {
        self.is_taken = true;
        let lendable = MOST_HELD.saturating_sub(self.held.len());
        let messages = self.meta.iter().zip(&mut self.chunks).take(self.received);
        let messages = messages.enumerate();
        messages.filter(|(_, (meta, _))| meta.addr.port() != 0).map(
            move |(index, (meta, chunk))| Lent {
                remote: meta.addr,
                local: meta.dst_ip,
                ecn: meta.ecn.map_or(0, |ecn| ecn as u8),
                stride: meta.stride.max(1),
                contents: chunk,
                is_lendable: index < lendable,
            },
        )
    }
}

/// The memory of an empty chunk, which only the kernel may write.
#[expect(
    unsafe_code,
    reason = "the safe way writes 64 KiB of zeros for each message"
)]
fn writable(chunk: &mut BytesMut) -> &mut [u8] {
    let room = chunk.spare_capacity_mut();
    let room = room.get_mut(..CHUNK_BYTES).unwrap_or_default();
    // SAFETY: both kinds of bytes have one layout. A chunk is made of zeros; but who took a payload may leave its memory without contents
    // (`spare_capacity_mut` of it, too, is safe), so nothing reads these bytes before the kernel has written them.
    unsafe { &mut *(std::ptr::from_mut(room) as *mut [u8]) }
}

/// The kernel wrote so many bytes into the memory of an empty chunk: they are its contents.
#[expect(unsafe_code, reason = "only the kernel knows how much it wrote")]
fn keep_written(chunk: &mut BytesMut, bytes: usize) {
    // SAFETY: the kernel was given `CHUNK_BYTES` of the chunk's capacity, and wrote these.
    unsafe { chunk.set_len(bytes.min(CHUNK_BYTES)) }
}

impl Default for RecvBuffer {
    fn default() -> Self {
        Self::new()
    }
}

impl std::fmt::Debug for RecvBuffer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("RecvBuffer")
            .field("received", &self.received)
            .finish_non_exhaustive()
    }
}

/// Messages per receive call.
pub(crate) const CHUNKS: usize = 8;
/// The kernel joins up to 64 KiB of datagrams into one message (GRO).
const CHUNK_BYTES: usize = 64 << 10;
/// Most chunks that are replaced because something of them is kept elsewhere.
const MOST_HELD: usize = CHUNKS;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{BindOptions, Poller, Transmit, UdpSocket};

    const STRIDE: usize = 1000;
    /// Datagrams of each batch.
    const DATAGRAMS: usize = 20;

    fn bind() -> UdpSocket {
        UdpSocket::bind(&BindOptions::new("127.0.0.1:0".parse().unwrap())).unwrap()
    }

    /// Sends a batch that contains the byte `fill`, and calls `take` for each message of it that arrives.
    fn pass(
        [sender, receiver]: &[UdpSocket; 2],
        buffer: &mut RecvBuffer,
        fill: u8,
        mut take: impl FnMut(Lent<'_>),
    ) {
        let contents = [fill; DATAGRAMS * STRIDE];
        let sent = sender.try_send(&Transmit {
            to: receiver.local_addr(),
            from: None,
            ecn: 0,
            contents: &contents,
            segment_size: STRIDE,
        });
        assert_eq!(sent.unwrap(), contents.len());
        let (mut poller, mut arrived) = (Poller::new().unwrap(), 0);
        while arrived < contents.len() {
            poller.wait(&[(receiver, false)], None).unwrap();
            while receiver.try_recv(buffer).unwrap() {
                for message in buffer.take_messages() {
                    assert_eq!(message.stride, STRIDE);
                    assert!(message.contents().iter().all(|byte| *byte == fill));
                    arrived += message.contents().len();
                    take(message);
                }
                assert_eq!(buffer.messages().count(), 0, "they were taken");
            }
        }
    }

    #[test]
    fn memory_that_nobody_keeps_is_received_into_again() {
        let (sockets, mut buffer) = ([bind(), bind()], RecvBuffer::new());
        let places = |buffer: &RecvBuffer| buffer.chunks.each_ref().map(|chunk| chunk.as_ptr());
        let before = places(&buffer);
        for fill in 0..100 {
            pass(&sockets, &mut buffer, fill, |mut message| {
                assert!(message.is_lendable());
                // Written, as by who decrypts in place, and dropped, but for some that nobody takes.
                for _ in 0..fill % 21 {
                    message.take(STRIDE).fill(0xff);
                }
            });
            buffer.restore();
            assert_eq!(places(&buffer), before);
            assert!(buffer.held.is_empty());
            let is_whole = |chunk: &BytesMut| chunk.is_empty() && chunk.capacity() >= CHUNK_BYTES;
            assert!(buffer.chunks.iter().all(is_whole));
        }
    }

    #[test]
    fn a_payload_that_grows_or_is_joined_to_the_next_changes_no_other() {
        let (sockets, mut buffer) = ([bind(), bind()], RecvBuffer::new());
        for fill in 0..20_u8 {
            let mut kept = Vec::new();
            pass(&sockets, &mut buffer, fill, |mut message| {
                let (mut first, mut second) = (message.take(STRIDE), message.take(STRIDE));
                let rest = message.take(usize::MAX);
                // Where its own memory ends that of the next begins.
                first.extend_from_slice(&[!fill; STRIDE]);
                second.unsplit(rest);
                second.reserve(CHUNK_BYTES);
                kept.push((first, second));
            });
            for (first, second) in kept {
                let (received, added) = first.split_at(STRIDE);
                assert!(received.iter().chain(&second).all(|byte| *byte == fill));
                assert_eq!(added, [!fill; STRIDE]);
            }
            buffer.restore();
            assert!(buffer.held.is_empty(), "nothing is kept");
        }
    }

    #[test]
    fn what_is_kept_stays_as_it_is_and_keeps_a_bounded_number_of_chunks() {
        let (sockets, mut buffer) = ([bind(), bind()], RecvBuffer::new());
        let (mut kept, mut copies) = (Vec::new(), 0);
        for fill in 0..60 {
            pass(&sockets, &mut buffer, fill, |mut message| {
                copies += usize::from(!message.is_lendable());
                kept.push((fill, message.take(STRIDE)));
            });
            buffer.restore();
            assert!(buffer.held.len() <= MOST_HELD);
        }
        assert!(copies > 0, "{} chunks are held", buffer.held.len());
        for (fill, payload) in kept.drain(..) {
            assert_eq!(payload.len(), STRIDE);
            assert!(payload.iter().all(|byte| *byte == fill), "of batch {fill}");
        }
        // Nothing is kept any more: the buffer lends again, and has no more than it began with.
        pass(&sockets, &mut buffer, 0, |_| ());
        buffer.restore();
        assert!(buffer.held.is_empty());
        pass(&sockets, &mut buffer, 0, |message| {
            assert!(message.is_lendable())
        });
    }
}
