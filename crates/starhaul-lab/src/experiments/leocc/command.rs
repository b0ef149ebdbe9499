//! `starhaul lab leocc`, in virtual and in real time.

use clap::{ArgMatches, Args, Command, FromArgMatches as _};

use super::{Options, Plan, RealPlan, Results, Section};
use crate::{
    Error,
    kit::{self, About, Context, Experiment, Found, Progress},
};

/// The experiment by its name.
pub struct LeoCc;

#[derive(Args)]
struct Arguments {
    #[command(flatten)]
    options: Options,
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
}

impl Experiment for LeoCc {
    fn command(&self) -> Command {
        const WHAT: &str = "Throughput against delay of every congestion controller over satellite links (LeoCC, fig. 3)";
        // Last, since the options bring words of their own.
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
            true => Box::new(RealPlan::new(&options, arguments.runs, arguments.seconds)?),
            false => Box::new(Plan::new(&options)?),
        })
    }
}

impl kit::Plan for Plan {
    fn skipped(&self) -> &[String] {
        self.skipped()
    }

    fn describe(&self) -> String {
        self.describe()
    }

    fn run(
        &self,
        context: &Context<'_>,
        progress: &mut dyn FnMut(Progress),
    ) -> Result<Box<dyn Found>, Error> {
        Ok(Box::new(self.run(context.command, progress)?))
    }
}

impl kit::Plan for RealPlan {
    fn skipped(&self) -> &[String] {
        self.skipped()
    }

    fn describe(&self) -> String {
        self.describe()
    }

    fn run(
        &self,
        context: &Context<'_>,
        progress: &mut dyn FnMut(Progress),
    ) -> Result<Box<dyn Found>, Error> {
        let bench = (context.bench)()?;
        Ok(Box::new(self.run(&bench, context.command, progress)?))
    }
}

impl Found for Results {
    fn table(&self) -> String {
        self.table()
    }

    fn json(&self) -> Result<String, Error> {
        self.json()
    }

    fn files(&self) -> Vec<(String, String)> {
        let tables = [
            ("results.csv", self.all_runs()),
            ("rivals.csv", self.rivals()),
            ("fairness.csv", self.shares()),
            ("detector.csv", self.detections()),
            ("series.csv", self.series_table()),
        ];
        let with_rows = |(name, table): &(&str, starhaul_plot::Table)| {
            *name == "results.csv" || !table.is_empty()
        };
        let tables = tables.into_iter().filter(with_rows);
        let tables = tables.map(|(name, table)| (name.to_owned(), table.csv()));
        let page = ("report.html".to_owned(), self.html());
        let files = std::iter::once(page).chain(tables);
        files.chain(self.pictures()).collect()
    }
}
