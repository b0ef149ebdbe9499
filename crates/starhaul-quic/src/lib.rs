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

use std::{net::SocketAddr, time::Duration};

use bytes::Bytes;
use starhaul_cc::{ControllerConfig, PathModel, Reconfigurations};
use starhaul_paths::PathId;
use starhaul_session::{Event, PathStats, SessionConfig, StreamStats};

mod controller;
mod error;
mod identity;
mod join;
mod node;
mod packet_size;
mod path;
mod proof;
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
pub use wire::LinkKind;

/// What every QUIC path carries (RFC 9000 §14).
pub const LEAST_PACKET_BYTES: u16 = 1200;
/// What Ethernet carries over IPv4: 1500 bytes less 20 and 8 bytes of headers; over IPv6 20 bytes less fit.
pub const MOST_PACKET_BYTES: u16 = 1472;
/// Most paths of one session.
pub const MAX_PATHS: usize = 16;
/// A session ends when no path of it was up for so long.
pub const NO_PATH_TIMEOUT: Duration = Duration::from_secs(60);

/// A local socket, numbered by the driver; the same number for the same socket after a restart.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LocalId(pub u32);

/// A session of this node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SessionHandle(pub u64);

/// What a node is made of.
#[derive(Clone, Debug)]
pub struct NodeConfig {
    /// Who we are.
    pub identity: Identity,
    /// Who may open sessions to us.
    pub trusted: Vec<PublicKey>,
    /// Settings of every session.
    pub session: SessionConfig,
    /// Controller of paths that peers open to us.
    pub accept_controller: ControllerConfig,
    /// Of those that the peer says lead over a low orbit; `None`: the same.
    pub accept_leo_controller: Option<ControllerConfig>,
    /// Most sessions at once, both opened and accepted.
    pub max_sessions: usize,
    /// Most of them that one key may have opened to us; one more displaces the one that was silent for longest, if that is dead.
    pub max_sessions_per_peer: usize,
    /// Bytes of the largest UDP payload, from [`LEAST_PACKET_BYTES`] to [`MOST_PACKET_BYTES`]. Each path begins with
    /// [`NodeConfig::sure_packet_bytes`] and finds out how much of this it carries; both sides may differ.
    pub packet_bytes: u16,
    /// UDP payload that every path carries without a question, in the same range. Where it is not below `packet_bytes`, nothing is
    /// asked and packets keep that size: a path that does not carry it whole carries nothing.
    pub sure_packet_bytes: u16,
    /// Seed of connection ids, packet padding and session numbers; from the system's source outside tests.
    pub rng_seed: [u8; 32],
}

impl NodeConfig {
    /// Trusts nobody, answers with Cubic, holds 64 sessions, 16 of each key; the seed is all zero and must be set outside tests.
    pub fn new(identity: Identity) -> Self {
        Self {
            identity,
            trusted: Vec::new(),
            session: SessionConfig::default(),
            accept_controller: ControllerConfig::Cubic,
            accept_leo_controller: None,
            max_sessions: 64,
            max_sessions_per_peer: 16,
            packet_bytes: MOST_PACKET_BYTES,
            sure_packet_bytes: LEAST_PACKET_BYTES,
            rng_seed: [0; 32],
        }
    }
}

/// A path to open.
#[derive(Clone, Debug)]
pub struct PathConfig {
    /// Name for people, at most 64 bytes; the peer sees it too.
    pub name: String,
    /// The socket to send from.
    pub local: LocalId,
    /// The peer's address on it.
    pub remote: SocketAddr,
    /// Price per byte, finite and not negative; only its order matters. The peer uses it too.
    pub cost: f64,
    /// Over what it leads; the peer chooses the controller of its direction by that.
    pub link: LinkKind,
    /// Controller of our direction.
    pub controller: ControllerConfig,
}

/// UDP datagrams to send: `contents` split in pieces of `segment_size` (the last may be shorter).
#[derive(Debug)]
pub struct Transmit {
    /// From which socket.
    pub local: LocalId,
    /// To whom.
    pub remote: SocketAddr,
    /// ECN bits of the IP header.
    pub ecn: u8,
    /// Bytes of one UDP payload.
    pub segment_size: usize,
    /// One or more payloads, at most 64.
    pub contents: Bytes,
}

/// What a node tells its driver.
#[derive(Debug)]
pub enum NodeEvent {
    /// A session we asked for is open.
    Connected(SessionHandle),
    /// A trusted peer opened a session.
    Accepted {
        /// The session.
        session: SessionHandle,
        /// Its peer.
        peer: PublicKey,
    },
    /// The session ended; `None` when closed in order. Its handle is not valid any more.
    Closed {
        /// The session.
        session: SessionHandle,
        /// Why, when something was wrong.
        error: Option<Error>,
        /// Last figures of the streams that ended with it, or before and were not asked for.
        streams: Vec<StreamStats>,
    },
    /// A path came up (first or again).
    PathUp {
        /// The session.
        session: SessionHandle,
        /// The path.
        path: PathId,
        /// Its name.
        name: String,
    },
    /// A path was lost, or its first attempt failed; the side that opened the session tries it
    /// again while the session lives.
    PathDown {
        /// The session.
        session: SessionHandle,
        /// The path.
        path: PathId,
        /// Its name.
        name: String,
        /// Why.
        reason: String,
    },
    /// Somebody wanted to connect with a key that is not trusted, and was told so.
    Refused {
        /// From where; the address was proved by the handshake.
        remote: SocketAddr,
        /// The key shown. That its owner showed it is not proved.
        key: PublicKey,
    },
    /// Something happened in the session.
    Session {
        /// The session.
        session: SessionHandle,
        /// What.
        event: Event,
    },
}

/// What a path has carried in all its lives: session datagrams, without the headers of the layers below.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PathTotals {
    /// To the peer.
    pub bytes_sent: u64,
    /// From the peer.
    pub bytes_received: u64,
    /// To the peer.
    pub datagrams_sent: u64,
    /// Of those, declared lost.
    pub datagrams_lost: u64,
}

impl PathTotals {
    fn add(&mut self, life: &PathStats) {
        self.bytes_sent += life.bytes_sent;
        self.bytes_received += life.bytes_received;
        self.datagrams_sent += life.datagrams_sent;
        self.datagrams_lost += life.datagrams_lost;
    }
}

/// A path as its node sees it.
#[derive(Clone, Debug)]
pub struct PathStatus {
    /// Its number, the same on both sides.
    pub path: PathId,
    /// Its name, given by the side that opened it.
    pub name: String,
    /// The peer's address; the configured one while there is no connection.
    pub remote: SocketAddr,
    /// Datagrams flow.
    pub up: bool,
    /// Name of the controller of our direction; empty while the path is down.
    pub controller: &'static str,
    /// Its phase.
    pub controller_state: &'static str,
    /// Bytes that may be in flight.
    pub cwnd: u64,
    /// Bytes that are.
    pub bytes_in_flight: u64,
    /// What its controller believes of the path, when it keeps a model worth showing.
    pub model: Option<PathModel>,
    /// The reconfigurations that were signalled since its connection began.
    pub reconfigurations: Reconfigurations,
    /// The last round trip of its satellite segment alone, from the terminal to the PoP, when somebody measures it; where both ends
    /// have one, of both together.
    pub segment_rtt: Option<Duration>,
    /// UDP payload of the largest packets that we send, as far as is known that the path carries them; 0 while there is no connection.
    pub packet_bytes: u16,
    /// What the session knows of it, while it is up.
    pub stats: Option<PathStats>,
    /// What it has carried since the session began, whether or not it is up.
    pub totals: PathTotals,
}
