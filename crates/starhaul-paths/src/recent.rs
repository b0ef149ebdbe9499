//! The rate of the last deliveries: what a path carries now, where these waited in its queue.

use std::time::{Duration, Instant};

use starhaul_units::Bandwidth;

/// Over so long at least it is measured.
const INTERVAL: Duration = Duration::from_millis(50);

/// See the [module](self).
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Recent {
    /// Start of the current interval, and the bytes that arrived since.
    interval: Option<(Instant, u64)>,
    last: Option<Instant>,
    rate: Option<Bandwidth>,
}

impl Recent {
    pub(crate) fn count(&mut self, now: Instant, bytes: usize) {
        let gap = self.last.replace(now);
        let gap = gap.map(|last| now.saturating_duration_since(last));
        if gap.is_none_or(|gap| gap > INTERVAL) {
            // What a pause took is no time of the path's, and its rate may be another now.
            (self.interval, self.rate) = (None, None);
        }
        let (start, delivered) = self.interval.get_or_insert((now, 0));
        let elapsed = now.saturating_duration_since(*start);
        if elapsed >= INTERVAL {
            let rate = Bandwidth::from_bytes_over(*delivered, elapsed);
            self.rate = Some(rate);
            (*start, *delivered) = (now, 0);
        }
        *delivered = delivered.saturating_add(bytes as u64);
    }

    /// Nothing is known where nothing was delivered for longer than it takes to learn of it.
    pub(crate) fn rate(&self, now: Instant, rtt: Duration) -> Option<Bandwidth> {
        let age = now.saturating_duration_since(self.last?);
        self.rate.filter(|_| age <= rtt.saturating_add(INTERVAL))
    }
}
