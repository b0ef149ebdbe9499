//! Random operations on a pair of sessions: every promise holds for any actions of applications and network.
//!
//! More seeds: `STARHAUL_PAIR_SEEDS=0..100000 cargo test -p starhaul-system-tests --release --test session_pair`.

use starhaul_system_tests::{
    pair::{Plan, Report, bytes_of_seed, run},
    seeds::{in_parallel, seeds_from},
};

const OPERATIONS: usize = 400;

fn run_seed(seed: u64) -> Report {
    run(&Plan::from_bytes(&bytes_of_seed(seed), OPERATIONS))
}

#[test]
fn random_operations_break_no_promise() {
    let name = "STARHAUL_PAIR_SEEDS";
    let reports = in_parallel(name, seeds_from(name, 0..250), run_seed);
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
    // A driver without effect would prove nothing.
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
