//! Engines of LTP without a node, each with a thread: one sends blocks, the other receives.

use std::{
    sync::{
        atomic::{AtomicBool, AtomicU32, Ordering},
        mpsc,
    },
    thread,
    time::{Duration, Instant},
};

use bytes::Bytes;
use starhaul_dtn_client::random;
use starhaul_ltp::{Block, Engine, EngineConfig, EngineId, Event, Outgoing, PeerConfig};
use starhaul_net::{IoMode, ltp::LtpDriver};

use super::{Checklist, Cost, LARGE_BYTES, Stopwatch, loopback, payload};
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

/// Large payloads, one in each block, without bundles. As the application of a node does, another thread than the engine's looks at them.
pub(super) fn large(count: u32) -> Result<Cost, Error> {
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
    let mut list = Checklist::new(count, LARGE_BYTES);
    carry(source, &load, sink, |(_, block)| {
        list.arrived_in_parts(block.parts())
    })
}

/// Sends all blocks, and returns when all of their bundles have arrived and were given to `take`.
pub(super) fn carry(
    mut source: LtpDriver,
    load: &Load,
    mut sink: LtpDriver,
    mut take: impl FnMut((u64, Block)) -> Result<(), Error>,
) -> Result<Cost, Error> {
    let (arrived, is_over) = (AtomicU32::new(0), AtomicBool::new(false));
    let (outbox, taken) = mpsc::channel();
    let watch = Stopwatch::start();
    thread::scope(|scope| {
        let (arrived, is_over) = (&arrived, &is_over);
        let receiving = thread::Builder::new().name("bench-sink".to_owned());
        let receiving = receiving.spawn_scoped(scope, move || {
            let received = receive(&mut sink, load, arrived, is_over, outbox);
            is_over.store(true, Ordering::SeqCst);
            received
        });
        let receiving = receiving.map_err(no_thread)?;
        let sending = thread::Builder::new().name("bench-source".to_owned());
        let sending = sending.spawn_scoped(scope, move || {
            let sent = send(&mut source, load, arrived, is_over);
            is_over.store(true, Ordering::SeqCst);
            sent
        });
        let sending = sending.map_err(|error| {
            is_over.store(true, Ordering::SeqCst);
            no_thread(error)
        })?;
        let was_taken = taken.into_iter().try_for_each(&mut take);
        let cost = watch.stop();
        let panicked = |_| Error::Bench("a thread panicked".to_owned());
        sending.join().map_err(panicked)??;
        receiving.join().map_err(panicked)??;
        was_taken.map(|()| cost)
    })
}

fn no_thread(error: std::io::Error) -> Error {
    Error::Bench(format!("no thread: {error}"))
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
    outbox: mpsc::Sender<(u64, Block)>,
) -> Result<(), Error> {
    let (mut count, mut last) = (0, Instant::now());
    while count < load.bundles {
        turn(driver)?;
        while let Some(event) = driver.poll_event() {
            if let Event::RedPart { service, block, .. } = event {
                count += bundles_in(service, &block)?;
                arrived.store(count, Ordering::Relaxed);
                if outbox.send((service, block)).is_err() {
                    // It was wrong, or one before.
                    return Ok(());
                }
                last = Instant::now();
            }
        }
        if last.elapsed() > SILENCE {
            let missing = load.bundles - count;
            return Err(Error::Bench(format!("{missing} bundles are lost")));
        }
    }
    drop(outbox);
    // The other end still waits for reports.
    while !is_over.load(Ordering::SeqCst) && last.elapsed() < SILENCE {
        turn(driver)?;
    }
    Ok(())
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
