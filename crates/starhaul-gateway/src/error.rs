//! What can go wrong in a gateway; each message says where, and what to do about it.

use std::{io, net::SocketAddr, path::PathBuf};

/// What can go wrong here.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The configuration says something unknown or impossible.
    #[error("{}{}: {problem}", file.display(), line.map(|line| format!(":{line}")).unwrap_or_default())]
    Config {
        /// The file, as it was named by the caller.
        file: PathBuf,
        /// Line, counted from 1, where it is known.
        line: Option<usize>,
        /// What is wrong with which key, and what would be right.
        problem: String,
    },
    /// The configuration, or a file that it names, cannot be read.
    #[error("cannot read {}: {reason}", file.display())]
    Read {
        /// The file.
        file: PathBuf,
        /// Why.
        reason: io::Error,
    },
    /// The key file does not hold a secret key.
    #[error("{}: {reason}", file.display())]
    Key {
        /// The key file, or the configuration that holds the key itself.
        file: PathBuf,
        /// Why, and what to do.
        reason: String,
    },
    /// An ingress rule's address cannot be served.
    #[error("rule {rule:?} cannot listen on {address}: {reason}")]
    Listen {
        /// Name of the rule.
        rule: String,
        /// Its `listen` address.
        address: SocketAddr,
        /// Why.
        reason: io::Error,
    },
    /// The control socket that the configuration asks for cannot be made, or does not answer.
    #[error("control socket {}: {reason}", path.display())]
    Control {
        /// Its path.
        path: PathBuf,
        /// Why.
        reason: io::Error,
    },
    /// No gateway answers at any of the default places.
    #[error("no gateway answers at {}", tried.iter().map(|(path, reason)| format!("{}: {reason}", path.display())).collect::<Vec<_>>().join(", nor at "))]
    NoGateway {
        /// Where it was sought, and what happened there.
        tried: Vec<(PathBuf, io::Error)>,
    },
    /// The running gateway refused a request on its control socket.
    #[error("the gateway refused the request: {0}")]
    Refused(String),
    /// The transport below refused.
    #[error(transparent)]
    Endpoint(#[from] starhaul_endpoint::Error),
}

impl Error {
    /// Whether the configuration or a file that it names has to be changed before trying again.
    pub fn is_configuration(&self) -> bool {
        matches!(
            self,
            Self::Config { .. } | Self::Read { .. } | Self::Key { .. }
        )
    }
}
