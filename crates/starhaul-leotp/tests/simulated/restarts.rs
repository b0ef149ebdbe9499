//! A node of a chain that has carried more packets than 16 bits number begins a new life, in virtual time: its neighbours find it
//! again, and the transfer goes on; so it does when the node was away for long, with a new life or its old one. And a relay vanishes,
//! or appears: those beside it find each other.

use std::{
    sync::LazyLock,
    time::{Duration, Instant},
};

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
/// The same for a node that is away for a while.
const BETWEEN: u64 = 2_000_000;
/// How long nodes are away, in milliseconds: less than packets are remembered, and longer than Interests of relays wait to be passed on again.
const AWAY_MILLIS: [u64; 6] = [300, 1000, 2500, 3500, 5000, 10_000];

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
        static TEXT: LazyLock<Bytes> = LazyLock::new(|| (0..LENGTH).map(content).collect());
        node.serve(CONTENT, &secret(), Box::new(TEXT.clone()));
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

/// A node begins a new life; the requester goes on where it was.
fn begin_second_life(sim: &mut Simulation<Host>, number: u16) {
    let now = sim.now();
    let host = &mut sim.nodes[usize::from(number) - 1];
    host.node = node(now, number, HOPS + 1, 2);
    if host.fetch.is_some() {
        host.fetch(now);
    }
}

/// Runs until more than this of the content has come.
fn run_until_more_than(sim: &mut Simulation<Host>, most: u64, what: &str) {
    let start = sim.elapsed();
    loop {
        let got = sim.nodes.last().unwrap().got;
        if got > most {
            return;
        }
        let took = sim.elapsed() - start;
        assert!(took < Duration::from_secs(30), "{what}: {got} bytes came");
        sim.run_for(Duration::from_millis(1));
    }
}

/// When the next data come in order after a node was away for so long, from its return on; the rest of them come, too.
fn resumes_after(away: u16, gap: Duration, is_new_life: bool) -> Duration {
    let what = format!("node {away} away for {gap:?}, new life: {is_new_life}");
    let (mut sim, links) = chain(u64::from(away) + 10, HOPS + 1);
    run_until_more_than(&mut sim, BETWEEN, &what);
    let number = usize::from(away);
    let beside: Vec<PathLinks> = links.into_iter().skip(number.max(2) - 2).collect();
    // The first and the last node have one neighbour.
    let count = if (2..=HOPS).contains(&away) { 2 } else { 1 };
    for path in beside.iter().take(count) {
        let now = sim.now();
        sim.network.cut(now, *path);
    }
    sim.run_for(gap);
    for path in beside.iter().take(count) {
        let now = sim.now();
        sim.network.restore(now, *path);
    }
    if is_new_life {
        begin_second_life(&mut sim, away);
    }
    let (returned, got) = (sim.now(), sim.nodes.last().unwrap().got);
    run_until_more_than(&mut sim, got, &what);
    let resumed = sim.nodes.last().unwrap().came - returned;
    run_until_more_than(&mut sim, got + BETWEEN, &what);
    resumed
}

/// A requester whose relay came back with a new life after some seconds took all that it had asked for to be under way, and its timer lasted as long as the
/// outage had. One whose relay came back as it was waited for its timer in any case.
#[test]
fn a_node_that_was_away_interrupts_no_longer_than_until_it_is_back() {
    for is_new_life in [true, false] {
        for gap in AWAY_MILLIS.map(Duration::from_millis) {
            for away in 1..=HOPS + 1 {
                let resumed = resumes_after(away, gap, is_new_life);
                println!("node {away}, {gap:?}, new life {is_new_life}: {resumed:?}");
                assert!(
                    resumed <= most_pause(HOPS),
                    "node {away} away for {gap:?}, new life {is_new_life}: {resumed:?}"
                );
            }
        }
    }
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
            begin_second_life(&mut sim, restarted);
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

/// The longest pause between two arrivals in order, if a relay appears between the server of a chain of so many nodes and the node that asked it: what is
/// sent to the server comes to the relay then, as where it intercepts, and the relay has the key of either hop.
fn longest_pause_with_relay(nodes: u16) -> Duration {
    const SERVER: NodeId = NodeId(0);
    let start = Instant::now();
    let mut sim = Simulation::new(u64::from(nodes) + 20, start);
    // The relay is the second of them, and not there yet: the server stands in its place, with its key.
    for number in (1..=nodes).filter(|number| *number != 2) {
        let id = sim.add_node(Host::new(node(start, number, nodes, 1), start));
        sim.network.bind(id, 0, address(number.into()));
    }
    sim.network.bind(SERVER, 0, address(2));
    let server = &mut sim.nodes[SERVER.0].node;
    server.add_neighbour(start, NeighbourId(3), key(2)).unwrap();
    let spec: LinkSpec = HOP.parse().unwrap();
    let connect = |at: u32| {
        let (here, there) = (address(at), address(at + 1));
        sim.network.connect(here, there, &spec, &spec)
    };
    let links: Vec<PathLinks> = (1..u32::from(nodes)).map(connect).collect();
    let (relay, behind) = (address(2), address(3));
    let [there, back] = [
        [links[0].forward, links[1].forward],
        [links[1].backward, links[0].backward],
    ];
    sim.network.set_route(relay, behind, &there);
    sim.network.set_route(behind, relay, &back);
    let requester = sim.nodes.len() - 1;
    sim.nodes[requester].fetch(start);
    let mut is_there = false;
    loop {
        sim.run_for(Duration::from_millis(5));
        let got = sim.nodes[requester].got;
        assert!(
            sim.elapsed() < Duration::from_secs(30),
            "{got} bytes came, seed {}",
            nodes + 20
        );
        if !is_there && got > BEFORE {
            is_there = true;
            sim.nodes[requester].longest_pause = Duration::ZERO;
            let now = sim.now();
            // The server has its own address again.
            sim.network.bind(SERVER, 0, address(1));
            let id = sim.add_node(Host::new(node(now, 2, nodes, 1), now));
            sim.network.bind(id, 0, relay);
            sim.network.set_route(relay, behind, &there[1..]);
            sim.network.set_route(behind, relay, &back[..1]);
        }
        if got > 2 * BEFORE {
            // It is on the way, and helps.
            let relayed = sim.nodes.last().unwrap().node.stats().data_received;
            assert!(relayed > 0, "nothing went through the relay");
            return sim.nodes[requester].longest_pause;
        }
    }
}

/// Beside the requester, and beside another relay.
#[test]
fn a_relay_that_appears_interrupts_no_longer_than_one_that_restarts() {
    for nodes in [3, 4] {
        let pause = longest_pause_with_relay(nodes);
        println!("{nodes} nodes: {pause:?}");
        assert!(pause <= most_pause(nodes - 1), "{nodes} nodes: {pause:?}");
    }
}
