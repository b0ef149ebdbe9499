//! `starhaul lab`: experiments by name; all the rest is in `starhaul-lab`.

mod agreement;
mod flow;
mod outcome;

use std::path::PathBuf;

use anyhow::Context as _;
use starhaul_lab::{
    catalogue,
    leocc::{Options, Plan, QueueChoice, RealPlan, Section},
    realtime::Bench,
};

use self::outcome::{Outcome, announce, show};
use crate::{
    output::{command_line, print},
    replay::SUPERVISOR,
};

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
    /// Compare virtual with real time, and our controllers with the kernel's, over the same links
    ///
    /// Needs what `starhaul replay` needs; and iperf3 for the kernel's. An otherwise idle computer.
    Agreement(agreement::Arguments),
    /// Fill a real path with one flow over our own stack, and say how much went through each second
    Flow(flow::Arguments),
    /// Throughput against delay of every congestion controller over satellite links (LeoCC, fig. 3)
    ///
    /// In virtual time, on all cores. The traces are the recorded ones of the folder that STARHAUL_TRACES names
    /// (../shared/traces without it), where they are there, and 50 synthetic ones.
    Leocc(LeoccArguments),
}

#[derive(clap::Args)]
struct LeoccArguments {
    /// Few traces and short runs: under a minute
    #[arg(long)]
    quick: bool,
    /// Run over every trace of this folder in place of the usual set
    #[arg(long, value_name = "DIR")]
    traces: Option<PathBuf>,
    /// Run only these controllers; also LeoCC without one of its parts: leocc-no-detector, leocc-no-kalman, leocc-no-band,
    /// leocc-no-adaptation, and the same of leocc2
    #[arg(long, value_name = "A,B", value_delimiter = ',')]
    systems: Vec<String>,
    /// Random losses of the data, for example 0,0.2%,0.5% [default: those of each part, or what a trace of --traces tells]
    #[arg(long, value_name = "P,…", value_delimiter = ',', value_parser = parse_loss)]
    loss: Vec<f64>,
    /// What the link queues: published (500 packets up, 50000 down), bdp, or a number of packets
    #[arg(long, value_name = "QUEUE")]
    queue: Option<QueueChoice>,
    /// Run only these parts: scatter, series, ablation, queues, sensitivity, shift, fairness, detector
    #[arg(long, value_name = "A,B", value_delimiter = ',')]
    only: Vec<Section>,
    /// In real time behind `starhaul replay`, ours over our own stack beside the kernel's over TCP (kernel-cubic…): one trace,
    /// or those of --traces. Needs what replay needs, iperf3 for the kernel's, and an otherwise idle computer
    #[arg(long)]
    real: bool,
    /// With --real: runs of each, of which the medians count [default: 5]
    #[arg(long, value_name = "N", requires = "real", value_parser = clap::value_parser!(u32).range(1..=100))]
    runs: Option<u32>,
    /// With --real: no run is longer [default: the whole trace]
    #[arg(long, value_name = "N", requires = "real", value_parser = clap::value_parser!(u32).range(1..=3600))]
    seconds: Option<u32>,
    #[command(flatten)]
    outcome: Outcome,
}

pub(crate) fn run(args: Arguments) -> anyhow::Result<()> {
    match args.experiment {
        Experiment::List { json: true } => print(catalogue::json()? + "\n"),
        Experiment::List { json: false } => print(catalogue::table()),
        Experiment::Agreement(args) => agreement::run(args),
        Experiment::Flow(args) => flow::run(args),
        Experiment::Leocc(args) => leocc(args),
    }
}

fn leocc(args: LeoccArguments) -> anyhow::Result<()> {
    let options = Options {
        quick: args.quick,
        traces: args.traces,
        systems: args.systems,
        losses: args.loss,
        queue: args.queue,
        sections: args.only,
        seed: args.outcome.seed,
    };
    let results = if args.real {
        let plan = RealPlan::new(&options, args.runs, args.seconds)?;
        args.outcome.prepare()?;
        announce(plan.skipped(), &plan.describe());
        plan.run(&bench()?, &command_line(), show)?
    } else {
        let plan = Plan::new(&options)?;
        args.outcome.prepare()?;
        announce(plan.skipped(), &plan.describe());
        plan.run(&command_line(), show)?
    };
    args.outcome.finish(
        || results.table(),
        || results.json(),
        |folder| results.write(folder),
    )
}

/// A share such as `0.002` or `0.2%`.
fn parse_loss(text: &str) -> Result<f64, String> {
    let (number, scale) = match text.strip_suffix('%') {
        Some(percent) => (percent, 100.0),
        None => (text, 1.0),
    };
    match number.trim().parse::<f64>() {
        Ok(value) if (0.0..=1.0).contains(&(value / scale)) => Ok(value / scale),
        _ => Err(format!(
            "{text:?} is no loss: write a share such as 0.002 or 0.2%"
        )),
    }
}

/// Runs flows with this program at both ends.
fn bench() -> anyhow::Result<Bench> {
    Ok(Bench {
        program: std::env::current_exe().context("cannot find this program's file")?,
        supervisor: vec![SUPERVISOR.into()],
    })
}
