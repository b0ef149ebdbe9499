//! What `noq-udp` believes that the kernel offers on a socket: segmentation offload and ECN. It gives both up for the socket's life
//! after one `EINVAL` or `EIO`, which may be due to a destination, or to datagrams larger than the MTU.

use std::{
    io,
    os::fd::AsFd,
    sync::atomic::{AtomicBool, Ordering},
};

use noq_udp::UdpSocketState;
use parking_lot::{RwLock, RwLockReadGuard};
use rustix::{
    io::Errno,
    net::sockopt::{self, Ipv4PathMtuDiscovery, Ipv6PathMtuDiscovery},
};
use socket2::{Protocol, SockRef, Socket, Type};

use crate::stamped;

/// The state of one socket; created again after a false belief.
#[derive(Debug)]
pub(crate) struct Offload {
    state: RwLock<UdpSocketState>,
    /// Datagrams that one call took at first.
    most_at_once: usize,
    /// Batches are refused, single datagrams are not.
    is_single: AtomicBool,
}

/// What becomes of datagrams above the MTU of their interface or path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fragments {
    /// They are refused, as `noq-udp` has it.
    Never,
    /// Those above the MTU of the interface, or of the path as far as it is known, are cut: what applications expect.
    AsUsual,
    /// The same, and routers may cut them, too (IPv4).
    Anywhere,
}

impl Offload {
    pub(crate) fn new(socket: &impl AsFd, fragments: Fragments) -> io::Result<Self> {
        let state = UdpSocketState::new(socket.into())?;
        fragments.set(socket)?;
        Ok(Self {
            most_at_once: state.max_gso_segments().get(),
            state: RwLock::new(state),
            is_single: AtomicBool::new(false),
        })
    }

    pub(crate) fn state(&self) -> RwLockReadGuard<'_, UdpSocketState> {
        self.state.read()
    }

    /// Greatest number of datagrams per system call.
    pub(crate) fn most_at_once(&self) -> usize {
        match self.is_single.load(Ordering::Relaxed) {
            true => 1,
            false => self.state.read().max_gso_segments().get(),
        }
    }

    /// Sends datagrams one by one, after a batch was refused that is sent again so. `noq-udp` gave up ECN with the batches, which is not
    /// what the kernel refused.
    pub(crate) fn send_singly(&self, socket: &impl AsFd) {
        self.believe_again(socket);
        self.is_single.store(true, Ordering::Relaxed);
    }

    /// Believes in the kernel's offers again if a datagram that was sent alone met this error: they were not the cause then.
    pub(crate) fn forget_misleading(&self, socket: &impl AsFd, error: &io::Error) {
        let is_misled = match Errno::from_io_error(error) {
            Some(Errno::INVAL) => true,
            // Kernels before 6.13 say `EINVAL` to a batch of such datagrams.
            Some(Errno::MSGSIZE) => self.is_misled(),
            _ => false,
        };
        if is_misled {
            self.believe_again(socket);
        }
    }

    /// Whether something was given up since the start.
    pub(crate) fn is_misled(&self) -> bool {
        self.most_at_once() < self.most_at_once
    }

    /// Believes in the kernel's offers again.
    pub(crate) fn believe_again(&self, socket: &impl AsFd) {
        if let Ok(fresh) = offers_to_such(socket) {
            *self.state.write() = fresh;
            self.is_single.store(false, Ordering::Relaxed);
        }
    }
}

/// What the kernel offers, asked with another socket: this one would be set up anew, to join datagrams that are to stay apart
/// ([`stamped::stamp_arrivals`]), and without fragments.
fn offers_to_such(socket: &impl AsFd) -> io::Result<UdpSocketState> {
    let domain = SockRef::from(socket).domain()?;
    let other = Socket::new(domain, Type::DGRAM, Some(Protocol::UDP))?;
    UdpSocketState::new((&other).into())
}

impl Fragments {
    fn set(self, socket: &impl AsFd) -> io::Result<()> {
        let (v4, v6) = match self {
            Self::Never => return Ok(()),
            Self::AsUsual => (Ipv4PathMtuDiscovery::WANT, Ipv6PathMtuDiscovery::WANT),
            Self::Anywhere => (Ipv4PathMtuDiscovery::DONT, Ipv6PathMtuDiscovery::DONT),
        };
        sockopt::set_ip_mtu_discover(socket, v4)?;
        if SockRef::from(socket).local_addr()?.is_ipv6() {
            sockopt::set_ipv6_mtu_discover(socket, v6)?;
            stamped::set(socket, libc::IPPROTO_IPV6, libc::IPV6_DONTFRAG, 0)?;
        }
        Ok(())
    }
}
