//! Several that ask for one content through a relay whose cache holds little of it, or nothing, in virtual time.

use std::time::{Duration, Instant};

use bytes::Bytes;
use starhaul_leotp::{
    ContentId, ContentSecret, Event, FetchConfig, FetchId, NeighbourConfig, NeighbourId,
    NeighbourKey, Node, NodeConfig,
};
use starhaul_link::LinkSpec;
use starhaul_sim::Simulation;

use crate::acting::{acts, address};

const CONTENT: ContentId = ContentId([1; 16]);
const BYTES: u32 = 2_000_000;
const SEED: u64 = 1;
/// The numbers of the nodes.
const SERVER: u32 = 1;
const RELAY: u32 = 2;
const REQUESTERS: std::ops::Range<u32> = 3..8;
const LINK: &str = "rate=20mbit,delay=10ms,loss=1%,queue=200p";

struct Host {
    node: Node,
    fetch: Option<FetchId>,
    got: Vec<u8>,
    /// The most bytes that were in its cache.
    most_cached: usize,
}

acts!(Host);

impl Host {
    fn act(&mut self, now: Instant) {
        self.most_cached = self.most_cached.max(self.node.memory().0);
        while let Some(data) = self.fetch.and_then(|fetch| self.node.read(now, fetch)) {
            self.got.extend_from_slice(&data);
        }
        while let Some(event) = self.node.poll_event() {
            if let Event::Failed(_, why) = event {
                panic!("{why}, seed {SEED}");
            }
        }
    }
}

fn content() -> Vec<u8> {
    let byte = |at: u32| (at.wrapping_mul(40_503) >> 7).to_le_bytes()[0];
    (0..BYTES).map(byte).collect()
}

/// A server, a relay with such a cache, and requesters behind it, all of which know their neighbours.
fn network(cache_bytes: usize) -> Simulation<Host> {
    let start = Instant::now();
    let mut sim = Simulation::new(SEED, start);
    let config = NodeConfig {
        cache_bytes,
        ..NodeConfig::default()
    };
    for number in SERVER..REQUESTERS.end {
        let seed = [number.to_le_bytes()[0]; 32];
        let node = Node::new(start, config.clone(), seed).unwrap();
        let id = sim.add_node(Host {
            node,
            fetch: None,
            got: Vec::new(),
            most_cached: 0,
        });
        sim.network.bind(id, 0, address(number));
    }
    let spec: LinkSpec = LINK.parse().unwrap();
    let hops = REQUESTERS.map(|requester| (RELAY, requester));
    for (up, down) in [(SERVER, RELAY)].into_iter().chain(hops) {
        sim.network
            .connect(address(up), address(down), &spec, &spec);
        for (at, other) in [(up, down), (down, up)] {
            let key = NeighbourKey::new(&[down.to_le_bytes()[0]; 32]);
            let node = &mut host(&mut sim, at).node;
            node.add_neighbour(start, NeighbourId(other), NeighbourConfig { key })
                .unwrap();
        }
        let node = &mut host(&mut sim, down).node;
        node.set_upstream(start, Some(NeighbourId(up)));
    }
    let server = &mut host(&mut sim, SERVER).node;
    server.serve(CONTENT, &secret(), Box::new(Bytes::from(content())));
    sim.run_for(Duration::from_secs(2));
    sim
}

fn host(sim: &mut Simulation<Host>, number: u32) -> &mut Host {
    &mut sim.nodes[usize::try_from(number).unwrap() - 1]
}

fn secret() -> ContentSecret {
    ContentSecret::new(&[8; 32])
}

/// What one of them asks for has left the cache when the next one does: each gets all of it, and the relay never keeps more than it may.
#[test]
fn a_cache_that_keeps_little_breaks_no_transfer_and_stays_below_its_bound() {
    let whole = content();
    for cache_bytes in [0, 256 << 10] {
        let mut sim = network(cache_bytes);
        for number in REQUESTERS {
            let now = sim.now();
            let host = host(&mut sim, number);
            let config = FetchConfig::new(CONTENT, secret());
            host.fetch = Some(host.node.fetch(now, config));
            sim.run_for(Duration::from_millis(500));
        }
        let end = sim.now() + Duration::from_secs(120);
        let missing = |sim: &mut Simulation<Host>| {
            let of = |number| whole.len().saturating_sub(host(sim, number).got.len());
            REQUESTERS.map(of).sum::<usize>()
        };
        while missing(&mut sim) > 0 {
            assert!(
                sim.now() < end,
                "{} missing, seed {SEED}",
                missing(&mut sim)
            );
            sim.run_for(Duration::from_millis(100));
        }
        for number in REQUESTERS {
            let is_right = host(&mut sim, number).got == whole;
            assert!(is_right, "requester {number}, seed {SEED}");
        }
        let relay = host(&mut sim, RELAY);
        let (most, evicted) = (relay.most_cached, relay.node.stats().evicted);
        println!("{cache_bytes} bytes of cache: {most} used, {evicted} segments went");
        assert!(most <= cache_bytes, "{most} of {cache_bytes}, seed {SEED}");
        assert!(cache_bytes == 0 || evicted > 1000, "{evicted}, seed {SEED}");
    }
}
