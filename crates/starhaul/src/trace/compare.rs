//! The agreement of two traces, for people and for programs.

use std::fmt::Write as _;

use serde_json::{Value, json};
use starhaul_link::Comparison;

use super::Read;

/// Greatest number of outages that the text lists.
const LISTED: usize = 20;

pub(super) fn text(first: &Read, second: &Read, found: &Comparison) -> String {
    let mut out = String::new();
    // Writing to a string cannot fail.
    let mut line = |name: &str, value: String| {
        let _ = writeln!(out, "{name:<16} {value}");
    };
    line("first", first.name.clone());
    line(
        "second",
        format!(
            "{}, {:.3} s from {:.3} s of the first",
            second.name,
            found.duration.as_secs_f64(),
            found.shift.as_secs_f64()
        ),
    );
    match &found.capacity {
        Some(capacity) => {
            line(
                "capacity",
                format!("mean {:.2}, and {:.2}", capacity.mean.0, capacity.mean.1),
            );
            line(
                "",
                format!(
                    "a second is off by {:.2} % (median), {:.2} % (p95), at most {:.2} %",
                    capacity.median_error * 100.0,
                    capacity.p95_error * 100.0,
                    capacity.greatest_error * 100.0
                ),
            );
            let list = |outages: &[(std::time::Duration, std::time::Duration)]| {
                let lengths = outages.iter().take(LISTED);
                let lengths: Vec<_> = lengths
                    .map(|(_, length)| length.as_millis().to_string())
                    .collect();
                let more = if outages.len() > LISTED { " …" } else { "" };
                format!("{} ({} ms{more})", outages.len(), lengths.join(" "))
            };
            line(
                "outages",
                format!(
                    "{}, and {}",
                    list(&capacity.outages),
                    list(&capacity.outages_found)
                ),
            );
        }
        None => line("capacity", "not known of both".to_owned()),
    }
    match &found.delay {
        Some(delay) => line(
            "one-way delay",
            format!(
                "off by {:.2} ms (median), {:.2} ms (p95); its median by {:+.2} ms",
                delay.median_error_ms, delay.p95_error_ms, delay.level_error_ms
            ),
        ),
        None => line("one-way delay", "not known of both".to_owned()),
    }
    if let Some((first, second)) = found.loss {
        line(
            "random loss",
            format!("{:.3} %, and {:.3} %", first * 100.0, second * 100.0),
        );
    }
    out
}

pub(super) fn json(first: &Read, second: &Read, found: &Comparison) -> Value {
    let outages = |outages: &[(std::time::Duration, std::time::Duration)]| -> Vec<Value> {
        outages
            .iter()
            .map(|(at, length)| json!([at.as_secs_f64(), length.as_secs_f64()]))
            .collect()
    };
    json!({
        "first": first.name,
        "second": second.name,
        "shift_s": found.shift.as_secs_f64(),
        "duration_s": found.duration.as_secs_f64(),
        "capacity": found.capacity.as_ref().map(|capacity| json!({
            "mean_mbit": [capacity.mean.0.mbit(), capacity.mean.1.mbit()],
            "seconds_mbit": capacity.seconds.iter().map(|(a, b)| [a.mbit(), b.mbit()]).collect::<Vec<_>>(),
            "median_error": capacity.median_error,
            "p95_error": capacity.p95_error,
            "greatest_error": capacity.greatest_error,
            "outages_s": [outages(&capacity.outages), outages(&capacity.outages_found)],
        })),
        "delay_ms": found.delay.as_ref().map(|delay| json!({
            "median_error": delay.median_error_ms,
            "p95_error": delay.p95_error_ms,
            "level_error": delay.level_error_ms,
        })),
        "loss": found.loss.map(|(a, b)| [a, b]),
    })
}
