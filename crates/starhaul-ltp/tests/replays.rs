//! Segments played again by a host that has recorded them: nothing is delivered twice for as long as a session is remembered, and what they
//! cost has an end.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod pair;

use std::{
    collections::BTreeSet,
    time::{Duration, Instant},
};

use bytes::Bytes;
use pair::{
    RECEIVER, SENDER, SERVICE, content,
    direct::{converse, delivered, engine, output},
};
use starhaul_ltp::{AuthKey, Coding, Engine, EngineId, Event, Outgoing, PeerConfig, SessionId};

const LENGTH: usize = 20_000;
/// Answers that wait to leave, at most.
const MOST_ANSWERS: usize = 4096;

/// A session that was recorded.
#[derive(Clone, Copy, Debug)]
struct Case {
    red: usize,
    is_coded: bool,
    has_key: bool,
    is_cancelled: bool,
}

const PLAIN: Case = Case {
    red: LENGTH,
    is_coded: false,
    has_key: false,
    is_cancelled: false,
};
const CASES: [Case; 5] = [
    PLAIN,
    Case { red: 8000, ..PLAIN },
    Case {
        is_coded: true,
        ..PLAIN
    },
    // A signature does not tell when a segment was made.
    Case {
        has_key: true,
        ..PLAIN
    },
    Case {
        is_cancelled: true,
        ..PLAIN
    },
];

impl Case {
    fn config(self) -> PeerConfig {
        let mut config = PeerConfig::new(Duration::ZERO, None);
        config.checkpoint_every = Some(4);
        config.coding = self.is_coded.then(|| Coding::new(0.05));
        config.auth = self
            .has_key
            .then(|| AuthKey::new(b"the key of both", b"1").unwrap());
        config
    }
}

/// Two engines between which a session has ended, and all that they have sent.
struct Recording {
    sender: Engine,
    receiver: Engine,
    block: Bytes,
    /// When the session ended.
    at: Instant,
    /// How long its number is remembered at least; twice as long at most.
    lifetime: Duration,
    to_receiver: Vec<Vec<u8>>,
    to_sender: Vec<Vec<u8>>,
}

/// Sender and receiver, and the block that the one is to send.
fn engines(case: Case, begun: Instant) -> ([Engine; 2], Bytes) {
    let config = case.config();
    let sender = engine(SENDER, 1, &[RECEIVER], &config, begun);
    let receiver = engine(RECEIVER, 2, &[SENDER], &config, begun);
    ([sender, receiver], content(LENGTH, 1))
}

fn send(sender: &mut Engine, case: Case, block: &Bytes, at: Instant) -> SessionId {
    let outgoing = Outgoing {
        to: RECEIVER,
        service: SERVICE,
        block: block.clone(),
        red: case.red as u64,
    };
    sender.send(at, outgoing).unwrap()
}

/// A session of two engines that have run for some time, in which one segment is lost at first.
fn record(case: Case) -> Recording {
    let (begun, config) = (Instant::now(), case.config());
    let lifetime = config.longest_silence();
    // What the engines remember is not asked for in even steps.
    let at = begun + lifetime * 9 / 10;
    let ([mut sender, mut receiver], block) = engines(case, begun);
    let session = send(&mut sender, case, &block, at);
    let first = output(&mut sender, at);
    let arrives = match case.is_cancelled {
        true => 3,
        false => first.len(),
    };
    for (number, segment) in first[..arrives].iter().enumerate() {
        if number != 1 {
            give(&mut receiver, SENDER, at, segment);
        }
    }
    if case.is_cancelled {
        sender.cancel(at, session);
    }
    let (mut to_receiver, mut to_sender) = (first, Vec::new());
    loop {
        let (there, back) = (output(&mut sender, at), output(&mut receiver, at));
        if there.is_empty() && back.is_empty() {
            break;
        }
        give_all(&mut receiver, SENDER, at, &there);
        give_all(&mut sender, RECEIVER, at, &back);
        to_receiver.extend(there);
        to_sender.extend(back);
    }
    let expected = match case.is_cancelled {
        true => vec![],
        false => vec![block.slice(..case.red)],
    };
    assert_eq!(delivered(&mut receiver), expected, "{case:?}");
    while sender.poll_event().is_some() {}
    check_idle(&sender, &receiver);
    Recording {
        sender,
        receiver,
        block,
        at,
        lifetime,
        to_receiver,
        to_sender,
    }
}

fn give(engine: &mut Engine, from: EngineId, now: Instant, segment: &[u8]) {
    engine.handle_datagrams(now, from, segment, segment.len());
}

fn give_all(engine: &mut Engine, from: EngineId, now: Instant, segments: &[Vec<u8>]) {
    for segment in segments {
        give(engine, from, now, segment);
    }
}

/// Nothing of any session is left.
fn check_idle(sender: &Engine, receiver: &Engine) {
    for engine in [sender, receiver] {
        let held = (engine.receive_memory(), engine.send_bytes());
        assert_eq!((engine.sessions(), held), ((0, 0), (0, 0)));
        assert_eq!(engine.timers(), 0);
    }
}

/// The engines tell their client services nothing.
fn check_silent(recording: &mut Recording, what: &str) {
    for engine in [&mut recording.sender, &mut recording.receiver] {
        let event = engine.poll_event();
        assert_eq!(event, None, "{what}");
    }
}

/// Lets both engines answer, and time pass, until nothing is left to do.
fn settle(recording: &mut Recording, now: &mut Instant) {
    let (sender, receiver) = (&mut recording.sender, &mut recording.receiver);
    for _ in 0..1000 {
        converse(sender, receiver, *now);
        let timers = [sender.poll_timeout(), receiver.poll_timeout()];
        let Some(at) = timers.into_iter().flatten().min() else {
            return check_idle(sender, receiver);
        };
        *now = at.max(*now);
        sender.handle_timeout(*now);
        receiver.handle_timeout(*now);
    }
    panic!("they go on for ever");
}

#[test]
fn what_is_played_again_is_not_delivered_again() {
    for case in CASES {
        let mut recording = record(case);
        let (ended, lifetime) = (recording.at, recording.lifetime);
        let last = lifetime - Duration::from_millis(1);
        for later in [Duration::ZERO, lifetime / 2, last] {
            let (now, what) = (ended + later, format!("{case:?} after {later:?}"));
            let (there, back) = (recording.to_receiver.clone(), recording.to_sender.clone());
            let rounds = there.iter().map(std::slice::from_ref);
            let turned: Vec<_> = there.iter().rev().cloned().collect();
            // Each alone, all, and all the other way round; at both ends.
            for segments in rounds.chain([&there[..], &turned[..]]) {
                give_all(&mut recording.receiver, SENDER, now, segments);
                let answers = output(&mut recording.receiver, now);
                assert!(answers.len() <= segments.len(), "{what}");
                give_all(&mut recording.sender, RECEIVER, now, &answers);
                converse(&mut recording.sender, &mut recording.receiver, now);
                check_silent(&mut recording, &what);
                check_idle(&recording.sender, &recording.receiver);
            }
            for segment in &back {
                give(&mut recording.sender, RECEIVER, now, segment);
                let answers = output(&mut recording.sender, now);
                assert!(answers.len() <= 1, "{what}");
                give_all(&mut recording.receiver, SENDER, now, &answers);
                converse(&mut recording.sender, &mut recording.receiver, now);
                check_silent(&mut recording, &what);
                check_idle(&recording.sender, &recording.receiver);
            }
        }
        let late = recording.receiver.stats().dropped.late;
        assert!(late > 3 * LENGTH as u64 / 1360, "{case:?}: {late} are late");
    }
}

/// Those of one end, sent back to it.
#[test]
fn what_is_sent_back_to_its_engine_is_not_taken() {
    for case in CASES {
        let mut recording = record(case);
        let (now, there, back) = (
            recording.at,
            recording.to_receiver.clone(),
            recording.to_sender.clone(),
        );
        give_all(&mut recording.sender, RECEIVER, now, &there);
        give_all(&mut recording.receiver, SENDER, now, &back);
        let dropped = |engine: &Engine| engine.stats().dropped.misdirected;
        assert_eq!(dropped(&recording.sender), there.len() as u64, "{case:?}");
        assert_eq!(dropped(&recording.receiver), back.len() as u64, "{case:?}");
        assert!(output(&mut recording.sender, now).is_empty(), "{case:?}");
        assert!(output(&mut recording.receiver, now).is_empty(), "{case:?}");
        check_silent(&mut recording, "sent back");
        check_idle(&recording.sender, &recording.receiver);
    }
}

/// All that has gone to an engine comes again after each segment that is new to it.
#[test]
fn what_is_played_again_during_a_session_changes_nothing() {
    for case in CASES.into_iter().filter(|case| !case.is_cancelled) {
        let now = Instant::now();
        let ([mut sender, mut receiver], block) = engines(case, now);
        let session = send(&mut sender, case, &block, now);
        let (mut there, mut back) = (Vec::new(), Vec::new());
        let mut first = output(&mut sender, now);
        // It is lost, and so there are repairs.
        first.remove(1);
        give_with_replays(&mut receiver, SENDER, now, first, &mut there);
        for round in 0.. {
            assert!(round < 1000, "{case:?}: they answer each other for ever");
            let (more, answers) = (output(&mut sender, now), output(&mut receiver, now));
            if more.is_empty() && answers.is_empty() {
                break;
            }
            give_with_replays(&mut receiver, SENDER, now, more, &mut there);
            give_with_replays(&mut sender, RECEIVER, now, answers, &mut back);
        }
        check_idle(&sender, &receiver);
        let events: Vec<Event> = std::iter::from_fn(|| sender.poll_event()).collect();
        let expected = [Event::Transmitted { session }, Event::Sent { session }];
        assert_eq!(events, expected, "{case:?}");
        let (mut red, mut green, mut begun) = (Vec::new(), BTreeSet::new(), 0);
        while let Some(event) = receiver.poll_event() {
            match event {
                Event::Receiving { .. } => begun += 1,
                Event::RedPart { block, .. } => red.push(block.into_bytes()),
                Event::Green { offset, .. } => assert!(green.insert(offset), "{offset} twice"),
                other => panic!("{case:?}: {other:?}"),
            }
        }
        assert_eq!((begun, red), (1, vec![block.slice(..case.red)]), "{case:?}");
        let segments = (LENGTH - case.red).div_ceil(1360);
        assert_eq!(green.len(), segments, "{case:?}");
    }
}

/// Gives segments; after each one that is new all that are known come again, and it is known, too.
fn give_with_replays(
    engine: &mut Engine,
    from: EngineId,
    now: Instant,
    segments: Vec<Vec<u8>>,
    known: &mut Vec<Vec<u8>>,
) {
    for segment in segments {
        give(engine, from, now, &segment);
        if !known.contains(&segment) {
            known.push(segment);
            give_all(engine, from, now, known);
        }
    }
}

/// While nothing may leave, too, and others are served.
#[test]
fn a_flood_of_replays_holds_little() {
    for case in CASES {
        let mut recording = record(case);
        let (now, there, back) = (
            recording.at,
            recording.to_receiver.clone(),
            recording.to_sender.clone(),
        );
        for _ in 0..2000 {
            give_all(&mut recording.receiver, SENDER, now, &there);
            give_all(&mut recording.sender, RECEIVER, now, &back);
        }
        check_idle(&recording.sender, &recording.receiver);
        check_silent(&mut recording, "a flood");
        let Recording {
            sender, receiver, ..
        } = &mut recording;
        // To reports, and to cancellations.
        let acknowledgements = output(sender, now);
        give_all(receiver, SENDER, now, &acknowledgements);
        let answers = output(receiver, now);
        give_all(sender, RECEIVER, now, &answers);
        for answers in [acknowledgements.len(), answers.len()] {
            assert!(answers <= MOST_ANSWERS, "{case:?}: {answers}");
        }
        let block = content(LENGTH, 2);
        let outgoing = Outgoing {
            to: RECEIVER,
            service: SERVICE,
            block: block.clone(),
            red: LENGTH as u64,
        };
        sender.send(now, outgoing).unwrap();
        converse(sender, receiver, now);
        assert_eq!(delivered(receiver), [block], "{case:?}");
        check_idle(sender, receiver);
    }
}

/// A sender that was started anew may use the number again. So what is played again then is a session like any other: one segment
/// never makes a red part, all of them make it once, and none stays.
#[test]
fn what_is_played_again_after_a_session_is_forgotten_ends_by_itself() {
    for case in CASES {
        let mut recording = record(case);
        let expected = recording.block.slice(..case.red);
        let mut now = recording.at;
        for segment in recording.to_receiver.clone() {
            now += recording.lifetime * 3;
            give(&mut recording.receiver, SENDER, now, &segment);
            let (_, receiving) = recording.receiver.sessions();
            let held = recording.receiver.receive_memory();
            // A page, and what tells of it.
            assert!(receiving <= 1 && held <= 70_000, "{case:?}: {held} bytes");
            settle(&mut recording, &mut now);
            let parts = delivered(&mut recording.receiver);
            assert!(parts.is_empty(), "{case:?}: {} bytes", parts[0].len());
        }
        now += recording.lifetime * 3;
        let all = recording.to_receiver.clone();
        let mut parts = Vec::new();
        for _ in 0..5 {
            give_all(&mut recording.receiver, SENDER, now, &all);
            let (_, receiving) = recording.receiver.sessions();
            assert!(receiving <= 1, "{case:?}: {receiving} sessions");
            converse(&mut recording.sender, &mut recording.receiver, now);
            parts.extend(delivered(&mut recording.receiver));
        }
        settle(&mut recording, &mut now);
        parts.extend(delivered(&mut recording.receiver));
        assert!(parts.len() <= 1, "{case:?}: {} times", parts.len());
        assert!(parts.iter().all(|part| *part == expected), "{case:?}");
    }
}

/// Nor where the receiver cannot answer, and repair symbols gave back a part of it.
#[test]
fn what_is_played_again_without_a_return_channel_is_not_delivered_again() {
    let (now, coded) = (Instant::now(), CASES[2]);
    let config = PeerConfig {
        is_one_way: true,
        segment_data: 128,
        ..coded.config()
    };
    let mut sender = engine(SENDER, 1, &[RECEIVER], &config, now);
    let mut receiver = engine(RECEIVER, 2, &[SENDER], &config, now);
    // Long enough to have parities.
    let block = content(600_000, 1);
    let outgoing = Outgoing {
        to: RECEIVER,
        service: SERVICE,
        block: block.clone(),
        red: block.len() as u64,
    };
    sender.send(now, outgoing).unwrap();
    let segments = output(&mut sender, now);
    let mut parts = Vec::new();
    for round in 0..3 {
        for (number, segment) in segments.iter().enumerate() {
            // Some are lost at first.
            for _ in 0..usize::from(round > 0 || number % 40 != 3) * 2 {
                give(&mut receiver, SENDER, now, segment);
            }
        }
        parts.extend(delivered(&mut receiver));
        assert_eq!(parts, std::slice::from_ref(&block), "after round {round}");
        assert!(output(&mut receiver, now).is_empty(), "nobody answers");
        check_idle(&sender, &receiver);
    }
    assert!(receiver.stats().red_bytes_recovered > 0);
    assert!(receiver.stats().dropped.late >= 4 * segments.len() as u64);
}
