//! What a byte costs over real sockets on loopback: a reliable stream of ours and a TCP connection through two gateways, against one
//! QUIC stream with nothing of ours and against two bare TCP relays, in gigabits per second of processor time, both ends counted. See
//! docs/performance.md.

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
        ("bare QUIC stream", || Box::new(Bare::new())),
        ("reliable stream", || Box::new(Stream::new())),
        (BARE_RELAYS, || Box::new(Relays::new())),
        ("TCP through two gateways", || Box::new(Gateways::new(1))),
        ("8 TCP connections through them", || {
            Box::new(Gateways::new(8))
        }),
    ];
    let contenders = contenders.into_iter();
    let chosen = contenders.filter(|(name, _)| {
        only.as_ref()
            .is_none_or(|only| name.contains(only.as_str()))
    });
    let mut contenders: Vec<_> = chosen
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
    print_ratios(&contenders);
    drop(contenders);
    let is_chosen = |name: &str| {
        only.as_ref()
            .is_none_or(|only| name.contains(only.as_str()))
    };
    if is_chosen("UDP rule") {
        udp::print_losses();
    }
    if is_chosen("short and held connections") {
        connections::print();
    }
}

fn print_ratios(contenders: &[(&str, Box<dyn Contender>, Costs)]) {
    println!(
        "medians of {ROUNDS} rounds; a ratio is against the first of its round, in bytes for each second of processor time"
    );
    let Some((_, _, first)) = contenders.first() else {
        return;
    };
    let relays = contenders.iter().find(|(name, ..)| *name == BARE_RELAYS);
    for (name, _, costs) in contenders {
        let against = |other: &Costs| {
            let rounds = other.processor.iter().zip(&costs.processor);
            median(rounds.map(|(other, own)| other / own))
        };
        let of_relays = relays.map_or_else(String::new, |(_, _, relays)| {
            format!(", to two bare relays {:.3}", against(relays))
        });
        println!(
            "{name:32} {:6.2} Gbit per second of processor time, {:6.2} Gbit/s, ratio {:.3}{of_relays}",
            8e-9 / median(costs.processor.iter().copied()),
            8e-9 / median(costs.wall.iter().copied()),
            against(first),
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
