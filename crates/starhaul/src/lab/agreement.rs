//! `starhaul lab agreement`: virtual against real time.

use std::{
    io::{self, IsTerminal as _},
    path::PathBuf,
};

use anyhow::Context as _;
use starhaul_lab::agreement::{Options, Plan};

use super::{announce, bench, show};
use crate::output::{command_line, print};

#[derive(clap::Args)]
pub(crate) struct Arguments {
    /// One link, one run of 10 s each
    #[arg(long)]
    quick: bool,
    /// Our controllers [default: cubic,bbr]; the kernel's of the same names run beside them
    #[arg(long, value_name = "A,B", value_delimiter = ',')]
    systems: Vec<String>,
    /// A link for the data, as `starhaul replay` takes it, in place of the usual ones; may be repeated
    #[arg(long, value_name = "SPEC")]
    link: Vec<String>,
    /// Runs of each, of which the medians count [default: 3]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=100))]
    runs: Option<u32>,
    /// How long each runs [default: 30]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=3600))]
    seconds: Option<u32>,
    /// Seed of the first run of each
    #[arg(long, value_name = "S", default_value_t = 1)]
    seed: u64,
    /// Write report.html and results.json into this folder
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
    /// Print one JSON object and nothing else
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(arguments: Arguments) -> anyhow::Result<()> {
    let plan = Plan::new(&Options {
        quick: arguments.quick,
        systems: arguments.systems,
        links: arguments.link,
        runs: arguments.runs,
        seconds: arguments.seconds,
        seed: arguments.seed,
    })?;
    announce(plan.skipped(), &plan.describe());
    let terminal = io::stderr().is_terminal();
    let results = plan.run(&bench()?, &command_line(), |progress| {
        if terminal {
            show(progress);
        }
    })?;
    if terminal {
        eprint!("\r\x1b[K");
    }
    if let Some(folder) = &arguments.out {
        results.write(folder).context("cannot keep the results")?;
        eprintln!("results: {}", folder.display());
    }
    print(match arguments.json {
        true => results.json()? + "\n",
        false => results.table(),
    })
}
