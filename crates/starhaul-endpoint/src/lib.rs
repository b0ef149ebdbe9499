//! The async face of Starhaul: sessions over real sockets for Rust applications.

use std::{net::SocketAddr, time::Duration};

use bytes::Bytes;
pub use starhaul_cc::{ControllerConfig, RateFeed};
pub use starhaul_quic::{Identity, PathStatus, PublicKey};
pub use starhaul_session::{BlockId, BlockOptions, ExpiredCause, Mode, Outcome, SessionConfig, StreamConfig, StreamStats};

/// What can go wrong here.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// Stub.
    #[error("{0}")]
    Stub(String),
}

/// What an endpoint is made of.
#[derive(Clone, Debug)]
pub struct EndpointConfig {
    /// Who we are.
    pub identity: Identity,
    /// Peers that may open sessions to us.
    pub trusted: Vec<PublicKey>,
    /// Addresses on which peers are accepted; empty for a pure client.
    pub listen: Vec<SocketAddr>,
    /// Controller of paths that peers open.
    pub accept_controller: ControllerConfig,
    /// Most sessions at once.
    pub max_sessions: usize,
    /// Settings of every session.
    pub session: SessionConfig,
}

/// A path to open.
#[derive(Clone, Debug)]
pub struct PathSpec {
    /// Name for people.
    pub name: String,
    /// Local address to send from; `None` lets the kernel choose.
    pub local: Option<SocketAddr>,
    /// Network interface to bind to (`SO_BINDTODEVICE`).
    pub interface: Option<String>,
    /// The peer's address.
    pub remote: SocketAddr,
    /// Price per byte.
    pub cost: f64,
    /// Controller of our direction.
    pub controller: ControllerConfig,
}

/// All sessions of a process. Clones share it; it ends when the last clone is dropped.
#[derive(Clone, Debug)]
pub struct Endpoint(());
/// A session with one peer. Clones share it.
#[derive(Clone, Debug)]
pub struct Session(());
/// The sending side of a deadline stream.
#[derive(Debug)]
pub struct SendStream(());
/// The receiving side of a deadline stream.
#[derive(Debug)]
pub struct RecvStream(());
/// A reliable byte stream in both directions: `tokio::io::AsyncRead + AsyncWrite`; `shutdown` half closes.
/// Split it with `tokio::io::split` or `into_split`.
#[derive(Debug)]
pub struct ByteStream(());
/// A block on its way.
#[derive(Debug)]
pub struct BlockHandle(());

/// A stream that the peer opened.
#[derive(Debug)]
pub enum IncomingStream {
    /// Blocks with deadlines.
    Blocks(RecvStream),
    /// A reliable byte stream.
    Bytes(ByteStream),
}

/// A whole block as received.
#[derive(Clone, Debug)]
pub struct Block {
    /// Its number in the stream.
    pub id: BlockId,
    /// Its bytes.
    pub data: Bytes,
    /// From the peer's `send_block` to its arrival, by the estimated clock offset.
    pub latency: Duration,
}

#[allow(unused_variables, missing_docs, clippy::unused_async)]
impl Endpoint {
    /// Binds the listening sockets and starts the driver task on the current tokio runtime.
    pub async fn bind(config: EndpointConfig) -> Result<Self, Error> { todo!() }
    pub fn listen_addresses(&self) -> Vec<SocketAddr> { todo!() }
    /// Opens a session; returns when the first path is up and the session is open.
    pub async fn connect(&self, peer: PublicKey, paths: Vec<PathSpec>) -> Result<Session, Error> { todo!() }
    /// The next session that a trusted peer opens; `None` after `close`.
    pub async fn accept(&self) -> Option<Session> { todo!() }
    pub fn sessions(&self) -> Vec<Session> { todo!() }
    pub async fn close(&self) { todo!() }
}

#[allow(unused_variables, missing_docs, clippy::unused_async)]
impl Session {
    pub fn peer(&self) -> PublicKey { todo!() }
    pub async fn open_stream(&self, config: StreamConfig) -> Result<SendStream, Error> { todo!() }
    pub async fn open_bytes(&self, priority: u8, label: Bytes) -> Result<ByteStream, Error> { todo!() }
    /// The next stream that the peer opens; `None` when the session has ended.
    pub async fn accept_stream(&self) -> Option<IncomingStream> { todo!() }
    pub async fn add_path(&self, path: PathSpec) -> Result<(), Error> { todo!() }
    pub async fn remove_path(&self, name: &str) -> Result<(), Error> { todo!() }
    pub fn path_status(&self) -> Vec<PathStatus> { todo!() }
    pub fn stream_stats(&self) -> Vec<StreamStats> { todo!() }
    /// Resolves when the session has ended, with the reason if something was wrong.
    pub async fn closed(&self) -> Option<String> { todo!() }
    pub async fn close(&self, reason: &str) { todo!() }
}

#[allow(unused_variables, missing_docs, clippy::unused_async)]
impl SendStream {
    /// Queues a block; never waits: a block that does not fit the session's memory is refused with an error.
    pub fn send_block(&self, data: Bytes, options: BlockOptions) -> Result<BlockHandle, Error> { todo!() }
    pub fn update_block(&self, block: BlockId, deadline: Option<Duration>, priority: Option<u8>) -> Result<(), Error> { todo!() }
    pub fn retreat(&self, block: BlockId) -> Result<(), Error> { todo!() }
    pub fn finish(&self) -> Result<(), Error> { todo!() }
}

#[allow(unused_variables, missing_docs, clippy::unused_async)]
impl BlockHandle {
    pub fn id(&self) -> BlockId { todo!() }
    /// How the block ended. The handle may be dropped instead; the outcome is then counted only in the statistics.
    pub async fn outcome(self) -> Outcome { todo!() }
}

#[allow(unused_variables, missing_docs, clippy::unused_async)]
impl RecvStream {
    pub fn config(&self) -> &StreamConfig { todo!() }
    /// The next whole block; `None` when the stream or session ended.
    pub async fn recv_block(&mut self) -> Option<Block> { todo!() }
}

#[allow(unused_variables, missing_docs, clippy::unused_async)]
impl ByteStream {
    pub fn label(&self) -> &Bytes { todo!() }
    pub fn into_split(self) -> (ByteReader, ByteWriter) { todo!() }
}

/// The reading half: `AsyncRead`; a peer's reset is an error of kind `ConnectionReset`.
#[derive(Debug)]
pub struct ByteReader(());
/// The writing half: `AsyncWrite`; `shutdown` finishes, dropping it unfinished resets.
#[derive(Debug)]
pub struct ByteWriter(());

#[allow(unused_variables, missing_docs, clippy::unused_async)]
impl ByteReader {
    /// Asks the peer to stop.
    pub fn stop(&self, code: u32) { todo!() }
}
#[allow(unused_variables, missing_docs, clippy::unused_async)]
impl ByteWriter {
    /// Abandons our direction.
    pub fn reset(&self, code: u32) { todo!() }
    /// Resolves with the code when the peer no longer reads.
    pub async fn stopped(&self) -> u32 { todo!() }
}

macro_rules! stub_io { ($($t:ty: $($tr:ident)+),*) => { $($( stub_io!(@$tr $t); )+)* };
 (@read $t:ty) => { impl tokio::io::AsyncRead for $t { fn poll_read(self: std::pin::Pin<&mut Self>, _: &mut std::task::Context<'_>, _: &mut tokio::io::ReadBuf<'_>) -> std::task::Poll<std::io::Result<()>> { todo!() } } };
 (@write $t:ty) => { impl tokio::io::AsyncWrite for $t {
   fn poll_write(self: std::pin::Pin<&mut Self>, _: &mut std::task::Context<'_>, _: &[u8]) -> std::task::Poll<std::io::Result<usize>> { todo!() }
   fn poll_flush(self: std::pin::Pin<&mut Self>, _: &mut std::task::Context<'_>) -> std::task::Poll<std::io::Result<()>> { todo!() }
   fn poll_shutdown(self: std::pin::Pin<&mut Self>, _: &mut std::task::Context<'_>) -> std::task::Poll<std::io::Result<()>> { todo!() } } };
}
stub_io!(ByteReader: read, ByteWriter: write, ByteStream: read write);
