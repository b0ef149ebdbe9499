//! Tables of keys in Markdown, made from a definition, for reference and manual page.

use std::fmt::Write as _;

use crate::{
    definition::{Definition, Key, Kind, Place, Preset},
    show, size,
};

/// Before and after a table in a file that people write.
const BEGIN: &str = "<!-- keys of ";
const CLOSE: &str = " -->\n";
const END: &str = "<!-- end of keys -->\n";
const TOP: &str = "the top level";

/// A file of prose with all its tables of keys as they are defined. A table is between the lines `<!-- keys of [[peer]] -->` and
/// `<!-- end of keys -->`.
///
/// # Errors
/// A table without its lines, or lines without a table.
pub fn renewed(text: &str, top: &'static Definition) -> Result<String, String> {
    let places = top.tables();
    let mut parts = text.split(BEGIN);
    let mut out = parts.next().unwrap_or_default().to_owned();
    let mut done = Vec::new();
    for part in parts {
        let (name, rest) = part.split_once(CLOSE).ok_or("a mark has no end")?;
        let place = places.iter().find(|place| named(place) == name);
        let place = place.ok_or_else(|| format!("there is no table {name}"))?;
        let (_, after) = rest
            .split_once(END)
            .ok_or_else(|| format!("{name} has no {END}"))?;
        let _ = write!(out, "{BEGIN}{name}{CLOSE}{}{END}{after}", rows(top, place));
        done.push(name);
    }
    match places.iter().find(|place| !done.contains(&&*named(place))) {
        Some(place) => Err(format!("{BEGIN}{}{CLOSE} is missing", named(place))),
        None => Ok(out),
    }
}

/// All tables of a configuration as chapters.
pub fn chapters(top: &'static Definition) -> String {
    let mut text = String::new();
    for place in top.tables() {
        let title = match place.header().as_str() {
            "" => "Top level".to_owned(),
            header => format!("`{header}`"),
        };
        let said = match place.path.as_str() {
            "" => "",
            _ => place.definition.introduction,
        };
        let _ = write!(text, "## {title}\n\n{said}\n\n{}\n", rows(top, &place));
    }
    text
}

/// Markdown without its marks.
pub fn plain(markdown: &str) -> String {
    let linkless = without_links(markdown);
    let parts = linkless.split('`').enumerate();
    let plain = parts.map(|(index, part)| match index % 2 {
        0 => part.replace('*', ""),
        // In code an asterisk is one.
        _ => part.to_owned(),
    });
    plain.collect()
}

/// Markdown with the texts of links alone.
pub fn without_links(text: &str) -> String {
    let mut out = String::new();
    let mut rest = text;
    while let Some((text, target)) = rest.split_once("](") {
        let Some((_, after)) = target.split_once(')') else {
            break;
        };
        // Also if the text contains brackets, as a table name in TOML.
        match text.rfind('[') {
            Some(_) => {
                let (before, linked) = text.split_at(start_of_link(text));
                out.push_str(before);
                out.push_str(linked.get(1..).unwrap_or_default());
            }
            None => out.push_str(text),
        }
        rest = after;
    }
    out + rest
}

/// The index of the bracket that opens the link which ends here.
fn start_of_link(text: &str) -> usize {
    let mut depth = 1;
    for (at, letter) in text.char_indices().rev() {
        match letter {
            ']' => depth += 1,
            '[' => depth -= 1,
            _ => {}
        }
        if depth == 0 {
            return at;
        }
    }
    0
}

fn named(place: &Place) -> String {
    match place.header().as_str() {
        "" => TOP.to_owned(),
        header => header.to_owned(),
    }
}

/// The keys of one table. Those that it shares with a table before it have one row together, which names that.
fn rows(top: &'static Definition, place: &Place) -> String {
    let before: Vec<Place> = top.tables();
    let before = before.iter().take_while(|other| other.path != place.path);
    let before: Vec<&Place> = before.filter(|other| !other.path.is_empty()).collect();
    let shared_with = |key: &Key| {
        let mut before = before.iter();
        before.find(|other| other.definition.key(key.name) == Some(key))
    };
    let mut text = "| key | kind | default | meaning |\n|---|---|---|---|\n".to_owned();
    let mut told = Vec::new();
    for key in place.definition.keys() {
        let Some(other) = shared_with(key) else {
            let _ = writeln!(
                text,
                "| `{}` | {} | {} | {} |",
                key.name,
                kind(&key.kind),
                default(key),
                key.meaning
            );
            continue;
        };
        if told.contains(&&other.path) {
            continue;
        }
        told.push(&other.path);
        let with_it = place
            .definition
            .keys()
            .filter(|key| shared_with(key).is_some_and(|another| another.path == other.path));
        let names: Vec<String> = with_it.map(|key| format!("`{}`", key.name)).collect();
        let (header, anchor) = (other.header(), other.path.replace('.', ""));
        let names = names.join(", ");
        let _ = writeln!(text, "| {names} | | | As for [`{header}`](#{anchor}). |");
    }
    text
}

fn kind(kind: &Kind) -> String {
    let name = match kind {
        Kind::Duration(_) => "duration",
        Kind::Rate => "rate above 0",
        Kind::Size(_) => "size",
        Kind::Whole(_) => "whole number",
        Kind::Number(_) => "number",
        Kind::Flag => "`true` or `false`",
        Kind::Words(words) => return alternatives(words, "`"),
        Kind::Text(called) => called,
        Kind::Texts(called) => return format!("list of {called}"),
        Kind::Table(_) => "table",
        Kind::Tables(_) => "tables",
    };
    match range(kind).as_str() {
        "" => name.to_owned(),
        range => format!("{name}, {range}"),
    }
}

/// The range of a kind, for people; empty where it has none.
pub(crate) fn range(kind: &Kind) -> String {
    match kind {
        Kind::Duration(range) => {
            let show = |duration| show::duration(duration, " ");
            format!("{} to {}", show(*range.start()), show(*range.end()))
        }
        Kind::Size(range) => {
            format!(
                "{} to {}",
                size::show(*range.start()),
                size::show(*range.end())
            )
        }
        Kind::Whole(range) => match *range.end() {
            u64::MAX => format!("from {}", range.start()),
            most => format!("{} to {most}", range.start()),
        },
        Kind::Number(range) => {
            let show = |number: f64| match number {
                ..1e6 => number.to_string(),
                many => format!("{many:e}"),
            };
            format!("{} to {}", show(*range.start()), show(*range.end()))
        }
        _ => String::new(),
    }
}

/// `a`, `b` or `c`, each between marks.
pub(crate) fn alternatives(words: &[&str], mark: &str) -> String {
    let words: Vec<String> = words
        .iter()
        .map(|word| format!("{mark}{word}{mark}"))
        .collect();
    match words.split_last() {
        Some((last, [])) => last.clone(),
        Some((last, others)) => format!("{} or {last}", others.join(", ")),
        None => String::new(),
    }
}

fn default(key: &Key) -> String {
    shown(key, key.default)
}

/// A default of a key, for people.
fn shown(key: &Key, preset: Preset) -> String {
    match preset {
        Preset::By(other, cases) => {
            let with = |(value, preset): &(&str, Preset)| {
                format!("{} with `{other} = {value}`", shown(key, *preset))
            };
            match cases.split_last() {
                Some(((_, last), before)) => {
                    let before: Vec<String> = before.iter().map(with).collect();
                    format!("{}, else {}", before.join(", "), shown(key, *last))
                }
                None => String::new(),
            }
        }
        Preset::PartOf(other, parts) => format!("`{other}` / {parts}, at least 1"),
        Preset::Required => "required".to_owned(),
        Preset::None(words) => words.to_owned(),
        Preset::Duration(duration) => show::duration(duration, " "),
        Preset::Count(bytes) if matches!(key.kind, Kind::Size(_)) => size::show(bytes),
        Preset::Count(count) => count.to_string(),
        Preset::Number(number) => format!("{number:?}"),
        Preset::Flag(flag) => format!("`{flag}`"),
        Preset::Text(text) => format!("`{text}`"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Example;

    static TOP: Definition = Definition {
        introduction: "A thing.\nOf two lines.",
        keys: &[&[
            Key::text("at", "text")
                .such_as("\"a*\"")
                .means("Where, as `b.*`. [Of *old*](x.md#y)."),
            Key::tables("one", &ONE).means("Ones."),
            Key::tables("other", &OTHER).means("Others."),
        ]],
        examples: &[Example {
            comment: "",
            written: &[("at", "\"a*\"")],
        }],
    };
    static ONE: Definition = Definition {
        introduction: "One.",
        keys: &[&[SHARED, Key::flag("own").or_flag(true).means("Own.")]],
        examples: EMPTY,
    };
    static OTHER: Definition = Definition {
        introduction: "Other.",
        keys: &[&[
            SHARED,
            Key::number("much", 0.0..=1e12)
                .or_number(1.0)
                .with(&[("shared", "2")])
                .means("Much."),
        ]],
        examples: EMPTY,
    };
    const SHARED: Key = Key::whole("shared", 1..=9)
        .or_count(1)
        .means("Both. Have it.");
    const EMPTY: &[Example] = &[Example {
        comment: "",
        written: &[],
    }];

    #[test]
    fn a_file_gets_the_tables_between_its_marks() {
        let marks = |name: &str| format!("{BEGIN}{name}{CLOSE}| old |\n{END}prose\n");
        let text = ["the top level", "[[other]]", "[[one]]"]
            .map(marks)
            .concat();
        let made = renewed(&text, &TOP).unwrap();
        for row in [
            "| `at` | text | required | Where, as `b.*`. [Of *old*](x.md#y). |\n",
            "| `shared` | whole number, 1 to 9 | 1 | Both. Have it. |\n| `own` | `true` or `false` | `true` | Own. |\n",
            "| `shared` | | | As for [`[[one]]`](#one). |\n| `much` | number, 0 to 1e12 | 1.0 | Much. |\n",
        ] {
            assert!(made.contains(row), "{row} is not in\n{made}");
        }
        assert!(!made.contains("old |") && made.contains("prose"));
        assert_eq!(renewed(&made, &TOP), Ok(made.clone()));
        let without = text.replace("[[one]]", "[[two]]");
        assert!(renewed(&without, &TOP).unwrap_err().contains("[[two]]"));
        let without = text.replace(&marks("[[one]]"), "");
        assert!(renewed(&without, &TOP).unwrap_err().contains("[[one]]"));
    }

    #[test]
    fn the_sample_shows_defaults_ranges_and_conditions() {
        let expected = "# A thing.\n# Of two lines.\n\n# Where, as b.*\nat = \"a*\"\n\n# One.\n[[one]]\n\
            # shared = 1                    # Both (1 to 9)\n# own = true                    # Own\n\n\
            # Other.\n[[other]]\n# shared = 1\n# with shared = 2: much = 1.0   # Much (0 to 1e12)\n";
        assert_eq!(crate::sample(&TOP), expected);
    }

    #[test]
    fn links_become_their_text() {
        for (text, said) in [
            ("`rate`: as [paths](#p).", "rate: as paths."),
            ("as for [`[[udp]]`](#udp), and", "as for [[udp]], and"),
            ("what *we* send, as `*`", "what we send, as *"),
            ("[a](b) and [c](d)", "a and c"),
            ("a list [x]", "a list [x]"),
        ] {
            assert_eq!(plain(text), said);
        }
    }
}
