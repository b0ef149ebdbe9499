//! The capacity of a ground link between two handovers.

use std::time::Duration;

use starhaul_units::Bandwidth;

/// The rate at `at` of a link between a station and a satellite that it uses from `from` until `to`: half of `base` at both
/// handovers, `base` halfway, and a parabola between: B/2 + 2B(e−t)(t−s)/(e−s)² (the emulation behind LEOTP's table II).
/// Outside of that time, half of `base`.
#[expect(
    clippy::cast_precision_loss,
    reason = "a share of a rate needs no 53rd bit"
)]
pub fn gsl_rate(base: Bandwidth, from: Duration, to: Duration, at: Duration) -> Bandwidth {
    let (Some(whole), Some(done), Some(left)) = (
        to.checked_sub(from),
        at.checked_sub(from),
        to.checked_sub(at),
    ) else {
        return base.scaled(0.5);
    };
    if whole.is_zero() {
        return base.scaled(0.5);
    }
    let share = |part: Duration| part.as_secs_f64() / whole.as_secs_f64();
    let bits = base.bits_per_second() as f64;
    // The product rounds down, and half a bit makes that the nearest.
    base.scaled(0.5 + 2.0 * share(left) * share(done) + 0.5 / bits.max(1.0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_rate_is_a_parabola_between_handovers() {
        let base = Bandwidth::from_mbit(10);
        let at = |seconds: f64| {
            let time = Duration::from_secs_f64(seconds);
            gsl_rate(
                base,
                Duration::from_secs(100),
                Duration::from_secs(200),
                time,
            )
            .mbit()
        };
        for (seconds, mbit) in [
            (100.0, 5.0),
            (125.0, 8.75),
            (150.0, 10.0),
            (175.0, 8.75),
            (200.0, 5.0),
        ] {
            assert!(
                (at(seconds) - mbit).abs() < 1e-6,
                "{seconds} s: {}",
                at(seconds)
            );
        }
        assert_eq!((at(10.0), at(300.0)), (5.0, 5.0));
        // Its mean is 5/6 of the base.
        let mean = (0..1000)
            .map(|step| at(100.05 + f64::from(step) / 10.0))
            .sum::<f64>()
            / 1000.0;
        assert!((mean - 50.0 / 6.0).abs() < 1e-4, "{mean}");
        assert_eq!(
            gsl_rate(base, Duration::ZERO, Duration::ZERO, Duration::ZERO),
            Bandwidth::from_mbit(5)
        );
    }
}
