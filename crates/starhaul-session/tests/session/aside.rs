//! Blocks for which there is no room wait aside: they come back when there is, make room for others, and hold up no other block.

use bytes::Bytes;
use starhaul_session::{
    BlockId, BlockOptions, Mode, Outcome, SessionConfig, StreamConfig, StreamError, StreamId,
};

use crate::pair::{Pair, is_on_time, ms};

fn stream(deadline_ms: u64, priority: u8) -> StreamConfig {
    StreamConfig {
        mode: Mode::FecRetransmit,
        deadline: ms(deadline_ms),
        priority,
        ..StreamConfig::default()
    }
}

/// One path of so many Mbit/s and 20 ms each way, known for a while.
fn pair_of(mbit: f64, config: SessionConfig) -> Pair {
    let mut pair = Pair::new(config);
    pair.lane(0, mbit, 20, 0.0, 0.0, 1);
    pair.run_for(ms(1500));
    pair
}

/// Blocks of 5000 bytes at so many Mbit/s for so long.
fn load(pair: &mut Pair, stream: StreamId, mbit: u64, for_ms: u64) -> Vec<BlockId> {
    let every_us = 40_000 / mbit;
    let mut blocks = Vec::new();
    let begin = pair.elapsed();
    for number in 0..for_ms * 1000 / every_us {
        blocks.push(pair.send(stream, 5000, BlockOptions::default()));
        pair.run_until(begin + std::time::Duration::from_micros((number + 1) * every_us));
    }
    blocks
}

fn on_time(pair: &Pair, stream: StreamId, blocks: &[BlockId]) -> usize {
    let outcomes = blocks
        .iter()
        .filter_map(|block| pair.outcome(stream, *block));
    outcomes.filter(|outcome| is_on_time(*outcome)).count()
}

/// A block and ten that need it.
fn picture(pair: &mut Pair, video: StreamId) -> Vec<BlockId> {
    let base = pair.send(video, 400_000, BlockOptions::default());
    let needs_it = BlockOptions {
        depends_on: Some(base),
        ..BlockOptions::default()
    };
    let mut blocks = vec![base];
    blocks.extend((0..10).map(|_| pair.send(video, 20_000, needs_it)));
    blocks
}

/// While more important blocks ask for twice what the path carries there is none for others, and then all of it.
#[test]
fn what_was_set_aside_is_sent_when_more_important_blocks_end() {
    let mut pair = pair_of(10.0, SessionConfig::default());
    let (first, other) = (pair.open(stream(500, 1)), pair.open(stream(3000, 2)));
    load(&mut pair, first, 20, 500);
    let large = [0; 2].map(|_| pair.send(other, 600_000, BlockOptions::default()));
    load(&mut pair, first, 20, 500);
    pair.run_for(ms(4000));
    assert_eq!(
        on_time(&pair, other, &large),
        2,
        "{:?}",
        large.map(|id| pair.outcome(other, id))
    );
}

/// A picture and those that need it wait aside together, and come back together.
#[test]
fn blocks_that_depend_on_one_set_aside_are_sent_after_it() {
    let mut pair = pair_of(10.0, SessionConfig::default());
    let (first, video) = (pair.open(stream(500, 1)), pair.open(stream(3000, 2)));
    load(&mut pair, first, 20, 500);
    let blocks = picture(&mut pair, video);
    load(&mut pair, first, 20, 500);
    pair.run_for(ms(4000));
    assert_eq!(on_time(&pair, video, &blocks), blocks.len());
    let order: Vec<_> = pair
        .fragments(0)
        .iter()
        .filter(|sent| sent.stream == video.0)
        .map(|sent| sent.block)
        .collect();
    let first_dependent = order.iter().position(|block| *block != blocks[0].0);
    let begun = order.iter().position(|block| *block == blocks[0].0);
    assert!(
        begun < first_dependent,
        "nothing leaves before what it needs"
    );
}

/// Where as many wait aside as there may, a picture that others need takes the place of those which none needs and which have less time.
#[test]
fn a_block_that_others_need_takes_the_place_of_one_with_less_time() {
    let mut pair = pair_of(10.0, SessionConfig::default());
    let (first, video) = (pair.open(stream(500, 1)), pair.open(stream(3000, 2)));
    load(&mut pair, first, 20, 500);
    // Nearly twice what the path carries in three seconds.
    let old: Vec<_> = (0..300)
        .map(|_| pair.send(video, 20_000, BlockOptions::default()))
        .collect();
    load(&mut pair, first, 20, 1500);
    let blocks = picture(&mut pair, video);
    load(&mut pair, first, 20, 500);
    pair.run_for(ms(4000));
    assert_eq!(
        on_time(&pair, video, &blocks),
        blocks.len(),
        "{:?}",
        pair.outcome(video, blocks[0])
    );
    assert!(
        on_time(&pair, video, &old) > 0,
        "those before it that still fit are sent, too"
    );
}

/// Blocks of one priority that are due much later do not stand before a short one.
#[test]
fn a_backlog_that_has_time_sets_no_urgent_block_aside() {
    let mut pair = pair_of(10.0, SessionConfig::default());
    let (backlog, urgent) = (pair.open(stream(60_000, 3)), pair.open(stream(150, 3)));
    for _ in 0..1000 {
        pair.send(backlog, 10_000, BlockOptions::default());
    }
    pair.run_for(ms(500));
    let mut blocks = Vec::new();
    for _ in 0..40 {
        blocks.push(pair.send(urgent, 200, BlockOptions::default()));
        pair.run_for(ms(50));
    }
    pair.run_for(ms(1000));
    assert_eq!(on_time(&pair, urgent, &blocks), blocks.len());
}

/// Memory that is full of them is given to a block that is more important, and to no other.
#[test]
fn blocks_aside_make_room_for_more_important_ones_alone() {
    let config = SessionConfig {
        max_send_bytes: 1 << 20,
        ..SessionConfig::default()
    };
    let mut pair = pair_of(1.0, config);
    let (video, text, less) = (
        pair.open(stream(5000, 3)),
        pair.open(stream(500, 1)),
        pair.open(stream(500, 7)),
    );
    let put = |pair: &mut Pair, stream, bytes: usize| {
        let data = Bytes::from(vec![1; bytes]);
        let now = pair.now;
        pair.sessions[0].send_block(now, stream, data, BlockOptions::default())
    };
    let refused = |result: &Result<BlockId, StreamError>| {
        matches!(result, Err(StreamError::QueueFull { .. }))
    };
    // Ten times what the path carries: what there is no room for waits aside until the memory is full.
    let mut is_full = false;
    for _ in 0..200 {
        is_full |= refused(&put(&mut pair, less, 100_000));
        put(&mut pair, video, 20_000).ok();
        pair.run_for(ms(10));
    }
    assert!(is_full, "the memory is full");
    let sent = put(&mut pair, text, 200).expect("others make room");
    pair.run_for(ms(1000));
    assert!(matches!(
        pair.outcome(text, sent),
        Some(Outcome::Delivered { on_time: true, .. })
    ));
}
