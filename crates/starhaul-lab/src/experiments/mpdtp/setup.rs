//! One point of a figure, and the scores that a system has there in virtual time.

use std::time::{Duration, Instant};

use starhaul_cc::{ControllerConfig, RateFeed};
use starhaul_demo::{
    baseline::Controller,
    load::{self, BlockSpec, Class, Classes},
    score::ClassScore,
};
use starhaul_link::{LinkSpec, Loss, QueueLimit, link_seed};
use starhaul_session::{Mode, SchedulerChoice};
use starhaul_sim::{Node as SimNode, Udp};
use starhaul_units::Bandwidth;

use super::sent::{Fragments, LinkBytes};
use crate::{
    Error,
    kit::Records,
    workload::media::{Logs, Sending},
    worlds::{
        oracle::Oracle,
        stack::{HostSettings, PathSetup, World},
    },
};

/// Lowest delay first, which is the baseline's best order.
const RTTS: [Duration; 2] = [Duration::from_millis(100), Duration::from_millis(600)];
/// After the last block is sent: nothing has a longer deadline.
pub(super) const DRAIN: Duration = Duration::from_secs(4);

/// The congestion controller of Starhaul's paths.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PathController {
    /// MPDTP's dedicated link: the rate of each path is known.
    Dedicated,
    /// The rate is found by BBR.
    Bbr,
}

/// How our own system is run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Own {
    pub(super) control: PathController,
    /// How the blocks are protected.
    pub(super) mode: Mode,
    /// What chooses the paths.
    pub(super) scheduler: SchedulerChoice,
}

impl Own {
    /// With redundancy and retransmission, by rules.
    pub(super) const fn protected(control: PathController) -> Self {
        Self {
            control,
            mode: Mode::FecRetransmit,
            scheduler: SchedulerChoice::Rules,
        }
    }
}

/// What a run in virtual time found.
pub(super) struct Ran {
    pub(super) logs: Logs,
    pub(super) link_bytes: LinkBytes,
    /// Bytes of fragments beside the data, as a share of the data; none are counted of a rival.
    pub(super) extra_share: Option<f64>,
}

/// One point of a figure.
#[derive(Clone, Copy, Debug)]
pub struct QoeSetup {
    /// Bandwidth of both paths together per offered load.
    pub bandwidth_factor: f64,
    /// Loss of each path, 0 to 1.
    pub loss: f64,
    /// What each link queues; [`NETEM_QUEUE`](super::NETEM_QUEUE) is what an emulation with `tc netem` has unless told otherwise.
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
        let ran = self.run_starhaul(Own::protected(control), records)?;
        Ok(ran.logs.scores())
    }

    /// What becomes of each block with Starhaul.
    pub(super) fn run_starhaul(&self, own: Own, records: &Records) -> Result<Ran, Error> {
        let settings = HostSettings {
            scheduler: own.scheduler,
            records: records.clone(),
            ..HostSettings::default()
        };
        let paths = self.paths(own.control)?;
        let mut world = World::starhaul_with(self.seed, &paths, &[], &settings)?;
        let fragments = Fragments::default();
        if let Some(session) = world.sender().session() {
            session.observe(Box::new(fragments.clone()));
        }
        let mut sending = Sending::protected(own.mode);
        let mut logs = Logs::new(self.duration);
        let link_bytes = self.run(&mut world, |world| sending.pump(world, &mut logs));
        Ok(Ran {
            logs,
            link_bytes,
            extra_share: fragments.extra_share(),
        })
    }

    /// The baseline's scores.
    ///
    /// # Errors
    /// Its connections do not come up, or one ends.
    pub fn mpquic(&self, controller: Controller) -> Result<Classes<ClassScore>, Error> {
        Ok(self.run_mpquic(controller)?.logs.scores())
    }

    /// What becomes of each block with the baseline.
    pub(super) fn run_mpquic(&self, controller: Controller) -> Result<Ran, Error> {
        let labels = Class::ALL.map(Class::name);
        let mut world = World::mpquic(
            self.seed,
            controller,
            &self.paths(PathController::Bbr)?,
            &labels,
        )?;
        let mut logs = Logs::new(self.duration);
        let link_bytes = self.run(&mut world, |world| {
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
        Ok(Ran {
            logs,
            link_bytes,
            extra_share: None,
        })
    }

    /// Runs until nothing is of use any more; what the links were given meanwhile.
    fn run<S: SimNode<Load = Udp>>(
        &self,
        world: &mut World<S>,
        application: impl FnMut(&mut World<S>) -> Option<Duration>,
    ) -> LinkBytes {
        let before = world.given_bytes();
        world.run(self.duration + DRAIN, application);
        let after = world.given_bytes();
        LinkBytes([0, 1].map(|link: usize| after[link] - before[link]))
    }

    /// Bytes of the blocks that the applications offer.
    pub(super) fn offered_bytes(&self) -> u64 {
        let blocks = load::schedule(self.duration);
        blocks.iter().map(|block| block.bytes as u64).sum()
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

    /// Rate of each path.
    pub(super) fn rate(&self) -> Bandwidth {
        Bandwidth::from_bytes_per_second(load::offered_bytes_per_second())
            .scaled(self.bandwidth_factor / 2.0)
    }

    /// One-way delay of each path, and its link, in both directions, with such a loss.
    pub(super) fn links(&self, loss: Loss) -> [(Duration, LinkSpec); 2] {
        let link = |one_way| {
            LinkSpec::constant(self.rate(), one_way)
                .with_loss(loss)
                .with_queue(self.queue)
        };
        RTTS.map(|rtt| (rtt / 2, link(rtt / 2)))
    }

    fn paths(&self, control: PathController) -> Result<Vec<PathSetup>, Error> {
        let path = |(_, link): (Duration, LinkSpec)| PathSetup {
            forward: link.clone(),
            backward: link,
            cost: 1.0,
            controller: match control {
                PathController::Dedicated => {
                    ControllerConfig::Dedicated(RateFeed::new(self.rate()))
                }
                PathController::Bbr => ControllerConfig::Bbr,
            },
        };
        let links = self.links(Loss::bernoulli(self.loss)?);
        Ok(links.into_iter().map(path).collect())
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
    use crate::experiments::mpdtp::{BANDWIDTH_FACTORS, FEW_LOSSES, SENDING, SHORT_QUEUE};

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
