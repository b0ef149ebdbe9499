//! What `--check` holds the controller of LEO paths to: beside BBR over the usual links, beside BBR and the oracle on any path, among its own
//! flows, and beside the kernel's BBR in real time. Not all of it is reached.

mod fairness;
mod real;

use serde::Serialize;
use starhaul_plot::{Bound, Goal};

use super::{
    results::{Params, Results, Row},
    rivals::QUEUE_GOAL,
    section::Section,
    standing::{Standing, at},
    summary::beaten,
};
use crate::{
    Error,
    kit::{Found, experiment::to_json},
};

/// Who has goals: what a gateway's LEO paths run.
pub(super) const SYSTEM: &str = "leocc2";
/// Beside whom, in virtual and in real time.
pub(super) const RIVAL: &str = "bbr";
pub(super) const KERNEL_RIVAL: &str = "kernel-bbr";
/// The parts that have goals.
pub(super) const JUDGED: [Section; 4] = [
    Section::Scatter,
    Section::Fairness,
    Section::Paths,
    Section::Unseen,
];
/// Throughput per BBR's in the median, and per the oracle's.
pub(super) const THROUGHPUT: f64 = 0.98;
pub(super) const OF_ORACLE: f64 = 0.95;
/// Throughput and queue per BBR's in the worst run of the grid, and at the 5th and 95th percentile of drawn links.
const WORST_THROUGHPUT: f64 = 0.96;
const WORST_QUEUE: f64 = 0.8;
/// Throughput per BBR's over any drawn link.
const LEAST_THROUGHPUT: f64 = 0.9;
/// Throughput and queue per BBR's over the usual links, median and worst run: what was reached there is not to be given up for other links.
/// BBR uses nearly all of them and leaves some 30 ms, of which the queue is 10.
const USUAL_THROUGHPUT: f64 = 0.997;
const USUAL_WORST_THROUGHPUT: f64 = 0.98;
const USUAL_QUEUE: f64 = 0.35;

/// The name of a figure as the table of standings has it, which ratios it is of and at which share of the runs, and its bound.
type Bounded = (&'static str, fn(&Standing) -> &[f64], f64, Bound);

const ON_USUAL: [Bounded; 4] = [
    (
        "throughput_median",
        throughput,
        0.5,
        Bound::AtLeast(USUAL_THROUGHPUT),
    ),
    (
        "throughput_least",
        throughput,
        0.0,
        Bound::AtLeast(USUAL_WORST_THROUGHPUT),
    ),
    ("queue_median", queue, 0.5, Bound::AtMost(USUAL_QUEUE)),
    ("queue_greatest", queue, 1.0, Bound::AtMost(QUEUE_GOAL)),
];
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
    /// Judges runs in virtual time.
    pub(super) fn new(results: Results) -> Self {
        let of_path = |part: &str, rows: &[Row], own: &[Bounded]| {
            let how = if results.probed { ", probed" } else { "" };
            beside(part, rows, how, &[&ON_EACH[..], own].concat())
        };
        let goals = [
            usual(&results.rows),
            fairness::goals(&results.fairness),
            of_path("paths", &results.paths, &ON_PATHS),
            of_path("unseen", &results.unseen, &ON_UNSEEN),
        ];
        Self {
            goals: goals.concat(),
            results,
        }
    }

    /// Judges runs in real time over these links, each of which has its goals whether anything was measured or not.
    pub(super) fn in_real_time(results: Results, links: &[Params]) -> Self {
        Self {
            goals: real::goals(&results.rows, links),
            results,
        }
    }
}

/// The goals of the usual links, if they were run over: none of the others may have both more throughput and a shorter queue.
fn usual(rows: &[Row]) -> Vec<Goal> {
    let mut goals = beside("scatter", rows, "", &ON_USUAL);
    if !rows.is_empty() {
        let (beaten, runs) = beaten(rows, SYSTEM);
        let name = format!("scatter, {SYSTEM}, {runs} runs");
        let none = Bound::AtMost(0.0);
        goals.push(Goal::new(&name, "beaten_in_both", beaten as f64, none));
    }
    goals
}

/// The goals of a part whose runs are compared with those of others over the same link, if it ran. A ratio that a run lacks meets nothing.
fn beside(part: &str, rows: &[Row], how: &str, bounds: &[Bounded]) -> Vec<Goal> {
    if rows.is_empty() {
        return Vec::new();
    }
    let line = Standing::of(SYSTEM, rows);
    let name = format!("{part}, {SYSTEM}, {} runs{how}", line.runs);
    let goal = |bounded: &Bounded| {
        let (figure, of, share, bound) = *bounded;
        let ratios = of(&line);
        let found = at(ratios, share).filter(|_| ratios.len() == line.runs);
        Goal::new(&name, figure, found.unwrap_or(f64::NAN), bound)
    };
    bounds.iter().map(goal).collect()
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
    fn the_usual_links_are_not_given_up_for_others() {
        let usual = |ratios: &[(f64, f64)], p95_ms| {
            let mut rows = runs(ratios);
            rows.retain(|row| row.system != ORACLE);
            for row in rows.iter_mut().filter(|row| row.system == SYSTEM) {
                row.metrics.queue_delay_p95_ms = p95_ms;
            }
            missed(Results {
                rows,
                ..Results::default()
            })
        };
        let met = [(1.0, 0.3), (0.999, 0.32), (0.985, 0.5)];
        assert_eq!(usual(&met, 0.0), None);
        let told = usual(&[(0.99, 0.4), (0.99, 0.4), (0.97, 0.6)], 0.0).unwrap();
        assert!(told.starts_with("goals missed, 4 of 5: "), "{told}");
        let median = "scatter, leocc2, 3 runs: throughput_median 0.990, at least 0.997";
        assert!(told.contains(median), "{told}");
        // BBR's packets wait for less, and it has more throughput in two runs.
        let told = usual(&met, 1.0).unwrap();
        assert!(told.starts_with("goals missed, 1 of 5: "), "{told}");
        assert!(told.contains("beaten_in_both 2.000, at most 0"), "{told}");
    }

    #[test]
    fn goals_tell_that_a_prober_ran_everywhere() {
        let checked = Checked::new(Results {
            unseen: runs(&[(0.99, 0.5)]),
            probed: true,
            ..Results::default()
        });
        let table = checked.table();
        let told = "unseen, leocc2, 1 runs, probed: throughput_median 0.990";
        assert!(table.contains(told), "{table}");
        let json: serde_json::Value = serde_json::from_str(&checked.json().unwrap()).unwrap();
        assert_eq!(json["probed"], true);
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
