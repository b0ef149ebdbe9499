//! Values as the reference and messages show them.

use std::time::Duration;

const UNITS: [(&str, u128); 5] = [
    ("h", 3_600_000_000_000),
    ("min", 60_000_000_000),
    ("s", 1_000_000_000),
    ("ms", 1_000_000),
    ("us", 1_000),
];

/// A duration in the largest unit that keeps it whole, with `space` before the unit.
pub(crate) fn duration(duration: Duration, space: &str) -> String {
    let nanos = duration.as_nanos();
    let whole = |(_, unit): &&(&str, u128)| nanos > 0 && nanos.is_multiple_of(*unit);
    match UNITS.iter().find(whole) {
        Some((name, unit)) => format!("{}{space}{name}", nanos / unit),
        None => format!("{}{space}s", duration.as_secs_f64()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_are_shown_in_their_largest_unit() {
        for (millis, shown) in [
            (0, "0 s"),
            (45, "45 ms"),
            (1_500, "1500 ms"),
            (120_000, "2 min"),
            (86_400_000, "24 h"),
        ] {
            assert_eq!(duration(Duration::from_millis(millis), " "), shown);
        }
    }
}
