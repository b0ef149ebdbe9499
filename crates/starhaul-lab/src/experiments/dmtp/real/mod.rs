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

/// The part that is measured.
const PART: &str = "loss";
const RUNS: u32 = 3;
const QUICK_LOSSES: [f64; 2] = [0.0, 0.1];
/// Time for a system to start, to warm up and to end, about.
const OVERHEAD: Duration = Duration::from_secs(6);

/// What the command asks for.
pub(super) struct Asked<'a> {
    /// Names of systems, or of modes of ours; all that this computer has if there are none.
    pub(super) systems: &'a [&'a str],
    /// Losses of the cheap path; the usual ones if there are none.
    pub(super) losses: &'a [f64],
    pub(super) at_once: u8,
    pub(super) quick: bool,
    /// Of each system, if the command says it.
    pub(super) runs: Option<u32>,
    pub(super) seed: u64,
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
    mode: &'static str,
    scheduler: &'static str,
    seed: u64,
    loss: f64,
    figures: Figures,
}

impl RealPlan {
    /// # Errors
    /// [`Error::Settings`] for a name that is no system's, and where none can run here.
    pub(super) fn new(asked: &Asked<'_>) -> Result<Self, Error> {
        let quick = asked.quick;
        let usual: &[f64] = if quick { &QUICK_LOSSES } else { &LOSS_STEPS };
        let losses = match asked.losses {
            [] => usual,
            losses => losses,
        };
        let repeats = Repeats {
            runs: asked.runs.unwrap_or(if quick { 1 } else { RUNS }),
            at_once: asked.at_once,
            seed: asked.seed,
        };
        Ok(Self {
            comparison: Comparison::new(chosen(asked.systems, &[], 1)?, 1, repeats)?,
            losses: losses.to_vec(),
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
            Column::name("mode", "mode", |row: &Row| row.mode.into()),
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
            // Who has no fragments to count is known by the wire alone.
            Column::share("extra_bytes_share", "extra on the wire", 1, |row: &Row| {
                row.figures.wire_extra_share().into()
            })
            .brief("extra")
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
            mode: system.mode(),
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
    use super::*;
    use crate::kit::Plan as _;

    fn plan(systems: &[&str], losses: &[f64], quick: bool) -> Result<RealPlan, Error> {
        RealPlan::new(&Asked {
            systems,
            losses,
            at_once: 1,
            quick,
            runs: None,
            seed: 1,
        })
    }

    #[test]
    fn systems_are_chosen_by_the_names_of_the_table() {
        let plan = plan(&["mpquic", "starhaul"], &[], false).unwrap();
        assert!(
            plan.describe()
                .starts_with("starhaul, mpquic, 3 runs of each"),
            "{}",
            plan.describe()
        );
        let said = self::plan(&["srd"], &[], false).err().unwrap();
        assert!(said.to_string().contains("srt-fec"), "{said}");
    }

    #[test]
    fn what_has_no_goal_is_not_checked() {
        let checked =
            |systems: &[&str], losses: &[f64]| plan(systems, losses, false).unwrap().checked();
        assert!(checked(&["starhaul"], &[]).is_ok());
        for (system, losses) in [("mpquic", &[][..]), ("starhaul", &[0.15][..])] {
            let said = checked(&[system], losses).err().unwrap().to_string();
            assert!(said.contains("none of that runs"), "{said}");
        }
    }

    #[test]
    fn quick_has_two_losses_and_one_run_unless_asked_for_others() {
        let plan = plan(&["starhaul"], &[], true).unwrap();
        assert_eq!(plan.losses, QUICK_LOSSES);
        let said = plan.describe();
        assert!(said.starts_with("starhaul, 1 run of each"), "{said}");
        let plan = self::plan(&["starhaul"], &[0.0, 0.02], true).unwrap();
        assert_eq!(plan.losses, [0.0, 0.02]);
    }
}
