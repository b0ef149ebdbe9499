//! What an application says to a session and hears from it.

use std::time::Duration;

use bytes::Bytes;
use starhaul_units::Bandwidth;

/// Most blocks of a stream under way at once: so many gaps the receiver can tell apart.
pub const MAX_LIVE_BLOCKS: usize = 1 << 14;
/// Largest block: 256 codes, each with at least 127 data fragments of 1000 bytes.
pub const MAX_BLOCK_BYTES: usize = 256 * 127 * 1000;

/// Client and server differ only in the parity of the stream numbers they open.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    /// The side that opened the session; its streams have even numbers.
    Client,
    /// The side that accepted the session; its streams have odd numbers.
    Server,
}

/// A stream of a session. The lowest bit tells who opened it (0: the client); numbers are never reused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct StreamId(pub u32);

impl StreamId {
    /// The session's own stream, open from the start in both directions, which carries control messages.
    pub(crate) const CONTROL: Self = Self(0);

    pub(crate) const fn opener(self) -> Side {
        if self.0 & 1 == 0 {
            Side::Client
        } else {
            Side::Server
        }
    }
}

/// A block within its stream, counted from 0 in order of sending.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct BlockId(pub u32);

/// How a stream's data are protected.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Mode {
    /// Redundancy and retransmission.
    #[default]
    FecRetransmit,
    /// Redundancy, without retransmission.
    Fec,
    /// Retransmission, without redundancy.
    Retransmit,
    /// Neither redundancy nor retransmission.
    None,
    /// Every fragment on two paths; nothing is retransmitted.
    Duplicate,
    /// An ordered byte stream in both directions, without deadline, never dropped.
    Reliable,
}

impl Mode {
    /// Its name, as configurations spell it.
    pub const fn name(self) -> &'static str {
        match self {
            Self::FecRetransmit => "fec+retransmit",
            Self::Fec => "fec",
            Self::Retransmit => "retransmit",
            Self::None => "none",
            Self::Duplicate => "duplicate",
            Self::Reliable => "reliable",
        }
    }

    pub(crate) const fn codes(self) -> bool {
        matches!(self, Self::FecRetransmit | Self::Fec)
    }

    pub(crate) const fn retransmits(self) -> bool {
        matches!(self, Self::FecRetransmit | Self::Retransmit)
    }
}

/// What a stream is opened with.
#[derive(Clone, Debug, PartialEq)]
pub struct StreamConfig {
    /// How lost fragments of its blocks are replaced.
    pub mode: Mode,
    /// Deadline of blocks that name none; at most about 49 days, in whole milliseconds.
    pub deadline: Duration,
    /// 0 is the most important.
    pub priority: u8,
    /// Rate the application wants, if it knows: it is told when the paths carry less.
    pub bandwidth: Option<Bandwidth>,
    /// Most redundancy fragments per data fragment, 0.0 to 1.0, in steps of 1/255; rounded up to whole fragments.
    pub max_coding_rate: f64,
    /// Deliver blocks in order of sending: a block that completes early waits until the ones before it have arrived or were given up
    /// by the sender, and until `deadline` after it was sent at the latest.
    pub ordered: bool,
    /// What the application tells the peer about the stream, at most [`MAX_LABEL_BYTES`].
    pub label: Bytes,
}

/// Most bytes a [`StreamConfig::label`] may have.
pub const MAX_LABEL_BYTES: usize = 1024;

impl Default for StreamConfig {
    /// `fec+retransmit`, one second, middle priority, half as much redundancy as data at most.
    fn default() -> Self {
        Self {
            mode: Mode::FecRetransmit,
            deadline: Duration::from_secs(1),
            priority: 4,
            bandwidth: None,
            max_coding_rate: 0.5,
            ordered: false,
            label: Bytes::new(),
        }
    }
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
    /// All of it arrived.
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
        /// Number of the stream.
        stream: StreamId,
        /// What it was opened with.
        config: StreamConfig,
    },
    /// A whole block arrived.
    BlockReceived {
        /// Stream of the block.
        stream: StreamId,
        /// Number of the block.
        block: BlockId,
        /// The bytes of the block.
        data: Bytes,
        /// From the peer's `send_block` until complete here, by the estimated clock offset.
        latency: Duration,
    },
    /// The sender gave up a block, or an ordered stream had to go on without it; only the opener's number is known of it.
    BlockMissing {
        /// Stream of the block.
        stream: StreamId,
        /// Number of the block.
        block: BlockId,
    },
    /// A block of ours ended.
    BlockOutcome {
        /// Stream of the block.
        stream: StreamId,
        /// Number of the block.
        block: BlockId,
        /// Whether it was delivered, expired, cancelled or failed.
        outcome: Outcome,
    },
    /// A reliable stream has bytes, or its end, to read.
    Readable(StreamId),
    /// A reliable stream whose `write` took less than offered has room again.
    Writable(StreamId),
    /// The peer abandoned its direction of a reliable stream.
    Reset {
        /// Number of the stream.
        stream: StreamId,
        /// The error code that the peer's application gave.
        code: u32,
    },
    /// The peer no longer reads our direction of a reliable stream.
    Stopped {
        /// Number of the stream.
        stream: StreamId,
        /// The error code that the peer's application gave.
        code: u32,
    },
    /// The peer finished a deadline stream and every block of it has ended.
    StreamFinished(StreamId),
    /// The streams ask for more than the paths can carry; at most once a second.
    Overload {
        /// What the streams ask for.
        wanted: Bandwidth,
        /// What the paths can carry together.
        available: Bandwidth,
    },
}

/// An operation on a stream was refused; the application's own call was at fault unless said otherwise.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum StreamError {
    /// No such stream, or it has ended.
    #[error("stream {} does not exist or has ended", .0.0)]
    Unknown(StreamId),
    /// The block has ended or was never sent.
    #[error("block {} of stream {} has ended or was never sent", .1.0, .0.0)]
    UnknownBlock(StreamId, BlockId),
    /// A call for blocks on a reliable stream, or for bytes on a deadline stream.
    #[error("stream {} is of the other kind: blocks go on deadline streams, bytes on reliable ones", .0.0)]
    WrongKind(StreamId),
    /// The stream belongs to the peer, or our direction was finished or reset.
    #[error("stream {} does not take data from this side any more", .0.0)]
    NotWritable(StreamId),
    /// The peer reset its direction.
    #[error("the peer reset stream {} with code {code}", .stream.0)]
    Reset {
        /// Number of the stream.
        stream: StreamId,
        /// The error code that the peer's application gave.
        code: u32,
    },
    /// Too much waits already; wait for outcomes, or send less.
    #[error("the session holds {held} of {limit} bytes; wait for outcomes before sending more")]
    QueueFull {
        /// Bytes of blocks and streams that the session holds for sending.
        held: usize,
        /// The bound, `SessionConfig::max_send_bytes`.
        limit: usize,
    },
    /// A stream has as many blocks under way as the receiver can tell apart; wait for outcomes.
    #[error("stream {} has too many blocks under way; wait for outcomes before sending more", .0.0)]
    TooManyBlocks(StreamId),
    /// As many streams of this side are open as [`SessionConfig::max_streams`] allows.
    #[error("{0} streams are open already; finish some before opening more")]
    TooManyStreams(usize),
    /// The peer's application has not read earlier streams to their end, and the peer takes no more meanwhile: its fault, if any.
    #[error(
        "the peer takes no more streams until its application has read earlier ones to the end"
    )]
    PeerStreams,
    /// An empty block, or one above [`MAX_BLOCK_BYTES`].
    #[error("a block of {0} bytes cannot be sent; 1 to {max} can", max = MAX_BLOCK_BYTES)]
    BlockSize(usize),
    /// The configuration is impossible.
    #[error("impossible stream configuration: {0}")]
    Config(&'static str),
    /// The session is closed.
    #[error("the session is closed")]
    Closed,
}

/// The peer broke the protocol; the session must be closed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ProtocolError {
    /// A datagram or message of a known type is too short or has an impossible field.
    #[error("the peer sent a malformed {0}")]
    Malformed(&'static str),
    /// It acknowledged something that was never sent.
    #[error("the peer acknowledged {0} that was never sent")]
    NeverSent(&'static str),
    /// It went beyond a limit it was told.
    #[error("the peer exceeded the limit of {0}")]
    Limit(&'static str),
    /// It acted on a stream in a way that the stream's kind or state does not allow.
    #[error("the peer misused stream {}: {what}", .stream.0)]
    StreamState {
        /// Number of the stream.
        stream: StreamId,
        /// The misuse, as the message shows it.
        what: &'static str,
    },
}

/// Limits and defaults of a session.
#[derive(Clone, Debug)]
pub struct SessionConfig {
    /// Bytes of blocks and streams that may wait for sending or acknowledgement; of one reliable stream half of them.
    pub max_send_bytes: usize,
    /// Bytes that may wait for reassembly or reading, half of them of blocks, half of reliable streams. Each reliable stream may
    /// hold 64 KiB at any time, even beyond this; one alone is granted a quarter at most.
    pub max_receive_bytes: usize,
    /// Streams that each side may have open at once; those of the peer count until they have been read to their end here, and the
    /// peer is told how many more it may open. One that opens twice as many all the same (2048 at least, since it may not have
    /// heard yet) breaks the protocol.
    pub max_streams: usize,
    /// Most bytes of a block in one fragment; paths that carry less set a lower bound.
    pub max_fragment_bytes: usize,
    /// α of the order of sending: 0 looks at slack only, 1 at priority only.
    pub priority_weight: f64,
    /// How seldom a path is probed over which nothing flows, at least a second: by that its death is noticed. A path that was in use
    /// lately is probed each second, and then more and more seldom.
    pub keepalive: Duration,
    /// What all paths with a price may carry together of what this side sends, each byte times the `cost` of its path; `None` for no bound. What
    /// a second brings may leave at once. A path of cost [`LAST_RESORT`](crate::LAST_RESORT) is paid for like the dearest other.
    pub budget: Option<Bandwidth>,
}

impl SessionConfig {
    /// The largest window that one reliable stream is granted.
    pub(crate) const fn largest_window(&self) -> u64 {
        (self.max_receive_bytes / 4) as u64
    }

    /// Most bytes of one reliable stream that are kept until acknowledged.
    pub(crate) const fn most_held_for_sending(&self) -> u64 {
        (self.max_send_bytes / 2) as u64
    }
}

impl Default for SessionConfig {
    fn default() -> Self {
        Self {
            // Over 260 Mbit/s and 600 ms some 20 MB of a reliable stream are in flight, and as much again waits behind a lost byte.
            max_send_bytes: 128 << 20,
            max_receive_bytes: 256 << 20,
            max_streams: 1024,
            max_fragment_bytes: 1400,
            priority_weight: 0.5,
            keepalive: Duration::from_secs(5),
            budget: None,
        }
    }
}
