//! Durations and shares as people write them, in configurations, link descriptions and on the command line alike.

use std::{ops::RangeInclusive, time::Duration};

/// The longest duration that can be written where no range is given.
const DAY: Duration = Duration::from_secs(86_400);

/// The text is not a duration, or not one that is possible at its place.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ParseDurationError {
    /// It has another form, or is longer than a day.
    #[error("{0:?} is not a duration: write a number and us, ms, s, min or h, for example 800ms")]
    Form(String),
    /// It is out of range.
    #[error("{0} is outside of {least:?} to {most:?}", least = .1.start(), most = .1.end())]
    Range(String, RangeInclusive<Duration>),
}

/// The text is not a share.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is not a share: write 0% to 100%, or 0 to 1, for example 0.2% or 0.002")]
pub struct ParseShareError(String);

/// Reads a duration of at most a day: `300us`, `25ms`, `1.5s`, `2min`, `1h`, `0`.
///
/// # Errors
/// The text is not such a duration.
pub fn parse_duration(text: &str) -> Result<Duration, ParseDurationError> {
    let duration = unbounded_duration(text)?;
    let form = || ParseDurationError::Form(text.to_owned());
    (duration <= DAY).then_some(duration).ok_or_else(form)
}

fn unbounded_duration(text: &str) -> Result<Duration, ParseDurationError> {
    let error = || ParseDurationError::Form(text.to_owned());
    let trimmed = text.trim();
    let unit = trimmed.find(|c: char| !c.is_ascii_digit() && c != '.');
    let (number, unit) = trimmed.split_at(unit.unwrap_or(trimmed.len()));
    let seconds_per_unit = match unit.trim_start() {
        "us" => 1e-6,
        "ms" => 1e-3,
        "s" => 1.0,
        "min" => 60.0,
        "h" => 3600.0,
        "" if number == "0" => 0.0,
        _ => return Err(error()),
    };
    let seconds = parse_decimal(number).ok_or_else(error)? * seconds_per_unit;
    Duration::try_from_secs_f64(seconds).map_err(|_| error())
}

/// Reads a duration in `range`, which may go beyond a day.
///
/// # Errors
/// The text is not a duration, or is out of range.
pub fn parse_duration_in(
    range: RangeInclusive<Duration>,
    text: &str,
) -> Result<Duration, ParseDurationError> {
    let duration = unbounded_duration(text)?;
    match range.contains(&duration) {
        true => Ok(duration),
        false => Err(ParseDurationError::Range(text.to_owned(), range)),
    }
}

/// Reads a share from 0 to 1, as a percentage or as a number: `0.2%`, `0.002`.
///
/// # Errors
/// The text is not such a share.
pub fn parse_share(text: &str) -> Result<f64, ParseShareError> {
    let share = match text.trim().strip_suffix('%') {
        Some(percent) => parse_decimal(percent.trim_end()).map(|percent| percent / 100.0),
        None => parse_decimal(text.trim()),
    };
    let share = share.filter(|share| *share <= 1.0);
    share.ok_or_else(|| ParseShareError(text.to_owned()))
}

/// Reads a number in plain decimal notation: no sign, exponent, `inf` or `nan`, which Rust's own parser would accept.
pub fn parse_decimal(text: &str) -> Option<f64> {
    let plain = |byte: u8| byte.is_ascii_digit() || byte == b'.';
    let number = text.bytes().all(plain).then(|| text.parse().ok())?;
    number.filter(|number: &f64| number.is_finite())
}

/// Reads a number as programs write tables: that of [`parse_decimal`], or one with an exponent, `5e-05`.
pub fn parse_number(text: &str) -> Option<f64> {
    let Some((digits, exponent)) = text.split_once(['e', 'E']) else {
        return parse_decimal(text);
    };
    parse_decimal(digits)?;
    exponent.parse::<i16>().ok()?;
    text.parse().ok().filter(|number: &f64| number.is_finite())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_carry_their_unit() {
        for (text, millis) in [
            ("800ms", 800.0),
            ("1.5s", 1500.0),
            ("2min", 120_000.0),
            ("1h", 3_600_000.0),
            ("300us", 0.3),
            (" 5 s ", 5000.0),
            ("0", 0.0),
            ("24h", 86_400_000.0),
        ] {
            let expected = Duration::from_secs_f64(millis / 1e3);
            assert_eq!(parse_duration(text), Ok(expected), "{text}");
        }
        for bad in [
            "",
            "25",
            "ms",
            "-1ms",
            "infs",
            "1e9s",
            "99999999s",
            "1.2.3s",
            "5 sec",
            "25h",
        ] {
            assert!(parse_duration(bad).is_err(), "{bad:?} was read");
        }
    }

    #[test]
    fn tables_may_have_exponents_and_no_other_notation() {
        for (text, number) in [
            ("5e-05", 5e-5),
            ("1E3", 1e3),
            ("2.5e+01", 25.0),
            ("0.5", 0.5),
        ] {
            assert_eq!(parse_number(text), Some(number), "{text}");
        }
        for bad in [
            "", "e", "1e", "e5", "-1", "-1e3", "+1", "1e400", "inf", "nan", "1e2e3", "1e1.5",
        ] {
            assert_eq!(parse_number(bad), None, "{bad:?} was read");
        }
        assert_eq!(parse_decimal("5e-05"), None);
    }

    #[test]
    fn a_range_is_told_where_a_duration_is_outside() {
        let range = Duration::from_millis(2)..=Duration::from_millis(100);
        let read = parse_duration_in(range.clone(), "100ms");
        assert_eq!(read, Ok(Duration::from_millis(100)));
        let error = parse_duration_in(range, "1s").unwrap_err();
        assert_eq!(error.to_string(), "1s is outside of 2ms to 100ms");
        let month = Duration::from_secs(30 * 86_400);
        assert_eq!(parse_duration_in(DAY..=month, "720h"), Ok(month));
    }

    #[test]
    fn shares_are_percentages_or_numbers_up_to_one() {
        for (text, share) in [
            ("0.2%", 0.002),
            ("0.002", 0.002),
            ("0", 0.0),
            ("100%", 1.0),
            ("1", 1.0),
            ("2 %", 0.02),
        ] {
            assert_eq!(parse_share(text), Ok(share), "{text}");
        }
        for bad in ["", "2", "101%", "-1%", "nan%", "%", "1e1%", "inf"] {
            assert!(parse_share(bad).is_err(), "{bad:?} was read");
        }
    }
}
