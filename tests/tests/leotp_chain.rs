//! A small LEOTP network under random operations: lost, repeated, reordered, replayed and forged packets, relays that restart,
//! routes that switch, caches that hold next to nothing. `STARHAUL_LEOTP_CHAIN=FIRST..END` runs other seeds.

use rand_chacha::{
    ChaCha8Rng,
    rand_core::{RngCore as _, SeedableRng as _},
};
use starhaul_system_tests::{
    fuzz::leotp_chain,
    seeds::{in_parallel, seeds_from},
};

const SEEDS: &str = "STARHAUL_LEOTP_CHAIN";

#[test]
fn every_transfer_through_relays_ends_and_no_byte_is_changed() {
    in_parallel(SEEDS, seeds_from(SEEDS, 0..100), run);
}

/// So much was lost that a packet a second was left, from which the rate did not grow again.
#[test]
fn a_hop_that_carried_next_to_nothing_recovers() {
    for seed in [207, 854] {
        run(seed);
    }
}

fn run(seed: u64) {
    let mut operations = vec![0; 601];
    ChaCha8Rng::seed_from_u64(seed).fill_bytes(&mut operations);
    leotp_chain(&operations);
}
