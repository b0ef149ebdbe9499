//! By how much acknowledgements of a path were later than usual of late: a process that waits for a processor answers late, and what it has not
//! read yet is not lost. As RACK's window for reordering (RFC 8985 §6.2), it follows what was seen, within a bound.

use std::time::{Duration, Instant};

/// How long what was seen counts.
const MEMORY: Duration = Duration::from_secs(10);

/// The greatest lateness seen of late.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Tardy {
    greatest: Option<(Duration, Instant)>,
}

impl Tardy {
    /// An acknowledgement came so much later than they usually take.
    pub(crate) fn note(&mut self, now: Instant, late: Duration) {
        if late >= self.greatest(now) {
            self.greatest = Some((late, now));
        }
    }

    /// The greatest lateness of the last ten seconds; zero if there was none.
    pub(crate) fn greatest(&self, now: Instant) -> Duration {
        self.greatest
            .filter(|(_, at)| now.saturating_duration_since(*at) <= MEMORY)
            .map_or(Duration::ZERO, |(late, _)| late)
    }
}
