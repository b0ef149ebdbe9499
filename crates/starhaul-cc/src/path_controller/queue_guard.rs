//! Bounds the queue that a flow's own packets make before the bottleneck while deadlines are to be kept. A controller in
//! startup may fill a deep queue for seconds before it reacts, and everything sent then arrives late.

use std::{
    collections::VecDeque,
    time::{Duration, Instant},
};

use starhaul_units::Bandwidth;

/// A queue is recognized by the least of this many RTTs: one late acknowledgement is no queue.
const SAMPLES: usize = 8;
/// Shortest time over which deliveries are counted as a rate.
const LEAST_INTERVAL: Duration = Duration::from_millis(50);
/// If holding back for this time, and this many RTTs, does not shorten the queue, the path itself has become longer.
const PATIENCE: Duration = Duration::from_secs(1);
const PATIENCE_ROUNDS: u32 = 4;

/// See the [module](self).
#[derive(Debug, Default)]
pub(super) struct QueueGuard {
    /// The longest that packets may wait in the queue; `None` while nothing sent has a deadline.
    pub(super) bound: Option<Duration>,
    recent: VecDeque<Duration>,
    /// The path's RTT without a queue, once it has become longer than the least RTT.
    floor: Option<Duration>,
    /// Start of the interval in which deliveries are counted, and their bytes.
    interval: Option<(Instant, u64)>,
    rate: Option<Bandwidth>,
    holding_since: Option<Instant>,
}

impl QueueGuard {
    /// A packet was acknowledged; `least_rtt` is the least RTT of the recent past. Returns whether packets wait in the
    /// queue for too long.
    pub(super) fn on_ack(
        &mut self,
        now: Instant,
        rtt: Duration,
        bytes: u64,
        least_rtt: Duration,
    ) -> bool {
        self.recent.push_back(rtt);
        if self.recent.len() > SAMPLES {
            self.recent.pop_front();
        }
        self.floor = self.floor.filter(|floor| rtt >= *floor);
        let (since, delivered) = self.interval.get_or_insert((now, 0));
        *delivered = delivered.saturating_add(bytes);
        let elapsed = now.saturating_duration_since(*since);
        if elapsed >= least_rtt.max(LEAST_INTERVAL) {
            self.rate = Some(Bandwidth::from_bytes_over(*delivered, elapsed));
            self.interval = Some((now, 0));
        }
        self.watch(now, least_rtt);
        self.is_holding()
    }

    /// The window that keeps the queue within its bound; `window` if that does.
    pub(super) fn window(&self, window: u64, least_rtt: Duration, estimate: Bandwidth) -> u64 {
        let (Some(bound), Some(rate)) = (self.bound, self.rate.filter(|_| self.is_holding()))
        else {
            return window;
        };
        let floor = self.floor.unwrap_or(least_rtt);
        window.min(rate.min(estimate).bytes_in(floor.saturating_add(bound)))
    }

    const fn is_holding(&self) -> bool {
        self.holding_since.is_some()
    }

    fn watch(&mut self, now: Instant, least_rtt: Duration) {
        let Some(bound) = self.bound.filter(|_| self.recent.len() == SAMPLES) else {
            self.holding_since = None;
            return;
        };
        let rtt = self.recent.iter().min().copied().unwrap_or_default();
        let floor = self.floor.unwrap_or(least_rtt);
        if rtt <= floor.saturating_add(bound / 2) {
            self.holding_since = None;
            return;
        }
        let since = *self.holding_since.get_or_insert(now);
        if now.saturating_duration_since(since) > PATIENCE.max(rtt.saturating_mul(PATIENCE_ROUNDS))
        {
            self.floor = Some(rtt);
            self.holding_since = None;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    /// Acknowledges 1000 bytes each millisecond for `count` ms with this round trip.
    fn acks(guard: &mut QueueGuard, from: Instant, count: u32, rtt_ms: u32) -> Instant {
        for step in 0..count {
            guard.on_ack(from + step * MS, rtt_ms * MS, 1_000, 100 * MS);
        }
        from + count * MS
    }

    #[test]
    fn a_queue_beyond_the_bound_holds_back_until_it_is_gone() {
        let mut guard = QueueGuard {
            bound: Some(50 * MS),
            ..QueueGuard::default()
        };
        let window = |guard: &QueueGuard| guard.window(1 << 20, 100 * MS, Bandwidth::from_mbit(80));
        let now = acks(&mut guard, Instant::now(), 300, 110);
        assert_eq!(window(&guard), 1 << 20);
        let now = acks(&mut guard, now, 300, 200);
        // 8 Mbit/s for the round trip and what may be queued.
        let held = window(&guard);
        assert!((140_000..160_000).contains(&held), "{held}");
        acks(&mut guard, now, 10, 120);
        assert_eq!(window(&guard), 1 << 20);
    }

    #[test]
    fn nothing_is_held_back_without_deadlines_nor_when_the_path_became_longer() {
        let mut guard = QueueGuard::default();
        let window = |guard: &QueueGuard| guard.window(1 << 20, 100 * MS, Bandwidth::from_mbit(80));
        let now = acks(&mut guard, Instant::now(), 300, 300);
        assert_eq!(window(&guard), 1 << 20);
        guard.bound = Some(50 * MS);
        let now = acks(&mut guard, now, 1_000, 300);
        assert!(window(&guard) < 200_000);
        let now = acks(&mut guard, now, 300, 300);
        assert_eq!(window(&guard), 1 << 20, "a queue would have gone");
        acks(&mut guard, now, 300, 340);
        assert!(window(&guard) < 400_000, "measured against the longer path");
    }
}
