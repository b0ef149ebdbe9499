//! A Kalman filter for one slowly varying value measured with noise (LeoCC §4.2.1, eq. 2 and that of the RTT). It
//! estimates process and measurement noise from the measurements.

/// Weight of a new measurement in the moments of successive differences; a moment thus covers about 64 measurements.
const MOMENT_SHARE: f64 = 1.0 / 64.0;
/// Lower bound of either noise, as a share of the differences' variance: the gain then stays between about 0.1 and 0.9,
/// so that the filter neither freezes nor copies its input.
const LEAST_NOISE_SHARE: f64 = 0.01;

/// A Kalman filter of a random walk with white measurement noise.
///
/// With estimated noise it follows Mehra (1970): successive differences of the measurements have variance
/// Q + 2R and covariance −R with their predecessors, so both noises follow from two moments.
///
/// ```
/// use starhaul_cc::kalman::Kalman;
/// let mut rate = Kalman::estimating();
/// for n in 0..100 {
///     rate.update(if n % 2 == 0 { 49.0 } else { 51.0 });
/// }
/// assert!((rate.estimate().unwrap() - 50.0).abs() < 0.3);
/// ```
#[derive(Clone, Debug)]
pub struct Kalman {
    estimate: Option<f64>,
    variance: f64,
    noise: Noise,
}

#[derive(Clone, Debug)]
enum Noise {
    Fixed {
        process: f64,
        measurement: f64,
        initial_variance: f64,
    },
    Estimated(Moments),
}

/// Moments of the differences between successive measurements.
#[derive(Clone, Debug, Default)]
struct Moments {
    last: Option<f64>,
    last_difference: Option<f64>,
    variance: f64,
    covariance: f64,
    count: u32,
}

impl Kalman {
    /// Creates a filter that estimates both noises.
    pub fn estimating() -> Self {
        Self::new(Noise::Estimated(Moments::default()))
    }

    /// Creates a filter with known variances: of the value's steps, of the measurements, and of the first estimate.
    pub fn fixed(process: f64, measurement: f64, initial_variance: f64) -> Self {
        Self::new(Noise::Fixed {
            process,
            measurement,
            initial_variance,
        })
    }

    /// Takes a measurement and returns the new estimate. Measurements that are not finite are ignored.
    pub fn update(&mut self, measured: f64) -> Option<f64> {
        if !measured.is_finite() {
            return self.estimate;
        }
        let (process, measurement, initial) = match &mut self.noise {
            Noise::Fixed {
                process,
                measurement,
                initial_variance,
            } => (*process, *measurement, *initial_variance),
            Noise::Estimated(moments) => {
                moments.take(measured);
                let (process, measurement) = moments.noises();
                (process, measurement, measurement)
            }
        };
        let Some(estimate) = self.estimate else {
            self.variance = initial;
            self.estimate = Some(measured);
            return self.estimate;
        };
        let predicted = self.variance + process;
        let whole = predicted + measurement;
        let gain = if whole > 0.0 { predicted / whole } else { 1.0 };
        self.variance = (1.0 - gain) * predicted;
        self.estimate = Some(estimate + gain * (measured - estimate));
        self.estimate
    }

    /// The present estimate; `None` before the first measurement.
    pub fn estimate(&self) -> Option<f64> {
        self.estimate
    }

    /// Discards the estimate after a jump of the value. The noise estimates stay: they describe the measurement.
    pub fn reset(&mut self) {
        self.estimate = None;
        if let Noise::Estimated(moments) = &mut self.noise {
            moments.last = None;
            moments.last_difference = None;
        }
    }

    /// Restarts from a guess that the next measurements may correct quickly.
    pub fn restart_from(&mut self, guess: f64) {
        self.reset();
        if guess.is_finite() {
            self.estimate = Some(guess);
            self.variance = match &self.noise {
                Noise::Fixed {
                    initial_variance, ..
                } => *initial_variance,
                // As uncertain as ten measurements: the first one gets a weight of nine tenths.
                Noise::Estimated(moments) => 10.0 * moments.noises().1,
            };
        }
    }

    fn new(noise: Noise) -> Self {
        Self {
            estimate: None,
            variance: 0.0,
            noise,
        }
    }
}

impl Moments {
    fn take(&mut self, measured: f64) {
        let Some(last) = self.last.replace(measured) else {
            return;
        };
        let difference = measured - last;
        let share = MOMENT_SHARE.max(1.0 / (f64::from(self.count) + 1.0));
        self.count = self.count.saturating_add(1);
        self.variance += share * (difference * difference - self.variance);
        if let Some(before) = self.last_difference.replace(difference) {
            self.covariance += share * (difference * before - self.covariance);
        }
    }

    /// Variances of process and measurement noise.
    fn noises(&self) -> (f64, f64) {
        let least = LEAST_NOISE_SHARE * self.variance;
        let measurement = (-self.covariance).clamp(least, self.variance / 2.0);
        let process = (self.variance - 2.0 * measurement).max(least);
        (process, measurement)
    }
}

#[cfg(test)]
mod tests {
    use rand::{Rng, SeedableRng};
    use rand_chacha::ChaCha8Rng;

    use super::*;

    /// Mean squared error of following `truth` through uniform noise of that half width.
    fn error(filter: &mut Kalman, truth: impl Fn(u32) -> f64, noise: f64, seed: u64) -> f64 {
        let mut rng = ChaCha8Rng::seed_from_u64(seed);
        let mut sum = 0.0;
        for n in 0..1000 {
            let measured = truth(n) + noise * rng.random_range(-1.0..=1.0);
            let estimate = filter.update(measured).unwrap();
            if n >= 100 {
                sum += (estimate - truth(n)).powi(2);
            }
        }
        sum / 900.0
    }

    /// A constant value with strong noise is averaged; a wandering one with little noise is followed. No fixed gain
    /// does both.
    #[test]
    fn learns_when_to_average_and_when_to_follow() {
        let noise_variance = 10.0_f64.powi(2) / 3.0;
        let still = error(&mut Kalman::estimating(), |_| 50.0, 10.0, 1);
        assert!(still < noise_variance / 5.0, "{still} of {noise_variance}");
        let wave = |n: u32| 50.0 + 20.0 * (f64::from(n) / 15.0).sin();
        let moving = error(&mut Kalman::estimating(), wave, 0.5, 2);
        assert!(moving < 0.5, "{moving}");
        let fixed_slow = error(&mut Kalman::fixed(0.01, 1.0, 1.0), wave, 0.5, 2);
        assert!(fixed_slow > 20.0 * moving, "{fixed_slow} against {moving}");
    }

    /// Q = R gives the golden ratio's gain, 0.618: nearly the published code's 0.598, whose integers round.
    #[test]
    fn fixed_noises_give_the_textbook_gain() {
        let mut filter = Kalman::fixed(4.0, 4.0, 25.0);
        for _ in 0..50 {
            filter.update(0.0);
        }
        let gain = filter.update(1.0).unwrap();
        assert!((gain - 0.618).abs() < 0.001, "{gain}");
    }

    #[test]
    fn a_jump_is_taken_at_once_after_a_reset_and_a_guess_is_soon_corrected() {
        let mut filter = Kalman::estimating();
        for n in 0..200 {
            filter.update(if n % 2 == 0 { 48.0 } else { 52.0 });
        }
        let mut kept = filter.clone();
        kept.update(20.0);
        assert!(kept.estimate().unwrap() > 40.0);
        filter.reset();
        assert_eq!(filter.update(20.0), Some(20.0));
        filter.restart_from(60.0);
        filter.update(20.0);
        assert!(filter.estimate().unwrap() < 25.0);
    }

    #[test]
    fn what_is_no_number_changes_nothing() {
        let mut filter = Kalman::estimating();
        filter.update(5.0);
        filter.update(f64::NAN);
        filter.update(f64::INFINITY);
        filter.restart_from(f64::NAN);
        assert_eq!(filter.update(7.0), Some(7.0));
    }
}
