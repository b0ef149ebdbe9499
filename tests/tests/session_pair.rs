//! Random operations on a pair of sessions: every promise holds whatever the applications and the network do.
//!
//! More seeds: `STARHAUL_PAIR_SEEDS=0..100000 cargo test -p starhaul-system-tests --release --test session_pair`.

use std::{
    ops::Range,
    panic::{AssertUnwindSafe, catch_unwind, resume_unwind},
    sync::atomic::{AtomicU64, Ordering},
};

use starhaul_system_tests::pair::{Plan, Report, bytes_of_seed, run};

const SEEDS: Range<u64> = 0..250;
const OPERATIONS: usize = 400;

fn run_seed(seed: u64) -> Report {
    let plan = Plan::from_bytes(&bytes_of_seed(seed), OPERATIONS);
    match catch_unwind(AssertUnwindSafe(|| run(&plan))) {
        Ok(report) => report,
        Err(panic) => {
            eprintln!(
                "the pair of sessions failed with seed {seed}: STARHAUL_PAIR_SEEDS={seed}..{}",
                seed + 1
            );
            resume_unwind(panic)
        }
    }
}

fn seeds() -> Range<u64> {
    let Ok(text) = std::env::var("STARHAUL_PAIR_SEEDS") else {
        return SEEDS;
    };
    let (first, end) = text
        .split_once("..")
        .expect("STARHAUL_PAIR_SEEDS is FIRST..END");
    first.parse().expect("a number")..end.parse().expect("a number")
}

#[test]
fn random_operations_break_no_promise() {
    let seeds = seeds();
    let next = AtomicU64::new(seeds.start);
    let threads = std::thread::available_parallelism().map_or(1, |count| count.get());
    let reports: Vec<Report> = std::thread::scope(|scope| {
        let work = || {
            let mine =
                || Some(next.fetch_add(1, Ordering::Relaxed)).filter(|seed| *seed < seeds.end);
            std::iter::from_fn(mine).map(run_seed).collect::<Vec<_>>()
        };
        let workers: Vec<_> = (0..threads).map(|_| scope.spawn(work)).collect();
        let joined = workers.into_iter().map(|worker| worker.join());
        joined
            .flat_map(|reports| reports.unwrap_or_else(|panic| resume_unwind(panic)))
            .collect()
    });
    let total = |figure: fn(&Report) -> u64| reports.iter().map(figure).sum::<u64>();
    let (blocks, received) = (
        total(|report| report.blocks as u64),
        total(|report| report.received as u64),
    );
    let (datagrams, bytes_read) = (
        total(|report| report.datagrams),
        total(|report| report.bytes_read),
    );
    println!(
        "{datagrams} datagrams, {received} of {blocks} blocks received, {bytes_read} bytes read"
    );
    // A driver that drives nothing would prove nothing.
    assert!(
        received * 4 > blocks && bytes_read > blocks,
        "{received} of {blocks} blocks, {bytes_read} bytes"
    );
}

#[test]
fn the_same_seed_gives_the_same_run() {
    for seed in 0..10 {
        assert_eq!(run_seed(seed), run_seed(seed), "seed {seed}");
    }
}
