//! The only crate that opens sockets: batched UDP with segmentation offload, a poller with exact timers, and the
//! kernel's notifications about links and addresses.
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

mod batches;
mod bound;
mod bulk;
mod host_memory;
mod icmp;
mod interception;
mod interface;
pub mod leotp;
mod local_socket;
#[cfg(feature = "ltp")]
pub mod ltp;
mod memory;
mod monitor;
mod mtus;
mod offload;
mod peer_names;
mod poller;
pub mod prober;
mod realtime;
#[cfg(feature = "record")]
pub mod record;
mod recv_buffer;
mod routing;
mod socket;
mod stamped;
mod tun;
mod wire_meter;

use std::{io, net::SocketAddr};

pub use batches::Batches;
pub use bound::not_bound;
pub use bulk::{BulkSocket, IoMode};
pub use host_memory::{HostMemory, host_memory};
pub use icmp::Pinger;
pub use interception::{Interception, Passing};
pub use interface::interface_index;
pub use local_socket::LocalSocketFile;
pub use memory::release_memory;
pub use monitor::{NetworkChange, NetworkMonitor, parse_news};
pub use peer_names::{ParsePeerAddressError, PeerAddress};
pub use poller::{Poller, Readiness, Waker};
pub use realtime::{run_as_others, run_first, sharpen_timers};
pub use recv_buffer::{Datagram, Lent, Message, RecvBuffer};
pub use routing::{FoundRoute, InterfaceState, MAIN_TABLE, Prefix, Routing};
pub use socket::{BindOptions, Transmit, UdpSocket, source_toward};
pub use stamped::{Stamped, StampedBuffer, joins_datagrams};
pub use tun::{AsyncTun, Tun};
pub use wire_meter::WireMeter;

/// Errors of sockets and the system.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The configured address cannot be bound.
    #[error("cannot bind udp address {address}: {}", not_bound(source))]
    Bind {
        /// The configured address.
        address: SocketAddr,
        /// The system's error.
        source: io::Error,
    },
    /// The configured interface cannot be used.
    #[error(
        "cannot bind to network interface {interface:?}: {source}; check its name and the right to use it (CAP_NET_RAW)"
    )]
    Interface {
        /// The configured interface.
        interface: String,
        /// The system's error.
        source: io::Error,
    },
    /// Datagrams that pass this host cannot be intercepted.
    #[error(
        "cannot intercept what passes this host: {0}; it needs root, or CAP_NET_ADMIN as an ambient capability, and nftables with TPROXY"
    )]
    Interception(String),
    /// The socket lost its address or interface; a new one must be bound.
    #[error("the local address or interface of a udp socket is gone: {0}")]
    SocketGone(#[source] io::Error),
    /// The system refused an operation that needs no permission.
    #[error("the system is out of a resource: {0}")]
    System(#[source] io::Error),
}
