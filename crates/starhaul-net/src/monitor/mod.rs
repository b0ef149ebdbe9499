//! Notifications of the kernel about links, addresses and default routes (rtnetlink(7)), so that recovery of a lost
//! path need not wait for a timer.

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
/// Bound of a notification: that of a link with many parts takes some 16 KiB; a larger one is truncated and counts as
/// missed.
const BUFFER_BYTES: usize = 32 << 10;
/// Size of the kernel's queue: some hundred changes at once.
const QUEUE_BYTES: usize = 256 << 10;
/// Messages read per call; a router of the Internet changes routes all day.
const MESSAGES_AT_ONCE: usize = 256;

/// Receives changes in the network namespace of the thread that opened it.
#[derive(Debug)]
pub struct NetworkMonitor {
    socket: OwnedFd,
    buffer: Box<[u8]>,
}

impl NetworkMonitor {
    /// Subscribes to notifications.
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
        // A smaller queue overflows sooner, which is reported as well.
        let _ = sockopt::set_socket_recv_buffer_size(&socket, QUEUE_BYTES);
        bind(&socket, &SocketAddrNetlink::new(0, GROUPS))?;
        Ok(Self {
            socket,
            buffer: vec![0; BUFFER_BYTES].into_boxed_slice(),
        })
    }

    /// Passes on the changes since the last call; if some are left the descriptor stays readable.
    ///
    /// # Errors
    /// [`Error::System`] when no more notifications can arrive.
    pub fn recv(&mut self, mut each: impl FnMut(NetworkChange)) -> Result<(), Error> {
        for _ in 0..MESSAGES_AT_ONCE {
            let received = recvfrom(&self.socket, &mut *self.buffer, RecvFlags::TRUNC);
            let (whole, sender) = match received {
                Ok((_, whole, sender)) => (whole, sender),
                Err(Errno::AGAIN) => return Ok(()),
                Err(Errno::INTR) => continue,
                // The queue overflowed.
                Err(Errno::NOBUFS) => {
                    each(NetworkChange::Missed);
                    continue;
                }
                Err(errno) => return Err(Error::System(io::Error::from(errno))),
            };
            let sender = sender.and_then(|sender| SocketAddrNetlink::try_from(sender).ok());
            if sender.is_none_or(|sender| sender.pid() != 0) {
                // The sender is not the kernel.
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
        // Other processes may change something meanwhile.
        let mut news = 0;
        monitor.recv(|_| news += 1).unwrap();
        assert!(news < MESSAGES_AT_ONCE);
    }
}
