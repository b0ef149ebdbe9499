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
    results::{Params, Results, Row, queue_name},
    run::Setup,
    systems::System,
    traces::TraceSet,
};
use crate::Error;

/// LeoCC §6.1 replays 0.2 and 0.5 %; none shows what else costs throughput.
const LOSSES: [f64; 3] = [0.0, 0.002, 0.005];
const LOSSES_QUICK: [f64; 2] = [0.0, 0.005];

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
    losses: Vec<f64>,
    queue: QueueChoice,
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
        Ok(Self {
            traces: TraceSet::load(options)?,
            systems,
            losses,
            queue: options.queue.unwrap_or(QueueChoice::Published),
            seed: options.seed,
        })
    }

    /// Traces that were left out, one sentence each.
    pub fn skipped(&self) -> &[String] {
        &self.traces.skipped
    }

    /// What will run, for people.
    pub fn describe(&self) -> String {
        format!(
            "{} systems × {} traces × {} losses = {} runs, {:.0} s of virtual time",
            self.systems.len(),
            self.traces.cases.len(),
            self.losses.len(),
            self.setups().len(),
            self.virtual_time().as_secs_f64()
        )
    }

    fn virtual_time(&self) -> Duration {
        self.setups().iter().map(|setup| setup.case.time).sum()
    }

    /// Runs everything on all cores; `progress` is called now and then on the caller's thread. `command` is what to say that made
    /// the results.
    ///
    /// # Errors
    /// A run that cannot be made.
    pub fn run(&self, command: &str, mut progress: impl FnMut(Progress)) -> Result<Results, Error> {
        let setups = self.setups();
        let outcomes = in_parallel(
            &setups,
            Setup::weight,
            |setup| setup.run(Instant::now()),
            &mut progress,
        );
        let mut rows = Vec::new();
        for (setup, outcome) in setups.iter().zip(outcomes) {
            rows.push(Row {
                system: setup.system.name.clone(),
                params: Params {
                    trace: setup.case.name.clone(),
                    direction: setup.case.direction.name().to_owned(),
                    loss: setup.loss,
                    queue: queue_name(setup.queue),
                },
                metrics: outcome?.report.metrics,
            });
        }
        Ok(Results {
            experiment: "leocc".to_owned(),
            command: command.to_owned(),
            seed: self.seed,
            rows,
        })
    }

    fn setups(&self) -> Vec<Setup<'_>> {
        let mut setups = Vec::new();
        for case in &self.traces.cases {
            for &loss in &self.losses {
                for system in &self.systems {
                    setups.push(Setup {
                        system,
                        case,
                        loss,
                        queue: case.queue(self.queue),
                        // The same losses for every system.
                        seed: self.seed,
                        sample_each: None,
                    });
                }
            }
        }
        setups
    }
}

impl Setup<'_> {
    /// How long it takes, in any unit: packets.
    fn weight(&self) -> f64 {
        self.case.time.as_secs_f64() * self.case.trace.capacity.mean_rate().mbit()
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
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let (tell, told) = mpsc::channel();
    std::thread::scope(|scope| {
        for _ in 0..cores.min(jobs.len()) {
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
