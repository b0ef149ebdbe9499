//! Numbers as JSON can say them.

use std::time::Duration;

/// Milliseconds with three digits behind the point.
pub(super) fn millis(duration: Duration) -> Option<f64> {
    // Before the first sample a round trip may stand at infinity.
    (duration < Duration::from_secs(86_400)).then(|| rounded(duration.as_secs_f64() * 1e3))
}

/// JSON knows no infinity.
pub(super) fn finite(number: f64) -> Option<f64> {
    number.is_finite().then(|| (number * 1e6).round() / 1e6)
}

pub(super) fn rounded(number: f64) -> f64 {
    (number * 1e3).round() / 1e3
}
