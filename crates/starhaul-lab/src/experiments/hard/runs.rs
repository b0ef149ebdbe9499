//! One run of each system.

use std::time::{Duration, Instant};

use bytes::Bytes;
use starhaul_cc::ControllerConfig;
use starhaul_demo::{
    baseline::Controller,
    load::{self, Class, Classes},
    score::ClassScore,
};
use starhaul_link::{LinkSpec, link_seed};
use starhaul_session::SchedulerChoice;
use starhaul_units::Bandwidth;

use super::{
    HardSetup,
    causes::{Causes, LostBlock},
    links,
};
use crate::{
    Error,
    kit::Records,
    workload::{
        bulk::Bulk,
        media::{Logs, Sending},
    },
    worlds::{
        oracle::Oracle,
        stack::{HostSettings, PathSetup, World},
    },
};

/// For how long the applications send.
const SENDING: Duration = Duration::from_secs(120);
/// After it: nothing has a longer deadline.
const DRAIN: Duration = Duration::from_secs(4);
/// The baseline's download: messages of so many bytes, and so many bytes under way.
const MESSAGE_BYTES: usize = 65_536;
const MOST_UNDER_WAY: u64 = 16 << 20;
const DOWNLOAD: &str = "download";

/// The outcome of one run.
#[derive(Clone, Debug)]
pub struct HardResult {
    /// Blocks of each class.
    pub classes: Classes<ClassScore>,
    /// What the download carried while the applications sent; the oracle has none.
    pub download: Option<Bandwidth>,
    /// Of ours, the blocks that failed.
    pub lost: Vec<LostBlock>,
}

fn paths(setup: &HardSetup) -> Result<Vec<PathSetup>, Error> {
    let links = links::pair(setup.link, SENDING + DRAIN)?;
    let path = |link: LinkSpec| PathSetup {
        forward: link.clone(),
        backward: link,
        cost: 1.0,
        controller: ControllerConfig::Bbr,
    };
    Ok(links.map(path).into())
}

fn rate(bytes: u64) -> Bandwidth {
    Bandwidth::from_bytes_per_second(bytes).scaled(1.0 / SENDING.as_secs_f64())
}

pub(super) fn starhaul(
    setup: &HardSetup,
    scheduler: SchedulerChoice,
    records: &Records,
) -> Result<HardResult, Error> {
    let settings = HostSettings {
        scheduler,
        records: records.clone(),
        ..HostSettings::default()
    };
    let mut world = World::starhaul_with(setup.seed, &paths(setup)?, &[], &settings)?;
    let start = world.now();
    let causes = Causes::default();
    if let Some(session) = world.sender().session() {
        session.observe(Box::new(causes.clone()));
    }
    let mut bulk = Bulk::open(&mut world)?;
    let mut sending = Sending::default();
    let mut logs = Logs::new(SENDING);
    let mut downloaded = 0;
    world.run(SENDING + DRAIN, |world| {
        if world.elapsed() <= SENDING {
            downloaded = bulk.received;
        }
        let bulk_at = bulk.pump(world);
        let media_at = sending.pump(world, &mut logs);
        bulk_at.into_iter().chain(media_at).min()
    });
    if !bulk.intact {
        return Err(Error::Failed("the download was changed on its way".into()));
    }
    Ok(HardResult {
        classes: logs.scores(),
        download: Some(rate(downloaded)),
        lost: causes.lost(start, |stream| sending.class_of(stream), logs.logs()),
    })
}

pub(super) fn mpquic(setup: &HardSetup, controller: Controller) -> Result<HardResult, Error> {
    let labels = Class::ALL.map(Class::name);
    let labels: Vec<&str> = labels.into_iter().chain([DOWNLOAD]).collect();
    let mut world = World::mpquic(setup.seed, controller, &paths(setup)?, &labels)?;
    let mut logs = Logs::new(SENDING);
    let message = Bytes::from(vec![0x5a; MESSAGE_BYTES]);
    let (mut sent, mut received, mut downloaded) = (0_u64, 0_u64, 0);
    world.run(SENDING + DRAIN, |world| {
        let elapsed = world.elapsed();
        while let Some(block) = logs.next_block(elapsed) {
            let data = logs.payload(&block, elapsed);
            world.sender().send_block(block.class.name(), data);
        }
        while let Some((label, data)) = world.receiver().poll_block() {
            if label == DOWNLOAD {
                received += data.len() as u64;
                continue;
            }
            let class = Class::ALL.into_iter().find(|class| class.name() == label);
            logs.received(class, elapsed, &data);
        }
        while sent - received < MOST_UNDER_WAY {
            world.sender().send_block(DOWNLOAD, message.clone());
            sent += MESSAGE_BYTES as u64;
        }
        if elapsed <= SENDING {
            downloaded = received;
        }
        logs.next_at()
    });
    world.check()?;
    Ok(HardResult {
        classes: logs.scores(),
        download: Some(rate(downloaded)),
        lost: Vec::new(),
    })
}

pub(super) fn oracle(setup: &HardSetup) -> Result<HardResult, Error> {
    let links = links::pair(setup.link, SENDING + DRAIN)?;
    let links = (0..)
        .zip(&links)
        .map(|(number, link)| (link, link_seed(setup.seed, number)));
    let mut oracle = Oracle::new(links, SENDING + DRAIN, Instant::now());
    Ok(HardResult {
        classes: oracle.scores(load::schedule(SENDING)),
        download: None,
        lost: Vec::new(),
    })
}
