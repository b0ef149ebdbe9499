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
    results::Results,
    run::{Setup, Signal},
    sections::{self, Job, Section},
    systems::System,
    traces::{TraceCase, TraceSet},
};
use crate::Error;

/// LeoCC §6.1 replays 0.2 and 0.5 %; none shows what else costs throughput.
const LOSSES: [f64; 3] = [0.0, 0.002, 0.005];
const LOSSES_QUICK: [f64; 2] = [0.0, 0.005];
/// The three recorded traces and some synthetic ones.
const STUDY_TRACES: usize = 6;
/// What one core simulates, about.
const PACKETS_PER_SECOND: f64 = 1.2e6;

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
        let losses = match (options.losses.as_slice(), options.quick) {
            ([], true) => LOSSES_QUICK.to_vec(),
            ([], false) => LOSSES.to_vec(),
            (losses, _) => losses.to_vec(),
        };
        let sections = match options.sections.as_slice() {
            [] => Section::ALL.to_vec(),
            sections => sections.to_vec(),
        };
        Ok(Self {
            traces: TraceSet::load(options)?,
            ablations: ablations(&systems),
            systems,
            losses,
            queue: options.queue.unwrap_or(QueueChoice::Published),
            sections,
            quick: options.quick,
            seed: options.seed,
        })
    }

    /// Traces that were left out, one sentence each.
    pub fn skipped(&self) -> &[String] {
        &self.traces.skipped
    }

    /// What will run and about how long that takes, for people.
    pub fn describe(&self) -> String {
        let jobs = self.jobs();
        let packets: f64 = jobs.iter().map(|job| job.weight).sum();
        let virtual_time: Duration = jobs.iter().map(|job| job.time).sum();
        let seconds = packets / PACKETS_PER_SECOND / f64::from(u32::try_from(cores()).unwrap_or(1));
        format!(
            "{} systems over {} traces, {} runs, {} of virtual time: about {} on {} cores",
            self.systems.len(),
            self.traces.cases.len(),
            jobs.len(),
            span(virtual_time.as_secs_f64()),
            span(seconds),
            cores(),
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

    pub(super) fn systems(&self) -> &[System] {
        &self.systems
    }

    /// LeoCC, its variants and ablations, and BBR, from which it descends; nothing when LeoCC was not asked for.
    pub(super) fn ablations(&self) -> &[System] {
        &self.ablations
    }

    pub(super) fn losses(&self) -> &[f64] {
        &self.losses
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
        loss: f64,
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

fn ablations(systems: &[System]) -> Vec<System> {
    if !systems.iter().any(|system| system.name == "leocc") {
        return Vec::new();
    }
    let variant = |system: &&System| system.name.starts_with("leocc") || system.name == "bbr";
    let mut ablations: Vec<System> = systems.iter().filter(variant).cloned().collect();
    for ablation in System::ablations() {
        if ablations.iter().all(|system| system.name != ablation.name) {
            ablations.push(ablation);
        }
    }
    ablations
}

fn cores() -> usize {
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
