//! The text form of a link: the nearest known key, and the errors of invalid values.

use crate::Error;

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
