//! What one reliable stream gets beside others that do not need what it asks for.

use std::time::Duration;

use crate::pair::{Pair, ms};
use starhaul_session::{BlockOptions, Mode, SessionConfig, StreamConfig, StreamId};

fn reliable(priority: u8) -> StreamConfig {
    StreamConfig {
        mode: Mode::Reliable,
        priority,
        ..StreamConfig::default()
    }
}

/// Reads all there is at the server; returns how much that is, and whether the stream is at its end.
fn read(pair: &mut Pair, stream: StreamId) -> (usize, bool) {
    let mut bytes = 0;
    while let Ok(Some(part)) = pair.sessions[1].read(pair.now, stream, usize::MAX) {
        bytes += part.len();
        if part.is_empty() {
            return (bytes, true);
        }
    }
    (bytes, false)
}

/// Writes as much as there is room for.
fn fill(pair: &mut Pair, stream: StreamId) {
    let chunk = [7; 64 << 10];
    while pair.sessions[0].write(pair.now, stream, &chunk).unwrap() == chunk.len() {}
}

/// The client uploads for so long; returns what the server reads.
fn upload(
    pair: &mut Pair,
    stream: StreamId,
    time: Duration,
    mut each: impl FnMut(&mut Pair),
) -> usize {
    let end = pair.elapsed() + time;
    let mut bytes = 0;
    while pair.elapsed() < end {
        each(pair);
        fill(pair, stream);
        pair.run_for(ms(2));
        bytes += read(pair, stream).0;
    }
    bytes
}

/// How the client's direction of a stream is over while the server keeps its own.
#[derive(Clone, Copy, Debug)]
enum Over {
    Finished,
    Reset,
    Stopped,
}

/// Connections of which one direction is over wait for the other: replies that take long, tunnels that are half closed.
#[test]
fn directions_that_are_over_take_no_memory_from_an_upload() {
    let rate = |over: Option<Over>| {
        let mut pair = Pair::new(SessionConfig::default());
        pair.lane(0, 100.0, 300, 0.0, 0.0, 1);
        pair.run_for(ms(1000));
        let over_streams: Vec<StreamId> = over
            .iter()
            .flat_map(|_| 0..64)
            .map(|_| pair.open(reliable(0)))
            .collect();
        for stream in &over_streams {
            pair.sessions[0]
                .write(pair.now, *stream, &[1; 100])
                .unwrap();
            if matches!(over, Some(Over::Finished)) {
                pair.sessions[0].finish(pair.now, *stream).unwrap();
            }
        }
        pair.run_for(ms(2000));
        for stream in &over_streams {
            let (bytes, at_end) = read(&mut pair, *stream);
            assert_eq!((bytes, at_end), (100, matches!(over, Some(Over::Finished))));
            match over {
                Some(Over::Reset) => pair.sessions[0].reset(pair.now, *stream, 1).unwrap(),
                Some(Over::Stopped) => pair.sessions[1].stop(pair.now, *stream, 1).unwrap(),
                _ => {}
            }
        }
        pair.run_for(ms(2000));
        let stream = pair.open(reliable(0));
        upload(&mut pair, stream, Duration::from_secs(10), |_| {})
    };
    let alone = rate(None);
    assert!(alone > 60_000_000, "{alone} bytes alone");
    for over in [Over::Finished, Over::Reset, Over::Stopped] {
        let beside = rate(Some(over));
        assert!(
            beside * 100 >= alone * 98,
            "{over:?}: {beside} bytes beside them, {alone} alone"
        );
    }
}

/// An interactive stream all but fills the fast path, and leaves the slow one to the other.
#[test]
fn a_stream_that_waits_for_the_fast_path_leaves_the_slow_one_to_others() {
    const TIME: Duration = Duration::from_secs(20);
    let run = |beside: bool| {
        let mut pair = Pair::new(SessionConfig::default());
        if beside {
            pair.lane(0, 2.0, 20, 0.0, 0.0, 1);
        }
        pair.lane(1, 20.0, 300, 0.0, 0.0, 1);
        pair.run_for(ms(1000));
        let important = pair.open(reliable(10));
        let bulk = pair.open(reliable(200));
        let (mut written, mut arrived, mut behind) = (0, 0, 0);
        let read = upload(&mut pair, bulk, TIME, |pair| {
            if beside {
                // 1.8 Mbit/s.
                written += pair.sessions[0]
                    .write(pair.now, important, &[1; 450])
                    .unwrap();
                arrived += read(pair, important).0;
                behind = behind.max(written - arrived);
            }
        });
        (read, behind)
    };
    let (alone, _) = run(false);
    let (beside, behind) = run(true);
    assert!(
        beside * 10 >= alone * 8,
        "{beside} bytes beside the other stream, {alone} over the slow path alone"
    );
    // A quarter of a second: nothing of it goes the slow way.
    assert!(behind < 60_000, "{behind} bytes behind");
}

/// A shorter queue costs a part of the rate, so it is asked for only where people wait for blocks beside an upload.
#[test]
fn a_short_queue_is_asked_for_beside_an_upload_by_interactive_blocks_alone() {
    /// What a byte stream sends beside the blocks.
    #[derive(Clone, Copy, PartialEq)]
    enum Stream {
        Nothing,
        Keys,
        Upload,
    }
    let is_short = |stream: Stream, deadline: Option<Duration>| {
        let mut pair = Pair::new(SessionConfig::default());
        pair.lane(0, 20.0, 30, 0.0, 0.0, 1);
        pair.run_for(ms(500));
        let upload = pair.open(reliable(5));
        let blocks = pair.open(StreamConfig {
            deadline: deadline.unwrap_or_default().max(ms(1)),
            ..StreamConfig::default()
        });
        let (mut asked, mut short) = (0, 0);
        for step in 0..500 {
            match stream {
                Stream::Nothing => {}
                Stream::Keys if step % 7 > 0 => {}
                Stream::Keys => {
                    let now = pair.now;
                    pair.sessions[0].write(now, upload, b"key").unwrap();
                }
                Stream::Upload => fill(&mut pair, upload),
            }
            if deadline.is_some() && step % 10 == 0 {
                let block = vec![1; 500].into();
                let now = pair.now;
                let options = BlockOptions::default();
                pair.sessions[0]
                    .send_block(now, blocks, block, options)
                    .unwrap();
            }
            pair.run_for(ms(5));
            read(&mut pair, upload);
            if step >= 100 {
                let wish = pair.sessions[0].queue_wish(pair.now, starhaul_session::PathId(0));
                assert_eq!(wish.bound.is_some(), deadline.is_some());
                asked += 1;
                short += u32::from(wish.short);
            }
        }
        (asked, short)
    };
    let (asked, short) = is_short(Stream::Upload, Some(ms(800)));
    assert_eq!(
        short, asked,
        "at each instant, or the controller would have two targets"
    );
    assert_eq!(is_short(Stream::Upload, None).1, 0, "no blocks");
    assert_eq!(
        is_short(Stream::Upload, Some(ms(3000))).1,
        0,
        "nobody waits for them"
    );
    assert_eq!(is_short(Stream::Nothing, Some(ms(800))).1, 0, "no upload");
    assert_eq!(is_short(Stream::Keys, Some(ms(800))).1, 0, "single keys");
}
