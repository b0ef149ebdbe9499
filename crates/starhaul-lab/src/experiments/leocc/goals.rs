//! What `--check` holds the controller of LEO paths to on any path, run by run beside BBR and the oracle. Not all of it is reached.

use serde::Serialize;
use starhaul_plot::{Bound, Goal};

use super::{
    results::{Results, Row},
    rivals::QUEUE_GOAL,
    standing::{Standing, at},
};
use crate::{
    Error,
    kit::{Found, experiment::to_json},
};

/// Who has goals: what a gateway's LEO paths run.
pub(super) const SYSTEM: &str = "leocc2";
/// Beside whom.
pub(super) const RIVAL: &str = "bbr";
/// Throughput per BBR's in the median, and per the oracle's.
pub(super) const THROUGHPUT: f64 = 0.98;
pub(super) const OF_ORACLE: f64 = 0.95;
/// Throughput and queue per BBR's in the worst run of the grid, and at the 5th and 95th percentile of drawn links.
const WORST_THROUGHPUT: f64 = 0.96;
const WORST_QUEUE: f64 = 0.8;
/// Throughput per BBR's over any drawn link.
const LEAST_THROUGHPUT: f64 = 0.9;

/// The name of a figure as the table of standings has it, which ratios it is of and at which share of the runs, and its bound.
type Bounded = (&'static str, fn(&Standing) -> &[f64], f64, Bound);

const ON_EACH: [Bounded; 3] = [
    (
        "throughput_median",
        throughput,
        0.5,
        Bound::AtLeast(THROUGHPUT),
    ),
    ("queue_median", queue, 0.5, Bound::AtMost(QUEUE_GOAL)),
    ("oracle_median", of_oracle, 0.5, Bound::AtLeast(OF_ORACLE)),
];
const ON_PATHS: [Bounded; 2] = [
    (
        "throughput_least",
        throughput,
        0.0,
        Bound::AtLeast(WORST_THROUGHPUT),
    ),
    ("queue_greatest", queue, 1.0, Bound::AtMost(WORST_QUEUE)),
];
const ON_UNSEEN: [Bounded; 3] = [
    (
        "throughput_p5",
        throughput,
        0.05,
        Bound::AtLeast(WORST_THROUGHPUT),
    ),
    ("queue_p95", queue, 0.95, Bound::AtMost(WORST_QUEUE)),
    (
        "throughput_least",
        throughput,
        0.0,
        Bound::AtLeast(LEAST_THROUGHPUT),
    ),
];

fn throughput(line: &Standing) -> &[f64] {
    &line.throughput
}

fn queue(line: &Standing) -> &[f64] {
    &line.queue
}

fn of_oracle(line: &Standing) -> &[f64] {
    &line.of_oracle
}

/// The results, and the goals of those parts that have some.
pub(super) struct Checked {
    results: Results,
    goals: Vec<Goal>,
}

impl Checked {
    /// Judges the results.
    pub(super) fn new(results: Results) -> Self {
        let goals = goals("paths", &results.paths, &ON_PATHS)
            .chain(goals("unseen", &results.unseen, &ON_UNSEEN))
            .collect();
        Self { results, goals }
    }
}

/// The goals of a part, if it ran. A ratio that a run lacks meets nothing.
fn goals(part: &str, rows: &[Row], own: &'static [Bounded]) -> impl Iterator<Item = Goal> {
    let line = Standing::of(SYSTEM, rows);
    let name = format!("{part}, {SYSTEM}, {} runs", line.runs);
    let bounds = ON_EACH.iter().chain(own);
    let goal = move |bounded: &Bounded| {
        let (figure, of, share, bound) = *bounded;
        let ratios = of(&line);
        let found = at(ratios, share).filter(|_| ratios.len() == line.runs);
        Goal::new(&name, figure, found.unwrap_or(f64::NAN), bound)
    };
    bounds.filter(move |_| !rows.is_empty()).map(goal)
}

impl Found for Checked {
    fn table(&self) -> String {
        self.results.table() + &Goal::lines(&self.goals)
    }

    fn json(&self) -> Result<String, Error> {
        /// The results with one more array.
        #[derive(Serialize)]
        struct Object<'a> {
            #[serde(flatten)]
            results: &'a Results,
            goals: &'a [Goal],
        }
        to_json(&Object {
            results: &self.results,
            goals: &self.goals,
        })
    }

    fn failure(&self) -> Option<String> {
        self.results.failure().or(Goal::missed(&self.goals))
    }

    fn files(&self) -> Vec<(String, String)> {
        self.results.files()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{experiments::leocc::summary::tests::row, systems::ORACLE};

    /// Runs over links, each with the throughput and the queue of ours per BBR's; the oracle has the throughput of BBR.
    fn runs(ratios: &[(f64, f64)]) -> Vec<Row> {
        let on = |(number, (throughput, queue)): (usize, &(f64, f64))| {
            let run = |system, mbps: f64, ms: f64| {
                let mut row = row(system, &number.to_string(), mbps, 0.0);
                row.metrics.queue_delay_mean_ms = ms;
                row
            };
            [
                run(RIVAL, 10.0, 10.0),
                run(SYSTEM, 10.0 * throughput, 10.0 * queue),
                run(ORACLE, 10.0, 1.0),
            ]
        };
        ratios.iter().enumerate().flat_map(on).collect()
    }

    fn missed(results: Results) -> Option<String> {
        Checked::new(results).failure()
    }

    #[test]
    fn the_worst_run_of_the_grid_is_judged_and_the_median() {
        let paths = |ratios: &[(f64, f64)]| {
            missed(Results {
                paths: runs(ratios),
                ..Results::default()
            })
        };
        let usual = (0.99, 0.5);
        assert_eq!(paths(&[usual, usual, (0.97, 0.75)]), None);
        let told = paths(&[usual, usual, (0.95, 0.85)]).unwrap();
        assert!(told.starts_with("goals missed, 2 of 5: "), "{told}");
        let worst = "paths, leocc2, 3 runs: throughput_least 0.950, at least 0.96";
        assert!(told.contains(worst), "{told}");
        assert!(told.contains("queue_greatest 0.850, at most 0.8"), "{told}");
        let told = paths(&[(0.97, 0.6), (0.97, 0.6)]).unwrap();
        assert!(told.contains("throughput_median 0.970"), "{told}");
        assert!(told.contains("queue_median 0.600"), "{told}");
    }

    #[test]
    fn one_of_many_drawn_links_may_be_worse_and_none_much() {
        let unseen = |worst| {
            let mut ratios = vec![(0.99, 0.5); 39];
            ratios.push(worst);
            missed(Results {
                unseen: runs(&ratios),
                ..Results::default()
            })
        };
        assert_eq!(unseen((0.91, 1.5)), None);
        let told = unseen((0.89, 1.5)).unwrap();
        assert!(told.starts_with("goals missed, 1 of 6: "), "{told}");
        assert!(
            told.contains("throughput_least 0.890, at least 0.9"),
            "{told}"
        );
    }

    #[test]
    fn goals_stand_beside_the_results_and_what_was_not_compared_meets_none() {
        let mut paths = runs(&[(0.99, 0.5), (0.99, 0.5)]);
        paths.retain(|row| row.system != RIVAL || row.params.trace != "1");
        let checked = Checked::new(Results {
            paths,
            ..Results::default()
        });
        let told = checked.failure().unwrap();
        assert!(told.contains("throughput_median NaN"), "{told}");
        assert!(!told.contains("oracle_median"), "{told}");
        assert!(checked.table().contains("missed"), "{}", checked.table());
        let json: serde_json::Value = serde_json::from_str(&checked.json().unwrap()).unwrap();
        assert_eq!(json["paths"].as_array().unwrap().len(), 5);
        assert_eq!(json["goals"][0]["at_least"], THROUGHPUT);
        assert_eq!(json["goals"][0]["met"], false);
        assert!(json["goals"][0]["measured"].is_null(), "{json}");
    }
}
