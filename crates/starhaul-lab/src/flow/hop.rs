//! A link that tells what each packet waited in it.

use std::time::{Duration, Instant};

use starhaul_link::{Delay, Link, LinkSpec, Loss, QueueLimit, Rate};
use starhaul_units::Bandwidth;

/// Queue and flight are two links, so that a packet is seen when it leaves the one for the other.
#[derive(Debug)]
pub(super) struct Hop<P> {
    queue: Link<Waiting<P>>,
    flight: Link<(P, Duration)>,
}

#[derive(Clone, Debug)]
struct Waiting<P> {
    since: Instant,
    bytes: usize,
    packet: P,
}

impl<P: Clone> Hop<P> {
    pub(super) fn new(spec: &LinkSpec, seed: u64, now: Instant) -> Self {
        let queue = LinkSpec {
            delay: Delay::Constant(Duration::ZERO),
            jitter: Duration::ZERO,
            ..spec.clone()
        };
        let flight = LinkSpec {
            rate: Rate::Constant(Bandwidth::MAX),
            queue: QueueLimit::Packets(usize::MAX),
            loss: Loss::NONE,
            outages: Vec::new(),
            ..spec.clone()
        };
        Self {
            queue: Link::new(&queue, seed, now),
            flight: Link::new(&flight, seed, now),
        }
    }

    pub(super) fn enqueue(&mut self, now: Instant, bytes: usize, packet: P) {
        let waiting = Waiting {
            since: now,
            bytes,
            packet,
        };
        self.queue.enqueue(now, bytes, waiting);
    }

    /// The next packet that has come through, and what it waited until its last byte left.
    pub(super) fn poll(&mut self, now: Instant) -> Option<(P, Duration)> {
        while let Some(waiting) = self.queue.poll(now) {
            let waited = now.saturating_duration_since(waiting.since);
            self.flight
                .enqueue(now, waiting.bytes, (waiting.packet, waited));
        }
        self.flight.poll(now)
    }

    pub(super) fn next_event(&self) -> Option<Instant> {
        [self.queue.next_event(), self.flight.next_event()]
            .into_iter()
            .flatten()
            .min()
    }

    /// What it can carry between two instants.
    pub(super) fn capacity_bytes_between(&self, from: Instant, to: Instant) -> u64 {
        self.queue.capacity_bytes_between(from, to)
    }
}
