//! MPDTP fig. 4 and 5: QoE of text, audio and video at once over two paths, against multipath QUIC with New Reno as in the paper, Cubic and BBRv3.
//!
//! The paths have 600 and 100 ms of RTT and each half of the bandwidth, which is given as a multiple of the offered load.
//! The paper says neither how the bandwidth is split nor how much the links queue, and the queue decides: where it is deep,
//! New Reno fills it and all three connections wait in it. So it is a parameter.

mod command;
mod real;
mod sent;
mod setup;

use std::time::Duration;

use starhaul_demo::{
    baseline::Controller,
    load::{Class, Classes},
    score::ClassScore,
};
use starhaul_link::QueueLimit;
use starhaul_plot::{Bound, Column};
use starhaul_session::{Mode, SchedulerChoice};

pub use self::{
    command::Mpdtp,
    setup::{PathController, QoeSetup},
};
use self::{sent::LinkBytes, setup::Own};
use crate::{
    Error,
    kit::{Figures, Part, Plot, Records, Study, Target, statistics::percentile},
    worlds::stack::mpquic_name,
};

/// The bandwidths of fig. 4, as multiples of the offered load.
pub const BANDWIDTH_FACTORS: [f64; 6] = [0.5, 1.0, 1.5, 2.0, 3.0, 5.0];
/// The losses of fig. 5.
pub const LOSSES: [f64; 7] = [0.0001, 0.001, 0.005, 0.01, 0.02, 0.05, 0.1];
/// The default of `tc netem`, on which Mininet and its like build.
pub const NETEM_QUEUE: QueueLimit = QueueLimit::Packets(1_000);

/// A quarter of a second at the least of the bandwidths.
pub const SHORT_QUEUE: QueueLimit = QueueLimit::Bytes(42_000);
const QUEUES: [(QueueLimit, &str); 2] = [(NETEM_QUEUE, "1000 packets"), (SHORT_QUEUE, "42 kB")];
/// For how long the applications send.
const SENDING: Duration = Duration::from_secs(10);
/// The losses of fig. 4, and the bandwidth of fig. 5.
const FEW_LOSSES: f64 = 0.0001;
const ENOUGH: f64 = 5.0;

/// A part's name, the figure that it stands for, and what it shows.
type Names = (&'static str, &'static str, &'static str);

const BY_BANDWIDTH: Names = (
    "bandwidth",
    "MPDTP fig. 4",
    "half the bandwidth that is wanted, and up to five times as much",
);
const BY_LOSS: Names = (
    "loss",
    "MPDTP fig. 5",
    "enough bandwidth, and more and more loss",
);

/// What a command asks for in place of the published points.
#[derive(Clone, Debug, Default)]
struct Sweep {
    /// Of part bandwidth, per offered load.
    factors: Vec<f64>,
    /// Of part loss.
    losses: Vec<f64>,
}

impl Sweep {
    /// The points of fig. 4, or of the bandwidths that are asked for.
    fn by_bandwidth(&self, usual: &[f64]) -> Vec<Point> {
        by_bandwidth(given_or(&self.factors, usual))
    }

    /// The points of fig. 5, or of the losses that are asked for.
    fn by_loss(&self, usual: &[f64]) -> Vec<Point> {
        by_loss(given_or(&self.losses, usual))
    }
}

const fn given_or<'a>(given: &'a [f64], usual: &'a [f64]) -> &'a [f64] {
    if given.is_empty() { usual } else { given }
}

/// The parts in virtual time.
fn study(sweep: &Sweep) -> Study {
    Study::new(
        "mpdtp",
        "MPDTP fig. 4, 5",
        "text, audio and video over two paths, beside multipath QUIC",
        "Text, audio and video over two paths",
        "Two paths with 100 and 600 ms of round-trip time and each half of the bandwidth, in virtual time with the whole stack; ours with \
         known rates (dedicated) and with BBR (bbr), beside noq's multipath QUIC with New Reno, and a \
         scheduler that knows what the links will carry and lose (oracle). Latencies are those of all blocks that arrived. Ideal is what no scheduler can exceed: where it is less than five times \
         a rival's QoE, the share of the oracle's tells what can be had. Part loss also has ours by its protections, with known rates: none, retransmit, fec, \
         fec+retransmit; dedicated and bbr have both, too.",
    )
    .part(
        part(BY_BANDWIDTH, "bandwidth", sweep, |wanted| {
            let factors: &[f64] = if wanted.quick { &[0.5, 2.0] } else { &BANDWIDTH_FACTORS };
            // Where nothing is lost, protections are compared only if they are asked for.
            let has = |system: &System| !wanted.chosen.is_empty() || !system.is_by_mode();
            setups(&wanted.sweep.by_bandwidth(factors), has, wanted.seed)
        })
        .plot(by_bandwidth_plot()),
    )
    .part(
        part(BY_LOSS, "loss", sweep, |wanted| {
            let losses: &[f64] = if wanted.quick { &[0.001, 0.05] } else { &LOSSES };
            setups(&wanted.sweep.by_loss(losses), |_| true, wanted.seed)
        })
        .weighing(3.0)
        .plot(by_loss_plot()),
    )
}

/// Which runs of one seed a part is to give.
struct Wanted<'a> {
    quick: bool,
    seed: u64,
    /// The systems that the command names, if it names some.
    chosen: &'a [&'static str],
    sweep: &'a Sweep,
}

/// A part whose points differ in the column `by`.
fn part(
    names: Names,
    by: &'static str,
    sweep: &Sweep,
    setups: fn(&Wanted<'_>) -> Vec<Setup>,
) -> Part {
    let sweep = sweep.clone();
    let of = move |quick, seed, chosen: &[&'static str]| {
        setups(&Wanted {
            quick,
            seed,
            chosen,
            sweep: &sweep,
        })
    };
    let system: fn(&Setup) -> &'static str = |(_, system, _)| system.name();
    let part = Part::of_systems_with_sessions(names, columns, of, (&SYSTEMS, system), rows);
    part.target(Target { by, ..OF_ORACLE })
        .target(Target { by, ..OF_RIVAL })
}

/// What ours has of the QoE of a scheduler that knows the future, at every point.
const OF_ORACLE: Target = Target {
    of: &["system", "queue"],
    by: "bandwidth",
    figure: "of_oracle",
    bound: of_oracle,
    together: false,
};

/// At every point as much QoE as the paper's rival, and [`TIMES`] as much where that has least, unless that is more than the ideal.
const OF_RIVAL: Target = Target {
    figure: "qoe",
    bound: of_rival,
    ..OF_ORACLE
};
/// The systems that have goals, and the one of the paper that they are compared with.
const OURS: [System; 2] = [
    System::Starhaul(PathController::Dedicated),
    System::Starhaul(PathController::Bbr),
];
const RIVAL: System = System::MpQuic(Controller::NewReno);
/// The published advantage.
const TIMES: f64 = 5.0;

fn of_oracle(name: &str, _: Figures<'_>) -> Option<Bound> {
    queue_of_ours(name).map(|_| Bound::AtLeast(0.97))
}

fn of_rival(name: &str, row: Figures<'_>) -> Option<Bound> {
    let queue = queue_of_ours(name)?;
    let rival = row.beside(&format!("{}, {queue}", RIVAL.name()));
    let theirs = rival.and_then(|rival| rival.of("qoe"));
    // One that failed is not exceeded.
    let theirs = theirs.unwrap_or(f64::NAN);
    let least = rival.and_then(|rival| rival.least("qoe"));
    let is_worst = least.is_some_and(|least| theirs <= least);
    let times = match is_worst && TIMES * theirs <= row.of("ideal")? {
        true => TIMES,
        false => 1.0,
    };
    Some(Bound::AtLeast(times * theirs))
}

/// The name of the queue, if the row is one of ours.
fn queue_of_ours(name: &str) -> Option<&str> {
    let (system, queue) = name.split_once(", ")?;
    let is_of = |ours: &System| ours.name() == system;
    OURS.iter().any(is_of).then_some(queue)
}

/// QoE over the bandwidth.
const fn by_bandwidth_plot() -> Plot {
    Plot {
        title: "QoE",
        x: ("bandwidth", "bandwidth per offered load"),
        log_from: None,
        y: ("qoe", "blocks on time by weight"),
        by: &["system", "scheduler", "queue"],
    }
}

/// The same over the loss.
fn by_loss_plot() -> Plot {
    Plot {
        x: ("loss", "loss, %"),
        log_from: Some(0.01),
        ..by_bandwidth_plot()
    }
}

/// A queue with its name, bandwidth per offered load, loss.
type Point = ((QueueLimit, &'static str), f64, f64);

/// The points of fig. 4, with each queue.
fn by_bandwidth(factors: &[f64]) -> Vec<Point> {
    let queues = QUEUES.into_iter();
    let points = queues.flat_map(|queue| factors.iter().map(move |f| (queue, *f, FEW_LOSSES)));
    points.collect()
}

/// The points of fig. 5. With so much bandwidth nothing queues.
fn by_loss(losses: &[f64]) -> Vec<Point> {
    let points = losses.iter().map(|loss| (QUEUES[1], ENOUGH, *loss));
    points.collect()
}

/// One system at one point of a figure; the name of its queue.
type Setup = (QoeSetup, System, &'static str);

/// What a system had at a point.
struct Row {
    system: System,
    queue: &'static str,
    setup: QoeSetup,
    scores: Classes<ClassScore>,
    /// Of all blocks that arrived, ascending; none of the oracle's.
    latencies_ms: Vec<f64>,
    /// None of the oracle's.
    link_bytes: Option<LinkBytes>,
    /// Of ours.
    extra_share: Option<f64>,
    /// The QoE of the oracle.
    oracle: f64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum System {
    /// With both protections, by rules.
    Starhaul(PathController),
    /// By its protection and scheduler; the rates of the paths are known.
    ByMode(Mode, SchedulerChoice),
    MpQuic(Controller),
    /// It knows what the links will carry and lose.
    Oracle,
}

impl System {
    /// In the order of the table.
    const ALL: [Self; 11] = [
        Self::Starhaul(PathController::Dedicated),
        Self::Starhaul(PathController::Bbr),
        Self::ByMode(Mode::None, SchedulerChoice::Rules),
        Self::ByMode(Mode::Retransmit, SchedulerChoice::Rules),
        Self::ByMode(Mode::Fec, SchedulerChoice::Rules),
        Self::ByMode(Mode::FecRetransmit, SchedulerChoice::Rules),
        Self::ByMode(Mode::FecRetransmit, SchedulerChoice::Optimizer),
        Self::MpQuic(Controller::NewReno),
        Self::MpQuic(Controller::Cubic),
        Self::MpQuic(Controller::Bbr),
        Self::Oracle,
    ];

    const fn name(self) -> &'static str {
        match self {
            Self::Starhaul(PathController::Dedicated) => "dedicated",
            Self::Starhaul(PathController::Bbr) => "bbr",
            Self::ByMode(mode, _) => mode.name(),
            Self::MpQuic(controller) => mpquic_name(controller),
            Self::Oracle => "oracle",
        }
    }

    const fn scheduler(self) -> &'static str {
        match self {
            Self::Starhaul(_) => SchedulerChoice::Rules.name(),
            Self::ByMode(_, scheduler) => scheduler.name(),
            Self::MpQuic(_) | Self::Oracle => "its own",
        }
    }

    const fn is_by_mode(self) -> bool {
        matches!(self, Self::ByMode(..))
    }
}

/// Their names, of which two schedulers may have the same.
const SYSTEMS: [&str; System::ALL.len()] = {
    let mut names = [""; System::ALL.len()];
    let mut index = 0;
    while index < names.len() {
        names[index] = System::ALL[index].name();
        index += 1;
    }
    names
};

/// Each of these systems at each point.
fn setups(points: &[Point], has: impl Fn(&System) -> bool, seed: u64) -> Vec<Setup> {
    let systems: Vec<System> = System::ALL.into_iter().filter(has).collect();
    let point = |((queue, name), bandwidth_factor, loss): &Point| {
        let setup = QoeSetup {
            bandwidth_factor: *bandwidth_factor,
            loss: *loss,
            queue: *queue,
            duration: SENDING,
            seed,
        };
        let name = *name;
        systems.iter().map(move |system| (setup, *system, name))
    };
    points.iter().flat_map(point).collect()
}

fn rows((setup, system, queue): &Setup, records: &Records) -> Result<Vec<Row>, Error> {
    let ran = match *system {
        System::Starhaul(control) => Some(setup.run_starhaul(Own::protected(control), records)?),
        System::ByMode(mode, scheduler) => {
            let own = Own {
                control: PathController::Dedicated,
                mode,
                scheduler,
            };
            Some(setup.run_starhaul(own, records)?)
        }
        System::MpQuic(controller) => Some(setup.run_mpquic(controller)?),
        System::Oracle => None,
    };
    let oracle = setup.oracle()?;
    let qoe = oracle.qoe();
    let ran = ran.as_ref();
    Ok(vec![Row {
        system: *system,
        queue,
        setup: *setup,
        scores: ran.map_or(oracle, |ran| ran.logs.scores()),
        latencies_ms: ran.map_or_else(Vec::new, |ran| ran.logs.latencies_ms()),
        link_bytes: ran.map(|ran| ran.link_bytes),
        extra_share: ran.and_then(|ran| ran.extra_share),
        oracle: qoe,
    }])
}

/// Of the blocks of all classes.
#[expect(clippy::cast_precision_loss, reason = "blocks of some seconds")]
fn on_time_share(scores: &Classes<ClassScore>) -> f64 {
    let all = Class::ALL.map(|class| scores.of(class));
    let sent: u64 = all.iter().map(|score| score.sent).sum();
    let on_time: u64 = all.iter().map(|score| score.on_time).sum();
    on_time as f64 / sent.max(1) as f64
}

/// The latency below which this share of the blocks that arrived has it.
fn latency<R: 'static>(
    key: &'static str,
    name: &'static str,
    share: f64,
    of: fn(&R) -> &[f64],
) -> Column<R> {
    Column::number(key, name, "ms", 1, move |row: &R| {
        let found = of(row);
        (!found.is_empty()).then(|| percentile(found, share)).into()
    })
    .median()
}

fn columns() -> Vec<Column<Row>> {
    let share = |key, name, class| {
        Column::share(key, name, 1, move |row: &Row| {
            row.scores.of(class).on_time_share().into()
        })
        .median()
    };
    let latency =
        |key, name, share| latency::<Row>(key, name, share, |row| row.latencies_ms.as_slice());
    let mut columns = vec![
        Column::name("system", "system", |row: &Row| row.system.name().into()),
        Column::name("scheduler", "scheduler", |row: &Row| {
            row.system.scheduler().into()
        }),
        Column::name("queue", "queue", |row: &Row| row.queue.into()),
        Column::count("seed", "seed", |row: &Row| row.setup.seed.into()).dropped(),
        Column::number("bandwidth", "bandwidth", "", 1, |row: &Row| {
            row.setup.bandwidth_factor.into()
        }),
        Column::share("loss", "loss", 2, |row: &Row| row.setup.loss.into()),
        Column::number("qoe", "QoE", "", 0, |row: &Row| row.scores.qoe().into()).median(),
        Column::number("ideal", "ideal", "", 0, |row: &Row| {
            row.setup.ideal().into()
        })
        .median(),
        Column::share("on_time_share", "on time", 1, |row: &Row| {
            on_time_share(&row.scores).into()
        })
        .median(),
        latency("latency_p50_ms", "median", 0.5),
        latency("latency_p99_ms", "p99", 0.99),
        Column::number("of_oracle", "of oracle", "", 3, |row: &Row| {
            // Of nothing any share would be great.
            let of_oracle = || row.scores.qoe() / row.oracle;
            (row.oracle > 0.0).then(of_oracle).into()
        })
        .median(),
        share("text", "text", Class::Text),
        share("audio", "audio", Class::Audio),
        share("video", "video", Class::Video),
        Column::share("extra_bytes_share", "extra", 1, |row: &Row| {
            row.extra_share.into()
        })
        .median(),
    ];
    columns.extend(sent::columns(
        |row: &Row| row.link_bytes,
        |row: &Row| row.setup.offered_bytes(),
    ));
    columns
}

#[cfg(test)]
mod tests {
    use starhaul_plot::{Goal, Table};

    use super::*;
    use crate::kit::target::goals;

    /// System, bandwidth, QoE; the ideal is 500.
    type Point = (&'static str, f64, f64);

    fn missed(points: &[Point]) -> Option<String> {
        let columns = [
            Column::name("system", "", |point: &Point| point.0.into()),
            Column::name("queue", "", |_: &Point| "42 kB".into()),
            Column::number("bandwidth", "", "", 1, |point: &Point| point.1.into()),
            Column::number("qoe", "", "", 0, |point: &Point| point.2.into()),
            Column::number("ideal", "", "", 0, |_: &Point| 500.0_f64.into()),
        ];
        let table = Table::of(&columns, points);
        Goal::missed(&goals([("bandwidth", &OF_RIVAL, &table)]))
    }

    #[test]
    fn ours_has_five_times_as_much_where_the_rival_has_least_and_nowhere_less() {
        let theirs = [("mpquic", 0.5, 100.0), ("mpquic", 1.0, 300.0)];
        let with = |ours: &[Point]| missed(&[&theirs[..], ours].concat());
        assert_eq!(with(&[("bbr", 0.5, 500.0), ("bbr", 1.0, 300.0)]), None);
        let told = with(&[("bbr", 0.5, 499.0), ("bbr", 1.0, 300.0)]);
        assert!(told.is_some_and(|told| told.contains("bandwidth 0.5: qoe 499.000")));
        let told = with(&[("dedicated", 0.5, 500.0), ("dedicated", 1.0, 299.0)]);
        assert!(told.is_some_and(|told| told.contains("bandwidth 1: qoe 299.000")));
    }

    #[test]
    fn five_times_more_than_the_ideal_is_not_asked_for_and_a_rival_without_a_row_is_not_exceeded() {
        let theirs = ("mpquic", 0.5, 101.0);
        assert_eq!(missed(&[theirs, ("bbr", 0.5, 101.0)]), None);
        assert!(missed(&[theirs, ("bbr", 0.5, 100.0)]).is_some());
        assert!(missed(&[theirs, ("bbr", 0.5, 500.0), ("bbr", 1.0, 500.0)]).is_some());
    }
}
