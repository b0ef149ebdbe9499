//! The machine that decides when each packet leaves and whether it arrives: droptail queue, sending end, loss, one-way
//! delay. The order of the stages is that of mahimahi and LeoReplayer; unlike the latter it keeps packets in order when
//! the delay falls.

use std::{
    cmp::{Ordering, Reverse},
    collections::{BinaryHeap, VecDeque},
    ops::Range,
    time::{Duration, Instant},
};

use rand::Rng;
use rand_chacha::{ChaCha8Rng, rand_core::SeedableRng};

use crate::{
    Delay, LinkSpec, Loss, QueueLimit, Rate, Reorder, loss::LossProcess, transmitter::Transmitter,
};

/// Packets that one link carries in flight at most; more are dropped as if its queue were full.
const MAX_IN_FLIGHT: usize = 1 << 20;

/// What a link has done with its packets so far.
///
/// `enqueued + duplicated` equals `delivered`, all that was dropped, and what is still queued or in flight.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LinkStats {
    /// Packets given to the link.
    pub enqueued: u64,
    /// Their bytes.
    pub enqueued_bytes: u64,
    /// Packets that arrived, copies included.
    pub delivered: u64,
    /// Their bytes.
    pub delivered_bytes: u64,
    /// Packets that found the queue full.
    pub dropped_queue: u64,
    /// Packets lost at random.
    pub dropped_loss: u64,
    /// Packets given to the link, or waiting in it, while it was down.
    pub dropped_outage: u64,
    /// Second copies made.
    pub duplicated: u64,
}

/// One direction of a link, carrying packets of type `P`.
///
/// A packet waits in the queue, is sent at the rate or by the opportunities of the trace, may be lost, and arrives one
/// delay later, where the delay is the one at the instant it was sent. In an outage of the *trace* (no opportunities) packets
/// wait in the queue. While the link is *down* ([`Link::set_down`] and the outages of its [`LinkSpec`]) it drops what is
/// queued and what comes; what is already in flight still arrives.
///
/// Times passed in must not decrease; one that does counts as the latest seen.
#[derive(Debug)]
pub struct Link<P> {
    epoch: Instant,
    clock: Instant,
    transmitter: Transmitter,
    sending: Option<Sending<P>>,
    queue: VecDeque<(usize, P)>,
    queued_bytes: usize,
    queue_limit: QueueLimit,
    flight: Flight<P>,
    outages: Outages,
    stats: LinkStats,
}

impl<P: Clone> Link<P> {
    /// A link that begins its traces and outages at `now`. The same seed gives the same losses, jitter, reordering and copies.
    pub fn new(spec: &LinkSpec, seed: u64, now: Instant) -> Self {
        Self {
            epoch: now,
            clock: now,
            transmitter: Transmitter::new(spec.rate.clone(), now),
            sending: None,
            queue: VecDeque::new(),
            queued_bytes: 0,
            queue_limit: spec.queue,
            flight: Flight::new(spec, seed, now),
            outages: Outages::new(&spec.outages),
            stats: LinkStats::default(),
        }
    }

    /// Gives the link a packet of `bytes`, all headers included. What becomes of it shows in [`Link::stats`].
    pub fn enqueue(&mut self, now: Instant, bytes: usize, packet: P) {
        let now = self.advance(now);
        self.stats.enqueued += 1;
        self.stats.enqueued_bytes += bytes as u64;
        if self.outages.down() {
            self.stats.dropped_outage += 1;
        } else if self.sending.is_none() {
            self.transmitter.idle_until(now);
            self.begin(now, bytes, packet);
            self.advance(now);
        } else if self.has_room(bytes) {
            self.queued_bytes += bytes;
            self.queue.push_back((bytes, packet));
        } else {
            self.stats.dropped_queue += 1;
        }
    }

    /// The next packet that has arrived by `now`.
    pub fn poll(&mut self, now: Instant) -> Option<P> {
        let now = self.advance(now);
        let arrived = self.flight.pop(now)?;
        self.stats.delivered += 1;
        self.stats.delivered_bytes += arrived.bytes as u64;
        Some(arrived.packet)
    }

    /// When to call [`Link::poll`] next: something is sent or arrives then. `None` while nothing can happen.
    pub fn next_event(&self) -> Option<Instant> {
        let sent = self.sending.as_ref().and_then(|sending| sending.done);
        [sent, self.flight.next()].into_iter().flatten().min()
    }

    /// What happened so far.
    pub fn stats(&self) -> LinkStats {
        self.stats
    }

    /// Packets that wait, without the one being sent.
    pub fn queue_packets(&self) -> usize {
        self.queue.len()
    }

    /// Bytes that wait, without the packet being sent.
    pub fn queue_bytes(&self) -> usize {
        self.queued_bytes
    }

    /// Bytes that the link can send in (`from`, `to`] with its present rate or trace, the outages of its description
    /// left out.
    pub fn capacity_bytes_between(&self, from: Instant, to: Instant) -> u64 {
        let whole = self.transmitter.capacity_bytes(from, to);
        let lost = self.outages.spans.iter().map(|span| {
            let begin = after(self.epoch, span.start).max(from);
            let end = after(self.epoch, span.end).min(to);
            self.transmitter.capacity_bytes(begin, end.max(begin))
        });
        whole.saturating_sub(lost.sum())
    }

    /// Changes how packets are lost, for those sent from now on.
    pub fn set_loss(&mut self, now: Instant, loss: Loss) {
        self.advance(now);
        self.flight.loss.set(loss);
    }

    /// Changes the rate, or replaces the trace; the rest of the packet being sent goes at the new one.
    pub fn set_rate(&mut self, now: Instant, rate: Rate) {
        let now = self.advance(now);
        match &mut self.sending {
            Some(sending) => sending.done = self.transmitter.change_while_sending(now, rate),
            None => self.transmitter.change_while_idle(now, rate),
        }
        self.advance(now);
    }

    /// Cuts the link: what waits and what comes is dropped until [`Link::set_up`].
    pub fn set_down(&mut self, now: Instant) {
        self.advance(now);
        self.outages.forced = true;
        self.drop_waiting();
    }

    /// Ends a [`Link::set_down`]. An outage of the description still holds.
    pub fn set_up(&mut self, now: Instant) {
        self.advance(now);
        self.outages.forced = false;
    }

    /// Whether the link is down, as of the latest instant it was told.
    pub fn is_down(&self) -> bool {
        self.outages.down()
    }

    /// Does all that happens up to `now`, in the order in which it happens; returns the link's time.
    fn advance(&mut self, now: Instant) -> Instant {
        let now = now.max(self.clock);
        loop {
            let sent = self
                .sending
                .as_ref()
                .and_then(|sending| sending.done)
                .filter(|at| *at <= now);
            let edge = self
                .outages
                .next_edge()
                .map(|offset| after(self.epoch, offset))
                .filter(|at| *at <= now);
            match (edge, sent) {
                (Some(edge), sent) if sent.is_none_or(|sent| edge <= sent) => {
                    self.outages.pass_edge();
                    if self.outages.down() {
                        self.drop_waiting();
                    }
                }
                (_, Some(sent)) => self.depart(sent),
                _ => break,
            }
        }
        self.clock = now;
        now
    }

    fn begin(&mut self, now: Instant, bytes: usize, packet: P) {
        let done = self.transmitter.begin(now, bytes as u64);
        self.sending = Some(Sending {
            done,
            bytes,
            packet,
        });
    }

    /// The packet being sent has left at `at`; the next one follows.
    fn depart(&mut self, at: Instant) {
        if let Some(Sending { bytes, packet, .. }) = self.sending.take() {
            let age = at.saturating_duration_since(self.epoch);
            self.flight.launch(at, age, bytes, packet, &mut self.stats);
        }
        if let Some((bytes, packet)) = self.queue.pop_front() {
            self.queued_bytes -= bytes;
            self.begin(at, bytes, packet);
        }
    }

    fn drop_waiting(&mut self) {
        let sending = u64::from(self.sending.take().is_some());
        self.stats.dropped_outage += sending + self.queue.len() as u64;
        self.queue.clear();
        self.queued_bytes = 0;
    }

    fn has_room(&self, bytes: usize) -> bool {
        match self.queue_limit {
            QueueLimit::Packets(limit) => self.queue.len() < limit,
            QueueLimit::Bytes(limit) => self.queued_bytes.saturating_add(bytes) <= limit,
        }
    }
}

#[derive(Debug)]
struct Sending<P> {
    /// `None` when the rate is zero.
    done: Option<Instant>,
    bytes: usize,
    packet: P,
}

/// When the link of a description is down.
#[derive(Debug)]
struct Outages {
    /// Sorted, apart from each other, from the epoch.
    spans: Vec<Range<Duration>>,
    edges_passed: usize,
    forced: bool,
}

impl Outages {
    fn new(outages: &[Range<Duration>]) -> Self {
        let mut sorted: Vec<_> = outages
            .iter()
            .filter(|span| !span.is_empty())
            .cloned()
            .collect();
        sorted.sort_by_key(|span| span.start);
        let mut spans: Vec<Range<Duration>> = Vec::new();
        for span in sorted {
            match spans.last_mut() {
                Some(last) if span.start <= last.end => last.end = last.end.max(span.end),
                _ => spans.push(span),
            }
        }
        Self {
            spans,
            edges_passed: 0,
            forced: false,
        }
    }

    fn down(&self) -> bool {
        self.forced || self.edges_passed % 2 == 1
    }

    fn next_edge(&self) -> Option<Duration> {
        let span = self.spans.get(self.edges_passed / 2)?;
        Some(if self.edges_passed.is_multiple_of(2) {
            span.start
        } else {
            span.end
        })
    }

    fn pass_edge(&mut self) {
        self.edges_passed += 1;
    }
}

/// What happens to a packet after it was sent.
#[derive(Debug)]
struct Flight<P> {
    delay: Delay,
    jitter: Duration,
    reorder: Option<Reorder>,
    duplicate: f64,
    loss: LossProcess,
    // Each has its own generator, so that changing one does not change what the others do.
    jitter_rng: ChaCha8Rng,
    reorder_rng: ChaCha8Rng,
    duplicate_rng: ChaCha8Rng,
    arrivals: BinaryHeap<Reverse<Arrival<P>>>,
    latest_in_order: Instant,
    sequence: u64,
}

impl<P: Clone> Flight<P> {
    fn new(spec: &LinkSpec, seed: u64, now: Instant) -> Self {
        let rng = |stream| {
            let mut rng = ChaCha8Rng::seed_from_u64(seed);
            rng.set_stream(stream);
            rng
        };
        Self {
            delay: spec.delay.clone(),
            jitter: spec.jitter,
            reorder: spec.reorder,
            duplicate: spec.duplicate.clamp(0.0, 1.0),
            loss: LossProcess::new(spec.loss, rng(0)),
            jitter_rng: rng(1),
            reorder_rng: rng(2),
            duplicate_rng: rng(3),
            arrivals: BinaryHeap::new(),
            latest_in_order: now,
            sequence: 0,
        }
    }

    fn launch(
        &mut self,
        at: Instant,
        age: Duration,
        bytes: usize,
        packet: P,
        stats: &mut LinkStats,
    ) {
        if self.loss.next_is_lost() {
            stats.dropped_loss += 1;
            return;
        }
        let mut delay = match &self.delay {
            Delay::Constant(delay) => *delay,
            Delay::Trace(series) => series.at(age),
        };
        if !self.jitter.is_zero() {
            delay += self.jitter.mul_f64(self.jitter_rng.random());
        }
        let held_back = match self.reorder {
            Some(reorder)
                if self
                    .reorder_rng
                    .random_bool(reorder.fraction.clamp(0.0, 1.0)) =>
            {
                reorder.extra
            }
            _ => Duration::ZERO,
        };
        let at = if held_back.is_zero() {
            self.latest_in_order = self.latest_in_order.max(after(at, delay));
            self.latest_in_order
        } else {
            after(at, delay.saturating_add(held_back))
        };
        if self.duplicate > 0.0 && self.duplicate_rng.random_bool(self.duplicate) {
            stats.duplicated += 1;
            self.push(at, bytes, packet.clone(), stats);
        }
        self.push(at, bytes, packet, stats);
    }

    fn push(&mut self, at: Instant, bytes: usize, packet: P, stats: &mut LinkStats) {
        if self.arrivals.len() >= MAX_IN_FLIGHT {
            stats.dropped_queue += 1;
            return;
        }
        self.sequence += 1;
        self.arrivals.push(Reverse(Arrival {
            at,
            sequence: self.sequence,
            bytes,
            packet,
        }));
    }

    fn pop(&mut self, now: Instant) -> Option<Arrival<P>> {
        if self.next()? > now {
            return None;
        }
        self.arrivals.pop().map(|Reverse(arrival)| arrival)
    }
}

impl<P> Flight<P> {
    fn next(&self) -> Option<Instant> {
        self.arrivals.peek().map(|Reverse(arrival)| arrival.at)
    }
}

/// A packet on its way; those of one instant arrive in the order in which they were sent.
#[derive(Debug)]
struct Arrival<P> {
    at: Instant,
    sequence: u64,
    bytes: usize,
    packet: P,
}

impl<P> Ord for Arrival<P> {
    fn cmp(&self, other: &Self) -> Ordering {
        (self.at, self.sequence).cmp(&(other.at, other.sequence))
    }
}

impl<P> PartialOrd for Arrival<P> {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl<P> PartialEq for Arrival<P> {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other).is_eq()
    }
}

impl<P> Eq for Arrival<P> {}

/// Delays are at most days, which any clock can add; should it not, the packet does not wait.
fn after(at: Instant, delay: Duration) -> Instant {
    at.checked_add(delay).unwrap_or(at)
}

#[cfg(test)]
#[path = "link_tests.rs"]
mod tests;
