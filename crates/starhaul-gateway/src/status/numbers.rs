//! Numbers in the form of the status: finite, and rounded.

use std::time::Duration;

/// Milliseconds with three decimals.
pub(super) fn millis(duration: Duration) -> Option<f64> {
    // Without a sample an RTT may be infinite.
    (duration < Duration::from_secs(86_400)).then(|| rounded(duration.as_secs_f64() * 1e3))
}

/// The number with six decimals; `None` for infinity, which JSON lacks.
pub(super) fn finite(number: f64) -> Option<f64> {
    number.is_finite().then(|| (number * 1e6).round() / 1e6)
}

pub(super) fn rounded(number: f64) -> f64 {
    (number * 1e3).round() / 1e3
}
