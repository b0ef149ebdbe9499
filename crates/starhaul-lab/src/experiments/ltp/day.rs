//! A day of contacts: a probe makes data all day, and talks to the ground for some minutes every other hour. How much is there at the
//! end of the day, and how old it was when it arrived.

use std::{collections::BTreeMap, time::Duration};

use starhaul_ltp::{Coding, PeerConfig, SessionId};
use starhaul_plot::Column;
use starhaul_units::Bandwidth;

use super::pair::{Pair, content, percentile};
use crate::Error;

const BLOCK_BYTES: usize = 1_000_000;
const HOUR: Duration = Duration::from_secs(3600);
const DAY: Duration = Duration::from_secs(24 * 3600);
/// From one contact to the next, when the first one begins, and how long each is.
const EVERY: Duration = Duration::from_secs(2 * 3600);
const FIRST: Duration = Duration::from_secs(30 * 60);
const LASTS: Duration = Duration::from_secs(8 * 60);
/// What is made from one contact to the next, of what one contact carries: losses and headers need the rest.
const LOAD: f64 = 0.75;
/// Nothing is made after that, which no contact of the day would carry.
const LAST_MADE: Duration = Duration::from_secs(22 * 3600);
const RATE: Bandwidth = Bandwidth::from_mbit(1);
const QUICK_RATE: Bandwidth = Bandwidth::from_kbit(250);
/// In low orbit, at the Moon, and beyond Mars: longer than a contact.
const LIGHTS: [Duration; 3] = [
    Duration::from_millis(20),
    Duration::from_millis(1280),
    Duration::from_secs(600),
];
const LOSSES: [f64; 2] = [0.0, 0.05];

/// A day of contacts with one link.
#[derive(Clone, Copy, Debug)]
pub struct Day {
    /// How long a signal takes.
    pub light: Duration,
    /// Share of packets that is lost, both ways.
    pub loss: f64,
    /// Whether repair segments make up for that.
    pub is_coded: bool,
    /// The rate of the link in a contact.
    pub rate: Bandwidth,
    /// Seed of everything random.
    pub seed: u64,
}

/// Blocks and segments of a day, and what they cost.
#[derive(Clone, Debug)]
pub struct DayOutcome {
    setup: Day,
    /// Blocks that were made.
    pub made: usize,
    /// Those that were there at the end of the day, with the bytes that were sent.
    pub delivered: usize,
    /// How old they were when they arrived, ascending.
    pub ages: Vec<Duration>,
    /// What was sent, of what the contacts carry.
    pub used: f64,
    /// Bytes that the sender sent while no contact was open.
    pub outside: u64,
    /// Share of data segments that were sent again, and repair segments per data segment.
    resent: f64,
    repairs: f64,
    /// Hour by hour, blocks that were made and delivered by then.
    pub course: Vec<(usize, usize)>,
}

/// A point of the time series of a day.
#[derive(Clone, Copy, Debug)]
pub(super) struct Hour {
    setup: Day,
    what: &'static str,
    hour: usize,
    blocks: usize,
}

/// What happens in a day.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Change {
    /// The links close; they have opened before.
    Close,
    /// Nothing of the other end arrives any more.
    Silent,
    Open,
    Heard,
    /// A block is made.
    Made,
    /// An hour is over.
    Hour,
}

/// Days at each light time, with and without losses and repair segments.
pub fn days(quick: bool, seed: u64) -> Vec<Day> {
    let lights: &[Duration] = if quick { &LIGHTS[1..] } else { &LIGHTS };
    let losses: &[f64] = if quick { &LOSSES[1..] } else { &LOSSES };
    let rate = if quick { QUICK_RATE } else { RATE };
    let mut days = Vec::new();
    for &light in lights {
        for &loss in losses {
            for is_coded in [false, true] {
                if is_coded && loss == 0.0 {
                    continue;
                }
                days.push(Day {
                    light,
                    loss,
                    is_coded,
                    rate,
                    seed,
                });
            }
        }
    }
    days
}

/// Days whose time series is shown: where something is lost, and an answer takes its time.
pub(super) fn courses(quick: bool, seed: u64) -> Vec<Day> {
    let mut days = days(quick, seed);
    days.retain(|day| day.loss > 0.0 && day.light > LIGHTS[0]);
    days
}

/// The table of days.
pub(super) fn columns() -> Vec<Column<DayOutcome>> {
    let hours = |seconds: Option<f64>| seconds.map(|seconds| seconds / HOUR.as_secs_f64());
    vec![
        Column::number("light_s", "light", "s", 2, |row: &DayOutcome| {
            row.setup.light.as_secs_f64().into()
        }),
        Column::number("loss", "loss", "%", 0, |row: &DayOutcome| {
            (row.setup.loss * 100.0).into()
        }),
        Column::name("coding", "repair", |row: &DayOutcome| {
            (if row.setup.is_coded { "yes" } else { "no" }).into()
        }),
        Column::count("seed", "seed", |row: &DayOutcome| row.setup.seed.into()).dropped(),
        Column::number("made_mb", "made", "MB", 0, |row: &DayOutcome| {
            megabytes(row.made).into()
        })
        .median(),
        Column::number("delivered", "delivered", "%", 1, |row: &DayOutcome| {
            (row.delivered as f64 * 100.0 / row.made.max(1) as f64).into()
        })
        .median(),
        Column::number("age_p50_h", "age p50", "h", 2, move |row: &DayOutcome| {
            hours(percentile(&row.ages, 0.5)).into()
        })
        .median(),
        Column::number("age_p99_h", "p99", "h", 2, move |row: &DayOutcome| {
            hours(percentile(&row.ages, 0.99)).into()
        })
        .median(),
        Column::number("used", "contacts used", "%", 1, |row: &DayOutcome| {
            (row.used * 100.0).into()
        })
        .brief("used")
        .median(),
        Column::number("resent", "sent again", "%", 1, |row: &DayOutcome| {
            (row.resent * 100.0).into()
        })
        .median(),
        Column::number("repairs", "repairs", "%", 1, |row: &DayOutcome| {
            (row.repairs * 100.0).into()
        })
        .median(),
    ]
}

/// The table of time series.
pub(super) fn course_columns() -> Vec<Column<Hour>> {
    vec![
        Column::number("light_s", "light", "s", 2, |row: &Hour| {
            row.setup.light.as_secs_f64().into()
        }),
        Column::number("loss", "loss", "%", 0, |row: &Hour| {
            (row.setup.loss * 100.0).into()
        }),
        Column::name("what", "what", |row: &Hour| row.what.into()),
        Column::count("seed", "seed", |row: &Hour| row.setup.seed.into()).dropped(),
        Column::count("hour", "hour", |row: &Hour| row.hour.into()),
        Column::number("mb", "by then", "MB", 0, |row: &Hour| {
            megabytes(row.blocks).into()
        })
        .median(),
    ]
}

fn megabytes(blocks: usize) -> f64 {
    (blocks * BLOCK_BYTES) as f64 / 1e6
}

impl Day {
    /// Runs it.
    ///
    /// # Errors
    /// A block that arrives is not the one that was sent.
    pub fn run(&self) -> Result<DayOutcome, Error> {
        let mut config = PeerConfig::new(self.light, Some(self.rate));
        config.coding = self.is_coded.then(|| Coding::new(self.loss));
        let (light, loss) = (self.light.as_millis(), self.loss * 100.0);
        let of = |rate: String| format!("{rate}delay={light}ms,loss={loss}%,queue=100p");
        let (forward, backward) = (
            of(format!("rate={}mbit,", self.rate.mbit())),
            of(String::new()),
        );
        let block = content(BLOCK_BYTES);
        let mut pair = Pair::new(self.seed, &config, (&forward, &backward), &block)?;
        pair.set_open(false);
        pair.set_heard(false);
        let (mut course, mut outside, mut at_close) = (Vec::new(), 0, 0);
        for (at, change) in self.changes() {
            pair.run_to(at);
            match change {
                Change::Open => {
                    outside += pair.carried().bytes - at_close;
                    pair.set_open(true);
                }
                Change::Close => {
                    pair.set_open(false);
                    at_close = pair.carried().bytes;
                }
                Change::Heard => pair.set_heard(true),
                Change::Silent => pair.set_heard(false),
                Change::Made => pair.send()?,
                Change::Hour => {
                    course.push((pair.sender().made.len(), pair.receiver().noted.len()));
                }
            }
        }
        self.outcome(&pair, course, outside)
    }

    /// Everything that happens, in order.
    fn changes(&self) -> Vec<(Duration, Change)> {
        let mut changes = Vec::new();
        let mut contacts = 0;
        let mut begins = FIRST;
        while begins + LASTS <= DAY {
            let ends = begins + LASTS;
            changes.extend([
                (begins, Change::Open),
                (ends, Change::Close),
                (begins + self.light, Change::Heard),
                (ends + self.light, Change::Silent),
            ]);
            contacts += 1;
            begins = FIRST + EVERY * contacts;
        }
        let carries = self.rate.bytes_in(LASTS) as f64 * LOAD;
        let apart = EVERY.mul_f64(BLOCK_BYTES as f64 / carries.max(1.0));
        let mut made = apart;
        while made <= LAST_MADE {
            changes.push((made, Change::Made));
            made += apart;
        }
        changes.extend((1..=24).map(|hour| (HOUR * hour, Change::Hour)));
        changes.retain(|(at, _)| *at <= DAY);
        changes.sort_unstable();
        changes
    }

    fn outcome(
        &self,
        pair: &Pair,
        course: Vec<(usize, usize)>,
        outside: u64,
    ) -> Result<DayOutcome, Error> {
        let (sender, receiver) = (pair.sender(), pair.receiver());
        if receiver.damaged > 0 {
            return Err(Error::Failed("a block arrived with other bytes".into()));
        }
        let made: BTreeMap<SessionId, _> = sender.made.iter().copied().collect();
        let ages = receiver.noted.iter().filter_map(|(session, at)| {
            let made = made.get(session)?;
            Some(at.saturating_duration_since(*made))
        });
        let mut ages: Vec<Duration> = ages.collect();
        ages.sort_unstable();
        let contacts = self.changes();
        let contacts = contacts
            .iter()
            .filter(|(_, change)| *change == Change::Open);
        let carries = self.rate.bytes_in(LASTS) as f64 * contacts.count() as f64;
        let stats = sender.stats();
        let per_segment = |count: u64| count as f64 / stats.data_segments_sent.max(1) as f64;
        Ok(DayOutcome {
            setup: *self,
            made: made.len(),
            delivered: ages.len(),
            ages,
            used: pair.carried().bytes as f64 / carries.max(1.0),
            outside,
            resent: per_segment(stats.data_segments_resent),
            repairs: per_segment(stats.repair_segments_sent),
            course,
        })
    }

    /// What was made and what had arrived, hour by hour.
    pub(super) fn course(&self) -> Result<Vec<Hour>, Error> {
        let outcome = self.run()?;
        let arrived = match self.is_coded {
            true => "there, with repair segments",
            false => "there",
        };
        let points = |what, of: fn(&(usize, usize)) -> usize| {
            let hours = outcome.course.iter().zip(1..);
            hours.map(move |(point, hour)| Hour {
                setup: *self,
                what,
                hour,
                blocks: of(point),
            })
        };
        let mut all: Vec<Hour> = Vec::new();
        if !self.is_coded {
            all.extend(points("made", |(made, _)| *made));
        }
        all.extend(points(arrived, |(_, there)| *there));
        Ok(all)
    }
}
