//! What can go wrong in a gateway; each message says where, and what to do about it.

use std::{io, net::SocketAddr, path::PathBuf};

use starhaul_net::not_bound;

/// An error of a gateway.
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
    /// The key file does not hold a secret key.
    #[error("{}: {reason}", file.display())]
    Key {
        /// The key file, or the configuration that holds the key itself.
        file: PathBuf,
        /// What is wrong with the key, and what to do.
        reason: String,
    },
    /// An ingress rule's address cannot be served.
    #[error("rule {rule:?} cannot listen on {address}: {}", not_bound(reason))]
    Listen {
        /// Name of the rule.
        rule: String,
        /// Its `listen` address.
        address: SocketAddr,
        /// The system's error.
        reason: io::Error,
    },
    /// Connections in the name of clients are not possible.
    #[error("[egress] clients: {0}")]
    Clients(String),
    /// The folder of what outlives the gateway cannot be used.
    #[error("state: cannot use {}: {reason}", path.display())]
    State {
        /// Value of the key `state`.
        path: PathBuf,
        /// The system's error, or whose folder it is.
        reason: io::Error,
    },
    /// The address for metrics and the live page cannot be listened on.
    #[error("metrics: cannot listen on {address}: {}", not_bound(reason))]
    Metrics {
        /// Value of the key `metrics`.
        address: SocketAddr,
        /// The system's error.
        reason: io::Error,
    },
    /// A tunnel's device cannot be created.
    #[error(
        "tun {rule:?}: cannot create the device {device}: {reason}; it needs /dev/net/tun and CAP_NET_ADMIN, and no other device, address or route in its place"
    )]
    Tunnel {
        /// Name of the rule.
        rule: String,
        /// Name of the device.
        device: String,
        /// The system's error.
        reason: io::Error,
    },
    /// The control socket that the configuration asks for cannot be made, or does not answer.
    #[error("control socket {}: {reason}", path.display())]
    Control {
        /// Path of the socket.
        path: PathBuf,
        /// The system's error.
        reason: io::Error,
    },
    /// The group that may read the control socket is unknown, or the socket cannot be given to it.
    #[error("control_group {group:?}: {reason}")]
    ControlGroup {
        /// Value of the key `control_group`.
        group: String,
        /// Why the group cannot be used.
        reason: io::Error,
    },
    /// No gateway answers at any of the default places.
    #[error("no gateway answers at {}", tried.iter().map(|(path, reason)| format!("{}: {reason}", path.display())).collect::<Vec<_>>().join(", nor at "))]
    NoGateway {
        /// The sockets that were tried, each with the error of asking it.
        tried: Vec<(PathBuf, io::Error)>,
    },
    /// The running gateway refused a request on its control socket.
    #[error("the gateway refused the request: {0}")]
    Refused(String),
    /// The end of the LEOTP chain cannot be served.
    #[error("[leotp]: {0}")]
    Leotp(String),
    /// A file of keys that `[leotp]` names cannot be used.
    #[error("[leotp]: {0}")]
    LeotpKey(String),
    /// The flows over bundles cannot be served.
    #[error("[bundle]: {0}")]
    Bundle(String),
    /// The endpoint below refused an address, a key or a setting.
    #[error(transparent)]
    Endpoint(#[from] starhaul_endpoint::Error),
}

impl Error {
    /// Whether the configuration or a file that it names has to be changed before trying again.
    pub fn is_configuration(&self) -> bool {
        match self {
            Self::Config(_) | Self::Read { .. } | Self::Key { .. } | Self::LeotpKey(_) => true,
            // Something else is where the socket is to be.
            Self::Control { reason, .. } => reason.kind() == io::ErrorKind::AlreadyExists,
            // The socket may be given to it under another unit, but a group must be there.
            Self::ControlGroup { reason, .. } => reason.kind() == io::ErrorKind::NotFound,
            _ => false,
        }
    }
}
