//! Peers that are broken, hostile, or started anew: memory stays bounded, and others are served.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod pair;

use std::time::{Duration, Instant};

use bytes::Bytes;
use pair::{
    Pair, RECEIVER, SENDER, SERVICE, content,
    direct::{accepting, converse, delivered, engine, output, red, sdnv, segment},
};
use starhaul_ltp::{
    AuthKey, Batch, Body, CancelReason, Checkpoint, Data, DataKind, End, Engine, EngineConfig,
    EngineId, Event, LinkState, NumberWidth, Outgoing, PeerConfig, Repair, SessionId, UnknownPeers,
    parse,
};

#[test]
fn a_million_sessions_cost_one_peer_its_room_and_no_other() {
    let (now, honest) = (Instant::now(), EngineId(3));
    let config = PeerConfig::new(Duration::ZERO, None);
    let mut receiver = engine(RECEIVER, 1, &[SENDER, honest], &config, now);
    for number in 1..=1_000_000u64 {
        let segment = red(
            number.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1,
            1 << 20,
            b"x",
            false,
        );
        receiver.handle_datagrams(now, SENDER, &segment, segment.len());
        while receiver.poll_event().is_some() {}
    }
    let (_, receiving) = receiver.sessions();
    assert!(
        (4000..=config.sessions).contains(&receiving),
        "{receiving} sessions"
    );
    assert!(receiver.receive_memory() <= config.receive_memory);
    assert_eq!(
        receiver.stats().dropped.no_room,
        1_000_000 - receiving as u64
    );
    let mut sender = engine(honest, 2, &[RECEIVER], &config, now);
    let block = content(100_000, 1);
    let outgoing = Outgoing {
        to: RECEIVER,
        service: SERVICE,
        red: 100_000,
        block: block.clone(),
    };
    sender.send(now, outgoing).unwrap();
    converse(&mut sender, &mut receiver, now);
    assert_eq!(delivered(&mut receiver), [block]);
    // The opened ones end by themselves.
    let later = now + config.longest_silence() * 2;
    for _ in 0..3 {
        receiver.handle_timeout(later);
    }
    assert_eq!(
        (
            receiver.sessions(),
            receiver.receive_memory(),
            receiver.timers()
        ),
        ((0, 0), 0, 0)
    );
}

#[test]
fn a_full_receiver_takes_the_rest_later() {
    let mut config = PeerConfig::new(Duration::ZERO, None);
    config.receive_memory = 1 << 20;
    config.sessions = 4;
    let mut pair = Pair::new(
        1,
        &config,
        "rate=100mbit,delay=10ms,loss=2%",
        "delay=10ms,loss=2%",
    );
    let blocks: Vec<_> = (0..12).map(|i| content(300_000 + i, i as u64)).collect();
    let mut waiting = blocks.clone();
    let limit = pair.start + Duration::from_secs(3600);
    while !waiting.is_empty() {
        let (now, block) = (pair.sim.now(), waiting[0].clone());
        let outgoing = Outgoing {
            to: RECEIVER,
            service: SERVICE,
            red: block.len() as u64,
            block,
        };
        match pair.sender().engine.send(now, outgoing) {
            Ok(_) => drop(waiting.remove(0)),
            Err(starhaul_ltp::Error::Full { .. }) => assert!(pair.sim.step(limit)),
            Err(error) => panic!("{error}"),
        }
        assert!(pair.receiver().engine.receive_memory() <= 1 << 20);
    }
    pair.finish();
    let mut delivered = pair.receiver().delivered();
    delivered.sort_by_key(Bytes::len);
    assert_eq!(delivered, blocks);
}

#[test]
fn false_reports_and_forged_segments_change_nothing() {
    let now = Instant::now();
    let config = PeerConfig::new(Duration::ZERO, None);
    let mut sender = engine(SENDER, 1, &[RECEIVER, EngineId(3)], &config, now);
    let block = content(50_000, 1);
    let outgoing = Outgoing {
        to: RECEIVER,
        service: SERVICE,
        red: 50_000,
        block: block.clone(),
    };
    let session = sender.send(now, outgoing).unwrap();
    // Of the block, only the first batch has left.
    let mut batch = Batch::new(65_507, 1);
    sender.poll_transmit(now, &mut batch).unwrap();
    let mut report = vec![8];
    for number in [SENDER.0, session.number] {
        sdnv(number, &mut report);
    }
    report.push(0);
    // All is claimed although it was never sent; then a checkpoint is answered that was never sent.
    let claims_all = [77, 0, 50_000, 0, 1, 0, 50_000];
    let false_checkpoint = [78, 1 << 40, 1360, 0, 1, 0, 1360];
    for numbers in [claims_all, false_checkpoint] {
        let mut forged = report.clone();
        numbers.iter().for_each(|number| sdnv(*number, &mut forged));
        sender.handle_datagrams(now, RECEIVER, &forged, forged.len());
        // The same of an engine that has no part in the session.
        sender.handle_datagrams(now, EngineId(3), &forged, forged.len());
    }
    assert_eq!(sender.stats().dropped.false_report, 2);
    let first = batch.contents().to_vec();
    let mut receiver = engine(RECEIVER, 2, &[SENDER], &config, now);
    receiver.handle_datagrams(now, SENDER, &first, first.len());
    // Of a session between others, and of an engine that is no peer.
    receiver.handle_datagrams(now, EngineId(9), &first, first.len());
    let mut misdirected = red(session.number, 0, b"x", false);
    misdirected[1] = 9;
    receiver.handle_datagrams(now, SENDER, &misdirected, misdirected.len());
    assert_eq!(receiver.stats().dropped.unknown_peer, 1);
    assert_eq!(receiver.stats().dropped.misdirected, 1);
    converse(&mut sender, &mut receiver, now);
    assert_eq!(delivered(&mut receiver), [block]);
}

#[test]
fn a_block_damaged_on_the_way_is_never_delivered() {
    let now = Instant::now();
    let config = PeerConfig::new(Duration::ZERO, None);
    let mut sender = engine(SENDER, 1, &[RECEIVER], &config, now);
    let mut receiver = engine(RECEIVER, 2, &[SENDER], &config, now);
    let outgoing = Outgoing {
        to: RECEIVER,
        service: SERVICE,
        red: 5000,
        block: content(5000, 1),
    };
    let session = sender.send(now, outgoing).unwrap();
    for (i, mut segment) in output(&mut sender, now).into_iter().enumerate() {
        if i == 1 {
            segment[700] ^= 1;
        }
        receiver.handle_datagrams(now, SENDER, &segment, segment.len());
    }
    converse(&mut sender, &mut receiver, now);
    assert!(delivered(&mut receiver).is_empty());
    let last = std::iter::from_fn(|| sender.poll_event()).last();
    let by = starhaul_ltp::End::Receiver;
    assert_eq!(
        last,
        Some(Event::SendCancelled {
            session,
            by,
            reason: CancelReason::System
        })
    );
}

/// Changes the byte of a block that is at this offset, if it is in this segment.
fn damage(segment: &mut [u8], at: u64) {
    let (parsed, _) = parse(segment).unwrap();
    let Body::Data(data) = parsed.body else {
        return;
    };
    let within = at.checked_sub(data.offset);
    let within = within.filter(|within| *within < data.payload.len() as u64);
    let start = data.payload.as_ptr().addr() - segment.as_ptr().addr();
    if let Some(within) = within {
        segment[start + usize::try_from(within).unwrap()] ^= 0x10;
    }
}

/// Who sends a block may know its checksum: then the engine does not read the block for it, and what is damaged on the way is noticed all
/// the same.
#[test]
fn a_block_of_a_known_checksum_arrives_as_it_was_sent_or_not_at_all() {
    let now = Instant::now();
    let (config, block) = (PeerConfig::new(Duration::ZERO, None), content(5000, 1));
    let sum = crc32c::crc32c(&block);
    let carry = |cut: usize, checksum: u32, damaged: Option<u64>| {
        let mut sender = engine(SENDER, 1, &[RECEIVER], &config, now);
        let mut receiver = engine(RECEIVER, 2, &[SENDER], &config, now);
        let outgoing = Outgoing {
            to: RECEIVER,
            service: SERVICE,
            red: 5000,
            block: block.slice(..cut),
        };
        let sent = sender.send_with(now, outgoing, block.slice(cut..), Some(checksum));
        sent.unwrap();
        for mut segment in output(&mut sender, now) {
            damaged.iter().for_each(|at| damage(&mut segment, *at));
            receiver.handle_datagrams(now, SENDER, &segment, segment.len());
        }
        converse(&mut sender, &mut receiver, now);
        let events = std::iter::from_fn(|| receiver.poll_event());
        let blocks = events.filter_map(|event| match event {
            Event::RedPart { block, .. } => Some((block.checksum(), block.into_bytes())),
            _ => None,
        });
        let blocks: Vec<_> = blocks.collect();
        let is_refused = std::iter::from_fn(|| sender.poll_event()).any(|event| {
            let (by, reason) = match event {
                Event::SendCancelled { by, reason, .. } => (by, reason),
                _ => return false,
            };
            (by, reason) == (End::Receiver, CancelReason::System)
        });
        (blocks, is_refused)
    };
    for cut in [0, 200, 1360, 5000] {
        let whole = vec![(Some(sum), block.clone())];
        assert_eq!(carry(cut, sum, None), (whole, false), "cut at {cut}");
        for at in [0, 199, 200, 1359, 1360, 2719, 2720, 4079, 4080, 4999] {
            let carried = carry(cut, sum, Some(at));
            assert_eq!(carried, (vec![], true), "cut at {cut}, byte {at}");
        }
        // It is told as it was given.
        let carried = carry(cut, sum ^ 1, None);
        assert_eq!(carried, (vec![], true), "cut at {cut}");
    }
}

#[test]
fn with_a_key_only_the_peer_is_heard() {
    let now = Instant::now();
    let with = |key: Option<&[u8]>| {
        let mut config = PeerConfig::new(Duration::ZERO, None);
        config.auth = key.map(|key| AuthKey::new(key, b"1").unwrap());
        config
    };
    for (theirs, arrives) in [
        (Some(b"the key of both".as_slice()), true),
        (Some(b"another"), false),
        (None, false),
    ] {
        let mut sender = engine(SENDER, 1, &[RECEIVER], &with(theirs), now);
        let mut receiver = engine(RECEIVER, 2, &[SENDER], &with(Some(b"the key of both")), now);
        let block = content(20_000, 1);
        let outgoing = Outgoing {
            to: RECEIVER,
            service: SERVICE,
            red: 20_000,
            block: block.clone(),
        };
        sender.send(now, outgoing).unwrap();
        converse(&mut sender, &mut receiver, now);
        let expected = if arrives { vec![block] } else { vec![] };
        assert_eq!(delivered(&mut receiver), expected);
        assert_eq!(receiver.stats().dropped.unauthenticated == 0, arrives);
    }
}

/// A receiver that forgot its data must not let the sender believe that all arrived.
#[test]
fn a_receiver_started_anew_ends_the_session_or_gets_the_whole_block() {
    let config = PeerConfig::new(Duration::from_secs(1), None);
    for restart_at in (0..40).map(|tenths| Duration::from_millis(tenths * 150)) {
        let mut pair = Pair::new(3, &config, "delay=1s,loss=20%", "delay=1s,loss=20%");
        let block = content(60_000, 1);
        pair.send(&block, block.len());
        pair.sim.run_for(restart_at);
        let had_it = !pair.receiver().delivered().is_empty();
        let now = pair.sim.now();
        pair.receiver().engine = engine(RECEIVER, 99, &[SENDER], &config, now);
        pair.finish();
        let sent = pair
            .sender()
            .happened()
            .iter()
            .any(|e| matches!(e, Event::Sent { .. }));
        let delivered = pair.receiver().delivered();
        assert!(delivered.iter().all(|got| *got == block));
        assert!(
            !sent || had_it || !delivered.is_empty(),
            "lost at {restart_at:?}"
        );
    }
}

/// Two lives of a receiver each have one half of a block: together they claim all of it, but neither has it.
#[test]
fn claims_of_two_lives_of_a_receiver_are_not_united() {
    let now = Instant::now();
    // Another engine's reports may carry no reception number; then the later life knows by the repair.
    for (checkpoint_every, integrity) in [(None, true), (None, false), (Some(1), true)] {
        let mut config = PeerConfig::new(Duration::ZERO, None);
        config.segment_data = 1000;
        config.checkpoint_every = checkpoint_every;
        config.integrity = integrity;
        let mut sender = engine(SENDER, 1, &[RECEIVER], &config, now);
        let outgoing = Outgoing {
            to: RECEIVER,
            service: SERVICE,
            red: 2000,
            block: content(2000, 1),
        };
        let session = sender.send(now, outgoing).unwrap();
        let halves = output(&mut sender, now);
        assert_eq!(halves.len(), 2);
        let mut first_life = engine(RECEIVER, 2, &[SENDER], &config, now);
        first_life.handle_datagrams(now, SENDER, &halves[1], halves[1].len());
        for report in output(&mut first_life, now) {
            sender.handle_datagrams(now, RECEIVER, &report, report.len());
        }
        let mut second_life = engine(RECEIVER, 3, &[SENDER], &config, now);
        let repeated = match checkpoint_every {
            // The repair of what the first life left out.
            None => output(&mut sender, now),
            // The first checkpoint, on its way for longer than the second.
            Some(_) => halves,
        };
        let repeated = repeated.iter().filter(|segment| segment.len() > 1000);
        for segment in repeated.take(1) {
            second_life.handle_datagrams(now, SENDER, segment, segment.len());
        }
        converse(&mut sender, &mut second_life, now);
        assert!(delivered(&mut second_life).is_empty());
        let last = std::iter::from_fn(|| sender.poll_event()).last();
        assert!(
            matches!(last, Some(Event::SendCancelled { session: ended, .. }) if ended == session),
            "{last:?} with {checkpoint_every:?}, {integrity}"
        );
    }
}

/// A sender that lost its memory and uses the same numbers: its new block is never mixed with the old one.
#[test]
fn a_sender_started_anew_with_the_same_numbers_never_mixes_blocks() {
    let config = PeerConfig::new(Duration::from_secs(1), None);
    for restart_at in (0..20).map(|tenths| Duration::from_millis(tenths * 200)) {
        let mut pair = Pair::new(4, &config, "delay=1s,loss=20%", "delay=1s,loss=20%");
        let (old, new) = (content(60_000, 1), content(70_000, 2));
        pair.send(&old, old.len());
        pair.sim.run_for(restart_at);
        let now = pair.sim.now();
        let mut key = [0; 32];
        key[..8].copy_from_slice(&(4 ^ SENDER.0).to_le_bytes());
        let mut again = Engine::new(EngineConfig::new(SENDER, key));
        again.add_peer(now, RECEIVER, config.clone()).unwrap();
        pair.sender().engine = again;
        pair.send(&new, new.len());
        pair.finish();
        for block in pair.receiver().delivered() {
            assert!(
                block == old || block == new,
                "a mixed block after {restart_at:?}"
            );
        }
        // What the sender believes delivered is delivered.
        let events = pair.sender().happened();
        let sent = events
            .iter()
            .any(|event| matches!(event, Event::Sent { .. }));
        assert!(!sent || !pair.receiver().delivered().is_empty());
    }
}

#[test]
fn unknown_engines_are_served_by_policy_and_forgotten_for_the_next() {
    let now = Instant::now();
    let config = PeerConfig::new(Duration::ZERO, None);
    let mut receiver = Engine::new(EngineConfig {
        unknown_peers: UnknownPeers::Accept {
            most: 2,
            config: Box::new(config.clone()),
        },
        ..EngineConfig::new(RECEIVER, [1; 32])
    });
    receiver.open_service(SERVICE);
    for id in 10..20 {
        let mut sender = engine(EngineId(id), 2, &[RECEIVER], &config, now);
        let block = content(3000, id);
        let outgoing = Outgoing {
            to: RECEIVER,
            service: SERVICE,
            red: 3000,
            block: block.clone(),
        };
        sender.send(now, outgoing).unwrap();
        converse(&mut sender, &mut receiver, now);
        assert_eq!(delivered(&mut receiver), [block]);
    }
}

#[test]
fn a_service_that_nobody_opened_is_unreachable() {
    let now = Instant::now();
    let config = PeerConfig::new(Duration::ZERO, None);
    let mut sender = engine(SENDER, 1, &[RECEIVER], &config, now);
    let mut receiver = engine(RECEIVER, 2, &[SENDER], &config, now);
    let outgoing = Outgoing {
        to: RECEIVER,
        service: 7,
        red: 100,
        block: content(100, 1),
    };
    let session = sender.send(now, outgoing).unwrap();
    converse(&mut sender, &mut receiver, now);
    let last = std::iter::from_fn(|| sender.poll_event()).last();
    let by = starhaul_ltp::End::Receiver;
    assert_eq!(
        last,
        Some(Event::SendCancelled {
            session,
            by,
            reason: CancelReason::Unreachable
        })
    );
    assert_eq!(receiver.poll_event(), None);
    assert_eq!((sender.sessions(), receiver.sessions()), ((0, 0), (0, 0)));
}

#[test]
fn miscolored_data_cancel_the_session() {
    let now = Instant::now();
    let config = PeerConfig::new(Duration::ZERO, None);
    let mut receiver = engine(RECEIVER, 2, &[SENDER], &config, now);
    let session = SessionId {
        originator: SENDER,
        number: 5,
    };
    let green = |offset| {
        let mut segment = red(5, offset, b"green", false);
        segment[0] = 4;
        segment
    };
    // Green data before red data, and red data behind green data (§6.21).
    for [first, second] in [
        [red(5, 100, b"red", false), green(10)],
        [green(10), red(5, 100, b"red", false)],
    ] {
        receiver.handle_datagrams(now, SENDER, &first, first.len());
        receiver.handle_datagrams(now, SENDER, &second, second.len());
        let last = std::iter::from_fn(|| receiver.poll_event()).last();
        let (by, reason) = (starhaul_ltp::End::Receiver, CancelReason::Miscolored);
        assert_eq!(
            last,
            Some(Event::ReceiveCancelled {
                session,
                by,
                reason
            })
        );
        // The cancellation and its acknowledgement; then the number is free after some time only.
        assert_eq!(output(&mut receiver, now), [vec![14, 1, 5, 0, 3]]);
        receiver = engine(RECEIVER, 2, &[SENDER], &config, now);
    }
}

/// A receiver that claims all but the first segment for ever (§6.22).
#[test]
fn endless_repairs_end_at_the_cycle_limit() {
    let now = Instant::now();
    let mut config = PeerConfig::new(Duration::ZERO, None);
    config.cycle_limit = 5;
    let mut sender = engine(SENDER, 1, &[RECEIVER], &config, now);
    let outgoing = Outgoing {
        to: RECEIVER,
        service: SERVICE,
        red: 4080,
        block: content(4080, 1),
    };
    let session = sender.send(now, outgoing).unwrap();
    let mut rounds = 0;
    loop {
        let sent = output(&mut sender, now);
        let checkpoint =
            sent.iter().find_map(
                |segment| match starhaul_ltp::parse(segment).unwrap().0.body {
                    Body::Data(data) => data.checkpoint,
                    _ => None,
                },
            );
        let Some(checkpoint) = checkpoint else { break };
        rounds += 1;
        let mut report = vec![8];
        for number in [SENDER.0, session.number] {
            sdnv(number, &mut report);
        }
        report.push(0);
        [rounds, checkpoint.serial, 4080, 0, 1, 1360, 2720]
            .iter()
            .for_each(|number| sdnv(*number, &mut report));
        sender.handle_datagrams(now, RECEIVER, &report, report.len());
    }
    assert_eq!(rounds, 6);
    let last = std::iter::from_fn(|| sender.poll_event()).last();
    let (by, reason) = (
        starhaul_ltp::End::Sender,
        CancelReason::RetransmissionCycles,
    );
    assert_eq!(
        last,
        Some(Event::SendCancelled {
            session,
            by,
            reason
        })
    );
}

#[test]
fn session_numbers_have_the_width_asked_for_and_never_repeat() {
    let now = Instant::now();
    for (numbers, limit) in [
        (NumberWidth::Bits32, u64::from(u32::MAX)),
        (NumberWidth::Bits64, u64::MAX),
    ] {
        let mut widest = 0;
        for seed in 0..20 {
            let mut engine = Engine::new(EngineConfig {
                numbers,
                ..EngineConfig::new(SENDER, [seed; 32])
            });
            let config = PeerConfig::new(Duration::ZERO, None);
            engine.add_peer(now, RECEIVER, config).unwrap();
            let mut used = std::collections::BTreeSet::new();
            for _ in 0..100 {
                let outgoing = Outgoing {
                    to: RECEIVER,
                    service: SERVICE,
                    red: 1,
                    block: content(1, 1),
                };
                let number = engine.send(now, outgoing).unwrap().number;
                assert!(used.insert(number) && (1..=limit).contains(&number));
                widest = widest.max(number);
            }
        }
        assert!(widest > limit / 2, "numbers begin anywhere");
    }
}

#[test]
fn a_checkpoint_repeated_while_nothing_may_leave_is_answered_once() {
    let now = Instant::now();
    let config = PeerConfig::new(Duration::ZERO, None);
    let mut receiver = engine(RECEIVER, 2, &[SENDER], &config, now);
    let link = |may_transmit| LinkState {
        may_transmit,
        peer_transmits: true,
    };
    receiver.set_link(now, SENDER, link(false));
    let checkpoint = red(5, 0, b"all", true);
    for _ in 0..10_000 {
        receiver.handle_datagrams(now, SENDER, &checkpoint, checkpoint.len());
    }
    assert!(output(&mut receiver, now).is_empty());
    receiver.set_link(now, SENDER, link(true));
    assert_eq!(output(&mut receiver, now).len(), 1);
    assert_eq!(
        receiver.timers(),
        2,
        "of the report, and of a sender that falls silent"
    );
}

/// What a client service has not accepted is not acknowledged; when it refuses, its sender is told.
#[test]
fn a_red_part_counts_as_received_when_its_client_accepts_it() {
    let now = Instant::now();
    let config = PeerConfig::new(Duration::ZERO, None);
    let mut sender = engine(SENDER, 1, &[RECEIVER], &config, now);
    let mut receiver = accepting(&config, now);
    for is_accepted in [true, false] {
        let block = content(5000, 1);
        let (to, service) = (RECEIVER, SERVICE);
        let outgoing = Outgoing {
            to,
            service,
            block,
            red: 5000,
        };
        let session = sender.send(now, outgoing).unwrap();
        converse(&mut sender, &mut receiver, now);
        let has_it = |event| matches!(event, Event::RedPart { .. });
        assert!(std::iter::from_fn(|| receiver.poll_event()).any(has_it));
        // It asks again while the receiver stores the block.
        let later = now + Duration::from_millis(250);
        sender.handle_timeout(later);
        converse(&mut sender, &mut receiver, later);
        let events: Vec<Event> = std::iter::from_fn(|| sender.poll_event()).collect();
        assert_eq!(events, [Event::Transmitted { session }]);
        match is_accepted {
            true => receiver.accept(later, session),
            false => receiver.cancel(later, session),
        }
        converse(&mut sender, &mut receiver, later);
        let events: Vec<Event> = std::iter::from_fn(|| sender.poll_event()).collect();
        let (by, reason) = (End::Receiver, CancelReason::User);
        match is_accepted {
            true => assert_eq!(events, [Event::Sent { session }]),
            false => assert_eq!(
                events,
                [Event::SendCancelled {
                    session,
                    by,
                    reason
                }]
            ),
        }
        assert_eq!((sender.sessions(), receiver.sessions()), ((0, 0), (0, 0)));
        assert_eq!(sender.timers() + receiver.timers(), 0);
    }
}

/// A symbol of a byte takes a place in a table, too.
#[test]
fn tiny_repair_symbols_cost_what_they_hold() {
    let now = Instant::now();
    let config = PeerConfig::new(Duration::ZERO, None);
    let mut receiver = engine(RECEIVER, 1, &[SENDER], &config, now);
    for number in 0..10_000_u64 {
        let bytes = segment(
            7,
            Body::Repair(Repair {
                service: SERVICE,
                offset: 2 * number,
                red: 1 << 20,
                is_whole: true,
                symbols: 2,
                repairs: 1,
                index: 2,
                payload: b"x",
            }),
        );
        receiver.handle_datagrams(now, SENDER, &bytes, bytes.len());
    }
    let held = receiver.receive_memory();
    assert!(held >= 10_000 * 280, "{held} bytes for 10 000 symbols");
}

/// Each checkpoint asks for a report of all that is missing, which is kept until it is acknowledged.
#[test]
fn endless_checkpoints_make_few_reports() {
    let now = Instant::now();
    let config = PeerConfig::new(Duration::ZERO, None);
    let mut receiver = engine(RECEIVER, 1, &[SENDER], &config, now);
    for offset in 0..600 {
        let segment = red(7, 2 * offset, b"x", false);
        receiver.handle_datagrams(now, SENDER, &segment, segment.len());
    }
    for serial in 1..=4096 {
        let bytes = segment(
            7,
            Body::Data(Data {
                kind: DataKind::RedCheckpoint,
                service: SERVICE,
                offset: 1198,
                checkpoint: Some(Checkpoint { serial, report: 0 }),
                payload: b"x",
            }),
        );
        receiver.handle_datagrams(now, SENDER, &bytes, bytes.len());
    }
    let reports: usize = output(&mut receiver, now).iter().map(Vec::len).sum();
    assert!(
        (1000..200_000).contains(&reports),
        "{reports} bytes of reports"
    );
}
