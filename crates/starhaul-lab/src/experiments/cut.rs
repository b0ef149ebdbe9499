//! A path is cut at some instant and comes back: what is lost, and how long the rest of the session stands still.

use std::time::Duration;

use super::{
    aggregation::{Bulk, Pipe},
    qoe::{Logs, Sending},
    world::World,
};
use crate::{Error, demo::Classes, score::ClassScore};

const SENDING: Duration = Duration::from_secs(10);
const DRAIN: Duration = Duration::from_secs(6);
/// The path must have come back by itself so long after it was restored.
const COMEBACK_LIMIT: Duration = Duration::from_secs(10);

/// Text, audio, video and a bulk stream over two paths of which one is cut.
#[derive(Clone, Copy, Debug)]
pub struct CutSetup {
    /// The two paths.
    pub pipes: [Pipe; 2],
    /// Which one is cut.
    pub path: usize,
    /// When, after the opening; below 6 s.
    pub at: Duration,
    /// For how long.
    pub outage: Duration,
    /// Seed of everything random.
    pub seed: u64,
}

/// What the cut did.
#[derive(Clone, Debug)]
pub struct CutResult {
    /// Scores of the classes.
    pub classes: Classes<ClassScore>,
    /// Bytes of the reliable stream that the session took, and that were read at the other end.
    pub reliable_bytes: [u64; 2],
    /// All of them are right.
    pub intact: bool,
    /// From the cut to the first delivery, over the other path, of something sent after the cut.
    pub first_new_data: Option<Duration>,
    /// The longest time after the cut without progress of the reliable stream at the receiving application.
    pub longest_stall: Duration,
    /// From the restoring to data on the path again; `None` when it did not come back within 10 s.
    pub comeback: Option<Duration>,
}

impl CutSetup {
    /// Runs it.
    ///
    /// # Errors
    /// The session does not come up.
    pub fn run(&self) -> Result<CutResult, Error> {
        let paths = self
            .pipes
            .iter()
            .map(Pipe::setup)
            .collect::<Result<Vec<_>, _>>()?;
        let mut world = World::starhaul(self.seed, &paths)?;
        let cut = *world
            .paths
            .get(self.path)
            .ok_or_else(|| Error::Settings("there is no such path to cut".into()))?;
        let (mut bulk, mut sending, mut logs) = (
            Bulk::open(&mut world)?,
            Sending::default(),
            Logs::new(SENDING),
        );

        world.run(self.at, |world| {
            bulk.pump(world);
            sending.pump(world, &mut logs)
        });
        let now = world.now();
        world.sim().network.cut(now, cut);
        let (mut progress, mut stall) = ((self.at, bulk.received), Duration::ZERO);
        let restored_at = self.at + self.outage;
        world.run(restored_at, |world| {
            bulk.pump(world);
            if bulk.received > progress.1 {
                stall = stall.max(world.elapsed() - progress.0);
                progress = (world.elapsed(), bulk.received);
            }
            sending.pump(world, &mut logs)
        });
        stall = stall.max(restored_at - progress.0);

        let now = world.now();
        world.sim().network.restore(now, cut);
        let silent = world.sim().network[cut.forward].stats().delivered_bytes;
        let mut comeback = None;
        world.run(restored_at + COMEBACK_LIMIT, |world| {
            bulk.pump(world);
            // More than handshakes and probes take.
            let delivered = world.sim().network[cut.forward].stats().delivered_bytes - silent;
            if comeback.is_none() && delivered > 20_000 {
                comeback = Some(world.elapsed() - restored_at);
            }
            sending.pump(world, &mut logs)
        });
        bulk.finish(&mut world);
        let end = SENDING.max(restored_at + COMEBACK_LIMIT) + DRAIN;
        world.run(end, |world| {
            bulk.pump(world);
            sending.pump(world, &mut logs)
        });
        Ok(CutResult {
            classes: logs.scores(),
            reliable_bytes: [bulk.sent, bulk.received],
            intact: bulk.intact,
            first_new_data: self.first_new_data(&logs),
            longest_stall: stall,
            comeback,
        })
    }

    fn first_new_data(&self, logs: &Logs) -> Option<Duration> {
        let blocks = [&logs.logs().text, &logs.logs().audio, &logs.logs().video]
            .into_iter()
            .flat_map(|log| log.blocks());
        let arrivals = blocks
            .filter(|block| block.sent_at >= self.at)
            .filter_map(|block| Some(block.sent_at + block.latency?));
        arrivals.min().map(|at| at.saturating_sub(self.at))
    }
}
