//! Input of a session and a handshake from the peer.

use std::time::{Duration, Instant};

use arbitrary::Unstructured;
use bytes::Bytes;
use starhaul_quic::wire;
use starhaul_session::{
    BlockOptions, Budget, Mode, PathId, PathUpdate, Session, SessionConfig, Side, StreamConfig,
};
use starhaul_units::Bandwidth;

use super::parts;
use crate::pair::{Plan, run};

/// More operations than this make a run too slow for a fuzzer.
const MAX_OPERATIONS: usize = 300;
const MAX_RECEIVED_BYTES: usize = 1 << 20;

/// Operations on a pair of sessions.
pub fn session_pair(data: &[u8]) {
    run(&Plan::from_bytes(data, MAX_OPERATIONS));
}

/// Datagrams of any content on two paths to a session with streams and blocks of its own; each part is one, its first
/// byte gives the delay after the one before and the path.
pub fn session_datagram(data: &[u8]) {
    let mut now = Instant::now();
    let mut session = busy_session(now);
    for part in parts(data) {
        let Some((&how, datagram)) = part.split_first() else {
            continue;
        };
        now += Duration::from_millis(u64::from(how >> 1));
        let path = PathId(u32::from(how & 1));
        let refused = session
            .handle_datagram(now, path, Bytes::copy_from_slice(datagram))
            .is_err();
        let (_, received) = session.held_bytes();
        assert!(
            received <= MAX_RECEIVED_BYTES,
            "{received} bytes held after receipt"
        );
        if refused {
            break;
        }
        session.handle_timeout(now);
        for path in [PathId(0), PathId(1)] {
            let budget = Budget {
                datagrams: 20,
                ..Budget::ONE
            };
            session.poll_datagrams(now, path, budget, &mut Vec::new());
        }
        while session.poll_event().is_some() {}
        assert!(
            session.poll_timeout().is_none_or(|at| at > now),
            "woken for what was done"
        );
    }
    session.close(now);
    assert_eq!(session.poll_timeout(), None);
}

/// A server with two paths, a stream of each kind, and data sent on them.
fn busy_session(now: Instant) -> Session {
    let config = SessionConfig {
        max_receive_bytes: MAX_RECEIVED_BYTES,
        max_streams: 16,
        ..SessionConfig::default()
    };
    let mut session = Session::new(config, Side::Server, now);
    for path in 0..2 {
        let update = PathUpdate {
            cwnd: 100_000,
            bytes_in_flight: 0,
            bandwidth: Bandwidth::from_mbit(10),
            smoothed_rtt: Duration::from_millis(40),
            min_rtt: Duration::from_millis(40),
            max_datagram: 1200,
        };
        session.add_path(now, PathId(path), f64::from(path), update);
    }
    for mode in [Mode::FecRetransmit, Mode::Duplicate, Mode::Reliable] {
        let config = StreamConfig {
            mode,
            ..StreamConfig::default()
        };
        let Ok(stream) = session.open_stream(now, config) else {
            continue;
        };
        if mode == Mode::Reliable {
            session
                .write(now, stream, &[7; 5000])
                .expect("a fresh stream takes bytes");
            continue;
        }
        for _ in 0..3 {
            let block = Bytes::from_static(&[7; 5000]);
            session
                .send_block(now, stream, block, BlockOptions::default())
                .expect("a fresh stream takes blocks");
        }
    }
    for path in [PathId(0), PathId(1)] {
        for _ in 0..10 {
            let Some(_) = session.poll_datagram(now, path) else {
                break;
            };
        }
    }
    session
}

/// Messages of the join handshake: parsed from any truncation, and re-encoding parses to the same value. A hello may be
/// longer than its known part.
pub fn quic_handshake(data: &[u8]) {
    let mut rest = data;
    while let Ok(Some((message, length))) = wire::parse(rest) {
        assert!(
            length > 0 && length <= rest.len(),
            "a message of {length} bytes in {}",
            rest.len()
        );
        for cut in 0..length {
            let early = wire::parse(&rest[..cut]);
            assert_eq!(early, Ok(None), "read from {cut} of {length} bytes");
        }
        let written = message.encode();
        let again = wire::parse(&written);
        assert_eq!(
            again,
            Ok(Some((message, written.len()))),
            "is written in another way than it was read"
        );
        assert!(written.len() <= length, "grew by being read");
        rest = &rest[length..];
    }
}

/// Fragments of an erasure code: arbitrary ones of a peer, and those of a real block with losses.
pub fn fec_decode(data: &[u8]) {
    let mut source = Unstructured::new(data);
    let _ = decode_any(&mut source);
    let _ = decode_real(&mut source);
}

fn decode_any(source: &mut Unstructured<'_>) -> arbitrary::Result<()> {
    let (data_count, redundancy_count): (u8, u8) = source.arbitrary()?;
    let length = source.int_in_range(0..=9)?;
    let mut fragments = Vec::new();
    for _ in 0..source.int_in_range(0..=20)? {
        let odd = source.ratio(1, 50)?;
        fragments.push((
            source.arbitrary()?,
            Bytes::copy_from_slice(source.bytes(length + usize::from(odd))?),
        ));
    }
    if let Ok(decoded) = starhaul_fec::decode(data_count, redundancy_count, &fragments) {
        assert_eq!(
            decoded.len(),
            usize::from(data_count),
            "data fragments of {fragments:?}"
        );
    }
    Ok(())
}

fn decode_real(source: &mut Unstructured<'_>) -> arbitrary::Result<()> {
    let data_count: u8 = source.int_in_range(1..=40)?;
    let redundancy_count: u8 = source.int_in_range(0..=20)?;
    let length = source.int_in_range(1..=7)?;
    let data: Vec<Bytes> = (0..data_count)
        .map(|_| source.bytes(length).map(Bytes::copy_from_slice))
        .collect::<arbitrary::Result<_>>()?;
    let redundancy = starhaul_fec::encode(&data, redundancy_count).expect("possible counts");
    let mut fragments: Vec<(u8, Bytes)> =
        (0..).zip(data.iter().chain(&redundancy).cloned()).collect();
    for _ in 0..source.int_in_range(0..=redundancy_count)? {
        let lost = source.choose_index(fragments.len())?;
        fragments.swap_remove(lost);
    }
    let decoded = starhaul_fec::decode(data_count, redundancy_count, &fragments);
    assert_eq!(decoded.expect("enough fragments"), data);
    Ok(())
}
