//! The kernel's news of links, addresses and default routes (rtnetlink(7)): who has lost a path need not wait for a timer to
//! find it again.

mod news;

use std::{
    io,
    os::fd::{AsFd, BorrowedFd, OwnedFd},
};

use rustix::{
    io::Errno,
    net::{
        AddressFamily, RecvFlags, SocketFlags, SocketType, bind, netlink::SocketAddrNetlink,
        recvfrom, socket_with, sockopt,
    },
};

pub use news::{NetworkChange, parse_news};

use crate::Error;

/// `RTMGRP_LINK`, `RTMGRP_IPV4_IFADDR`, `RTMGRP_IPV4_ROUTE`, `RTMGRP_IPV6_IFADDR` and `RTMGRP_IPV6_ROUTE`.
const GROUPS: u32 = 0x1 | 0x10 | 0x40 | 0x100 | 0x400;
/// A link of many parts is told in some 16 KiB; what is larger is cut, and counts as missed.
const BUFFER_BYTES: usize = 32 << 10;
/// Of the kernel's queue: some hundred changes at once.
const QUEUE_BYTES: usize = 256 << 10;
/// Messages read before something else gets a turn; a router of the Internet changes routes all day.
const MESSAGES_AT_ONCE: usize = 256;

/// Hears what changes in the network namespace of the thread that opened it.
#[derive(Debug)]
pub struct NetworkMonitor {
    socket: OwnedFd,
    buffer: Box<[u8]>,
}

impl NetworkMonitor {
    /// Starts to listen.
    ///
    /// # Errors
    /// [`Error::System`] when no descriptor is left, or the system has no rtnetlink for this process.
    pub fn open() -> Result<Self, Error> {
        Self::listen().map_err(|errno| Error::System(errno.into()))
    }

    fn listen() -> Result<Self, Errno> {
        let socket = socket_with(
            AddressFamily::NETLINK,
            SocketType::RAW,
            SocketFlags::CLOEXEC | SocketFlags::NONBLOCK,
            // Protocol 0 is NETLINK_ROUTE.
            None,
        )?;
        // A smaller queue loses news sooner, which is told as well.
        let _ = sockopt::set_socket_recv_buffer_size(&socket, QUEUE_BYTES);
        bind(&socket, &SocketAddrNetlink::new(0, GROUPS))?;
        Ok(Self {
            socket,
            buffer: vec![0; BUFFER_BYTES].into_boxed_slice(),
        })
    }

    /// Hands on what has been told since the last call; what is left for the next one keeps the descriptor readable.
    ///
    /// # Errors
    /// [`Error::System`] when nothing will be heard any more.
    pub fn recv(&mut self, mut each: impl FnMut(NetworkChange)) -> Result<(), Error> {
        for _ in 0..MESSAGES_AT_ONCE {
            let received = recvfrom(&self.socket, &mut *self.buffer, RecvFlags::TRUNC);
            let (whole, sender) = match received {
                Ok((_, whole, sender)) => (whole, sender),
                Err(Errno::AGAIN) => return Ok(()),
                Err(Errno::INTR) => continue,
                // The queue ran over.
                Err(Errno::NOBUFS) => {
                    each(NetworkChange::Missed);
                    continue;
                }
                Err(errno) => return Err(Error::System(io::Error::from(errno))),
            };
            let sender = sender.and_then(|sender| SocketAddrNetlink::try_from(sender).ok());
            if sender.is_none_or(|sender| sender.pid() != 0) {
                // Not the kernel.
                continue;
            }
            match self.buffer.get(..whole) {
                Some(news) => parse_news(news, &mut each),
                None => each(NetworkChange::Missed),
            }
        }
        Ok(())
    }
}

impl AsFd for NetworkMonitor {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_quiet_network_has_no_news() {
        let mut monitor = NetworkMonitor::open().unwrap();
        // Others may change something meanwhile.
        let mut news = 0;
        monitor.recv(|_| news += 1).unwrap();
        assert!(news < MESSAGES_AT_ONCE);
    }
}
