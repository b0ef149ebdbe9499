//! The async API of Starhaul: sessions over real sockets for Rust applications.
//!
//! An [`Endpoint`] opens and accepts [`Session`]s. A session runs over any number of paths at once and carries streams of two kinds:
//! blocks with deadlines ([`SendStream`], [`RecvStream`]) and reliable bytes ([`ByteStream`]).
//!
//! ```no_run
//! use std::time::Duration;
//! use bytes::Bytes;
//! use starhaul_endpoint::{BlockOptions, Endpoint, EndpointConfig, Identity, IncomingStream, PathSpec, StreamConfig};
//!
//! # async fn example() -> Result<(), Box<dyn std::error::Error>> {
//! let (alice, bob) = (Identity::generate(), Identity::generate());
//! let receiver = Endpoint::bind(EndpointConfig {
//!     trusted: vec![alice.public_key()],
//!     listen: vec!["127.0.0.1:0".parse()?],
//!     ..EndpointConfig::new(bob.clone())
//! }).await?;
//! let sender = Endpoint::bind(EndpointConfig::new(alice)).await?;
//!
//! let path = PathSpec::new("loopback", receiver.listen_addresses()[0]);
//! let session = sender.connect(bob.public_key(), vec![path]).await?;
//! let stream = session.open_stream(StreamConfig {
//!     deadline: Duration::from_millis(200),
//!     label: Bytes::from_static(b"greeting"),
//!     ..StreamConfig::default()
//! }).await?;
//! let block = stream.send_block(Bytes::from_static(b"hello"), BlockOptions::default())?;
//!
//! let accepted = receiver.accept().await.ok_or("closed")?;
//! if let Some(IncomingStream::Blocks(mut stream)) = accepted.accept_stream().await {
//!     let block = stream.recv_block().await.ok_or("ended")?;
//!     assert_eq!(block.data, "hello");
//! }
//! println!("{:?}", block.outcome().await);
//! sender.close().await;
//! # Ok(())
//! # }
//! ```

mod available;
mod block;
mod bytes;
mod chain;
mod driver;
mod endpoint;
mod events;
mod inbox;
mod log_budget;
mod network;
mod overload;
mod own_paths;
mod paths;
mod payloads;
mod probers;
mod qlog;
mod queue;
mod reconfiguration;
mod refused;
mod session;
mod socket;
mod state;
mod stream;
mod waiting;

use std::{net::SocketAddr, time::Duration};

pub use starhaul_cc::{
    ControllerConfig, Detection, PathModel, ProbeMethod, ProbeTarget, RateFeed, Reconfiguration,
    ReconfigurationSource, Reconfigurations, Timetable,
};
pub use starhaul_leotp::{ContentSecret, NeighbourKey, RateRule};
pub use starhaul_net::prober;
pub use starhaul_quic::{Identity, LinkKind, PathSpec, PathStatus, PathTotals, PublicKey};
pub use starhaul_session::{
    BlockId, BlockOptions, ClassBytes, ExpiredCause, Mode, Outcome, PathId, PlannedClass,
    SchedulerChoice, SchedulerStatus, SessionConfig, StreamConfig, StreamId, StreamStats,
};

pub use self::{
    block::Block,
    bytes::{ByteReader, ByteStream, ByteWriter},
    chain::{Chain, ChainConfig, ChainNeighbour, ChainReader, ChainStatus, ChainWriter},
    endpoint::{Endpoint, EndpointConfig},
    log_budget::LogBudget,
    overload::{Overload, Overloads},
    own_paths::PathChange,
    qlog::QlogFolder,
    session::Session,
    stream::{BlockHandle, IncomingStream, RecvStream, SendStream},
};

/// An error of this crate.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A local address, an interface or the system.
    #[error(transparent)]
    Socket(#[from] starhaul_net::Error),
    /// The peer, its key, or the transport's configuration.
    #[error(transparent)]
    Transport(#[from] starhaul_quic::Error),
    /// A stream's settings, or its end.
    #[error(transparent)]
    Stream(#[from] starhaul_session::StreamError),
    /// A session needs a path.
    #[error("no path given: name at least one path to the peer")]
    NoPath,
    /// Two paths of a session have the same name.
    #[error("path name {0:?} is used twice: names must be unique in a session")]
    DuplicatePath(String),
    /// No path has this name.
    #[error("the session has no path named {0:?}")]
    UnknownPath(String),
    /// A path's local and remote address are of different families.
    #[error("path {path:?} cannot go from {local} to {remote}: use two IPv4 or two IPv6 addresses")]
    AddressFamily {
        /// Name of the path.
        path: String,
        /// The local address.
        local: SocketAddr,
        /// The remote address.
        remote: SocketAddr,
    },
    /// No path came up in time.
    #[error(
        "peer not reached on any path within {within:?}: {}",
        if problems.is_empty() {
            "check its addresses, its firewall, and that it runs".to_owned()
        } else {
            problems.join("; ")
        }
    )]
    Unreachable {
        /// The time limit.
        within: Duration,
        /// The known problems: each with the path's name and the cause.
        problems: Vec<String>,
    },
    /// A reliable stream was asked for where blocks are sent.
    #[error("reliable streams carry bytes, not blocks: use open_bytes")]
    NotBlocks,
    /// The session has ended.
    #[error("the session has ended{}", .reason.as_ref().map(|reason| format!(": {reason}")).unwrap_or_default())]
    SessionEnded {
        /// The reason, if it did not end in order.
        reason: Option<String>,
    },
    /// The endpoint was closed.
    #[error("the endpoint was closed")]
    EndpointClosed,
    /// The system's random source failed.
    #[error("the system gives no random numbers")]
    NoRandomness,
}
