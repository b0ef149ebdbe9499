//! One run of one system at a point, between two hosts.

use std::{
    collections::BTreeMap,
    time::{Duration, Instant},
};

use starhaul_demo::{
    load::{BlockSpec, Class, Classes},
    score::ClassScore,
};
use starhaul_link::Loss;
use starhaul_replay::{Host, Hosts, ReplayLink};

use crate::{
    Error,
    experiments::mpdtp::{QoeSetup, sent::LinkBytes, setup::DRAIN},
    realtime::{Bench, Measured},
    systems::blocks::{
        Arrivals, BlockSystem, CHEAP, DEAR, Offer, OfferedBlock, OfferedLink, Role,
        comparison::between,
        stalls::{Stalls, Watch},
    },
    workload::{
        blocks::payload,
        media::{Logs, stream_config},
    },
};

const NAMES: [&str; 2] = ["short", "long"];
/// As many as [`Class::ALL`] has.
const CLASSES: u32 = 3;
/// How often it is asked whether all has arrived.
const ROUND: Duration = Duration::from_millis(20);

/// What became of the blocks of a run.
#[derive(Clone, Debug)]
pub(super) struct Figures {
    pub(super) scores: Classes<ClassScore>,
    /// Of all blocks that arrived, ascending.
    pub(super) latencies_ms: Vec<f64>,
    /// Late or lost blocks during which this computer stood still.
    pub(super) disturbed: u32,
    /// Bytes that the sending host gave to each link meanwhile, by its interfaces.
    pub(super) link_bytes: LinkBytes,
}

/// Runs a system at a point.
pub(super) fn run(
    bench: &Bench,
    system: &dyn BlockSystem,
    setup: &QoeSetup,
    seed: u64,
) -> Result<Measured<Figures>, Error> {
    // Nothing is lost before all connections are up: how long they take is not what is compared.
    let links = (0..).zip(NAMES).zip(setup.links(Loss::NONE));
    let links: Vec<ReplayLink> = links
        .map(|((number, name), (_, link))| ReplayLink::new(name, link.clone(), link, seed, number))
        .collect();
    between(bench, &links, |hosts| measure(hosts, system, setup))
}

fn measure(hosts: &Hosts, system: &dyn BlockSystem, setup: &QoeSetup) -> Result<Figures, Error> {
    let loss = Loss::bernoulli(setup.loss)?;
    let offer = offer(setup);
    let arrivals = Arrivals::new(&offer);
    let mut sender = system.open(hosts, &offer, &arrivals)?;
    for link in [CHEAP, DEAR] {
        hosts.set_loss(link, loss);
    }
    let watch = Watch::start()?;
    let before = hosts.sent_bytes(Host::Near)?;
    let mut logs = Logs::new(setup.duration);
    let mut offered = BTreeMap::new();
    let start = Instant::now();
    while let Some(at) = logs.next_at() {
        std::thread::sleep((start + at).saturating_duration_since(Instant::now()));
        while let Some(block) = logs.next_block(start.elapsed()) {
            let number = number_of(&block);
            let data = payload(number, block.bytes);
            offered.insert(number, Instant::now());
            sender.offer(OfferedBlock {
                stream: place(block.class).into(),
                data,
                role: role(&block),
            })?;
        }
    }
    let limit = Instant::now() + DRAIN;
    while !arrivals.have_all(offered.keys()) && Instant::now() < limit {
        std::thread::sleep(ROUND);
    }
    sender.check()?;
    let after = hosts.sent_bytes(Host::Near)?;
    let (arrived, stalls) = (arrivals.take(), watch.end());
    if !offered.keys().any(|number| arrived.contains_key(number)) {
        return Err(Error::Flow(format!("{} carried no block", system.name())));
    }
    let carried = |link: usize| Some(after.get(link)?.saturating_sub(*before.get(link)?));
    let link_bytes = LinkBytes([CHEAP, DEAR].map(|link| carried(link).unwrap_or_default()));
    Ok(figures(logs, &offered, &arrived, &stalls, link_bytes))
}

/// A stream for each class, in their order.
fn offer(setup: &QoeSetup) -> Offer {
    let rate = setup.rate();
    Offer {
        streams: Class::ALL.map(stream_config).into(),
        bytes_of: |number| block_of(number).bytes,
        links: setup.links(Loss::NONE).map(|(one_way, _)| OfferedLink {
            one_way,
            rate,
            cost: 1.0,
        }),
    }
}

/// The place of a class among [`Class::ALL`], which is in the order of priority.
const fn place(class: Class) -> u8 {
    class.priority() - 1
}

/// The number of a block among those of all classes.
fn number_of(block: &BlockSpec) -> u32 {
    block.sequence * CLASSES + u32::from(place(block.class))
}

/// The block of a number.
fn block_of(number: u32) -> BlockSpec {
    let class = Class::ALL[(number % CLASSES) as usize];
    class.block(number / CLASSES)
}

fn role(block: &BlockSpec) -> Role {
    match block.class {
        Class::Video if block.key => Role::Key,
        Class::Video => Role::AfterKey,
        Class::Text | Class::Audio => Role::Alone,
    }
}

/// Of blocks by number and time of their offer and of their arrival.
fn figures(
    mut logs: Logs,
    offered: &BTreeMap<u32, Instant>,
    arrived: &BTreeMap<u32, Instant>,
    stalls: &Stalls,
    link_bytes: LinkBytes,
) -> Figures {
    let mut disturbed = 0;
    for (number, sent) in offered {
        let block = block_of(*number);
        let deadline = block.class.deadline();
        let latency = arrived.get(number);
        let latency = latency.map(|at| at.saturating_duration_since(*sent));
        if let Some(latency) = latency {
            logs.arrived(block.class, block.sequence, latency);
        }
        let is_on_time = latency.is_some_and(|latency| latency <= deadline);
        if !is_on_time && stalls.touch(*sent, *sent + deadline) {
            disturbed += 1;
        }
    }
    Figures {
        scores: logs.scores(),
        latencies_ms: logs.latencies_ms(),
        disturbed,
        link_bytes,
    }
}

#[cfg(test)]
mod tests {
    use starhaul_demo::load;

    use super::*;
    use crate::workload::blocks;

    #[test]
    fn a_block_is_known_by_its_number_and_by_its_bytes() {
        for block in load::schedule(Duration::from_secs(3)) {
            let number = number_of(&block);
            assert_eq!(block_of(number), block);
            assert_eq!(Class::ALL[usize::from(place(block.class))], block.class);
            let data = payload(number, block.bytes);
            let found = blocks::number_of(&data, |number| block_of(number).bytes);
            assert_eq!(found, Some(number));
        }
        assert_eq!(CLASSES as usize, Class::ALL.len());
        // A system may send the last number before all others.
        assert!(block_of(u32::MAX).bytes > 0);
    }

    #[test]
    fn each_class_has_its_own_deadline_and_a_missing_block_is_lost() {
        let second = Duration::from_secs(1);
        let mut logs = Logs::new(second);
        let start = Instant::now();
        let mut offered = BTreeMap::new();
        while let Some(block) = logs.next_block(second) {
            offered.insert(number_of(&block), start);
        }
        let [text, audio, video] = Class::ALL.map(|class| number_of(&class.block(0)));
        let late = second + Duration::from_micros(1);
        let arrived = [(text, late), (audio, second), (video, late)];
        let arrived = arrived.map(|(number, latency)| (number, start + latency));
        let found = figures(
            logs,
            &offered,
            &BTreeMap::from(arrived),
            &Stalls::default(),
            LinkBytes::default(),
        );
        let of = |class| {
            let score: &ClassScore = found.scores.of(class);
            (score.sent, score.on_time, score.late)
        };
        assert_eq!(of(Class::Text), (20, 0, 1));
        assert_eq!(of(Class::Audio), (47, 1, 0));
        assert_eq!(of(Class::Video), (24, 1, 0));
        assert_eq!(found.disturbed, 0);
        assert_eq!(
            (found.latencies_ms.len(), found.latencies_ms[0]),
            (3, 1000.0)
        );
        // 2/3 and 1/3.
        assert!((found.scores.qoe() - 1.0).abs() < 1e-9);
    }
}
