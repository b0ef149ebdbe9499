//! What the sender is told of blocks that arrived, were dropped by a receiver short of memory, or whose acknowledgement was lost.

use crate::pair::{Pair, is_on_time, ms};
use starhaul_session::{
    BlockOptions, Event, ExpiredCause, Mode, Outcome, PathId, SessionConfig, StreamConfig,
};

const PATH: PathId = PathId(0);

fn stream(mode: Mode, deadline_ms: u64) -> StreamConfig {
    StreamConfig {
        mode,
        deadline: ms(deadline_ms),
        ..StreamConfig::default()
    }
}

fn short_of_memory() -> SessionConfig {
    SessionConfig {
        max_receive_bytes: 200_000,
        ..SessionConfig::default()
    }
}

/// Everything that `side` has to say now, heard by the other at once if it `passes`.
fn exchange(pair: &mut Pair, side: usize, mut passes: impl FnMut(&[u8]) -> bool) {
    while let Some(datagram) = pair.sessions[side].poll_datagram(pair.now, PATH) {
        if passes(&datagram.payload) {
            pair.sessions[1 - side]
                .handle_datagram(pair.now, PATH, datagram.payload)
                .unwrap();
        }
    }
}

/// All that the server says in the next 200 ms.
fn acknowledgements(pair: &mut Pair) -> Vec<u8> {
    let mut said = Vec::new();
    for _ in 0..20 {
        pair.now += ms(10);
        let server = &mut pair.sessions[1];
        server.handle_timeout(pair.now);
        while let Some(datagram) = server.poll_datagram(pair.now, PATH) {
            said.extend(datagram.payload);
        }
    }
    said
}

#[test]
fn a_block_that_the_receiver_has_no_room_for_is_not_told_as_delivered() {
    for mode in [Mode::None, Mode::Retransmit, Mode::FecRetransmit] {
        let mut pair = Pair::new(short_of_memory());
        pair.lane(0, 20.0, 20, 0.0, 0.0, 1);
        pair.answer();
        let blocks = pair.open(stream(mode, 800));
        let small = pair.send(blocks, 20_000, BlockOptions::default());
        let large = pair.send(blocks, 300_000, BlockOptions::default());
        pair.run_for(ms(3000));
        assert!(pair.sessions[1].dropped_on_receipt() > 0);
        assert_eq!(pair.received(1).len(), 1, "{mode:?}: only the small one");
        assert!(pair.outcome(blocks, small).is_some_and(is_on_time));
        let told = pair.outcome(blocks, large);
        let lost = Some(Outcome::Expired(ExpiredCause::Loss));
        assert_eq!(told, lost, "{mode:?}");
    }
}

/// Blocks that can still fail give way to those that were told as delivered.
#[test]
fn what_was_told_as_delivered_is_not_dropped_for_what_is_not_whole() {
    let mut pair = Pair::new(short_of_memory());
    pair.lane(0, 50.0, 20, 0.0, 0.0, 1);
    pair.answer();
    let blocks = pair.open(stream(Mode::None, 60_000));
    let of_blocks = |payload: &[u8]| payload.first() == Some(&1);
    // Half of each large one is lost.
    let mut number = 0;
    for _ in 0..8 {
        pair.send(blocks, 60_000, BlockOptions::default());
        for _ in 0..20 {
            exchange(&mut pair, 0, |payload| {
                number += usize::from(of_blocks(payload));
                !of_blocks(payload) || number % 2 == 0
            });
            exchange(&mut pair, 1, |_| true);
        }
    }
    // The application takes none meanwhile.
    for _ in 0..70 {
        pair.send(blocks, 1000, BlockOptions::default());
        exchange(&mut pair, 0, |_| true);
    }
    assert!(pair.sessions[1].dropped_on_receipt() > 0);
    let events = std::iter::from_fn(|| pair.sessions[1].poll_event());
    let small = events
        .filter(|event| matches!(event, Event::BlockReceived { data, .. } if data.len() == 1000));
    assert_eq!(small.count(), 70);
}

#[test]
fn a_block_counts_as_delivered_only_once_its_stream_is_known_to_the_receiver() {
    let mut pair = Pair::new(short_of_memory());
    pair.lane(0, 20.0, 20, 0.0, 0.0, 1);
    let blocks = pair.open(stream(Mode::Retransmit, 5000));
    let kept = pair.send(blocks, 90_000, BlockOptions::default());
    // The opening is lost, so the receiver may yet have to drop what it has.
    exchange(&mut pair, 0, |datagram| datagram[0] == 1);
    exchange(&mut pair, 1, |_| true);
    assert!(pair.sessions[1].held_bytes().1 >= 90_000);
    let told = pair.sessions[0].poll_event();
    assert!(told.is_none(), "{told:?}");
    pair.run_for(ms(2000));
    assert_eq!(pair.received(1).len(), 1);
    assert!(pair.outcome(blocks, kept).is_some_and(is_on_time));
}

#[test]
fn word_of_blocks_that_was_lost_is_asked_for_until_it_comes() {
    for seed in 0..4 {
        let mut pair = Pair::new(SessionConfig::default());
        let specs = ["rate=20mbit,delay=20ms", "rate=20mbit,delay=20ms,loss=50%"]
            .map(|spec| spec.parse().unwrap());
        pair.lane_of([&specs[0], &specs[1]], 0.0, 0, seed);
        pair.run_for(ms(2000));
        let blocks = pair.open(stream(Mode::None, 1000));
        for _ in 0..100 {
            pair.send(blocks, 3000, BlockOptions::default());
            pair.run_for(ms(100));
        }
        // The stream ends at the receiver before the sender has heard of all.
        pair.sessions[0].finish(pair.now, blocks).unwrap();
        pair.run_for(ms(5000));
        assert_eq!(pair.received(1).len(), 100, "seed {seed}");
        let told = pair.outcomes(0);
        assert_eq!(pair.on_time(), 100, "seed {seed}: {told:?}");
    }
}

/// Every second block is missing, more of them than the receiver keeps apart.
#[test]
fn beyond_the_gaps_that_are_kept_no_block_comes_twice_or_falsely() {
    const KEPT: u32 = 1 << 15;
    let mut pair = Pair::new(SessionConfig::default());
    pair.lane(0, 20.0, 20, 0.0, 0.0, 1);
    let blocks = pair.open(StreamConfig::default());
    exchange(&mut pair, 0, |_| true);
    let mut sequence = 1000;
    let mut say = |pair: &mut Pair, block: u32| {
        let mut datagram = vec![1];
        datagram.extend(u32::to_be_bytes(sequence));
        datagram.extend([0; 4]);
        datagram.extend(blocks.0.to_be_bytes());
        datagram.extend(block.to_be_bytes());
        datagram.extend([0; 4]);
        datagram.extend([0, 0, 0, 1, 0, 0, 0, 7]);
        sequence += 1;
        let server = &mut pair.sessions[1];
        server
            .handle_datagram(pair.now, PATH, datagram.into())
            .unwrap();
    };
    for block in 0..KEPT + 10 {
        say(&mut pair, 2 * block);
    }
    let events = std::iter::from_fn(|| pair.sessions[1].poll_event());
    let handed_on = u32::try_from(events.count()).unwrap();
    assert_eq!(handed_on, 1 + KEPT + 10, "the opening and the blocks");
    acknowledgements(&mut pair);
    // One in a gap that was given up, one that was handed on long ago, and one in a gap that is kept.
    for (block, comes) in [(1, 0), (2, 0), (2 * KEPT + 1, 1)] {
        say(&mut pair, block);
        let events = std::iter::from_fn(|| pair.sessions[1].poll_event());
        assert_eq!(events.count(), comes, "block {block}");
        let name = [blocks.0.to_be_bytes(), block.to_be_bytes()].concat();
        let said = acknowledgements(&mut pair);
        let named = said.windows(8).any(|word| word == name);
        assert_eq!(named, comes > 0, "block {block} in {said:?}");
    }
}

/// Ten times what the path carries, in small blocks: what is dropped is told in few messages, and all of it.
#[test]
fn in_an_overload_what_is_dropped_takes_little_of_the_path() {
    for ordered in [false, true] {
        let mut pair = Pair::new(SessionConfig::default());
        pair.lane(0, 1.0, 50, 0.02, 0.0, 1);
        pair.lane(1, 1.0, 50, 0.02, 0.0, 2);
        pair.run_for(ms(1_000));
        let stream = pair.open(StreamConfig {
            mode: Mode::Retransmit,
            deadline: ms(300),
            ordered,
            ..StreamConfig::default()
        });
        let before = pair.sent[0].len();
        for _ in 0..4_000 {
            pair.send(stream, 1_100, BlockOptions::default());
            pair.run_for(ms(1));
        }
        pair.run_for(ms(2_000));
        let dropped = pair
            .outcomes(0)
            .iter()
            .filter(|(_, _, outcome)| !matches!(outcome, Outcome::Delivered { .. }))
            .count();
        let sent = &pair.sent[0][before..];
        let messages = sent.iter().filter_map(|sent| sent.frame());
        let messages = messages.filter(|(stream, _)| *stream == 0).count();
        let missing = |(_, event): &&(_, Event)| matches!(event, Event::BlockMissing { .. });
        let told = pair.events[1].iter().filter(missing).count();
        let said =
            format!("ordered: {ordered}, {dropped} dropped, {told} told, {messages} messages");
        println!("{said}");
        assert!(dropped > 3_000, "{said}");
        assert_eq!(told, dropped, "{said}");
        assert!(ordered || messages * 20 < dropped, "{said}");
    }
}

fn missing(pair: &Pair, side: usize) -> Vec<u32> {
    let missing = |(_, event): &(_, Event)| match event {
        Event::BlockMissing { stream, .. } => Some(stream.0),
        _ => None,
    };
    pair.events[side].iter().filter_map(missing).collect()
}

fn dropped(pair: &Pair, side: usize) -> Vec<u32> {
    let outcomes = pair.outcomes(side).into_iter();
    let undelivered =
        outcomes.filter(|(_, _, outcome)| !matches!(outcome, Outcome::Delivered { .. }));
    undelivered.map(|(stream, ..)| stream).collect()
}

/// Streams open and end all the time, so that some control message is always under way, and an ordered stream is told of each block. What is
/// dropped of two others is told meanwhile.
#[test]
fn a_busy_control_stream_keeps_nothing_that_is_dropped_untold() {
    let mut pair = Pair::new(SessionConfig::default());
    pair.lane(0, 2.0, 50, 0.02, 0.0, 1);
    pair.run_for(ms(1_000));
    let streams = [false, false, true].map(|ordered| {
        pair.open(StreamConfig {
            ordered,
            ..stream(Mode::None, 300)
        })
    });
    for step in 0..3_000 {
        for stream in streams {
            pair.send(stream, 1_100, BlockOptions::default());
        }
        if step % 10 == 0 {
            let brief = pair.open(stream(Mode::None, 300));
            pair.sessions[0].finish(pair.now, brief).unwrap();
        }
        pair.run_for(ms(1));
    }
    // Nothing had time to become quiet.
    let (dropped, told) = (dropped(&pair, 0), missing(&pair, 1));
    for stream in streams {
        let of = |all: &[u32]| all.iter().filter(|of| **of == stream.0).count();
        let (dropped, told) = (of(&dropped), of(&told));
        let said = format!("{stream:?}: {dropped} dropped, {told} told");
        assert!(dropped > 1_000, "{said}");
        assert!(2 * told > dropped, "{said}");
    }
}

/// More blocks end between two messages than the receiver tells of for one.
#[test]
fn each_block_of_a_long_row_that_is_dropped_is_told() {
    let mut pair = Pair::new(SessionConfig::default());
    pair.lane(0, 1.0, 300, 0.0, 0.0, 1);
    pair.run_for(ms(2_000));
    let blocks = pair.open(stream(Mode::Retransmit, 200));
    for _ in 0..1_000 {
        pair.send(blocks, 1_100, BlockOptions::default());
    }
    pair.run_for(ms(5_000));
    let dropped = dropped(&pair, 0).len();
    assert!(dropped > 900, "{dropped} dropped");
    assert_eq!(missing(&pair, 1).len(), dropped);
}
