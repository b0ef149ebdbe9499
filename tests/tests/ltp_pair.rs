//! Two LTP engines under random operations: lost, repeated, reordered and forged segments, engines started anew, outages.
//! `STARHAUL_LTP_PAIR=FIRST..END` runs other seeds.

use rand_chacha::{
    ChaCha8Rng,
    rand_core::{RngCore as _, SeedableRng as _},
};
use starhaul_system_tests::{
    fuzz::delivered_between_engines,
    seeds::{in_parallel, seeds_from},
};

const SEEDS: &str = "STARHAUL_LTP_PAIR";

#[test]
fn every_session_of_two_engines_ends_and_no_block_is_changed() {
    let delivered = in_parallel(SEEDS, seeds_from(SEEDS, 0..400), |seed| {
        let mut operations = vec![0; 801];
        ChaCha8Rng::seed_from_u64(seed).fill_bytes(&mut operations);
        delivered_between_engines(&operations)
    });
    let (runs, delivered) = (delivered.len(), delivered.iter().sum::<usize>());
    println!("{delivered} red parts delivered in {runs} runs");
    // Engines that give everything up would keep the other promises.
    assert!(delivered > runs, "{delivered} red parts in {runs} runs");
}
