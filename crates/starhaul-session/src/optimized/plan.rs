//! A plan in use: for each class the paths on which its blocks leave, and what each of them is owed.

use std::time::{Duration, Instant};

use starhaul_paths::{
    PathId,
    optimizer::{Problem, Strategy, StreamPlan, plan_quickly_in_bursts},
};
use starhaul_units::Bandwidth;

use super::figures::{ClassFigures, Figures};
use crate::scheduler::{Class, Coding, Limit, Load, PathView, PlannedClass, PlannedWay, View};

/// Most that a path is owed or owes: some dozens of fragments.
const MOST_OWED_BYTES: f64 = 65_536.0;
/// Shares closer than this are the same plan.
const SAME_SHARE: f64 = 0.02;
/// Fragments whose probabilities of staying lost are closer than this are equally safe.
const NEGLIGIBLE_RISK: f64 = 1e-5;
/// Most losses in a row that a retransmission makes up for.
const MOST_IN_A_ROW: f64 = 256.0;
/// Predictions closer than this count as equal.
const TIE: Duration = Duration::from_millis(1);

/// How one class is sent.
#[derive(Clone, Debug)]
pub(super) struct Planned {
    pub(super) class: Class,
    rate: Bandwidth,
    quality: f64,
    ways: Vec<Way>,
}

/// A path on which data leave first.
#[derive(Clone, Copy, Debug)]
pub(super) struct Way {
    path: PathId,
    /// Of all data of the class; the rest to 1 is dropped.
    share: f64,
    /// Bytes that it should have carried and did not.
    owed: f64,
    /// Where what it loses is sent again.
    pub(super) again: Option<PathId>,
    /// Where the redundancy of its blocks goes.
    pub(super) redundancy_path: Option<PathId>,
    /// Redundancy for each data fragment of blocks that are coded.
    coding_rate: f64,
    /// The part of its data that is coded.
    coded_share: f64,
    /// Blocks that should have been coded and were not.
    uncoded: f64,
}

/// A plan for these figures; what is owed by `old` to the same paths stays so. Empty if there is nothing to divide.
///
/// # Errors
/// What is wrong with the figures.
pub(super) fn make(figures: &Figures, old: &[Planned]) -> Result<Vec<Planned>, String> {
    if figures.is_empty() {
        return Ok(Vec::new());
    }
    let (paths, demands) = (figures.offered_paths(), figures.demands());
    let problem = Problem {
        paths: &paths,
        demands: &demands,
        budget: figures.cost_bound(),
    };
    let plan = plan_quickly_in_bursts(&problem, &figures.burst_lengths());
    let plan = plan.map_err(|error| error.to_string())?;
    let classes = figures.classes.iter().zip(&plan.streams);
    let planned = classes.map(|(class, stream)| {
        let mut planned = Planned::of(class, stream, figures);
        let before = old.iter().find(|old| old.class == planned.class);
        for way in &mut planned.ways {
            let known = before.and_then(|before| before.way(way.path));
            way.owed = known.map_or(0.0, |known| known.owed);
            way.uncoded = known.map_or(0.0, |known| known.uncoded);
        }
        planned
    });
    // A class of which all is dropped has no way: rules do what can be done.
    Ok(planned.filter(|planned| !planned.ways.is_empty()).collect())
}

impl Planned {
    fn of(figures: &ClassFigures, stream: &StreamPlan, all: &Figures) -> Self {
        let mut planned = Self {
            class: figures.class,
            rate: figures.rate,
            quality: stream.quality,
            ways: Vec::new(),
        };
        let id = |path: usize| all.paths.get(path).map(|path| path.id);
        // The greatest share comes first, and so decides for its path where the plan is divided.
        for share in &stream.shares {
            let Some(path) = share.strategy.first_path().and_then(id) else {
                continue;
            };
            let way = planned.add(path, share.share);
            match share.strategy {
                Strategy::Drop | Strategy::Plain { .. } => {}
                Strategy::Retransmit { again, .. } => way.again = way.again.or(id(again)),
                Strategy::Code {
                    redundancy_path,
                    data,
                    redundancy,
                    ..
                } => {
                    way.coded_share += share.share;
                    if way.redundancy_path.is_none() {
                        way.redundancy_path = id(redundancy_path);
                        way.coding_rate = f64::from(redundancy) / f64::from(data.max(1));
                    }
                }
            }
        }
        for way in &mut planned.ways {
            way.coded_share /= way.share;
        }
        planned
    }

    /// Adds to the share of a path.
    fn add(&mut self, path: PathId, share: f64) -> &mut Way {
        let at = self.ways.iter().position(|way| way.path == path);
        let at = at.unwrap_or_else(|| {
            self.ways.push(Way {
                path,
                share: 0.0,
                owed: 0.0,
                again: None,
                redundancy_path: None,
                coding_rate: 0.0,
                coded_share: 0.0,
                uncoded: 0.0,
            });
            self.ways.len() - 1
        });
        let way = &mut self.ways[at];
        way.share += share;
        way
    }

    pub(super) fn way(&self, path: PathId) -> Option<&Way> {
        self.ways.iter().find(|way| way.path == path)
    }

    /// Whether it counts on a retransmission for what any of its paths loses.
    pub(super) fn retransmits(&self) -> bool {
        self.ways.iter().all(|way| way.again.is_some())
    }

    /// The usable path that is owed most of those over which the fragment keeps its limit. If what the plan assumed holds on none of them,
    /// because the fragment leaves late: the safest path, and where all are equally safe, that of the plan without its assumption. `None`, too, if
    /// that path has carried far more than its share: others do not carry theirs, and it has no room for that as well.
    pub(super) fn target(&self, view: &View<'_>, load: Load, limit: Limit) -> Option<PathId> {
        let in_time = |way: &Way, path: PathView<'_>| way.is_in_time(view, path, load, limit);
        let whole = |_: &Way, path: PathView<'_>| arrives_whole(view, path, load, limit);
        let target = self
            .owed_most(view, load, in_time)
            .or_else(|| safest(view, load, limit))
            .or_else(|| self.owed_most(view, load, whole));
        let is_overused = |way: &Way| self.ways.len() > 1 && way.owed <= -MOST_OWED_BYTES;
        // A plan is of blocks in the mean; a last resort carries no more than it must at this moment.
        let is_spared = |path: PathView<'_>| {
            let others = view.carrying(load.fragment).map(|(_, other)| other);
            path.is_last_resort()
                && others
                    .filter(|other| !other.is_last_resort())
                    .any(|other| arrives_whole(view, other, load, limit))
        };
        target.filter(|path| {
            !self.way(*path).is_some_and(is_overused) && !view.get(*path).is_some_and(is_spared)
        })
    }

    /// The usable path that is owed most of those over which it `keeps` the limit.
    fn owed_most(
        &self,
        view: &View<'_>,
        load: Load,
        keeps: impl Fn(&Way, PathView<'_>) -> bool,
    ) -> Option<PathId> {
        let mut best: Option<&Way> = None;
        for way in &self.ways {
            let Some(path) = view.carrier(way.path, load.fragment) else {
                continue;
            };
            let is_owed_more = best.is_none_or(|best| way.owed > best.owed);
            if is_owed_more && keeps(way, path) {
                best = Some(way);
            }
        }
        best.map(|way| way.path)
    }

    /// A datagram with new data left.
    pub(super) fn on_sent(&mut self, path: PathId, bytes: u64) {
        // What rules sent elsewhere is no debt.
        if self.way(path).is_none() {
            return;
        }
        let bytes = bytes as f64;
        let planned: f64 = self.ways.iter().map(|way| way.share).sum();
        for way in &mut self.ways {
            let sent = if way.path == path { bytes } else { 0.0 };
            let owed = way.owed + bytes * way.share / planned - sent;
            way.owed = owed.clamp(-MOST_OWED_BYTES, MOST_OWED_BYTES);
        }
    }

    /// Redundancy for a block whose first fragment leaves on `path`: none where retransmission protects it, what was planned for the part
    /// that is coded, and otherwise what the loss demands.
    pub(super) fn coding(&mut self, path: PathId) -> Option<Coding> {
        let way = self.ways.iter_mut().find(|way| way.path == path)?;
        let bare = Coding {
            rate: 0.0,
            counts_on_retransmission: way.again.is_some(),
        };
        if way.coded_share <= 0.0 {
            return way.again.map(|_| bare);
        }
        way.uncoded += way.coded_share;
        if way.uncoded < 0.5 {
            return Some(bare);
        }
        way.uncoded -= 1.0;
        Some(Coding {
            rate: way.coding_rate,
            counts_on_retransmission: false,
        })
    }

    /// The same ways in about the same shares.
    pub(super) fn is_like(&self, other: &Self) -> bool {
        self.class == other.class
            && self.ways.len() == other.ways.len()
            && self.ways.iter().all(|way| {
                other.way(way.path).is_some_and(|other| {
                    (way.share - other.share).abs() <= SAME_SHARE
                        && way.again == other.again
                        && way.redundancy_path == other.redundancy_path
                        && (way.coded_share - other.coded_share).abs() <= SAME_SHARE
                })
            })
    }

    pub(super) fn status(&self) -> PlannedClass {
        let ways = self.ways.iter().map(|way| PlannedWay {
            path: way.path,
            share: way.share,
            again: way.again,
            coding_rate: way.coding_rate,
            coded_share: way.coded_share,
        });
        PlannedClass {
            class: self.class,
            rate: self.rate,
            quality: self.quality,
            ways: ways.collect(),
        }
    }
}

impl Way {
    /// Whether data that leave over `path`, behind what goes before their block, keep the limit. Where a retransmission protects them,
    /// this fragment leaves time for it, as the plan assumed; the rest of the block is judged when its turn comes, for without a
    /// retransmission there would still be time. Otherwise the whole rest must arrive.
    fn is_in_time(&self, view: &View<'_>, path: PathView<'_>, load: Load, limit: Limit) -> bool {
        let again = self.again.filter(|_| limit.class.retransmits);
        let Some(again) = again.and_then(|again| view.carrier(again, load.fragment)) else {
            return arrives_whole(view, path, load, limit);
        };
        let arrival = path.predict_arrival(view.now(), load.ahead, load.fragment);
        recovered(arrival, path, again, load).is_some_and(|at| at + TIE <= limit.deadline)
    }
}

/// Whether the rest of the block arrives in time over `path`, behind what goes before it.
fn arrives_whole(view: &View<'_>, path: PathView<'_>, load: Load, limit: Limit) -> bool {
    path.predict_arrival(view.now(), load.ahead, load.waiting) + TIE <= limit.deadline
}

/// When a fragment that arrives over `path` at `arrival`, unless it is lost, has arrived over `again` if it is.
fn recovered(
    arrival: Instant,
    path: PathView<'_>,
    again: PathView<'_>,
    load: Load,
) -> Option<Instant> {
    let left = arrival.checked_sub(path.one_way_delay())?;
    let known = left.checked_add(path.loss_known_after())?;
    // What was lost in a row is noticed at once, and goes one after the other.
    let fragment = again.bandwidth().time_to_send(load.fragment);
    let sent = fragment.mul_f64(path.loss().burst_length.min(MOST_IN_A_ROW));
    known.checked_add(sent.saturating_add(again.one_way_delay()))
}

/// The path over which the fragment is least likely to stay lost, of those over which the rest of its block arrives in time; `None` where
/// that makes no difference.
fn safest(view: &View<'_>, load: Load, limit: Limit) -> Option<PathId> {
    let risk = |path: PathView<'_>| {
        let arrival = path.predict_arrival(view.now(), 0, load.fragment);
        let in_time = |again: &PathView<'_>| {
            recovered(arrival, path, *again, load).is_some_and(|at| at + TIE <= limit.deadline)
        };
        let again = view.carrying(load.fragment).map(|(_, again)| again);
        let again = again.filter(|_| limit.class.retransmits).filter(in_time);
        let loss = |path: PathView<'_>| view.loss_rate_of(path);
        let once_more = again.map(loss).reduce(f64::min);
        loss(path) * once_more.unwrap_or(1.0)
    };
    let paths = view.carrying(load.fragment);
    let mut paths = paths.filter(|(_, path)| arrives_whole(view, *path, load, limit));
    let (first, path) = paths.next()?;
    let (mut best, mut least, mut most) = (first, risk(path), risk(path));
    for (id, path) in paths {
        let risk = risk(path);
        most = most.max(risk);
        if risk < least {
            (best, least) = (id, risk);
        }
    }
    (most - least > NEGLIGIBLE_RISK).then_some(best)
}

#[cfg(test)]
mod tests {
    use super::{
        super::figures::tests::{class, path},
        *,
    };

    fn plan(paths: [super::super::figures::PathFigures; 2], old: &[Planned]) -> Vec<Planned> {
        let figures = Figures {
            paths: paths.to_vec(),
            classes: vec![class(10, 200)],
            budget: None,
        };
        make(&figures, old).unwrap()
    }

    #[test]
    fn what_is_lost_on_the_cheap_path_is_planned_for_the_dear_one_without_redundancy() {
        let mut plan = plan(
            [path(4, 15, 60, 0.05, 1.0), path(7, 15, 60, 5e-5, 3.0)],
            &[],
        );
        let ways = &plan[0].status().ways;
        assert_eq!(ways.len(), 1, "{ways:?}");
        assert_eq!((ways[0].path, ways[0].again), (PathId(4), Some(PathId(7))));
        let bare = Coding {
            rate: 0.0,
            counts_on_retransmission: true,
        };
        assert_eq!(plan[0].coding(PathId(4)), Some(bare));
        // Of another path the plan says nothing.
        assert_eq!(plan[0].coding(PathId(7)), None);
    }

    #[test]
    fn shares_are_kept_by_what_is_owed_and_debts_are_bounded() {
        let narrow = [path(0, 6, 60, 1e-4, 1.0), path(1, 15, 60, 1e-4, 3.0)];
        let mut plan = plan(narrow, &[]);
        let shares: Vec<f64> = plan[0].ways.iter().map(|way| way.share).collect();
        assert!((shares[0] - 0.6).abs() < 0.01, "{shares:?}");
        let mut sent = [0.0; 2];
        for _ in 0..1_000 {
            let owed = plan[0].ways.iter().max_by(|a, b| a.owed.total_cmp(&b.owed));
            let path = owed.map_or(PathId(0), |way| way.path);
            plan[0].on_sent(path, 1_200);
            sent[path.0 as usize] += 1.0;
        }
        assert!((sent[0] / 1_000.0 - shares[0]).abs() < 0.01, "{sent:?}");
        for _ in 0..1_000 {
            plan[0].on_sent(PathId(1), 1_200);
        }
        let owed = |path| plan[0].way(path).map_or(0.0, |way| way.owed);
        assert_eq!(owed(PathId(0)), MOST_OWED_BYTES);
        assert_eq!(owed(PathId(1)), -MOST_OWED_BYTES);
        // What rules send on a path beyond the plan changes nothing.
        let before = owed(PathId(0));
        plan[0].on_sent(PathId(9), 1_200);
        assert_eq!(plan[0].way(PathId(0)).map_or(0.0, |way| way.owed), before);
        // Another plan for the same paths knows the debts.
        let next = super::tests::plan(narrow, &plan);
        assert_eq!(next[0].way(PathId(0)).map_or(0.0, |way| way.owed), before);
        assert!(next[0].is_like(&plan[0]));
    }

    /// A quota made the third path the dearest there can be; the others still cost 1 and 3.
    #[test]
    fn one_great_price_hides_no_other() {
        let figures = |greatest| Figures {
            paths: vec![
                path(0, 20, 60, 1e-4, 1.0),
                path(1, 20, 40, 1e-4, 3.0),
                path(2, 20, 20, 1e-4, greatest),
            ],
            classes: vec![class(10, 200)],
            budget: None,
        };
        for greatest in [4.0, 1e12, 1e300] {
            let plan = make(&figures(greatest), &[]).unwrap();
            let ways: Vec<_> = plan[0].ways.iter().map(|way| way.path).collect();
            assert_eq!(ways, [PathId(0)], "{greatest:e}");
        }
    }

    /// The cheaper path carries 6 of 10 Mbit/s for 1, and the dearer one the rest for 3: prices of any scale.
    #[test]
    fn a_budget_leaves_out_what_it_does_not_pay_for() {
        for scale in [0.01, 1.0, 1e6] {
            let quality = |budget: f64| {
                let figures = Figures {
                    paths: vec![
                        path(0, 6, 60, 1e-6, scale),
                        path(1, 15, 60, 1e-6, 3.0 * scale),
                    ],
                    classes: vec![class(10, 200)],
                    budget: Some(Bandwidth::from_mbit(1).scaled(budget * scale)),
                };
                make(&figures, &[]).unwrap()[0].quality
            };
            for (budget, wanted) in [(18.1, 1.0), (12.0, 0.8), (6.0, 0.6), (3.0, 0.3)] {
                let reached = quality(budget);
                assert!(
                    (reached - wanted).abs() < 1e-3,
                    "{reached} for {budget} at {scale}"
                );
            }
        }
    }

    /// One path carries just what is asked for, and the other is too slow: there is room for the redundancy of a part of the blocks, and the
    /// others have none, which counts on no retransmission.
    #[test]
    fn where_a_part_is_coded_for_want_of_room_the_others_are_bare() {
        let figures = Figures {
            paths: vec![path(0, 11, 60, 0.05, 1.0), path(1, 20, 600, 1e-4, 1.0)],
            classes: vec![class(10, 150)],
            budget: None,
        };
        let mut plan = make(&figures, &[]).unwrap();
        let way = &plan[0].status().ways[0];
        assert!(
            way.again.is_none() && (0.1..0.9).contains(&way.coded_share),
            "{way:?}"
        );
        let coded: Vec<Coding> = (0..10).filter_map(|_| plan[0].coding(PathId(0))).collect();
        assert!(coded.iter().any(|coding| coding.rate > 0.0));
        let bare = coded.iter().filter(|coding| coding.rate == 0.0);
        assert!(bare.clone().count() > 0);
        assert!(bare.clone().all(|coding| !coding.counts_on_retransmission));
    }

    /// No retransmission is in time.
    #[test]
    fn losses_in_a_row_are_planned_for_with_more_redundancy() {
        let [alone, in_a_row] = [1.0, 5.0].map(|burst_length| {
            let figures = Figures {
                paths: vec![
                    path(0, 40, 60, 0.02, 1.0).losing_in_a_row(burst_length),
                    path(1, 20, 600, 1e-4, 1.0),
                ],
                classes: vec![class(10, 150)],
                budget: None,
            };
            let way = make(&figures, &[]).unwrap()[0].status().ways[0];
            assert!(way.again.is_none() && way.coded_share > 0.99, "{way:?}");
            way.coding_rate
        });
        assert!(in_a_row > 2.0 * alone, "{alone}, {in_a_row}");
    }

    #[test]
    fn impossible_figures_leave_everything_to_the_rules() {
        let good = path(1, 15, 60, 1e-4, 3.0);
        for wrong in [
            path(0, 15, 60, f64::NAN, 1.0),
            path(0, 15, 60, 0.1, f64::NAN),
        ] {
            let figures = Figures {
                paths: vec![wrong, good],
                classes: vec![class(10, 200)],
                budget: None,
            };
            // The error is shown in the session's status.
            assert!(make(&figures, &[]).is_err());
        }
        // Nothing arrives in time: no way, no plan.
        let slow = path(0, 15, 900, 0.1, 1.0);
        assert!(plan([slow, slow], &[]).is_empty());
    }
}
