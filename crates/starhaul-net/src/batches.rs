//! Batched sending and receiving over a UDP socket that another library owns, such as an async runtime: the socket of an
//! application, or of a target.

use std::{
    io,
    net::{IpAddr, SocketAddr},
    os::fd::AsFd,
};

use noq_udp::Transmit;
use rustix::io::Errno;

use crate::{
    RecvBuffer,
    offload::{Fragments, Offload},
};

/// What the kernel offers for batches on one socket.
#[derive(Debug)]
pub struct Batches(Offload);

impl Batches {
    /// Prepares a non-blocking socket, which may be connected. Its datagrams stay subject to fragmentation, as applications
    /// expect.
    ///
    /// # Errors
    /// The socket is no UDP socket.
    pub fn new(socket: &impl AsFd) -> io::Result<Self> {
        Offload::new(socket, Fragments::AsUsual).map(Self)
    }

    /// Greatest number of datagrams that [`Batches::send`] takes.
    pub fn most_at_once(&self) -> usize {
        self.0.most_at_once()
    }

    /// Sends, from an address of this host if one is given, datagrams of `length` bytes each, the last of which may be shorter, one behind the other in `contents`: at most
    /// [`Batches::most_at_once`], with at most 65 507 bytes.
    ///
    /// # Errors
    /// The socket is full (`WouldBlock`), or the kernel refuses what is sent; [`Batches::may_be_due_to_batch`] tells whether it may take the
    /// same datagrams one by one.
    pub fn send(
        &self,
        socket: &impl AsFd,
        (from, to): (Option<IpAddr>, SocketAddr),
        contents: &[u8],
        length: usize,
    ) -> io::Result<()> {
        let transmit = Transmit {
            destination: to,
            ecn: None,
            contents,
            segment_size: (contents.len() > length).then_some(length),
            src_ip: from,
        };
        let sent = self.0.state().try_send(socket.into(), &transmit);
        if let Err(error) = &sent
            && self.0.is_misled()
        {
            tracing::debug!(%to, %error, length, bytes = contents.len(), "udp send refused");
            self.0.believe_again(socket);
        }
        sent
    }

    /// Whether an error may be due to several datagrams in one call: no segmentation offload, or datagrams that need fragments.
    pub fn may_be_due_to_batch(error: &io::Error) -> bool {
        let errno = Errno::from_io_error(error);
        matches!(errno, Some(Errno::INVAL | Errno::IO | Errno::MSGSIZE))
    }

    /// Receives available datagrams into `buffer`.
    ///
    /// # Errors
    /// There are none (`WouldBlock`), or the report of one that was sent and did not arrive.
    pub fn recv(&self, socket: &impl AsFd, buffer: &mut RecvBuffer) -> io::Result<()> {
        buffer.fill(&self.0.state(), socket).map(|_| ())
    }
}

#[cfg(test)]
mod tests {
    use std::net::UdpSocket;

    use rustix::net::sockopt::{self, Ipv4PathMtuDiscovery};

    use super::*;

    #[test]
    fn an_application_may_send_more_than_a_packet_holds() {
        for address in ["127.0.0.1:0", "[::1]:0"] {
            let [sender, receiver] = [(); 2].map(|()| UdpSocket::bind(address).unwrap());
            let batches = Batches::new(&sender).unwrap();
            let discovery = sockopt::ip_mtu_discover(&sender).unwrap();
            assert_eq!(discovery, Ipv4PathMtuDiscovery::WANT);
            let (contents, to) = (vec![7; 65_000], receiver.local_addr().unwrap());
            batches
                .send(&sender, (None, to), &contents, 65_000)
                .unwrap();
            let mut received = vec![0; 70_000];
            let (length, from) = receiver.recv_from(&mut received).unwrap();
            assert_eq!(from, sender.local_addr().unwrap());
            assert!(received[..length] == contents);
        }
    }

    /// No socket can have port 0: the kernel says `EINVAL`, as it does to batches without segmentation offload.
    #[test]
    fn an_error_of_one_destination_costs_neither_batches_nor_fragments() {
        for address in ["127.0.0.1:0", "[::1]:0"] {
            let [sender, receiver] = [(); 2].map(|()| UdpSocket::bind(address).unwrap());
            let batches = Batches::new(&sender).unwrap();
            let most = batches.most_at_once();
            let nowhere = SocketAddr::new(sender.local_addr().unwrap().ip(), 0);
            for contents in [vec![7; 2000], vec![7; 1000]] {
                batches
                    .send(&sender, (None, nowhere), &contents, 1000)
                    .unwrap_err();
            }
            assert_eq!(batches.most_at_once(), most, "{address}");
            let to = receiver.local_addr().unwrap();
            batches
                .send(&sender, (None, to), &vec![7; 65_000], 65_000)
                .unwrap();
            let discovery = sockopt::ip_mtu_discover(&sender).unwrap();
            assert_eq!(discovery, Ipv4PathMtuDiscovery::WANT, "{address}");
        }
    }
}
