//! What a node tells its caller, and what it counts.

use crate::{config::NeighbourId, requester::FetchId, stream::StreamEvent};

/// Something that happened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// The handshake with a neighbour ended for the first time in the neighbour's present life.
    Met(NeighbourId),
    /// A life of the neighbour is back after another one that was back itself: two programs have its key, and each undoes what the other asked for.
    Shared(NeighbourId),
    /// A segment arrived at its requester, the first time; only for a transfer that notes arrivals.
    Arrived {
        /// Number of the transfer.
        fetch: FetchId,
        /// Offset of its first byte in the content.
        offset: u64,
    },
    /// Data in order can be read.
    Readable(FetchId),
    /// The whole content has arrived.
    Finished(FetchId),
    /// The transfer cannot go on and is no more.
    Failed(FetchId, Failure),
    /// Something happened to a stream.
    Stream(StreamEvent),
}

/// Whether a datagram of an unknown address comes from a neighbour.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Recognised {
    /// It does not.
    No,
    /// It did once, but may be a replay, or have been overtaken: it may be taken, and only what is a hello may be answered to that address.
    Perhaps,
    /// It does, now: the neighbour is at that address.
    Alive,
}

/// Why a transfer ended early.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Failure {
    /// No node on the way has the content or knows where it is.
    #[error("no responder has this content: check its name, and the secret")]
    Refused,
    /// What comes does not open with the key of the content.
    #[error(
        "the data are not authentic: the responder has another secret, or a relay changes them"
    )]
    Damaged,
}

/// Counters since the node was made.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stats {
    /// Data packets sent, and bytes of all packets, both without IP and UDP headers.
    pub data_sent: u64,
    /// Bytes of all packets sent.
    pub bytes_sent: u64,
    /// Control packets sent.
    pub control_sent: u64,
    /// Ranges that neighbours asked for: their Interests.
    pub interests: u64,
    /// Data packets taken from neighbours.
    pub data_received: u64,
    /// Packets that this node reported as lost on their hop.
    pub reported_lost: u64,
    /// Packets that came after later ones, whether they had been reported as lost or not.
    pub reordered: u64,
    /// Segments sent again because a neighbour reported them.
    pub repaired: u64,
    /// Segments that a neighbour reported and that had to be asked for upstream.
    pub repairs_refetched: u64,
    /// Ranges whose requester's timer expired.
    pub timeouts: u64,
    /// Bytes of segments out of the cache.
    pub cache_hits: u64,
    /// Segments that left the cache for others.
    pub evicted: u64,
    /// Ranges asked for that others had asked for already.
    pub aggregated: u64,
    /// Data that had come before or that were not asked for any more: dropped.
    pub duplicates: u64,
    /// Segments for which the queue of a neighbour had no room, and segments and ranges of own contents that waited for one that fell
    /// silent.
    pub queue_drops: u64,
    /// Frames for which a neighbour's control packets had no room, or that could not be kept to be sent again.
    pub frame_drops: u64,
    /// Ranges that were forgotten because they did not come.
    pub expired: u64,
    /// Reconfigurations of hops that this node was told of, each once.
    pub reconfigurations: u64,
    /// Input that was refused.
    pub refused: Refused,
}

/// Counters of what was refused.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Refused {
    /// Datagrams from no known neighbour.
    pub strangers: u64,
    /// Datagrams that are no packet.
    pub malformed: u64,
    /// Packets with a wrong authentication.
    pub forged: u64,
    /// Packets that came before.
    pub replayed: u64,
    /// Data and refusals of a content that was not asked of this neighbour.
    pub unsolicited: u64,
    /// Interests for which there was no room, or that asked for more than requesters do.
    pub overflow: u64,
    /// Interests for contents that are not known, or for others as those of a stream.
    pub unknown: u64,
    /// Segments that the requester could not open.
    pub damaged: u64,
}
