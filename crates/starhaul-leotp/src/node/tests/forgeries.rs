//! What was sealed with another key, and what came before: it changes nothing, and is counted by its cause.

use super::*;
use crate::event::Refused;

const D: ContentId = ContentId([4; 16]);
const LENGTH: usize = 400_000;

/// A node that shares a key with none of the net, and its first hello.
struct Forger(Node, Vec<u8>);

impl Forger {
    const PEER: NeighbourId = NeighbourId(0);

    fn new(now: Instant) -> Self {
        let mut pair = [1_u8, 2].map(|seed| {
            let mut node = Node::new(now, NodeConfig::default(), [seed; 32]).unwrap();
            let key = NeighbourKey::new(&[66; 32]);
            node.add_neighbour(now, Self::PEER, NeighbourConfig { key })
                .unwrap();
            node
        });
        let mut hello = Vec::new();
        for millis in 0..100 {
            let now = now + MS * millis;
            for at in [0, 1] {
                pair[at].handle_timeout(now);
                let mut datagram = Vec::new();
                while pair[at].poll_transmit(now, &mut datagram).is_some() {
                    if hello.is_empty() {
                        hello.clone_from(&datagram);
                    }
                    pair[1 - at].handle_datagram(now, Self::PEER, &datagram);
                    datagram.clear();
                }
            }
        }
        let [node, _] = pair;
        assert!(node.has_met(Self::PEER) && crate::is_hello(&hello));
        Self(node, hello)
    }

    /// A packet under its own key.
    fn packet(&mut self, now: Instant, flags: u8, body: &[u8]) -> Vec<u8> {
        let mut datagram = Vec::new();
        let packet = RawPacket {
            flags,
            body,
            ..RawPacket::default()
        };
        assert!(self.0.write_raw(now, Self::PEER, &packet, &mut datagram));
        datagram
    }

    fn frame(&mut self, now: Instant, frame: Frame) -> Vec<u8> {
        let mut body = Vec::new();
        frame.write(&mut body);
        self.packet(now, CONTROL, &body)
    }
}

/// A server, a relay, and two requesters; the first of them has fetched [`C`], and Interests and data of that were recorded, by their ways.
struct Scene {
    net: Net,
    forger: Forger,
    recorded: BTreeMap<(u32, u32), Vec<Vec<u8>>>,
    /// What the relay and the server are to have refused.
    at_relay: Refused,
    at_server: Refused,
    strikes: usize,
}

/// What a relay counted but for refusals, knows of its neighbours' rates, holds, and has in its cache.
#[derive(Debug, PartialEq)]
struct State {
    stats: Stats,
    rates: Vec<[f64; 2]>,
    memory: (usize, usize),
    ranges: usize,
    cached: Option<Segment>,
}

impl Scene {
    fn new() -> Self {
        let mut net = Net::new(4, &[(0, 1), (1, 2), (1, 3)], &NodeConfig::default());
        for (content, byte) in [(C, 5), (D, 6)] {
            let bytes = Bytes::from(vec![byte; LENGTH]);
            net.node(0).serve(content, &secret(), Box::new(bytes));
        }
        for (from, to) in [(1, 0), (2, 1), (3, 1)] {
            net.route(from, to);
        }
        net.fetch(2, C);
        let mut recorded: BTreeMap<_, Vec<Vec<u8>>> = BTreeMap::new();
        for _ in 0..5000 {
            net.run(1);
            for (from, to, datagram) in &net.wire {
                let first = frames_of(datagram).first().copied();
                if range_of(datagram).is_some() || matches!(first, Some(Frame::Want { .. })) {
                    let way = recorded.entry((*from, *to)).or_default();
                    way.push(datagram.clone());
                }
            }
            if net.has_finished(2) {
                break;
            }
        }
        // All of it arrives.
        net.run(300);
        let [at_server, at_relay] = [0, 1].map(|id| net.node(id).stats().refused);
        Self {
            forger: Forger::new(net.now),
            net,
            recorded,
            at_relay,
            at_server,
            strikes: 0,
        }
    }

    /// A hello, rates, an Interest and data come from none of the neighbours, and Interests and data that came before.
    fn strike(&mut self) {
        let now = self.net.now;
        let slow = Frame::Rate {
            kbit: 1,
            greatest: 0,
        };
        let forged = [
            (2, self.forger.frame(now, slow)),
            (3, self.forger.frame(now, slow)),
            (2, self.forger.frame(now, want(D, 0, 0, 1 << 40))),
            (0, self.forger.packet(now, DATA, &segment(0, 0))),
            (2, self.forger.1.clone()),
        ];
        for (from, datagram) in forged {
            let relay = self.net.node(1);
            assert!(!relay.handle_datagram(now, NeighbourId(from), &datagram));
            self.at_relay.forged += 1;
        }
        for (from, to) in [(2, 1), (0, 1), (1, 0)] {
            let datagrams = &self.recorded[&(from, to)];
            let datagram = &datagrams[self.strikes % datagrams.len()];
            let node = self.net.nodes.get_mut(&to).unwrap();
            assert!(!node.handle_datagram(now, NeighbourId(from), datagram));
            let refused = match to {
                1 => &mut self.at_relay,
                _ => &mut self.at_server,
            };
            refused.replayed += 1;
        }
        self.strikes += 1;
    }

    fn state(&mut self) -> State {
        let relay = self.net.node(1);
        let hops = relay.hops.values();
        State {
            stats: Stats {
                refused: Refused::default(),
                ..relay.stats()
            },
            rates: hops.map(|hop| [hop.takes(), hop.measured_rate()]).collect(),
            memory: relay.memory(),
            ranges: relay.pending_ranges(),
            cached: relay.cache.first_in((C, false), 0, 1),
        }
    }

    /// How many milliseconds the second requester's transfer takes.
    fn second_transfer(&mut self, is_attacked: bool) -> u32 {
        self.net.fetch(3, D);
        for millis in 1..5000 {
            if is_attacked {
                self.strike();
            }
            self.net.run(1);
            if self.net.has_finished(3) {
                return millis;
            }
        }
        panic!("{:?}", self.net.node(3).stats());
    }
}

#[test]
fn forged_rates_and_data_and_replayed_interests_change_nothing() {
    let alone = Scene::new().second_transfer(false);
    let mut scene = Scene::new();
    let before = scene.state();
    assert!(before.cached.is_some(), "the relay keeps the first content");
    for _ in 0..200 {
        scene.strike();
    }
    assert_eq!(scene.state(), before);
    let attacked = scene.second_transfer(true);
    assert_eq!(scene.net.node(1).stats().refused, scene.at_relay);
    assert_eq!(scene.net.node(0).stats().refused, scene.at_server);
    println!("{attacked} ms, and {alone} ms alone");
    assert!(attacked <= alone + alone / 50, "{attacked} and {alone} ms");
}
