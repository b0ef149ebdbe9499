//! Hops between different nodes over one link, in virtual time: nothing but the queue of that link tells each of them that there are others.

use std::time::{Duration, Instant};

use starhaul_leotp::{
    ContentId, ContentSecret, Event, FetchConfig, FetchId, NeighbourConfig, NeighbourId,
    NeighbourKey, Node, NodeConfig, Source,
};
use starhaul_link::LinkSpec;
use starhaul_sim::{LinkId, Simulation};

use crate::acting::{acts, address};

const CONTENT: ContentId = ContentId([1; 16]);
const SEED: u64 = 1;
/// One way over the shared link.
const SHARED_MS: u32 = 10;
/// The payload's share of a packet.
const PAYLOAD: f64 = 1418.0 / 1481.0;

/// A content that is longer than any run.
struct Endless;

impl Source for Endless {
    fn length(&self) -> u64 {
        1 << 40
    }

    fn read(&mut self, _: u64, out: &mut [u8]) -> bool {
        out.fill(7);
        true
    }
}

struct Host {
    node: Node,
    fetch: Option<FetchId>,
    got: usize,
}

acts!(Host);

impl Host {
    fn act(&mut self, now: Instant) {
        while let Some(event) = self.node.poll_event() {
            if let Event::Failed(_, why) = event {
                panic!("{why}, seed {SEED}");
            }
        }
        while let Some(data) = self.fetch.and_then(|fetch| self.node.read(now, fetch)) {
            self.got += data.len();
        }
    }
}

/// Servers and their requesters in pairs, each pair with a hop of its own over the shared link.
struct Pairs {
    sim: Simulation<Host>,
    shared: LinkId,
    count: usize,
    mbit: u32,
}

impl Pairs {
    /// A pair for each of these round-trip times in ms, over a shared link of so many Mbit/s.
    fn new(mbit: u32, rtts_ms: &[u32]) -> Self {
        let start = Instant::now();
        let mut sim = Simulation::new(SEED, start);
        let shared = format!("rate={mbit}mbit,delay={SHARED_MS}ms,queue=200p");
        let shared = sim.network.add_link(&link(&shared));
        for (pair, rtt_ms) in (0_u32..).zip(rtts_ms) {
            let ends = [1 + 2 * pair, 2 + 2 * pair];
            let key = NeighbourKey::new(&[pair.to_le_bytes()[0]; 32]);
            for (at, other) in [(ends[0], ends[1]), (ends[1], ends[0])] {
                let seed = [at.to_le_bytes()[0]; 32];
                let mut node = Node::new(start, NodeConfig::default(), seed).unwrap();
                let config = NeighbourConfig { key: key.clone() };
                node.add_neighbour(start, NeighbourId(other), config)
                    .unwrap();
                if other < at {
                    node.set_upstream(start, Some(NeighbourId(other)));
                } else {
                    node.serve(CONTENT, &secret(), Box::new(Endless));
                }
                let id = sim.add_node(Host {
                    node,
                    fetch: None,
                    got: 0,
                });
                sim.network.bind(id, 0, address(at));
            }
            let one_way = rtt_ms / 2;
            let own = |ms: u32| link(&format!("rate=100mbit,delay={ms}ms,queue=1000p"));
            let there = sim.network.add_link(&own(one_way - SHARED_MS));
            let back = sim.network.add_link(&own(one_way));
            let [server, requester] = ends.map(address);
            sim.network.set_route(server, requester, &[there, shared]);
            sim.network.set_route(requester, server, &[back]);
        }
        sim.run_for(Duration::from_secs(2));
        Self {
            sim,
            shared,
            count: rtts_ms.len(),
            mbit,
        }
    }

    fn begin(&mut self, pair: usize) {
        let now = self.sim.now();
        let host = &mut self.sim.nodes[1 + 2 * pair];
        host.fetch = Some(host.node.fetch(now, FetchConfig::new(CONTENT, secret())));
    }

    /// Mbit/s of payload of each pair in a time, and the packets that the shared link dropped in it.
    fn run(&mut self, seconds: u32) -> (Vec<f64>, u64) {
        let got = |it: &Self| -> Vec<usize> {
            let requesters = it.sim.nodes.iter().skip(1).step_by(2);
            requesters.map(|host| host.got).collect()
        };
        let dropped = |it: &Self| it.sim.network[it.shared].stats().dropped();
        let before = (got(self), dropped(self));
        self.sim.run_for(Duration::from_secs(seconds.into()));
        let rate = |(now, before): (usize, usize)| {
            f64::from(u32::try_from(now - before).unwrap()) * 8e-6 / f64::from(seconds)
        };
        let rates = got(self).into_iter().zip(before.0).map(rate).collect();
        (rates, dropped(self) - before.1)
    }

    /// The least part of an equal share that a pair has, the sum of all as a share of the link, and Jain's index.
    fn shares(&self, rates: &[f64]) -> [f64; 3] {
        let full = f64::from(self.mbit) * PAYLOAD;
        let count = f64::from(u32::try_from(self.count).unwrap());
        let (sum, squares) = rates.iter().fold((0.0, 0.0), |(sum, squares), rate| {
            (sum + rate, squares + rate * rate)
        });
        let least = rates.iter().copied().fold(f64::INFINITY, f64::min);
        [
            least * count / full,
            sum / full,
            sum * sum / (count * squares),
        ]
    }
}

fn link(text: &str) -> LinkSpec {
    text.parse().unwrap()
}

fn secret() -> ContentSecret {
    ContentSecret::new(&[8; 32])
}

/// Figure 15 of the publication without a relay on either side of the link, where one hop would divide it among contents: together, and one after
/// the other. BBR's index was published as 0.940.
#[test]
fn three_hops_over_one_link_share_it() {
    for apart in [0, 10] {
        let mut pairs = Pairs::new(5, &[90, 120, 150]);
        for pair in 0..pairs.count {
            pairs.begin(pair);
            pairs.run(apart);
        }
        pairs.run(20);
        let (rates, dropped) = pairs.run(100);
        let [least, sum, jain] = pairs.shares(&rates);
        let told = format!("{apart} s apart: {rates:.2?} Mbit/s, Jain {jain:.4}, {sum:.3} of all");
        println!("{told}, {dropped} dropped");
        assert!(jain > 0.94, "{told}, seed {SEED}");
        assert!(least > 0.5, "{told}, seed {SEED}");
        assert!(sum > 0.9, "{told}, seed {SEED}");
        assert_eq!(dropped, 0, "{told}, seed {SEED}");
    }
}

/// The drain of one of many empties the queue of none: what each takes for the base of its delays must not grow until the link drops packets, nor may
/// one go without.
#[test]
fn many_hops_over_one_link_neither_starve_nor_fill_its_queue() {
    let mut pairs = Pairs::new(20, &[40; 8]);
    for pair in 0..pairs.count {
        pairs.begin(pair);
    }
    pairs.run(10);
    let (rates, dropped) = pairs.run(50);
    let [least, sum, jain] = pairs.shares(&rates);
    let told = format!("{rates:.2?} Mbit/s, Jain {jain:.4}, {sum:.3} of all");
    println!("{told}, {dropped} dropped");
    assert!(least > 0.25, "{told}, seed {SEED}");
    assert!(sum > 0.9, "{told}, seed {SEED}");
    assert_eq!(dropped, 0, "{told}, seed {SEED}");
}
