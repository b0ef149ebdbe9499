//! Two LTP engines under random operations: lost, repeated, reordered and forged segments, engines started anew, outages.
//! `STARHAUL_LTP_PAIR=FIRST..END` runs other seeds.

use rand_chacha::{
    ChaCha8Rng,
    rand_core::{RngCore as _, SeedableRng as _},
};
use starhaul_system_tests::{
    fuzz::ltp_pair,
    seeds::{in_parallel, seeds_from},
};

const SEEDS: &str = "STARHAUL_LTP_PAIR";

#[test]
fn every_session_of_two_engines_ends_and_no_block_is_changed() {
    in_parallel(SEEDS, seeds_from(SEEDS, 0..400), |seed| {
        let mut operations = vec![0; 801];
        ChaCha8Rng::seed_from_u64(seed).fill_bytes(&mut operations);
        ltp_pair(&operations);
    });
}
