//! What a byte costs over real sockets on loopback: a reliable stream of ours and a TCP connection through two gateways, against one
//! QUIC stream with nothing of ours and against two bare TCP relays, in gigabits per second of processor time, both ends counted; then what
//! UDP rules lose, and what short connections cost. With `STARHAUL_BENCH_FLOOR=0.9` it fails where a figure is worse than nine tenths of what
//! it was when it was last noted. See docs/performance.md.

#![allow(
    clippy::unwrap_used,
    reason = "a measurement that goes wrong should stop at once"
)]

mod bare;
mod connections;
mod gateways;
mod relays;
mod stream;
mod udp;

use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};
use starhaul_needs::Floor;

use bare::Bare;
use gateways::Gateways;
use relays::Relays;
use stream::Stream;

/// As in the program.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// What one turn of a contender delivers.
const TURN_BYTES: u64 = 200_000_000;
/// Turns of all contenders, one after the other, from which the ratios come.
const ROUNDS: usize = 9;
/// The largest UDP payload, on all sides.
const PACKET_BYTES: u16 = 1452;

/// What gateways cannot get beyond, for they copy in user space, too.
const BARE_RELAYS: &str = "TCP through two bare relays";

const BARE: &str = "bare QUIC stream";
const STREAM: &str = "reliable stream";
const GATEWAYS: &str = "TCP through two gateways";
const CONNECTIONS: &str = "8 TCP connections through them";
/// The ratios to one bare QUIC stream that docs/performance.md notes of a build: later ones must not fall far behind.
const HELD: [(&str, f64); 3] = [(STREAM, 0.80), (GATEWAYS, 0.60), (CONNECTIONS, 0.53)];

/// One way to move bytes.
trait Contender {
    /// Delivers so many application bytes.
    fn transfer(&mut self, bytes: u64);
}

/// What was measured of a contender: processor time and wall time for each byte, in seconds.
#[derive(Default)]
struct Costs {
    processor: Vec<f64>,
    wall: Vec<f64>,
}

fn main() {
    let only = std::env::args()
        .skip(1)
        .find(|name| !name.starts_with("--"));
    type Make = fn() -> Box<dyn Contender>;
    let contenders: [(&str, Make); 5] = [
        (BARE, || Box::new(Bare::new())),
        (STREAM, || Box::new(Stream::new())),
        (BARE_RELAYS, || Box::new(Relays::new())),
        (GATEWAYS, || Box::new(Gateways::new(1))),
        (CONNECTIONS, || Box::new(Gateways::new(8))),
    ];
    let contenders = contenders.into_iter();
    let is_chosen = |name: &str| {
        let only = only.as_ref();
        only.is_none_or(|only| name.contains(only.as_str()))
    };
    let mut contenders: Vec<_> = contenders
        .filter(|(name, _)| is_chosen(name))
        .map(|(name, make)| (name, make(), Costs::default()))
        .collect();
    for round in 0..=ROUNDS {
        for (_, contender, costs) in &mut contenders {
            let (processor, wall) = clocks();
            contender.transfer(TURN_BYTES);
            let (processor_now, wall_now) = clocks();
            // The first round finds the windows.
            if round > 0 {
                let per_byte = |time: Duration| time.as_secs_f64() / TURN_BYTES as f64;
                costs.processor.push(per_byte(processor_now - processor));
                costs.wall.push(per_byte(wall_now - wall));
            }
        }
    }
    let mut floor = Floor::from_env();
    print_ratios(&contenders, &mut floor);
    drop(contenders);
    if is_chosen("UDP rule") {
        udp::print_losses(&mut floor);
    }
    if is_chosen("short and held connections") {
        connections::print(&mut floor);
    }
    floor.finish();
}

fn print_ratios(contenders: &[(&str, Box<dyn Contender>, Costs)], floor: &mut Floor) {
    println!(
        "medians of {ROUNDS} rounds; a ratio is against the first of its round, in bytes for each second of processor time"
    );
    let Some((first_name, _, first)) = contenders.first() else {
        return;
    };
    // In a run of some contenders only the first may be another one.
    let is_to_bare = *first_name == BARE;
    let relays = contenders.iter().find(|(name, ..)| *name == BARE_RELAYS);
    for (name, _, costs) in contenders {
        let against = |other: &Costs| {
            let rounds = other.processor.iter().zip(&costs.processor);
            median(rounds.map(|(other, own)| other / own))
        };
        let of_relays = relays.map_or_else(String::new, |(_, _, relays)| {
            format!(", to two bare relays {:.3}", against(relays))
        });
        let ratio = against(first);
        for (_, held) in HELD.iter().filter(|(of, _)| is_to_bare && of == name) {
            floor.at_least(name, ratio, *held);
        }
        println!(
            "{name:32} {:6.2} Gbit per second of processor time, {:6.2} Gbit/s, ratio {ratio:.3}{of_relays}",
            8e-9 / median(costs.processor.iter().copied()),
            8e-9 / median(costs.wall.iter().copied()),
        );
    }
}

fn median(values: impl Iterator<Item = f64>) -> f64 {
    let mut values: Vec<f64> = values.collect();
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

/// Processor time of this process, and wall time.
fn clocks() -> (Duration, Duration) {
    let [processor, wall] = [ClockId::ProcessCPUTime, ClockId::Monotonic].map(|clock| {
        let time = clock_gettime(clock);
        Duration::new(
            time.tv_sec.try_into().unwrap(),
            time.tv_nsec.try_into().unwrap(),
        )
    });
    (processor, wall)
}
