//! DMTP's two-path set-up (DMTP §VI): 15 Mbit/s and 60 ms one way each, the cheap path loses, the dear one does not; 24 kB blocks,
//! 50 a second, deadline 200 ms.

use std::time::Duration;

use crate::pair::{Pair, is_on_time};
use bytes::Bytes;
use starhaul_session::{
    BlockOptions, Mode, Outcome, SchedulerChoice, SessionConfig, StreamConfig, StreamId,
};

const DEADLINE: Duration = Duration::from_millis(200);

/// The paths and a stream, after one second without loss; then the cheap path loses this in its first so many directions.
fn set_up(
    by: SchedulerChoice,
    mode: Mode,
    loss: f64,
    directions: usize,
    seed: u64,
) -> (Pair, StreamId) {
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
        let links = lane.links.iter_mut().take(directions);
        links.for_each(|link| link.set_loss(now, starhaul_link::Loss::bernoulli(loss).unwrap()));
    }
    (pair, stream)
}

fn send(pair: &mut Pair, stream: StreamId, blocks: u32) {
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
}

/// Blocks on time of `blocks` after one second without loss.
fn on_time(by: SchedulerChoice, mode: Mode, loss: f64, blocks: u32, seed: u64) -> u32 {
    let (mut pair, stream) = set_up(by, mode, loss, 2, seed);
    send(&mut pair, stream, blocks);
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

/// One retransmission is in time, and the path that takes it loses nothing: the least that must leave beside the data is what was lost.
#[test]
fn where_a_retransmission_is_in_time_hardly_more_leaves_than_was_lost() {
    const TAUGHT: u32 = 100;
    const BLOCKS: u32 = 500;
    for (seed, loss) in [(1, 0.05), (2, 0.05), (3, 0.1), (4, 0.1), (5, 0.2)] {
        let (mut pair, stream) = set_up(SchedulerChoice::Rules, Mode::FecRetransmit, loss, 1, seed);
        // Until the loss is known, and that of the other path.
        send(&mut pair, stream, TAUGHT);
        let known = pair.elapsed();
        send(&mut pair, stream, BLOCKS);
        pair.run_for(Duration::from_secs(2));
        let outcomes = pair.outcomes(0);
        let mut judged = outcomes.iter().filter(|(_, block, _)| *block >= TAUGHT);
        assert!(
            judged.all(|(_, _, outcome)| is_on_time(*outcome)),
            "loss {loss}, seed {seed}"
        );
        let fragments = pair.fragments(0);
        let later = fragments.iter().filter(|fragment| fragment.at >= known);
        let data = 20.0 * f64::from(BLOCKS);
        let extra = (later.count() as f64 - data) / data;
        println!("loss {loss}, seed {seed}: {extra:.4} beside the data");
        assert!(extra <= 1.25 * loss, "loss {loss}, seed {seed}: {extra}");
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
