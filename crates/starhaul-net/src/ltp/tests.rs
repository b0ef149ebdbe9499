use std::time::Duration;

use starhaul_ltp::{
    Checkpoint, Data, DataKind, Encoding, EngineConfig, Extensions, Outgoing, PeerConfig, Segment,
    SegmentSize, SessionId,
};

use super::*;
use crate::stamped;

fn driver(own: u64, peer: u64) -> LtpDriver {
    driver_of(own, peer, 7)
}

/// Each life of an engine has numbers of its own.
fn driver_of(own: u64, peer: u64, life: u8) -> LtpDriver {
    let mut engine = Engine::new(EngineConfig::new(EngineId(own), [life; 32]));
    engine.open_service(1);
    let peer_config = PeerConfig::new(Duration::ZERO, None);
    let now = Instant::now();
    engine.add_peer(now, EngineId(peer), peer_config).unwrap();
    let local = SocketAddr::from(([127, 0, 0, 1], 0));
    LtpDriver::bind(local, IoMode::default(), engine).unwrap()
}

#[test]
fn a_socket_that_is_gone_is_bound_again_and_what_was_on_its_way_arrives() {
    let (mut one, mut two) = (driver(1, 2), driver(2, 1));
    let address = two.local_addr();
    one.set_address(EngineId(2), address);
    two.set_address(EngineId(1), one.local_addr());
    two.socket = None;
    let block: bytes::Bytes = vec![7; 100_000].into();
    let outgoing = Outgoing {
        to: EngineId(2),
        service: 1,
        red: block.len() as u64,
        block,
    };
    let session = one.engine().send(Instant::now(), outgoing).unwrap();
    // All of it is lost, as on a link that is down.
    one.turn(Some(Instant::now())).unwrap();
    let limit = Instant::now() + Duration::from_secs(60);
    loop {
        assert!(Instant::now() < limit, "the block does not arrive");
        let soon = Some(Instant::now() + Duration::from_millis(1));
        one.turn(soon).unwrap();
        two.turn(soon).unwrap();
        assert_eq!(two.local_addr(), address);
        while two.poll_event().is_some() {}
        if matches!(one.poll_event(), Some(Event::Sent { session: sent }) if sent == session) {
            return;
        }
    }
}

fn until_sent(drivers: &mut [&mut LtpDriver], session: starhaul_ltp::SessionId) {
    let limit = Instant::now() + Duration::from_secs(60);
    loop {
        assert!(Instant::now() < limit, "the block does not arrive");
        for driver in drivers.iter_mut() {
            let soon = Instant::now() + Duration::from_millis(1);
            driver.turn(Some(soon)).unwrap();
            while let Some(event) = driver.poll_event() {
                match event {
                    Event::Sent { session: sent } if sent == session => return,
                    _ => {}
                }
            }
        }
    }
}

fn send(driver: &mut LtpDriver, to: u64) -> starhaul_ltp::SessionId {
    let block: bytes::Bytes = vec![7; 100_000].into();
    let outgoing = Outgoing {
        to: EngineId(to),
        service: 1,
        red: block.len() as u64,
        block,
    };
    driver.engine().send(Instant::now(), outgoing).unwrap()
}

/// The data of long segments leave from where the block has them.
#[test]
fn a_block_arrives_as_it_was_by_all_calls_and_in_segments_of_any_length() {
    let content = (0..500_000_u32).map(|at| (at % 251).to_le_bytes()[0]);
    let content: bytes::Bytes = content.collect::<Vec<u8>>().into();
    for (mode, size) in IoMode::ALL
        .into_iter()
        .flat_map(|mode| [1360, 8000, 64_000].map(|size| (mode, size)))
    {
        let bind = |own, peer| {
            let mut engine = Engine::new(EngineConfig::new(EngineId(own), [7; 32]));
            engine.open_service(1);
            let mut config = PeerConfig::new(Duration::ZERO, None);
            config.set_segment_size(SegmentSize::Bytes(size));
            let now = Instant::now();
            engine.add_peer(now, EngineId(peer), config).unwrap();
            LtpDriver::bind(SocketAddr::from(([127, 0, 0, 1], 0)), mode, engine).unwrap()
        };
        let (mut one, mut two) = (bind(1, 2), bind(2, 1));
        one.set_address(EngineId(2), two.local_addr());
        two.set_address(EngineId(1), one.local_addr());
        let outgoing = Outgoing {
            to: EngineId(2),
            service: 1,
            red: content.len() as u64,
            block: content.clone(),
        };
        one.engine().send(Instant::now(), outgoing).unwrap();
        let limit = Instant::now() + Duration::from_secs(60);
        let mut arrived = None;
        while arrived.is_none() {
            assert!(Instant::now() < limit, "{mode:?}, {size}");
            for driver in [&mut one, &mut two] {
                let soon = Instant::now() + Duration::from_millis(1);
                driver.turn(Some(soon)).unwrap();
                while let Some(event) = driver.poll_event() {
                    if let Event::RedPart { block, .. } = event {
                        arrived = Some(block.into_bytes());
                    }
                }
            }
        }
        assert!(
            arrived.is_some_and(|block| block == content),
            "{mode:?}, {size}"
        );
        assert_eq!(one.unsent(EngineId(2)), 0, "{mode:?}, {size}");
    }
}

#[test]
fn segments_follow_the_mtu_of_the_route() {
    let (mut one, mut two) = (driver(1, 2), driver(2, 1));
    one.set_address(EngineId(2), two.local_addr());
    two.set_address(EngineId(1), one.local_addr());
    let mtu = Mtus::default().toward(Instant::now(), two.local_addr());
    // The first block tells whether a packet of the MTU arrives.
    for _ in 0..2 {
        let session = send(&mut one, 2);
        until_sent(&mut [&mut one, &mut two], session);
    }
    let choice = one.engine().segment_choice(EngineId(2)).unwrap();
    assert_eq!(choice.path_mtu, mtu);
    let is_jumbo = mtu.is_some_and(|mtu| mtu > 9000);
    assert_eq!(choice.data_bytes > 1360, is_jumbo, "{choice:?}");
}

/// The first block is cut by it, too, and its repair segments.
#[test]
fn the_mtu_is_known_before_anything_leaves() {
    let mut one = driver(1, 2);
    let at = SocketAddr::from(([127, 0, 0, 1], 9));
    let mtu = Mtus::default().toward(Instant::now(), at);
    let told = |driver: &mut LtpDriver| driver.engine().segment_choice(EngineId(2)).unwrap();
    assert_eq!(told(&mut one).path_mtu, None);
    one.set_address(EngineId(2), at);
    assert_eq!(told(&mut one).path_mtu, mtu);
}

/// One neighbour behind IPsec, or whose route has a smaller MTU now, must not have all others sent datagrams one by one for ever.
#[test]
fn batches_that_one_route_refuses_are_given_up_for_no_other() {
    let (mut one, mut two) = (driver(1, 2), driver(2, 1));
    one.set_address(EngineId(2), two.local_addr());
    two.set_address(EngineId(1), one.local_addr());
    let without_checksums = |driver: &LtpDriver, is_so: i32| {
        let socket = driver.socket.as_ref().unwrap().socket();
        stamped::set(socket, libc::SOL_SOCKET, libc::SO_NO_CHECK, is_so).unwrap();
    };
    // The kernel makes no batches of such datagrams, and says so with an error that `noq-udp` takes for a lack of offload.
    without_checksums(&one, 1);
    let session = send(&mut one, 2);
    until_sent(&mut [&mut one, &mut two], session);
    without_checksums(&one, 0);
    let gave_up = one.socket.as_ref().unwrap().believe_again();
    assert!(!gave_up, "datagrams go one by one to everybody");
    assert_eq!(one.unsent(EngineId(2)), 0, "all have left");
}

/// Whoever sends over a link without a way back has nobody else to tell.
#[test]
fn what_does_not_leave_is_counted() {
    let mut one = driver(1, 2);
    let has_kept = |driver: &LtpDriver, datagrams| driver.unsent(EngineId(2)) >= datagrams;
    // It has no address.
    send(&mut one, 2);
    until(&mut one, |driver| has_kept(driver, 50));
    // No socket can have port 0: the kernel refuses it.
    one.set_address(EngineId(2), ([127, 0, 0, 1], 0).into());
    let before = one.unsent(EngineId(2));
    send(&mut one, 2);
    until(&mut one, |driver| has_kept(driver, before + 50));
    assert_eq!(one.unsent(EngineId(3)), 0);
}

#[test]
fn the_ipv6_wildcard_reaches_and_takes_ipv4() {
    let mut one = driver(1, 2);
    let mut engine = Engine::new(EngineConfig::new(EngineId(2), [7; 32]));
    engine.open_service(1);
    let config = PeerConfig::new(Duration::ZERO, None);
    engine
        .add_peer(Instant::now(), EngineId(1), config)
        .unwrap();
    let any = SocketAddr::from(([0_u16; 8], 0));
    let mut two = LtpDriver::bind(any, IoMode::default(), engine).unwrap();
    let port = two.local_addr().port();
    one.set_address(EngineId(2), ([127, 0, 0, 1], port).into());
    two.set_address(EngineId(1), one.local_addr());
    for from in [1, 2] {
        let session = match from {
            1 => send(&mut one, 2),
            _ => send(&mut two, 1),
        };
        until_sent(&mut [&mut one, &mut two], session);
    }
    assert_eq!((one.from_nobody(), two.from_nobody()), (0, 0));
}

/// An engine that accepts others, and those that send to it.
fn host() -> LtpDriver {
    let mut config = EngineConfig::new(EngineId(2), [7; 32]);
    config.unknown_peers = starhaul_ltp::UnknownPeers::Accept {
        most: 4,
        config: Box::new(PeerConfig::new(Duration::ZERO, None)),
    };
    let mut engine = Engine::new(config);
    engine.open_service(1);
    LtpDriver::bind(([127, 0, 0, 1], 0).into(), IoMode::default(), engine).unwrap()
}

#[test]
fn a_guest_may_come_again_from_elsewhere() {
    let mut host = host();
    for life in 0..3 {
        let mut guest = driver_of(1, 2, life);
        guest.set_address(EngineId(2), host.local_addr());
        let session = send(&mut guest, 2);
        until_sent(&mut [&mut guest, &mut host], session);
        // The host's session ends with the acknowledgement of its report.
        let limit = Instant::now() + Duration::from_secs(60);
        while host.engine().sessions() != (0, 0) {
            assert!(Instant::now() < limit, "a session stays");
            for driver in [&mut guest, &mut host] {
                driver
                    .turn(Some(Instant::now() + Duration::from_millis(1)))
                    .unwrap();
                while driver.poll_event().is_some() {}
            }
        }
    }
}

/// A red segment that is a whole block, of an engine without a driver.
fn whole_block(of: u64, number: u64) -> Vec<u8> {
    let segment = Segment {
        encoding: Encoding::default(),
        session: SessionId {
            originator: EngineId(of),
            number,
        },
        header: Extensions::default(),
        body: Body::Data(Data {
            kind: DataKind::RedEndOfBlock,
            service: 1,
            offset: 0,
            checkpoint: Some(Checkpoint {
                serial: 1,
                report: 0,
            }),
            payload: b"block",
        }),
        trailer: Extensions::default(),
    };
    let mut bytes = Vec::new();
    segment.write(&mut bytes);
    bytes
}

/// Turns a driver until a block of this engine has come whole.
fn until_delivered(driver: &mut LtpDriver, of: u64) {
    let limit = Instant::now() + Duration::from_secs(60);
    loop {
        assert!(Instant::now() < limit, "no block of {of}");
        let soon = Instant::now() + Duration::from_millis(1);
        driver.turn(Some(soon)).unwrap();
        let whole = |event: Event| match event {
            Event::RedPart { session, .. } => session.originator == EngineId(of),
            _ => false,
        };
        if std::iter::from_fn(|| driver.poll_event()).any(whole) {
            return;
        }
    }
}

/// A port that one engine had has another one later.
#[test]
fn another_engine_is_heard_at_the_address_of_a_guest() {
    let mut host = host();
    let socket = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
    socket.connect(host.local_addr()).unwrap();
    let patience = Some(Duration::from_secs(60));
    socket.set_read_timeout(patience).unwrap();
    for (engine, number) in [(5, 1), (6, 2), (5, 3)] {
        socket.send(&whole_block(engine, number)).unwrap();
        until_delivered(&mut host, engine);
        // The report is acknowledged, after which nothing is under way with it.
        let limit = Instant::now() + Duration::from_secs(60);
        while host.engine().sessions() != (0, 0) {
            assert!(Instant::now() < limit, "a session stays");
            let soon = Instant::now() + Duration::from_millis(1);
            host.turn(Some(soon)).unwrap();
            let mut buffer = [0; 2000];
            let length = socket.recv(&mut buffer).unwrap();
            let (told, _) = parse(&buffer[..length]).unwrap();
            let Body::Report(report) = told.body else {
                continue;
            };
            let acknowledged = Segment {
                encoding: told.encoding,
                session: told.session,
                header: Extensions::default(),
                body: Body::ReportAck {
                    report: report.serial,
                },
                trailer: Extensions::default(),
            };
            let mut bytes = Vec::new();
            acknowledged.write(&mut bytes);
            socket.send(&bytes).unwrap();
            host.turn(Some(Instant::now() + Duration::from_millis(1)))
                .unwrap();
        }
    }
}

/// As if engine 1 had been silent since, for some of its attempts.
fn fall_silent(host: &mut LtpDriver) {
    let silence = host.engine().moves_after(EngineId(1)).unwrap();
    assert!(silence * 10 < host.engine().longest_silence(EngineId(1)).unwrap());
    for heard in host.heard.values_mut() {
        *heard = heard.checked_sub(silence + Duration::from_secs(1)).unwrap();
    }
}

/// An acknowledgement of a report, of a session of this engine that is over.
fn acknowledgement(of: u64) -> Vec<u8> {
    let segment = Segment {
        encoding: Encoding::default(),
        session: SessionId {
            originator: EngineId(of),
            number: 99,
        },
        header: Extensions::default(),
        body: Body::ReportAck { report: 1 },
        trailer: Extensions::default(),
    };
    let mut bytes = Vec::new();
    segment.write(&mut bytes);
    bytes
}

/// Turns a driver until it is so.
fn until(driver: &mut LtpDriver, is_so: impl Fn(&LtpDriver) -> bool) {
    let limit = Instant::now() + Duration::from_secs(60);
    while !is_so(driver) {
        assert!(Instant::now() < limit, "it does not come to that");
        let soon = Instant::now() + Duration::from_millis(1);
        driver.turn(Some(soon)).unwrap();
        while driver.poll_event().is_some() {}
    }
}

/// Turns a driver until engine 1 is where this socket is.
fn until_at(driver: &mut LtpDriver, socket: &std::net::UdpSocket) {
    let at = socket.local_addr().unwrap();
    until(driver, |driver| {
        driver.addresses.get(&EngineId(1)) == Some(&at)
    });
}

/// A peer whose address the configuration leaves open gets another one, as behind NAT.
#[test]
fn a_silent_peer_without_an_address_may_come_from_elsewhere() {
    let mut host = driver(2, 1);
    let mut before = None;
    for round in 0..2 {
        fall_silent(&mut host);
        let socket = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
        let to = host.local_addr();
        socket.send_to(&whole_block(1, 10 + round), to).unwrap();
        until_delivered(&mut host, 1);
        // The one before comes back at once, as one whose place another host took; the host that took it does not.
        if let Some(before) = &before {
            let before: &std::net::UdpSocket = before;
            before.send_to(&acknowledgement(1), to).unwrap();
            until_at(&mut host, before);
        }
        // Another one is not believed meanwhile.
        let other = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
        other.send_to(&whole_block(1, 20 + round), to).unwrap();
        let limit = Instant::now() + Duration::from_secs(60);
        while host.from_nobody() <= round {
            assert!(Instant::now() < limit, "the other one is believed");
            let soon = Instant::now() + Duration::from_millis(1);
            host.turn(Some(soon)).unwrap();
        }
        before = Some(socket);
    }
}

fn with_key(own: u64, peer: u64, secret: &[u8], life: u8) -> LtpDriver {
    let mut engine = Engine::new(EngineConfig::new(EngineId(own), [life; 32]));
    engine.open_service(1);
    let mut config = PeerConfig::new(Duration::ZERO, None);
    config.auth = starhaul_ltp::AuthKey::new(secret, b"");
    engine
        .add_peer(Instant::now(), EngineId(peer), config)
        .unwrap();
    LtpDriver::bind(([127, 0, 0, 1], 0).into(), IoMode::default(), engine).unwrap()
}

/// A signature does not tell when a segment was made: a host that has seen one can send it again.
#[test]
fn a_signed_segment_that_is_sent_again_moves_no_peer_that_speaks() {
    let mut two = with_key(2, 1, b"secret", 7);
    let mut one = with_key(1, 2, b"secret", 8);
    let [home, other] = [(); 2].map(|()| std::net::UdpSocket::bind("127.0.0.1:0").unwrap());
    let patience = Some(Duration::from_secs(60));
    home.set_read_timeout(patience).unwrap();
    one.set_address(EngineId(2), home.local_addr().unwrap());
    send(&mut one, 2);
    one.turn(Some(Instant::now())).unwrap();
    let mut signed = vec![0; 1 << 16];
    let length = home.recv(&mut signed).unwrap();
    signed.truncate(length);
    let to = two.local_addr();
    home.send_to(&signed, to).unwrap();
    until_at(&mut two, &home);
    for round in 1..3 {
        other.send_to(&signed, to).unwrap();
        until(&mut two, |two| two.from_nobody() == round);
        until_at(&mut two, &home);
        // It may be elsewhere when nothing comes from it, and is back with its next segment.
        fall_silent(&mut two);
        other.send_to(&signed, to).unwrap();
        until_at(&mut two, &other);
        // However long it is sent again from elsewhere.
        let silence = two.engine().moves_after(EngineId(1)).unwrap();
        for (_, since) in two.former.values_mut() {
            *since = since.checked_sub(silence).unwrap();
        }
        let before = two.heard[&EngineId(1)];
        other.send_to(&signed, to).unwrap();
        until(&mut two, |two| two.heard[&EngineId(1)] > before);
        home.send_to(&signed, to).unwrap();
        until_at(&mut two, &home);
    }
}

/// Behind NAT its former address is another host's some time after it has got another one.
#[test]
fn a_peer_that_has_stayed_elsewhere_is_not_heard_at_its_former_address() {
    let mut host = driver(2, 1);
    let to = host.local_addr();
    let [home, other] = [(); 2].map(|()| std::net::UdpSocket::bind("127.0.0.1:0").unwrap());
    home.send_to(&whole_block(1, 10), to).unwrap();
    until_at(&mut host, &home);
    fall_silent(&mut host);
    other.send_to(&whole_block(1, 11), to).unwrap();
    until_at(&mut host, &other);
    assert!(host.former.contains_key(&EngineId(1)));
    let silence = host.engine().moves_after(EngineId(1)).unwrap();
    for (_, since) in host.former.values_mut() {
        *since = since.checked_sub(silence).unwrap();
    }
    other.send_to(&acknowledgement(1), to).unwrap();
    until(&mut host, |host| host.former.is_empty());
    home.send_to(&acknowledgement(1), to).unwrap();
    until(&mut host, |host| host.from_nobody() == 1);
    until_at(&mut host, &other);
}

#[test]
fn an_address_is_believed_only_of_who_has_the_key() {
    let mut two = with_key(2, 1, b"secret", 7);
    let mut forger = with_key(1, 2, b"another", 7);
    forger.set_address(EngineId(2), two.local_addr());
    send(&mut forger, 2);
    for _ in 0..20 {
        for driver in [&mut forger, &mut two] {
            driver
                .turn(Some(Instant::now() + Duration::from_millis(1)))
                .unwrap();
        }
    }
    assert!(two.engine().stats().dropped.unauthenticated > 0);
    // Who has it may come from elsewhere after some silence, in another life or with another address.
    for life in [7, 8] {
        fall_silent(&mut two);
        let mut one = with_key(1, 2, b"secret", life);
        one.set_address(EngineId(2), two.local_addr());
        let session = send(&mut one, 2);
        until_sent(&mut [&mut one, &mut two], session);
    }
}

/// The end of a session by a timer is all that who waits for the last one can see.
#[test]
fn a_turn_ends_with_the_timer_that_ends_a_session() {
    let mut engine = Engine::new(EngineConfig::new(EngineId(1), [7; 32]));
    let mut config = PeerConfig::new(Duration::ZERO, None);
    (config.margin, config.retransmission_limit) = (Duration::from_millis(5), 0);
    engine
        .add_peer(Instant::now(), EngineId(2), config)
        .unwrap();
    let local = SocketAddr::from(([127, 0, 0, 1], 0));
    let mut driver = LtpDriver::bind(local, IoMode::default(), engine).unwrap();
    // No engine answers: its address is not known.
    send(&mut driver, 2);
    let limit = Instant::now() + Duration::from_secs(60);
    while driver.engine().sessions() != (0, 0) {
        driver.turn(Some(limit)).unwrap();
        while driver.poll_event().is_some() {}
    }
    assert!(Instant::now() < limit, "the turn waited for more");
}

/// The first address of a name may be one at which the peer does not listen.
#[test]
fn a_peer_is_found_at_whichever_of_its_addresses_it_is() {
    let mut host = host();
    let unused = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
    let elsewhere = unused.local_addr().unwrap();
    let mut guest = driver(1, 2);
    guest.set_addresses(EngineId(2), &[elsewhere, host.local_addr()]);
    let session = send(&mut guest, 2);
    guest.turn(Some(Instant::now())).unwrap();
    guest.try_next_address(EngineId(2));
    until_sent(&mut [&mut guest, &mut host], session);
    // It was heard: it is not sought elsewhere any more.
    guest.try_next_address(EngineId(2));
    assert_eq!(guest.addresses[&EngineId(2)], host.local_addr());
    assert_eq!(guest.engines.get(&elsewhere), None);
}
