//! Detects greedy flows in the queue that `leocc2` keeps short: with its narrow window they would take all capacity.

use std::time::{Duration, Instant};

use crate::filter::WindowedFilter;

/// The RTT without any queue is the least of this time, four intervals of Starlink's.
const FLOOR_WINDOW: Duration = Duration::from_secs(60);
/// A queue belongs to other flows when it exceeds that of `leocc2` flows by this much.
const STANDING: Duration = Duration::from_millis(25);
/// It must also last this long: the spike of an outage ends sooner, and so does the queue after a step down of the
/// capacity.
const LASTING: Duration = Duration::from_secs(1);
/// It must also last this many RTTs, a cycle: this flow takes several to yield.
const LASTING_ROUNDS: u32 = 8;

/// Detects queues that do not drain although this flow reduces its window.
#[derive(Clone, Debug)]
pub(super) struct Competition {
    floor: WindowedFilter<Duration, Instant>,
    /// When such a queue was last seen, and how long it has stood, silences excepted.
    standing: Option<(Instant, Duration)>,
    present: bool,
}

impl Default for Competition {
    fn default() -> Self {
        Self {
            floor: WindowedFilter::min(FLOOR_WINDOW),
            standing: None,
            present: false,
        }
    }
}

impl Competition {
    /// `low` is the path's least RTT, measured while all `leocc2` flows had drained it. One within the target queue above the former
    /// least RTT ended Adaptation as that of an empty path.
    /// Where a signal told of another path, and no others were there before, that is the path's own: others show by a queue that grows.
    pub(super) fn on_drained(&mut self, now: Instant, low: Duration, target: Duration, told: bool) {
        let own = target.saturating_add(STANDING);
        if told && !self.present {
            self.floor = WindowedFilter::min(FLOOR_WINDOW);
        }
        self.floor.update(now, low);
        let floor = self.floor.best().unwrap_or(low);
        self.standing = None;
        self.present = low > floor.saturating_add(own);
    }

    /// Takes the present queue and RTT, and the queue that this flow and others like it would leave.
    pub(super) fn on_queue(&mut self, now: Instant, rtt: Duration, queue: Duration, own: Duration) {
        if queue <= own.saturating_add(STANDING) {
            self.standing = None;
            return;
        }
        let (last, stood) = self.standing.unwrap_or((now, Duration::ZERO));
        // In a pause or an outage no sample tells of the queue.
        let stood = stood + now.saturating_duration_since(last).min(rtt);
        self.standing = Some((now, stood));
        let lasting = LASTING.max(rtt.saturating_mul(LASTING_ROUNDS));
        if stood >= lasting {
            self.present = true;
        }
    }

    /// The least RTT of a drained path in the last minute.
    pub(super) fn floor(&self) -> Option<Duration> {
        self.floor.best()
    }

    /// Whether there is a queue of which it is not known yet which flow fills it.
    pub(super) fn is_suspected(&self) -> bool {
        self.standing.is_some()
    }

    /// Whether other flows fill the queue and do not yield.
    pub(super) fn is_present(&self) -> bool {
        self.present
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    /// The state after a queue of `queue_ms` for `for_ms`, where `leocc2` flows would leave 10 ms.
    fn after(start: Instant, queue_ms: u32, for_ms: u32) -> Competition {
        let mut competition = Competition::default();
        competition.on_drained(start, 30 * MS, 7 * MS, false);
        for n in 0..=for_ms / 20 {
            let rtt = MS * (30 + queue_ms);
            competition.on_queue(start + 20 * MS * n, rtt, MS * queue_ms, 10 * MS);
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

    #[test]
    fn a_silence_is_no_queue_that_lasts() {
        let start = Instant::now();
        let mut competition = after(start, 60, 200);
        let later = start + Duration::from_secs(20);
        competition.on_queue(later, MS * 90, MS * 60, MS * 10);
        assert!(!competition.is_present());
    }

    /// After a reconfiguration the RTT without a queue decides: all `leocc2` flows have drained it.
    #[test]
    fn who_does_not_drain_is_still_there_and_who_left_is_not() {
        let start = Instant::now();
        let mut competition = after(start, 60, 1500);
        let later = start + Duration::from_secs(15);
        competition.on_drained(later, 90 * MS, 7 * MS, false);
        assert!(competition.is_present());
        competition.on_drained(later + Duration::from_secs(15), 38 * MS, 7 * MS, false);
        assert!(!competition.is_present());
        competition.on_drained(later + Duration::from_secs(30), 72 * MS, 40 * MS, false);
        assert!(!competition.is_present(), "within the target");
    }

    /// A path that became longer for good counts as a queue only until the old minimum expires.
    #[test]
    fn a_longer_path_is_believed_in_the_end() {
        let start = Instant::now();
        let mut competition = after(start, 0, 1000);
        let interval = Duration::from_secs(15);
        let present = (1..8u32).map(|n| {
            competition.on_drained(start + interval * n, 90 * MS, 7 * MS, false);
            competition.is_present()
        });
        assert_eq!(
            present.collect::<Vec<_>>(),
            [true, true, true, true, false, false, false]
        );
    }

    #[test]
    fn a_longer_path_that_was_told_of_is_believed_at_once() {
        let start = Instant::now();
        let mut competition = after(start, 0, 1000);
        let interval = Duration::from_secs(15);
        for (n, low) in [(1, 90), (2, 30), (3, 140)] {
            competition.on_drained(start + interval * n, low * MS, 7 * MS, true);
            assert!(!competition.is_present(), "{low} ms");
        }
        // Who is there stays there whatever is told.
        let mut competition = after(start, 60, 1500);
        competition.on_drained(start + interval, 90 * MS, 7 * MS, true);
        assert!(competition.is_present());
    }
}
