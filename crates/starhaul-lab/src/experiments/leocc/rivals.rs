//! LeoCC beside each other system, run by run: the figures that its goals are judged by.

use starhaul_flow::Metrics;

use super::{
    results::{Results, Row},
    summary::losses,
};
use crate::kit::statistics::{distinct, median};

/// The paper finds at most this share of the mean queueing delay of BBRv1 and Vivace (LeoCC §6.1).
pub(super) const QUEUE_GOAL: f64 = 0.56;
/// In place of one loss: all of them.
const ALL: &str = "all";

/// One variant of LeoCC beside one other system, over all traces of a loss.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Beside {
    pub(super) system: String,
    pub(super) other: String,
    /// The loss as text.
    pub(super) loss: String,
    /// Pairs of runs over the same link.
    pub(super) runs: usize,
    /// Throughput per that of the other.
    pub(super) throughput: Spread,
    /// Mean queueing delay per that of the other.
    pub(super) queue: Spread,
    /// In so many pairs the latter is within [`QUEUE_GOAL`].
    pub(super) within_goal: usize,
    /// In so many the other has more throughput and a smaller 95th percentile of the queueing delay.
    pub(super) beaten: usize,
    /// In so many it has no less throughput than the other, and waits less on average.
    pub(super) ahead: usize,
}

/// The middle and both ends.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Spread {
    pub(super) median: f64,
    pub(super) least: f64,
    pub(super) greatest: f64,
}

impl Spread {
    fn of(values: &[f64]) -> Self {
        Self {
            median: median(values.iter().copied()),
            least: values.iter().copied().fold(f64::INFINITY, f64::min),
            greatest: values.iter().copied().fold(0.0, f64::max),
        }
    }
}

impl Results {
    /// `leocc` and `leocc2`, and the ablations that were asked for, beside every other system: for each loss, and for all together.
    pub(super) fn beside(&self) -> Vec<Beside> {
        let systems = distinct(self.rows.iter().map(|row| row.system.as_str()));
        let of_leocc = |name: &&str| {
            ["leocc", "leocc2"].contains(name) || name.starts_with("leocc") && name.contains("-no-")
        };
        let mut names = losses(&self.rows);
        if names.len() > 1 {
            names.push(ALL.to_owned());
        }
        let mut beside = Vec::new();
        for loss in &names {
            let of_loss = |row: &&Row| loss == ALL || row.params.loss_name() == *loss;
            let rows: Vec<&Row> = self.rows.iter().filter(of_loss).collect();
            for system in systems.iter().filter(|name| of_leocc(name)) {
                for other in systems.iter().filter(|other| *other != system) {
                    beside.extend(compare(&rows, system, other, loss));
                }
            }
        }
        beside
    }
}

fn compare(rows: &[&Row], system: &str, other: &str, loss: &str) -> Option<Beside> {
    let of = |name: &str| -> Vec<&Row> {
        let of_name = rows.iter().copied().filter(|row| row.system == name);
        of_name.collect()
    };
    let (ours, theirs) = (of(system), of(other));
    let pairs: Vec<(&Metrics, &Metrics)> = ours
        .iter()
        .filter_map(|row| {
            let other = theirs.iter().find(|other| other.params == row.params)?;
            Some((&row.metrics, &other.metrics))
        })
        .collect();
    let ratios = |pick: fn(&Metrics) -> f64| -> Vec<f64> {
        let ratio = |(ours, theirs): &(&Metrics, &Metrics)| {
            pick(ours) / pick(theirs).max(f64::MIN_POSITIVE)
        };
        pairs.iter().map(ratio).collect()
    };
    let queue = ratios(|m| m.queue_delay_mean_ms);
    let count = |holds: fn(&Metrics, &Metrics) -> bool| {
        let held = pairs.iter().filter(|(ours, theirs)| holds(ours, theirs));
        held.count()
    };
    (!pairs.is_empty()).then(|| Beside {
        system: system.to_owned(),
        other: other.to_owned(),
        loss: loss.to_owned(),
        runs: pairs.len(),
        throughput: Spread::of(&ratios(|m| m.throughput_mbps)),
        within_goal: queue.iter().filter(|ratio| **ratio <= QUEUE_GOAL).count(),
        queue: Spread::of(&queue),
        beaten: count(|ours, theirs| {
            theirs.throughput_mbps > ours.throughput_mbps
                && theirs.queue_delay_p95_ms < ours.queue_delay_p95_ms
        }),
        ahead: count(|ours, theirs| {
            ours.throughput_mbps >= theirs.throughput_mbps
                && ours.queue_delay_mean_ms < theirs.queue_delay_mean_ms
        }),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{experiments::leocc::summary::tests::row, kit::Found as _};

    fn run(system: &str, trace: &str, loss: f64, [rate, mean, p95]: [f64; 3]) -> Row {
        let mut row = row(system, trace, rate, p95);
        row.metrics.queue_delay_mean_ms = mean;
        row.params.loss = loss;
        row
    }

    #[test]
    fn a_rival_is_compared_run_by_run() {
        let results = Results {
            rows: vec![
                run("leocc2", "x", 0.0, [10.0, 5.0, 9.0]),
                run("leocc2", "y", 0.0, [20.0, 6.0, 9.0]),
                run("leocc2", "x", 0.002, [10.0, 5.0, 9.0]),
                run("bbr", "x", 0.0, [10.0, 10.0, 20.0]),
                run("bbr", "y", 0.0, [25.0, 8.0, 8.0]),
                run("bbr", "x", 0.002, [5.0, 5.0, 20.0]),
                run("bbr", "z", 0.0, [99.0, 1.0, 1.0]),
            ],
            ..Results::default()
        };
        let beside = results.beside();
        let keys: Vec<_> = beside
            .iter()
            .map(|b| (&*b.loss, &*b.other, b.runs))
            .collect();
        assert_eq!(
            keys,
            [("0 %", "bbr", 2), ("0.2 %", "bbr", 1), ("all", "bbr", 3)]
        );
        let all = &beside[2];
        let spread = |median, least, greatest| Spread {
            median,
            least,
            greatest,
        };
        assert_eq!(all.throughput, spread(1.0, 0.8, 2.0));
        assert_eq!(all.queue, spread(0.75, 0.5, 1.0));
        assert_eq!((all.within_goal, all.beaten, all.ahead), (1, 1, 1));
        let text = results.table();
        assert!(text.contains("leocc2 beside others, loss 0.2 %"), "{text}");
        let csv = results.rivals().csv();
        assert!(
            csv.contains("all,leocc2,bbr,3,1.0000,0.8000,2.0000,0.7500"),
            "{csv}"
        );
        assert!(results.html().contains("leocc2 beside others"));
    }
}
