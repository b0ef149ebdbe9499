//! A smoothed round-trip time (RFC 6298 §2), in microseconds.

use std::time::Duration;

/// An estimate of a round-trip time.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct RoundTrips {
    smoothed: Option<Duration>,
    variation: Duration,
}

impl RoundTrips {
    /// Adds a sample.
    pub(crate) fn add(&mut self, sample: Duration) {
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
    }

    /// The smoothed one.
    pub(crate) fn smoothed(&self) -> Option<Duration> {
        self.smoothed
    }

    /// After how long an answer is overdue (RFC 6298 §2.3).
    pub(crate) fn timeout(&self) -> Option<Duration> {
        Some(self.smoothed? + self.variation * 4)
    }
}
