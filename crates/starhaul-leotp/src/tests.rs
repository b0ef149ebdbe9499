//! Chains of nodes in virtual time.

use std::{
    collections::VecDeque,
    time::{Duration, Instant},
};

use bytes::Bytes;
use starhaul_link::LinkSpec;
use starhaul_sim::{Datagram, Delivery, LinkId, Node as SimNode, Simulation, Udp};

use crate::*;

const CONTENT: ContentId = ContentId([1; 16]);

struct End {
    node: Node,
    fetch: Option<FetchId>,
    got: Vec<u8>,
    finished: Option<Instant>,
}

impl SimNode for End {
    type Load = Udp;

    fn handle_packet(&mut self, now: Instant, packet: Delivery<Udp>) {
        let from = u32::from(packet.from.port());
        self.node
            .handle_datagram(now, NeighbourId(from), &packet.load.payload);
        self.drain(now);
    }

    fn poll_transmit(&mut self, now: Instant, out: &mut VecDeque<Datagram>) {
        let mut datagram = Vec::new();
        if let Some(NeighbourId(to)) = self.node.poll_transmit(now, &mut datagram) {
            out.push_back(Datagram::udp(0, address(to), 0, datagram.into()));
        }
    }

    fn poll_timeout(&mut self) -> Option<Instant> {
        self.node.poll_timeout()
    }

    fn handle_timeout(&mut self, now: Instant) {
        self.node.handle_timeout(now);
        self.drain(now);
    }
}

impl End {
    fn drain(&mut self, now: Instant) {
        while let Some(event) = self.node.poll_event() {
            match event {
                Event::Finished(_) => self.finished = Some(now),
                Event::Failed(_, why) => panic!("{why}"),
                _ => {}
            }
        }
        while let Some(bytes) = self.fetch.and_then(|fetch| self.node.read(now, fetch)) {
            self.got.extend_from_slice(&bytes);
        }
    }
}

fn address(number: u32) -> std::net::SocketAddr {
    ([10, 0, 0, 1], u16::try_from(number).unwrap()).into()
}

fn text(length: usize) -> Bytes {
    (0..length)
        .map(|i| (i.wrapping_mul(2_654_435_761) >> 7).to_le_bytes()[0])
        .collect::<Vec<u8>>()
        .into()
}

struct Chain {
    sim: Simulation<End>,
    start: Instant,
    /// In the direction of the data.
    links: Vec<LinkId>,
}

impl Chain {
    /// Nodes 1 (the responder) to the last (the requester).
    fn new(seed: u64, hops: &[&str], config: &NodeConfig, length: usize) -> Self {
        let start = Instant::now();
        let mut sim = Simulation::new(seed, start);
        for number in 1..=hops.len() + 1 {
            let mut random = [3; 32];
            random[..8].copy_from_slice(&(seed * 100 + number as u64).to_le_bytes());
            let node = Node::new(start, config.clone(), random).unwrap();
            let id = sim.add_node(End {
                node,
                fetch: None,
                got: Vec::new(),
                finished: None,
            });
            sim.network
                .bind(id, 0, address(u32::try_from(number).unwrap()));
        }
        let mut links = Vec::new();
        for (at, hop) in (0_u32..).zip(hops) {
            let spec: LinkSpec = hop.parse().unwrap();
            let back = spec.clone().with_loss(starhaul_link::Loss::NONE);
            let path = sim
                .network
                .connect(address(at + 1), address(at + 2), &spec, &back);
            links.push(path.forward);
            let key = NeighbourConfig {
                key: NeighbourKey::new(&[at.to_le_bytes()[0]; 32]),
            };
            let index = usize::try_from(at).unwrap();
            sim.nodes[index]
                .node
                .add_neighbour(start, NeighbourId(at + 2), key.clone())
                .unwrap();
            let down = &mut sim.nodes[index + 1].node;
            down.add_neighbour(start, NeighbourId(at + 1), key).unwrap();
            down.set_upstream(start, Some(NeighbourId(at + 1)));
        }
        sim.nodes[0].node.serve(
            CONTENT,
            &ContentSecret::new(&[8; 32]),
            Box::new(text(length)),
        );
        let mut chain = Self { sim, start, links };
        let fetch = chain.last().node.fetch(
            start,
            FetchConfig::new(CONTENT, ContentSecret::new(&[8; 32])),
        );
        chain.last().fetch = Some(fetch);
        chain
    }

    fn last(&mut self) -> &mut End {
        self.sim.nodes.last_mut().unwrap()
    }

    /// Runs until the content is there, and returns the time that took in seconds.
    fn finish(&mut self, length: usize, limit: u64) -> f64 {
        let limit = self.start + Duration::from_secs(limit);
        while self.last().finished.is_none() && self.sim.now() < limit {
            self.sim.run_for(Duration::from_millis(20));
        }
        let end = self.last();
        let finished = end
            .finished
            .unwrap_or_else(|| panic!("not finished: {:?}", end.node.stats()));
        assert!(end.got == text(length), "the bytes are others");
        finished.duration_since(self.start).as_secs_f64()
    }
}

#[test]
fn five_lossy_hops_are_filled() {
    for (loss, seed) in [("0%", 1), ("1%", 2), ("2%", 3)] {
        let hop = format!("rate=20mbit,delay=10ms,loss={loss},queue=200p");
        let length = 15_000_000;
        let mut chain = Chain::new(seed, &[hop.as_str(); 5], &NodeConfig::default(), length);
        let seconds = chain.finish(length, 60);
        #[expect(clippy::cast_precision_loss, reason = "a display value")]
        let goodput = length as f64 * 8e-6 / seconds;
        let stats: Vec<Stats> = chain.sim.nodes.iter().map(|end| end.node.stats()).collect();
        let sent = chain.sim.network[chain.links[0]].stats().enqueued_bytes;
        println!(
            "loss {loss}: {goodput:.2} Mbit/s, sent {sent}, timeouts {}",
            stats[5].timeouts
        );
        assert!(goodput > 17.0, "{goodput} Mbit/s at {loss}: {stats:#?}");
    }
}

#[test]
fn a_long_transfer_stays_as_fast_and_what_waits_does_not_grow() {
    let hop = "rate=2mbit,delay=10ms,loss=0.5%,queue=200p";
    let length = 60_000_000;
    let mut chain = Chain::new(7, &[hop; 5], &NodeConfig::default(), length);
    let mut got = Vec::new();
    for _ in 0..12 {
        chain.sim.run_for(Duration::from_secs(10));
        got.push(chain.last().got.len());
    }
    for pair in got[1..].windows(2) {
        let per_second = (pair[1] - pair[0]) / 10;
        assert!(per_second > 2_000_000 / 8 * 88 / 100, "{got:?}");
    }
    let stats = chain.last().node.stats();
    assert_eq!(stats.timeouts, 0, "{stats:?}");
}

/// What waits at a relay then is what came until its neighbour upstream had heard of it, not what the requester has in flight.
#[test]
fn a_neighbour_that_slows_down_tenfold_leaves_a_short_queue_at_a_relay() {
    // Bytes per second, and the round trip of the hop to the relay in seconds.
    const FAST: f64 = 12.5e6;
    const RTT: f64 = 0.01;
    let hops = [
        "rate=100mbit,delay=5ms,queue=1000p",
        "rate=100mbit,delay=40ms,queue=4000p",
    ];
    let config = NodeConfig::default();
    let mut chain = Chain::new(9, &hops, &config, 60_000_000);
    let float = |bytes: usize| f64::from(u32::try_from(bytes).unwrap());
    let carried = |chain: &mut Chain, millis: u32| {
        let before = chain.last().got.len();
        chain.sim.run_for(Duration::from_millis(millis.into()));
        float(chain.last().got.len() - before) * 1000.0 / f64::from(millis)
    };
    carried(&mut chain, 3000);
    let rate = carried(&mut chain, 500);
    assert!(rate > 0.8 * FAST, "{rate} B/s");

    let slow: LinkSpec = "rate=10mbit".parse().unwrap();
    let (now, link) = (chain.sim.now(), chain.links[1]);
    chain.sim.network[link].set_rate(now, slow.rate);
    let mut most = 0;
    for _ in 0..2000 {
        chain.sim.run_for(Duration::from_millis(2));
        most = most.max(chain.sim.nodes[1].node.memory().1);
    }
    let rate = carried(&mut chain, 2000);
    println!("{most} bytes wait at most; then {rate} B/s");
    assert!(rate > 0.08 * FAST, "{rate} B/s");
    // The target, and what comes until less does: the news takes half a round trip and leaves within a part of one, the last data take the other half.
    let target = config.backlog_segments * float(config.segment_bytes);
    let bound = target + FAST * 2.0 * RTT;
    assert!(float(most) < bound, "{most} bytes, more than {bound}");
}
