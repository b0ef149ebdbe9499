//! MPDTP fig. 4 and 5: QoE of text, audio and video at once over two paths, against multipath QUIC with New Reno as in the paper, Cubic and BBRv3.
//!
//! The paths have 600 and 100 ms of RTT and each half of the bandwidth, which is given as a multiple of the offered load.
//! The paper says neither how the bandwidth is split nor how much the links queue, and the queue decides: where it is deep,
//! New Reno fills it and all three connections wait in it. So it is a parameter.

use std::time::{Duration, Instant};

use starhaul_cc::{ControllerConfig, RateFeed};
use starhaul_demo::{
    baseline::Controller,
    load::{self, BlockSpec, Class, Classes},
    score::ClassScore,
};
use starhaul_link::{LinkSpec, Loss, QueueLimit, link_seed};
use starhaul_plot::Column;
use starhaul_units::Bandwidth;

use crate::{
    Error,
    kit::{Part, Plot, Records, Study},
    workload::media::{Logs, Sending},
    worlds::{
        oracle::Oracle,
        stack::{PathSetup, World, mpquic_name},
    },
};

/// The bandwidths of fig. 4, as multiples of the offered load.
pub const BANDWIDTH_FACTORS: [f64; 6] = [0.5, 1.0, 1.5, 2.0, 3.0, 5.0];
/// The losses of fig. 5.
pub const LOSSES: [f64; 7] = [0.0001, 0.001, 0.005, 0.01, 0.02, 0.05, 0.1];
/// Lowest delay first, which is the baseline's best order.
const RTTS: [Duration; 2] = [Duration::from_millis(100), Duration::from_millis(600)];
/// After the last block is sent: nothing has a longer deadline.
const DRAIN: Duration = Duration::from_secs(4);
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

/// `starhaul lab mpdtp`.
pub fn study() -> Study {
    let by_bandwidth = Plot {
        title: "QoE",
        x: ("bandwidth", "bandwidth per offered load"),
        log_from: None,
        y: ("qoe", "blocks on time by weight"),
        by: &["system", "queue"],
    };
    let by_loss = Plot {
        x: ("loss", "loss, %"),
        log_from: Some(0.01),
        ..by_bandwidth.clone()
    };
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
        Part::with_sessions(
            "bandwidth",
            "MPDTP fig. 4",
            "half the bandwidth that is wanted, and up to five times as much",
            columns,
            |quick, seed| {
                let factors: &[f64] = if quick { &[0.5, 2.0] } else { &BANDWIDTH_FACTORS };
                let queues = QUEUES.into_iter();
                let points = queues.flat_map(|queue| factors.iter().map(move |f| (queue, *f, FEW_LOSSES)));
                setups(points, seed)
            },
            rows,
        )
        .plot(by_bandwidth),
    )
    .part(
        Part::with_sessions(
            "loss",
            "MPDTP fig. 5",
            "enough bandwidth, and more and more loss",
            columns,
            |quick, seed| {
                let losses: &[f64] = if quick { &[0.001, 0.05] } else { &LOSSES };
                // With so much bandwidth nothing queues.
                setups(losses.iter().map(|loss| (QUEUES[1], ENOUGH, *loss)), seed)
            },
            rows,
        )
        .weighing(3.0)
        .plot(by_loss),
    )
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

fn setups(
    points: impl Iterator<Item = ((QueueLimit, &'static str), f64, f64)>,
    seed: u64,
) -> Vec<Setup> {
    let systems = [
        System::Starhaul(PathController::Dedicated),
        System::Starhaul(PathController::Bbr),
        System::MpQuic(Controller::NewReno),
        System::MpQuic(Controller::Cubic),
        System::MpQuic(Controller::Bbr),
        System::Oracle,
    ];
    let point = |((queue, name), bandwidth_factor, loss)| {
        let setup = QoeSetup {
            bandwidth_factor,
            loss,
            queue,
            duration: SENDING,
            seed,
        };
        systems.map(|system| (setup, system, name))
    };
    points.flat_map(point).collect()
}

fn rows(setup: &Setup, records: &Records) -> Result<Vec<Row>, Error> {
    let scores = match setup.1 {
        System::Starhaul(control) => setup.0.starhaul(control, records),
        System::MpQuic(controller) => setup.0.mpquic(controller),
        System::Oracle => setup.0.oracle(),
    };
    Ok(vec![(*setup, scores?, setup.0.oracle()?.qoe())])
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

/// The congestion controller of Starhaul's paths.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PathController {
    /// MPDTP's dedicated link: the rate of each path is known.
    Dedicated,
    /// The rate is found by BBR.
    Bbr,
}

/// One point of a figure.
#[derive(Clone, Copy, Debug)]
pub struct QoeSetup {
    /// Bandwidth of both paths together per offered load.
    pub bandwidth_factor: f64,
    /// Loss of each path, 0 to 1.
    pub loss: f64,
    /// What each link queues; [`NETEM_QUEUE`] is what an emulation with `tc netem` has unless told otherwise.
    pub queue: QueueLimit,
    /// For how long the applications send.
    pub duration: Duration,
    /// Seed of everything random.
    pub seed: u64,
}

impl QoeSetup {
    /// Starhaul's scores.
    ///
    /// # Errors
    /// The session does not come up.
    pub fn starhaul(
        &self,
        control: PathController,
        records: &Records,
    ) -> Result<Classes<ClassScore>, Error> {
        let mut world = World::starhaul(self.seed, &self.paths(control)?, records)?;
        let mut sending = Sending::default();
        let mut logs = Logs::new(self.duration);
        world.run(self.duration + DRAIN, |world| {
            sending.pump(world, &mut logs)
        });
        Ok(logs.scores())
    }

    /// The baseline's scores.
    ///
    /// # Errors
    /// Its connections do not come up, or one ends.
    pub fn mpquic(&self, controller: Controller) -> Result<Classes<ClassScore>, Error> {
        let labels = Class::ALL.map(Class::name);
        let mut world = World::mpquic(
            self.seed,
            controller,
            &self.paths(PathController::Bbr)?,
            &labels,
        )?;
        let mut logs = Logs::new(self.duration);
        world.run(self.duration + DRAIN, |world| {
            let elapsed = world.elapsed();
            while let Some(block) = logs.next_block(elapsed) {
                let data = logs.payload(&block, elapsed);
                world.sender().send_block(block.class.name(), data);
            }
            while let Some((label, data)) = world.receiver().poll_block() {
                logs.received(
                    Class::ALL.into_iter().find(|class| class.name() == label),
                    elapsed,
                    &data,
                );
            }
            logs.next_at()
        });
        world.check()?;
        Ok(logs.scores())
    }

    /// The scores of a scheduler that knows what the links will carry and lose.
    ///
    /// # Errors
    /// A link is impossible.
    pub fn oracle(&self) -> Result<Classes<ClassScore>, Error> {
        let paths = self.paths(PathController::Bbr)?;
        let links = paths.iter().map(|path| &path.forward);
        let links = (0..)
            .zip(links)
            .map(|(number, link)| (link, link_seed(self.seed, number)));
        let mut oracle = Oracle::new(links, self.duration + DRAIN, Instant::now());
        Ok(oracle.scores(load::schedule(self.duration)))
    }

    /// What no scheduler can exceed: the blocks that count most for their bytes first, and of the last one the part that fits, of what the
    /// links carry until the last video is due, without loss, headers or the time in which controllers find the rate.
    pub fn ideal(&self) -> f64 {
        let rate = Bandwidth::from_bytes_per_second(load::offered_bytes_per_second())
            .scaled(self.bandwidth_factor);
        let least_delay = RTTS[0] / 2;
        let carried = rate.bytes_in((self.duration + Class::Video.deadline()) - least_delay);
        most_weight(&load::schedule(self.duration), carried)
    }

    fn paths(&self, control: PathController) -> Result<Vec<PathSetup>, Error> {
        let rate = Bandwidth::from_bytes_per_second(load::offered_bytes_per_second())
            .scaled(self.bandwidth_factor / 2.0);
        RTTS.into_iter()
            .map(|rtt| {
                let link = LinkSpec::constant(rate, rtt / 2)
                    .with_loss(Loss::bernoulli(self.loss)?)
                    .with_queue(self.queue);
                let controller = match control {
                    PathController::Dedicated => ControllerConfig::Dedicated(RateFeed::new(rate)),
                    PathController::Bbr => ControllerConfig::Bbr,
                };
                Ok(PathSetup {
                    forward: link.clone(),
                    backward: link,
                    cost: 1.0,
                    controller,
                })
            })
            .collect()
    }
}

/// The greatest weight that blocks of so many bytes have together, if parts of a block count: no choice of whole ones has more.
#[expect(clippy::cast_precision_loss, reason = "bytes of a minute at most")]
fn most_weight(blocks: &[BlockSpec], bytes: u64) -> f64 {
    let per_byte = |block: &BlockSpec| block.class.weight() / block.bytes.max(1) as f64;
    let mut blocks: Vec<&BlockSpec> = blocks.iter().collect();
    blocks.sort_by(|a, b| per_byte(b).total_cmp(&per_byte(a)));
    let mut left = bytes as f64;
    let mut weight = 0.0;
    for block in blocks {
        let part = (left / block.bytes.max(1) as f64).min(1.0);
        weight += block.class.weight() * part;
        left -= block.bytes as f64 * part;
    }
    weight
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a failed call is a failed test")]

    use super::*;

    fn setup(bandwidth_factor: f64, seed: u64) -> QoeSetup {
        QoeSetup {
            bandwidth_factor,
            loss: FEW_LOSSES,
            queue: SHORT_QUEUE,
            duration: SENDING,
            seed,
        }
    }

    #[test]
    fn no_choice_of_blocks_that_fit_has_more_weight() {
        let blocks = [
            Class::Video.block(0),
            Class::Audio.block(0),
            Class::Video.block(1),
            Class::Text.block(0),
            Class::Audio.block(1),
            Class::Video.block(2),
        ];
        for bytes in [
            0, 150, 2_600, 5_200, 25_100, 45_200, 104_000, 120_000, 200_000,
        ] {
            let most = most_weight(&blocks, bytes);
            for choice in 0..1_u32 << blocks.len() {
                let of_choice = |place: &usize| choice >> place & 1 == 1;
                let chosen: Vec<_> = (0..blocks.len())
                    .filter(of_choice)
                    .map(|at| blocks[at])
                    .collect();
                let weight: f64 = chosen.iter().map(|block| block.class.weight()).sum();
                let fits = chosen.iter().map(|block| block.bytes as u64).sum::<u64>() <= bytes;
                assert!(!fits || weight <= most + 1e-9, "{bytes}: {chosen:?}");
            }
        }
        assert!((most_weight(&blocks, u64::MAX) - (1.0 + 4.0 / 3.0 + 1.0)).abs() < 1e-9);
    }

    #[test]
    fn the_oracle_never_exceeds_the_ideal() {
        for factor in BANDWIDTH_FACTORS {
            for seed in 1..4 {
                let setup = setup(factor, seed);
                let (oracle, ideal) = (setup.oracle().unwrap().qoe(), setup.ideal());
                // Both are rounded.
                assert!(oracle <= ideal + 0.01, "{factor}: {oracle} of {ideal}");
            }
        }
    }
}
