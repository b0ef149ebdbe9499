//! `starhaul lab agreement`: virtual against real time.

use starhaul_lab::agreement::{Options, Plan};

use super::{
    bench,
    outcome::{Outcome, announce, show},
};
use crate::output::command_line;

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
    #[command(flatten)]
    outcome: Outcome,
}

pub(crate) fn run(arguments: Arguments) -> anyhow::Result<()> {
    let plan = Plan::new(&Options {
        quick: arguments.quick,
        systems: arguments.systems,
        links: arguments.link,
        runs: arguments.runs,
        seconds: arguments.seconds,
        seed: arguments.outcome.seed,
    })?;
    arguments.outcome.prepare()?;
    announce(plan.skipped(), &plan.describe());
    let results = plan.run(&bench()?, &command_line(), show)?;
    arguments.outcome.finish(
        || results.table(),
        || results.json(),
        |folder| results.write(folder),
    )
}
