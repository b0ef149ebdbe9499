//! What can go wrong in a node; each message says where, and what to do about it.

use std::{io, path::PathBuf};

use starhaul_net::not_bound;

/// An error of a node, or of a command that asks one.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The configuration says something unknown or impossible.
    #[error(transparent)]
    Config(#[from] starhaul_config::Error),
    /// The configuration, or a file that it names, cannot be read.
    #[error("cannot read {}: {reason}", file.display())]
    Read {
        /// Path of the file.
        file: PathBuf,
        /// The system's error.
        reason: io::Error,
    },
    /// A file or folder of this host cannot be written.
    #[error("cannot write {}: {reason}", file.display())]
    Write {
        /// The file or folder.
        file: PathBuf,
        /// The system's error.
        reason: io::Error,
    },
    /// Another node uses the folder of bundles.
    #[error("{} is in use by another node: give each node a folder of its own", .0.display())]
    StorageInUse(PathBuf),
    /// The folder of bundles was used with another kind of store, whose bundles the configured one would neither send nor remove.
    #[error("{} holds {holds}, which {store} does not read: configure that again, or move it elsewhere", folder.display())]
    OtherStore {
        /// The folder.
        folder: PathBuf,
        /// What another store has left there, as text for people.
        holds: &'static str,
        /// The configured store.
        store: &'static str,
    },
    /// An address of the configuration cannot be served.
    #[error("cannot listen on {address}: {reason}")]
    Listen {
        /// The address that was to be bound.
        address: std::net::SocketAddr,
        /// The system's error.
        reason: String,
    },
    /// The address for metrics cannot be served.
    #[error("metrics: cannot listen on {address}: {}", not_bound(reason))]
    Metrics {
        /// Value of the key `metrics`.
        address: std::net::SocketAddr,
        /// The system's error.
        reason: io::Error,
    },
    /// The control socket cannot be made.
    #[error("control socket {}: {reason}", path.display())]
    Control {
        /// Path of the socket.
        path: PathBuf,
        /// The system's error.
        reason: io::Error,
    },
    /// The bundle agent refused something.
    #[error("the bundle agent: {0}")]
    Agent(String),
    /// The control socket, or a refusal of the node.
    #[error(transparent)]
    Node(#[from] starhaul_dtn_client::Error),
    /// The far side does not have what was sent.
    #[error("the far side does not have it: {0}")]
    FarSide(String),
    /// A node has deleted a bundle, and says so.
    #[error("{node} reports that it has deleted a bundle: {reason}")]
    Deleted {
        /// The node, as the report says.
        node: String,
        /// The reason in words.
        reason: String,
    },
    /// Nothing came back in time.
    #[error("no answer after {0:?}")]
    Silent(std::time::Duration),
    /// A benchmark found what must not be.
    #[error("the benchmark: {0}")]
    Bench(String),
    /// A file that cannot be sent.
    #[error("{}: {reason}", file.display())]
    Unusable {
        /// Path of the file.
        file: PathBuf,
        /// Why it cannot be sent, as text for people.
        reason: &'static str,
    },
}

impl Error {
    /// Whether the caller must change the configuration or the command.
    pub fn is_configuration(&self) -> bool {
        match self {
            Self::Config(_) | Self::Read { .. } => true,
            Self::StorageInUse(_) | Self::OtherStore { .. } => true,
            // Something else is where the socket is to be.
            Self::Control { reason, .. } => reason.kind() == io::ErrorKind::AlreadyExists,
            _ => false,
        }
    }
}
