//! The least RTT of the recent past: a minimum over all time would never rise, but paths change.

use std::time::{Duration, Instant};

/// Samples count for once to twice this.
const RTT_FLOOR_WINDOW: Duration = Duration::from_secs(10);

/// The least RTT of the current and of the previous window.
#[derive(Debug, Default)]
pub(super) struct RttFloor {
    since: Option<Instant>,
    current: Option<Duration>,
    previous: Option<Duration>,
}

impl RttFloor {
    pub(super) fn update(&mut self, now: Instant, rtt: Duration) {
        let since = *self.since.get_or_insert(now);
        if now.saturating_duration_since(since) >= RTT_FLOOR_WINDOW {
            self.since = Some(now);
            self.previous = self.current.take();
        }
        self.current = Some(self.current.map_or(rtt, |floor| floor.min(rtt)));
    }

    pub(super) fn get(&self) -> Option<Duration> {
        self.current.into_iter().chain(self.previous).min()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_rtt_floor_forgets() {
        let start = Instant::now();
        let mut floor = RttFloor::default();
        for second in 0..60 {
            let rtt = Duration::from_millis(if second < 10 { 20 } else { 50 });
            floor.update(start + Duration::from_secs(second), rtt);
            let expected = if second < 20 { 20 } else { 50 };
            assert_eq!(
                floor.get(),
                Some(Duration::from_millis(expected)),
                "{second} s"
            );
        }
    }
}
