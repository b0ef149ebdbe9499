//! The results as a table for a terminal: per loss and system, medians over the traces of a group.

use std::fmt::Write as _;

use super::{
    results::{Results, Row},
    summary::{Summary, groups, losses},
};
use crate::kit::statistics::distinct;

impl Results {
    /// Every part that ran: medians over all traces.
    pub fn table(&self) -> String {
        let mut text = String::new();
        for loss in losses(&self.rows) {
            for (kind, rows) in groups(&self.rows, &loss) {
                add_group(&mut text, kind, &loss, &rows);
            }
        }
        self.add_beside(&mut text);
        self.add_parts(&mut text);
        for line in self.beside_kernel() {
            text.push_str(&line);
            text.push('\n');
        }
        let left_out = self.skipped.iter().filter(|_| self.real.is_some());
        for line in left_out {
            text.push_str(line);
            text.push('\n');
        }
        if let Some(late) = self.late_runs() {
            text.push_str(&late);
            text.push('\n');
        }
        text
    }

    /// What must be said when this computer was too busy.
    pub(super) fn late_runs(&self) -> Option<String> {
        let real = self.real.filter(|real| real.invalid_runs > 0)?;
        Some(format!(
            "{} of {} runs do not count: packets left over 1 ms late, because this computer was too busy",
            real.invalid_runs,
            self.runs.len()
        ))
    }
}

fn add_group(text: &mut String, kind: &str, loss: &str, rows: &[&Row]) {
    let traces = distinct(rows.iter().map(|row| row.params.trace.as_str())).len();
    let of = match traces {
        1 => "one trace".to_owned(),
        _ => format!("medians of {traces} traces"),
    };
    // Writing to a string cannot fail.
    let _ = writeln!(text, "{kind}, loss {loss}, {of}");
    let _ = writeln!(
        text,
        "{:<16}{:>8}{:>8}{:>10}{:>9}{:>9}{:>9}{:>8}",
        "system", "Mbit/s", "use %", "queue ms", "p95 ms", "rtt ms", "p95 ms", "lost %"
    );
    for Summary { system, metrics } in Summary::of_all(rows) {
        let _ = writeln!(
            text,
            "{system:<16}{:>8.2}{:>8.1}{:>10.2}{:>9.1}{:>9.1}{:>9.1}{:>8.2}",
            metrics.throughput_mbps,
            metrics.utilisation * 100.0,
            metrics.queue_delay_mean_ms,
            metrics.queue_delay_p95_ms,
            metrics.rtt_mean_ms,
            metrics.rtt_p95_ms,
            metrics.loss_rate * 100.0,
        );
    }
    text.push('\n');
}
