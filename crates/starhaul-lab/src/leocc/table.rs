//! The results as a table for a terminal: per loss and system, medians over the traces of a group.

use std::fmt::Write as _;

use super::results::{Results, Row};
use crate::flow::Metrics;

impl Results {
    /// Medians over all traces, for each loss and system.
    pub fn table(&self) -> String {
        let mut text = String::new();
        for loss in distinct(self.rows.iter().map(|row| row.params.loss)) {
            for (group, of_group) in groups(&self.rows, loss) {
                if of_group.is_empty() {
                    continue;
                }
                let traces = distinct(of_group.iter().map(|row| row.params.trace.as_str()));
                // Writing to a string cannot fail.
                let _ = writeln!(
                    text,
                    "{group}, loss {} %, medians of {} traces",
                    loss * 100.0,
                    traces.len()
                );
                let _ = writeln!(
                    text,
                    "{:<22}{:>12}{:>8}{:>12}{:>11}{:>10}{:>9}{:>8}",
                    "system", "Mbit/s", "use %", "queue ms", "p95 ms", "rtt ms", "p95 ms", "lost %"
                );
                for system in distinct(of_group.iter().map(|row| row.system.as_str())) {
                    let of_system: Vec<&Row> = of_group
                        .iter()
                        .copied()
                        .filter(|row| row.system == system)
                        .collect();
                    let of = |pick: fn(&Metrics) -> f64| {
                        median(of_system.iter().map(|row| pick(&row.metrics)))
                    };
                    let _ = writeln!(
                        text,
                        "{system:<22}{:>12.2}{:>8.1}{:>12.2}{:>11.1}{:>10.1}{:>9.1}{:>8.2}",
                        of(|m| m.throughput_mbps),
                        of(|m| m.utilisation) * 100.0,
                        of(|m| m.queue_delay_mean_ms),
                        of(|m| m.queue_delay_p95_ms),
                        of(|m| m.rtt_mean_ms),
                        of(|m| m.rtt_p95_ms),
                        of(|m| m.loss_rate) * 100.0,
                    );
                }
                text.push('\n');
            }
        }
        text
    }
}

/// The rows of one loss by kind of trace.
fn groups(rows: &[Row], loss: f64) -> [(&'static str, Vec<&Row>); 3] {
    let of = |wanted: u8| -> Vec<&Row> {
        rows.iter()
            .filter(|row| row.params.loss.total_cmp(&loss).is_eq() && kind(row) == wanted)
            .collect()
    };
    [
        ("recorded uplink", of(0)),
        ("recorded downlink", of(1)),
        ("synthetic", of(2)),
    ]
}

fn kind(row: &Row) -> u8 {
    match (
        row.params.trace.starts_with("leo-"),
        row.params.direction.as_str(),
    ) {
        (true, _) => 2,
        (false, "down") => 1,
        (false, _) => 0,
    }
}

/// The distinct values, in order of their first appearance.
pub(super) fn distinct<T: PartialEq>(values: impl Iterator<Item = T>) -> Vec<T> {
    let mut distinct = Vec::new();
    for value in values {
        if !distinct.contains(&value) {
            distinct.push(value);
        }
    }
    distinct
}

/// The middle value, or the mean of the two in the middle; 0 of nothing.
pub(super) fn median(values: impl Iterator<Item = f64>) -> f64 {
    let mut values: Vec<f64> = values.collect();
    values.sort_by(f64::total_cmp);
    let middle = values.len() / 2;
    match (values.get(middle), values.len() % 2) {
        (Some(&value), 1) => value,
        (Some(&value), _) => (value + values[middle - 1]) / 2.0,
        (None, _) => 0.0,
    }
}
