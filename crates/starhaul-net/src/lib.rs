//! The only room that touches sockets: batched UDP with segmentation offload, a poller with exact timers,
//! the kernel's news of links and addresses, and emulated links in real time.
//!
//! Everything here is non-blocking and meant for a thread of its own that waits in [`Poller::wait`].
//!
//! ```
//! use starhaul_net::{BindOptions, Poller, RecvBuffer, Transmit, UdpSocket};
//!
//! let sender = UdpSocket::bind(&BindOptions::new("127.0.0.1:0".parse()?))?;
//! let receiver = UdpSocket::bind(&BindOptions::new("127.0.0.1:0".parse()?))?;
//! let batch = Transmit { to: receiver.local_addr(), from: None, ecn: 0, contents: b"onetwo3", segment_size: 3 };
//! assert_eq!(sender.try_send(&batch)?, 7);
//!
//! let (mut poller, mut buffer, mut received) = (Poller::new()?, RecvBuffer::new(), Vec::new());
//! while received.len() < 3 {
//!     poller.wait(&[(&receiver, false)], None)?;
//!     while receiver.try_recv(&mut buffer)? {
//!         received.extend(buffer.datagrams().map(|datagram| datagram.payload.to_vec()));
//!     }
//! }
//! assert_eq!(received, [b"one".to_vec(), b"two".to_vec(), b"3".to_vec()]);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod emulator;
mod histogram;
mod icmp;
mod interface;
mod monitor;
mod poller;
pub mod prober;
mod realtime;
pub mod record;
pub mod replay;
mod socket;
mod stamped;

use std::{io, net::SocketAddr};

pub use emulator::{DirectionStats, Emulator, Relay, RelaySpec, RelayStats, Second};
pub use histogram::Histogram;
pub use icmp::Pinger;
pub use interface::interface_index;
pub use monitor::{NetworkChange, NetworkMonitor, parse_news};
pub use poller::{Poller, Readiness, Waker};
pub use realtime::sharpen_timers;
pub use socket::{BindOptions, Datagram, RecvBuffer, Transmit, UdpSocket, source_toward};
pub use stamped::{Stamped, StampedBuffer};

/// Seconds of which figures are kept.
const MAX_SECONDS: usize = 24 * 3600;

/// What can go wrong here.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The configured address cannot be bound.
    #[error(
        "cannot bind udp address {address}: {source}; check that this host has the address and that the port is free"
    )]
    Bind {
        /// The address asked for.
        address: SocketAddr,
        /// Why.
        source: io::Error,
    },
    /// The configured interface cannot be used.
    #[error(
        "cannot bind to network interface {interface:?}: {source}; check its name and the right to use it (CAP_NET_RAW)"
    )]
    Interface {
        /// The interface asked for.
        interface: String,
        /// Why.
        source: io::Error,
    },
    /// The socket lost its address or interface; a new one must be bound.
    #[error("the local address or interface of a udp socket is gone: {0}")]
    SocketGone(#[source] io::Error),
    /// The system refused something that needs no permission.
    #[error("the system is out of a resource: {0}")]
    System(#[source] io::Error),
    /// The system lets this user have no network namespace.
    #[error(
        "cannot make a network namespace: {source}; run as root (CAP_SYS_ADMIN and CAP_NET_ADMIN), or let users make user \
         namespaces (sysctl kernel.unprivileged_userns_clone=1 or kernel.apparmor_restrict_unprivileged_userns=0, \
         user.max_user_namespaces above 0); `starhaul demo` emulates links without either"
    )]
    Namespace {
        /// Why.
        source: io::Error,
    },
    /// The system gives no TUN device.
    #[error(
        "cannot make a tun device: {source}; load the kernel's module (modprobe tun), or give this container /dev/net/tun; \
         `starhaul demo` emulates links without it"
    )]
    Tun {
        /// Why.
        source: io::Error,
    },
    /// The kernel refused a setting of an emulated link, or a device of it failed.
    #[error("cannot set up or use the emulated link: {0}")]
    Network(#[source] io::Error),
    /// A process could not be started or waited for.
    #[error("cannot run the command under a supervisor: {0}")]
    Command(#[source] io::Error),
    /// The server was over before it listened.
    #[error("the server ended with exit code {code} before it listened; try its command by itself")]
    Server {
        /// As a shell reports it.
        code: u8,
    },
}
