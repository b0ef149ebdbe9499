//! By how much acknowledgements of a path were later than usual of late: a process that waits for a processor answers late, and what it has not
//! read yet is not lost. As RACK's window for reordering (RFC 8985 §6.2), it follows what was seen, within a bound.

use std::time::{Duration, Instant};

/// How long what was seen counts, at least; at most twice as long.
const MEMORY: Duration = Duration::from_secs(5);

/// The greatest lateness seen of late.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Tardy {
    /// Since when `greatest` is counted, and what it was in the time before.
    since: Option<Instant>,
    before: Duration,
    greatest: Duration,
}

impl Tardy {
    /// An acknowledgement came so much later than they usually take.
    pub(crate) fn note(&mut self, now: Instant, late: Duration) {
        let age = self.since.map(|since| now.saturating_duration_since(since));
        if age.is_none_or(|age| age > MEMORY) {
            let is_recent = age.is_some_and(|age| age <= MEMORY * 2);
            self.before = if is_recent {
                self.greatest
            } else {
                Duration::ZERO
            };
            self.greatest = Duration::ZERO;
            self.since = Some(now);
        }
        self.greatest = self.greatest.max(late);
    }

    /// The greatest lateness of the last five to ten seconds; zero if there was none.
    pub(crate) fn greatest(&self, now: Instant) -> Duration {
        let age = self.since.map(|since| now.saturating_duration_since(since));
        match age {
            Some(age) if age <= MEMORY => self.greatest.max(self.before),
            Some(age) if age <= MEMORY * 2 => self.greatest,
            _ => Duration::ZERO,
        }
    }
}
