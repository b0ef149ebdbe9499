//! DMTP's two-path set-up (DMTP §VI): 15 Mbit/s and 60 ms one way each, the cheap path loses, the dear one does not; 24 kB blocks,
//! 50 a second, deadline 200 ms.

use std::time::Duration;

use crate::pair::Pair;
use bytes::Bytes;
use starhaul_session::{BlockOptions, Mode, Outcome, SchedulerChoice, SessionConfig, StreamConfig};

const DEADLINE: Duration = Duration::from_millis(200);

/// Blocks on time of `blocks` after one second without loss.
fn on_time(by: SchedulerChoice, mode: Mode, loss: f64, blocks: u32, seed: u64) -> u32 {
    let config = SessionConfig {
        max_fragment_bytes: 1200,
        ..SessionConfig::default()
    };
    let mut pair = Pair::by(by, config);
    pair.lane(0, 15.0, 60, 0.0, 0.0, seed);
    pair.lane(1, 15.0, 60, 0.0, 1.0, seed);
    pair.run_for(Duration::from_secs(1));
    let stream = StreamConfig {
        mode,
        deadline: DEADLINE,
        max_coding_rate: 1.0,
        ..StreamConfig::default()
    };
    let stream = pair.sessions[0].open_stream(pair.now, stream).unwrap();
    for lane in pair.lanes.values_mut().take(1) {
        let now = pair.now;
        lane.links
            .iter_mut()
            .for_each(|link| link.set_loss(now, starhaul_link::Loss::bernoulli(loss).unwrap()));
    }
    for _ in 0..blocks {
        pair.sessions[0]
            .send_block(
                pair.now,
                stream,
                Bytes::from(vec![7; 24_000]),
                BlockOptions::default(),
            )
            .unwrap();
        pair.run_for(Duration::from_millis(20));
    }
    pair.run_for(Duration::from_secs(2));
    let outcomes = pair.outcomes(0);
    assert_eq!(
        outcomes.len(),
        blocks as usize,
        "seed {seed}: every block ends once"
    );
    let told = outcomes
        .iter()
        .filter(|(_, _, outcome)| matches!(outcome, Outcome::Delivered { on_time: true, .. }))
        .count();
    let seen = pair
        .received(1)
        .iter()
        .filter(|(_, _, _, _, latency)| *latency <= DEADLINE)
        .count();
    let missed: Vec<_> = outcomes
        .iter()
        .filter(|(_, _, outcome)| !matches!(outcome, Outcome::Delivered { on_time: true, .. }))
        .collect();
    assert_eq!(
        told, seen,
        "seed {seed}: both sides agree on what was on time; missed {missed:?}"
    );
    u32::try_from(told).unwrap()
}

#[test]
fn fec_and_retransmission_keep_every_deadline_at_any_loss() {
    for (seed, loss) in [0.0001, 0.0005, 0.005, 0.01, 0.02, 0.05, 0.1, 0.1]
        .into_iter()
        .enumerate()
    {
        for by in SchedulerChoice::ALL {
            for mode in [Mode::FecRetransmit, Mode::Retransmit] {
                let kept = on_time(by, mode, loss, 250, seed as u64);
                assert_eq!(kept, 250, "{mode:?} by {by:?} at loss {loss}, seed {seed}");
            }
        }
    }
}

#[test]
fn without_protection_a_block_needs_all_twenty_fragments() {
    let loss: f64 = 0.02;
    let blocks = 1000;
    // The rules keep to the cheap path; a plan would flee from it.
    let by = SchedulerChoice::Rules;
    let kept = f64::from(on_time(by, Mode::None, loss, blocks, 3));
    let expected = (1.0 - loss).powi(20);
    let deviation = (expected * (1.0 - expected) / f64::from(blocks)).sqrt();
    let share = kept / f64::from(blocks);
    assert!(
        (share - expected).abs() < 4.0 * deviation,
        "{share} instead of {expected} ± {deviation}"
    );
}
