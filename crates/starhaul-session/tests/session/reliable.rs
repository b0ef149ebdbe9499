//! Reliable streams: every byte in order over any number of bad paths, within bounds, and never slower for a second path.

use std::{collections::BTreeMap, time::Duration};

use crate::pair::{Pair, ms, pattern};
use bytes::Bytes;
use starhaul_session::{
    BlockOptions, Event, Mode, PathId, SessionConfig, StreamConfig, StreamError, StreamId,
};

fn reliable() -> StreamConfig {
    StreamConfig {
        mode: Mode::Reliable,
        ..StreamConfig::default()
    }
}

/// Sends `data` on `stream` of the client and reads it at the server; returns when the last byte, and the end, was read.
struct Transfer {
    stream: StreamId,
    data: Bytes,
    written: usize,
    read: Vec<u8>,
    ended_at: Option<Duration>,
}

impl Transfer {
    fn new(pair: &mut Pair, data: Bytes) -> Self {
        Self {
            stream: pair.open(reliable()),
            data,
            written: 0,
            read: Vec::new(),
            ended_at: None,
        }
    }

    fn write(&mut self, pair: &mut Pair) {
        if self.written < self.data.len() {
            self.written += pair.sessions[0]
                .write(pair.now, self.stream, &self.data[self.written..])
                .unwrap();
            if self.written == self.data.len() {
                pair.sessions[0].finish(pair.now, self.stream).unwrap();
            }
        }
    }

    fn read(&mut self, pair: &mut Pair) {
        while self.ended_at.is_none() {
            match pair.sessions[1].read(pair.now, self.stream, usize::MAX) {
                Ok(Some(part)) if part.is_empty() => self.ended_at = Some(pair.elapsed()),
                Ok(Some(part)) => self.read.extend_from_slice(&part),
                Ok(None) | Err(StreamError::Unknown(_)) => break,
                Err(error) => panic!("{error}"),
            }
        }
    }

    /// Until the end was read, at most for `limit`.
    fn run(&mut self, pair: &mut Pair, limit: Duration) -> Duration {
        let begin = pair.elapsed();
        while self.ended_at.is_none() && pair.elapsed() - begin < limit {
            self.write(pair);
            pair.run_for(ms(2));
            self.read(pair);
        }
        self.ended_at.map_or(limit, |at| at - begin)
    }

    /// All was read, and nothing else.
    fn assert_whole(&self) {
        let (read, data) = (self.read.len(), self.data.len());
        assert!(self.read == self.data, "{read} bytes read of {data}");
    }
}

/// A stream over a lossy path, of whose 200 kB some have arrived.
fn half_way() -> (Pair, StreamId) {
    let mut pair = Pair::new(SessionConfig::default());
    pair.lane(0, 10.0, 20, 0.05, 0.0, 1);
    let stream = pair.open(reliable());
    let data = pattern(1, 200_000);
    pair.sessions[0].write(pair.now, stream, &data).unwrap();
    pair.run_for(ms(100));
    (pair, stream)
}

/// What `side` reads next of a stream that has something to read, or has ended.
fn read(pair: &mut Pair, side: usize, stream: StreamId) -> Bytes {
    let part = pair.sessions[side].read(pair.now, stream, 100).unwrap();
    part.expect("nothing to read")
}

/// Both sides have forgotten their streams, and keep nothing of them.
fn assert_forgotten(pair: &Pair) {
    for session in &pair.sessions {
        let stats = session.stream_stats();
        assert!(stats.is_empty(), "both sides forget it: {stats:?}");
        assert_eq!(session.held_bytes(), (0, 0));
    }
}

#[test]
fn five_megabytes_survive_loss_reordering_copies_and_lost_acknowledgements() {
    for seed in 0..2 {
        let mut pair = Pair::new(SessionConfig::default());
        pair.text_lane(
            0,
            "rate=30mbit,delay=20ms,loss=2%,reorder=5%:15ms,duplicate=1%",
            0.0,
            seed,
        );
        pair.text_lane(
            1,
            "rate=20mbit,delay=60ms,jitter=5ms,loss=ge:2%:8",
            0.0,
            seed,
        );
        let mut transfer = Transfer::new(&mut pair, pattern(3, 5_000_000));
        let took = transfer.run(&mut pair, ms(10_000));
        assert!(
            transfer.read == transfer.data,
            "seed {seed}: {} bytes after {took:?}",
            transfer.read.len()
        );
        pair.run_for(ms(1000));
        assert_eq!(pair.sessions[0].held_bytes().0, 0, "seed {seed}");
    }
}

#[test]
fn acknowledgements_lost_by_half_do_not_lose_bytes() {
    let mut pair = Pair::new(SessionConfig::default());
    let specs = [
        "rate=20mbit,delay=20ms,loss=1%",
        "rate=20mbit,delay=20ms,loss=50%",
    ]
    .map(|spec| spec.parse().unwrap());
    pair.lane_of([&specs[0], &specs[1]], 0.0, 0, 2);
    let mut transfer = Transfer::new(&mut pair, pattern(3, 2_000_000));
    transfer.run(&mut pair, ms(10_000));
    transfer.assert_whole();
}

#[test]
fn reordering_by_hundreds_of_datagrams_loses_no_byte() {
    // Every second datagram is held back for as long as hundreds of others take.
    let mut pair = Pair::new(SessionConfig::default());
    pair.text_lane(0, "rate=100mbit,delay=5ms,reorder=50%:80ms", 0.0, 6);
    let mut transfer = Transfer::new(&mut pair, pattern(3, 3_000_000));
    transfer.run(&mut pair, ms(5000));
    transfer.assert_whole();
}

#[test]
fn each_direction_ends_by_itself() {
    let mut pair = Pair::new(SessionConfig::default());
    pair.lane(0, 10.0, 20, 0.05, 0.0, 1);
    let mut transfer = Transfer::new(&mut pair, pattern(1, 100_000));
    let stream = transfer.stream;
    transfer.run(&mut pair, ms(3000));
    transfer.assert_whole();
    assert_eq!(
        pair.sessions[0].write(pair.now, stream, b"x"),
        Err(StreamError::NotWritable(stream))
    );
    assert_eq!(
        pair.sessions[1].write(pair.now, stream, b"an answer"),
        Ok(9)
    );
    pair.sessions[1].finish(pair.now, stream).unwrap();
    pair.run_for(ms(1000));
    assert_eq!(read(&mut pair, 0, stream), b"an answer"[..]);
    assert_eq!(read(&mut pair, 0, stream), b""[..]);
    pair.run_for(ms(1000));
    assert_forgotten(&pair);
}

#[test]
fn a_reset_reaches_the_reader_and_both_sides_forget_the_stream() {
    let (mut pair, stream) = half_way();
    pair.sessions[0].reset(pair.now, stream, 77).unwrap();
    let held = pair.sessions[0].held_bytes().0;
    assert!(held < 20, "{held} bytes for the word of it alone");
    pair.run_for(ms(500));
    assert!(
        pair.events[1]
            .iter()
            .any(|(_, event)| matches!(event, Event::Reset { code: 77, .. }))
    );
    assert_eq!(
        pair.sessions[1].read(pair.now, stream, 100),
        Err(StreamError::Reset { stream, code: 77 })
    );
    assert_eq!(
        pair.sessions[1].write(pair.now, stream, b"still open"),
        Ok(10)
    );
    pair.sessions[1].finish(pair.now, stream).unwrap();
    pair.run_for(ms(500));
    assert_eq!(read(&mut pair, 0, stream), b"still open"[..]);
    assert_eq!(read(&mut pair, 0, stream), b""[..]);
    pair.run_for(ms(500));
    assert_forgotten(&pair);
}

#[test]
fn a_stop_reaches_the_writer_and_both_sides_forget_the_stream() {
    let (mut pair, stream) = half_way();
    pair.sessions[1].stop(pair.now, stream, 5).unwrap();
    pair.sessions[1].finish(pair.now, stream).unwrap();
    pair.run_for(ms(500));
    assert!(
        pair.events[0]
            .iter()
            .any(|(_, event)| matches!(event, Event::Stopped { code: 5, .. }))
    );
    assert_eq!(
        pair.sessions[0].write(pair.now, stream, b"x"),
        Err(StreamError::NotWritable(stream))
    );
    assert_eq!(read(&mut pair, 0, stream), b""[..]);
    pair.run_for(ms(500));
    assert_forgotten(&pair);
}

#[test]
fn a_reader_that_does_not_read_holds_the_writer_and_then_resumes() {
    let config = SessionConfig {
        max_receive_bytes: 1 << 20,
        ..SessionConfig::default()
    };
    let mut pair = Pair::new(config);
    pair.lane(0, 50.0, 10, 0.01, 0.0, 1);
    let mut transfer = Transfer::new(&mut pair, pattern(1, 3_000_000));
    let (mut most_ours, mut most_theirs) = (0, 0);
    for _ in 0..1000 {
        transfer.write(&mut pair);
        pair.run_for(ms(2));
        most_ours = most_ours.max(pair.sessions[0].held_bytes().0);
        most_theirs = most_theirs.max(pair.sessions[1].held_bytes().1);
    }
    assert!(
        (60_000..=600_000).contains(&most_theirs),
        "{most_theirs} bytes wait for the reader"
    );
    assert!(
        most_ours <= 1 << 20,
        "{most_ours} bytes wait for the credit"
    );
    let sent = transfer.written;
    assert!(sent < transfer.data.len());
    transfer.run(&mut pair, ms(5000));
    transfer.assert_whole();
}

#[test]
fn a_writer_refused_for_want_of_memory_is_called_when_there_is_some() {
    let config = SessionConfig {
        max_send_bytes: 100_000,
        ..SessionConfig::default()
    };
    let mut pair = Pair::new(config);
    pair.lane(0, 10.0, 20, 0.0, 0.0, 1);
    let blocks = pair.open(StreamConfig {
        deadline: ms(300),
        ..StreamConfig::default()
    });
    let stream = pair.open(reliable());
    // 768 count for it beside its bytes.
    pair.send(blocks, 99_232, BlockOptions::default());
    assert_eq!(pair.sessions[0].write(pair.now, stream, b"hello"), Ok(0));
    assert!(matches!(
        pair.sessions[0].send_block(pair.now, blocks, pattern(1, 1), BlockOptions::default()),
        Err(StreamError::QueueFull { limit: 100_000, .. })
    ));
    pair.run_for(ms(1000));
    let called = pair.events[0]
        .iter()
        .filter(|(_, event)| matches!(event, Event::Writable(id) if *id == stream));
    assert_eq!(called.count(), 1);
    assert_eq!(pair.sessions[0].write(pair.now, stream, b"hello"), Ok(5));
}

#[test]
fn many_streams_share_the_paths_fairly() {
    let mut pair = Pair::new(SessionConfig::default());
    pair.lane(0, 20.0, 20, 0.005, 0.0, 1);
    pair.lane(1, 20.0, 50, 0.005, 0.0, 1);
    let mut transfers: Vec<Transfer> = (0..20)
        .map(|number| Transfer::new(&mut pair, pattern(number, 2_000_000)))
        .collect();
    for _ in 0..500 {
        for transfer in &mut transfers {
            transfer.write(&mut pair);
        }
        pair.run_for(ms(4));
        for transfer in &mut transfers {
            transfer.read(&mut pair);
        }
    }
    let read: Vec<usize> = transfers
        .iter()
        .map(|transfer| transfer.read.len())
        .collect();
    let (least, most) = (*read.iter().min().unwrap(), *read.iter().max().unwrap());
    assert!(least > 200_000 && least * 10 >= most * 8, "{read:?}");
    for transfer in &transfers {
        assert!(transfer.data.starts_with(&transfer.read));
    }
}

#[derive(Clone, Copy, Debug)]
struct LaneSpec {
    mbit: f64,
    delay: u64,
    loss: f64,
}

fn time_for(lanes: &[LaneSpec], bytes: usize, seed: u64) -> Duration {
    let mut pair = Pair::new(SessionConfig::default());
    for (id, lane) in (0..).zip(lanes) {
        pair.lane(id, lane.mbit, lane.delay, lane.loss, 0.0, seed);
    }
    pair.run_for(ms(2000));
    let mut transfer = Transfer::new(&mut pair, pattern(1, bytes));
    let took = transfer.run(&mut pair, ms(60_000));
    assert!(transfer.read == transfer.data, "seed {seed}, {lanes:?}");
    took
}

const FAST: LaneSpec = LaneSpec {
    mbit: 20.0,
    delay: 15,
    loss: 0.0,
};

#[test]
fn a_slow_path_does_not_delay_a_short_transfer() {
    for delay in [150, 300] {
        for bytes in [20_000, 200_000, 700_000] {
            let slow = LaneSpec { delay, ..FAST };
            let alone = time_for(&[FAST], bytes, 1);
            let both = time_for(&[FAST, slow], bytes, 1);
            assert!(
                both.as_secs_f64() <= alone.as_secs_f64() * 1.05,
                "{bytes} bytes: {both:?} beside a path of {delay} ms, {alone:?} alone"
            );
        }
    }
}

#[test]
fn a_long_transfer_over_two_paths_reaches_nine_tenths_of_their_sum() {
    let slow = LaneSpec { delay: 150, ..FAST };
    let bytes = 25_000_000;
    let took = time_for(&[FAST, slow], bytes, 1);
    // A datagram of 1320 bytes has 22 of our header, and 66 of the layers below.
    let most = 40e6 * (1320.0 - 22.0) / (1320.0 + 66.0);
    let rate = bytes as f64 * 8.0 / took.as_secs_f64();
    assert!(
        rate >= 0.9 * most,
        "{:.1} of {:.1} Mbit/s",
        rate * 1e-6,
        most * 1e-6
    );
}

#[test]
fn two_paths_are_never_worse_than_the_better_one() {
    let mut seed = 0;
    for mbit in [2.0, 20.0] {
        for delay in [10, 250] {
            for loss in [0.0, 0.02] {
                seed += 1;
                let other = LaneSpec { mbit, delay, loss };
                let bytes = 2_000_000;
                let alone = time_for(&[FAST], bytes, seed).min(time_for(&[other], bytes, seed));
                let both = time_for(&[FAST, other], bytes, seed);
                eprintln!("{other:?}: {both:?} with both, {alone:?} with the better");
                assert!(
                    alone.as_secs_f64() / both.as_secs_f64() >= 0.95,
                    "{other:?}: {both:?} with both, {alone:?} with the better"
                );
            }
        }
    }
}

/// What a fast path loses at once must not leave over the soonest one alone, which would take seconds for it.
#[test]
fn a_burst_of_losses_does_not_wait_for_the_soonest_path() {
    let mut pair = Pair::new(SessionConfig::default());
    pair.lane(0, 1.0, 10, 0.0, 0.0, 1);
    pair.lane(1, 50.0, 100, 0.0, 0.0, 1);
    let mut transfer = Transfer::new(&mut pair, pattern(3, 20_000_000));
    transfer.run(&mut pair, ms(1500));
    pair.cut_ways(1, [true, false]);
    transfer.run(&mut pair, ms(80));
    pair.cut_ways(1, [false, false]);
    // All that was on its way when the path lost it, a round trip to notice it, another to send it again.
    let sent = transfer.written;
    let noticed = pair.elapsed() + ms(400);
    while transfer.read.len() < sent && pair.elapsed() < noticed + ms(9000) {
        transfer.run(&mut pair, ms(2));
    }
    let late = pair.elapsed().saturating_sub(noticed);
    assert!(
        late < ms(200),
        "the reader waited {late:?} longer than two round trips"
    );
    transfer.run(&mut pair, ms(10_000));
    transfer.assert_whole();
}

#[test]
fn bytes_go_over_every_path_in_a_long_transfer() {
    let mut pair = Pair::new(SessionConfig::default());
    for id in 0..8 {
        pair.lane(id, 5.0, 10 + 10 * u64::from(id), 0.005, 0.0, 3);
    }
    let mut transfer = Transfer::new(&mut pair, pattern(1, 8_000_000));
    let took = transfer.run(&mut pair, ms(10_000));
    transfer.assert_whole();
    let mut by_path: BTreeMap<PathId, usize> = BTreeMap::new();
    for sent in &pair.sent[0] {
        if sent.frame().is_some() {
            *by_path.entry(sent.path).or_default() += sent.payload.len();
        }
    }
    assert_eq!(by_path.len(), 8);
    let rate = 8_000_000.0 * 8.0 / took.as_secs_f64();
    assert!(
        rate >= 0.85 * 40e6 * 0.936,
        "{:.1} Mbit/s over {by_path:?}",
        rate * 1e-6
    );
}

#[test]
fn a_waiting_stream_keeps_a_share_beside_deadline_data_that_fills_the_paths() {
    let mut pair = Pair::new(SessionConfig::default());
    pair.lane(0, 10.0, 20, 0.0, 0.0, 1);
    let blocks = pair.open(StreamConfig {
        deadline: ms(500),
        ..StreamConfig::default()
    });
    let mut transfer = Transfer::new(&mut pair, pattern(1, 3_000_000));
    for _ in 0..300 {
        pair.send(blocks, 20_000, BlockOptions::default());
        transfer.write(&mut pair);
        pair.run_for(ms(10));
        transfer.read(&mut pair);
    }
    assert!(
        transfer.read.len() >= 3 * 10_000_000 / 8 / 30,
        "{} bytes",
        transfer.read.len()
    );
}

/// Sends `bytes` on a stream that both sides know, from `side`; returns how long it takes until they were read.
fn time_to_send(pair: &mut Pair, side: usize, stream: StreamId, bytes: usize) -> Duration {
    let (begin, data) = (pair.elapsed(), vec![5; bytes]);
    let (mut written, mut read) = (0, 0);
    while read < bytes && pair.elapsed() - begin < ms(5000) {
        written += pair.sessions[side]
            .write(pair.now, stream, &data[written..])
            .unwrap();
        pair.run_for(ms(2));
        let reader = &mut pair.sessions[1 - side];
        while let Some(part) = reader.read(pair.now, stream, usize::MAX).unwrap() {
            read += part.len();
        }
    }
    pair.elapsed() - begin
}

/// Each side tells its first credit when the stream opens. Told once a part of the first 64 KiB was read, it would come a round trip after
/// they had left.
#[test]
fn a_fast_transfer_over_a_long_path_does_not_wait_for_credit() {
    let mut pair = Pair::new(SessionConfig::default());
    pair.lane(0, 100.0, 150, 0.0, 0.0, 1);
    pair.run_for(ms(2000));
    let bytes = 1_000_000;
    let on_the_wire = bytes as f64 * (1320.0 + 66.0) / (1320.0 - 22.0);
    let most = ms(150 + 10) + Duration::from_secs_f64(on_the_wire * 8.0 / 100e6);
    let stream = pair.open(reliable());
    pair.sessions[0]
        .write(pair.now, stream, b"a request")
        .unwrap();
    pair.run_for(ms(155));
    assert_eq!(read(&mut pair, 1, stream), b"a request"[..]);
    let answer = time_to_send(&mut pair, 1, stream, bytes);
    assert!(answer <= most, "{answer:?} for an answer, not {most:?}");

    let stream = pair.open(reliable());
    pair.sessions[0]
        .write(pair.now, stream, b"what goes before")
        .unwrap();
    pair.run_for(ms(310));
    assert_eq!(read(&mut pair, 1, stream), b"what goes before"[..]);
    let upload = time_to_send(&mut pair, 0, stream, bytes);
    assert!(upload <= most, "{upload:?} for what follows, not {most:?}");
}

/// Each datagram of a short connection costs its part of it.
#[test]
fn a_short_connection_takes_no_datagram_that_it_does_not_need() {
    let mut pair = Pair::new(SessionConfig::default());
    pair.lane(0, 100.0, 5, 0.0, 0.0, 1);
    pair.run_for(ms(100));
    let begun = [0, 1].map(|side| pair.sent[side].len());
    let stream = pair.open(reliable());
    let request = pair.sessions[0].write(pair.now, stream, &[1; 200]);
    assert_eq!(request, Ok(200));
    pair.sessions[0].finish(pair.now, stream).unwrap();
    pair.run_for(ms(10));
    let part = pair.sessions[1].read(pair.now, stream, 200).unwrap();
    assert_eq!(part.unwrap().len(), 200);
    let answer = pair.sessions[1].write(pair.now, stream, &[2; 10_000]);
    assert_eq!(answer, Ok(10_000));
    pair.sessions[1].finish(pair.now, stream).unwrap();
    pair.run_for(ms(50));
    for side in [0, 1] {
        while !read_all(&mut pair, side, stream).is_empty() {}
    }
    pair.run_for(ms(100));
    assert_forgotten(&pair);
    let frames = |side: usize, is_control: bool| {
        let sent = pair.sent[side].iter().skip(begun[side]);
        let streams = sent.filter_map(|sent| Some(sent.frame()?.0));
        streams
            .filter(|stream| (*stream == 0) == is_control)
            .count()
    };
    let control = [0, 1].map(|side| frames(side, true));
    let data = [0, 1].map(|side| frames(side, false));
    assert_eq!(control, [1, 1], "an opening with its credit, and a credit");
    // 1298 bytes in each.
    assert_eq!(
        data,
        [1, 8],
        "the request and the answer, each with its end"
    );
}

/// What `side` reads next, as much as there is; empty at the end, or when the stream is forgotten.
fn read_all(pair: &mut Pair, side: usize, stream: StreamId) -> Bytes {
    match pair.sessions[side].read(pair.now, stream, usize::MAX) {
        Ok(part) => part.expect("the end has not come"),
        Err(error) => {
            assert_eq!(error, StreamError::Unknown(stream));
            Bytes::new()
        }
    }
}
