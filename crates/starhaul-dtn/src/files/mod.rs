//! Files and folders over bundles: cut into chunks, put together again, and compared by their SHA-256 at both ends.

mod existing;
mod hash;
mod receive;
mod send;
mod wire;

pub use receive::{Answer, FileReceiver, Received};
pub(crate) use send::LEAST_CONTACT;
pub use send::{FileSender, Progress};

/// The service of a node that receives files: its number, and its name.
pub const SERVICE: (u32, &str) = (100, "files");
