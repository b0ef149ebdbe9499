//! `starhaul lab`: experiments by name; all the rest is in `starhaul-lab`.

mod echo;
mod flow;
mod named;
mod outcome;
mod resolve;

use starhaul_lab::catalogue;

use self::named::Named;
use crate::output::print;

#[derive(clap::Args)]
pub(crate) struct Arguments {
    #[command(subcommand)]
    experiment: Experiment,
}

#[derive(clap::Subcommand)]
enum Experiment {
    /// Name the experiments and the figure of a paper that each stands for
    List {
        /// Print one JSON array
        #[arg(long)]
        json: bool,
    },
    /// Fill a real path with one flow over our own stack, and say how much went through each second
    Flow(flow::Arguments),
    /// Measure a real path with messages over TCP that are answered, one after the other
    Echo(echo::Arguments),
    #[command(flatten)]
    Named(Named),
}

pub(crate) fn run(args: Arguments) -> anyhow::Result<()> {
    match args.experiment {
        Experiment::List { json: true } => print(catalogue::json()? + "\n"),
        Experiment::List { json: false } => print(catalogue::table()),
        Experiment::Flow(args) => flow::run(args),
        Experiment::Echo(args) => echo::run(args),
        Experiment::Named(named) => named.run(),
    }
}
