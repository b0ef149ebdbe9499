//! Making the experiment, and running it on all cores. The results do not depend on the order of the runs.

use std::time::{Duration, Instant};

use super::{
    case::{Changed, TraceSet},
    goals::{Checked, JUDGED, RIVAL, SYSTEM},
    job::Job,
    jobs,
    options::{Options, QueueChoice},
    pace::Pace,
    paths,
    plan::Plan,
    plural,
    results::Results,
    section::{Section, nothing_to_run},
};
use crate::{
    Error,
    kit::{
        self, Context, Found,
        parallel::{Progress, cores, in_parallel, span},
        statistics::distinct,
    },
    systems::System,
};

impl Plan {
    /// Reads the traces and finds the systems.
    ///
    /// # Errors
    /// An unknown system, an impossible loss, an unreadable trace.
    pub fn new(options: &Options) -> Result<Self, Error> {
        let systems = match options.systems.as_slice() {
            [] => System::all(),
            names => names
                .iter()
                .map(|name| System::named(name))
                .collect::<Result<_, _>>()?,
        };
        let sections = match options.sections.as_slice() {
            [] => Section::usual(),
            sections => sections.to_vec(),
        };
        let draws = [Section::Paths, Section::Unseen].map(|section| sections.contains(&section));
        let of_both = options.links.is_some() || options.probed;
        if draws == [false; 2] && of_both || !draws[1] && options.seeds.is_some() {
            return Err(Error::Settings(
                "--links and --probed belong to --only paths and unseen, --seeds to --only unseen"
                    .to_owned(),
            ));
        }
        let traces = TraceSet::load(options)?;
        let links =
            |section: Section, links: &dyn Fn() -> Result<Vec<Changed>, Error>| match sections
                .contains(&section)
            {
                true => links(),
                false => Ok(Vec::new()),
            };
        let plan = Self {
            paths: links(Section::Paths, &|| paths::grid(&traces.cases, options))?,
            unseen: links(Section::Unseen, &|| paths::drawn(options))?,
            path_systems: paths::systems(options)?,
            probed: options.probed,
            traces,
            ablations: ablations(&systems),
            systems,
            losses: options.losses.clone(),
            queue: options.queue.unwrap_or(QueueChoice::Published),
            sections,
            quick: options.quick,
            seed: options.seed,
            is_checked: false,
        };
        plan.refuse_nothing()?;
        Ok(plan)
    }

    /// The same plan, whose results are compared with their goals.
    ///
    /// # Errors
    /// [`Error::Settings`] where nothing that runs has a goal.
    pub(super) fn checked(self) -> Result<Self, Error> {
        let refused = |why: &str| Err(Error::Settings(format!("--check: {why}")));
        if self.quick {
            return refused("the goals are for all links and whole runs: leave out --quick");
        }
        let judged = self.sections.iter().filter(|part| JUDGED.contains(part));
        let judged: Vec<Section> = judged.copied().collect();
        if judged.is_empty() {
            return refused(
                "the goals are for scatter, fairness, paths and unseen: add some of them to --only",
            );
        }
        // Those of the other parts are the same, or more.
        let runs = |name: &str| self.path_systems.iter().any(|system| system.name == name);
        // Flows beside BBR are a part of fairness, whoever else runs.
        let beside = judged != [Section::Fairness];
        if !runs(SYSTEM) || beside && !runs(RIVAL) {
            return refused(&format!(
                "the goals are for {SYSTEM} beside {RIVAL}: add both to --systems"
            ));
        }
        Ok(Self {
            is_checked: true,
            ..self
        })
    }

    fn refuse_nothing(&self) -> Result<(), Error> {
        if !self.jobs().is_empty() {
            return Ok(());
        }
        let whys = self.sections.iter().map(|section| nothing_to_run(*section));
        let whys: Vec<&str> = whys.collect();
        Err(Error::Settings(format!(
            "nothing to run: {}",
            whys.join("; ")
        )))
    }

    /// Runs everything on all cores; `progress` is called at intervals on the caller's thread. `command` is kept with the results.
    ///
    /// # Errors
    /// A run that cannot be made.
    pub fn results(
        &self,
        command: &str,
        progress: &mut dyn FnMut(Progress),
    ) -> Result<Results, Error> {
        let jobs = self.jobs();
        let base = Instant::now();
        let outputs = in_parallel(&jobs, |job| job.weight, |job| (job.work)(base), progress);
        let mut results = Results {
            experiment: "leocc".to_owned(),
            command: command.to_owned(),
            seed: self.seed,
            skipped: self.traces.skipped.clone(),
            probed: self.probed,
            ..Results::default()
        };
        for (job, output) in jobs.iter().zip(outputs) {
            results.add(job.section, output?);
        }
        Ok(results)
    }

    fn jobs(&self) -> Vec<Job<'_>> {
        self.sections
            .iter()
            .flat_map(|section| jobs::jobs(self, *section))
            .collect()
    }
}

impl kit::Plan for Plan {
    fn skipped(&self) -> &[String] {
        &self.traces.skipped
    }

    // Measures for about a second how long a run takes on this computer.
    fn describe(&self) -> String {
        let jobs = self.jobs();
        let virtual_time: Duration = jobs.iter().map(|job| job.time).sum();
        let names = distinct(jobs.iter().flat_map(|job| &job.systems));
        let traces = distinct(jobs.iter().map(|job| job.trace));
        let who = match names.as_slice() {
            [] => "the detector".to_owned(),
            names => plural(names.len(), "system"),
        };
        format!(
            "{who} over {}, {}, {} of virtual time: about {} on {}",
            plural(traces.len(), "trace"),
            plural(jobs.len(), "run"),
            span(virtual_time.as_secs_f64()),
            span(Pace::measure(self).time(&jobs)),
            plural(cores(), "core"),
        )
    }

    fn run(
        &self,
        context: &Context<'_>,
        progress: &mut dyn FnMut(Progress),
    ) -> Result<Box<dyn Found>, Error> {
        let results = self.results(context.command, progress)?;
        Ok(match self.is_checked {
            true => Box::new(Checked::new(results)),
            false => Box::new(results),
        })
    }
}

/// Of each variant of LeoCC that was asked for what it is without one of its parts, and what else was asked for of LeoCC; and BBR.
fn ablations(systems: &[System]) -> Vec<System> {
    let of_leocc = |system: &&System| system.name.starts_with("leocc");
    let Some(_) = systems.iter().find(of_leocc) else {
        return Vec::new();
    };
    let whole = |name: &str| name.split("-no-").next().unwrap_or_default().to_owned();
    let asked: Vec<String> = systems.iter().map(|system| whole(&system.name)).collect();
    let variant = |system: &&System| of_leocc(system) || system.name == "bbr";
    let mut ablations: Vec<System> = systems.iter().filter(variant).cloned().collect();
    for ablation in System::ablations() {
        let new = ablations.iter().all(|system| system.name != ablation.name);
        if new && asked.contains(&whole(&ablation.name)) {
            ablations.push(ablation);
        }
    }
    ablations
}
