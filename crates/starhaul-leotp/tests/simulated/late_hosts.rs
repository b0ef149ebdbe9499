//! Chains of nodes in virtual time whose hosts let programs wait for a processor: datagrams lie in the socket meanwhile, and
//! timers are late.

use std::{
    collections::VecDeque,
    time::{Duration, Instant},
};

use bytes::Bytes;
use starhaul_leotp::{
    ContentId, ContentSecret, Event, FetchConfig, FetchId, NeighbourConfig, NeighbourId,
    NeighbourKey, Node, NodeConfig,
};
use starhaul_link::{LinkSpec, Loss};
use starhaul_sim::{Datagram, Delivery, Node as SimNode, Simulation, Udp};

const CONTENT: ContentId = ContentId([1; 16]);
const HOPS: u16 = 5;
const HOP: &str = "rate=20mbit,delay=10ms,loss=1%,queue=200p";
const LENGTH: usize = 40_000_000;
/// The payload's share of the rate.
const CEILING: f64 = 20.0 * 1418.0 / 1481.0;

/// A node, and its program's socket and sleep.
struct Host {
    node: Node,
    start: Instant,
    number: u64,
    /// The program is woken so much later at most.
    latest: Duration,
    /// What arrived while it slept, and when it wakes.
    socket: VecDeque<(Instant, NeighbourId, Bytes)>,
    wakes: Option<Instant>,
    awake: Option<Instant>,
    fetch: Option<FetchId>,
    finished: Option<Instant>,
}

impl Host {
    /// When the program runs for what happens then: the host is equally late for all of the same half millisecond.
    fn woken_for(&self, at: Instant) -> Instant {
        let slot = at.saturating_duration_since(self.start).as_micros() / 500;
        let slot = u64::try_from(slot).unwrap() + (self.number << 32);
        let mixed = (slot ^ slot >> 31).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let mixed = (mixed ^ mixed >> 29).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let share = u32::try_from(mixed >> 48).unwrap();
        at + self.latest * share / (1 << 16)
    }

    fn wake(&mut self, now: Instant) {
        self.wakes = None;
        self.awake = Some(now);
        while let Some((arrived, from, datagram)) = self.socket.pop_front() {
            self.node.handle_stamped(now, arrived, from, &datagram);
        }
        self.node.handle_timeout(now);
        while let Some(event) = self.node.poll_event() {
            match event {
                Event::Finished(_) => self.finished = Some(now),
                Event::Failed(_, why) => panic!("{why}"),
                _ => {}
            }
        }
        while self
            .fetch
            .and_then(|fetch| self.node.read(now, fetch))
            .is_some()
        {}
    }
}

impl SimNode for Host {
    type Load = Udp;

    fn handle_packet(&mut self, now: Instant, packet: Delivery<Udp>) {
        let from = NeighbourId(packet.from.port().into());
        self.socket.push_back((now, from, packet.load.payload));
        let at = self.woken_for(now);
        self.wakes = Some(self.wakes.map_or(at, |known| known.min(at)));
    }

    fn poll_transmit(&mut self, now: Instant, out: &mut VecDeque<Datagram>) {
        let mut datagram = Vec::new();
        if self.awake == Some(now)
            && let Some(NeighbourId(to)) = self.node.poll_transmit(now, &mut datagram)
        {
            let to = address(u16::try_from(to).unwrap());
            out.push_back(Datagram::udp(0, to, 0, datagram.into()));
        }
    }

    fn poll_timeout(&mut self) -> Option<Instant> {
        let timer = self.node.poll_timeout();
        let timer = timer.map(|at| self.woken_for(at.max(self.awake.unwrap_or(self.start))));
        [timer, self.wakes].into_iter().flatten().min()
    }

    fn handle_timeout(&mut self, now: Instant) {
        self.wake(now);
    }
}

fn address(number: u16) -> std::net::SocketAddr {
    ([10, 0, 0, 1], number).into()
}

/// The goodput of a transfer over five lossy hops, in Mbit/s.
fn goodput(seed: u64, latest: Duration) -> f64 {
    let start = Instant::now();
    // As programs have it.
    let config = NodeConfig {
        burst: Duration::from_micros(500),
        backlog_segments: 5.0,
        ..NodeConfig::default()
    };
    let mut sim = Simulation::new(seed, start);
    for number in 1..=HOPS + 1 {
        let mut random = [3; 32];
        random[..8].copy_from_slice(&(seed * 100 + u64::from(number)).to_le_bytes());
        let id = sim.add_node(Host {
            node: Node::new(start, config.clone(), random).unwrap(),
            start,
            number: seed * 100 + u64::from(number),
            latest,
            socket: VecDeque::new(),
            wakes: None,
            awake: Some(start),
            fetch: None,
            finished: None,
        });
        sim.network.bind(id, 0, address(number));
    }
    let spec: LinkSpec = HOP.parse().unwrap();
    let back = spec.clone().with_loss(Loss::NONE);
    for at in 1..=HOPS {
        sim.network
            .connect(address(at), address(at + 1), &spec, &back);
        let key = NeighbourConfig {
            key: NeighbourKey::new(&[at.to_le_bytes()[0]; 32]),
        };
        let [up, down] = [at, at + 1].map(|number| NeighbourId(number.into()));
        let nodes = &mut sim.nodes[usize::from(at) - 1..=usize::from(at)];
        nodes[0]
            .node
            .add_neighbour(start, down, key.clone())
            .unwrap();
        nodes[1].node.add_neighbour(start, up, key).unwrap();
        nodes[1].node.set_upstream(start, Some(up));
    }
    let text = Bytes::from(vec![7; LENGTH]);
    let secret = ContentSecret::new(&[8; 32]);
    sim.nodes[0].node.serve(CONTENT, &secret, Box::new(text));
    let last = sim.nodes.last_mut().unwrap();
    last.fetch = Some(last.node.fetch(start, FetchConfig::new(CONTENT, secret)));
    while sim.nodes.last().unwrap().finished.is_none() && sim.elapsed() < Duration::from_secs(90) {
        sim.run_for(Duration::from_millis(20));
    }
    let finished = sim.nodes.last().unwrap().finished.unwrap();
    let seconds = finished.duration_since(start).as_secs_f64();
    #[expect(clippy::cast_precision_loss, reason = "a display value")]
    let goodput = LENGTH as f64 * 8e-6 / seconds;
    goodput
}

#[test]
fn hosts_that_wake_late_are_as_fast_as_punctual_ones() {
    let ms = Duration::from_millis;
    let (punctual, late) = (goodput(1, ms(0)), [1, 2].map(|seed| goodput(seed, ms(2))));
    println!("{punctual:.2} Mbit/s, late {late:.2?}, ceiling {CEILING:.2}");
    for late in late {
        assert!(late > 0.98 * punctual, "{late} of {punctual} Mbit/s");
        // What such a chain is to carry in real time, start included.
        assert!(late >= 0.95 * CEILING, "{late} of {CEILING} Mbit/s");
    }
    let later = goodput(1, ms(4));
    assert!(later > 0.95 * punctual, "{later} of {punctual} Mbit/s");
}
