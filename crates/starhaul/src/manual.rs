//! Completions and manual pages, made from the definition of the command line.

use std::path::PathBuf;

use crate::{command, output::print};
use anyhow::Context as _;

#[derive(clap::Args)]
pub(crate) struct CompletionsArguments {
    /// For which shell
    shell: clap_complete::Shell,
}

#[derive(clap::Args)]
pub(crate) struct ManpagesArguments {
    /// Where to write them
    directory: PathBuf,
}

pub(crate) fn completions(arguments: &CompletionsArguments) -> anyhow::Result<()> {
    let mut script = Vec::new();
    clap_complete::generate(arguments.shell, &mut command(), "starhaul", &mut script);
    print(script)
}

pub(crate) fn manpages(arguments: &ManpagesArguments) -> anyhow::Result<()> {
    let directory = &arguments.directory;
    std::fs::create_dir_all(directory)
        .and_then(|()| clap_mangen::generate_to(command(), directory))
        .with_context(|| format!("cannot write manual pages into {}", directory.display()))
}
