//! What is measured of one flow. `docs/lab.md` has the exact definitions.

use std::time::Duration;

use serde::{Deserialize, Serialize};
use starhaul_link::LinkStats;

use super::PACKET_BYTES;

/// Width of a class of a histogram: percentiles are exact to this.
const CLASS: Duration = Duration::from_micros(100);
/// What is longer counts as this long in percentiles, and exactly in means.
const CLASSES: usize = 200_000;

/// The figures of one run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Metrics {
    /// New data that reached the receiver, with all headers, per time.
    pub throughput_mbps: f64,
    /// What the narrowest link could carry in the same time.
    pub capacity_mbps: f64,
    /// Throughput per capacity.
    pub utilisation: f64,
    /// Mean time that a packet waited in the links until its last byte left.
    pub queue_delay_mean_ms: f64,
    /// 95th percentile of the same.
    pub queue_delay_p95_ms: f64,
    /// Mean round-trip time as the sender samples it.
    pub rtt_mean_ms: f64,
    /// 95th percentile of the same.
    pub rtt_p95_ms: f64,
    /// Share of the packets sent that no link delivered.
    pub loss_rate: f64,
}

/// What a link saw of the packets of one direction.
pub(crate) struct SeenByLink<'a> {
    pub(crate) delivered_bytes: u64,
    /// From reaching the link until the last byte left its queue.
    pub(crate) waited: &'a starhaul_net::Histogram,
    /// From reaching the link until leaving it.
    pub(crate) took: &'a starhaul_net::Histogram,
    pub(crate) stats: LinkStats,
}

impl Metrics {
    /// The figures of `time`, in which the link could carry `capacity_bytes` of the data, as it saw the data and the way back.
    pub(crate) fn by_link(
        time: Duration,
        capacity_bytes: u64,
        data: &SeenByLink<'_>,
        back: &starhaul_net::Histogram,
    ) -> Self {
        let ms = |duration: Duration| duration.as_secs_f64() * 1e3;
        let stats = &data.stats;
        let dropped =
            stats.dropped_queue + stats.dropped_codel + stats.dropped_loss + stats.dropped_outage;
        let throughput_mbps = mbps(data.delivered_bytes, time);
        let capacity_mbps = mbps(capacity_bytes, time);
        Self {
            throughput_mbps,
            capacity_mbps,
            utilisation: throughput_mbps / capacity_mbps.max(f64::MIN_POSITIVE),
            queue_delay_mean_ms: ms(data.waited.mean()),
            queue_delay_p95_ms: ms(data.waited.quantile(0.95)),
            rtt_mean_ms: ms(data.took.mean() + back.mean()),
            rtt_p95_ms: ms(data.took.quantile(0.95) + back.quantile(0.95)),
            loss_rate: real(dropped) / real(stats.enqueued.max(1)),
        }
    }
}

/// A moment of a flow.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Sample {
    /// Seconds since the start of the run.
    pub at_s: f64,
    /// Throughput since the last sample.
    pub throughput_mbps: f64,
    /// Capacity since the last sample.
    pub capacity_mbps: f64,
    /// Mean round-trip time since the last sample, where there was one.
    pub rtt_ms: Option<f64>,
    /// Mean queueing delay since the last sample, where a packet arrived.
    pub queue_delay_ms: Option<f64>,
    /// The controller's window.
    pub cwnd_packets: f64,
    /// The pace at which it sends.
    pub pacing_mbps: f64,
    /// The controller's state.
    pub state: &'static str,
}

/// Collects the figures of one flow.
#[derive(Clone, Debug, Default)]
pub struct Recorder {
    new_bytes: u64,
    queue_delay: Histogram,
    rtt: Histogram,
}

impl Recorder {
    /// A packet reached the receiver after waiting this long on its way.
    pub fn on_delivered(&mut self, waited: Duration, new: bool) {
        self.new_bytes += if new { PACKET_BYTES } else { 0 };
        self.queue_delay.add(waited);
    }

    /// The sender took a sample of the round-trip time.
    pub fn on_rtt(&mut self, rtt: Duration) {
        self.rtt.add(rtt);
    }

    /// Bytes of new data that reached the receiver.
    pub fn new_bytes(&self) -> u64 {
        self.new_bytes
    }

    /// The figures of `time`, in which the path could carry `capacity_bytes`, for a flow that sent so many packets, of which so
    /// many were dropped.
    pub fn metrics(&self, time: Duration, capacity_bytes: u64, sent: u64, dropped: u64) -> Metrics {
        let throughput_mbps = mbps(self.new_bytes, time);
        let capacity_mbps = mbps(capacity_bytes, time);
        Metrics {
            throughput_mbps,
            capacity_mbps,
            utilisation: throughput_mbps / capacity_mbps.max(f64::MIN_POSITIVE),
            queue_delay_mean_ms: self.queue_delay.mean_ms(),
            queue_delay_p95_ms: self.queue_delay.percentile_ms(0.95),
            rtt_mean_ms: self.rtt.mean_ms(),
            rtt_p95_ms: self.rtt.percentile_ms(0.95),
            loss_rate: real(dropped) / real(sent.max(1)),
        }
    }

    pub(super) fn totals(&self) -> Totals {
        Totals {
            new_bytes: self.new_bytes,
            waited: self.queue_delay.total(),
            rtt: self.rtt.total(),
        }
    }
}

/// Sums so far, whose differences make a [`Sample`].
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Totals {
    pub(super) new_bytes: u64,
    pub(super) waited: (u64, Duration),
    pub(super) rtt: (u64, Duration),
}

/// Mean in milliseconds of what came between two sums.
pub(super) fn mean_between(from: (u64, Duration), to: (u64, Duration)) -> Option<f64> {
    let count = to.0 - from.0;
    (count > 0).then(|| (to.1 - from.1).as_secs_f64() * 1e3 / real(count))
}

pub(crate) fn mbps(bytes: u64, time: Duration) -> f64 {
    if time.is_zero() {
        return 0.0;
    }
    real(bytes) * 8.0 / 1e6 / time.as_secs_f64()
}

#[expect(
    clippy::cast_precision_loss,
    reason = "counts of one run stay far below 53 bits"
)]
pub(crate) fn real(count: u64) -> f64 {
    count as f64
}

/// How often each length of time came.
#[derive(Clone, Debug, Default)]
struct Histogram {
    classes: Vec<u32>,
    count: u64,
    sum: Duration,
}

impl Histogram {
    fn add(&mut self, value: Duration) {
        let class = usize::try_from(value.as_micros() / CLASS.as_micros())
            .unwrap_or(usize::MAX)
            .min(CLASSES);
        if self.classes.len() <= class {
            self.classes.resize(class + 1, 0);
        }
        self.classes[class] = self.classes[class].saturating_add(1);
        self.count += 1;
        self.sum += value;
    }

    fn total(&self) -> (u64, Duration) {
        (self.count, self.sum)
    }

    fn mean_ms(&self) -> f64 {
        self.sum.as_secs_f64() * 1e3 / real(self.count.max(1))
    }

    /// The least value that `share` of all do not exceed, rounded up to a class; 0 without any.
    fn percentile_ms(&self, share: f64) -> f64 {
        let rank = share * real(self.count);
        let mut below = 0.0;
        for (class, &count) in (1_u64..).zip(&self.classes) {
            below += f64::from(count);
            if below >= rank && count > 0 {
                return real(class) * CLASS.as_secs_f64() * 1e3;
            }
        }
        0.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mean_is_exact_and_percentile_to_a_class() {
        let mut recorder = Recorder::default();
        for ms in 1..=100 {
            recorder.on_delivered(
                Duration::from_millis(ms) - Duration::from_micros(50),
                ms % 2 == 0,
            );
        }
        let metrics = recorder.metrics(Duration::from_secs(1), 150_000, 110, 10);
        assert!(
            (metrics.queue_delay_mean_ms - 50.45).abs() < 1e-9,
            "{metrics:?}"
        );
        assert!(
            (metrics.queue_delay_p95_ms - 95.0).abs() < 1e-9,
            "{metrics:?}"
        );
        assert!((metrics.throughput_mbps - 0.6).abs() < 1e-9, "{metrics:?}");
        assert!((metrics.utilisation - 0.5).abs() < 1e-9, "{metrics:?}");
        assert!(
            (metrics.loss_rate - 10.0 / 110.0).abs() < 1e-9,
            "{metrics:?}"
        );
        assert_eq!(metrics.rtt_mean_ms, 0.0);
    }
}
