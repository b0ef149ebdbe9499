//! What a plan is made from, and whether it has moved so far that another plan is due.

use std::time::Duration;

use starhaul_paths::{
    PathId,
    optimizer::{CodeSize, Demand, OfferedPath, Protection},
};
use starhaul_units::Bandwidth;

use super::offered::Offered;
use crate::{
    paths::LAST_RESORT,
    scheduler::{Class, View},
    send::demand::QUIC_HEADER_BYTES,
    wire::FRAGMENT_HEADER_BYTES,
};

/// Figures that differ by less than this factor are the same.
const MOVED: f64 = 1.25;
/// The same of losses, which are counted and fluctuate more.
const LOSS_MOVED: f64 = 1.5;
/// Delays closer than this are equal.
const LEAST_DELAY_MOVE: Duration = Duration::from_millis(2);
/// Losses below this are the same: a hundred times as many datagrams as are counted would tell them apart.
const LEAST_LOSS_MOVE: f64 = 1e-4;
/// Fewer packets lost in a row on average than this are chance: each counts as lost by itself.
const LEAST_IN_A_ROW: f64 = 1.5;
/// A block that fails with this probability is as good as delivered: a tenth of what redundancy by loss allows.
const NEGLIGIBLE_FAILURE: f64 = 1e-4;
/// Every path is taken to lose so many times the negligible, so that the plan says what happens when it does; and so little that a
/// retransmission over a path of which no loss is known is as good as delivered.
const LEAST_LOSS: f64 = 1.5;
/// IPv4 and UDP around a packet of QUIC.
const UDP_HEADER_BYTES: usize = 28;
/// A path that is dearer than the next cheaper one by more than this counts as dearer by this: beside a far greater price, all others would
/// be the same to a solver.
const MOST_DEARER: f64 = 1000.0;
/// Data fragments of a code that is planned for; the codes of larger blocks are no weaker.
const MOST_DATA: f64 = 100.0;

/// Paths and classes as they were when a plan was made.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Figures {
    pub(super) paths: Vec<PathFigures>,
    pub(super) classes: Vec<ClassFigures>,
    /// What the paths may cost together; stays as it is while the session lives.
    pub(super) budget: Option<Bandwidth>,
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct PathFigures {
    pub(super) id: PathId,
    bandwidth: Bandwidth,
    delay: Duration,
    acknowledged_after: Duration,
    loss: f64,
    /// Packets lost in a row; 1 where each is lost by itself.
    burst_length: f64,
    cost: f64,
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct ClassFigures {
    pub(super) class: Class,
    /// The rate that the class asks for, headers included.
    pub(super) rate: Bandwidth,
    deadline: Duration,
    data: u8,
    most_redundancy: u8,
}

impl Figures {
    pub(super) fn of(view: &View<'_>, offered: &mut Offered) -> Self {
        let capacity = view.fragment_capacity().unwrap_or(1).max(1) as f64;
        let paths = view.usable().map(|(id, path)| {
            let loss = path.loss();
            PathFigures {
                id,
                bandwidth: path.bandwidth(),
                delay: path.one_way_delay(),
                acknowledged_after: path.acknowledged_after(),
                loss: loss.rate,
                burst_length: in_a_row(loss.burst_length),
                cost: path.cost(),
            }
        });
        let live = offered.live(view.now());
        let classes = live.map(|(class, rate, deadline, blocks)| {
            let fragment = blocks.length.clamp(1.0, capacity);
            let header = (FRAGMENT_HEADER_BYTES + QUIC_HEADER_BYTES + UDP_HEADER_BYTES) as f64;
            let data = (blocks.length / fragment).ceil().clamp(1.0, MOST_DATA);
            ClassFigures {
                class,
                rate: rate.scaled(1.0 + header / fragment),
                deadline,
                data: count(data),
                most_redundancy: count((data * blocks.max_coding_rate).ceil()),
            }
        });
        Self {
            paths: paths.collect(),
            classes: classes.collect(),
            budget: view.paths().budget(),
        }
    }

    /// There is nothing to divide.
    pub(super) fn is_empty(&self) -> bool {
        self.classes.is_empty() || self.paths.len() < 2
    }

    /// What moved since, as text for logs; `None` if nothing did.
    pub(super) fn difference(&self, new: &Self) -> Option<String> {
        let ids = |figures: &Self| {
            figures
                .paths
                .iter()
                .map(|path| path.id.0)
                .collect::<Vec<_>>()
        };
        if ids(self) != ids(new) {
            return Some(format!("usable paths: {:?}", ids(new)));
        }
        let classes = |figures: &Self| {
            figures
                .classes
                .iter()
                .map(|of| of.class)
                .collect::<Vec<_>>()
        };
        if classes(self) != classes(new) {
            return Some(format!("classes of blocks: {}", new.classes.len()));
        }
        let paths = self.paths.iter().zip(&new.paths);
        let classes = self.classes.iter().zip(&new.classes);
        paths
            .filter_map(|(old, new)| old.difference(new))
            .chain(classes.filter_map(|(old, new)| old.difference(new)))
            .next()
    }

    /// A fragment that stays lost with this probability is as good as delivered, in the blocks with the most fragments.
    fn negligible_loss(&self) -> f64 {
        let most = self.classes.iter().map(|class| class.data).max();
        NEGLIGIBLE_FAILURE / f64::from(most.unwrap_or(1).max(1))
    }

    pub(super) fn offered_paths(&self) -> Vec<OfferedPath> {
        let least_loss = LEAST_LOSS * self.negligible_loss();
        let costs = comparable(self.paths.iter().map(|path| path.cost));
        let offered = |path: &PathFigures| OfferedPath {
            bandwidth: path.bandwidth,
            delay: path.delay,
            loss: path.loss.clamp(least_loss, 1.0),
            cost: costs
                .iter()
                .find(|(cost, _)| *cost == path.cost)
                .map_or(path.cost, |(_, comparable)| *comparable),
            loss_known_after: Some(path.acknowledged_after),
        };
        self.paths.iter().map(offered).collect()
    }

    /// What a plan may cost per second, in the unit of the offered paths' costs times bits; `None` for no bound.
    pub(super) fn cost_bound(&self) -> Option<f64> {
        let budget = self.budget?.bits_per_second() as f64;
        let costs = comparable(self.paths.iter().map(|path| path.cost));
        let (cost, comparable) = costs.into_iter().find(|(cost, _)| *cost > 0.0)?;
        // A last resort alone is paid for at 1: see `paths/prices.rs`.
        let price = if cost < LAST_RESORT { cost } else { 1.0 };
        Some(budget * comparable / price)
    }

    /// Packets that each of the offered paths loses in a row.
    pub(super) fn burst_lengths(&self) -> Vec<f64> {
        self.paths.iter().map(|path| path.burst_length).collect()
    }

    pub(super) fn demands(&self) -> Vec<Demand> {
        let negligible_loss = self.negligible_loss();
        let demand = |of: &ClassFigures| Demand {
            rate: of.rate,
            lifetime: of.deadline,
            priority: of.class.priority,
            protection: Protection {
                retransmits: of.class.retransmits,
                code: of.class.codes.then_some(CodeSize {
                    data: of.data,
                    most_redundancy: of.most_redundancy,
                }),
            },
            negligible_loss,
        };
        self.classes.iter().map(demand).collect()
    }
}

/// Costs in their order, each with one that is at most [`MOST_DEARER`] times the next lower.
fn comparable(costs: impl Iterator<Item = f64>) -> Vec<(f64, f64)> {
    let mut costs: Vec<f64> = costs.collect();
    costs.sort_by(f64::total_cmp);
    costs.dedup();
    let mut lower = (0.0, 0.0);
    let costs = costs.into_iter().map(|cost| {
        let comparable = match lower {
            (dear, comparable) if dear > 0.0 => comparable * (cost / dear).min(MOST_DEARER),
            // The first price may be any.
            _ if cost > 0.0 => 1.0,
            _ => 0.0,
        };
        lower = (cost, comparable);
        (cost, comparable)
    });
    costs.collect()
}

impl PathFigures {
    fn difference(&self, new: &Self) -> Option<String> {
        let path = new.id.0;
        if self.cost.total_cmp(&new.cost).is_ne() {
            return Some(format!("path {path}: cost {} → {}", self.cost, new.cost));
        }
        let (old_rate, new_rate) = (self.bandwidth, new.bandwidth);
        if moved(old_rate.mbit(), new_rate.mbit(), MOVED) {
            return Some(format!("path {path}: rate {old_rate} → {new_rate}"));
        }
        if delay_moved(self.delay, new.delay) {
            let (old, new) = (self.delay, new.delay);
            return Some(format!("path {path}: delay {old:.0?} → {new:.0?}"));
        }
        if delay_moved(self.acknowledged_after, new.acknowledged_after) {
            let (old, new) = (self.acknowledged_after, new.acknowledged_after);
            return Some(format!(
                "path {path}: acknowledgements {old:.0?} → {new:.0?}"
            ));
        }
        if moved(self.burst_length, new.burst_length, LOSS_MOVED) {
            let (old, new) = (self.burst_length, new.burst_length);
            return Some(format!("path {path}: losses in a row {old:.1} → {new:.1}"));
        }
        let is_unknown = self.loss.is_nan() || new.loss.is_nan();
        let [old, new] = [self.loss, new.loss].map(|loss| loss.max(LEAST_LOSS_MOVE));
        let has_moved = is_unknown || moved(old, new, LOSS_MOVED);
        has_moved.then(|| {
            let [old, new] = [old, new].map(|loss| 100.0 * loss);
            format!("path {path}: loss {old:.2} % → {new:.2} %")
        })
    }
}

impl ClassFigures {
    fn difference(&self, new: &Self) -> Option<String> {
        let name = format!("priority {}", new.class.priority);
        if moved(self.rate.mbit(), new.rate.mbit(), MOVED) {
            return Some(format!("{name}: rate {} → {}", self.rate, new.rate));
        }
        if delay_moved(self.deadline, new.deadline) {
            let (old, new) = (self.deadline, new.deadline);
            return Some(format!("{name}: deadline {old:.0?} → {new:.0?}"));
        }
        let redundancy = (self.most_redundancy, new.most_redundancy);
        let has_moved = moved(self.data.into(), new.data.into(), MOVED)
            || moved(redundancy.0.into(), redundancy.1.into(), MOVED);
        has_moved.then(|| format!("{name}: {} → {} fragments", self.data, new.data))
    }
}

/// Whether the greater exceeds the other by more than `factor`. What is no number has always moved.
fn moved(old: f64, new: f64, factor: f64) -> bool {
    let (least, most) = (old.min(new), old.max(new));
    old.is_nan() || new.is_nan() || most > least * factor
}

fn in_a_row(burst_length: f64) -> f64 {
    if burst_length < LEAST_IN_A_ROW {
        1.0
    } else {
        burst_length
    }
}

fn delay_moved(old: Duration, new: Duration) -> bool {
    old.abs_diff(new) > LEAST_DELAY_MOVE && moved(old.as_secs_f64(), new.as_secs_f64(), MOVED)
}

#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "the cast saturates"
)]
const fn count(number: f64) -> u8 {
    number as u8
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    pub(in super::super) fn path(
        id: u32,
        mbit: u64,
        delay_ms: u64,
        loss: f64,
        cost: f64,
    ) -> PathFigures {
        let delay = Duration::from_millis(delay_ms);
        PathFigures {
            id: PathId(id),
            bandwidth: Bandwidth::from_mbit(mbit),
            delay,
            acknowledged_after: delay * 2,
            loss,
            burst_length: 1.0,
            cost,
        }
    }

    impl PathFigures {
        pub(in super::super) fn losing_in_a_row(self, burst_length: f64) -> Self {
            Self {
                burst_length,
                ..self
            }
        }
    }

    pub(in super::super) fn class(mbit: u64, deadline_ms: u64) -> ClassFigures {
        ClassFigures {
            class: Class {
                priority: 0,
                span: 7,
                retransmits: true,
                codes: true,
            },
            rate: Bandwidth::from_mbit(mbit),
            deadline: Duration::from_millis(deadline_ms),
            data: 20,
            most_redundancy: 20,
        }
    }

    fn figures() -> Figures {
        Figures {
            paths: vec![path(0, 15, 60, 0.01, 1.0), path(1, 15, 60, 0.001, 3.0)],
            classes: vec![class(10, 200)],
            budget: None,
        }
    }

    /// Every figure times a factor.
    fn scaled(factor: f64) -> Figures {
        let mut figures = figures();
        for path in &mut figures.paths {
            path.bandwidth = path.bandwidth.scaled(factor);
            path.delay = path.delay.mul_f64(factor);
            path.acknowledged_after = path.acknowledged_after.mul_f64(factor);
            path.loss *= factor;
        }
        for class in &mut figures.classes {
            class.rate = class.rate.scaled(factor);
            class.deadline = class.deadline.mul_f64(factor);
        }
        figures
    }

    #[test]
    fn what_wiggles_by_a_tenth_has_not_moved() {
        for percent in 90..=110 {
            let now = scaled(f64::from(percent) / 100.0);
            assert_eq!(figures().difference(&now), None, "{percent} %");
        }
        // Not even from one end to the other.
        assert_eq!(scaled(0.9).difference(&scaled(1.1)), None);
    }

    #[test]
    fn whatever_doubles_has_moved_and_is_named() {
        let change = |change: &dyn Fn(&mut Figures)| {
            let mut now = figures();
            change(&mut now);
            figures().difference(&now).unwrap_or_default()
        };
        let loss = change(&|now| now.paths[0].loss *= 2.0);
        assert_eq!(loss, "path 0: loss 1.00 % → 2.00 %");
        let in_a_row = change(&|now| now.paths[0].burst_length *= 2.0);
        assert_eq!(in_a_row, "path 0: losses in a row 1.0 → 2.0");
        let delay = change(&|now| now.paths[1].delay *= 2);
        assert_eq!(delay, "path 1: delay 60ms → 120ms");
        let rate = change(&|now| now.paths[1].bandwidth = Bandwidth::from_mbit(30));
        assert_eq!(rate, "path 1: rate 15.0 Mbit/s → 30.0 Mbit/s");
        let cost = change(&|now| now.paths[1].cost = 2.9);
        assert_eq!(cost, "path 1: cost 3 → 2.9");
        let demand = change(&|now| now.classes[0].rate = Bandwidth::from_mbit(20));
        assert_eq!(demand, "priority 0: rate 10.0 Mbit/s → 20.0 Mbit/s");
        let deadline = change(&|now| now.classes[0].deadline *= 2);
        assert_eq!(deadline, "priority 0: deadline 200ms → 400ms");
        assert_eq!(change(&|now| now.paths.truncate(1)), "usable paths: [0]");
        assert_eq!(change(&|now| now.classes.clear()), "classes of blocks: 0");
        assert!(!change(&|now| now.paths[0].loss = f64::NAN).is_empty());
    }
}
