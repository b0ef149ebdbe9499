//! How long datagrams waited until the program came to read them: hosts let programs wait for a processor.

use std::time::{Duration, Instant};

/// A wait is forgotten after one to two of these.
const MEMORY: Duration = Duration::from_secs(5);

/// The longest wait of this period and of the last.
#[derive(Debug, Default)]
pub(super) struct Waits {
    since: Option<Instant>,
    longest: [Duration; 2],
}

impl Waits {
    /// Notes that a datagram waited so long.
    pub(super) fn saw(&mut self, now: Instant, wait: Duration) {
        let since = *self.since.get_or_insert(now);
        let passed = now.saturating_duration_since(since);
        if passed >= MEMORY {
            self.since = Some(now);
            let before = if passed < 2 * MEMORY {
                self.longest[0]
            } else {
                Duration::ZERO
            };
            self.longest = [Duration::ZERO, before];
        }
        self.longest[0] = self.longest[0].max(wait);
    }

    /// The longest wait of late.
    pub(super) fn longest(&self) -> Duration {
        let [now, before] = self.longest;
        now.max(before)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_longest_wait_of_late_counts() {
        let (start, ms) = (Instant::now(), Duration::from_millis(1));
        let mut waits = Waits::default();
        for (second, wait, longest) in [
            (0, 3, 3),
            (1, 1, 3),
            (5, 2, 3),
            (9, 1, 3),
            (10, 1, 2),
            (30, 0, 0),
        ] {
            waits.saw(start + Duration::from_secs(second), ms * wait);
            assert_eq!(waits.longest(), ms * longest, "after {second} s");
        }
    }
}
