//! The figures of a flow as columns of any experiment's table.

use starhaul_flow::Metrics;
use starhaul_plot::Column;

/// What [`Metrics`] tell of a row; rows are summed up by medians.
pub(crate) fn metrics<R: 'static>(of: fn(&R) -> &Metrics) -> Vec<Column<R>> {
    let ms = |key, name, brief, decimals, pick: fn(&Metrics) -> f64| {
        Column::number(key, name, "ms", decimals, move |row: &R| {
            pick(of(row)).into()
        })
        .brief(brief)
        .digits(4)
        .median()
    };
    let mbps = |key, name, pick: fn(&Metrics) -> f64| {
        Column::number(key, name, "Mbit/s", 2, move |row: &R| pick(of(row)).into()).digits(4)
    };
    vec![
        mbps("throughput_mbps", "", |m| m.throughput_mbps).median(),
        mbps("capacity_mbps", "capacity", |m| m.capacity_mbps).dropped(),
        Column::share("utilisation", "of capacity", 1, move |row: &R| {
            of(row).utilisation.into()
        })
        .brief("use")
        .digits(5)
        .median(),
        ms("queue_delay_mean_ms", "queue mean", "queue", 2, |m| {
            m.queue_delay_mean_ms
        }),
        ms("queue_delay_p95_ms", "queue p95", "p95", 1, |m| {
            m.queue_delay_p95_ms
        }),
        ms("rtt_mean_ms", "RTT mean", "rtt", 1, |m| m.rtt_mean_ms),
        ms("rtt_p95_ms", "RTT p95", "p95", 1, |m| m.rtt_p95_ms),
        Column::share("loss_rate", "lost", 2, move |row: &R| {
            of(row).loss_rate.into()
        })
        .digits(6)
        .median(),
    ]
}
