//! What `--check` holds LEOTP to: the last column of the table of its design, where "above", "not above" and "better" refer to the published
//! figure, and what else it promises. Each is of the median of the runs, at full length.

use starhaul_plot::Bound::{self, Above, AtLeast, AtMost, Below};

use super::orders::{DELAY as MEAN_DELAY, GOODPUT, RULES};
use crate::kit::{Figures, Target};

/// The only system that has goals, but for those of `ablation`.
pub(super) const SYSTEM: &str = "leotp";

/// Payload and headers of 100 MB: segments of 1418 bytes, with 63 of IPv4, UDP and LEOTP each.
const ONCE_BYTES: f64 = 100e6 * 1481.0 / 1418.0;
/// One and a half round trips of a hop of figures 10 to 12.
const REPAIRED_MS: f64 = 30.0;

/// A figure of LEOTP at each loss.
const BY_LOSS: Target = Target {
    of: &["system"],
    by: "loss",
    figure: GOODPUT,
    bound: |_, _| None,
    together: false,
};

/// Figure 10: not above. And repairs are late by [`REPAIRED_MS`] at most in the median, and fewer than one of 100 losses, of some 10 000 in
/// each run, are asked for by a hop that did not lose them.
pub(super) const DELAY: &[Target] = &[
    Target {
        figure: "owd_p99_ms",
        bound: |name, row| {
            let most = [(0.002, 88.0), (0.01, 91.0), (0.02, 95.0)];
            at(name, row.of("loss")?, &most.map(not_above))
        },
        ..BY_LOSS
    },
    Target {
        figure: "late_extra_ms",
        bound: |name, _| ours(name, AtMost(REPAIRED_MS)),
        ..BY_LOSS
    },
    Target {
        figure: "elsewhere_share",
        bound: |name, row| at(name, row.of("loss")?, &[(0.02, Below(0.01))]),
        ..BY_LOSS
    },
];

/// Figure 11: not above, of 100 MB that arrived. And at 2 % no more than 1.025 of [`ONCE_BYTES`].
pub(super) const BYTES: &[Target] = &[
    Target {
        figure: "sender_bytes",
        bound: |name, row| {
            let most = [
                (0.0, 104.57e6),
                (0.004, 104.96e6),
                (0.008, 105.41e6),
                (0.012, 105.89e6),
                (0.016, 106.31e6),
                (0.02, 106.70e6),
            ];
            at(name, row.of("loss")?, &most.map(not_above))
        },
        ..BY_LOSS
    },
    Target {
        figure: "sender_bytes",
        bound: |name, row| {
            let most = AtMost(1.025 * ONCE_BYTES);
            at(name, row.of("loss")?, &[(0.02, most)])
        },
        ..BY_LOSS
    },
];

/// Figure 12: 18.5 Mbit/s at 1 %, and everywhere 97 % of what the link carries of payload without a loss.
pub(super) const HOP_LOSS: &[Target] = &[
    Target {
        bound: |name, row| at(name, row.of("loss")?, &[(0.01, AtLeast(18.5))]),
        ..BY_LOSS
    },
    Target {
        bound: |name, row| {
            let full = ceiling(row) / (1.0 - row.of("loss")?);
            ours(name, AtLeast(0.97 * full))
        },
        ..BY_LOSS
    },
];

/// Figure 13: above.
pub(super) const SWITCH: &[Target] = &[Target {
    by: "switch_s",
    bound: |name, row| {
        let published = [
            (1.0, 17.3),
            (2.0, 17.6),
            (5.0, 18.1),
            (10.0, 18.6),
            (15.0, 18.5),
            (20.0, 18.5),
        ];
        let above = published.map(|(seconds, mbps)| (seconds, Above(mbps)));
        at(name, row.of("switch_s")?, &above)
    },
    ..BY_LOSS
}];

/// Figure 14.
pub(super) const STEP: &[Target] = &[
    Target {
        bound: |name, _| ours(name, AtLeast(9.3)),
        ..BY_LOSS
    },
    Target {
        figure: "owd_mean_ms",
        bound: |name, _| ours(name, AtMost(115.0)),
        ..BY_LOSS
    },
];

/// Figure 15.
pub(super) const FAIRNESS: &[Target] = &[Target {
    figure: "jain",
    bound: |name, _| ours(name, AtLeast(0.998)),
    ..BY_LOSS
}];

/// Table II: better in both columns. To New York 7.91 Mbit/s were published, more than the link leaves for payload: 99 % of that.
pub(super) const CONSTELLATION: &[Target] = &[
    Target {
        of: &["system", "to"],
        bound: |name, row| match station(name)? {
            "Hong Kong" => Some(Above(7.82)),
            "Paris" => Some(Above(7.70)),
            "New York" => Some(AtLeast(0.99 * ceiling(row))),
            _ => None,
        },
        ..BY_LOSS
    },
    Target {
        of: &["system", "to"],
        figure: "owd_mean_ms",
        bound: |name, _| match station(name)? {
            "Hong Kong" => Some(Below(49.17)),
            "Paris" => Some(Below(76.57)),
            "New York" => Some(Below(118.64)),
            _ => None,
        },
        ..BY_LOSS
    },
];

/// Table II without means of LEOTP: which row has less than which other ones.
pub(super) const ABLATION: &[Target] = &[
    Target {
        of: &["system", "to"],
        bound: |name, row| below(name, row, GOODPUT),
        ..BY_LOSS
    },
    Target {
        of: &["system", "to"],
        figure: MEAN_DELAY,
        bound: |name, row| below(name, row, MEAN_DELAY),
        ..BY_LOSS
    },
];

/// The link to the source carries of 50 MB for ten requesters 1.1 times as much.
pub(super) const SHARING: &[Target] = &[Target {
    figure: "sender_bytes",
    bound: |name, _| ours(name, AtMost(1.1 * 50e6)),
    ..BY_LOSS
}];

/// The bound, if the row is one of LEOTP.
fn ours(name: &str, bound: Bound) -> Option<Bound> {
    (name == SYSTEM).then_some(bound)
}

/// The bound at this point, if it has one and the row is one of LEOTP.
fn at(name: &str, point: f64, bounds: &[(f64, Bound)]) -> Option<Bound> {
    let found = bounds.iter().find(|(of, _)| *of == point);
    found.and_then(|(_, bound)| ours(name, *bound))
}

fn not_above((point, published): (f64, f64)) -> (f64, Bound) {
    (point, AtMost(published))
}

/// Below the least of the rows that have more of a figure in the order of the ablation; `None`: there is none. A row of which one has no figure, or
/// did not run, meets nothing.
fn below(name: &str, row: Figures<'_>, figure: &str) -> Option<Bound> {
    let (system, station) = name.split_once(", ")?;
    let above = RULES
        .iter()
        .flat_map(|rule| rule.above(system, station, figure));
    let above = above.map(|more| row.beside(&format!("{more}, {station}"))?.of(figure));
    let above: Vec<Option<f64>> = above.collect();
    let least = above.iter().copied().collect::<Option<Vec<f64>>>();
    let least = least.map_or(f64::NAN, |all| {
        all.into_iter().fold(f64::INFINITY, f64::min)
    });
    (!above.is_empty()).then_some(Below(least))
}

/// What the narrowest link leaves for payload. It is the same in all runs; a row without it meets nothing.
fn ceiling(row: Figures<'_>) -> f64 {
    row.of("ceiling_mbps").unwrap_or(f64::NAN)
}

/// Where the path of a row of LEOTP leads.
fn station(name: &str) -> Option<&str> {
    let (system, station) = name.split_once(", ")?;
    (system == SYSTEM).then_some(station)
}

#[cfg(test)]
mod tests {
    use starhaul_plot::{Column, Goal, Table};

    use super::*;
    use crate::{
        experiments::leotp::{Ablation, Given, OURS, PARTS, PUBLISHED, Row, columns},
        kit::target::goals,
    };

    /// Each goal has its run at full length, and there are as many as the design has: the long test judges them.
    #[test]
    fn each_goal_is_of_a_run_that_is_made() {
        let mut counts = Vec::new();
        for part in PARTS {
            // The ablation compares several.
            let systems: &[&'static str] = match part.name {
                "ablation" => &[],
                _ => &[SYSTEM],
            };
            let setups = part.setups.with(&Given::default(), false, 1, systems);
            let setups = setups.into_iter();
            let rows: Vec<Row> = setups.map(Row::without_flows).collect();
            let table = Table::of(&columns(), &rows);
            let targets = part.targets.iter();
            let goals = goals(targets.map(|target| (part.name, target, &table)));
            let told = Goal::lines(&goals);
            assert!(!told.contains("judged_rows"), "{told}");
            counts.push((part.name, goals.len()));
        }
        assert_eq!(
            counts,
            [
                ("delay", 7),
                ("bytes", 7),
                ("hop-loss", 9),
                ("switch", 6),
                ("step", 2),
                ("fairness", 1),
                ("constellation", 6),
                ("ablation", 33),
                ("sharing", 1),
            ]
        );
    }

    /// What a made-up run has found: its point (the loss, or the time between switches), where its path leads, and the figure.
    type Point = (&'static str, &'static str, f64, Option<f64>);

    /// Which goals of a target such runs miss, where a link leaves 10 Mbit/s for payload.
    fn missed(target: &Target, points: &[Point]) -> Option<String> {
        let columns = [
            Column::name("system", "", |point: &Point| point.0.into()),
            Column::name("to", "", |point: &Point| point.1.into()),
            Column::number(target.by, "", "", 2, |point: &Point| point.2.into()),
            Column::number("ceiling_mbps", "", "", 2, |_: &Point| 10.0_f64.into()).median(),
            Column::number(target.figure, "", "", 2, |point: &Point| point.3.into()).median(),
        ];
        let table = Table::of(&columns, points);
        Goal::missed(&goals([("part", target, &table)]))
    }

    #[test]
    fn the_published_figure_is_not_above_itself_and_others_have_no_goals() {
        let [switch] = SWITCH else { panic!("one") };
        assert_eq!(missed(switch, &[(SYSTEM, "", 10.0, Some(18.61))]), None);
        let told = missed(switch, &[(SYSTEM, "", 10.0, Some(18.6))]).unwrap();
        assert!(told.contains("goodput_mbps 18.600, above 18.6"), "{told}");
        let [late, ..] = DELAY else { panic!("some") };
        let slow = ("leotp-published", "", 0.01, Some(500.0));
        assert_eq!(
            missed(late, &[(SYSTEM, "", 0.01, Some(91.0)), slow]),
            None,
            "not above"
        );
        let told = missed(late, &[slow]).unwrap();
        assert!(told.contains("judged_rows"), "{told}");
    }

    /// The median counts, if all runs have the figure: of a content that has not arrived none tells what was sent for it.
    #[test]
    fn a_run_that_did_not_arrive_is_not_left_out_of_the_median() {
        let [published, in_all] = BYTES else {
            panic!("two")
        };
        let runs = |sent: [Option<f64>; 3]| sent.map(|sent| (SYSTEM, "", 0.02, sent));
        let few = Some(106.6e6);
        assert_eq!(missed(published, &runs([few, few, Some(200e6)])), None);
        assert!(missed(published, &runs([few, few, None])).is_some());
        assert!(missed(published, &runs([few, Some(106.8e6), Some(106.8e6)])).is_some());
        assert_eq!(missed(in_all, &runs([Some(107e6); 3])), None);
        assert!(missed(in_all, &runs([Some(107.1e6); 3])).is_some());
    }

    #[test]
    fn the_rows_of_an_ablation_are_held_to_their_orders() {
        let [goodput, delay] = ABLATION else {
            panic!("two")
        };
        let missed_by = |target, rule: &Ablation, to, figures: [f64; 4]| {
            let rows = rule.rows.into_iter().zip(figures);
            let points: Vec<Point> = rows.map(|(row, of)| (row, to, 0.01, Some(of))).collect();
            missed(target, &points).is_some()
        };
        let published = |to, figures| missed_by(goodput, &PUBLISHED, to, figures);
        assert!(!published("Hong Kong", [4.0, 3.0, 2.0, 1.0]));
        assert!(published("Hong Kong", [4.0, 3.0, 1.0, 2.0]));
        // The one exception, which is none for what is above both.
        assert!(!published("Paris", [4.0, 3.0, 1.0, 2.0]));
        assert!(published("Paris", [4.0, 1.5, 1.0, 2.0]));
        assert!(!missed_by(goodput, &OURS, "Paris", [4.0, 2.0, 3.0, 1.0]));
        assert!(missed_by(goodput, &OURS, "Paris", [4.0, 2.0, 3.0, 2.5]));
        assert!(!missed_by(delay, &PUBLISHED, "Paris", [3.0, 4.0, 1.0, 2.0]));
        assert!(missed_by(delay, &PUBLISHED, "Paris", [3.0, 4.0, 2.0, 1.0]));
        let neither_first = |to| missed_by(delay, &OURS, to, [3.0, 4.0, 2.0, 1.0]);
        assert!(!neither_first("Hong Kong") && neither_first("New York"));
        // What did not run is below nothing.
        let [whole, ..] = PUBLISHED.rows.map(|row| (row, "Paris", 0.01, Some(4.0)));
        assert!(missed(delay, &[whole]).is_some_and(|told| told.contains("below NaN")));
    }

    #[test]
    fn a_share_of_the_ceiling_is_of_what_the_link_carries_without_a_loss() {
        let [_, of_full] = HOP_LOSS else {
            panic!("two")
        };
        assert_eq!(missed(of_full, &[(SYSTEM, "", 0.0, Some(9.71))]), None);
        assert!(missed(of_full, &[(SYSTEM, "", 0.01, Some(9.71))]).is_some());
        assert_eq!(missed(of_full, &[(SYSTEM, "", 0.01, Some(9.798))]), None);
        let [goodput, _] = CONSTELLATION else {
            panic!("two")
        };
        let to = |station, mbps| missed(goodput, &[(SYSTEM, station, 0.01, Some(mbps))]);
        assert_eq!(to("New York", 9.91), None);
        assert!(to("New York", 9.89).is_some());
        assert_eq!(to("Paris", 7.71), None);
        assert!(to("Hong Kong", 7.82).is_some());
    }
}
