//! Receives the echo requests that this host answers, through a raw socket, with their arrival times.

use std::{
    net::IpAddr,
    os::fd::{AsFd, BorrowedFd},
    time::Instant,
};

use socket2::{Domain, Protocol, Socket, Type};
use starhaul_record::EchoRequest;

use crate::{
    Error,
    stamped::{StampedBuffer, stamp_arrivals},
};

const ECHO_REQUEST_V4: u8 = 8;
const ECHO_REQUEST_V6: u8 = 128;
const HEADER_BYTES: usize = 8;
const IPV6_HEADER_BYTES: usize = 40;
/// Greatest number of system calls per turn.
const RECEIVES: usize = 8;

/// Receives the echo requests that this host answers, with their arrival times.
#[derive(Debug)]
pub(crate) struct EchoListener {
    socket: Socket,
    is_ipv4: bool,
    buffer: StampedBuffer,
}

impl EchoListener {
    /// Listens on all of this host's addresses of one family. Needs a raw socket, and so `CAP_NET_RAW`.
    ///
    /// # Errors
    /// [`Error::System`] when the kernel refuses.
    pub(crate) fn new(is_ipv4: bool) -> Result<Self, Error> {
        let (domain, protocol) = match is_ipv4 {
            true => (Domain::IPV4, Protocol::ICMPV4),
            false => (Domain::IPV6, Protocol::ICMPV6),
        };
        let socket = Socket::new(domain, Type::RAW, Some(protocol)).map_err(Error::System)?;
        socket.set_nonblocking(true).map_err(Error::System)?;
        stamp_arrivals(&socket)?;
        Ok(Self {
            socket,
            is_ipv4,
            buffer: StampedBuffer::new(),
        })
    }

    /// Receives available requests, up to a bound: arrival time and request.
    pub(crate) fn recv(&mut self, mut each: impl FnMut(Instant, EchoRequest)) {
        for _ in 0..RECEIVES {
            if !self.buffer.recv(&self.socket) {
                return;
            }
            for datagram in self.buffer.datagrams() {
                let from = datagram.remote.map(|remote| remote.ip());
                let request = from.and_then(|from| request(from, self.is_ipv4, datagram.payload));
                if let Some(request) = request {
                    each(datagram.arrived, request);
                }
            }
        }
    }
}

impl AsFd for EchoListener {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

/// Parses a received packet, if it is an echo request of a [`Pinger`].
fn request(from: IpAddr, is_ipv4: bool, payload: &[u8]) -> Option<EchoRequest> {
    let (header, kind, unseen) = match is_ipv4 {
        true => (usize::from(payload.first()? & 0x0f) * 4, ECHO_REQUEST_V4, 0),
        false => (0, ECHO_REQUEST_V6, IPV6_HEADER_BYTES),
    };
    let packet = payload.get(header..)?;
    let body = packet
        .get(HEADER_BYTES..)
        .filter(|_| packet.first() == Some(&kind))?;
    let (token, number) = body.split_first_chunk()?;
    Some(EchoRequest {
        from,
        token: *token,
        number: u32::from_be_bytes(number.try_into().ok()?),
        ip_bytes: u32::try_from(payload.len() + unseen).ok()?,
    })
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, Instant};

    use super::*;
    use crate::{Poller, icmp::Pinger};

    #[test]
    fn a_request_to_this_host_is_seen() {
        for host in ["127.0.0.1", "::1"] {
            let host: IpAddr = host.parse().unwrap();
            let sockets = EchoListener::new(host.is_ipv4())
                .and_then(|listener| Ok((listener, Pinger::new(host, *b"listened")?)));
            let (mut listener, pinger) = match sockets {
                Ok(sockets) => sockets,
                Err(error) => {
                    starhaul_needs::skip(
                        starhaul_needs::Need::Icmp,
                        format!("no raw socket for {host}: {error}"),
                    );
                    continue;
                }
            };
            let deadline = Instant::now() + Duration::from_secs(5);
            pinger.send(70_001);
            let mut poller = Poller::new().unwrap();
            let mut seen = Vec::new();
            while seen.is_empty() && Instant::now() < deadline {
                poller
                    .wait_fds(&[(listener.as_fd(), false)], Some(deadline))
                    .unwrap();
                listener.recv(|_, request| seen.push(request));
                // Other hosts may ping this host, too.
                seen.retain(|request| request.token == *b"listened");
            }
            let expected = EchoRequest {
                from: host,
                token: *b"listened",
                number: 70_001,
                ip_bytes: if host.is_ipv4() { 40 } else { 60 },
            };
            assert_eq!(seen, [expected]);
        }
    }
}
