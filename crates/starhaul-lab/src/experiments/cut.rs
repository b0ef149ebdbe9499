//! A path is cut at some instant and comes back: what is lost, and how long it takes until new data goes another way.

use std::time::Duration;

use starhaul_demo::{load::Classes, score::ClassScore};
use starhaul_session::Session;

use crate::{
    Error,
    workload::{
        bulk::Bulk,
        media::{Logs, Sending},
    },
    worlds::{
        pipe::Pipe,
        stack::{Starhaul, World},
    },
};

const SENDING: Duration = Duration::from_secs(10);
const DRAIN: Duration = Duration::from_secs(6);
/// The path must have come back by itself so long after it was restored.
const COMEBACK_LIMIT: Duration = Duration::from_secs(10);
/// The sparse reliable stream: so many bytes, so often.
const MESSAGE: (u64, Duration) = (1_200, Duration::from_millis(10));

/// What is sent over the two paths.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Traffic {
    /// Text, audio and video, which leave both paths room.
    Blocks,
    /// A reliable stream of a message every 10 ms.
    Messages,
    /// Text, audio, video and a reliable stream that is always full.
    All,
}

/// Which directions of the path are dead.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Way {
    /// Both.
    Both,
    /// From the sender to the receiver only.
    There,
    /// Only the one back.
    Back,
}

/// Some traffic over two paths of which one is cut.
#[derive(Clone, Copy, Debug)]
pub struct CutSetup {
    /// The two paths.
    pub pipes: [Pipe; 2],
    /// What is sent.
    pub traffic: Traffic,
    /// Which path is cut.
    pub path: usize,
    /// In which directions.
    pub way: Way,
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
    /// Scores of the classes; nothing was sent of them with [`Traffic::Messages`].
    pub classes: Classes<ClassScore>,
    /// Bytes of the reliable stream that the session took, and that were read at the other end.
    pub reliable_bytes: [u64; 2],
    /// All of them are right.
    pub intact: bool,
    /// Bytes that the cut took: on their way when it came, and given to the path after it.
    pub taken: u64,
    /// From the cut to the first delivery to the application of something that it handed over after the cut.
    pub first_new_data: Option<Duration>,
    /// The longest time after the cut without progress of the reliable stream at the receiving application.
    pub longest_stall: Duration,
    /// From the restoring until neither end takes the path for silent; `None` when that took more than 10 s.
    pub comeback: Option<Duration>,
}

/// The applications of a run.
struct Load {
    bulk: Option<Bulk>,
    blocks: Option<(Sending, Logs)>,
}

impl Load {
    fn open(traffic: Traffic, world: &mut World<Starhaul>) -> Result<Self, Error> {
        let bulk = match traffic {
            Traffic::Blocks => None,
            Traffic::Messages => Some(Bulk::messages(world, MESSAGE.0, MESSAGE.1)?),
            Traffic::All => Some(Bulk::open(world)?),
        };
        let blocks =
            (traffic != Traffic::Messages).then(|| (Sending::default(), Logs::new(SENDING)));
        Ok(Self { bulk, blocks })
    }

    fn pump(&mut self, world: &mut World<Starhaul>) -> Option<Duration> {
        let bulk = self.bulk.as_mut().and_then(|bulk| bulk.pump(world));
        let blocks = self.blocks.as_mut();
        let blocks = blocks.and_then(|(sending, logs)| sending.pump(world, logs));
        bulk.into_iter().chain(blocks).min()
    }

    /// Bytes of the stream: taken, read.
    fn bytes(&self) -> [u64; 2] {
        self.bulk
            .as_ref()
            .map_or([0; 2], |bulk| [bulk.sent, bulk.received])
    }
}

impl CutSetup {
    /// By when after the cut new data must leave on the other path: 1.5 RTT of the cut path and 50 ms.
    pub fn limit(&self) -> Duration {
        self.pipes[self.path].rtt.mul_f64(1.5) + Duration::from_millis(50)
    }

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
        let mut load = Load::open(self.traffic, &mut world)?;

        let on_its_way = self.pipes[self.path].rtt / 2;
        world.run(self.at.saturating_sub(on_its_way), |world| load.pump(world));
        let arrived = self.bytes_sent(&mut world);
        world.run(self.at, |world| load.pump(world));
        let now = world.now();
        for link in match self.way {
            Way::Both => vec![cut.forward, cut.backward],
            Way::There => vec![cut.forward],
            Way::Back => vec![cut.backward],
        } {
            world.sim().network[link].set_down(now);
        }
        let [old_bytes, mut read] = load.bytes();
        let (mut progress_at, mut stall, mut first_new_byte) = (self.at, Duration::ZERO, None);
        let restored_at = self.at + self.outage;
        world.run(restored_at, |world| {
            let next = load.pump(world);
            let [_, received] = load.bytes();
            if received > read {
                stall = stall.max(world.elapsed() - progress_at);
                (progress_at, read) = (world.elapsed(), received);
            }
            if received > old_bytes {
                first_new_byte.get_or_insert(world.elapsed() - self.at);
            }
            next
        });
        stall = stall.max(restored_at - progress_at);
        let taken = self.bytes_sent(&mut world) - arrived;

        let now = world.now();
        world.sim().network.restore(now, cut);
        let mut comeback = None;
        world.run(restored_at + COMEBACK_LIMIT, |world| {
            if comeback.is_none() && self.is_back(world) {
                comeback = Some(world.elapsed() - restored_at);
            }
            load.pump(world)
        });
        if let Some(bulk) = &mut load.bulk {
            bulk.finish(&mut world);
        }
        let end = SENDING.max(restored_at + COMEBACK_LIMIT) + DRAIN;
        world.run(end, |world| load.pump(world));
        let first_new_block = load
            .blocks
            .as_ref()
            .and_then(|(_, logs)| self.first_new_block(logs));
        Ok(CutResult {
            taken,
            reliable_bytes: load.bytes(),
            intact: load.bulk.is_none_or(|bulk| bulk.intact),
            first_new_data: first_new_block.or(first_new_byte),
            classes: load
                .blocks
                .map_or_else(|| Logs::new(Duration::ZERO), |(_, logs)| logs)
                .scores(),
            longest_stall: stall,
            comeback,
        })
    }

    /// Neither end takes the path for silent.
    fn is_back(&self, world: &mut World<Starhaul>) -> bool {
        let is_heard = |session: Option<&mut Session>| {
            let paths = session.map(|session| session.path_stats());
            paths.is_some_and(|paths| paths.get(self.path).is_some_and(|path| !path.suspect))
        };
        is_heard(world.sender().session()) && is_heard(world.receiver().session())
    }

    /// By the sender over the path.
    fn bytes_sent(&self, world: &mut World<Starhaul>) -> u64 {
        let paths = world.sender().session().map(|session| session.path_stats());
        let path = paths.and_then(|paths| paths.get(self.path).map(|path| path.bytes_sent));
        path.unwrap_or_default()
    }

    fn first_new_block(&self, logs: &Logs) -> Option<Duration> {
        let blocks = [&logs.logs().text, &logs.logs().audio, &logs.logs().video]
            .into_iter()
            .flat_map(|log| log.blocks());
        let arrivals = blocks
            .filter(|block| block.sent_at >= self.at)
            .filter_map(|block| Some(block.sent_at + block.latency?));
        arrivals.min().map(|at| at.saturating_sub(self.at))
    }
}
