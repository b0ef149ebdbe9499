//! Datagrams that arrive together are taken as if they arrived one by one.

use std::time::Instant;

use bytes::Bytes;
use proptest::prelude::*;
use starhaul_session::{Event, ProtocolError, SessionConfig, Side, StreamId};

use crate::pair::ms;
use crate::victim::{Fragment, PATH, Victim, frame, opening};

/// Streams of the peer: two that are open, and one that may be opened.
const STREAMS: [u32; 3] = [2, 4, 6];
const RELIABLE: u8 = 5;

/// A session to which the peer has opened two reliable streams.
fn victim(now: Instant) -> Victim {
    let mut victim = Victim::at(now, Side::Server, SessionConfig::default());
    for stream in [2, 4] {
        victim.open(stream, RELIABLE, false).unwrap();
    }
    victim
}

/// What a peer sends: mostly frames of one stream in order, of which some go astray, come twice or are too much.
fn datagrams(peer: &mut Victim, steps: &[(u8, usize)]) -> Vec<Bytes> {
    let mut next = [0_u64; 3];
    let mut sent: Vec<Vec<u8>> = Vec::new();
    for &(step, length) in steps {
        let which = match step {
            0..=99 => 0,
            100..=109 => 1,
            _ => 2,
        };
        match step {
            0..=119 => {
                let data = vec![step; length];
                let body = frame(STREAMS[which], next[which], false, &data);
                next[which] += length as u64;
                sent.push(peer.datagram(2, &body));
            }
            120..=123 => peer.sequence = peer.sequence.wrapping_add(1),
            124 | 125 => sent.extend(sent.last().cloned()),
            126 | 127 => {
                if let [.., one, other] = sent.as_mut_slice() {
                    std::mem::swap(one, other);
                }
            }
            128 => next[0] += length as u64,
            129 => sent.push(peer.control_datagram(&opening(6, RELIABLE, false))),
            130 => sent.push(peer.datagram(4, &[])),
            131 => sent.push(peer.datagram(2, &frame(2, next[0], true, &[]))),
            132 => sent.push(peer.datagram(2, &[0; 5])),
            _ => sent.push(peer.datagram(2, &frame(2, 1 << 40, false, b"x"))),
        }
    }
    sent.into_iter().map(Bytes::from).collect()
}

/// A peer's streams of blocks: one that is open, an ordered one, and one that may be opened.
const BLOCK_STREAMS: [u32; 3] = [8, 10, 12];
const WITH_CODE: u8 = 0;
const FRAGMENTS: u8 = 4;
/// Of these, this many are data.
const DATA: u8 = 3;

/// A session to which the peer has opened two streams of blocks, with room for little more than one message of it.
fn victim_of_blocks(now: Instant) -> Victim {
    let config = SessionConfig {
        max_receive_bytes: 200_000,
        ..SessionConfig::default()
    };
    let mut victim = Victim::at(now, Side::Server, config);
    for (stream, ordered) in [(8, false), (10, true)] {
        victim.open(stream, WITH_CODE, ordered).unwrap();
    }
    victim
}

/// What a peer sends: mostly fragments of the blocks of one stream in order, of which some go astray, come twice or are no fragments.
fn fragments(peer: &mut Victim, steps: &[(u8, u8)]) -> Vec<Bytes> {
    let mut next = [(0_u32, 0_u8); 3];
    let mut sent: Vec<Vec<u8>> = Vec::new();
    for &(step, size) in steps {
        let which = match step {
            0..=99 => 0,
            100..=109 => 1,
            _ => 2,
        };
        let stream = BLOCK_STREAMS[which];
        let (block, index) = &mut next[which];
        match step {
            0..=119 => {
                let fragment = Fragment {
                    index: *index,
                    redundancy_count: FRAGMENTS - DATA,
                    ..Fragment::of(
                        stream,
                        *block,
                        DATA,
                        100 + usize::try_from(*block % 7).unwrap_or(0),
                    )
                };
                sent.push(peer.datagram(1, &fragment.encode()));
                *index = (*index + 1) % FRAGMENTS;
                *block += u32::from(*index == 0);
            }
            120..=123 => peer.sequence = peer.sequence.wrapping_add(1),
            124 | 125 => sent.extend(sent.last().cloned()),
            126 | 127 => {
                if let [.., one, other] = sent.as_mut_slice() {
                    std::mem::swap(one, other);
                }
            }
            128 => next[0].0 += u32::from(size % 2),
            129 => sent.push(peer.control_datagram(&opening(12, WITH_CODE, false))),
            130 => {
                let mut finish = vec![2];
                finish.extend_from_slice(&8_u32.to_be_bytes());
                finish.extend_from_slice(&next[0].0.to_be_bytes());
                sent.push(peer.control_datagram(&finish));
            }
            131 => sent.push(peer.datagram(4, &[])),
            132 => {
                let alone = Fragment::of(8, next[0].0 + 1, 1, 2_000 * usize::from(size));
                sent.push(peer.datagram(1, &alone.encode()));
            }
            133 => sent.push(peer.datagram(2, &frame(2, 0, false, b"x"))),
            134 => sent.push(peer.datagram(1, &[0; 5])),
            // Of a stream that is ours, or the control stream.
            _ => {
                let stream = u32::from(size % 2);
                sent.push(peer.datagram(1, &Fragment::of(stream, 0, 1, 10).encode()));
            }
        }
    }
    sent.into_iter().map(Bytes::from).collect()
}

/// All that an application, a peer and an observer of figures see afterwards.
fn seen(victim: &mut Victim) -> (Vec<String>, Vec<Vec<u8>>) {
    let session = &mut victim.session;
    let mut told = vec![format!("{:?}", session.held_bytes())];
    told.push(format!("{:?}", session.path_stats()));
    while let Some(event) = session.poll_event() {
        told.push(format!("{event:?}"));
    }
    let mut bytes = Vec::new();
    told.push(session.dropped_on_receipt().to_string());
    for stream in STREAMS.map(StreamId) {
        let mut read = Vec::new();
        while let Ok(Some(chunk)) = session.read(victim.now, stream, usize::MAX)
            && !chunk.is_empty()
        {
            read.extend_from_slice(&chunk);
        }
        bytes.push(read);
    }
    told.push(format!("{:?}", session.stream_stats()));
    for wait in [0, 1, 5] {
        let now = victim.now + ms(wait);
        session.handle_timeout(now);
        told.push(format!("{:?}", session.poll_timeout()));
        while let Some(datagram) = session.poll_datagram(now, PATH) {
            bytes.push(datagram.payload.to_vec());
        }
    }
    (told, bytes)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(96))]
    #[test]
    fn what_arrives_together_is_taken_as_if_it_came_one_by_one(
        first in proptest::collection::vec((0u8..132, 1usize..1200), 0..150),
        then in proptest::collection::vec((0u8..134, 1usize..1200), 0..150),
    ) {
        let now = Instant::now();
        let [mut peer, mut single, mut together] = [(); 3].map(|()| victim(now));
        let steps = [first, then].concat();
        let datagrams = datagrams(&mut peer, &steps);
        let one_by_one = datagrams.iter().try_for_each(|datagram| {
            single.session.handle_datagram(now, PATH, datagram.clone())
        });
        let at_once = together.session.handle_datagrams(now, PATH, datagrams);
        prop_assert_eq!(one_by_one, at_once);
        prop_assert_eq!(seen(&mut single), seen(&mut together));
    }

    #[test]
    fn fragments_that_arrive_together_are_taken_as_if_they_came_one_by_one(
        first in proptest::collection::vec((0u8..132, 0u8..20), 0..150),
        then in proptest::collection::vec((0u8..136, 0u8..20), 0..150),
    ) {
        let now = Instant::now();
        let [mut peer, mut single, mut together] = [(); 3].map(|()| victim_of_blocks(now));
        let steps = [first, then].concat();
        let datagrams = fragments(&mut peer, &steps);
        let one_by_one = datagrams.iter().try_for_each(|datagram| {
            single.session.handle_datagram(now, PATH, datagram.clone())
        });
        let at_once = together.session.handle_datagrams(now, PATH, datagrams);
        prop_assert_eq!(one_by_one, at_once);
        prop_assert_eq!(seen(&mut single), seen(&mut together));
    }
}

/// Says several things at once; returns what came of it and how many bytes count as received.
fn say(victim: &mut Victim, bodies: &[Vec<u8>]) -> (Result<(), ProtocolError>, u64) {
    let received = |victim: &Victim| victim.session.path_stats()[0].bytes_received;
    let before = received(victim);
    let datagrams: Vec<_> = bodies
        .iter()
        .map(|body| Bytes::from(victim.datagram(2, body)))
        .collect();
    let taken = victim.session.handle_datagrams(victim.now, PATH, datagrams);
    (taken, received(victim) - before)
}

#[test]
fn what_breaks_the_protocol_comes_after_what_came_before_it_and_is_the_last() {
    let first = [
        frame(2, 0, false, b"abc"),
        frame(2, 3, false, b"def"),
        frame(2, 6, false, b"ghi"),
    ];
    let credit = ProtocolError::Limit("stream credit");
    let malformed = ProtocolError::Malformed("stream frame");
    let beyond = frame(2, 1 << 40, false, b"x");
    for (wrong, error) in [(beyond, credit), (vec![0; 5], malformed)] {
        let mut victim = victim(Instant::now());
        while victim.session.poll_event().is_some() {}
        let bodies = [&first[..2], std::slice::from_ref(&wrong), &first[2..]].concat();
        let (taken, received) = say(&mut victim, &bodies);
        // What cannot be read counts for nothing.
        let last = if error == malformed {
            0
        } else {
            9 + wrong.len()
        };
        assert_eq!(taken, Err(error));
        let before: usize = first[..2].iter().map(|body| 9 + body.len()).sum();
        assert_eq!(received, (before + last) as u64);
        let event = victim.session.poll_event();
        assert!(matches!(event, Some(Event::Readable(StreamId(2)))));
        assert!(victim.session.poll_event().is_none());
        let read = victim.session.read(victim.now, StreamId(2), usize::MAX);
        assert_eq!(read.unwrap().unwrap(), b"abcdef"[..]);
        let more = victim.session.read(victim.now, StreamId(2), usize::MAX);
        assert_eq!(more, Ok(None), "what came after it is not taken");
    }
}
