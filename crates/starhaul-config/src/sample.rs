//! A sample of a configuration, in which every key appears, made from its definition.

use std::fmt::Write as _;

use crate::{
    definition::{Definition, Key, Kind, Place, When},
    reference,
};

/// Columns of a comment.
const WIDTH: usize = 110;
/// Columns of a key with its comment beside it, and where that begins.
const MOST_BESIDE: usize = 140;
const BESIDE: usize = 32;

/// One line of a sample, before it is written.
pub(crate) struct Line {
    /// The table in which it is, and the how manieth example of that.
    pub(crate) place: Place,
    pub(crate) example: usize,
    pub(crate) content: Content,
}

pub(crate) enum Content {
    /// The introduction of a table or of a further example, then its header.
    Header(String),
    /// A key with a value in TOML.
    Key {
        key: &'static Key,
        value: String,
        is_written: bool,
        /// Where it is possible, if that is not here.
        condition: Option<String>,
    },
}

/// A sample: comments are the first sentences of the reference, keys that no example writes are in comments and show their
/// defaults or what is possible.
pub fn sample(top: &'static Definition) -> String {
    let mut text = String::new();
    let mut told: Vec<&Key> = Vec::new();
    for line in lines(top) {
        let (key, value, is_written, condition) = match line.content {
            Content::Header(introduction) => {
                if !text.is_empty() {
                    text.push('\n');
                }
                comment(&introduction, &mut text);
                let header = line.place.header();
                if !header.is_empty() {
                    let _ = writeln!(text, "{header}");
                }
                continue;
            }
            Content::Key {
                key,
                value,
                is_written,
                condition,
            } => (key, value, is_written, condition),
        };
        let mark = if is_written { "" } else { "# " };
        let condition = condition.map_or_else(String::new, |condition| format!("{condition}: "));
        let shown = format!("{mark}{condition}{} = {value}", key.name);
        // A key that tables share is explained once.
        let said = match told.contains(&key) {
            true => String::new(),
            false => hint(key),
        };
        told.push(key);
        let beside = format!("{shown:<BESIDE$}# {said}");
        match (line.place.path.as_str(), said.as_str()) {
            ("", said) => {
                text.push('\n');
                comment(said, &mut text);
                let _ = writeln!(text, "{shown}");
            }
            (_, "") => {
                let _ = writeln!(text, "{shown}");
            }
            _ if beside.chars().count() <= MOST_BESIDE && shown.len() < BESIDE => {
                let _ = writeln!(text, "{beside}");
            }
            _ => {
                let joined = format!("{shown} # {said}");
                if joined.chars().count() <= MOST_BESIDE {
                    let _ = writeln!(text, "{joined}");
                } else {
                    comment(&said, &mut text);
                    let _ = writeln!(text, "{shown}");
                }
            }
        }
    }
    text
}

/// The lines of the sample, table by table.
pub(crate) fn lines(top: &'static Definition) -> Vec<Line> {
    let mut lines = Vec::new();
    for place in top.tables() {
        for (index, example) in place.definition.examples.iter().enumerate() {
            let introduction = match index {
                0 => place.definition.introduction,
                _ => "",
            };
            let introduction = format!("{introduction} {}", example.comment);
            let mut add = |content| {
                lines.push(Line {
                    place: place.clone(),
                    example: index,
                    content,
                });
            };
            add(Content::Header(introduction.trim().to_owned()));
            for key in place.definition.keys() {
                let mut written = example.written.iter();
                let written = written.find(|(name, _)| *name == key.name);
                let is_table = matches!(key.kind, Kind::Table(_) | Kind::Tables(_));
                if is_table || (written.is_none() && index > 0) {
                    continue;
                }
                add(Content::Key {
                    key,
                    value: written.map_or_else(|| key.value(), |(_, value)| (*value).to_owned()),
                    is_written: written.is_some(),
                    condition: match written {
                        Some(_) => None,
                        None => condition(key, place.definition, example.written),
                    },
                });
            }
        }
    }
    lines
}

/// What would have to be otherwise for a key to be possible.
fn condition(key: &Key, table: &Definition, written: &[(&str, &str)]) -> Option<String> {
    match key.when {
        When::Always => None,
        When::InsteadOf(other) => Some(format!("instead of {other}")),
        When::In(programs) => Some(programs.to_owned()),
        When::With(others) => {
            let (name, value) = others.first()?;
            let is_written = written.contains(&(name, value));
            let is_shown = table.key(name).is_some_and(|key| key.value() == *value)
                && !written.iter().any(|(written, _)| written == name);
            (!is_written && !is_shown).then(|| format!("with {name} = {value}"))
        }
    }
}

/// The comment of a key: the first sentence of its meaning, and its range.
fn hint(key: &Key) -> String {
    let plain = reference::plain(key.meaning);
    let first = plain.split_once(". ").map_or(&*plain, |(first, _)| first);
    let range = match &key.kind {
        Kind::Words(words) => reference::alternatives(words, ""),
        kind => reference::range(kind),
    };
    match range.as_str() {
        "" => first.trim_end_matches('.').to_owned(),
        range => format!("{} ({range})", first.trim_end_matches('.')),
    }
}

/// Writes a comment in lines of bounded length.
fn comment(said: &str, text: &mut String) {
    for said in said.lines() {
        let mut line = String::new();
        for word in said.split_whitespace() {
            if !line.is_empty() && line.chars().count() + word.chars().count() > WIDTH {
                let _ = writeln!(text, "#{line}");
                line.clear();
            }
            line.push(' ');
            line.push_str(word);
        }
        if !line.is_empty() {
            let _ = writeln!(text, "#{line}");
        }
    }
}
