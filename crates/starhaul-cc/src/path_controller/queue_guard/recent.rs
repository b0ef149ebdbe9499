//! The last round trips of a path. Their least is asked for several times with each acknowledgement, and mostly stays the same.

use std::{
    collections::VecDeque,
    time::{Duration, Instant},
};

/// Round trips, and when they ended, oldest first.
#[derive(Debug, Default)]
pub(super) struct Recent {
    samples: VecDeque<(Instant, Duration)>,
    /// The least of them; zero of none.
    least: Duration,
}

impl Recent {
    /// Adds one, of which no more than the last `most` are kept.
    pub(super) fn push(&mut self, now: Instant, rtt: Duration, most: usize) {
        if self.samples.is_empty() || rtt < self.least {
            self.least = rtt;
        }
        self.samples.push_back((now, rtt));
        if self.samples.len() > most
            && let Some((_, gone)) = self.samples.pop_front()
            && gone == self.least
            && gone != rtt
        {
            let left = self.samples.iter().map(|(_, rtt)| *rtt);
            self.least = left.min().unwrap_or_default();
        }
    }

    pub(super) fn clear(&mut self) {
        *self = Self {
            samples: std::mem::take(&mut self.samples),
            least: Duration::ZERO,
        };
        self.samples.clear();
    }

    pub(super) fn len(&self) -> usize {
        self.samples.len()
    }

    /// The least round trip; zero when there is none.
    pub(super) const fn least(&self) -> Duration {
        self.least
    }

    /// From the end of the first one to that of the last; `None` when there is none.
    pub(super) fn spans(&self) -> Option<Duration> {
        let ((first, _), (last, _)) = self.samples.front().zip(self.samples.back())?;
        Some(last.saturating_duration_since(*first))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn the_least_is_that_of_the_samples(steps in proptest::collection::vec(0u64..8, 0..200)) {
            let now = Instant::now();
            let mut recent = Recent::default();
            let mut kept = VecDeque::new();
            for step in steps {
                match step {
                    0 => {
                        recent.clear();
                        kept.clear();
                    }
                    _ => {
                        let rtt = Duration::from_millis(step);
                        recent.push(now, rtt, 4);
                        kept.push_back(rtt);
                        kept.drain(..kept.len().saturating_sub(4));
                    }
                }
                let least = kept.iter().min().copied().unwrap_or_default();
                prop_assert_eq!((recent.len(), recent.least()), (kept.len(), least));
            }
        }
    }
}
