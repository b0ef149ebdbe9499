//! ICMP echo (RFC 792, RFC 4443 §4.1) from an unprivileged ping socket or a raw one, with kernel timestamps.

#[cfg(feature = "record")]
mod listener;
mod packet;

use std::{
    io,
    net::{IpAddr, SocketAddr},
    os::fd::{AsFd, BorrowedFd},
    time::Instant,
};

use socket2::{Domain, Protocol, Socket, Type};

use self::packet::{echo_request, identifier, parse_quoted};
use crate::{
    Error, WireMeter,
    socket::use_interface,
    stamped::{StampedBuffer, queue_errors, stamp_arrivals, stamp_departures},
};

#[cfg(feature = "record")]
pub(crate) use self::listener::EchoListener;
pub use self::packet::{IcmpMessage, IpVersion, number_behind_token, parse_icmp};

/// Greatest number of receives per turn.
const RECEIVES: usize = 64;

/// The source address and interface of packets.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Via {
    /// The source address; `None` lets the kernel choose.
    pub local: Option<IpAddr>,
    /// The network interface (`SO_BINDTODEVICE`).
    pub interface: Option<String>,
}

/// Sends echo requests to one host and receives its answers.
#[derive(Debug)]
pub struct Pinger {
    socket: Socket,
    host: IpAddr,
    raw: bool,
    /// A token in every packet, to recognise answers to it.
    token: [u8; 8],
    buffer: StampedBuffer,
    meter: WireMeter,
}

impl Pinger {
    /// Creates a pinger for this host; the kernel allows a ping socket to groups in `net.ipv4.ping_group_range`, and a
    /// raw one with `CAP_NET_RAW`.
    ///
    /// # Errors
    /// [`Error::System`] when it allows neither.
    pub fn new(host: IpAddr, token: [u8; 8]) -> Result<Self, Error> {
        Self::through(host, token, &Via::default())
    }

    /// As [`Pinger::new`] with a given source address and interface.
    ///
    /// # Errors
    /// As [`Pinger::new`]; [`Error::Bind`] or [`Error::Interface`] if these do not exist.
    pub fn through(host: IpAddr, token: [u8; 8], via: &Via) -> Result<Self, Error> {
        let (socket, raw) = open(IpVersion::of(host), via)?;
        socket
            .connect(&SocketAddr::new(host, 0).into())
            .map_err(Error::System)?;
        stamp_arrivals(&socket)?;
        Ok(Self {
            socket,
            host,
            raw,
            token,
            buffer: StampedBuffer::new(),
            meter: WireMeter::default(),
        })
    }

    /// Counts its packets there.
    pub(crate) fn metered(mut self, meter: WireMeter) -> Self {
        self.meter = meter;
        self
    }

    /// Whether the socket is raw.
    pub(crate) fn is_raw(&self) -> bool {
        self.raw
    }

    /// Enables departure timestamps ([`Pinger::departures`]). Returns whether the kernel has them.
    pub(crate) fn stamp_departures(&self) -> bool {
        stamp_departures(&self.socket)
    }

    /// Sends a request with this number. If the system refuses it, it counts as lost.
    pub fn send(&self, number: u32) {
        if let Err(error) = self.try_send(number) {
            tracing::debug!(host = %self.host, %error, "icmp send refused");
        }
    }

    /// Sends a request with this number.
    ///
    /// # Errors
    /// The system's error, temporary or permanent.
    pub(crate) fn try_send(&self, number: u32) -> io::Result<()> {
        let packet = echo_request(IpVersion::of(self.host), self.token, number);
        self.socket.send(&packet)?;
        self.meter.count_ip(self.host, packet.len());
        Ok(())
    }

    /// Receives available answers: arrival time and number.
    pub fn recv(&mut self, mut each: impl FnMut(Instant, u32)) {
        let version = IpVersion::of(self.host);
        let behind_header = self.raw && self.host.is_ipv4();
        for _ in 0..RECEIVES {
            if !self.buffer.recv(&self.socket) {
                break;
            }
            for datagram in self.buffer.datagrams() {
                let message = parse_icmp(version, behind_header, self.token, datagram.payload);
                if let Some(IcmpMessage::Reply { number }) = message {
                    // Answers repeat what was asked.
                    let asked = echo_request(version, self.token, number).len();
                    self.meter.count_ip(self.host, asked);
                    each(datagram.arrived, number);
                }
            }
        }
    }

    /// Departure times of requests, and their numbers.
    pub(crate) fn departures(&mut self, mut each: impl FnMut(Instant, u32)) {
        for _ in 0..RECEIVES {
            if !self.buffer.recv_errors(&self.socket) {
                break;
            }
            for packet in self.buffer.datagrams() {
                if let Some(number) = number_behind_token(self.token, packet.payload) {
                    each(packet.arrived, number);
                }
            }
        }
    }
}

/// Sends echo requests with small hop limits toward one host, so that the routers before it answer.
#[derive(Debug)]
pub(crate) struct HopPinger {
    socket: Socket,
    toward: IpAddr,
    raw: bool,
    token: [u8; 8],
    buffer: StampedBuffer,
    meter: WireMeter,
}

/// An answer to one of its requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct HopAnswer {
    pub(crate) arrived: Instant,
    pub(crate) from: IpAddr,
    /// The low half of the request's number.
    pub(crate) sequence: u16,
    /// Whether it came from the request's destination.
    pub(crate) reached: bool,
}

impl HopPinger {
    pub(crate) fn through(
        toward: IpAddr,
        token: [u8; 8],
        via: &Via,
        meter: WireMeter,
    ) -> Result<Self, Error> {
        let (socket, raw) = open(IpVersion::of(toward), via)?;
        stamp_arrivals(&socket)?;
        if !raw {
            queue_errors(&socket, toward.is_ipv4())?;
        }
        Ok(Self {
            socket,
            toward,
            raw,
            token,
            buffer: StampedBuffer::new(),
            meter,
        })
    }

    pub(crate) fn send(&self, hops: u8, number: u16) -> io::Result<()> {
        match self.toward.is_ipv4() {
            true => self.socket.set_ttl_v4(hops.into())?,
            false => self.socket.set_unicast_hops_v6(hops.into())?,
        }
        let packet = echo_request(IpVersion::of(self.toward), self.token, number.into());
        let toward = SocketAddr::new(self.toward, 0);
        self.socket.send_to(&packet, &toward.into())?;
        self.meter.count_ip(self.toward, packet.len());
        Ok(())
    }

    pub(crate) fn recv(&mut self, mut each: impl FnMut(HopAnswer)) {
        let version = IpVersion::of(self.toward);
        let behind_header = self.raw && self.toward.is_ipv4();
        for _ in 0..RECEIVES {
            if !self.buffer.recv(&self.socket) {
                break;
            }
            for datagram in self.buffer.datagrams() {
                let message = parse_icmp(version, behind_header, self.token, datagram.payload);
                let (Some(message), Some(from)) = (message, datagram.remote) else {
                    continue;
                };
                let arrived = datagram.arrived;
                self.meter.count_ip(self.toward, datagram.payload.len());
                match message {
                    IcmpMessage::Reply { number } => each(HopAnswer {
                        arrived,
                        from: from.ip(),
                        sequence: u16::try_from(number & 0xffff).unwrap_or(0),
                        reached: true,
                    }),
                    IcmpMessage::Exceeded {
                        identifier: of,
                        sequence,
                    } if of == identifier(self.token) => each(HopAnswer {
                        arrived,
                        from: from.ip(),
                        sequence,
                        reached: false,
                    }),
                    IcmpMessage::Exceeded { .. } => {}
                }
            }
        }
        // Ping sockets receive errors of routers here, and only for their own requests.
        for _ in 0..RECEIVES {
            if self.raw || !self.buffer.recv_errors(&self.socket) {
                break;
            }
            for error in self.buffer.datagrams() {
                // The router quotes the request behind eight bytes of its own.
                self.meter.count_ip(self.toward, 8 + error.payload.len());
                let quoted = parse_quoted(version, error.payload);
                if let (Some(IcmpMessage::Exceeded { sequence, .. }), Some(from)) =
                    (quoted, error.offender)
                {
                    each(HopAnswer {
                        arrived: error.arrived,
                        from,
                        sequence,
                        reached: false,
                    });
                }
            }
        }
    }
}

impl AsFd for HopPinger {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

/// Opens a ping socket, or else a raw one; returns whether it is raw.
fn open(version: IpVersion, via: &Via) -> Result<(Socket, bool), Error> {
    let (domain, protocol) = match version {
        IpVersion::V4 => (Domain::IPV4, Protocol::ICMPV4),
        IpVersion::V6 => (Domain::IPV6, Protocol::ICMPV6),
    };
    let open = |kind| Socket::new(domain, kind, Some(protocol));
    let (socket, raw) = match open(Type::DGRAM) {
        Ok(socket) => (socket, false),
        Err(_) => (open(Type::RAW).map_err(Error::System)?, true),
    };
    socket.set_nonblocking(true).map_err(Error::System)?;
    use_interface(&socket, via.interface.as_deref())?;
    if let Some(local) = via.local {
        let address = SocketAddr::new(local, 0);
        socket
            .bind(&address.into())
            .map_err(|source| Error::Bind { address, source })?;
    }
    Ok((socket, raw))
}

impl AsFd for Pinger {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

/// Whether a failure to open a socket is a missing permission.
pub(crate) fn is_forbidden(error: &Error) -> bool {
    matches!(error, Error::System(error) if error.kind() == io::ErrorKind::PermissionDenied)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::Poller;

    #[test]
    fn the_loopback_answers_with_the_number_it_was_asked() {
        for host in ["127.0.0.1", "::1"] {
            let mut pinger = match Pinger::new(host.parse().unwrap(), *b"a token!") {
                Ok(pinger) => pinger,
                Err(error) => {
                    starhaul_needs::skip(
                        starhaul_needs::Need::Icmp,
                        format!("no ICMP socket for {host}: {error}"),
                    );
                    continue;
                }
            };
            let deadline = Instant::now() + Duration::from_secs(60);
            pinger.send(70_001);
            let mut poller = Poller::new().unwrap();
            let mut answers = Vec::new();
            while answers.is_empty() && Instant::now() < deadline {
                poller
                    .wait_fds(&[(pinger.as_fd(), false)], Some(deadline))
                    .unwrap();
                pinger.recv(|at, number| answers.push((at, number)));
            }
            assert_eq!(answers.len(), 1, "{host}");
            assert_eq!(answers[0].1, 70_001);
        }
    }
}
