//! The machine that decides when each packet leaves and whether it arrives: queues, sending end, loss, one-way
//! delay. The order of the stages is that of mahimahi and LeoReplayer; unlike the latter it keeps packets in order when
//! the delay falls.

use std::time::Instant;

use crate::{
    Band, LinkSpec, Loss, Rate,
    flight::Flight,
    outages::Outages,
    queue::{Queues, Waiting},
    transmitter::Transmitter,
};

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
    /// Packets that CoDel dropped from the head of the queue.
    pub dropped_codel: u64,
    /// Packets lost at random.
    pub dropped_loss: u64,
    /// Packets given to the link, or waiting in it, while it was down.
    pub dropped_outage: u64,
    /// Second copies made.
    pub duplicated: u64,
}

/// A packet at the far end of a link.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Arrival<P> {
    /// When it arrives: the link was asked no earlier than this, and perhaps later.
    pub due: Instant,
    /// When its last byte left the sending end, one delay earlier; what it waited lies before.
    pub sent: Instant,
    /// Its size as given to the link.
    pub bytes: usize,
    /// What was given to the link.
    pub packet: P,
}

/// One direction of a link, carrying packets of type `P`.
///
/// A packet waits in the queue, is sent at the rate or by the opportunities of the trace, may be lost, and arrives one
/// delay later, where the delay is the one at the instant it was sent. Packets of one [`Band`] keep their order, also when
/// the delay falls. In an outage of the *trace* (no opportunities) packets
/// wait in the queue. A packet of ICMP that has its own band does not wait for its turn, but for the end of an outage; the
/// capacity that it took is missing afterwards, and once an opportunity is owed it waits like all others. While the link is *down* ([`Link::set_down`] and the outages of its [`LinkSpec`]) it drops what is
/// queued and what comes; what is already in flight still arrives.
///
/// Times passed in must not decrease; one that does counts as the latest seen.
#[derive(Debug)]
pub struct Link<P> {
    epoch: Instant,
    clock: Instant,
    transmitter: Transmitter,
    sending: Option<Sending<P>>,
    queues: Queues<P>,
    icmp_band: bool,
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
            queues: Queues::new(spec.queue, spec.codel),
            icmp_band: spec.icmp_band,
            flight: Flight::new(spec, seed, now),
            outages: Outages::new(&spec.outages, now),
            stats: LinkStats::default(),
        }
    }

    /// Gives the link a packet of data with `bytes`, the IP header and all behind it included. What becomes of it shows in
    /// [`Link::stats`].
    pub fn enqueue(&mut self, now: Instant, bytes: usize, packet: P) {
        self.enqueue_in(Band::Data, now, bytes, packet);
    }

    /// The same for a packet of either band.
    pub fn enqueue_in(&mut self, band: Band, now: Instant, bytes: usize, packet: P) {
        let now = self.advance(now);
        self.stats.enqueued += 1;
        self.stats.enqueued_bytes += bytes as u64;
        let waiting = Waiting {
            since: now,
            bytes,
            band: if self.icmp_band { band } else { Band::Data },
            packet,
        };
        if self.sending.is_none() {
            self.transmitter.idle_until(now);
        }
        if self.outages.down() {
            self.stats.dropped_outage += 1;
        } else if self.passes(now, &waiting) {
            self.pass(now, waiting);
        } else if self.sending.is_none() {
            self.queues.pass(waiting.band);
            self.begin(now, waiting);
            self.advance(now);
        } else if !self.queues.push(waiting) {
            self.stats.dropped_queue += 1;
        }
    }

    /// The next packet that has arrived by `now`.
    pub fn poll(&mut self, now: Instant) -> Option<P> {
        self.poll_arrival(now).map(|arrival| arrival.packet)
    }

    /// The next packet that has arrived by `now`, with the instant at which it was due: a caller in real time is late by
    /// the difference.
    pub fn poll_arrival(&mut self, now: Instant) -> Option<Arrival<P>> {
        let now = self.advance(now);
        let arrived = self.flight.pop(now)?;
        self.stats.delivered += 1;
        self.stats.delivered_bytes += arrived.bytes as u64;
        Some(arrived)
    }

    /// When to call [`Link::poll`] next: something is sent or arrives then. `None` while nothing can happen.
    pub fn next_event(&self) -> Option<Instant> {
        let sent = self.sending.as_ref().and_then(|sending| sending.done);
        [sent, self.flight.next()].into_iter().flatten().min()
    }

    /// A lower bound of when [`Link::poll`] has the next packet: who comes back then, and no earlier, misses none. This is
    /// later than [`Link::next_event`] while something is being sent, which needs nobody's presence.
    pub fn next_arrival(&self) -> Option<Instant> {
        let sent = self.sending.as_ref().and_then(|sending| sending.done);
        let after_sent = sent.map(|sent| self.flight.earliest(sent));
        [after_sent, self.flight.next()].into_iter().flatten().min()
    }

    /// What happened so far.
    pub fn stats(&self) -> LinkStats {
        self.stats
    }

    /// Packets of data that wait, without the one being sent.
    pub fn queue_packets(&self) -> usize {
        self.queues.data_packets()
    }

    /// Bytes of data that wait, without the packet being sent.
    pub fn queue_bytes(&self) -> usize {
        self.queues.data_bytes()
    }

    /// Bytes that the link can send in (`from`, `to`]: at the rates and by the traces that it had then (the present one
    /// for what lies ahead), without the time in which it is down.
    pub fn capacity_bytes_between(&self, from: Instant, to: Instant) -> u64 {
        let up = self.outages.up_between(from, to);
        up.into_iter()
            .map(|(from, to)| self.transmitter.capacity_bytes(from, to))
            .sum()
    }

    /// Changes how packets are lost, for those sent from now on; what a trace said of it no longer counts.
    pub fn set_loss(&mut self, now: Instant, loss: Loss) {
        self.advance(now);
        self.flight.set_loss(loss);
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
        let now = self.advance(now);
        self.outages.cut(now);
        self.drop_waiting();
    }

    /// Ends a [`Link::set_down`]. An outage of the description still holds.
    pub fn set_up(&mut self, now: Instant) {
        let now = self.advance(now);
        self.outages.restore(now);
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
            let edge = self.outages.next_edge().filter(|at| *at <= now);
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

    fn begin(&mut self, now: Instant, packet: Waiting<P>) {
        let done = self.transmitter.begin(now, packet.bytes as u64);
        self.sending = Some(Sending { done, packet });
    }

    /// Whether a packet leaves at once, at a price that is paid later: one of a band of its own behind no other of it.
    fn passes(&self, now: Instant, packet: &Waiting<P>) -> bool {
        let sending = self.sending.as_ref();
        packet.band == Band::Icmp
            && sending.is_none_or(|sending| sending.packet.band != Band::Icmp)
            && self.queues.first_icmp().is_none()
            && self.transmitter.may_pass(now, packet.bytes as u64)
    }

    fn pass(&mut self, now: Instant, packet: Waiting<P>) {
        // It had its turn.
        self.queues.pass(Band::Icmp);
        self.transmitter.pass(packet.bytes as u64);
        self.launch(now, packet);
    }

    fn launch(&mut self, at: Instant, packet: Waiting<P>) {
        let age = at.saturating_duration_since(self.epoch);
        self.flight.launch(at, age, packet, &mut self.stats);
    }

    /// The packet being sent has left at `at`; what may pass goes with it, and the next one follows.
    fn depart(&mut self, at: Instant) {
        if let Some(Sending { packet, .. }) = self.sending.take() {
            self.launch(at, packet);
        }
        while let Some(bytes) = self.queues.first_icmp()
            && self.transmitter.may_pass(at, bytes as u64)
            && let Some(packet) = self.queues.pop_icmp()
        {
            self.pass(at, packet);
        }
        if let Some(packet) = self.queues.pop(at, &mut self.stats.dropped_codel) {
            self.begin(at, packet);
        }
    }

    fn drop_waiting(&mut self) {
        let sending = u64::from(self.sending.take().is_some());
        self.stats.dropped_outage += sending + self.queues.clear() as u64;
    }
}

#[derive(Debug)]
struct Sending<P> {
    /// `None` when the rate is zero.
    done: Option<Instant>,
    packet: Waiting<P>,
}

#[cfg(test)]
#[path = "link_tests.rs"]
mod tests;
