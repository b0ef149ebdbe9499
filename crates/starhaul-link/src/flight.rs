//! A packet after it was sent: loss, one-way delay, reordering, duplication.

use std::{
    cmp::{Ordering, Reverse},
    collections::{BinaryHeap, VecDeque},
    sync::Arc,
    time::{Duration, Instant},
};

use rand::Rng;
use rand_chacha::{ChaCha8Rng, rand_core::SeedableRng};

use crate::{
    Arrival, Band, Cause, Delay, LinkSpec, Loss, LossSeries, Reorder, ledger::Ledger,
    loss::LossProcess, queue::Waiting,
};

/// Greatest number of packets in flight on a link; more are dropped as by a full queue.
const MAX_IN_FLIGHT: usize = 1 << 20;

/// The packets in flight, and the random processes that decide their fates.
#[derive(Debug)]
pub(crate) struct Flight<P> {
    delay: Delay,
    least_delay: Duration,
    jitter: Duration,
    reorder: Option<Reorder>,
    duplicate: f64,
    loss: LossProcess,
    loss_trace: Option<Arc<LossSeries>>,
    // Each process has its own generator, so that changing one does not change the others.
    jitter_rng: ChaCha8Rng,
    reorder_rng: ChaCha8Rng,
    duplicate_rng: ChaCha8Rng,
    loss_trace_rng: ChaCha8Rng,
    /// Packets due no earlier than the one before them: nearly all.
    in_order: VecDeque<Ordered<P>>,
    /// Packets that overtake others.
    early: BinaryHeap<Reverse<Ordered<P>>>,
    latest_data: Instant,
    latest_icmp: Instant,
    sequence: u64,
}

impl<P: Clone> Flight<P> {
    pub(crate) fn new(spec: &LinkSpec, seed: u64, now: Instant) -> Self {
        let rng = |stream| {
            let mut rng = ChaCha8Rng::seed_from_u64(seed);
            rng.set_stream(stream);
            rng
        };
        Self {
            delay: spec.delay.clone(),
            least_delay: match &spec.delay {
                Delay::Constant(delay) => *delay,
                Delay::Trace(series) => series.range().0,
            },
            jitter: spec.jitter,
            reorder: spec.reorder,
            duplicate: spec.duplicate.clamp(0.0, 1.0),
            loss: LossProcess::new(spec.loss, rng(0)),
            loss_trace: spec.loss_trace.clone(),
            jitter_rng: rng(1),
            reorder_rng: rng(2),
            duplicate_rng: rng(3),
            loss_trace_rng: rng(4),
            in_order: VecDeque::new(),
            early: BinaryHeap::new(),
            latest_data: now,
            latest_icmp: now,
            sequence: 0,
        }
    }

    /// Sends a packet whose last byte leaves at `sent`, `age` after the link's start.
    pub(crate) fn launch(
        &mut self,
        sent: Instant,
        age: Duration,
        packet: Waiting<P>,
        ledger: &mut Ledger<P>,
    ) {
        let loss_now = self.loss_trace.as_ref().map_or(0.0, |loss| loss.at(age));
        let lost = loss_now > 0.0 && self.loss_trace_rng.random_bool(loss_now.min(1.0));
        if self.loss.next_is_lost() || lost {
            ledger.dropped(sent, Cause::Loss, packet.packet);
            return;
        }
        let due = self.arrival_time(sent, age, packet.band);
        if self.duplicate > 0.0 && self.duplicate_rng.random_bool(self.duplicate) {
            ledger.stats.duplicated += 1;
            let second = Arrival {
                due,
                sent,
                bytes: packet.bytes,
                copy: true,
                packet: packet.packet.clone(),
            };
            self.push(second, ledger);
        }
        let first = Arrival {
            due,
            sent,
            bytes: packet.bytes,
            copy: false,
            packet: packet.packet,
        };
        self.push(first, ledger);
    }

    /// The earliest arrival of a packet sent at `sent`.
    pub(crate) fn earliest(&self, sent: Instant) -> Instant {
        after(sent, self.least_delay)
    }

    pub(crate) fn pop(&mut self, now: Instant) -> Option<Arrival<P>> {
        if self.next()? > now {
            return None;
        }
        let ordered = match self.early_is_next() {
            true => self.early.pop().map(|Reverse(ordered)| ordered),
            false => self.in_order.pop_front(),
        };
        ordered.map(|ordered| ordered.arrival)
    }

    fn arrival_time(&mut self, sent: Instant, age: Duration, band: Band) -> Instant {
        let mut delay = match &self.delay {
            Delay::Constant(delay) => *delay,
            Delay::Trace(series) => series.at(age),
        };
        if !self.jitter.is_zero() {
            delay += self.jitter.mul_f64(self.jitter_rng.random());
        }
        let held_back = self.reorder.filter(|reorder| {
            let fraction = reorder.fraction.clamp(0.0, 1.0);
            self.reorder_rng.random_bool(fraction) && !reorder.extra.is_zero()
        });
        let latest = match band {
            Band::Data => &mut self.latest_data,
            Band::Icmp => &mut self.latest_icmp,
        };
        let in_order = (*latest).max(after(sent, delay));
        if let Some(reorder) = held_back {
            return after(in_order, reorder.extra);
        }
        *latest = in_order;
        in_order
    }

    fn push(&mut self, arrival: Arrival<P>, ledger: &mut Ledger<P>) {
        if self.in_order.len() + self.early.len() >= MAX_IN_FLIGHT {
            ledger.dropped(arrival.sent, Cause::Queue, arrival.packet);
            return;
        }
        self.sequence += 1;
        let ordered = Ordered {
            sequence: self.sequence,
            arrival,
        };
        let last = self.in_order.back().map(|last| last.arrival.due);
        match last.is_none_or(|last| last <= ordered.arrival.due) {
            true => self.in_order.push_back(ordered),
            false => self.early.push(Reverse(ordered)),
        }
    }
}

impl<P> Flight<P> {
    pub(crate) fn next(&self) -> Option<Instant> {
        let in_order = self.in_order.front().map(|ordered| ordered.arrival.due);
        let early = self
            .early
            .peek()
            .map(|Reverse(ordered)| ordered.arrival.due);
        in_order.into_iter().chain(early).min()
    }

    fn early_is_next(&self) -> bool {
        match (self.early.peek(), self.in_order.front()) {
            (Some(Reverse(early)), Some(in_order)) => early < in_order,
            (early, _) => early.is_some(),
        }
    }

    /// The packets in flight in order, without duplicates.
    pub(crate) fn into_held(self) -> impl Iterator<Item = P> {
        let early = self.early.into_iter().map(|Reverse(ordered)| ordered);
        let mut all: Vec<_> = self.in_order.into_iter().chain(early).collect();
        all.sort_unstable();
        let arrivals = all.into_iter().map(|ordered| ordered.arrival);
        arrivals
            .filter(|arrival| !arrival.copy)
            .map(|arrival| arrival.packet)
    }

    pub(crate) fn set_loss(&mut self, loss: Loss) {
        self.loss_trace = None;
        self.loss.set(loss);
    }
}

/// Packets due at one instant arrive in the order of sending.
#[derive(Debug)]
struct Ordered<P> {
    sequence: u64,
    arrival: Arrival<P>,
}

impl<P> Ord for Ordered<P> {
    fn cmp(&self, other: &Self) -> Ordering {
        (self.arrival.due, self.sequence).cmp(&(other.arrival.due, other.sequence))
    }
}

impl<P> PartialOrd for Ordered<P> {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl<P> PartialEq for Ordered<P> {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other).is_eq()
    }
}

impl<P> Eq for Ordered<P> {}

/// Adds a delay; an instant beyond the clock's range gives no delay.
pub(crate) fn after(at: Instant, delay: Duration) -> Instant {
    at.checked_add(delay).unwrap_or(at)
}
