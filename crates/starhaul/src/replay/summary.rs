//! The summary of `starhaul replay` for people.

use std::{fmt::Write as _, time::Duration};

use starhaul_link::Histogram;
use starhaul_replay::{DirectionReport, LATENESS_BOUND, ReplayReport};
use starhaul_units::Bandwidth;

/// Upper bounds of the lateness histogram's rows, in microseconds.
const STEPS: [u64; 7] = [20, 50, 100, 200, 500, 1000, 2000];

/// Throughput, losses and delays of each direction, then the lateness of packets.
pub(crate) fn summary(report: &ReplayReport) -> String {
    let mut text = String::new();
    // Writing to a `String` cannot fail.
    let _ = writeln!(
        text,
        "{:<20} {:>9} {:>9} {:>7} {:>7} {:>7} {:>11} {:>11} {:>21} {:>8}",
        format!("replay {:.1} s", report.elapsed.as_secs_f64()),
        "packets",
        "delivered",
        "queue",
        "loss",
        "outage",
        "Mbit/s",
        "capacity",
        "queueing mean/p95 ms",
        "CPU µs"
    );
    for link in &report.links {
        for (name, direction) in [("up", &link.up), ("down", &link.down)] {
            row(
                &mut text,
                &format!("{} {name}", link.name),
                direction,
                report.elapsed,
            );
        }
    }
    late(&mut text, &report.lateness());
    if !report.is_valid() {
        let _ = writeln!(
            text,
            "INVALID RUN: one packet in a hundred left more than {} ms late, so these are not the links that were asked for. \
             Give this computer less to do, or run as root.",
            LATENESS_BOUND.as_millis()
        );
    }
    text
}

fn row(text: &mut String, name: &str, direction: &DirectionReport, elapsed: Duration) {
    let stats = direction.stats;
    let capacity = Bandwidth::from_bytes_over(direction.capacity_bytes, elapsed).mbit();
    // A link without a rate has no bound.
    let capacity = match capacity < 1e6 {
        true => format!("{capacity:.2}"),
        false => "no limit".to_owned(),
    };
    let _ = writeln!(
        text,
        "{name:<20} {:>9} {:>9} {:>7} {:>7} {:>7} {:>11.2} {capacity:>11} {:>21} {:>8.1}",
        stats.enqueued,
        stats.delivered,
        stats.dropped_queue + stats.dropped_codel,
        stats.dropped_loss,
        stats.dropped_outage,
        Bandwidth::from_bytes_over(stats.delivered_bytes, elapsed).mbit(),
        format!(
            "{:.1} / {:.1}",
            ms(direction.queueing.mean()),
            ms(direction.queueing.quantile(0.95))
        ),
        direction.cpu_per_packet().as_secs_f64() * 1e6,
    );
}

#[expect(
    clippy::cast_precision_loss,
    reason = "counts beyond 2^53 do not occur"
)]
fn late(text: &mut String, lateness: &Histogram) {
    let quantile = |q| lateness.quantile(q).as_micros();
    let _ = writeln!(
        text,
        "left late by: p50 {} µs, p99 {} µs, at most {} µs",
        quantile(0.5),
        quantile(0.99),
        lateness.max().as_micros()
    );
    if lateness.count() == 0 {
        return;
    }
    let share = |from: Duration, to: Duration| {
        let within = lateness
            .buckets()
            .filter(|(bound, _)| *bound > from && *bound <= to);
        within.map(|(_, count)| count).sum::<u64>() as f64 * 100.0 / lateness.count() as f64
    };
    let mut from = Duration::ZERO;
    text.push_str("   ");
    for step in STEPS {
        let to = Duration::from_micros(step);
        let _ = write!(text, " ≤{step} µs {:.1} %", share(from, to));
        from = to;
    }
    let _ = writeln!(text, " more {:.1} %", share(from, Duration::MAX));
}

fn ms(duration: Duration) -> f64 {
    duration.as_secs_f64() * 1e3
}
