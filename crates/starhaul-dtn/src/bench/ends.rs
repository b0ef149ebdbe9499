//! Engines of LTP without a node, each with a thread: one sends blocks, the other receives.

use std::{
    sync::atomic::{AtomicBool, AtomicU32, Ordering},
    thread,
    time::{Duration, Instant},
};

use bytes::Bytes;
use starhaul_dtn_client::random;
use starhaul_ltp::{Block, Engine, EngineConfig, EngineId, Event, Outgoing, PeerConfig};
use starhaul_net::{IoMode, ltp::LtpDriver};

use super::{Checklist, LARGE_BYTES, loopback, payload};
use crate::{
    Error,
    ltp::blocks::{AGGREGATE, BUNDLE, split},
};

/// How long nothing may arrive.
const SILENCE: Duration = Duration::from_secs(20);
/// How often a thread asks whether the other is done.
const ASK: Duration = Duration::from_millis(5);

/// What one engine sends to another, perhaps through a node.
pub(super) struct Load {
    /// The engine that it sends to.
    pub(super) to: EngineId,
    /// Blocks, and how many bundles are in each.
    pub(super) blocks: Vec<(Bytes, u32)>,
    /// Bundles in all of them.
    pub(super) bundles: u32,
    /// Bundles that have left and have not arrived yet, at most.
    pub(super) under_way: u32,
}

/// What arrived, and how long that took.
pub(super) struct Carried {
    pub(super) time: Duration,
    pub(super) blocks: Vec<(u64, Block)>,
}

/// An engine whose peer is at this address, or wherever its data come from.
pub(super) fn engine(
    number: u64,
    peer: u64,
    address: Option<std::net::SocketAddr>,
) -> Result<LtpDriver, Error> {
    let failed = |error: &dyn std::fmt::Display| Error::Bench(error.to_string());
    let mut engine = Engine::new(EngineConfig::new(EngineId(number), random::bytes()?));
    let settings = PeerConfig::new(Duration::ZERO, None);
    let added = engine.add_peer(Instant::now(), EngineId(peer), settings);
    added.map_err(|error| failed(&error))?;
    engine.open_service(BUNDLE);
    engine.open_service(AGGREGATE);
    let driver = LtpDriver::bind(loopback(), IoMode::default(), engine);
    let mut driver = driver.map_err(|error| failed(&error))?;
    if let Some(address) = address {
        driver.set_address(EngineId(peer), address);
    }
    Ok(driver)
}

/// Large payloads, one in each block, without bundles.
pub(super) fn large(count: u32) -> Result<Duration, Error> {
    let sink = engine(2, 1, None)?;
    let source = engine(1, 2, Some(sink.local_addr()))?;
    let load = Load {
        to: EngineId(2),
        blocks: (0..count)
            .map(|number| (payload(number, LARGE_BYTES).into(), 1))
            .collect(),
        bundles: count,
        under_way: count,
    };
    let carried = carry(source, &load, sink)?;
    let mut list = Checklist::new(count, LARGE_BYTES);
    for (_, block) in carried.blocks {
        list.arrived(&block.into_bytes())?;
    }
    Ok(carried.time)
}

/// Sends all blocks, and returns when all of their bundles have arrived.
pub(super) fn carry(
    mut source: LtpDriver,
    load: &Load,
    mut sink: LtpDriver,
) -> Result<Carried, Error> {
    let (arrived, is_over) = (AtomicU32::new(0), AtomicBool::new(false));
    thread::scope(|scope| {
        let start = Instant::now();
        let receiving = scope.spawn(|| {
            let received = receive(&mut sink, load, &arrived, &is_over);
            is_over.store(true, Ordering::SeqCst);
            received
        });
        let sent = send(&mut source, load, &arrived, &is_over);
        is_over.store(true, Ordering::SeqCst);
        let received = receiving.join();
        let received = received.map_err(|_| Error::Bench("a thread panicked".to_owned()))?;
        sent?;
        let (end, blocks) = received?;
        Ok(Carried {
            time: end - start,
            blocks,
        })
    })
}

fn send(
    driver: &mut LtpDriver,
    load: &Load,
    arrived: &AtomicU32,
    is_over: &AtomicBool,
) -> Result<(), Error> {
    let mut left = load.blocks.iter().peekable();
    let (mut sent, mut acknowledged) = (0, 0);
    while acknowledged < load.blocks.len() && !is_over.load(Ordering::SeqCst) {
        while let Some((block, bundles)) = left.peek() {
            if sent + bundles > load.under_way + arrived.load(Ordering::Relaxed) {
                break;
            }
            let outgoing = Outgoing {
                to: load.to,
                service: if *bundles == 1 { BUNDLE } else { AGGREGATE },
                block: block.clone(),
                red: block.len() as u64,
            };
            // It has no room for more at this moment.
            if driver.engine().send(Instant::now(), outgoing).is_err() {
                break;
            }
            sent += bundles;
            left.next();
        }
        turn(driver)?;
        while let Some(event) = driver.poll_event() {
            match event {
                Event::Sent { .. } => acknowledged += 1,
                Event::SendCancelled { reason, .. } => {
                    return Err(Error::Bench(format!("a block was refused: {reason}")));
                }
                _ => {}
            }
        }
    }
    Ok(())
}

fn receive(
    driver: &mut LtpDriver,
    load: &Load,
    arrived: &AtomicU32,
    is_over: &AtomicBool,
) -> Result<(Instant, Vec<(u64, Block)>), Error> {
    let (mut blocks, mut count, mut last) = (Vec::new(), 0, Instant::now());
    while count < load.bundles {
        turn(driver)?;
        while let Some(event) = driver.poll_event() {
            if let Event::RedPart { service, block, .. } = event {
                count += bundles_in(service, &block)?;
                arrived.store(count, Ordering::Relaxed);
                blocks.push((service, block));
                last = Instant::now();
            }
        }
        if last.elapsed() > SILENCE {
            let missing = load.bundles - count;
            return Err(Error::Bench(format!("{missing} bundles are lost")));
        }
    }
    // The other end still waits for reports.
    while !is_over.load(Ordering::SeqCst) && last.elapsed() < SILENCE {
        turn(driver)?;
    }
    Ok((last, blocks))
}

fn bundles_in(service: u64, block: &Block) -> Result<u32, Error> {
    if service == BUNDLE {
        return Ok(1);
    }
    let bundles = split(service, &block.clone().into_bytes());
    let bundles = bundles.map_err(|error| Error::Bench(error.to_string()))?;
    Ok(u32::try_from(bundles.len()).unwrap_or(u32::MAX))
}

fn turn(driver: &mut LtpDriver) -> Result<(), Error> {
    let turned = driver.turn(Some(Instant::now() + ASK));
    turned.map_err(|error| Error::Bench(error.to_string()))
}
