//! Files over LTP: each is sent in blocks, written under its name when it is complete, and compared by its SHA-256 at both
//! ends. And [`mod@bench`]: how fast this host carries LTP beside the same system calls alone.

pub mod bench;
mod receive;
mod send;
mod wire;

use std::{io, path::PathBuf};

pub use receive::{Arriving, FileReceiver, Received};
pub use send::{FileSender, LEAST_UNDER_WAY, Progress, verdict_awaited};
pub use wire::{CHUNK_BYTES, SERVICE};

/// Errors of transfers.
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
    /// The local file has no name that the far side could use, or is empty.
    #[error("{}: {reason}", .0.display(), reason = .1)]
    Unusable(PathBuf, &'static str),
    /// The file changed while it was sent.
    #[error("{} changed while it was sent: send it again", .0.display())]
    Changed(PathBuf),
    /// The far side could not store the file, or has another content.
    #[error("the far side does not have the file: {0}")]
    FarSide(String),
    /// The far side has acknowledged all of the file, and did not say what became of it.
    #[error(
        "the far side acknowledged the whole file, but did not tell whether it has stored it: look there before you send it again"
    )]
    Untold,
    /// Another engine than the one that was named is at the far side; it may have stored the file.
    #[error(
        "engine {answers} answers there, not engine {named}: use --peer {answers}; it may have the file already"
    )]
    OtherEngine {
        /// The engine that answers.
        answers: starhaul_ltp::EngineId,
        /// The engine that was named.
        named: starhaul_ltp::EngineId,
    },
    /// A block was given up.
    #[error(
        "a block was given up: {0}; is the far side there, with these engine numbers and this key? Where a signal takes more than two minutes, give --light-time"
    )]
    GivenUp(starhaul_ltp::CancelReason),
    /// Datagrams of a file whose receiver cannot answer did not leave this host; how many.
    #[error(
        "{0} datagrams did not leave this host, and nobody can ask for them: is there a route to the far side, and may they pass?"
    )]
    Unsent(u64),
    /// The benchmark received something else than was sent, or not in time.
    #[error("the benchmark failed: {0}")]
    Bench(&'static str),
    /// The engine refused a block.
    #[error(transparent)]
    Ltp(#[from] starhaul_ltp::Error),
    /// The socket failed.
    #[error(transparent)]
    Net(#[from] starhaul_net::Error),
}

fn file_error(file: impl Into<PathBuf>) -> impl FnOnce(io::Error) -> Error {
    let file = file.into();
    move |source| Error::File { file, source }
}
