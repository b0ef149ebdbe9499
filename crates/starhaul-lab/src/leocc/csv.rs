//! The results as tables for spreadsheets (RFC 4180).

use std::fmt::Write as _;

use super::results::{Results, Row};

const ROWS_HEAD: &str = "part,system,variant,trace,direction,loss,recorded_loss,queue,throughput_mbps,capacity_mbps,utilisation,\
                         queue_delay_mean_ms,queue_delay_p95_ms,rtt_mean_ms,rtt_p95_ms,loss_rate\n";
const RIVALS_HEAD: &str = "loss,system,beside,runs,throughput_ratio_median,throughput_ratio_least,throughput_ratio_greatest,\
                           queue_ratio_median,queue_ratio_least,queue_ratio_greatest,queue_within_goal,beaten_in_both,ahead_in_both\n";
const SERIES_HEAD: &str = "system,trace,at_s,throughput_mbps,capacity_mbps,rtt_ms,queue_delay_ms,cwnd_packets,\
                           pacing_mbps,state\n";

// Writing to a string cannot fail.
impl Results {
    /// Every run with the usual figures.
    pub fn csv(&self) -> String {
        let mut csv = ROWS_HEAD.to_owned();
        let parts: [(&str, &[Row]); 6] = [
            ("scatter", &self.rows),
            ("run", &self.runs),
            ("ablation", &self.ablation),
            ("queues", &self.queues),
            ("sensitivity", &self.sensitivity),
            ("shift", &self.shift),
        ];
        for (part, rows) in parts {
            rows.iter().for_each(|row| add_row(&mut csv, part, row));
        }
        csv
    }

    /// LeoCC beside each other system.
    pub(super) fn rivals_csv(&self) -> String {
        let mut csv = RIVALS_HEAD.to_owned();
        for line in self.beside() {
            let (rate, queue) = (line.throughput, line.queue);
            let _ = writeln!(
                csv,
                "{},{},{},{},{:.4},{:.4},{:.4},{:.4},{:.4},{:.4},{},{},{}",
                line.loss,
                line.system,
                line.other,
                line.runs,
                rate.median,
                rate.least,
                rate.greatest,
                queue.median,
                queue.least,
                queue.greatest,
                line.within_goal,
                line.beaten,
                line.ahead
            );
        }
        csv
    }

    /// Who got what of a shared link.
    pub(super) fn fairness_csv(&self) -> String {
        let mut csv =
            "trace,flow,system,throughput_mbps,jain,utilisation,queue_delay_mean_ms\n".to_owned();
        for row in &self.fairness {
            for (flow, share) in (1..).zip(&row.flows) {
                let _ = writeln!(
                    csv,
                    "{},{flow},{},{:.4},{:.4},{:.4},{:.4}",
                    quoted(&row.trace),
                    share.system,
                    share.throughput_mbps,
                    row.jain,
                    row.utilisation,
                    row.queue_delay_mean_ms
                );
            }
        }
        csv
    }

    /// What the detector found.
    pub(super) fn detector_csv(&self) -> String {
        let mut csv =
            "trace,beside,queue,reconfigurations,found,false_alarms,precision,recall,latest_ms\n"
                .to_owned();
        for row in &self.detector {
            let _ = writeln!(
                csv,
                "{},{},{},{},{},{},{:.4},{:.4},{:.2}",
                quoted(&row.trace),
                row.beside,
                row.queue,
                row.reconfigurations,
                row.found,
                row.false_alarms,
                row.precision,
                row.recall,
                row.latest_ms
            );
        }
        csv
    }

    /// Each system over time.
    pub(super) fn series_csv(&self) -> String {
        let mut csv = SERIES_HEAD.to_owned();
        let optional = |value: Option<f64>| value.map_or(String::new(), |v| format!("{v:.3}"));
        for course in &self.courses {
            for sample in &course.samples {
                let _ = writeln!(
                    csv,
                    "{},{},{:.1},{:.3},{:.3},{},{},{:.1},{:.3},{}",
                    course.system,
                    quoted(&course.trace),
                    sample.at_s,
                    sample.throughput_mbps,
                    sample.capacity_mbps,
                    optional(sample.rtt_ms),
                    optional(sample.queue_delay_ms),
                    sample.cwnd_packets,
                    sample.pacing_mbps,
                    sample.state
                );
            }
        }
        csv
    }
}

fn add_row(csv: &mut String, part: &str, row: &Row) {
    let (params, metrics) = (&row.params, &row.metrics);
    let _ = writeln!(
        csv,
        "{part},{},{},{},{},{},{},{},{:.4},{:.4},{:.5},{:.4},{:.4},{:.4},{:.4},{:.6}",
        row.system,
        quoted(row.variant.as_deref().unwrap_or("")),
        quoted(&params.trace),
        params.direction,
        params.loss,
        params.recorded_loss,
        params.queue,
        metrics.throughput_mbps,
        metrics.capacity_mbps,
        metrics.utilisation,
        metrics.queue_delay_mean_ms,
        metrics.queue_delay_p95_ms,
        metrics.rtt_mean_ms,
        metrics.rtt_p95_ms,
        metrics.loss_rate
    );
}

fn quoted(text: &str) -> String {
    if text.contains([',', '"', '\n']) {
        format!("\"{}\"", text.replace('"', "\"\""))
    } else {
        text.to_owned()
    }
}
