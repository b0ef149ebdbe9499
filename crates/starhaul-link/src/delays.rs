//! Distribution of delays with percentiles exact to 0.1 ms, for the tables of experiments.

use std::time::Duration;

/// Width of a class, which is the resolution of percentiles.
const CLASS: Duration = Duration::from_micros(100);
/// Number of classes; longer delays count in the last one for percentiles, and exactly in means.
const CLASSES: usize = 200_000;

/// A distribution of delays.
#[derive(Clone, Debug, Default)]
pub struct Delays {
    classes: Vec<u32>,
    count: u64,
    sum: Duration,
}

impl Delays {
    /// Adds one delay.
    pub fn add(&mut self, delay: Duration) {
        let class = usize::try_from(delay.as_micros() / CLASS.as_micros())
            .unwrap_or(usize::MAX)
            .min(CLASSES);
        if self.classes.len() <= class {
            self.classes.resize(class + 1, 0);
        }
        if let Some(count) = self.classes.get_mut(class) {
            *count = count.saturating_add(1);
        }
        self.count += 1;
        self.sum = self.sum.saturating_add(delay);
    }

    /// Number and sum of the delays.
    pub fn total(&self) -> (u64, Duration) {
        (self.count, self.sum)
    }

    /// The mean in milliseconds; 0 without any.
    pub fn mean_ms(&self) -> f64 {
        self.sum.as_secs_f64() * 1e3 / real(self.count.max(1))
    }

    /// The least delay that `share` (0.0 to 1.0) of all do not exceed, rounded up to 0.1 ms, in milliseconds; 0 without
    /// any.
    pub fn percentile_ms(&self, share: f64) -> f64 {
        let rank = share * real(self.count);
        let mut below = 0.0;
        for (class, &count) in (1_u64..).zip(&self.classes) {
            below += f64::from(count);
            if below >= rank && count > 0 {
                return real(class) * CLASS.as_secs_f64() * 1e3;
            }
        }
        0.0
    }
}

#[expect(
    clippy::cast_precision_loss,
    reason = "counts of one run stay far below 53 bits"
)]
fn real(count: u64) -> f64 {
    count as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mean_is_exact_and_percentile_to_a_class() {
        let mut delays = Delays::default();
        for ms in 1..=100 {
            delays.add(Duration::from_millis(ms) - Duration::from_micros(50));
        }
        assert!((delays.mean_ms() - 50.45).abs() < 1e-9, "{delays:?}");
        assert!((delays.percentile_ms(0.95) - 95.0).abs() < 1e-9);
        delays.add(Duration::from_secs(3600));
        assert!((delays.percentile_ms(1.0) - 20_000.1).abs() < 1e-6);
        assert_eq!(Delays::default().percentile_ms(0.95), 0.0);
    }
}
