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
    kit::{Figures, Part, Plot, Records, Study, Target},
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
         scheduler that knows what the links will carry and lose (oracle). Ideal is what no scheduler can exceed: where it is less than five times \
         a rival's QoE, the share of the oracle's tells what can be had.",
    )
    .part(
        part(BY_BANDWIDTH, |quick, seed| {
            let factors: &[f64] = if quick { &[0.5, 2.0] } else { &BANDWIDTH_FACTORS };
            setups(by_bandwidth(factors), seed)
        })
        .plot(by_bandwidth_plot()),
    )
    .part(
        part(BY_LOSS, |quick, seed| {
            let losses: &[f64] = if quick { &[0.001, 0.05] } else { &LOSSES };
            setups(by_loss(losses), seed)
        })
        .weighing(3.0)
        .plot(by_loss_plot()),
    )
}

fn part((name, stands_for, shows): Names, setups: fn(bool, u64) -> Vec<Setup>) -> Part {
    Part::with_sessions(name, stands_for, shows, columns, setups, rows).target(OF_ORACLE)
}

/// What ours has of the QoE of a scheduler that knows the future, at every point.
const OF_ORACLE: Target = Target {
    of: &["system", "queue", "loss"],
    by: "bandwidth",
    figure: "of_oracle",
    bound: of_oracle,
};

fn of_oracle(name: &str, _: Figures<'_>) -> Option<Bound> {
    let ours = [PathController::Dedicated, PathController::Bbr];
    let is_of = |control: &PathController| name.starts_with(System::Starhaul(*control).name());
    ours.iter().any(is_of).then_some(Bound::AtLeast(0.97))
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
/// And the QoE of the oracle at that point.
type Row = (Setup, Classes<ClassScore>, f64);

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

fn rows(setup: &Setup, records: &Records) -> Result<Vec<Row>, Error> {
    let scores = match setup.1 {
        System::Starhaul(control) => setup.0.starhaul(control, records),
        System::MpQuic(controller) => setup.0.mpquic(controller),
        System::Oracle => setup.0.oracle(),
    };
    Ok(vec![(*setup, scores?, setup.0.oracle()?.qoe())])
}

/// Of the blocks of all classes.
#[expect(clippy::cast_precision_loss, reason = "blocks of some seconds")]
fn on_time_share(scores: &Classes<ClassScore>) -> f64 {
    let all = Class::ALL.map(|class| scores.of(class));
    let sent: u64 = all.iter().map(|score| score.sent).sum();
    let on_time: u64 = all.iter().map(|score| score.on_time).sum();
    on_time as f64 / sent.max(1) as f64
}

fn columns() -> Vec<Column<Row>> {
    let share = |key, name, class| {
        Column::share(key, name, 1, move |row: &Row| {
            row.1.of(class).on_time_share().into()
        })
        .median()
    };
    vec![
        Column::name("system", "system", |((_, system, _), ..): &Row| {
            system.name().into()
        }),
        Column::name("queue", "queue", |((.., queue), ..): &Row| (*queue).into()),
        Column::count("seed", "seed", |((setup, ..), ..): &Row| setup.seed.into()).dropped(),
        Column::number(
            "bandwidth",
            "bandwidth",
            "",
            1,
            |((setup, ..), ..): &Row| setup.bandwidth_factor.into(),
        ),
        Column::share("loss", "loss", 2, |((setup, ..), ..): &Row| {
            setup.loss.into()
        }),
        Column::number("qoe", "QoE", "", 0, |row: &Row| row.1.qoe().into()).median(),
        Column::number("ideal", "ideal", "", 0, |((setup, ..), ..): &Row| {
            setup.ideal().into()
        })
        .median(),
        Column::share("on_time_share", "on time", 1, |row: &Row| {
            on_time_share(&row.1).into()
        })
        .median(),
        Column::number(
            "of_oracle",
            "of oracle",
            "",
            3,
            |(_, scores, oracle): &Row| (scores.qoe() / oracle.max(f64::MIN_POSITIVE)).into(),
        )
        .median(),
        share("text", "text", Class::Text),
        share("audio", "audio", Class::Audio),
        share("video", "video", Class::Video),
    ]
}
