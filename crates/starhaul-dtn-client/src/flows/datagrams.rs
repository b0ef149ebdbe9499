//! One flow of datagrams between gateways: what waits to be sent, and the order of what comes.

use std::{
    collections::VecDeque,
    time::{Duration, Instant},
};

use bytes::Bytes;

use super::{
    order::Order,
    wire::{BATCH_BYTES, BATCH_DATAGRAMS, Batch, room_of},
};

/// Datagrams that come within this time share a bundle.
const GATHER: Duration = Duration::from_millis(20);
/// Bytes that wait in a flow at most; what comes then is dropped.
const MOST_WAITING: usize = 4 << 20;
/// What a datagram that waits costs beside its bytes.
const OVERHEAD: usize = 64;

/// Former accepters of a flow that are remembered: of theirs, some may still be under way.
const MOST_FORMER: usize = 16;

/// A flow.
#[derive(Debug)]
pub(super) struct Flow {
    pub(super) header: Bytes,
    pub(super) lifetime: Duration,
    pub(super) is_ordered: bool,
    /// Whether it ends when all that waits has been sent.
    pub(super) is_closing: bool,
    /// When something was last sent or received.
    pub(super) last: Instant,
    pub(super) order: Order,
    /// What names the accepter of this flow: its own name for itself, or the one that the far side tells; 0 if it has not.
    pub(super) accepter: u64,
    former: VecDeque<u64>,
    waiting: VecDeque<Bytes>,
    waiting_bytes: usize,
    /// When the first of those that wait came.
    since: Instant,
    next: u64,
}

impl Flow {
    pub(super) fn new(now: Instant, header: Bytes, lifetime: Duration, is_ordered: bool) -> Self {
        Self {
            header,
            lifetime,
            is_ordered,
            is_closing: false,
            last: now,
            order: Order::default(),
            accepter: 0,
            former: VecDeque::new(),
            waiting: VecDeque::new(),
            waiting_bytes: 0,
            since: now,
            next: 0,
        }
    }

    /// Notes who answers: `None` if it is one that another has followed. Where it follows another, its numbers begin anew, and what
    /// waited for others of the former one is returned.
    pub(super) fn hear(&mut self, accepter: u64) -> Option<Vec<Bytes>> {
        if accepter == self.accepter {
            return Some(Vec::new());
        }
        if self.former.contains(&accepter) {
            return None;
        }
        let former = std::mem::replace(&mut self.accepter, accepter);
        if former == 0 {
            return Some(Vec::new());
        }
        if self.former.len() == MOST_FORMER {
            self.former.pop_front();
        }
        self.former.push_back(former);
        Some(std::mem::take(&mut self.order).end())
    }

    /// Takes a datagram to send; `false` when too many wait.
    pub(super) fn push(&mut self, now: Instant, datagram: Bytes) -> bool {
        let bytes = datagram.len() + OVERHEAD;
        if self.is_closing || self.waiting_bytes + bytes > MOST_WAITING {
            return false;
        }
        if self.waiting.is_empty() {
            self.since = now;
        }
        self.last = now;
        self.waiting_bytes += bytes;
        self.waiting.push_back(datagram);
        true
    }

    /// When the next batch leaves.
    pub(super) fn due(&self) -> Option<Instant> {
        let is_full = self.waiting_bytes >= BATCH_BYTES || self.waiting.len() >= BATCH_DATAGRAMS;
        let wait = match is_full || self.is_closing {
            true => Duration::ZERO,
            false => GATHER,
        };
        (!self.waiting.is_empty()).then(|| self.since + wait)
    }

    /// Whether nothing waits.
    pub(super) fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }

    /// The next batch.
    pub(super) fn next_batch(&mut self) -> Batch {
        let (mut datagrams, mut bytes) = (Vec::new(), 0);
        while let Some(datagram) = self.waiting.pop_front_if(|datagram| {
            datagrams.is_empty()
                || bytes + room_of(datagram) <= BATCH_BYTES && datagrams.len() < BATCH_DATAGRAMS
        }) {
            bytes += room_of(&datagram);
            self.waiting_bytes -= datagram.len() + OVERHEAD;
            datagrams.push(datagram);
        }
        let number = self.next;
        self.next += 1;
        Batch {
            number,
            is_ordered: self.is_ordered,
            is_again: false,
            datagrams,
        }
    }
}
