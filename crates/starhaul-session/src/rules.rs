//! The multipath scheduler by rules: a path that may send now carries a fragment unless it arrives sooner over another, or over
//! one that is cheaper and still in time (docs/deadlines.md "Choice of path").

use std::{
    cell::LazyCell,
    time::{Duration, Instant},
};

use starhaul_paths::PathId;

use crate::scheduler::{
    Frame, Leaving, Limit, Load, PathView, Scheduler, SchedulerStatus, Thrift, View,
};

/// Serialisation and jitter of a retransmission sent at the last chance.
pub(crate) const LAST_CHANCE_MARGIN: Duration = Duration::from_millis(3);

/// Probability with which a block may fail: a path that loses no more is sure enough, and redundancy may fall short so often.
pub(crate) const EPSILON: f64 = 1e-3;

/// Predictions closer than this count as equal.
const TIE: Duration = Duration::from_millis(1);

/// Bytes of a stream wait for a cheaper path rather than take one over which they arrive sooner by less.
const COST_PATIENCE: Duration = Duration::from_millis(500);

/// … and for one that has just fallen silent rather than take one of the last resort.
const SPARED_PATIENCE: Duration = Duration::from_secs(1);

/// The scheduler that a session uses if it is given no other.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Rules;

impl Scheduler for Rules {
    /// What could not be sent again in time goes where it is least likely to be lost, if that path takes it; all else as [`takes_by_time`] says.
    fn takes_data(&self, view: &View<'_>, load: Load, limit: Limit) -> bool {
        let Some(this) = view.this() else {
            return false;
        };
        let is_kept = || !leaves_to_another(view, load.fragment, limit.deadline);
        if view.is_alone() {
            return is_kept();
        }
        let way = (view.path(), this);
        // A surer path that takes it by this rule leaves it to none but a surer one still: in the end one takes it.
        let leaves_to_surer = || {
            view.carrying(load.fragment).any(|(id, other)| {
                id != view.path()
                    && is_unsafe(view, (this, other), load, limit)
                    && takes_by_time(view, (id, other), load, limit)
            })
        };
        takes_by_time(view, way, load, limit)
            && (!load.is_bare || is_sure(view, this) || !leaves_to_surer())
            && is_kept()
    }

    /// A path that is enough is so for each that costs more, unless it loses what could not be sent again in time.
    fn leaving(&self, view: &View<'_>, load: Load, limit: Limit) -> Option<Leaving> {
        let (now, mut least) = (view.now(), None);
        for (_, path) in view.carrying(load.fragment) {
            let arrival = |ahead, bytes| path.predict_arrival(now, ahead, bytes);
            if least.is_none_or(|least| path.cost().total_cmp(&least).is_lt())
                && in_time(view, path, arrival(load.ahead, load.waiting), limit)
                && (!load.is_bare
                    || is_sure(view, path)
                    || in_time(view, path, arrival(0, load.fragment), limit))
            {
                least = Some(path.cost());
            }
        }
        least.map(Leaving::Dearer)
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
        if arrival(this) > deadline || is_spared(view, this, bytes, deadline) {
            return false;
        }
        let mut others = view.carrying(bytes).filter(|(other, path)| {
            let is_spared = path.is_last_resort() && !this.is_last_resort();
            *other != id && !is_spared && arrival(*path) <= deadline
        });
        if !is_last_try(view, bytes, deadline) {
            return others.all(|(_, other)| arrival(this) <= arrival(other) + TIE);
        }
        let risk = |path: PathView<'_>| view.feared_of(path);
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
        let is_affordable = |path: PathView<'_>| !limit.is_spare || view.cheaper_than(path) == 0;
        takes_beside(view, main, bytes, limit.deadline, is_affordable)
    }

    /// On another path than the first, if it arrives over another in time; otherwise once more on the same.
    fn takes_copy(&self, view: &View<'_>, first: Option<PathId>, bytes: u64, limit: Limit) -> bool {
        takes_beside(view, first, bytes, limit.deadline, |_| true)
    }

    /// A dearer path must bring something: half a second sooner for each cheaper one.
    fn takes_frame(&self, view: &View<'_>, frame: Frame) -> bool {
        let (now, id) = (view.now(), view.path());
        let Some(this) = view.this() else {
            return false;
        };
        if waits_out_a_pause(view, this, frame.thrift) {
            return false;
        }
        if view.is_alone() {
            return true;
        }
        let patience = match frame.thrift {
            Thrift::Patient => COST_PATIENCE,
            Thrift::Prompt | Thrift::None => Duration::ZERO,
        };
        let is_spared = |path: PathView<'_>| path.is_last_resort() && frame.thrift != Thrift::None;
        if is_spared(this) && view.usable().any(|(_, other)| !is_spared(other)) {
            return false;
        }
        // The same sum for every path, so that they never leave it to each other.
        let worth = |path: PathView<'_>, bytes: u64| {
            path.predict_arrival(now, 0, bytes) + patience * view.cheaper_than(path)
        };
        let own = worth(this, frame.bytes);
        // All paths that are left are of the last resort, or none is.
        view.usable()
            .filter(|(other, path)| *other != id && is_spared(*path) == is_spared(this))
            .all(|(_, path)| own <= worth(path, frame.backlog.max(frame.bytes)) + TIE)
    }

    fn status(&self) -> SchedulerStatus {
        SchedulerStatus {
            name: "rules",
            ..SchedulerStatus::default()
        }
    }
}

/// Whether a path takes a fragment, but for what may be lost over it: when another path that is cheaper can carry the whole rest in time, no;
/// otherwise when the last waiting fragment would not arrive sooner over another path, or could not be sent again there.
fn takes_by_time(
    view: &View<'_>,
    (id, this): (PathId, PathView<'_>),
    load: Load,
    limit: Limit,
) -> bool {
    let now = view.now();
    let own = LazyCell::new(|| this.predict_arrival(now, 0, load.fragment));
    let whole = LazyCell::new(|| this.predict_arrival(now, 0, load.waiting));
    let enough = LazyCell::new(|| in_time(view, this, *whole, limit));
    for (other_id, other) in view.carrying(load.fragment) {
        let order = other.cost().total_cmp(&this.cost());
        // A dearer path is not waited for when this one is in time; the last resort not even for a retransmission.
        let is_spared = other.is_last_resort() && !this.is_last_resort();
        let suffices = || *enough || is_spared && *whole + TIE <= limit.deadline;
        if other_id == id || order.is_gt() && suffices() {
            continue;
        }
        if load.is_bare && is_unsafe(view, (other, this), load, limit) {
            continue;
        }
        let last = other.predict_arrival(now, load.ahead, load.waiting);
        let is_enough = in_time(view, other, last, limit);
        if order.is_lt() && is_enough {
            return false;
        }
        let spares_this =
            this.is_last_resort() && !other.is_last_resort() && last + TIE <= limit.deadline;
        // What is late over both goes over the one that may be in time after all. A path that is in time waits for none that is not:
        // that one may wait for a third, which waits for this one.
        let is_sooner = last < *own
            && (is_enough || !*enough)
            && (last <= limit.deadline
                || !may_be_in_time(now, this, load.fragment, limit.deadline));
        if spares_this || is_sooner {
            return false;
        }
    }
    true
}

/// Whether bytes wait for a cheaper path that has just fallen silent, as a satellite link does when it changes the satellite: it may be back
/// before a window of them has left over this one.
fn waits_out_a_pause(view: &View<'_>, this: PathView<'_>, thrift: Thrift) -> bool {
    let patience = |other: PathView<'_>| match thrift {
        Thrift::None => Duration::ZERO,
        Thrift::Patient | Thrift::Prompt if this.is_last_resort() && !other.is_last_resort() => {
            SPARED_PATIENCE
        }
        Thrift::Patient if other.cost() < this.cost() => COST_PATIENCE,
        Thrift::Patient | Thrift::Prompt => Duration::ZERO,
    };
    view.all()
        .any(|(_, other)| other.is_silent_for_less_than(view.now(), patience(other)))
}

/// Whether what protects data that left on the path `first` should leave on the path that may send now, which must be affordable: if it
/// arrives by the deadline, on another than the first; on the first if it does so over no other.
fn takes_beside(
    view: &View<'_>,
    first: Option<PathId>,
    bytes: u64,
    deadline: Instant,
    is_affordable: impl Fn(PathView<'_>) -> bool,
) -> bool {
    let id = view.path();
    let Some(this) = view.this() else {
        return false;
    };
    if !is_affordable(this) || is_spared(view, this, bytes, deadline) {
        return false;
    }
    let in_time = |path: PathView<'_>| path.predict_arrival(view.now(), 0, bytes) <= deadline;
    if first != Some(id) {
        return in_time(this);
    }
    let mut others = view.carrying(bytes).filter(|(other, _)| *other != id);
    !others.any(|(_, path)| in_time(path) && !is_spared(view, path, bytes, deadline))
}

/// Whether a path is of the last resort, and another brings `bytes` by the deadline.
pub(crate) fn is_spared(
    view: &View<'_>,
    path: PathView<'_>,
    bytes: u64,
    deadline: Instant,
) -> bool {
    path.is_last_resort()
        && view.carrying(bytes).any(|(_, other)| {
            !other.is_last_resort() && other.predict_arrival(view.now(), 0, bytes) <= deadline
        })
}

/// Whether a fragment of `bytes` that is sent now and lost cannot be sent again. The same for all paths, so that they never leave it to
/// each other.
pub(crate) fn is_last_try(view: &View<'_>, bytes: u64, deadline: Instant) -> bool {
    let overdue = view.carrying(bytes).map(|(_, path)| path.overdue_after());
    let soonest_overdue = overdue.min().unwrap_or_default();
    view.now() + soonest_overdue + view.least_delay() + TIE > deadline
}

/// Whether `bytes` that wait for `path`, and are lost there, cannot be sent again.
pub(crate) fn is_last_on(
    view: &View<'_>,
    path: PathView<'_>,
    bytes: u64,
    deadline: Instant,
) -> bool {
    let arrival = path.predict_arrival(view.now(), 0, bytes);
    let left = arrival.checked_sub(path.one_way_delay());
    let left = left.unwrap_or(arrival).max(view.now());
    left + path.overdue_after() + view.least_delay() + TIE > deadline
}

/// Whether `bytes` sent now over `path` may arrive by the deadline, if its queue is gone and its silence ends.
fn may_be_in_time(now: Instant, path: PathView<'_>, bytes: u64, deadline: Instant) -> bool {
    now + path.least_flight(bytes) <= deadline
}

/// Whether something that would surely be late over the path that may send now is better kept for another: also for a silent one, which
/// may come back in time.
pub(crate) fn leaves_to_another(view: &View<'_>, bytes: u64, deadline: Instant) -> bool {
    let may_be = |path: PathView<'_>| may_be_in_time(view.now(), path, bytes, deadline);
    let others = view
        .all()
        .filter(|(id, other)| *id != view.path() && other.max_datagram() as u64 >= bytes);
    let mut others = others.peekable();
    // Asked for each fragment: a path without others is not weighed.
    let has_others = others.peek().is_some();
    let is_late = has_others && view.this().is_some_and(|this| !may_be(this));
    is_late && others.any(|(_, other)| may_be(other))
}

/// The path other than `path` over which `bytes` arrive first, if they do by the deadline; one of the last resort if they do over no
/// other, `path` included.
pub(crate) fn soonest_other(
    view: &View<'_>,
    path: Option<PathId>,
    bytes: u64,
    deadline: Instant,
) -> Option<PathId> {
    let others = view
        .carrying(bytes)
        .filter(|(id, other)| Some(*id) != path && !is_spared(view, *other, bytes, deadline));
    let arrivals = others.map(|(id, other)| {
        let arrival = other.predict_arrival(view.now(), 0, bytes);
        (other.is_last_resort(), arrival, id)
    });
    let in_time = arrivals.filter(|(_, arrival, _)| *arrival <= deadline);
    in_time.min().map(|(_, _, id)| id)
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

/// Whether a fragment that is lost over the first path cannot be sent again in time, and another that loses clearly less brings the rest of its
/// block in time, too.
fn is_unsafe(
    view: &View<'_>,
    (path, other): (PathView<'_>, PathView<'_>),
    load: Load,
    limit: Limit,
) -> bool {
    let grade = |path: PathView<'_>| loss_grade(view.feared_of(path));
    let is_spared = other.is_last_resort() && !path.is_last_resort();
    if !limit.class.retransmits || is_spared || is_sure(view, path) || grade(other) >= grade(path) {
        return false;
    }
    let now = view.now();
    let over_other = other.predict_arrival(now, load.ahead, load.waiting);
    over_other + LAST_CHANCE_MARGIN <= limit.deadline
        && !in_time(
            view,
            path,
            path.predict_arrival(now, 0, load.fragment),
            limit,
        )
}

/// Whether a path loses so little that none is safer.
fn is_sure(view: &View<'_>, path: PathView<'_>) -> bool {
    view.feared_of(path) <= EPSILON
}

/// How much is lost in steps of a factor of two, 0 where a block may fail as often: paths that lose about the same are as good as each other. Grades,
/// unlike ratios, put any number of paths in one order.
fn loss_grade(lost: f64) -> i32 {
    if lost <= EPSILON {
        return 0;
    }
    #[expect(
        clippy::cast_possible_truncation,
        reason = "a share is at most 1 and greater than EPSILON here"
    )]
    let grade = (lost / EPSILON).log2().ceil() as i32;
    grade
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

#[cfg(test)]
mod tests {
    use rand::{Rng as _, SeedableRng as _, seq::IndexedRandom as _};
    use rand_chacha::ChaCha8Rng;
    use starhaul_paths::PathUpdate;
    use starhaul_units::Bandwidth;

    use super::*;
    use crate::{
        item::Item,
        paths::{LAST_RESORT, Path, Paths},
        scheduler::Class,
    };

    const MS: Duration = Duration::from_millis(1);
    const FAST: PathId = PathId(0);
    const SLOW: PathId = PathId(1);

    fn path(rtt_ms: u32, in_flight: u64) -> PathUpdate {
        PathUpdate {
            cwnd: 100_000,
            bytes_in_flight: in_flight,
            bandwidth: Bandwidth::from_mbit(10),
            smoothed_rtt: rtt_ms * MS,
            min_rtt: rtt_ms * MS,
            max_datagram: 1_200,
        }
    }

    /// A path of 20 ms there and back with so many bytes in flight, and one of 600 ms.
    fn paths(now: Instant, in_flight: u64) -> Paths {
        let mut paths = Paths::default();
        paths.add(now, FAST, 0.0, path(20, in_flight));
        paths.add(now, SLOW, 0.0, path(600, 0));
        paths
    }

    fn limit(deadline: Instant) -> Limit {
        Limit {
            deadline,
            class: Class {
                priority: 1,
                span: 7,
                retransmits: true,
                codes: true,
            },
            is_spare: false,
        }
    }

    fn view(now: Instant, paths: &Paths, id: PathId) -> View<'_> {
        View::new(now, paths, id, paths.overview(id))
    }

    #[test]
    fn bytes_wait_out_a_pause_rather_than_take_the_last_resort() {
        let now = Instant::now();
        let mut paths = paths(now, 0);
        paths.set_cost(SLOW, LAST_RESORT);
        let fast = paths.get_mut(FAST).unwrap();
        for _ in 0..10 {
            fast.monitor.on_sent(now, 1_000, Item::Probe, true);
        }
        let silent = now + 200 * MS;
        assert!(fast.monitor.on_timeout(silent));
        fast.probe_soon(silent);
        let takes = |after_ms: u32, thrift: Thrift| {
            let frame = Frame {
                backlog: 1_000_000,
                bytes: 1_000,
                is_due: false,
                thrift,
            };
            Rules.takes_frame(&view(silent + after_ms * MS, &paths, SLOW), frame)
        };
        let patient = [10, 900, 1_100].map(|after| takes(after, Thrift::Patient));
        assert_eq!(patient, [false, false, true]);
        assert!(takes(10, Thrift::None));
    }

    /// So many of 200 datagrams were lost, evenly, and the others acknowledged after this time.
    fn lose(sent_at: Instant, path: &mut Path, lost: u64, after: Duration) {
        let monitor = &mut path.monitor;
        let sent: Vec<_> = (0..200)
            .map(|_| monitor.on_sent(sent_at, 200, Item::Probe, true))
            .collect();
        let now = sent_at + after;
        for (number, sequence) in (0..).zip(sent) {
            if number * lost % 200 < lost {
                monitor.on_lost(now, sequence);
            } else {
                monitor.on_acked(now, sequence, sequence, None, &mut Vec::new());
            }
        }
    }

    /// Which of both paths takes a fragment that is due in so many milliseconds.
    fn taking(now: Instant, paths: &Paths, deadline_ms: u32) -> [bool; 2] {
        let load = Load {
            ahead: 0,
            waiting: 1_000,
            fragment: 1_000,
            waits: false,
            is_bare: false,
        };
        [FAST, SLOW].map(|id| {
            let limit = limit(now + deadline_ms * MS);
            Rules.takes_data(&view(now, paths, id), load, limit)
        })
    }

    #[test]
    fn a_copy_takes_no_path_on_which_it_comes_too_late() {
        let now = Instant::now();
        let paths = paths(now, 0);
        let takes = |deadline_ms: u32| {
            [FAST, SLOW].map(|id| {
                let limit = limit(now + deadline_ms * MS);
                Rules.takes_copy(&view(now, &paths, id), Some(FAST), 1_000, limit)
            })
        };
        assert_eq!(takes(500), [false, true]);
        assert_eq!(takes(150), [true, false]);
    }

    /// The rate has fallen: what is in flight beyond the window takes 720 ms.
    #[test]
    fn what_waits_for_a_path_long_enough_is_a_last_try_there() {
        let now = Instant::now();
        let is_last = |in_flight| {
            let paths = paths(now, in_flight);
            let view = view(now, &paths, FAST);
            is_last_on(&view, view.this().unwrap(), 1_000, now + 700 * MS)
        };
        assert!(!is_last(0));
        assert!(is_last(1_000_000));
    }

    #[test]
    fn a_late_path_leaves_what_another_may_bring_in_time() {
        let now = Instant::now();
        let paths = paths(now, 0);
        let takes = |deadline_ms| taking(now, &paths, deadline_ms);
        assert_eq!(takes(150), [true, false]);
        // Nothing is gained by keeping what is late over both.
        assert_ne!(takes(5), [false, false]);
    }

    /// Both paths take 60 ms one way; the first costs less and loses each tenth.
    #[test]
    fn what_cannot_be_sent_again_in_time_leaves_where_it_is_not_lost() {
        let start = Instant::now();
        let mut paths = Paths::default();
        for (id, cost) in [(FAST, 1.0), (SLOW, 3.0)] {
            paths.add(start, id, cost, path(120, 0));
        }
        let now = start + 120 * MS;
        for (id, lost) in [(FAST, 20), (SLOW, 0)] {
            let path = paths.get_mut(id).unwrap();
            lose(start, path, lost, 120 * MS);
            path.monitor.update(now, self::path(120, 0));
        }
        let takes = |deadline_ms: u32, is_bare| {
            let load = Load {
                ahead: 0,
                waiting: 3_000,
                fragment: 1_000,
                waits: false,
                is_bare,
            };
            [FAST, SLOW].map(|id| {
                let view = view(now, &paths, id);
                Rules.takes_data(&view, load, limit(now + deadline_ms * MS))
            })
        };
        assert_eq!(takes(300, true), [true, false]);
        assert_eq!(takes(150, true), [false, true]);
        assert_eq!(takes(150, false), [true, true], "redundancy repairs it");
        assert!(takes(50, true)[0], "it is late over both");
    }

    /// Three paths of which the first is the cheapest and has the most variation: what is known of each is a figure, and none may leave
    /// a fragment to the next, that one to the third, and the third to the first.
    #[test]
    fn of_several_paths_one_takes_what_they_all_could_carry() {
        let start = Instant::now();
        let now = start + 200 * MS;
        let mut random = ChaCha8Rng::seed_from_u64(11);
        let mut waited = 0;
        for round in 0..20_000 {
            let mut paths = Paths::default();
            let count = random.random_range(2..=4);
            for id in 0..count {
                let cost = *[0.0, 1.0, 2.0, LAST_RESORT].choose(&mut random).unwrap();
                let rtt = random.random_range(10..120);
                paths.add(start, PathId(id), cost, path(rtt, 0));
                let path = paths.get_mut(PathId(id)).unwrap();
                if random.random() {
                    // Acknowledgements may come over another path, but not before what they acknowledge has arrived.
                    let after = rtt / 2 + random.random_range(0..120);
                    lose(start, path, random.random_range(0..=60), after * MS);
                }
                // Delays that differ more than acknowledgements, and the reverse.
                let jittered = PathUpdate {
                    smoothed_rtt: (rtt + random.random_range(0..80)) * MS,
                    bytes_in_flight: random.random_range(0..200_000),
                    ..self::path(rtt, 0)
                };
                path.monitor.update(now, jittered);
            }
            let load = Load {
                ahead: random.random_range(0..20_000),
                waiting: random.random_range(1_000..50_000),
                fragment: 1_000,
                waits: false,
                is_bare: random.random(),
            };
            let limit = limit(now + random.random_range(5..300) * MS);
            let takes =
                (0..count).map(|id| Rules.takes_data(&view(now, &paths, PathId(id)), load, limit));
            let takes: Vec<bool> = takes.collect();
            waited += takes.iter().filter(|takes| !**takes).count();
            let figures = |id| {
                let path = &paths.get(PathId(id)).unwrap().monitor;
                let arrivals = [
                    (0, load.fragment),
                    (0, load.waiting),
                    (load.ahead, load.waiting),
                ];
                let arrivals =
                    arrivals.map(|(ahead, bytes)| path.predict_arrival(now, ahead, bytes) - now);
                let delays = [path.one_way_delay(), path.overdue_after()];
                (path.cost(), delays, arrivals, path.loss().feared())
            };
            assert!(
                takes.contains(&true),
                "round {round} of seed 11: {load:?} due in {:?} over {:#?}",
                limit.deadline - now,
                (0..count).map(figures).collect::<Vec<_>>()
            );
        }
        assert!(waited > 1_000, "{waited}");
    }

    /// The second path is the last resort: it carries nothing of what the first brings in time, at whatever gain.
    #[test]
    fn a_last_resort_carries_what_no_other_path_brings_in_time() {
        let now = Instant::now();
        let mut paths = Paths::default();
        paths.add(now, SLOW, 0.0, path(200, 0));
        paths.add(now, FAST, LAST_RESORT, path(20, 0));
        let takes = |deadline_ms: u32| {
            [FAST, SLOW].map(|id| {
                let view = view(now, &paths, id);
                let limit = limit(now + deadline_ms * MS);
                let load = Load {
                    ahead: 0,
                    waiting: 1_000,
                    fragment: 1_000,
                    waits: false,
                    is_bare: false,
                };
                [
                    Rules.takes_data(&view, load, limit),
                    Rules.takes_retransmission(&view, Some(SLOW), 1_000, limit),
                    Rules.takes_redundancy(&view, Some(SLOW), 1_000, limit),
                    Rules.takes_copy(&view, Some(SLOW), 1_000, limit),
                ]
            })
        };
        // One way takes 100 ms; a retransmission there would be late.
        assert_eq!(takes(150), [[false; 4], [true; 4]]);
        assert_eq!(takes(50)[0], [true; 4]);
        let frame = Frame {
            backlog: u64::MAX,
            bytes: 1_000,
            is_due: false,
            thrift: Thrift::Patient,
        };
        let carries = |paths: &Paths, frame| {
            [FAST, SLOW].map(|id| Rules.takes_frame(&view(now, paths, id), frame))
        };
        assert_eq!(carries(&paths, frame), [false, true]);
        let urgent = Frame {
            backlog: 1_000,
            thrift: Thrift::None,
            ..frame
        };
        assert_eq!(carries(&paths, urgent), [true, false]);
        let prompt = Frame {
            thrift: Thrift::Prompt,
            ..urgent
        };
        assert_eq!(carries(&paths, prompt), [false, true]);
        // A queue of ten seconds is no reason, and none is left to it.
        let queued = PathUpdate {
            bytes_in_flight: 12_500_000,
            ..path(200, 0)
        };
        paths.get_mut(SLOW).unwrap().monitor.update(now, queued);
        let short = Frame {
            backlog: 1_000,
            ..frame
        };
        assert_eq!(carries(&paths, short), [false, true]);
    }

    #[test]
    fn spare_redundancy_leaves_over_no_path_that_is_dearer_than_another() {
        let now = Instant::now();
        let mut paths = Paths::default();
        paths.add(now, FAST, 1.0, path(60, 0));
        paths.add(now, SLOW, 0.0, path(600, 0));
        let takes = |is_spare| {
            let limit = Limit {
                is_spare,
                ..limit(now + 250 * MS)
            };
            [FAST, SLOW]
                .map(|id| Rules.takes_redundancy(&view(now, &paths, id), Some(FAST), 1_000, limit))
        };
        assert_eq!(takes(true), [false, false]);
        assert_eq!(takes(false), [true, false]);
    }

    /// The queue of the fast path has gone; what arrived of late took 400 ms through it.
    #[test]
    fn delays_of_a_queue_that_is_gone_send_nothing_where_it_is_late() {
        let now = Instant::now();
        let mut paths = paths(now, 0);
        let emptied = PathUpdate {
            smoothed_rtt: 800 * MS,
            ..path(20, 0)
        };
        paths.get_mut(FAST).unwrap().monitor.update(now, emptied);
        let takes = |deadline_ms| taking(now, &paths, deadline_ms);
        assert_eq!(takes(150), [true, false]);
        assert_eq!(takes(800), [false, true]);
    }
}
