//! The plots of the demo's report.

use std::time::Duration;

use starhaul_plot::{Chart, Scale};

use crate::{Paths, Sample, SystemSeries, Systems, load::Class};

/// Share of the blocks of each second that came on time.
pub(super) fn on_time_share(all_series: &Systems<SystemSeries>, class: Class) -> String {
    let mut chart = Chart::new(
        class.name(),
        "% on time",
        seconds(all_series),
        Scale::Linear(0.0, 100.0),
    );
    for (name, series) in backwards(all_series) {
        chart.line(name, &share_by_second(series, class));
    }
    chart.svg(&format!(
        "share of {} blocks on time over time, both systems",
        class.name()
    ))
}

/// Latency of each block, and the blocks that never came.
pub(super) fn latency(all_series: &Systems<SystemSeries>, class: Class) -> String {
    let mut chart = Chart::new(
        class.name(),
        "latency, ms",
        seconds(all_series),
        Scale::Log(5.0, 20_000.0),
    );
    chart.rule(class.deadline().as_secs_f64() * 1e3, "deadline");
    for (row, (name, series)) in (0..).zip(backwards(all_series)) {
        let blocks = series.logs.of(class).blocks();
        let arrived = blocks.iter().filter_map(|block| {
            Some((
                block.sent_at.as_secs_f64(),
                block.latency?.as_secs_f64() * 1e3,
            ))
        });
        chart.dots(name, arrived);
        let lost = blocks.iter().filter(|block| block.latency.is_none());
        chart.strokes(name, row, lost.map(|block| block.sent_at.as_secs_f64()));
    }
    chart.svg(&format!(
        "latency of {} blocks over time, both systems",
        class.name()
    ))
}

/// Delivered rate of each path under its capacity.
pub(super) fn rates(all_series: &Systems<SystemSeries>) -> [String; 2] {
    type Pick = fn(&Paths<u64>) -> u64;
    let leo: Pick = |paths| paths.leo;
    let geo: Pick = |paths| paths.geo;
    [("LEO", leo), ("GEO", geo)].map(|(name, path)| {
        let end = sending_seconds(all_series);
        let rate_of = |series: &SystemSeries, counter: &dyn Fn(&Sample) -> u64| {
            let mut points = rate(&series.samples, counter);
            points.retain(|(at, _)| *at <= end);
            points
        };
        let capacity = rate_of(&all_series.starhaul, &|sample| path(&sample.capacity));
        let most = capacity.iter().map(|(_, rate)| *rate).fold(0.0, f64::max);
        let mut chart = Chart::new(name, "Mbit/s", seconds(all_series), Scale::up_to(most));
        chart.area("capacity", &capacity);
        chart.line("capacity", &capacity);
        for (system, series) in backwards(all_series) {
            chart.line(system, &rate_of(series, &|sample| path(&sample.delivered)));
        }
        chart.svg(&format!(
            "rate of the {name} path over time, both systems, with its capacity"
        ))
    })
}

/// The baseline first, so that our own curve lies on top.
fn backwards(
    all_series: &Systems<SystemSeries>,
) -> impl Iterator<Item = (&'static str, &SystemSeries)> {
    all_series.named().into_iter().rev()
}

fn seconds(all_series: &Systems<SystemSeries>) -> Scale {
    Scale::Linear(0.0, sending_seconds(all_series))
}

/// For how long the applications sent.
fn sending_seconds(all_series: &Systems<SystemSeries>) -> f64 {
    let sent = |series: &SystemSeries| {
        Class::ALL
            .iter()
            .filter_map(|class| series.logs.of(*class).blocks().last())
            .map(|block| block.sent_at)
            .max()
            .unwrap_or_default()
    };
    let last = sent(&all_series.starhaul)
        .max(sent(&all_series.mpquic))
        .max(Duration::from_secs(1));
    last.as_secs_f64().ceil()
}

#[expect(clippy::cast_precision_loss, reason = "a display value")]
fn share_by_second(series: &SystemSeries, class: Class) -> Vec<(f64, f64)> {
    let log = series.logs.of(class);
    let mut bins: Vec<(u32, u32)> = Vec::new();
    for block in log.blocks() {
        let second = usize::try_from(block.sent_at.as_secs())
            .unwrap_or(usize::MAX)
            .min(86_400);
        if bins.len() <= second {
            bins.resize(second + 1, (0, 0));
        }
        bins[second].0 += 1;
        bins[second].1 += u32::from(
            block
                .latency
                .is_some_and(|latency| latency <= class.deadline()),
        );
    }
    bins.iter()
        .enumerate()
        .filter(|(_, (sent, _))| *sent > 0)
        .map(|(second, (sent, on_time))| {
            (
                second as f64 + 0.5,
                f64::from(*on_time) * 100.0 / f64::from(*sent),
            )
        })
        .collect()
}

/// Mbit/s between neighbouring samples, at the middle of each interval.
#[expect(clippy::cast_precision_loss, reason = "a display value")]
fn rate(samples: &[Sample], counter: impl Fn(&Sample) -> u64) -> Vec<(f64, f64)> {
    let mut points = Vec::new();
    for pair in samples.windows(2) {
        let [from, to] = pair else { continue };
        let span = to.at.saturating_sub(from.at).as_secs_f64();
        if span > 0.0 {
            let bytes = counter(to).saturating_sub(counter(from));
            points.push((
                (from.at + to.at).as_secs_f64() / 2.0,
                bytes as f64 * 8.0 / 1e6 / span,
            ));
        }
    }
    points
}
