//! The round-trip time of a hop (RFC 6298 §2, in microseconds), and its least of late.

use std::time::{Duration, Instant};

/// An estimate of a round-trip time.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct RoundTrips {
    smoothed: Option<Duration>,
    variation: Duration,
    least: Least,
}

/// The least of this period and of the last.
#[derive(Clone, Copy, Debug, Default)]
struct Least {
    since: Option<Instant>,
    now: Option<Duration>,
    before: Option<Duration>,
}

impl RoundTrips {
    /// Adds a sample. The least one is of the last one to two `memory`.
    pub(crate) fn add(&mut self, now: Instant, sample: Duration, memory: Duration) {
        self.smoothed = Some(match self.smoothed {
            None => {
                self.variation = sample / 2;
                sample
            }
            Some(smoothed) => {
                self.variation = (self.variation * 3 + smoothed.abs_diff(sample)) / 4;
                (smoothed * 7 + sample) / 8
            }
        });
        let least = &mut self.least;
        let since = *least.since.get_or_insert(now);
        if now.saturating_duration_since(since) > memory {
            least.since = Some(now);
            least.before = least.now.take();
        }
        least.now = Some(least.now.map_or(sample, |least| least.min(sample)));
    }

    /// The smoothed one.
    pub(crate) fn smoothed(&self) -> Option<Duration> {
        self.smoothed
    }

    /// The least of late.
    pub(crate) fn least(&self) -> Option<Duration> {
        [self.least.now, self.least.before]
            .into_iter()
            .flatten()
            .min()
    }

    /// After how long an answer is overdue (RFC 6298 §2.3).
    pub(crate) fn timeout(&self) -> Option<Duration> {
        Some(self.smoothed? + self.variation * 4)
    }

    /// Forgets all: the path is another.
    pub(crate) fn forget(&mut self) {
        *self = Self::default();
    }
}
