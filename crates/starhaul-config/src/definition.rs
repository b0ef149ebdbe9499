//! What each table of a configuration may hold, told once: a reader takes kinds, ranges and defaults from here, and sample,
//! reference and manual page are made of it.

use std::{ops::RangeInclusive, time::Duration};

use starhaul_units::Bandwidth;

use crate::{show, size};

/// A table: its keys, and what the sample shows of them.
#[derive(Debug, PartialEq)]
pub struct Definition {
    /// What it is for: plain sentences, before the table in the sample and in a manual page.
    pub introduction: &'static str,
    /// Its keys, in groups that tables share.
    pub keys: &'static [&'static [Key]],
    /// The tables of this kind in the sample. The first shows all keys, the others what they write.
    pub examples: &'static [Example],
}

/// A table of the sample.
#[derive(Debug, PartialEq)]
pub struct Example {
    /// What is shown by it, beside the introduction.
    pub comment: &'static str,
    /// The keys that it writes, with their values in TOML; others are in comments.
    pub written: &'static [(&'static str, &'static str)],
}

/// A key of a table.
#[derive(Debug, PartialEq)]
pub struct Key {
    /// Name of the key.
    pub name: &'static str,
    /// The kind and range of its values.
    pub kind: Kind,
    /// The value that holds without the key.
    pub default: Preset,
    /// A value in TOML, for the sample and for error messages, where the default is none.
    pub example: &'static str,
    /// What it does, in Markdown. The first sentence is its comment in the sample.
    pub meaning: &'static str,
    /// The tables and programs in which the key is possible.
    pub when: When,
}

/// What a key may hold.
#[derive(Debug, PartialEq)]
pub enum Kind {
    /// A duration in a range.
    Duration(RangeInclusive<Duration>),
    /// A rate above zero.
    Rate,
    /// A size in a range of bytes.
    Size(RangeInclusive<u64>),
    /// A whole number in a range.
    Whole(RangeInclusive<u64>),
    /// A number in a range.
    Number(RangeInclusive<f64>),
    /// `true` or `false`.
    Flag,
    /// One of these values.
    Words(&'static [&'static str]),
    /// A text of another kind, as it is called in the reference; the reader knows what it may be.
    Text(&'static str),
    /// One such text or a list of them, as they are called.
    Texts(&'static str),
    /// The table `[key]`.
    Table(&'static Definition),
    /// The tables `[[key]]`.
    Tables(&'static Definition),
}

/// What holds where a key is not written.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Preset {
    /// It must be written.
    Required,
    /// No value of its own; in Markdown, what holds then.
    None(&'static str),
    /// A default that is a duration.
    Duration(Duration),
    /// So many, or so many bytes.
    Count(u64),
    /// A default that is a number.
    Number(f64),
    /// A default that is `true` or `false`.
    Flag(bool),
    /// A default that is a text.
    Text(&'static str),
    /// What another key of the table decides: the default for each of its values in TOML, the last one for all others.
    By(&'static str, &'static [(&'static str, Preset)]),
    /// One of so many parts of the number of another key of the table, at least 1.
    PartOf(&'static str, u64),
}

/// Where a key is possible.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum When {
    /// In every table of this kind.
    Always,
    /// Beside these keys with these values in TOML; the first one is told.
    With(&'static [(&'static str, &'static str)]),
    /// In place of another key.
    InsteadOf(&'static str),
    /// In the programs that this text names alone.
    In(&'static str),
}

impl Definition {
    /// Keys of the table, in order.
    pub fn keys(&self) -> impl Iterator<Item = &'static Key> + use<> {
        self.keys.iter().copied().flatten()
    }

    /// The key of this name.
    pub fn key(&self, name: &str) -> Option<&'static Key> {
        self.keys().find(|key| key.name == name)
    }

    /// Its names, for what is near a wrong one.
    pub(crate) fn names(&self) -> Vec<&'static str> {
        self.keys().map(|key| key.name).collect()
    }

    /// This table and those below it with their paths (`session.path`), in the order of their keys.
    pub fn tables(&'static self) -> Vec<Place> {
        let top = Place {
            path: String::new(),
            is_one: true,
            definition: self,
        };
        let mut found = vec![top];
        self.add_tables("", &mut found);
        found
    }

    fn add_tables(&self, path: &str, found: &mut Vec<Place>) {
        for key in self.keys() {
            let (is_one, definition) = match key.kind {
                Kind::Table(definition) => (true, definition),
                Kind::Tables(definition) => (false, definition),
                _ => continue,
            };
            let path = match path {
                "" => key.name.to_owned(),
                path => format!("{path}.{}", key.name),
            };
            found.push(Place {
                path: path.clone(),
                is_one,
                definition,
            });
            definition.add_tables(&path, found);
        }
    }
}

/// A table and where it is.
#[derive(Clone, Debug)]
pub struct Place {
    /// Its names with dots, empty at the top.
    pub path: String,
    /// Whether there is one at most.
    pub is_one: bool,
    /// Keys and tables that it may hold.
    pub definition: &'static Definition,
}

impl Place {
    /// As in a file: `[[session.path]]`; empty at the top.
    pub fn header(&self) -> String {
        match (self.path.as_str(), self.is_one) {
            ("", _) => String::new(),
            (path, true) => format!("[{path}]"),
            (path, false) => format!("[[{path}]]"),
        }
    }
}

impl Key {
    const fn new(name: &'static str, kind: Kind) -> Self {
        Self {
            name,
            kind,
            default: Preset::Required,
            example: "",
            meaning: "",
            when: When::Always,
        }
    }

    /// A duration in a range.
    pub const fn duration(name: &'static str, range: RangeInclusive<Duration>) -> Self {
        Self::new(name, Kind::Duration(range))
    }

    /// A rate above zero.
    pub const fn rate(name: &'static str) -> Self {
        Self::new(name, Kind::Rate)
    }

    /// A size in a range of bytes.
    pub const fn size(name: &'static str, range: RangeInclusive<u64>) -> Self {
        Self::new(name, Kind::Size(range))
    }

    /// A whole number in a range.
    pub const fn whole(name: &'static str, range: RangeInclusive<u64>) -> Self {
        Self::new(name, Kind::Whole(range))
    }

    /// A number in a range.
    pub const fn number(name: &'static str, range: RangeInclusive<f64>) -> Self {
        Self::new(name, Kind::Number(range))
    }

    /// `true` or `false`.
    pub const fn flag(name: &'static str) -> Self {
        Self::new(name, Kind::Flag)
    }

    /// One of these values.
    pub const fn words(name: &'static str, words: &'static [&'static str]) -> Self {
        Self::new(name, Kind::Words(words))
    }

    /// A text that is called so.
    pub const fn text(name: &'static str, called: &'static str) -> Self {
        Self::new(name, Kind::Text(called))
    }

    /// One text or a list of texts that are called so; none by default.
    pub const fn texts(name: &'static str, called: &'static str) -> Self {
        Self::new(name, Kind::Texts(called)).or_none("none")
    }

    /// The table `[name]`.
    pub const fn table(name: &'static str, definition: &'static Definition) -> Self {
        Self::new(name, Kind::Table(definition)).or_none("none")
    }

    /// The tables `[[name]]`.
    pub const fn tables(name: &'static str, definition: &'static Definition) -> Self {
        Self::new(name, Kind::Tables(definition)).or_none("none")
    }

    /// What it does, in Markdown.
    pub const fn means(self, meaning: &'static str) -> Self {
        Self { meaning, ..self }
    }

    /// A value in TOML.
    pub const fn such_as(self, example: &'static str) -> Self {
        Self { example, ..self }
    }

    /// It must be written, though one of its kind need not be.
    pub const fn required(self) -> Self {
        self.or_preset(Preset::Required)
    }

    /// It may be left out: what holds then, in Markdown.
    pub const fn or_none(self, words: &'static str) -> Self {
        self.or_preset(Preset::None(words))
    }

    /// It may be left out for this text.
    pub const fn or(self, text: &'static str) -> Self {
        self.or_preset(Preset::Text(text))
    }

    /// It may be left out for so many, or for so many bytes.
    pub const fn or_count(self, count: u64) -> Self {
        self.or_preset(Preset::Count(count))
    }

    /// It may be left out for this duration.
    pub const fn or_duration(self, duration: Duration) -> Self {
        self.or_preset(Preset::Duration(duration))
    }

    /// It may be left out for this number.
    pub const fn or_number(self, number: f64) -> Self {
        self.or_preset(Preset::Number(number))
    }

    /// It may be left out for this truth.
    pub const fn or_flag(self, flag: bool) -> Self {
        self.or_preset(Preset::Flag(flag))
    }

    /// It may be left out for what another key decides: the default for each of its values in TOML, the last one for all others.
    pub const fn or_by(
        self,
        other: &'static str,
        cases: &'static [(&'static str, Preset)],
    ) -> Self {
        self.or_preset(Preset::By(other, cases))
    }

    /// It may be left out for one of so many parts of the number of another key, at least 1.
    pub const fn or_part_of(self, other: &'static str, parts: u64) -> Self {
        self.or_preset(Preset::PartOf(other, parts))
    }

    const fn or_preset(self, default: Preset) -> Self {
        Self { default, ..self }
    }

    /// It is possible beside these keys alone, with these values in TOML.
    pub const fn with(self, others: &'static [(&'static str, &'static str)]) -> Self {
        self.possible(When::With(others))
    }

    /// It is possible in place of another key alone.
    pub const fn instead_of(self, other: &'static str) -> Self {
        self.possible(When::InsteadOf(other))
    }

    /// It is possible in such programs alone.
    pub const fn only_in(self, programs: &'static str) -> Self {
        self.possible(When::In(programs))
    }

    const fn possible(self, when: When) -> Self {
        Self { when, ..self }
    }

    /// Its default as TOML, if it has one whatever other keys say.
    pub fn default_value(&self) -> Option<String> {
        self.in_toml(self.default)
    }

    /// A default of this key as TOML.
    pub(crate) fn in_toml(&self, preset: Preset) -> Option<String> {
        Some(match preset {
            Preset::Required | Preset::None(_) | Preset::By(..) | Preset::PartOf(..) => {
                return None;
            }
            Preset::Duration(duration) => format!("\"{}\"", show::duration(duration, "")),
            Preset::Count(bytes) if matches!(self.kind, Kind::Size(_)) => {
                format!("\"{}\"", size::show(bytes).replace(' ', ""))
            }
            Preset::Count(count) => count.to_string(),
            Preset::Number(number) => format!("{number:?}"),
            Preset::Flag(flag) => flag.to_string(),
            Preset::Text(text) => format!("{text:?}"),
        })
    }

    /// A value that is possible, in TOML: its example, else its default. Empty for tables.
    pub fn value(&self) -> String {
        match self.example {
            "" => self.default_value().unwrap_or_default(),
            example => example.to_owned(),
        }
    }
}

/// Reads a rate above zero.
///
/// # Errors
/// It is no rate, or zero.
pub fn rate(text: &str) -> Result<Bandwidth, String> {
    match text.parse::<Bandwidth>() {
        Ok(Bandwidth::ZERO) => Err("a rate of zero carries nothing".to_owned()),
        Ok(rate) => Ok(rate),
        Err(error) => Err(error.to_string()),
    }
}

/// The names of a list of choices, as values of a key.
pub const fn names<T: Copy, const N: usize>(choices: &[(&'static str, T); N]) -> [&'static str; N] {
    let mut names = [""; N];
    let mut index = 0;
    while index < N {
        names[index] = choices[index].0;
        index += 1;
    }
    names
}
