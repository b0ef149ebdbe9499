//! The figures of one flow. `docs/lab.md` has the exact definitions.

use std::time::Duration;

use serde::{Deserialize, Serialize};
use starhaul_link::{Delays, LinkStats, Passage};

use crate::PACKET_BYTES;

/// The figures of one run, measured at the ends of a flow or, by [`Metrics::by_link`], at the links; a table uses one
/// kind.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Metrics {
    /// Rate of new data that reached the receiver, with all headers, in Mbit/s.
    pub throughput_mbps: f64,
    /// Rate that the narrowest link could carry in the same time, in Mbit/s.
    pub capacity_mbps: f64,
    /// Throughput divided by capacity.
    pub utilisation: f64,
    /// Mean time that a packet waited in the links until its last byte left.
    pub queue_delay_mean_ms: f64,
    /// 95th percentile of the queueing delay.
    pub queue_delay_p95_ms: f64,
    /// Mean RTT of the sender's samples.
    pub rtt_mean_ms: f64,
    /// 95th percentile of the RTT.
    pub rtt_p95_ms: f64,
    /// Share of the packets sent that no link delivered.
    pub loss_rate: f64,
}

impl Metrics {
    /// Computes the figures of `time`, in which the path could carry `capacity_bytes`, from the two ends of the flow.
    pub(crate) fn of_flow(
        time: Duration,
        capacity_bytes: u64,
        deliveries: &Deliveries,
        round_trips: &Delays,
        loss_rate: f64,
    ) -> Self {
        Self::new(
            (time, capacity_bytes),
            deliveries.new_bytes,
            &deliveries.waited,
            round_trips,
            loss_rate,
        )
    }

    /// Computes the figures of `time`, in which one data link could carry `capacity_bytes`, from that link and the
    /// backward link. Throughput counts all bytes that left the link, retransmissions too. The RTT of a data packet is
    /// its own delay plus that of the first packet to enter the backward link after it; the receiver's delay is not
    /// included.
    pub fn by_link(
        time: Duration,
        capacity_bytes: u64,
        data: &[Passage],
        back: &[Passage],
        stats: LinkStats,
    ) -> Self {
        let data: Vec<&Passage> = data.iter().filter(|passage| passage.at <= time).collect();
        let mut queue_delays = Delays::default();
        for passage in &data {
            queue_delays.add(passage.waited);
        }
        let bytes = data.iter().map(|passage| passage.bytes as u64).sum();
        Self::new(
            (time, capacity_bytes),
            bytes,
            &queue_delays,
            &round_trips(&data, back),
            real(stats.dropped()) / real(stats.enqueued.max(1)),
        )
    }

    fn new(
        (time, capacity_bytes): (Duration, u64),
        bytes: u64,
        queue_delays: &Delays,
        round_trips: &Delays,
        loss_rate: f64,
    ) -> Self {
        let throughput_mbps = mbps(bytes, time);
        let capacity_mbps = mbps(capacity_bytes, time);
        Self {
            throughput_mbps,
            capacity_mbps,
            utilisation: throughput_mbps / capacity_mbps.max(f64::MIN_POSITIVE),
            queue_delay_mean_ms: queue_delays.mean_ms(),
            queue_delay_p95_ms: queue_delays.percentile_ms(0.95),
            rtt_mean_ms: round_trips.mean_ms(),
            rtt_p95_ms: round_trips.percentile_ms(0.95),
            loss_rate,
        }
    }
}

/// The RTT of each data packet, with the first packet that entered the backward link after it had arrived.
fn round_trips(data: &[&Passage], back: &[Passage]) -> Delays {
    let mut back: Vec<_> = back.iter().map(|p| (p.came(), p.took)).collect();
    back.sort_unstable();
    let mut round_trips = Delays::default();
    for passage in data {
        let answer = back.partition_point(|(came, _)| *came < passage.at);
        if let Some((_, took)) = back.get(answer) {
            round_trips.add(passage.took + *took);
        }
    }
    round_trips
}

/// A sample of a flow's time series.
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
    /// The controller's window in packets of [`PACKET_BYTES`](crate::PACKET_BYTES).
    pub cwnd_packets: f64,
    /// The pacing rate in Mbit/s.
    pub pacing_mbps: f64,
    /// The name of the controller's state.
    pub state: &'static str,
}

/// Counters of the packets that reached the receiver of one flow.
#[derive(Clone, Debug, Default)]
pub(crate) struct Deliveries {
    new_bytes: u64,
    waited: Delays,
}

impl Deliveries {
    /// Adds a packet that waited this long at the links.
    pub(crate) fn add(&mut self, waited: Duration, new: bool) {
        self.new_bytes += if new { PACKET_BYTES } else { 0 };
        self.waited.add(waited);
    }

    /// Bytes of new data that arrived.
    pub(crate) fn new_bytes(&self) -> u64 {
        self.new_bytes
    }

    /// Number of packets, and the sum of their waiting times.
    pub(crate) fn waited(&self) -> (u64, Duration) {
        self.waited.total()
    }
}

/// Mean wait in milliseconds between two pairs of totals.
pub(crate) fn mean_between(from: (u64, Duration), to: (u64, Duration)) -> Option<f64> {
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

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    #[test]
    fn a_flow_counts_new_data_and_every_wait() {
        let mut deliveries = Deliveries::default();
        for ms in 1..=100 {
            deliveries.add(MS * ms - MS / 20, ms % 2 == 0);
        }
        let metrics = Metrics::of_flow(MS * 1000, 150_000, &deliveries, &Delays::default(), 0.1);
        assert!((metrics.queue_delay_mean_ms - 50.45).abs() < 1e-9);
        assert!((metrics.queue_delay_p95_ms - 95.0).abs() < 1e-9);
        assert!((metrics.throughput_mbps - 0.6).abs() < 1e-9, "{metrics:?}");
        assert!((metrics.utilisation - 0.5).abs() < 1e-9, "{metrics:?}");
        assert_eq!((metrics.loss_rate, metrics.rtt_mean_ms), (0.1, 0.0));
    }

    #[test]
    fn a_link_pairs_each_packet_with_the_way_back_that_its_answer_found() {
        let passage = |came, waited, took| Passage {
            at: MS * (came + took),
            bytes: 1500,
            waited: MS * waited,
            took: MS * took,
        };
        // The forward delay is high when the backward delay is low: no RTT has the high delay of both.
        let data = [passage(0, 0, 10), passage(100, 80, 90), passage(950, 0, 60)];
        let back = [passage(10, 0, 90), passage(195, 0, 10)];
        let stats = LinkStats {
            enqueued: 4,
            dropped_loss: 1,
            ..LinkStats::default()
        };
        let metrics = Metrics::by_link(MS * 1000, 6000, &data, &back, stats);
        // 10 + 90 and 90 + 10; the third came after the end.
        assert!((metrics.rtt_mean_ms - 100.0).abs() < 1e-9, "{metrics:?}");
        assert!((metrics.rtt_p95_ms - 100.1).abs() < 1e-9, "{metrics:?}");
        assert!((metrics.queue_delay_mean_ms - 40.0).abs() < 1e-9);
        assert!((metrics.throughput_mbps - 0.024).abs() < 1e-9);
        assert_eq!((metrics.utilisation, metrics.loss_rate), (0.5, 0.25));
    }
}
