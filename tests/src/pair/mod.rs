//! A pair of sessions over up to three simulated paths, driven by a list of random operations in virtual time.
//!
//! A [`Plan`] comes from a seed or from a fuzzer's bytes; [`run`] executes it and panics when a promise of the session
//! is broken: a block has no outcome or two, is delivered twice or changed, reliable bytes are lost or out of order, a
//! bound on memory is exceeded, or something never ends although the paths work.

mod applications;
mod ledger;
mod links;
mod operation;
mod world;

use rand_chacha::{
    ChaCha8Rng,
    rand_core::{RngCore, SeedableRng},
};

pub use operation::Plan;
pub use world::{Report, run};

/// Number of bytes of a seed; enough for a thousand operations.
const PLAN_BYTES: usize = 1 << 14;

/// The bytes from which [`Plan::from_bytes`] makes the plan of `seed`; also fuzzer input.
pub fn bytes_of_seed(seed: u64) -> Vec<u8> {
    let mut bytes = vec![0; PLAN_BYTES];
    ChaCha8Rng::seed_from_u64(seed).fill_bytes(&mut bytes);
    bytes
}
