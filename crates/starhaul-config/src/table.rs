//! Reads tables of a TOML document key by key, so that every complaint names file, line, key and, for a key that
//! does not exist, the nearest one that does.

use std::{fmt::Display, time::Duration};

use starhaul_units::{Bandwidth, parse_duration_in};
use toml::{
    Spanned,
    de::{DeTable, DeValue},
};

use crate::{
    Document, Error, choice, definition,
    definition::{Definition, Key, Kind, Preset},
    size,
};

/// A table of the document, all of whose keys are defined. A method with a key gives what is written, else its default, else the
/// error that it is missing; with `_if` nothing in place of that error.
pub struct Table<'d> {
    document: &'d Document<'d>,
    /// `None`: it is not written.
    entries: Option<&'d DeTable<'d>>,
    definition: &'static Definition,
    /// For messages: `[[session]]`, or nothing at the top.
    title: String,
    start: usize,
}

impl<'d> Document<'d> {
    /// The top table.
    ///
    /// # Errors
    /// A key that is not defined.
    pub fn top(
        &'d self,
        tree: &'d Spanned<DeTable<'d>>,
        definition: &'static Definition,
    ) -> Result<Table<'d>, Error> {
        let table = Table {
            document: self,
            entries: Some(tree.get_ref()),
            definition,
            title: String::new(),
            start: 0,
        };
        table.refuse_unknown()?;
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
            .entry(key)
            .map_or(self.start, |value| value.span().start);
        self.document
            .error(Some(start), self.titled(&format!("{key}: {problem}")))
    }

    /// Whether such a table may have the key.
    pub fn defines(&self, key: &str) -> bool {
        self.definition.key(key).is_some()
    }

    /// Whether the key is there.
    pub fn has(&self, key: &str) -> bool {
        debug_assert!(self.definition.key(key).is_some(), "undefined: {key}");
        self.entry(key).is_some()
    }

    /// The first of these keys that is written; a table that does not define one of them has none of that name.
    pub fn first_of<'k>(&self, keys: impl IntoIterator<Item = &'k str>) -> Option<&'k str> {
        keys.into_iter().find(|key| self.entry(key).is_some())
    }

    /// The error for a key that must be there.
    pub fn missing(&self, key: &str) -> Error {
        self.problem(format!(
            "the key {key:?} is missing{}",
            self.suggestion(key, ": write ")
        ))
    }

    /// A text that `read` understands.
    ///
    /// # Errors
    /// It is missing, or wrong, as with all that follow.
    pub fn text<T, E: Display>(
        &self,
        key: &str,
        read: impl FnOnce(&str) -> Result<T, E>,
    ) -> Result<T, Error> {
        self.text_if(key, read)?.ok_or_else(|| self.missing(key))
    }

    /// The same where it may be absent.
    pub fn text_if<T, E: Display>(
        &self,
        key: &str,
        read: impl FnOnce(&str) -> Result<T, E>,
    ) -> Result<Option<T>, Error> {
        let defined = self.defined(key)?;
        let text = match (self.entry(key).map(Spanned::get_ref), self.preset(defined)?) {
            (Some(DeValue::String(text)), _) => text,
            (Some(other), _) => {
                let example = self.suggestion(key, ", for example ");
                let problem = format!("write a text in quotes, not {}{example}", kind(other));
                return Err(self.key_problem(key, problem));
            }
            (None, Preset::Text(text)) => text,
            (None, _) => return Ok(None),
        };
        let read = read(text).map(Some);
        read.map_err(|error| self.key_problem(key, error))
    }

    /// One of the choices, whose names are the values of the key.
    pub fn choice<T: Copy>(&self, key: &str, choices: &[(&str, T)]) -> Result<T, Error> {
        self.text(key, |text| choice(text, choices))
    }

    /// The same where it may be absent.
    pub fn choice_if<T: Copy>(&self, key: &str, choices: &[(&str, T)]) -> Result<Option<T>, Error> {
        self.text_if(key, |text| choice(text, choices))
    }

    /// A rate above zero.
    pub fn rate(&self, key: &str) -> Result<Bandwidth, Error> {
        self.rate_if(key)?.ok_or_else(|| self.missing(key))
    }

    /// The same where it may be absent.
    pub fn rate_if(&self, key: &str) -> Result<Option<Bandwidth>, Error> {
        match self.defined(key)?.kind {
            Kind::Rate => self.text_if(key, definition::rate),
            _ => Err(self.undefined(key)),
        }
    }

    /// A duration in the key's range.
    pub fn duration(&self, key: &str) -> Result<Duration, Error> {
        self.duration_if(key)?.ok_or_else(|| self.missing(key))
    }

    /// The same where it may be absent.
    pub fn duration_if(&self, key: &str) -> Result<Option<Duration>, Error> {
        let defined = self.defined(key)?;
        let Kind::Duration(range) = &defined.kind else {
            return Err(self.undefined(key));
        };
        let written = self.text_if(key, |text| parse_duration_in(range.clone(), text))?;
        Ok(written.or(match self.preset(defined)? {
            Preset::Duration(duration) => Some(duration),
            _ => None,
        }))
    }

    /// A size in the key's range, in bytes.
    pub fn size(&self, key: &str) -> Result<u64, Error> {
        self.size_if(key)?.ok_or_else(|| self.missing(key))
    }

    /// The same where it may be absent.
    pub fn size_if(&self, key: &str) -> Result<Option<u64>, Error> {
        let defined = self.defined(key)?;
        let Kind::Size(range) = &defined.kind else {
            return Err(self.undefined(key));
        };
        let written = self.text_if(key, size::between(*range.start(), *range.end()))?;
        let written = written.map(|bytes| bytes as u64);
        Ok(written.or(counted(self.preset(defined)?)))
    }

    /// A size in the key's range that memory can hold, in bytes.
    pub fn bytes(&self, key: &str) -> Result<usize, Error> {
        let bytes = self.size(key)?;
        Ok(usize::try_from(bytes).unwrap_or(usize::MAX))
    }

    /// One text or a list of texts; empty when absent.
    pub fn texts<T, E: Display>(
        &self,
        key: &str,
        read: impl Fn(&str) -> Result<T, E>,
    ) -> Result<Vec<T>, Error> {
        self.defined(key)?;
        let Some(value) = self.entry(key) else {
            return Ok(Vec::new());
        };
        let DeValue::Array(items) = value.get_ref() else {
            return Ok(self.text_if(key, read)?.into_iter().collect());
        };
        let item_problem = |item: &Spanned<DeValue<'_>>, problem: &str| {
            self.document.error(
                Some(item.span().start),
                self.titled(&format!("{key}: {problem}")),
            )
        };
        let wrong = |other: &DeValue<'_>| {
            let example = self.suggestion(key, ", for example ");
            format!("write texts in quotes, not {}{example}", kind(other))
        };
        items
            .iter()
            .map(|item| match item.get_ref() {
                DeValue::String(text) => {
                    read(text).map_err(|error| item_problem(item, &error.to_string()))
                }
                other => Err(item_problem(item, &wrong(other))),
            })
            .collect()
    }

    /// A whole number in the key's range.
    pub fn whole(&self, key: &str) -> Result<u64, Error> {
        self.whole_if(key)?.ok_or_else(|| self.missing(key))
    }

    /// The same where it may be absent.
    pub fn whole_if(&self, key: &str) -> Result<Option<u64>, Error> {
        let defined = self.defined(key)?;
        let Kind::Whole(range) = &defined.kind else {
            return Err(self.undefined(key));
        };
        let number = match self.entry(key).map(Spanned::get_ref) {
            None => return Ok(counted(self.preset(defined)?)),
            Some(DeValue::Integer(text)) => u64::from_str_radix(text.as_str(), text.radix()).ok(),
            Some(_) => None,
        };
        let number = number.filter(|number| range.contains(number));
        number.map(Some).ok_or_else(|| {
            let (least, most) = (range.start(), range.end());
            self.key_problem(key, format!("write a whole number from {least} to {most}"))
        })
    }

    /// A whole number in the key's range, as a count of things.
    pub fn count(&self, key: &str) -> Result<usize, Error> {
        let number = self.whole(key)?;
        Ok(usize::try_from(number).unwrap_or(usize::MAX))
    }

    /// A number in the key's range.
    pub fn number(&self, key: &str) -> Result<f64, Error> {
        let defined = self.defined(key)?;
        let Kind::Number(range) = &defined.kind else {
            return Err(self.undefined(key));
        };
        let preset = self.preset(defined)?;
        let number: Option<f64> = match (self.entry(key).map(Spanned::get_ref), preset) {
            (Some(DeValue::Integer(text)), _) if text.radix() == 10 => text.as_str().parse().ok(),
            (Some(DeValue::Float(text)), _) => text.as_str().parse().ok(),
            (Some(_), _) => None,
            (None, Preset::Number(number)) => Some(number),
            (None, _) => return Err(self.missing(key)),
        };
        let number = number.filter(|number| range.contains(number));
        number.ok_or_else(|| {
            let (least, most) = (range.start(), range.end());
            self.key_problem(key, format!("write a number from {least} to {most}"))
        })
    }

    /// `true` or `false`.
    pub fn flag(&self, key: &str) -> Result<bool, Error> {
        let default = match self.defined(key)? {
            Key {
                kind: Kind::Flag,
                default: Preset::Flag(flag),
                ..
            } => *flag,
            _ => return Err(self.undefined(key)),
        };
        match self.entry(key).map(Spanned::get_ref) {
            None => Ok(default),
            Some(DeValue::Boolean(flag)) => Ok(*flag),
            Some(_) => Err(self.key_problem(key, "write true or false")),
        }
    }

    /// The table `[key]`; as an empty one where it is not written.
    pub fn table(&self, key: &str) -> Result<Table<'d>, Error> {
        let Kind::Table(definition) = self.defined(key)?.kind else {
            return Err(self.undefined(key));
        };
        let absent = || Table {
            document: self.document,
            entries: None,
            definition,
            title: format!("[{key}]"),
            start: self.start,
        };
        Ok(self.table_if(key)?.unwrap_or_else(absent))
    }

    /// The table `[key]`.
    pub fn table_if(&self, key: &str) -> Result<Option<Table<'d>>, Error> {
        let Kind::Table(definition) = self.defined(key)?.kind else {
            return Err(self.undefined(key));
        };
        let Some(value) = self.entry(key) else {
            return Ok(None);
        };
        let DeValue::Table(entries) = value.get_ref() else {
            return Err(self.key_problem(key, format!("write a table: [{key}]")));
        };
        self.child(entries, format!("[{key}]"), value.span().start, definition)
            .map(Some)
    }

    /// The tables `[[key]]`.
    pub fn tables(&self, key: &str) -> Result<Vec<Table<'d>>, Error> {
        let Kind::Tables(definition) = self.defined(key)?.kind else {
            return Err(self.undefined(key));
        };
        let Some(value) = self.entry(key) else {
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
                    self.child(entries, title.clone(), item.span().start, definition)
                }
                _ => Err(wrong()),
            })
            .collect()
    }

    fn entry(&self, key: &str) -> Option<&'d Spanned<DeValue<'d>>> {
        self.entries?.get(key)
    }

    /// What holds for a key that is not written, beside the keys that are.
    fn preset(&self, key: &Key) -> Result<Preset, Error> {
        match key.default {
            _ if self.entry(key.name).is_some() => Ok(key.default),
            Preset::By(other, cases) => {
                let written = match self.entry(other).map(Spanned::get_ref) {
                    Some(DeValue::String(text)) => Some(format!("{text:?}")),
                    _ => self.defined(other)?.default_value(),
                };
                let mut fitting = cases.iter();
                let fitting = fitting.find(|(value, _)| Some(*value) == written.as_deref());
                let preset = fitting.or(cases.last()).map(|(_, preset)| *preset);
                Ok(preset.unwrap_or(key.default))
            }
            Preset::PartOf(other, parts) => Ok(Preset::Count((self.whole(other)? / parts).max(1))),
            preset => Ok(preset),
        }
    }

    /// The definition of a key that the reader asks for.
    fn defined(&self, key: &str) -> Result<&'static Key, Error> {
        let defined = self.definition.key(key);
        defined.ok_or_else(|| self.undefined(key))
    }

    /// The reader asks for a key, or a kind of it, that is not defined.
    fn undefined(&self, key: &str) -> Error {
        debug_assert!(false, "{}: not defined so: {key}", self.title);
        self.key_problem(
            key,
            "it is not defined so: this is a mistake of the program",
        )
    }

    /// What could be written for a key.
    fn suggestion(&self, key: &str, before: &str) -> String {
        let value = self.definition.key(key).map(Key::value);
        let value = value.filter(|value| !value.is_empty());
        value.map_or_else(String::new, |value| format!("{before}{key} = {value}"))
    }

    fn child(
        &self,
        entries: &'d DeTable<'d>,
        title: String,
        start: usize,
        definition: &'static Definition,
    ) -> Result<Table<'d>, Error> {
        let table = Table {
            document: self.document,
            entries: Some(entries),
            definition,
            title,
            start,
        };
        table.refuse_unknown()?;
        Ok(table)
    }

    fn refuse_unknown(&self) -> Result<(), Error> {
        for (key, _) in self.entries.into_iter().flatten() {
            let name: &str = key.get_ref();
            if self.definition.key(name).is_none() {
                let near = nearest(name, &self.definition.names());
                let problem = format!("unknown key {name:?}; {near}");
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

/// The default of a number or size.
fn counted(preset: Preset) -> Option<u64> {
    match preset {
        Preset::Count(count) => Some(count),
        _ => None,
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
