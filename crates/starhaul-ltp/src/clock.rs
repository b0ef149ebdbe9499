//! Timers of one peer on a clock that stands still while the peer does not transmit (RFC 5326 §6.5, §6.6).

use std::{
    collections::BTreeSet,
    time::{Duration, Instant},
};

/// Time of a peer's clock: how long the peer has been transmitting.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct PeerTime(Duration);

impl PeerTime {
    pub(crate) fn plus(self, time: Duration) -> Self {
        Self(self.0.saturating_add(time))
    }

    /// Time since `earlier`; zero if that is later.
    pub(crate) fn since(self, earlier: Self) -> Duration {
        self.0.saturating_sub(earlier.0)
    }
}

/// A clock that can be stopped. Stopping and starting it costs the same for any number of timers.
#[derive(Debug)]
pub(crate) struct Clock {
    before: Duration,
    running_since: Option<Instant>,
    /// How often it was stopped.
    stops: u32,
}

impl Clock {
    pub(crate) fn started(now: Instant) -> Self {
        Self {
            before: Duration::ZERO,
            running_since: Some(now),
            stops: 0,
        }
    }

    pub(crate) fn time(&self, now: Instant) -> PeerTime {
        let running = self.running_since;
        let since = running.map_or(Duration::ZERO, |at| now.saturating_duration_since(at));
        PeerTime(self.before.saturating_add(since))
    }

    pub(crate) fn run(&mut self, now: Instant, is_running: bool) {
        self.before = self.time(now).0;
        if self.running_since.is_some() && !is_running {
            self.stops = self.stops.wrapping_add(1);
        }
        self.running_since = is_running.then_some(now);
    }

    /// How often it was stopped: times between which it stood are no measure.
    pub(crate) fn stops(&self) -> u32 {
        self.stops
    }

    /// When it will show `time`; `None` while it stands.
    pub(crate) fn instant(&self, time: PeerTime) -> Option<Instant> {
        self.running_since?
            .checked_add(time.0.saturating_sub(self.before))
    }
}

/// What a timer is for; numbers are of sessions and serial numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Timer {
    /// A checkpoint was not answered (RFC 5326 §6.7).
    Checkpoint(u64, u64),
    /// A report was not acknowledged (§6.8).
    Report(u64, u64),
    /// A cancellation was not acknowledged (§6.16).
    CancelSend(u64),
    /// The same, of a session that this engine received.
    CancelReceive(u64),
    /// A sending session waits for reports that may never come.
    SilentReceiver(u64),
    /// A receiving session waits for data that may never come.
    SilentSender(u64),
}

/// The timers of a peer.
#[derive(Debug, Default)]
pub(crate) struct Timers(BTreeSet<(PeerTime, Timer)>);

impl Timers {
    pub(crate) fn set(&mut self, at: PeerTime, timer: Timer) {
        self.0.insert((at, timer));
    }

    pub(crate) fn cancel(&mut self, at: PeerTime, timer: Timer) {
        self.0.remove(&(at, timer));
    }

    pub(crate) fn next(&self) -> Option<PeerTime> {
        self.0.first().map(|(at, _)| *at)
    }

    pub(crate) fn pop(&mut self, now: PeerTime) -> Option<Timer> {
        self.next().filter(|at| *at <= now)?;
        self.0.pop_first().map(|(_, timer)| timer)
    }

    pub(crate) fn len(&self) -> usize {
        self.0.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stopped_clock_moves_its_timers_by_the_outage() {
        let start = Instant::now();
        let at = |seconds| start + Duration::from_secs(seconds);
        let mut clock = Clock::started(start);
        let due = clock.time(at(2)).plus(Duration::from_secs(10));
        assert_eq!(clock.instant(due), Some(at(12)));
        clock.run(at(5), false);
        assert_eq!(clock.instant(due), None);
        assert!(clock.time(at(500)) < due);
        // Saying it twice changes nothing.
        clock.run(at(600), false);
        clock.run(at(1005), true);
        assert_eq!(clock.instant(due), Some(at(1012)));
        clock.run(at(1006), true);
        assert_eq!(clock.instant(due), Some(at(1012)));
    }
}
