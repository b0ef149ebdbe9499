//! The multipath scheduler's face: a scheduler decides, from a read-only view of the paths, whether a path that may send now carries
//! what waits or leaves it to another. What goes first is decided before it is asked (`send/queue.rs`).
//!
//! [`Rules`](crate::rules::Rules) is the one in use. An optimizer or, in experiments, a scheduler that knows the future is another
//! implementation, given to [`Session::with_scheduler`](crate::Session::with_scheduler).

use std::{
    fmt::Debug,
    time::{Duration, Instant},
};

use starhaul_paths::{Loss, PathId};
use starhaul_units::Bandwidth;

use crate::{
    batch::Overview,
    paths::{Path, Paths},
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
}

/// A block's time limit, and whether what is lost of it is sent again.
#[derive(Clone, Copy, Debug)]
pub struct Limit {
    /// When it must have arrived.
    pub deadline: Instant,
    /// Lost fragments are retransmitted.
    pub retransmits: bool,
}

/// A frame of a reliable stream that may leave.
#[derive(Clone, Copy, Debug)]
pub struct Frame {
    /// Bytes of the stream that wait, this frame included; `u64::MAX` while the application fills all paths.
    pub backlog: u64,
    /// Bytes of the frame.
    pub bytes: u64,
    /// It goes whatever it costs: everything waits for it.
    pub at_any_cost: bool,
}

/// Chooses the path of each datagram. The session asks for each path that may send now; a scheduler that declines for all paths
/// stops the session, so of two paths that both could carry something one must say yes. It is not asked for the last frames of a stream
/// that wait on a slow path: where nothing else wants the cheapest path, they are repeated there if they arrive sooner.
pub trait Scheduler: Debug + Send {
    /// Whether a fragment that was never sent should leave on this path.
    fn takes_data(&self, view: &View<'_>, load: Load, limit: Limit) -> bool;

    /// Whether a lost fragment of `bytes` should be sent again on this path.
    fn takes_retransmission(&self, view: &View<'_>, bytes: u64, deadline: Instant) -> bool;

    /// Whether redundancy of `bytes` of a block, most of whose data left on `main`, should leave on this path to arrive by `limit`.
    fn takes_redundancy(
        &self,
        view: &View<'_>,
        main: Option<PathId>,
        bytes: u64,
        limit: Instant,
    ) -> bool;

    /// Whether the second copy of a fragment of `bytes` should leave on this path, when the first left on `first`.
    fn takes_copy(&self, view: &View<'_>, first: Option<PathId>, bytes: u64) -> bool;

    /// Whether a frame of a reliable stream should leave on this path.
    fn takes_frame(&self, view: &View<'_>, frame: Frame) -> bool;
}

/// What a scheduler sees: the time, the paths, and the path that may send now.
#[derive(Clone, Copy, Debug)]
pub struct View<'a> {
    now: Instant,
    paths: &'a Paths,
    path: PathId,
    this: Option<PathView<'a>>,
    overview: Overview,
}

impl<'a> View<'a> {
    pub(crate) fn new(now: Instant, paths: &'a Paths, path: PathId, overview: Overview) -> Self {
        Self {
            now,
            paths,
            path,
            this: paths.get(path).map(PathView),
            overview,
        }
    }

    /// The present.
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
        let all = self.overview.all_silent;
        let paths = self.paths.iter().map(|(id, path)| (id, PathView(path)));
        paths.filter(move |(_, path)| all || !path.0.monitor.is_suspect())
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
    /// Price per byte; only its order matters.
    pub fn cost(self) -> f64 {
        self.0.monitor.cost()
    }

    /// When `bytes` would arrive, sent behind `ahead` bytes that wait for this path already.
    pub fn predict_arrival(self, now: Instant, ahead: u64, bytes: u64) -> Instant {
        self.0.monitor.predict_arrival(now, ahead, bytes)
    }

    /// Smoothed one-way delay.
    pub fn one_way_delay(self) -> Duration {
        self.0.monitor.one_way_delay()
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
