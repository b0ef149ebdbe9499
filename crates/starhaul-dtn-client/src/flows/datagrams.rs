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

/// Accepters of a flow whose order is known. Nothing tells which of two lives is the later one: the first answer of a dead one may
/// come after those of the living.
const MOST_ORDERS: usize = 4;
/// Accepters that were heard before those: what still comes of them is dropped, as it may come again.
const MOST_FORMER: usize = 16;

/// A flow of datagrams in one direction.
#[derive(Debug)]
pub(super) struct Flow {
    pub(super) header: Bytes,
    pub(super) lifetime: Duration,
    pub(super) is_ordered: bool,
    /// Whether it ends when all that waits has been sent.
    pub(super) is_closing: bool,
    /// When something was last sent or received.
    pub(super) last: Instant,
    /// The name of this flow at its accepter, if that is this side.
    pub(super) accepter: u64,
    /// The order of what each accepter sends, or the opener (0), the one that was heard last at the end.
    orders: VecDeque<(u64, Order)>,
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
            accepter: 0,
            orders: VecDeque::new(),
            former: VecDeque::new(),
            waiting: VecDeque::new(),
            waiting_bytes: 0,
            since: now,
            next: 0,
        }
    }

    /// Notes who sends, and finds the order of what it sends: `None` if it was forgotten. Where it is new, what waited for others of
    /// the one before is returned.
    pub(super) fn hear(&mut self, sender: u64) -> Option<(&mut Order, Vec<Bytes>)> {
        if self.former.contains(&sender) {
            return None;
        }
        let mut released = Vec::new();
        let place = self.orders.iter().position(|(of, _)| *of == sender);
        let heard = match place.and_then(|place| self.orders.remove(place)) {
            Some(known) => known,
            None => {
                if let Some((_, order)) = self.orders.back_mut() {
                    released = order.flush();
                }
                if self.orders.len() == MOST_ORDERS
                    && let Some((oldest, mut order)) = self.orders.pop_front()
                {
                    released.extend(order.flush());
                    if self.former.len() == MOST_FORMER {
                        self.former.pop_front();
                    }
                    self.former.push_back(oldest);
                }
                (sender, Order::default())
            }
        };
        self.orders.push_back(heard);
        let (_, order) = self.orders.back_mut()?;
        Some((order, released))
    }

    /// When a batch that others wait for has expired.
    pub(super) fn order_due(&self) -> Option<Instant> {
        let orders = self.orders.iter();
        orders
            .filter_map(|(_, order)| order.due(self.lifetime))
            .min()
    }

    /// Delivers without what has expired; each call passes over one hole of each sender.
    pub(super) fn give_up(&mut self, now: Instant) -> Vec<Bytes> {
        let orders = self.orders.iter_mut();
        let released = orders.map(|(_, order)| order.give_up(now, self.lifetime));
        released.flatten().collect()
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
