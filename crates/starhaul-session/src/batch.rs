//! What leaves on a path together: the budget that the path has, and the datagrams that the session adds.

use std::time::Duration;

use bytes::Bytes;
use starhaul_paths::PathId;

/// A datagram to put on a path.
#[derive(Clone, Debug)]
pub struct PathDatagram {
    /// The payload of one QUIC DATAGRAM frame.
    pub payload: Bytes,
    /// Its number on the path; report its fate with it.
    pub sequence: u32,
}

/// What may leave on a path now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Budget {
    /// Greatest number of datagrams in the batch.
    pub datagrams: usize,
    /// Bytes of packets that the path's window and pacer allow.
    pub bytes: u64,
    /// Bytes of the path's largest packet: a datagram leaves only while so many are allowed.
    pub packet_bytes: u64,
    /// What a packet adds to its datagram.
    pub overhead_bytes: u64,
    /// Two datagrams with no more bytes than this together would share a packet: after such a pair the batch ends, and it is
    /// for the caller to keep them apart.
    pub shared_bytes: usize,
}

impl Budget {
    /// One datagram of any size.
    pub const ONE: Self = Self {
        datagrams: 1,
        bytes: u64::MAX,
        packet_bytes: 0,
        overhead_bytes: 0,
        shared_bytes: 0,
    };
}

/// What the paths have in common, seen from one of them; it does not change while a batch is taken.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Overview {
    pub(crate) all_silent: bool,
    /// The path is usable.
    pub(crate) is_usable: bool,
    /// No other path is.
    pub(crate) is_alone: bool,
    /// The least one-way delay of any usable path.
    pub(crate) least_delay: Duration,
    /// What a path of which little is known may lose: as much as the worst usable one, as a share to protect against and as a rate.
    pub(crate) unproven: Unproven,
    /// Payload of a fragment that fits every path.
    pub(crate) fragment_capacity: Option<usize>,
}

/// The greatest loss of any usable path, bounded: see [`View::feared_of`](crate::scheduler::View::feared_of).
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Unproven {
    /// Of [`Loss::feared`](starhaul_paths::Loss::feared).
    pub(crate) feared: f64,
    /// Of [`Loss::rate`](starhaul_paths::Loss::rate).
    pub(crate) rate: f64,
}

/// Datagrams for a path on their way to the caller, and how much may still be added.
pub(crate) struct Batch<'a> {
    pub(crate) path: PathId,
    pub(crate) overview: Overview,
    pub(crate) budget: Budget,
    pub(crate) datagrams: &'a mut Vec<PathDatagram>,
    /// Length of the last one.
    pub(crate) previous: Option<usize>,
    pub(crate) is_full: bool,
}

impl Batch<'_> {
    /// Bytes of the packet that the last datagram will have for itself.
    pub(crate) fn last_packet(&self) -> u64 {
        self.previous.unwrap_or(0) as u64 + self.budget.overhead_bytes
    }

    pub(crate) fn push(&mut self, datagram: PathDatagram) {
        let bytes = datagram.payload.len();
        let budget = &mut self.budget;
        budget.datagrams = budget.datagrams.saturating_sub(1);
        budget.bytes = budget
            .bytes
            .saturating_sub(bytes as u64 + budget.overhead_bytes);
        let shares = |previous: usize| previous + bytes <= budget.shared_bytes;
        self.is_full = budget.datagrams == 0
            || budget.bytes < budget.packet_bytes
            || self.previous.is_some_and(shares)
            || bytes * 2 <= budget.shared_bytes;
        self.previous = Some(bytes);
        self.datagrams.push(datagram);
    }
}
