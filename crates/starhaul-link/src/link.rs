//! The machine that decides when each packet leaves and whether it arrives: queues, sending end, loss, one-way delay.
//! The stages have the order of mahimahi and LeoReplayer; unlike the latter it keeps packets in order when the delay
//! falls.

use std::time::Instant;

use crate::{
    Band, Cause, LinkSpec, LinkStats, Loss, Outcome, Rate,
    flight::Flight,
    ledger::Ledger,
    outages::Outages,
    queue::{Queues, Waiting},
    transmitter::Transmitter,
};

/// One direction of a link, carrying packets of type `P`.
///
/// A packet waits in the queue, is sent at the rate or by the opportunities of the trace, may be lost, and arrives
/// after the one-way delay of the instant at which it was sent. Packets of one [`Band`] keep their order, also when the
/// delay falls. In an outage of the *trace* (no opportunities) packets wait in the queue. An ICMP packet with a band of
/// its own waits only for the end of an outage; later packets have less capacity for it, and while an opportunity is
/// owed further ICMP waits like all others. While the link is *down* ([`Link::set_down`] and the outages of its
/// [`LinkSpec`]) it drops queued and arriving packets; packets in flight still arrive.
///
/// Times passed in must not decrease; one that does counts as the latest before it.
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
    ledger: Ledger<P>,
}

impl<P: Clone> Link<P> {
    /// Creates a link whose traces and outages begin at `now`. The same seed gives the same losses, jitter, reordering
    /// and duplicates.
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
            ledger: Ledger::new(),
        }
    }

    /// Gives the link a data packet of `bytes`, from the IP header on. [`Link::poll`] reports its fate.
    pub fn enqueue(&mut self, now: Instant, bytes: usize, packet: P) {
        self.enqueue_in(Band::Data, now, bytes, packet);
    }

    /// Gives the link a packet of either band.
    pub fn enqueue_in(&mut self, band: Band, now: Instant, bytes: usize, packet: P) {
        let now = self.advance(now);
        self.ledger.enqueued(bytes);
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
            self.ledger.dropped(now, Cause::Outage, waiting.packet);
        } else if self.passes(now, &waiting) {
            self.pass(now, waiting);
        } else if self.sending.is_none() {
            self.queues.pass(waiting.band);
            self.begin(now, waiting);
            self.advance(now);
        } else if let Err(waiting) = self.queues.push(waiting) {
            self.ledger.dropped(now, Cause::Queue, waiting.packet);
        }
    }

    /// The fate of the next packet by `now`: first the dropped ones in order, then those that arrived.
    ///
    /// [`Link::next_event`] does not include drops: they are reported with the next event, and the oldest of more than
    /// 65 536 never.
    pub fn poll(&mut self, now: Instant) -> Option<Outcome<P>> {
        let now = self.advance(now);
        if let Some(dropped) = self.ledger.tell() {
            return Some(Outcome::Dropped(dropped));
        }
        let arrived = self.flight.pop(now)?;
        self.ledger.delivered(arrived.bytes);
        Some(Outcome::Arrived(arrived))
    }

    /// Number of drops that the next calls of [`Link::poll`] report first.
    pub fn untold_drops(&self) -> usize {
        self.ledger.untold()
    }

    /// The packets still held at the end of a run, without duplicates.
    pub fn into_held(self) -> impl Iterator<Item = P> {
        let sending = self.sending.map(|sending| sending.packet.packet);
        let waiting = self.queues.into_waiting().map(|waiting| waiting.packet);
        sending
            .into_iter()
            .chain(waiting)
            .chain(self.flight.into_held())
    }

    /// When to call [`Link::poll`] next: a packet is sent or arrives then. `None` while the link is idle.
    pub fn next_event(&self) -> Option<Instant> {
        let sent = self.sending.as_ref().and_then(|sending| sending.done);
        [sent, self.flight.next()].into_iter().flatten().min()
    }

    /// A lower bound of the next arrival: a caller that returns then misses none. It is later than [`Link::next_event`]
    /// while a packet is being sent, which needs no call.
    pub fn next_arrival(&self) -> Option<Instant> {
        let sent = self.sending.as_ref().and_then(|sending| sending.done);
        let after_sent = sent.map(|sent| self.flight.earliest(sent));
        [after_sent, self.flight.next()].into_iter().flatten().min()
    }

    /// Counters of the packets so far.
    pub fn stats(&self) -> LinkStats {
        self.ledger.stats
    }

    /// Number of data packets in the queue, without the one being sent.
    pub fn queue_packets(&self) -> usize {
        self.queues.data_packets()
    }

    /// Bytes of data in the queue, without the packet being sent.
    pub fn queue_bytes(&self) -> usize {
        self.queues.data_bytes()
    }

    /// Bytes that the link can send in (`from`, `to`], at the rates and traces valid then (the present one for the
    /// future), without the time in which it is down.
    pub fn capacity_bytes_between(&self, from: Instant, to: Instant) -> u64 {
        let up = self.outages.up_between(from, to);
        up.into_iter()
            .map(|(from, to)| self.transmitter.capacity_bytes(from, to))
            .sum()
    }

    /// Sets the random loss of packets sent from now on, in place of the trace's too.
    pub fn set_loss(&mut self, now: Instant, loss: Loss) {
        self.advance(now);
        self.flight.set_loss(loss);
    }

    /// Changes the rate, or replaces the trace; the rest of the packet being sent uses the new one.
    pub fn set_rate(&mut self, now: Instant, rate: Rate) {
        let now = self.advance(now);
        match &mut self.sending {
            Some(sending) => sending.done = self.transmitter.change_while_sending(now, rate),
            None => self.transmitter.change_while_idle(now, rate),
        }
        self.advance(now);
    }

    /// Takes the link down: queued and arriving packets are dropped until [`Link::set_up`].
    pub fn set_down(&mut self, now: Instant) {
        let now = self.advance(now);
        self.outages.cut(now);
        self.drop_waiting(now);
    }

    /// Ends a [`Link::set_down`]. Outages of the description still hold.
    pub fn set_up(&mut self, now: Instant) {
        let now = self.advance(now);
        self.outages.restore(now);
    }

    /// Whether the link is down, at the latest instant passed in.
    pub fn is_down(&self) -> bool {
        self.outages.down()
    }

    /// Handles all events up to `now` in order; returns the link's time.
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
                        self.drop_waiting(edge);
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

    /// Whether a packet leaves at once on credit: its band is its own and has no queue.
    fn passes(&self, now: Instant, packet: &Waiting<P>) -> bool {
        let sending = self.sending.as_ref();
        packet.band == Band::Icmp
            && sending.is_none_or(|sending| sending.packet.band != Band::Icmp)
            && self.queues.first_icmp().is_none()
            && self.transmitter.may_pass(now, packet.bytes as u64)
    }

    fn pass(&mut self, now: Instant, packet: Waiting<P>) {
        // The packet had its turn.
        self.queues.pass(Band::Icmp);
        self.transmitter.pass(packet.bytes as u64);
        self.launch(now, packet);
    }

    fn launch(&mut self, at: Instant, packet: Waiting<P>) {
        let age = at.saturating_duration_since(self.epoch);
        self.flight.launch(at, age, packet, &mut self.ledger);
    }

    /// The packet being sent has left at `at`; packets that may pass leave with it, and the next one follows.
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
        let (queues, ledger) = (&mut self.queues, &mut self.ledger);
        let packet = queues.pop(at, |late| ledger.dropped(at, Cause::Codel, late.packet));
        if let Some(packet) = packet {
            self.begin(at, packet);
        }
    }

    fn drop_waiting(&mut self, at: Instant) {
        let sending = self.sending.take().map(|sending| sending.packet);
        for waiting in sending.into_iter().chain(self.queues.clear()) {
            self.ledger.dropped(at, Cause::Outage, waiting.packet);
        }
    }
}

#[derive(Debug)]
struct Sending<P> {
    /// When its last byte leaves; `None` when the rate is zero.
    done: Option<Instant>,
    packet: Waiting<P>,
}

#[cfg(test)]
#[path = "link_tests.rs"]
mod tests;
