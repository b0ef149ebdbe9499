//! Writers of reliable streams are told when there is room again.

use std::time::Duration;

use crate::pair::Pair;
use bytes::Bytes;
use starhaul_session::{BlockOptions, Event, Mode, SessionConfig, StreamConfig};

fn reliable() -> StreamConfig {
    StreamConfig {
        mode: Mode::Reliable,
        ..StreamConfig::default()
    }
}

#[test]
fn a_refused_writer_is_woken_however_fast_the_path_seems() {
    let mut pair = Pair::new(SessionConfig::default());
    pair.lane(0, 20_000.0, 1, 0.0, 0.0, 1);
    pair.run_for(Duration::from_millis(100));
    let stream = pair.sessions[0].open_stream(pair.now, reliable()).unwrap();
    let data = vec![5; 40 << 20];
    let taken = pair.sessions[0].write(pair.now, stream, &data).unwrap();
    assert!(taken < data.len());
    pair.run_for(Duration::from_millis(100));
    let woken =
        |(_, event): &(Duration, Event)| matches!(event, Event::Writable(id) if *id == stream);
    assert!(pair.events[0].iter().any(woken));
}

#[test]
fn a_writer_refused_for_the_sake_of_the_session_is_woken_when_others_have_made_room() {
    let mut pair = Pair::new(SessionConfig {
        max_send_bytes: 100_000,
        ..SessionConfig::default()
    });
    pair.lane(0, 10.0, 10, 0.0, 0.0, 1);
    let blocks = pair.sessions[0]
        .open_stream(pair.now, StreamConfig::default())
        .unwrap();
    let bytes = pair.sessions[0].open_stream(pair.now, reliable()).unwrap();
    let full = Bytes::from(vec![1; 99_232]);
    pair.sessions[0]
        .send_block(pair.now, blocks, full, BlockOptions::default())
        .unwrap();
    assert_eq!(pair.sessions[0].write(pair.now, bytes, b"hello"), Ok(0));
    pair.run_for(Duration::from_secs(1));
    let woken =
        |(_, event): &(Duration, Event)| matches!(event, Event::Writable(id) if *id == bytes);
    assert!(pair.events[0].iter().any(woken));
    assert_eq!(pair.sessions[0].write(pair.now, bytes, b"hello"), Ok(5));
}

/// Of so many outcomes at once none keeps a writer from its call.
#[test]
fn a_writer_is_woken_however_many_blocks_end_at_once() {
    let mut pair = Pair::new(SessionConfig {
        max_send_bytes: 70_000 * 769,
        ..SessionConfig::default()
    });
    for _ in 0..5 {
        let blocks = pair.open(StreamConfig::default());
        for _ in 0..14_000 {
            pair.send(blocks, 1, BlockOptions::default());
        }
    }
    let bytes = pair.open(reliable());
    assert_eq!(pair.sessions[0].write(pair.now, bytes, b"hello"), Ok(0));
    let later = pair.now + Duration::from_secs(60);
    pair.sessions[0].handle_timeout(later);
    let events: Vec<Event> = std::iter::from_fn(|| pair.sessions[0].poll_event()).collect();
    assert!(events.len() > 70_000, "{}", events.len());
    let woken = |event: &Event| matches!(event, Event::Writable(id) if *id == bytes);
    assert!(events.iter().any(woken));
}

/// Blocks that are offered faster than they leave take up room as soon as there is some.
#[test]
fn a_writer_gets_its_turn_beside_blocks_that_fill_the_session() {
    let mut pair = Pair::new(SessionConfig {
        max_send_bytes: 1 << 20,
        ..SessionConfig::default()
    });
    pair.lane(0, 10.0, 10, 0.0, 0.0, 1);
    let blocks = pair.open(StreamConfig {
        deadline: Duration::from_secs(3),
        ..StreamConfig::default()
    });
    let bytes = pair.open(reliable());
    let (block, data) = (Bytes::from(vec![1; 24_000]), vec![5; 100_000]);
    let mut written = 0;
    for _ in 0..4_000 {
        let client = &mut pair.sessions[0];
        let fits = || BlockOptions::default();
        while client
            .send_block(pair.now, blocks, block.clone(), fits())
            .is_ok()
        {}
        let woken =
            |(_, event): &(Duration, Event)| matches!(event, Event::Writable(id) if *id == bytes);
        let is_woken = pair.events[0].iter().any(woken);
        pair.events[0].clear();
        if written == 0 || is_woken {
            written += client.write(pair.now, bytes, &data).unwrap();
        }
        pair.run_for(Duration::from_millis(5));
    }
    assert!(written > 400_000, "{written} bytes in 20 s");
}
