//! Random tests by seed: selects seeds, runs them on all cores, and prints the one that failed.

use std::{
    ops::Range,
    panic::{AssertUnwindSafe, catch_unwind, resume_unwind},
    sync::atomic::{AtomicU64, Ordering},
};

/// The seeds in the environment variable `name`, written as `FIRST..END`, or `otherwise`.
///
/// # Panics
/// The variable has another form.
pub fn seeds_from(name: &str, otherwise: Range<u64>) -> Range<u64> {
    let Ok(text) = std::env::var(name) else {
        return otherwise;
    };
    let parsed = text
        .split_once("..")
        .and_then(|(first, end)| Some(first.parse().ok()?..end.parse().ok()?));
    parsed.unwrap_or_else(|| panic!("{name} is FIRST..END"))
}

/// Runs each of `seeds`, as many at once as there are cores.
///
/// # Panics
/// A run panicked; its seed has been printed as a value of the environment variable `name`.
pub fn in_parallel<T: Send>(
    name: &str,
    seeds: Range<u64>,
    run: impl Fn(u64) -> T + Sync,
) -> Vec<T> {
    let next = AtomicU64::new(seeds.start);
    let run_named = |seed| match catch_unwind(AssertUnwindSafe(|| run(seed))) {
        Ok(result) => result,
        Err(panic) => {
            eprintln!("failed with seed {seed}: {name}={seed}..{}", seed + 1);
            resume_unwind(panic)
        }
    };
    let threads = std::thread::available_parallelism().map_or(1, |count| count.get());
    std::thread::scope(|scope| {
        let work = || {
            let mine =
                || Some(next.fetch_add(1, Ordering::Relaxed)).filter(|seed| *seed < seeds.end);
            std::iter::from_fn(mine).map(run_named).collect::<Vec<_>>()
        };
        let workers: Vec<_> = (0..threads).map(|_| scope.spawn(work)).collect();
        let joined = workers.into_iter().map(|worker| worker.join());
        joined
            .flat_map(|results| results.unwrap_or_else(|panic| resume_unwind(panic)))
            .collect()
    })
}
