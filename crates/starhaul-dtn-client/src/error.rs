//! What can go wrong between an application and its node.

use std::{io, path::PathBuf};

/// An error of a node's control socket, or a node's refusal.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The control socket cannot be made, or does not answer.
    #[error("control socket {}: {reason}; is the node running? --socket names its socket", path.display())]
    Control {
        /// Path of the socket.
        path: PathBuf,
        /// The system's error.
        reason: io::Error,
    },
    /// The node has no room for a bundle: it may have later.
    #[error("the node refused: the storage is full")]
    Full,
    /// The node could not take a bundle for a reason that may pass, and may yet have it.
    #[error("the node cannot take the bundle now: {0}")]
    NotNow(String),
    /// The node refused a request, and says why.
    #[error("the node refused: {0}")]
    Refused(String),
    /// The system gives none.
    #[error("the system gives no random numbers")]
    NoRandom,
}
