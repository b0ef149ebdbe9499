//! Figure 7 in real time: our own stack and rivals that this computer has, one after the other over the same emulated links
//! between two network namespaces.

mod run;

use std::time::Duration;

use starhaul_plot::{Column, Table};

use self::run::Figures;
use super::{
    BLOCKS_PER_STEP, INTERVAL, LOSS_STEPS, by_loss_plot,
    goals::{is_judged, real_goals},
};
use crate::{
    Error,
    kit::{
        self, Context, Found, Progress,
        judged::Judged,
        report::{Results, Rows},
        statistics::percentile,
    },
    systems::blocks::comparison::{Comparison, Repeats, Run, chosen},
};

/// The name of the table.
const PART: &str = "real";
const RUNS: u32 = 3;
const QUICK_LOSSES: [f64; 2] = [0.0, 0.1];
/// Time for a system to start, to warm up and to end, about.
const OVERHEAD: Duration = Duration::from_secs(6);

// Without a description, which would replace that of the command.
#[derive(clap::Args)]
pub(super) struct Options {
    /// In real time: our own stack over emulated links between network namespaces, beside the rivals that this computer has:
    /// MPTCP, SRT, RIST, multipath QUIC. Needs what replay needs; --runs is 3 by default
    #[arg(long, conflicts_with_all = ["only", "qlog"])]
    pub(super) real: bool,
    /// With --real: run only these systems [default: all that this computer has]
    #[arg(long, value_name = "A,B", value_delimiter = ',', requires = "real")]
    systems: Vec<String>,
    /// With --real: losses of the cheap path, each for 5 s [default: those of the paper]
    #[arg(long = "loss", value_name = "P,…", value_delimiter = ',', requires = "real", value_parser = starhaul_units::parse_share)]
    losses: Vec<f64>,
    /// With --real: so many systems at once, each over links of its own
    #[arg(long, value_name = "N", requires = "real", default_value_t = 1, value_parser = clap::value_parser!(u8).range(1..=16))]
    at_once: u8,
}

/// The runs as asked for, before they begin.
pub(super) struct RealPlan {
    comparison: Comparison,
    losses: Vec<f64>,
    /// Whether the figures are compared with their goals.
    is_checked: bool,
}

/// One step of a run of a system.
struct Row {
    system: &'static str,
    scheduler: &'static str,
    seed: u64,
    loss: f64,
    figures: Figures,
}

impl RealPlan {
    pub(super) fn new(
        options: &Options,
        quick: bool,
        runs: Option<u32>,
        seed: u64,
    ) -> Result<Self, Error> {
        let usual: &[f64] = if quick { &QUICK_LOSSES } else { &LOSS_STEPS };
        let losses = match options.losses.is_empty() {
            true => usual.to_vec(),
            false => options.losses.clone(),
        };
        let repeats = Repeats {
            runs: runs.unwrap_or(if quick { 1 } else { RUNS }),
            at_once: options.at_once,
            seed,
        };
        Ok(Self {
            comparison: Comparison::new(chosen(&options.systems, &[])?, 1, repeats)?,
            losses,
            is_checked: false,
        })
    }

    /// The same plan, whose figures are compared with their goals.
    ///
    /// # Errors
    /// [`Error::Settings`] where nothing that runs has a goal.
    pub(super) fn checked(self) -> Result<Self, Error> {
        let has_goal = |name| is_judged(name, &self.losses);
        if !self.comparison.names().any(has_goal) {
            return Err(Error::Settings(
                "--check: the goals are for starhaul, starhaul-optimizer and starhaul-bbr up to a loss of 10 %, and none of that runs".to_owned(),
            ));
        }
        Ok(Self {
            is_checked: true,
            ..self
        })
    }

    fn columns() -> Vec<Column<Row>> {
        let count = |key, name, of: fn(&Figures) -> u64| {
            Column::count(key, name, move |row: &Row| of(&row.figures).into()).median()
        };
        let latency = |key, name, share: f64| {
            Column::number(key, name, "ms", 1, move |row: &Row| {
                let found = &row.figures.latencies_ms;
                (!found.is_empty()).then(|| percentile(found, share)).into()
            })
            .median()
        };
        vec![
            Column::name("system", "system", |row: &Row| row.system.into()),
            Column::name("scheduler", "scheduler", |row: &Row| row.scheduler.into()),
            Column::count("seed", "seed", |row: &Row| row.seed.into()).dropped(),
            Column::share("loss", "loss", 2, |row: &Row| row.loss.into()),
            count("sent", "sent", |figures| figures.sent.into()),
            count("on_time", "on time", |figures| figures.on_time.into()),
            Column::share("on_time_share", "on time", 1, |row: &Row| {
                let Figures { on_time, sent, .. } = row.figures;
                (f64::from(on_time) / f64::from(sent.max(1))).into()
            })
            .median(),
            count("disturbed", "disturbed", |figures| figures.disturbed.into()),
            latency("latency_p50_ms", "median", 0.5),
            latency("latency_p99_ms", "p99", 0.99),
            Column::share("extra_bytes_share", "extra", 1, |row: &Row| {
                row.figures.extra_share().into()
            })
            .median(),
            count("cheap_bytes", "cheap B", |figures| figures.path_bytes[0]),
            count("dear_bytes", "dear B", |figures| figures.path_bytes[1]),
        ]
    }

    /// A row for each step of a run.
    fn rows(&self, run: Run<'_, Vec<Figures>>) -> impl Iterator<Item = Row> {
        let Run {
            system,
            seed,
            figures,
            ..
        } = run;
        let steps = self.losses.iter().zip(figures);
        steps.map(move |(loss, figures)| Row {
            system: system.name(),
            scheduler: system.scheduler(),
            seed,
            loss: *loss,
            figures,
        })
    }
}

impl kit::Plan for RealPlan {
    fn skipped(&self) -> &[String] {
        self.comparison.skipped()
    }

    fn describe(&self) -> String {
        let steps = u32::try_from(self.losses.len()).unwrap_or(u32::MAX);
        self.comparison
            .describe(1, INTERVAL * BLOCKS_PER_STEP * steps + OVERHEAD)
    }

    fn run(
        &self,
        context: &Context<'_>,
        progress: &mut dyn FnMut(Progress),
    ) -> Result<Box<dyn Found>, Error> {
        // A run goes through all losses.
        let all = [(String::new(), ())];
        let (runs, notes) =
            self.comparison
                .run(&all, context, progress, |bench, system, (), seed| {
                    run::run(bench, system, &self.losses, seed)
                })?;
        let rows: Vec<Row> = runs.into_iter().flat_map(|run| self.rows(run)).collect();
        let table = Table::of(&Self::columns(), &rows);
        let goals = self
            .is_checked
            .then(|| real_goals(PART, &table, self.comparison.names()));
        let results = Results {
            experiment: "dmtp",
            title: "Blocks with a deadline over a lossy path, in real time",
            what: "Blocks of 24 kB each 20 ms, due within 200 ms, over two emulated links of 15 Mbit/s and 60 ms one way between network namespaces. \
                   The cheap one loses more of its packets each 5 s; the dear one loses nothing. A block is on time when its last byte is with the \
                   receiving application within the deadline of being offered, by one clock. Bytes are those of the sending host's interfaces. \
                   Disturbed are late blocks during which this computer stood still.",
            command: context.command.to_owned(),
            seed: self.comparison.seed(),
            notes,
            has_parts: true,
            rows: vec![Rows {
                part: PART,
                stands_for: "DMTP fig. 7",
                shows: "both paths in real time, by loss of the cheap one",
                table,
                plots: vec![by_loss_plot(&["system"])],
            }],
        };
        Ok(Box::new(Judged { results, goals }))
    }
}

#[cfg(test)]
mod tests {
    use clap::{Args as _, FromArgMatches as _};

    use super::*;
    use crate::kit::Plan as _;

    fn plan(arguments: &[&str], quick: bool) -> Result<RealPlan, Error> {
        let command = Options::augment_args(clap::Command::new("dmtp"))
            .arg(clap::Arg::new("only").long("only"))
            .arg(clap::Arg::new("qlog").long("qlog"));
        let arguments = ["dmtp", "--real"].iter().chain(arguments);
        let matches = command.try_get_matches_from(arguments).unwrap();
        RealPlan::new(
            &Options::from_arg_matches(&matches).unwrap(),
            quick,
            None,
            1,
        )
    }

    #[test]
    fn systems_are_chosen_by_the_names_of_the_table() {
        let plan = plan(&["--systems", "mpquic,starhaul"], false).unwrap();
        assert!(
            plan.describe()
                .starts_with("starhaul, mpquic, 3 runs of each"),
            "{}",
            plan.describe()
        );
        let said = self::plan(&["--systems", "srd"], false).err().unwrap();
        assert!(said.to_string().contains("srt-fec"), "{said}");
    }

    #[test]
    fn what_has_no_goal_is_not_checked() {
        let checked = |arguments: &[&str]| plan(arguments, false).unwrap().checked();
        assert!(checked(&["--systems", "starhaul"]).is_ok());
        for without in [
            &["--systems", "mpquic"][..],
            &["--systems", "starhaul", "--loss", "15%"],
        ] {
            let said = checked(without).err().unwrap().to_string();
            assert!(said.contains("none of that runs"), "{said}");
        }
    }

    #[test]
    fn quick_has_two_losses_and_one_run_unless_asked_for_others() {
        let plan = plan(&["--systems", "starhaul"], true).unwrap();
        assert_eq!(plan.losses, QUICK_LOSSES);
        let said = plan.describe();
        assert!(said.starts_with("starhaul, 1 run of each"), "{said}");
        let plan = self::plan(&["--loss", "0,2%"], true).unwrap();
        assert_eq!(plan.losses, [0.0, 0.02]);
    }
}
