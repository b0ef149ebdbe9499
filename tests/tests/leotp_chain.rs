//! A small LEOTP network under random operations: lost, repeated, reordered, replayed and forged packets, relays that restart,
//! routes that switch, caches that hold next to nothing; and a relay one of whose neighbours has the key and says anything.
//! `STARHAUL_LEOTP_CHAIN=FIRST..END` and `STARHAUL_LEOTP_HOSTILE=FIRST..END` run other seeds.

use rand_chacha::{
    ChaCha8Rng,
    rand_core::{RngCore as _, SeedableRng as _},
};
use starhaul_system_tests::{
    fuzz::{leotp_chain, leotp_hostile},
    seeds::{in_parallel, seeds_from},
};

const SEEDS: &str = "STARHAUL_LEOTP_CHAIN";
const HOSTILE_SEEDS: &str = "STARHAUL_LEOTP_HOSTILE";

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

#[test]
fn a_neighbour_that_says_anything_under_its_key_harms_no_other() {
    in_parallel(HOSTILE_SEEDS, seeds_from(HOSTILE_SEEDS, 0..100), |seed| {
        leotp_hostile(&random(seed, 2001));
    });
}

fn run(seed: u64) {
    leotp_chain(&random(seed, 601));
}

fn random(seed: u64, length: usize) -> Vec<u8> {
    let mut operations = vec![0; length];
    ChaCha8Rng::seed_from_u64(seed).fill_bytes(&mut operations);
    operations
}
