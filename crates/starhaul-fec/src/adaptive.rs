//! The adaptive coding rate of DMTP (§V "Adaptive FEC"): the greatest loss in a moving window of blocks.

use std::collections::VecDeque;

/// Coding rate r/k of a stream, computed from the losses of its last blocks.
///
/// For redundancy sent over another path than most of the data: a loss share L of k fragments needs L·k fragments.
#[derive(Clone, Debug)]
pub struct AdaptiveRate {
    window: usize,
    least: f64,
    most: f64,
    losses: VecDeque<f64>,
}

impl AdaptiveRate {
    /// Creates an estimator over the last `window` blocks (at least 1). The rate stays between `least` and `most`, both
    /// from 0.0 to 1.0; `least` = `most` = 1.0 duplicates every block.
    pub fn new(window: usize, least: f64, most: f64) -> Self {
        let most = share(most);
        Self {
            window: window.max(1),
            least: share(least).min(most),
            most,
            losses: VecDeque::new(),
        }
    }

    /// Adds the share of a block's fragments that was lost (0.0 to 1.0).
    pub fn on_loss(&mut self, lost: f64) {
        if self.losses.len() == self.window {
            self.losses.pop_front();
        }
        self.losses.push_back(share(lost));
    }

    /// Redundancy fragments per data fragment for the next block.
    pub fn rate(&self) -> f64 {
        let greatest = self.losses.iter().copied().fold(0.0, f64::max);
        greatest.clamp(self.least, self.most)
    }

    /// Redundancy fragments for `data` data fragments: the rate, rounded up to whole fragments, limited to the code's
    /// size.
    pub fn redundancy(&self, data: u8) -> u8 {
        let room = u8::MAX - data;
        (0..room)
            .find(|count| f64::from(*count) >= self.rate() * f64::from(data))
            .unwrap_or(room)
    }
}

fn share(value: f64) -> f64 {
    if value.is_nan() {
        0.0
    } else {
        value.clamp(0.0, 1.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_greatest_loss_of_the_window_is_the_rate_until_it_leaves() {
        let mut rate = AdaptiveRate::new(3, 0.0, 0.5);
        assert_eq!(rate.redundancy(20), 0);
        rate.on_loss(0.1);
        assert_eq!((rate.rate(), rate.redundancy(20)), (0.1, 2));
        rate.on_loss(0.0);
        rate.on_loss(0.05);
        assert_eq!(rate.redundancy(20), 2);
        rate.on_loss(0.0);
        assert_eq!(rate.redundancy(20), 1);
    }

    #[test]
    fn the_stream_s_limits_hold() {
        let mut rate = AdaptiveRate::new(10, 0.0, 0.25);
        rate.on_loss(0.9);
        assert_eq!(rate.redundancy(20), 5);
        rate.on_loss(f64::NAN);
        assert_eq!(rate.redundancy(1), 1);
        assert_eq!(rate.redundancy(253), 2);
        assert_eq!(rate.redundancy(255), 0);
    }

    #[test]
    fn rate_one_duplicates() {
        let rate = AdaptiveRate::new(1, 1.0, 1.0);
        for data in [1, 7, 127] {
            assert_eq!(rate.redundancy(data), data);
        }
    }
}
