//! What a session costs: blocks over a session against bare QUIC datagrams, both between two endpoints in memory on one core,
//! in application bytes per second of processor time. With `STARHAUL_BENCH_FLOOR=0.9` it fails where a ratio is below nine tenths of what it
//! was when it was last noted. See docs/performance.md.

#![allow(
    clippy::unwrap_used,
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "a measurement that goes wrong should stop at once"
)]

mod bare;
mod session;
mod wire;

use std::time::Duration;

use criterion::{Criterion, Throughput};
use rustix::time::{ClockId, clock_gettime};
use starhaul_needs::Floor;
use starhaul_session::Mode;

use bare::Bare;
use session::Sessions;

/// As the program allocates.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// What one iteration delivers.
const ITERATION_BYTES: usize = 4_000_000;
/// Turns of all contenders, one after the other, from which the ratios come.
const ROUNDS: usize = 25;
/// Share of packets lost where redundancy has something to do.
const LOSS: f64 = 0.04;
/// Batches in which bare datagrams are tried; the best is what the session is held against.
const BARE_BATCHES: [usize; 3] = [10, 16, 64];

/// What is asked of a session's ratio to the best bare contender.
#[derive(Clone, Copy)]
struct Asked {
    goal: f64,
    /// What later builds must not fall far behind: the ratio that docs/performance.md notes of a build; half of the goal where it notes none.
    held: f64,
}

/// A session that is compared.
struct Case {
    name: &'static str,
    mode: Mode,
    loss: f64,
    paths: u32,
    asked: Asked,
}

const CASES: [Case; 5] = [
    Case::new("session, none", Mode::None, 0.74, 0.59),
    Case::new("session, retransmit", Mode::Retransmit, 0.74, 0.57),
    Case {
        loss: LOSS,
        ..Case::new("session, fec at 20 %", Mode::Fec, 0.47, 0.34)
    },
    Case {
        paths: 2,
        ..Case::new("two paths, none", Mode::None, 0.65, 0.325)
    },
    Case {
        paths: 2,
        ..Case::new("two paths, retransmit", Mode::Retransmit, 0.65, 0.325)
    },
];

impl Case {
    /// Over one path that loses nothing.
    const fn new(name: &'static str, mode: Mode, goal: f64, held: f64) -> Self {
        Self {
            name,
            mode,
            loss: 0.0,
            paths: 1,
            asked: Asked { goal, held },
        }
    }
}

/// One way to move bytes.
trait Contender {
    /// Delivers at least so many application bytes and says how many it were.
    fn transfer(&mut self, bytes: usize) -> usize;
    /// What else should be known of the run.
    fn remark(&mut self) -> String {
        String::new()
    }
}

/// A contender, made when it is first used.
struct Entry {
    name: String,
    /// Nothing of bare contenders.
    asked: Option<Asked>,
    make: Box<dyn Fn() -> Box<dyn Contender>>,
    made: Option<Box<dyn Contender>>,
}

impl Entry {
    fn new(
        name: String,
        asked: Option<Asked>,
        make: impl Fn() -> Box<dyn Contender> + 'static,
    ) -> Self {
        Self {
            name,
            asked,
            make: Box::new(make),
            made: None,
        }
    }

    fn contender(&mut self) -> &mut dyn Contender {
        self.made.get_or_insert_with(&self.make).as_mut()
    }
}

fn main() {
    let mut contenders = Vec::new();
    for batch in BARE_BATCHES {
        let name = format!("bare datagrams, batches of {batch}");
        let make = move || Box::new(Bare::new(batch)) as Box<dyn Contender>;
        contenders.push(Entry::new(name, None, make));
    }
    for Case {
        name,
        mode,
        loss,
        paths,
        asked,
    } in CASES
    {
        let make = move || Box::new(Sessions::new(mode, loss, paths)) as Box<dyn Contender>;
        contenders.push(Entry::new(name.to_owned(), Some(asked), make));
    }

    let mut criterion = Criterion::default()
        .sample_size(10)
        .warm_up_time(Duration::from_millis(300))
        .measurement_time(Duration::from_secs(2))
        .configure_from_args();
    let mut group = criterion.benchmark_group("throughput");
    group.throughput(Throughput::BytesDecimal(ITERATION_BYTES as u64));
    for entry in &mut contenders {
        let name = entry.name.clone();
        group.bench_function(name, |bencher| {
            let contender = entry.contender();
            bencher.iter_custom(|iterations| {
                let seconds = (0..iterations).map(|_| seconds_per_byte(contender));
                Duration::from_secs_f64(seconds.sum::<f64>() * ITERATION_BYTES as f64)
            });
        });
    }
    group.finish();
    // A run of some contenders only, as for a profiler, compares nothing.
    if std::env::args()
        .skip(1)
        .all(|argument| argument == "--bench")
    {
        print_ratios(&mut contenders);
    }
}

/// Compares in one run, in turns, so that whatever else the machine does meets all alike.
fn print_ratios(contenders: &mut [Entry]) {
    let mut costs = vec![Vec::new(); contenders.len()];
    for _ in 0..ROUNDS {
        for (entry, costs) in contenders.iter_mut().zip(&mut costs) {
            costs.push(seconds_per_byte(entry.contender()));
        }
    }
    let best = |round: usize| {
        let bare = costs[..BARE_BATCHES.len()].iter();
        bare.map(|costs| costs[round]).fold(f64::MAX, f64::min)
    };
    println!(
        "\nmedians of {ROUNDS} rounds; a ratio is against the best bare contender of its round"
    );
    let mut floor = Floor::from_env();
    for (entry, own) in contenders.iter_mut().zip(&costs) {
        let ratios = own
            .iter()
            .enumerate()
            .map(|(round, cost)| best(round) / cost);
        let ratio = median(ratios);
        let goal = entry.asked.map_or_else(String::new, |asked| {
            floor.at_least(&entry.name, ratio, asked.held);
            let verdict = if ratio >= asked.goal { "met" } else { "missed" };
            format!(", goal of {} {verdict}", asked.goal)
        });
        let remark = entry.contender().remark();
        println!(
            "{:32} {:7.1} MB/s of processor time, ratio {ratio:.3}{goal} {remark}",
            entry.name,
            1e-6 / median(own.iter().copied()),
        );
    }
    floor.finish();
}

fn median(values: impl Iterator<Item = f64>) -> f64 {
    let mut values: Vec<f64> = values.collect();
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

/// Processor time per application byte.
fn seconds_per_byte(contender: &mut dyn Contender) -> f64 {
    let before = processor_time();
    let delivered = contender.transfer(ITERATION_BYTES);
    (processor_time() - before).as_secs_f64() / delivered as f64
}

fn processor_time() -> Duration {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    Duration::new(
        u64::try_from(time.tv_sec).unwrap_or_default(),
        u32::try_from(time.tv_nsec).unwrap_or_default(),
    )
}
