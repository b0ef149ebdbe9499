//! Which runs make the experiment, and running them on all cores. The results do not depend on the order of the runs.

use std::{
    sync::{
        Mutex, PoisonError,
        atomic::{AtomicUsize, Ordering},
        mpsc,
    },
    time::{Duration, Instant},
};

use super::{
    options::{Options, QueueChoice},
    pace::Pace,
    plural,
    results::Results,
    run::{Setup, Signal},
    sections::{self, Job, STUDY_LOSS, Section},
    systems::System,
    table::distinct,
    traces::{DataLoss, TraceCase, TraceSet},
};
use crate::Error;

/// LeoCC §6.1 replays 0.2 and 0.5 %; none shows what else costs throughput.
const LOSSES: [f64; 3] = [0.0, 0.002, 0.005];
const LOSSES_QUICK: [f64; 2] = [0.0, 0.005];
/// The three recorded traces and some synthetic ones.
const STUDY_TRACES: usize = 6;
/// Flows of one kind that share a link.
const FLOW_COUNTS: [usize; 3] = [2, 4, 8];
const FLOW_COUNTS_QUICK: [usize; 2] = [2, 8];

/// How far a run of the experiment is.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Progress {
    /// Share of the work done, 0 to 1.
    pub done: f64,
    /// Time since the beginning.
    pub elapsed: Duration,
}

/// The experiment as asked for, before it runs.
#[derive(Clone, Debug)]
pub struct Plan {
    traces: TraceSet,
    systems: Vec<System>,
    ablations: Vec<System>,
    /// As asked for, if they were.
    losses: Vec<f64>,
    queue: QueueChoice,
    sections: Vec<Section>,
    quick: bool,
    seed: u64,
}

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
            [] => Section::ALL.to_vec(),
            sections => sections.to_vec(),
        };
        let plan = Self {
            traces: TraceSet::load(options)?,
            ablations: ablations(&systems),
            systems,
            losses: options.losses.clone(),
            queue: options.queue.unwrap_or(QueueChoice::Published),
            sections,
            quick: options.quick,
            seed: options.seed,
        };
        plan.refuse_nothing()?;
        Ok(plan)
    }

    fn refuse_nothing(&self) -> Result<(), Error> {
        if !self.jobs().is_empty() {
            return Ok(());
        }
        let whys = self
            .sections
            .iter()
            .map(|section| sections::nothing_to_run(*section));
        let whys: Vec<&str> = whys.collect();
        Err(Error::Settings(format!(
            "nothing to run: {}",
            whys.join("; ")
        )))
    }

    /// What was left out, one sentence each.
    pub fn skipped(&self) -> &[String] {
        &self.traces.skipped
    }

    /// What will run and about how long that takes, for people. A second or so of it goes by for measuring that.
    pub fn describe(&self) -> String {
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

    /// Runs everything on all cores; `progress` is called now and then on the caller's thread. `command` is what to say that made
    /// the results.
    ///
    /// # Errors
    /// A run that cannot be made.
    pub fn run(&self, command: &str, mut progress: impl FnMut(Progress)) -> Result<Results, Error> {
        let jobs = self.jobs();
        let base = Instant::now();
        let outputs = in_parallel(
            &jobs,
            |job| job.weight,
            |job| (job.work)(base),
            &mut progress,
        );
        let mut results = Results {
            experiment: "leocc".to_owned(),
            command: command.to_owned(),
            seed: self.seed,
            skipped: self.traces.skipped.clone(),
            ..Results::default()
        };
        for (job, output) in jobs.iter().zip(outputs) {
            results.add(job.section, output?);
        }
        Ok(results)
    }

    pub(super) fn cases(&self) -> &[TraceCase] {
        &self.traces.cases
    }

    /// The traces of the studies beside the scatter: recorded ones and a few synthetic ones.
    pub(super) fn study_cases(&self) -> &[TraceCase] {
        let count = if self.quick { 1 } else { STUDY_TRACES };
        self.traces.cases.get(..count).unwrap_or(&self.traces.cases)
    }

    /// The traces of most studies, each with its losses.
    pub(super) fn studied(&self) -> impl Iterator<Item = (&TraceCase, DataLoss)> {
        let of_case = |case| {
            self.study_losses(case)
                .into_iter()
                .map(move |loss| (case, loss))
        };
        self.study_cases().iter().flat_map(of_case)
    }

    pub(super) fn systems(&self) -> &[System] {
        &self.systems
    }

    /// LeoCC, its variants and ablations, and BBR, from which it descends; nothing when LeoCC was not asked for.
    pub(super) fn ablations(&self) -> &[System] {
        &self.ablations
    }

    /// The losses of the scatter.
    pub(super) fn losses(&self, case: &TraceCase) -> Vec<DataLoss> {
        let usual: &[f64] = if self.quick { &LOSSES_QUICK } else { &LOSSES };
        case.losses(&self.losses, usual)
    }

    /// The losses of the other parts.
    pub(super) fn study_losses(&self, case: &TraceCase) -> Vec<DataLoss> {
        case.losses(&self.losses, &[STUDY_LOSS])
    }

    /// The loss of the parts that are made with one only.
    pub(super) fn first_study_loss(&self, case: &TraceCase) -> DataLoss {
        let first = self.study_losses(case).first().copied();
        first.unwrap_or(DataLoss::Random(STUDY_LOSS))
    }

    /// How many flows of a kind share a link.
    pub(super) fn flow_counts(&self) -> &[usize] {
        if self.quick {
            &FLOW_COUNTS_QUICK
        } else {
            &FLOW_COUNTS
        }
    }

    pub(super) fn queue(&self) -> QueueChoice {
        self.queue
    }

    pub(super) fn seed(&self) -> u64 {
        self.seed
    }

    /// A run as it is when nothing else is said.
    pub(super) fn setup<'a>(
        &self,
        system: &'a System,
        case: &'a TraceCase,
        loss: DataLoss,
    ) -> Setup<'a> {
        Setup {
            system,
            case,
            loss,
            queue: case.queue(self.queue),
            signal: Signal::default(),
            ground: None,
            // The same losses for every system.
            seed: self.seed,
            sample_each: None,
        }
    }

    fn jobs(&self) -> Vec<Job<'_>> {
        self.sections
            .iter()
            .flat_map(|section| sections::jobs(self, *section))
            .collect()
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

pub(super) fn cores() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}

/// A time for people.
pub(super) fn span(seconds: f64) -> String {
    match seconds {
        s if s < 90.0 => format!("{s:.0} s"),
        s if s < 5400.0 => format!("{:.0} min", s / 60.0),
        s => format!("{:.1} h", s / 3600.0),
    }
}

/// Does all jobs on all cores, the longest first, and gives their results in the order of the jobs.
pub(super) fn in_parallel<J: Sync, R: Send>(
    jobs: &[J],
    weight: impl Fn(&J) -> f64,
    work: impl Fn(&J) -> R + Sync,
    progress: &mut dyn FnMut(Progress),
) -> Vec<R> {
    let began = Instant::now();
    let weights: Vec<f64> = jobs.iter().map(weight).collect();
    let total: f64 = weights.iter().sum();
    let mut order: Vec<usize> = (0..jobs.len()).collect();
    order.sort_by(|a, b| weights[*b].total_cmp(&weights[*a]));
    let results: Vec<Mutex<Option<R>>> = jobs.iter().map(|_| Mutex::new(None)).collect();
    let next = AtomicUsize::new(0);
    let (tell, told) = mpsc::channel();
    std::thread::scope(|scope| {
        for _ in 0..cores().min(jobs.len()) {
            let tell = tell.clone();
            let (next, order, results, work) = (&next, &order, &results, &work);
            scope.spawn(move || {
                while let Some(&job) = order.get(next.fetch_add(1, Ordering::Relaxed)) {
                    let result = work(&jobs[job]);
                    *results[job].lock().unwrap_or_else(PoisonError::into_inner) = Some(result);
                    // Whoever listened has gone only when the experiment ends.
                    let _ = tell.send(job);
                }
            });
        }
        drop(tell);
        let mut done = 0.0;
        for job in told {
            done += weights[job];
            progress(Progress {
                done: done / total.max(f64::MIN_POSITIVE),
                elapsed: began.elapsed(),
            });
        }
    });
    results
        .into_iter()
        .filter_map(|result| result.into_inner().unwrap_or_else(PoisonError::into_inner))
        .collect()
}
