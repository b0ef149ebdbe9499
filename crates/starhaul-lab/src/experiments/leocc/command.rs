//! `starhaul lab leocc`, in virtual and in real time.

use std::time::Duration;

use clap::{ArgMatches, Args, Command, FromArgMatches as _};

use super::{Options, Plan, RealPlan, Section};
use crate::{
    Error,
    kit::{self, About, Experiment},
};

/// The experiment by its name.
pub struct LeoCc;

/// More than any path over satellites of the Earth.
const MOST_ADDED_DELAY: Duration = Duration::from_secs(10);

#[derive(Args)]
struct Arguments {
    #[command(flatten)]
    options: Options,
    /// In real time behind `starhaul replay`, ours over our own stack beside the kernel's over TCP (kernel-cubic…): one trace,
    /// or those of --traces. Needs what replay needs, iperf3 for the kernel's, and an otherwise idle computer
    #[arg(long)]
    real: bool,
    /// Compare leocc2 with its goals, and end with exit code 1 if one is missed: in scatter beside BBR, in fairness among its own flows, in
    /// paths and unseen beside BBR and the oracle; with --real beside kernel-bbr, over each trace
    #[arg(long)]
    check: bool,
    /// With --real: runs of each, of which the medians count [default: 5]
    #[arg(long, value_name = "N", requires = "real", value_parser = clap::value_parser!(u32).range(1..=100))]
    runs: Option<u32>,
    /// With --real: no run is longer [default: the whole trace]
    #[arg(long, value_name = "N", requires = "real", value_parser = clap::value_parser!(u32).range(1..=3600))]
    seconds: Option<u32>,
    /// With --real: run over each trace once for each of these, added to the delay of each direction, for example 0ms,80ms
    #[arg(long, value_name = "TIME,…", requires = "real", value_delimiter = ',', value_parser = added_delay)]
    added_delay: Vec<Duration>,
}

fn added_delay(text: &str) -> Result<Duration, starhaul_units::ParseDurationError> {
    starhaul_units::parse_duration_in(Duration::ZERO..=MOST_ADDED_DELAY, text)
}

impl Experiment for LeoCc {
    fn command(&self) -> Command {
        const WHAT: &str = "Throughput against delay of every congestion controller over satellite links (LeoCC, fig. 3)";
        // Last, since the options have a description of their own.
        Arguments::augment_args(Command::new("leocc")).about(WHAT).long_about(format!(
            "{WHAT}\n\nIn virtual time, on all cores. The traces are the recorded ones of the folder that STARHAUL_TRACES names \
             (../shared/traces without it), where they are there, and 50 synthetic ones."
        ))
    }

    fn about(&self) -> Vec<About> {
        let whole = About {
            command: "leocc".to_owned(),
            stands_for: "LeoCC (SIGCOMM 2025)",
            shows: "every congestion controller over satellite links: all parts below",
        };
        let parts = Section::ALL.map(|section| About {
            command: format!("leocc --only {}", section.name()),
            stands_for: section.stands_for(),
            shows: section.shows(),
        });
        let real = About {
            command: "leocc --real".to_owned(),
            stands_for: "LeoCC fig. 3, §6.1",
            shows: "the scatter in real time, beside the kernel's controllers",
        };
        std::iter::once(whole).chain(parts).chain([real]).collect()
    }

    fn plan(&self, options: &ArgMatches, seed: u64) -> Result<Box<dyn kit::Plan>, Error> {
        let arguments = Arguments::from_arg_matches(options)
            .map_err(|error| Error::Settings(error.to_string()))?;
        let options = Options {
            seed,
            ..arguments.options
        };
        Ok(match arguments.real {
            true => {
                let plan = RealPlan::new(&options, arguments.runs, arguments.seconds)?;
                let plan = plan.with_added_delays(&arguments.added_delay)?;
                Box::new(if arguments.check {
                    plan.checked()?
                } else {
                    plan
                })
            }
            false if arguments.check => Box::new(Plan::new(&options)?.checked()?),
            false => Box::new(Plan::new(&options)?),
        })
    }
}
