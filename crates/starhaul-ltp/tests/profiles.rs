//! Profiles: the same engine with fields at fixed offsets, and without what CCSDS 734.1 does not have.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod pair;

use std::time::{Duration, Instant};

use pair::{
    Pair, RECEIVER, SENDER, SERVICE, content,
    direct::{converse, delivered, engine, output},
};
use starhaul_ltp::{
    AuthKey, Body, CancelReason, Checkpoint, Coding, Data, DataKind, Dropped, Encoding, Engine,
    EngineConfig, EngineId, Error, Event, Extensions, NumberWidth, Outgoing, PeerConfig, Profile,
    Segment, SessionId, UnknownPeers,
};

fn config(profile: Profile) -> PeerConfig {
    PeerConfig {
        profile,
        ..PeerConfig::new(Duration::from_secs(1), None)
    }
}

fn outgoing(length: usize, red: u64) -> Outgoing {
    Outgoing {
        to: RECEIVER,
        service: SERVICE,
        block: content(length, 7),
        red,
    }
}

#[test]
fn blocks_of_every_profile_arrive_over_lossy_links() {
    for (_, profile) in Profile::ALL {
        for (seed, loss) in [0, 1, 5, 20].into_iter().enumerate() {
            for has_key in [false, true] {
                let mut config = config(profile);
                config.auth = has_key.then(|| AuthKey::new(b"the key of both", b"").unwrap());
                config.checkpoint_every = Some(20);
                let link = match loss {
                    0 => "delay=1s".to_owned(),
                    loss => format!("delay=1s,loss={loss}%"),
                };
                let said = format!("{profile}, {loss} % lost, seed {seed}, key {has_key}");
                let mut pair = Pair::new(seed as u64, &config, &link, &link);
                for node in &mut pair.sim.nodes {
                    let said = said.clone();
                    node.passes = Box::new(move |segment| {
                        assert_eq!(segment.encoding, profile.encoding(), "{said}");
                        true
                    });
                }
                let blocks = [200_000, 1, 5000].map(|length| content(length, 3));
                for block in &blocks {
                    pair.send(block, block.len());
                }
                pair.finish();
                let mut arrived = pair.receiver().delivered();
                arrived.sort_by_key(|block| std::cmp::Reverse(block.len()));
                let [long, short, middle] = blocks;
                assert!(arrived == [long, middle, short], "{said}");
            }
        }
    }
}

/// Green blocks, and those with repair segments, also without a way back.
#[test]
fn green_and_coded_blocks_have_fixed_fields_too() {
    let green = content(9000, 5);
    let mut pair = Pair::new(1, &config(Profile::Fixed), "delay=1s", "delay=1s");
    pair.send(&green, 0);
    pair.finish();
    let arrived = pair.receiver().green();
    let bytes: Vec<u8> = arrived.iter().flat_map(|(_, data)| data.to_vec()).collect();
    assert!(bytes == green, "{} segments", arrived.len());

    for is_one_way in [false, true] {
        let mut config = config(Profile::Fixed);
        config.rate = Some(starhaul_units::Bandwidth::from_mbit(100));
        config.coding = Some(Coding::new(0.05));
        config.is_one_way = is_one_way;
        let mut pair = Pair::new(4, &config, "delay=1s,loss=1%", "delay=1s,loss=1%");
        let block = content(300_000, 6);
        pair.send(&block, block.len());
        pair.finish();
        assert!(pair.receiver().delivered() == [block], "{is_one_way}");
        let stats = pair.sender().engine.stats();
        assert!(stats.repair_segments_sent > 0, "{is_one_way}");
    }
}

/// Nothing of it is looked at, the one is told why by a counter, and the other gives up as with a peer that is not there.
#[test]
fn an_engine_of_another_profile_is_refused_and_counted() {
    for [ours, theirs] in [
        [Profile::Fixed, Profile::Rfc5326],
        [Profile::Rfc5326, Profile::Fixed],
        [Profile::Ccsds7341, Profile::Fixed],
    ] {
        let mut now = Instant::now();
        let mut sender = engine(SENDER, 1, &[RECEIVER], &config(theirs), now);
        let mut receiver = engine(RECEIVER, 2, &[SENDER], &config(ours), now);
        let session = sender.send(now, outgoing(6000, 6000)).unwrap();
        let first = output(&mut sender, now);
        for segment in &first {
            assert!(!receiver.handle_datagrams(now, SENDER, segment, segment.len()));
        }
        // As the kernel joins them, too.
        assert_eq!(first[1].len(), first[2].len());
        let joined = first[1..3].concat();
        assert!(!receiver.handle_datagrams(now, SENDER, &joined, first[1].len()));
        let dropped = Dropped {
            other_profile: first.len() as u64 + 2,
            ..Dropped::default()
        };
        assert_eq!(receiver.stats().dropped, dropped, "{ours} of {theirs}");
        assert_eq!((receiver.sessions(), receiver.timers()), ((0, 0), 0));
        assert!(output(&mut receiver, now).is_empty());

        let mut events = Vec::new();
        while let Some(at) = sender.poll_timeout() {
            now = now.max(at);
            sender.handle_timeout(now);
            output(&mut sender, now);
            events.extend(std::iter::from_fn(|| sender.poll_event()));
        }
        let gave_up = events.iter().any(|event| {
            matches!(event, Event::SendCancelled { session: of, reason: CancelReason::RetransmissionLimit, .. } if *of == session)
        });
        assert!(gave_up, "{events:?}");
        assert_eq!(sender.sessions(), (0, 0));
    }
}

/// The first two understand each other: one leaves out what the other may skip.
#[test]
fn rfc_5326_and_ccsds_734_1_understand_each_other() {
    let [plain, ccsds] = [Profile::Rfc5326, Profile::Ccsds7341].map(config);
    for [ours, theirs] in [[&plain, &ccsds], [&ccsds, &plain]] {
        let now = Instant::now();
        let mut sender = engine(SENDER, 1, &[RECEIVER], theirs, now);
        let mut receiver = engine(RECEIVER, 2, &[SENDER], ours, now);
        let block = outgoing(60_000, 50_000);
        let red = block.block.slice(..50_000);
        sender.send(now, block).unwrap();
        converse(&mut sender, &mut receiver, now);
        assert!(delivered(&mut receiver) == [red]);
        assert_eq!(receiver.stats().dropped, Dropped::default());
    }
}

/// One that nobody knows takes no place of one that is understood.
#[test]
fn an_unknown_engine_of_another_profile_becomes_no_peer() {
    let now = Instant::now();
    let mut engine_config = EngineConfig::new(RECEIVER, [2; 32]);
    engine_config.unknown_peers = UnknownPeers::Accept {
        most: 1,
        config: Box::new(config(Profile::Fixed)),
    };
    let mut receiver = Engine::new(engine_config);
    receiver.open_service(SERVICE);
    let of = |profile: Profile| {
        let mut sender = engine(SENDER, 1, &[RECEIVER], &config(profile), now);
        sender.send(now, outgoing(100, 100)).unwrap();
        output(&mut sender, now)
    };
    for segment in of(Profile::Rfc5326) {
        receiver.handle_datagrams(now, EngineId(9), &segment, segment.len());
    }
    let dropped = receiver.stats().dropped;
    assert_eq!((dropped.other_profile, dropped.unknown_peer), (1, 0));
    assert!(!receiver.has_peer(EngineId(9)));
    for segment in of(Profile::Fixed) {
        receiver.handle_datagrams(now, SENDER, &segment, segment.len());
    }
    assert_eq!(delivered(&mut receiver), [content(100, 7)]);
}

#[test]
fn a_block_of_two_colours_is_refused_before_it_begins() {
    let now = Instant::now();
    let mut sender = engine(SENDER, 1, &[RECEIVER], &config(Profile::Fixed), now);
    for red in [1, 99] {
        let refused = sender.send(now, outgoing(100, red));
        assert_eq!(refused, Err(Error::MixedBlock { red, length: 100 }));
    }
    assert_eq!((sender.sessions(), sender.send_bytes()), ((0, 0), 0));
    for red in [0, 100] {
        sender.send(now, outgoing(100, red)).unwrap();
    }
}

/// Data of a block without an engine that would send them: first byte, and whether they are red.
fn forged(encoding: Encoding, (offset, is_red): (u64, bool)) -> Vec<u8> {
    let kind = match is_red {
        true => DataKind::Red,
        false => DataKind::Green,
    };
    segment(
        encoding,
        Body::Data(Data {
            kind,
            service: SERVICE,
            offset,
            checkpoint: None,
            payload: &[7; 10],
        }),
    )
}

fn segment(encoding: Encoding, body: Body<'_>) -> Vec<u8> {
    let segment = Segment {
        encoding,
        session: SessionId {
            originator: SENDER,
            number: 5,
        },
        header: Extensions::default(),
        body,
        trailer: Extensions::default(),
    };
    let mut bytes = Vec::new();
    segment.write(&mut bytes);
    bytes
}

/// Red data and green data behind them are a block of RFC 5326, and none of one colour.
#[test]
fn a_session_of_two_colours_is_cancelled() {
    let (red, green) = ((0, true), (20, false));
    for profile in [Profile::Rfc5326, Profile::Fixed] {
        for order in [[red, green], [green, red]] {
            let now = Instant::now();
            let mut receiver = engine(RECEIVER, 2, &[SENDER], &config(profile), now);
            for data in order {
                let bytes = forged(profile.encoding(), data);
                receiver.handle_datagrams(now, SENDER, &bytes, bytes.len());
            }
            let miscolored = std::iter::from_fn(|| receiver.poll_event()).any(|event| {
                let reason = CancelReason::Miscolored;
                matches!(event, Event::ReceiveCancelled { reason: told, .. } if told == reason)
            });
            assert_eq!(miscolored, profile == Profile::Fixed, "{order:?}");
        }
    }
}

/// What stands behind a segment in its datagram is of the same profile, or dropped.
#[test]
fn a_datagram_has_one_encoding() {
    let now = Instant::now();
    let mut receiver = engine(RECEIVER, 2, &[SENDER], &config(Profile::Fixed), now);
    let end = Data {
        kind: DataKind::RedEndOfBlock,
        service: SERVICE,
        offset: 10,
        checkpoint: Some(Checkpoint {
            serial: 1,
            report: 0,
        }),
        payload: &[7; 10],
    };
    let first = forged(Encoding::Fixed, (0, true));
    let other = segment(Encoding::Rfc5326, Body::Data(end));
    let both = [&first[..], &other].concat();
    assert!(receiver.handle_datagrams(now, SENDER, &both, both.len()));
    let stats = receiver.stats();
    assert_eq!(
        (stats.segments_received, stats.dropped.other_profile),
        (1, 1)
    );
    let own = segment(Encoding::Fixed, Body::Data(end));
    receiver.handle_datagrams(now, SENDER, &own, own.len());
    assert_eq!(delivered(&mut receiver), [vec![7; 20]]);
}

#[test]
fn ccsds_734_1_has_numbers_of_32_bits_and_nothing_of_ours() {
    let mut pair = Pair::new(
        2,
        &config(Profile::Ccsds7341),
        "delay=1s,loss=5%",
        "delay=1s",
    );
    for node in &mut pair.sim.nodes {
        node.passes = Box::new(|segment| {
            let extensions = segment.header.iter().count() + segment.trailer.iter().count();
            assert_eq!(extensions, 0, "{segment:?}");
            assert!(segment.session.number <= u32::MAX.into());
            true
        });
    }
    let block = content(100_000, 1);
    pair.send(&block, 60_000);
    pair.finish();
    assert!(pair.receiver().delivered() == [block.slice(..60_000)]);

    let now = Instant::now();
    let coded = PeerConfig {
        coding: Some(Coding::new(0.05)),
        ..config(Profile::Ccsds7341)
    };
    let wide = EngineConfig {
        numbers: NumberWidth::Bits64,
        ..EngineConfig::new(SENDER, [1; 32])
    };
    let narrow = EngineConfig::new(SENDER, [1; 32]);
    for (own, peer, said) in [
        (narrow, coded, "repair segments"),
        (wide, config(Profile::Ccsds7341), "64 bits"),
    ] {
        let refused = Engine::new(own).add_peer(now, RECEIVER, peer).unwrap_err();
        assert!(matches!(refused, Error::NotInProfile { .. }));
        assert!(refused.to_string().contains(said), "{refused}");
    }
}
