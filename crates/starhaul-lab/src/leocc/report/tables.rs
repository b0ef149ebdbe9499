//! The tables of the page.

use std::fmt::Write as _;

use starhaul_flow::Metrics;

use super::family;
use crate::{
    kit::statistics::distinct,
    leocc::{
        digest,
        results::{DetectorRow, FairnessRow, Row},
        rivals::{Beside, QUEUE_GOAL},
        section::NO_SIGNALS,
        summary::Summary,
    },
    report::escape,
};

const METRICS_HEAD: [&str; 8] = [
    "Mbit/s",
    "of capacity, %",
    "queue mean, ms",
    "queue p95, ms",
    "RTT mean, ms",
    "RTT p95, ms",
    "lost, %",
    "traces",
];

/// Medians over all traces of one loss.
pub(super) fn medians(rows: &[&Row]) -> String {
    let mut body = String::new();
    let traces = |system: &str| {
        let of = rows.iter().filter(|row| row.system == system);
        distinct(of.map(|row| row.params.trace.as_str())).len()
    };
    for Summary { system, metrics } in Summary::of_all(rows) {
        let name = [system.clone()];
        add_metrics(&mut body, &system, &name, &metrics, traces(&system));
    }
    let heads: Vec<&str> = ["system"].into_iter().chain(METRICS_HEAD).collect();
    table(&heads, &body, 1)
}

/// Medians over the traces of a part that varies something; columns in which nothing stands are left out.
pub(super) fn variants(rows: &[Row]) -> String {
    let lines = digest::variants(rows);
    let varied = lines.iter().any(|line| !line.variant.is_empty());
    let several = distinct(lines.iter().map(|line| line.loss.as_str())).len() > 1;
    let mut body = String::new();
    for line in &lines {
        let mut cells = vec![line.system.to_owned()];
        cells.extend(varied.then(|| line.variant.to_owned()));
        cells.extend(several.then(|| line.loss.clone()));
        add_metrics(&mut body, line.system, &cells, &line.metrics, line.traces);
    }
    let heads = [("system", true), ("variant", varied), ("loss", several)];
    let names: Vec<&str> = heads
        .into_iter()
        .filter_map(|(name, there)| there.then_some(name))
        .collect();
    let heads: Vec<&str> = names.iter().copied().chain(METRICS_HEAD).collect();
    table(&heads, &body, names.len())
}

/// LeoCC beside each other system at one loss.
pub(super) fn beside(lines: &[&Beside]) -> String {
    let mut body = String::new();
    for line in lines {
        let (rate, queue) = (line.throughput, line.queue);
        let cells = [
            line.other.clone(),
            format!("{:.2}", rate.median),
            format!("{:.2} – {:.2}", rate.least, rate.greatest),
            format!("{:.2}", queue.median),
            format!("{:.2}", queue.greatest),
            line.within_goal.to_string(),
            line.beaten.to_string(),
            line.ahead.to_string(),
            line.runs.to_string(),
        ];
        add_line(&mut body, family(&line.other), &cells);
    }
    table(
        &[
            "beside",
            "throughput ×",
            "least – most",
            "queue mean ×",
            "most",
            &format!("≤ {QUEUE_GOAL}"),
            "beaten",
            "ahead",
            "runs",
        ],
        &body,
        1,
    )
}

/// Each controller to which nobody tells anything beside BBR, on each trace; nothing when BBR did not run.
pub(super) fn without_signals(rows: &[Row]) -> String {
    let mut body = String::new();
    let unaware = |row: &&Row| row.variant.as_deref() == Some(NO_SIGNALS);
    for row in rows.iter().filter(unaware) {
        let same = |other: &&Row| other.system == "bbr" && other.params == row.params;
        let Some(bbr) = rows.iter().find(same).map(|other| &other.metrics) else {
            continue;
        };
        let ratio = |ours: f64, theirs: f64| format!("{:.3}", ours / theirs.max(f64::MIN_POSITIVE));
        let m = &row.metrics;
        let line = [
            row.system.clone(),
            row.params.trace.clone(),
            ratio(m.throughput_mbps, bbr.throughput_mbps),
            ratio(m.queue_delay_mean_ms, bbr.queue_delay_mean_ms),
        ];
        let line: Vec<String> = line.iter().map(|cell| escape(cell)).collect();
        add_line(&mut body, family(&row.system), &line);
    }
    if body.is_empty() {
        return body;
    }
    table(&["system", "trace", "throughput", "queue mean"], &body, 2)
}

fn add_metrics(body: &mut String, system: &str, names: &[String], m: &Metrics, traces: usize) {
    let mut line: Vec<String> = names.iter().map(|name| escape(name)).collect();
    line.extend([
        format!("{:.2}", m.throughput_mbps),
        format!("{:.1}", m.utilisation * 100.0),
        format!("{:.1}", m.queue_delay_mean_ms),
        format!("{:.1}", m.queue_delay_p95_ms),
        format!("{:.1}", m.rtt_mean_ms),
        format!("{:.1}", m.rtt_p95_ms),
        format!("{:.2}", m.loss_rate * 100.0),
        traces.to_string(),
    ]);
    add_line(body, family(system), &line);
}

/// Jain's index for flows of one kind, and who gets what beside Cubic and BBR.
pub(super) fn fairness(rows: &[FairnessRow]) -> String {
    let mut body = String::new();
    for line in digest::fairness(rows) {
        let rates: Vec<String> = line.rates_mbps.iter().map(|r| format!("{r:.1}")).collect();
        let cells = [
            line.who,
            format!("{:.3}", line.jain),
            format!("{:.3}", line.least_jain),
            rates.join(" + "),
            format!("{:.1}", line.utilisation * 100.0),
            format!("{:.1}", line.queue_delay_mean_ms),
            line.traces.to_string(),
        ];
        add_line(&mut body, family(line.first), &cells);
    }
    table(
        &[
            "flows",
            "Jain",
            "least",
            "Mbit/s each",
            "of capacity, %",
            "queue mean, ms",
            "traces",
        ],
        &body,
        1,
    )
}

/// Precision and recall of the detector over all traces.
pub(super) fn detector(rows: &[DetectorRow]) -> String {
    let mut body = String::new();
    for line in digest::detector(rows) {
        let cells = [
            line.beside.to_owned(),
            line.queue.to_owned(),
            line.reconfigurations.to_string(),
            line.found.to_string(),
            line.wrong.to_string(),
            format!("{:.1}", line.precision()),
            format!("{:.1}", line.recall()),
            format!("{:.0}", line.latest_ms),
        ];
        add_line(&mut body, "", &cells);
    }
    table(
        &[
            "flow beside",
            "probes' queue",
            "reconfigurations",
            "found",
            "false",
            "precision, %",
            "recall, %",
            "latest, ms",
        ],
        &body,
        2,
    )
}

fn add_line(body: &mut String, family: &str, cells: &[String]) {
    body.push_str("<tr>");
    for (number, cell) in cells.iter().enumerate() {
        let class = if number == 0 {
            format!(" class=\"name {family}\"")
        } else {
            String::new()
        };
        // Writing to a string cannot fail.
        let _ = write!(body, "<td{class}>{cell}</td>");
    }
    body.push_str("</tr>");
}

/// `names` columns hold text and stand at the left.
fn table(heads: &[&str], body: &str, names: usize) -> String {
    let heads: String = heads
        .iter()
        .map(|head| format!("<th>{head}</th>"))
        .collect();
    format!(
        "<div class=\"table names{names}\"><table><thead><tr>{heads}</tr></thead><tbody>{body}</tbody></table></div>"
    )
}
