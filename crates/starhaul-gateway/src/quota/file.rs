//! The file of the counts: JSON under a seal. What is not whole or impossible is refused.

use serde::{Deserialize, Serialize};

use super::account::{MAX_OPENINGS, Record};
use crate::sealed::{self, SealError};

/// Paths counted in one file.
pub(super) const MAX_ACCOUNTS: usize = 1024;
/// Longest file that is read.
pub const MAX_BYTES: u64 = 4 << 20;

const KIND: &str = "starhaul-quotas 1";
/// Names of peers and paths in a configuration are shorter.
const MAX_NAME_BYTES: usize = 64;
/// Seconds that a clock may be ahead of or behind UTC.
const MAX_OFFSET_S: i32 = 14 * 3600;

/// Why a file is not trusted.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FileError {
    /// It is of another kind, or not whole.
    #[error(transparent)]
    Seal(#[from] SealError),
    /// It is whole, and what it says is impossible.
    #[error("what it says is impossible: {0}")]
    Impossible(String),
}

/// The count of one path.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Entry {
    pub(super) peer: String,
    pub(super) path: String,
    pub(super) count: Record,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Contents {
    paths: Vec<Entry>,
}

/// The file of these counts.
pub(super) fn write(paths: Vec<Entry>) -> Vec<u8> {
    // Neither a map with other keys than texts nor a failing writer is involved.
    let json = serde_json::to_string_pretty(&Contents { paths }).unwrap_or_default();
    seal(&json)
}

/// The file with this text.
pub fn seal(json: &str) -> Vec<u8> {
    sealed::seal(KIND, json)
}

/// The counts of a file.
///
/// # Errors
/// It is no such file, or not whole, or impossible.
pub(super) fn read(bytes: &[u8]) -> Result<Vec<Entry>, FileError> {
    let json = sealed::unseal(KIND, bytes)?;
    let contents: Contents =
        serde_json::from_str(json).map_err(|error| FileError::Impossible(error.to_string()))?;
    check(&contents.paths).map_err(|problem| FileError::Impossible(problem.to_owned()))?;
    Ok(contents.paths)
}

fn check(paths: &[Entry]) -> Result<(), &'static str> {
    if paths.len() > MAX_ACCOUNTS {
        return Err("too many paths");
    }
    let mut names = std::collections::BTreeSet::new();
    for Entry { peer, path, count } in paths {
        let is_name = |name: &str| (1..=MAX_NAME_BYTES).contains(&name.len());
        if !is_name(peer) || !is_name(path) || !names.insert((peer, path)) {
            return Err("a path without a name, or twice");
        }
        let openings = &count.openings;
        if openings.is_empty() || openings.len() > MAX_OPENINGS {
            return Err("no months, or too many");
        }
        let months: std::collections::BTreeSet<_> =
            openings.iter().map(|known| known.month).collect();
        if months.len() != openings.len() {
            return Err("a month twice");
        }
        if openings.iter().any(|known| known.base > count.total) {
            return Err("a month that began beyond the total");
        }
        if !months.contains(&count.believed) || !months.contains(&count.showing) {
            return Err("a month that is not listed");
        }
        let scheme = count.scheme;
        if !super::period::FIRST_DAYS.contains(&scheme.begins)
            || scheme.offset_s.saturating_abs() > MAX_OFFSET_S
        {
            return Err("no day or no time zone");
        }
    }
    Ok(())
}
