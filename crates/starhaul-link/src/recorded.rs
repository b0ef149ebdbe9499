//! Where tests find recorded traces, which are not part of the project.

use std::path::{Path, PathBuf};

/// A recorded trace; without it, says that the test is skipped.
pub(crate) fn recorded(file: &str) -> Option<PathBuf> {
    let beside = concat!(env!("CARGO_MANIFEST_DIR"), "/../../../shared/traces");
    let folder = std::env::var_os("STARHAUL_TRACES")
        .map_or_else(|| Path::new(beside).to_owned(), PathBuf::from);
    let path = folder.join(file);
    if !path.exists() {
        println!("skipped: no recorded trace {}", path.display());
        return None;
    }
    Some(path)
}
