//! What is acknowledged at once beyond what the bandwidth explains (Linux's `tcp_bbr.c`, `bbr_update_ack_aggregation`;
//! draft-ietf-ccwg-bbr-06 §5.5.9). A window without room for it idles the path between aggregates.

use std::time::Instant;

use starhaul_units::Bandwidth;

use crate::filter::WindowedFilter;

const WINDOW_ROUNDS: u64 = 10;

/// The greatest aggregate of ten rounds, of one until the pipe is full.
#[derive(Clone, Debug)]
pub(crate) struct Aggregation {
    extra: WindowedFilter<u64, u64>,
    since: Option<Instant>,
    delivered: u64,
}

impl Default for Aggregation {
    fn default() -> Self {
        Self {
            extra: WindowedFilter::max(WINDOW_ROUNDS),
            since: None,
            delivered: 0,
        }
    }
}

impl Aggregation {
    /// Takes what was acknowledged now on a path of this bandwidth.
    pub(crate) fn update(
        &mut self,
        now: Instant,
        bandwidth: Bandwidth,
        acked_bytes: u64,
        cwnd_bytes: u64,
        (round, full_pipe): (u64, bool),
    ) {
        let since = *self.since.get_or_insert(now);
        let mut expected = bandwidth.bytes_in(now.saturating_duration_since(since));
        if self.delivered <= expected {
            self.restart(now);
            expected = 0;
        }
        self.delivered = self.delivered.saturating_add(acked_bytes);
        let extra = self.delivered.saturating_sub(expected).min(cwnd_bytes);
        self.extra
            .set_window(if full_pipe { WINDOW_ROUNDS } else { 1 });
        self.extra.update(round, extra);
    }

    /// Begins anew after a pause.
    pub(crate) fn restart(&mut self, now: Instant) {
        self.since = Some(now);
        self.delivered = 0;
    }

    pub(crate) fn bytes(&self) -> u64 {
        self.extra.best().unwrap_or(0)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    /// A link of 10 Mbit/s whose acknowledgements come each 15 ms, and then one by one and of less.
    #[test]
    fn bursts_of_acknowledgements_are_room_for_as_much_for_ten_rounds() {
        let rate = Bandwidth::from_mbit(10);
        let mut aggregation = Aggregation::default();
        let mut now = Instant::now();
        let mut acks = |each: Duration, count: u32, share: f64, first_round: u64| {
            for number in 0..count {
                now += each;
                let round = first_round + u64::from(number) / 10;
                let bytes = rate.scaled(share).bytes_in(each);
                aggregation.update(now, rate, bytes, 1 << 20, (round, true));
            }
            aggregation.bytes()
        };
        let burst = rate.bytes_in(Duration::from_millis(15));
        let extra = acks(Duration::from_millis(15), 200, 1.0, 0);
        assert!((burst..=burst + burst / 10).contains(&extra), "{extra}");
        assert_eq!(acks(Duration::from_millis(1), 50, 1.0, 21), extra);
        let extra = acks(Duration::from_millis(1), 500, 0.9, 26);
        assert!(extra <= burst / 10, "{extra}");
    }
}
