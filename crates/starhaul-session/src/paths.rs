//! The session's paths: a monitor each, what was sent and received on it, which of them are silent, and over which the peer answers.

mod bottlenecks;
mod prices;

use std::{
    cell::Cell,
    collections::{BTreeMap, VecDeque},
    time::{Duration, Instant},
};

use bytes::Bytes;
use starhaul_paths::{PathId, PathMonitor, PathUpdate, Train};
use starhaul_units::Bandwidth;

use self::bottlenecks::Bottlenecks;
use crate::{
    batch::{Budget, Overview, PathDatagram, Unproven},
    class_bytes::ClassBytes,
    item::Item,
    received::ReceiveLog,
    spending::Spending,
    wire::{FRAGMENT_HEADER_BYTES, wrap},
};

/// A path that was in use lately is probed this often, and then …
const PROBE_INTERVAL: Duration = Duration::from_secs(1);
/// … after this part of the time for which it has been idle, up to [`SessionConfig::keepalive`](crate::SessionConfig::keepalive).
const IDLE_SHARE: u32 = 4;
/// The last resort that brought no data for so long is spared again.
const SPARED_AFTER: Duration = Duration::from_secs(1);
/// A silent one is probed at once, and then each time after twice as long.
const SUSPECT_INTERVALS: [Duration; 2] = [Duration::from_millis(50), Duration::from_millis(400)];
/// A train of which an acknowledgement takes longer met an outage.
const TRAIN_ROUNDS: u32 = 4;
/// Prices remembered that the peer changed.
const MAX_TOLD_COSTS: usize = 64;
/// What is read in a shorter time than this says little of the pace of its reader.
const LEAST_READ_ROUND: Duration = Duration::from_millis(10);
/// Nor does a round trip that was never measured.
const MOST_READ_ROUND: Duration = Duration::from_secs(2);

/// The cost from which on a path carries only what no other path brings in time: as a path whose quota is nearly used up.
pub const LAST_RESORT: f64 = 1e12;

/// What a path is feared to lose at most of which nothing is known.
const UNPROVEN_LOSS: f64 = 0.01;
/// Bytes of an acknowledgement or a message.
const SMALL_DATAGRAM: u64 = 200;
/// A part of the round trip this small is no reason to pay: the queue of the other direction alone, which is taken for half of this one's,
/// differs by more.
const AS_SOON: u32 = 16;
/// One that is lost with those that follow costs what waits for it more than this part.
const ABOUT_AS_SOON: u32 = 4;
/// Where so many times as many are lost in a row as by chance, what is said again at once is lost with the first saying.
const IN_A_ROW: f64 = 2.0;

#[derive(Debug)]
pub(crate) struct Path {
    pub(crate) monitor: PathMonitor<Item>,
    pub(crate) received: ReceiveLog,
    pub(crate) probe_at: Instant,
    /// When something other than probes and acknowledgements was last sent or received, or the path fell silent.
    pub(crate) busy_at: Instant,
    /// When data of a stream came over it last.
    pub(crate) carried_at: Option<Instant>,
    /// When it fell silent last.
    pub(crate) silent_since: Instant,
    /// Between the next two probes of the silent path.
    suspect_interval: Duration,
    /// Packets under way by whose distances the path is measured, and until when these tell of the present path.
    pub(crate) train: Option<(Train, Instant)>,
    pub(crate) counters: Counters,
    /// Bytes of datagrams with data of streams: part of the counters.
    pub(crate) sent_by_class: ClassBytes,
    pub(crate) received_by_class: ClassBytes,
}

#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Counters {
    pub(crate) bytes_sent: u64,
    pub(crate) bytes_received: u64,
    pub(crate) datagrams_sent: u64,
    pub(crate) datagrams_lost: u64,
    /// Behind the newest datagram that asks for an acknowledgement, and behind the newest one that the peer has.
    pub(crate) asked: u64,
    pub(crate) answered: u64,
}

impl Path {
    fn new(now: Instant, cost: f64, update: PathUpdate, first_sequence: u64) -> Self {
        Self {
            monitor: PathMonitor::new(now, cost, update, first_sequence),
            received: ReceiveLog::new(),
            probe_at: now,
            busy_at: now,
            carried_at: None,
            silent_since: now,
            suspect_interval: SUSPECT_INTERVALS[0],
            train: None,
            counters: Counters::default(),
            sent_by_class: ClassBytes::default(),
            received_by_class: ClassBytes::default(),
        }
    }

    /// A datagram with `item` leaves.
    pub(crate) fn send(
        &mut self,
        now: Instant,
        payload: Bytes,
        item: Item,
        budget: Budget,
    ) -> PathDatagram {
        let bytes = payload.len();
        let sequence = match item {
            Item::Padding => self.monitor.on_sent_unwatched(now, bytes, item),
            _ => self.monitor.on_sent(now, bytes, item, item.elicits_ack()),
        };
        self.monitor.on_queued(bytes as u64 + budget.overhead_bytes);
        self.counters.bytes_sent += bytes as u64;
        self.counters.datagrams_sent += 1;
        if item.elicits_ack() {
            self.counters.asked = sequence + 1;
        }
        PathDatagram {
            payload,
            sequence: wrap(sequence),
        }
    }

    /// A train of so many datagrams leaves.
    pub(crate) fn begin_train(&mut self, now: Instant, packets: usize, packet_bytes: u64) {
        let train = Train::new(self.monitor.next_sequence(), packets as u64, packet_bytes);
        self.train = Some((train, now + self.monitor.smoothed_rtt() * TRAIN_ROUNDS));
    }

    /// An acknowledgement while a train is under way: what the path carried of it, once nothing more is to be learnt.
    pub(crate) fn on_train_ack(
        &mut self,
        now: Instant,
        ranges: &[(u64, u64)],
        received: u64,
    ) -> Option<Bandwidth> {
        let (train, until) = self.train.as_mut()?;
        if now <= *until && !train.on_ack(ranges, received) {
            return None;
        }
        let (train, until) = self.train.take()?;
        train.rate().filter(|_| now <= until)
    }

    /// The path fell silent.
    pub(crate) fn probe_soon(&mut self, now: Instant) {
        self.probe_at = now;
        self.busy_at = now;
        self.silent_since = now;
        self.suspect_interval = SUSPECT_INTERVALS[0];
    }

    /// A datagram that will be acknowledged leaves.
    pub(crate) fn delay_probe(&mut self, now: Instant, keepalive: Duration) {
        if !self.monitor.is_suspect() {
            self.probe_at = now + self.probe_interval(now, keepalive);
        } else if self.probe_at <= now {
            self.probe_at = now + self.suspect_interval;
            self.suspect_interval = (self.suspect_interval * 2).min(SUSPECT_INTERVALS[1]);
        }
    }

    fn probe_interval(&self, now: Instant, keepalive: Duration) -> Duration {
        let idle = now.saturating_duration_since(self.busy_at);
        (idle / IDLE_SHARE).min(keepalive).max(PROBE_INTERVAL)
    }

    /// It is the last resort, and no data of late came over it: what is told of other paths does not make it earn its price.
    fn is_spared(&self, now: Instant) -> bool {
        let is_idle = |at: Instant| now.saturating_duration_since(at) > SPARED_AFTER;
        self.monitor.cost() >= LAST_RESORT && self.carried_at.is_none_or(is_idle)
    }

    /// When a small datagram that leaves now would arrive.
    fn brings_small_at(&self, now: Instant) -> Instant {
        self.monitor.predict_arrival(now, 0, SMALL_DATAGRAM)
    }

    /// Whether it loses several datagrams in a row, either way.
    fn loses_rows(&self, now: Instant) -> bool {
        let loss = self.monitor.loss();
        loss.rate > 0.0 && loss.beyond_chance() >= IN_A_ROW || self.received.misses_rows(now)
    }

    /// Something other than probes and acknowledgements is sent or received; true when that is news.
    pub(crate) fn on_use(&mut self, now: Instant) -> bool {
        let was_idle = now.saturating_duration_since(self.busy_at) > PROBE_INTERVAL * IDLE_SHARE;
        self.busy_at = self.busy_at.max(now);
        was_idle
    }

    pub(crate) fn max_datagram(&self) -> usize {
        self.monitor.transport().max_datagram
    }
}

/// All paths of a session.
#[derive(Debug, Default)]
pub(crate) struct Paths {
    table: BTreeMap<PathId, Path>,
    /// Above every number used on a path that is gone. A path begins here, so that an acknowledgement of a former life, which
    /// names only path and numbers and may come over a slow path long after the next life began, is never taken for one of this.
    first_sequence: u64,
    /// What the peer said later than the path's joining, which an older joining must not undo.
    told_costs: BTreeMap<PathId, f64>,
    /// The path by which the peer acknowledged last.
    answers_over: Option<PathId>,
    /// Paths that fell silent when no other was left.
    unreleased: Vec<PathId>,
    /// Paths that the peer removed for good, until they are asked for.
    gone_at_peer: VecDeque<PathId>,
    bottlenecks: Bottlenecks,
    /// What those with a price may cost together, where that is bounded.
    spending: Option<Spending>,
    /// See [`Paths::revision`].
    revision: u64,
    /// Found for this revision.
    common: Cell<Option<Common>>,
}

/// What the paths have in common, whichever of them is asked.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Common {
    all_silent: bool,
    usable: usize,
    least_delay: Duration,
    unproven: Unproven,
    fragment_capacity: Option<usize>,
}

/// What came of looking for silent paths.
#[derive(Debug)]
pub(crate) struct Silence {
    /// Paths that fell silent now.
    pub(crate) fallen: Vec<PathId>,
    /// Silent paths of which what cannot wait is to leave over others: none while all are silent, for nothing could.
    pub(crate) released: Vec<PathId>,
}

impl Paths {
    /// Another number when what is known of any path may have changed: nothing else changes what is told of them at one instant.
    pub(crate) const fn revision(&self) -> u64 {
        self.revision
    }

    const fn revise(&mut self) {
        self.revision += 1;
        self.common = Cell::new(None);
    }

    pub(crate) fn add(&mut self, now: Instant, id: PathId, cost: f64, update: PathUpdate) {
        let cost = self.told_costs.get(&id).copied().unwrap_or(cost);
        let path = Path::new(now, cost, update, self.first_sequence);
        self.table.insert(id, path);
        self.revise();
    }

    /// Changes what a path costs.
    pub(crate) fn set_cost(&mut self, id: PathId, cost: f64) {
        if let Some(path) = self.get_mut(id) {
            path.monitor.set_cost(cost);
        }
    }

    /// What the transport knows of a path: a node tells that of all paths before it asks for datagrams of one, and mostly again what it told.
    pub(crate) fn update(&mut self, now: Instant, id: PathId, update: PathUpdate) {
        let path = self.table.get_mut(&id);
        if path.is_some_and(|path| path.monitor.update(now, update)) {
            self.revise();
        }
    }

    /// The same of what a modem tells of its losses.
    pub(crate) fn set_told_loss(&mut self, id: PathId, share: Option<f64>) {
        if let Some(path) = self.table.get_mut(&id)
            && path.monitor.told_loss() != share
        {
            path.monitor.set_told_loss(share);
            self.revise();
        }
    }

    /// All that was to be sent over a path has left. What is told of it is the same.
    pub(crate) fn on_drained(&mut self, id: PathId) {
        if let Some(path) = self.table.get_mut(&id) {
            path.monitor.on_drained();
        }
    }

    /// The same as the peer says, which holds for later lives of the path too.
    pub(crate) fn set_told_cost(&mut self, id: PathId, cost: f64) {
        self.set_cost(id, cost);
        self.told_costs.insert(id, cost);
        if self.told_costs.len() > MAX_TOLD_COSTS {
            // Numbers are not used again, so the lowest has gone first.
            self.told_costs.pop_first();
        }
    }

    /// A path is gone; another life of it begins anew.
    pub(crate) fn remove(&mut self, id: PathId) -> Option<Path> {
        let gone = self.table.remove(&id)?;
        self.revise();
        self.first_sequence = self.first_sequence.max(gone.monitor.next_sequence());
        self.lose_answers(&[id]);
        self.bottlenecks.forget(id);
        Some(gone)
    }

    /// The peer, which opened the path, has removed it for good.
    pub(crate) fn on_gone_at_peer(&mut self, id: PathId) {
        self.gone_at_peer.push_back(id);
    }

    /// The next of these paths.
    pub(crate) fn take_gone_at_peer(&mut self) -> Option<PathId> {
        self.gone_at_peer.pop_front()
    }

    pub(crate) fn get(&self, id: PathId) -> Option<&Path> {
        self.table.get(&id)
    }

    pub(crate) fn get_mut(&mut self, id: PathId) -> Option<&mut Path> {
        self.revise();
        self.table.get_mut(&id)
    }

    pub(crate) fn len(&self) -> usize {
        self.table.len()
    }

    /// Whether nothing is to be chosen for what may leave now: there is one path alone, and no budget.
    pub(crate) fn leave_no_choice(&self) -> bool {
        self.table.len() == 1 && self.spending.is_none()
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (PathId, &Path)> {
        self.table.iter().map(|(id, path)| (*id, path))
    }

    pub(crate) fn iter_mut(&mut self) -> impl Iterator<Item = (PathId, &mut Path)> {
        self.revise();
        self.table.iter_mut().map(|(id, path)| (*id, path))
    }

    /// A path begins to be used: the others are probed at once, so that the scheduler soon knows which of them carry datagrams.
    pub(crate) fn wake(&mut self, now: Instant, used: PathId) {
        for (id, path) in &mut self.table {
            if *id != used && !path.monitor.is_suspect() {
                path.probe_at = path.probe_at.min(now);
            }
        }
    }

    /// An acknowledgement came over a path. Those over the last resort may move to another path at any time, which the peer does not announce.
    pub(crate) fn on_answer(&mut self, id: PathId) {
        self.answers_over = Some(id);
        if self.is_last_resort(id) && self.has_others_than_last_resorts() {
            self.move_answers(&[id]);
        }
    }

    /// These paths bring no acknowledgements any more. Those of other paths may have come over them.
    fn lose_answers(&mut self, gone: &[PathId]) {
        let over = &mut self.answers_over;
        if over.take_if(|over| gone.contains(over)).is_some() {
            self.move_answers(gone);
        }
    }

    /// Acknowledgements may come over other paths than these from now on.
    fn move_answers(&mut self, from: &[PathId]) {
        for (_, path) in self.iter_mut().filter(|(id, _)| !from.contains(id)) {
            path.monitor.on_answers_moved();
        }
    }

    /// Finds the paths that fell silent. While all are silent nothing can leave elsewhere; when one is heard again, what the others have is
    /// given up.
    pub(crate) fn find_silent(&mut self, now: Instant) -> Silence {
        let fallen: Vec<_> = self
            .iter_mut()
            .filter_map(|(id, path)| {
                path.monitor.on_timeout(now).then(|| {
                    path.probe_soon(now);
                    id
                })
            })
            .collect();
        if self.all_silent() {
            self.unreleased.extend(&fallen);
            return Silence {
                fallen,
                released: Vec::new(),
            };
        }
        let table = &self.table;
        let is_silent = |id: &PathId| {
            let path = table.get(id);
            path.is_some_and(|path| path.monitor.is_suspect())
        };
        let mut released = fallen.clone();
        released.extend(self.unreleased.drain(..).filter(is_silent));
        if !released.is_empty() {
            self.lose_answers(&released);
        }
        Silence { fallen, released }
    }

    /// Whether paths fell silent when no other was left: then [`Paths::find_silent`] is due when one is heard again.
    pub(crate) const fn awaits_another(&self) -> bool {
        !self.unreleased.is_empty()
    }

    /// Compares each path with each other one, at times: those of which it is news whether they seem to share a bottleneck, and whether
    /// they do.
    pub(crate) fn compare(&mut self, now: Instant) -> Vec<((PathId, PathId), bool)> {
        self.bottlenecks.compare(now, &self.table)
    }

    /// Paths worth sending on: those not silent, or all when all are.
    pub(crate) fn usable(&self) -> impl Iterator<Item = (PathId, &Path)> {
        let all_silent = self.all_silent();
        self.iter()
            .filter(move |(_, path)| all_silent || !path.monitor.is_suspect())
    }

    /// Usable paths whose datagrams are large enough for `bytes`.
    pub(crate) fn carrying(&self, bytes: u64) -> impl Iterator<Item = (PathId, &Path)> {
        self.usable()
            .filter(move |(_, path)| path.max_datagram() as u64 >= bytes)
    }

    /// The paths as `id` sees them.
    pub(crate) fn overview(&self, id: PathId) -> Overview {
        let common = self.common();
        let path = self.get(id);
        let is_usable = path.is_some_and(|path| common.all_silent || !path.monitor.is_suspect());
        Overview {
            all_silent: common.all_silent,
            is_usable,
            is_alone: common.usable == usize::from(is_usable),
            least_delay: common.least_delay,
            unproven: common.unproven,
            fragment_capacity: common.fragment_capacity,
        }
    }

    fn common(&self) -> Common {
        if let Some(common) = self.common.get() {
            debug_assert_eq!(common, self.find_common(), "the paths are others now");
            return common;
        }
        let common = self.find_common();
        self.common.set(Some(common));
        common
    }

    fn find_common(&self) -> Common {
        Common {
            all_silent: self.all_silent(),
            usable: self.usable().count(),
            least_delay: self.least_delay(),
            unproven: self.unproven(),
            fragment_capacity: self.fragment_capacity(),
        }
    }

    pub(crate) fn all_silent(&self) -> bool {
        self.table.values().all(|path| path.monitor.is_suspect())
    }

    pub(crate) fn is_usable(&self, id: PathId) -> bool {
        self.usable().any(|(usable, _)| usable == id)
    }

    /// The usable path for what is small and should arrive first; none that is spared while there is another. Of paths on which it
    /// arrives about as soon, one that does not lose several in a row, and of those on which it arrives as soon, as far as predictions
    /// are sure, the cheapest: what tells of data costs as much as data.
    pub(crate) fn fastest(&self, now: Instant) -> Option<PathId> {
        let in_order =
            |(id, path): &(PathId, &Path)| (self.spares(now, path), path.brings_small_at(now), *id);
        let soonest = self.usable().min_by_key(in_order)?;
        let (id, first) = match soonest.1.loses_rows(now) {
            true => self
                .with_single_losses(now, soonest.1, ABOUT_AS_SOON)
                .min_by_key(in_order),
            false => None,
        }
        .unwrap_or(soonest);
        let cheapest = self
            .with_single_losses(now, first, AS_SOON)
            .filter(|(_, path)| path.monitor.cost() < first.monitor.cost())
            .min_by(|(_, a), (_, b)| a.monitor.cost().total_cmp(&b.monitor.cost()));
        Some(cheapest.map_or(id, |(id, _)| id))
    }

    /// Usable paths as spared as `first` that do not lose several datagrams in a row, and bring what is small no later than it does by more
    /// than its margin or this part of its round trip.
    fn with_single_losses<'a>(
        &'a self,
        now: Instant,
        first: &'a Path,
        part: u32,
    ) -> impl Iterator<Item = (PathId, &'a Path)> {
        let monitor = &first.monitor;
        let tie = monitor.arrival_margin().max(monitor.smoothed_rtt() / part);
        let latest = first.brings_small_at(now) + tie;
        self.usable().filter(move |(_, path)| {
            !path.loses_rows(now)
                && self.spares(now, path) == self.spares(now, first)
                && path.brings_small_at(now) <= latest
        })
    }

    /// Whether a path is spared, and not all are of the last resort.
    fn spares(&self, now: Instant, path: &Path) -> bool {
        path.is_spared(now) && self.has_others_than_last_resorts()
    }

    fn has_others_than_last_resorts(&self) -> bool {
        self.usable()
            .any(|(_, path)| path.monitor.cost() < LAST_RESORT)
    }

    /// Whether it carries only what no other path brings in time.
    pub(crate) fn is_last_resort(&self, id: PathId) -> bool {
        self.get(id)
            .is_some_and(|path| path.monitor.cost() >= LAST_RESORT)
    }

    /// Whether what is only said again, or told at any time, leaves over other paths than this one.
    pub(crate) fn is_spared(&self, now: Instant, id: PathId) -> bool {
        let is_spared = |path: &Path| path.is_spared(now);
        self.get(id).is_some_and(is_spared) && self.usable().any(|(_, path)| !is_spared(path))
    }

    /// Payload of a fragment that fits every path.
    pub(crate) fn fragment_capacity(&self) -> Option<usize> {
        let least = self.table.values().map(Path::max_datagram).min()?;
        least
            .checked_sub(FRAGMENT_HEADER_BYTES)
            .filter(|capacity| *capacity > 0)
    }

    /// What all usable ones carry together.
    pub(crate) fn bandwidth(&self) -> Bandwidth {
        self.bandwidth_of(self.usable().map(|(_, path)| path))
    }

    /// The same of those that are no longer than this, one way.
    pub(crate) fn bandwidth_within(&self, time: Duration) -> Bandwidth {
        let paths = self.usable().map(|(_, path)| path);
        self.bandwidth_of(paths.filter(|path| path.monitor.one_way_delay() <= time))
    }

    /// The time in which what an application reads is counted: a round trip of the slowest path in use.
    pub(crate) fn read_round(&self) -> Duration {
        let trips = self.usable().map(|(_, path)| path.monitor.smoothed_rtt());
        trips
            .max()
            .unwrap_or_default()
            .clamp(LEAST_READ_ROUND, MOST_READ_ROUND)
    }

    /// The least one-way delay of any usable path.
    pub(crate) fn least_delay(&self) -> Duration {
        self.usable()
            .map(|(_, path)| path.monitor.one_way_delay())
            .min()
            .unwrap_or_default()
    }

    fn unproven(&self) -> Unproven {
        let mut unproven = Unproven::default();
        for (_, path) in self.usable() {
            let loss = path.monitor.loss();
            unproven.feared = unproven.feared.max(loss.feared());
            unproven.rate = unproven.rate.max(loss.rate);
        }
        Unproven {
            feared: unproven.feared.min(UNPROVEN_LOSS),
            rate: unproven.rate.min(UNPROVEN_LOSS),
        }
    }

    /// In what time a small datagram sent now arrives over the path where it does so first, with its queue and its margin.
    pub(crate) fn soonest(&self, now: Instant) -> Duration {
        let reach = |path: &Path| {
            let arrival = path.monitor.predict_arrival(now, 0, SMALL_DATAGRAM);
            arrival.saturating_duration_since(now) + path.monitor.arrival_margin()
        };
        self.usable()
            .map(|(_, path)| reach(path))
            .min()
            .unwrap_or_default()
    }

    /// The longest that the acknowledgement of a datagram may take on any path.
    pub(crate) fn longest_turnaround(&self) -> Duration {
        self.iter()
            .map(|(_, path)| path.monitor.overdue_after())
            .max()
            .unwrap_or_default()
    }
}
