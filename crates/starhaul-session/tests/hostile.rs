//! Peers that break the protocol: typed errors, no panic, and memory within its bounds.

#![allow(clippy::unwrap_used, reason = "a failed call is a failed test")]

mod pair;

use std::{
    panic::{AssertUnwindSafe, catch_unwind},
    time::{Duration, Instant},
};

use bytes::Bytes;
use pair::{Pair, ms};
use starhaul_session::{
    BlockOptions, Event, Mode, PathId, PathUpdate, ProtocolError, Session, SessionConfig, Side,
    StreamConfig, StreamError,
};
use starhaul_units::Bandwidth;

const PATH: PathId = PathId(0);
/// What the peer may hold beyond its configuration: the datagram being read.
const SLACK: usize = 70_000;

/// A session with one path, and a peer that says whatever it likes.
struct Victim {
    now: Instant,
    session: Session,
    sequence: u32,
    control: u64,
}

impl Victim {
    fn new(config: SessionConfig) -> Self {
        Self::of(Side::Server, config)
    }

    fn of(side: Side, config: SessionConfig) -> Self {
        let now = Instant::now();
        let update = PathUpdate {
            cwnd: 1_000_000,
            bytes_in_flight: 0,
            bandwidth: Bandwidth::from_mbit(10),
            smoothed_rtt: ms(40),
            min_rtt: ms(40),
            max_datagram: 1200,
        };
        let mut session = Session::new(config, side, now);
        session.add_path(now, PATH, 0.0, update);
        Self {
            now,
            session,
            sequence: 0,
            control: 0,
        }
    }

    fn small() -> Self {
        Self::new(SessionConfig {
            max_receive_bytes: 300_000,
            max_streams: 4,
            ..SessionConfig::default()
        })
    }

    /// A datagram of `kind` with a sound header.
    fn datagram(&mut self, kind: u8, body: &[u8]) -> Vec<u8> {
        let mut datagram = vec![kind];
        datagram.extend_from_slice(&self.sequence.to_be_bytes());
        datagram.extend_from_slice(&[0; 4]);
        datagram.extend_from_slice(body);
        self.sequence = self.sequence.wrapping_add(1);
        datagram
    }

    fn say(&mut self, kind: u8, body: &[u8]) -> Result<(), ProtocolError> {
        let datagram = self.datagram(kind, body);
        self.session
            .handle_datagram(self.now, PATH, Bytes::from(datagram))
    }

    fn control(&mut self, message: &[u8]) -> Result<(), ProtocolError> {
        let mut bytes = u16::try_from(message.len()).unwrap().to_be_bytes().to_vec();
        bytes.extend_from_slice(message);
        let offset = self.control;
        self.control += bytes.len() as u64;
        self.say(2, &frame(0, offset, false, &bytes))
    }

    fn open(&mut self, stream: u32, mode: u8, ordered: bool) -> Result<(), ProtocolError> {
        let mut message = vec![1];
        message.extend_from_slice(&stream.to_be_bytes());
        message.push(mode);
        message.extend_from_slice(&1000u32.to_be_bytes());
        message.extend_from_slice(&[1, 0, ordered.into()]);
        message.extend_from_slice(&[0; 8]);
        self.control(&message)
    }

    fn held(&self) -> usize {
        self.session.held_bytes().1
    }

    /// Everything the session sends until it has nothing more to say.
    fn drain(&mut self) -> usize {
        let sent = std::iter::from_fn(|| self.session.poll_datagram(self.now, PATH)).count();
        while self.session.poll_event().is_some() {}
        sent
    }
}

fn frame(stream: u32, offset: u64, fin: bool, data: &[u8]) -> Vec<u8> {
    let mut body = stream.to_be_bytes().to_vec();
    body.extend_from_slice(&offset.to_be_bytes());
    body.push(fin.into());
    body.extend_from_slice(data);
    body
}

struct Fragment {
    stream: u32,
    block: u32,
    code: [u8; 2],
    index: u8,
    data_count: u8,
    redundancy_count: u8,
    bytes: usize,
}

impl Fragment {
    fn of(stream: u32, block: u32, data_count: u8, bytes: usize) -> Self {
        Self {
            stream,
            block,
            code: [0, 0],
            index: 0,
            data_count,
            redundancy_count: 0,
            bytes,
        }
    }

    fn encode(&self) -> Vec<u8> {
        let mut body = self.stream.to_be_bytes().to_vec();
        body.extend_from_slice(&self.block.to_be_bytes());
        body.extend_from_slice(&[0; 4]);
        body.extend_from_slice(&[
            self.code[0],
            self.code[1],
            self.index,
            self.data_count,
            self.redundancy_count,
            0,
            0,
        ]);
        body.resize(body.len() + self.bytes, 7);
        body
    }
}

/// An acknowledgement of datagrams of one path and of blocks.
fn ack(path: u32, ranges: &[(u32, u8)], blocks: &[(u32, u32)]) -> Vec<u8> {
    let mut body = vec![u8::from(!ranges.is_empty())];
    if let Some((last, span)) = ranges.first() {
        body.extend_from_slice(&path.to_be_bytes());
        body.extend_from_slice(&[0; 4]);
        body.push(u8::try_from(ranges.len()).unwrap());
        body.extend_from_slice(&last.to_be_bytes());
        body.push(*span);
        for (distance, span) in &ranges[1..] {
            body.push(u8::try_from(*distance).unwrap());
            body.push(*span);
        }
    }
    body.push(u8::try_from(blocks.len()).unwrap());
    for (stream, block) in blocks {
        body.extend_from_slice(&stream.to_be_bytes());
        body.extend_from_slice(&block.to_be_bytes());
        body.extend_from_slice(&[0; 5]);
    }
    body
}

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

#[test]
fn data_of_the_wrong_kind_are_refused() {
    let is_state =
        |said: Result<(), ProtocolError>| matches!(said, Err(ProtocolError::StreamState { .. }));
    let mut victim = Victim::small();
    victim.open(2, 0, false).unwrap();
    victim.open(4, 5, false).unwrap();
    assert!(
        is_state(victim.say(2, &frame(2, 0, false, b"x"))),
        "bytes on a deadline stream"
    );
    assert!(
        is_state(victim.say(1, &Fragment::of(4, 0, 1, 1).encode())),
        "blocks on a reliable stream"
    );
    assert!(
        is_state(victim.say(1, &Fragment::of(0, 0, 1, 1).encode())),
        "blocks on the control stream"
    );
    assert!(
        is_state(victim.say(1, &Fragment::of(3, 0, 1, 1).encode())),
        "blocks on a stream of ours"
    );
    assert!(
        is_state(victim.say(2, &frame(0, victim.control, true, b""))),
        "the end of the control stream"
    );
    assert!(is_state(victim.open(2, 0, false)), "opened twice");
    assert!(
        is_state(Victim::small().open(0, 0, false)),
        "the control stream opened"
    );
    assert!(
        is_state(Victim::small().open(3, 0, false)),
        "our number opened"
    );
    for message in [
        [4, 0, 0, 0, 2, 0, 0, 0, 1].as_slice(),
        &[5, 0, 0, 0, 2, 0, 0, 0, 1],
        &[6, 0, 0, 0, 2, 0, 0, 0, 0, 0, 0, 0, 1],
    ] {
        let mut victim = Victim::small();
        victim.open(2, 0, false).unwrap();
        assert!(
            is_state(victim.control(message)),
            "{message:?} on a deadline stream"
        );
    }
    for message in [
        [2, 0, 0, 0, 2, 0, 0, 0, 1].as_slice(),
        &[3, 0, 0, 0, 2, 0, 0, 0, 1, 0, 0, 0, 1],
    ] {
        let mut victim = Victim::small();
        victim.open(2, 5, false).unwrap();
        assert!(
            is_state(victim.control(message)),
            "{message:?} on a reliable stream"
        );
    }
}

#[test]
fn garbage_on_the_control_stream_is_refused() {
    let malformed = Err(ProtocolError::Malformed("control message"));
    assert_eq!(
        Victim::small().say(2, &frame(0, 0, false, &[255, 255, 1])),
        malformed
    );
    assert_eq!(
        Victim::small().say(2, &frame(0, 0, false, &[0, 0])),
        malformed
    );
    assert_eq!(Victim::small().control(&[1, 0, 0]), malformed, "too short");
    assert_eq!(
        Victim::small().control(&[4, 0, 0, 0, 2, 0, 0, 0, 1, 9]),
        malformed,
        "too long"
    );
    assert_eq!(Victim::small().open(2, 6, false), malformed, "no such mode");
    let mut victim = Victim::small();
    victim.open(2, 0, false).unwrap();
    assert_eq!(
        victim.control(&[3, 0, 0, 0, 2, 0, 0, 0, 9, 0, 0, 0, 1]),
        malformed,
        "a range that runs backwards"
    );
    assert_eq!(
        victim.control(&[99, 1, 2, 3]),
        Ok(()),
        "a type of a later version"
    );
}

#[test]
fn giving_up_all_blocks_there_could_be_costs_little() {
    let mut victim = Victim::small();
    victim.open(2, 0, true).unwrap();
    for round in 0..100u32 {
        let mut message = vec![3, 0, 0, 0, 2];
        let first = round.wrapping_mul(0x7fff_fff0);
        message.extend_from_slice(&first.to_be_bytes());
        message.extend_from_slice(&first.wrapping_add(0x7fff_ffef).to_be_bytes());
        victim.control(&message).unwrap();
    }
    let events = std::iter::from_fn(|| victim.session.poll_event()).count();
    assert!(events <= 100 * 256 + 2, "{events} events");
    // Many ranges of one message are no more than one.
    let mut message = vec![3, 0, 0, 0, 4];
    victim.open(4, 0, true).unwrap();
    for range in 0..100u32 {
        message.extend_from_slice(&(range * 1000).to_be_bytes());
        message.extend_from_slice(&(range * 1000 + 400).to_be_bytes());
    }
    victim.control(&message).unwrap();
    let events = std::iter::from_fn(|| victim.session.poll_event()).count();
    assert!((256..=257).contains(&events), "{events} events");
}

/// A datagram may cost as much to read as it is long, whatever it says.
#[test]
fn acknowledgements_that_no_receiver_sends_are_refused() {
    let malformed = |body: &[u8]| {
        let mut victim = Victim::small();
        let said = victim.say(3, body);
        matches!(said, Err(ProtocolError::Malformed(_)))
    };
    let falling: Vec<(u32, u8)> = (0..33).map(|_| (2, 0)).collect();
    assert!(malformed(&ack(0, &falling, &[])), "33 ranges");
    assert!(
        malformed(&ack(0, &[(100, 0), (0, 5)], &[])),
        "ranges that meet"
    );
    let blocks: Vec<(u32, u32)> = (0..25).map(|block| (1, block)).collect();
    assert!(malformed(&ack(0, &[], &blocks)), "25 blocks");
    let path = &ack(0, &[(100, 0)], &[])[1..];
    let path = &path[..path.len() - 1];
    let twice = [&[2], path, path, &[0]].concat();
    assert!(malformed(&twice), "a path twice");
}

#[test]
fn truncated_datagrams_are_refused_or_harmless() {
    let mut pair = Pair::new(SessionConfig::default());
    pair.lane(0, 10.0, 20, 0.02, 0.0, 1);
    let blocks = pair.open(StreamConfig::default());
    let bytes = pair.open(StreamConfig {
        mode: Mode::Reliable,
        ..StreamConfig::default()
    });
    for _ in 0..10 {
        pair.send(blocks, 5000, BlockOptions::default());
        let now = pair.now;
        pair.sessions[0].write(now, bytes, &[1; 3000]).unwrap();
        pair.run_for(ms(20));
    }
    for side in 0..2 {
        for sent in pair.sent[side].iter().take(150) {
            for length in (0..sent.payload.len().min(60)).chain([sent.payload.len() - 1]) {
                let mut victim = Victim::small();
                let cut = sent.payload.slice(..length);
                let now = victim.now;
                let _ = catch_unwind(AssertUnwindSafe(|| {
                    victim.session.handle_datagram(now, PATH, cut)
                }))
                .unwrap_or_else(|_| panic!("panic at {length} bytes of {:?}", sent.payload));
                victim.drain();
            }
        }
    }
}

#[test]
fn corrupted_datagrams_never_panic_and_stay_within_the_bounds() {
    let mut pair = Pair::new(SessionConfig::default());
    pair.lane(0, 10.0, 20, 0.02, 0.0, 1);
    let blocks = pair.open(StreamConfig {
        ordered: true,
        ..StreamConfig::default()
    });
    let bytes = pair.open(StreamConfig {
        mode: Mode::Reliable,
        ..StreamConfig::default()
    });
    for _ in 0..20 {
        pair.send(blocks, 5000, BlockOptions::default());
        let now = pair.now;
        pair.sessions[0].write(now, bytes, &[1; 3000]).unwrap();
        pair.run_for(ms(20));
    }
    for seed in 0..40u64 {
        let mut state = seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1;
        let mut random = move || {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            state
        };
        let mut victim = Victim::small();
        let now = victim.now;
        let ours = victim
            .session
            .open_stream(now, StreamConfig::default())
            .unwrap();
        for (step, sent) in pair.sent[0].iter().chain(&pair.sent[1]).enumerate() {
            let mut payload = sent.payload.to_vec();
            if random() % 4 == 0 {
                let at = usize::try_from(random()).unwrap() % payload.len().min(40);
                payload[at] = random().to_le_bytes()[0];
            }
            let at = victim.now;
            let _ = victim
                .session
                .handle_datagram(at, PATH, Bytes::from(payload));
            if step % 10 == 0 {
                let _ = victim.session.send_block(
                    at,
                    ours,
                    Bytes::from_static(&[3; 2500]),
                    BlockOptions::default(),
                );
                victim.now += Duration::from_millis(random() % 50);
                victim.session.handle_timeout(victim.now);
                victim.drain();
            }
            assert!(
                victim.held() <= 300_000 + 8 * (64 << 10) + SLACK,
                "seed {seed}: {} bytes",
                victim.held()
            );
        }
    }
}
