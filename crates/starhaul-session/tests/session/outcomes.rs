//! What becomes of blocks: exactly one outcome each, updates, retreats, dependents, ordered streams, the end of a stream.

use std::time::Duration;

use crate::pair::{Pair, is_on_time, ms, pattern};
use bytes::Bytes;
use starhaul_session::{
    BlockId, BlockOptions, Event, ExpiredCause, Mode, Outcome, PathId, Session, SessionConfig,
    StreamConfig, StreamError, StreamId,
};

fn pair() -> Pair {
    let mut pair = Pair::new(SessionConfig::default());
    pair.lane(0, 10.0, 50, 0.0, 0.0, 1);
    pair.run_for(ms(1000));
    pair
}

fn stream(deadline_ms: u64) -> StreamConfig {
    StreamConfig {
        deadline: ms(deadline_ms),
        ..StreamConfig::default()
    }
}

fn cancelled_by(block: BlockId) -> Option<Outcome> {
    Some(Outcome::Cancelled {
        because_of: Some(block),
    })
}

#[test]
fn a_retreat_before_sending_sends_nothing_and_tells_the_peer() {
    let mut pair = pair();
    let stream = pair.open(stream(1000));
    let first = pair.send(stream, 5000, BlockOptions::default());
    pair.sessions[0].retreat(pair.now, stream, first).unwrap();
    pair.run_for(ms(500));
    assert_eq!(pair.fragments(0), []);
    assert_eq!(
        pair.outcome(stream, first),
        Some(Outcome::Cancelled { because_of: None })
    );
    assert!(
        pair.events[1].iter().any(
            |(_, event)| matches!(event, Event::BlockMissing { block, .. } if *block == first)
        )
    );
    assert_eq!(
        pair.sessions[0].retreat(pair.now, stream, first),
        Err(StreamError::UnknownBlock(stream, first)),
        "a block ends once"
    );
}

#[test]
fn a_retreat_half_way_stops_the_rest_and_takes_dependents_along() {
    let mut pair = pair();
    let stream = pair.open(stream(2000));
    let i = pair.send(stream, 500_000, BlockOptions::default());
    let p = pair.send(
        stream,
        1000,
        BlockOptions {
            depends_on: Some(i),
            priority: Some(200),
            ..BlockOptions::default()
        },
    );
    pair.run_for(ms(100));
    pair.sessions[0].retreat(pair.now, stream, i).unwrap();
    let sent = pair.fragments(0).len();
    assert!((50..400).contains(&sent), "{sent} fragments");
    pair.run_for(ms(1000));
    assert_eq!(pair.fragments(0).len(), sent, "nothing more of it is sent");
    assert_eq!(
        pair.outcome(stream, i),
        Some(Outcome::Cancelled { because_of: None })
    );
    assert_eq!(pair.outcome(stream, p), cancelled_by(i));
    assert_eq!(pair.received(1).len(), 0);
    assert_eq!(
        pair.sessions[1].held_bytes().1,
        0,
        "the peer forgets the fragments it has"
    );
}

/// A driver may take inputs before it asks for the time: what came due meanwhile is still told.
#[test]
fn a_timer_that_came_due_before_an_input_is_not_forgotten() {
    for late_ms in [0, 1, 5000] {
        let mut pair = pair();
        pair.run_for(ms(500));
        let stream = pair.open(stream(150));
        pair.cut(0, true);
        let block = pair.send(stream, 3000, BlockOptions::default());
        pair.run_for(ms(20));
        let due = loop {
            let [session, _] = &mut pair.sessions;
            let due = session.poll_timeout().unwrap();
            let now = due + ms(late_ms);
            // A probe of the peer comes in the same turn, and is taken first.
            let probe = [&[4][..], &[0; 8]].concat();
            session
                .handle_datagram(now, PathId(0), probe.into())
                .unwrap();
            let told = session.poll_timeout();
            assert!(
                told.is_some_and(|told| told <= now),
                "due {due:?}, told {told:?}"
            );
            session.handle_timeout(now);
            pair.now = now;
            while session.poll_datagram(now, PathId(0)).is_some() {}
            assert!(
                session.poll_timeout().is_none_or(|next| next > now),
                "done, and told again"
            );
            while let Some(event) = session.poll_event() {
                pair.events[0].push((now - pair.start, event));
            }
            if pair.outcome(stream, block).is_some() {
                break now;
            }
        };
        let took = due - pair.start - ms(500);
        assert!(took < ms(2000 + 3 * late_ms), "an outcome after {took:?}");
    }
}

#[test]
fn a_deadline_beyond_all_bounds_is_cut_to_what_the_wire_can_say() {
    let mut pair = pair();
    pair.run_for(ms(500));
    let stream = pair.open(stream(150));
    let forever = BlockOptions {
        deadline: Some(Duration::MAX),
        ..BlockOptions::default()
    };
    let block = pair.send(stream, 100, forever);
    let now = pair.now;
    pair.sessions[0]
        .update_block(now, stream, block, Some(Duration::MAX), None)
        .unwrap();
    pair.sessions[0].finish(now, stream).unwrap();
    pair.run_for(ms(500));
    assert!(matches!(
        pair.outcome(stream, block),
        Some(Outcome::Delivered { on_time: true, .. })
    ));
}

#[test]
fn a_retreat_after_the_delivery_is_refused() {
    let mut pair = pair();
    let stream = pair.open(stream(1000));
    let block = pair.send(stream, 5000, BlockOptions::default());
    pair.run_for(ms(500));
    assert_eq!(
        pair.sessions[0].retreat(pair.now, stream, block),
        Err(StreamError::UnknownBlock(stream, block))
    );
    assert!(pair.outcome(stream, block).is_some_and(is_on_time));
}

#[test]
fn an_earlier_deadline_brings_a_block_forward_and_a_later_one_saves_it() {
    let mut pair = pair();
    let stream = pair.open(stream(3000));
    // 100 kB take 80 ms; ten of them 0.8 s.
    let blocks: Vec<BlockId> = (0..10)
        .map(|_| pair.send(stream, 100_000, BlockOptions::default()))
        .collect();
    let doomed = pair.send(
        stream,
        1000,
        BlockOptions {
            deadline: Some(ms(20)),
            ..BlockOptions::default()
        },
    );
    let spared = pair.send(
        stream,
        300_000,
        BlockOptions {
            deadline: Some(ms(200)),
            ..BlockOptions::default()
        },
    );
    let (now, last) = (pair.now, blocks[9]);
    pair.sessions[0]
        .update_block(now, stream, last, Some(ms(400)), None)
        .unwrap();
    pair.sessions[0]
        .update_block(now, stream, spared, Some(ms(4000)), None)
        .unwrap();
    pair.run_for(ms(5000));
    let position = |block: BlockId| {
        let outcomes = pair.outcomes(0);
        outcomes
            .iter()
            .position(|(_, number, _)| *number == block.0)
            .unwrap()
    };
    assert!(
        position(last) < position(blocks[2]),
        "{:?}",
        pair.outcomes(0)
    );
    assert!(pair.outcome(stream, last).is_some_and(is_on_time));
    assert!(pair.outcome(stream, spared).is_some_and(is_on_time));
    assert_eq!(
        pair.outcome(stream, doomed),
        Some(Outcome::Expired(ExpiredCause::Unreachable))
    );
}

#[test]
fn a_deadline_moved_into_the_past_ends_the_block_at_once() {
    let mut pair = Pair::new(SessionConfig::default());
    let stream = pair.open(stream(3000));
    let block = pair.send(stream, 1000, BlockOptions::default());
    let born_dead = pair.send(
        stream,
        1000,
        BlockOptions {
            deadline: Some(ms(0)),
            ..BlockOptions::default()
        },
    );
    pair.run_for(ms(1));
    assert!(matches!(
        pair.outcome(stream, born_dead),
        Some(Outcome::Expired(_))
    ));
    assert_eq!(pair.outcome(stream, block), None);
    pair.sessions[0]
        .update_block(pair.now, stream, block, Some(ms(0)), None)
        .unwrap();
    pair.run_for(ms(1));
    assert!(
        matches!(pair.outcome(stream, block), Some(Outcome::Expired(_))),
        "without any path too"
    );
}

#[test]
fn a_raised_priority_overtakes() {
    let mut pair = pair();
    let stream = pair.open(StreamConfig {
        priority: 5,
        ..stream(3000)
    });
    let blocks: Vec<BlockId> = (0..10)
        .map(|_| pair.send(stream, 100_000, BlockOptions::default()))
        .collect();
    pair.sessions[0]
        .update_block(pair.now, stream, blocks[8], None, Some(0))
        .unwrap();
    pair.run_for(ms(2000));
    let first = pair.outcomes(0)[0].1;
    assert_eq!(first, blocks[8].0, "{:?}", pair.outcomes(0));
}

/// It is sent at the very moment, before the timer.
#[test]
fn what_depends_on_a_block_that_ends_as_it_comes_is_cancelled() {
    let mut pair = pair();
    pair.run_for(ms(500));
    pair.cut(0, true);
    let stream = pair.open(stream(100));
    let base = pair.send(stream, 3000, BlockOptions::default());
    pair.now += ms(5_000);
    let options = BlockOptions {
        depends_on: Some(base),
        ..BlockOptions::default()
    };
    let dependent = pair.send(stream, 3000, options);
    pair.run_for(ms(10));
    assert_eq!(pair.outcome(stream, dependent), cancelled_by(base));
}

#[test]
fn a_dependent_may_be_retreated_alone_and_ends_once() {
    let mut pair = pair();
    let stream = pair.open(stream(1000));
    let i = pair.send(stream, 100_000, BlockOptions::default());
    let on = |block| BlockOptions {
        depends_on: Some(block),
        ..BlockOptions::default()
    };
    let p1 = pair.send(stream, 1000, on(i));
    let p2 = pair.send(stream, 1000, on(p1));
    let p3 = pair.send(stream, 1000, on(i));
    pair.sessions[0].retreat(pair.now, stream, p1).unwrap();
    pair.run_for(ms(5));
    pair.sessions[0].retreat(pair.now, stream, i).unwrap();
    pair.run_for(ms(1000));
    assert_eq!(
        pair.outcome(stream, p1),
        Some(Outcome::Cancelled { because_of: None })
    );
    assert_eq!(pair.outcome(stream, p2), cancelled_by(p1));
    assert_eq!(pair.outcome(stream, p3), cancelled_by(i));
    assert_eq!(pair.outcomes(0).len(), 4);
}

#[test]
fn an_ordered_stream_waits_for_the_earlier_but_not_for_what_was_given_up() {
    let mut pair = pair();
    let stream = pair.open(StreamConfig {
        ordered: true,
        ..stream(2000)
    });
    let sizes = [200_000, 1000, 150_000, 1000, 1000];
    let blocks: Vec<BlockId> = sizes
        .iter()
        .map(|size| pair.send(stream, *size, BlockOptions::default()))
        .collect();
    pair.sessions[0]
        .update_block(pair.now, stream, blocks[1], Some(ms(100)), None)
        .unwrap();
    pair.sessions[0]
        .update_block(pair.now, stream, blocks[3], Some(ms(100)), None)
        .unwrap();
    pair.run_for(ms(120));
    pair.sessions[0]
        .retreat(pair.now, stream, blocks[2])
        .unwrap();
    pair.run_for(ms(1000));
    let received = pair.received(1);
    let order: Vec<u32> = received.iter().map(|(_, _, block, _, _)| *block).collect();
    assert_eq!(order, [0, 1, 3, 4]);
    let (_, _, _, data, latency) = &received[1];
    assert_eq!(*data, pattern(stream.0 as usize, 1000));
    assert!(
        *latency < ms(100),
        "latency is until complete, not until handed on: {latency:?}"
    );
    assert!(received[1].0 >= received[0].0);
}

/// Of blocks that are due at one instant each other one is lost, and the sender's message that gives them up comes later.
#[test]
fn an_ordered_stream_goes_on_over_each_gap_of_blocks_that_are_due_at_once() {
    let mut pair = Pair::new(SessionConfig::default());
    pair.lane(0, 10.0, 150, 0.0, 0.0, 1);
    pair.run_for(ms(2000));
    let stream = pair.open(StreamConfig {
        mode: Mode::None,
        ordered: true,
        ..stream(200)
    });
    for _ in 0..30 {
        pair.send(stream, 1000, BlockOptions::default());
        pair.run_for(ms(10));
    }
    pair.run_for(ms(1000));
    let (born, before) = (pair.elapsed(), pair.received(1).len());
    for number in 0..6 {
        pair.send(stream, 1000, BlockOptions::default());
        for datagram in take(&mut pair.sessions[0], pair.now) {
            if number % 2 == 1 {
                let server = &mut pair.sessions[1];
                let taken = server.handle_datagram(pair.now, PathId(0), datagram);
                taken.unwrap();
            }
        }
    }
    pair.run_for(ms(1000));
    let received = pair.received(1).split_off(before);
    let order: Vec<u32> = received.iter().map(|(_, _, block, ..)| *block).collect();
    assert_eq!(order, [31, 33, 35]);
    for (at, ..) in received {
        assert!(at - born <= ms(201), "after {:?}", at - born);
    }
}

/// A block is lost whole, and the sender's message that gives it up comes much later than the deadline of those behind it.
#[test]
fn an_ordered_stream_waits_until_a_deadline_and_no_longer() {
    for (ahead, comes_late) in [(ms(0), false), (ms(7000), false), (ms(7000), true)] {
        let mut pair = Pair::with_clocks(SessionConfig::default(), ahead);
        pair.lane(0, 10.0, 150, 0.0, 0.0, 1);
        pair.run_for(ms(2000));
        let stream = pair.open(StreamConfig {
            mode: Mode::None,
            ordered: true,
            ..stream(200)
        });
        pair.run_for(ms(500));
        let mut born = Vec::new();
        let mut kept = Vec::new();
        for number in 0..30 {
            born.push(pair.elapsed());
            pair.send(stream, 5000, BlockOptions::default());
            if number == 3 {
                kept = take(&mut pair.sessions[0], pair.now);
            }
            pair.run_for(ms(10));
        }
        if comes_late {
            for datagram in kept {
                let server = &mut pair.sessions[1];
                server
                    .handle_datagram(pair.now, PathId(0), datagram)
                    .unwrap();
            }
        }
        let now = pair.now;
        pair.sessions[0].finish(now, stream).unwrap();
        pair.run_for(ms(4000));

        let received = pair.received(1);
        let order: Vec<u32> = received.iter().map(|(_, _, block, ..)| *block).collect();
        assert_eq!(
            order,
            [&[0, 1, 2], &(4..30).collect::<Vec<_>>()[..]].concat()
        );
        for (at, _, block, _, latency) in received {
            let took = at - born[block as usize];
            assert!(
                // The clocks' offset is known to the time that a packet takes to be sent.
                took <= ms(201),
                "block {block} was handed on after {took:?}"
            );
            assert!(latency < ms(170), "and was whole after {latency:?}");
        }
        // It ends in the same way for both, and once, whether or not it comes after all.
        let lost = Some(Outcome::Expired(ExpiredCause::Loss));
        assert_eq!(pair.outcome(stream, BlockId(3)), lost, "late: {comes_late}");
        assert_eq!(pair.on_time(), 29);
        let told = |event: &Event| match event {
            Event::BlockMissing { block, .. } => Some(block.0),
            Event::StreamFinished(_) => Some(u32::MAX),
            _ => None,
        };
        let told: Vec<u32> = pair.events[1]
            .iter()
            .filter_map(|(_, event)| told(event))
            .collect();
        assert_eq!(told, [3, u32::MAX]);
        for session in &pair.sessions {
            assert_eq!(session.held_bytes(), (0, 0));
            assert!(session.stream_stats().iter().all(|stats| stats.ended));
        }
    }
}

#[test]
fn a_finished_stream_says_so_once_every_block_has_ended() {
    let mut pair = pair();
    let stream = pair.open(stream(500));
    for _ in 0..3 {
        pair.send(stream, 50_000, BlockOptions::default());
    }
    let missed = pair.send(
        stream,
        2_000_000,
        BlockOptions {
            deadline: Some(ms(300)),
            priority: Some(200),
            ..BlockOptions::default()
        },
    );
    pair.sessions[0].finish(pair.now, stream).unwrap();
    assert_eq!(
        pair.sessions[0].send_block(
            pair.now,
            stream,
            Bytes::from_static(b"x"),
            BlockOptions::default()
        ),
        Err(StreamError::NotWritable(stream))
    );
    pair.run_for(ms(3000));
    let events: Vec<&Event> = pair.events[1].iter().map(|(_, event)| event).collect();
    let missing = events
        .iter()
        .position(|event| matches!(event, Event::BlockMissing { block, .. } if *block == missed));
    let finished: Vec<usize> = events
        .iter()
        .enumerate()
        .filter(|(_, event)| matches!(event, Event::StreamFinished(id) if *id == stream))
        .map(|(at, _)| at)
        .collect();
    assert_eq!(finished, [events.len() - 1], "{events:?}");
    assert!(missing.is_some());
    assert_eq!(pair.received(1).len(), 3);
    for session in &pair.sessions {
        assert!(
            session.stream_stats().iter().all(|stats| stats.ended),
            "both sides forget it"
        );
    }
}

#[test]
fn streams_of_both_sides_carry_blocks_at_once() {
    let mut pair = pair();
    let ours = pair.open(stream(500));
    let theirs = pair.sessions[1].open_stream(pair.now, stream(500)).unwrap();
    for number in 0..20 {
        pair.send(ours, 3000, BlockOptions::default());
        pair.sessions[1]
            .send_block(
                pair.now,
                theirs,
                pattern(number, 3000),
                BlockOptions::default(),
            )
            .unwrap();
        pair.run_for(ms(10));
    }
    pair.run_for(ms(500));
    for (side, stream) in [(0, theirs), (1, ours)] {
        let received = pair.received(side);
        assert_eq!(received.len(), 20);
        assert!(received.iter().all(|(_, id, ..)| *id == stream.0));
    }
    assert_eq!(
        pair.sessions[0].send_block(
            pair.now,
            theirs,
            Bytes::from_static(b"x"),
            BlockOptions::default()
        ),
        Err(StreamError::WrongKind(theirs))
    );
}

/// The first `count` datagrams that the session has for a path.
fn take(session: &mut Session, pair_now: std::time::Instant) -> Vec<Bytes> {
    let path = starhaul_session::PathId(0);
    std::iter::from_fn(|| session.poll_datagram(pair_now, path))
        .map(|datagram| datagram.payload)
        .collect()
}

#[test]
fn blocks_and_bytes_that_overtake_the_opening_of_their_stream_are_kept() {
    let mut pair = pair();
    let ordered = pair.open(StreamConfig {
        ordered: true,
        ..stream(500)
    });
    let plain = pair.open(stream(500));
    let bytes = pair.open(StreamConfig {
        mode: Mode::Reliable,
        ..stream(500)
    });
    for _ in 0..3 {
        pair.send(ordered, 3000, BlockOptions::default());
        pair.send(plain, 3000, BlockOptions::default());
    }
    pair.sessions[0]
        .write(pair.now, bytes, &pattern(7, 3000))
        .unwrap();
    pair.sessions[0].finish(pair.now, bytes).unwrap();
    let mut datagrams = take(&mut pair.sessions[0], pair.now);
    assert_eq!(datagrams[0][0], 2, "the opening goes first");
    datagrams.reverse();
    let arrival = pair.now + ms(50);
    for datagram in datagrams {
        pair.sessions[1]
            .handle_datagram(arrival, starhaul_session::PathId(0), datagram)
            .unwrap();
    }
    pair.now = arrival;
    pair.run_for(ms(300));
    let received = pair.received(1);
    let blocks_of = |stream: StreamId| -> Vec<u32> {
        received
            .iter()
            .filter(|(_, id, ..)| *id == stream.0)
            .map(|(_, _, block, ..)| *block)
            .collect()
    };
    assert_eq!(blocks_of(ordered), [0, 1, 2]);
    let mut unordered = blocks_of(plain);
    unordered.sort_unstable();
    assert_eq!(unordered, [0, 1, 2]);
    assert!(
        received
            .iter()
            .all(|(_, _, _, _, latency)| (ms(49)..ms(60)).contains(latency)),
        "a latency is wrong"
    );
    let mut read = Vec::new();
    while let Some(part) = pair.sessions[1].read(pair.now, bytes, usize::MAX).unwrap() {
        if part.is_empty() {
            break;
        }
        read.extend_from_slice(&part);
    }
    assert_eq!(read, pattern(7, 3000));
}

#[test]
fn closing_fails_what_has_not_ended_and_refuses_more() {
    let mut pair = pair();
    let stream = pair.open(stream(5000));
    let done = pair.send(stream, 1000, BlockOptions::default());
    pair.run_for(ms(500));
    let i = pair.send(stream, 900_000, BlockOptions::default());
    let p = pair.send(
        stream,
        1000,
        BlockOptions {
            depends_on: Some(i),
            ..BlockOptions::default()
        },
    );
    pair.run_for(ms(30));
    pair.sessions[0].close(pair.now);
    pair.run_for(ms(1000));
    assert!(pair.outcome(stream, done).is_some_and(is_on_time));
    assert_eq!(pair.outcome(stream, i), Some(Outcome::Failed));
    assert_eq!(pair.outcome(stream, p), Some(Outcome::Failed));
    assert_eq!(
        pair.sessions[0].open_stream(pair.now, StreamConfig::default()),
        Err(StreamError::Closed)
    );
    assert_eq!(
        pair.sessions[0].send_block(
            pair.now,
            stream,
            Bytes::from_static(b"x"),
            BlockOptions::default()
        ),
        Err(StreamError::Closed)
    );
}

#[test]
fn thousands_of_blocks_that_end_out_of_order_keep_both_sides_of_one_mind() {
    // Every second block is urgent, so that thousands of gaps open in the order of arrival and as many blocks expire between
    // ones that live.
    let mut pair = Pair::new(SessionConfig::default());
    pair.lane(0, 20.0, 20, 0.0, 0.0, 1);
    pair.run_for(ms(500));
    let stream = pair.open(StreamConfig {
        mode: Mode::Retransmit,
        ..stream(20_000)
    });
    let mut short = 0;
    for number in 0..6000u32 {
        let options = match number % 3 {
            0 => BlockOptions {
                priority: Some(0),
                ..BlockOptions::default()
            },
            1 => BlockOptions {
                priority: Some(200),
                ..BlockOptions::default()
            },
            _ => BlockOptions {
                priority: Some(250),
                deadline: Some(ms(900)),
                ..BlockOptions::default()
            },
        };
        short += usize::from(number % 3 == 2);
        pair.send(stream, 600, options);
    }
    pair.run_for(ms(6000));
    let outcomes = pair.outcomes(0);
    assert_eq!(outcomes.len(), 6000);
    let mut told: Vec<u32> = outcomes
        .iter()
        .filter(|(_, _, outcome)| is_on_time(*outcome))
        .map(|(_, block, _)| *block)
        .collect();
    let mut seen: Vec<u32> = pair
        .received(1)
        .iter()
        .map(|(_, _, block, ..)| *block)
        .collect();
    told.sort_unstable();
    seen.sort_unstable();
    assert!(
        told.len() >= 4000 && outcomes.len() - told.len() >= short / 4,
        "{} on time",
        told.len()
    );
    assert_eq!(told.len(), seen.len());
    assert_eq!(told, seen);
    assert_eq!(pair.sessions[1].dropped_on_receipt(), 0);
}

#[test]
fn too_many_blocks_under_way_are_refused() {
    let mut pair = pair();
    let stream = pair.open(stream(60_000));
    let refusal = (0..100_000).find_map(|_| {
        let sent = pair.sessions[0].send_block(
            pair.now,
            stream,
            Bytes::from_static(b"x"),
            BlockOptions::default(),
        );
        sent.err()
    });
    assert_eq!(refusal, Some(StreamError::TooManyBlocks(stream)));
}

/// A block names its codes by a byte.
#[test]
fn a_block_of_too_many_codes_fails_and_keeps_no_other_from_leaving() {
    let mut pair = Pair::new(SessionConfig {
        max_fragment_bytes: 100,
        ..SessionConfig::default()
    });
    pair.lane(0, 100.0, 5, 0.0, 0.0, 1);
    let stream = pair.open(StreamConfig {
        max_coding_rate: 1.0,
        ..stream(5_000)
    });
    let long = pair.send(stream, 256 * 127 * 100 + 1, BlockOptions::default());
    let short = pair.send(stream, 1_000, BlockOptions::default());
    pair.run_for(ms(1_000));
    assert_eq!(pair.outcome(stream, long), Some(Outcome::Failed));
    let outcome = pair.outcome(stream, short).unwrap();
    assert!(matches!(outcome, Outcome::Delivered { .. }), "{outcome:?}");
}
