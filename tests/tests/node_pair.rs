//! Random operations on a pair of whole stacks under a hostile network: packets lost, repeated, changed, from other
//! addresses and from port 0, acceptances lost, paths that join again, sessions closed and opened.
//!
//! More seeds: `STARHAUL_NODE_SEEDS=0..10000 cargo test -p starhaul-system-tests --release --test node_pair`.

use starhaul_system_tests::{
    fuzz::run_nodes,
    pair::bytes_of_seed,
    seeds::{in_parallel, seeds_from},
};

#[test]
fn no_network_breaks_a_promise_of_the_stack() {
    let name = "STARHAUL_NODE_SEEDS";
    let seeds = seeds_from(name, 0..60);
    let count = seeds.end - seeds.start;
    let reports = in_parallel(name, seeds, |seed| run_nodes(&bytes_of_seed(seed)));
    let bytes: usize = reports.iter().map(|report| report.bytes).sum();
    let blocks: usize = reports.iter().map(|report| report.blocks).sum();
    println!("{count} runs: {blocks} blocks and {bytes} bytes of streams arrived");
    assert!(
        bytes as u64 > 1000 * count,
        "a network that carries nothing proves nothing"
    );
}
