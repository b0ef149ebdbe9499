//! Values in the text form of a link: probabilities and times, and the errors of invalid ones.

use std::time::Duration;

use crate::Error;

/// A probability written as a percentage: `0.2%`, `0`; 0–100 %.
pub(crate) fn probability(text: &str) -> Option<f64> {
    if text == "0" {
        return Some(0.0);
    }
    let percent = decimal(text.strip_suffix('%')?)?;
    (percent <= 100.0).then_some(percent / 100.0)
}

/// Reads a time as in the text form of a link: `25ms`, `1.5s`, `300us`, `0`; at most a day.
pub fn parse_duration(text: &str) -> Option<Duration> {
    let (number, scale) = if let Some(number) = text.strip_suffix("ms") {
        (number, 1e-3)
    } else if let Some(number) = text.strip_suffix("us") {
        (number, 1e-6)
    } else if let Some(number) = text.strip_suffix('s') {
        (number, 1.0)
    } else if text == "0" {
        return Some(Duration::ZERO);
    } else {
        return None;
    };
    Duration::try_from_secs_f64(decimal(number)? * scale)
        .ok()
        .filter(|time| *time <= Duration::from_secs(86_400))
}

/// A number in plain decimal notation: no sign, exponent, `inf` or `nan`, which Rust's own parser would accept.
pub(crate) fn decimal(text: &str) -> Option<f64> {
    let plain = text
        .bytes()
        .all(|byte| byte.is_ascii_digit() || byte == b'.');
    text.parse()
        .ok()
        .filter(|number: &f64| plain && number.is_finite())
}

/// The entry of `known` nearest to `wrong`, if one is near.
pub(crate) fn nearest<'a>(wrong: &str, known: &[&'a str]) -> Option<&'a str> {
    let distance = |name: &str| strsim::damerau_levenshtein(wrong, name);
    let near = (wrong.chars().count() / 2).max(1);
    known
        .iter()
        .copied()
        .min_by_key(|name| distance(name))
        .filter(|name| distance(name) <= near)
}

/// The error for the value of a setting.
pub(crate) fn setting(key: &'static str, value: &str, reason: impl ToString) -> Error {
    Error::Setting {
        key,
        value: value.to_owned(),
        reason: reason.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_carries_its_unit_is_accepted() {
        assert_eq!(probability("0.2%"), Some(0.002));
        assert_eq!(probability("0"), Some(0.0));
        for bad in ["0.2", "101%", "-1%", "nan%", "%", "1e1%"] {
            assert_eq!(probability(bad), None, "{bad}");
        }
        assert_eq!(parse_duration("25ms"), Some(Duration::from_millis(25)));
        assert_eq!(parse_duration("1.5s"), Some(Duration::from_millis(1500)));
        assert_eq!(parse_duration("300us"), Some(Duration::from_micros(300)));
        for bad in ["25", "-1ms", "infs", "1e9s", "99999999s", "ms", ""] {
            assert_eq!(parse_duration(bad), None, "{bad}");
        }
    }
}
