//! What arrived in each second.

use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};
use starhaul_units::Bandwidth;

use super::MAX_SECONDS;

/// Bytes of the stream that the receiving application read, since the first of them.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Tally {
    /// In each whole second of the transfer; what came after its end is left out.
    pub second_bytes: Vec<u64>,
}

impl Tally {
    /// Bytes of all seconds.
    pub fn bytes(&self) -> u64 {
        self.second_bytes
            .iter()
            .fold(0, |sum, bytes| sum.saturating_add(*bytes))
    }

    /// The mean of all seconds.
    pub fn throughput(&self) -> Bandwidth {
        let seconds = u64::try_from(self.second_bytes.len()).unwrap_or(u64::MAX);
        Bandwidth::from_bytes_over(self.bytes(), Duration::from_secs(seconds))
    }
}

/// A [`Tally`] in the making.
#[derive(Debug)]
pub(super) struct Counter {
    time: Duration,
    first: Option<Instant>,
    tally: Tally,
}

impl Counter {
    pub(super) fn new(time: Duration) -> Self {
        Self {
            time: time.min(Duration::from_secs(MAX_SECONDS.into())),
            first: None,
            tally: Tally::default(),
        }
    }

    pub(super) fn add(&mut self, now: Instant, bytes: usize) {
        let first = *self.first.get_or_insert(now);
        let at = now.saturating_duration_since(first);
        let Some(second) = usize::try_from(at.as_secs())
            .ok()
            .filter(|_| at < self.time)
        else {
            return;
        };
        if self.tally.second_bytes.len() <= second {
            self.tally.second_bytes.resize(second + 1, 0);
        }
        if let Some(sum) = self.tally.second_bytes.get_mut(second) {
            *sum = sum.saturating_add(bytes as u64);
        }
    }

    /// Seconds at the end in which nothing came count as such.
    pub(super) fn finish(mut self) -> Tally {
        let seconds = usize::try_from(self.time.as_secs()).unwrap_or(usize::MAX);
        self.tally.second_bytes.resize(seconds, 0);
        self.tally
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn seconds_begin_with_the_first_byte_and_end_with_the_transfer() {
        let start = Instant::now();
        let mut counter = Counter::new(Duration::from_secs(3));
        for (ms, bytes) in [(500, 1), (1499, 2), (1500, 4), (3499, 8), (3500, 16)] {
            counter.add(start + Duration::from_millis(ms), bytes);
        }
        let tally = counter.finish();
        assert_eq!(tally.second_bytes, [3, 4, 8]);
        assert_eq!(tally.throughput().bits_per_second(), 15 * 8 / 3);
        let nothing = Counter::new(Duration::from_secs(2)).finish();
        assert_eq!(nothing.second_bytes, [0, 0]);
    }
}
