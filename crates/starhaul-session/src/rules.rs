//! The multipath scheduler by rules: a path that may send now carries a fragment unless it arrives sooner over another, or over
//! one that is cheaper and still in time (docs/deadlines.md "Choice of path").

use std::{
    cell::LazyCell,
    time::{Duration, Instant},
};

use starhaul_paths::PathId;

use crate::scheduler::{Frame, Limit, Load, PathView, Scheduler, SchedulerStatus, View};

/// Predictions closer than this count as equal.
const TIE: Duration = Duration::from_millis(1);

/// Bytes of a stream wait for a cheaper path rather than take one over which they arrive sooner by less.
const COST_PATIENCE: Duration = Duration::from_millis(500);

/// The scheduler that a session uses if it is given no other.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Rules;

impl Scheduler for Rules {
    /// When another path that is cheaper can carry the whole rest in time, no; otherwise when the last waiting fragment would not
    /// arrive sooner over another path.
    fn takes_data(&self, view: &View<'_>, load: Load, limit: Limit) -> bool {
        let (now, id) = (view.now(), view.path());
        let Some(this) = view.this() else {
            return false;
        };
        if view.is_alone() {
            return true;
        }
        let own = LazyCell::new(|| this.predict_arrival(now, 0, load.fragment));
        let enough = LazyCell::new(|| {
            in_time(
                view,
                this,
                this.predict_arrival(now, 0, load.waiting),
                limit,
            )
        });
        for (other_id, other) in view.carrying(load.fragment) {
            let order = other.cost().total_cmp(&this.cost());
            // A dearer path is not waited for when this one is in time.
            if other_id == id || order.is_gt() && *enough {
                continue;
            }
            let last = other.predict_arrival(now, load.ahead, load.waiting);
            if order.is_lt() && in_time(view, other, last, limit) || last < *own {
                return false;
            }
        }
        true
    }

    /// While there is time for one more try it goes where it arrives first; the last try goes where it is least likely to be lost.
    fn takes_retransmission(
        &self,
        view: &View<'_>,
        _lost_on: Option<PathId>,
        bytes: u64,
        Limit { deadline, .. }: Limit,
    ) -> bool {
        let (now, id) = (view.now(), view.path());
        let arrival = |path: PathView<'_>| path.predict_arrival(now, 0, bytes);
        let Some(this) = view.this() else {
            return false;
        };
        if arrival(this) > deadline {
            return false;
        }
        let mut others = view
            .carrying(bytes)
            .filter(|(other, path)| *other != id && arrival(*path) <= deadline);
        if !is_last_try(view, bytes, deadline) {
            return others.all(|(_, other)| arrival(this) <= arrival(other) + TIE);
        }
        let risk = |path: PathView<'_>| path.loss().window_max;
        others.all(|(_, other)| risk(this) <= risk(other))
    }

    /// On another path than most of the block's data, if it arrives over another by `limit`. Spare redundancy is not worth the price
    /// of a dearer path.
    fn takes_redundancy(
        &self,
        view: &View<'_>,
        main: Option<PathId>,
        bytes: u64,
        limit: Limit,
    ) -> bool {
        let id = view.path();
        let in_time =
            |path: PathView<'_>| path.predict_arrival(view.now(), 0, bytes) <= limit.deadline;
        if main != Some(id) {
            let affordable = |path| !limit.is_spare || view.cheaper_than(path) == 0;
            return view
                .this()
                .is_some_and(|path| in_time(path) && affordable(path));
        }
        !view
            .carrying(bytes)
            .any(|(other, path)| other != id && in_time(path))
    }

    /// On another path than the first, when there is one.
    fn takes_copy(&self, view: &View<'_>, first: Option<PathId>, bytes: u64) -> bool {
        let id = view.path();
        first != Some(id) || view.carrying(bytes).all(|(other, _)| other == id)
    }

    /// A dearer path must bring something: half a second sooner for each cheaper one.
    fn takes_frame(&self, view: &View<'_>, frame: Frame) -> bool {
        let (now, id) = (view.now(), view.path());
        let Some(this) = view.this() else {
            return false;
        };
        if view.is_alone() {
            return true;
        }
        let patience = if frame.at_any_cost {
            Duration::ZERO
        } else {
            COST_PATIENCE
        };
        // The same sum for every path, so that they never leave it to each other.
        let worth = |path: PathView<'_>, bytes: u64| {
            path.predict_arrival(now, 0, bytes) + patience * view.cheaper_than(path)
        };
        let own = worth(this, frame.bytes);
        view.usable().all(|(other, path)| {
            other == id || own <= worth(path, frame.backlog.max(frame.bytes)) + TIE
        })
    }

    fn status(&self) -> SchedulerStatus {
        SchedulerStatus {
            name: "rules",
            ..SchedulerStatus::default()
        }
    }
}

/// Whether a fragment of `bytes` that is sent now and lost cannot be sent again. The same for all paths, so that they never leave it to
/// each other.
pub(crate) fn is_last_try(view: &View<'_>, bytes: u64, deadline: Instant) -> bool {
    let overdue = view.carrying(bytes).map(|(_, path)| path.overdue_after());
    let soonest_overdue = overdue.min().unwrap_or_default();
    view.now() + soonest_overdue + view.least_delay() + TIE > deadline
}

/// Whether what is sent now over `path` and lost there cannot be sent again.
pub(crate) fn is_last_on(view: &View<'_>, path: PathView<'_>, deadline: Instant) -> bool {
    view.now() + path.overdue_after() + view.least_delay() + TIE > deadline
}

/// The path other than `path` over which `bytes` arrive first, if they do by the deadline.
pub(crate) fn soonest_other(
    view: &View<'_>,
    path: Option<PathId>,
    bytes: u64,
    deadline: Instant,
) -> Option<PathId> {
    let others = view.carrying(bytes).filter(|(id, _)| Some(*id) != path);
    let arrivals = others.map(|(id, other)| (other.predict_arrival(view.now(), 0, bytes), id));
    let (arrival, id) = arrivals.min()?;
    (arrival <= deadline).then_some(id)
}

/// Whether something that arrives over `path` at `arrival` keeps the limit, with room for one retransmission where that is
/// what protects it.
fn in_time(view: &View<'_>, path: PathView<'_>, arrival: Instant, limit: Limit) -> bool {
    if !limit.class.retransmits {
        return arrival + TIE <= limit.deadline;
    }
    let left = arrival.checked_sub(path.one_way_delay()).unwrap_or(arrival);
    left + path.overdue_after() + view.least_delay() + TIE <= limit.deadline
}

/// When a fragment sent again, should it be lost on `path`, would arrive: redundancy that comes later saves nothing.
pub(crate) fn recovered_by(view: &View<'_>, path: Option<PathId>) -> Option<Instant> {
    let path = view.get(path?)?;
    view.now()
        .checked_add(path.overdue_after() + view.least_delay())
}

/// When a frame sent on this path now arrives, if it would arrive sooner over another path that is busy now.
pub(crate) fn straggles(view: &View<'_>, bytes: u64) -> Option<Instant> {
    if view.is_alone() {
        return None;
    }
    let own = view.this()?.predict_arrival(view.now(), 0, bytes);
    view.usable()
        .any(|(_, other)| other.predict_arrival(view.now(), 0, bytes) + TIE < own)
        .then_some(own)
}
