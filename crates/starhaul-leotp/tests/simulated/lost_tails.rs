//! A link is silent while the only message of a stream is on its way, in virtual time: nothing follows it that would show its loss, and all nodes keep their
//! life. It arrives soon after the link is back, and what is idle then costs no more than before.

use std::time::{Duration, Instant};

use starhaul_leotp::{
    ContentSecret, Event, NeighbourConfig, NeighbourId, NeighbourKey, Node, NodeConfig, Outcome,
    StreamConfig, StreamEvent, StreamId, StreamRead,
};
use starhaul_link::LinkSpec;
use starhaul_sim::{PathLinks, Simulation};

use crate::acting::{acts, address};

const HOPS: u16 = 4;
const HOP: &str = "rate=20mbit,delay=10ms,queue=200p";
const HOP_RTT: Duration = Duration::from_millis(20);
/// Some end right before what probes the hop, some right behind it.
const OUTAGES_MILLIS: [u64; 5] = [300, 1000, 1060, 3000, 3950];
/// One packet, and several.
const MESSAGES: [usize; 2] = [32, 20_000];

struct Host {
    node: Node,
    stream: Option<StreamId>,
    /// How many bytes have come, and when the last.
    got: usize,
    came: Instant,
}

impl Host {
    fn act(&mut self, now: Instant) {
        while let Some(event) = self.node.poll_event() {
            match event {
                Event::Stream(StreamEvent::Accepted(id)) => {
                    assert!(self.node.answer_stream(now, id, b""));
                    self.stream = Some(id);
                }
                Event::Stream(StreamEvent::Closed(_, why)) => assert_eq!(why, Outcome::Done),
                _ => {}
            }
        }
        while let Some(StreamRead::Data(data)) =
            self.stream.and_then(|id| self.node.read_stream(now, id))
        {
            self.got += data.len();
            self.came = now;
        }
    }

    fn write(&mut self, now: Instant, message: usize) {
        let id = self.stream.unwrap();
        let taken = self.node.write_stream(now, id, &vec![7; message]);
        assert_eq!(taken, message);
    }
}

acts!(Host);

/// A chain with an open stream, and the links of each hop, from the node that accepts to the one that opened.
struct Chain {
    sim: Simulation<Host>,
    links: Vec<PathLinks>,
}

impl Chain {
    fn new(seed: u64) -> Self {
        let start = Instant::now();
        let mut sim = Simulation::new(seed, start);
        for number in 0..=HOPS {
            let id = sim.add_node(Host {
                node: node(start, number, seed),
                stream: None,
                got: 0,
                came: start,
            });
            sim.network.bind(id, 0, address(number.into()));
        }
        let spec: LinkSpec = HOP.parse().unwrap();
        let connect = |at: u32| {
            let (here, there) = (address(at), address(at + 1));
            sim.network.connect(here, there, &spec, &spec)
        };
        let links = (0..u32::from(HOPS)).map(connect).collect();
        sim.run_for(Duration::from_millis(500));
        let now = sim.now();
        let opener = sim.nodes.last_mut().unwrap();
        opener.stream = opener.node.open_stream(now, b"");
        // Interests are repeated each four seconds: the phase is another for each seed.
        sim.run_for(Duration::from_millis(3000 + seed * 370));
        assert!(sim.nodes[0].stream.is_some());
        Self { sim, links }
    }

    /// Packets that leave on all hops in a minute.
    fn packets_a_minute(&mut self) -> u64 {
        let before = self.packets();
        self.sim.run_for(Duration::from_secs(60));
        self.packets() - before
    }

    fn packets(&self) -> u64 {
        let links = self.links.iter();
        let links = links.flat_map(|path| [path.forward, path.backward]);
        links
            .map(|link| self.sim.network[link].stats().enqueued)
            .sum()
    }

    /// One end writes a message while links are silent, and for so long; returns how long after that the message has come.
    fn passes(
        &mut self,
        message: usize,
        from_opener: bool,
        silent: PathLinks,
        gap: Duration,
    ) -> Duration {
        let ends = [self.sim.nodes.len() - 1, 0];
        let [writes, reads] = if from_opener {
            ends
        } else {
            [ends[1], ends[0]]
        };
        let now = self.sim.now();
        self.sim.network.cut(now, silent);
        let before = self.sim.nodes[reads].got;
        self.sim.nodes[writes].write(now, message);
        // The simulation asks a node for packets after an event of it.
        self.sim.run_for(gap);
        let back = self.sim.now();
        self.sim.network.restore(back, silent);
        while self.sim.nodes[reads].got < before + message {
            self.sim.run_for(Duration::from_millis(1));
            let waited = self.sim.now() - back;
            assert!(waited < Duration::from_secs(20), "it does not come");
        }
        let host = &self.sim.nodes[reads];
        assert_eq!(host.got, before + message);
        host.came.saturating_duration_since(back)
    }
}

fn node(now: Instant, number: u16, seed: u64) -> Node {
    let mut random = [5; 32];
    random[..8].copy_from_slice(&(seed * 100 + u64::from(number)).to_le_bytes());
    let mut node = Node::new(now, NodeConfig::default(), random).unwrap();
    let mut meet = |neighbour: u16, hop: u16| {
        let id = NeighbourId(neighbour.into());
        let key = NeighbourKey::new(&[hop.to_le_bytes()[0]; 32]);
        node.add_neighbour(now, id, NeighbourConfig { key })
            .unwrap();
        id
    };
    let up = (number > 0).then(|| meet(number - 1, number - 1));
    if number < HOPS {
        meet(number + 1, number);
    }
    node.set_upstream(now, up);
    if [0, HOPS].contains(&number) {
        let mut streams = StreamConfig::new(ContentSecret::new(&[8; 32]));
        streams.accepts = number == 0;
        node.enable_streams(streams);
    }
    node
}

/// It waited for the Interests that are repeated each four seconds.
#[test]
fn the_only_message_of_a_stream_comes_soon_after_an_outage_that_took_it() {
    let most = HOP_RTT * u32::from(HOPS) * 2 + Duration::from_millis(100);
    let mut seed = 0;
    for message in MESSAGES {
        for gap in OUTAGES_MILLIS.map(Duration::from_millis) {
            for hop in 0..usize::from(HOPS) {
                for from_opener in [true, false] {
                    seed += 1;
                    let mut chain = Chain::new(seed);
                    let silent = chain.links[hop];
                    let took = chain.passes(message, from_opener, silent, gap);
                    let what = format!(
                        "{message} bytes, hop {hop} silent for {gap:?}, from the opener: {from_opener}, seed {seed}"
                    );
                    println!("{what}: {took:?}");
                    assert!(took <= most, "{what}: {took:?}");
                }
            }
        }
    }
}

/// Only what says that it came is lost, or only the message.
#[test]
fn a_link_that_is_silent_one_way_delays_a_message_no_longer() {
    let most = HOP_RTT * u32::from(HOPS) * 2 + Duration::from_millis(100);
    let mut seed = 100;
    for gap in OUTAGES_MILLIS.map(Duration::from_millis) {
        for is_forward in [true, false] {
            for from_opener in [true, false] {
                seed += 1;
                let mut chain = Chain::new(seed);
                let PathLinks { forward, backward } = chain.links[1];
                let silent = if is_forward { forward } else { backward };
                let silent = PathLinks {
                    forward: silent,
                    backward: silent,
                };
                let took = chain.passes(32, from_opener, silent, gap);
                let what = format!(
                    "{gap:?}, forward {is_forward}, from the opener: {from_opener}, seed {seed}"
                );
                println!("{what}: {took:?}");
                assert!(took <= most, "{what}: {took:?}");
            }
        }
    }
}

#[test]
fn what_is_idle_after_an_outage_costs_no_more_than_before() {
    for (seed, from_opener) in [(200, true), (201, false)] {
        let mut chain = Chain::new(seed);
        let before = chain.packets_a_minute();
        let (silent, gap) = (chain.links[2], Duration::from_secs(1));
        chain.passes(32, from_opener, silent, gap);
        // What the message itself makes leave: its confirmations, and reports of the ends.
        chain.sim.run_for(Duration::from_secs(5));
        let after = chain.packets_a_minute();
        println!("seed {seed}: {before} and {after} packets in a minute");
        assert!(
            after <= before + before / 10,
            "{before} and {after}, seed {seed}"
        );
        // And a stream that is over costs nothing.
        for end in [0, usize::from(HOPS)] {
            let now = chain.sim.now();
            let host = &mut chain.sim.nodes[end];
            host.node.finish_stream(now, host.stream.unwrap());
        }
        chain.sim.run_for(Duration::from_secs(60));
        assert_eq!(chain.packets_a_minute(), 0, "seed {seed}");
    }
}
