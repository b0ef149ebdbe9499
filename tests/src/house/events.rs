//! The fields of logged events, read from the source.

use std::path::{Path, PathBuf};

use proc_macro2::{Delimiter, Group, TokenStream, TokenTree};
use quote::ToTokens;

use super::source::{SourceError, is_test_only, scan_crate};

const LEVELS: [&str; 5] = ["trace", "debug", "info", "warn", "error"];

/// An event that a program logs.
#[derive(Debug, PartialEq, Eq)]
pub struct Event {
    /// Its level, as the macro is called.
    pub level: String,
    /// The names of its fields; a field without a name of its own has that of its value.
    pub fields: Vec<String>,
}

impl Event {
    /// Whether it is logged unless an operator asks for less.
    pub fn is_told(&self) -> bool {
        ["info", "warn", "error"].contains(&self.level.as_str())
    }
}

/// The events of every file of the library or program with `root` outside tests.
///
/// # Errors
/// A file cannot be read or parsed.
pub fn events_of_crate(root: &Path) -> Result<Vec<(PathBuf, Event)>, SourceError> {
    let mut found = Vec::new();
    for (file, _) in scan_crate(root)? {
        let text = std::fs::read_to_string(&file).map_err(|error| SourceError::Read {
            file: file.clone(),
            error,
        })?;
        let events = events(&text).map_err(|error| SourceError::Parse {
            file: file.clone(),
            error,
        })?;
        found.extend(events.into_iter().map(|event| (file.clone(), event)));
    }
    Ok(found)
}

/// The events of one source text.
///
/// # Errors
/// It is not valid Rust.
pub fn events(text: &str) -> syn::Result<Vec<Event>> {
    let mut found = Vec::new();
    for item in syn::parse_file(text)?.items {
        let is_test = matches!(&item, syn::Item::Mod(module) if is_test_only(&module.attrs));
        if !is_test {
            read(item.to_token_stream(), &mut found);
        }
    }
    Ok(found)
}

/// Finds `info!(…)` and the like, within other macros too.
fn read(tokens: TokenStream, found: &mut Vec<Event>) {
    let mut before = [None, None];
    for token in tokens {
        if let TokenTree::Group(group) = &token {
            match &before {
                [Some(TokenTree::Ident(level)), Some(TokenTree::Punct(mark))]
                    if mark.as_char() == '!' && LEVELS.iter().any(|name| level == name) =>
                {
                    found.push(Event {
                        level: level.to_string(),
                        fields: fields(group),
                    });
                }
                _ => read(group.stream(), found),
            }
        }
        let [_, last] = before;
        before = [last, Some(token)];
    }
}

/// The names before the message.
fn fields(arguments: &Group) -> Vec<String> {
    let mut names = Vec::new();
    let tokens: Vec<_> = arguments.stream().into_iter().collect();
    let is = |token: &TokenTree, mark: char| matches!(token, TokenTree::Punct(punct) if punct.as_char() == mark);
    for argument in tokens.split(|token| is(token, ',')) {
        match argument {
            [TokenTree::Literal(_), ..] => break,
            // `parent: …`, `target: …` are of the event itself, and no fields.
            [TokenTree::Ident(_), colon, ..] if is(colon, ':') => continue,
            // The fields may stand in braces before the message.
            [TokenTree::Group(group)] if group.delimiter() == Delimiter::Brace => {
                names.extend(fields(group));
                continue;
            }
            _ => {}
        }
        let name = argument.iter().take_while(|token| !is(token, '='));
        let name = name.filter(|token| !is(token, '%') && !is(token, '?'));
        let name: String = name.map(ToString::to_string).collect();
        if !name.is_empty() {
            names.push(name);
        }
    }
    names
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_are_found_wherever_an_event_is_logged() {
        let text = r#"
            fn f() {
                tracing::warn!(peer = self.name, %error, ?stream, at = f(1, 2), "it is {so}, {}", more);
                select! { () = x => info!(target: "t", others, "done") }
                error!("nothing");
                println!("{}", a);
            }
            #[cfg(test)] mod tests { fn f() { info!(target, "no") } }
        "#;
        let event = |level: &str, fields: &[&str]| Event {
            level: level.to_owned(),
            fields: fields.iter().map(|&name| name.to_owned()).collect(),
        };
        let expected = [
            event("warn", &["peer", "error", "stream", "at"]),
            event("info", &["others"]),
            event("error", &[]),
        ];
        assert_eq!(events(text).unwrap(), expected);
    }
}
