//! Reads tables of a TOML document key by key, so that every complaint names file, line, key and, for a key that
//! does not exist, the nearest one that does.

use std::{fmt::Display, ops::RangeInclusive, time::Duration};

use starhaul_units::parse_duration_in;
use toml::{
    Spanned,
    de::{DeTable, DeValue},
};

use crate::{Document, Error};

/// The keys that a table may have, in groups that tables share.
pub type Keys = &'static [&'static [&'static str]];

/// A table of the document, all of whose keys are known ones.
pub struct Table<'d> {
    document: &'d Document<'d>,
    entries: &'d DeTable<'d>,
    /// For messages: `[[session]]`, or nothing at the top.
    title: String,
    start: usize,
}

impl<'d> Document<'d> {
    /// The top table.
    pub fn top(&'d self, tree: &'d Spanned<DeTable<'d>>, keys: Keys) -> Result<Table<'d>, Error> {
        let table = Table {
            document: self,
            entries: tree.get_ref(),
            title: String::new(),
            start: 0,
        };
        table.refuse_unknown(keys)?;
        Ok(table)
    }
}

impl<'d> Table<'d> {
    /// An error about this table as a whole.
    pub fn problem(&self, problem: impl Display) -> Error {
        self.document
            .error(Some(self.start), self.titled(&problem.to_string()))
    }

    /// An error about one key, whether it is there or not.
    pub fn key_problem(&self, key: &str, problem: impl Display) -> Error {
        let start = self
            .entries
            .get(key)
            .map_or(self.start, |value| value.span().start);
        self.document
            .error(Some(start), self.titled(&format!("{key}: {problem}")))
    }

    /// Whether the key is there.
    pub fn has(&self, key: &str) -> bool {
        self.entries.contains_key(key)
    }

    /// A text that `read` understands.
    pub fn text<T, E: Display>(
        &self,
        key: &str,
        read: impl FnOnce(&str) -> Result<T, E>,
    ) -> Result<Option<T>, Error> {
        let Some(value) = self.entries.get(key) else {
            return Ok(None);
        };
        match value.get_ref() {
            DeValue::String(text) => read(text)
                .map(Some)
                .map_err(|error| self.key_problem(key, error)),
            other => {
                Err(self.key_problem(key, format!("write a text in quotes, not {}", kind(other))))
            }
        }
    }

    /// A text under a key that must be there.
    pub fn required<T, E: Display>(
        &self,
        key: &str,
        read: impl FnOnce(&str) -> Result<T, E>,
    ) -> Result<T, Error> {
        self.text(key, read)?.ok_or_else(|| self.missing(key))
    }

    /// The error for a key that must be there.
    pub fn missing(&self, key: &str) -> Error {
        self.problem(format!("the key {key:?} is missing"))
    }

    /// A duration in `range`.
    pub fn duration(
        &self,
        key: &str,
        range: RangeInclusive<Duration>,
    ) -> Result<Option<Duration>, Error> {
        self.text(key, |text| parse_duration_in(range, text))
    }

    /// One text or a list of texts; empty when absent.
    pub fn texts<T, E: Display>(
        &self,
        key: &str,
        read: impl Fn(&str) -> Result<T, E>,
    ) -> Result<Vec<T>, Error> {
        let Some(value) = self.entries.get(key) else {
            return Ok(Vec::new());
        };
        let DeValue::Array(items) = value.get_ref() else {
            return Ok(self.text(key, read)?.into_iter().collect());
        };
        let item_problem = |item: &Spanned<DeValue<'_>>, problem: &str| {
            self.document.error(
                Some(item.span().start),
                self.titled(&format!("{key}: {problem}")),
            )
        };
        items
            .iter()
            .map(|item| match item.get_ref() {
                DeValue::String(text) => {
                    read(text).map_err(|error| item_problem(item, &error.to_string()))
                }
                other => Err(item_problem(
                    item,
                    &format!("write texts in quotes, not {}", kind(other)),
                )),
            })
            .collect()
    }

    /// A whole number in `range`.
    pub fn integer(&self, key: &str, range: RangeInclusive<u64>) -> Result<Option<u64>, Error> {
        let Some(value) = self.entries.get(key) else {
            return Ok(None);
        };
        let number = match value.get_ref() {
            DeValue::Integer(text) => u64::from_str_radix(text.as_str(), text.radix()).ok(),
            _ => None,
        };
        match number {
            Some(number) if range.contains(&number) => Ok(Some(number)),
            _ => Err(self.key_problem(
                key,
                format!(
                    "write a whole number from {} to {}",
                    range.start(),
                    range.end()
                ),
            )),
        }
    }

    /// A whole number in `range`, or `default`.
    pub fn count(
        &self,
        key: &str,
        range: RangeInclusive<u64>,
        default: usize,
    ) -> Result<usize, Error> {
        let number = self.integer(key, range)?;
        Ok(number.map_or(default, |number| {
            usize::try_from(number).unwrap_or(usize::MAX)
        }))
    }

    /// A number in `range`.
    pub fn number(&self, key: &str, range: RangeInclusive<f64>) -> Result<Option<f64>, Error> {
        let Some(value) = self.entries.get(key) else {
            return Ok(None);
        };
        let number: Option<f64> = match value.get_ref() {
            DeValue::Integer(text) if text.radix() == 10 => text.as_str().parse().ok(),
            DeValue::Float(text) => text.as_str().parse().ok(),
            _ => None,
        };
        match number {
            Some(number) if range.contains(&number) => Ok(Some(number)),
            _ => Err(self.key_problem(
                key,
                format!("write a number from {} to {}", range.start(), range.end()),
            )),
        }
    }

    /// `true` or `false`.
    pub fn flag(&self, key: &str) -> Result<Option<bool>, Error> {
        match self.entries.get(key).map(Spanned::get_ref) {
            None => Ok(None),
            Some(DeValue::Boolean(flag)) => Ok(Some(*flag)),
            Some(_) => Err(self.key_problem(key, "write true or false")),
        }
    }

    /// The table `[key]`.
    pub fn table(&self, key: &str, keys: Keys) -> Result<Option<Table<'d>>, Error> {
        let Some(value) = self.entries.get(key) else {
            return Ok(None);
        };
        let DeValue::Table(entries) = value.get_ref() else {
            return Err(self.key_problem(key, format!("write a table: [{key}]")));
        };
        self.child(entries, format!("[{key}]"), value.span().start, keys)
            .map(Some)
    }

    /// The tables `[[key]]`.
    pub fn tables(&self, key: &str, keys: Keys) -> Result<Vec<Table<'d>>, Error> {
        let Some(value) = self.entries.get(key) else {
            return Ok(Vec::new());
        };
        let title = match self.title.trim_matches(['[', ']']) {
            "" => format!("[[{key}]]"),
            parent => format!("[[{parent}.{key}]]"),
        };
        let wrong = || self.key_problem(key, format!("write {title} before each of these tables"));
        let DeValue::Array(items) = value.get_ref() else {
            return Err(wrong());
        };
        items
            .iter()
            .map(|item| match item.get_ref() {
                DeValue::Table(entries) => {
                    self.child(entries, title.clone(), item.span().start, keys)
                }
                _ => Err(wrong()),
            })
            .collect()
    }

    fn child(
        &self,
        entries: &'d DeTable<'d>,
        title: String,
        start: usize,
        keys: Keys,
    ) -> Result<Table<'d>, Error> {
        let table = Table {
            document: self.document,
            entries,
            title,
            start,
        };
        table.refuse_unknown(keys)?;
        Ok(table)
    }

    fn refuse_unknown(&self, keys: Keys) -> Result<(), Error> {
        let keys = keys.concat();
        for (key, _) in self.entries {
            let name: &str = key.get_ref();
            if !keys.contains(&name) {
                let problem = format!("unknown key {name:?}; {}", nearest(name, &keys));
                return Err(self
                    .document
                    .error(Some(key.span().start), self.titled(&problem)));
            }
        }
        Ok(())
    }

    fn titled(&self, problem: &str) -> String {
        if self.title.is_empty() {
            problem.to_owned()
        } else {
            format!("{}: {problem}", self.title)
        }
    }
}

/// What to write instead of `wrong`: the nearest of `right`, or all of them when none is near.
pub fn nearest(wrong: &str, right: &[&str]) -> String {
    let best = right
        .iter()
        .map(|key| (strsim::damerau_levenshtein(wrong, key), key))
        .min();
    match best {
        Some((distance, key)) if distance <= 3.max(wrong.chars().count() / 2) => {
            format!("did you mean {key:?}?")
        }
        _ => format!("possible here: {}", right.join(", ")),
    }
}

fn kind(value: &DeValue<'_>) -> &'static str {
    match value {
        DeValue::String(_) => "a text",
        DeValue::Integer(_) | DeValue::Float(_) => "a number",
        DeValue::Boolean(_) => "true or false",
        DeValue::Datetime(_) => "a date",
        DeValue::Array(_) => "a list",
        DeValue::Table(_) => "a table",
    }
}
