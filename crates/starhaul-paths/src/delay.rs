//! Filters for delays and rates: the smoothed mean and variation of RFC 6298 §2, and an extremum over a moving window,
//! so that an outdated minimum expires.

use std::{
    collections::VecDeque,
    time::{Duration, Instant},
};

/// Mean and mean deviation with the gains of RFC 6298 §2, in nanoseconds: each datagram is a sample.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Smoothed {
    mean: u64,
    variation: u64,
}

impl Smoothed {
    pub(crate) fn first(sample: Duration) -> Self {
        let mean = nanos(sample);
        Self {
            mean,
            variation: mean / 2,
        }
    }

    pub(crate) fn add(&mut self, sample: Duration) {
        let sample = nanos(sample);
        let distance = self.mean.abs_diff(sample);
        self.variation = (self.variation * 3 + distance) / 4;
        self.mean = (self.mean * 7 + sample) / 8;
    }

    pub(crate) const fn mean(&self) -> Duration {
        Duration::from_nanos(self.mean)
    }

    pub(crate) const fn variation(&self) -> Duration {
        Duration::from_nanos(self.variation)
    }
}

/// At most 73 years, so that eight times as much can be counted.
fn nanos(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).map_or(u64::MAX / 8, |nanos| nanos.min(u64::MAX / 8))
}

/// Least value of a moving window, kept as the least of each of a few sub-windows.
/// For the greatest, store `std::cmp::Reverse`.
#[derive(Clone, Debug)]
pub(crate) struct WindowedMin<T> {
    window: Duration,
    /// The tenth of it.
    part: Duration,
    /// Start and least value of each sub-window, oldest first.
    parts: VecDeque<(Instant, T)>,
    /// Of all of them: it is asked for far more often than a value is added.
    least: Option<T>,
}

impl<T: Ord + Copy> WindowedMin<T> {
    const PARTS: u32 = 10;

    pub(crate) fn new(window: Duration) -> Self {
        Self {
            window,
            part: window / Self::PARTS,
            parts: VecDeque::new(),
            least: None,
        }
    }

    pub(crate) fn add(&mut self, now: Instant, value: T) {
        while let Some((start, _)) = self.parts.front()
            && now.saturating_duration_since(*start) > self.window
        {
            self.parts.pop_front();
        }
        match self.parts.back_mut() {
            Some((start, least)) if now.saturating_duration_since(*start) < self.part => {
                *least = value.min(*least);
            }
            _ => self.parts.push_back((now, value)),
        }
        self.least = self.parts.iter().map(|(_, least)| *least).min();
    }

    /// Nothing expires while nothing is added: an idle path keeps its last value.
    pub(crate) const fn least(&self) -> Option<T> {
        self.least
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    #[test]
    fn the_least_value_is_forgotten_after_the_window() {
        let start = Instant::now();
        let mut floor = WindowedMin::new(10_000 * MS);
        floor.add(start, 30);
        for second in 1..=9 {
            floor.add(start + second * 1000 * MS, 50);
            assert_eq!(floor.least(), Some(30));
        }
        floor.add(start + 10_001 * MS, 50);
        assert_eq!(floor.least(), Some(50));
    }

    #[test]
    fn the_window_stays_small_however_many_values_it_gets() {
        let start = Instant::now();
        let mut floor = WindowedMin::new(10_000 * MS);
        for tick in 0..100_000u32 {
            floor.add(start + tick * MS, tick);
        }
        assert!(floor.parts.len() <= 12, "{}", floor.parts.len());
    }

    #[test]
    fn mean_and_variation_follow_rfc_6298() {
        let mut smoothed = Smoothed::first(100 * MS);
        assert_eq!(smoothed.variation(), 50 * MS);
        smoothed.add(180 * MS);
        assert_eq!(smoothed.mean(), 110 * MS);
        assert_eq!(smoothed.variation(), Duration::from_micros(57_500));
    }
}
