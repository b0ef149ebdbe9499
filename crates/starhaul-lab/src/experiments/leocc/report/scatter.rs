//! Throughput against delay with the Pareto front, as LeoCC's fig. 3.

use starhaul_plot::{Chart, Scale};

use crate::{
    experiments::leocc::{
        results::{Results, Row},
        summary::{Summary, groups, losses},
    },
    kit::statistics::distinct,
    systems::family,
};

const SIZE: (f64, f64) = (560.0, 360.0);

/// A plot and the name of its file.
pub(super) struct Named {
    pub(super) file: String,
    pub(super) svg: String,
}

/// One plot per loss and kind of trace.
pub(super) fn plots(results: &Results) -> Vec<Named> {
    let mut plots = Vec::new();
    for loss in losses(&results.rows) {
        for (kind, rows) in groups(&results.rows, &loss) {
            let traces = distinct(rows.iter().map(|row| row.params.trace.as_str())).len();
            let title = format!("{kind}, loss {loss}");
            let of = if traces == 1 {
                "one trace".to_owned()
            } else {
                format!("medians of {traces} traces")
            };
            plots.push(Named {
                file: format!("scatter-{kind}-{loss}.svg")
                    .replace(" %", "")
                    .replace(' ', "-"),
                svg: plot(&title, &of, &rows),
            });
        }
    }
    plots
}

fn plot(title: &str, of: &str, rows: &[&Row]) -> String {
    let points = Summary::of_all(rows);
    let capacity = points
        .iter()
        .map(|s| s.metrics.capacity_mbps)
        .fold(0.0, f64::max);
    let most = points
        .iter()
        .map(|s| s.metrics.queue_delay_p95_ms)
        .fold(100.0, f64::max);
    let x = Scale::Log(0.4, most * 1.3);
    let mut plot = Chart::named(
        SIZE,
        title,
        &format!("throughput, Mbit/s; {of}"),
        "queueing delay, ms: mean ● to 95th percentile",
        x,
        Scale::up_to(capacity * 1.02),
    );
    plot.ceiling(capacity, "capacity");
    plot.line("front", &front(&points));
    for Summary { system, metrics } in &points {
        let family = family(system);
        let (y, mean, p95) = (
            metrics.throughput_mbps,
            metrics.queue_delay_mean_ms,
            metrics.queue_delay_p95_ms,
        );
        plot.line(&format!("whisker {family}"), &[(mean, y), (p95, y)]);
        let what = format!(
            "{system}: {y:.1} Mbit/s ({:.1} %), waits {mean:.1} ms, p95 {p95:.1} ms",
            metrics.utilisation * 100.0
        );
        plot.point(family, (mean, y), 5.0, &what);
    }
    for Summary { system, metrics } in &points {
        plot.label(
            family(system),
            (metrics.queue_delay_mean_ms, metrics.throughput_mbps),
            system,
        );
    }
    plot.svg(&format!("throughput against queueing delay, {title}"))
}

/// The steps of those that no other beats in both throughput and mean delay, in order of delay.
fn front(points: &[Summary]) -> Vec<(f64, f64)> {
    let mut sorted: Vec<(f64, f64)> = points
        .iter()
        .map(|s| (s.metrics.queue_delay_mean_ms, s.metrics.throughput_mbps))
        .collect();
    sorted.sort_by(|a, b| a.0.total_cmp(&b.0).then(b.1.total_cmp(&a.1)));
    let mut front: Vec<(f64, f64)> = Vec::new();
    for (delay, throughput) in sorted {
        match front.last() {
            Some(&(_, best)) if throughput <= best => {}
            Some(&(_, best)) => front.extend([(delay, best), (delay, throughput)]),
            None => front.push((delay, throughput)),
        }
    }
    front
}

#[cfg(test)]
mod tests {
    use super::*;
    use starhaul_flow::Metrics;

    #[test]
    fn the_front_holds_only_those_that_no_other_beats() {
        let point = |delay, throughput| Summary {
            system: String::new(),
            metrics: Metrics {
                queue_delay_mean_ms: delay,
                throughput_mbps: throughput,
                ..Metrics::default()
            },
        };
        let points = [
            point(20.0, 48.0),
            point(5.0, 10.0),
            point(6.0, 9.0),
            point(90.0, 49.0),
            point(95.0, 48.5),
        ];
        let expected = [
            (5.0, 10.0),
            (20.0, 10.0),
            (20.0, 48.0),
            (90.0, 48.0),
            (90.0, 49.0),
        ];
        assert_eq!(front(&points), expected);
    }
}
