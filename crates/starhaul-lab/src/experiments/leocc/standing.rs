//! How a system stands beside BBR and beside the oracle over many links, run by run. The oracle's packets hardly wait, so that its queue is
//! compared by a difference.

use starhaul_flow::Metrics;
use starhaul_plot::{Column, Table};

use super::results::Row;
use crate::{
    kit::statistics::{distinct, median, percentile},
    systems::{ORACLE, family},
};

/// One system over links of one kind: ratios of each run to that of others over the same link.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Standing {
    pub(super) system: String,
    pub(super) runs: usize,
    /// Share of the capacity, median.
    pub(super) utilisation: f64,
    /// Mean queueing delay in milliseconds, median.
    pub(super) queue_ms: f64,
    /// Throughput per BBR's, ascending.
    pub(super) throughput: Vec<f64>,
    /// Mean queueing delay per BBR's, ascending.
    pub(super) queue: Vec<f64>,
    /// Throughput per the oracle's, ascending.
    pub(super) of_oracle: Vec<f64>,
    /// Mean queueing delay above the oracle's in milliseconds, ascending.
    pub(super) over_oracle_ms: Vec<f64>,
}

impl Standing {
    /// One of each system but the oracle, in order of first appearance.
    pub(super) fn of_all(rows: &[Row]) -> Vec<Self> {
        let systems = distinct(rows.iter().map(|row| row.system.as_str()));
        let others = systems.into_iter().filter(|system| *system != ORACLE);
        others.map(|system| Self::of(system, rows)).collect()
    }

    /// The standing of one system.
    pub(super) fn of(system: &str, rows: &[Row]) -> Self {
        let ours: Vec<&Row> = rows.iter().filter(|row| row.system == system).collect();
        let compared = |other: &str, compare: fn(&Metrics, &Metrics) -> Option<f64>| {
            let with_other = |row: &&Row| {
                let same = |beside: &&Row| {
                    beside.system == other
                        && beside.params == row.params
                        && beside.variant == row.variant
                };
                let beside = rows.iter().find(same)?;
                compare(&row.metrics, &beside.metrics)
            };
            let mut figures: Vec<f64> = ours.iter().filter_map(with_other).collect();
            figures.sort_by(f64::total_cmp);
            figures
        };
        Self {
            system: system.to_owned(),
            runs: ours.len(),
            utilisation: median(ours.iter().map(|row| row.metrics.utilisation)),
            queue_ms: median(ours.iter().map(|row| row.metrics.queue_delay_mean_ms)),
            throughput: compared("bbr", |ours, bbr| {
                ratio(ours.throughput_mbps, bbr.throughput_mbps)
            }),
            queue: compared("bbr", |ours, bbr| {
                ratio(ours.queue_delay_mean_ms, bbr.queue_delay_mean_ms)
            }),
            of_oracle: compared(ORACLE, |ours, oracle| {
                ratio(ours.throughput_mbps, oracle.throughput_mbps)
            }),
            over_oracle_ms: compared(ORACLE, |ours, oracle| {
                Some(ours.queue_delay_mean_ms - oracle.queue_delay_mean_ms)
            }),
        }
    }
}

/// Nothing beside nothing.
fn ratio(ours: f64, theirs: f64) -> Option<f64> {
    (theirs > 0.0).then(|| ours / theirs)
}

/// What [`percentile`] finds of ratios or differences; nothing of none, where the other did not run.
pub(super) fn at(figures: &[f64], share: f64) -> Option<f64> {
    (!figures.is_empty()).then(|| percentile(figures, share))
}

/// Medians, 5th and 95th percentiles, and the worst runs.
pub(super) fn table(rows: &[Row]) -> Table {
    let figure = |key, name, brief, of: fn(&Standing) -> &[f64], quantile| {
        let of = move |line: &Standing| at(of(line), quantile).into();
        Column::number(key, name, "", 3, of).brief(brief).digits(4)
    };
    let throughput: fn(&Standing) -> &[f64] = |line| &line.throughput;
    let queue: fn(&Standing) -> &[f64] = |line| &line.queue;
    let of_oracle: fn(&Standing) -> &[f64] = |line| &line.of_oracle;
    let over_oracle = |key, name, brief, share| {
        let of = move |line: &Standing| at(&line.over_oracle_ms, share).into();
        let column = Column::number(key, name, "ms", 1, of);
        column.brief(brief).digits(2)
    };
    let columns = [
        Column::name("system", "system", |line: &Standing| (&line.system).into()),
        Column::count("runs", "runs", |line: &Standing| line.runs.into()),
        Column::share("utilisation", "of capacity", 1, |line: &Standing| {
            line.utilisation.into()
        })
        .brief("use"),
        Column::number("queue_ms", "queue mean", "ms", 1, |line: &Standing| {
            line.queue_ms.into()
        })
        .brief("queue"),
        figure(
            "throughput_median",
            "throughput × BBR",
            "Mbit/s ×",
            throughput,
            0.5,
        ),
        figure("throughput_p5", "p5", "p5", throughput, 0.05),
        figure("throughput_least", "least", "least", throughput, 0.0),
        figure("queue_median", "queue × BBR", "queue ×", queue, 0.5),
        figure("queue_p95", "p95", "p95", queue, 0.95),
        figure("queue_greatest", "most", "most", queue, 1.0),
        figure(
            "oracle_median",
            "throughput × oracle",
            "oracle ×",
            of_oracle,
            0.5,
        ),
        figure("oracle_least", "least", "least", of_oracle, 0.0),
        over_oracle(
            "queue_over_oracle_ms_median",
            "queue − oracle",
            "queue −",
            0.5,
        ),
        over_oracle("queue_over_oracle_ms_p95", "p95", "p95", 0.95),
        over_oracle("queue_over_oracle_ms_greatest", "most", "most", 1.0),
    ];
    Table::of(&columns, &Standing::of_all(rows)).coloured("system", family)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::experiments::leocc::summary::tests::row;

    #[test]
    fn each_run_is_compared_with_those_over_the_same_link_and_path() {
        let on = |variant: &str, row: Row| Row {
            variant: Some(variant.to_owned()),
            ..row
        };
        let queue = |mut row: Row, ms| {
            row.metrics.queue_delay_mean_ms = ms;
            row
        };
        let rows = [
            on("+0 ms", queue(row("bbr", "x", 10.0, 0.0), 20.0)),
            on("+0 ms", queue(row("leocc2", "x", 9.0, 0.0), 10.0)),
            on("+0 ms", queue(row(ORACLE, "x", 12.0, 0.0), 1.0)),
            on("+80 ms", queue(row("bbr", "x", 8.0, 0.0), 40.0)),
            on("+80 ms", queue(row("leocc2", "x", 8.0, 0.0), 30.0)),
            on("+80 ms", queue(row(ORACLE, "x", 10.0, 0.0), 1.0)),
        ];
        let lines = Standing::of_all(&rows);
        let names: Vec<&str> = lines.iter().map(|line| &*line.system).collect();
        assert_eq!(names, ["bbr", "leocc2"]);
        assert_eq!(lines[1].throughput, [0.9, 1.0]);
        assert_eq!(lines[1].queue, [0.5, 0.75]);
        assert_eq!(lines[1].of_oracle, [0.75, 0.8]);
        assert_eq!(lines[1].over_oracle_ms, [9.0, 29.0]);
        assert_eq!(lines[1].runs, 2);
        let csv = table(&rows).csv();
        let (keys, ours) = (csv.lines().next().unwrap(), csv.lines().nth(2).unwrap());
        let over =
            "queue_over_oracle_ms_median,queue_over_oracle_ms_p95,queue_over_oracle_ms_greatest";
        assert!(keys.ends_with(over), "{csv}");
        assert!(ours.ends_with("29.00,29.00,29.00"), "{csv}");
    }
}
