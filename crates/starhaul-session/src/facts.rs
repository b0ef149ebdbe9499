//! What happens inside a session, as typed facts for logs and measurements. Nothing of the session depends on who observes it.

use std::{
    fmt::Debug,
    time::{Duration, Instant},
};

use starhaul_paths::PathId;

use crate::types::{BlockId, Mode, Outcome, Side, StreamId};

/// Takes the facts of a session as they happen; see [`Session::observe`](crate::Session::observe).
pub trait Observer: Debug + Send {
    /// `fact` happened at `now`.
    fn on_fact(&mut self, now: Instant, fact: &Fact<'_>);
}

/// All observers of a session.
#[derive(Debug, Default)]
pub(crate) struct Observers(Vec<Box<dyn Observer>>);

impl Observers {
    pub(crate) fn add(&mut self, observer: Box<dyn Observer>) {
        self.0.push(observer);
    }

    pub(crate) const fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Passes the fact on; without observers it is not even made.
    pub(crate) fn note<'a>(&mut self, now: Instant, fact: impl FnOnce() -> Fact<'a>) {
        if self.0.is_empty() {
            return;
        }
        let fact = fact();
        for observer in &mut self.0 {
            observer.on_fact(now, &fact);
        }
    }
}

/// Something that happened inside a session.
#[derive(Clone, Debug, PartialEq)]
pub enum Fact<'a> {
    /// The price of a path changed.
    PathCost {
        /// Number of the path.
        path: PathId,
        /// Price per byte; only the order matters.
        cost: f64,
    },
    /// A path came up.
    PathUp {
        /// Number of the path.
        path: PathId,
        /// Price per byte; only the order matters.
        cost: f64,
    },
    /// A path fell silent: what it carried is sent again over the others.
    PathSilent {
        /// Number of the path.
        path: PathId,
    },
    /// A path is gone.
    PathDown {
        /// Number of the path.
        path: PathId,
    },
    /// Two paths were found to share a bottleneck or, after that, to have one each. It is a hint.
    BottleneckShared {
        /// Their numbers, the lower one first.
        paths: (PathId, PathId),
        /// They share one.
        is_shared: bool,
    },
    /// A stream was opened.
    StreamOpened {
        /// Number of the stream.
        stream: StreamId,
        /// The side that opened it.
        opener: Side,
        /// Protection of its blocks.
        mode: Mode,
    },
    /// The application gave the session a block.
    BlockQueued {
        /// Stream of the block.
        stream: StreamId,
        /// Number of the block.
        block: BlockId,
        /// Length of the block in bytes.
        bytes: usize,
        /// Time until it must have arrived.
        deadline: Duration,
        /// 0 is the most important.
        priority: u8,
    },
    /// The application changed a block.
    BlockUpdated {
        /// Stream of the block.
        stream: StreamId,
        /// Number of the block.
        block: BlockId,
        /// Time from now until it must have arrived.
        deadline: Option<Duration>,
        /// 0 is the most important.
        priority: Option<u8>,
    },
    /// A block was cut into fragments and coded, before its first fragment leaves or because paths became narrower.
    BlockCoded {
        /// Stream of the block.
        stream: StreamId,
        /// Number of the block.
        block: BlockId,
        /// Fragments of data.
        data: usize,
        /// Fragments of redundancy.
        redundancy: usize,
        /// Bytes of the largest fragment.
        fragment_bytes: usize,
    },
    /// A fragment left on the path that the scheduler chose.
    FragmentSent {
        /// Stream of the block.
        stream: StreamId,
        /// Block of the fragment.
        block: BlockId,
        /// Which code of the block, and which fragment of the code; redundancy counts on after the data.
        fragment: (u8, u8),
        /// Path and sequence number of the datagram that carries it.
        datagram: Datagram,
        /// Why the fragment is sent.
        purpose: Purpose,
        /// In what time each usable path would have carried it there, as predicted with nothing ahead of it.
        arrivals: &'a [(PathId, Duration)],
    },
    /// Bytes of a reliable stream left.
    FrameSent {
        /// The stream; 0 carries the session's control messages.
        stream: StreamId,
        /// Offset of the first byte.
        start: u64,
        /// Offset after the last.
        end: u64,
        /// Path and sequence number of the datagram that carries them.
        datagram: Datagram,
        /// They left before: they were lost, or are repeated on a faster path.
        is_retransmission: bool,
    },
    /// A datagram was declared lost, or given up because its path fell silent or is gone.
    DatagramLost {
        /// Path and sequence number of the datagram.
        datagram: Datagram,
        /// The stream of which it carried a fragment or a frame.
        stream: Option<StreamId>,
        /// The block of which it carried a fragment.
        block: Option<BlockId>,
    },
    /// A block of ours ended: delivered, expired, cancelled or failed.
    BlockEnded {
        /// Stream of the block.
        stream: StreamId,
        /// Number of the block.
        block: BlockId,
        /// Whether it was delivered, expired, cancelled or failed.
        outcome: Outcome,
    },
    /// A block of the peer is whole and goes to the application.
    BlockReceived {
        /// Stream of the block.
        stream: StreamId,
        /// Number of the block.
        block: BlockId,
        /// Length of the block in bytes.
        bytes: usize,
        /// From sending until it was whole.
        latency: Duration,
        /// Redundancy replaced lost fragments.
        is_recovered: bool,
    },
}

/// A datagram on its path; the path's own qlog names it in the packet that carried it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Datagram {
    /// The path that carries it.
    pub path: PathId,
    /// Its sequence number on the path.
    pub sequence: u64,
}

/// Why a fragment is sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Purpose {
    /// It was never sent.
    Data,
    /// It was lost.
    Retransmission,
    /// The redundancy of a code.
    Redundancy,
    /// The second copy of a fragment.
    Copy,
    /// The receiver, which may have dropped what it had of the block, is asked whether it is whole.
    Query,
}

impl Purpose {
    /// Its name in logs.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Data => "data",
            Self::Retransmission => "retransmission",
            Self::Redundancy => "redundancy",
            Self::Copy => "copy",
            Self::Query => "query",
        }
    }
}

impl Fact<'_> {
    /// Its name in logs.
    pub const fn name(&self) -> &'static str {
        match self {
            Self::PathCost { .. } => "path_cost",
            Self::PathUp { .. } => "path_up",
            Self::PathSilent { .. } => "path_silent",
            Self::PathDown { .. } => "path_down",
            Self::BottleneckShared { .. } => "bottleneck_shared",
            Self::StreamOpened { .. } => "stream_opened",
            Self::BlockQueued { .. } => "block_queued",
            Self::BlockUpdated { .. } => "block_updated",
            Self::BlockCoded { .. } => "block_coded",
            Self::FragmentSent { .. } => "fragment_sent",
            Self::FrameSent { .. } => "frame_sent",
            Self::DatagramLost { .. } => "datagram_lost",
            Self::BlockEnded { .. } => "block_ended",
            Self::BlockReceived { .. } => "block_received",
        }
    }
}
