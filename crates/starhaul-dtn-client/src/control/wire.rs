//! What both ends of the control socket say. Each message is a line of JSON, and behind it the bytes that it announces.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};
use tokio::io::{
    self, AsyncBufRead, AsyncBufReadExt as _, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _,
};

use crate::status::Status;

/// Greatest length of a line.
const MOST_LINE: u64 = 1 << 20;

/// A request of a client to its node.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Request {
    /// Asks for the status of the node.
    Status,
    /// An endpoint for this connection; without a name, any that is free.
    Open {
        /// Its number or name.
        service: Option<String>,
    },
    /// A bundle from the endpoint, with so many bytes of payload behind the line.
    Send {
        /// The endpoint that it is for.
        to: String,
        /// After that, it is dropped wherever it is.
        lifetime_ms: u64,
        /// Length of its payload.
        bytes: u64,
        /// Whether nodes are to report that it was delivered, and that it was deleted. Nodes of earlier versions do not look at it.
        #[serde(default)]
        reports: bool,
    },
    /// The bundle is where the application wants it; it will not come again.
    Acknowledge {
        /// Name of the bundle.
        id: String,
    },
}

/// What the node answers, and what it sends by itself.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Reply {
    /// The status of the node.
    Status(Box<Status>),
    /// The endpoint is open.
    Opened {
        /// Its whole name.
        endpoint: String,
        /// Greatest payload of a bundle.
        most_bytes: u64,
        /// Bytes of the least contact of the node's plan; none without a plan, and of nodes of earlier versions.
        #[serde(default)]
        contact_bytes: Option<u64>,
    },
    /// The bundle is stored.
    Sent {
        /// Name of the bundle.
        id: String,
    },
    /// The bundle will not come again.
    Acknowledged {
        /// Name of the bundle.
        id: String,
    },
    /// A bundle for the endpoint, with so many bytes of payload behind the line.
    Bundle {
        /// Name of the bundle.
        id: String,
        /// The endpoint that sent it.
        source: String,
        /// Length of its payload.
        bytes: u64,
    },
    /// A node reports what became of a bundle of the endpoint. It comes to those alone that have asked for reports.
    Report(Report),
    /// The bundle has no room now; it may have later.
    Full,
    /// The bundle could not be taken for a reason that may pass.
    NotNow {
        /// The reason, as text for people.
        reason: String,
    },
    /// The request was refused; the connection goes on.
    Refused {
        /// Why it was refused, as text for people.
        reason: String,
    },
}

/// What a node reports of a bundle (RFC 9171 §6.1.1). Nothing proves that the report is from that node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Report {
    /// Name of the bundle.
    pub id: String,
    /// The node that reports it.
    pub node: String,
    /// What became of the bundle there.
    pub fate: ReportedStatus,
    /// Why, as text for people; `None` if the node gives no reason.
    pub reason: Option<String>,
}

/// What became of a bundle at a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ReportedStatus {
    /// The node has received it.
    Received,
    /// The node has sent it on.
    Forwarded,
    /// The application at its destination has it.
    Delivered,
    /// The node has deleted it. Nodes of some makes report this, without a reason, also of what they have sent on or delivered.
    Deleted,
}

/// Where a node's socket is, by default: the user's own place, then the system's.
pub fn default_sockets() -> Vec<PathBuf> {
    let own = std::env::var_os("XDG_RUNTIME_DIR").filter(|folder| !folder.is_empty());
    let own = own.map(|folder| PathBuf::from(folder).join("starhaul/dtn.sock"));
    // A service's directory is its alone: that of a gateway on this host is another.
    let system = PathBuf::from("/run/starhaul-dtn/dtn.sock");
    own.into_iter().chain([system]).collect()
}

/// Writes a message, and the bytes that it announces.
///
/// # Errors
/// Those of the socket.
pub async fn write<M: Serialize>(
    to: &mut (impl AsyncWrite + Unpin),
    message: &M,
    payload: &[u8],
) -> io::Result<()> {
    let mut line = serde_json::to_vec(message)?;
    line.push(b'\n');
    to.write_all(&line).await?;
    to.write_all(payload).await?;
    to.flush().await
}

/// The next message; `None` at the end.
///
/// # Errors
/// Those of the socket; [`io::ErrorKind::InvalidData`] for what is no message.
pub async fn read<M: for<'m> Deserialize<'m>>(
    from: &mut (impl AsyncBufRead + Unpin),
) -> io::Result<Option<M>> {
    let mut line = Vec::new();
    from.take(MOST_LINE).read_until(b'\n', &mut line).await?;
    match line.last() {
        None => Ok(None),
        Some(b'\n') => Ok(Some(serde_json::from_slice(&line)?)),
        Some(_) => Err(io::Error::new(
            io::ErrorKind::InvalidData,
            "a line is cut off or too long",
        )),
    }
}

/// The bytes that a message has announced.
///
/// # Errors
/// Those of the socket; [`io::ErrorKind::UnexpectedEof`] if it ends before.
pub async fn read_payload(
    from: &mut (impl AsyncBufRead + Unpin),
    bytes: u64,
) -> io::Result<Vec<u8>> {
    let mut payload = Vec::new();
    // Memory grows with what comes, not with what is announced.
    let read = from.take(bytes).read_to_end(&mut payload).await?;
    match read as u64 == bytes {
        true => Ok(payload),
        false => Err(io::ErrorKind::UnexpectedEof.into()),
    }
}
