//! Figure 7 in real time: our own stack and rivals that this computer has, one after the other over the same emulated links
//! between two network namespaces.

mod run;
mod stalls;

use std::time::{Duration, Instant};

use starhaul_plot::{Column, Table};

use self::run::Figures;
use super::{BLOCKS_PER_STEP, INTERVAL, LOSS_STEPS, by_loss_plot};
use crate::{
    Error,
    kit::{
        self, Context, Found, Progress,
        parallel::{in_threads, span},
        repeats::{Runs, plural},
        report::{Results, Rows},
        statistics::percentile,
    },
    realtime::Measured,
    systems::blocks::{self, BlockSystem},
};

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
    systems: Vec<Box<dyn BlockSystem>>,
    losses: Vec<f64>,
    runs: u32,
    at_once: usize,
    seed: u64,
    skipped: Vec<String>,
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
        let mut skipped = Vec::new();
        let mut systems = Vec::new();
        for system in chosen(&options.systems)? {
            match system.missing() {
                None => systems.push(system),
                Some(why) => skipped.push(why),
            }
        }
        if systems.is_empty() {
            return Err(Error::Settings(format!(
                "nothing to run: {}\nname others with --systems, for example starhaul",
                skipped.join("\n")
            )));
        }
        let usual: &[f64] = if quick { &QUICK_LOSSES } else { &LOSS_STEPS };
        let losses = match options.losses.is_empty() {
            true => usual.to_vec(),
            false => options.losses.clone(),
        };
        Ok(Self {
            systems,
            losses,
            runs: runs.unwrap_or(if quick { 1 } else { RUNS }),
            at_once: options.at_once.into(),
            seed,
            skipped,
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

    /// All runs of a system; its rows, and what is to be said of them.
    fn measure(
        &self,
        system: &dyn BlockSystem,
        run: impl FnMut(u64) -> Result<Measured<Vec<Figures>>, Error>,
    ) -> Result<(Table, Vec<String>), Error> {
        let columns = Self::columns();
        let seeds = (0..self.runs).map(|run| self.seed.wrapping_add(run.into()));
        let runs = Runs::of(seeds, run)?;
        let name = system.name();
        let notes = runs.missing(name).into_iter().chain(runs.not_counted(name));
        let of_run = |(seed, steps): &(u64, Vec<Figures>)| {
            let seed = *seed;
            let steps = self.losses.iter().zip(steps.clone());
            let row = move |(loss, figures): (&f64, Figures)| Row {
                system: name,
                scheduler: system.scheduler(),
                seed,
                loss: *loss,
                figures,
            };
            steps.map(row).collect::<Vec<_>>()
        };
        let rows: Vec<Row> = runs.valid.iter().flat_map(of_run).collect();
        Ok((Table::of(&columns, &rows), notes.collect()))
    }
}

/// The systems of these names, or all.
fn chosen(names: &[String]) -> Result<Vec<Box<dyn BlockSystem>>, Error> {
    let all = blocks::all();
    let known: Vec<&str> = all.iter().map(|system| system.name()).collect();
    if let Some(unknown) = names.iter().find(|name| !known.contains(&name.as_str())) {
        let known = known.join(", ");
        return Err(Error::Settings(format!(
            "--systems: {unknown:?} is none of {known}"
        )));
    }
    let is_chosen = |name: &str| names.is_empty() || names.iter().any(|chosen| chosen == name);
    let chosen = all.into_iter().filter(|system| is_chosen(system.name()));
    Ok(chosen.collect())
}

impl kit::Plan for RealPlan {
    fn skipped(&self) -> &[String] {
        &self.skipped
    }

    fn describe(&self) -> String {
        let names: Vec<&str> = self.systems.iter().map(|system| system.name()).collect();
        let steps = u32::try_from(self.losses.len()).unwrap_or(u32::MAX);
        let once = INTERVAL * BLOCKS_PER_STEP * steps + OVERHEAD;
        let rounds = self.systems.len().div_ceil(self.at_once);
        let rounds = u32::try_from(rounds).unwrap_or(u32::MAX);
        format!(
            "{}, {} of each: {} in real time, {} at once",
            names.join(", "),
            plural(self.runs),
            span(once.saturating_mul(rounds * self.runs).as_secs_f64()),
            self.at_once
        )
    }

    fn run(
        &self,
        context: &Context<'_>,
        progress: &mut dyn FnMut(Progress),
    ) -> Result<Box<dyn Found>, Error> {
        let bench = (context.bench)()?;
        let systems: Vec<&dyn BlockSystem> = self.systems.iter().map(AsRef::as_ref).collect();
        let work = |system: &&dyn BlockSystem| {
            self.measure(*system, |seed| {
                run::run(&bench, *system, &self.losses, seed)
            })
        };
        let began = Instant::now();
        let found: Vec<_> = match self.at_once {
            // An ordinary user can be given namespaces only while this process has one thread.
            1 => {
                let all = self.systems.len() as f64;
                let one = |(number, system)| {
                    let found = work(system);
                    let done = f64::from(number) / all;
                    progress(Progress {
                        done,
                        elapsed: began.elapsed(),
                    });
                    found
                };
                (1u32..).zip(&systems).map(one).collect()
            }
            threads => in_threads(threads, &systems, |_| 1.0, work, progress),
        };
        let mut notes = self.skipped.clone();
        let mut table = Table::of(&Self::columns(), &[]);
        for found in found {
            let (rows, said) = found?;
            table.append(rows);
            notes.extend(said);
        }
        Ok(Box::new(Results {
            experiment: "dmtp",
            title: "Blocks with a deadline over a lossy path, in real time",
            what: "Blocks of 24 kB each 20 ms, due within 200 ms, over two emulated links of 15 Mbit/s and 60 ms one way between network namespaces. \
                   The cheap one loses more of its packets each 5 s; the dear one loses nothing. A block is on time when its last byte is with the \
                   receiving application within the deadline of being offered, by one clock. Bytes are those of the sending host's interfaces. \
                   Disturbed are late blocks during which this computer stood still.",
            command: context.command.to_owned(),
            seed: self.seed,
            notes,
            has_parts: true,
            rows: vec![Rows {
                part: "real",
                stands_for: "DMTP fig. 7",
                shows: "both paths in real time, by loss of the cheap one",
                table,
                plots: vec![by_loss_plot(&["system"])],
            }],
        }))
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
    fn a_system_that_fails_in_its_second_run_keeps_the_first() {
        let plan = plan(&["--systems", "starhaul,mpquic", "--loss", "0,2%"], false).unwrap();
        assert_eq!(plan.runs, 3);
        for system in &plan.systems {
            let mut seeds = Vec::new();
            let run = |seed| {
                seeds.push(seed);
                match seeds.len() {
                    2 => Err(Error::io("no room")(std::io::ErrorKind::Other.into())),
                    _ => Ok(Measured {
                        metrics: vec![Figures::default(); 2],
                        valid: true,
                    }),
                }
            };
            let (table, notes) = plan.measure(system.as_ref(), run).unwrap();
            assert_eq!((table.len(), seeds), (2, vec![1, 2]));
            let begin = format!("failed: {}, seed 2: no room", system.name());
            assert!(notes[0].starts_with(&begin), "{notes:?}");
        }
        let interrupted = |_| Err(Error::Interrupted("by a signal".to_owned()));
        assert!(plan.measure(plan.systems[0].as_ref(), interrupted).is_err());
    }

    #[test]
    fn quick_has_two_losses_and_one_run_unless_asked_for_others() {
        let plan = plan(&[], true).unwrap();
        assert_eq!((&plan.losses[..], plan.runs), (&QUICK_LOSSES[..], 1));
        let plan = self::plan(&["--loss", "0,2%"], true).unwrap();
        assert_eq!(plan.losses, [0.0, 0.02]);
    }
}
