//! Configuration files (TOML), read key by key, so that each error names file, line, key and the nearest valid key. What a file
//! may hold is in a [`Definition`], from which the reader takes kinds, ranges and defaults, and of which sample, reference and
//! manual page are made.

pub mod definition;
mod document;
mod quotes;
pub mod reference;
mod sample;
mod secret;
mod service;
mod show;
pub mod size;
mod table;
pub mod trials;
mod variables;

use std::path::PathBuf;

pub use definition::{Definition, Example, Key};
pub use document::Document;
pub use sample::sample;
pub use secret::{SecretError, secret_file, shared_secret};
pub use service::state_folder;
pub use table::{Table, nearest};

/// What is wrong with a configuration, and where.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{}{}: {problem}", file.display(), line.map(|line| format!(":{line}")).unwrap_or_default())]
pub struct Error {
    /// The file, as the caller named it.
    pub file: PathBuf,
    /// Line, counted from 1, where it is known.
    pub line: Option<usize>,
    /// What is wrong with which key, and what would be right.
    pub problem: String,
}

/// One of a fixed list of values.
///
/// # Errors
/// Names the nearest of them.
pub fn choice<T: Copy>(text: &str, choices: &[(&str, T)]) -> Result<T, String> {
    let found = choices.iter().find(|(name, _)| *name == text);
    found.map(|(_, value)| *value).ok_or_else(|| {
        let names: Vec<&str> = choices.iter().map(|(name, _)| *name).collect();
        format!("{text:?} is not possible; {}", nearest(text, &names))
    })
}
