//! Files by name over LEOTP: a folder is served, relays carry and keep what passes, and files are fetched whole, verified by
//! their SHA-256, from where an earlier try ended.

mod catalogue;
pub mod config;
mod entry;
mod fetch;
mod index;
mod keys;
pub mod metrics;
mod relay;
mod serve;
mod source;

use std::{io, net::SocketAddr, path::PathBuf};

pub use entry::Entry;
pub use fetch::{Fetched, Fetching, Progress};
pub use metrics::Traffic;
pub use relay::Relay;
pub use serve::{ServeOptions, Server};
pub use starhaul_leotp::{ContentSecret, NeighbourKey};

/// Errors of serving, fetching and relaying.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A local file cannot be read or written.
    #[error("{}: {source}", .file.display())]
    File {
        /// Path of the file.
        file: PathBuf,
        /// The system's error.
        source: io::Error,
    },
    /// A file with a key or a secret.
    #[error(transparent)]
    Secret(#[from] starhaul_config::SecretError),
    /// The configuration is wrong.
    #[error(transparent)]
    Config(#[from] starhaul_config::Error),
    /// The address of a neighbour cannot be found.
    #[error("{address}: {reason}; write it as host:port")]
    Address {
        /// The address as the configuration or the command line gives it.
        address: String,
        /// Why it is none, or the error of the name's resolution.
        reason: String,
    },
    /// A transparent relay answers under its neighbour's address, and so at its port.
    #[error(
        "a transparent relay at {listen} cannot stand for {address}: write listen = \"0.0.0.0:{port}\", or \"[::]:{port}\" for IPv6",
        port = .address.port()
    )]
    Transparent {
        /// The relay's address.
        listen: SocketAddr,
        /// Address of the neighbour.
        address: SocketAddr,
    },
    /// A transparent relay has nothing to take.
    #[error(
        "a transparent relay takes what passes to its neighbours: give one of them an \"address\""
    )]
    NoTarget,
    /// The neighbour does not answer.
    #[error("{0} does not answer: is a relay or a server there, and does it have this key?")]
    Silent(SocketAddr),
    /// There is nowhere to fetch from.
    #[error("no address of a relay or a server")]
    NoAddress,
    /// Two requesters with one key would take the server from each other.
    #[error("keys {0} and {1} are the same: give each requester one of its own")]
    SameKeys(usize, usize),
    /// No server on the way has the file.
    #[error(
        "no server on the way has {0:?}: check the name, the secret, and the upstream neighbours of the relays"
    )]
    Unknown(String),
    /// Nothing came for long.
    #[error(
        "nothing came for {0} s: the server or a relay on the way is gone; fetch again to go on from here"
    )]
    Stalled(u64),
    /// The file was replaced at the server.
    #[error("{0:?} was changed or removed at the server while it was fetched: fetch it again")]
    Changed(String),
    /// What came does not open.
    #[error(transparent)]
    Failed(#[from] starhaul_leotp::Failure),
    /// What came is not what the server promised.
    #[error("{0:?} arrived with another SHA-256 than the server gave: fetch it again")]
    Hash(String),
    /// Another program fetches the same.
    #[error("{} is being written by another fetch: wait for it, or choose another place with --into", .0.display())]
    Busy(PathBuf),
    /// What the server says of its files does not open.
    #[error(
        "the server's answer is damaged: a relay changes it, or the server has another version"
    )]
    Damaged,
    /// There is another file of that name.
    #[error("{} is there already, with other contents: choose another place with --into", .0.display())]
    Exists(PathBuf),
    /// The system has no randomness.
    #[error("the system gives no random numbers")]
    Randomness,
    /// The node was configured wrongly.
    #[error(transparent)]
    Node(#[from] starhaul_leotp::Error),
    /// The address for metrics cannot be served.
    #[error(
        "metrics: cannot listen on {address}: {}",
        starhaul_net::not_bound(reason)
    )]
    Metrics {
        /// Value of the key `metrics`.
        address: SocketAddr,
        /// The system's error.
        reason: io::Error,
    },
    /// The socket failed.
    #[error(transparent)]
    Net(#[from] starhaul_net::Error),
}

fn file_error(file: impl Into<PathBuf>) -> impl FnOnce(io::Error) -> Error {
    let file = file.into();
    move |source| Error::File { file, source }
}
