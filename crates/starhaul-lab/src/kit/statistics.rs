//! Medians over runs, and what is distinct among them.

use starhaul_flow::Metrics;

/// The distinct values, in order of their first appearance.
pub(crate) fn distinct<T: PartialEq>(values: impl Iterator<Item = T>) -> Vec<T> {
    let mut distinct = Vec::new();
    for value in values {
        if !distinct.contains(&value) {
            distinct.push(value);
        }
    }
    distinct
}

/// The middle value, or the mean of the two in the middle; 0 of nothing.
pub(crate) fn median(values: impl Iterator<Item = f64>) -> f64 {
    let mut values: Vec<f64> = values.collect();
    values.sort_by(f64::total_cmp);
    let middle = values.len() / 2;
    match (values.get(middle), values.len() % 2) {
        (Some(&value), 1) => value,
        (Some(&value), _) => (value + values[middle - 1]) / 2.0,
        (None, _) => 0.0,
    }
}

/// The value below which this share of the ascending `values` lies, the nearest one; 0 of nothing.
pub(crate) fn percentile(values: &[f64], share: f64) -> f64 {
    let last = values.len().saturating_sub(1);
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "an index of the slice"
    )]
    let index = (share.clamp(0.0, 1.0) * last as f64).round() as usize;
    values.get(index).copied().unwrap_or(0.0)
}

/// The median of each figure by itself.
pub(crate) fn medians(runs: &[Metrics]) -> Metrics {
    let of = |pick: fn(&Metrics) -> f64| median(runs.iter().map(pick));
    Metrics {
        throughput_mbps: of(|m| m.throughput_mbps),
        capacity_mbps: of(|m| m.capacity_mbps),
        utilisation: of(|m| m.utilisation),
        queue_delay_mean_ms: of(|m| m.queue_delay_mean_ms),
        queue_delay_p95_ms: of(|m| m.queue_delay_p95_ms),
        rtt_mean_ms: of(|m| m.rtt_mean_ms),
        rtt_p95_ms: of(|m| m.rtt_p95_ms),
        loss_rate: of(|m| m.loss_rate),
    }
}
