//! Peers that are not who they should be, or do not do what they should. Others must never notice.

use std::time::Instant;

use super::{
    net::{CLIENT, Net, Party, SERVER, client_address, client_config, path_spec, server_config},
    rogue::{Rogue, hello, open},
};
use crate::{
    CloseCode, Error, Identity, LocalId, Node, NodeConfig, NodeEvent,
    tls::ALPN,
    wire::{Message, SessionId, VERSION},
};

const LINK: &str = "rate=20mbit,delay=20ms";

/// A rogue client, connected `count` times, before an honest server.
fn rogue_net(config: NodeConfig, count: usize) -> Net {
    let start = Instant::now();
    let server = Party::new(Node::new(config, start).unwrap());
    let rogue = Party::Rogue(Box::new(Rogue::new(ALPN)));
    let mut net = Net::with_parties(1, start, rogue, server, &[LINK]);
    for _ in 0..count {
        let now = net.sim.now();
        net.rogue().connect(now);
    }
    net.run_ms(200);
    net
}

/// Opens a session over connection 0 and returns its number.
fn open_session(net: &mut Net) -> SessionId {
    net.rogue().say(0, &open(1, vec![VERSION]));
    net.run_ms(100);
    match net.rogue().answer(0) {
        Some(Message::Welcome { session, .. }) => {
            net.rogue().probe(0);
            net.run_ms(50);
            session
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_server_with_another_key_is_not_talked_to() {
    let mut net = Net::new(1, &[LINK, LINK]);
    let other = Identity::from_secret([9; 32]).public_key();
    net.connect_with(other, vec![path_spec(0), path_spec(1)]);
    net.run_ms(2000);
    assert_eq!(net.client().closed(), Some(Some(Error::WrongPeerKey)));
    assert!(net.server().events.is_empty(), "{:?}", net.server().events);
}

#[test]
fn what_comes_from_port_zero_gets_no_answer() {
    let start = Instant::now();
    let mut client = Node::new(client_config(), start).unwrap();
    client.add_local(LocalId(0), false);
    let peer = server_config().identity.public_key();
    client.connect(start, peer, vec![path_spec(0)]).unwrap();
    let first = client.poll_transmit(start).expect("the first packet");
    for port in [1000, 0] {
        let mut server = Node::new(server_config(), start).unwrap();
        server.add_local(LocalId(0), true);
        let from = std::net::SocketAddr::from(([10, 0, 0, 1], port));
        let payload = first.contents[..].into();
        server.handle_datagram(start, LocalId(0), from, 0, payload);
        let answer = server.poll_transmit(start);
        assert_eq!(answer.is_some(), port != 0, "from port {port}");
    }
}

/// An answer of many versions to a few bytes would flood whose address was forged.
#[test]
fn a_short_packet_of_another_version_gets_no_answer() {
    let start = Instant::now();
    for (bytes, is_answered) in [(7, false), (1199, false), (1200, true)] {
        let mut server = Node::new(server_config(), start).unwrap();
        server.add_local(LocalId(0), true);
        let mut payload = vec![0; bytes];
        payload[..7].copy_from_slice(&[0xc0, 1, 2, 3, 4, 0, 0]);
        let from = std::net::SocketAddr::from(([10, 0, 0, 1], 1000));
        server.handle_datagram(start, LocalId(0), from, 0, payload[..].into());
        let answer = server.poll_transmit(start);
        assert_eq!(answer.is_some(), is_answered, "{bytes} bytes");
    }
}

/// Connections that had joined and end wait for late packets; new ones have places meanwhile.
#[test]
fn connections_that_end_take_no_place_of_handshakes() {
    let mut config = server_config();
    (config.max_handshakes, config.max_handshakes_per_source) = (4, 4);
    let mut net = rogue_net(config, 1);
    let session = open_session(&mut net);
    let key = net.rogue().session_key(0);
    for path in 1..5 {
        let now = net.sim.now();
        let conn = net.rogue().connect(now);
        net.run_ms(100);
        let join = net.rogue().join(conn, &key, session, path).encode();
        net.rogue().say(conn, &join);
        net.run_ms(100);
        net.rogue().probe(conn);
        net.run_ms(50);
    }
    assert_eq!(net.up(SERVER).len(), 5);
    let now = net.sim.now();
    let handle = net.session;
    net.server().node.close(now, handle, "over");
    let late = net.rogue().connect(now);
    net.run_ms(60);
    assert_eq!(net.rogue().refused(late), None);
    net.rogue().say(late, &open(2, vec![VERSION]));
    net.run_ms(200);
    assert!(
        net.rogue().answer(late).is_some(),
        "{:?}",
        net.rogue().lost(late)
    );
}

#[test]
fn a_client_whose_key_is_not_trusted_is_told_so() {
    let start = Instant::now();
    let mut config = client_config();
    config.identity = Identity::from_secret([9; 32]);
    let client = Party::new(Node::new(config, start).unwrap());
    let server = Party::new(Node::new(server_config(), start).unwrap());
    let mut net = Net::with_parties(1, start, client, server, &[LINK]);
    net.connect();
    net.run_ms(2000);
    assert_eq!(net.client().closed(), Some(Some(Error::NotTrusted)));
    assert!(!net.client().connected());
    let key = Identity::from_secret([9; 32]).public_key();
    let told = &net.server().events;
    assert!(
        matches!(told[..], [NodeEvent::Refused { remote, key: refused }] if remote == client_address(0) && refused == key),
        "{told:?}"
    );
}

#[test]
fn a_peer_of_another_protocol_is_told_so() {
    let start = Instant::now();
    let server = Party::new(Node::new(server_config(), start).unwrap());
    let rogue = Party::Rogue(Box::new(Rogue::new(b"starhaul/99")));
    let mut net = Net::with_parties(1, start, rogue, server, &[LINK]);
    net.rogue().connect(start);
    net.run_ms(500);
    let lost = net.rogue().lost(0).expect("refused");
    assert_eq!(
        crate::error::from_connection_error(lost),
        Error::VersionMismatch
    );
}

#[test]
fn a_peer_of_another_version_is_refused() {
    let mut net = rogue_net(server_config(), 1);
    net.rogue().say(0, &open(1, vec![VERSION + 1, 77]));
    net.run_ms(200);
    assert_eq!(net.rogue().refused(0), Some(CloseCode::Version));
    assert!(net.server().events.is_empty());
}

#[test]
fn a_join_is_accepted_once_and_on_its_own_connection_only() {
    let mut net = rogue_net(server_config(), 4);
    let session = open_session(&mut net);
    let key = net.rogue().session_key(0);
    let join = net.rogue().join(1, &key, session, 1).encode();
    net.rogue().say(1, &join);
    // Replayed on another connection, and there with another path's number.
    net.rogue().say(2, &join);
    let other = net.rogue().join(3, &key, session, 2);
    let Message::Join { token, .. } = other else {
        panic!("{other:?}")
    };
    let moved = Message::Join {
        session,
        token,
        hello: hello(3),
    };
    net.rogue().say(3, &moved.encode());
    net.run_ms(200);
    assert_eq!(net.rogue().answer(1), Some(Message::Accept));
    net.rogue().probe(1);
    net.run_ms(50);
    assert_eq!(net.rogue().refused(2), Some(CloseCode::BadToken));
    assert_eq!(net.rogue().refused(3), Some(CloseCode::BadToken));
    assert_eq!(net.up(SERVER), [0, 1]);

    // A second JOIN on the accepted connection costs that path, not the session.
    net.rogue().say(1, &join);
    net.run_ms(200);
    assert_eq!(net.rogue().refused(1), Some(CloseCode::JoinViolation));
    assert_eq!(net.up(SERVER), [0]);
    assert_eq!(net.server().closed(), None);
}

#[test]
fn a_key_of_another_session_does_not_join() {
    let mut net = rogue_net(server_config(), 3);
    let session = open_session(&mut net);
    net.rogue().say(1, &open(2, vec![VERSION]));
    net.run_ms(100);
    let key = net.rogue().session_key(1);
    let forged = net.rogue().join(2, &key, session, 5).encode();
    net.rogue().say(2, &forged);
    net.run_ms(200);
    assert_eq!(net.rogue().refused(2), Some(CloseCode::BadToken));
    assert_eq!(net.server().accepted().len(), 2);
    assert_eq!(net.up(SERVER), [0]);
}

#[test]
fn an_unknown_session_is_not_joined() {
    let mut net = rogue_net(server_config(), 1);
    let key = net.rogue().session_key(0);
    let join = net.rogue().join(0, &key, [7; 16], 0).encode();
    net.rogue().say(0, &join);
    net.run_ms(200);
    assert_eq!(net.rogue().refused(0), Some(CloseCode::UnknownSession));
}

#[test]
fn a_second_open_on_one_connection_is_a_violation() {
    let mut net = rogue_net(server_config(), 1);
    open_session(&mut net);
    net.rogue().say(0, &open(2, vec![VERSION]));
    net.run_ms(200);
    assert_eq!(net.rogue().refused(0), Some(CloseCode::JoinViolation));
    assert_eq!(net.server().accepted().len(), 1);
}

#[test]
fn garbage_on_the_control_stream_closes_its_connection() {
    let floods = [
        vec![0xff; 4000],
        vec![0; 2],
        vec![0, 1, 99],
        vec![0, 3, 4, 4, 4],
    ];
    let mut net = rogue_net(server_config(), floods.len());
    for (conn, garbage) in floods.iter().enumerate() {
        net.rogue().say(conn, garbage);
    }
    net.run_ms(200);
    for conn in 0..floods.len() {
        assert_eq!(net.rogue().refused(conn), Some(CloseCode::JoinViolation));
    }
    assert!(net.server().events.is_empty());
}

#[test]
fn a_connection_that_says_nothing_is_closed() {
    let mut net = rogue_net(server_config(), 1);
    net.run_ms(4500);
    assert_eq!(net.rogue().refused(0), None);
    net.run_ms(1500);
    assert_eq!(net.rogue().refused(0), Some(CloseCode::JoinTimeout));
}

#[test]
fn sessions_and_paths_are_bounded() {
    let mut config = server_config();
    config.max_sessions = 1;
    let mut net = rogue_net(config, crate::MAX_PATHS + 2);
    let session = open_session(&mut net);
    net.rogue().say(1, &open(2, vec![VERSION]));
    let key = net.rogue().session_key(0);
    for conn in 2..crate::MAX_PATHS + 2 {
        let path = u32::try_from(conn).unwrap();
        let join = net.rogue().join(conn, &key, session, path).encode();
        net.rogue().say(conn, &join);
    }
    net.run_ms(300);
    for conn in 2..crate::MAX_PATHS + 2 {
        if net.rogue().lost(conn).is_none() {
            net.rogue().probe(conn);
        }
    }
    net.run_ms(50);
    assert_eq!(net.rogue().refused(1), Some(CloseCode::TooManySessions));
    assert_eq!(net.up(SERVER).len(), crate::MAX_PATHS);
    let refused = (2..crate::MAX_PATHS + 2)
        .filter(|&conn| net.rogue().refused(conn) == Some(CloseCode::TooManyPaths));
    assert_eq!(refused.count(), 1);
}

#[test]
fn a_flood_of_connections_is_bounded_and_an_honest_client_still_gets_in() {
    let mut net = rogue_net(server_config(), 400);
    net.run_ms(1000);
    let alive = (0..400).filter(|&conn| net.rogue().lost(conn).is_none());
    assert!(alive.count() <= 256);
    // The silent ones time out.
    net.run_ms(6000);
    let now = net.sim.now();
    let late = net.rogue().connect(now);
    net.run_ms(300);
    net.rogue().say(late, &open(1, vec![VERSION]));
    net.run_ms(200);
    assert!(net.rogue().answer(late).is_some());
}

#[test]
fn a_session_that_breaks_the_protocol_ends_and_others_do_not() {
    let mut net = rogue_net(server_config(), 2);
    open_session(&mut net);
    net.rogue().say(1, &open(2, vec![VERSION]));
    net.run_ms(200);
    net.rogue().probe(1);
    net.rogue().send_datagram(0, b"\xff\xff");
    net.run_ms(200);
    assert_eq!(net.rogue().refused(0), Some(CloseCode::SessionViolation));
    assert_eq!(net.rogue().refused(1), None);
    assert!(matches!(
        net.server().closed(),
        Some(Some(Error::PeerViolation(_)))
    ));
    net.session = crate::SessionHandle(1);
    assert_eq!(net.up(SERVER), [0]);
}

#[test]
fn random_packets_do_no_harm() {
    use rand_chacha::rand_core::{RngCore as _, SeedableRng as _};
    let mut rng = rand_chacha::ChaCha12Rng::seed_from_u64(5);
    let mut net = Net::new(1, &[LINK]);
    net.connect();
    net.run_ms(300);
    for _ in 0..3000 {
        let mut packet = vec![0; usize::try_from(rng.next_u32() % 1500).unwrap()];
        rng.fill_bytes(&mut packet);
        if rng.next_u32().is_multiple_of(2) && packet.len() > 5 {
            // Looks like the first packet of a QUIC version 1 connection.
            packet[0] |= 0xc0;
            packet[1..5].copy_from_slice(&[0, 0, 0, 1]);
        }
        let now = net.sim.now();
        let from = super::net::client_address(0);
        let local = crate::LocalId(0);
        let payload = bytes::BytesMut::from(&packet[..]);
        net.server()
            .node
            .handle_datagram(now, local, from, 0, payload);
        net.run_ms(1);
    }
    assert_eq!((net.up(CLIENT), net.up(SERVER)), (vec![0], vec![0]));
    assert_eq!(net.server().accepted().len(), 1);
}
