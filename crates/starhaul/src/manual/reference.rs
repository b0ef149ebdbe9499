//! The manual pages of configuration files: that of a gateway from its reference (`docs/configuration.md`), whose tables of keys are
//! made from the definition, those of a bundle node and a relay from their definitions.

use roff::{Inline, Roff, bold, roman};
use starhaul_config::{Definition, reference};

const REFERENCE: &str = include_str!("../../../../docs/configuration.md");
/// The last chapter of the reference about the file.
const LAST_CHAPTER: &str = "Bounds that cannot be configured";
/// The chapter whose tables explain all configurations.
const KINDS: &str = "## Kinds of values";

/// A configuration file with a page of its own.
pub(super) struct File {
    /// Its name, as `starhaul-dtn.toml`.
    pub(super) name: &'static str,
    /// Whose configuration it is.
    pub(super) of: &'static str,
    /// The command that prints the sample.
    pub(super) sample_command: &'static str,
    /// Text of the sample configuration.
    pub(super) sample: String,
}

/// The page of a gateway's configuration.
pub(super) fn gateway(file: &File) -> Roff {
    let chapters = REFERENCE.lines();
    let chapters = chapters.skip_while(|line| !line.starts_with("## "));
    page(file, chapters)
}

/// The page of another configuration, whose keys are `defined`.
pub(super) fn other(file: &File, defined: &'static Definition) -> Roff {
    let kinds = REFERENCE.lines().skip_while(|line| *line != KINDS);
    let kinds: Vec<&str> = kinds
        .enumerate()
        .take_while(|(index, line)| *index == 0 || !line.starts_with("## "))
        .map(|(_, line)| line)
        .collect();
    let command = file.sample_command;
    let chapters = format!(
        "## The file\n\nOne TOML file. Unknown keys and impossible values are errors that name file, line, table, key and a valid \
         value. Relative paths refer to its directory. `{command}` prints one in which every key appears.\n\n{}\n\n{}",
        kinds.join("\n"),
        reference::chapters(defined)
    );
    page(file, chapters.lines())
}

fn page<'l>(file: &File, chapters: impl Iterator<Item = &'l str>) -> Roff {
    let mut page = Roff::new();
    let source = concat!("starhaul ", env!("CARGO_PKG_VERSION"));
    page.control("TH", [file.name, "5", "", source, ""]);
    page.control("SH", ["NAME"]);
    page.text([roman(format!(
        "{} - configuration of {}",
        file.name, file.of
    ))]);
    write_chapters(&mut page, chapters);
    page.control("SH", ["EXAMPLE"]);
    page.text([roman(format!("What {} prints:", file.sample_command))]);
    verbatim(&mut page, file.sample.lines());
    page
}

fn write_chapters<'l>(page: &mut Roff, lines: impl Iterator<Item = &'l str>) {
    let mut lines = lines.peekable();
    let mut chapter = "";
    while let Some(line) = lines.next() {
        if let Some(title) = line.strip_prefix("## ") {
            if chapter == LAST_CHAPTER {
                break;
            }
            chapter = title;
            let title = match title {
                "The file" => "DESCRIPTION".to_owned(),
                other => other.replace('`', "").to_uppercase(),
            };
            page.control("SH", [title.as_str()]);
        } else if let Some(title) = line.strip_prefix("### ") {
            page.control("SS", [title.replace('`', "").as_str()]);
        } else if line.starts_with("```") {
            let shown = lines.by_ref().take_while(|line| !line.starts_with("```"));
            verbatim(page, shown);
        } else if line.starts_with('|') {
            let mut rows = vec![cells(line)];
            while let Some(row) = lines.next_if(|line| line.starts_with('|')) {
                rows.push(cells(row));
            }
            table(page, &rows);
        } else if line.is_empty() {
            page.control("PP", []);
        } else if !line.starts_with("<!--") {
            let mut text = match line.strip_prefix("- ") {
                Some(item) => {
                    page.control("IP", ["-", "2"]);
                    item.to_owned()
                }
                None => line.to_owned(),
            };
            while let Some(next) = lines.next_if(|line| goes_on(line)) {
                text = format!("{text} {}", next.trim());
            }
            page.text(inline(&text));
        }
    }
}

/// Whether a line belongs to the paragraph or the item before it.
fn goes_on(line: &str) -> bool {
    const BEGIN: [&str; 5] = ["#", "|", "```", "- ", "<!--"];
    !line.is_empty() && !BEGIN.iter().any(|mark| line.starts_with(mark))
}

fn verbatim<'l>(page: &mut Roff, lines: impl Iterator<Item = &'l str>) {
    page.control("nf", []);
    for line in lines {
        page.text([roman(line)]);
    }
    page.control("fi", []);
}

/// The cells of a table row, without the separators.
fn cells(row: &str) -> Vec<&str> {
    row.trim()
        .trim_matches('|')
        .split('|')
        .map(str::trim)
        .collect()
}

/// A paragraph for each row: its first cell, then the others.
fn table(page: &mut Roff, rows: &[Vec<&str>]) {
    let [titles, _rule, rows @ ..] = rows else {
        return;
    };
    for row in rows {
        let Some((term, others)) = row.split_first() else {
            continue;
        };
        page.control("TP", []);
        page.text(inline(term));
        let others = titles
            .iter()
            .skip(1)
            .zip(others)
            .filter(|(_, cell)| !cell.is_empty());
        let (meaning, facts): (Vec<_>, Vec<_>) =
            others.partition(|(title, _)| matches!(**title, "meaning" | "then" | "matches"));
        let facts = facts.iter().map(|(title, cell)| format!("{title}: {cell}"));
        let facts = facts.collect::<Vec<_>>().join("; ");
        let mut said = meaning
            .iter()
            .map(|(_, cell)| (**cell).to_owned())
            .collect::<Vec<_>>();
        if !facts.is_empty() {
            said.insert(0, format!("{facts}."));
        }
        page.text(inline(&said.join(" ")));
    }
}

/// Converts Markdown text: code and strong text become bold, links keep their text only.
fn inline(text: &str) -> Vec<Inline> {
    let mut found = Vec::new();
    for (index, part) in reference::without_links(text).split('`').enumerate() {
        if part.is_empty() {
            continue;
        }
        found.push(match index % 2 {
            0 => roman(part.replace("**", "").replace('*', "")),
            _ => bold(part),
        });
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn items_stand_apart_and_what_goes_on_over_lines_is_one() {
        let mut page = Roff::new();
        let text = "Read again: [what can\nchange](a.md).\n\n- **One** thing,\n  and more.\n- Another.\n\nEnd.";
        write_chapters(&mut page, text.lines());
        let page = page.to_roff();
        assert!(page.contains("Read again: what can change."), "{page}");
        assert!(page.contains("One thing, and more."), "{page}");
        assert_eq!(page.matches(".IP").count(), 2, "{page}");
    }

    #[test]
    fn marks_become_type_and_links_their_text() {
        let said = |text: &str| {
            let mut page = Roff::new();
            page.text(inline(text));
            page.to_roff().trim_end().to_owned()
        };
        for (text, expected) in [
            ("`rate`: as [paths](#p).", "\\fBrate\\fR: as paths."),
            (
                "as for [`[[udp]]`](#udp), and",
                "as for \\fB[[udp]]\\fR, and",
            ),
            ("what *we* send", "what we send"),
            ("[a](b) and [c](d)", "a and c"),
            ("a list [x]", "a list [x]"),
        ] {
            assert_eq!(said(text), expected);
        }
    }
}
