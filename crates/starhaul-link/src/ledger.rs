//! The fates of the packets given to a link: counters, and one report per drop.

use std::{collections::VecDeque, time::Instant};

/// Greatest number of drops that wait to be reported; beyond it the oldest are only counted.
const MAX_UNTOLD: usize = 1 << 16;

/// Counters of the packets given to a link.
///
/// `enqueued + duplicated` equals `delivered`, all that was dropped, and what is still queued or in flight.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LinkStats {
    /// Packets given to the link.
    pub enqueued: u64,
    /// Bytes of these packets.
    pub enqueued_bytes: u64,
    /// Packets that arrived, copies included.
    pub delivered: u64,
    /// Bytes of these packets.
    pub delivered_bytes: u64,
    /// Packets dropped by a full queue.
    pub dropped_queue: u64,
    /// Packets that CoDel dropped from the head of the queue.
    pub dropped_codel: u64,
    /// Packets lost at random.
    pub dropped_loss: u64,
    /// Packets given to the link, or waiting in it, while it was down.
    pub dropped_outage: u64,
    /// Duplicates made by the link.
    pub duplicated: u64,
}

impl LinkStats {
    /// Packets dropped for any cause.
    pub fn dropped(&self) -> u64 {
        self.dropped_queue + self.dropped_codel + self.dropped_loss + self.dropped_outage
    }
}

/// Why a link dropped a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Cause {
    /// The queue was full.
    Queue,
    /// CoDel dropped the packet after too long a wait.
    Codel,
    /// The packet was lost at random.
    Loss,
    /// The link was down.
    Outage,
}

/// A packet at the far end of a link.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Arrival<P> {
    /// When it arrives: [`Link::poll`](crate::Link::poll) returned it at this instant or later.
    pub due: Instant,
    /// When its last byte left the sending end, one delay earlier; queueing lies before.
    pub sent: Instant,
    /// Its size in bytes as given to the link.
    pub bytes: usize,
    /// Whether it is a duplicate made by the link.
    pub copy: bool,
    /// The packet given to the link.
    pub packet: P,
}

/// A packet that the link dropped.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Dropped<P> {
    /// When the link dropped the packet.
    pub at: Instant,
    /// The rule that dropped it.
    pub cause: Cause,
    /// The packet given to the link.
    pub packet: P,
}

/// The fate of a packet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome<P> {
    /// The packet reached the far end.
    Arrived(Arrival<P>),
    /// The link dropped the packet.
    Dropped(Dropped<P>),
}

impl<P> Outcome<P> {
    /// The arrival, if the packet arrived.
    pub fn arrived(self) -> Option<Arrival<P>> {
        match self {
            Self::Arrived(arrival) => Some(arrival),
            Self::Dropped(_) => None,
        }
    }
}

/// The counters of a link, and the drops that it has not reported yet.
#[derive(Debug)]
pub(crate) struct Ledger<P> {
    pub(crate) stats: LinkStats,
    untold: VecDeque<Dropped<P>>,
}

impl<P> Ledger<P> {
    pub(crate) fn new() -> Self {
        Self {
            stats: LinkStats::default(),
            untold: VecDeque::new(),
        }
    }

    pub(crate) fn enqueued(&mut self, bytes: usize) {
        self.stats.enqueued += 1;
        self.stats.enqueued_bytes += bytes as u64;
    }

    pub(crate) fn delivered(&mut self, bytes: usize) {
        self.stats.delivered += 1;
        self.stats.delivered_bytes += bytes as u64;
    }

    pub(crate) fn dropped(&mut self, at: Instant, cause: Cause, packet: P) {
        let count = match cause {
            Cause::Queue => &mut self.stats.dropped_queue,
            Cause::Codel => &mut self.stats.dropped_codel,
            Cause::Loss => &mut self.stats.dropped_loss,
            Cause::Outage => &mut self.stats.dropped_outage,
        };
        *count += 1;
        if self.untold.len() >= MAX_UNTOLD {
            self.untold.pop_front();
        }
        self.untold.push_back(Dropped { at, cause, packet });
    }

    /// The oldest drop that has not been reported.
    pub(crate) fn tell(&mut self) -> Option<Dropped<P>> {
        self.untold.pop_front()
    }

    pub(crate) fn untold(&self) -> usize {
        self.untold.len()
    }
}
