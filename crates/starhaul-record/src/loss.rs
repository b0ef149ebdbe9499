//! Random loss, without drops of a full queue: counted while the heavy flow runs at half of the capacity and packets
//! have nearly their least delay.

use crate::{Interval, Phase};

/// Quantile of the normal distribution for 95 %.
const Z: f64 = 1.96;
/// A longer interval without arrivals is an outage, not random loss.
const OUTAGE_MS: usize = 40;
/// Losses count while the queue is below this fraction of a full one.
const QUEUE_SHARE: i64 = 2;
/// Assumed delay of a full queue if none was measured.
const DEFAULT_QUEUE_US: i64 = 50_000;

/// Random loss of one direction, as measured.
#[derive(Clone, Copy, Debug, Default, PartialEq, serde::Serialize)]
pub struct LossEstimate {
    /// Packets counted, lost ones included.
    pub packets: u64,
    /// Packets among them that were lost.
    pub lost: u64,
    /// Runs of lost packets.
    pub bursts: u64,
    /// The share lost.
    pub share: f64,
    /// Lower bound of the true share with 95 % confidence (Wilson 1927) for independent losses; bursts widen the range.
    pub low: f64,
    /// Upper bound of the same.
    pub high: f64,
}

impl LossEstimate {
    /// Counts packets in the intervals of a recording. `least_us` and `full_us` are the least delay, and that behind a
    /// full queue.
    pub(crate) fn of<'a>(
        intervals: impl Iterator<Item = &'a Interval>,
        least_us: i64,
        full_us: Option<i64>,
    ) -> Self {
        let queue_us = full_us.map_or(DEFAULT_QUEUE_US, |full| full.saturating_sub(least_us));
        let most_us = least_us.saturating_add(queue_us / QUEUE_SHARE);
        let mut counted = Self::default();
        let mut previous_counts = false;
        for seen in intervals {
            let calm =
                seen.phase == Phase::Below && seen.received > 0 && seen.way_max_us <= most_us;
            let counts = calm && !has_outage(seen);
            // Losses before the first packet of an interval happened in the one before it.
            if counts && previous_counts {
                counted.packets += u64::from(seen.received) + u64::from(seen.lost);
                counted.lost += u64::from(seen.lost);
                counted.bursts += u64::from(seen.bursts);
            }
            previous_counts = counts;
        }
        counted.finish()
    }

    /// Computes the share and its confidence interval from the counts.
    #[expect(
        clippy::cast_precision_loss,
        reason = "counts beyond 2^53 do not occur"
    )]
    fn finish(mut self) -> Self {
        let n = self.packets as f64;
        if self.packets == 0 {
            return Self { high: 1.0, ..self };
        }
        self.share = self.lost as f64 / n;
        // Losses in bursts carry less information than as many independent ones.
        let independent = n * (self.bursts.max(1) as f64 / self.lost.max(1) as f64).min(1.0);
        let (p, z2) = (self.share, Z * Z / independent);
        let middle = (p + z2 / 2.0) / (1.0 + z2);
        let half = Z / (1.0 + z2) * (p * (1.0 - p) / independent + z2 / (4.0 * independent)).sqrt();
        self.low = (middle - half).max(0.0);
        self.high = (middle + half).min(1.0);
        self
    }

    /// The loss as a setting of a link: `0.2%`, or `ge:1%:5` if losses come in bursts. `None` if no packet could be counted:
    /// on links too slow for a flow that leaves the queue empty, for example.
    #[expect(
        clippy::cast_precision_loss,
        reason = "counts beyond 2^53 do not occur"
    )]
    pub fn setting(&self) -> Option<String> {
        if self.packets == 0 {
            return None;
        }
        let percent = format!("{:.4}", self.share * 100.0);
        let percent = percent.trim_end_matches('0').trim_end_matches('.');
        let burst = self.lost as f64 / self.bursts.max(1) as f64;
        Some(match burst > 1.5 && self.bursts >= 5 {
            true => format!("ge:{percent}%:{burst:.1}"),
            false => format!("{percent}%"),
        })
    }
}

fn has_outage(seen: &Interval) -> bool {
    let spacing_ms = seen.bins.len() / usize::try_from(seen.received).unwrap_or(1).max(1);
    let longest = seen.bins.split(|bin| *bin > 0).map(<[u32]>::len).max();
    longest.unwrap_or(0) > OUTAGE_MS.max(10 * spacing_ms)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn below(received: u32, lost: u32, way_max_us: i64) -> Interval {
        Interval {
            bins: vec![3000; 50],
            phase: Phase::Below,
            received,
            lost,
            bursts: lost.min(1),
            way_min_us: 0,
            way_max_us,
            ..Interval::default()
        }
    }

    #[test]
    fn what_a_queue_or_an_outage_drops_is_no_random_loss() {
        let mut outage = below(40, 60, 1000);
        outage.bins[5..48].fill(0);
        let mut intervals = vec![below(100, 0, 1000); 101];
        for index in [10, 20, 30] {
            intervals[index].lost = 1;
            intervals[index].bursts = 1;
        }
        intervals.push(below(60, 40, 90_000));
        intervals.push(below(99, 1, 1000));
        intervals.push(outage);
        let loss = LossEstimate::of(intervals.iter(), 0, Some(100_000));
        assert_eq!((loss.packets, loss.lost, loss.bursts), (10_003, 3, 3));
        assert!(
            loss.low < 3e-4 && 3e-4 < loss.high && loss.high < 1e-3,
            "{loss:?}"
        );
        assert_eq!(loss.setting().as_deref(), Some("0.03%"));
        let none = LossEstimate::of([below(1000, 9, 90_000)].iter(), 10_000, Some(50_000));
        assert_eq!((none.packets, none.setting()), (0, None));
    }

    #[test]
    fn bursts_widen_the_range_and_show_in_the_setting() {
        let mut single = vec![below(100, 1, 0); 100];
        single.iter_mut().for_each(|seen| seen.bursts = 1);
        let mut burst = vec![below(101, 0, 0); 100];
        for index in (10..100).step_by(10) {
            burst[index] = below(101, 10, 0);
        }
        let single = LossEstimate::of(single.iter(), 0, None);
        let burst = LossEstimate::of(burst.iter(), 0, None);
        assert!(burst.high - burst.low > 2.0 * (single.high - single.low));
        let setting = |loss: &LossEstimate| loss.setting().unwrap();
        assert!(setting(&burst).ends_with(":10.0") && !setting(&single).contains("ge"));
    }
}
