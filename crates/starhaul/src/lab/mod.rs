//! `starhaul lab`: experiments by name; all the rest is in `starhaul-lab`.

mod flow;

use std::{
    io::{self, IsTerminal as _, Write as _},
    path::PathBuf,
};

use anyhow::Context as _;
use starhaul_lab::{
    catalogue,
    leocc::{Options, Plan, Progress, QueueChoice, Section},
};

use crate::output::{command_line, print};

#[derive(clap::Args)]
pub(crate) struct Arguments {
    #[command(subcommand)]
    experiment: Experiment,
}

#[derive(clap::Subcommand)]
enum Experiment {
    /// Name the experiments and the figure of a paper that each stands for
    List,
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
    /// Run only these controllers
    #[arg(long, value_name = "A,B", value_delimiter = ',')]
    systems: Vec<String>,
    /// Random losses of the data, for example 0,0.2%,0.5%
    #[arg(long, value_name = "P,…", value_delimiter = ',', value_parser = parse_loss)]
    loss: Vec<f64>,
    /// What the link queues: published (500 packets up, 50000 down), bdp, or a number of packets
    #[arg(long, value_name = "QUEUE")]
    queue: Option<QueueChoice>,
    /// Run only these parts: scatter, series, ablation, queues, sensitivity, shift, fairness, detector
    #[arg(long, value_name = "A,B", value_delimiter = ',')]
    only: Vec<Section>,
    /// Seed of losses and synthetic traces
    #[arg(long, value_name = "S", default_value_t = 1)]
    seed: u64,
    /// Write report.html, results.json, results.csv and plots into this folder
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
    /// Print one JSON object and nothing else
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(args: Arguments) -> anyhow::Result<()> {
    match args.experiment {
        Experiment::List => print(catalogue::table()),
        Experiment::Flow(args) => flow::run(args),
        Experiment::Leocc(args) => leocc(args),
    }
}

fn leocc(args: LeoccArguments) -> anyhow::Result<()> {
    let plan = Plan::new(&Options {
        quick: args.quick,
        traces: args.traces,
        systems: args.systems,
        losses: args.loss,
        queue: args.queue,
        sections: args.only,
        seed: args.seed,
    })?;
    for skipped in plan.skipped() {
        eprintln!("{skipped}");
    }
    eprintln!("{}", plan.describe());
    let terminal = io::stderr().is_terminal();
    let results = plan.run(&command_line(), |progress| {
        if terminal {
            show(progress);
        }
    })?;
    if terminal {
        eprint!("\r\x1b[K");
    }
    if let Some(folder) = &args.out {
        results.write(folder).context("cannot keep the results")?;
        eprintln!("results: {}", folder.display());
    }
    print(match args.json {
        true => results.json()? + "\n",
        false => results.table(),
    })
}

/// Redraws one line on a terminal.
fn show(progress: Progress) {
    const WIDTH: usize = 30;
    let full = (1..=WIDTH)
        .filter(|cell| *cell as f64 <= progress.done * WIDTH as f64)
        .count();
    let left = progress.elapsed.as_secs_f64() * (1.0 / progress.done.max(1e-9) - 1.0);
    let bar = "█".repeat(full) + &"░".repeat(WIDTH - full);
    // A terminal that went away must not end the run.
    let _ = write!(
        io::stderr(),
        "\r{bar} {:3.0} %, about {left:.0} s left\x1b[K",
        progress.done * 100.0
    );
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
