//! The first seconds of a contact: how full its link is, and how long blocks take at each light time and loss, with and without
//! repair segments.

use std::{
    collections::BTreeMap,
    time::{Duration, Instant},
};

use starhaul_ltp::{Coding, PeerConfig, SessionId};
use starhaul_plot::Column;
use starhaul_units::Bandwidth;

use super::pair::{Pair, content, percentile};
use crate::Error;

const RATE: Bandwidth = Bandwidth::from_mbit(20);
const BLOCK_BYTES: usize = 1_000_000;
const LIGHT_SECONDS: [u64; 5] = [0, 1, 4, 10, 600];
const LOSSES: [f64; 4] = [0.0, 0.01, 0.05, 0.1];
/// The rates of the link from the International Space Station to the ground, and back; either end may be the one that sends.
const DOWN: Bandwidth = Bandwidth::from_mbit(1244);
const UP: Bandwidth = Bandwidth::from_mbit(155);

/// A contact in which blocks of 1 MB are offered without end.
#[derive(Clone, Copy, Debug)]
pub struct Contact {
    /// How long a signal takes.
    pub light: Duration,
    /// Share of packets that is lost, both ways.
    pub loss: f64,
    /// Whether repair segments make up for that.
    pub is_coded: bool,
    /// The rate of the link of the data.
    pub rate: Bandwidth,
    /// That of the link of the reports, if it has one.
    pub back: Option<Bandwidth>,
    /// For how long blocks are offered.
    pub lasts: Duration,
    /// Seed of everything random.
    pub seed: u64,
}

/// Blocks and segments of a contact, and what they cost.
#[derive(Clone, Debug)]
pub struct Outcome {
    setup: Contact,
    /// Share of the link's rate that is used while blocks are offered.
    pub used: f64,
    /// Blocks that have left.
    pub blocks: usize,
    /// Those of them that were delivered, with the bytes that were sent.
    pub delivered: usize,
    /// From the end of a block's transmission to its delivery, less the light time, ascending.
    pub waits: Vec<Duration>,
    /// Share of data segments that were sent again.
    pub resent: f64,
    /// Repair segments per data segment.
    pub repairs: f64,
    /// Most memory that the receiver held.
    memory: usize,
}

/// Over a link of 20 Mbit/s, at each light time and loss.
pub fn contacts(quick: bool, seed: u64) -> Vec<Contact> {
    let lights: &[u64] = if quick { &[4] } else { &LIGHT_SECONDS };
    let mut setups = Vec::new();
    for &light in lights {
        setups.extend(losses(&LOSSES).map(|(loss, is_coded)| Contact {
            light: Duration::from_secs(light),
            loss,
            is_coded,
            rate: RATE,
            back: None,
            lasts: Duration::from_secs(60),
            seed,
        }));
    }
    setups
}

/// With rates that differ much, and a round trip of four seconds; short, for a receiver holds what is not complete.
pub fn station(quick: bool, seed: u64) -> Vec<Contact> {
    let lasts = Duration::from_secs(if quick { 1 } else { 3 });
    let mut setups = Vec::new();
    for (rate, back) in [(DOWN, UP), (UP, DOWN)] {
        setups.extend(losses(&[0.0, 0.01]).map(|(loss, is_coded)| Contact {
            light: Duration::from_secs(2),
            loss,
            is_coded,
            rate,
            back: Some(back),
            lasts,
            seed,
        }));
    }
    setups
}

/// Each loss without repair segments, and with them: those for no loss are none.
fn losses(losses: &[f64]) -> impl Iterator<Item = (f64, bool)> {
    let both = |loss: &f64| [(*loss, false), (*loss, true)];
    let all = losses.iter().flat_map(both);
    all.filter(|(loss, is_coded)| !is_coded || *loss > 0.0)
}

/// The table of such runs.
pub(super) fn columns() -> Vec<Column<Outcome>> {
    vec![
        Column::number("rate_mbps", "rate", "Mbit/s", 0, |row: &Outcome| {
            row.setup.rate.mbit().into()
        }),
        Column::number("light_s", "light", "s", 0, |row: &Outcome| {
            row.setup.light.as_secs_f64().into()
        }),
        Column::number("loss", "loss", "%", 0, |row: &Outcome| {
            (row.setup.loss * 100.0).into()
        }),
        Column::name("coding", "repair", |row: &Outcome| {
            (if row.setup.is_coded { "yes" } else { "no" }).into()
        }),
        Column::count("seed", "seed", |row: &Outcome| row.setup.seed.into()).dropped(),
        Column::number("used", "link used", "%", 1, |row: &Outcome| {
            (row.used * 100.0).into()
        })
        .median(),
        Column::number("delivered", "delivered", "%", 2, |row: &Outcome| {
            (row.delivered as f64 * 100.0 / row.blocks.max(1) as f64).into()
        })
        .median(),
        Column::count("blocks", "blocks", |row: &Outcome| row.blocks.into()).total(),
        Column::count("prompt", "at once", |row: &Outcome| row.prompt().into()).total(),
        Column::number("wait_p50_s", "waited p50", "s", 2, |row: &Outcome| {
            percentile(&row.waits, 0.5).into()
        })
        .median(),
        Column::number("wait_p99_s", "p99", "s", 2, |row: &Outcome| {
            percentile(&row.waits, 0.99).into()
        })
        .median(),
        Column::number(
            "wait_p99_trips",
            "p99",
            "round trips",
            1,
            |row: &Outcome| row.wait_p99_trips().into(),
        )
        .brief("trips")
        .median(),
        Column::number("resent", "sent again", "%", 1, |row: &Outcome| {
            (row.resent * 100.0).into()
        })
        .median(),
        Column::number("repairs", "repairs", "%", 1, |row: &Outcome| {
            (row.repairs * 100.0).into()
        })
        .median(),
        Column::number("memory_mb", "receiver", "MB", 0, |row: &Outcome| {
            (row.memory as f64 / 1e6).into()
        })
        .median(),
    ]
}

impl Contact {
    /// Runs it.
    ///
    /// # Errors
    /// A session never ends, or a block that arrives is not the one that was sent.
    pub fn run(&self) -> Result<Outcome, Error> {
        let mut config = PeerConfig::new(self.light, Some(self.rate));
        config.coding = self.is_coded.then(|| Coding::new(self.loss));
        let (light, loss) = (self.light.as_secs(), self.loss * 100.0);
        let link = |rate: Option<Bandwidth>| {
            let rate = rate.map(|rate| format!("rate={}mbit,", rate.mbit()));
            let rate = rate.unwrap_or_default();
            format!("{rate}delay={light}s,loss={loss}%,queue=100p")
        };
        let (forward, backward) = (link(Some(self.rate)), link(self.back));
        let block = content(BLOCK_BYTES);
        let mut pair = Pair::new(self.seed, &config, (&forward, &backward), &block)?;
        pair.offer_for(self.lasts);
        let sent = pair.carried().bytes;
        pair.finish()?;
        self.outcome(&pair, sent)
    }

    fn outcome(&self, pair: &Pair, sent_bytes: u64) -> Result<Outcome, Error> {
        let (sender, receiver) = (pair.sender(), pair.receiver());
        if receiver.damaged > 0 {
            return Err(Error::Failed("a block arrived with other bytes".into()));
        }
        let transmitted: BTreeMap<SessionId, Instant> = sender.noted.iter().copied().collect();
        let waits = receiver.noted.iter().filter_map(|(session, at)| {
            let arrival = *transmitted.get(session)? + self.light;
            Some(at.saturating_duration_since(arrival))
        });
        let mut waits: Vec<Duration> = waits.collect();
        waits.sort_unstable();
        let stats = sender.stats();
        let per_segment = |count: u64| count as f64 / stats.data_segments_sent.max(1) as f64;
        let used = Bandwidth::from_bytes_over(sent_bytes, self.lasts).mbit() / self.rate.mbit();
        Ok(Outcome {
            setup: *self,
            used,
            blocks: transmitted.len(),
            delivered: waits.len(),
            waits,
            resent: per_segment(stats.data_segments_resent),
            repairs: per_segment(stats.repair_segments_sent),
            memory: receiver.memory,
        })
    }
}

impl Outcome {
    /// Blocks that waited for no round trip of light, and so for no segment that was sent again; none where light takes no time.
    pub fn prompt(&self) -> Option<usize> {
        let trip = self.setup.light * 2;
        let prompt = self.waits.iter().filter(|wait| **wait < trip).count();
        (!trip.is_zero()).then_some(prompt)
    }

    /// The 99th percentile of how long blocks waited, in round trips of light; none where light takes no time.
    pub fn wait_p99_trips(&self) -> Option<f64> {
        let trip = self.setup.light.as_secs_f64() * 2.0;
        let wait = percentile(&self.waits, 0.99);
        wait.filter(|_| trip > 0.0).map(|wait| wait / trip)
    }
}
