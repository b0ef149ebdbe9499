//! The multipath scheduler: whether a path that may send now should carry a fragment, or leave it to a path over which it
//! arrives sooner, or that is cheaper and still in time (docs/deadlines.md "Choice of path"). The optimizer's shares will enter here.

use std::time::{Duration, Instant};

use starhaul_paths::PathId;

use crate::paths::{Path, Paths};

/// Predictions closer than this count as equal.
const TIE: Duration = Duration::from_millis(1);

/// Bytes of a stream wait for a cheaper path rather than take one over which they arrive sooner by less.
const COST_PATIENCE: Duration = Duration::from_millis(500);

/// What waits to be sent, seen from one fragment of a block.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Load {
    /// Bytes that go before the block.
    pub(crate) ahead: u64,
    /// Bytes of the block that still wait, this fragment included.
    pub(crate) waiting: u64,
    /// Bytes of the fragment.
    pub(crate) fragment: u64,
}

/// A block's time limit, and whether what is lost of it is sent again.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Limit {
    pub(crate) deadline: Instant,
    pub(crate) retransmits: bool,
}

/// Whether a fragment that was never sent should leave on `id`: when another path that is cheaper can carry the whole rest in
/// time, no; otherwise when the last waiting fragment would not arrive sooner over another path.
pub(crate) fn takes_data(
    paths: &Paths,
    now: Instant,
    id: PathId,
    load: Load,
    limit: Limit,
) -> bool {
    let Some(this) = paths.get(id) else {
        return false;
    };
    if paths.usable().all(|(other, _)| other == id) {
        return true;
    }
    let own = this.monitor.predict_arrival(now, 0, load.fragment);
    let enough = in_time(
        paths,
        this,
        this.monitor.predict_arrival(now, 0, load.waiting),
        limit,
    );
    for (other_id, other) in paths.carrying(load.fragment) {
        if other_id == id {
            continue;
        }
        let last = other.monitor.predict_arrival(now, load.ahead, load.waiting);
        let cheaper = other.monitor.cost().total_cmp(&this.monitor.cost());
        if cheaper.is_lt() && in_time(paths, other, last, limit) {
            return false;
        }
        // A dearer path is not waited for when this one is in time.
        if cheaper.is_gt() && enough {
            continue;
        }
        if last < own {
            return false;
        }
    }
    true
}

/// Whether something that arrives over `path` at `arrival` keeps the limit, with room for one retransmission where that is
/// what protects it.
fn in_time(paths: &Paths, path: &Path, arrival: Instant, limit: Limit) -> bool {
    if !limit.retransmits {
        return arrival + TIE <= limit.deadline;
    }
    let left = arrival
        .checked_sub(path.monitor.one_way_delay())
        .unwrap_or(arrival);
    left + path.monitor.overdue_after() + paths.least_delay() + TIE <= limit.deadline
}

/// Whether a lost fragment should be sent again on `id`. While there is time for one more try it goes where it arrives first;
/// the last try goes where it is least likely to be lost.
pub(crate) fn takes_retransmission(
    paths: &Paths,
    now: Instant,
    id: PathId,
    bytes: u64,
    deadline: Instant,
) -> bool {
    let arrival = |path: &Path| path.monitor.predict_arrival(now, 0, bytes);
    let Some(this) = paths.get(id) else {
        return false;
    };
    if arrival(this) > deadline {
        return false;
    }
    let mut others = paths
        .carrying(bytes)
        .filter(|(other, path)| *other != id && arrival(path) <= deadline);
    // The same for all paths, so that they never leave it to each other.
    let soonest_word = paths
        .carrying(bytes)
        .map(|(_, path)| path.monitor.overdue_after())
        .min()
        .unwrap_or_default();
    if now + soonest_word + paths.least_delay() + TIE <= deadline {
        return others.all(|(_, other)| arrival(this) <= arrival(other) + TIE);
    }
    let risk = |path: &Path| path.monitor.loss().window_max;
    others.all(|(_, other)| risk(this) <= risk(other))
}

/// Whether redundancy of a block should leave on `id`: on another path than most of its data, if it arrives over another by
/// `limit`.
pub(crate) fn takes_redundancy(
    paths: &Paths,
    now: Instant,
    id: PathId,
    main: Option<PathId>,
    bytes: u64,
    limit: Instant,
) -> bool {
    let in_time = |path: &Path| path.monitor.predict_arrival(now, 0, bytes) <= limit;
    if main != Some(id) {
        return paths.get(id).is_some_and(in_time);
    }
    !paths
        .carrying(bytes)
        .any(|(other, path)| other != id && in_time(path))
}

/// When a fragment sent again, should it be lost on `id`, would arrive: redundancy that comes later saves nothing.
pub(crate) fn recovered_by(paths: &Paths, now: Instant, id: Option<PathId>) -> Option<Instant> {
    let path = paths.get(id?)?;
    now.checked_add(path.monitor.overdue_after() + paths.least_delay())
}

/// Whether the second copy of a fragment should leave on `id`: on another path than the first, when there is one.
pub(crate) fn takes_copy(paths: &Paths, id: PathId, first: Option<PathId>, bytes: u64) -> bool {
    first != Some(id) || paths.carrying(bytes).all(|(other, _)| other == id)
}

/// Whether a piece of a reliable stream, the first of `backlog` waiting bytes, should leave on `id`. A dearer path must bring
/// something: half a second sooner for each cheaper one.
pub(crate) fn takes_piece(
    paths: &Paths,
    now: Instant,
    id: PathId,
    backlog: u64,
    bytes: u64,
) -> bool {
    takes_bytes(paths, now, id, backlog, bytes, COST_PATIENCE)
}

/// The same, whatever it costs: for what the whole session waits for, and for what is sent again of a stream that fills all paths.
pub(crate) fn takes_at_any_cost(
    paths: &Paths,
    now: Instant,
    id: PathId,
    backlog: u64,
    bytes: u64,
) -> bool {
    takes_bytes(paths, now, id, backlog, bytes, Duration::ZERO)
}

fn takes_bytes(
    paths: &Paths,
    now: Instant,
    id: PathId,
    backlog: u64,
    bytes: u64,
    patience: Duration,
) -> bool {
    let Some(this) = paths.get(id) else {
        return false;
    };
    // The same sum for every path, so that they never leave it to each other.
    let worth = |path: &Path, bytes: u64| {
        path.monitor.predict_arrival(now, 0, bytes) + patience * cheaper_than(paths, path)
    };
    let own = worth(this, bytes);
    paths
        .usable()
        .all(|(other, path)| other == id || own <= worth(path, backlog.max(bytes)) + TIE)
}

/// How many usable paths cost less.
pub(crate) fn cheaper_than(paths: &Paths, path: &Path) -> u32 {
    let cost = path.monitor.cost();
    paths.usable().fold(0, |count, (_, other)| {
        count + u32::from(other.monitor.cost().total_cmp(&cost).is_lt())
    })
}

/// When a piece sent on `id` now arrives, if it would arrive sooner over another path that is busy now.
pub(crate) fn straggles(paths: &Paths, now: Instant, id: PathId, bytes: u64) -> Option<Instant> {
    let own = paths.get(id)?.monitor.predict_arrival(now, 0, bytes);
    paths
        .usable()
        .any(|(_, other)| other.monitor.predict_arrival(now, 0, bytes) + TIE < own)
        .then_some(own)
}
