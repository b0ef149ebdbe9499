//! The tables of the page.

use std::fmt::Write as _;

use super::family;
use crate::{
    leocc::{
        results::{FairnessRow, Results, Row},
        sections::NO_SIGNALS,
        summary::Summary,
        table::{distinct, median},
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
    metrics_table(
        &["system"],
        &distinct(rows.iter().map(|row| row.system.as_str())),
        |system| {
            let of: Vec<&Row> = rows
                .iter()
                .copied()
                .filter(|row| row.system == *system)
                .collect();
            (vec![(*system).to_owned()], of)
        },
    )
}

/// Medians over the traces of a part that varies something, compared with the same runs of the scatter.
pub(super) fn variants(rows: &[Row]) -> String {
    let keys = distinct(
        rows.iter()
            .map(|row| (row.system.as_str(), row.variant.as_deref())),
    );
    metrics_table(&["system", "variant"], &keys, |(system, variant)| {
        let of = rows
            .iter()
            .filter(|row| row.system == *system && row.variant.as_deref() == *variant)
            .collect();
        (
            vec![(*system).to_owned(), variant.unwrap_or("").to_owned()],
            of,
        )
    })
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

fn metrics_table<'a, K>(
    names: &[&str],
    keys: &[K],
    rows_of: impl Fn(&K) -> (Vec<String>, Vec<&'a Row>),
) -> String {
    let mut body = String::new();
    for key in keys {
        let (cells, rows) = rows_of(key);
        let Some(Summary { system, metrics: m }) = Summary::of_all(&rows).into_iter().next() else {
            continue;
        };
        let traces = distinct(rows.iter().map(|row| row.params.trace.as_str())).len();
        let mut line: Vec<String> = cells.iter().map(|cell| escape(cell)).collect();
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
        add_line(&mut body, family(&system), &line);
    }
    let heads: Vec<&str> = names.iter().copied().chain(METRICS_HEAD).collect();
    table(&heads, &body, names.len())
}

/// Jain's index for flows of one kind, and who gets what beside Cubic and BBR.
pub(super) fn fairness(rows: &[FairnessRow]) -> String {
    let mut body = String::new();
    for flows in distinct(rows.iter().map(names)) {
        let same: Vec<&FairnessRow> = rows.iter().filter(|row| names(row) == flows).collect();
        let Some(first) = flows.first() else {
            continue;
        };
        let who = match flows.iter().all(|flow| flow == first) {
            true => format!("{} × {first}", flows.len()),
            false => flows.join(" beside "),
        };
        let of = |pick: fn(&FairnessRow) -> f64| median(same.iter().map(|row| pick(row)));
        let least = same.iter().map(|row| row.jain).fold(1.0, f64::min);
        let rate_of = |flow: usize| {
            let rates = same.iter().filter_map(|row| row.flows.get(flow));
            format!("{:.1}", median(rates.map(|flow| flow.throughput_mbps)))
        };
        let rates: Vec<String> = (0..flows.len()).map(rate_of).collect();
        add_line(
            &mut body,
            family(first),
            &[
                who,
                format!("{:.3}", of(|row| row.jain)),
                format!("{least:.3}"),
                rates.join(" + "),
                format!("{:.1}", of(|row| row.utilisation) * 100.0),
                format!("{:.1}", of(|row| row.queue_delay_mean_ms)),
                same.len().to_string(),
            ],
        );
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

/// Whose flows they are, in the order in which they began.
fn names(row: &FairnessRow) -> Vec<&str> {
    row.flows.iter().map(|flow| flow.system.as_str()).collect()
}

/// Precision and recall of the detector over all traces.
pub(super) fn detector(results: &Results) -> String {
    let mut body = String::new();
    let keys = distinct(
        results
            .detector
            .iter()
            .map(|row| (row.beside.as_str(), row.queue.as_str())),
    );
    for (beside, queue) in keys {
        let rows = || {
            results
                .detector
                .iter()
                .filter(|row| row.beside == beside && row.queue == queue)
        };
        let total: u32 = rows().map(|row| row.reconfigurations).sum();
        let found: u32 = rows().map(|row| row.found).sum();
        let wrong: u32 = rows().map(|row| row.false_alarms).sum();
        let latest = rows().map(|row| row.latest_ms).fold(0.0, f64::max);
        add_line(
            &mut body,
            "",
            &[
                beside.to_owned(),
                queue.to_owned(),
                total.to_string(),
                found.to_string(),
                wrong.to_string(),
                format!("{:.1}", share(found, found + wrong)),
                format!("{:.1}", share(found, total)),
                format!("{latest:.0}"),
            ],
        );
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

fn share(part: u32, whole: u32) -> f64 {
    if whole == 0 {
        100.0
    } else {
        f64::from(part) / f64::from(whole) * 100.0
    }
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
