//! Best value over a sliding window of time or of rounds, as BBR's bandwidth and RTT filters need.
//! A monotone queue: exact while few values compete, and of fixed size when many do.

use std::{collections::VecDeque, ops::Sub, time::Duration, time::Instant};

/// Number of candidates kept behind the best; beyond it the newest replaces the worst.
const MAX_CANDIDATES: usize = 64;

/// A point on the axis along which a window slides: an [`Instant`] or a count of rounds.
pub trait Axis: Copy + Ord + Sub<Output = Self::Span> {
    /// A distance on the axis.
    type Span: Copy + Ord;
}

impl Axis for Instant {
    type Span = Duration;
}

impl Axis for u64 {
    type Span = u64;
}

#[derive(Clone, Copy, Debug)]
enum Best {
    Greatest,
    Least,
}

/// The greatest or least value within a sliding window.
///
/// ```
/// use starhaul_cc::filter::WindowedFilter;
/// let mut rate = WindowedFilter::max(10);
/// rate.update(1, 500);
/// rate.update(2, 300);
/// assert_eq!(rate.best(), Some(500));
/// rate.update(12, 200);
/// assert_eq!(rate.best(), Some(300));
/// ```
#[derive(Clone, Debug)]
pub struct WindowedFilter<V, T: Axis> {
    best: Best,
    window: T::Span,
    candidates: VecDeque<(T, V)>,
}

impl<V: Copy + Ord, T: Axis> WindowedFilter<V, T> {
    /// Creates a filter for the greatest value not older than `window`.
    pub fn max(window: T::Span) -> Self {
        Self::new(Best::Greatest, window)
    }

    /// Creates a filter for the least value not older than `window`.
    pub fn min(window: T::Span) -> Self {
        Self::new(Best::Least, window)
    }

    /// Adds a value measured at `now` and drops those that left the window. Time that runs backwards counts as standing
    /// still.
    pub fn update(&mut self, now: T, value: V) {
        let now = self.candidates.back().map_or(now, |&(at, _)| now.max(at));
        while self
            .candidates
            .back()
            .is_some_and(|&(_, old)| !self.is_better(old, value))
        {
            self.candidates.pop_back();
        }
        if self.candidates.len() == MAX_CANDIDATES {
            self.candidates.pop_back();
        }
        self.candidates.push_back((now, value));
        while self
            .candidates
            .front()
            .is_some_and(|&(at, _)| now - at > self.window)
        {
            self.candidates.pop_front();
        }
    }

    /// Changes the length of the window; takes effect with the next update.
    pub fn set_window(&mut self, window: T::Span) {
        self.window = window;
    }

    /// The best value as of the last update; `None` before the first.
    pub fn best(&self) -> Option<V> {
        self.candidates.front().map(|&(_, value)| value)
    }

    fn new(best: Best, window: T::Span) -> Self {
        Self {
            best,
            window,
            candidates: VecDeque::new(),
        }
    }

    fn is_better(&self, a: V, b: V) -> bool {
        match self.best {
            Best::Greatest => a > b,
            Best::Least => a < b,
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn agrees_with_looking_at_every_value(
            values in prop::collection::vec((0..4u64, 0..1000u32), 1..200),
            window in 0..12u64,
        ) {
            let (mut max, mut min) = (WindowedFilter::max(window), WindowedFilter::min(window));
            let mut now = 0;
            let mut seen = Vec::new();
            for (step, value) in values {
                now += step;
                seen.push((now, value));
                max.update(now, value);
                min.update(now, value);
                let inside = || seen.iter().filter(|(at, _)| now - at <= window).map(|(_, v)| *v);
                prop_assert_eq!(max.best(), inside().max());
                prop_assert_eq!(min.best(), inside().min());
            }
        }
    }

    #[test]
    fn a_long_decline_keeps_the_best_and_stays_small() {
        let start = Instant::now();
        let mut filter = WindowedFilter::max(Duration::from_secs(1));
        for ms in 0..1000u64 {
            filter.update(start + Duration::from_millis(ms), 10_000 - ms);
        }
        assert_eq!(filter.best(), Some(10_000));
        assert!(filter.candidates.len() <= MAX_CANDIDATES);
        filter.update(start + Duration::from_secs(9), 1);
        assert_eq!(filter.best(), Some(1));
    }
}
