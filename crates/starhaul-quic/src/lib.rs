//! Paths as QUIC connections over `noq-proto`, driven sans-IO and joined to sessions.
//!
//! [`Node`] is the whole protocol stack of one process without its sockets: after every input drain
//! [`Node::poll_transmit`] and [`Node::poll_event`] until empty, then come back at [`Node::poll_timeout`].
//!
//! Each path of a session is one single-path QUIC connection (RFC 9000) between pinned keys. The
//! first one that finishes TLS opens the session, the others join it with a token bound to both TLS
//! sessions. User data ride in DATAGRAM frames (RFC 9221), one per packet, so that the fate of each
//! is known; a path asks the session for the next one only when its window and pacer let it leave
//! at once.
//!
//! ```
//! use std::time::Instant;
//! use starhaul_quic::{Identity, LocalId, Node, NodeConfig};
//!
//! let now = Instant::now();
//! let mut config = NodeConfig::new(Identity::generate());
//! config.rng_seed = [7; 32]; // from the system's source outside tests
//! let mut node = Node::new(config, now)?;
//! node.add_local(LocalId(0), true);
//! // The driver's loop: inputs first, then
//! while let Some(transmit) = node.poll_transmit(now) {
//!     println!("{} bytes to {}", transmit.contents.len(), transmit.remote);
//! }
//! while let Some(event) = node.poll_event() {
//!     println!("{event:?}");
//! }
//! let wake_up_at = node.poll_timeout();
//! # assert_eq!(wake_up_at, None);
//! # Ok::<(), starhaul_quic::Error>(())
//! ```

use std::{
    net::{IpAddr, SocketAddr},
    sync::Arc,
    time::Duration,
};

use bytes::Bytes;
use starhaul_cc::{ControllerConfig, Detection, PathModel, Reconfigurations};
use starhaul_paths::PathId;
use starhaul_session::{ClassBytes, Event, PathStats, SchedulerChoice, SessionConfig, StreamStats};
use starhaul_units::Bandwidth;

mod connection;
mod controller;
mod error;
mod identity;
mod join;
mod node;
mod packet_size;
mod proof;
mod qlog;
#[cfg(any(test, feature = "sim"))]
mod simulated;
#[cfg(test)]
mod tests;
#[doc(hidden)]
pub mod tls;
mod transport;
#[doc(hidden)]
pub mod wire;

pub use error::{CloseCode, Error};
pub use identity::{Identity, PublicKey};
pub use node::Node;
pub use qlog::{QlogFiles, QlogWriter};
pub use wire::LinkKind;

/// UDP payload in bytes that every QUIC path carries (RFC 9000 §14).
pub const LEAST_PACKET_BYTES: u16 = 1200;
/// UDP payload in bytes that Ethernet carries over IPv4: 1500 less 20 and 8 of headers; over IPv6 20 less fit.
pub const MOST_PACKET_BYTES: u16 = 1472;
/// Greatest number of paths of one session.
pub const MAX_PATHS: usize = 16;
/// A session ends when none of its paths was up for this time.
pub const NO_PATH_TIMEOUT: Duration = Duration::from_secs(60);

/// A local socket, numbered by the driver; the same number for the same socket after a restart.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LocalId(pub u32);

/// A session of this node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SessionHandle(pub u64);

/// The configuration of a [`Node`].
#[derive(Clone, Debug)]
pub struct NodeConfig {
    /// The key pair that identifies this process.
    pub identity: Identity,
    /// Peers that may open sessions to us.
    pub trusted: Vec<PublicKey>,
    /// Settings of every session.
    pub session: SessionConfig,
    /// Who chooses the paths of every session, in our direction.
    pub scheduler: SchedulerChoice,
    /// Controller of paths that peers open to us.
    pub accept_controller: ControllerConfig,
    /// Controller of those paths that the peer declares as low-orbit links; `None` for the same one.
    pub accept_leo_controller: Option<ControllerConfig>,
    /// Greatest number of sessions at once, opened and accepted.
    pub max_sessions: usize,
    /// Greatest number of sessions that one key may have opened to us; one more replaces its session that was silent for
    /// longest, if that is dead.
    pub max_sessions_per_peer: usize,
    /// Greatest number of connections at once that peers opened and that have not joined a session yet; more are refused. From a
    /// quarter of it on peers must prove their address first (RFC 9000 §8.1.2).
    pub max_handshakes: usize,
    /// The same of one source: an IPv4 address, or an IPv6 network of 64 bits.
    pub max_handshakes_per_source: usize,
    /// Bytes of the largest UDP payload, from [`LEAST_PACKET_BYTES`] to [`MOST_PACKET_BYTES`]. Each path begins with
    /// [`NodeConfig::sure_packet_bytes`] and probes for more, up to this; the two sides may differ.
    pub packet_bytes: u16,
    /// UDP payload that every path carries without a probe, in the same range. If it is not below `packet_bytes`, there are no
    /// probes and packets keep that size: a path with a smaller MTU carries nothing.
    pub sure_packet_bytes: u16,
    /// Seed of connection ids, packet padding and session numbers; from the system's source outside tests.
    pub rng_seed: [u8; 32],
    /// Where qlog records of all paths and sessions go; `None` for none.
    pub qlog: Option<Arc<dyn QlogFiles>>,
}

impl NodeConfig {
    /// A node without trusted peers, with Cubic on accepted paths and at most 64 sessions, 16 of each key. The seed is all zero
    /// and must be set outside tests.
    pub fn new(identity: Identity) -> Self {
        Self {
            identity,
            trusted: Vec::new(),
            session: SessionConfig::default(),
            scheduler: SchedulerChoice::default(),
            accept_controller: ControllerConfig::Cubic,
            accept_leo_controller: None,
            max_sessions: 64,
            max_sessions_per_peer: 16,
            max_handshakes: 256,
            max_handshakes_per_source: 32,
            packet_bytes: MOST_PACKET_BYTES,
            sure_packet_bytes: LEAST_PACKET_BYTES,
            rng_seed: [0; 32],
            qlog: None,
        }
    }
}

/// A path to open, as the configuration or the application states it.
#[derive(Clone, Debug, PartialEq)]
pub struct PathSpec {
    /// Name for people, unique in its session, at most 64 bytes; the peer sees it too.
    pub name: String,
    /// Local address to send from; `None` lets the kernel choose.
    pub local: Option<SocketAddr>,
    /// Network interface to bind to (`SO_BINDTODEVICE`).
    pub interface: Option<String>,
    /// The peer's address.
    pub remote: SocketAddr,
    /// Price per byte, finite and not negative; only the order matters. The peer uses it too.
    pub cost: f64,
    /// The kind of link; the peer chooses the controller of its direction by that.
    pub link: LinkKind,
    /// Controller of our direction.
    pub controller: ControllerConfig,
    /// How to probe its satellite hop for reconfigurations; `None` if there is none, or they do not matter.
    pub detection: Option<Detection>,
}

impl PathSpec {
    /// A path over the route that the kernel chooses, at cost 1, with Cubic and without detection.
    pub fn new(name: impl Into<String>, remote: SocketAddr) -> Self {
        Self {
            name: name.into(),
            local: None,
            interface: None,
            remote,
            cost: 1.0,
            link: LinkKind::Other,
            controller: ControllerConfig::Cubic,
            detection: None,
        }
    }
}

/// The paths that a [`PathSignal`](starhaul_cc::PathSignal) concerns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SignalTarget {
    /// One path of a session.
    Path(SessionHandle, PathId),
    /// Every path of every session over this socket: all flows through a dish are concerned alike.
    Local(LocalId),
}

/// UDP datagrams to send: `contents` split into segments of `segment_size` bytes, of which the last may be shorter.
#[derive(Debug)]
pub struct Transmit {
    /// The socket to send from.
    pub local: LocalId,
    /// The address to send to.
    pub remote: SocketAddr,
    /// The address of this host to send from, to which the peer sends; `None` lets the kernel choose.
    pub source: Option<IpAddr>,
    /// ECN bits of the IP header.
    pub ecn: u8,
    /// Bytes of each UDP payload.
    pub segment_size: usize,
    /// One or more payloads, at most 64.
    pub contents: Bytes,
}

/// An event for the driver of a node.
#[derive(Debug)]
pub enum NodeEvent {
    /// A session we asked for is open.
    Connected(SessionHandle),
    /// A trusted peer opened a session.
    Accepted {
        /// Handle of the session.
        session: SessionHandle,
        /// The key of the peer that opened it.
        peer: PublicKey,
    },
    /// The session ended; `None` when closed in order. Its handle is not valid any more.
    Closed {
        /// Handle of the session.
        session: SessionHandle,
        /// The reason, if it did not end in order.
        error: Option<Error>,
        /// Final figures of the streams that ended with it, and of those before that were not collected.
        streams: Vec<StreamStats>,
    },
    /// A path came up, for the first time or again.
    PathUp {
        /// Handle of the session.
        session: SessionHandle,
        /// Number of the path in the session.
        path: PathId,
        /// Name of the path.
        name: String,
    },
    /// A path was lost, or its first attempt failed; the side that opened the session tries it
    /// again while the session lives.
    PathDown {
        /// Handle of the session.
        session: SessionHandle,
        /// Number of the path in the session.
        path: PathId,
        /// Name of the path.
        name: String,
        /// Why it is down, as text for people.
        reason: String,
    },
    /// A peer tried to connect with a key that is not trusted, and was refused.
    Refused {
        /// The peer's address, proved by the handshake.
        remote: SocketAddr,
        /// The key that it presented, without proof that it owns it.
        key: PublicKey,
    },
    /// An event of the session's streams.
    Session {
        /// Handle of the session.
        session: SessionHandle,
        /// What happened to the streams.
        event: Event,
    },
}

/// Totals of a path over all its connections: session datagrams, without the headers of the layers below.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PathTotals {
    /// Bytes of session datagrams sent.
    pub bytes_sent: u64,
    /// Bytes of session datagrams received.
    pub bytes_received: u64,
    /// Session datagrams sent.
    pub datagrams_sent: u64,
    /// Session datagrams sent and declared lost.
    pub datagrams_lost: u64,
    /// Bytes sent in datagrams with data of streams, by priority.
    pub sent_by_class: ClassBytes,
    /// The same of those received.
    pub received_by_class: ClassBytes,
}

impl PathTotals {
    fn add(&mut self, life: &PathStats) {
        self.bytes_sent += life.bytes_sent;
        self.bytes_received += life.bytes_received;
        self.datagrams_sent += life.datagrams_sent;
        self.datagrams_lost += life.datagrams_lost;
        self.sent_by_class.add_all(&life.sent_by_class);
        self.received_by_class.add_all(&life.received_by_class);
    }
}

/// The state of a path.
#[derive(Clone, Debug)]
pub struct PathStatus {
    /// Number of the path, the same on both sides.
    pub path: PathId,
    /// Name given by the side that opened the path.
    pub name: String,
    /// The peer's address; the configured one while there is no connection.
    pub remote: SocketAddr,
    /// Whether the path carries datagrams.
    pub up: bool,
    /// Name of the controller of our direction; empty while the path is down.
    pub controller: &'static str,
    /// Phase of the controller, e.g. `startup`.
    pub controller_state: &'static str,
    /// Bytes that may be in flight.
    pub cwnd: u64,
    /// Bytes in flight.
    pub bytes_in_flight: u64,
    /// The controller's model of the path, if it has one.
    pub model: Option<PathModel>,
    /// The reconfigurations that were signalled since its connection began.
    pub reconfigurations: Reconfigurations,
    /// The RTT of its satellite segment alone, from the terminal to the PoP, if a prober measures it; the sum if both ends have
    /// such a segment.
    pub segment_rtt: Option<Duration>,
    /// UDP payload of the largest packets that the path is known to carry, in bytes; 0 without a connection.
    pub packet_bytes: u16,
    /// The greatest rate at which we may send on it, UDP payload counted, as set by [`Node::set_path_rate_limit`].
    pub rate_limit: Option<Bandwidth>,
    /// The session's figures of the path while it is up.
    pub stats: Option<PathStats>,
    /// Totals since the session began, whether or not the path is up.
    pub totals: PathTotals,
}
