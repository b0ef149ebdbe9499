//! A neighbour as a node knows it: keys, numbers of packets both ways, round-trip time, rates and what waits for it.

mod arrivals;
mod beginning;
mod departures;
mod handles;
mod handshake;
mod pace;
mod packets;
pub(crate) mod queue;
pub(crate) mod raw;
pub(crate) mod rtt;
mod signal;
mod stamps;
mod tail;
#[cfg(test)]
mod tests;
mod unheard;

use std::{
    collections::VecDeque,
    time::{Duration, Instant},
};

use rand_chacha::ChaCha20Rng;

pub(crate) use arrivals::{Arrival, Arrivals};
use beginning::Beginning;
pub(crate) use departures::{Carried, Departures};
use handles::Handles;
use handshake::{ANSWERS, Handshake, Heard, Session};
use pace::Pace;
pub(crate) use packets::CONTROL_BYTES;
use queue::{Left, SendQueue};
use rtt::RoundTrips;
use starhaul_cc::Reconfigurations;
use tail::Tail;
use unheard::Unheard;

use crate::{
    config::{NeighbourConfig, NodeConfig, Scope},
    control::{Arrived, LEAST_ROUND, RateControl},
    event::Recognised,
    keys::is_same,
    name::{ContentId, Kind},
    wire::{Frame, Hello, Numbered, Packet, STAMP_MASK, ShortNumber},
};

/// Segments of the first round trip, before the neighbour reports a rate.
const FIRST_SEGMENTS: f64 = 16.0;
/// Round-trip times before any is known, and at least while one is only guessed from the handshake.
const UNKNOWN_RTT: Duration = Duration::from_millis(100);
const LEAST_RTT_GUESS: Duration = Duration::from_millis(1);
/// A packet that was overtaken for longer was held back, by whomever: a hole that waited a quarter longer than this for its packets would be
/// reported a round trip before the neighbour forgets them at the latest.
const OVERTAKEN_ROUNDS: u32 = 2;
const OVERTAKEN_FOR: Duration = Duration::from_millis(200);
/// Late departures are made up for over a quarter of the round trip, or this if it is more: hosts wake programs so late.
const MADE_UP: Duration = Duration::from_millis(1);
/// Bytes that leave before their pace at most: what one call sends.
const MOST_AHEAD: f64 = 65_536.0;
/// Nothing is sent to a neighbour that was silent for longer.
const SILENCE: Duration = Duration::from_secs(3);

/// The state of the hop to one neighbour.
#[derive(Debug)]
pub(crate) struct Hop {
    handshake: Handshake,
    session: Option<Session>,
    pub(crate) departures: Departures,
    /// Of the first packet to the neighbour in its present life.
    first_number: u64,
    beginning: Beginning,
    /// The next packet has a long number: the neighbour may expect quite another one.
    shows_number: bool,
    pub(crate) arrivals: Arrivals,
    rtt: RoundTrips,
    /// Until a packet has shown one.
    rtt_guess: Duration,
    /// Origin of this node's clock, from which stamps count.
    epoch: Instant,
    /// The last stamp of the neighbour, and when it came.
    stamp: Option<(u32, Instant)>,
    echoed: Option<Instant>,
    /// The round trip that the packet that was checked last has told.
    sample: Option<Duration>,
    /// Who finds the rate. From end to end, what is sent back with data tells of the path as far as their responder.
    scope: Scope,
    /// One-way delay plus the difference of the clocks, of the last packet, in microseconds.
    delay: Option<i64>,
    /// Last data: content and its end.
    pub(crate) last_data: Option<(ContentId, u64)>,
    /// Finds the rate of data from the neighbour.
    pub(crate) control: RateControl,
    reconfigurations: Reconfigurations,
    /// The rate at which the neighbour takes data, in bytes per second.
    takes: Option<f64>,
    /// One more than the greatest number that it is known to have received.
    received: u64,
    pub(crate) queue: SendQueue,
    pace: Pace,
    /// Packets may leave so much sooner than their pace says. Where it is not zero, the host wakes up late, and what leaves late is made up
    /// for.
    burst: Duration,
    /// The longest that the host lets the program wait.
    wait: Duration,
    /// When the first content that waits may send, if all wait for their pace.
    flows_at: Option<Instant>,
    frames: VecDeque<Frame>,
    dropped_frames: u64,
    /// A control packet is due then, even an empty one.
    control_at: Option<Instant>,
    owes_answer: bool,
    tail: Tail,
    /// What has to arrive is probed until it is confirmed. Where control or recovery is from end to end, requesters alone look after it.
    confirms: bool,
    /// Losses that are reported are those of streams, among others.
    reports_live: bool,
    /// Reported last: rate, and when; and whether data came since.
    reported: Option<(f64, Instant)>,
    has_news: bool,
    control_sent_at: Option<Instant>,
    heard: Instant,
    unheard: Unheard,
    /// It was asked since then whether it is there.
    is_probed: bool,
    /// The packet that was checked last ends an outage.
    ends_outage: bool,
    /// When the last packet reached this host; none counts as earlier than one before it.
    arrived: Instant,
    handles: Handles,
    segment_bytes: f64,
}

/// What a packet was, apart from its body.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Checked {
    /// The neighbour is not known in its present life.
    NoKeys,
    Forged,
    Replayed,
    Authentic(Arrival),
}

impl Hop {
    pub(crate) fn new(
        now: Instant,
        epoch: Instant,
        node: &NodeConfig,
        config: NeighbourConfig,
        random: ChaCha20Rng,
    ) -> Self {
        Self {
            handshake: Handshake::new(now, config.key, random),
            session: None,
            departures: Departures::default(),
            first_number: 0,
            beginning: Beginning::default(),
            shows_number: false,
            arrivals: Arrivals::default(),
            rtt: RoundTrips::default(),
            rtt_guess: UNKNOWN_RTT,
            epoch,
            stamp: None,
            echoed: None,
            sample: None,
            scope: node.control,
            delay: None,
            last_data: None,
            control: RateControl::new(node.rate_rule),
            reconfigurations: Reconfigurations::default(),
            takes: None,
            received: 0,
            queue: SendQueue::new(node.queue_bytes, node.contents, node.burst),
            pace: Pace::default(),
            burst: node.burst,
            wait: Duration::ZERO,
            flows_at: None,
            frames: VecDeque::new(),
            dropped_frames: 0,
            control_at: None,
            owes_answer: false,
            tail: Tail::default(),
            confirms: (node.control, node.recovery) == (Scope::Hop, Scope::Hop),
            reports_live: false,
            reported: None,
            has_news: false,
            control_sent_at: None,
            heard: now,
            unheard: Unheard::default(),
            is_probed: false,
            ends_outage: false,
            arrived: now,
            handles: Handles::new(node.contents),
            segment_bytes: f64::from(u32::try_from(node.segment_bytes).unwrap_or(u32::MAX)),
        }
    }

    /// When the last authentic packet came.
    pub(crate) fn heard(&self) -> Instant {
        self.heard
    }

    /// Whether the neighbour is known in its present life.
    pub(crate) fn is_met(&self) -> bool {
        self.session.is_some()
    }

    /// Whether two lives of the neighbour take it from each other.
    pub(crate) fn is_shared(&self) -> bool {
        let session = self.session.as_ref();
        session.is_some_and(|session| session.is_shared)
    }

    /// The smoothed round-trip time, or a guess.
    pub(crate) fn rtt(&self) -> Duration {
        self.rtt.smoothed().unwrap_or(self.rtt_guess)
    }

    /// A packet that was overtaken for longer was held back: who answered would have been heard by then.
    pub(crate) fn overtaken_after(&self) -> Duration {
        self.rtt() * OVERTAKEN_ROUNDS + OVERTAKEN_FOR
    }

    /// The time in which rates change: a round trip, or longer where that is next to nothing.
    pub(crate) fn round(&self) -> Duration {
        self.rtt().max(LEAST_ROUND)
    }

    /// The rate at which the neighbour takes data: what it said, or that of the first round trip.
    pub(crate) fn takes(&self) -> f64 {
        // At least a segment a second, while nothing is said.
        let round = self.rtt().as_secs_f64().clamp(1e-6, FIRST_SEGMENTS);
        self.takes
            .unwrap_or(FIRST_SEGMENTS * self.segment_bytes / round)
    }

    /// The rate at which data leave.
    fn pace_rate(&self) -> f64 {
        match self.beginning.is_full(self.received) {
            // A segment a second.
            true => self.takes().min(self.segment_bytes),
            false => self.takes(),
        }
    }

    /// What the neighbour said of the rate at which it takes data.
    pub(crate) fn handle_rate(&mut self, kbit: u64, greatest: u32) {
        self.takes = Some(bytes_per_second(kbit));
        let greatest = ShortNumber {
            bits: greatest,
            is_long: true,
        }
        .expand(self.received);
        if greatest < self.departures.next_number() {
            self.note_received(greatest + 1);
        }
    }

    /// The neighbour has received the number before this one. Where that ends an outage, news of what was lost may follow.
    fn note_received(&mut self, end: u64) {
        self.received = self.received.max(end);
        let ends_outage = self.tail.confirm(end);
        let until = ends_outage.then(|| self.arrived + self.repaired_for());
        self.departures.confirm(end, until);
    }

    /// The rate that packets from the neighbour have shown, in bytes per second; at first, that of a first round trip.
    pub(crate) fn measured_rate(&self) -> f64 {
        let first = FIRST_SEGMENTS * self.segment_bytes / self.rtt().as_secs_f64().max(1e-6);
        match self.control.rate() {
            // Those who had little to send have not shown that the hop carries less.
            Some(rate) if !self.control.is_proven() => rate.max(first),
            rate => rate.unwrap_or(first),
        }
    }

    /// Takes a hello. Returns `None` if it is forged, and otherwise whether a new life of the neighbour began.
    pub(crate) fn handle_hello(&mut self, now: Instant, hello: &Hello) -> Option<bool> {
        match self.handshake.handle(now, hello, self.session.as_ref()) {
            Heard::Forged => None,
            Heard::Unproven => Some(false),
            Heard::Agreed => {
                self.expect_from(hello.first_number);
                // The neighbour may not know yet that this end has the keys, or with which numbers it sends: any packet shows it.
                self.shows_number = true;
                // One that was recorded asks as often as it is sent.
                let answered = self.control_sent_at.map(|sent| sent + ANSWERS);
                self.send_control_by(answered.map_or(now, |at| at.max(now)));
                Some(false)
            }
            Heard::New(session, rtt) => {
                self.session = Some(*session);
                self.departures.forget();
                self.tail.forget();
                self.first_number = self.departures.next_number();
                self.beginning = Beginning::default();
                self.received = self.first_number;
                self.arrivals = Arrivals::starting_at(hello.first_number);
                self.stamp = None;
                self.delay = None;
                self.last_data = None;
                self.takes = None;
                self.reported = None;
                self.heard = now;
                self.unheard.heard();
                (self.is_probed, self.ends_outage) = (false, false);
                self.send_control_by(now);
                self.queue.clear();
                self.frames.clear();
                self.handles.clear();
                // The neighbour's clock is another.
                self.control.forget_delays();
                self.rtt_guess = rtt.unwrap_or(self.rtt_guess).max(LEAST_RTT_GUESS);
                Some(true)
            }
        }
    }

    /// The neighbour says with which number it begins. Until it learned of this node's present life it may have sent so much to the former one
    /// that the last bits of its numbers tell no more which ones they are.
    fn expect_from(&mut self, first_number: u64) {
        let is_confirmed = self.session.as_ref().is_none_or(|it| it.is_confirmed);
        if !is_confirmed && first_number > self.arrivals.next() {
            self.arrivals = Arrivals::starting_at(first_number);
        }
    }

    /// Something leaves to which the neighbour answers, if it knows this node.
    fn expect_answer(&mut self, now: Instant) {
        if self.is_met() && self.unheard.sends(now, self.rtt()) {
            self.handshake.prompt(now);
        }
    }

    /// Greets the neighbour if it was sent something, and is not heard.
    pub(crate) fn greet_unheard(&mut self, now: Instant) {
        if self.is_met() && self.unheard.handle_timeout(now, self.rtt()) {
            self.handshake.prompt(now);
        }
    }

    /// Asks whether the neighbour is there; [`Hop::heard`] is later if it is.
    pub(crate) fn probe(&mut self, now: Instant) {
        self.is_probed = true;
        self.send_control_by(now);
    }

    /// Whether it was asked so, or sent anything else, within such a time.
    pub(crate) fn has_sent_control(&self, now: Instant, within: Duration) -> bool {
        let is_recent = |sent| now.saturating_duration_since(sent) < within;
        self.control_sent_at.is_some_and(is_recent)
    }

    /// Whether the packet that was checked last ends an outage: the neighbour was asked whether it is there, and left that unanswered.
    pub(crate) fn ends_outage(&mut self) -> bool {
        std::mem::take(&mut self.ends_outage)
    }

    /// Sends a hello, unless one has just left.
    pub(crate) fn prompt_hello(&mut self, now: Instant) {
        self.handshake.prompt(now);
    }

    /// The hello that is due.
    pub(crate) fn poll_hello(&mut self, now: Instant) -> Option<Hello> {
        let first_number = match &self.session {
            // Who asks now has begun a new life, to which packets with the numbers of before are not sent: 16 bits of a number
            // would be taken for another one.
            Some(session) if session.is_confirmed => self.departures.next_number(),
            _ => self.first_number,
        };
        self.handshake
            .poll(now, self.session.as_ref(), first_number)
    }

    /// Whether a numbered packet may be the neighbour's.
    pub(crate) const fn has_session(&self) -> bool {
        self.session.is_some()
    }

    /// Whether a packet of an unknown address comes from this neighbour.
    pub(crate) fn recognises(&self, packet: &Packet<'_>) -> Recognised {
        match packet {
            // A hello of the accepted life may be recorded: who lives moves by numbered packets.
            Packet::Hello(hello) => match self.handshake.recognises(hello) {
                Recognised::Alive if self.session.as_ref().is_some_and(|s| s.is_of(hello)) => {
                    Recognised::Perhaps
                }
                other => other,
            },
            Packet::Numbered(packet) => {
                let number = self.arrivals.expand(packet.head.number);
                let is_new = self.session.as_ref().is_some_and(|session| {
                    let mac = session.open.mac(number, packet.authenticated);
                    is_same(&mac, packet.mac) && self.arrivals.is_new(number)
                });
                match is_new {
                    true if number >= self.arrivals.next() => Recognised::Alive,
                    // It was overtaken: it may have left before the neighbour moved, or have been held back.
                    true => Recognised::Perhaps,
                    false => Recognised::No,
                }
            }
        }
    }

    /// Checks a packet's authentication and number, and learns from its stamps. It reached this host at `arrived`.
    pub(crate) fn check(
        &mut self,
        now: Instant,
        arrived: Instant,
        packet: &Numbered<'_>,
    ) -> Checked {
        let overtaken = self.overtaken_after();
        let Some(session) = &mut self.session else {
            self.handshake.doubt(now, None);
            return Checked::NoKeys;
        };
        let number = self.arrivals.expand(packet.head.number);
        let mac = session.open.mac(number, packet.authenticated);
        if !is_same(&mac, packet.mac) {
            // The neighbour may have begun a new life, and its hello was lost.
            let heard = session.is_confirmed.then_some(self.heard);
            self.handshake.doubt(now, heard);
            return Checked::Forged;
        }
        let arrived = arrived.min(now).max(self.arrived);
        let arrival = self.arrivals.accept(arrived, number, overtaken);
        if arrival == Arrival::Replayed {
            return Checked::Replayed;
        }
        self.arrived = arrived;
        self.sample = None;
        session.is_confirmed = true;
        // What a slow link or this host only held back comes without a hole.
        let is_silent = arrived.saturating_duration_since(self.heard) > overtaken;
        let has_lost = matches!(arrival, Arrival::Newest { missing } if missing > 0);
        self.ends_outage = std::mem::take(&mut self.is_probed) && is_silent && has_lost;
        self.heard = now;
        self.unheard.heard();
        // What is late was held back: its times are not those of the hop.
        if arrival != Arrival::Late {
            if let Some(echo) = packet.head.echo {
                self.handle_echo(arrived, echo);
            }
            self.stamp = Some((packet.head.sent, arrived));
        }
        Checked::Authentic(arrival)
    }

    /// Gives the rate control the data packet that was checked last. `rtt` is the time that a change of the rate takes to show; while that is not known,
    /// the control learns nothing.
    pub(crate) fn observe(
        &mut self,
        sent: u32,
        bytes: usize,
        missing: u64,
        is_limited: bool,
        rtt: Option<Duration>,
    ) {
        self.has_news = true;
        self.beginning.observe();
        let now = self.arrived;
        let local = self.micros(now);
        let expected = local - self.delay.unwrap_or(0);
        let mask = i64::from(STAMP_MASK);
        let near = (i64::from(sent) - expected) & mask;
        let offset = if near > mask / 2 {
            near - mask - 1
        } else {
            near
        };
        let sent = expected + offset;
        let delay = local - sent;
        self.delay = Some(delay);
        let Some(rtt) = rtt else {
            return;
        };
        self.control.on_data(&Arrived {
            now,
            sent,
            delay,
            bytes: u32::try_from(bytes).unwrap_or(u32::MAX),
            missing: u32::try_from(missing).unwrap_or(u32::MAX),
            is_limited,
            rtt,
        });
    }

    /// This node's number of a content for the neighbour. Where there are too many, those that are `idle` go; `None`: all
    /// are in use.
    pub(crate) fn handle_of(
        &mut self,
        content: Kind,
        is_idle: impl Fn(Kind) -> bool,
    ) -> Option<u64> {
        self.handles.of(content, is_idle)
    }

    /// The content that the neighbour is asked for by this number.
    pub(crate) fn content_of(&self, handle: u64) -> Option<Kind> {
        self.handles.content(handle)
    }

    /// Whether the pace lets data leave now.
    pub(crate) fn may_send_data(&mut self, now: Instant) -> bool {
        let (rate, slack) = (self.pace_rate(), self.queue.slack());
        self.is_met() && self.pace.waits_until(now, rate, slack).is_none()
    }

    /// The host lets the program wait so long: what is due meanwhile leaves before, lest the hop runs dry, but no more than a part of what
    /// is under way, or than [`MOST_AHEAD`].
    pub(crate) fn expect_waits(&mut self, longest: Duration) {
        self.wait = longest;
        if !self.burst.is_zero() {
            let most = Duration::try_from_secs_f64(MOST_AHEAD / self.takes().max(1.0));
            let most = most.unwrap_or(Duration::MAX).min(self.rtt() / 4);
            self.queue.set_slack(self.burst.max(longest.min(most)));
        }
    }

    /// Drops what waits for a neighbour that was silent for long. Returns how much that was.
    pub(crate) fn give_up_silent(&mut self, now: Instant) -> u64 {
        let heard = self.queue.busy_since().max(Some(self.heard));
        let waiting = self.queue.waiting();
        let is_silent = heard
            .is_some_and(|heard| now.saturating_duration_since(heard) > SILENCE + self.rtt() * 8);
        if waiting == 0 || !is_silent {
            return 0;
        }
        self.queue.clear();
        waiting
    }

    /// When the pace, or that of every content that waits, allows the next data.
    pub(crate) fn next_data_at(&self) -> Option<Instant> {
        self.is_met().then(|| {
            let pace = self.pace.wakes_at(self.pace_rate(), self.queue.slack());
            pace.max(self.flows_at).unwrap_or(self.epoch)
        })
    }

    /// All contents that wait, wait for their own pace until then.
    pub(crate) fn flows_wait(&mut self, until: Option<Instant>) {
        self.flows_at = until;
    }

    /// Whether anything may leave now.
    pub(crate) fn may_send(&self, now: Instant) -> bool {
        self.handshake.timeout().is_some_and(|at| at <= now)
            || self.is_control_due(now)
            || !self.queue.is_empty()
    }

    /// From when on late departures are made up for: longer ones would come as a burst.
    pub(crate) fn made_up_since(&self, now: Instant) -> Instant {
        if self.burst.is_zero() {
            return now;
        }
        now.checked_sub(self.longest_made_up())
            .unwrap_or(self.epoch)
    }

    /// The longest lateness that is made up for.
    pub(crate) fn longest_made_up(&self) -> Duration {
        (self.rtt() / 4).max(MADE_UP)
    }

    /// The next instant at which something is due, apart from data.
    pub(crate) fn timeout(&self) -> Option<Instant> {
        let holes = self.arrivals.next_confirmation();
        [
            self.handshake.timeout(),
            self.control_due_at().filter(|_| self.is_met()),
            self.unheard.timeout(self.rtt()).filter(|_| self.is_met()),
            holes,
        ]
        .into_iter()
        .flatten()
        .min()
    }
}

/// A rate as frames have it.
pub(crate) fn kbit(bytes_per_second: f64) -> u64 {
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "saturates"
    )]
    let kbit = (bytes_per_second * 8.0 / 1000.0) as u64;
    kbit.max(1)
}

/// A rate out of a frame.
pub(crate) fn bytes_per_second(kbit: u64) -> f64 {
    #[expect(clippy::cast_precision_loss, reason = "a rate")]
    let kbit = kbit.max(1) as f64;
    kbit * 1000.0 / 8.0
}
