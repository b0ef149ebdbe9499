//! Repair segments: losses without a round trip, and files without any return channel.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod pair;

use std::{cell::Cell, collections::BTreeMap, ops::Range, rc::Rc, time::Duration};

use pair::{Pair, content};
use starhaul_ltp::{Body, Coding, Event, PeerConfig};
use starhaul_sim::HEADER_BYTES;
use starhaul_units::Bandwidth;

const BLOCKS: usize = 1000;
/// Bytes of data in a segment where many blocks matter, and not what they hold.
const SHORT: usize = 128;

fn config(light: u64, is_one_way: bool) -> PeerConfig {
    let mut config = PeerConfig::new(Duration::from_secs(light), Some(Bandwidth::from_mbit(200)));
    config.coding = Some(Coding::new(0.05));
    config.is_one_way = is_one_way;
    config
}

/// Sends blocks of about `length` bytes over a link that loses 5 %, and compares those that arrive.
fn run(config: &PeerConfig, light: u64, length: usize) -> Pair {
    let link = format!("delay={light}s,loss=5%");
    let mut pair = Pair::new(11, config, &link, &link);
    for i in 0..BLOCKS {
        // Each has a length of its own, and so a last segment of another size.
        let block = content(length + i, 0);
        pair.send(&block, block.len());
    }
    pair.finish();
    for block in pair.receiver().delivered() {
        assert!(
            block == content(block.len(), 0),
            "a changed block of {} bytes",
            block.len()
        );
    }
    pair
}

#[test]
fn at_ten_minutes_of_light_time_blocks_need_no_retransmission() {
    let mut pair = run(&config(600, false), 600, 150_000);
    assert_eq!(pair.receiver().delivered().len(), BLOCKS);
    let round_trip = Duration::from_secs(1200);
    let start = pair.start;
    // The first report may be lost, but no data wait for a second round.
    let received = pair
        .receiver()
        .events
        .iter()
        .filter(|(_, event)| matches!(event, Event::RedPart { .. }));
    let late = received.filter(|(at, _)| *at - start > round_trip).count();
    assert!(
        late <= BLOCKS / 1000,
        "{late} blocks waited for a retransmission"
    );
}

#[test]
fn without_a_return_channel_files_arrive_at_small_overhead() {
    let mut pair = run(&config(1, true), 1, 500_000);
    let delivered = pair.receiver().delivered().len();
    assert!(delivered * 1000 >= BLOCKS * 999, "{delivered} of {BLOCKS}");
    assert!(
        pair.receiver().sent.is_empty(),
        "the receiver has no return channel"
    );
    let stats = pair.sender().engine.stats();
    assert_eq!(stats.data_segments_resent, 0);
    let share = stats.repair_segments_sent * 100 / stats.data_segments_sent;
    assert!(share < 15, "{share} % of overhead");
    let files: usize = (0..BLOCKS).map(|i| 500_000 + i).sum();
    check_overhead(&pair, files as u64);
}

/// All bytes that LTP sent, with its headers and repair segments, are at most 15 % more than those of the files.
fn check_overhead(pair: &Pair, files: u64) {
    let link = pair.sim.network[pair.path.forward].stats();
    let sent = link.enqueued_bytes - link.enqueued * HEADER_BYTES as u64;
    assert!(
        (sent - files) * 100 <= files * 15,
        "{sent} bytes for {files}"
    );
}

/// Of one code up to hundreds of them.
#[test]
fn the_overhead_of_shorter_and_longer_files_is_small_too() {
    let lengths = [
        150_000,
        200_000,
        300_000,
        400_000,
        1_000_000,
        2_000_000,
        4_000_000,
        20_000_000,
        100_000_000,
    ];
    for length in lengths {
        let mut pair = Pair::new(1, &config(1, true), "delay=1s", "delay=1s");
        let block = content(length, 2);
        pair.send(&block, length);
        pair.finish();
        assert!(pair.receiver().delivered() == [block], "{length} bytes");
        check_overhead(&pair, length as u64);
    }
}

/// What became of many blocks.
#[derive(Debug, Default)]
struct Tally {
    sent: usize,
    /// Those that did not arrive.
    missing: usize,
    /// Those that arrived more than two light times after the first of their thousand began to leave.
    late: usize,
}

/// Sends blocks of so many segments, a thousand over each pair of links; each thousand has a seed of its own.
fn tally(config: &PeerConfig, link: &str, segments: usize, thousands: u64) -> Tally {
    let bytes = content(segments * SHORT + BLOCKS, 0);
    let config = PeerConfig {
        segment_data: SHORT,
        ..config.clone()
    };
    let mut tally = Tally::default();
    for thousand in 0..thousands {
        let seed = segments as u64 * 1_000_000 + thousand;
        let mut pair = Pair::new(seed, &config, link, link);
        for node in &mut pair.sim.nodes {
            node.keeps_log = false;
        }
        let mut missing = BTreeMap::new();
        for number in 0..BLOCKS {
            // No two have the same bytes at the same place, nor do all have the same length.
            let end = number + segments * SHORT - number % SHORT;
            let block = bytes.slice(number..end);
            missing.insert(pair.send(&block, block.len()), block);
        }
        pair.finish();
        let start = pair.start;
        for (at, event) in std::mem::take(&mut pair.receiver().events) {
            let Event::RedPart { session, block, .. } = event else {
                continue;
            };
            let sent = missing.remove(&session);
            let is_sent = sent.is_some_and(|sent| sent == block.into_bytes());
            assert!(is_sent, "{session} was not sent so, or came twice: {seed}");
            tally.late += usize::from(at - start > config.one_way_light_time * 2);
        }
        tally.sent += BLOCKS;
        tally.missing += missing.len();
    }
    tally
}

/// `STARHAUL_SEEDS` says how many times as many blocks are sent as usual.
fn times() -> u64 {
    std::env::var("STARHAUL_SEEDS").map_or(1, |text| {
        let times = text.parse::<u64>();
        times.unwrap_or_else(|_| panic!("STARHAUL_SEEDS is a number: {text:?}"))
    })
}

/// One in a thousand may, whether it is one code or three, each of which must be complete. By the rule that computes the repair segments it is
/// one in 4100 to 4800, so that chance alone does not fail this test, and codes twice as bad as they may be do not pass it.
#[test]
fn one_block_in_a_thousand_at_most_needs_a_retransmission() {
    for (segments, thousands) in [(20, 20), (111, 6), (400, 6)] {
        let config = config(600, false);
        let tally = tally(&config, "delay=600s,loss=5%", segments, thousands * times());
        assert!(tally.late * 1000 <= tally.sent, "{segments}: {tally:?}");
        assert_eq!(tally.missing, 0, "{segments}: {tally:?}");
    }
}

/// Of one code, and of two, each of which must be complete.
#[test]
fn without_a_return_channel_blocks_arrive_as_often() {
    let (config, link) = (config(1, true), "delay=1s,loss=5%");
    for segments in [111, 240] {
        let tally = tally(&config, link, segments, 6 * times());
        assert!(tally.missing * 1000 <= tally.sent, "{segments}: {tally:?}");
    }
}

/// More is lost of a code than its repair symbols give back, and parities give back the rest. Where two codes lack the same symbols, these
/// are in no sum alone.
#[test]
fn parities_help_codes_that_lost_too_much() {
    let config = PeerConfig {
        segment_data: SHORT,
        ..config(1, true)
    };
    let block = content(6000 * SHORT, 4);
    let first = Rc::new(Cell::new((0_u64, 0_u64)));
    let run = |lost: Vec<Range<u64>>, parities: bool| {
        let mut pair = Pair::new(5, &config, "delay=1s", "delay=1s");
        let first = first.clone();
        pair.sender().passes = Box::new(move |segment| match segment.body {
            Body::Data(data) => {
                let symbol = data.offset / SHORT as u64;
                !lost.iter().any(|lost| lost.contains(&symbol))
            }
            Body::Repair(repair) => {
                if first.get() == (0, 0) {
                    first.set((repair.symbols.into(), repair.repairs.into()));
                }
                true
            }
            Body::Parity(_) => parities,
            _ => true,
        });
        pair.send(&block, block.len());
        pair.finish();
        let delivered = pair.receiver().delivered();
        assert!(delivered.iter().all(|delivered| *delivered == block));
        delivered.len() == 1
    };
    assert!(run(vec![], false), "nothing is lost");
    let (symbols, repairs) = first.get();
    assert!(symbols > 200 && repairs > 10, "{symbols} and {repairs}");
    // More in a row than a code has for repair, of that with this number, from its symbol of that number on.
    let burst = |code: u64, from: u64| {
        let start = code * symbols + from;
        start..start + repairs + 5
    };
    assert!(!run(vec![burst(2, 10)], false), "without parities");
    assert!(run(vec![burst(2, 10)], true), "one code");
    assert!(run(vec![burst(2, 10), burst(7, 100)], true), "two codes");
    let same = vec![burst(2, 10), burst(7, 10)];
    assert!(!run(same, true), "the same symbols of two codes");
}

/// So many segments of a code may be lost in a row, wherever they are, as it has repair segments. One more costs a round trip.
#[test]
fn a_burst_as_long_as_the_repair_of_a_code_costs_no_round_trip() {
    let config = PeerConfig {
        segment_data: SHORT,
        ..config(1, false)
    };
    let round_trip = config.one_way_light_time * 2;
    // The two codes of the second have the same size.
    for (segments, codes) in [(111, 1), (206, 2)] {
        let block = content(segments * SHORT, 3);
        let run = |lost: Range<usize>| {
            let (mut number, burst) = (0, lost.clone());
            let mut pair = Pair::new(3, &config, "delay=1s", "delay=1s");
            pair.sender().passes = Box::new(move |_| {
                number += 1;
                !burst.contains(&(number - 1))
            });
            pair.send(&block, block.len());
            pair.finish();
            let is_equal = pair.receiver().delivered() == [block.clone()];
            assert!(is_equal, "{segments} segments, {lost:?} lost");
            let (start, receiver) = (pair.start, pair.receiver());
            let mut events = receiver.events.iter();
            let arrived = events.find(|(_, event)| matches!(event, Event::RedPart { .. }));
            let took = arrived.unwrap().0 - start;
            (took, pair.sender().engine.stats().repair_segments_sent)
        };
        let (_, repairs) = run(0..0);
        let repairs = usize::try_from(repairs).unwrap();
        let (all, burst) = (segments + repairs, repairs / codes);
        assert!(burst > 5, "{repairs} repair segments");
        for first in 0..=all - burst {
            let (took, _) = run(first..first + burst);
            assert!(took < round_trip, "{segments}: {took:?} from {first}");
        }
        // Between two codes it would be shared.
        let longer = if codes == 1 { all - burst } else { 0 };
        for first in 0..longer {
            let (took, _) = run(first..first + burst + 1);
            assert!(took > round_trip, "{segments}: {took:?} from {first}");
        }
    }
}

/// Codes are made for losses one by one. What a burst leaves over is sent again.
#[test]
fn what_bursts_leave_over_is_repaired_by_retransmission() {
    let link = "delay=1s,loss=ge:5%:4";
    for segments in [20, 206] {
        let tally = tally(&config(1, false), link, segments, 1);
        assert_eq!(tally.missing, 0, "{segments}: {tally:?}");
        assert!(tally.late > 0, "{segments}: {tally:?}");
    }
}

#[test]
fn more_loss_than_foreseen_is_repaired_by_retransmission() {
    let mut config = config(1, false);
    config.coding = Some(Coding::new(0.01));
    let mut pair = Pair::new(5, &config, "delay=1s,loss=20%", "delay=1s,loss=20%");
    let block = content(600_000, 1);
    pair.send(&block, block.len());
    pair.send(&block.slice(..400_000), 300_000);
    pair.finish();
    let mut delivered = pair.receiver().delivered();
    delivered.sort_by_key(bytes::Bytes::len);
    assert_eq!(delivered, [block.slice(..300_000), block]);
}
