//! What the tests of a reader ask of it, made from its definition: documents with one mistake each, samples with their comments
//! opened, and the file of the reference.

use std::{collections::BTreeSet, fs, ops::RangeInclusive, path::Path};

use crate::{
    definition::{Definition, Key, Kind, Place, Preset, When},
    reference,
    sample::{Content, Line, lines},
    size,
    variables::{self, variable_of},
};

/// A document with one mistake.
#[derive(Debug)]
pub struct Mistake {
    /// Text of the document.
    pub text: String,
    /// What the error says: line, table and key, and what would be right.
    pub says: [String; 2],
    /// The same mistake in a variable, if one stands for the key.
    pub variable: Option<InVariable>,
}

/// A mistake in a variable of the environment.
#[derive(Debug)]
pub struct InVariable {
    /// The document without the key.
    pub text: String,
    /// The variable's name, without the prefix of the program.
    pub name: String,
    /// Value of the variable.
    pub value: String,
    /// What the error says behind the prefix: variable, table and key, and what would be right.
    pub says: [String; 2],
}

/// For each key a value of a wrong kind, and those beside its range; a reader that does not read the key takes them.
pub fn mistakes(top: &'static Definition) -> Vec<Mistake> {
    let lines = lines(top);
    let mut found = Vec::new();
    for place in top.tables() {
        for key in place.definition.keys() {
            for (value, right) in wrong_values(&place, key) {
                let variable = variable_of(top, &place.path, key);
                found.push(mistake(&lines, &place, key, &value, right, variable));
            }
        }
    }
    found
}

/// The sample with all keys written that are possible beside the others.
pub fn opened(top: &'static Definition) -> String {
    document(&lines(top), |line, key, value| {
        is_open(line).then(|| (key.name, value.to_owned()))
    })
}

/// The sample, and what it is with each default written.
pub fn spelled_out(top: &'static Definition) -> (String, String) {
    let lines = lines(top);
    let written = |line: &Line, key: &'static Key, value: &str| {
        is_written(line).then(|| (key.name, value.to_owned()))
    };
    let with_defaults = |line: &Line, key: &'static Key, value: &str| {
        let has = |name: &str, wanted: &str| {
            lines.iter().any(|other| match &other.content {
                Content::Key {
                    key,
                    value,
                    is_written,
                    ..
                } => is_beside(line, other) && key.name == name && *is_written && value == wanted,
                Content::Header(_) => false,
            })
        };
        let is_possible = match key.when {
            When::Always => true,
            When::With(others) => others.iter().all(|(name, value)| has(name, value)),
            When::InsteadOf(_) | When::In(_) => false,
        };
        let default = default_beside(line, &lines, key);
        let default = default.filter(|_| is_possible && line.example == 0);
        written(line, key, value).or(default.map(|value| (key.name, value)))
    };
    (document(&lines, written), document(&lines, with_defaults))
}

/// Tries each mistake in a variable with `read`, which takes a document, the name of a variable without the prefix of the program,
/// and its value. Returns how many variables there are.
///
/// # Errors
/// A mistake is not found, or its error does not say what it must.
pub fn in_variables<T, E: std::fmt::Display>(
    top: &'static Definition,
    read: impl Fn(&str, &str, &str) -> Result<T, E>,
) -> Result<usize, String> {
    let mut known = BTreeSet::new();
    for wrong in mistakes(top)
        .into_iter()
        .filter_map(|mistake| mistake.variable)
    {
        let Err(error) = read(&wrong.text, &wrong.name, &wrong.value) else {
            return Err(format!("nothing is said of {wrong:#?}"));
        };
        let error = error.to_string();
        if let Some(missing) = wrong.says.iter().find(|said| !error.contains(*said)) {
            return Err(format!("{error}: {missing} of {wrong:#?}"));
        }
        known.insert(wrong.name);
    }
    Ok(known.len())
}

/// For each default that another key decides, and each value of that: the sample with the other key alone, and with the default, too.
pub fn decided(top: &'static Definition) -> Vec<(String, String)> {
    let lines = lines(top);
    let mut found = Vec::new();
    for place in top.tables() {
        for key in place.definition.keys() {
            for (other, value, default) in cases(place.definition, key) {
                let with = |also: bool| {
                    document(&lines, |line, at, shown| {
                        let is_here = line.place.path == place.path && line.example == 0;
                        match at.name {
                            name if is_here && name == other => Some((name, value.clone())),
                            name if is_here && name == key.name => {
                                also.then(|| (name, default.clone()))
                            }
                            name => is_written(line).then(|| (name, shown.to_owned())),
                        }
                    })
                };
                found.push((with(false), with(true)));
            }
        }
    }
    found
}

/// Values of the other key that decides the default of this one, each with what it is then.
fn cases(table: &Definition, key: &Key) -> Vec<(&'static str, String, String)> {
    match key.default {
        Preset::By(other, cases) => {
            let cases = cases.iter();
            let case = |(value, preset): &(&str, Preset)| {
                Some((other, (*value).to_owned(), key.in_toml(*preset)?))
            };
            cases.filter_map(case).collect()
        }
        Preset::PartOf(other, parts) => {
            let range = match table.key(other).map(|key| &key.kind) {
                Some(Kind::Whole(range)) => range.clone(),
                _ => return Vec::new(),
            };
            let numbers = [*range.start(), *range.end()].into_iter();
            let case = |whole: u64| (other, whole.to_string(), (whole / parts).max(1).to_string());
            numbers.map(case).collect()
        }
        _ => Vec::new(),
    }
}

/// The default of a key in TOML beside what the sample writes in its table.
fn default_beside(line: &Line, lines: &[Line], key: &'static Key) -> Option<String> {
    let other = match key.default {
        Preset::By(other, _) | Preset::PartOf(other, _) => other,
        _ => return key.default_value(),
    };
    let written = lines.iter().find_map(|at| match &at.content {
        Content::Key {
            key: at_key, value, ..
        } if is_beside(line, at) && at_key.name == other && is_written(at) => Some(value.clone()),
        _ => None,
    });
    let table = line.place.definition;
    let written = written.or_else(|| table.key(other)?.default_value())?;
    match key.default {
        Preset::PartOf(_, parts) => {
            let whole: u64 = written.parse().ok()?;
            Some((whole / parts).max(1).to_string())
        }
        _ => {
            let cases = cases(table, key);
            let fitting = cases.iter().find(|(_, value, _)| *value == written);
            fitting.or(cases.last()).map(|case| case.2.clone())
        }
    }
}

/// The files that the sample names in keys of this kind, such as `"file with a key"`.
pub fn files(top: &'static Definition, called: &str) -> BTreeSet<String> {
    let lines = lines(top);
    let keys = lines.iter().filter_map(|line| match &line.content {
        Content::Key { key, value, .. } => Some((key, value)),
        Content::Header(_) => None,
    });
    let named = keys.filter(|(key, _)| matches!(key.kind, Kind::Text(name) if name == called));
    named
        .map(|(_, value)| value.trim_matches('"').to_owned())
        .collect()
}

/// What is wrong with a definition itself.
pub fn unsound(top: &'static Definition) -> Vec<String> {
    let mut found = variables::unsound(top);
    for place in top.tables() {
        let table = place.definition;
        let mut names = BTreeSet::new();
        for key in table.keys() {
            let mut wrong = |what: &str| found.push(format!("{} {}: {what}", place.path, key.name));
            if !names.insert(key.name) {
                wrong("is there twice");
            }
            if !key.meaning.ends_with('.') {
                wrong("means no sentence");
            }
            let is_table = matches!(key.kind, Kind::Table(_) | Kind::Tables(_));
            if is_table != key.value().is_empty() {
                wrong("has neither default nor example, or is a table and has one");
            }
            if !default_fits(key, key.default) {
                wrong("has a default of another kind, or out of range");
            }
            if let Preset::By(other, _) | Preset::PartOf(other, _) = key.default
                && table
                    .key(other)
                    .is_none_or(|other| other.default_value().is_none())
            {
                wrong("has a default by a key that is not there or has none itself");
            }
            if let When::With(others) = key.when
                && others.iter().any(|(name, _)| table.key(name).is_none())
            {
                wrong("is possible beside a key that is not there");
            }
        }
        let written = table.examples.iter().flat_map(|example| example.written);
        for (name, _) in written.filter(|(name, _)| table.key(name).is_none()) {
            found.push(format!("{}: the sample writes {name}", place.path));
        }
        if table.examples.is_empty() {
            found.push(format!("{} is not in the sample", place.path));
        }
    }
    found
}

/// Compares the tables of keys of a file with the definition; with `STARHAUL_RENEW_REFERENCE=1` writes them there.
///
/// # Errors
/// They differ, or the file is not as it has to be.
pub fn pinned(file: &Path, top: &'static Definition) -> Result<(), String> {
    let cannot = |error: std::io::Error| format!("{}: {error}", file.display());
    let text = fs::read_to_string(file).map_err(cannot)?;
    let renewed = reference::renewed(&text, top)?;
    if renewed == text {
        return Ok(());
    }
    if std::env::var_os("STARHAUL_RENEW_REFERENCE").is_some() {
        return fs::write(file, renewed).map_err(cannot);
    }
    let mut both = renewed.lines().zip(text.lines());
    let first = both.find(|(made, there)| made != there);
    let (made, there) = first.unwrap_or_default();
    Err(format!(
        "{} is not as defined: it has\n{there}\nwhere\n{made}\nis right: run this test again with STARHAUL_RENEW_REFERENCE=1",
        file.display()
    ))
}

fn is_written(line: &Line) -> bool {
    matches!(
        line.content,
        Content::Key {
            is_written: true,
            ..
        }
    )
}

fn is_open(line: &Line) -> bool {
    matches!(
        line.content,
        Content::Key {
            condition: None,
            ..
        }
    )
}

fn is_beside(line: &Line, other: &Line) -> bool {
    line.place.path == other.place.path && line.example == other.example
}

/// The headers, and the keys that `choose` gives a value.
fn document(
    lines: &[Line],
    choose: impl Fn(&Line, &'static Key, &str) -> Option<(&'static str, String)>,
) -> String {
    let mut text = String::new();
    for line in lines {
        let shown = match &line.content {
            Content::Header(_) => Some(line.place.header()),
            Content::Key { key, value, .. } => {
                choose(line, key, value).map(|(name, value)| format!("{name} = {value}"))
            }
        };
        text.extend(shown.into_iter().flat_map(|shown| [shown, "\n".to_owned()]));
    }
    text
}

fn mistake(
    lines: &[Line],
    place: &Place,
    key: &'static Key,
    value: &str,
    right: String,
    variable: Option<String>,
) -> Mistake {
    let below = match place.path.as_str() {
        "" => key.name.to_owned(),
        path => format!("{path}.{}", key.name),
    };
    let is_table = matches!(key.kind, Kind::Table(_) | Kind::Tables(_));
    let is_replaced = |line: &&Line| {
        let path = &line.place.path;
        is_table && (*path == below || path.starts_with(&format!("{below}.")))
    };
    let (mut text, mut without, mut at) = (String::new(), String::new(), 0);
    for line in lines.iter().filter(|line| !is_replaced(line)) {
        let is_here = line.place.path == place.path && line.example == 0;
        let mut add = |line: &str| {
            text += line;
            without += line;
        };
        let is_at = match &line.content {
            Content::Header(_) => {
                add(&format!("{}\n", line.place.header()));
                is_here && is_table
            }
            Content::Key { key: other, .. } if is_here && other.name == key.name => true,
            Content::Key {
                key: other, value, ..
            } => {
                let forced = match key.when {
                    When::With(others) if is_here => {
                        others.iter().find(|(name, _)| *name == other.name)
                    }
                    _ => None,
                };
                let is_left_out = is_here && key.when == When::InsteadOf(other.name);
                let value = match forced {
                    Some((_, value)) => Some(*value),
                    None => Some(value.as_str()).filter(|_| is_written(line) && !is_left_out),
                };
                if let Some(value) = value {
                    add(&format!("{} = {value}\n", other.name));
                }
                false
            }
        };
        if is_at {
            text += &format!("{} = {value}\n", key.name);
            at = text.lines().count();
        }
    }
    let title = match place.header().as_str() {
        "" => String::new(),
        header => format!("{header}: "),
    };
    let variable = variable.map(|name| InVariable {
        says: [format!("{name}: {title}{}: ", key.name), right.clone()],
        text: without,
        name,
        value: value.to_owned(),
    });
    Mistake {
        text,
        says: [format!(":{at}: {title}{}: ", key.name), right],
        variable,
    }
}

/// Values in TOML that a key may not hold, and what is said of them.
fn wrong_values(place: &Place, key: &Key) -> Vec<(String, String)> {
    let example = format!("{} = {}", key.name, key.value());
    let texts = |values: &[String], right: &str| -> Vec<(String, String)> {
        let values = values
            .iter()
            .map(|value| (format!("{value:?}"), right.to_owned()));
        std::iter::once(("3".to_owned(), example.clone()))
            .chain(values)
            .collect()
    };
    let outside = |range: &RangeInclusive<u64>| -> Vec<u64> {
        let (least, most) = (range.start(), range.end());
        [least.checked_sub(1), most.checked_add(1)]
            .into_iter()
            .flatten()
            .collect()
    };
    match &key.kind {
        Kind::Duration(range) => {
            let nanos = |duration: std::time::Duration| duration.as_nanos() as f64 / 1e3;
            let beyond = format!("{}us", nanos(*range.end()) * 2.0);
            let below = format!("{}us", nanos(*range.start()) / 2.0);
            let beside = match range.start().is_zero() {
                true => vec![beyond],
                false => vec![below, beyond],
            };
            let mut all = texts(&beside, "outside of");
            all.push(("\"soon\"".to_owned(), "for example 800ms".to_owned()));
            all
        }
        Kind::Rate => {
            let mut all = texts(&["fast".to_owned()], "for example 10mbit");
            all.push(("\"0mbit\"".to_owned(), "rate of zero".to_owned()));
            all
        }
        Kind::Size(range) => {
            let beside: Vec<_> = outside(range)
                .iter()
                .map(|bytes| format!("{bytes}B"))
                .collect();
            let shown = [range.start(), range.end()].map(|bytes| size::show(*bytes));
            let mut all = texts(&beside, &shown.join(" to "));
            all.push(("\"64\"".to_owned(), "for example 64MiB".to_owned()));
            all
        }
        Kind::Whole(range) => {
            let right = format!("from {} to {}", range.start(), range.end());
            let beside = outside(range).into_iter().map(|number| number.to_string());
            let wrong = ["\"one\"".to_owned(), "-1".to_owned()].into_iter();
            wrong
                .chain(beside)
                .map(|value| (value, right.clone()))
                .collect()
        }
        Kind::Number(range) => {
            let right = format!("from {} to {}", range.start(), range.end());
            let beside = [range.start() - 1.0, range.end() * 2.0];
            let beside = beside.map(|number| format!("{number:?}"));
            let wrong = ["\"one\"".to_owned(), "nan".to_owned()].into_iter();
            wrong
                .chain(beside)
                .map(|value| (value, right.clone()))
                .collect()
        }
        Kind::Flag => vec![("\"yes\"".to_owned(), "write true or false".to_owned())],
        Kind::Words(words) => {
            let right = words.first().copied().unwrap_or_default();
            texts(&["zzzzzzzzzzzzzzzz".to_owned()], right)
        }
        Kind::Text(_) => texts(&[String::new()], ""),
        Kind::Texts(_) => vec![
            ("3".to_owned(), example.clone()),
            ("[3]".to_owned(), example.clone()),
            ("[\"\"]".to_owned(), String::new()),
        ],
        Kind::Table(_) => vec![("3".to_owned(), format!("write a table: [{}]", key.name))],
        Kind::Tables(_) => {
            let path = [place.path.as_str(), key.name].join(".");
            vec![(
                "3".to_owned(),
                format!("write [[{}]]", path.trim_start_matches('.')),
            )]
        }
    }
}

fn default_fits(key: &Key, default: Preset) -> bool {
    match (default, &key.kind) {
        (Preset::By(_, cases), _) => {
            !cases.is_empty() && cases.iter().all(|(_, preset)| default_fits(key, *preset))
        }
        (Preset::PartOf(_, parts), Kind::Whole(range)) => parts > 0 && range.contains(&1),
        (Preset::Required | Preset::None(_), _) => true,
        (Preset::Duration(default), Kind::Duration(range)) => range.contains(&default),
        (Preset::Count(default), Kind::Size(range) | Kind::Whole(range)) => {
            range.contains(&default)
        }
        (Preset::Number(default), Kind::Number(range)) => range.contains(&default),
        (Preset::Flag(_), Kind::Flag) | (Preset::Text(_), Kind::Text(_)) => true,
        (Preset::Text(default), Kind::Words(words)) => words.contains(&default),
        _ => false,
    }
}
