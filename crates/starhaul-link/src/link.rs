//! The machine that decides when each packet leaves and whether it arrives: queues, sending end, loss, one-way
//! delay. The order of the stages is that of mahimahi and LeoReplayer; unlike the latter it keeps packets in order when
//! the delay falls.

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
    ledger: Ledger<P>,
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
            ledger: Ledger::new(),
        }
    }

    /// Gives the link a packet of data with `bytes`, the IP header and all behind it included. [`Link::poll`] tells what
    /// becomes of it.
    pub fn enqueue(&mut self, now: Instant, bytes: usize, packet: P) {
        self.enqueue_in(Band::Data, now, bytes, packet);
    }

    /// The same for a packet of either band.
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

    /// What has become of the next packet by `now`: first those that were dropped, in that order, then those that arrived.
    ///
    /// Nothing calls for a visit to hear of a drop: it is told with what comes next, the oldest of more than 65 536 never.
    pub fn poll(&mut self, now: Instant) -> Option<Outcome<P>> {
        let now = self.advance(now);
        if let Some(dropped) = self.ledger.tell() {
            return Some(Outcome::Dropped(dropped));
        }
        let arrived = self.flight.pop(now)?;
        self.ledger.delivered(arrived.bytes);
        Some(Outcome::Arrived(arrived))
    }

    /// How many drops the next calls of [`Link::poll`] tell before anything else.
    pub fn untold_drops(&self) -> usize {
        self.ledger.untold()
    }

    /// The packets that it still holds at the end of a run, without second copies.
    pub fn into_held(self) -> impl Iterator<Item = P> {
        let sending = self.sending.map(|sending| sending.packet.packet);
        let waiting = self.queues.into_waiting().map(|waiting| waiting.packet);
        sending
            .into_iter()
            .chain(waiting)
            .chain(self.flight.into_held())
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
        self.ledger.stats
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
        self.drop_waiting(now);
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
        self.flight.launch(at, age, packet, &mut self.ledger);
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
    /// `None` when the rate is zero.
    done: Option<Instant>,
    packet: Waiting<P>,
}

#[cfg(test)]
#[path = "link_tests.rs"]
mod tests;
