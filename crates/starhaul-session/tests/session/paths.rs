//! Paths that are cut, come back, come and go; clocks that disagree; jitter.

use std::{collections::BTreeSet, time::Duration};

use crate::pair::{Pair, is_on_time, ms, pattern};
use bytes::Bytes;
use starhaul_session::{
    BlockOptions, Mode, Outcome, PathId, PathUpdate, SessionConfig, StreamConfig, StreamId,
};
use starhaul_units::Bandwidth;

fn stream(mode: Mode, deadline_ms: u64) -> StreamConfig {
    StreamConfig {
        mode,
        deadline: ms(deadline_ms),
        ..StreamConfig::default()
    }
}

/// A reliable stream of the client, and what the server has read of it.
struct Flow {
    stream: StreamId,
    data: Bytes,
    written: usize,
    read: Vec<u8>,
}

impl Flow {
    fn open(pair: &mut Pair, bytes: usize) -> Self {
        Self {
            stream: pair.open(stream(Mode::Reliable, 1)),
            data: pattern(1, bytes),
            written: 0,
            read: Vec::new(),
        }
    }

    /// Writes what there is room for and reads what has come, for `rounds` with so long between them, or until all is read.
    fn pump(&mut self, pair: &mut Pair, rounds: u32, interval: Duration) {
        for _ in 0..rounds {
            self.pump_once(pair);
            if self.read.len() == self.data.len() {
                break;
            }
            pair.run_for(interval);
        }
    }

    fn pump_once(&mut self, pair: &mut Pair) {
        self.pump_below(pair, self.data.len());
    }

    /// Once, and nothing beyond `end`.
    fn pump_below(&mut self, pair: &mut Pair, end: usize) {
        let [client, server] = &mut pair.sessions;
        self.written += client
            .write(pair.now, self.stream, &self.data[self.written..end])
            .unwrap();
        while let Ok(Some(part)) = server.read(pair.now, self.stream, usize::MAX) {
            if part.is_empty() {
                break;
            }
            self.read.extend_from_slice(&part);
        }
    }

    fn assert_whole(&self, seed: u64) {
        let (read, written) = (self.read.len(), self.written);
        assert!(
            self.read == self.data,
            "seed {seed}: {read} of {written} bytes"
        );
    }
}

#[test]
fn a_path_cut_at_any_instant_costs_nothing_that_the_other_can_carry() {
    for seed in 0..12u64 {
        let victim = u32::try_from(seed % 2).unwrap();
        let delays = [25, 150];
        let mut pair = Pair::new(SessionConfig::default());
        pair.lane(0, 20.0, delays[0], 0.001, 0.0, seed);
        pair.lane(1, 20.0, delays[1], 0.001, 0.0, seed);
        pair.answer();
        pair.run_for(ms(1000));
        let blocks = pair.open(stream(Mode::FecRetransmit, 1200));
        let mut flow = Flow::open(&mut pair, 3_000_000);
        let cut_at = ms(1700 + seed * 37);
        let mut is_cut = false;
        for _ in 0..160 {
            pair.send(blocks, 10_000, BlockOptions::default());
            for _ in 0..2 {
                flow.pump_once(&mut pair);
                let next = pair.elapsed() + ms(5);
                if !is_cut && next > cut_at {
                    pair.run_until(cut_at);
                    pair.cut(victim, true);
                    is_cut = true;
                }
                pair.run_until(next);
            }
        }
        let other = PathId(1 - victim);
        let rtt = ms(2 * delays[1 - victim as usize]);
        let within = ms(delays[victim as usize] * 3 + 50);
        let mut from_last = pair.sent[0].iter().rev();
        let in_vain = from_last.find(|sent| sent.path != other && sent.payload.len() > 200);
        let in_vain = in_vain.map(|sent| sent.at.saturating_sub(cut_at));
        assert!(
            in_vain.is_some_and(|late| late <= within),
            "seed {seed}: data goes on where nothing arrives until {in_vain:?} after the cut"
        );
        let first = pair.sent[0]
            .iter()
            .find(|sent| sent.at >= cut_at && sent.path == other && sent.payload.len() > 200);
        assert!(
            first.is_some_and(|sent| sent.at <= cut_at + rtt * 3 / 2 + ms(50)),
            "seed {seed}"
        );
        flow.pump(&mut pair, 1000, ms(5));
        flow.assert_whole(seed);
        pair.run_for(ms(3000));
        let outcomes = pair.outcomes(0);
        assert_eq!(outcomes.len(), 160, "seed {seed}");
        let lost: Vec<_> = outcomes
            .iter()
            .filter(|(_, _, outcome)| !is_on_time(*outcome))
            .collect();
        assert!(lost.is_empty(), "seed {seed}, victim {victim}: {lost:?}");

        pair.cut(victim, false);
        pair.run_for(ms(1500));
        let back_at = pair.elapsed();
        // More than either path carries in time.
        for _ in 0..80 {
            pair.send(blocks, 100_000, BlockOptions::default());
            pair.run_for(ms(25));
        }
        pair.run_for(ms(1500));
        let again = pair.sent[0].iter().filter(|sent| {
            sent.at > back_at && sent.path == PathId(victim) && sent.fragment().is_some()
        });
        assert!(
            again.count() > 200,
            "seed {seed}: the path is used again by itself"
        );
        assert!(
            pair.sessions[0]
                .path_stats()
                .iter()
                .all(|path| !path.suspect),
            "seed {seed}"
        );
        assert!(
            pair.outcomes(0)[160..]
                .iter()
                .all(|(_, _, outcome)| is_on_time(*outcome)),
            "seed {seed}"
        );
    }
}

#[test]
fn all_paths_cut_at_once_lose_no_reliable_byte() {
    for seed in 0..4u64 {
        let mut pair = Pair::new(SessionConfig::default());
        pair.lane(0, 20.0, 25, 0.0, 0.0, seed);
        pair.lane(1, 20.0, 100, 0.0, 0.0, seed);
        let mut flow = Flow::open(&mut pair, 2_000_000);
        for round in 0..2000u64 {
            if round == 40 + seed * 3 {
                pair.cut(0, true);
                pair.cut(1, true);
            }
            if round == 400 {
                pair.cut(if seed % 2 == 0 { 0 } else { 1 }, false);
            }
            flow.pump(&mut pair, 1, ms(5));
        }
        flow.assert_whole(seed);
    }
}

#[test]
fn paths_come_and_go_at_any_time() {
    for seed in 0..4u64 {
        let mut pair = Pair::new(SessionConfig::default());
        pair.lane(0, 20.0, 30, 0.01, 0.0, seed);
        let blocks = pair.open(stream(Mode::FecRetransmit, 1000));
        let mut flow = Flow::open(&mut pair, 2_000_000);
        let mut oldest = 0;
        // Every 200 ms the oldest path goes and a new one comes; in between there is none for 20 ms.
        for round in 0..200u64 {
            if round % 20 == 10 + seed {
                pair.detach(oldest);
                oldest += 1;
            }
            if round % 20 == 12 + seed {
                pair.lane(oldest, 20.0, 10 + 10 * (round % 7), 0.01, 0.0, seed);
            }
            pair.send(blocks, 5000, BlockOptions::default());
            flow.pump_once(&mut pair);
            pair.run_for(ms(10));
        }
        flow.pump(&mut pair, 1000, ms(5));
        flow.assert_whole(seed);
        pair.run_for(ms(3000));
        let outcomes = pair.outcomes(0);
        assert_eq!(outcomes.len(), 200, "seed {seed}");
        assert!(
            outcomes.iter().all(|(_, _, outcome)| is_on_time(*outcome)),
            "seed {seed}: {outcomes:?}"
        );
        assert_eq!(pair.received(1).len(), 200, "seed {seed}");
    }
}

#[test]
fn any_path_may_be_the_first_and_blocks_wait_for_one() {
    let mut pair = Pair::new(SessionConfig::default());
    let blocks = pair.open(stream(Mode::FecRetransmit, 2000));
    for _ in 0..10 {
        pair.send(blocks, 5000, BlockOptions::default());
    }
    pair.run_for(ms(300));
    pair.lane(7, 5.0, 300, 0.0, 5.0, 1);
    pair.run_for(ms(1000));
    assert_eq!(pair.received(1).len(), 10);
    assert!(
        pair.outcomes(0)
            .iter()
            .all(|(_, _, outcome)| is_on_time(*outcome))
    );
    pair.lane(3, 20.0, 15, 0.0, 0.0, 1);
    pair.run_for(ms(500));
    pair.send(blocks, 5000, BlockOptions::default());
    pair.run_for(ms(500));
    assert_eq!(
        pair.fragments(0).last().map(|fragment| fragment.path),
        Some(PathId(3))
    );
}

#[test]
fn eight_paths_carry_what_no_seven_could() {
    let mut pair = Pair::new(SessionConfig::default());
    for id in 0..8 {
        pair.lane(id, 2.0, 10 + 15 * u64::from(id), 0.005, 0.0, 4);
    }
    pair.run_for(ms(500));
    let blocks = pair.open(StreamConfig {
        max_coding_rate: 0.05,
        ..stream(Mode::FecRetransmit, 800)
    });
    // 14.4 Mbit/s of blocks.
    for _ in 0..200 {
        pair.send(blocks, 18_000, BlockOptions::default());
        pair.run_for(ms(10));
    }
    pair.run_for(ms(1500));
    let kept = pair.on_time();
    let used: BTreeSet<PathId> = pair
        .fragments(0)
        .iter()
        .map(|fragment| fragment.path)
        .collect();
    assert_eq!(used.len(), 8);
    assert!(kept >= 190, "{kept} of 200");
}

#[test]
fn a_path_of_smaller_datagrams_does_not_hold_up_what_it_can_carry() {
    let mut pair = Pair::new(SessionConfig::default());
    pair.lane(0, 2.0, 20, 0.0, 0.0, 1);
    pair.run_for(ms(300));
    let blocks = pair.open(stream(Mode::Retransmit, 10_000));
    let large = pair.send(blocks, 500_000, BlockOptions::default());
    pair.run_for(ms(50));
    pair.lane(1, 10.0, 20, 0.0, 0.0, 1);
    pair.lanes.get_mut(&PathId(1)).unwrap().max_datagram = 700;
    pair.run_for(ms(100));
    let small = pair.send(
        blocks,
        3000,
        BlockOptions {
            priority: Some(200),
            ..BlockOptions::default()
        },
    );
    pair.run_for(ms(200));
    assert!(
        pair.outcome(blocks, small).is_some_and(is_on_time),
        "the new path carries it"
    );
    pair.run_for(ms(3000));
    assert!(pair.outcome(blocks, large).is_some_and(is_on_time));
}

/// A block that was cut for larger datagrams is cut anew: it arrives, and so does what was sent after it.
#[test]
fn a_path_whose_datagrams_shrink_does_not_stop_the_session() {
    for mode in [Mode::Retransmit, Mode::FecRetransmit, Mode::None] {
        let mut pair = Pair::new(SessionConfig::default());
        pair.lane(0, 5.0, 20, 0.0, 0.0, 1);
        pair.run_for(ms(300));
        let blocks = pair.open(stream(mode, 10_000));
        let large = pair.send(blocks, 500_000, BlockOptions::default());
        pair.run_for(ms(50));
        pair.lanes.get_mut(&PathId(0)).unwrap().max_datagram = 700;
        let later = pair.send(blocks, 3000, BlockOptions::default());
        pair.run_for(ms(2000));
        for block in [large, later] {
            let outcome = pair.outcome(blocks, block);
            assert!(outcome.is_some_and(is_on_time), "{mode:?}: {outcome:?}");
        }
        assert_eq!(pair.received(1).len(), 2, "{mode:?}: each once");
    }
}

#[test]
fn latency_is_right_whatever_the_clocks_say() {
    for ahead in [Duration::ZERO, ms(1), Duration::from_secs(5000)] {
        for delays in [[30, 30], [20, 250]] {
            let mut pair = Pair::with_clocks(SessionConfig::default(), ahead);
            pair.lane(0, 20.0, delays[0], 0.0, 0.0, 2);
            pair.lane(1, 20.0, delays[1], 0.0, 0.0, 2);
            pair.run_for(ms(500));
            let ours = pair.open(stream(Mode::Retransmit, 1000));
            let theirs = pair.sessions[1]
                .open_stream(pair.now, stream(Mode::Retransmit, 1000))
                .unwrap();
            let begin = pair.elapsed();
            for _ in 0..50 {
                pair.send(ours, 3000, BlockOptions::default());
                pair.sessions[1]
                    .send_block(pair.now, theirs, pattern(1, 3000), BlockOptions::default())
                    .unwrap();
                pair.run_for(ms(20));
            }
            pair.run_for(ms(1000));
            for receiver in 0..2 {
                let received = pair.received(receiver);
                let outcomes = pair.outcomes(1 - receiver);
                assert_eq!((received.len(), outcomes.len()), (50, 50));
                for (at, _, block, _, latency) in &received {
                    let truth = *at - (begin + ms(20) * *block);
                    assert!(
                        latency.abs_diff(truth) <= ms(2),
                        "{ahead:?}: {latency:?} instead of {truth:?}"
                    );
                    let told = outcomes
                        .iter()
                        .find_map(|(_, number, outcome)| match outcome {
                            Outcome::Delivered { latency, .. } if number == block => Some(*latency),
                            _ => None,
                        });
                    assert!(
                        told.is_some_and(|told| told.abs_diff(truth) <= ms(2)),
                        "{ahead:?}: {told:?} instead of {truth:?}"
                    );
                }
            }
        }
    }
}

#[test]
fn jitter_and_reordering_alone_cause_few_needless_retransmissions() {
    for seed in 0..3 {
        let mut pair = Pair::new(SessionConfig::default());
        pair.text_lane(0, "rate=20mbit,delay=30ms,jitter=5ms", 0.0, seed);
        pair.text_lane(
            1,
            "rate=20mbit,delay=40ms,jitter=5ms,reorder=3%:4ms",
            0.0,
            seed,
        );
        pair.run_for(ms(500));
        let blocks = pair.open(stream(Mode::Retransmit, 250));
        for _ in 0..150 {
            pair.send(blocks, 24_000, BlockOptions::default());
            pair.run_for(ms(20));
        }
        pair.run_for(ms(1000));
        let fragments = pair.fragments(0);
        let distinct: BTreeSet<_> = fragments
            .iter()
            .map(|f| (f.block, f.code, f.index))
            .collect();
        let needless = fragments.len() - distinct.len();
        assert!(
            needless * 20 <= fragments.len(),
            "seed {seed}: {needless} of {}",
            fragments.len()
        );
        assert_eq!(pair.received(1).len(), 150, "seed {seed}");
    }
}

#[test]
fn a_transport_that_knows_nothing_is_no_obstacle() {
    let mut pair = Pair::new(SessionConfig::default());
    pair.lane(0, 20.0, 30, 0.0, 0.0, 1);
    let unknown = PathUpdate {
        cwnd: 12_000,
        bytes_in_flight: 0,
        bandwidth: Bandwidth::ZERO,
        smoothed_rtt: Duration::ZERO,
        min_rtt: Duration::ZERO,
        max_datagram: 1200,
    };
    pair.lanes.get_mut(&PathId(0)).unwrap().told = Some(unknown);
    let blocks = pair.open(stream(Mode::FecRetransmit, 1000));
    for _ in 0..30 {
        pair.send(blocks, 5000, BlockOptions::default());
        pair.run_for(ms(20));
    }
    pair.run_for(ms(1500));
    let kept = pair.on_time();
    assert_eq!(kept, 30, "{:?}", pair.outcomes(0));
}

#[test]
fn a_path_dead_in_one_direction_is_left_by_both_sides_and_comes_back() {
    for are_cut in [[true, false], [false, true]] {
        for victim in 0..2u32 {
            let mut pair = Pair::new(SessionConfig::default());
            pair.lane(0, 20.0, 25, 0.0, 0.0, 1);
            pair.lane(1, 20.0, 150, 0.0, 0.0, 1);
            pair.answer();
            let blocks = pair.open(stream(Mode::FecRetransmit, 1200));
            let send = |pair: &mut Pair, count: u32| {
                for _ in 0..count {
                    pair.send(blocks, 30_000, BlockOptions::default());
                    pair.run_for(ms(20));
                }
            };
            let is_suspect = |pair: &Pair, side: usize| {
                pair.sessions[side].path_stats()[victim as usize].suspect
            };
            send(&mut pair, 50);
            pair.cut_ways(victim, are_cut);
            send(&mut pair, 50);
            assert!(
                is_suspect(&pair, 0),
                "path {victim}, {are_cut:?}: packets of the peer are no answers"
            );
            pair.cut(victim, false);
            send(&mut pair, 50);
            assert!(!is_suspect(&pair, 0), "path {victim}, {are_cut:?}");
            pair.run_for(ms(3000));
            assert_eq!((pair.outcomes(0).len(), pair.on_time()), (150, 150));
        }
    }
}

#[test]
fn a_dearer_path_carries_a_stream_s_bytes_only_where_it_saves_time() {
    let carried = |pair: &Pair, path: u32, since: Duration| {
        let frames = pair.sent[0].iter().filter(|sent| {
            let of_stream = sent.frame().is_some_and(|(stream, _)| stream > 0);
            sent.path == PathId(path) && sent.at >= since && of_stream
        });
        frames.count()
    };
    let mut pair = Pair::new(SessionConfig::default());
    // The cheaper one is slower, by less than what is waited for.
    pair.lane(0, 10.0, 150, 0.0, 0.0, 1);
    pair.lane(1, 10.0, 20, 0.0, 1.0, 1);
    pair.answer();
    let mut flow = Flow::open(&mut pair, 4_000_000);
    for round in 1..=100 {
        flow.pump_below(&mut pair, round * 1_000);
        pair.run_for(ms(20));
    }
    let messages = [0, 1].map(|path| carried(&pair, path, Duration::ZERO));
    assert!(
        messages[0] >= 100 && messages[1] == 0,
        "messages: {messages:?}"
    );

    let begun = pair.elapsed();
    flow.pump(&mut pair, 200, ms(5));
    let bulk = [0, 1].map(|path| carried(&pair, path, begun));
    assert!(bulk[0] > 300 && bulk[1] > 300, "bulk: {bulk:?}");
    flow.pump(&mut pair, 2000, ms(5));
    flow.assert_whole(1);
}

/// A path of the last resort, as one whose quota is nearly used up, takes no part of a transfer however much it would save, and all of it
/// when it is left alone.
#[test]
fn a_last_resort_carries_a_transfer_only_while_no_other_path_does() {
    let carried = |pair: &Pair, path: u32, since: Duration| {
        let bytes = pair.sent[0].iter().filter(|sent| {
            let of_stream = sent.frame().is_some_and(|(stream, _)| stream > 0);
            sent.path == PathId(path) && sent.at >= since && of_stream
        });
        bytes.map(|sent| sent.payload.len()).sum::<usize>()
    };
    let mut pair = Pair::new(SessionConfig::default());
    pair.lane(0, 5.0, 150, 0.01, 0.0, 1);
    pair.lane(1, 50.0, 20, 0.0, starhaul_session::LAST_RESORT, 1);
    pair.answer();
    let mut flow = Flow::open(&mut pair, 6_000_000);
    flow.pump(&mut pair, 1_000, ms(5));
    let [free, dear] = [0, 1].map(|path| carried(&pair, path, Duration::ZERO));
    assert!(free > 2_000_000, "{free}");
    assert!(dear < free / 100, "{dear} of {free}");
    // What acknowledges it does not leave there, either, though it would be sooner; some control frames do.
    let answers = |path: u32| {
        let answers = pair.sent[1].iter().filter(|sent| sent.path == PathId(path));
        answers.map(|sent| sent.payload.len()).sum::<usize>()
    };
    let [free, dear] = [0, 1].map(answers);
    assert!(dear < free / 4, "{dear} of {free} bytes of answers");
    pair.cut(0, true);
    let begun = pair.elapsed();
    flow.pump(&mut pair, 1_000, ms(5));
    flow.assert_whole(1);
    assert!(carried(&pair, 1, begun) > 1_000_000);
}

#[test]
fn what_is_lost_of_a_message_goes_again_over_the_cheaper_path() {
    let mut pair = Pair::new(SessionConfig::default());
    pair.lane(0, 10.0, 150, 0.1, 0.0, 1);
    pair.lane(1, 10.0, 20, 0.0, 1.0, 1);
    pair.answer();
    let mut flow = Flow::open(&mut pair, 100_000);
    for round in 1..=100 {
        flow.pump_below(&mut pair, round * 1_000);
        pair.run_for(ms(50));
    }
    flow.pump(&mut pair, 400, ms(5));
    flow.assert_whole(1);
    let frames = |path: u32| {
        let of_stream = pair.sent[0].iter().filter(|sent| {
            let of_stream = sent.frame().is_some_and(|(stream, _)| stream > 0);
            sent.path == PathId(path) && of_stream
        });
        of_stream.count()
    };
    assert!(frames(0) > 105, "{} frames: nothing was lost", frames(0));
    assert_eq!(frames(1), 0);
}

#[test]
fn a_dearer_path_carries_what_the_cheaper_one_cannot() {
    let mut pair = Pair::new(SessionConfig::default());
    pair.lane(0, 10.0, 20, 0.0, 0.0, 1);
    pair.lane(1, 10.0, 60, 0.0, 1.0, 1);
    pair.answer();
    let mut flow = Flow::open(&mut pair, 100_000);
    for round in 1..=100usize {
        if round == 50 {
            pair.cut(0, true);
        }
        flow.pump_below(&mut pair, round * 1_000);
        pair.run_for(ms(20));
    }
    pair.run_for(ms(500));
    flow.pump_once(&mut pair);
    flow.assert_whole(1);
}

/// A transport that cannot say how large a datagram may be says that none may.
#[test]
fn a_path_that_carries_no_datagram_stops_no_stream() {
    let mut pair = Pair::new(SessionConfig::default());
    pair.lane(0, 10.0, 20, 0.0, 0.0, 1);
    pair.lane(1, 10.0, 20, 0.0, 0.0, 2);
    pair.run_for(ms(500));
    let reliable = StreamConfig {
        mode: Mode::Reliable,
        ..StreamConfig::default()
    };
    let stream = pair.open(reliable);
    pair.run_for(ms(200));
    for narrow in [0, 1] {
        pair.lanes.get_mut(&PathId(narrow)).unwrap().max_datagram = 10;
        let sent = pair.sent[0].len();
        let written = pair.sessions[0].write(pair.now, stream, &[7; 20_000]);
        assert_eq!(written, Ok(20_000));
        pair.run_for(ms(1000));
        let frames = pair.sent[0][sent..].iter();
        let bytes: usize = frames
            .filter(|sent| sent.frame().is_some_and(|(id, _)| id == stream.0))
            .map(|sent| sent.payload.len())
            .sum();
        assert!(bytes > 20_000, "path {narrow} is narrow: {bytes} bytes");
        pair.lanes.get_mut(&PathId(narrow)).unwrap().max_datagram = 1320;
    }
}

/// A path of 300 ms carries nothing that is due within 150: while the other one pauses, blocks wait for that.
#[test]
fn blocks_too_urgent_for_the_slow_path_wait_for_the_silent_one() {
    for seed in 0..10 {
        let mut pair = Pair::new(SessionConfig::default());
        pair.lane(0, 20.0, 20, 0.0, 0.0, seed);
        pair.lane(1, 10.0, 300, 0.0, 0.0, seed);
        pair.answer();
        pair.run_for(ms(1000));
        let audio = pair.open(stream(Mode::FecRetransmit, 150));
        let cut_at = ms(1500 + 7 * seed);
        let send_until = |pair: &mut Pair, until: Duration| {
            while pair.elapsed() < until {
                pair.send(audio, 500, BlockOptions::default());
                pair.run_for(ms(10).min(until - pair.elapsed()));
            }
        };
        send_until(&mut pair, cut_at);
        pair.cut(0, true);
        send_until(&mut pair, cut_at + ms(80));
        pair.cut(0, false);
        send_until(&mut pair, ms(3000));
        pair.run_for(ms(2000));
        let outcomes = pair.outcomes(0);
        let missed = outcomes.len() - pair.on_time();
        // What left in the first half of the pause is known to be lost too late.
        assert!(missed <= 6, "seed {seed}: {missed} of {}", outcomes.len());
    }
}

/// Data leave over the cheaper and longer path, and acknowledgements come over the shorter one, until it is gone: then they take as long as
/// the longer one's round trip.
#[test]
fn nothing_is_sent_again_because_acknowledgements_take_another_path() {
    for seed in 0..4 {
        let mut pair = Pair::new(SessionConfig::default());
        pair.lane(0, 10.0, 300, 0.0, 0.0, seed);
        pair.lane(1, 10.0, 20, 0.0, 1.0, seed);
        let blocks = pair.open(stream(Mode::Retransmit, 5000));
        for round in 0..400 {
            if round == 200 {
                pair.detach(1);
            }
            pair.send(blocks, 4_000, BlockOptions::default());
            pair.run_for(ms(20));
        }
        pair.run_for(ms(5000));
        assert_eq!(pair.on_time(), 400, "seed {seed}");
        let fragments = pair.fragments(0);
        let slow = pair.sent[0].iter().filter(|sent| sent.path == PathId(0));
        assert!(
            slow.filter_map(crate::pair::Sent::fragment).count() > 1_500,
            "seed {seed}"
        );
        let distinct: BTreeSet<_> = fragments
            .iter()
            .map(|fragment| (fragment.block, fragment.code, fragment.index))
            .collect();
        let again = fragments.len() - distinct.len();
        assert!(
            again <= 4,
            "seed {seed}: {again} of {} left again",
            fragments.len()
        );
    }
}
