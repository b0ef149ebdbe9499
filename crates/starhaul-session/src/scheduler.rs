//! The multipath scheduler's face: a scheduler decides, from a read-only view of the paths, whether a path that may send now carries
//! what waits or leaves it to another. What goes first is decided before it is asked (`send/queue.rs`).
//!
//! A [`SchedulerChoice`](crate::SchedulerChoice) names those that exist. Another is given to
//! [`Session::with_scheduler`](crate::Session::with_scheduler).

use std::{
    fmt::Debug,
    time::{Duration, Instant},
};

use starhaul_paths::{Loss, PathId};
use starhaul_units::Bandwidth;

use crate::{
    batch::Overview,
    paths::{LAST_RESORT, Path, Paths},
    spending::SpendingStatus,
};

/// What waits to be sent, seen from one fragment of a block.
#[derive(Clone, Copy, Debug)]
pub struct Load {
    /// Bytes that go before the block.
    pub ahead: u64,
    /// Bytes of the block that still wait, this fragment included.
    pub waiting: u64,
    /// Bytes of the fragment.
    pub fragment: u64,
    /// Blocks as important wait for each other, and the first has waited for half of its time.
    pub waits: bool,
    /// Nothing but a retransmission makes up for what is lost of the block: no redundancy leaves with its data.
    pub is_bare: bool,
}

/// The paths that leave a fragment to others.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Leaving {
    /// Those that cost more.
    Dearer(f64),
    /// All but this one.
    AllBut(PathId),
}

/// Blocks that are treated alike: of one priority and protection, with similar deadlines.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Class {
    /// 0 is the most important.
    pub priority: u8,
    /// The power of two below the deadline in milliseconds.
    pub span: u32,
    /// Lost fragments are retransmitted.
    pub retransmits: bool,
    /// They may be sent with redundancy.
    pub codes: bool,
}

/// A block that the application gave to the session.
#[derive(Clone, Copy, Debug)]
pub struct Offer {
    /// The class of the block.
    pub class: Class,
    /// Length of the block in bytes.
    pub bytes: usize,
    /// From now until it must have arrived.
    pub deadline: Duration,
    /// Most redundancy, for each data fragment.
    pub max_coding_rate: f64,
}

/// A block's time limit, and what it is.
#[derive(Clone, Copy, Debug)]
pub struct Limit {
    /// When it must have arrived.
    pub deadline: Instant,
    /// Its kind; says whether lost fragments are retransmitted.
    pub class: Class,
    /// What leaves may as well not: a retransmission of what is lost would arrive in time, too.
    pub is_spare: bool,
}

/// A frame of a reliable stream that may leave.
#[derive(Clone, Copy, Debug)]
pub struct Frame {
    /// Bytes of the stream that wait, this frame included; `u64::MAX` while the application fills all paths.
    pub backlog: u64,
    /// Bytes of the frame.
    pub bytes: u64,
    /// So many blocks have left since a stream that waits had its share that one is due to it.
    pub is_due: bool,
    /// Whether it may take a dearer path to arrive sooner.
    pub thrift: Thrift,
}

/// What a frame may cost to arrive sooner.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Thrift {
    /// It waits for a cheaper path rather than take one over which it arrives a little sooner.
    Patient,
    /// It takes the path over which it arrives first, short of the last resort.
    Prompt,
    /// It takes the path over which it arrives first, whatever it costs: everything waits for it.
    None,
}

/// Chooses the path of each datagram. The session asks for each path that may send now; a scheduler that declines for all paths
/// stops the session, so of two paths that both could carry something one must say yes; only what no usable path brings in time, and a silent one
/// may, can be left to that. It is not asked for the last frames of a stream
/// that wait on a slow path: where nothing else wants the cheapest path, they are repeated there if they arrive sooner.
pub trait Scheduler: Debug + Send {
    /// Whether a fragment that was never sent should leave on this path.
    fn takes_data(&self, view: &View<'_>, load: Load, limit: Limit) -> bool;

    /// Which paths leave such a fragment to others for a reason that they have in common, whichever of them may send now: for each of these
    /// [`takes_data`](Self::takes_data) says no. Paths that are asked in turn at one instant are then not asked one by one. `None` where there is no
    /// such reason, or it is not known.
    fn leaving(&self, _view: &View<'_>, _load: Load, _limit: Limit) -> Option<Leaving> {
        None
    }

    /// Whether a lost fragment of `bytes`, which left last on the path `lost_on`, should be sent again on this path.
    fn takes_retransmission(
        &self,
        view: &View<'_>,
        lost_on: Option<PathId>,
        bytes: u64,
        limit: Limit,
    ) -> bool;

    /// The paths of the view that may carry what has this limit; `None` if the one that may send now does not whatever the others do. All of them,
    /// unless there is a [budget](crate::SessionConfig::budget).
    fn affordable<'a>(&self, view: &View<'a>, _limit: Limit) -> Option<View<'a>> {
        Some(*view)
    }

    /// Whether redundancy of `bytes` of a block, most of whose data left on `main`, should leave on this path to arrive by the limit.
    fn takes_redundancy(
        &self,
        view: &View<'_>,
        main: Option<PathId>,
        bytes: u64,
        limit: Limit,
    ) -> bool;

    /// Whether the second copy of a fragment of `bytes` should leave on this path, when the first left on `first`.
    fn takes_copy(&self, view: &View<'_>, first: Option<PathId>, bytes: u64, limit: Limit) -> bool;

    /// Whether a frame of a reliable stream should leave on this path.
    fn takes_frame(&self, view: &View<'_>, frame: Frame) -> bool;

    /// Whether the path that may send now, which takes this first fragment of a block, is to carry all the others, too: what other paths lose
    /// concerns the block no more.
    fn takes_whole(&self, _view: &View<'_>, _load: Load, _limit: Limit) -> bool {
        false
    }

    /// The redundancy of a block of `class` of which the first fragment leaves on `path`; asked once for each block. `None` leaves it to
    /// the loss of the path.
    fn coding(&mut self, _class: Class, _path: PathId) -> Option<Coding> {
        None
    }

    /// The application gave the session a block.
    fn on_offered(&mut self, _now: Instant, _offer: Offer) {}

    /// A fragment that was never sent before, a datagram of `bytes`, leaves on `path`.
    fn on_data_sent(&mut self, _class: Class, _path: PathId, _bytes: u64) {}

    /// A path is about to be asked; figures of all paths may have changed.
    fn refresh(&mut self, _view: &View<'_>) {}

    /// What it has decided, for people.
    fn status(&self) -> SchedulerStatus;
}

/// How much redundancy a scheduler gives a block.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Coding {
    /// At most so much for each data fragment.
    pub rate: f64,
    /// It has none because what is lost is sent again; where that would be late, its loss decides.
    pub counts_on_retransmission: bool,
}

/// What a scheduler has decided, for people.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct SchedulerStatus {
    /// Its name, as configurations spell it.
    pub name: &'static str,
    /// How often its plan changed.
    pub plans: u64,
    /// Why it changed last; `None` without a plan.
    pub reason: Option<String>,
    /// The plan, class by class; empty where none is in force.
    pub classes: Vec<PlannedClass>,
    /// What paths with a price cost, where that is bounded; the session's, whatever the scheduler.
    pub spending: Option<SpendingStatus>,
}

/// How the blocks of one class are sent.
#[derive(Clone, Debug, PartialEq)]
pub struct PlannedClass {
    /// The class of the blocks.
    pub class: Class,
    /// The rate that was planned for, headers included.
    pub rate: Bandwidth,
    /// Share of the data that the plan brings in time.
    pub quality: f64,
    /// Where they leave, and the part of them; what is missing to 1 is more than the paths carry.
    pub ways: Vec<PlannedWay>,
}

/// A path in a plan.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct PlannedWay {
    /// The path over which data leave first.
    pub path: PathId,
    /// The part of the class's data, 0 to 1.
    pub share: f64,
    /// Where they are sent again when lost, if they are.
    pub again: Option<PathId>,
    /// Redundancy fragments for each data fragment of those blocks that are coded; 0 without redundancy.
    pub coding_rate: f64,
    /// The part of the way's data that is coded, 0 to 1; 0 without redundancy.
    pub coded_share: f64,
}

/// What a scheduler sees: the time, the paths, and the path that may send now.
#[derive(Clone, Copy, Debug)]
pub struct View<'a> {
    now: Instant,
    paths: &'a Paths,
    path: PathId,
    this: Option<PathView<'a>>,
    overview: Overview,
    /// Paths with a price are not to be used.
    is_free: bool,
}

impl<'a> View<'a> {
    pub(crate) fn new(now: Instant, paths: &'a Paths, path: PathId, overview: Overview) -> Self {
        Self {
            now,
            paths,
            path,
            this: paths.get(path).map(PathView),
            overview,
            is_free: false,
        }
    }

    /// The same for what may leave over paths without a price alone.
    pub(crate) fn of_free_paths(&self) -> Self {
        let mut view = Self {
            this: self.this.filter(|this| !this.has_price()),
            is_free: true,
            ..*self
        };
        view.overview.is_alone = view.usable().all(|(id, _)| id == view.path);
        view
    }

    /// The time of this decision.
    pub const fn now(&self) -> Instant {
        self.now
    }

    /// The path that may send now.
    pub const fn path(&self) -> PathId {
        self.path
    }

    /// What is known of the path that may send now; `None` if it has just gone.
    pub const fn this(&self) -> Option<PathView<'a>> {
        self.this
    }

    /// What is known of a path.
    pub fn get(&self, path: PathId) -> Option<PathView<'a>> {
        self.paths.get(path).map(PathView)
    }

    /// Paths worth sending on: those not silent, or all when all are.
    pub fn usable(&self) -> impl Iterator<Item = (PathId, PathView<'a>)> + use<'a> {
        let (all, is_free) = (self.overview.all_silent, self.is_free);
        let paths = self.paths.iter().map(|(id, path)| (id, PathView(path)));
        paths
            .filter(move |(_, path)| all || !path.0.monitor.is_suspect())
            .filter(move |(_, path)| !is_free || !path.has_price())
    }

    /// Every path that is up, the silent ones included.
    pub fn all(&self) -> impl Iterator<Item = (PathId, PathView<'a>)> + use<'a> {
        let paths = self.paths.iter();
        paths.map(|(id, path)| (id, PathView(path)))
    }

    /// No other path is usable.
    pub const fn is_alone(&self) -> bool {
        self.overview.is_alone
    }

    /// Usable paths whose datagrams are large enough for `bytes`.
    pub fn carrying(&self, bytes: u64) -> impl Iterator<Item = (PathId, PathView<'a>)> + use<'a> {
        self.usable()
            .filter(move |(_, path)| path.max_datagram() as u64 >= bytes)
    }

    /// A usable path whose datagrams are large enough for `bytes`.
    pub fn carrier(&self, path: PathId, bytes: u64) -> Option<PathView<'a>> {
        let known = self.paths.get(path)?;
        let is_usable = self.overview.all_silent || !known.monitor.is_suspect();
        let is_usable = is_usable && !(self.is_free && PathView(known).has_price());
        (is_usable && known.max_datagram() as u64 >= bytes).then_some(PathView(known))
    }

    /// Bytes of the largest datagram that the path carries, which may send now.
    pub(crate) fn max_datagram(&self) -> usize {
        self.this.map_or(0, PathView::max_datagram)
    }

    pub(crate) const fn paths(&self) -> &'a Paths {
        self.paths
    }

    /// Payload of a fragment that fits every path.
    pub(crate) const fn fragment_capacity(&self) -> Option<usize> {
        self.overview.fragment_capacity
    }

    /// The share to protect against on a path ([`Loss::feared`]). One that has carried next to nothing is no safer than others that hardly
    /// lose, but than those that do.
    pub fn feared_of(&self, path: PathView<'_>) -> f64 {
        path.with_unproven(path.loss().feared(), self.overview.unproven.feared)
    }

    /// The rate of loss of a path, taken as [`feared_of`](Self::feared_of) takes its share.
    pub fn loss_rate_of(&self, path: PathView<'_>) -> f64 {
        path.with_unproven(path.loss().rate, self.overview.unproven.rate)
    }

    /// The least one-way delay of any usable path.
    pub const fn least_delay(&self) -> Duration {
        self.overview.least_delay
    }

    /// How many usable paths cost less than `path`.
    pub fn cheaper_than(&self, path: PathView<'_>) -> u32 {
        let cost = path.cost();
        self.usable().fold(0, |count, (_, other)| {
            count + u32::from(other.cost().total_cmp(&cost).is_lt())
        })
    }
}

/// What is known of one path.
#[derive(Clone, Copy, Debug)]
pub struct PathView<'a>(&'a Path);

impl PathView<'_> {
    fn with_unproven(self, own: f64, unproven: f64) -> f64 {
        match self.0.monitor.loss_is_known() {
            true => own,
            false => own.max(unproven),
        }
    }

    /// Price per byte; only its order matters.
    pub fn cost(self) -> f64 {
        self.0.monitor.cost()
    }

    /// What leaves on it costs something.
    pub fn has_price(self) -> bool {
        // What is no number is paid for: see `paths/prices.rs`.
        self.cost() > 0.0 || self.cost().is_nan()
    }

    /// It carries only what no other path brings in time: see [`LAST_RESORT`].
    pub fn is_last_resort(self) -> bool {
        self.cost() >= LAST_RESORT
    }

    /// When `bytes` would arrive, sent behind `ahead` bytes that wait for this path already.
    pub fn predict_arrival(self, now: Instant, ahead: u64, bytes: u64) -> Instant {
        self.0.monitor.predict_arrival(now, ahead, bytes)
    }

    /// From leaving to the arrival of `bytes`, if the window is open and what queued before has gone.
    pub fn least_flight(self, bytes: u64) -> Duration {
        self.0.monitor.least_flight(bytes)
    }

    /// It is silent, and has not been for this long.
    pub fn is_silent_for_less_than(self, now: Instant, than: Duration) -> bool {
        self.0.monitor.is_suspect() && now.saturating_duration_since(self.0.silent_since) < than
    }

    /// Smoothed one-way delay.
    pub fn one_way_delay(self) -> Duration {
        self.0.monitor.one_way_delay()
    }

    /// Time from sending until the acknowledgement, when it is not late: smoothed, and no more than the least RTT of late.
    pub fn acknowledged_after(self) -> Duration {
        let monitor = &self.0.monitor;
        monitor.acknowledged_after().min(monitor.min_rtt())
    }

    /// Time from sending until a loss is noticed, when nothing queues on the way.
    pub fn loss_known_after(self) -> Duration {
        self.0.monitor.loss_known_after()
    }

    /// Time from sending until an acknowledgement is overdue.
    pub fn overdue_after(self) -> Duration {
        self.0.monitor.overdue_after()
    }

    /// Bytes of the largest datagram that the path carries.
    pub fn max_datagram(self) -> usize {
        self.0.max_datagram()
    }

    /// What the path can carry.
    pub fn bandwidth(self) -> Bandwidth {
        self.0.monitor.bandwidth()
    }

    /// The path's loss.
    pub fn loss(self) -> Loss {
        self.0.monitor.loss()
    }
}
