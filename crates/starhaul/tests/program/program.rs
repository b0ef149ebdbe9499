//! Runs the program as a user does, and captures its output.

use std::{
    path::Path,
    process::{Command, Output},
};

pub(crate) fn starhaul(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_starhaul"));
    command.args(arguments).env_remove("STARHAUL_LOG");
    command
}

pub(crate) fn run(arguments: &[&str]) -> Output {
    starhaul(arguments).output().unwrap()
}

pub(crate) fn text(bytes: &[u8]) -> &str {
    std::str::from_utf8(bytes).unwrap()
}

pub(crate) fn path(path: &Path) -> &str {
    path.to_str().unwrap()
}
