//! A UDP socket for bulk data of one kind: large buffers, IP fragmentation allowed, and a choice of system calls.

use std::{
    io::IoSlice,
    net::{IpAddr, SocketAddr},
    os::fd::AsFd,
    sync::atomic::{AtomicUsize, Ordering},
};

use rustix::{
    io::Errno,
    net::{MMsgHdr, SendAncillaryBuffer, SendFlags, SocketAddrAny, sendmmsg},
};

use crate::{BindOptions, Error, RecvBuffer, Transmit, UdpSocket, offload::Fragments};

/// Which system calls carry datagrams to the kernel. Receiving takes several at once in every mode.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum IoMode {
    /// One buffer that the kernel cuts into datagrams (`UDP_SEGMENT`), and joins again at the receiver (`UDP_GRO`).
    #[default]
    Gso,
    /// Many datagrams per call (`sendmmsg`).
    Mmsg,
    /// One datagram per call.
    Single,
}

impl IoMode {
    /// All modes, the fastest first.
    pub const ALL: [Self; 3] = [Self::Gso, Self::Mmsg, Self::Single];

    /// Its name on the command line and in results.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Gso => "gso",
            Self::Mmsg => "mmsg",
            Self::Single => "single",
        }
    }
}

/// Receive buffer that absorbs what a sender at 10 Gbit/s sends while the receiver does not run for 50 ms.
const BUFFER_BYTES: usize = 64 << 20;
/// Bytes and datagrams of one call: the limits of segmentation offload.
pub(crate) const MOST_BYTES: usize = 65_507;
pub(crate) const MOST_DATAGRAMS: usize = 64;

/// Where datagrams go, and under which address if not the socket's own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Way {
    pub(crate) to: SocketAddr,
    pub(crate) from: Option<IpAddr>,
}

/// A UDP socket for bulk data.
#[derive(Debug)]
pub struct BulkSocket {
    socket: UdpSocket,
    mode: IoMode,
    /// Segments of this size or more exceed the MTU: segmentation offload refuses them, since it makes no fragments.
    too_large: AtomicUsize,
}

impl BulkSocket {
    /// Binds `address`.
    ///
    /// # Errors
    /// As [`UdpSocket::bind`].
    pub fn bind(address: SocketAddr, mode: IoMode) -> Result<Self, Error> {
        Self::bind_with(&BindOptions::new(address), mode)
    }

    /// The same with options; its buffers are large whatever they say.
    pub fn bind_with(options: &BindOptions, mode: IoMode) -> Result<Self, Error> {
        let options = BindOptions {
            buffer_bytes: BUFFER_BYTES,
            ..options.clone()
        };
        // Datagrams larger than the path's MTU are cut by the kernel.
        let socket = UdpSocket::bind_with(&options, Fragments::Anywhere)?;
        Ok(Self {
            socket,
            mode,
            too_large: AtomicUsize::new(usize::MAX),
        })
    }

    /// The socket, to wait for it.
    pub fn socket(&self) -> &UdpSocket {
        &self.socket
    }

    /// The bound address.
    pub fn local_addr(&self) -> SocketAddr {
        self.socket.local_addr()
    }

    /// Sends as much of a batch as the socket takes, and returns how many bytes that was; if fewer than all, wait until
    /// it is writable.
    ///
    /// # Errors
    /// As [`UdpSocket::try_send`].
    pub fn try_send(
        &self,
        to: SocketAddr,
        contents: &[u8],
        segment_size: usize,
    ) -> Result<usize, Error> {
        self.try_send_by(Way { to, from: None }, contents, segment_size)
    }

    /// The same for datagrams above the MTU of the way: the kernel makes fragments of single ones alone, and is not asked to cut a batch.
    ///
    /// # Errors
    /// As [`UdpSocket::try_send`].
    #[cfg(feature = "ltp")]
    pub(crate) fn try_send_fragmented(
        &self,
        to: SocketAddr,
        contents: &[u8],
        segment_size: usize,
    ) -> Result<usize, Error> {
        let way = Way { to, from: None };
        match self.mode {
            IoMode::Mmsg => self.send_together(to, contents, segment_size),
            IoMode::Gso | IoMode::Single => self.send_singly(way, contents, segment_size),
        }
    }

    /// The same with a batch whose bytes lie in `parts`, one behind the other: they are not copied together before. `None` if this socket's
    /// calls do not take it so, and it is to be sent from one buffer; `Some(false)` if the socket is full. Otherwise all of it is sent.
    #[cfg(feature = "ltp")]
    pub(crate) fn try_send_parts(
        &self,
        to: SocketAddr,
        parts: &[IoSlice<'_>],
        segment_size: usize,
    ) -> Option<bool> {
        let bytes: usize = parts.iter().map(|part| part.len()).sum();
        let is_one = bytes <= segment_size;
        match self.mode {
            IoMode::Mmsg if is_one => self.send_message(to, parts),
            IoMode::Gso => self.socket.try_send_parts(to, parts, segment_size),
            IoMode::Single if is_one => self.socket.try_send_parts(to, parts, segment_size),
            // Parts would have to be told apart by datagrams, which are short where there are several.
            IoMode::Mmsg | IoMode::Single => None,
        }
    }

    /// Sends one datagram by the call that sends many, as [`BulkSocket::try_send_parts`].
    #[cfg(feature = "ltp")]
    fn send_message(&self, to: SocketAddr, parts: &[IoSlice<'_>]) -> Option<bool> {
        let (to, mut control) = (SocketAddrAny::from(to), SendAncillaryBuffer::default());
        let mut messages = [MMsgHdr::new_with_addr(&to, parts, &mut control)];
        match sendmmsg(self.socket.as_fd(), &mut messages, SendFlags::empty()) {
            Ok(_) => Some(true),
            Err(Errno::AGAIN | Errno::NOBUFS) => Some(false),
            Err(_) => None,
        }
    }

    /// The same with a source address, which need not be of this host if the socket is transparent.
    ///
    /// # Errors
    /// As [`UdpSocket::try_send`].
    pub(crate) fn try_send_by(
        &self,
        way: Way,
        contents: &[u8],
        segment_size: usize,
    ) -> Result<usize, Error> {
        match self.mode {
            IoMode::Gso => self.send_offloaded(way, contents, segment_size),
            IoMode::Mmsg if way.from.is_none() => {
                self.send_together(way.to, contents, segment_size)
            }
            IoMode::Mmsg | IoMode::Single => self.send_singly(way, contents, segment_size),
        }
    }

    /// Whether the last batch had to be cut into datagrams, all of which left: they need fragments. As large ones are offloaded again from
    /// now on, for the next ones may have another destination.
    pub(crate) fn take_too_large(&self) -> bool {
        self.too_large.swap(usize::MAX, Ordering::Relaxed) != usize::MAX
    }

    /// Sends batches again where they were given up, as [`UdpSocket::believe_again`].
    pub(crate) fn believe_again(&self) -> bool {
        self.socket.believe_again()
    }

    /// Datagrams that the system refused.
    pub(crate) fn refused(&self) -> u64 {
        self.socket.refused()
    }

    /// Receives available datagrams; `false` when there are none.
    ///
    /// # Errors
    /// As [`UdpSocket::try_recv`].
    pub fn try_recv(&self, buffer: &mut RecvBuffer) -> Result<bool, Error> {
        self.socket.try_recv(buffer)
    }

    fn send_offloaded(
        &self,
        way: Way,
        contents: &[u8],
        segment_size: usize,
    ) -> Result<usize, Error> {
        if segment_size >= self.too_large.load(Ordering::Relaxed) {
            return self.send_singly(way, contents, segment_size);
        }
        let refused = self.socket.refused();
        let sent = self.send_batch(way, contents, segment_size)?;
        if contents.len() <= segment_size || self.socket.refused() == refused {
            return Ok(sent);
        }
        // One by one, the kernel makes fragments. If it refuses these, too, their size is not the reason.
        let refused = self.socket.refused();
        let sent = self.send_singly(way, contents, segment_size)?;
        if self.socket.refused() == refused {
            self.too_large.fetch_min(segment_size, Ordering::Relaxed);
        }
        Ok(sent)
    }

    fn send_singly(&self, way: Way, contents: &[u8], segment_size: usize) -> Result<usize, Error> {
        let mut done = 0;
        for datagram in contents.chunks(segment_size.max(1)) {
            match self.send_batch(way, datagram, datagram.len())? {
                0 => break,
                sent => done += sent,
            }
        }
        Ok(done)
    }

    fn send_together(
        &self,
        to: SocketAddr,
        contents: &[u8],
        segment_size: usize,
    ) -> Result<usize, Error> {
        let datagrams = contents.chunks(segment_size.max(1));
        let slices: Vec<IoSlice<'_>> = datagrams.map(IoSlice::new).collect();
        let mut done = 0;
        for group in slices.chunks(MOST_DATAGRAMS) {
            let sent = self.send_messages(to, group)?;
            done += sent;
            if sent < group.iter().map(|slice| slice.len()).sum() {
                break;
            }
        }
        Ok(done)
    }

    fn send_batch(&self, way: Way, contents: &[u8], segment_size: usize) -> Result<usize, Error> {
        self.socket.try_send(&Transmit {
            to: way.to,
            from: way.from,
            ecn: 0,
            contents,
            segment_size,
        })
    }

    fn send_messages(&self, to: SocketAddr, datagrams: &[IoSlice<'_>]) -> Result<usize, Error> {
        let to = SocketAddrAny::from(to);
        let mut controls: Vec<_> = datagrams
            .iter()
            .map(|_| SendAncillaryBuffer::default())
            .collect();
        let slices = datagrams.chunks(1).zip(&mut controls);
        let mut messages: Vec<_> = slices
            .map(|(slice, control)| MMsgHdr::new_with_addr(&to, slice, control))
            .collect();
        match sendmmsg(self.socket.as_fd(), &mut messages, SendFlags::empty()) {
            Ok(sent) => Ok(datagrams.iter().take(sent).map(|slice| slice.len()).sum()),
            Err(Errno::AGAIN | Errno::NOBUFS) => Ok(0),
            // Of this destination, of the way there, or of an earlier datagram, which this call collects: these count as lost.
            Err(errno) => {
                self.socket.take_refusal(errno.into(), datagrams.len())?;
                Ok(datagrams.iter().map(|slice| slice.len()).sum())
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use rustix::net::sockopt::{Ipv4PathMtuDiscovery, ip_mtu_discover};

    use super::*;
    use crate::Poller;

    /// No socket can have port 0: the kernel says `EINVAL`, after which its offers are asked for anew.
    #[test]
    fn an_error_of_one_destination_does_not_forbid_fragments() {
        let bind = || BulkSocket::bind("127.0.0.1:0".parse().unwrap(), IoMode::Gso).unwrap();
        let (sender, nowhere) = (bind(), "127.0.0.1:0".parse().unwrap());
        sender.try_send(nowhere, &[7; 2000], 1000).unwrap();
        let discovery = ip_mtu_discover(sender.socket()).unwrap();
        assert_eq!(discovery, Ipv4PathMtuDiscovery::DONT);
        // Nor does it end who sends to others, too.
        for mode in IoMode::ALL {
            let sender = BulkSocket::bind("127.0.0.1:0".parse().unwrap(), mode).unwrap();
            let sent = sender.try_send(nowhere, &[7; 2000], 1000);
            assert_eq!(sent.unwrap(), 2000, "{mode:?}");
        }
    }

    #[test]
    fn who_knows_which_datagrams_were_too_large_has_the_others_offloaded() {
        let socket = BulkSocket::bind("127.0.0.1:0".parse().unwrap(), IoMode::Gso).unwrap();
        socket
            .try_send(socket.local_addr(), &[7; 4000], 1000)
            .unwrap();
        assert!(!socket.take_too_large() && !socket.believe_again());
        // As after a batch for a tunnel.
        socket.too_large.store(1000, Ordering::Relaxed);
        assert!(socket.take_too_large());
        assert!(!socket.take_too_large(), "told once, and forgotten");
    }

    #[cfg(feature = "ltp")]
    #[test]
    fn a_batch_arrives_from_wherever_its_parts_lie() {
        for (mode, size) in [
            (IoMode::Gso, 1400),
            (IoMode::Gso, 60_000),
            (IoMode::Mmsg, 60_000),
            (IoMode::Single, 60_000),
        ] {
            let bind = || BulkSocket::bind("127.0.0.1:0".parse().unwrap(), mode).unwrap();
            let (sender, receiver) = (bind(), bind());
            let contents: Vec<u8> = (0..60_000_u32).map(|at| at.to_le_bytes()[0]).collect();
            // Headers and data of each, of lengths that are no power of two, and the last is short.
            let parts = contents.chunks(size).flat_map(|datagram| {
                let (header, data) = datagram.split_at(13);
                [IoSlice::new(header), IoSlice::new(data)]
            });
            let parts: Vec<IoSlice<'_>> = parts.collect();
            let sent = sender.try_send_parts(receiver.local_addr(), &parts, size);
            assert_eq!(sent, Some(true), "{mode:?}, {size}");
            let (mut poller, mut buffer) = (Poller::new().unwrap(), RecvBuffer::new());
            let mut received: Vec<Vec<u8>> = Vec::new();
            while received.len() < contents.len().div_ceil(size) {
                poller.wait(&[(receiver.socket(), false)], None).unwrap();
                while receiver.try_recv(&mut buffer).unwrap() {
                    received.extend(buffer.datagrams().map(|d| d.payload.to_vec()));
                }
            }
            let mut others = received.iter().rev().skip(1);
            assert!(others.all(|d| d.len() == size), "{mode:?}");
            assert!(received.concat() == contents, "{mode:?}, {size}");
        }
    }

    /// What is refused is counted once, where it is sent from one buffer.
    #[cfg(feature = "ltp")]
    #[test]
    fn parts_that_a_call_does_not_take_are_left_to_another() {
        let (nowhere, data) = ("127.0.0.1:0".parse().unwrap(), [7_u8; 3000]);
        for mode in IoMode::ALL {
            let sender = BulkSocket::bind("127.0.0.1:0".parse().unwrap(), mode).unwrap();
            for size in [1000, 3000] {
                let sent = sender.try_send_parts(nowhere, &[IoSlice::new(&data)], size);
                assert_eq!((sent, sender.refused()), (None, 0), "{mode:?}, {size}");
            }
            assert!(!sender.take_too_large() && !sender.believe_again());
        }
        let sender = BulkSocket::bind("127.0.0.1:0".parse().unwrap(), IoMode::Gso).unwrap();
        let to = sender.local_addr();
        let many = sender.try_send_parts(to, &[IoSlice::new(&data)], 10);
        assert_eq!(many, None, "more than one call takes");
    }

    #[test]
    fn every_mode_carries_a_batch_and_datagrams_larger_than_a_frame() {
        for mode in IoMode::ALL {
            let bind = || BulkSocket::bind("127.0.0.1:0".parse().unwrap(), mode).unwrap();
            let (sender, receiver) = (bind(), bind());
            let contents: Vec<u8> = (0..150_000u32)
                .map(|i| i.to_le_bytes()[i as usize % 3])
                .collect();
            for size in [1400, 60_000] {
                let mut done = 0;
                while done < contents.len() {
                    done += sender
                        .try_send(receiver.local_addr(), &contents[done..], size)
                        .unwrap();
                }
                let (mut poller, mut buffer) = (Poller::new().unwrap(), RecvBuffer::new());
                let mut received: Vec<Vec<u8>> = Vec::new();
                while received.len() < contents.len().div_ceil(size) {
                    poller.wait(&[(receiver.socket(), false)], None).unwrap();
                    while receiver.try_recv(&mut buffer).unwrap() {
                        received.extend(buffer.datagrams().map(|d| d.payload.to_vec()));
                    }
                }
                assert!(
                    received.iter().rev().skip(1).all(|d| d.len() == size),
                    "{mode:?}"
                );
                assert_eq!(received.concat(), contents, "{mode:?}");
            }
        }
    }
}
