//! A node of a chain that has carried more packets than 16 bits number begins a new life, in virtual time: its neighbours find it
//! again, and the transfer goes on. And a relay vanishes: those beside it find each other.

use std::time::{Duration, Instant};

use bytes::Bytes;
use starhaul_leotp::{
    ContentId, ContentSecret, Event, FetchConfig, FetchId, NeighbourConfig, NeighbourId,
    NeighbourKey, Node, NodeConfig,
};
use starhaul_link::LinkSpec;
use starhaul_sim::{NodeId, PathLinks, Simulation};

use crate::acting::{acts, address};

const CONTENT: ContentId = ContentId([1; 16]);
const HOPS: u16 = 3;
const HOP: &str = "rate=100mbit,delay=5ms,loss=0.1%,queue=200p";
const HOP_RTT: Duration = Duration::from_millis(10);
const LENGTH: u64 = 110_000_000;
/// Of the first life: 1418 bytes of the content go into one packet.
const FIRST_PACKETS: u64 = 1 << 16;
/// What comes before a relay vanishes, and so much again afterwards.
const BEFORE: u64 = 10_000_000;

struct Host {
    node: Node,
    fetch: Option<FetchId>,
    /// How many bytes of the content have come, and when the last.
    got: u64,
    came: Instant,
    longest_pause: Duration,
    finished: bool,
}

impl Host {
    fn new(node: Node, now: Instant) -> Self {
        Self {
            node,
            fetch: None,
            got: 0,
            came: now,
            longest_pause: Duration::ZERO,
            finished: false,
        }
    }

    fn fetch(&mut self, now: Instant) {
        let config = FetchConfig {
            start: self.got,
            ..FetchConfig::new(CONTENT, secret())
        };
        self.fetch = Some(self.node.fetch(now, config));
    }

    fn act(&mut self, now: Instant) {
        while let Some(event) = self.node.poll_event() {
            match event {
                Event::Finished(_) => self.finished = true,
                Event::Failed(_, why) => panic!("{why}"),
                _ => {}
            }
        }
        while let Some(data) = self.fetch.and_then(|fetch| self.node.read(now, fetch)) {
            let from = self.got;
            let right = data
                .iter()
                .zip(from..)
                .all(|(byte, at)| *byte == content(at));
            assert!(right, "other bytes from {from} on");
            self.got += data.len() as u64;
            self.longest_pause = self.longest_pause.max(now.duration_since(self.came));
            self.came = now;
        }
    }
}

acts!(Host);

fn secret() -> ContentSecret {
    ContentSecret::new(&[8; 32])
}

fn content(at: u64) -> u8 {
    (at.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 40).to_le_bytes()[0]
}

/// What neighbours over this hop share; the first is between nodes 1 and 2.
fn key(hop: u16) -> NeighbourConfig {
    NeighbourConfig {
        key: NeighbourKey::new(&[hop.to_le_bytes()[0]; 32]),
    }
}

/// A node of a chain of so many in its `life`: 1 serves, the others ask the one before them.
fn node(now: Instant, number: u16, nodes: u16, life: u8) -> Node {
    let mut random = [life; 32];
    random[..2].copy_from_slice(&number.to_le_bytes());
    let mut node = Node::new(now, NodeConfig::default(), random).unwrap();
    let mut meet = |neighbour: u16, hop: u16| {
        let id = NeighbourId(neighbour.into());
        node.add_neighbour(now, id, key(hop)).unwrap();
        id
    };
    let up = (number > 1).then(|| meet(number - 1, number - 1));
    if number < nodes {
        meet(number + 1, number);
    }
    node.set_upstream(now, up);
    if number == 1 {
        let text: Vec<u8> = (0..LENGTH).map(content).collect();
        node.serve(CONTENT, &secret(), Box::new(Bytes::from(text)));
    }
    node
}

/// A chain of so many nodes whose last one fetches from the first, with the links of each hop.
fn chain(seed: u64, nodes: u16) -> (Simulation<Host>, Vec<PathLinks>) {
    let start = Instant::now();
    let mut sim = Simulation::new(seed, start);
    for number in 1..=nodes {
        let id = sim.add_node(Host::new(node(start, number, nodes, 1), start));
        sim.network.bind(id, 0, address(number.into()));
    }
    let spec: LinkSpec = HOP.parse().unwrap();
    let connect = |at: u32| {
        let (here, there) = (address(at), address(at + 1));
        sim.network.connect(here, there, &spec, &spec)
    };
    let links = (1..u32::from(nodes)).map(connect).collect();
    sim.nodes.last_mut().unwrap().fetch(start);
    (sim, links)
}

/// The longest pause that a path of so many hops may have: two of its round trips and 100 ms.
fn most_pause(hops: u16) -> Duration {
    HOP_RTT * u32::from(hops) * 2 + Duration::from_millis(100)
}

/// The longest pause between two arrivals in order, if node `restarted` begins a new life on the way.
fn longest_pause(restarted: u16) -> Duration {
    let (mut sim, _) = chain(restarted.into(), HOPS + 1);
    let mut is_second_life = false;
    while !sim.nodes.last().unwrap().finished {
        sim.run_for(Duration::from_millis(5));
        assert!(
            sim.elapsed() < Duration::from_secs(30),
            "{} bytes came",
            sim.nodes.last().unwrap().got
        );
        let got = sim.nodes.last().unwrap().got;
        if !is_second_life && got > FIRST_PACKETS * 1418 {
            is_second_life = true;
            let now = sim.now();
            let host = &mut sim.nodes[usize::from(restarted) - 1];
            host.node = node(now, restarted, HOPS + 1, 2);
            if host.fetch.is_some() {
                host.fetch(now);
            }
        }
    }
    let requester = sim.nodes.last().unwrap();
    assert_eq!((requester.got, is_second_life), (LENGTH, true));
    requester.longest_pause
}

#[test]
fn a_node_that_restarts_after_many_packets_is_found_again() {
    for restarted in 1..=HOPS + 1 {
        let pause = longest_pause(restarted);
        println!("node {restarted}: {pause:?}");
        assert!(pause <= most_pause(HOPS), "node {restarted}: {pause:?}");
    }
}

/// The longest pause between two arrivals in order, if the relay beside the server vanishes from a chain of so many nodes, and does not come back.
/// As where a relay in the way ends, what is sent to it comes to the server then, which has the same key, and knows nothing of its neighbour.
fn longest_pause_without_relay(nodes: u16) -> Duration {
    const SERVER: NodeId = NodeId(0);
    let (mut sim, links) = chain(nodes.into(), nodes);
    let (relay, behind) = (address(2), address(3));
    let start = sim.now();
    let server = &mut sim.nodes[SERVER.0].node;
    server.add_neighbour(start, NeighbourId(3), key(2)).unwrap();
    let mut is_gone = false;
    loop {
        sim.run_for(Duration::from_millis(5));
        let got = sim.nodes.last().unwrap().got;
        assert!(
            sim.elapsed() < Duration::from_secs(30),
            "{got} bytes came, seed {nodes}"
        );
        if !is_gone && got > BEFORE {
            is_gone = true;
            // The relay has no address any more, and the server has the relay's: nothing else hears of it.
            sim.network.bind(SERVER, 0, relay);
            let [there, back] = [
                [links[0].forward, links[1].forward],
                [links[1].backward, links[0].backward],
            ];
            sim.network.set_route(relay, behind, &there);
            sim.network.set_route(behind, relay, &back);
        }
        if got > 2 * BEFORE {
            return sim.nodes.last().unwrap().longest_pause;
        }
    }
}

/// Beside the requester, and beside another relay.
#[test]
fn a_relay_that_vanishes_interrupts_no_longer_than_one_that_restarts() {
    for nodes in [3, 4] {
        let pause = longest_pause_without_relay(nodes);
        println!("{nodes} nodes: {pause:?}");
        assert!(pause <= most_pause(nodes - 1), "{nodes} nodes: {pause:?}");
    }
}
