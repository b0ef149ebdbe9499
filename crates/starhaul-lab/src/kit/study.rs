//! An experiment that is declared: parts, each with its columns, the runs that give its rows, and its plots. Its command, its line in the
//! list, the estimate of its time, progress, tables, page and files follow. Runs are in virtual time, but for those of parts that measure
//! this computer.

mod plan;

use std::path::PathBuf;

use clap::{Arg, ArgAction, ArgMatches, Command, builder::PossibleValuesParser, value_parser};
use starhaul_endpoint::QlogFolder;
use starhaul_plot::{Column, Table};

use self::plan::StudyPlan;
use super::{
    About, Experiment, Plan, Plot, Records, Target,
    report::{Results, Rows, titled},
};
use crate::Error;

/// A declared experiment.
pub struct Study {
    name: &'static str,
    stands_for: &'static str,
    /// One line that says what it measures.
    shows: &'static str,
    /// What its page says first: title, and what was measured.
    title: &'static str,
    what: &'static str,
    parts: Vec<Part>,
}

/// A part of a study, all of whose rows have the same columns.
pub struct Part {
    name: &'static str,
    stands_for: &'static str,
    shows: &'static str,
    columns: Table,
    plots: Vec<Plot>,
    targets: Vec<Target>,
    /// Names of the systems that its runs compare.
    systems: &'static [&'static str],
    /// Its runs have sessions, of which records can be left.
    has_sessions: bool,
    /// Why this computer cannot run it, if it cannot.
    missing: fn() -> Option<String>,
    jobs: Box<Jobs>,
}

/// The runs of one seed, few of them if quick, of the systems that were chosen, or of those that it compares if none was.
type Jobs = dyn Fn(bool, u64, &[&'static str]) -> Vec<Job> + Send + Sync;

/// Makes the rows of one run.
type Work = dyn Fn(&Records) -> Result<Table, Error> + Send + Sync;

/// One run of a part.
struct Job {
    /// How long it takes, compared with others of the part.
    weight: f64,
    work: Box<Work>,
    records: Records,
    /// What it is a run of, in a comparison.
    system: Option<&'static str>,
    /// What `--seed` runs it alone.
    seed: u64,
    /// It measures this computer, and so has it for itself.
    is_real: bool,
}

impl Job {
    /// A run of this set-up, which is no part of a comparison.
    fn of<S: Send + Sync + 'static, R: 'static>(
        setup: S,
        columns: fn() -> Vec<Column<R>>,
        run: impl Fn(&S, &Records) -> Result<Vec<R>, Error> + Send + Sync + 'static,
    ) -> Self {
        Self {
            weight: 1.0,
            work: Box::new(move |records: &Records| {
                Ok(Table::of(&columns(), &run(&setup, records)?))
            }),
            records: Records::default(),
            system: None,
            seed: 0,
            is_real: false,
        }
    }

    fn run(&self) -> Result<Table, Error> {
        (self.work)(&self.records)
    }
}

impl Study {
    /// A study without parts. `name` is what to type after `starhaul lab`.
    pub fn new(
        name: &'static str,
        stands_for: &'static str,
        shows: &'static str,
        title: &'static str,
        what: &'static str,
    ) -> Self {
        Self {
            name,
            stands_for,
            shows,
            title,
            what,
            parts: Vec::new(),
        }
    }

    /// The systems that its parts compare, each once.
    fn systems(&self) -> Vec<&'static str> {
        let mut systems = Vec::new();
        for system in self.parts.iter().flat_map(|part| part.systems) {
            if !systems.contains(system) {
                systems.push(*system);
            }
        }
        systems
    }

    /// Those that the command names, each once, in the order of the table.
    fn chosen(&self, options: &ArgMatches) -> Vec<&'static str> {
        let named = options.try_get_many::<String>("systems").ok().flatten();
        let named: Vec<&String> = named.into_iter().flatten().collect();
        let mut systems = self.systems();
        systems.retain(|system| named.iter().any(|name| *name == *system));
        systems
    }

    /// With one more part.
    #[must_use]
    pub fn part(mut self, part: Part) -> Self {
        self.parts.push(part);
        self
    }
}

impl Part {
    /// A part called `name` with `--only`. `setups` gives the runs of one seed, few of them if it is told to be quick; `run` makes
    /// the rows of one.
    pub fn new<S: Send + Sync + 'static, R: 'static>(
        name: &'static str,
        stands_for: &'static str,
        shows: &'static str,
        columns: fn() -> Vec<Column<R>>,
        setups: impl Fn(bool, u64) -> Vec<S> + Send + Sync + 'static,
        run: fn(&S) -> Result<Vec<R>, Error>,
    ) -> Self {
        let recorded = move |setup: &S, _: &Records| run(setup);
        let part = Self::with_sessions(name, stands_for, shows, columns, setups, recorded);
        Self {
            has_sessions: false,
            ..part
        }
    }

    /// The same of runs that have sessions, of which they leave records.
    pub fn with_sessions<S: Send + Sync + 'static, R: 'static>(
        name: &'static str,
        stands_for: &'static str,
        shows: &'static str,
        columns: fn() -> Vec<Column<R>>,
        setups: impl Fn(bool, u64) -> Vec<S> + Send + Sync + 'static,
        run: impl Fn(&S, &Records) -> Result<Vec<R>, Error> + Copy + Send + Sync + 'static,
    ) -> Self {
        let names = (name, stands_for, shows);
        Self::with_unlike_sessions(names, columns, (setups, |_| 1.0), run)
    }

    /// The same of runs that take their time: `weight` tells how long one runs beside others of the part.
    pub fn with_unlike_sessions<S: Send + Sync + 'static, R: 'static>(
        (name, stands_for, shows): (&'static str, &'static str, &'static str),
        columns: fn() -> Vec<Column<R>>,
        (setups, weight): (
            impl Fn(bool, u64) -> Vec<S> + Send + Sync + 'static,
            fn(&S) -> f64,
        ),
        run: impl Fn(&S, &Records) -> Result<Vec<R>, Error> + Copy + Send + Sync + 'static,
    ) -> Self {
        let job = move |setup: S| Job {
            weight: weight(&setup),
            ..Job::of(setup, columns, run)
        };
        Self {
            has_sessions: true,
            name,
            stands_for,
            shows,
            columns: Table::of(&columns(), &[]),
            plots: Vec::new(),
            targets: Vec::new(),
            systems: &[],
            missing: || None,
            jobs: Box::new(move |quick, seed, _| {
                setups(quick, seed).into_iter().map(job).collect()
            }),
        }
    }

    /// A part whose runs compare these systems, of which the command chooses with `--systems`: `setups` then gives runs of no others, and of
    /// all of them that the part can compare. `system` names that of a run.
    pub fn of_systems<S: Send + Sync + 'static, R: 'static>(
        (name, stands_for, shows): (&'static str, &'static str, &'static str),
        columns: fn() -> Vec<Column<R>>,
        setups: impl Fn(bool, u64, &[&'static str]) -> Vec<S> + Send + Sync + 'static,
        (systems, system): (&'static [&'static str], fn(&S) -> &'static str),
        run: fn(&S) -> Result<Vec<R>, Error>,
    ) -> Self {
        let recorded = move |setup: &S, _: &Records| run(setup);
        let compared = (systems, system);
        let part = Self::of_systems_with_sessions(
            (name, stands_for, shows),
            columns,
            setups,
            compared,
            recorded,
        );
        Self {
            has_sessions: false,
            ..part
        }
    }

    /// The same of runs that have sessions, of which they leave records.
    pub fn of_systems_with_sessions<S: Send + Sync + 'static, R: 'static>(
        names: (&'static str, &'static str, &'static str),
        columns: fn() -> Vec<Column<R>>,
        setups: impl Fn(bool, u64, &[&'static str]) -> Vec<S> + Send + Sync + 'static,
        (systems, system): (&'static [&'static str], fn(&S) -> &'static str),
        run: impl Fn(&S, &Records) -> Result<Vec<R>, Error> + Copy + Send + Sync + 'static,
    ) -> Self {
        let (name, stands_for, shows) = names;
        let job = move |setup: S| Job {
            system: Some(system(&setup)),
            ..Job::of(setup, columns, run)
        };
        let none = |_: bool, _: u64| Vec::<S>::new();
        Self {
            systems,
            jobs: Box::new(move |quick, seed, chosen| {
                setups(quick, seed, chosen).into_iter().map(job).collect()
            }),
            ..Self::with_sessions(name, stands_for, shows, columns, none, run)
        }
    }

    /// With each run so many times as long as those of other parts.
    #[must_use]
    pub fn weighing(mut self, weight: f64) -> Self {
        let jobs = self.jobs;
        self.jobs = Box::new(move |quick, seed, chosen| {
            let weighed = |job: Job| Job {
                weight: job.weight * weight,
                ..job
            };
            jobs(quick, seed, chosen).into_iter().map(weighed).collect()
        });
        self
    }

    /// With runs that measure this computer in real time: one after the other, when all runs in virtual time are done.
    #[must_use]
    pub fn in_real_time(mut self) -> Self {
        let jobs = self.jobs;
        self.jobs = Box::new(move |quick, seed, chosen| {
            let real = |job: Job| Job {
                is_real: true,
                ..job
            };
            jobs(quick, seed, chosen).into_iter().map(real).collect()
        });
        self
    }

    /// With what tells why this computer cannot run it, if it cannot: it is left out then.
    #[must_use]
    pub fn unless(mut self, missing: fn() -> Option<String>) -> Self {
        self.missing = missing;
        self
    }

    /// With a plot of its rows.
    #[must_use]
    pub fn plot(mut self, plot: Plot) -> Self {
        self.plots.push(plot);
        self
    }

    /// With what `--check` holds its rows to.
    #[must_use]
    pub fn target(mut self, target: Target) -> Self {
        self.targets.push(target);
        self
    }
}

impl Experiment for Study {
    fn command(&self) -> Command {
        let mut command = Command::new(self.name)
            .about(titled(self.shows, self.stands_for))
            .long_about(format!("{}\n\n{}", titled(self.shows, self.stands_for), self.what))
            .arg(
                Arg::new("quick")
                    .long("quick")
                    .action(ArgAction::SetTrue)
                    .help("Fewer and shorter set-ups: seconds to a few minutes"),
            )
            .arg(
                Arg::new("runs")
                    .long("runs")
                    .value_name("N")
                    .value_parser(value_parser!(u32).range(1..=1_000))
                    .default_value("1")
                    .help("Runs of each with seeds that follow each other, of which tables show the medians"),
            );
        if self.parts.iter().any(|part| part.has_sessions) {
            command = command.arg(
                Arg::new("qlog")
                    .long("qlog")
                    .value_name("DIR")
                    .value_parser(value_parser!(PathBuf))
                    .help("Write a qlog of each session and path there, at most 1 GiB"),
            );
        }
        if self.parts.iter().any(|part| !part.targets.is_empty()) {
            command = command.arg(
                Arg::new("check")
                    .long("check")
                    .action(ArgAction::SetTrue)
                    .help("Compare the figures of all runs together with their goals, and end with exit code 1 if one is missed"),
            );
        }
        let systems = self.systems();
        if !systems.is_empty() {
            command = command.arg(
                Arg::new("systems")
                    .long("systems")
                    .value_name("A,B")
                    .value_delimiter(',')
                    .help(format!("Run only these systems: {}", systems.join(", ")))
                    .hide_possible_values(true)
                    .value_parser(PossibleValuesParser::new(systems)),
            );
        }
        if self.parts.len() > 1 {
            let names = self.parts.iter().map(|part| part.name);
            let names: Vec<&str> = names.collect();
            command = command.arg(
                Arg::new("only")
                    .long("only")
                    .value_name("A,B")
                    .value_delimiter(',')
                    .help(format!("Run only these parts: {}", names.join(", ")))
                    .hide_possible_values(true)
                    .value_parser(PossibleValuesParser::new(names)),
            );
        }
        command
    }

    fn about(&self) -> Vec<About> {
        let whole = About {
            command: self.name.to_owned(),
            stands_for: self.stands_for,
            shows: self.shows,
        };
        let parts = self.parts.iter().filter(|_| self.parts.len() > 1);
        let parts = parts.map(|part| About {
            command: format!("{} --only {}", self.name, part.name),
            stands_for: part.stands_for,
            shows: part.shows,
        });
        std::iter::once(whole).chain(parts).collect()
    }

    fn plan(&self, options: &ArgMatches, seed: u64) -> Result<Box<dyn Plan>, Error> {
        let only: Vec<&String> = match self.parts.len() {
            1 => Vec::new(),
            _ => options.get_many("only").into_iter().flatten().collect(),
        };
        let runs = options.get_one("runs").copied().unwrap_or(1u32);
        let chosen = self.chosen(options);
        let is_wanted = |job: &Job| {
            chosen.is_empty() || job.system.is_some_and(|system| chosen.contains(&system))
        };
        let records = records(options)?;
        let mut rows = Vec::new();
        let mut targets = Vec::new();
        let mut jobs: Vec<(usize, Job)> = Vec::new();
        let mut notes = Vec::new();
        for part in &self.parts {
            if !only.is_empty() && !only.iter().any(|name| *name == part.name) {
                continue;
            }
            if let Some(why) = (part.missing)() {
                notes.push(format!("skipped: {}, because {why}", part.name));
                continue;
            }
            let mut number = 0;
            for run in 0..u64::from(runs) {
                let seed = seed.wrapping_add(run);
                let of_run = (part.jobs)(options.get_flag("quick"), seed, &chosen);
                for mut job in of_run.into_iter().filter(is_wanted) {
                    number += 1;
                    job.seed = seed;
                    job.records = records.of(&format!("{}-{number:03}", part.name));
                    jobs.push((rows.len(), job));
                }
            }
            if number == 0 {
                continue;
            }
            targets.extend(part.targets.iter().map(|target| (rows.len(), *target)));
            rows.push(Rows {
                part: part.name,
                stands_for: part.stands_for,
                shows: part.shows,
                table: part.columns.clone(),
                plots: part.plots.clone(),
            });
        }
        if jobs.is_empty() && !notes.is_empty() {
            return Err(Error::Settings(notes.join("; ")));
        }
        if jobs.is_empty() {
            return Err(Error::Settings(
                "--systems and --only leave no run: these parts do not compare these systems"
                    .into(),
            ));
        }
        if is_checked(options) && targets.is_empty() {
            let with = self.parts.iter().filter(|part| !part.targets.is_empty());
            let with: Vec<&str> = with.map(|part| part.name).collect();
            return Err(Error::Settings(format!(
                "--check: nothing that runs has a goal, and these parts have: {}",
                with.join(", ")
            )));
        }
        let has_run = |name: &&str| jobs.iter().any(|(_, job)| job.system == Some(*name));
        let without = chosen.iter().filter(|name| !has_run(name));
        let why = "because no part that runs compares it";
        notes.extend(without.map(|name| format!("skipped: {name}, {why}")));
        let results = Results {
            experiment: self.name,
            title: self.title,
            what: self.what,
            command: String::new(),
            seed,
            notes,
            has_parts: self.parts.len() > 1,
            rows,
        };
        let targets = is_checked(options).then_some(targets);
        Ok(Box::new(StudyPlan::new(results, targets, jobs)))
    }
}

/// Whether figures are to be compared with their goals.
pub(crate) fn is_checked(options: &ArgMatches) -> bool {
    let asked = options.try_get_one("check").ok().flatten();
    asked.copied().unwrap_or_default()
}

/// The folder for records that was asked for.
fn records(options: &ArgMatches) -> Result<Records, Error> {
    let folder = options.try_get_one::<PathBuf>("qlog").ok().flatten();
    let folder = folder.map(|folder| {
        QlogFolder::create(folder, QlogFolder::DEFAULT_BYTES).map_err(|error| {
            let folder = folder.display();
            Error::Settings(format!(
                "--qlog {folder}: {error}; name a folder that can be written"
            ))
        })
    });
    Ok(Records::new(folder.transpose()?))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a failed call is a failed test")]

    use std::{
        sync::atomic::{AtomicUsize, Ordering},
        time::Duration,
    };

    use starhaul_plot::Bound;

    use super::*;
    use crate::kit::{Context, Found};

    /// A study whose run of a seed fails if `fails` says so.
    fn found(fails: fn(&u64) -> Option<Error>) -> Result<Box<dyn Found>, Error> {
        let columns = || {
            vec![Column::number("seed", "seed", "", 0, |seed: &u64| {
                (*seed).into()
            })]
        };
        let run = move |seed: &u64, _: &Records| fails(seed).map_or(Ok(vec![*seed]), Err);
        let part = Part::with_sessions("part", "", "", columns, |_, seed| vec![seed], run);
        let study = Study::new("study", "", "", "", "").part(part);
        let options = study.command().get_matches_from(["study", "--runs", "3"]);
        let context = Context {
            command: "study",
            bench: &|| Err(Error::Failed("it needs no links".into())),
        };
        study.plan(&options, 7).unwrap().run(&context, &mut |_| {})
    }

    #[test]
    fn goals_are_judged_only_if_asked_for() {
        const AT_MOST_8: Target = Target {
            of: &[],
            by: "seed",
            figure: "figure",
            bound: |_, _| Some(Bound::AtMost(8.0)),
            together: false,
        };
        let columns = || -> Vec<Column<u64>> {
            let seed = |key| Column::count(key, key, |seed: &u64| (*seed).into());
            vec![seed("seed"), seed("figure").median()]
        };
        let run = |seed: &u64, _: &Records| Ok(vec![*seed]);
        let part = |name| Part::with_sessions(name, "", "", columns, |_, seed| vec![seed], run);
        let study = Study::new("study", "", "", "", "")
            .part(part("part").target(AT_MOST_8))
            .part(part("bare"));
        let failure = |arguments: &[&str]| {
            let all = ["study", "--runs", "3"].iter().chain(arguments);
            let options = study.command().get_matches_from(all);
            let context = Context {
                command: "study",
                bench: &|| Err(Error::Failed("it needs no links".into())),
            };
            let found = study.plan(&options, 7).unwrap().run(&context, &mut |_| {});
            found.unwrap().failure()
        };
        assert_eq!(failure(&[]), None);
        let missed = failure(&["--check"]).unwrap();
        assert!(missed.starts_with("goals missed, 1 of 3: "), "{missed}");
        assert!(missed.contains("seed 9: figure 9.000"), "{missed}");
        // What would judge nothing is refused before it runs.
        let all = ["study", "--only", "bare", "--check"];
        let options = study.command().get_matches_from(all);
        let refused = study.plan(&options, 7).err().unwrap().to_string();
        assert!(refused.contains("these parts have: part"), "{refused}");
    }

    fn lost(seed: &u64) -> Error {
        Error::Flow(format!("connection of {seed} lost"))
    }

    #[test]
    fn a_run_that_fails_leaves_those_of_others() {
        let all = found(|_| None).unwrap();
        assert_eq!(all.failure(), None);
        let found = found(|seed| (*seed == 8).then(|| lost(seed))).unwrap();
        assert!(found.failure().is_some());
        let json: serde_json::Value = serde_json::from_str(&found.json().unwrap()).unwrap();
        let seeds: Vec<_> = json["rows"].as_array().unwrap().iter().collect();
        assert_eq!(seeds.len(), 2, "{json}");
        assert!(!json["rows"].to_string().contains('8'), "{json}");
        let note = "failed: a run of part with seed 8, which does not count: connection of 8 lost";
        assert_eq!(json["skipped"], serde_json::json!([note]));
    }

    /// What measures this computer would measure the others, too.
    #[test]
    fn a_run_in_real_time_has_this_computer_for_itself() {
        static RUNNING: AtomicUsize = AtomicUsize::new(0);
        /// Takes a moment, and says how many others ran when it began.
        fn run(_: &u64) -> Result<Vec<u64>, Error> {
            let others = RUNNING.fetch_add(1, Ordering::SeqCst);
            std::thread::sleep(Duration::from_millis(5));
            RUNNING.fetch_sub(1, Ordering::SeqCst);
            Ok(vec![others as u64])
        }
        let columns = || {
            vec![Column::count("others", "others", |others: &u64| {
                (*others).into()
            })]
        };
        let setups = |_: bool, seed: u64| vec![seed; 4];
        let study = Study::new("study", "", "", "", "")
            .part(Part::new("real", "", "", columns, setups, run).in_real_time())
            .part(Part::new("virtual", "", "", columns, setups, run));
        let options = study.command().get_matches_from(["study", "--runs", "2"]);
        let context = Context {
            command: "study",
            bench: &|| Err(Error::Failed("it needs no links".into())),
        };
        let plan = study.plan(&options, 7).unwrap();
        let mut last = 0.0;
        let found = plan
            .run(&context, &mut |progress| {
                assert!(progress.done >= last, "{progress:?} after {last}");
                last = progress.done;
            })
            .unwrap();
        assert!((last - 1.0).abs() < 1e-9, "{last}");
        let json: serde_json::Value = serde_json::from_str(&found.json().unwrap()).unwrap();
        let real = json["real"].as_array().unwrap();
        assert_eq!(
            (real.len(), json["virtual"].as_array().unwrap().len()),
            (8, 8)
        );
        assert!(real.iter().all(|row| row["others"] == 0), "{json}");
        let said = study.plan(&options, 7).unwrap().describe();
        for part in ["8 runs in virtual time", "8 runs in real time"] {
            assert!(said.contains(part), "{said}");
        }
    }

    #[test]
    fn runs_of_which_all_fail_or_one_ends_all_are_an_error() {
        let error = |fails| found(fails).err().unwrap().to_string();
        assert!(error(|seed| Some(lost(seed))).contains("connection of"));
        let wrong = |seed: &u64| (*seed == 8).then(|| Error::Settings("no such link".into()));
        assert_eq!(error(wrong), "no such link");
    }
}
