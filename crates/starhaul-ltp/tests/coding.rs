//! Repair segments: losses without a round trip, and files without any return channel.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod pair;

use std::time::Duration;

use pair::{Pair, content};
use starhaul_ltp::{Coding, Event, PeerConfig};
use starhaul_units::Bandwidth;

const BLOCKS: usize = 1000;

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
