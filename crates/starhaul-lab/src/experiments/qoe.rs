//! MPDTP fig. 4 and 5: QoE of text, audio and video at once over two paths, against multipath QUIC with New Reno.
//!
//! The paths have 600 and 100 ms of RTT and each half of the bandwidth, which is given as a multiple of the offered load.
//! The paper says neither how the bandwidth is split nor how much the links queue, and the queue decides: where it is deep,
//! New Reno fills it and all three connections wait in it. So it is a parameter.

use std::time::Duration;

use starhaul_cc::{ControllerConfig, RateFeed};
use starhaul_demo::{
    load::{self, Class, Classes},
    score::ClassScore,
};
use starhaul_link::{LinkSpec, Loss, QueueLimit};
use starhaul_units::Bandwidth;

use crate::{
    Error,
    workload::media::{Logs, Sending},
    worlds::stack::{PathSetup, World},
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

/// Which controller Starhaul uses; the baseline always has New Reno.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Control {
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
    pub fn starhaul(&self, control: Control) -> Result<Classes<ClassScore>, Error> {
        let mut world = World::starhaul(self.seed, &self.paths(control)?)?;
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
    /// Its connections do not come up.
    pub fn mpquic(&self) -> Result<Classes<ClassScore>, Error> {
        let labels = Class::ALL.map(Class::name);
        let mut world = World::mpquic(self.seed, &self.paths(Control::Bbr)?, &labels)?;
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
        Ok(logs.scores())
    }

    /// What no scheduler can exceed: all text and audio first, then whole groups of pictures with what the links carry until the
    /// last video is due, without loss, headers or the time in which controllers find the rate.
    pub fn ideal(&self) -> f64 {
        let rate = Bandwidth::from_bytes_per_second(load::offered_bytes_per_second())
            .scaled(self.bandwidth_factor);
        let least_delay = RTTS[0] / 2;
        let mut left = rate.bytes_in((self.duration + Class::Video.deadline()) - least_delay);
        let mut qoe = 0.0;
        for block in Class::ALL
            .into_iter()
            .flat_map(|class| class.blocks(self.duration))
        {
            let Some(after) = left.checked_sub(block.bytes as u64) else {
                break;
            };
            left = after;
            qoe += block.class.weight();
        }
        qoe
    }

    fn paths(&self, control: Control) -> Result<Vec<PathSetup>, Error> {
        let rate = Bandwidth::from_bytes_per_second(load::offered_bytes_per_second())
            .scaled(self.bandwidth_factor / 2.0);
        RTTS.into_iter()
            .map(|rtt| {
                let link = LinkSpec::constant(rate, rtt / 2)
                    .with_loss(Loss::bernoulli(self.loss)?)
                    .with_queue(self.queue);
                let controller = match control {
                    Control::Dedicated => ControllerConfig::Dedicated(RateFeed::new(rate)),
                    Control::Bbr => ControllerConfig::Bbr,
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
