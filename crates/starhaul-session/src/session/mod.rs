//! The session itself: joins streams, blocks, paths and acknowledgements.

mod acks;
mod blocks;
mod input;
mod ordered;
mod output;
mod shared;
mod streams;
mod writing;

use std::{
    collections::{BTreeMap, VecDeque},
    time::{Duration, Instant},
};

use bytes::BytesMut;
use starhaul_cc::{PathSignal, QueueWish};
use starhaul_paths::{Fated, PathId, PathUpdate, RangeSet};

use self::shared::SharedBottlenecks;
use crate::{
    choice::SchedulerChoice,
    control,
    control_stream::ControlStream,
    facts::{Fact, Observer, Observers},
    item::Item,
    numbers::StreamNumbers,
    paths::{Clocks, LAST_RESORT, Paths},
    receive::{blocks::ReceiveBlocks, bytes::ReceiveBytes, inbound::Inbound, shares::Shares},
    received::AckSchedule,
    scheduler::{Scheduler, SchedulerStatus},
    send::{BlocksOut, bytes::SendBytes, bytes_out::BytesOut},
    signals::{IncomingSignals, OutgoingSignals},
    stats::{EndedStreams, PathStats, StreamStats},
    types::{Event, SessionConfig, Side, StreamConfig, StreamId},
};

/// Control messages beyond this that the peer does not acknowledge break the protocol.
const MAX_CONTROL_BYTES: usize = 4 << 20;
/// Undelivered blocks remembered per stream, for the blocks that depend on them.
const MAX_UNDELIVERED_RANGES: usize = 256;
/// How long a path may be left idle for a better one before the choice is made anew.
const RECHECK: Duration = Duration::from_millis(5);
/// Of the time that a deadline leaves, this part may be spent in a path's queue; the rest is for waiting and recovery.
const QUEUE_SHARE: u32 = 3;
/// Blocks with a deadline of up to this are awaited by people, who notice each part of it.
const INTERACTIVE: Duration = Duration::from_secs(1);
const LEAST_QUEUE_BOUND: Duration = Duration::from_millis(20);
const OVERLOAD_INTERVAL: Duration = Duration::from_secs(1);
/// Events beyond this are dropped when the application does not take them; those of blocks of ours never.
const MAX_EVENTS: usize = 1 << 16;

/// One session between two peers over any number of paths. See the [crate] for the way to drive it.
#[derive(Debug)]
pub struct Session {
    config: SessionConfig,
    side: Side,
    closed: bool,
    now: Instant,
    /// When [`Session::handle_timeout`] was called last. Inputs may come before the timers of the same instant.
    timers_done: Instant,
    paths: Paths,
    clocks: Clocks,
    streams: BTreeMap<StreamId, Stream>,
    numbers: StreamNumbers,
    ended: EndedStreams,
    scheduler: Box<dyn Scheduler>,
    blocks_out: BlocksOut,
    bytes_out: BytesOut,
    inbound: Inbound,
    shares: Shares,
    control: ControlStream,
    acks: AckSchedule,
    /// The path by which the peer acknowledged last.
    answers_over: Option<PathId>,
    /// Paths that fell silent when no other was left.
    unreleased: Vec<PathId>,
    /// What our detectors say of paths, and what the peer's do.
    outgoing_signals: OutgoingSignals,
    incoming_signals: IncomingSignals,
    /// Paths that the peer removed for good, until they are asked for.
    gone_paths: VecDeque<PathId>,
    events: VecDeque<Event>,
    /// How many of them no other bound limits.
    unbounded_events: usize,
    observers: Observers,
    bottlenecks: SharedBottlenecks,
    recheck_at: Option<Instant>,
    /// Counts for [`Session::poll_requests`].
    poll_requests: u64,
    overload_at: Option<Instant>,
    /// Empty between two calls: datagrams whose fate became known.
    fated: Vec<Fated<Item>>,
    /// What datagrams are written into.
    slab: BytesMut,
}

#[derive(Debug)]
struct Stream {
    config: StreamConfig,
    stats: StreamStats,
    kind: Kind,
}

#[derive(Debug)]
enum Kind {
    Sending(SendBlocks),
    Receiving(ReceiveBlocks),
    Bytes(Box<BytesPair>),
}

/// Our own deadline stream.
#[derive(Debug)]
struct SendBlocks {
    next: u64,
    live: u64,
    finished: bool,
    undelivered: RangeSet,
    /// Undelivered blocks the peer has not been told of.
    untold: RangeSet,
}

#[derive(Debug)]
struct BytesPair {
    send: SendBytes,
    receive: ReceiveBytes,
    /// Its place among the streams that have something to send.
    turn: Option<u64>,
    /// Until when the application counts as having more to send than it was given room for.
    bulk_until: Option<Instant>,
}

impl Session {
    /// A session without paths, with the scheduler that is usual. Both sides begin when their first path is up; the clocks need not agree.
    pub fn new(config: SessionConfig, side: Side, now: Instant) -> Self {
        Self::with_scheduler(config, side, now, SchedulerChoice::default().build())
    }

    /// The same with another choice of paths.
    pub fn with_scheduler(
        config: SessionConfig,
        side: Side,
        now: Instant,
        scheduler: Box<dyn Scheduler>,
    ) -> Self {
        let blocks_out = BlocksOut::new(now, config.priority_weight, config.max_fragment_bytes);
        Self {
            config,
            side,
            closed: false,
            now,
            timers_done: now,
            paths: Paths::default(),
            clocks: Clocks::new(now),
            streams: BTreeMap::new(),
            numbers: StreamNumbers::new(side),
            ended: EndedStreams::default(),
            scheduler,
            blocks_out,
            bytes_out: BytesOut::default(),
            inbound: Inbound::default(),
            shares: Shares::default(),
            control: ControlStream::new(),
            acks: AckSchedule::default(),
            answers_over: None,
            unreleased: Vec::new(),
            outgoing_signals: OutgoingSignals::default(),
            incoming_signals: IncomingSignals::default(),
            gone_paths: VecDeque::new(),
            events: VecDeque::new(),
            unbounded_events: 0,
            observers: Observers::default(),
            bottlenecks: SharedBottlenecks::default(),
            recheck_at: None,
            poll_requests: 0,
            overload_at: None,
            fated: Vec::new(),
            slab: BytesMut::new(),
        }
    }

    /// Passes all facts from now on to `observer` too: for logs and measurements, which the session itself does not keep.
    pub fn observe(&mut self, observer: Box<dyn Observer>) {
        self.observers.add(observer);
    }

    /// A path came up. `cost` is the price per byte; only its order matters. Replaces a path of the same number.
    pub fn add_path(&mut self, now: Instant, path: PathId, cost: f64, update: PathUpdate) {
        self.advance(now);
        self.remove_path(now, path);
        self.paths.add(self.now, path, cost, update);
        let cost = self
            .paths
            .get(path)
            .map_or(cost, |path| path.monitor.cost());
        self.observers
            .note(self.now, || Fact::PathUp { path, cost });
    }

    /// A path is gone; what was on it and not acknowledged goes over the others.
    pub fn remove_path(&mut self, now: Instant, path: PathId) {
        self.advance(now);
        if let Some(mut gone) = self.paths.remove(path) {
            self.observers.note(self.now, || Fact::PathDown { path });
            for fated in gone.monitor.release() {
                self.on_datagram_lost(path, &fated);
            }
        }
        self.lose_answers(&[path]);
        self.bottlenecks.forget(path);
        self.outgoing_signals.forget(path);
        self.control.on_path_gone(path);
        self.settle();
    }

    /// The price of a path changes; the peer is told. Only the side that opens the paths may say so.
    pub fn set_path_cost(&mut self, now: Instant, path: PathId, cost: f64) {
        self.advance(now);
        self.paths.set_cost(path, cost);
        self.note_cost(path, cost);
        self.tell(&control::Control::Cost { path, cost });
    }

    /// A path that this side opened is removed for good; the peer is told. Its connection may be dead and tell nothing.
    pub fn tell_path_gone(&mut self, now: Instant, path: PathId) {
        self.advance(now);
        self.tell(&control::Control::Gone { path });
    }

    /// The next path that the peer, which opened it, has removed for good.
    pub fn poll_gone_path(&mut self) -> Option<PathId> {
        self.gone_paths.pop_front()
    }

    fn note_cost(&mut self, path: PathId, cost: f64) {
        if self.has_path(path) {
            self.observers
                .note(self.now, || Fact::PathCost { path, cost });
        }
    }

    /// Refreshes what the transport below knows of a path; do so before each use.
    pub fn update_path(&mut self, now: Instant, path: PathId, update: PathUpdate) {
        self.advance(now);
        if let Some(path) = self.paths.get_mut(path) {
            path.monitor.update(now, update);
        }
    }

    /// What a modem tells of the losses of a path ([`PathMonitor::set_told_loss`](starhaul_paths::PathMonitor::set_told_loss)); to say the
    /// same again changes nothing.
    pub fn set_told_loss(&mut self, path: PathId, share: Option<f64>) {
        if let Some(path) = self.paths.get_mut(path) {
            path.monitor.set_told_loss(share);
        }
    }

    /// Takes a signal of a detector at this end, for the controller of the peer's direction. A reconfiguration is repeated in several
    /// acknowledgements; segment RTTs go at times, in acknowledgements that leave anyway.
    pub fn tell_signal(&mut self, now: Instant, path: PathId, signal: PathSignal) {
        self.advance(now);
        if self.has_path(path) {
            self.outgoing_signals.tell(self.now, path, signal);
        }
    }

    /// Whether the path is up.
    pub fn has_path(&self, path: PathId) -> bool {
        self.paths.get(path).is_some()
    }

    /// When something other than probes and acknowledgements was last sent or received over `path`.
    pub fn path_used_at(&self, path: PathId) -> Option<Instant> {
        Some(self.paths.get(path)?.busy_at)
    }

    /// What the peer's detectors say of paths, oldest first, each event once, and what trains showed of them; take them after every datagram. The oldest are
    /// dropped when the caller does not.
    pub fn poll_path_signal(&mut self) -> Option<(PathId, PathSignal)> {
        self.incoming_signals.take()
    }

    /// What the deadlines of the last seconds ask of the queue of `path`. Datagrams may wait in it for a third of what the shortest deadline
    /// leaves after the way itself, and at least for a quarter of the round trip. It is short where an application waits for such blocks while
    /// byte streams take all that the path carries.
    pub fn queue_wish(&self, now: Instant, path: PathId) -> QueueWish {
        let deadline = self.blocks_out.shortest_deadline(now);
        let (Some(deadline), Some(path)) = (deadline, self.paths.get(path)) else {
            return QueueWish::default();
        };
        let least_rtt = path.monitor.min_rtt();
        let spare = deadline.saturating_sub(least_rtt / 2) / QUEUE_SHARE;
        QueueWish {
            bound: Some(spare.max(least_rtt / 4).max(LEAST_QUEUE_BOUND)),
            short: deadline <= INTERACTIVE && self.bytes_out.has_bulk(now),
        }
    }

    /// The next event; drain after every input.
    pub fn poll_event(&mut self) -> Option<Event> {
        let event = self.events.pop_front()?;
        match &event {
            Event::BlockReceived { data, .. } => self.inbound.release(data),
            event if has_own_bound(event) => {}
            _ => self.unbounded_events -= 1,
        }
        Some(event)
    }

    /// When [`Session::handle_timeout`] wants to be called, also when that instant passed while inputs were taken. What only waits for
    /// a path that may send is told once.
    pub fn poll_timeout(&self) -> Option<Instant> {
        if self.closed {
            return None;
        }
        let paths = || self.paths.iter().map(|(_, path)| path);
        // These are done by `handle_timeout`, and then over.
        let overdue = paths().filter_map(|path| path.monitor.overdue_at());
        let silent = paths().filter_map(|path| path.monitor.silence_deadline());
        let done_here = overdue
            .chain(silent)
            .chain(self.blocks_out.next_expiry())
            .chain(self.next_release());
        // These are done by a path that is asked for a datagram, which it may not be allowed at once.
        let acks = self.ack_due().map(|due| {
            [
                due,
                due + output::ACK_PATIENCE,
                due + output::SPARED_ACK_PATIENCE,
            ]
        });
        let asked_for = paths()
            .map(|path| path.probe_at)
            .chain(acks.into_iter().flatten())
            .chain(self.recheck_at);
        let asked_for = asked_for.filter(|at| *at > self.timers_done);
        done_here.chain(asked_for).min()
    }

    /// Time has passed: finds what is lost, expired or silent. Then poll for datagrams and events.
    pub fn handle_timeout(&mut self, now: Instant) {
        self.advance(now);
        self.timers_done = self.now;
        self.recheck_at = self.recheck_at.filter(|at| *at > self.now);
        self.find_silent_paths();
        self.find_lost();
        self.blocks_out.expire(self.now, &self.paths);
        self.release_due();
        self.make_room();
        self.compare_paths();
        self.settle();
    }

    /// The session ends: every block that has not ended fails, and nothing is sent any more.
    pub fn close(&mut self, now: Instant) {
        self.advance(now);
        for key in self.blocks_out.keys() {
            self.blocks_out.end(now, key, crate::types::Outcome::Failed);
        }
        self.settle();
        if !std::mem::replace(&mut self.closed, true) {
            let open = self.streams.values().map(|stream| stream.stats.clone());
            open.for_each(|stats| self.ended.push(stats));
        }
    }

    /// Figures of every open stream, and of the last 256 deadline streams that have ended.
    pub fn stream_stats(&self) -> Vec<StreamStats> {
        let open = self.streams.values().map(|stream| &stream.stats);
        self.ended.latest().chain(open).cloned().collect()
    }

    /// Last figures of each stream that has ended since the last call, also of those that ended with the session. Beyond 1024 the
    /// oldest are added up as one without a label, which says as many bytes and blocks.
    pub fn take_ended_streams(&mut self) -> Vec<StreamStats> {
        self.ended.take()
    }

    /// What the scheduler has decided.
    pub fn scheduler_status(&self) -> SchedulerStatus {
        self.scheduler.status()
    }

    /// Reliable streams whose bytes wait because the peer's application has not read those before.
    pub fn streams_without_credit(&self) -> Vec<StreamId> {
        let waits = |stream: &Stream| {
            let pair = stream.pair();
            pair.is_some_and(|pair| pair.send.waits_for_credit())
        };
        let waiting = self.streams.iter().filter(|(_, stream)| waits(stream));
        waiting.map(|(id, _)| *id).collect()
    }

    /// Figures of every path.
    pub fn path_stats(&self) -> Vec<PathStats> {
        self.paths
            .iter()
            .map(|(id, path)| PathStats::new(id, path))
            .collect()
    }

    /// How often a received block, or what had come of one, was dropped: fragments exceeded `max_receive_bytes`, or the application did
    /// not take it. A block of which more comes afterwards may be dropped again.
    pub fn dropped_on_receipt(&self) -> u64 {
        self.inbound.dropped
    }

    /// Bytes kept for sending and for receiving; bounded by the configuration, but for at most 4 MiB of control messages that the
    /// peer has not acknowledged, and 64 KiB for each of its reliable streams.
    pub fn held_bytes(&self) -> (usize, usize) {
        let pairs = self.streams.values().filter_map(Stream::pair);
        let early = self.inbound.early_bytes.values();
        let received = pairs.map(|pair| &pair.receive).chain(early);
        let control = &self.control;
        (
            self.held_for_sending() + control.held_for_sending(),
            self.inbound.held_bytes
                + received.map(ReceiveBytes::held_bytes).sum::<usize>()
                + control.held_of_peer(),
        )
    }

    fn held_for_sending(&self) -> usize {
        let streams = usize::try_from(self.bytes_out.held()).unwrap_or(usize::MAX);
        self.blocks_out.held_bytes + streams
    }

    /// Time never runs backwards inside.
    fn advance(&mut self, now: Instant) {
        self.now = self.now.max(now);
    }

    /// A path may be heard again after all were silent.
    pub(super) fn on_heard_again(&mut self) {
        if !self.unreleased.is_empty() {
            self.find_silent_paths();
        }
    }

    fn find_silent_paths(&mut self) {
        let now = self.now;
        let mut suspects: Vec<_> = self
            .paths
            .iter_mut()
            .filter_map(|(id, path)| {
                path.monitor.on_timeout(now).then(|| {
                    path.probe_soon(now);
                    id
                })
            })
            .collect();
        for id in &suspects {
            self.observers.note(now, || Fact::PathSilent { path: *id });
        }
        // While all are silent nothing can leave elsewhere; when one is heard again, what the others have is given up.
        if self.paths.all_silent() {
            self.unreleased.extend(suspects);
            return;
        }
        let is_silent = |id: &PathId| {
            let path = self.paths.get(*id);
            path.is_some_and(|path| path.monitor.is_suspect())
        };
        suspects.extend(self.unreleased.drain(..).filter(is_silent));
        if suspects.is_empty() {
            return;
        }
        self.lose_answers(&suspects);
        let (soonest, over) = (self.paths.soonest(now), self.paths.bandwidth());
        let is_dear = self
            .paths
            .usable()
            .all(|(_, path)| path.monitor.cost() >= LAST_RESORT);
        for id in suspects {
            let Some(path) = self.paths.get_mut(id) else {
                continue;
            };
            let (blocks, rates) = (&self.blocks_out, [path.monitor.bandwidth(), over]);
            // Over the last resort bytes wait a little longer: see `rules::takes_frame`.
            let waits = is_dear && path.monitor.cost() < LAST_RESORT;
            let cannot_wait = |overdue_at: Instant, item: Item| match item {
                Item::Fragment { block, .. } => {
                    blocks.cannot_wait(block, overdue_at, soonest, rates)
                }
                Item::Frame { stream, .. } => !waits || stream == StreamId::CONTROL,
                _ => true,
            };
            let released = path.monitor.release_urgent(cannot_wait);
            for fated in released {
                self.on_datagram_lost(id, &fated);
            }
        }
        self.blocks_out.on_silence(now, &self.paths);
    }

    /// These paths bring no acknowledgements any more. Those of other paths may have come over them.
    fn lose_answers(&mut self, gone: &[PathId]) {
        if self
            .answers_over
            .take_if(|over| gone.contains(over))
            .is_none()
        {
            return;
        }
        for (_, path) in self.paths.iter_mut().filter(|(id, _)| !gone.contains(id)) {
            path.monitor.on_answers_moved();
        }
    }

    /// An acknowledgement came over a path. Those over the last resort may move to another path at any time, which the peer does not announce.
    fn note_answer(&mut self, path: PathId) {
        self.answers_over = Some(path);
        if self.paths.is_last_resort(path) {
            for (_, other) in self.paths.iter_mut().filter(|(id, _)| *id != path) {
                other.monitor.on_answers_moved();
            }
        }
    }

    fn emit(&mut self, event: Event) {
        match &event {
            // Others make room first: see `make_room`.
            Event::BlockReceived { data, .. } => self.inbound.hold(data),
            event if has_own_bound(event) => {}
            _ if self.unbounded_events >= MAX_EVENTS => return,
            _ => self.unbounded_events += 1,
        }
        self.events.push_back(event);
    }

    /// Drops the oldest received blocks that the application did not take.
    fn make_room_for_events(&mut self) {
        while self.inbound.held_bytes > self.config.max_receive_bytes / 2 {
            let oldest = self
                .events
                .iter()
                .position(|event| matches!(event, Event::BlockReceived { .. }));
            let Some(Event::BlockReceived { data, .. }) =
                oldest.and_then(|at| self.events.remove(at))
            else {
                return;
            };
            self.inbound.release(&data);
            self.inbound.dropped += 1;
        }
    }
}

/// Whether something else limits how many of such events wait: memory, blocks, or one for each stream until it is taken. Something waits
/// for each of them.
const fn has_own_bound(event: &Event) -> bool {
    matches!(
        event,
        Event::BlockReceived { .. }
            | Event::BlockOutcome { .. }
            | Event::Readable(_)
            | Event::Writable(_)
    )
}
