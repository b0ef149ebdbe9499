//! The figures of a trace, for people and for programs.

use std::{fmt::Write as _, time::Duration};

use serde_json::{Value, json};
use starhaul_link::{Comb, Summary};
use starhaul_units::Bandwidth;

use super::Read;

/// Greatest number of outages that the text lists.
const LISTED: usize = 20;

pub(super) fn text(read: &Read, summary: &Summary) -> String {
    let mut out = String::new();
    // Writing to a string cannot fail.
    let mut line = |name: &str, value: String| {
        let _ = writeln!(out, "{name:<16} {value}");
    };
    line("trace", read.name.clone());
    if let Some(format) = read.format {
        line("format", format.name().to_owned());
    }
    line(
        "duration",
        format!("{:.3} s", summary.duration.as_secs_f64()),
    );
    match &summary.capacity {
        Some(capacity) => line(
            "capacity",
            format!(
                "mean {:.1}; seconds: least {:.1}, median {:.1}, greatest {:.1}",
                capacity.mean, capacity.least, capacity.median, capacity.greatest
            ),
        ),
        None => line("capacity", "not known".to_owned()),
    }
    match &summary.delay {
        Some(delay) => line(
            "one-way delay",
            format!(
                "least {}, p5 {}, median {}, p95 {}, p99 {}, greatest {} ms",
                ms(delay.least),
                ms(delay.p5),
                ms(delay.median),
                ms(delay.p95),
                ms(delay.p99),
                ms(delay.greatest)
            ),
        ),
        None => line("one-way delay", "not known".to_owned()),
    }
    if let Some(loss) = summary.loss {
        line("random loss", format!("mean {:.3} %", loss * 100.0));
    }
    if summary.capacity.is_some() {
        line("outages", outages(summary));
    }
    match &summary.reconfigurations {
        Some(comb) => line(
            "reconfigurations",
            format!(
                "every {:.3} s from {:.3} s; {} at {} of {}",
                comb.period.as_secs_f64(),
                comb.offset.as_secs_f64(),
                comb.evidence.name(),
                comb.found,
                comb.expected
            ),
        ),
        None => line("reconfigurations", "no regular ones".to_owned()),
    }
    for (start, length) in summary.outages.iter().take(LISTED) {
        let _ = writeln!(
            out,
            "  outage at {:>9.3} s, {:>5} ms",
            start.as_secs_f64(),
            length.as_millis()
        );
    }
    if summary.outages.len() > LISTED {
        let _ = writeln!(out, "  and {} more", summary.outages.len() - LISTED);
    }
    out
}

pub(super) fn json(read: &Read, summary: &Summary) -> Value {
    let capacity = summary.capacity.as_ref().map(|capacity| {
        json!({
            "mean_mbps": mbit(capacity.mean),
            "median_mbps": mbit(capacity.median),
            "min_mbps": mbit(capacity.least),
            "max_mbps": mbit(capacity.greatest),
        })
    });
    let delay = summary.delay.as_ref().map(|delay| {
        json!({
            "min_ms": ms(delay.least),
            "p5_ms": ms(delay.p5),
            "median_ms": ms(delay.median),
            "p95_ms": ms(delay.p95),
            "p99_ms": ms(delay.p99),
            "max_ms": ms(delay.greatest),
        })
    });
    let outages = summary
        .outages
        .iter()
        .map(|(start, length)| json!({ "start_s": start.as_secs_f64(), "length_ms": ms(*length) }));
    json!({
        "trace": read.name,
        "format": read.format.map(|format| format.name()),
        "duration_s": summary.duration.as_secs_f64(),
        "capacity": capacity,
        "delay": delay,
        "loss_mean": summary.loss,
        "outages": outages.collect::<Vec<_>>(),
        "reconfigurations": summary.reconfigurations.as_ref().map(comb),
    })
}

fn comb(comb: &Comb) -> Value {
    json!({
        "period_s": comb.period.as_secs_f64(),
        "offset_s": comb.offset.as_secs_f64(),
        "found": comb.found,
        "expected": comb.expected,
        "evidence": comb.evidence.name(),
    })
}

fn outages(summary: &Summary) -> String {
    let lengths = || summary.outages.iter().map(|(_, length)| length.as_millis());
    match (lengths().min(), lengths().max()) {
        (Some(least), Some(most)) => {
            format!("{} of {least} to {most} ms", summary.outages.len())
        }
        _ => format!("none longer than {} ms", starhaul_link::OUTAGE.as_millis()),
    }
}

fn ms(time: Duration) -> f64 {
    (time.as_secs_f64() * 1e6).round() / 1e3
}

/// Rounds to kbit/s.
fn mbit(rate: Bandwidth) -> f64 {
    (rate.mbit() * 1e3).round() / 1e3
}
