//! Peers whose messages are wrong, cut or damaged: typed errors, and no panic.

use std::{
    panic::{AssertUnwindSafe, catch_unwind},
    time::Duration,
};

use crate::pair::{Pair, ms};
use crate::victim::{Fragment, PATH, SLACK, Victim, ack, frame};
use bytes::Bytes;
use starhaul_session::{BlockOptions, Mode, ProtocolError, SessionConfig, StreamConfig};

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
