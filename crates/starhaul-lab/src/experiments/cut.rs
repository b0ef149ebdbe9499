//! A path is cut at some instant and comes back: what is lost, and how long it takes until new data goes another way.

use std::time::Duration;

use starhaul_demo::{
    load::{Class, Classes},
    score::ClassScore,
};
use starhaul_plot::{Column, Value};
use starhaul_session::Session;

use crate::{
    Error,
    kit::{Part, Records, Study},
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

/// Pairs of paths of which the first is cut, and in which directions.
pub const PAIRS: [([Pipe; 2], CutDirections); 10] = [
    (
        [Pipe::new(20, 25, 0.0), Pipe::new(10, 150, 0.0)],
        CutDirections::Both,
    ),
    (
        [Pipe::new(20, 150, 0.0), Pipe::new(20, 25, 0.0)],
        CutDirections::Both,
    ),
    (
        [Pipe::new(20, 30, 0.0), Pipe::new(20, 300, 0.0)],
        CutDirections::Both,
    ),
    (
        [Pipe::new(20, 300, 0.001), Pipe::new(20, 30, 0.001)],
        CutDirections::Both,
    ),
    (
        [Pipe::new(20, 60, 0.0), Pipe::new(20, 60, 0.0)],
        CutDirections::Both,
    ),
    (
        [Pipe::new(20, 40, 0.01), Pipe::new(10, 120, 0.01)],
        CutDirections::Both,
    ),
    (
        [Pipe::new(20, 25, 0.0), Pipe::new(10, 150, 0.0)],
        CutDirections::There,
    ),
    (
        [Pipe::new(20, 25, 0.0), Pipe::new(10, 150, 0.0)],
        CutDirections::Back,
    ),
    (
        [Pipe::new(20, 150, 0.0), Pipe::new(10, 25, 0.0)],
        CutDirections::There,
    ),
    (
        [Pipe::new(20, 150, 0.0), Pipe::new(10, 25, 0.0)],
        CutDirections::Back,
    ),
];
/// The first of [`PAIRS`] that run with `--quick`.
const FEW: usize = 2;
const OUTAGE: Duration = Duration::from_secs(3);

/// `starhaul lab cut`.
pub fn study() -> Study {
    let part = |name, shows, traffic| {
        let setups = move |quick, seed| setups(quick, seed, traffic);
        Part::with_sessions(
            name,
            "",
            shows,
            columns,
            setups,
            |setup: &CutSetup, records| Ok(vec![(*setup, setup.run(records)?)]),
        )
    };
    Study::new(
        "cut",
        "",
        "one of two paths is cut and comes back",
        "A path is cut and comes back",
        "Two paths, in virtual time with the whole stack; the first is dead for 3 s from a random instant on. New data: from the cut until \
         something that was handed over after it leaves over the other path; allowed are 1.5 RTT of the cut path and 50 ms.",
    )
    .part(part("blocks", "text, audio and video, which leave both paths room", Traffic::Blocks))
    .part(part("messages", "a reliable stream of a message each 10 ms", Traffic::Messages))
    .part(part("all", "text, audio, video and a reliable stream that is always full", Traffic::All).weighing(3.0))
}

/// The pairs, each cut at another instant.
pub fn setups(quick: bool, seed: u64, traffic: Traffic) -> Vec<CutSetup> {
    let count = if quick { FEW } else { PAIRS.len() };
    let pairs = (0u64..).zip(PAIRS).take(count);
    let setup = |(index, (pipes, way))| {
        let at = seed.wrapping_mul(7_919_317).wrapping_add(index * 1_234_567);
        CutSetup {
            pipes,
            traffic,
            path: 0,
            way,
            at: Duration::from_micros(2_000_000 + at % 3_000_000),
            outage: OUTAGE,
            seed,
        }
    };
    pairs.map(setup).collect()
}

/// The table of such runs.
pub fn columns() -> Vec<Column<(CutSetup, CutResult)>> {
    type Row = (CutSetup, CutResult);
    let ms = |key, name, of: fn(&Row) -> Option<Duration>| {
        let ms = move |row: &Row| of(row).map(|time| time.as_secs_f64() * 1e3).into();
        Column::number(key, name, "ms", 1, ms).greatest()
    };
    // What did not come at all is the worst.
    let wait = |key, name, of: fn(&Row) -> Option<Duration>, limit: Duration| {
        let wait = move |row: &Row| match of(row) {
            Some(time) => Value::Number(time.as_secs_f64() * 1e3),
            None => Value::Above(limit.as_secs_f64() * 1e3),
        };
        Column::number(key, name, "ms", 1, wait).greatest()
    };
    let share = |key, name, class| {
        let share = move |(_, result): &Row| {
            let score: &ClassScore = result.classes.of(class);
            (score.sent > 0).then(|| score.on_time_share()).into()
        };
        Column::share(key, name, 2, share).least()
    };
    vec![
        Column::name("rtts_ms", "RTTs, ms", |(setup, _): &Row| {
            let [cut, other] = setup.pipes.map(|pipe| pipe.rtt.as_millis());
            format!("{cut}/{other}").into()
        }),
        Column::name("way", "dead", |(setup, _): &Row| {
            match setup.way {
                CutDirections::Both => "both",
                CutDirections::There => "there",
                CutDirections::Back => "back",
            }
            .into()
        }),
        Column::count("seed", "seed", |(setup, _): &Row| setup.seed.into()).dropped(),
        Column::number("at_s", "cut at", "s", 2, |(setup, _): &Row| {
            setup.at.as_secs_f64().into()
        })
        .dropped(),
        wait(
            "new_data_ms",
            "new data",
            |(setup, result)| setup.new_data(result),
            OUTAGE,
        ),
        ms("limit_ms", "allowed", |(setup, _)| Some(setup.limit())),
        ms("stall_ms", "stall", |(setup, result)| {
            (setup.traffic != Traffic::Blocks).then_some(result.longest_stall)
        }),
        wait(
            "comeback_ms",
            "comeback",
            |(_, result)| result.comeback,
            COMEBACK_LIMIT,
        ),
        Column::count("bytes_missing", "bytes missing", |(_, result): &Row| {
            let [sent, received] = result.reliable_bytes;
            sent.saturating_sub(received).into()
        })
        .brief("missing")
        .total(),
        share("text", "text", Class::Text),
        share("audio", "audio", Class::Audio),
        share("video", "video", Class::Video),
    ]
}

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
pub enum CutDirections {
    /// From the sender to the receiver, and back.
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
    /// The kind of traffic.
    pub traffic: Traffic,
    /// Index of the path that is cut.
    pub path: usize,
    /// The cut directions.
    pub way: CutDirections,
    /// When, after the opening; below 6 s.
    pub at: Duration,
    /// Length of the cut.
    pub outage: Duration,
    /// Seed of everything random.
    pub seed: u64,
}

/// What the receiver got, and when, in spite of the cut.
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
    /// From the cut to the first delivery to the application of something that it handed over after the cut; of a stream `None` when
    /// that took until the path came back.
    pub first_new_data: Option<Duration>,
    /// The longest time after the cut without progress of the reliable stream at the receiving application, until all of it is there or
    /// the run ends.
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

/// How far the reading application has come with the reliable stream.
struct Progress {
    at: Duration,
    read: u64,
    stall: Duration,
}

impl Progress {
    fn new(at: Duration, [_, read]: [u64; 2]) -> Self {
        let stall = Duration::ZERO;
        Self { at, read, stall }
    }

    fn look(&mut self, now: Duration, [_, read]: [u64; 2]) {
        if read > self.read {
            self.stall = self.stall.max(now.saturating_sub(self.at));
            (self.at, self.read) = (now, read);
        }
    }

    /// What was sent and never read stood still until the end.
    fn longest_stall(&self, end: Duration, [sent, read]: [u64; 2]) -> Duration {
        match read < sent {
            true => self.stall.max(end.saturating_sub(self.at)),
            false => self.stall,
        }
    }
}

impl CutSetup {
    /// By when after the cut new data must leave on the other path: 1.5 RTT of the cut path and 50 ms.
    pub fn limit(&self) -> Duration {
        self.pipes[self.path].rtt.mul_f64(1.5) + Duration::from_millis(50)
    }

    /// When new data left over the other path, if nothing else was in its way.
    pub fn new_data(&self, result: &CutResult) -> Option<Duration> {
        let [_, other] = self.pipes;
        let first = result.first_new_data?;
        Some(first.saturating_sub(other.rtt / 2))
    }

    /// Runs the experiment.
    ///
    /// # Errors
    /// The session does not come up.
    pub fn run(&self, records: &Records) -> Result<CutResult, Error> {
        let paths = self
            .pipes
            .iter()
            .map(Pipe::setup)
            .collect::<Result<Vec<_>, _>>()?;
        let mut world = World::starhaul(self.seed, &paths, records)?;
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
            CutDirections::Both => vec![cut.forward, cut.backward],
            CutDirections::There => vec![cut.forward],
            CutDirections::Back => vec![cut.backward],
        } {
            world.sim().network[link].set_down(now);
        }
        let [old_bytes, _] = load.bytes();
        let (mut progress, mut first_new_byte) = (Progress::new(self.at, load.bytes()), None);
        let restored_at = self.at + self.outage;
        world.run(restored_at, |world| {
            let next = load.pump(world);
            progress.look(world.elapsed(), load.bytes());
            if progress.read > old_bytes {
                first_new_byte.get_or_insert(world.elapsed() - self.at);
            }
            next
        });
        let taken = self.bytes_sent(&mut world) - arrived;

        let now = world.now();
        world.sim().network.restore(now, cut);
        let mut comeback = None;
        world.run(restored_at + COMEBACK_LIMIT, |world| {
            if comeback.is_none() && self.is_back(world) {
                comeback = Some(world.elapsed() - restored_at);
            }
            let next = load.pump(world);
            progress.look(world.elapsed(), load.bytes());
            next
        });
        if let Some(bulk) = &mut load.bulk {
            bulk.finish(&mut world);
        }
        let end = SENDING.max(restored_at + COMEBACK_LIMIT) + DRAIN;
        world.run(end, |world| {
            let next = load.pump(world);
            progress.look(world.elapsed(), load.bytes());
            next
        });
        let longest_stall = progress.longest_stall(end, load.bytes());
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
            longest_stall,
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

#[cfg(test)]
mod tests {
    use starhaul_plot::Table;

    use super::*;

    #[test]
    fn what_never_came_is_shown_as_the_worst() {
        let setups = setups(true, 1, Traffic::Messages);
        let result = |waits: [Option<Duration>; 2]| CutResult {
            classes: Logs::new(Duration::ZERO).scores(),
            reliable_bytes: [9, 9],
            intact: true,
            taken: 0,
            first_new_data: waits[0],
            longest_stall: Duration::ZERO,
            comeback: waits[1],
        };
        let ms = |ms| Some(Duration::from_millis(ms));
        let text = |waits: [[Option<Duration>; 2]; 2]| {
            let rows = waits.map(|waits| (setups[0], result(waits)));
            Table::of(&columns(), &rows).summed_up().text()
        };
        let found = text([[ms(205), ms(5)], [ms(100), ms(7)]]);
        assert!(
            found.contains(" 130.0 ") && found.contains(" 7.0 "),
            "{found}"
        );
        let found = text([[ms(205), ms(5)], [None, None]]);
        assert!(
            found.contains(" > 3000.0 ") && found.contains(" > 10000.0 "),
            "{found}"
        );
    }

    #[test]
    fn a_stream_stands_still_also_after_the_path_is_back() {
        let second = Duration::from_secs;
        let mut progress = Progress::new(second(3), [900, 100]);
        progress.look(second(4), [900, 500]);
        progress.look(second(9), [900, 500]);
        progress.look(second(10), [900, 900]);
        assert_eq!(progress.longest_stall(second(30), [900, 900]), second(6));
        assert_eq!(progress.longest_stall(second(30), [901, 900]), second(20));
    }
}
