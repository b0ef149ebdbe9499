//! The session itself: joins streams, blocks, paths and acknowledgements.

mod acks;
mod available;
mod blocks;
mod calls;
mod frames;
mod input;
mod ordered;
mod output;
mod runs;
mod writing;

use std::time::{Duration, Instant};

use starhaul_cc::{PathSignal, QueueWish};
use starhaul_paths::{Fated, PathId, PathUpdate};

use crate::{
    choice::SchedulerChoice,
    clocks::Clocks,
    control,
    control_stream::ControlStream,
    events::Events,
    facts::{Fact, Observer, Observers},
    item::Item,
    paths::{LAST_RESORT, Paths},
    receive::inbound::Inbound,
    received::AckSchedule,
    scheduler::{Scheduler, SchedulerStatus},
    send::{BlocksOut, bytes_out::BytesOut},
    signals::Signals,
    slab::Slab,
    stats::{PathStats, StreamStats},
    streams::Streams,
    thrifty::Thrifty,
    timers::Timers,
    types::{Event, SessionConfig, Side, StreamId},
};

/// Control messages beyond this that the peer does not acknowledge break the protocol.
const MAX_CONTROL_BYTES: usize = 4 << 20;
/// Of the time that a deadline leaves, this part may be spent in a path's queue; the rest is for waiting and recovery.
const QUEUE_SHARE: u32 = 3;
/// Blocks with a deadline of up to this are awaited by people, who notice each part of it.
const INTERACTIVE: Duration = Duration::from_secs(1);
const LEAST_QUEUE_BOUND: Duration = Duration::from_millis(20);

/// One session between two peers over any number of paths. See the [crate] for the way to drive it.
#[derive(Debug)]
pub struct Session {
    config: SessionConfig,
    side: Side,
    closed: bool,
    clocks: Clocks,
    timers: Timers,
    paths: Paths,
    streams: Streams,
    scheduler: Box<dyn Scheduler>,
    blocks_out: BlocksOut,
    bytes_out: BytesOut,
    inbound: Inbound,
    control: ControlStream,
    acks: AckSchedule,
    signals: Signals,
    events: Events,
    observers: Observers,
    /// Counts for [`Session::poll_requests`].
    poll_requests: u64,
    /// Empty between two calls: datagrams whose fate became known.
    fated: Vec<Fated<Item>>,
    /// Empty between two calls: datagrams that arrived together.
    run: runs::StreamRun,
    slab: Slab,
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
        let inbound = Inbound::new(config.max_receive_bytes);
        let streams = Streams::new(side, config.max_streams);
        let (mut paths, mut scheduler) = (Paths::default(), scheduler);
        if let Some(budget) = config.budget {
            paths.set_budget(now, budget);
            scheduler = Box::new(Thrifty::new(scheduler));
        }
        Self {
            config,
            side,
            closed: false,
            clocks: Clocks::new(now),
            timers: Timers::new(now),
            paths,
            streams,
            scheduler,
            blocks_out,
            bytes_out: BytesOut::default(),
            inbound,
            control: ControlStream::new(),
            acks: AckSchedule::default(),
            signals: Signals::default(),
            events: Events::default(),
            observers: Observers::default(),
            poll_requests: 0,
            fated: Vec::new(),
            run: runs::StreamRun::default(),
            slab: Slab::default(),
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
        self.paths.add(self.clocks.now(), path, cost, update);
        let cost = self
            .paths
            .get(path)
            .map_or(cost, |path| path.monitor.cost());
        self.observers
            .note(self.clocks.now(), || Fact::PathUp { path, cost });
    }

    /// A path is gone; what was on it and not acknowledged goes over the others.
    pub fn remove_path(&mut self, now: Instant, path: PathId) {
        self.advance(now);
        if let Some(mut gone) = self.paths.remove(path) {
            self.observers
                .note(self.clocks.now(), || Fact::PathDown { path });
            for fated in gone.monitor.release() {
                self.on_datagram_lost(path, &fated);
            }
        }
        self.signals.forget(path);
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
        self.paths.take_gone_at_peer()
    }

    fn note_cost(&mut self, path: PathId, cost: f64) {
        if self.has_path(path) {
            self.observers
                .note(self.clocks.now(), || Fact::PathCost { path, cost });
        }
    }

    /// Refreshes what the transport below knows of a path; do so before each use.
    pub fn update_path(&mut self, now: Instant, path: PathId, update: PathUpdate) {
        self.advance(now);
        self.paths.update(now, path, update);
    }

    /// What a modem tells of the losses of a path ([`PathMonitor::set_told_loss`](starhaul_paths::PathMonitor::set_told_loss)); to say the
    /// same again changes nothing.
    pub fn set_told_loss(&mut self, path: PathId, share: Option<f64>) {
        self.paths.set_told_loss(path, share);
    }

    /// Takes a signal of a detector at this end, for the controller of the peer's direction. A reconfiguration is repeated in several
    /// acknowledgements; segment RTTs go at times, in acknowledgements that leave anyway.
    pub fn tell_signal(&mut self, now: Instant, path: PathId, signal: PathSignal) {
        self.advance(now);
        if self.has_path(path) {
            self.signals.tell(self.clocks.now(), path, signal);
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
        self.signals.take()
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
        self.events.take(&mut self.inbound)
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
            .chain(acks.into_iter().flatten());
        done_here.chain(self.timers.next_asked_for(asked_for)).min()
    }

    /// Time has passed: finds what is lost, expired or silent. Then poll for datagrams and events.
    pub fn handle_timeout(&mut self, now: Instant) {
        self.advance(now);
        self.timers.on_timeout(self.clocks.now());
        self.find_silent_paths();
        self.find_lost();
        self.blocks_out.expire(self.clocks.now(), &self.paths);
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
            self.streams.on_close();
        }
    }

    /// Figures of every open stream, and of the last 256 deadline streams that have ended.
    pub fn stream_stats(&self) -> Vec<StreamStats> {
        self.streams.stats()
    }

    /// Last figures of each stream that has ended since the last call, also of those that ended with the session. Beyond 1024 the
    /// oldest are added up as one without a label, which says as many bytes and blocks.
    pub fn take_ended_streams(&mut self) -> Vec<StreamStats> {
        self.streams.take_ended()
    }

    /// What the scheduler has decided.
    pub fn scheduler_status(&self) -> SchedulerStatus {
        SchedulerStatus {
            spending: self.paths.spending_status(self.clocks.now()),
            ..self.scheduler.status()
        }
    }

    /// Reliable streams whose bytes wait because the peer's application has not read those before.
    pub fn streams_without_credit(&self) -> Vec<StreamId> {
        self.streams.without_credit()
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
        self.inbound.dropped()
    }

    /// Bytes kept for sending and for receiving, with pages for bytes to come; bounded by the configuration, but for at most 4 MiB of control messages that the
    /// peer has not acknowledged, and 64 KiB for each of its reliable streams.
    pub fn held_bytes(&self) -> (usize, usize) {
        let (streams, control) = (&self.streams, &self.control);
        (
            self.held_for_sending() + control.held_for_sending(),
            self.inbound.held_bytes() + streams.received_bytes() + control.held_of_peer(),
        )
    }

    fn held_for_sending(&self) -> usize {
        let streams = usize::try_from(self.bytes_out.held()).unwrap_or(usize::MAX);
        self.blocks_out.held_bytes + streams
    }

    /// Time never runs backwards inside.
    fn advance(&mut self, now: Instant) {
        self.clocks.advance(now);
        self.paths.allot(self.clocks.now());
    }

    /// A path may be heard again after all were silent.
    pub(super) fn on_heard_again(&mut self) {
        if self.paths.awaits_another() {
            self.find_silent_paths();
        }
    }

    fn find_silent_paths(&mut self) {
        let now = self.clocks.now();
        let silence = self.paths.find_silent(now);
        for path in silence.fallen {
            self.observers.note(now, || Fact::PathSilent { path });
        }
        if silence.released.is_empty() {
            return;
        }
        let (soonest, over) = (self.paths.soonest(now), self.paths.bandwidth());
        let is_dear = self
            .paths
            .usable()
            .all(|(_, path)| path.monitor.cost() >= LAST_RESORT);
        for id in silence.released {
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

    /// Observers are told which paths seem to share a bottleneck; without one nothing is compared.
    fn compare_paths(&mut self) {
        if self.observers.is_empty() {
            return;
        }
        for (paths, is_shared) in self.paths.compare(self.clocks.now()) {
            self.observers
                .note(self.clocks.now(), || Fact::BottleneckShared {
                    paths,
                    is_shared,
                });
        }
    }

    fn emit(&mut self, event: Event) {
        self.events.push(event, &mut self.inbound);
    }
}
