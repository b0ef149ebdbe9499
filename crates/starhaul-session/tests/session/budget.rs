//! What the paths with a price may cost together: kept whatever chooses the paths, and spent on what is most important.

use std::{collections::BTreeSet, time::Duration};

use starhaul_paths::optimizer::{Demand, OfferedPath, Problem, Protection, optimize};
use starhaul_session::{
    BlockOptions, ExpiredCause, Mode, Outcome, PathId, SchedulerChoice, SessionConfig,
    StreamConfig, StreamId,
};
use starhaul_units::Bandwidth;

use crate::pair::{Pair, is_on_time, ms};

const DEAR: PathId = PathId(1);
const DEADLINE: u64 = 250;
/// Bytes of a block of each stream, and the milliseconds between two.
const BLOCKS: [(usize, u64); 2] = [(4_800, 10), (1_150, 1)];
/// What control messages and probes may owe, which leave in any case.
const OWED_BYTES: f64 = 4_000.0;

fn mbit(rate: f64) -> Bandwidth {
    Bandwidth::from_mbit(1).scaled(rate)
}

fn within(scheduler: SchedulerChoice, budget: Option<f64>) -> Pair {
    let config = SessionConfig {
        budget: budget.map(mbit),
        ..SessionConfig::default()
    };
    Pair::by(scheduler, config)
}

/// Sends blocks of an important and a less important stream for so long: how many of each were sent, and were in time.
fn send_both(pair: &mut Pair, seconds: u64) -> [(usize, usize); 2] {
    pair.run_for(ms(1_000));
    let streams: [StreamId; 2] = [0, 1].map(|priority| {
        pair.open(StreamConfig {
            mode: Mode::Retransmit,
            deadline: ms(DEADLINE),
            priority,
            ..StreamConfig::default()
        })
    });
    let mut sent = [0; 2];
    for step in 0..seconds * 1_000 {
        for ((bytes, every), (stream, sent)) in BLOCKS.iter().zip(streams.iter().zip(&mut sent)) {
            if step % every == 0 {
                pair.send(*stream, *bytes, BlockOptions::default());
                *sent += 1;
            }
        }
        pair.run_for(ms(1));
    }
    pair.run_for(ms(2_000));
    let in_time: BTreeSet<_> = pair
        .outcomes(0)
        .into_iter()
        .filter(|(_, _, outcome)| is_on_time(*outcome))
        .map(|(stream, block, _)| (stream, block))
        .collect();
    let of = |at: usize| {
        let ours = in_time
            .iter()
            .filter(|(stream, _)| *stream == streams[at].0);
        (sent[at], ours.count())
    };
    [of(0), of(1)]
}

/// The greatest cost of any `window`, in bytes times cost, of the paths with a price.
fn greatest_cost(pair: &Pair, window: Duration) -> f64 {
    let cost = |path: PathId| pair.lanes[&path].cost;
    let priced = pair.sent[0].iter().filter(|sent| cost(sent.path) > 0.0);
    let costs: Vec<(Duration, f64)> = priced
        .map(|sent| (sent.at, cost(sent.path) * sent.payload.len() as f64))
        .collect();
    let (mut first, mut sum, mut most) = (0, 0.0_f64, 0.0_f64);
    for (at, cost) in &costs {
        sum += cost;
        while costs[first].0 + window < *at {
            sum -= costs[first].1;
            first += 1;
        }
        most = most.max(sum);
    }
    most
}

fn assert_within_budget(pair: &Pair, budget: f64, said: &str) {
    let bytes_per_second = mbit(budget).bytes_per_second() as f64;
    let spent = greatest_cost(pair, Duration::from_secs(10));
    let most = 11.0 * bytes_per_second + OWED_BYTES;
    assert!(spent <= most, "{said}: {spent} of {most}");
    assert!(spent >= 7.0 * bytes_per_second, "{said}: {spent} of {most}");
}

/// The path without a price is late for all; the other one, of cost 2, carries 5 Mbit/s for the budget. The important stream asks for 3.9,
/// the other one for 9.4.
#[test]
fn a_budget_for_the_important_stream_alone_brings_all_of_it() {
    for scheduler in SchedulerChoice::ALL {
        for budget in [Some(10.0), None] {
            let mut pair = within(scheduler, budget);
            pair.lane(0, 20.0, 400, 0.0, 0.0, 1);
            pair.lane(1, 20.0, 60, 0.0, 2.0, 2);
            let [important, other] = send_both(&mut pair, 15);
            let said = format!("{scheduler:?}, {budget:?}: {important:?}, {other:?}");
            assert_eq!(important.0, important.1, "{said}");
            let status = pair.sessions[0].scheduler_status();
            let Some(budget) = budget else {
                assert_eq!(other.0, other.1, "{said}");
                assert_eq!(status.spending, None, "{said}");
                continue;
            };
            // What is left pays for a tenth of it.
            assert!(other.1 * 20 > other.0 && other.1 * 5 < other.0, "{said}");
            assert_within_budget(&pair, budget, &said);
            assert_eq!(status.spending.unwrap().budget, mbit(budget), "{said}");
            // What went without says so.
            let outcomes = pair.outcomes(0);
            let lost = |(_, _, outcome): &&(u32, u32, Outcome)| {
                *outcome == Outcome::Expired(ExpiredCause::Loss)
            };
            assert_eq!(outcomes.iter().filter(lost).count(), 0, "{said}");
        }
    }
}

/// Both paths are in time: 6 Mbit/s without a price, and 2 Mbit/s for the budget. The important stream has all that it asks for, and the
/// other one nearly all that the linear program gives it.
#[test]
fn a_plan_within_a_budget_comes_near_the_best_that_there_is() {
    let (free, budget) = (6.0, 2.0);
    let mut pair = within(SchedulerChoice::Optimizer, Some(budget));
    pair.lane(0, free, 60, 0.0, 0.0, 1);
    pair.lane(1, 20.0, 60, 0.0, 1.0, 2);
    let reached = send_both(&mut pair, 15);
    // Headers of the session, and of what is below it, around about as many bytes in either stream.
    let (header, below) = (26.0, 66.0);
    let path = |rate: f64, cost| OfferedPath {
        bandwidth: mbit(rate),
        delay: ms(60),
        loss: 0.0,
        cost,
        loss_known_after: None,
    };
    let demands = [0_u8, 1].map(|at| {
        let (bytes, every) = BLOCKS[usize::from(at)];
        let data = bytes as f64 * 8.0 / every as f64 / 1e3;
        Demand {
            rate: mbit(data * (1.0 + (header + below) / 1_150.0)),
            lifetime: ms(DEADLINE),
            priority: at,
            protection: Protection::RETRANSMISSION,
            negligible_loss: 0.0,
        }
    });
    let bits = mbit(budget).bits_per_second() as f64 * (1.0 + below / (1_150.0 + header));
    let best = optimize(&Problem {
        paths: &[path(free, 0.0), path(20.0, 1.0)],
        demands: &demands,
        budget: Some(bits),
    })
    .unwrap();
    let share = |(sent, on_time): (usize, usize)| on_time as f64 / sent as f64;
    let shares = reached.map(share);
    let said = format!("{shares:?} of {:?}", best.streams);
    assert!(best.streams[0].quality > 0.999, "{said}");
    assert!((0.2..0.6).contains(&best.streams[1].quality), "{said}");
    assert!(shares[0] > 0.99, "{said}");
    assert!(shares[1] >= 0.9 * best.streams[1].quality, "{said}");
    assert_within_budget(&pair, budget, &said);
}

/// Bytes of a stream, which ask for all that there is, take what blocks leave, and no more than the budget pays for.
#[test]
fn a_download_is_paid_for_too_and_leaves_blocks_what_they_need() {
    for scheduler in SchedulerChoice::ALL {
        let budget = 4.0;
        let mut pair = within(scheduler, Some(budget));
        pair.lane(0, 2.0, 400, 0.0, 0.0, 1);
        pair.lane(1, 20.0, 60, 0.02, 1.0, 2);
        pair.run_for(ms(1_000));
        let bytes = pair.open(StreamConfig {
            mode: Mode::Reliable,
            priority: 9,
            ..StreamConfig::default()
        });
        let blocks = pair.open(StreamConfig {
            mode: Mode::FecRetransmit,
            deadline: ms(DEADLINE),
            ..StreamConfig::default()
        });
        let data = vec![7; 64 << 10];
        for step in 0..2_500 {
            pair.sessions[0].write(pair.now, bytes, &data).unwrap();
            if step % 4 == 0 {
                pair.send(blocks, 12_000, BlockOptions::default());
            }
            pair.run_for(ms(10));
            while let Ok(Some(_)) = pair.sessions[1].read(pair.now, bytes, usize::MAX) {}
        }
        pair.run_for(ms(1_000));
        let said = format!("{scheduler:?}: {} of 625 blocks", pair.on_time());
        assert!(pair.on_time() >= 600, "{said}");
        assert_within_budget(&pair, budget, &said);
        let paid = pair.sent[0].iter().filter(|sent| sent.path == DEAR);
        let frames = paid.filter(|sent| sent.frame().is_some_and(|(stream, _)| stream == bytes.0));
        assert!(frames.count() > 1_000, "{said}");
    }
}

/// A lone path, and nothing but one block that costs more than a second's budget: nobody but the session knows when the rest can be paid for.
#[test]
fn what_waits_for_the_budget_leaves_by_itself_once_it_is_there() {
    for scheduler in SchedulerChoice::ALL {
        let mut pair = within(scheduler, Some(0.1));
        pair.lane(1, 20.0, 60, 0.0, 1.0, 2);
        pair.run_for(ms(2_000));
        let stream = pair.open(StreamConfig {
            mode: Mode::Retransmit,
            deadline: ms(4_000),
            ..StreamConfig::default()
        });
        let block = pair.send(stream, 20_000, BlockOptions::default());
        pair.run_for(ms(6_000));
        let outcome = pair.outcome(stream, block);
        let said = format!("{scheduler:?}: {outcome:?}");
        let Some(Outcome::Delivered { latency, .. }) = outcome else {
            panic!("{said}");
        };
        // 12 500 bytes are saved, and the others earned.
        assert!((ms(500)..ms(1_500)).contains(&latency), "{said}");
    }
}

/// Blocks ask for twice what the budget pays for. Streams have one of 20 datagrams all the same, as where a path is too narrow.
#[test]
fn bytes_have_their_share_of_a_budget_that_blocks_would_use_up() {
    for scheduler in SchedulerChoice::ALL {
        let mut pair = within(scheduler, Some(2.0));
        pair.lane(1, 20.0, 60, 0.0, 1.0, 2);
        pair.run_for(ms(1_000));
        let bytes = pair.open(StreamConfig {
            mode: Mode::Reliable,
            ..StreamConfig::default()
        });
        let blocks = pair.open(StreamConfig {
            mode: Mode::Retransmit,
            deadline: ms(DEADLINE),
            ..StreamConfig::default()
        });
        let data = vec![7; 64 << 10];
        for _ in 0..4_000 {
            pair.sessions[0].write(pair.now, bytes, &data).unwrap();
            pair.send(blocks, 1_150, BlockOptions::default());
            pair.run_for(ms(2));
            while let Ok(Some(_)) = pair.sessions[1].read(pair.now, bytes, usize::MAX) {}
        }
        // What was saved before is spent.
        let late = || pair.sent[0].iter().filter(|sent| sent.at > ms(5_000));
        let fragments = late().filter(|sent| sent.fragment().is_some()).count();
        let frames = late().filter(|sent| sent.frame().is_some_and(|(of, _)| of == bytes.0));
        let said = format!("{scheduler:?}: {fragments} and {}", frames.clone().count());
        assert!(fragments > 300, "{said}");
        let share = frames.count() as f64 / fragments as f64;
        assert!((0.03..0.2).contains(&share), "{said}");
    }
}
