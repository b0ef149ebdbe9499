//! One run of one system through steps of loss, between two hosts.

use std::{
    collections::BTreeMap,
    time::{Duration, Instant},
};

use starhaul_replay::{Host, Hosts, ReplayLink};
use starhaul_session::StreamConfig;
use starhaul_units::Bandwidth;

use crate::{
    Error,
    experiments::dmtp::{
        BLOCK_BYTES, BLOCKS_PER_STEP, COSTS, DEADLINE, INTERVAL, ONE_WAY, RATE, Step,
        WARM_UP_BLOCKS, links,
        run::{payload, wire_extra_share},
    },
    realtime::{Bench, Measured},
    systems::blocks::{
        Arrivals, BlockSender, BlockSystem, CHEAP, Offer, OfferedBlock, OfferedLink,
        comparison::between,
        stalls::{Stalls, Watch},
    },
};

/// How long the first block may take to come out.
const PATIENCE: Duration = Duration::from_secs(20);
/// After the last block, so that what is late is told from what is lost.
const DRAIN: Duration = Duration::from_secs(2);
const NAMES: [&str; 2] = ["cheap", "dear"];

/// What became of the blocks of a step.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Figures {
    /// Blocks offered to the system.
    pub(super) sent: u32,
    /// Whole at the receiving application within the deadline.
    pub(super) on_time: u32,
    /// Of the others, those during which this computer stood still.
    pub(super) disturbed: u32,
    /// Of the blocks that came out: from being offered to their last byte, in ms, ascending.
    pub(super) latencies_ms: Vec<f64>,
    /// Bytes that the sending host gave to each link meanwhile, by its interfaces.
    pub(super) path_bytes: [u64; 2],
}

impl Figures {
    /// Bytes beside the data, headers included, as a share of the data.
    pub(super) fn wire_extra_share(&self) -> f64 {
        wire_extra_share(self.sent, self.path_bytes)
    }
}

/// Runs a system; one result for each loss of the cheap path.
pub(super) fn run(
    bench: &Bench,
    system: &dyn BlockSystem,
    losses: &[f64],
    seed: u64,
) -> Result<Measured<Vec<Figures>>, Error> {
    let links = (0..).zip(NAMES).zip(links(true));
    let links: Vec<ReplayLink> = links
        .map(|((number, name), (link, _))| ReplayLink::new(name, link.clone(), link, seed, number))
        .collect();
    between(bench, &links, |hosts| measure(hosts, system, losses))
}

/// One stream of blocks that are alike.
fn offer() -> Offer {
    let rate = Bandwidth::from_bytes_over(BLOCK_BYTES as u64, INTERVAL);
    Offer {
        streams: vec![StreamConfig {
            deadline: DEADLINE,
            priority: 0,
            max_coding_rate: 1.0,
            bandwidth: Some(rate),
            ..StreamConfig::default()
        }],
        bytes_of: |_| BLOCK_BYTES,
        links: COSTS.map(|cost| OfferedLink {
            one_way: ONE_WAY,
            rate: RATE,
            cost,
        }),
    }
}

fn measure(hosts: &Hosts, system: &dyn BlockSystem, losses: &[f64]) -> Result<Vec<Figures>, Error> {
    let offer = offer();
    let arrivals = Arrivals::new(&offer);
    let mut application = Application {
        sender: system.open(hosts, &offer, &arrivals)?,
        offered: Vec::new(),
        due: Instant::now(),
    };
    let limit = Instant::now() + PATIENCE;
    while arrivals.count() == 0 {
        if Instant::now() > limit {
            return Err(Error::Flow(format!(
                "{} carried no block within {PATIENCE:?}",
                system.name()
            )));
        }
        application.offer(1)?;
    }
    application.offer(WARM_UP_BLOCKS)?;
    let first = application.offered.len();
    let watch = Watch::start()?;
    let mut path_bytes = Vec::new();
    for loss in losses {
        hosts.set_loss(CHEAP, Step::single(*loss).model());
        let before = hosts.sent_bytes(Host::Near)?;
        application.offer(BLOCKS_PER_STEP)?;
        let after = hosts.sent_bytes(Host::Near)?;
        let carried = |link: usize| Some(after.get(link)?.saturating_sub(*before.get(link)?));
        path_bytes.push([0, 1].map(|link| carried(link).unwrap_or_default()));
    }
    std::thread::sleep(DRAIN);
    application.sender.check()?;
    let (arrived, stalls) = (arrivals.take(), watch.end());
    let offered = application.offered.get(first..).unwrap_or_default();
    let of_step = |(step, path_bytes)| {
        let from = step * BLOCKS_PER_STEP as usize;
        let blocks = offered.get(from..).unwrap_or_default().iter();
        let number = |place: usize| u32::try_from(first + from + place).unwrap_or(u32::MAX);
        let blocks = blocks.take(BLOCKS_PER_STEP as usize).enumerate();
        let blocks = blocks.map(|(place, at)| (number(place), *at));
        figures(blocks, &arrived, &stalls, path_bytes)
    };
    Ok(path_bytes.into_iter().enumerate().map(of_step).collect())
}

/// What offers a block each [`INTERVAL`].
struct Application<'h> {
    sender: Box<dyn BlockSender + 'h>,
    /// When each block was offered.
    offered: Vec<Instant>,
    due: Instant,
}

impl Application<'_> {
    /// Offers so many blocks, and returns when the next one is due.
    fn offer(&mut self, blocks: u32) -> Result<(), Error> {
        for _ in 0..blocks {
            let number = u32::try_from(self.offered.len()).unwrap_or(u32::MAX);
            let block = OfferedBlock::alone(payload(number));
            self.offered.push(Instant::now());
            self.sender.offer(block)?;
            self.due += INTERVAL;
            std::thread::sleep(self.due.saturating_duration_since(Instant::now()));
        }
        Ok(())
    }
}

/// Of blocks by number and time of their offer.
fn figures(
    blocks: impl Iterator<Item = (u32, Instant)>,
    arrived: &BTreeMap<u32, Instant>,
    stalls: &Stalls,
    path_bytes: [u64; 2],
) -> Figures {
    let mut figures = Figures {
        path_bytes,
        ..Figures::default()
    };
    for (number, offered) in blocks {
        figures.sent += 1;
        let latency = arrived.get(&number);
        let latency = latency.map(|at| at.saturating_duration_since(offered));
        let latency_ms = latency.map(|latency| latency.as_secs_f64() * 1e3);
        figures.latencies_ms.extend(latency_ms);
        if latency.is_some_and(|latency| latency <= DEADLINE) {
            figures.on_time += 1;
        } else if stalls.touch(offered, offered + DEADLINE) {
            figures.disturbed += 1;
        }
    }
    figures.latencies_ms.sort_by(f64::total_cmp);
    figures
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_block_is_on_time_until_its_deadline_and_a_missing_one_is_late() {
        let start = Instant::now();
        let arrived = BTreeMap::from([
            (7, start + DEADLINE),
            (8, start + DEADLINE + Duration::from_micros(1)),
        ]);
        let blocks = [7, 8, 9].map(|number| (number, start));
        let path_bytes = [50_000, 40_000];
        let found = figures(blocks.into_iter(), &arrived, &Stalls::default(), path_bytes);
        assert_eq!((found.sent, found.on_time, found.disturbed), (3, 1, 0));
        assert_eq!(found.latencies_ms, [200.0, 200.001]);
        assert!((found.wire_extra_share() - 0.25).abs() < 1e-9);
    }
}
