//! A hop whose way becomes another one, in virtual time: its nodes are told, or find out.

use std::time::{Duration, Instant};

use starhaul_cc::{Reconfiguration, ReconfigurationSource};
use starhaul_leotp::{
    ContentId, ContentSecret, Event, FetchConfig, NeighbourConfig, NeighbourId, NeighbourKey, Node,
    NodeConfig, Source,
};
use starhaul_link::LinkSpec;
use starhaul_sim::{LinkId, Simulation};

use crate::acting::{acts, address};

/// Bytes per second of each link, headers included.
const RATE: f64 = 2.5e6;

/// More than can be sent.
struct Fives;

impl Source for Fives {
    fn length(&self) -> u64 {
        1 << 30
    }

    fn read(&mut self, _offset: u64, out: &mut [u8]) -> bool {
        out.fill(5);
        true
    }
}

/// A node that reads what it fetches.
struct End {
    node: Node,
    got: usize,
}

acts!(End);

impl End {
    fn act(&mut self, now: Instant) {
        while let Some(event) = self.node.poll_event() {
            if let Event::Readable(id) = event {
                while let Some(data) = self.node.read(now, id) {
                    self.got += data.len();
                }
            }
        }
    }
}

/// A server, a relay, and a requester behind a hop that has several ways.
struct World {
    sim: Simulation<End>,
    /// Of each way: there and back.
    ways: Vec<[LinkId; 2]>,
}

impl World {
    fn new(ways: &[&str]) -> Self {
        let start = Instant::now();
        let mut sim = Simulation::new(1, start);
        for number in 1..=3_u8 {
            let node = Node::new(start, NodeConfig::default(), [number; 32]).unwrap();
            let id = sim.add_node(End { node, got: 0 });
            sim.network.bind(id, 0, address(number.into()));
        }
        let spec: LinkSpec = "rate=20mbit,delay=5ms,queue=500p".parse().unwrap();
        sim.network.connect(address(1), address(2), &spec, &spec);
        for (up, down) in [(1, 2), (2, 3)] {
            for (at, other) in [(up, down), (down, up)] {
                let key = NeighbourKey::new(&[u8::try_from(up).unwrap(); 32]);
                let node = &mut sim.nodes[usize::try_from(at).unwrap() - 1].node;
                node.add_neighbour(start, NeighbourId(other), NeighbourConfig { key })
                    .unwrap();
                if other < at {
                    node.set_upstream(start, Some(NeighbourId(other)));
                }
            }
        }
        let ways = ways.iter().map(|way| {
            let spec: LinkSpec = way.parse().unwrap();
            [sim.network.add_link(&spec), sim.network.add_link(&spec)]
        });
        let ways = ways.collect();
        let mut world = Self { sim, ways };
        world.take(0);
        let (content, secret) = (ContentId([1; 16]), ContentSecret::new(&[3; 32]));
        let server = &mut world.sim.nodes[0].node;
        server.serve(content, &secret, Box::new(Fives));
        world.sim.run_for(Duration::from_secs(1));
        let config = FetchConfig::new(content, secret);
        let now = world.sim.now();
        world.sim.nodes[2].node.fetch(now, config);
        world
    }

    /// The hop takes this way from now on.
    fn take(&mut self, way: usize) {
        let [there, back] = self.ways[way];
        self.sim.network.set_route(address(2), address(3), &[there]);
        self.sim.network.set_route(address(3), address(2), &[back]);
    }

    /// Tells both ends of the hop.
    fn tell(&mut self) {
        let now = self.sim.now();
        let event = Reconfiguration {
            at: now,
            outage: Duration::ZERO,
            source: ReconfigurationSource::Probe,
            confidence: 0.9,
        };
        for (node, neighbour) in [(1, 3), (2, 2)] {
            let node = &mut self.sim.nodes[node].node;
            assert!(node.signal(now, NeighbourId(neighbour), event));
        }
    }

    /// Bytes that arrive in order in this time.
    fn run(&mut self, time: Duration) -> usize {
        let before = self.sim.nodes[2].got;
        self.sim.run_for(time);
        self.sim.nodes[2].got - before
    }
}

/// Shares of the links that arrive over the short way and over the long one of a hop, which takes turns, with so many milliseconds there.
fn shares([short, long]: [u64; 2], is_told: bool) -> [f64; 2] {
    const TURNS: usize = 6;
    let each = Duration::from_secs(3);
    let ways = [short, long].map(|delay| format!("rate=20mbit,delay={delay}ms,queue=500p"));
    let mut world = World::new(&[&ways[0], &ways[1]]);
    world.run(each * 2);
    let mut got = [0, 0];
    for way in [1, 0].into_iter().cycle().take(2 * TURNS) {
        world.take(way);
        // When a probe has come back.
        let soon = Duration::from_millis(2 * [short, long][way]);
        got[way] += world.run(soon);
        if is_told {
            world.tell();
        }
        got[way] += world.run(each - soon);
    }
    let all = RATE * each.as_secs_f64() * TURNS as f64;
    got.map(|got| got as f64 / all)
}

#[test]
fn a_hop_that_is_told_of_its_ways_is_filled_sooner() {
    let [told, untold] = [true, false].map(|is_told| shares([50, 60], is_told));
    println!("told and untold: {told:.3?} and {untold:.3?} of the links");
    assert!(told[0] > 0.94 && told[1] > 0.92, "{told:?}");
    assert!(told[1] > untold[1] + 0.02, "{told:?}, {untold:?}");
}

/// It is fed by one as slow, and never had a queue: what waits seems to be the first one.
#[test]
fn a_hop_without_a_queue_that_becomes_longer_is_filled_soon_although_untold() {
    for ways in [[10, 60], [50, 80], [50, 100]] {
        let shares = shares(ways, false);
        println!("{ways:?} ms: {shares:.3?} of the links");
        assert!(shares[0] > 0.94 && shares[1] > 0.84, "{ways:?}: {shares:?}");
    }
}

#[test]
fn signals_of_a_hop_that_stays_as_it_is_cost_next_to_nothing() {
    let [told, untold] = [true, false].map(|is_told| {
        let mut world = World::new(&["rate=20mbit,delay=10ms,queue=500p"]);
        world.run(Duration::from_secs(5));
        let mut got = 0;
        for _ in 0..20 {
            if is_told {
                world.tell();
            }
            got += world.run(Duration::from_secs(1));
        }
        got
    });
    println!("{told} bytes told, {untold} untold");
    assert!(told as f64 > 0.99 * untold as f64, "{told} of {untold}");
}
