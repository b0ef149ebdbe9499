//! What the choice of the next fragment costs when 10, 1 000 and 10 000 blocks wait: the time of `Session::poll_datagrams`,
//! for one datagram and for batches, by rules and by a plan, with blocks of all priorities and many deadlines. With `STARHAUL_BENCH_FLOOR=0.5`
//! it fails where a fragment costs more than twice the goal, with 1 above the goal itself. See docs/performance.md.

#![allow(
    clippy::unwrap_used,
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "a measurement that goes wrong should stop at once"
)]

use std::{
    hint::black_box,
    time::{Duration, Instant},
};

use bytes::Bytes;
use criterion::{Criterion, Throughput};
use rustix::time::{ClockId, clock_gettime};
use starhaul_needs::Floor;
use starhaul_session::{
    BlockOptions, Budget, Mode, PathId, PathUpdate, SchedulerChoice, Session, SessionConfig, Side,
    StreamConfig,
};
use starhaul_units::Bandwidth;

const QUEUED: [usize; 3] = [10, 1_000, 10_000];
const ASKING: [Asking; 7] = [
    Asking::new(1, 1),
    Asking::new(2, 1),
    Asking::new(2, 44),
    Asking::new(8, 1),
    Asking::new(8, 44),
    Asking::new(8, 1).by(SchedulerChoice::Optimizer),
    Asking::new(8, 44).by(SchedulerChoice::Optimizer),
];
/// Polled in one iteration; so much less than waits that the queue stays as long as it is.
const FRAGMENTS: u32 = 500;
/// Length of a block: 100 fragments.
const BLOCK_BYTES: usize = 130_000;
const ROUNDS: usize = 25;
/// What a fragment may cost with [`GOAL_BLOCKS`] waiting and as many paths as any of [`GOAL_PATHS`], in ns.
const GOAL_NS: f64 = 2_000.0;
const GOAL_BLOCKS: usize = 10_000;
const GOAL_PATHS: [u32; 2] = [2, 8];

/// Who asks for datagrams, and for how many.
#[derive(Clone, Copy)]
struct Asking {
    paths: u32,
    /// Most datagrams that a path asks for at once: one as a slow path does, whose pacer lets no more leave, or a batch as a fast one does.
    batch: usize,
    scheduler: SchedulerChoice,
}

impl Asking {
    const fn new(paths: u32, batch: usize) -> Self {
        Self {
            paths,
            batch,
            scheduler: SchedulerChoice::Rules,
        }
    }

    const fn by(self, scheduler: SchedulerChoice) -> Self {
        Self { scheduler, ..self }
    }

    fn name(self) -> String {
        let (paths, batch, scheduler) = (self.paths, self.batch, self.scheduler.name());
        format!("{paths} path(s), batches of {batch}, {scheduler}")
    }
}

fn main() {
    let mut criterion = Criterion::default()
        .sample_size(10)
        .warm_up_time(Duration::from_millis(300))
        .measurement_time(Duration::from_secs(2))
        .configure_from_args();
    for asking in ASKING {
        let mut group = criterion.benchmark_group(format!("scheduler/{}", asking.name()));
        group.throughput(Throughput::Elements(FRAGMENTS.into()));
        for queued in QUEUED {
            group.bench_function(format!("{queued} blocks"), |bencher| {
                bencher
                    .iter_custom(|iterations| (0..iterations).map(|_| cost(queued, asking)).sum());
            });
        }
        group.finish();
    }
    // A run of some sizes only, as for a profiler, compares nothing.
    if std::env::args()
        .skip(1)
        .any(|argument| argument != "--bench")
    {
        return;
    }
    println!(
        "\nmedians of {ROUNDS} rounds, per fragment; ratios against {} blocks",
        QUEUED[0]
    );
    let mut floor = Floor::from_env();
    for asking in ASKING {
        print_ratios(asking, &mut floor);
    }
    floor.finish();
}

/// Compares in one run, in turns, so that whatever else the machine does meets all alike.
fn print_ratios(asking: Asking, floor: &mut Floor) {
    let rounds: Vec<_> = (0..ROUNDS)
        .map(|_| QUEUED.map(|queued| cost(queued, asking).as_secs_f64() / f64::from(FRAGMENTS)))
        .collect();
    for (at, queued) in QUEUED.into_iter().enumerate() {
        let nanoseconds = 1e9 * median(rounds.iter().map(|costs| costs[at]));
        let has_goal = queued == GOAL_BLOCKS && GOAL_PATHS.contains(&asking.paths);
        let verdict = match has_goal {
            true if nanoseconds <= GOAL_NS => ", goal of 2000 ns met",
            true => ", goal of 2000 ns missed",
            false => "",
        };
        if has_goal {
            let what = format!("{}, {queued} blocks, ns", asking.name());
            floor.at_most(&what, nanoseconds, GOAL_NS);
        }
        println!(
            "{}, {queued:6} blocks: {nanoseconds:7.0} ns, ratio {:.2}{verdict}",
            asking.name(),
            median(rounds.iter().map(|costs| costs[at] / costs[0])),
        );
    }
}

fn median(values: impl Iterator<Item = f64>) -> f64 {
    let mut values: Vec<f64> = values.collect();
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

/// Processor time of polling [`FRAGMENTS`] fragments while `queued` blocks wait.
fn cost(queued: usize, asking: Asking) -> Duration {
    let (paths, batch) = (asking.paths, asking.batch);
    let start = Instant::now();
    let config = SessionConfig {
        max_send_bytes: usize::MAX,
        ..SessionConfig::default()
    };
    let scheduler = asking.scheduler.build();
    let mut session = Session::with_scheduler(config, Side::Client, start, scheduler);
    for path in 0..paths {
        session.add_path(start, PathId(path), f64::from(path), update(path));
    }
    fill(&mut session, start, queued);
    // The session has been busy for long enough to trust its estimates.
    let mut now = start + Duration::from_secs(1);
    drain_control(&mut session, now, paths);

    let budget = Budget {
        datagrams: batch,
        ..Budget::ONE
    };
    let mut datagrams = Vec::new();
    let before = processor_time();
    let mut polled = 0;
    while polled < FRAGMENTS {
        datagrams.clear();
        for path in 0..paths {
            session.poll_datagrams(now, PathId(path), budget, &mut datagrams);
        }
        black_box(&datagrams);
        assert!(
            !datagrams.is_empty(),
            "nothing to send after {polled} fragments"
        );
        let count = u32::try_from(datagrams.len()).unwrap();
        polled += count;
        now += Duration::from_micros(10) * count;
    }
    processor_time() - before
}

/// Blocks of 8 priorities and of deadlines from 5 to 100 seconds, on 4 streams.
fn fill(session: &mut Session, now: Instant, queued: usize) {
    let config = StreamConfig {
        mode: Mode::Retransmit,
        ..StreamConfig::default()
    };
    let streams = [0; 4].map(|_| session.open_stream(now, config.clone()).unwrap());
    let data = Bytes::from(vec![7; BLOCK_BYTES]);
    for number in 0..queued {
        let step = number as u64 * 7919;
        let options = BlockOptions {
            priority: Some((step % 8) as u8),
            deadline: Some(Duration::from_millis(5_000 + step * 31 % 95_000)),
            depends_on: None,
        };
        let stream = streams[number % streams.len()];
        session
            .send_block(now, stream, data.clone(), options)
            .unwrap();
    }
}

/// Sends what opening the streams takes, so that only blocks are left.
fn drain_control(session: &mut Session, now: Instant, paths: u32) {
    for _ in 0..8 {
        for path in 0..paths {
            black_box(session.poll_datagram(now, PathId(path)));
        }
    }
}

fn update(path: u32) -> PathUpdate {
    let rtt = Duration::from_millis(if path == 0 { 40 } else { 600 });
    PathUpdate {
        cwnd: 1 << 40,
        bytes_in_flight: 0,
        bandwidth: Bandwidth::from_mbit(1000),
        smoothed_rtt: rtt,
        min_rtt: rtt,
        max_datagram: 1328,
    }
}

fn processor_time() -> Duration {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    Duration::new(
        u64::try_from(time.tv_sec).unwrap_or_default(),
        u32::try_from(time.tv_nsec).unwrap_or_default(),
    )
}
