//! How a system stands beside BBR and beside the oracle over many links, run by run.

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
        let ratios = |other: &str, pick: fn(&Metrics) -> f64| {
            let mut ratios: Vec<f64> = ours
                .iter()
                .filter_map(|row| {
                    let same = |beside: &&Row| {
                        beside.system == other
                            && beside.params == row.params
                            && beside.variant == row.variant
                    };
                    let beside = rows.iter().find(same)?;
                    let theirs = pick(&beside.metrics);
                    (theirs > 0.0).then(|| pick(&row.metrics) / theirs)
                })
                .collect();
            ratios.sort_by(f64::total_cmp);
            ratios
        };
        Self {
            system: system.to_owned(),
            runs: ours.len(),
            utilisation: median(ours.iter().map(|row| row.metrics.utilisation)),
            queue_ms: median(ours.iter().map(|row| row.metrics.queue_delay_mean_ms)),
            throughput: ratios("bbr", |metrics| metrics.throughput_mbps),
            queue: ratios("bbr", |metrics| metrics.queue_delay_mean_ms),
            of_oracle: ratios(ORACLE, |metrics| metrics.throughput_mbps),
        }
    }
}

/// What [`percentile`] finds of ratios; nothing of none, where the other did not run.
pub(super) fn at(ratios: &[f64], share: f64) -> Option<f64> {
    (!ratios.is_empty()).then(|| percentile(ratios, share))
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
        assert_eq!(lines[1].runs, 2);
    }
}
