//! ICMP echo (RFC 792, RFC 4443 §4.1) from an unprivileged ping socket or a raw one, with the kernel's stamps.

use std::{
    io,
    net::{IpAddr, SocketAddr},
    os::fd::{AsFd, BorrowedFd},
    time::Instant,
};

use socket2::{Domain, Protocol, Socket, Type};

use crate::{
    Error,
    stamped::{StampedBuffer, stamp_arrivals},
};

const ECHO_REQUEST_V4: u8 = 8;
const ECHO_REPLY_V4: u8 = 0;
const ECHO_REQUEST_V6: u8 = 128;
const ECHO_REPLY_V6: u8 = 129;
const HEADER_BYTES: usize = 8;

/// Sends echo requests to one host and receives its answers.
#[derive(Debug)]
pub struct Pinger {
    socket: Socket,
    host: IpAddr,
    raw: bool,
    /// In every packet, so that answers to others are told apart.
    token: [u8; 8],
    buffer: StampedBuffer,
}

impl Pinger {
    /// A pinger for this host; the kernel gives a ping socket to groups in `net.ipv4.ping_group_range`, and a raw one to
    /// those with `CAP_NET_RAW`.
    ///
    /// # Errors
    /// [`Error::System`] when it gives neither.
    pub fn new(host: IpAddr, token: [u8; 8]) -> Result<Self, Error> {
        let (domain, protocol) = match host {
            IpAddr::V4(_) => (Domain::IPV4, Protocol::ICMPV4),
            IpAddr::V6(_) => (Domain::IPV6, Protocol::ICMPV6),
        };
        let open = |kind| Socket::new(domain, kind, Some(protocol));
        let (socket, raw) = match open(Type::DGRAM) {
            Ok(socket) => (socket, false),
            Err(_) => (open(Type::RAW).map_err(Error::System)?, true),
        };
        socket.set_nonblocking(true).map_err(Error::System)?;
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
        })
    }

    /// Sends a request with this number. One that the system refuses is lost.
    pub fn send(&self, number: u32) {
        let kind = if self.host.is_ipv4() {
            ECHO_REQUEST_V4
        } else {
            ECHO_REQUEST_V6
        };
        let identifier = [self.token[0], self.token[1]];
        let number = number.to_be_bytes();
        let sequence = [number[2], number[3]];
        let mut packet = [
            &[kind, 0, 0, 0][..],
            &identifier,
            &sequence,
            &self.token,
            &number,
        ]
        .concat();
        // The kernel fills in those of ping sockets and of ICMPv6.
        let checksum = checksum(&packet).to_be_bytes();
        if let Some(place) = packet.get_mut(2..4).filter(|_| self.host.is_ipv4()) {
            place.copy_from_slice(&checksum);
        }
        if let Err(error) = self.socket.send(&packet) {
            tracing::debug!(host = %self.host, %error, "icmp send refused");
        }
    }

    /// Receives answers that are there: when each arrived, and its number.
    pub fn recv(&mut self, mut each: impl FnMut(Instant, u32)) {
        while self.buffer.recv(&self.socket) {
            for datagram in self.buffer.datagrams() {
                if let Some(number) = self.reply(datagram.payload) {
                    each(datagram.arrived, number);
                }
            }
        }
    }

    fn reply(&self, payload: &[u8]) -> Option<u32> {
        let header = match (self.raw, self.host) {
            (true, IpAddr::V4(_)) => usize::from(payload.first()? & 0x0f) * 4,
            _ => 0,
        };
        let packet = payload.get(header..)?;
        let kind = if self.host.is_ipv4() {
            ECHO_REPLY_V4
        } else {
            ECHO_REPLY_V6
        };
        let body = packet
            .get(HEADER_BYTES..)
            .filter(|_| packet.first() == Some(&kind))?;
        let number = body.strip_prefix(&self.token)?;
        Some(u32::from_be_bytes(*number.first_chunk()?))
    }
}

impl AsFd for Pinger {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

/// The ones' complement of the ones' complement sum (RFC 1071).
fn checksum(packet: &[u8]) -> u16 {
    let words = packet.chunks(2).map(|pair| {
        let low = pair.get(1).copied().unwrap_or(0);
        u32::from(u16::from_be_bytes([
            pair.first().copied().unwrap_or(0),
            low,
        ]))
    });
    let mut sum: u32 = words.sum();
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    !u16::try_from(sum).unwrap_or(u16::MAX)
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
                    println!("skipped: no ICMP socket for {host}: {error}");
                    continue;
                }
            };
            let sent = Instant::now();
            pinger.send(70_001);
            let mut poller = Poller::new().unwrap();
            let mut answers = Vec::new();
            while answers.is_empty() && sent.elapsed() < Duration::from_secs(5) {
                let deadline = sent + Duration::from_secs(5);
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
