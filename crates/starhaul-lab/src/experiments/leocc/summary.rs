//! Medians over traces, and how one system stands beside others.

use starhaul_flow::Metrics;

use super::{case::Kind, results::Row};
use crate::kit::statistics::{distinct, median, medians};

/// One system over several traces: the median of each figure by itself.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Summary {
    pub(super) system: String,
    pub(super) metrics: Metrics,
}

impl Summary {
    /// One per system, in order of first appearance.
    pub(super) fn of_all(rows: &[&Row]) -> Vec<Self> {
        distinct(rows.iter().map(|row| row.system.as_str()))
            .into_iter()
            .map(|system| {
                let of = rows.iter().filter(|row| row.system == system);
                let metrics: Vec<Metrics> = of.map(|row| row.metrics).collect();
                Self {
                    system: system.to_owned(),
                    metrics: medians(&metrics),
                }
            })
            .collect()
    }
}

/// The rows of one loss by kind of trace; kinds without any are left out.
pub(super) fn groups<'a>(rows: &'a [Row], loss: &str) -> Vec<(&'static str, Vec<&'a Row>)> {
    let of = |wanted: &str| -> Vec<&'a Row> {
        rows.iter()
            .filter(|row| row.params.loss_name() == loss && kind(row) == wanted)
            .collect()
    };
    ["recorded uplink", "recorded downlink", "synthetic"]
        .into_iter()
        .map(|kind| (kind, of(kind)))
        .filter(|(_, rows)| !rows.is_empty())
        .collect()
}

fn kind(row: &Row) -> &'static str {
    match (row.params.kind, row.params.direction.as_str()) {
        (Kind::Synthetic, _) => "synthetic",
        (Kind::Recorded, "down") => "recorded downlink",
        (Kind::Recorded, _) => "recorded uplink",
    }
}

/// The losses of the rows, for people, in order of first appearance.
pub(super) fn losses<'a>(rows: impl IntoIterator<Item = &'a Row>) -> Vec<String> {
    distinct(rows.into_iter().map(|row| row.params.loss_name()))
}

/// Medians over traces of `system`'s figure divided by that of `other` on the same trace and loss.
pub(super) fn ratio(
    rows: &[Row],
    system: &str,
    other: &str,
    pick: fn(&Metrics) -> f64,
) -> Option<f64> {
    let ratios: Vec<f64> = pairs(rows, system, other)
        .map(|(ours, theirs)| pick(&ours.metrics) / pick(&theirs.metrics).max(f64::MIN_POSITIVE))
        .collect();
    (!ratios.is_empty()).then(|| median(ratios.into_iter()))
}

/// On how many pairs of trace and loss a rival is better in both throughput and p95 of the queueing delay, of how many. Variants of
/// LeoCC are no rivals of each other.
pub(super) fn beaten(rows: &[Row], system: &str) -> (usize, usize) {
    let ours: Vec<&Row> = rows.iter().filter(|row| row.system == system).collect();
    let beats = |ours: &Row, other: &Row| {
        other.params == ours.params
            && !other.system.starts_with("leocc")
            && other.metrics.throughput_mbps > ours.metrics.throughput_mbps
            && other.metrics.queue_delay_p95_ms < ours.metrics.queue_delay_p95_ms
    };
    let beaten = ours
        .iter()
        .filter(|ours| rows.iter().any(|other| beats(ours, other)));
    (beaten.count(), ours.len())
}

fn pairs<'a>(
    rows: &'a [Row],
    system: &'a str,
    other: &'a str,
) -> impl Iterator<Item = (&'a Row, &'a Row)> {
    rows.iter()
        .filter(move |row| row.system == system)
        .filter_map(move |ours| {
            let theirs = rows
                .iter()
                .find(|row| row.system == other && row.params == ours.params)?;
            Some((ours, theirs))
        })
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use crate::experiments::leocc::Params;

    pub(in crate::experiments::leocc) fn row(
        system: &str,
        trace: &str,
        throughput_mbps: f64,
        queue_delay_p95_ms: f64,
    ) -> Row {
        Row {
            system: system.to_owned(),
            variant: None,
            params: Params {
                trace: trace.to_owned(),
                direction: "up".to_owned(),
                loss: 0.0,
                queue: 500,
                kind: Kind::Recorded,
                recorded_loss: false,
            },
            metrics: Metrics {
                throughput_mbps,
                queue_delay_p95_ms,
                ..Metrics::default()
            },
        }
    }

    #[test]
    fn beaten_only_by_who_is_better_in_both_on_the_same_trace() {
        let rows = [
            row("a", "x", 10.0, 5.0),
            row("b", "x", 11.0, 6.0),
            row("a", "y", 10.0, 5.0),
            row("b", "y", 11.0, 4.0),
            row("b", "z", 90.0, 1.0),
            row("leocc", "x", 99.0, 1.0),
        ];
        assert_eq!(beaten(&rows, "a"), (1, 2));
        assert_eq!(beaten(&rows, "b"), (0, 3));
        assert_eq!(ratio(&rows, "b", "a", |m| m.throughput_mbps), Some(1.1));
        assert_eq!(ratio(&rows, "b", "c", |m| m.throughput_mbps), None);
    }
}
