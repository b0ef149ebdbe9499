//! Paths as QUIC connections over `noq-proto`, driven sans-IO and joined to sessions.
//!
//! [`Node`] is the whole protocol stack of one process without its sockets: after every input drain
//! [`Node::poll_transmit`] and [`Node::poll_event`] until empty, then come back at [`Node::poll_timeout`].

use std::{net::SocketAddr, time::Instant};

use bytes::{Bytes, BytesMut};
use starhaul_cc::ControllerConfig;
use starhaul_paths::PathId;
use starhaul_session::{Event, PathStats, Session, SessionConfig};

/// An Ed25519 key pair: who this process is.
#[derive(Clone, Debug)]
pub struct Identity(());

/// The public half; peers are pinned by it. Displays and parses as base64.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PublicKey(pub [u8; 32]);

#[allow(unused_variables, missing_docs, clippy::result_unit_err)]
impl Identity {
    pub fn generate() -> Self { todo!() }
    pub fn public_key(&self) -> PublicKey { todo!() }
    /// The secret as text for a file that only its owner can read.
    pub fn to_secret_text(&self) -> String { todo!() }
    pub fn from_secret_text(text: &str) -> Result<Self, Error> { todo!() }
}

impl std::fmt::Display for PublicKey {
    fn fmt(&self, _f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result { todo!() }
}
impl std::str::FromStr for PublicKey {
    type Err = Error;
    fn from_str(_text: &str) -> Result<Self, Error> { todo!() }
}

/// What can go wrong here.
#[derive(Clone, Debug, thiserror::Error)]
pub enum Error {
    /// Stub.
    #[error("{0}")]
    Stub(String),
}

/// A local socket, numbered by the driver.
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
    /// Most sessions at once.
    pub max_sessions: usize,
    /// Seed of connection ids, packet padding and session randomness; from the system's source outside tests.
    pub rng_seed: [u8; 32],
}

/// A path to open.
#[derive(Clone, Debug)]
pub struct PathConfig {
    /// Name for people.
    pub name: String,
    /// The socket to send from.
    pub local: LocalId,
    /// The peer's address on it.
    pub remote: SocketAddr,
    /// Price per byte.
    pub cost: f64,
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
    /// One or more payloads.
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
    /// The session ended; `None` when closed in order.
    Closed {
        /// The session.
        session: SessionHandle,
        /// Why, when something was wrong.
        error: Option<Error>,
    },
    /// A path came up (first or again).
    PathUp {
        /// The session.
        session: SessionHandle,
        /// The path.
        path: PathId,
    },
    /// A path was lost; it is tried again while the session lives.
    PathDown {
        /// The session.
        session: SessionHandle,
        /// The path.
        path: PathId,
        /// Why.
        reason: String,
    },
    /// Something happened in the session.
    Session {
        /// The session.
        session: SessionHandle,
        /// What.
        event: Event,
    },
}

/// A path as its node sees it.
#[derive(Clone, Debug)]
#[allow(missing_docs)]
pub struct PathStatus {
    pub path: PathId,
    pub name: String,
    pub remote: SocketAddr,
    pub up: bool,
    pub controller: &'static str,
    pub controller_state: &'static str,
    pub cwnd: u64,
    pub bytes_in_flight: u64,
    pub stats: Option<PathStats>,
}

/// The whole stack of one process, without sockets.
#[derive(Debug)]
pub struct Node(());

#[allow(unused_variables, missing_docs)]
impl Node {
    pub fn new(config: NodeConfig, now: Instant) -> Result<Self, Error> { todo!() }
    /// Registers a socket; `listening` ones accept sessions and paths from peers.
    pub fn add_local(&mut self, local: LocalId, listening: bool) { todo!() }
    /// Opens a session; all paths are tried at once, the first one up opens it and the others join.
    pub fn connect(&mut self, now: Instant, peer: PublicKey, paths: Vec<PathConfig>) -> Result<SessionHandle, Error> { todo!() }
    pub fn add_path(&mut self, now: Instant, session: SessionHandle, path: PathConfig) -> Result<PathId, Error> { todo!() }
    pub fn remove_path(&mut self, now: Instant, session: SessionHandle, path: PathId) -> Result<(), Error> { todo!() }
    pub fn handle_datagram(&mut self, now: Instant, local: LocalId, remote: SocketAddr, ecn: u8, payload: BytesMut) { todo!() }
    pub fn poll_transmit(&mut self, now: Instant) -> Option<Transmit> { todo!() }
    pub fn poll_timeout(&mut self) -> Option<Instant> { todo!() }
    pub fn handle_timeout(&mut self, now: Instant) { todo!() }
    pub fn poll_event(&mut self) -> Option<NodeEvent> { todo!() }
    /// The session's state machine, for the application's calls.
    pub fn session(&mut self, session: SessionHandle) -> Option<&mut Session> { todo!() }
    pub fn path_status(&mut self, session: SessionHandle) -> Vec<PathStatus> { todo!() }
    /// Closes in order and tells the peer.
    pub fn close(&mut self, now: Instant, session: SessionHandle, reason: &str) { todo!() }
}
