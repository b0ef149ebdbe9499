//! The manual page of the configuration file, generated from the reference (`docs/configuration.md`) and the sample.

use roff::{Inline, Roff, bold, roman};
use starhaul_gateway::Config;

const REFERENCE: &str = include_str!("../../../../docs/configuration.md");
/// The last chapter of the reference about the file.
const LAST_CHAPTER: &str = "Bounds that cannot be configured";

pub(super) fn page() -> Roff {
    let mut page = Roff::new();
    let source = concat!("starhaul ", env!("CARGO_PKG_VERSION"));
    page.control("TH", ["starhaul-gateway.toml", "5", "", source, ""]);
    page.control("SH", ["NAME"]);
    page.text([roman(
        "starhaul-gateway.toml - configuration of a Starhaul gateway",
    )]);
    let mut lines = REFERENCE
        .lines()
        .skip_while(|line| !line.starts_with("## "))
        .peekable();
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
            verbatim(
                &mut page,
                lines.by_ref().take_while(|line| !line.starts_with("```")),
            );
        } else if line.starts_with('|') {
            let mut rows = vec![cells(line)];
            while let Some(row) = lines.next_if(|line| line.starts_with('|')) {
                rows.push(cells(row));
            }
            table(&mut page, &rows);
        } else if line.is_empty() {
            page.control("PP", []);
        } else {
            page.text(inline(line));
        }
    }
    page.control("SH", ["EXAMPLE"]);
    page.text([roman("What starhaul gateway sample prints:")]);
    verbatim(&mut page, Config::sample().lines());
    page
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
    for (index, part) in without_links(text).split('`').enumerate() {
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

fn without_links(text: &str) -> String {
    let mut out = String::new();
    let mut rest = text;
    while let Some((text, target)) = rest.split_once("](") {
        let Some((_, after)) = target.split_once(')') else {
            break;
        };
        match text.rfind('[') {
            // Also if the text contains brackets, as a table name in TOML.
            Some(_) => {
                let start = start_of_link(text);
                let (before, linked) = text.split_at(start);
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

#[cfg(test)]
mod tests {
    use super::*;

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
