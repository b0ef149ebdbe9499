//! Hops of 10 Gbit/s in virtual time, the rate that each hop is designed for: no bound keeps a transfer from filling them.

use std::time::{Duration, Instant};

use bytes::Bytes;
use starhaul_leotp::{
    ContentId, ContentSecret, Event, FetchConfig, FetchId, NeighbourConfig, NeighbourId,
    NeighbourKey, Node, NodeConfig, Source,
};
use starhaul_link::LinkSpec;
use starhaul_sim::Simulation;

use crate::acting::{acts, address};

const CONTENT: ContentId = ContentId([1; 16]);
const HOPS: u16 = 3;
const HOP: &str = "rate=10gbit,delay=1ms,queue=10000p";
/// Of the packets, 1418 bytes of about 1482 are the content's.
const LEAST_GBIT: f64 = 9.0;
const LENGTH: u64 = 300_000_000;
/// Before, the rate is found: it doubles each 8 ms.
const MEASURED_FROM: u64 = 100_000_000;
/// The content repeats itself after so many bytes, a prime number.
const PERIOD: u64 = 65_521;
/// No segment is longer.
const LONGEST: u64 = 2048;

/// The content: its first period, and a segment more.
#[derive(Clone)]
struct Pattern(Bytes);

impl Pattern {
    fn new() -> Self {
        let byte =
            |at: u64| ((at % PERIOD).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 40).to_le_bytes();
        Self((0..PERIOD + LONGEST).map(|at| byte(at)[0]).collect())
    }

    fn at(&self, offset: u64, length: usize) -> &[u8] {
        let start = usize::try_from(offset % PERIOD).unwrap();
        &self.0[start..start + length]
    }
}

impl Source for Pattern {
    fn length(&self) -> u64 {
        LENGTH
    }

    fn read(&mut self, offset: u64, out: &mut [u8]) -> bool {
        out.copy_from_slice(self.at(offset, out.len()));
        true
    }
}

struct Host {
    node: Node,
    pattern: Pattern,
    fetch: Option<FetchId>,
    got: u64,
    /// When what is measured began, and with which byte.
    measured: Option<(Instant, u64)>,
    finished: Option<Instant>,
}

impl Host {
    fn act(&mut self, now: Instant) {
        while let Some(data) = self.fetch.and_then(|fetch| self.node.read(now, fetch)) {
            assert!(
                data == self.pattern.at(self.got, data.len()),
                "other bytes from {} on",
                self.got
            );
            self.got += data.len() as u64;
        }
        if self.got >= MEASURED_FROM {
            self.measured.get_or_insert((now, self.got));
        }
        while let Some(event) = self.node.poll_event() {
            match event {
                Event::Finished(_) => self.finished = Some(now),
                Event::Failed(_, why) => panic!("{why}"),
                _ => {}
            }
        }
    }
}

acts!(Host);

/// A node of the chain: 1 serves, the others ask the one before them.
fn node(now: Instant, number: u16) -> Node {
    // As programs have it: no host is woken for each packet.
    let config = NodeConfig {
        burst: Duration::from_micros(500),
        backlog_segments: 5.0,
        ..NodeConfig::default()
    };
    let seed = [number.to_le_bytes()[0]; 32];
    let mut node = Node::new(now, config, seed).unwrap();
    for hop in [number - 1, number] {
        // The hop after a node has its number.
        let other = if hop == number { number + 1 } else { hop };
        if (1..=HOPS).contains(&hop) {
            let key = NeighbourKey::new(&[hop.to_le_bytes()[0]; 32]);
            let other = NeighbourId(other.into());
            node.add_neighbour(now, other, NeighbourConfig { key })
                .unwrap();
        }
    }
    let upstream = (number > 1).then(|| NeighbourId((number - 1).into()));
    node.set_upstream(now, upstream);
    node
}

#[test]
fn three_hops_of_ten_gigabits_are_filled() {
    let start = Instant::now();
    let mut sim = Simulation::new(1, start);
    let pattern = Pattern::new();
    for number in 1..=HOPS + 1 {
        let id = sim.add_node(Host {
            node: node(start, number),
            pattern: pattern.clone(),
            fetch: None,
            got: 0,
            measured: None,
            finished: None,
        });
        sim.network.bind(id, 0, address(number.into()));
    }
    let spec: LinkSpec = HOP.parse().unwrap();
    for at in 1..=HOPS {
        sim.network
            .connect(address(at.into()), address((at + 1).into()), &spec, &spec);
    }
    let secret = ContentSecret::new(&[8; 32]);
    let server = &mut sim.nodes[0].node;
    server.serve(CONTENT, &secret, Box::new(pattern));
    let last = sim.nodes.last_mut().unwrap();
    last.fetch = Some(last.node.fetch(start, FetchConfig::new(CONTENT, secret)));
    let mut waits = 0;
    while sim.nodes.last().unwrap().finished.is_none() {
        sim.run_for(Duration::from_millis(1));
        let queues = sim.nodes.iter().map(|host| host.node.memory().1);
        waits = waits.max(queues.max().unwrap());
        let got = sim.nodes.last().unwrap().got;
        assert!(sim.elapsed() < Duration::from_secs(2), "{got} bytes came");
    }
    let last = sim.nodes.last().unwrap();
    let (finished, (since, from)) = (last.finished.unwrap(), last.measured.unwrap());
    let gbit = |bytes: u64, time: Duration| {
        f64::from(u32::try_from(bytes).unwrap()) * 8e-9 / time.as_secs_f64()
    };
    let (rate, whole) = (
        gbit(LENGTH - from, finished - since),
        gbit(LENGTH, finished - start),
    );
    println!("{rate:.2} Gbit/s, {whole:.2} with the start; {waits} bytes wait at most");
    let stats: Vec<_> = sim.nodes.iter().map(|host| host.node.stats()).collect();
    assert!(rate > LEAST_GBIT, "{rate} Gbit/s: {stats:#?}");
    let dropped = stats.iter().map(|stats| stats.queue_drops);
    assert_eq!(dropped.sum::<u64>(), 0, "{stats:#?}");
}
