//! A socket that listens at all addresses of its host: each peer is answered from the one that it sends to.

use std::{
    net::{IpAddr, SocketAddr},
    time::{Duration, Instant},
};

use bytes::BytesMut;
use starhaul_session::StreamConfig;

use super::net::{client_address, client_config, path_spec, server_address, server_config};
use crate::{LocalId, Node, NodeEvent, Transmit};

const SOCKET: LocalId = LocalId(0);

fn ip(last: u8) -> IpAddr {
    [10, 0, 0, last].into()
}

/// A client and a server that hears it at one of its addresses, a millisecond apart.
struct Two {
    now: Instant,
    client: Node,
    server: Node,
    /// Where the client's packets arrive.
    asked: IpAddr,
    /// The client's last packet of the session.
    last: BytesMut,
}

impl Two {
    fn new(most_handshakes: usize) -> Self {
        let now = Instant::now();
        let mut config = server_config();
        config.max_handshakes = most_handshakes;
        let mut client = Node::new(client_config(), now).unwrap();
        let mut server = Node::new(config, now).unwrap();
        client.add_local(SOCKET, false);
        server.add_local(SOCKET, true);
        let peer = server_config().identity.public_key();
        client.connect(now, peer, vec![path_spec(0)]).unwrap();
        Self {
            now,
            client,
            server,
            asked: ip(2),
            last: BytesMut::new(),
        }
    }

    fn give_server(&mut self, from: SocketAddr, to: IpAddr, payload: BytesMut) {
        let between = (from, Some(to));
        self.server
            .handle_datagrams(self.now, SOCKET, between, 0, [payload]);
    }

    /// Runs for so many milliseconds; returns from where the server sent.
    fn run_ms(&mut self, millis: u32) -> Vec<Option<IpAddr>> {
        let payloads = |batch: &Transmit| -> Vec<BytesMut> {
            let chunks = batch.contents.chunks(batch.segment_size.max(1));
            chunks.map(BytesMut::from).collect()
        };
        let mut sources = Vec::new();
        for _ in 0..millis {
            while let Some(batch) = self.client.poll_transmit(self.now) {
                for payload in payloads(&batch) {
                    self.last.clone_from(&payload);
                    self.give_server(client_address(0), self.asked, payload);
                }
            }
            while let Some(batch) = self.server.poll_transmit(self.now) {
                sources.push(batch.source);
                for payload in payloads(&batch) {
                    let from = server_address(0);
                    self.client
                        .handle_datagram(self.now, SOCKET, from, 0, payload);
                }
            }
            self.now += Duration::from_millis(1);
            for node in [&mut self.client, &mut self.server] {
                if node.poll_timeout().is_some_and(|at| at <= self.now) {
                    node.handle_timeout(self.now);
                }
            }
        }
        sources
    }
}

#[test]
fn answers_leave_from_the_address_that_the_peer_asks_and_not_where_others_send_in_its_name() {
    let mut two = Two::new(16);
    let sources = two.run_ms(3000);
    assert!(sources.len() > 5, "{sources:?}");
    assert!(sources.iter().all(|source| *source == Some(ip(2))));
    let Some(NodeEvent::Accepted { session, .. }) = two.server.poll_event() else {
        panic!("no session");
    };

    let mut changed = two.last.clone();
    let end = changed.len() - 1;
    changed[end] ^= 1;
    let forgeries = [BytesMut::from(&[7][..]), changed, two.last.clone()];
    for forgery in forgeries {
        two.give_server(client_address(0), ip(3), forgery.clone());
        // The server sends before the client does.
        let theirs = two.server.session(session).unwrap();
        theirs
            .open_stream(two.now, StreamConfig::default())
            .unwrap();
        let sources = two.run_ms(3000);
        assert!(
            !sources.is_empty() && sources.iter().all(|source| *source == Some(ip(2))),
            "after {} bytes to another address: {sources:?}",
            forgery.len()
        );
    }

    // What stands before the host sends the peer's packets to another of its addresses.
    two.asked = ip(4);
    let sources = two.run_ms(3000);
    assert_eq!(sources.last(), Some(&Some(ip(4))), "{sources:?}");
    while let Some(event) = two.server.poll_event() {
        assert!(!matches!(event, NodeEvent::PathDown { .. }), "{event:?}");
    }
}

#[test]
fn who_is_refused_hears_it_from_the_address_that_it_asked() {
    let sources = Two::new(0).run_ms(10);
    assert_eq!(sources.first(), Some(&Some(ip(2))));
}
