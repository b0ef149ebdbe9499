//! Programs of rivals.

use std::{env, ffi::OsString};

/// Why a system cannot run, if `program` is not installed: with the Debian package that has it.
pub(super) fn missing(system: &str, program: &str, package: &str) -> Option<String> {
    let folders = env::var_os("PATH").unwrap_or_default();
    let is_there = env::split_paths(&folders).any(|folder| folder.join(program).is_file());
    (!is_there).then(|| {
        format!(
            "skipped: {system}, because {program} is not installed: it is in Debian's {package}"
        )
    })
}

/// A program with its arguments.
pub(super) fn command(program: &str, arguments: &[&str]) -> Vec<OsString> {
    let all = std::iter::once(&program).chain(arguments);
    all.map(OsString::from).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_missing_program_is_told_with_its_package() {
        assert_eq!(missing("x", "sh", "dash"), None);
        let said = missing("srt", "no-such-program", "srt-tools").unwrap();
        assert!(
            said.contains("srt,") && said.contains("no-such-program") && said.contains("srt-tools"),
            "{said}"
        );
    }
}
