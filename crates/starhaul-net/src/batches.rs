//! Batched sending and receiving over a UDP socket that another library owns, such as an async runtime: the socket of an
//! application, or of a target.

use std::{io, net::SocketAddr, os::fd::AsFd};

use noq_udp::{Transmit, UdpSocketState};
use rustix::net::sockopt::{self, Ipv4PathMtuDiscovery, Ipv6PathMtuDiscovery};
use socket2::SockRef;

use crate::{RecvBuffer, stamped};

/// What the kernel offers for batches on one socket.
#[derive(Debug)]
pub struct Batches(UdpSocketState);

impl Batches {
    /// Prepares a non-blocking socket, which may be connected. Its datagrams stay subject to fragmentation, as applications
    /// expect.
    ///
    /// # Errors
    /// The socket is no UDP socket.
    pub fn new(socket: &impl AsFd) -> io::Result<Self> {
        let state = UdpSocketState::new(socket.into())?;
        // `noq-udp` forbids fragments for the sake of path MTU discovery.
        sockopt::set_ip_mtu_discover(socket, Ipv4PathMtuDiscovery::WANT)?;
        if SockRef::from(socket).local_addr()?.is_ipv6() {
            sockopt::set_ipv6_mtu_discover(socket, Ipv6PathMtuDiscovery::WANT)?;
            stamped::set(socket, libc::IPPROTO_IPV6, libc::IPV6_DONTFRAG, 0)?;
        }
        Ok(Self(state))
    }

    /// Greatest number of datagrams that [`Batches::send`] takes.
    pub fn most_at_once(&self) -> usize {
        self.0.max_gso_segments().get()
    }

    /// Sends datagrams of `length` bytes each, the last of which may be shorter, one behind the other in `contents`: at most
    /// [`Batches::most_at_once`], with at most 65 507 bytes.
    ///
    /// # Errors
    /// The socket is full (`WouldBlock`), or the kernel refuses the batch, after which it may take fewer at once.
    pub fn send(
        &self,
        socket: &impl AsFd,
        to: SocketAddr,
        contents: &[u8],
        length: usize,
    ) -> io::Result<()> {
        let transmit = Transmit {
            destination: to,
            ecn: None,
            contents,
            segment_size: (contents.len() > length).then_some(length),
            src_ip: None,
        };
        self.0.try_send(socket.into(), &transmit)
    }

    /// Receives available datagrams into `buffer`.
    ///
    /// # Errors
    /// There are none (`WouldBlock`), or the report of one that was sent and did not arrive.
    pub fn recv(&self, socket: &impl AsFd, buffer: &mut RecvBuffer) -> io::Result<()> {
        buffer.fill(&self.0, socket).map(|_| ())
    }
}

#[cfg(test)]
mod tests {
    use std::net::UdpSocket;

    use super::*;

    #[test]
    fn an_application_may_send_more_than_a_packet_holds() {
        for address in ["127.0.0.1:0", "[::1]:0"] {
            let [sender, receiver] = [(); 2].map(|()| UdpSocket::bind(address).unwrap());
            let batches = Batches::new(&sender).unwrap();
            let discovery = sockopt::ip_mtu_discover(&sender).unwrap();
            assert_eq!(discovery, Ipv4PathMtuDiscovery::WANT);
            let (contents, to) = (vec![7; 65_000], receiver.local_addr().unwrap());
            batches.send(&sender, to, &contents, 65_000).unwrap();
            let mut received = vec![0; 70_000];
            let (length, from) = receiver.recv_from(&mut received).unwrap();
            assert_eq!(from, sender.local_addr().unwrap());
            assert!(received[..length] == contents);
        }
    }
}
