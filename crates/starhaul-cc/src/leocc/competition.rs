//! Whether greedy flows stand in the queue that `leocc2` keeps short: then its narrow window would give them everything.

use std::time::{Duration, Instant};

use crate::filter::WindowedFilter;

/// The path's length without anybody's queue is the least that was measured in this time, four intervals of Starlink's.
const FLOOR_WINDOW: Duration = Duration::from_secs(60);
/// A queue is somebody else's when it is so much longer than what flows of our kind leave.
const STANDING: Duration = Duration::from_millis(25);
/// And when it lasts: an outage's spike is over sooner, and so is the queue that a step down of the capacity leaves.
const LASTING: Duration = Duration::from_secs(1);

/// Looks for queues that do not drain although this flow gives way.
#[derive(Clone, Debug)]
pub(super) struct Competition {
    floor: WindowedFilter<Duration, Instant>,
    standing_since: Option<Instant>,
    present: bool,
}

impl Default for Competition {
    fn default() -> Self {
        Self {
            floor: WindowedFilter::min(FLOOR_WINDOW),
            standing_since: None,
            present: false,
        }
    }
}

impl Competition {
    /// `low` is the path's least RTT, measured while all flows of our kind had drained it.
    pub(super) fn on_drained(&mut self, now: Instant, low: Duration) {
        self.floor.update(now, low);
        let floor = self.floor.best().unwrap_or(low);
        self.standing_since = None;
        self.present = low > floor.saturating_add(STANDING);
    }

    /// The queue now, and the one that this flow and others like it would leave.
    pub(super) fn on_queue(&mut self, now: Instant, queue: Duration, own: Duration) {
        if queue <= own.saturating_add(STANDING) {
            self.standing_since = None;
            return;
        }
        let since = *self.standing_since.get_or_insert(now);
        if now.saturating_duration_since(since) >= LASTING {
            self.present = true;
        }
    }

    /// Somebody fills the queue and does not give way.
    pub(super) fn is_present(&self) -> bool {
        self.present
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    /// A queue of `queue_ms` for so long, where flows of our kind would leave 10 ms.
    fn after(start: Instant, queue_ms: u32, for_ms: u32) -> Competition {
        let mut competition = Competition::default();
        competition.on_drained(start, 30 * MS);
        for n in 0..=for_ms / 20 {
            competition.on_queue(start + 20 * MS * n, MS * queue_ms, 10 * MS);
        }
        competition
    }

    #[test]
    fn a_queue_is_somebody_elses_when_it_is_long_and_lasts() {
        let start = Instant::now();
        assert!(after(start, 60, 1500).is_present());
        assert!(!after(start, 60, 500).is_present(), "an outage's spike");
        assert!(!after(start, 30, 5000).is_present(), "flows of our kind");
    }

    /// After a reconfiguration it is the path without a queue that tells: flows of our kind have all drained it.
    #[test]
    fn who_does_not_drain_is_still_there_and_who_left_is_not() {
        let start = Instant::now();
        let mut competition = after(start, 60, 1500);
        let later = start + Duration::from_secs(15);
        competition.on_drained(later, 90 * MS);
        assert!(competition.is_present());
        competition.on_drained(later + Duration::from_secs(15), 38 * MS);
        assert!(!competition.is_present());
    }

    /// A path that became longer for good is taken for a queue no longer than the floor is remembered.
    #[test]
    fn a_longer_path_is_believed_in_the_end() {
        let start = Instant::now();
        let mut competition = after(start, 0, 1000);
        let interval = Duration::from_secs(15);
        let present = (1..8u32).map(|n| {
            competition.on_drained(start + interval * n, 90 * MS);
            competition.is_present()
        });
        assert_eq!(
            present.collect::<Vec<_>>(),
            [true, true, true, true, false, false, false]
        );
    }
}
