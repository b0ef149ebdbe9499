//! The output of `starhaul replay --json`.

use std::time::Duration;

use serde::Serialize;
use starhaul_link::Histogram;
use starhaul_replay::{DirectionReport, ReplayReport};
use starhaul_units::Bandwidth;

use super::Written;

/// The results of a run.
#[derive(Serialize)]
pub(crate) struct RunResult<'a> {
    exit_code: u8,
    /// Whether packets left in time.
    valid: bool,
    seed: u64,
    elapsed_s: f64,
    lateness_us: Quantiles,
    /// Upper bound in microseconds and count of each non-empty step.
    lateness_histogram_us: Vec<(f64, u64)>,
    links: Vec<LinkResult<'a>>,
    warnings: &'a [String],
}

#[derive(Serialize)]
struct LinkResult<'a> {
    name: &'a str,
    up: DirectionResult<'a>,
    down: DirectionResult<'a>,
}

/// The results of one direction; bytes are those of whole IP packets.
#[derive(Serialize)]
struct DirectionResult<'a> {
    spec: &'a str,
    packets: u64,
    bytes: u64,
    delivered: u64,
    delivered_bytes: u64,
    duplicated: u64,
    dropped_queue: u64,
    dropped_codel: u64,
    dropped_loss: u64,
    dropped_outage: u64,
    throughput_mbit: f64,
    delay_ms: Quantiles,
    /// Time until the last byte was sent, without ICMP.
    queueing_ms: Quantiles,
    lateness_us: Quantiles,
    cpu_us_per_packet: f64,
    /// One entry per second from the start; the last one is incomplete.
    seconds: Vec<SecondResult>,
}

#[derive(Serialize)]
struct SecondResult {
    delivered_bytes: u64,
    capacity_bytes: u64,
}

#[derive(Serialize)]
struct Quantiles {
    count: u64,
    mean: f64,
    p50: f64,
    p95: f64,
    p99: f64,
    max: f64,
}

impl<'a> RunResult<'a> {
    pub(super) fn new(report: &'a ReplayReport, written: &'a [Written], seed: u64) -> Self {
        let lateness = report.lateness();
        let links = report.links.iter().zip(written);
        Self {
            exit_code: report.exit_code,
            valid: report.is_valid(),
            seed,
            elapsed_s: report.elapsed.as_secs_f64(),
            lateness_us: Quantiles::new(&lateness, 1e6),
            lateness_histogram_us: lateness
                .buckets()
                .map(|(bound, count)| (bound.as_secs_f64() * 1e6, count))
                .collect(),
            links: links
                .map(|(link, written)| LinkResult {
                    name: &link.name,
                    up: DirectionResult::new(&link.up, &written.up, report.elapsed),
                    down: DirectionResult::new(&link.down, &written.down, report.elapsed),
                })
                .collect(),
            warnings: &report.warnings,
        }
    }
}

impl<'a> DirectionResult<'a> {
    fn new(direction: &DirectionReport, spec: &'a str, elapsed: Duration) -> Self {
        let stats = direction.stats;
        Self {
            spec,
            packets: stats.enqueued,
            bytes: stats.enqueued_bytes,
            delivered: stats.delivered,
            delivered_bytes: stats.delivered_bytes,
            duplicated: stats.duplicated,
            dropped_queue: stats.dropped_queue,
            dropped_codel: stats.dropped_codel,
            dropped_loss: stats.dropped_loss,
            dropped_outage: stats.dropped_outage,
            throughput_mbit: Bandwidth::from_bytes_over(stats.delivered_bytes, elapsed).mbit(),
            delay_ms: Quantiles::new(&direction.delay, 1e3),
            queueing_ms: Quantiles::new(&direction.queueing, 1e3),
            lateness_us: Quantiles::new(&direction.lateness, 1e6),
            cpu_us_per_packet: direction.cpu_per_packet().as_secs_f64() * 1e6,
            seconds: direction
                .seconds
                .iter()
                .map(|second| SecondResult {
                    delivered_bytes: second.delivered_bytes,
                    capacity_bytes: second.capacity_bytes,
                })
                .collect(),
        }
    }
}

impl Quantiles {
    /// Converts to a unit of which a second has `per_second`.
    fn new(histogram: &Histogram, per_second: f64) -> Self {
        let scaled = |duration: Duration| duration.as_secs_f64() * per_second;
        Self {
            count: histogram.count(),
            mean: scaled(histogram.mean()),
            p50: scaled(histogram.quantile(0.5)),
            p95: scaled(histogram.quantile(0.95)),
            p99: scaled(histogram.quantile(0.99)),
            max: scaled(histogram.max()),
        }
    }
}
