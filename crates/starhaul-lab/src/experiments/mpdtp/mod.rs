//! MPDTP fig. 4 and 5: QoE of text, audio and video at once over two paths, against multipath QUIC with New Reno as in the paper, Cubic and BBRv3.
//!
//! The paths have 600 and 100 ms of RTT and each half of the bandwidth, which is given as a multiple of the offered load.
//! The paper says neither how the bandwidth is split nor how much the links queue, and the queue decides: where it is deep,
//! New Reno fills it and all three connections wait in it. So it is a parameter.

mod command;
mod real;
mod setup;

use std::time::Duration;

use starhaul_demo::{
    baseline::Controller,
    load::{Class, Classes},
    score::ClassScore,
};
use starhaul_link::QueueLimit;
use starhaul_plot::{Bound, Column};

pub use self::{
    command::Mpdtp,
    setup::{PathController, QoeSetup},
};
use crate::{
    Error,
    kit::{Figures, Part, Plot, Records, Study, Target, statistics::percentile},
    workload::media::Logs,
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

/// The parts in virtual time.
fn study() -> Study {
    Study::new(
        "mpdtp",
        "MPDTP fig. 4, 5",
        "text, audio and video over two paths, beside multipath QUIC",
        "Text, audio and video over two paths",
        "Two paths with 100 and 600 ms of round-trip time and each half of the bandwidth, in virtual time with the whole stack; ours with \
         known rates (dedicated) and with BBR, beside noq's multipath QUIC with New Reno, and a \
         scheduler that knows what the links will carry and lose (oracle). Latencies are those of all blocks that arrived. Ideal is what no scheduler can exceed: where it is less than five times \
         a rival's QoE, the share of the oracle's tells what can be had.",
    )
    .part(
        part(BY_BANDWIDTH, "bandwidth", |quick, seed| {
            let factors: &[f64] = if quick { &[0.5, 2.0] } else { &BANDWIDTH_FACTORS };
            setups(by_bandwidth(factors), seed)
        })
        .plot(by_bandwidth_plot()),
    )
    .part(
        part(BY_LOSS, "loss", |quick, seed| {
            let losses: &[f64] = if quick { &[0.001, 0.05] } else { &LOSSES };
            setups(by_loss(losses), seed)
        })
        .weighing(3.0)
        .plot(by_loss_plot()),
    )
}

/// A part whose points differ in the column `by`.
fn part(
    (name, stands_for, shows): Names,
    by: &'static str,
    setups: fn(bool, u64) -> Vec<Setup>,
) -> Part {
    let part = Part::with_sessions(name, stands_for, shows, columns, setups, rows);
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
/// The published advantage.
const TIMES: f64 = 5.0;

fn of_oracle(name: &str, _: Figures<'_>) -> Option<Bound> {
    queue_of_ours(name).map(|_| Bound::AtLeast(0.97))
}

fn of_rival(name: &str, row: Figures<'_>) -> Option<Bound> {
    let queue = queue_of_ours(name)?;
    let rival = row.beside(&format!("{}, {queue}", mpquic_name(Controller::NewReno)));
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
    let ours = [PathController::Dedicated, PathController::Bbr];
    let is_of = |control: &PathController| System::Starhaul(*control).name() == system;
    ours.iter().any(is_of).then_some(queue)
}

/// QoE over the bandwidth.
const fn by_bandwidth_plot() -> Plot {
    Plot {
        title: "QoE",
        x: ("bandwidth", "bandwidth per offered load"),
        log_from: None,
        y: ("qoe", "blocks on time by weight"),
        by: &["system", "queue"],
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
    /// The QoE of the oracle.
    oracle: f64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum System {
    Starhaul(PathController),
    MpQuic(Controller),
    /// It knows what the links will carry and lose.
    Oracle,
}

impl System {
    const fn name(self) -> &'static str {
        match self {
            Self::Starhaul(PathController::Dedicated) => "dedicated",
            Self::Starhaul(PathController::Bbr) => "bbr",
            Self::MpQuic(controller) => mpquic_name(controller),
            Self::Oracle => "oracle",
        }
    }
}

fn setups(points: Vec<Point>, seed: u64) -> Vec<Setup> {
    let systems = [
        System::Starhaul(PathController::Dedicated),
        System::Starhaul(PathController::Bbr),
        System::MpQuic(Controller::NewReno),
        System::MpQuic(Controller::Cubic),
        System::MpQuic(Controller::Bbr),
        System::Oracle,
    ];
    let point = |((queue, name), bandwidth_factor, loss): Point| {
        let setup = QoeSetup {
            bandwidth_factor,
            loss,
            queue,
            duration: SENDING,
            seed,
        };
        systems.map(|system| (setup, system, name))
    };
    points.into_iter().flat_map(point).collect()
}

fn rows((setup, system, queue): &Setup, records: &Records) -> Result<Vec<Row>, Error> {
    let logs = match system {
        System::Starhaul(control) => Some(setup.run_starhaul(*control, records)?),
        System::MpQuic(controller) => Some(setup.run_mpquic(*controller)?),
        System::Oracle => None,
    };
    let oracle = setup.oracle()?;
    let qoe = oracle.qoe();
    Ok(vec![Row {
        system: *system,
        queue,
        setup: *setup,
        scores: logs.as_ref().map_or(oracle, Logs::scores),
        latencies_ms: logs.as_ref().map_or_else(Vec::new, Logs::latencies_ms),
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
    vec![
        Column::name("system", "system", |row: &Row| row.system.name().into()),
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
    ]
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
