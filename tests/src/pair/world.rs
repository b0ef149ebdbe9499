//! Executes a plan: two sessions, the links between them, and the ledger that checks them.

use std::{
    collections::BTreeSet,
    hash::{DefaultHasher, Hash, Hasher},
    time::{Duration, Instant},
};

use bytes::Bytes;
use starhaul_cc::{PathEnd, PathSignal, Reconfiguration, ReconfigurationSource};
use starhaul_session::{Budget, Event, Mode, Session, SessionConfig, StreamError};

use super::{
    ledger::Ledger,
    links::{Happening, Life, Links},
    operation::{Forgery, Operation, Plan, SLOTS, Side},
};

/// Time after the links have healed in which everything must end: the longest deadline, and time for queued data.
const PATIENCE: Duration = Duration::from_secs(120);
/// Steps at one instant beyond which the sessions count as spinning.
const MAX_STEPS_AT_ONCE: u32 = 10_000;
/// Bound of control messages in flight: a few for each stream of a run.
const MOST_CONTROL_BYTES: usize = 200_000;
/// Datagrams of a train.
const TRAIN: usize = 10;
/// Memory of a page of a stream.
const PAGE_BYTES: usize = 4096 + 1024;
/// Bytes that a reliable stream may send before the first credit.
const FIRST_CREDIT_BYTES: usize = 64 << 10;
/// Below this the transport under a session carries no datagrams (RFC 9000 §14).
const LEAST_DATAGRAM: usize = 1150;

/// The results of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Report {
    /// Digest of all datagrams and events; the same plan gives the same.
    pub digest: u64,
    /// Session datagrams sent.
    pub datagrams: u64,
    /// Blocks that the sessions accepted.
    pub blocks: usize,
    /// Blocks of these that arrived.
    pub received: usize,
    /// Bytes read from reliable streams.
    pub bytes_read: u64,
}

/// Executes `plan`.
///
/// # Panics
/// A session breaks a promise.
pub fn run(plan: &Plan) -> Report {
    let mut world = World::new(plan);
    for operation in &plan.operations {
        world.perform(operation);
        world.drain();
        if world.is_over {
            break;
        }
    }
    world.finish();
    world.report()
}

pub(super) struct World<'a> {
    pub(super) plan: &'a Plan,
    pub(super) now: Instant,
    pub(super) sessions: [Session; 2],
    pub(super) links: Links,
    pub(super) ledger: Ledger,
    /// Both sides read everything and end their streams.
    pub(super) is_ending: bool,
    pub(super) is_over: bool,
    digest: DefaultHasher,
    datagrams: u64,
}

impl<'a> World<'a> {
    fn new(plan: &'a Plan) -> Self {
        // Any start will do: nothing depends on the wall clock.
        let start = Instant::now() + Duration::from_secs(1000);
        let config = SessionConfig {
            max_send_bytes: plan.max_send_bytes,
            max_receive_bytes: plan.max_receive_bytes,
            ..SessionConfig::default()
        };
        use starhaul_session::Side::{Client, Server};
        // The clocks of the sides differ.
        let sessions = [
            Session::new(config.clone(), Client, start - Duration::from_secs(7)),
            Session::new(config, Server, start),
        ];
        let mut world = Self {
            plan,
            now: start,
            sessions,
            links: Links::new(plan.seed, plan.reports_losses),
            ledger: Ledger::default(),
            is_ending: false,
            is_over: false,
            digest: DefaultHasher::new(),
            datagrams: 0,
        };
        world.links.bring_up(start, 0, 0, true, 1);
        world.links.bring_up(start, 0, 1, true, 1);
        world
    }

    fn perform(&mut self, operation: &Operation) {
        let now = self.now;
        match *operation {
            Operation::Open { .. } => self.open(operation),
            Operation::Send { .. } => self.send(operation),
            Operation::Update {
                side,
                block,
                deadline,
                priority,
            } => {
                if let Some((stream, block)) = nth(&self.ledger.live_blocks(side), block) {
                    ignore(
                        self.sessions[side].update_block(now, stream, block, deadline, priority),
                    );
                }
            }
            Operation::Retreat { side, block } => {
                if let Some((stream, block)) = nth(&self.ledger.live_blocks(side), block)
                    && self.sessions[side].retreat(now, stream, block).is_ok()
                {
                    self.ledger.on_retreated(stream, block);
                }
            }
            Operation::Finish { side, stream } => {
                if let Some(stream) = nth(&self.writable_by(side), stream) {
                    self.finish_direction(side, stream);
                }
            }
            Operation::Write {
                side,
                stream,
                bytes,
            } => self.write(side, stream, bytes),
            Operation::Read { side, stream, max } => {
                if let Some(stream) = nth(&self.reliable_of(side), stream) {
                    self.read(side, stream, max);
                }
            }
            Operation::Reset { side, stream, code } => {
                if let Some(stream) = nth(&self.reliable_of(side), stream)
                    && self.sessions[side].reset(now, stream, code).is_ok()
                {
                    let reset = &mut self.ledger.stream(stream).bytes[side].reset;
                    *reset = reset.or(Some(code));
                }
            }
            Operation::Stop { side, stream, code } => {
                if let Some(stream) = nth(&self.reliable_of(side), stream)
                    && self.sessions[side].stop(now, stream, code).is_ok()
                {
                    let stopped = &mut self.ledger.stream(stream).bytes[1 - side].stopped;
                    *stopped = stopped.or(Some(code));
                }
            }
            Operation::Advance(time) => self.advance(time),
            Operation::Stall(time) => self.stall(time),
            Operation::PathUp {
                first,
                slot,
                rejoins,
                ways,
            } => self.links.bring_up(now, first, slot, rejoins, ways),
            Operation::PathDown { first, slot } => self.links.take_down(now, first, slot),
            Operation::Condition { slot, condition } => {
                self.links.slots[slot].condition = condition
            }
            Operation::Outage { slot, time } => self.links.outage(slot, now + time),
            Operation::Meddle { datagram, how } => self.links.meddle(now, datagram, how),
            Operation::Events { side, taken } => self.ledger.unheard[side] = !taken,
            Operation::Signal { side, slot, ago } => self.tell_signal(side, slot, ago),
            Operation::Train { side, slot } => self.send_train(side, slot),
            Operation::NonsenseReport { side, slot, ahead } => self.nonsense(side, slot, ahead),
            Operation::Forge { side, ref forgery } if self.plan.is_hostile => {
                self.forge(side, forgery)
            }
            Operation::Forge { .. } => {}
        }
    }

    fn tell_signal(&mut self, side: Side, slot: usize, ago: Duration) {
        let Some(path) = self.links.slots[slot].up[side] else {
            return;
        };
        let event = Reconfiguration {
            at: self.now - ago,
            outage: ago,
            source: ReconfigurationSource::Probe,
            confidence: 0.9,
        };
        let (end, rtt) = (PathEnd::Local, ago);
        for signal in [
            PathSignal::Reconfiguration(event),
            PathSignal::SegmentRtt { end, rtt },
        ] {
            self.sessions[side].tell_signal(self.now, path.id, signal);
        }
        self.ledger.signals_told[side] += 1;
    }

    fn send_train(&mut self, side: Side, slot: usize) {
        let Some(path) = self.links.slots[slot].up[side] else {
            return;
        };
        let bytes = self.links.slots[slot].condition.max_datagram;
        let train = self.sessions[side].poll_train(self.now, path.id, TRAIN, bytes, 38);
        assert_eq!(train.len(), TRAIN);
        for datagram in train {
            assert_eq!(datagram.payload.len(), bytes);
            let (payload, sequence) = (datagram.payload, datagram.sequence);
            self.links.send(self.now, side, slot, payload, sequence);
        }
    }

    /// No event arrives twice, or from the future.
    fn drain_signals(&mut self, side: Side) {
        while let Some((path, signal)) = self.sessions[side].poll_path_signal() {
            match signal {
                PathSignal::Reconfiguration(event) => {
                    assert!(event.at <= self.now, "a detector saw the future");
                    assert_eq!(event.source, ReconfigurationSource::Peer);
                    self.ledger.on_signal(side);
                    (path, self.now - event.at, event.outage).hash(&mut self.digest);
                }
                PathSignal::SegmentRtt { rtt, .. } => (path, rtt).hash(&mut self.digest),
                PathSignal::TrainRate(rate) => (path, rate).hash(&mut self.digest),
            }
        }
    }

    fn nonsense(&mut self, side: Side, slot: usize, ahead: u32) {
        let Some(path) = self.links.slots[slot].up[side] else {
            return;
        };
        // Numbers far ahead of any that was sent in a run.
        let sequence = (1 << 30) + (ahead >> 3);
        self.sessions[side].handle_transport_acks(self.now, path.id, [sequence]);
        self.sessions[side].handle_transport_loss(self.now, path.id, sequence);
    }

    fn forge(&mut self, to: Side, forgery: &Forgery) {
        let (to, path, payload) = match forgery {
            Forgery::Changed { datagram, at, xor } => {
                let Some(key) = self.links.nth_arrival(*datagram) else {
                    return;
                };
                let Happening::Arrival { to, path, payload } = &self.links.coming[&key] else {
                    return;
                };
                let mut payload = payload.to_vec();
                if let Some(at) = at.checked_rem(payload.len()) {
                    payload[at] ^= xor;
                }
                (*to, *path, payload)
            }
            Forgery::Bytes { kind, body } => {
                let Some(path) = (0..SLOTS).find_map(|slot| self.links.slots[slot].up[to]) else {
                    return;
                };
                let mut payload = vec![*kind];
                payload.extend_from_slice(body);
                (to, path, payload)
            }
        };
        if self.links.is_up(to, path) {
            self.ledger.is_tainted = true;
            let result = self.sessions[to].handle_datagram(self.now, path.id, payload.into());
            self.is_over |= result.is_err();
        }
    }

    /// Advances time, with all events on the way.
    fn advance(&mut self, time: Duration) {
        let until = self.now + time;
        let mut steps = 0;
        while !self.is_over {
            self.drain();
            let coming = self.links.coming.first_key_value().map(|((at, _), _)| *at);
            let timeouts = self.sessions.iter().filter_map(Session::poll_timeout);
            let Some(next) = timeouts.chain(coming).min().filter(|at| *at <= until) else {
                break;
            };
            steps = if next > self.now { 0 } else { steps + 1 };
            assert!(steps < MAX_STEPS_AT_ONCE, "the sessions spin");
            self.now = self.now.max(next);
            while let Some(((at, _), _)) = self.links.coming.first_key_value()
                && *at <= self.now
                && let Some((_, happening)) = self.links.coming.pop_first()
            {
                self.happen(happening);
            }
            for session in &mut self.sessions {
                if session.poll_timeout().is_some_and(|at| at <= self.now) {
                    session.handle_timeout(self.now);
                }
            }
        }
        self.now = self.now.max(until);
        self.sessions
            .iter_mut()
            .for_each(|session| session.handle_timeout(until));
    }

    /// Advances time without calling the sessions. Then the inputs are delivered, and last the timers: none is lost,
    /// and none fires twice.
    fn stall(&mut self, time: Duration) {
        self.drain();
        self.now += time;
        while let Some(((at, _), _)) = self.links.coming.first_key_value()
            && *at <= self.now
            && !self.is_over
            && let Some((_, happening)) = self.links.coming.pop_first()
        {
            self.happen(happening);
        }
        for (side, session) in self.sessions.iter_mut().enumerate() {
            if session.poll_timeout().is_some_and(|at| at <= self.now) {
                session.handle_timeout(self.now);
            }
            let next = session.poll_timeout();
            assert!(
                next.is_none_or(|at| at > self.now),
                "side {side} is told again"
            );
        }
    }

    fn happen(&mut self, happening: Happening) {
        match happening {
            Happening::Arrival { to, path, payload } => self.arrive(to, path, payload),
            Happening::Up { side, slot, path } => {
                let update = self.links.set_up(side, slot, path);
                self.sessions[side].add_path(self.now, path.id, slot as f64, update);
            }
            Happening::Down { side, path } => {
                if self.links.is_up(side, path) {
                    self.links.set_down(side, path);
                    self.sessions[side].remove_path(self.now, path.id);
                }
            }
            Happening::Fate {
                side,
                path,
                sequence,
                bytes,
                arrived,
            } => {
                if !self.links.is_up(side, path) {
                    return;
                }
                self.links.settle(side, path, bytes);
                let session = &mut self.sessions[side];
                if arrived && self.plan.reports_acks {
                    session.handle_transport_acks(self.now, path.id, [sequence]);
                } else if !arrived && self.plan.reports_losses {
                    session.handle_transport_loss(self.now, path.id, sequence);
                }
            }
        }
    }

    fn arrive(&mut self, to: Side, path: Life, payload: Bytes) {
        if !self.links.is_up(to, path) {
            self.links.on_unheard(to, path, &payload);
            return;
        }
        if let Err(error) = self.sessions[to].handle_datagram(self.now, path.id, payload) {
            assert!(
                self.ledger.is_tainted,
                "an honest peer was refused: {error}"
            );
            self.is_over = true;
        }
        self.drain_events(to);
    }

    /// Takes all events and datagrams of both sessions.
    fn drain(&mut self) {
        for side in 0..2 {
            self.drain_events(side);
            self.drain_signals(side);
            for slot in 0..SLOTS {
                self.drain_path(side, slot);
            }
            self.drain_events(side);
            self.check_bounds(side);
        }
    }

    fn drain_path(&mut self, side: Side, slot: usize) {
        while let Some(path) = self.links.slots[slot].up[side]
            && self.links.slots[slot].has_window(side)
        {
            let entry = &self.links.slots[slot];
            let most = entry.condition.max_datagram;
            let update = entry.update(side);
            // Of any size, with and without room for two in a packet.
            let budget = Budget {
                datagrams: usize::try_from(self.datagrams % 9 + 1).unwrap_or(1),
                bytes: update.cwnd.saturating_sub(update.bytes_in_flight).max(1),
                packet_bytes: 1,
                overhead_bytes: self.datagrams % 40,
                shared_bytes: if self.datagrams.is_multiple_of(2) {
                    0
                } else {
                    most
                },
            };
            self.sessions[side].update_path(self.now, path.id, update);
            let mut batch = Vec::new();
            let drained = self.sessions[side].poll_datagrams(self.now, path.id, budget, &mut batch);
            assert!(batch.len() <= budget.datagrams, "{} datagrams", batch.len());
            for datagram in batch {
                let length = datagram.payload.len();
                assert!(
                    most < LEAST_DATAGRAM || length <= most,
                    "a datagram of {length} bytes where {most} fit"
                );
                datagram.payload.hash(&mut self.digest);
                self.datagrams += 1;
                self.links
                    .send(self.now, side, slot, datagram.payload, datagram.sequence);
            }
            if drained {
                return;
            }
        }
    }

    fn drain_events(&mut self, side: Side) {
        if self.ledger.unheard[side] {
            return;
        }
        let mut readable = BTreeSet::new();
        while let Some(event) = self.sessions[side].poll_event() {
            format!("{event:?}").hash(&mut self.digest);
            self.ledger.on_event(self.now, side, &event);
            match event {
                Event::Readable(stream) | Event::Reset { stream, .. } => {
                    readable.insert(stream);
                }
                Event::StreamOpened { stream, .. } if self.is_ending && !self.ledger.is_tainted => {
                    self.finish_if_reliable(side, stream);
                }
                _ => {}
            }
        }
        if self.is_ending && !self.ledger.is_tainted {
            readable
                .into_iter()
                .for_each(|stream| self.read_all(side, stream));
        }
    }

    fn check_bounds(&self, side: Side) {
        let (sending, received) = self.sessions[side].held_bytes();
        let most_sending = self.plan.max_send_bytes + MOST_CONTROL_BYTES;
        assert!(
            sending <= most_sending,
            "side {side} holds {sending} of {most_sending} bytes for sending"
        );
        // A reliable stream may always hold its first credit.
        let reliable = |session: &Session| {
            let stats = session.stream_stats();
            stats
                .iter()
                .filter(|stats| stats.mode == Mode::Reliable)
                .count()
        };
        let streams = self.sessions.iter().map(reliable).sum::<usize>();
        // Half is for blocks. Streams use whole pages, which cost a seventh more than their bytes.
        let granted = self.plan.max_receive_bytes / 2 + FIRST_CREDIT_BYTES * (streams + 1);
        let most_received =
            self.plan.max_receive_bytes / 2 + granted * 8 / 7 + 2 * PAGE_BYTES * (streams + 1);
        assert!(
            received <= most_received,
            "side {side} holds {received} of {most_received} received bytes"
        );
    }

    /// Heals the network and waits until all has ended, if the plan requires it; then closes both sessions.
    fn finish(&mut self) {
        if self.plan.heals && !self.is_over {
            self.heal();
        }
        let dropped: u64 = self.sessions.iter().map(Session::dropped_on_receipt).sum();
        let ended = self.plan.heals && !self.ledger.is_tainted;
        if ended && dropped == 0 {
            let open = self.ledger.unfinished();
            assert!(
                open.is_empty(),
                "after {PATIENCE:?} on good paths:\n{}",
                open.join("\n")
            );
            let contradictions = self.ledger.contradictions();
            assert!(contradictions.is_empty(), "{}", contradictions.join("\n"));
        }
        self.ledger.unheard = [false; 2];
        for side in 0..2 {
            self.sessions[side].close(self.now);
            self.drain_events(side);
            let live = self.ledger.live_blocks(side);
            assert!(
                live.is_empty(),
                "closed, but these blocks have no outcome: {live:?}"
            );
            assert_eq!(
                self.sessions[side].poll_timeout(),
                None,
                "a closed session wants to be woken"
            );
        }
    }

    fn heal(&mut self) {
        self.is_ending = true;
        self.ledger.unheard = [false; 2];
        self.links.heal();
        // Finish pending path changes first.
        self.advance(Duration::from_secs(1));
        self.links.bring_up(self.now, 0, 0, true, 1);
        for side in 0..2 {
            if self.ledger.is_tainted {
                break;
            }
            for stream in self.writable_by(side) {
                self.finish_direction(side, stream);
            }
            self.drain_events(side);
            for stream in self.reliable_of(side) {
                self.read_all(side, stream);
            }
        }
        let end = self.now + PATIENCE;
        while self.now < end && !self.is_over && (self.ledger.is_tainted || !self.is_quiet()) {
            self.advance(Duration::from_secs(1));
        }
        if !self.is_over && !self.ledger.is_tainted {
            self.check_nothing_left();
        }
    }

    fn is_quiet(&self) -> bool {
        self.ledger.unfinished().is_empty()
            && self
                .sessions
                .iter()
                .all(|session| session.stream_stats().is_empty())
            && self
                .sessions
                .iter()
                .all(|session| session.held_bytes() == (0, 0))
    }

    /// Checks that ended streams and blocks leave no state.
    fn check_nothing_left(&self) {
        for (side, session) in self.sessions.iter().enumerate() {
            if session.dropped_on_receipt() > 0 {
                continue;
            }
            let streams: Vec<_> = session
                .stream_stats()
                .iter()
                .filter(|stats| !stats.ended)
                .map(|stats| (stats.stream, stats.mode))
                .collect();
            assert!(
                streams.is_empty() && session.held_bytes() == (0, 0),
                "side {side} still has {streams:?} and holds {:?}; {:?}",
                session.held_bytes(),
                self.ledger.unfinished(),
            );
        }
    }

    fn report(&self) -> Report {
        let blocks = || {
            self.ledger
                .streams
                .values()
                .flat_map(|stream| &stream.blocks)
        };
        let directions = self
            .ledger
            .streams
            .values()
            .flat_map(|stream| &stream.bytes);
        Report {
            digest: self.digest.finish(),
            datagrams: self.datagrams,
            blocks: blocks().count(),
            received: blocks().filter(|block| block.received).count(),
            bytes_read: directions.map(|direction| direction.read).sum(),
        }
    }
}

pub(super) fn nth<T: Copy>(all: &[T], index: usize) -> Option<T> {
    all.get(index.checked_rem(all.len())?).copied()
}

/// Ignores an error that is allowed.
fn ignore(_: Result<(), StreamError>) {}
