//! What one host or one key may hold of a server, so that others still get in.

use std::time::{Duration, Instant};

use starhaul_sim::NodeId;

use super::{
    net::{CLIENT, Net, Party, client_identity, server_address, server_config},
    rogue::{Rogue, open},
};
use crate::{
    CloseCode, Error, Identity, Node, NodeConfig, NodeEvent, SessionHandle,
    tls::ALPN,
    wire::{Message, VERSION},
};

const LINK: &str = "rate=20mbit,delay=20ms";
/// The socket of a second host.
const ELSEWHERE: u32 = 9;

fn other_identity() -> Identity {
    Identity::from_secret([7; 32])
}

/// A server that trusts two keys, and a rogue client with both of them, on two hosts.
fn rogue_net(mut config: NodeConfig) -> Net {
    config.trusted = vec![
        client_identity().public_key(),
        other_identity().public_key(),
    ];
    let start = Instant::now();
    let server = Party::new(Node::new(config, start).unwrap());
    let rogue = Party::Rogue(Box::new(Rogue::new(ALPN)));
    let mut net = Net::with_parties(1, start, rogue, server, &[LINK]);
    let (elsewhere, links) = ("10.99.0.1:1000".parse().unwrap(), net.links[0]);
    let network = &mut net.sim.network;
    network.bind(NodeId(CLIENT), ELSEWHERE, elsewhere);
    network.set_route(elsewhere, server_address(0), &[links.forward]);
    network.set_route(server_address(0), elsewhere, &[links.backward]);
    net
}

/// Connects as `identity` from `local` and asks for a session; whether the server let it in.
fn gets_in(net: &mut Net, identity: &Identity, local: u32, nonce: u8) -> bool {
    let now = net.sim.now();
    let conn = net.rogue().connect_as(now, identity, local);
    net.run_ms(200);
    if net.rogue().lost(conn).is_some() {
        return false;
    }
    net.rogue().say(conn, &open(nonce, vec![VERSION]));
    net.run_ms(200);
    matches!(net.rogue().answer(conn), Some(Message::Welcome { .. }))
}

/// Sessions that ended at the server, in order, and why.
fn ended(net: &mut Net) -> Vec<(SessionHandle, Option<Error>)> {
    let events = net.server().events.iter();
    let ended = events.filter_map(|event| match event {
        NodeEvent::Closed { session, error, .. } => Some((*session, error.clone())),
        _ => None,
    });
    ended.collect()
}

#[test]
fn one_host_cannot_hold_every_handshake() {
    let mut net = rogue_net(server_config());
    for _ in 0..400 {
        let now = net.sim.now();
        net.rogue().connect(now);
    }
    net.run_ms(1000);
    let alive = (0..400).filter(|&conn| net.rogue().lost(conn).is_none());
    assert!(alive.count() <= 32);
    assert_eq!(net.server().node.refused_handshakes(), 400 - 32);
    assert!(gets_in(&mut net, &client_identity(), ELSEWHERE, 1));
    // Its own host is let in again when the silent ones have timed out.
    net.run_ms(6000);
    assert!(gets_in(&mut net, &client_identity(), 0, 2));
}

#[test]
fn one_key_cannot_hold_every_session() {
    let mut config = server_config();
    config.max_sessions = 8;
    config.max_sessions_per_peer = 6;
    let mut net = rogue_net(config);
    let held = (1..=8).filter(|nonce| gets_in(&mut net, &client_identity(), 0, *nonce));
    assert_eq!(held.count(), 6);
    assert_eq!(net.rogue().refused(7), Some(CloseCode::TooManySessions));
    assert!(gets_in(&mut net, &other_identity(), ELSEWHERE, 20));
    assert_eq!(ended(&mut net), [], "those that live are left alone");
}

#[test]
fn a_new_session_displaces_the_oldest_dead_one_of_its_key() {
    let mut config = server_config();
    config.max_sessions = 8;
    config.max_sessions_per_peer = 3;
    // What lives is heard of each second.
    config.session.keepalive = Duration::from_secs(1);
    let mut net = rogue_net(config);
    // One of another key, dead for longer than all others.
    assert!(gets_in(&mut net, &other_identity(), ELSEWHERE, 9));
    net.rogue().vanish(0);
    for nonce in 1..=3 {
        assert!(gets_in(&mut net, &client_identity(), 0, nonce));
    }
    net.rogue().vanish(3);
    net.run_ms(1000);
    net.rogue().vanish(2);
    assert!(
        !gets_in(&mut net, &client_identity(), 0, 4),
        "who was heard of just now is not dead"
    );
    net.run_ms(3000);
    assert!(gets_in(&mut net, &client_identity(), 0, 5));
    assert_eq!(
        ended(&mut net),
        [(SessionHandle(3), Some(Error::Displaced))]
    );
    assert!(gets_in(&mut net, &client_identity(), 0, 6));
    let gone: Vec<_> = ended(&mut net)
        .into_iter()
        .map(|(session, _)| session)
        .collect();
    assert_eq!(gone, [SessionHandle(3), SessionHandle(2)]);
    assert!(
        !gets_in(&mut net, &client_identity(), 0, 7),
        "the others live"
    );
}

/// Both ends are idle and probe each other every five seconds only.
#[test]
fn a_session_that_is_idle_is_not_taken_for_dead() {
    for keepalive in [5, 60] {
        let mut config = server_config();
        config.max_sessions = 8;
        config.max_sessions_per_peer = 3;
        config.session.keepalive = Duration::from_secs(keepalive);
        let mut net = rogue_net(config);
        for nonce in 1..=3 {
            assert!(gets_in(&mut net, &client_identity(), 0, nonce));
        }
        for (nonce, second) in (10..).zip([20, 2, 1, 3, 4, 1]) {
            net.run_ms(second * 1000);
            let alive = (0..3).all(|conn| net.rogue().lost(conn).is_none());
            assert!(!gets_in(&mut net, &client_identity(), 0, nonce));
            assert!(alive && ended(&mut net).is_empty(), "keepalive {keepalive}");
        }
    }
}

/// A client that is killed and started again four times a second, its key the only one of many.
#[test]
fn a_client_that_restarts_all_the_time_locks_nobody_out() {
    let mut config = server_config();
    config.max_sessions = 32;
    config.max_sessions_per_peer = 8;
    let mut net = rogue_net(config);
    for round in 0..80 {
        let now = net.sim.now();
        let conn = net.rogue().connect(now);
        net.run_ms(100);
        if net.rogue().lost(conn).is_none() {
            net.rogue().say(conn, &open(round, vec![VERSION]));
        }
        net.run_ms(150);
        net.rogue().vanish(conn);
    }
    assert!(gets_in(&mut net, &other_identity(), ELSEWHERE, 200));
    net.run_ms(4000);
    assert!(gets_in(&mut net, &client_identity(), 0, 201), "nor itself");
}
