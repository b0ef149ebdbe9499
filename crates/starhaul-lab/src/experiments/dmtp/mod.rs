//! DMTP fig. 5–9: blocks of 24 kB with a deadline of 200 ms over two paths of 15 Mbit/s and 60 ms one way, of which the
//! cheap one loses more and more.

mod command;
mod course;
mod goals;
mod model;
mod real;
mod rival;
mod run;

use std::time::Duration;

use starhaul_demo::baseline::Controller;
use starhaul_link::LinkSpec;
use starhaul_plot::Column;
use starhaul_session::{Mode, SchedulerChoice};
use starhaul_units::Bandwidth;

use self::course::Course;
pub use self::{
    command::Dmtp,
    course::{Step, steps},
    model::{least_extra_share, needed_bytes},
    run::{DmtpSetup, StepResult},
};
use crate::{
    Error,
    kit::{Part, Plot, Records, Study, statistics::percentile},
    worlds::stack::mpquic_name,
};

/// Loss of the cheap path in each step of the paper.
pub const LOSS_STEPS: [f64; 8] = [0.0, 0.0001, 0.0005, 0.005, 0.01, 0.02, 0.05, 0.1];
/// Bytes of a block.
pub const BLOCK_BYTES: usize = 24_000;
/// Blocks of a step of 5 s.
pub const BLOCKS_PER_STEP: u32 = 250;
/// Blocks before the first step that do not count, while each system finds its rate; nothing is lost meanwhile.
const WARM_UP_BLOCKS: u32 = 100;
/// Fragments of a block.
const FRAGMENTS: u32 = 20;

const RATE: Bandwidth = Bandwidth::from_mbit(15);
const ONE_WAY: Duration = Duration::from_millis(60);
const DEADLINE: Duration = Duration::from_millis(200);
const INTERVAL: Duration = Duration::from_millis(20);
/// Cheap and dear, price per byte.
const COSTS: [f64; 2] = [1.0, 3.0];

/// The protections that the paper compares.
pub const MODES: [Mode; 4] = [Mode::None, Mode::Retransmit, Mode::Fec, Mode::FecRetransmit];

/// What the parts compare: ours by its protections, and multipath QUIC with each of its controllers.
const SYSTEMS: [&str; 7] = [
    MODES[0].name(),
    MODES[1].name(),
    MODES[2].name(),
    MODES[3].name(),
    mpquic_name(Controller::NewReno),
    mpquic_name(Controller::Cubic),
    mpquic_name(Controller::Bbr),
];

/// The parts in virtual time, over these losses.
fn study(course: &Course) -> Study {
    let part =
        |names: Names, columns: Columns, setups: Setups| part(names, columns, setups, course);
    let on_time = by_loss_plot(&["system", "scheduler"]);
    let plot = |title, y| Plot {
        title,
        y,
        ..on_time.clone()
    };
    let with_bursts = Plot {
        by: &["system", "scheduler", "burst"],
        ..on_time.clone()
    };
    let timeline = Plot {
        title: "Latency of blocks",
        x: ("time_s", "time, s"),
        log_from: None,
        y: ("latency_p99_ms", "ms"),
        by: &["system", "scheduler"],
    };
    Study::new(
        "dmtp",
        "DMTP fig. 5–9",
        "blocks with a deadline over a path that loses more and more",
        "Blocks with a deadline over a lossy path",
        "Blocks of 24 kB each 20 ms, due within 200 ms, over two paths of 15 Mbit/s and 60 ms one way, in virtual time with the whole stack. \
         The cheap path loses more of its packets each 5 s; the dear one loses nothing. The first 2 s, without loss, do not count. mpquic is noq's multipath QUIC with New Reno, mpquic-cubic and mpquic-bbr have its other controllers.",
    )
    .part(
        part(("loss", "DMTP fig. 7", "both paths, by loss of the cheap one"), columns, |wanted| {
            let steps = wanted.alone();
            own(wanted, &MODES, &steps).chain(rivals(wanted.seed, &steps)).collect()
        })
        .target(goals::LATE)
        .plot(on_time.clone()),
    )
    .part(
        part(("timeline", "DMTP fig. 5", "the same over time, each half second"), columns_over_time, |wanted| {
            let over_time = |system| Setup { over_time: true, ..system };
            own(wanted, &[Mode::Retransmit, Mode::FecRetransmit], &wanted.alone()).map(over_time).collect()
        })
        .plot(timeline.clone())
        .plot(Plot { title: "Redundancy and retransmissions", y: ("extra_bytes_share", "% of the data"), ..timeline }),
    )
    .part(
        part(("paths", "DMTP fig. 8", "what each path carries"), columns, |wanted| {
            own(wanted, &[Mode::None, Mode::Retransmit, Mode::FecRetransmit], &wanted.alone()).collect()
        })
        .target(goals::DEAR)
        .plot(plot("Bytes over the dear path", ("dear_bytes", "bytes in 5 s")))
        .plot(plot("Bytes over the cheap path", ("cheap_bytes", "bytes in 5 s"))),
    )
    .part(
        part(("overhead", "DMTP fig. 9", "redundancy and retransmissions beside the data, and the least that a model needs"), columns, |wanted| {
            own(wanted, &MODES[1..], &wanted.alone()).collect()
        })
        .target(goals::EXTRA)
        .plot(plot("Extra bytes", ("extra_bytes_share", "% of the data"))),
    )
    .part(
        part(("bursts", "", "packets lost in a row: 5 and 20, or as many as --burst says"), columns_of_bursts, |wanted| {
            own(wanted, &MODES[1..], &wanted.course.in_a_row(wanted.quick)).collect()
        })
        .target(goals::LATE_IN_A_ROW)
        .target(goals::EXTRA_IN_A_ROW)
        .plot(with_bursts),
    )
    .part(
        part(("cheap", "", "the cheap path alone"), columns, |wanted| {
            let is_by_rules = |setup: &Setup| setup.system.scheduler() == SchedulerChoice::Rules.name();
            let alone = |setup: Setup| Setup { system: setup.system.alone(), ..setup };
            own(wanted, &MODES, &wanted.alone())
                // One path leaves nothing to choose.
                .filter(is_by_rules).map(alone).collect()
        })
        .plot(on_time),
    )
}

/// Blocks on time, a line for each value of these columns.
const fn by_loss_plot(by: &'static [&'static str]) -> Plot {
    Plot {
        title: "Blocks on time",
        x: ("loss", "loss of the cheap path, %"),
        log_from: Some(0.01),
        y: ("on_time_share", "%"),
        by,
    }
}

/// A part's name, the figure that it stands for, and what it shows.
type Names = (&'static str, &'static str, &'static str);

type Columns = fn() -> Vec<Column<Row>>;

type Setups = fn(&Wanted<'_>) -> Vec<Setup>;

fn part(names: Names, columns: Columns, setups: Setups, course: &Course) -> Part {
    let course = course.clone();
    let of = move |quick, seed, chosen: &[&'static str]| {
        setups(&Wanted {
            quick,
            seed,
            chosen,
            course: &course,
        })
    };
    let system: fn(&Setup) -> &'static str = |setup| setup.system.name();
    Part::of_systems_with_sessions(names, columns, of, (&SYSTEMS, system), rows)
}

/// Which runs of one seed a part is to give.
struct Wanted<'a> {
    quick: bool,
    seed: u64,
    /// The systems that the command names, if it names some.
    chosen: &'a [&'static str],
    course: &'a Course,
}

impl Wanted<'_> {
    /// The losses that a part goes through, each for 5 s.
    fn alone(&self) -> Vec<Step> {
        self.course.alone(self.quick)
    }
}

/// Our own system in these modes, over both paths.
fn own(wanted: &Wanted<'_>, modes: &[Mode], steps: &[Step]) -> impl Iterator<Item = Setup> + use<> {
    let (steps, seed) = (steps.to_vec(), wanted.seed);
    // Redundancy by itself is left out of quick runs, unless it is asked for.
    let is_brief = wanted.quick && wanted.chosen.is_empty();
    let modes: Vec<Mode> = modes
        .iter()
        .copied()
        .filter(|mode| !(steps.is_empty() || is_brief && *mode == Mode::Fec))
        .collect();
    // Without protection there is nothing to plan.
    let planned = modes.clone().into_iter().filter(|mode| *mode != Mode::None);
    let planned = planned.map(|mode| (mode, SchedulerChoice::Optimizer));
    let by_rules = modes.into_iter().map(|mode| (mode, SchedulerChoice::Rules));
    let runs = by_rules.chain(planned);
    runs.map(move |(mode, scheduler)| Setup {
        system: System::Starhaul(DmtpSetup {
            mode,
            scheduler,
            both_paths: true,
            seed,
        }),
        seed,
        steps: steps.clone(),
        over_time: false,
    })
}

/// With each controller.
fn rivals(seed: u64, steps: &[Step]) -> impl Iterator<Item = Setup> {
    let of = move |controller| Setup {
        system: System::MpQuic(controller),
        seed,
        steps: steps.to_vec(),
        over_time: false,
    };
    Controller::ALL.into_iter().map(of)
}

/// One run of a system through steps of loss.
#[derive(Clone, Debug)]
struct Setup {
    system: System,
    seed: u64,
    steps: Vec<Step>,
    /// A row for each half second, in place of one for each step.
    over_time: bool,
}

#[derive(Clone, Copy, Debug)]
enum System {
    Starhaul(DmtpSetup),
    MpQuic(Controller),
}

impl System {
    const fn name(self) -> &'static str {
        match self {
            Self::Starhaul(setup) => setup.mode.name(),
            Self::MpQuic(controller) => mpquic_name(controller),
        }
    }

    const fn scheduler(self) -> &'static str {
        match self {
            Self::Starhaul(setup) => setup.scheduler.name(),
            Self::MpQuic(_) => "its own",
        }
    }

    /// Over the cheap path only.
    const fn alone(self) -> Self {
        match self {
            Self::Starhaul(setup) => Self::Starhaul(DmtpSetup {
                both_paths: false,
                ..setup
            }),
            other => other,
        }
    }
}

/// A row: blocks that were sent in one step, or in half a second of it.
struct Row {
    system: System,
    seed: u64,
    step: Step,
    /// When the first of them was sent.
    at: Duration,
    result: StepResult,
}

impl Row {
    /// Part of a step's blocks.
    fn share(&self) -> f64 {
        f64::from(self.result.sent) / f64::from(BLOCKS_PER_STEP)
    }
}

/// The row of a block by its number, of rows of `per_row`; none of those that do not count.
fn row_of(block: u32, per_row: u32) -> Option<usize> {
    let counted = block.checked_sub(WARM_UP_BLOCKS)?;
    usize::try_from(counted / per_row).ok()
}

/// The row that begins with this block.
fn begun_by(block: u32, per_row: u32) -> Option<usize> {
    let is_first = block.saturating_sub(WARM_UP_BLOCKS).is_multiple_of(per_row);
    row_of(block, per_row).filter(|_| is_first)
}

/// Blocks of a row over time.
const BLOCKS_PER_SPAN: u32 = 25;

fn rows(setup: &Setup, records: &Records) -> Result<Vec<Row>, Error> {
    let per_row = match setup.over_time {
        true => BLOCKS_PER_SPAN,
        false => BLOCKS_PER_STEP,
    };
    let results = match setup.system {
        System::Starhaul(own) => own.run_steps(&setup.steps, per_row, records)?,
        System::MpQuic(controller) => rival::run(setup.seed, controller, &setup.steps, per_row)?,
    };
    let row = |(index, mut result): (u32, StepResult)| {
        result.latencies_ms.sort_by(f64::total_cmp);
        let first = index * per_row;
        let step = *setup.steps.get((first / BLOCKS_PER_STEP) as usize)?;
        Some(Row {
            system: setup.system,
            seed: setup.seed,
            step,
            at: INTERVAL * first,
            result,
        })
    };
    Ok((0..).zip(results).filter_map(row).collect())
}

fn columns() -> Vec<Column<Row>> {
    let count = |key, name, of: fn(&StepResult) -> u64| {
        Column::count(key, name, move |row: &Row| of(&row.result).into()).median()
    };
    let total = |key, name, of: fn(&StepResult) -> u32| {
        Column::count(key, name, move |row: &Row| of(&row.result).into()).total()
    };
    let latency = |key, name, share: f64| {
        Column::number(key, name, "ms", 1, move |row: &Row| {
            let found = &row.result.latencies_ms;
            (!found.is_empty()).then(|| percentile(found, share)).into()
        })
        .median()
    };
    vec![
        Column::name("system", "system", |row: &Row| row.system.name().into()),
        Column::name("scheduler", "scheduler", |row: &Row| {
            row.system.scheduler().into()
        }),
        Column::count("seed", "seed", |row: &Row| row.seed.into()).dropped(),
        Column::share("loss", "loss", 2, |row: &Row| row.step.loss.into()),
        count("sent", "sent", |result| result.sent.into()),
        count("on_time", "on time", |result| result.on_time.into()),
        total("blocks", "blocks", |result| result.sent),
        total("late", "late", |result| result.sent - result.on_time),
        Column::share("on_time_share", "on time", 1, |row: &Row| {
            (f64::from(row.result.on_time) / f64::from(row.result.sent.max(1))).into()
        })
        .median(),
        latency("latency_p50_ms", "median", 0.5),
        latency("latency_p99_ms", "p99", 0.99),
        Column::share("extra_bytes_share", "extra", 2, |row: &Row| {
            row.result.extra_share().into()
        })
        .median(),
        Column::share("wire_extra_share", "on the wire", 1, |row: &Row| {
            row.result.wire_extra_share().into()
        })
        .brief("wire")
        .median(),
        Column::share(
            "least_extra_bytes_share",
            "least",
            2,
            |row: &Row| match row.system {
                System::Starhaul(setup) => least_extra_share(setup, row.step).into(),
                System::MpQuic(_) => None::<f64>.into(),
            },
        )
        .median(),
        count("rebuilt", "rebuilt", |result| {
            result.recovered_by_redundancy.into()
        }),
        count("retransmitted", "retransmitted", |result| {
            result.recovered_by_retransmission.into()
        })
        .brief("resent"),
        count("cheap_bytes", "cheap B", |result| result.path_bytes[0]),
        count("dear_bytes", "dear B", |result| result.path_bytes[1]),
        count("dear_data_bytes", "dear data", |result| {
            result.dear_datagram_bytes
        }),
        Column::number(
            "dear_needed_bytes",
            "needed",
            "B",
            0,
            |row: &Row| match row.system {
                System::Starhaul(setup) if setup.both_paths => {
                    (needed_bytes(row.step.loss) * row.share()).into()
                }
                _ => None::<f64>.into(),
            },
        )
        .median(),
    ]
}

fn columns_over_time() -> Vec<Column<Row>> {
    let mut columns = columns();
    let time = |row: &Row| row.at.as_secs_f64().into();
    columns.insert(1, Column::number("time_s", "time", "s", 1, time));
    columns
}

fn columns_of_bursts() -> Vec<Column<Row>> {
    let mut columns = columns();
    let burst = |row: &Row| row.step.burst.into();
    columns.insert(1, Column::number("burst", "burst", "", 0, burst));
    let fragments = |key, name, of: fn((u64, u64)) -> u64| {
        let of = move |row: &Row| row.result.fragments.map(of).into();
        Column::count(key, name, of).total()
    };
    columns.extend([
        fragments("data_fragments", "fragments", |(data, _)| data),
        fragments("extra_fragments", "beside", |(_, extra)| extra),
        Column::count("lost_packets", "lost", |row: &Row| {
            row.result.lost_packets.into()
        })
        .total(),
    ]);
    columns
}

/// The links of the paths, both ways alike.
fn links(both_paths: bool) -> Vec<(LinkSpec, f64)> {
    let costs = COSTS.into_iter().take(if both_paths { 2 } else { 1 });
    costs
        .map(|cost| (LinkSpec::constant(RATE, ONE_WAY), cost))
        .collect()
}
