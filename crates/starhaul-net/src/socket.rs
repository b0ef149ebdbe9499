//! A UDP socket that sends and receives many datagrams per system call (GSO, GRO, `recvmmsg` by `noq-udp`) and does not
//! fail for errors of single datagrams.

#[cfg(feature = "ltp")]
use std::io::IoSlice;
use std::{
    io,
    net::{IpAddr, SocketAddr},
    os::fd::{AsFd, BorrowedFd},
    sync::atomic::{AtomicU64, AtomicUsize, Ordering},
};

use noq_udp::EcnCodepoint;
use rustix::io::Errno;
use socket2::{Domain, Protocol, Socket, Type};
#[cfg(feature = "ltp")]
use socket2::{MsgHdr, SockAddr};

use crate::{
    Error, RecvBuffer,
    offload::{Fragments, Offload},
    stamped,
};

/// Local address, interface and buffers of a socket.
#[derive(Clone, Debug)]
pub struct BindOptions {
    /// Local address; port 0 lets the kernel choose.
    pub address: SocketAddr,
    /// Network interface that all datagrams must use (`SO_BINDTODEVICE`).
    pub interface: Option<String>,
    /// Kernel buffer for each direction in bytes; the system may limit it.
    pub buffer_bytes: usize,
    /// Whether an IPv6 wildcard takes IPv4, too: such addresses are mapped into IPv6 then.
    pub takes_ipv4: bool,
    /// Whether it may take and send for addresses that are not of this host (`IP_TRANSPARENT`).
    pub is_transparent: bool,
}

impl BindOptions {
    /// Binds `address` on any interface, with buffers of 4 MiB: 80 ms at 400 Mbit/s.
    pub fn new(address: SocketAddr) -> Self {
        Self {
            address,
            interface: None,
            buffer_bytes: 4 << 20,
            takes_ipv4: false,
            is_transparent: false,
        }
    }
}

/// A batch for one destination: `contents` in segments of `segment_size` bytes, of which the last may be shorter.
#[derive(Clone, Copy, Debug)]
pub struct Transmit<'a> {
    /// The destination address.
    pub to: SocketAddr,
    /// The source address, for sockets bound to a wildcard.
    pub from: Option<IpAddr>,
    /// ECN bits of the IP header (RFC 3168).
    pub ecn: u8,
    /// One or more UDP payloads.
    pub contents: &'a [u8],
    /// Bytes per payload; zero counts as one payload.
    pub segment_size: usize,
}

/// A non-blocking UDP socket.
#[derive(Debug)]
pub struct UdpSocket {
    socket: Socket,
    offload: Offload,
    local_addr: SocketAddr,
    interface: Option<String>,
    refused: AtomicU64,
}

impl UdpSocket {
    /// Binds a socket with large buffers.
    ///
    /// # Errors
    /// [`Error::Bind`] and [`Error::Interface`] for a wrong configuration; [`Error::System`] for all others.
    pub fn bind(options: &BindOptions) -> Result<Self, Error> {
        Self::bind_with(options, Fragments::Never)
    }

    pub(crate) fn bind_with(options: &BindOptions, fragments: Fragments) -> Result<Self, Error> {
        let address = options.address;
        let socket = Socket::new(
            Domain::for_address(address),
            Type::DGRAM,
            Some(Protocol::UDP),
        )
        .map_err(Error::System)?;
        use_interface(&socket, options.interface.as_deref())?;
        if address.is_ipv6() {
            // So that an IPv4 listener can use the same port, and no address has two forms.
            let takes_ipv4 = options.takes_ipv4 && address.ip().is_unspecified();
            socket.set_only_v6(!takes_ipv4).map_err(Error::System)?;
        }
        if options.is_transparent {
            let (level, name) = match address {
                SocketAddr::V4(_) => (libc::IPPROTO_IP, libc::IP_TRANSPARENT),
                SocketAddr::V6(_) => (libc::IPPROTO_IPV6, libc::IPV6_TRANSPARENT),
            };
            let set = stamped::set(&socket, level, name, 1);
            set.map_err(|error| Error::Interception(error.to_string()))?;
        }
        set_buffers(&socket, options.buffer_bytes);
        socket
            .bind(&address.into())
            .map_err(|source| Error::Bind { address, source })?;
        let offload = Offload::new(&socket, fragments).map_err(Error::System)?;
        let local_addr = socket
            .local_addr()
            .map_err(Error::System)?
            .as_socket()
            .unwrap_or(address);
        Ok(Self {
            socket,
            offload,
            local_addr,
            interface: options.interface.clone(),
            refused: AtomicU64::new(0),
        })
    }

    /// The bound address.
    pub fn local_addr(&self) -> SocketAddr {
        self.local_addr
    }

    /// Number of datagrams that the system refused to send (no route, interface down, too large…). They count as lost.
    pub fn refused(&self) -> u64 {
        self.refused.load(Ordering::Relaxed)
    }

    /// Whether this socket can never send again, because its interface or its local address is gone (also if another
    /// interface now has the name); bind a new socket then.
    pub fn is_stranded(&self) -> bool {
        if let Some(interface) = &self.interface {
            let device = self.socket.device().ok().flatten();
            if device.is_none_or(|device| device.trim_ascii_end() != interface.as_bytes()) {
                return true;
            }
        }
        is_address_gone(self.local_addr)
    }

    /// Sends as much of a batch as fits the socket's buffer and returns how many bytes of `contents` are done; if fewer
    /// than all, wait until the socket is writable and pass the rest.
    ///
    /// # Errors
    /// [`Error::SocketGone`] when this socket can never send again. Failures of single datagrams, or of all to one
    /// destination, are no error.
    pub fn try_send(&self, transmit: &Transmit<'_>) -> Result<usize, Error> {
        let segment_size = match transmit.segment_size {
            0 => transmit.contents.len().max(1),
            size => size,
        };
        let mut done = 0;
        while let Some(rest) = transmit
            .contents
            .get(done..)
            .filter(|rest| !rest.is_empty())
        {
            let segments = self.segments_at_once(segment_size);
            let batch = rest.get(..segments * segment_size).unwrap_or(rest);
            let result = self.offload.state().try_send(
                (&self.socket).into(),
                &noq_udp::Transmit {
                    destination: transmit.to,
                    ecn: EcnCodepoint::from_bits(transmit.ecn),
                    contents: batch,
                    segment_size: (batch.len() > segment_size).then_some(segment_size),
                    src_ip: transmit.from,
                },
            );
            match result {
                Ok(()) => done += batch.len(),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                // `noq-udp` has just detected that offload does not work here: send the same bytes again, one datagram
                // at a time.
                Err(_) if segments > 1 && self.segments_at_once(segment_size) == 1 => {
                    self.offload.send_singly(&self.socket);
                }
                Err(error) if is_gone(&error) => {
                    if self.is_stranded() {
                        return Err(Error::SocketGone(error));
                    }
                    // The error is due to this destination or source, and the rest has the same.
                    self.count_refused(&error, rest.len().div_ceil(segment_size));
                    self.offload.forget_misleading(&self.socket, &error);
                    return Ok(transmit.contents.len());
                }
                Err(error) => {
                    self.count_refused(&error, batch.len().div_ceil(segment_size));
                    self.offload.forget_misleading(&self.socket, &error);
                    done += batch.len();
                }
            }
        }
        Ok(done)
    }

    /// Sends datagrams of `segment_size` bytes each, of which the last may be shorter, by one call; their bytes lie in `parts`, one behind the
    /// other. `None` where one call does not take them, or the system refuses them: of that nothing is counted, and the same bytes in one
    /// buffer ([`UdpSocket::try_send`]) meet what is done about it. `Some(false)` if the socket is full; otherwise all are sent.
    #[cfg(feature = "ltp")]
    pub(crate) fn try_send_parts(
        &self,
        to: SocketAddr,
        parts: &[IoSlice<'_>],
        segment_size: usize,
    ) -> Option<bool> {
        let bytes: usize = parts.iter().map(|part| part.len()).sum();
        let segments = bytes.div_ceil(segment_size.max(1));
        if segments > self.segments_at_once(segment_size.max(1)) {
            return None;
        }
        let (to, control) = (SockAddr::from(to), segmentation(segment_size)?);
        let message = MsgHdr::new().with_addr(&to).with_buffers(parts);
        let message = match segments {
            0 | 1 => message,
            _ => message.with_control(&control),
        };
        match self.socket.sendmsg(&message, 0) {
            Ok(_) => Some(true),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => Some(false),
            Err(_) => None,
        }
    }

    /// Receives available datagrams into `buffer`; `false` when there are none.
    ///
    /// # Errors
    /// [`Error::SocketGone`] when this socket can never receive again.
    pub fn try_recv(&self, buffer: &mut RecvBuffer) -> Result<bool, Error> {
        // Collecting each pending ICMP error of the socket takes one call.
        for _ in 0..MOST_PENDING_ERRORS {
            match buffer.fill(&self.offload.state(), &self.socket) {
                Ok(received) => return Ok(received > 0),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(false),
                Err(error) if is_gone(&error) && self.is_stranded() => {
                    return Err(Error::SocketGone(error));
                }
                Err(error) => {
                    tracing::debug!(local = %self.local_addr, %error, "udp receive error")
                }
            }
        }
        Ok(false)
    }

    /// Greatest number of segments per system call: the kernel's limit, and 64 KiB in all.
    fn segments_at_once(&self, segment_size: usize) -> usize {
        self.offload
            .most_at_once()
            .min(MAX_UDP_PAYLOAD / segment_size)
            .max(1)
    }

    /// Sends batches again where they were given up, as after one that a single destination's interface did not take; returns whether they
    /// were.
    pub(crate) fn believe_again(&self) -> bool {
        let is_misled = self.offload.is_misled();
        if is_misled {
            self.offload.believe_again(&self.socket);
        }
        is_misled
    }

    /// Takes an error of a send beside [`UdpSocket::try_send`].
    ///
    /// # Errors
    /// [`Error::SocketGone`] when this socket can never send again.
    pub(crate) fn take_refusal(&self, error: io::Error, datagrams: usize) -> Result<(), Error> {
        if is_gone(&error) && self.is_stranded() {
            return Err(Error::SocketGone(error));
        }
        self.count_refused(&error, datagrams);
        Ok(())
    }

    fn count_refused(&self, error: &io::Error, datagrams: usize) {
        // Path-MTU discovery finds the limit by datagrams that are too large.
        if !noq_udp::is_msg_size_err(error) {
            tracing::debug!(local = %self.local_addr, %error, datagrams, "udp send refused");
        }
        let datagrams = u64::try_from(datagrams).unwrap_or(u64::MAX);
        self.refused.fetch_add(datagrams, Ordering::Relaxed);
    }
}

impl AsFd for UdpSocket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

/// Bytes of the control message that asks for segmentation: the header (`cmsghdr`), the size and what aligns the next one.
#[cfg(feature = "ltp")]
const SEGMENTATION_BYTES: usize = CONTROL_HEADER + size_of::<usize>();
/// Its length, its level and its type.
#[cfg(feature = "ltp")]
const CONTROL_HEADER: usize = size_of::<usize>() + 2 * size_of::<libc::c_int>();

/// The control message that has the kernel cut what is sent into datagrams of so many bytes (`UDP_SEGMENT`, cmsg(3)); `None` if they are too
/// large for that.
#[cfg(feature = "ltp")]
fn segmentation(segment_size: usize) -> Option<[u8; SEGMENTATION_BYTES]> {
    let size = u16::try_from(segment_size).ok()?.to_ne_bytes();
    // The length counts no padding.
    let length = (CONTROL_HEADER + size.len()).to_ne_bytes();
    let (level, kind) = (libc::SOL_UDP.to_ne_bytes(), libc::UDP_SEGMENT.to_ne_bytes());
    let fields = length.iter().chain(&level).chain(&kind).chain(&size);
    let mut message = [0; SEGMENTATION_BYTES];
    message
        .iter_mut()
        .zip(fields)
        .for_each(|(to, from)| *to = *from);
    Some(message)
}

/// Largest payload of one send call: 65 535 less the IPv4 and UDP headers.
const MAX_UDP_PAYLOAD: usize = 65_507;
/// Greatest number of errors collected before the call returns.
const MOST_PENDING_ERRORS: usize = 16;

/// Binds the socket to an interface (`SO_BINDTODEVICE`).
pub(crate) fn use_interface(socket: &Socket, interface: Option<&str>) -> Result<(), Error> {
    let Some(interface) = interface else {
        return Ok(());
    };
    let bound = socket.bind_device(Some(interface.as_bytes()));
    bound.map_err(|source| Error::Interface {
        interface: interface.to_owned(),
        source,
    })
}

/// Tries more than `rmem_max` first, which needs a privilege.
fn set_buffers(socket: &Socket, bytes: usize) {
    use rustix::net::sockopt;
    let _ = sockopt::set_socket_recv_buffer_size_force(socket, bytes)
        .or_else(|_| sockopt::set_socket_recv_buffer_size(socket, bytes));
    let _ = sockopt::set_socket_send_buffer_size_force(socket, bytes)
        .or_else(|_| sockopt::set_socket_send_buffer_size(socket, bytes));
    // The kernel reports twice what it grants.
    let granted = socket.recv_buffer_size().unwrap_or(0) / 2;
    // The bound is the host's, not the socket's: it is told once for each size.
    static TOLD: AtomicUsize = AtomicUsize::new(0);
    if granted < bytes && TOLD.fetch_max(bytes, Ordering::Relaxed) < bytes {
        tracing::info!(
            wanted = bytes,
            granted,
            "small udp receive buffer: raise net.core.rmem_max"
        );
    }
}

/// The source address that the kernel would use to send to `to` through a socket bound like this one; `None` without a
/// route, or if the address or interface does not exist.
pub fn source_toward(to: SocketAddr, options: &BindOptions) -> Option<IpAddr> {
    let socket = Socket::new(Domain::for_address(to), Type::DGRAM, None).ok()?;
    use_interface(&socket, options.interface.as_deref()).ok()?;
    let mut from = options.address;
    from.set_port(0);
    socket.bind(&from.into()).ok()?;
    // `connect` sends nothing.
    socket.connect(&to.into()).ok()?;
    Some(socket.local_addr().ok()?.as_socket()?.ip())
}

/// Errors that may mean that the socket is unusable: the interface was removed or renumbered, or the local address is
/// gone (`EINVAL` from routing).
pub(crate) fn is_gone(error: &io::Error) -> bool {
    let errno = Errno::from_io_error(error);
    [
        Errno::NODEV,
        Errno::NXIO,
        Errno::BADF,
        Errno::INVAL,
        Errno::ADDRNOTAVAIL,
    ]
    .iter()
    .any(|gone| errno == Some(*gone))
}

/// Whether this host has lost a single address; never true for a wildcard.
fn is_address_gone(mut address: SocketAddr) -> bool {
    if address.ip().is_unspecified() {
        return false;
    }
    address.set_port(0);
    let Ok(socket) = Socket::new(Domain::for_address(address), Type::DGRAM, None) else {
        return false;
    };
    let bound = socket.bind(&address.into());
    bound.is_err_and(|error| error.kind() == io::ErrorKind::AddrNotAvailable)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::{Poller, recv_buffer::CHUNKS};

    fn bind(address: &str) -> UdpSocket {
        UdpSocket::bind(&BindOptions::new(address.parse().unwrap())).unwrap()
    }

    fn receive(socket: &UdpSocket, count: usize) -> Vec<(Vec<u8>, u8, SocketAddr)> {
        let (mut poller, mut buffer, mut all) = (Poller::new().unwrap(), RecvBuffer::new(), vec![]);
        while all.len() < count {
            poller.wait(&[(socket, false)], None).unwrap();
            while socket.try_recv(&mut buffer).unwrap() {
                all.extend(
                    buffer
                        .datagrams()
                        .map(|d| (d.payload.to_vec(), d.ecn, d.remote)),
                );
            }
        }
        all
    }

    #[test]
    fn a_batch_larger_than_one_call_arrives_piece_by_piece_with_its_ecn_bits() {
        for address in ["127.0.0.1:0", "[::1]:0"] {
            let (sender, receiver) = (bind(address), bind(address));
            let contents: Vec<u8> = (0..100u8)
                .flat_map(|i| vec![i; if i == 99 { 77 } else { 1400 }])
                .collect();
            let sent = sender.try_send(&Transmit {
                to: receiver.local_addr(),
                from: None,
                ecn: 0b10,
                contents: &contents,
                segment_size: 1400,
            });
            assert_eq!(sent.unwrap(), contents.len());
            let received = receive(&receiver, 100);
            for (i, (payload, ecn, remote)) in received.iter().enumerate() {
                let (first, length) = (payload[0], payload.len());
                assert_eq!(
                    (usize::from(first), length),
                    (i, if i == 99 { 77 } else { 1400 })
                );
                assert_eq!((*ecn, *remote), (0b10, sender.local_addr()));
            }
        }
    }

    #[test]
    fn closed_ports_and_oversized_datagrams_do_not_kill_a_socket() {
        let (socket, alive) = (bind("127.0.0.1:0"), bind("127.0.0.1:0"));
        // At an address of its own, where no other test takes the port meanwhile.
        let closed = bind("127.77.0.1:0").local_addr();
        let to = |to, contents| Transmit {
            to,
            from: None,
            ecn: 0,
            contents,
            segment_size: 70_000,
        };
        for _ in 0..3 {
            assert_eq!(socket.try_send(&to(closed, b"nobody")).unwrap(), 6);
        }
        let oversized = vec![0; 70_000];
        assert_eq!(
            socket
                .try_send(&to(alive.local_addr(), &oversized))
                .unwrap(),
            70_000
        );
        assert_eq!(socket.refused(), 1);
        assert_eq!(
            socket.try_send(&to(alive.local_addr(), b"hello")).unwrap(),
            5
        );
        assert_eq!(receive(&alive, 1)[0].0, b"hello");
    }

    #[test]
    fn what_waits_beyond_a_receive_that_was_not_full_is_told_by_the_poller() {
        let (sender, receiver) = (bind("127.0.0.1:0"), bind("127.0.0.1:0"));
        let send = |contents: &[u8]| {
            let one = Transmit {
                to: receiver.local_addr(),
                from: None,
                ecn: 0,
                contents,
                segment_size: contents.len(),
            };
            assert_eq!(sender.try_send(&one).unwrap(), contents.len());
        };
        let (mut poller, mut buffer) = (Poller::new().unwrap(), RecvBuffer::new());
        let mut next = 0_u8;
        let mut expected = Vec::new();
        // Fewer than one call takes, as many, and more, of lengths that the kernel does not join.
        for count in [1, CHUNKS - 1, CHUNKS, 5 * CHUNKS + 3] {
            let mut received = Vec::new();
            for number in 0..count {
                send(&vec![next; 100 + number]);
                expected.push((next, 100 + number));
                next += 1;
            }
            while received.len() < count {
                let late = std::time::Instant::now() + Duration::from_secs(20);
                let ready = poller.wait(&[(&receiver, false)], Some(late)).unwrap();
                assert!(ready[0].readable, "{} of {count} came", received.len());
                // As long as the calls are full, the receiver does not ask the poller.
                while receiver.try_recv(&mut buffer).unwrap() {
                    received.extend(buffer.datagrams().map(|d| (d.payload[0], d.payload.len())));
                    if !buffer.is_full() {
                        break;
                    }
                }
            }
            assert_eq!(received, std::mem::take(&mut expected));
        }
    }

    /// Sends a datagram with a forged header, from any port, even 0.
    fn forge(from_port: u16, to: SocketAddr, payload: &[u8]) -> io::Result<()> {
        let socket = Socket::new(Domain::IPV4, Type::RAW, Some(Protocol::UDP))?;
        let length = u16::try_from(8 + payload.len()).unwrap();
        let header = [from_port, to.port(), length, 0].map(u16::to_be_bytes);
        let datagram = [&header.concat(), payload].concat();
        socket.send_to(&datagram, &to.into()).map(|_| ())
    }

    #[test]
    fn what_comes_from_port_zero_is_nobodys() {
        let (receiver, sender) = (bind("127.0.0.1:0"), bind("127.0.0.1:0"));
        if let Err(error) = forge(0, receiver.local_addr(), b"forged") {
            starhaul_needs::skip(
                starhaul_needs::Need::Icmp,
                format!("no raw socket: {error}"),
            );
            return;
        }
        let honest = Transmit {
            to: receiver.local_addr(),
            from: None,
            ecn: 0,
            contents: b"honest",
            segment_size: 6,
        };
        sender.try_send(&honest).unwrap();
        assert_eq!(receive(&receiver, 1)[0].0, b"honest");
    }

    #[test]
    fn an_error_of_one_destination_costs_the_socket_nothing() {
        let receiver = bind("127.0.0.1:0");
        let contents = [7; 4000];
        let batch = |to| Transmit {
            to,
            from: None,
            ecn: 0b10,
            contents: &contents,
            segment_size: 1000,
        };
        for address in ["0.0.0.0:0", "127.0.0.1:0"] {
            let socket = bind(address);
            let at_once = socket.segments_at_once(1000);
            // No socket can have port 0, and this host cannot send from a foreign address.
            let from_elsewhere = Transmit {
                from: Some([192, 0, 2, 1].into()),
                ..batch(receiver.local_addr())
            };
            for impossible in [batch(([127, 0, 0, 1], 0).into()), from_elsewhere] {
                let refused = socket.refused();
                let sent = socket.try_send(&impossible).unwrap();
                assert_eq!((sent, socket.refused() - refused), (4000, 4), "{address}");
            }
            assert_eq!(socket.segments_at_once(1000), at_once, "{address}: offload");
            socket.try_send(&batch(receiver.local_addr())).unwrap();
            let received = receive(&receiver, 4);
            let ecn: Vec<u8> = received.iter().map(|(_, ecn, _)| *ecn).collect();
            assert_eq!(ecn, [0b10; 4], "{address}: ECN");
        }
    }

    #[test]
    fn batches_that_were_given_up_are_tried_again_when_asked_for() {
        let socket = bind("127.0.0.1:0");
        let at_once = socket.segments_at_once(1000);
        assert!(!socket.believe_again(), "nothing was given up");
        socket.offload.send_singly(&socket.socket);
        assert_eq!(socket.segments_at_once(1000), 1);
        assert_eq!(socket.believe_again(), at_once > 1);
        assert_eq!(socket.segments_at_once(1000), at_once);
        assert!(!socket.believe_again(), "told once");
    }

    #[test]
    fn the_way_to_a_destination_begins_at_an_address_of_this_host() {
        let to = "127.0.0.1:9".parse().unwrap();
        let wildcard = BindOptions::new("0.0.0.0:0".parse().unwrap());
        assert_eq!(source_toward(to, &wildcard), Some([127, 0, 0, 1].into()));
        let second = BindOptions::new("127.0.0.2:0".parse().unwrap());
        assert_eq!(source_toward(to, &second), Some([127, 0, 0, 2].into()));
        let absent = BindOptions::new("192.0.2.1:0".parse().unwrap());
        assert_eq!(source_toward(to, &absent), None);
        assert!(is_address_gone(absent.address));
        assert!(!is_address_gone(second.address));
    }

    #[test]
    fn a_wildcard_socket_answers_from_the_address_it_was_asked_at() {
        let (server, client) = (bind("0.0.0.0:0"), bind("127.0.0.1:0"));
        let asked = SocketAddr::from(([127, 0, 0, 2], server.local_addr().port()));
        let ask = Transmit {
            to: asked,
            from: None,
            ecn: 0,
            contents: b"?",
            segment_size: 1,
        };
        client.try_send(&ask).unwrap();
        let mut poller = Poller::new().unwrap();
        poller.wait(&[(&server, false)], None).unwrap();
        let mut buffer = RecvBuffer::new();
        assert!(server.try_recv(&mut buffer).unwrap());
        let question = buffer.datagrams().next().unwrap();
        let answer = Transmit {
            to: question.remote,
            from: question.local,
            contents: b"!",
            ..ask
        };
        server.try_send(&answer).unwrap();
        assert_eq!(receive(&client, 1)[0].2, asked);
    }

    #[test]
    fn configuration_mistakes_name_what_was_configured() {
        let first = bind("127.0.0.1:0");
        let error = UdpSocket::bind(&BindOptions::new(first.local_addr())).unwrap_err();
        assert!(
            error.to_string().contains(&first.local_addr().to_string()),
            "{error}"
        );
        let mut options = BindOptions::new("127.0.0.1:0".parse().unwrap());
        options.interface = Some("nosuchif0".into());
        let error = UdpSocket::bind(&options).unwrap_err();
        assert!(matches!(&error, Error::Interface { interface, .. } if interface == "nosuchif0"));
    }
}
