//! The cost of a simulator event when ten links are busy and the others are idle. With `STARHAUL_BENCH_FLOOR=1` it fails where idle links make
//! events dearer than the goal allows. See docs/performance.md.

#![allow(
    clippy::unwrap_used,
    reason = "a measurement that goes wrong should stop at once"
)]

use std::{
    collections::VecDeque,
    hint::black_box,
    net::SocketAddr,
    time::{Duration, Instant},
};

use bytes::Bytes;
use criterion::{Criterion, Throughput};
use starhaul_link::LinkSpec;
use starhaul_needs::Floor;
use starhaul_sim::{Datagram, Delivery, Node, Simulation, Udp};

const LINKS: [usize; 3] = [10, 1_000, 20_000];
const BUSY: u8 = 10;
/// Packets under way on each busy link.
const WINDOW: usize = 20;
const TIME: Duration = Duration::from_secs(1);
const ROUNDS: usize = 15;
/// How many times as much an event may cost with any number of links as with the fewest.
const GOAL: f64 = 1.5;

/// Sends a packet for each one that arrives.
#[derive(Default)]
struct Mirror(VecDeque<Datagram>, u64);

impl Node for Mirror {
    type Load = Udp;

    fn handle_packet(&mut self, _: Instant, packet: Delivery<Udp>) {
        let Udp { ecn, payload } = packet.load;
        self.1 += 1;
        self.0
            .push_back(Datagram::udp(packet.local, packet.from, ecn, payload));
    }

    fn poll_transmit(&mut self, _: Instant, out: &mut VecDeque<Datagram>) {
        out.append(&mut self.0);
    }

    fn poll_timeout(&mut self) -> Option<Instant> {
        None
    }

    fn handle_timeout(&mut self, _: Instant) {}
}

/// Two hosts with five paths, of a link each way, among many links that carry nothing.
fn simulation(links: usize) -> Simulation<Mirror> {
    let spec: LinkSpec = "rate=50mbit,delay=3ms".parse().unwrap();
    let mut sim = Simulation::new(1, Instant::now());
    let [near, far] = [0, 1].map(|_| sim.add_node(Mirror::default()));
    for path in 0..BUSY / 2 {
        let [a, b] = [1, 2].map(|host| SocketAddr::from(([10, 0, path, host], 1)));
        sim.network.bind(near, path.into(), a);
        sim.network.bind(far, path.into(), b);
        sim.network.connect(a, b, &spec, &spec);
        for _ in 0..2 * WINDOW {
            let payload = Bytes::from_static(&[0; 1200]);
            let packet = Datagram::udp(path.into(), b, 0, payload);
            sim.nodes[near.0].0.push_back(packet);
        }
    }
    for _ in usize::from(BUSY)..links {
        sim.network.add_link(&spec);
    }
    sim
}

/// Packets that arrived in [`TIME`], and the wall time of the run.
fn run(links: usize) -> (u64, Duration) {
    let mut sim = simulation(links);
    let began = Instant::now();
    sim.run_for(TIME);
    let took = began.elapsed();
    (sim.nodes.iter().map(|node| node.1).sum(), took)
}

fn main() {
    let mut criterion = Criterion::default()
        .sample_size(10)
        .measurement_time(Duration::from_secs(2))
        .configure_from_args();
    let mut group = criterion.benchmark_group("simulator");
    for links in LINKS {
        group.throughput(Throughput::Elements(run(links).0));
        group.bench_function(format!("{links} links"), |bencher| {
            bencher.iter_custom(|iterations| {
                (0..iterations)
                    .map(|_| black_box(run(links)).1)
                    .sum::<Duration>()
            });
        });
    }
    group.finish();
    // A run of some sizes only, as for a profiler, prints no ratios.
    if std::env::args()
        .skip(1)
        .any(|argument| argument != "--bench")
    {
        return;
    }
    print_ratios();
}

/// Medians of interleaved rounds.
fn print_ratios() {
    let mut rounds = LINKS.map(|_| Vec::new());
    for _ in 0..ROUNDS {
        for (links, costs) in LINKS.into_iter().zip(&mut rounds) {
            let (packets, took) = run(links);
            costs.push(took.div_f64(f64::from(u32::try_from(packets).unwrap())));
        }
    }
    let medians = rounds.map(|mut costs| {
        costs.sort_unstable();
        costs[ROUNDS / 2]
    });
    println!("\nmedians of {ROUNDS} rounds, per packet; goal: at most x {GOAL}");
    let mut floor = Floor::from_env();
    for (links, median) in LINKS.into_iter().zip(medians) {
        let ratio = median.as_secs_f64() / medians[0].as_secs_f64();
        println!("{links:>6} links {:>6} ns  x {ratio:.2}", median.as_nanos());
        floor.at_most(&format!("{links} links, times the fewest"), ratio, GOAL);
    }
    floor.finish();
}
