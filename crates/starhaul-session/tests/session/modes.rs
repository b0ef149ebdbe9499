//! The six ways in which a stream's data are protected, each where it must help and where it must not act.

use std::collections::{BTreeMap, BTreeSet};

use crate::pair::{Pair, ms, pattern};
use starhaul_link::{LinkSpec, Loss};
use starhaul_session::{
    BlockOptions, Mode, Outcome, PathId, SchedulerChoice, SessionConfig, StreamConfig,
};

fn stream(mode: Mode, deadline_ms: u64, max_coding_rate: f64) -> StreamConfig {
    StreamConfig {
        mode,
        deadline: ms(deadline_ms),
        max_coding_rate,
        ..StreamConfig::default()
    }
}

struct Run {
    pair: Pair,
    blocks: usize,
}

impl Run {
    fn new(
        config: StreamConfig,
        lanes: &[(u64, f64)],
        bytes: usize,
        blocks: usize,
        seed: u64,
    ) -> Self {
        Self::by(
            SchedulerChoice::default(),
            config,
            lanes,
            (bytes, blocks),
            seed,
        )
    }

    /// Blocks of so many bytes every 20 ms over two paths of 20 Mbit/s and the given one-way delays and losses, the first one cheaper.
    fn by(
        scheduler: SchedulerChoice,
        config: StreamConfig,
        lanes: &[(u64, f64)],
        (bytes, blocks): (usize, usize),
        seed: u64,
    ) -> Self {
        let mut pair = Pair::by(scheduler, SessionConfig::default());
        // The way back loses nothing: the sender asks for a lost acknowledgement of a block with a fragment, which counts as sent again.
        for (id, (delay, loss)) in (0..).zip(lanes) {
            let back = format!("rate=20mbit,delay={delay}ms").parse().unwrap();
            let there = LinkSpec::clone(&back).with_loss(Loss::bernoulli(*loss).unwrap());
            pair.lane_of([&there, &back], f64::from(id), id, seed);
        }
        // Losses become known.
        let warm_up = pair.open(stream(Mode::None, 3000, 0.0));
        for _ in 0..100 {
            pair.send(warm_up, 12_000, BlockOptions::default());
            pair.run_for(ms(10));
        }
        pair.run_for(ms(2000));
        pair.events = [Vec::new(), Vec::new()];
        pair.sent = [Vec::new(), Vec::new()];
        let stream = pair.open(config);
        for _ in 0..blocks {
            pair.send(stream, bytes, BlockOptions::default());
            pair.run_for(ms(20));
        }
        pair.run_for(ms(3000));
        let mine = |(id, _, _): &(u32, u32, Outcome)| *id == stream.0;
        assert_eq!(
            pair.outcomes(0).iter().filter(|o| mine(o)).count(),
            blocks,
            "seed {seed}"
        );
        Self { pair, blocks }
    }

    fn on_time(&self) -> f64 {
        self.pair.on_time() as f64 / self.blocks as f64
    }

    /// Fragments sent more than once.
    fn repeats(&self) -> usize {
        let fragments = self.pair.fragments(0);
        let distinct: BTreeSet<_> = fragments
            .iter()
            .map(|f| (f.block, f.code, f.index))
            .collect();
        fragments.len() - distinct.len()
    }

    fn redundancy(&self) -> usize {
        self.pair
            .fragments(0)
            .iter()
            .filter(|f| f.index >= f.data_count)
            .count()
    }
}

#[test]
fn fec_repairs_where_a_retransmission_would_come_too_late() {
    for seed in 0..3 {
        // 60 ms one way, deadline 100 ms: no retransmission can help.
        let lanes = [(60, 0.03), (60, 0.0)];
        // The rules keep to the cheap path, which loses; a plan would flee from it.
        let run = |mode| {
            let config = stream(mode, 100, 1.0);
            Run::by(SchedulerChoice::Rules, config, &lanes, (12_000, 200), seed)
        };
        let (fec, none) = (run(Mode::Fec), run(Mode::None));
        let planned = Run::new(stream(Mode::Fec, 100, 1.0), &lanes, 12_000, 200, seed);
        assert_eq!(planned.on_time(), 1.0, "seed {seed}");
        assert_eq!(fec.repeats(), 0, "seed {seed}");
        assert!(fec.on_time() >= 0.995, "seed {seed}: {}", fec.on_time());
        assert!(none.on_time() <= 0.85, "seed {seed}: {}", none.on_time());
        let outcomes = fec.pair.outcomes(0);
        let repaired = outcomes.iter().filter(|(_, _, outcome)| {
            matches!(
                outcome,
                Outcome::Delivered {
                    recovered_by_redundancy: true,
                    recovered_by_retransmission: false,
                    ..
                }
            )
        });
        assert!(repaired.count() >= 20, "seed {seed}");
    }
}

/// Losses come in a row, and no retransmission is in time. What a clean path brings beside it counts only where it is in time, too; and what
/// is lost in a row is more than independent losses would be.
#[test]
fn redundancy_for_losses_in_a_row_does_not_shrink_beside_a_clean_path() {
    let mut sums = [(0, 0); 3];
    for seed in 0..4 {
        for (sums, others) in sums.iter_mut().zip([&[][..], &[300], &[70]]) {
            let mut pair = Pair::by(SchedulerChoice::Rules, SessionConfig::default());
            let back: LinkSpec = "rate=20mbit,delay=60ms".parse().unwrap();
            let there = LinkSpec::clone(&back).with_loss(Loss::gilbert_elliott(0.02, 5.0).unwrap());
            pair.lane_of([&there, &back], 0.0, 0, seed);
            for (id, delay) in (1..).zip(others) {
                pair.lane(id, 20.0, *delay, 0.0, 1.0, seed);
            }
            let stream = pair.open(stream(Mode::Fec, 100, 1.0));
            for _ in 0..600 {
                pair.send(stream, 24_000, BlockOptions::default());
                pair.run_for(ms(20));
            }
            pair.run_for(ms(3000));
            let fragments = pair.fragments(0);
            let redundancy = fragments.iter().filter(|f| f.index >= f.data_count);
            sums.0 += 600 - pair.on_time();
            sums.1 += redundancy.count();
        }
    }
    let [alone, too_slow, in_time] = sums;
    assert!(too_slow.1 * 100 > alone.1 * 98, "redundancy: {sums:?}");
    assert!(in_time.0 <= alone.0, "failed: {sums:?}");
}

/// Where every path is the last resort none is.
#[test]
fn redundancy_among_last_resorts_is_as_among_other_paths() {
    let [usual, last_resorts] = [1.0, starhaul_session::LAST_RESORT].map(|cost| {
        let mut pair = Pair::by(SchedulerChoice::Rules, SessionConfig::default());
        let back: LinkSpec = "rate=20mbit,delay=60ms".parse().unwrap();
        let there = LinkSpec::clone(&back).with_loss(Loss::gilbert_elliott(0.02, 5.0).unwrap());
        pair.lane_of([&there, &back], cost, 0, 1);
        pair.lane(1, 20.0, 70, 0.0, cost, 1);
        let stream = pair.open(stream(Mode::Fec, 100, 1.0));
        for _ in 0..300 {
            pair.send(stream, 24_000, BlockOptions::default());
            pair.run_for(ms(20));
        }
        let fragments = pair.fragments(0);
        let redundancy = fragments.iter().filter(|f| f.index >= f.data_count);
        redundancy.map(|f| f.path).collect::<Vec<_>>()
    });
    assert!(!usual.is_empty());
    assert_eq!(usual, last_resorts);
}

#[test]
fn nothing_is_sent_again_that_cannot_arrive_in_time() {
    for mode in [Mode::Retransmit, Mode::FecRetransmit] {
        let lanes = [(60, 0.05), (60, 0.05)];
        let hopeless = Run::new(stream(mode, 100, 0.0), &lanes, 12_000, 100, 4);
        assert_eq!(
            hopeless.repeats(),
            0,
            "{mode:?}: deadline below a round trip"
        );
        let hopeful = Run::new(stream(mode, 400, 0.0), &lanes, 12_000, 100, 4);
        assert!(hopeful.repeats() >= 20, "{mode:?}: {}", hopeful.repeats());
        assert_eq!(hopeful.on_time(), 1.0, "{mode:?}");
    }
}

#[test]
fn without_protection_each_fragment_is_sent_once() {
    let run = Run::new(stream(Mode::None, 1000, 1.0), &[(20, 0.05)], 12_000, 100, 5);
    assert_eq!((run.repeats(), run.redundancy()), (0, 0));
    assert_eq!(run.pair.fragments(0).len(), run.blocks * 10);
}

#[test]
fn duplicates_go_over_two_paths_and_survive_what_one_loses() {
    for seed in 0..3 {
        let run = Run::new(
            stream(Mode::Duplicate, 200, 0.5),
            &[(30, 0.3), (50, 0.0)],
            12_000,
            100,
            seed,
        );
        assert_eq!(run.on_time(), 1.0, "seed {seed}");
        let mut paths: BTreeMap<_, BTreeSet<PathId>> = BTreeMap::new();
        let fragments = run.pair.fragments(0);
        for f in &fragments {
            paths
                .entry((f.block, f.code, f.index))
                .or_default()
                .insert(f.path);
        }
        assert!(paths.values().all(|paths| paths.len() == 2), "seed {seed}");
        assert_eq!(
            fragments.len(),
            2 * paths.len(),
            "seed {seed}: nothing is sent again"
        );
    }
}

#[test]
fn duplicates_go_once_more_over_the_only_path() {
    let run = Run::new(
        stream(Mode::Duplicate, 200, 0.5),
        &[(30, 0.1)],
        1000,
        300,
        1,
    );
    assert_eq!(run.pair.fragments(0).len(), 600);
    let expected = 1.0 - 0.1 * 0.1;
    assert!(
        (run.on_time() - expected).abs() < 0.025,
        "{}",
        run.on_time()
    );
}

#[test]
fn redundancy_leaves_on_another_path_than_the_data() {
    // By rules, which keep to the cheap path though it loses.
    let run = Run::by(
        SchedulerChoice::Rules,
        stream(Mode::Fec, 150, 1.0),
        &[(60, 0.03), (60, 0.0)],
        (24_000, 100),
        7,
    );
    let mut elsewhere = 0;
    let mut total = 0;
    let fragments = run.pair.fragments(0);
    for block in fragments.iter().map(|f| f.block).collect::<BTreeSet<_>>() {
        let of_block = || fragments.iter().filter(|f| f.block == block);
        let mut data: BTreeMap<PathId, usize> = BTreeMap::new();
        for f in of_block().filter(|f| f.index < f.data_count) {
            *data.entry(f.path).or_default() += 1;
        }
        let main = data
            .iter()
            .max_by_key(|(_, count)| **count)
            .map(|(path, _)| *path)
            .unwrap();
        total += of_block().filter(|f| f.index >= f.data_count).count();
        elsewhere += of_block()
            .filter(|f| f.index >= f.data_count && f.path != main)
            .count();
    }
    assert!(total >= 100, "{total} redundancy fragments");
    assert!(elsewhere * 100 >= total * 95, "{elsewhere} of {total}");
}

/// Where there is time to retransmit, the sender does not pay for redundancy.
#[test]
fn a_dearer_path_carries_no_redundancy_that_a_retransmission_can_replace() {
    for (seed, percent) in [(1, 1_u32), (2, 5), (3, 10)] {
        let loss = f64::from(percent) / 100.0;
        let (stream, lanes) = (
            stream(Mode::FecRetransmit, 600, 1.0),
            [(20, loss), (40, 0.0)],
        );
        let run = Run::by(SchedulerChoice::Rules, stream, &lanes, (12_000, 200), seed);
        assert_eq!(run.on_time(), 1.0, "seed {seed}");
        let fragments = run.pair.fragments(0);
        let dear = fragments.iter().filter(|f| f.path == PathId(1));
        let redundant = dear.clone().filter(|f| f.index >= f.data_count).count();
        assert_eq!(redundant, 0, "seed {seed}: redundancy over the dear path");
        // All that it carries is what the other one lost.
        let most = fragments.len() * 2 * percent as usize / 100;
        assert!(dear.count() <= most, "seed {seed}: more than {most}");
    }
}

#[test]
fn the_coding_rate_stays_below_its_limit() {
    for (limit, blocks) in [(0.0, 50), (0.1, 50), (0.5, 50), (1.0, 50)] {
        let run = Run::new(
            stream(Mode::Fec, 150, limit),
            &[(60, 0.2), (60, 0.2)],
            24_000,
            blocks,
            8,
        );
        let most = run
            .pair
            .fragments(0)
            .iter()
            .map(|f| (f.redundancy_count, f.data_count))
            .max()
            .unwrap();
        let allowed = (f64::from(most.1) * limit).ceil();
        assert!(f64::from(most.0) <= allowed, "{most:?} at {limit}");
        assert_eq!(run.redundancy() > 0, limit > 0.0, "limit {limit}");
    }
}

#[test]
fn without_losses_nothing_is_sent_in_addition() {
    for mode in [Mode::FecRetransmit, Mode::Fec, Mode::Retransmit] {
        let run = Run::new(
            stream(mode, 150, 1.0),
            &[(30, 0.0), (60, 0.0)],
            24_000,
            100,
            8,
        );
        assert_eq!((run.repeats(), run.redundancy()), (0, 0), "{mode:?}");
        assert_eq!(run.on_time(), 1.0, "{mode:?}");
    }
}

#[test]
fn a_block_of_several_codes_survives_losses() {
    let runs = [
        (Mode::Fec, 1),
        (Mode::FecRetransmit, 2),
        (Mode::Retransmit, 3),
    ];
    let by_each = SchedulerChoice::ALL.map(|by| runs.map(|(mode, seed)| (by, mode, seed)));
    for (by, mode, seed) in by_each.into_iter().flatten() {
        let mut pair = Pair::by(by, SessionConfig::default());
        pair.lane(0, 40.0, 30, 0.02, 0.0, seed);
        pair.lane(1, 40.0, 40, 0.02, 0.0, seed);
        pair.run_for(ms(500));
        let stream = pair.open(stream(mode, 2000, 1.0));
        // The first teaches the loss of the path it takes; another that has carried nothing is no safer.
        for bytes in [300_000, 1_000_000, 1_000_003] {
            pair.send(stream, bytes, BlockOptions::default());
            pair.run_for(ms(1000));
        }
        pair.run_for(ms(2000));
        let received = pair.received(1);
        let big: Vec<_> = received
            .iter()
            .filter(|(_, _, block, ..)| *block > 0)
            .collect();
        assert_eq!(big.len(), 2, "{mode:?} by {by:?}, seed {seed}");
        for (_, id, _, data, _) in big {
            assert_eq!(
                *data,
                pattern(*id as usize, data.len()),
                "{mode:?} by {by:?}, seed {seed}"
            );
        }
        let codes = pair.fragments(0).iter().map(|f| f.code).max();
        assert!(codes >= Some(3), "{codes:?}");
    }
}

#[test]
fn blocks_of_every_odd_size_arrive_unchanged() {
    for mode in [Mode::FecRetransmit, Mode::Duplicate] {
        let config = SessionConfig {
            max_fragment_bytes: 200,
            ..SessionConfig::default()
        };
        let mut pair = Pair::new(config);
        pair.lane(0, 100.0, 10, 0.03, 0.0, 5);
        pair.lane(1, 100.0, 10, 0.0, 0.0, 5);
        let stream = pair.open(stream(mode, 1000, 0.5));
        let sizes: Vec<usize> = (1..=3000).step_by(2).collect();
        for size in &sizes {
            pair.send(stream, *size, BlockOptions::default());
            pair.run_for(ms(1));
        }
        pair.run_for(ms(1500));
        let mut received = pair.received(1);
        received.sort_by_key(|(_, _, block, ..)| *block);
        assert_eq!(received.len(), sizes.len(), "{mode:?}");
        for ((_, id, block, data, _), size) in received.iter().zip(&sizes) {
            assert_eq!(
                *data,
                pattern(*id as usize, *size),
                "{mode:?}, block {block}"
            );
        }
    }
}

/// Where a retransmission is the last that can arrive in time and may be lost as the first try was, redundancy leaves with it.
#[test]
fn the_last_retransmission_does_not_leave_alone() {
    // Two retransmissions can arrive within 230 ms.
    let lanes = [(30, 0.4), (30, 0.4)];
    let missed = |mode| {
        let config = stream(mode, 230, 1.0);
        let runs = (0..4).map(|seed| {
            Run::by(
                SchedulerChoice::Rules,
                config.clone(),
                &lanes,
                (500, 500),
                seed,
            )
        });
        let (mut missed, mut redundancy) = (0, 0);
        for run in runs {
            missed += run.blocks - run.pair.on_time();
            redundancy += run.redundancy();
        }
        (missed, redundancy)
    };
    let (alone, none) = missed(Mode::Retransmit);
    let (insured, redundancy) = missed(Mode::FecRetransmit);
    println!("{alone} missed, {insured} with {redundancy} fragments of redundancy");
    assert_eq!(none, 0);
    assert!(insured * 2 < alone, "{insured} of {alone}");
    assert!(redundancy < 1000, "{redundancy} for 2000 blocks");
}

/// There is time for one retransmission, over a path that costs more and loses, too: redundancy leaves with what is sent again, for few blocks
/// more than what was lost.
#[test]
fn what_a_retransmission_may_lose_is_made_up_for_where_something_was_lost() {
    let lanes = [(60, 0.05), (60, 0.02)];
    let run = |mode| {
        let config = stream(mode, 230, 1.0);
        let by = SchedulerChoice::Rules;
        let runs = (0..4).map(|seed| Run::by(by, config.clone(), &lanes, (24_000, 250), seed));
        runs.fold((0, 0, 0), |(missed, redundancy, extra), run| {
            let of_run = run.redundancy();
            (
                missed + run.blocks - run.pair.on_time(),
                redundancy + of_run,
                extra + of_run + run.repeats(),
            )
        })
    };
    let (alone, none, _) = run(Mode::Retransmit);
    let (insured, redundancy, extra) = run(Mode::FecRetransmit);
    println!("{alone} missed, {insured} with {redundancy} of redundancy, {extra} beside the data");
    assert_eq!(none, 0);
    assert!(redundancy > 0);
    assert!(insured * 2 < alone, "{insured} of {alone}");
    // Redundancy with the data of each block is some two fifths of them.
    assert!(extra * 4 < 1_000 * 20, "{extra} for 1000 blocks");
}

/// There is time for one retransmission over the fast path, which loses, and over the cheap one, which does not, only if it left with the
/// data.
#[test]
fn a_safe_path_that_is_late_when_a_loss_is_known_protects_no_retransmission() {
    let lanes = [(120, 0.0), (30, 0.1)];
    let missed = |mode| {
        let config = stream(mode, 150, 1.0);
        let by = SchedulerChoice::Rules;
        let runs = (0..3).map(|seed| Run::by(by, config.clone(), &lanes, (24_000, 250), seed));
        let missed = runs.map(|run| run.blocks - run.pair.on_time());
        missed.sum::<usize>()
    };
    let (alone, insured) = (missed(Mode::Retransmit), missed(Mode::FecRetransmit));
    println!(
        "{alone} of 750 missed by retransmission alone, {insured} with redundancy, seeds 0 to 2"
    );
    // A hundredth of the fragments is lost twice: of a sixth of the blocks one or more.
    assert!(alone > 75, "{alone}");
    assert!(insured * 5 < alone, "{insured} of {alone}");
}

/// The first fragment leaves over the path that brings it sooner and loses nothing, most others over the faster one, which does.
#[test]
fn a_block_over_two_paths_is_protected_from_what_both_lose() {
    for seed in 0..3 {
        let mut pair = Pair::new(SessionConfig::default());
        pair.lane(0, 5.0, 15, 0.0, 0.0, seed);
        pair.lane(1, 50.0, 40, 0.05, 0.0, seed);
        let stream = pair.open(stream(Mode::Fec, 100, 1.0));
        for _ in 0..500 {
            pair.send(stream, 24_000, BlockOptions::default());
            pair.run_for(ms(20));
        }
        pair.run_for(ms(1000));
        let lossy = pair.sent[0].iter().filter(|sent| sent.path == PathId(1));
        assert!(lossy.filter_map(crate::pair::Sent::fragment).count() > 4_000);
        let on_time = pair.on_time();
        assert!(on_time > 480, "seed {seed}: {on_time} of 500");
    }
}
