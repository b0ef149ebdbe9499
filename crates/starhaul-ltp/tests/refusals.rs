//! What a receiver refuses or holds back, and what its sender learns of it.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod pair;

use std::time::{Duration, Instant};

use pair::{
    RECEIVER, SENDER, SERVICE, content,
    direct::{accepting, converse, delivered, engine, output, red, sdnv, segment},
};
use starhaul_ltp::{
    Body, CancelReason, Checkpoint, Coding, Data, DataKind, End, Engine, EngineConfig, EngineId,
    Event, Outgoing, Parity, PeerConfig, Repair, UnknownPeers, parse,
};

/// The sender of a held block learns that it is stored although an older checkpoint, whose report was lost, came again last.
#[test]
fn a_stored_block_is_reported_whichever_checkpoint_came_last() {
    let now = Instant::now();
    let mut config = PeerConfig::new(Duration::ZERO, None);
    config.checkpoint_every = Some(2);
    let mut sender = engine(SENDER, 1, &[RECEIVER], &config, now);
    let mut receiver = accepting(&config, now);
    let session = sender.send(now, outgoing(5 * 1360)).unwrap();
    let give = |receiver: &mut Engine, segments: &[Vec<u8>]| {
        for segment in segments {
            receiver.handle_datagrams(now, SENDER, segment, segment.len());
        }
    };
    give(&mut receiver, &output(&mut sender, now));
    // The reports on the first two checkpoints are lost, and of what is repeated only the first arrives.
    assert!(!output(&mut receiver, now).is_empty());
    let later = now + Duration::from_millis(250);
    sender.handle_timeout(later);
    let repeated = output(&mut sender, later);
    assert_eq!(repeated.len(), 3);
    give(&mut receiver, &repeated[..1]);
    receiver.accept(later, session);
    converse(&mut sender, &mut receiver, later);
    let events = std::iter::from_fn(|| sender.poll_event());
    assert_eq!(events.last(), Some(Event::Sent { session }));
    // The lost reports are repeated, and acknowledged.
    let later = later + Duration::from_millis(250);
    receiver.handle_timeout(later);
    converse(&mut sender, &mut receiver, later);
    assert_eq!((sender.sessions(), receiver.sessions()), ((0, 0), (0, 0)));
}

/// A store that brings blocks to a medium takes each of them some time later. If that kept the next ones from leaving, either the link
/// or the medium would always wait.
#[test]
fn blocks_leave_while_those_before_them_wait_to_be_accepted() {
    let now = Instant::now();
    let config = PeerConfig::new(Duration::ZERO, None);
    let mut sender = engine(SENDER, 1, &[RECEIVER], &config, now);
    let mut receiver = accepting(&config, now);
    let block = outgoing(1_000_000);
    let sent = (0..20).map(|_| sender.send(now, block.clone()).unwrap());
    let sent: Vec<_> = sent.collect();
    converse(&mut sender, &mut receiver, now);
    assert_eq!(delivered(&mut receiver).len(), sent.len());
    let is_sent = |event: &Event| matches!(event, Event::Sent { .. });
    let mut events = std::iter::from_fn(|| sender.poll_event());
    assert!(!events.any(|event| is_sent(&event)), "one is not accepted");
    for session in &sent {
        receiver.accept(now, *session);
    }
    converse(&mut sender, &mut receiver, now);
    let events = std::iter::from_fn(|| sender.poll_event());
    assert_eq!(events.filter(is_sent).count(), sent.len());
    assert_eq!((sender.sessions(), receiver.sessions()), ((0, 0), (0, 0)));
}

fn outgoing(bytes: usize) -> Outgoing {
    Outgoing {
        to: RECEIVER,
        service: SERVICE,
        block: content(bytes, 1),
        red: bytes as u64,
    }
}

#[test]
fn a_block_that_is_too_long_is_refused_at_once() {
    let now = Instant::now();
    let config = PeerConfig::new(Duration::ZERO, None);
    let mut sender = engine(SENDER, 1, &[RECEIVER], &config, now);
    let small = PeerConfig {
        block_bytes: 10_000,
        ..config.clone()
    };
    let little = PeerConfig {
        receive_memory: 10_000,
        ..config
    };
    for config in [small, little] {
        let mut receiver = engine(RECEIVER, 2, &[SENDER], &config, now);
        let session = sender.send(now, outgoing(20_000)).unwrap();
        converse(&mut sender, &mut receiver, now);
        let (by, reason) = (End::Receiver, CancelReason::System);
        let cancelled = Event::SendCancelled {
            session,
            by,
            reason,
        };
        assert_eq!(
            std::iter::from_fn(|| sender.poll_event()).last(),
            Some(cancelled)
        );
        assert_eq!(
            (receiver.sessions(), receiver.receive_memory()),
            ((0, 0), 0)
        );
    }
}

#[test]
fn endless_reports_that_answer_no_checkpoint_end_the_session() {
    let now = Instant::now();
    let config = PeerConfig::new(Duration::ZERO, None);
    let mut sender = engine(SENDER, 1, &[RECEIVER], &config, now);
    let session = sender.send(now, outgoing(4080)).unwrap();
    output(&mut sender, now);
    let mut sent = 0;
    for serial in 1..10_000 {
        let mut report = vec![8];
        for number in [SENDER.0, session.number] {
            sdnv(number, &mut report);
        }
        report.push(0);
        [serial, 0, 4080, 0, 1, 1360, 2720]
            .iter()
            .for_each(|number| sdnv(*number, &mut report));
        sender.handle_datagrams(now, RECEIVER, &report, report.len());
        sent += output(&mut sender, now).len();
    }
    assert!(
        sent < 10_000 + 200,
        "{sent} segments, one an acknowledgement of each report"
    );
    let (by, reason) = (End::Sender, CancelReason::RetransmissionCycles);
    let cancelled = Event::SendCancelled {
        session,
        by,
        reason,
    };
    assert!(std::iter::from_fn(|| sender.poll_event()).any(|event| event == cancelled));
}

/// What a refused symbol says of the block does not hold.
#[test]
fn a_refused_symbol_changes_nothing() {
    let now = Instant::now();
    let config = PeerConfig::new(Duration::ZERO, None);
    let mut receiver = engine(RECEIVER, 1, &[SENDER], &config, now);
    let block = content(3000, 1);
    let data = |offset: usize, end| red(7, offset as u64, &block[offset..][..1500], end);
    let forged = segment(
        7,
        Body::Repair(Repair {
            service: SERVICE,
            offset: 0,
            red: 1000,
            is_whole: true,
            symbols: 2,
            repairs: 1,
            index: 2,
            payload: b"x",
        }),
    );
    for segment in [data(0, false), forged, data(1500, true)] {
        receiver.handle_datagrams(now, SENDER, &segment, segment.len());
    }
    assert_eq!(delivered(&mut receiver), [block]);
}

/// One repair symbol, and a byte at every second offset of its code: with a search of all gaps before each, this takes hours.
#[test]
fn gaps_without_end_below_a_repair_symbol_cost_little_each() {
    let now = Instant::now();
    let config = PeerConfig::new(Duration::ZERO, None);
    let mut receiver = engine(RECEIVER, 1, &[SENDER], &config, now);
    let payload = vec![7; 10_000];
    let symbol = segment(
        7,
        Body::Repair(Repair {
            service: SERVICE,
            offset: 0,
            red: 1_000_000,
            is_whole: true,
            symbols: 100,
            repairs: 1,
            index: 100,
            payload: &payload,
        }),
    );
    receiver.handle_datagrams(now, SENDER, &symbol, symbol.len());
    for offset in (0..1_000_000).step_by(2) {
        let byte = red(7, offset, b"x", false);
        receiver.handle_datagrams(now, SENDER, &byte, byte.len());
    }
    assert_eq!(receiver.stats().red_bytes_received, 500_000);
    assert_eq!(receiver.stats().red_bytes_recovered, 0);
}

/// Parities that were changed on their way give back bytes that were never sent: the checksum of the red part tells.
#[test]
fn changed_parities_deliver_nothing() {
    let now = Instant::now();
    let mut config = PeerConfig::new(Duration::ZERO, None);
    config.is_one_way = true;
    config.coding = Some(Coding::new(0.05));
    config.segment_data = 128;
    let block = content(6000 * 128, 1);
    for is_changed in [false, true] {
        let mut sender = engine(SENDER, 1, &[RECEIVER], &config, now);
        let mut receiver = engine(RECEIVER, 2, &[SENDER], &config, now);
        let outgoing = Outgoing {
            to: RECEIVER,
            service: SERVICE,
            red: block.len() as u64,
            block: block.clone(),
        };
        sender.send(now, outgoing).unwrap();
        for mut bytes in output(&mut sender, now) {
            let (parsed, _) = parse(&bytes).unwrap();
            let is_parity = matches!(parsed.body, Body::Parity(_));
            // More of the first code than it has repair symbols.
            if matches!(parsed.body, Body::Data(data) if data.offset < 30 * 128) {
                continue;
            }
            if is_parity && is_changed {
                // Before the extension with the checksum.
                let at = bytes.len() - 7;
                bytes[at] ^= 1;
            }
            receiver.handle_datagrams(now, SENDER, &bytes, bytes.len());
        }
        let events: Vec<Event> = std::iter::from_fn(|| receiver.poll_event()).collect();
        let is_delivered = match events.last() {
            Some(Event::RedPart { block: red, .. }) => red.clone().into_bytes() == block,
            Some(Event::ReceiveCancelled { reason, .. }) => *reason != CancelReason::System,
            _ => panic!("{events:?}"),
        };
        assert_eq!(is_delivered, !is_changed, "{events:?}");
        assert_eq!(receiver.receive_memory(), 0);
    }
}

/// One of each place and of one shape is kept, and gaps without end do not have them searched.
#[test]
fn forged_parities_hold_and_cost_little() {
    let now = Instant::now();
    let config = PeerConfig::new(Duration::ZERO, None);
    let mut receiver = engine(RECEIVER, 1, &[SENDER], &config, now);
    let parity = |symbols, index| {
        let parity = Parity {
            service: SERVICE,
            red: 1 << 20,
            is_whole: true,
            symbols,
            index,
            payload: &[7; 64],
        };
        segment(7, Body::Parity(parity))
    };
    for number in 0..10_000 {
        let index = u8::try_from(number % 200).unwrap();
        for bytes in [parity(200, index), parity(100, index / 2)] {
            receiver.handle_datagrams(now, SENDER, &bytes, bytes.len());
        }
    }
    assert_eq!(receiver.stats().dropped.contradiction, 10_000);
    let held = receiver.receive_memory();
    assert!((200 * 64..200 * 400).contains(&held), "{held} bytes");
    for offset in (0..200_000).step_by(2) {
        let byte = red(7, offset, b"x", false);
        receiver.handle_datagrams(now, SENDER, &byte, byte.len());
    }
    assert_eq!(receiver.stats().red_bytes_received, 100_000);
    assert_eq!(receiver.stats().red_bytes_recovered, 0);
}

/// As many symbols are missing as are searched at all, beside parities that help none of them: with a table that is searched for each of
/// the symbols, before each byte, this takes minutes.
#[test]
fn bytes_beside_forged_parities_cost_little_each() {
    let now = Instant::now();
    let config = PeerConfig::new(Duration::ZERO, None);
    let mut receiver = engine(RECEIVER, 1, &[SENDER], &config, now);
    for index in 0..200 {
        let parity = Parity {
            service: SERVICE,
            red: 4000 * 64,
            is_whole: true,
            symbols: 200,
            index,
            payload: &[7; 64],
        };
        let parity = segment(7, Body::Parity(parity));
        receiver.handle_datagrams(now, SENDER, &parity, parity.len());
    }
    for offset in 0..20_000 {
        let byte = red(7, offset, b"x", false);
        receiver.handle_datagrams(now, SENDER, &byte, byte.len());
    }
    let stats = receiver.stats();
    assert_eq!(stats.red_bytes_received, 20_000);
    assert_eq!(stats.red_bytes_recovered, 0);
}

/// A receiver without a way back that finds a block damaged, too long, or for nobody, says so to nobody: its link is silent.
#[test]
fn without_a_return_channel_nothing_that_is_refused_is_told() {
    let now = Instant::now();
    let mut config = PeerConfig::new(Duration::ZERO, None);
    config.is_one_way = true;
    config.block_bytes = 10_000;
    let mut receiver = engine(RECEIVER, 2, &[SENDER], &config, now);
    let block = content(3000, 1);
    let whole = |number, checksum: u32| {
        let value = checksum.to_be_bytes();
        let trailer = [&[0xc3, 4][..], &value].concat();
        let data = Data {
            kind: DataKind::RedEndOfBlock,
            service: SERVICE,
            offset: 0,
            checkpoint: Some(Checkpoint {
                serial: 1,
                report: 0,
            }),
            payload: &block,
        };
        let mut bytes = segment(number, Body::Data(data));
        // The count of its trailers is behind two bytes of control and originator, and that of its session.
        bytes[3] = 1;
        bytes.extend(trailer);
        bytes
    };
    let long = red(2, 20_000, b"x", false);
    let nobodys = segment(
        3,
        Body::Data(Data {
            kind: DataKind::Red,
            service: 99,
            offset: 0,
            checkpoint: None,
            payload: b"x",
        }),
    );
    let cancelled = segment(
        4,
        Body::Cancel {
            by: End::Sender,
            reason: CancelReason::User,
        },
    );
    let damaged = whole(1, crc32c::crc32c(&block) ^ 1);
    for bytes in [damaged, long, nobodys, cancelled] {
        receiver.handle_datagrams(now, SENDER, &bytes, bytes.len());
    }
    assert_eq!(output(&mut receiver, now), Vec::<Vec<u8>>::new());
    let events: Vec<Event> = std::iter::from_fn(|| receiver.poll_event()).collect();
    let is_refusal = |event: &&Event| matches!(event, Event::ReceiveCancelled { .. });
    assert_eq!(events.iter().filter(is_refusal).count(), 2, "{events:?}");
    assert_eq!((receiver.sessions(), receiver.timers()), ((0, 0), 0));
    // What comes of them later is late, a good one is taken, and so is the one that was damaged if it comes once more.
    let again = red(2, 0, b"x", false);
    receiver.handle_datagrams(now, SENDER, &again, again.len());
    assert_eq!(receiver.stats().dropped.late, 1);
    for number in [5, 1] {
        let good = whole(number, crc32c::crc32c(&block));
        receiver.handle_datagrams(now, SENDER, &good, good.len());
        assert_eq!(delivered(&mut receiver), std::slice::from_ref(&block));
    }
}

/// What another life of the receiver has taken is not lost: nothing says that packets of that size do not arrive.
#[test]
fn a_receiver_that_was_started_anew_says_nothing_of_sizes() {
    let now = Instant::now();
    let config = PeerConfig::new(Duration::ZERO, None);
    let mut sender = engine(SENDER, 1, &[RECEIVER], &config, now);
    let mut receiver = engine(RECEIVER, 2, &[SENDER], &config, now);
    sender.set_path_mtu(now, RECEIVER, 9000);
    sender.send(now, outgoing(1_000_000)).unwrap();
    converse(&mut sender, &mut receiver, now);
    let choice = |sender: &Engine| sender.segment_choice(RECEIVER).unwrap();
    assert_eq!(choice(&sender).data_bytes, 8860, "jumbo frames arrive");
    let session = sender.send(now, outgoing(4_000_000)).unwrap();
    while sender.poll_event().is_some() {}
    let segments = output(&mut sender, now);
    let is_checkpoint = |segment: &Vec<u8>| {
        let (parsed, _) = parse(segment).unwrap();
        matches!(parsed.body, Body::Data(data) if data.kind == DataKind::RedCheckpoint)
    };
    // The first life reports once, and the second has the rest alone.
    let behind = 1 + segments.iter().position(is_checkpoint).unwrap();
    let mut later = engine(RECEIVER, 3, &[SENDER], &config, now);
    for (receiver, segments) in [
        (&mut receiver, &segments[..behind]),
        (&mut later, &segments[behind..]),
    ] {
        for segment in segments {
            receiver.handle_datagrams(now, SENDER, segment, segment.len());
        }
        for segment in output(receiver, now) {
            sender.handle_datagrams(now, RECEIVER, &segment, segment.len());
        }
    }
    let (by, reason) = (End::Sender, CancelReason::System);
    let cancelled = Event::SendCancelled {
        session,
        by,
        reason,
    };
    assert!(std::iter::from_fn(|| sender.poll_event()).any(|event| event == cancelled));
    let choice = choice(&sender);
    assert_eq!(
        (choice.data_bytes, choice.black_holes),
        (8860, 0),
        "{choice:?}"
    );
}

/// A host that forges another host's address on datagrams has it sent little more than they are.
#[test]
fn a_stranger_is_sent_at_most_three_times_what_came_from_there() {
    let mut now = Instant::now();
    let config = PeerConfig::new(Duration::ZERO, None);
    let mut receiver = host(2, &config);
    // A session each, half of them for a service that is open: these are reported on, the others cancelled.
    let mut forged = Vec::new();
    for number in 1..=100 {
        let data = Data {
            kind: DataKind::RedEndOfBlock,
            service: if number % 2 == 0 { SERVICE } else { 7 },
            offset: 0,
            checkpoint: Some(Checkpoint {
                serial: 1,
                report: 0,
            }),
            payload: b"x",
        };
        forged.extend(segment(number, Body::Data(data)));
    }
    receiver.handle_datagrams(now, SENDER, &forged, forged.len());
    let mut sent = 0;
    for _ in 0..1000 {
        let segments = output(&mut receiver, now);
        let bytes = segments
            .iter()
            .map(|segment| segment.len() + config.overhead);
        sent += bytes.sum::<usize>();
        while receiver.poll_event().is_some() {}
        let Some(at) = receiver.poll_timeout() else {
            break;
        };
        now = now.max(at);
        receiver.handle_timeout(now);
    }
    let most = 3 * (forged.len() + config.overhead);
    assert!((100..=most).contains(&sent), "{sent} bytes for {most}");
    assert_eq!(receiver.sessions(), (0, 0), "each session ends");
}

/// A receiver that takes up to so many strangers at a time.
fn host(most: usize, config: &PeerConfig) -> Engine {
    let mut receiver = Engine::new(EngineConfig {
        unknown_peers: UnknownPeers::Accept {
            most,
            config: Box::new(config.clone()),
        },
        ..EngineConfig::new(RECEIVER, [1; 32])
    });
    receiver.open_service(SERVICE);
    receiver
}

/// Initial numbers of reports are below 2^14: all of them fit into three datagrams.
#[test]
fn a_stranger_that_tries_all_numbers_of_a_report_stays_one() {
    let mut now = Instant::now();
    let mut receiver = host(2, &PeerConfig::new(Duration::ZERO, None));
    let block = red(1, 0, b"x", true);
    receiver.handle_datagrams(now, SENDER, &block, block.len());
    let reports = output(&mut receiver, now);
    assert_eq!(reports.len(), 1);
    let guesses = (1..1 << 14).map(|report| segment(1, Body::ReportAck { report }));
    let guesses: Vec<u8> = guesses.flatten().collect();
    receiver.handle_datagrams(now, SENDER, &guesses, guesses.len());
    // A cancellation is repeated for long to one that is there.
    let data = Data {
        kind: DataKind::RedEndOfBlock,
        service: 7,
        offset: 0,
        checkpoint: Some(Checkpoint {
            serial: 1,
            report: 0,
        }),
        payload: b"x",
    };
    let unknown = segment(2, Body::Data(data));
    receiver.handle_datagrams(now, SENDER, &unknown, unknown.len());
    let mut cancellations = 0;
    for _ in 0..100 {
        let sent = output(&mut receiver, now);
        let cancels = sent.iter().filter(|segment| {
            let (segment, _) = starhaul_ltp::parse(segment).unwrap();
            matches!(segment.body, Body::Cancel { .. })
        });
        cancellations += cancels.count();
        let Some(at) = receiver.poll_timeout() else {
            break;
        };
        now = now.max(at);
        receiver.handle_timeout(now);
    }
    assert_eq!(cancellations, 3);
}

/// A forged datagram for each place would keep all others out for as long as a sender is waited for. Who streams without having answered
/// yet came before them, and stays.
#[test]
fn silent_strangers_make_room_for_others() {
    let mut now = Instant::now();
    let config = PeerConfig::new(Duration::ZERO, None);
    let mut receiver = host(3, &config);
    let give = |receiver: &mut Engine, now, from: u64, segments: &[Vec<u8>]| {
        for segment in segments {
            receiver.handle_datagrams(now, EngineId(from), segment, segment.len());
        }
    };
    // One that has answered keeps its place, and what it has begun, also when it is silent.
    let mut known = engine(EngineId(9), 2, &[RECEIVER], &config, now);
    known.send(now, outgoing(3000)).unwrap();
    converse(&mut known, &mut receiver, now);
    assert_eq!(delivered(&mut receiver), [content(3000, 1)]);
    known.send(now, outgoing(4000)).unwrap();
    let silent = output(&mut known, now);
    give(&mut receiver, now, 9, &silent[..1]);
    let mut streaming = engine(EngineId(10), 2, &[RECEIVER], &config, now);
    streaming.send(now, outgoing(30_000)).unwrap();
    let block = output(&mut streaming, now);
    give(&mut receiver, now, 10, &block[..1]);
    let begin = now;
    let forged = |id| {
        let mut forger = engine(EngineId(id), 3, &[RECEIVER], &config, begin);
        forger.send(begin, outgoing(3000)).unwrap();
        output(&mut forger, begin)[..1].to_vec()
    };
    let silence = receiver.moves_after(EngineId(10)).unwrap();
    for (id, segment) in (11..20).zip(&block[1..]) {
        let before = receiver.stats().dropped.unknown_peer;
        give(&mut receiver, now, id, &forged(id));
        assert_eq!(receiver.stats().dropped.unknown_peer, before);
        assert_eq!(receiver.sessions(), (0, 3));
        now += silence / 2;
        give(&mut receiver, now, 10, std::slice::from_ref(segment));
        // The one before may only wait for an answer.
        give(&mut receiver, now, 99, &forged(99));
        assert_eq!(receiver.stats().dropped.unknown_peer, before + 1);
        now += silence - silence / 2;
    }
    let mut other = engine(EngineId(20), 4, &[RECEIVER], &config, now);
    other.send(now, outgoing(5000)).unwrap();
    converse(&mut other, &mut receiver, now);
    assert_eq!(delivered(&mut receiver), [content(5000, 1)]);
    for (id, sender, bytes, rest) in [
        (10, &mut streaming, 30_000, &block[10..]),
        (9, &mut known, 4000, &silent[1..]),
    ] {
        give(&mut receiver, now, id, rest);
        converse(sender, &mut receiver, now);
        assert_eq!(delivered(&mut receiver), [content(bytes, 1)]);
    }
    assert_eq!(
        (receiver.sessions(), receiver.receive_memory()),
        ((0, 0), 0)
    );
    assert_eq!(receiver.timers(), 0);
}

/// The sender of a file learns why no peer reports what became of it.
#[test]
fn an_engine_of_another_number_than_its_peer_is_noticed() {
    let now = Instant::now();
    let config = PeerConfig::new(Duration::ZERO, None);
    let mut sender = engine(SENDER, 1, &[RECEIVER], &config, now);
    assert_eq!(sender.other_engine(RECEIVER), None);
    let other = EngineId(5);
    let mut answers = engine(other, 2, &[SENDER], &config, now);
    let verdict = Outgoing {
        to: SENDER,
        ..outgoing(10)
    };
    answers.send(now, verdict).unwrap();
    for segment in output(&mut answers, now) {
        sender.handle_datagrams(now, RECEIVER, &segment, segment.len());
    }
    assert_eq!(sender.other_engine(RECEIVER), Some(other));
    assert_eq!(sender.take_other_engine(RECEIVER), Some(other));
    assert_eq!(sender.other_engine(RECEIVER), None);
}

/// Repairs of one block leave before the rest of the next: over a slow link that takes longer than a sender is waited for.
#[test]
fn a_block_waits_while_its_sender_is_busy_with_another() {
    let mut now = Instant::now();
    let config = PeerConfig::new(Duration::ZERO, None);
    let patience = config.longest_silence();
    let mut receiver = engine(RECEIVER, 1, &[SENDER], &config, now);
    let give = |receiver: &mut Engine, now, number, offset: u64| {
        let segment = red(number, offset, b"x", false);
        receiver.handle_datagrams(now, SENDER, &segment, segment.len());
    };
    give(&mut receiver, now, 1, 0);
    give(&mut receiver, now, 2, 0);
    let mut left_after = None;
    for round in 1..100 {
        now += patience / 2;
        give(&mut receiver, now, 1, round);
        receiver.handle_timeout(now);
        if receiver.sessions() != (0, 2) {
            left_after = left_after.or(Some(round));
        }
    }
    // One of a former life of the sender does not stay for good.
    let left_after = left_after.unwrap();
    assert!((10..30).contains(&left_after), "{left_after}");
}

/// What is to be repaired may be more than the window, which has become smaller since: reports are asked for on the way.
#[test]
fn a_repair_larger_than_the_window_goes_on() {
    let mut now = Instant::now();
    let config = PeerConfig::new(Duration::ZERO, None);
    let mut sender = engine(SENDER, 1, &[RECEIVER], &config, now);
    let mut receiver = engine(RECEIVER, 2, &[SENDER], &config, now);
    let give =
        |now: Instant, sender: &mut Engine, receiver: &mut Engine, segments: &[Vec<u8>], took| {
            for segment in segments {
                receiver.handle_datagrams(now, SENDER, segment, segment.len());
            }
            let now = now + took;
            receiver.handle_timeout(now);
            for segment in output(receiver, now) {
                sender.handle_datagrams(now, RECEIVER, &segment, segment.len());
            }
            sender.handle_timeout(now);
            while receiver.poll_event().is_some() {}
            now
        };
    // Quick answers let the window grow.
    let session = sender.send(now, outgoing(54_000_000)).unwrap();
    let mut sent = 0;
    while sent < 34_000_000 {
        let segments = output(&mut sender, now);
        sent += segments.iter().map(Vec::len).sum::<usize>();
        now = give(
            now,
            &mut sender,
            &mut receiver,
            &segments,
            Duration::from_millis(2),
        );
    }
    // The rest is lost, and slow answers to small blocks make it shrink.
    let rest: usize = output(&mut sender, now).iter().map(Vec::len).sum();
    assert!(rest > 16 << 20, "{rest} bytes at once");
    for _ in 0..200 {
        sender.send(now, outgoing(1000)).unwrap();
    }
    let small = output(&mut sender, now);
    now = give(
        now,
        &mut sender,
        &mut receiver,
        &small,
        Duration::from_millis(50),
    );
    // Of the checkpoints that are repeated only the last one arrives: one report tells all that is missing.
    let mut is_first = true;
    for _ in 0..2000 {
        let segments = output(&mut sender, now);
        let has_data = segments.iter().any(|segment| segment.len() > 1000);
        let lost = match is_first && has_data {
            true => segments.len() - 1,
            false => 0,
        };
        is_first &= !has_data;
        let arrives = &segments[lost..];
        now = give(
            now,
            &mut sender,
            &mut receiver,
            arrives,
            Duration::from_millis(60),
        );
        let done = Event::Sent { session };
        if std::iter::from_fn(|| sender.poll_event()).any(|event| event == done) {
            return;
        }
    }
    panic!("nothing more leaves");
}
