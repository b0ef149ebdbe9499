//! The most frequent mistake in a TOML file: a text without quotes.

use std::net::SocketAddr;

use toml::de::DeTable;

/// How the names of keys end whose values are secrets.
const SECRETS: [&str; 2] = ["password", "secret"];
/// Stands for such a value.
const HIDDEN: &str = "…";

/// What to write, if the mistake at this place of the text is a missing quote.
pub(crate) fn missing(text: &str, offset: usize) -> Option<String> {
    let start = text.get(..offset)?.rfind('\n').map_or(0, |end| end + 1);
    let line = text.get(start..)?.lines().next()?;
    if line.trim_start().starts_with('[') {
        return None;
    }
    let (key, value) = match line.split_once('=') {
        Some((key, value)) => (Some(key.trim()), value),
        // A list over several lines.
        None => (None, line),
    };
    let value = value.split('#').next()?.trim();
    if let Some(key) = key {
        let inner = value.trim_matches(['“', '”', '„', '‘', '’', '»', '«']);
        let of_another_kind = inner != value;
        let bare = inner.parse::<SocketAddr>().is_ok() || !inner.starts_with(['[', '{']);
        if bare && (of_another_kind || needs_quotes(inner)) {
            let shown = if holds_secret(line) { HIDDEN } else { inner };
            return Some(format!("write texts in quotes: {key} = \"{shown}\""));
        }
    }
    let here = offset.checked_sub(start)?;
    let is_end = |c: char| c.is_whitespace() || ",[]{}\"'#=".contains(c);
    let from = line.get(..here)?.rfind(is_end).map_or(0, |end| end + 1);
    let item = line.get(from..)?;
    let item = item.get(..item.find(is_end).unwrap_or(item.len()))?;
    (key.is_none() || value.starts_with('['))
        .then_some(item)
        .filter(|item| needs_quotes(item))
        .map(|item| {
            let shown = if holds_secret(line) { HIDDEN } else { item };
            format!("write texts in quotes: \"{shown}\"")
        })
}

/// Whether the value of a key on this line is a secret, which must not get into logs.
fn holds_secret(line: &str) -> bool {
    let line = line.to_ascii_lowercase();
    let keys = line.rsplit_once('=').map(|(keys, _)| keys.split('='));
    keys.into_iter().flatten().any(|key| {
        let key = key.trim_end().trim_end_matches(['"', '\'']);
        SECRETS.iter().any(|name| key.ends_with(name))
    })
}

/// Whether this is no TOML value, but would be one with quotes.
fn needs_quotes(value: &str) -> bool {
    let is_value = |value: &str| DeTable::parse(&format!("x = {value}")).is_ok();
    !value.is_empty()
        && !value.contains(['"', '\'', '\\'])
        && !value.contains(char::is_whitespace)
        && !is_value(value)
        && is_value(&format!("\"{value}\""))
}
