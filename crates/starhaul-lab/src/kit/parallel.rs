//! Jobs on all cores, and how far they are.

use std::{
    sync::{
        atomic::{AtomicUsize, Ordering},
        mpsc,
    },
    time::{Duration, Instant},
};

/// How far a run of the experiment is.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Progress {
    /// Share of the work done, 0 to 1.
    pub done: f64,
    /// Time since the beginning.
    pub elapsed: Duration,
}

pub(crate) fn cores() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}

/// A time for people.
pub(crate) fn span(seconds: f64) -> String {
    match seconds {
        s if s < 90.0 => format!("{s:.0} s"),
        s if s < 5400.0 => format!("{:.0} min", s / 60.0),
        s => format!("{:.1} h", s / 3600.0),
    }
}

/// Does all jobs on all cores, the longest first, and gives their results in the order of the jobs.
pub(crate) fn in_parallel<J: Sync, R: Send>(
    jobs: &[J],
    weight: impl Fn(&J) -> f64,
    work: impl Fn(&J) -> R + Sync,
    progress: &mut dyn FnMut(Progress),
) -> Vec<R> {
    in_threads(cores(), jobs, weight, work, progress)
}

/// The same with so many jobs at once.
pub(crate) fn in_threads<J: Sync, R: Send>(
    threads: usize,
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
    let mut results: Vec<Option<R>> = jobs.iter().map(|_| None).collect();
    let next = AtomicUsize::new(0);
    let (tell, told) = mpsc::channel();
    std::thread::scope(|scope| {
        for _ in 0..threads.min(jobs.len()) {
            let tell = tell.clone();
            let (next, order, work) = (&next, &order, &work);
            scope.spawn(move || {
                while let Some(&job) = order.get(next.fetch_add(1, Ordering::Relaxed)) {
                    // The receiver is gone only when the experiment ends.
                    let _ = tell.send((job, work(&jobs[job])));
                }
            });
        }
        drop(tell);
        let mut done = 0.0;
        for (job, result) in told {
            results[job] = Some(result);
            done += weights[job];
            progress(Progress {
                done: done / total.max(f64::MIN_POSITIVE),
                elapsed: began.elapsed(),
            });
        }
    });
    results.into_iter().flatten().collect()
}
