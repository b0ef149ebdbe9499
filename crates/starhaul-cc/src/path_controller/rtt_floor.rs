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
    /// When the path became another one: packets sent before measure the former one.
    other_since: Option<Instant>,
}

impl RttFloor {
    /// The path is another one since then.
    pub(super) fn restart(&mut self, since: Instant) {
        *self = Self {
            other_since: Some(since),
            ..Self::default()
        };
    }

    pub(super) fn update(&mut self, now: Instant, rtt: Duration) {
        let is_of_former = |since| now.checked_sub(rtt).is_none_or(|sent| sent < since);
        if self.other_since.is_some_and(is_of_former) {
            return;
        }
        let since = *self.since.get_or_insert(now);
        let elapsed = now.saturating_duration_since(since);
        if elapsed >= RTT_FLOOR_WINDOW {
            self.since = Some(now);
            // Before a pause the path may have been another one.
            self.previous = self
                .current
                .take()
                .filter(|_| elapsed < 2 * RTT_FLOOR_WINDOW);
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
    fn packets_of_a_former_path_say_nothing_of_this_one() {
        let start = Instant::now() + Duration::from_secs(60);
        let ms = Duration::from_millis;
        let mut floor = RttFloor::default();
        floor.update(start, ms(40));
        floor.restart(start + ms(10));
        assert_eq!(floor.get(), None);
        floor.update(start + ms(30), ms(40));
        assert_eq!(floor.get(), None);
        floor.update(start + ms(110), ms(80));
        assert_eq!(floor.get(), Some(ms(80)));
    }

    #[test]
    fn what_was_measured_before_a_pause_is_no_floor_after_it() {
        let start = Instant::now();
        let mut floor = RttFloor::default();
        floor.update(start, Duration::from_millis(20));
        for second in [60, 61] {
            let rtt = Duration::from_millis(50);
            floor.update(start + Duration::from_secs(second), rtt);
            assert_eq!(floor.get(), Some(rtt), "{second} s");
        }
    }

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
