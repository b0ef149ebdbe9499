//! The deadline-aware multipath session as a state machine (deadline.md; MPDTP, DMTP §V).
//!
//! After every input drain [`Session::poll_datagram`] for each path that may send now, and [`Session::poll_event`] until empty;
//! then come back at [`Session::poll_timeout`].

use std::time::{Duration, Instant};

use bytes::Bytes;
use starhaul_paths::PathId;
use starhaul_units::Bandwidth;

/// Client and server differ only in the parity of the stream numbers they open.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    /// Opened the session.
    Client,
    /// Accepted it.
    Server,
}

/// A stream of a session. The lowest bit tells who opened it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct StreamId(pub u32);

/// A block within its stream, counted from 0 in order of sending.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct BlockId(pub u32);

/// How a stream's blocks are protected.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Mode {
    /// Redundancy and retransmission.
    #[default]
    FecRetransmit,
    /// Redundancy only.
    Fec,
    /// Retransmission only.
    Retransmit,
    /// Neither.
    None,
    /// Every fragment on two paths.
    Duplicate,
    /// An ordered byte stream in both directions, without deadline, never dropped.
    Reliable,
}

/// What a stream is opened with.
#[derive(Clone, Debug)]
pub struct StreamConfig {
    /// Protection.
    pub mode: Mode,
    /// Deadline of blocks that name none.
    pub deadline: Duration,
    /// 0 is the most important.
    pub priority: u8,
    /// Rate the application wants, if it knows.
    pub bandwidth: Option<Bandwidth>,
    /// Most redundancy fragments per data fragment, 0.0 to 1.0.
    pub max_coding_rate: f64,
    /// Deliver blocks in order of sending (a block that completes early waits for the ones before it).
    pub ordered: bool,
    /// What the application tells the peer about the stream, at most 1024 bytes.
    pub label: Bytes,
}

/// What a block may say for itself.
#[derive(Clone, Copy, Debug, Default)]
pub struct BlockOptions {
    /// Time from now by which it must arrive; the stream's default when absent.
    pub deadline: Option<Duration>,
    /// The stream's when absent.
    pub priority: Option<u8>,
    /// A block of the same stream without which this one is useless.
    pub depends_on: Option<BlockId>,
}

/// How a block ended; each block ends in exactly one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// Arrived whole.
    Delivered {
        /// From `send_block` to complete at the receiver.
        latency: Duration,
        /// Within its deadline.
        on_time: bool,
        /// Lost fragments were rebuilt from redundancy.
        recovered_by_redundancy: bool,
        /// At least one fragment was retransmitted.
        recovered_by_retransmission: bool,
    },
    /// Dropped because it could no longer arrive in time.
    Expired(ExpiredCause),
    /// Retreated by the application, or the block it depends on was not delivered.
    Cancelled {
        /// The block whose end brought this one down, if any.
        because_of: Option<BlockId>,
    },
    /// The stream or session ended before the block did.
    Failed,
}

/// Why a block missed its deadline.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ExpiredCause {
    /// Other blocks went first: too little capacity.
    Capacity,
    /// Fragments were lost and could not be recovered in time.
    Loss,
    /// No path could have carried it in time even when idle.
    Unreachable,
}

/// What a session tells the application.
#[derive(Clone, Debug)]
pub enum Event {
    /// The peer opened a stream.
    StreamOpened {
        /// Its number.
        stream: StreamId,
        /// What it was opened with.
        config: StreamConfig,
    },
    /// A whole block arrived.
    BlockReceived {
        /// Its stream.
        stream: StreamId,
        /// Its number.
        block: BlockId,
        /// Its bytes.
        data: Bytes,
        /// From the peer's `send_block` until now, by the estimated clock offset.
        latency: Duration,
    },
    /// A block of ours ended.
    BlockOutcome {
        /// Its stream.
        stream: StreamId,
        /// Its number.
        block: BlockId,
        /// How.
        outcome: Outcome,
    },
    /// A reliable stream has bytes, or its end, to read.
    Readable(StreamId),
    /// A reliable stream whose `write` was refused has room again.
    Writable(StreamId),
    /// The peer abandoned its direction of a reliable stream.
    Reset {
        /// The stream.
        stream: StreamId,
        /// The application's code.
        code: u32,
    },
    /// The peer no longer reads our direction of a reliable stream.
    Stopped {
        /// The stream.
        stream: StreamId,
        /// The application's code.
        code: u32,
    },
    /// The peer finished a deadline stream; no more blocks will come on it.
    StreamFinished(StreamId),
    /// The streams ask for more than the paths can carry.
    Overload {
        /// What the streams ask for.
        wanted: Bandwidth,
        /// What the paths can carry together.
        available: Bandwidth,
    },
}

/// An operation on a stream was refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum StreamError {
    /// No such stream, or it has ended.
    #[error("stream {0:?} does not exist or has ended")]
    Unknown(StreamId),
    /// Other.
    #[error("{0}")]
    Other(&'static str),
}

/// The peer broke the protocol; the session must be closed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct ProtocolError(pub &'static str);

/// What the transport below knows of a path, refreshed before each use.
#[derive(Clone, Copy, Debug)]
pub struct PathUpdate {
    /// Congestion window in bytes.
    pub cwnd: u64,
    /// Bytes in flight on it.
    pub bytes_in_flight: u64,
    /// What its controller believes it can carry: bandwidth estimate, else cwnd per RTT.
    pub bandwidth: Bandwidth,
    /// Latest smoothed RTT of the path.
    pub smoothed_rtt: Duration,
    /// Lowest RTT seen recently.
    pub min_rtt: Duration,
    /// Largest datagram payload in bytes.
    pub max_datagram: usize,
}

/// A datagram to put on a path.
#[derive(Clone, Debug)]
pub struct PathDatagram {
    /// The payload of one QUIC DATAGRAM frame.
    pub payload: Bytes,
    /// The path sequence number in it; report its fate with it.
    pub sequence: u32,
}

/// Limits and defaults of a session.
#[derive(Clone, Debug)]
pub struct SessionConfig {
    /// Bytes of blocks and streams that may wait for sending or acknowledgement.
    pub max_send_bytes: usize,
    /// Bytes that may wait for reassembly or reading.
    pub max_receive_bytes: usize,
    /// Streams that the peer may have open at once.
    pub max_streams: usize,
}

impl Default for SessionConfig {
    fn default() -> Self {
        Self { max_send_bytes: 64 << 20, max_receive_bytes: 64 << 20, max_streams: 4096 }
    }
}

/// One session between two peers over any number of paths.
#[derive(Debug)]
pub struct Session(());

#[allow(unused_variables, missing_docs)]
impl Session {
    pub fn new(config: SessionConfig, side: Side, now: Instant) -> Self { Self(()) }

    // Paths and the transport below.
    /// `cost` is the price per byte; only its order matters.
    pub fn add_path(&mut self, now: Instant, path: PathId, cost: f64, update: PathUpdate) { todo!() }
    pub fn remove_path(&mut self, now: Instant, path: PathId) { todo!() }
    pub fn update_path(&mut self, now: Instant, path: PathId, update: PathUpdate) { todo!() }
    /// A datagram arrived over `path`.
    pub fn handle_datagram(&mut self, now: Instant, path: PathId, payload: Bytes) -> Result<(), ProtocolError> { todo!() }
    /// The transport below saw datagram `sequence` acknowledged, `rtt` after it was sent.
    pub fn handle_transport_ack(&mut self, now: Instant, path: PathId, sequence: u32, rtt: Duration) { todo!() }
    /// The transport below declared datagram `sequence` lost.
    pub fn handle_transport_loss(&mut self, now: Instant, path: PathId, sequence: u32) { todo!() }
    /// What to send on `path` now; call only when the path's window and pacer allow a full datagram.
    pub fn poll_datagram(&mut self, now: Instant, path: PathId) -> Option<PathDatagram> { todo!() }
    pub fn poll_event(&mut self) -> Option<Event> { todo!() }
    pub fn poll_timeout(&self) -> Option<Instant> { todo!() }
    pub fn handle_timeout(&mut self, now: Instant) { todo!() }

    // Streams and blocks.
    pub fn open_stream(&mut self, now: Instant, config: StreamConfig) -> Result<StreamId, StreamError> { todo!() }
    pub fn send_block(&mut self, now: Instant, stream: StreamId, data: Bytes, options: BlockOptions) -> Result<BlockId, StreamError> { todo!() }
    /// Changes the deadline (from now) or priority of a block that has not ended.
    pub fn update_block(&mut self, now: Instant, stream: StreamId, block: BlockId, deadline: Option<Duration>, priority: Option<u8>) -> Result<(), StreamError> { todo!() }
    /// Cancels a block; its outcome becomes `Cancelled` unless it has ended already.
    pub fn retreat(&mut self, now: Instant, stream: StreamId, block: BlockId) -> Result<(), StreamError> { todo!() }
    /// Ends our direction: a deadline stream takes no more blocks, a reliable one is half closed.
    pub fn finish(&mut self, now: Instant, stream: StreamId) -> Result<(), StreamError> { todo!() }

    // Reliable streams.
    /// Takes as many bytes as fit and says how many; 0 means wait for `Writable`.
    pub fn write(&mut self, now: Instant, stream: StreamId, data: &[u8]) -> Result<usize, StreamError> { todo!() }
    /// `Ok(Some(bytes))` in order, `Ok(None)` nothing now; an empty `Bytes` is the end of the stream.
    pub fn read(&mut self, now: Instant, stream: StreamId, max: usize) -> Result<Option<Bytes>, StreamError> { todo!() }
    /// Abandons our direction; the peer sees `Reset`.
    pub fn reset(&mut self, now: Instant, stream: StreamId, code: u32) -> Result<(), StreamError> { todo!() }
    /// Asks the peer to stop its direction; it sees `Stopped`.
    pub fn stop(&mut self, now: Instant, stream: StreamId, code: u32) -> Result<(), StreamError> { todo!() }
    /// The session ends: every block not ended gets `Failed`.
    pub fn close(&mut self, now: Instant) { todo!() }

    // Figures.
    pub fn stream_stats(&self) -> Vec<StreamStats> { todo!() }
    pub fn path_stats(&self) -> Vec<PathStats> { todo!() }
}

/// Counters of one stream, as seen by its sender (sent side) and receiver (received side).
#[derive(Clone, Debug)]
#[allow(missing_docs)]
pub struct StreamStats {
    pub stream: StreamId,
    pub label: Bytes,
    pub mode: Mode,
    pub blocks_sent: u64,
    pub blocks_received: u64,
    pub on_time: u64,
    pub late: u64,
    pub expired_capacity: u64,
    pub expired_loss: u64,
    pub expired_unreachable: u64,
    pub cancelled: u64,
    pub failed: u64,
    pub recovered_by_redundancy: u64,
    pub recovered_by_retransmission: u64,
    pub bytes_sent: u64,
    pub bytes_received: u64,
}

/// What a session knows of one path.
#[derive(Clone, Debug)]
#[allow(missing_docs)]
pub struct PathStats {
    pub path: PathId,
    pub cost: f64,
    pub suspect: bool,
    pub smoothed_rtt: Duration,
    pub min_rtt: Duration,
    pub one_way_delay: Option<Duration>,
    pub bandwidth: Bandwidth,
    pub loss_rate: f64,
    pub loss_window_max: f64,
    pub burst_length: f64,
    pub bytes_sent: u64,
    pub bytes_received: u64,
    pub datagrams_sent: u64,
    pub datagrams_lost: u64,
}
