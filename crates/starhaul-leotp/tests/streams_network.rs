//! Streams over a small network under random operations: lost, repeated, reordered, replayed and forged packets, relays and
//! ends that restart, routes that switch, an opener that moves. `STARHAUL_LEOTP_STREAMS=FIRST..END` runs other seeds.

#[path = "../../../tests/src/fuzz/leotp_network.rs"]
mod leotp_network;
#[path = "../../../tests/src/fuzz/leotp_streams.rs"]
pub mod network;

use network::Endings;
use rand_chacha::{
    ChaCha8Rng,
    rand_core::{RngCore as _, SeedableRng as _},
};

const SEEDS: &str = "STARHAUL_LEOTP_STREAMS";

#[test]
fn every_stream_ends_the_same_at_both_ends_and_nothing_of_it_is_left() {
    let seeds = match std::env::var(SEEDS) {
        Ok(range) => {
            let (first, end) = range.split_once("..").expect("FIRST..END");
            first.parse().unwrap()..end.parse().unwrap()
        }
        Err(_) => 0..60_u64,
    };
    let mut sum = Endings::default();
    for seed in seeds.clone() {
        let mut operations = vec![0; 801];
        ChaCha8Rng::seed_from_u64(seed).fill_bytes(&mut operations);
        let run = std::panic::catch_unwind(|| network::run(&operations));
        let Ok(endings) = run else {
            panic!("seed {seed}; {SEEDS}={seed}..{} runs it alone", seed + 1);
        };
        sum.done += endings.done;
        sum.reset += endings.reset;
        sum.cut_off += endings.cut_off;
        sum.given_up += endings.given_up;
    }
    println!("{sum:?}");
    if seeds.count() >= 20 {
        assert!(sum.done > 2 * sum.given_up && sum.reset > 0, "{sum:?}");
    }
}
