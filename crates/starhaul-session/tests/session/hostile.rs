//! Peers that break the protocol: typed errors, no panic, and memory within its bounds.

use std::time::Instant;

use crate::pair::{Pair, ms};
use crate::victim::{Fragment, PATH, SLACK, Victim, ack, frame};
use bytes::Bytes;
use starhaul_session::{
    BlockOptions, Event, Mode, ProtocolError, Session, SessionConfig, Side, StreamConfig,
    StreamError,
};

#[test]
fn acknowledging_what_was_never_sent_is_refused() {
    let never = |what| Err(ProtocolError::NeverSent(what));
    let mut victim = Victim::small();
    let sent = u32::try_from(victim.drain()).unwrap();
    assert_eq!(
        victim.say(3, &ack(0, &[(sent, 0)], &[])),
        never("a datagram")
    );
    assert_eq!(
        Victim::small().say(3, &ack(0, &[(u32::MAX, 200)], &[])),
        never("a datagram")
    );
    assert_eq!(
        victim.say(3, &ack(99, &[(5, 0)], &[])),
        Ok(()),
        "of a path that is gone"
    );

    let config = StreamConfig::default();
    let now = victim.now;
    let stream = victim.session.open_stream(now, config).unwrap();
    assert_eq!(
        victim.say(3, &ack(0, &[], &[(stream.0, 0)])),
        never("a block")
    );
    assert_eq!(
        victim.say(3, &ack(0, &[], &[(stream.0 + 2, 0)])),
        never("a block")
    );
    assert_eq!(victim.say(3, &ack(0, &[], &[(0, 0)])), never("a block"));
    let block = victim
        .session
        .send_block(
            now,
            stream,
            Bytes::from_static(b"waits"),
            BlockOptions::default(),
        )
        .unwrap();
    assert_eq!(
        victim.say(3, &ack(0, &[], &[(stream.0, block.0)])),
        never("a block"),
        "no fragment of it left"
    );
    victim.drain();
    assert_eq!(victim.say(3, &ack(0, &[], &[(stream.0, block.0)])), Ok(()));
    assert_eq!(
        victim.say(3, &ack(0, &[], &[(stream.0, block.0)])),
        Ok(()),
        "said again"
    );
    assert_eq!(
        victim.say(3, &ack(0, &[], &[(stream.0, 77)])),
        never("a block")
    );
}

#[test]
fn floods_of_partial_blocks_stay_within_the_bound() {
    for (opened, bytes) in [(true, 1000), (false, 1000), (true, 1), (false, 1)] {
        let mut victim = Victim::small();
        if opened {
            victim.open(2, 0, false).unwrap();
        }
        for block in 0..20_000 {
            let fragment = Fragment {
                code: [3, 200],
                ..Fragment::of(2, block, 200, bytes)
            };
            victim.say(1, &fragment.encode()).unwrap();
            assert!(victim.held() <= 300_000 + SLACK, "{} bytes", victim.held());
        }
        assert!(victim.session.dropped_on_receipt() > 10_000);
    }
}

#[test]
fn floods_of_whole_blocks_that_nobody_takes_stay_within_the_bound() {
    for (opened, ordered, bytes) in [
        (true, false, 1),
        (true, false, 1000),
        (true, true, 1),
        (false, false, 1),
        (false, true, 1000),
    ] {
        let mut victim = Victim::small();
        if opened {
            victim.open(2, 0, ordered).unwrap();
        }
        for block in 0..20_000 {
            // An ordered stream never gets its first block.
            victim
                .say(1, &Fragment::of(2, block + 1, 1, bytes).encode())
                .unwrap();
            assert!(victim.held() <= 300_000 + SLACK, "{} bytes", victim.held());
        }
        let events = std::iter::from_fn(|| victim.session.poll_event()).count();
        assert!(
            events <= 3000,
            "{events} one-byte blocks are held as if they cost one byte each"
        );
        assert!(victim.session.dropped_on_receipt() > 10_000);
    }
}

#[test]
fn blocks_for_ever_new_streams_that_are_never_opened_stay_within_the_bound() {
    let mut victim = Victim::small();
    for stream in 1..20_000 {
        victim
            .say(1, &Fragment::of(2 * stream, 0, 1, 1).encode())
            .unwrap();
        victim
            .say(1, &Fragment::of(2 * stream, 1, 2, 1).encode())
            .unwrap();
        assert!(victim.held() <= 300_000 + SLACK, "{} bytes", victim.held());
    }
}

/// There is no number past the last one: it could be opened again and again.
#[test]
fn a_server_cannot_open_the_last_number_twice() {
    let mut victim = Victim::of(Side::Client, SessionConfig::default());
    victim.open(u32::MAX - 2, 0, true).unwrap();
    for _ in 0..2 {
        let opened = victim.open(u32::MAX, 0, true);
        assert!(
            matches!(opened, Err(ProtocolError::StreamState { .. })),
            "{opened:?}"
        );
    }
    let events = std::iter::from_fn(|| victim.session.poll_event());
    assert_eq!(events.count(), 1);
}

#[test]
fn more_streams_than_agreed_are_refused() {
    let mut victim = Victim::small();
    let refused = (1..5000).find_map(|number| victim.open(2 * number, 5, false).err());
    assert_eq!(refused, Some(ProtocolError::Limit("streams")));
    let open = std::iter::from_fn(|| victim.session.poll_event())
        .filter(|event| matches!(event, Event::StreamOpened { .. }));
    assert_eq!(
        open.count(),
        2048,
        "as many as a peer may have opened before it heard"
    );

    let mut victim = Victim::small();
    let refused =
        (1..5000).find_map(|number| victim.say(2, &frame(2 * number, 0, false, b"x")).err());
    assert_eq!(
        refused,
        Some(ProtocolError::Limit("streams")),
        "bytes of streams that are never opened"
    );
}

#[test]
fn streams_that_come_and_end_leave_no_more_events_than_may_wait() {
    let mut victim = Victim::small();
    for number in 1..50_000_u32 {
        let stream = 2 * number;
        victim.open(stream, 0, false).unwrap();
        let finish = [&[2][..], &stream.to_be_bytes(), &[0; 4]].concat();
        victim.control(&finish).unwrap();
    }
    let events = std::iter::from_fn(|| victim.session.poll_event()).count();
    assert_eq!(events, 1 << 16);
}

/// What each block takes beside its bytes counts, too.
#[test]
fn small_blocks_that_cannot_leave_stay_within_the_bound() {
    let config = SessionConfig {
        max_send_bytes: 1_000_000,
        ..SessionConfig::default()
    };
    let now = Instant::now();
    let mut session = Session::new(config, Side::Client, now);
    let stream = session.open_stream(now, StreamConfig::default()).unwrap();
    let mut send = || {
        let data = Bytes::from_static(b"x");
        session.send_block(now, stream, data, BlockOptions::default())
    };
    let taken = (0..10_000).take_while(|_| send().is_ok()).count();
    assert!((1_000..2_500).contains(&taken), "{taken}");
    assert!(matches!(send(), Err(StreamError::QueueFull { .. })));
}

#[test]
fn an_honest_application_is_told_before_it_opens_too_many() {
    let mut pair = Pair::new(SessionConfig {
        max_streams: 4,
        ..SessionConfig::default()
    });
    pair.lane(0, 10.0, 20, 0.0, 0.0, 1);
    let streams: Vec<_> = (0..4).map(|_| pair.open(StreamConfig::default())).collect();
    let now = pair.now;
    assert_eq!(
        pair.sessions[0].open_stream(now, StreamConfig::default()),
        Err(StreamError::TooManyStreams(4))
    );
    pair.sessions[0].finish(now, streams[0]).unwrap();
    pair.run_for(ms(200));
    pair.open(StreamConfig::default());
    pair.run_for(ms(200));
}

#[test]
fn a_credit_without_end_is_no_overflow() {
    let mut victim = Victim::small();
    let config = StreamConfig {
        mode: Mode::Reliable,
        ..StreamConfig::default()
    };
    let now = victim.now;
    let stream = victim.session.open_stream(now, config).unwrap();
    let mut credit = vec![6];
    credit.extend_from_slice(&stream.0.to_be_bytes());
    credit.extend_from_slice(&u64::MAX.to_be_bytes());
    victim.control(&credit).unwrap();
    let written = victim.session.write(now, stream, &[7; 100_000]);
    assert_eq!(written, Ok(100_000), "a large credit is no small one");
}

/// Every other block is said to be given up, on more streams than may have so many gaps together.
#[test]
fn gaps_between_ended_blocks_are_bounded_for_all_streams_together() {
    let mut victim = Victim::new(SessionConfig {
        max_streams: 16,
        ..SessionConfig::default()
    });
    for stream in (2..14).step_by(2) {
        victim.open(stream, 2, false).unwrap();
        assert_eq!(victim.session.dropped_on_receipt(), 0, "stream {stream}");
        let numbers: Vec<u32> = (0..30_000).map(|n| 2 * n).collect();
        for some in numbers.chunks(100) {
            let mut message = vec![3];
            message.extend_from_slice(&u32::to_be_bytes(stream));
            for number in some {
                message.extend_from_slice(&number.to_be_bytes());
                message.extend_from_slice(&number.to_be_bytes());
            }
            victim.control(&message).unwrap();
            while victim.session.poll_event().is_some() {}
        }
        if stream == 10 {
            let taken_as_ended = victim.session.dropped_on_receipt();
            assert!(taken_as_ended > 18_000, "{taken_as_ended}");
            return;
        }
    }
    panic!("five streams had 30 000 gaps each");
}

/// An application that does not read what was sent to it holds its peer up, and neither side breaks the protocol.
#[test]
fn streams_that_are_not_read_to_the_end_hold_the_opener_up() {
    // Of the opener, and of its peer.
    for ([most, max_streams], seed) in [
        ([4, 4], 1),
        ([50, 50], 2),
        ([1024, 1024], 3),
        ([4096, 4], 4),
    ] {
        let mut pair = Pair::new(SessionConfig::default());
        pair.sessions = [(Side::Client, most), (Side::Server, max_streams)].map(|(side, most)| {
            let config = SessionConfig {
                max_streams: most,
                ..SessionConfig::default()
            };
            Session::new(config, side, pair.start)
        });
        pair.lane(0, 50.0, 20, 0.02, 0.0, seed);
        pair.run_for(ms(100));
        let config = StreamConfig {
            mode: Mode::Reliable,
            ..StreamConfig::default()
        };
        let (mut opened, mut refusals) = (Vec::new(), 0);
        for round in 0..600 {
            for _ in 0..most.div_ceil(10) {
                let now = pair.now;
                match pair.sessions[0].open_stream(now, config.clone()) {
                    Ok(stream) => {
                        assert_eq!(pair.sessions[0].write(now, stream, b"hello"), Ok(5));
                        pair.sessions[0].finish(now, stream).unwrap();
                        opened.push(stream);
                    }
                    Err(StreamError::PeerStreams | StreamError::TooManyStreams(_)) => refusals += 1,
                    Err(error) => panic!("{error}"),
                }
            }
            pair.run_for(ms(10));
            // The far application ends its own direction of each, and reads none.
            let now = pair.now;
            for stream in &opened {
                let _ = pair.sessions[1].finish(now, *stream);
            }
            pair.run_for(ms(10));
            for stream in &opened {
                let _ = pair.sessions[0].read(pair.now, *stream, 10);
            }
            if round == 300 {
                assert!(refusals > 0, "{max_streams}: nothing held the opener up");
                assert!(
                    opened.len() <= 2048.max(2 * max_streams),
                    "{}",
                    opened.len()
                );
                // From now on it reads.
                for stream in opened.drain(..) {
                    while pair.sessions[1]
                        .read(pair.now, stream, 10)
                        .is_ok_and(|read| read.is_some_and(|read| !read.is_empty()))
                    {
                    }
                }
                pair.run_for(ms(500));
                refusals = 0;
            }
        }
        assert!(
            opened.len() >= max_streams.min(50),
            "{max_streams}: only {} more",
            opened.len()
        );
    }
}

/// A peer that never acknowledges what we answer cannot make the queue of our answers grow without bound, nor unseen.
#[test]
fn answers_that_the_peer_never_acknowledges_are_counted_and_bounded() {
    let mut victim = Victim::new(SessionConfig::default());
    let mut refused = None;
    for round in 0..2_000_000u32 {
        let stream = 2 * round + 2;
        let mut told = victim.open(stream, 5, false);
        let mut stop = vec![5];
        stop.extend_from_slice(&stream.to_be_bytes());
        stop.extend_from_slice(&[0; 4]);
        let mut reset = stop.clone();
        reset[0] = 4;
        told = told.and_then(|()| victim.control(&stop));
        told = told.and_then(|()| victim.control(&reset));
        while let Some(event) = victim.session.poll_event() {
            if let Event::Reset { stream, .. } = event {
                let _ = victim.session.read(victim.now, stream, 1);
            }
        }
        let (held, _) = victim.session.held_bytes();
        assert!(
            held >= (round as usize + 1) * 8,
            "{held} bytes after {round} answers"
        );
        assert!(
            held <= 5 << 20,
            "{held} bytes held for a peer that acknowledges nothing"
        );
        if let Err(error) = told {
            refused = Some(error);
            break;
        }
    }
    let limit = ProtocolError::Limit("unacknowledged control messages");
    assert_eq!(refused, Some(limit));
}

/// What is counted is what is held: of a frame or fragment that waits only its own bytes are kept, never the packet around it.
#[test]
fn what_waits_does_not_keep_its_packet() {
    let mut victim = Victim::new(SessionConfig::default());
    victim.open(2, 5, false).unwrap();
    victim.open(4, 2, false).unwrap();
    victim.open(6, 2, true).unwrap();
    let before = victim.held();
    let mut packets = Vec::new();
    for number in 0..500 {
        // Every other byte, so that nothing can be read.
        let bytes = frame(2, u64::from(2 * number + 1), false, b"x");
        let fragments = [
            Fragment::of(4, number, 2, 1),
            Fragment {
                index: 2,
                redundancy_count: 1,
                ..Fragment::of(4, 1000 + number, 2, 1)
            },
            // Whole blocks: the first of their stream is missing, or the stream's opening.
            Fragment::of(6, 1 + number, 1, 1),
            Fragment::of(8, number, 1, 1),
        ];
        let fragments = fragments.map(|fragment| (1, fragment.encode()));
        for (kind, body) in [(2, bytes)].into_iter().chain(fragments) {
            let datagram = victim.datagram(kind, &body);
            let packet = Bytes::from([&datagram[..], &[0; 1400]].concat());
            let payload = packet.slice(..datagram.len());
            victim
                .session
                .handle_datagram(victim.now, PATH, payload)
                .unwrap();
            packets.push(packet);
        }
    }
    let kept = packets.iter().filter(|packet| !packet.is_unique()).count();
    assert_eq!(kept, 0, "packets are kept for one byte each");
    let counted = victim.held() - before;
    assert!(
        counted > 1000 * 90,
        "{counted} bytes counted for 1000 single bytes and what they cost"
    );
}

#[test]
fn blocks_on_a_stream_that_turns_out_reliable_leave_nothing_behind() {
    let mut victim = Victim::small();
    let before = victim.held();
    for block in 0..5 {
        let body = Fragment::of(2, block, 1, 1000).encode();
        victim.say(1, &body).unwrap();
    }
    assert!(victim.held() > before + 5000);
    victim.open(2, 5, false).unwrap();
    assert_eq!(victim.held(), before);
}

#[test]
fn bytes_beyond_the_credit_or_the_end_are_refused() {
    let mut victim = Victim::small();
    victim.open(2, 5, false).unwrap();
    assert_eq!(
        victim.say(2, &frame(2, 1 << 40, false, b"x")),
        Err(ProtocolError::Limit("stream credit"))
    );
    assert_eq!(victim.say(2, &frame(2, 10, true, b"end")), Ok(()));
    assert!(matches!(
        victim.say(2, &frame(2, 13, false, b"x")),
        Err(ProtocolError::StreamState { .. })
    ));
    assert!(matches!(
        victim.say(2, &frame(2, 0, true, b"x")),
        Err(ProtocolError::StreamState { .. })
    ));
    assert_eq!(
        victim.say(2, &frame(2, u64::MAX - 3, false, b"overflow")),
        Err(ProtocolError::Malformed("stream frame"))
    );
    assert_eq!(
        victim.say(2, &frame(0, 1 << 30, false, b"x")),
        Err(ProtocolError::Limit("stream credit")),
        "the control stream too"
    );
}

#[test]
fn bytes_with_holes_stay_within_what_each_stream_may_hold() {
    let mut victim = Victim::small();
    for stream in [2, 4, 6, 8] {
        victim.open(stream, 5, false).unwrap();
    }
    for stream in [2, 4, 6, 8, 10, 12] {
        for offset in (1..70_000).step_by(2) {
            let said = victim.say(2, &frame(stream, offset, false, b"x"));
            if said == Err(ProtocolError::Limit("stream credit")) {
                break;
            }
            said.unwrap();
        }
    }
    assert!(
        victim.held() <= 6 * (64 << 10) + 300_000,
        "{} bytes",
        victim.held()
    );
}
