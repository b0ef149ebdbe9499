//! A peer: its sessions in both directions, its timers, and what waits to be sent to it.

mod incoming;
mod input;
mod output;
mod repair;
mod timeouts;

use std::{
    collections::{BTreeMap, BTreeSet, VecDeque},
    time::{Duration, Instant},
};

use bytes::Bytes;
use rand_chacha::{
    ChaCha8Rng,
    rand_core::{RngCore, SeedableRng},
};
use starhaul_fec::Codec;
use starhaul_units::Bandwidth;

use self::incoming::Arrivals;
use crate::{
    CancelReason, End, EngineId, Event, NumberWidth, PeerConfig, SegmentChoice, SessionId, Stats,
    clock::{Clock, PeerTime, Timer, Timers},
    contents::Contents,
    credit::Credit,
    damaged::Damaged,
    ended::Ended,
    loss::LossEstimate,
    path::{AnswerTime, Pacer},
    receive::ReceiveSession,
    segment::Encoding,
    send::{Cancelling, SendSession},
    size::SegmentSizes,
    window::Window,
};

/// Greatest number of acknowledgements that wait to be sent; a peer repeats what was not acknowledged.
const MOST_ANSWERS: usize = 4096;
/// Green data are waited for at least so long, as for a segment over 2 kbit/s; and so many times as long as it took from data to data.
const LEAST_GREEN: Duration = Duration::from_secs(6);
const GREEN_SPACINGS: u32 = 8;
/// Times that a cancellation is repeated to a guest that has not shown that it gets what is sent to it.
const STRANGE_LIMIT: u32 = 2;
/// Initial serial numbers are below this (CCSDS 734.1).
const FIRST_SERIALS: u64 = 1 << 14;

/// What all peers of an engine share.
pub(crate) struct Context<'a> {
    pub(crate) now: Instant,
    pub(crate) local: EngineId,
    pub(crate) events: &'a mut VecDeque<Event>,
    pub(crate) stats: &'a mut Stats,
    pub(crate) memory: &'a mut Memory,
    pub(crate) services: &'a BTreeSet<u64>,
    pub(crate) numbers: &'a mut Numbers,
    pub(crate) awaits_acceptance: bool,
}

/// Memory of all sessions.
#[derive(Debug, Default)]
pub(crate) struct Memory {
    /// Bytes held by blocks received in part.
    pub(crate) receiving: usize,
    /// Greatest number of these bytes.
    pub(crate) receive_limit: usize,
    /// Bytes of unfinished blocks to send.
    pub(crate) sending: u64,
    /// Bytes that the kernel keeps for what comes and was not taken yet, if the driver has told.
    pub(crate) socket: Option<usize>,
    /// Peers with unfinished blocks on their way to this engine: they share that.
    pub(crate) senders: usize,
}

impl Memory {
    /// What of the socket's buffer a peer may fill.
    fn room(&self) -> Option<u32> {
        let share = self.socket? / self.senders.max(1);
        Some(u32::try_from(share).unwrap_or(u32::MAX))
    }
}

/// Session and serial numbers.
#[derive(Debug)]
pub(crate) struct Numbers {
    random: ChaCha8Rng,
    width: NumberWidth,
    last: u64,
}

/// A segment that is no data sent for the first time or repaired.
#[derive(Clone, Copy, Debug)]
enum ControlSegment {
    /// A checkpoint again: session and serial number.
    Checkpoint(u64, u64),
    /// A report: session and serial number.
    Report(u64, u64),
    ReportAck(SessionId, u64),
    CancelSend(u64),
    CancelReceive(u64),
    CancelAck(SessionId, End),
}

/// A peer engine.
#[derive(Debug)]
pub(crate) struct Peer {
    pub(crate) id: EngineId,
    pub(crate) config: PeerConfig,
    /// Whether it was accepted although unknown.
    pub(crate) is_guest: bool,
    /// Whether it waits in the engine's queue of peers with something to send.
    pub(crate) is_ready: bool,
    /// The timer at which the engine handles it next.
    pub(crate) wake: Option<Instant>,
    /// When a segment of it last came, or it was added or accepted.
    pub(crate) last_word: Instant,
    clock: Clock,
    timers: Timers,
    answer: AnswerTime,
    pacer: Pacer,
    may_transmit: bool,
    sends: BTreeMap<u64, SendSession>,
    receives: BTreeMap<u64, ReceiveSession>,
    /// When data of any of its blocks last arrived.
    heard: PeerTime,
    ended: Ended,
    /// Blocks that came damaged, whose sender cannot be told.
    damaged: Damaged,
    control: VecDeque<ControlSegment>,
    /// Sessions with something to repair, each once.
    repairs: VecDeque<u64>,
    /// Sessions that were not sent in full.
    fresh: VecDeque<u64>,
    /// Bytes held by its blocks received in part.
    memory: usize,
    /// How far its blocks have come.
    arrivals: Arrivals,
    /// How long its next red part probably is: as those before.
    usual: u64,
    codec: Codec,
    /// Limits what is under way when the rate is unknown.
    window: Option<Window>,
    /// Chooses how many bytes of data a segment has.
    sizes: SegmentSizes,
    /// What is lost on the way to the peer, if there may be repair segments.
    losses: LossEstimate,
    /// What may be sent to a guest that has not shown that it gets it.
    credit: Credit,
    /// The engine whose segments came from where this peer is, if it has another number.
    other: Option<EngineId>,
}

impl Peer {
    pub(crate) fn new(id: EngineId, config: PeerConfig, is_guest: bool, now: Instant) -> Self {
        let mut config = config.in_profile();
        // A rate of nothing limits nothing: reports do.
        config.rate = config.rate.filter(|rate| *rate > Bandwidth::ZERO);
        let answer = config.answer_time();
        Self {
            id,
            is_guest,
            is_ready: false,
            wake: None,
            last_word: now,
            clock: Clock::started(now),
            heard: PeerTime::default(),
            timers: Timers::default(),
            pacer: Pacer::new(config.rate),
            may_transmit: true,
            sends: BTreeMap::new(),
            receives: BTreeMap::new(),
            ended: Ended::new(config.longest_silence()),
            damaged: Damaged::default(),
            control: VecDeque::new(),
            repairs: VecDeque::new(),
            fresh: VecDeque::new(),
            memory: 0,
            arrivals: Arrivals::default(),
            usual: 0,
            codec: Codec::new(),
            sizes: SegmentSizes::new(&config),
            losses: LossEstimate::default(),
            window: (config.rate.is_none() && !config.is_one_way)
                .then(|| Window::new(config.one_way_light_time)),
            credit: match is_guest {
                true => Credit::earned_by(0),
                false => Credit::default(),
            },
            other: None,
            answer,
            config,
        }
    }

    /// How segments of both engines are written.
    pub(crate) const fn encoding(&self) -> Encoding {
        self.config.profile.encoding()
    }

    /// The engine whose segments came from where this peer is, if it has another number.
    pub(crate) fn other(&self) -> Option<EngineId> {
        self.other
    }

    /// The same, and forgets it.
    pub(crate) fn take_other(&mut self) -> Option<EngineId> {
        self.other.take()
    }

    /// A guest is elsewhere from now on, from where so many bytes came: it may be any host.
    pub(crate) fn doubt(&mut self, bytes: usize) {
        if self.is_guest {
            self.credit = Credit::earned_by(bytes);
        }
    }

    /// Whether it is a guest that has not shown that it gets what is sent to it.
    pub(crate) fn is_strange(&self) -> bool {
        self.credit.is_limited()
    }

    /// Ends all that is under way with a guest that makes room for another one. It is not told, since which host it is has not been proved.
    pub(crate) fn end_all(&mut self, cx: &mut Context<'_>) {
        let receives: Vec<u64> = self.receives.keys().copied().collect();
        for number in receives {
            let session = self.receives.get(&number);
            let is_news = session.is_some_and(|s| s.cancel.is_none() && !s.is_delivered());
            self.end_receive(cx, number);
            if is_news {
                cx.events.push_back(Event::ReceiveCancelled {
                    session: self.received_id(number),
                    by: End::Receiver,
                    reason: CancelReason::System,
                });
            }
        }
        let sends: Vec<u64> = self.sends.keys().copied().collect();
        for number in sends {
            let id = self.sent_id(cx, number);
            if let Some(session) = self.take_send(cx, number)
                && session.cancel.is_none()
            {
                cx.events.push_back(Event::SendCancelled {
                    session: id,
                    by: End::Sender,
                    reason: CancelReason::System,
                });
            }
        }
    }

    /// Tells how many bytes an IP packet to the peer may have.
    pub(crate) fn set_path_mtu(&mut self, now: Instant, mtu: usize) {
        self.sizes.set_mtu(now, mtu);
    }

    /// The peer's socket holds probably as much as that of this engine, until it tells.
    pub(crate) fn guess_room(&mut self, bytes: usize) {
        if let Some(window) = &mut self.window {
            window.guess_room(bytes as u64);
        }
    }

    /// The peer has an address on this host, or elsewhere.
    pub(crate) fn set_here(&mut self, is_here: bool) {
        if let Some(window) = &mut self.window {
            window.set_here(is_here);
        }
    }

    /// How long reports take is found anew.
    pub(crate) fn forget_way(&mut self) {
        if let Some(window) = &mut self.window {
            window.forget_way();
        }
    }

    /// Whether that was told before, or does not matter.
    pub(crate) fn knows_path_mtu(&self, mtu: usize) -> bool {
        self.sizes.knows_mtu(mtu)
    }

    /// The size of its segments, and why they have it.
    pub(crate) fn segment_choice(&self) -> SegmentChoice {
        self.sizes.choice()
    }

    /// Sessions being sent and received.
    pub(crate) fn sessions(&self) -> (usize, usize) {
        (self.sends.len(), self.receives.len())
    }

    pub(crate) fn is_idle(&self) -> bool {
        self.sessions() == (0, 0) && self.control.is_empty()
    }

    pub(crate) fn timers(&self) -> usize {
        self.timers.len()
    }

    pub(crate) fn answer_time(&self) -> &AnswerTime {
        &self.answer
    }

    /// Link-state cues (RFC 5326 §6.5, §6.6): whether segments may leave, and whether the peer transmits.
    pub(crate) fn set_link(&mut self, now: Instant, may_transmit: bool, peer_transmits: bool) {
        if !may_transmit || !peer_transmits {
            self.sizes.interrupt();
        }
        self.may_transmit = may_transmit;
        self.clock.run(now, peer_transmits);
    }

    /// When the engine must handle this peer: at its next timer, or when the pacer lets the next segment leave.
    pub(crate) fn next_wake(&self, now: Instant) -> Option<Instant> {
        let timer = self.timers.next().and_then(|at| self.clock.instant(at));
        let blocked = self.pacer.ready_at().filter(|at| *at > now);
        let pacer = blocked.filter(|_| self.has_output(now));
        let opens = self.window.as_ref().and_then(Window::opens_at);
        let opens = opens.filter(|at| *at > now && self.may_transmit && self.has_data());
        [timer, pacer, opens].into_iter().flatten().min()
    }

    /// Whether a segment may leave now.
    pub(crate) fn can_transmit(&self, now: Instant) -> bool {
        self.has_output(now) && self.pacer.ready_at().is_none_or(|at| at <= now)
    }

    fn has_output(&self, now: Instant) -> bool {
        let has_data = self.has_data() && self.may_send_data(now);
        self.may_transmit && (!self.control.is_empty() || has_data)
    }

    /// Whether data wait to be sent, for the first time or again.
    fn has_data(&self) -> bool {
        !self.repairs.is_empty() || !self.fresh.is_empty()
    }

    /// Begins to send a block in two buffers, which has so many red bytes, with CRC32C of these if it is known; returns the number of its
    /// session.
    pub(crate) fn send(
        &mut self,
        cx: &mut Context<'_>,
        service: u64,
        (head, rest): (Bytes, Bytes),
        red: (u64, Option<u32>),
    ) -> u64 {
        let number = cx.numbers.session(&self.sends);
        // It is cut when it begins to leave: by then more may be known of the path.
        let block = Contents::new(head, rest);
        cx.memory.sending += block.len();
        let mut session = SendSession::new(service, block, red, cx.numbers.serial());
        if self.config.is_one_way {
            session.passes = self.config.passes;
        }
        self.sends.insert(number, session);
        self.fresh.push_back(number);
        number
    }

    pub(crate) fn is_sending(&self, number: u64) -> bool {
        self.sends
            .get(&number)
            .is_some_and(|session| session.cancel.is_none())
    }

    pub(crate) fn is_receiving(&self, number: u64) -> bool {
        self.receives
            .get(&number)
            .is_some_and(|session| session.cancel.is_none())
    }

    /// Cancels a block being sent (RFC 5326 §4.2). If none of it has left, the receiver learns nothing.
    pub(crate) fn cancel_send(&mut self, cx: &mut Context<'_>, number: u64, reason: CancelReason) {
        let id = self.sent_id(cx, number);
        let Some(session) = self.sends.get_mut(&number).filter(|s| s.cancel.is_none()) else {
            return;
        };
        let (was_begun, bytes) = (session.was_begun(), session.len());
        cx.memory.sending -= bytes;
        settle_window(&mut self.window, session);
        stop_timers(&mut self.timers, number, session);
        session.give_up(reason);
        match was_begun {
            true => self.control.push_back(ControlSegment::CancelSend(number)),
            false => drop(self.sends.remove(&number)),
        }
        cx.events.push_back(Event::SendCancelled {
            session: id,
            by: End::Sender,
            reason,
        });
    }

    /// Cancels a block being received (RFC 5326 §4.2).
    pub(crate) fn cancel_receive(
        &mut self,
        cx: &mut Context<'_>,
        number: u64,
        reason: CancelReason,
    ) {
        let id = self.received_id(number);
        let Some(session) = self.take_receive(cx, number) else {
            return;
        };
        let now = self.clock.time(cx.now);
        let is_delivered = session.is_delivered();
        if self.config.is_one_way {
            // There is no way to tell its sender.
            self.ended.insert(now, number);
        } else {
            let mut husk = ReceiveSession::new(session.service, 1, 0, now);
            husk.cancel = Some(Cancelling {
                reason,
                attempts: 0,
                timer: None,
            });
            self.receives.insert(number, husk);
            self.control
                .push_back(ControlSegment::CancelReceive(number));
        }
        if !is_delivered {
            cx.events.push_back(Event::ReceiveCancelled {
                session: id,
                by: End::Receiver,
                reason,
            });
        }
    }

    /// Removes a session being sent with its timers and its share of the limits.
    fn take_send(&mut self, cx: &mut Context<'_>, number: u64) -> Option<SendSession> {
        let session = self.sends.remove(&number)?;
        cx.memory.sending -= session.len();
        settle_window(&mut self.window, &session);
        stop_timers(&mut self.timers, number, &session);
        Some(session)
    }

    /// Removes a session being received with its timers and its share of the limits.
    fn take_receive(&mut self, cx: &mut Context<'_>, number: u64) -> Option<ReceiveSession> {
        let session = self.receives.remove(&number)?;
        cx.memory.receiving -= session.held();
        self.memory -= session.held();
        self.arrivals.leave(session.partial());
        for (serial, report) in &session.reports {
            if let Some(at) = report.timer {
                self.timers.cancel(at, Timer::Report(number, *serial));
            }
        }
        if let Some(at) = session.silence {
            self.timers.cancel(at, Timer::SilentSender(number));
        }
        if let Some(at) = session.cancel.and_then(|cancel| cancel.timer) {
            self.timers.cancel(at, Timer::CancelReceive(number));
        }
        Some(session)
    }

    /// Ends a session being received; its late segments are ignored.
    fn end_receive(&mut self, cx: &mut Context<'_>, number: u64) {
        if self.take_receive(cx, number).is_some() {
            self.ended.insert(self.clock.time(cx.now), number);
        }
    }

    /// Ends a session being received of which something is missing. A sender that hears nothing may go on with it: of that only what was
    /// delivered is ignored.
    fn leave_receive(&mut self, cx: &mut Context<'_>, number: u64) {
        let Some(session) = self.take_receive(cx, number) else {
            return;
        };
        if !self.config.is_one_way || session.is_delivered() {
            self.ended.insert(self.clock.time(cx.now), number);
        }
    }

    /// Ends a session being sent if nothing is left to do, or sets the timer for a receiver that falls silent.
    fn settle_send(&mut self, cx: &mut Context<'_>, number: u64) {
        let now = self.clock.time(cx.now);
        let Some(session) = self.sends.get_mut(&number).filter(|s| s.cancel.is_none()) else {
            return;
        };
        if self.config.is_one_way {
            // No report will say whether it arrived.
            if session.is_transmitted() {
                self.take_send(cx, number);
            }
        } else if session.is_complete() {
            self.take_send(cx, number);
            let session = self.sent_id(cx, number);
            cx.events.push_back(Event::Sent { session });
        } else if session.waits_in_silence() && session.silence.is_none() {
            // Twice the time in which the receiver repeats a report that was lost.
            let at = now.plus(self.answer.timeout(0).saturating_mul(2));
            session.silence = Some(at);
            self.timers.set(at, Timer::SilentReceiver(number));
        }
    }

    /// Queues a session that has something to repair.
    fn queue_repair(&mut self, number: u64) {
        if let Some(session) = self.sends.get_mut(&number)
            && session.has_repairs()
            && !session.is_queued
        {
            session.is_queued = true;
            self.repairs.push_back(number);
        }
    }

    fn queue_answer(&mut self, answer: ControlSegment) {
        if self.control.len() < MOST_ANSWERS && !self.config.is_one_way {
            self.control.push_back(answer);
        }
    }

    fn sent_id(&self, cx: &Context<'_>, number: u64) -> SessionId {
        SessionId {
            originator: cx.local,
            number,
        }
    }

    fn received_id(&self, number: u64) -> SessionId {
        SessionId {
            originator: self.id,
            number,
        }
    }

    /// How long a sending peer may be silent: until it has given up its red part; if only green data can come, some times as long as it
    /// took from data to data before, for it may send them over a slow link.
    fn patience(&self, session: &ReceiveSession) -> Duration {
        let silence = self.answer.patience(self.config.retransmission_limit);
        if session.awaits_red() {
            return silence;
        }
        let spaced = session.spacing.saturating_mul(GREEN_SPACINGS).min(silence);
        self.answer.timeout(0).max(LEAST_GREEN).max(spaced)
    }

    fn time(&self, cx: &Context<'_>) -> PeerTime {
        self.clock.time(cx.now)
    }
}

/// Gives back the room of checkpoints that will not be answered any more.
fn settle_window(window: &mut Option<Window>, session: &SendSession) {
    if let Some(window) = window {
        let marks = session.checkpoints.values().map(|sent| sent.mark);
        marks.for_each(|mark| window.settle(mark, None));
    }
}

fn stop_timers(timers: &mut Timers, number: u64, session: &SendSession) {
    for (serial, checkpoint) in &session.checkpoints {
        if let Some(at) = checkpoint.timer {
            timers.cancel(at, Timer::Checkpoint(number, *serial));
        }
    }
    if let Some(at) = session.silence {
        timers.cancel(at, Timer::SilentReceiver(number));
    }
    if let Some(at) = session.cancel.and_then(|cancel| cancel.timer) {
        timers.cancel(at, Timer::CancelSend(number));
    }
}

impl Numbers {
    pub(crate) fn new(seed: [u8; 32], width: NumberWidth) -> Self {
        let mut random = ChaCha8Rng::from_seed(seed);
        let last = random.next_u64();
        Self {
            random,
            width,
            last,
        }
    }

    /// The next session number: they count up from a random one, which a peer remembers in little memory.
    fn session(&mut self, used: &BTreeMap<u64, SendSession>) -> u64 {
        loop {
            self.last = match self.width {
                NumberWidth::Bits32 => self.last.wrapping_add(1) & u64::from(u32::MAX),
                NumberWidth::Bits64 => self.last.wrapping_add(1),
            };
            if self.last != 0 && !used.contains_key(&self.last) {
                return self.last;
            }
        }
    }

    fn serial(&mut self) -> u64 {
        1 + self.random.next_u64() % (FIRST_SERIALS - 1)
    }

    fn reception(&mut self) -> u32 {
        self.random.next_u32()
    }
}
