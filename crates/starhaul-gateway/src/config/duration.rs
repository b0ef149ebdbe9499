//! Durations as operators write them: a number and `us`, `ms`, `s`, `min` or `h`.

use std::time::Duration;

/// Reads `800ms`, `1.5s`, `2min`.
pub(super) fn parse(text: &str) -> Result<Duration, String> {
    let error = || {
        format!(
            "{text:?} is not a duration: write a number and us, ms, s, min or h, for example 800ms"
        )
    };
    let text = text.trim();
    let unit = text
        .find(|c: char| !c.is_ascii_digit() && c != '.')
        .ok_or_else(error)?;
    let (number, unit) = text.split_at(unit);
    let seconds_per_unit = match unit.trim_start() {
        "us" => 1e-6,
        "ms" => 1e-3,
        "s" => 1.0,
        "min" => 60.0,
        "h" => 3600.0,
        _ => return Err(error()),
    };
    let number: f64 = number.parse().map_err(|_| error())?;
    Duration::try_from_secs_f64(number * seconds_per_unit).map_err(|_| error())
}

/// Reads a duration from `least` to `most`.
pub(super) fn between(
    least: Duration,
    most: Duration,
) -> impl Fn(&str) -> Result<Duration, String> {
    move |text| {
        let duration = parse(text)?;
        if (least..=most).contains(&duration) {
            Ok(duration)
        } else {
            Err(format!("{text} is outside of {least:?} to {most:?}"))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_what_operators_write() {
        for (text, ms) in [
            ("800ms", 800),
            ("1.5s", 1500),
            ("2 min", 120_000),
            ("1h", 3_600_000),
            ("0ms", 0),
        ] {
            assert_eq!(parse(text), Ok(Duration::from_millis(ms)), "{text}");
        }
        for text in [
            "",
            "800",
            "ms",
            "-1s",
            "1 day",
            "1e9s",
            "1.2.3s",
            "99999999999999999999999h",
        ] {
            assert!(parse(text).is_err(), "{text:?} was accepted");
        }
    }
}
