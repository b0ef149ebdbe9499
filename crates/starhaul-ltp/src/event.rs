//! What the engine tells its client services (RFC 5326 §7), and what it counts.

use bytes::Bytes;

use crate::{Block, CancelReason, End, EngineId, SessionId};

/// A notice to a client service.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// All of a block has left for the first time (§7.7).
    Transmitted {
        /// Number of the session.
        session: SessionId,
    },
    /// The receiver has the whole red part, and the rest was sent (§7.4). Ends the session.
    Sent {
        /// Number of the session.
        session: SessionId,
    },
    /// A block being sent was given up (§7.5). Ends the session.
    SendCancelled {
        /// Number of the session.
        session: SessionId,
        /// The end that gave it up.
        by: End,
        /// Why it was given up.
        reason: CancelReason,
    },
    /// The first segment of a block arrived (§7.1).
    Receiving {
        /// Number of the session.
        session: SessionId,
        /// The client service it is for.
        service: u64,
    },
    /// A red part is complete, and matches its checksum if it had one (§7.3).
    RedPart {
        /// Number of the session.
        session: SessionId,
        /// The client service it is for.
        service: u64,
        /// The red part.
        block: Block,
        /// Whether the block has no green part.
        is_whole: bool,
        /// Whether it carried a checksum, and so was compared with what was sent.
        is_verified: bool,
    },
    /// A green segment arrived (§7.2).
    Green {
        /// Number of the session.
        session: SessionId,
        /// The client service it is for.
        service: u64,
        /// Where in the block it begins.
        offset: u64,
        /// Data of the segment.
        data: Bytes,
        /// Whether the block ends with it.
        is_end: bool,
    },
    /// A block being received was given up before its red part was complete (§7.6). Ends the session.
    ReceiveCancelled {
        /// Number of the session.
        session: SessionId,
        /// The end that gave it up.
        by: End,
        /// Why it was given up.
        reason: CancelReason,
    },
    /// A peer that was accepted although unknown has no sessions any more and is forgotten.
    PeerForgotten {
        /// Number of the peer.
        peer: EngineId,
    },
}

/// Counters of an engine.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stats {
    /// Segments of all types sent, repetitions included.
    pub segments_sent: u64,
    /// Data segments sent, repetitions included.
    pub data_segments_sent: u64,
    /// Data segments among them that were sent before.
    pub data_segments_resent: u64,
    /// Reports sent, repetitions included.
    pub reports_sent: u64,
    /// Segments that could be parsed.
    pub segments_received: u64,
    /// Bytes of red data received for the first time.
    pub red_bytes_received: u64,
    /// Bytes of red data among them that repair segments gave back.
    pub red_bytes_recovered: u64,
    /// Repair segments sent.
    pub repair_segments_sent: u64,
    /// Bytes of red data received again.
    pub duplicate_bytes: u64,
    /// Segments dropped, by cause.
    pub dropped: Dropped,
}

/// What of a peer's blocks is here of which something is missing, for people who wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Incoming {
    /// The peer.
    pub from: EngineId,
    /// The latest block of which some red data are here, and not all; `None` if there is none.
    pub block: Option<SessionId>,
    /// Bytes that are here of all such red parts.
    pub bytes: u64,
    /// Segments of red data that came behind later ones after something had been reported: they were sent again, or overtaken. All since the
    /// engine is a peer.
    pub resent: u64,
    /// Bytes of data in the latest segment of red data that ended nothing; zero before the first segment.
    pub segment_bytes: usize,
}

/// Segments that were dropped.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Dropped {
    /// The bytes were no segment; the rest of the datagram was dropped, too.
    pub malformed: u64,
    /// From an engine that is no peer.
    pub unknown_peer: u64,
    /// Without a valid signature of a peer with a key.
    pub unauthenticated: u64,
    /// Written in the encoding of another profile than the peer's, or, of engines that are no peers, than those have that are accepted; the
    /// rest of the datagram was dropped, too.
    pub other_profile: u64,
    /// For a session of other engines.
    pub misdirected: u64,
    /// Of sessions that have ended.
    pub late: u64,
    /// Reports of checkpoints or bytes that were never sent.
    pub false_report: u64,
    /// Data that contradict earlier data of the session: another service, end or checksum, or bytes behind the end.
    pub contradiction: u64,
    /// Data that found no memory, no free session, or a block that is too long.
    pub no_room: u64,
}
