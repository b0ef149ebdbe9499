//! One block over LTP, between two ends that may go on from one transfer to the next.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::{Duration, Instant},
};

use bytes::Bytes;
use starhaul_ltp::{
    Block, Engine, EngineConfig, EngineId, Event, Outgoing, PeerConfig, Profile, SegmentSize,
    SizeReason,
};
use starhaul_net::{IoMode, ltp::LtpDriver};

use super::{
    LONGEST, Options, RECEIVER, Row, SENDER, SERVICE, SILENCE, far_end::FarEnd, gbit, per_segment,
    thread_time,
};
use crate::Error;

/// Transfers in a row with one size after which what adapts is taken to stay there, and how many are waited for at most.
const STEADY: usize = 3;
const MOST_WARM_UP: usize = 20;

/// What is measured, and how it is carried.
pub(super) struct Way<'a> {
    pub(super) options: &'a Options,
    pub(super) mode: IoMode,
    pub(super) block: &'a Bytes,
    pub(super) far: &'a FarEnd,
}

/// Carries the block again and again, in segments of one size or of what that adapts to.
pub(super) struct Carrier {
    segment: SegmentSize,
    /// Whether both ends go on with what they have learnt: otherwise there are new ones for each transfer.
    goes_on: bool,
    ends: Option<Ends>,
}

/// Two engines and their sockets.
struct Ends {
    sender: LtpDriver,
    receiver: LtpDriver,
}

impl Carrier {
    pub(super) const fn new(segment: SegmentSize, goes_on: bool) -> Self {
        Self {
            segment,
            goes_on,
            ends: None,
        }
    }

    /// Transfers that are not counted: memory that this process, or its virtual machine, has for the first time is slow, and what adapts needs
    /// some until its size stays. Returns the bytes of data in a segment then.
    pub(super) fn warm_up(&mut self, way: &Way<'_>) -> Result<usize, Error> {
        let mut size = self.carry(way)?.segment_bytes;
        if self.segment != SegmentSize::Auto {
            return Ok(size);
        }
        let mut alike = 1;
        for _ in 1..MOST_WARM_UP {
            if alike == STEADY {
                break;
            }
            let next = self.carry(way)?.segment_bytes;
            alike = if next == size { alike + 1 } else { 1 };
            size = next;
        }
        Ok(size)
    }

    /// Carries the block once.
    pub(super) fn carry(&mut self, way: &Way<'_>) -> Result<Row, Error> {
        let ends = match self.ends.take() {
            Some(ends) => ends,
            None => Ends::new(self.segment, way)?,
        };
        let (row, ends) = ends.carry(way)?;
        self.ends = self.goes_on.then_some(ends);
        Ok(row)
    }
}

impl Ends {
    fn new(segment: SegmentSize, way: &Way<'_>) -> Result<Self, Error> {
        let mut sender = driver(SENDER, way.mode, segment, way.options)?;
        let mut receiver = driver(RECEIVER, way.mode, segment, way.options)?;
        sender.set_address(RECEIVER, receiver.local_addr());
        receiver.set_address(SENDER, sender.local_addr());
        Ok(Self { sender, receiver })
    }

    /// Carries the block once, and gives the ends back.
    fn carry(self, way: &Way<'_>) -> Result<(Row, Self), Error> {
        let Self {
            mut sender,
            mut receiver,
        } = self;
        let before = sender.engine().stats();
        let (is_over, waker) = (Arc::new(AtomicBool::new(false)), receiver.waker());
        let (ends, expected) = (is_over.clone(), way.block.clone());
        let receiving = way.far.begin(move || {
            let received = receive(&mut receiver, &ends, &expected);
            (received, receiver)
        })?;
        let sent = send(&mut sender, way.block);
        is_over.store(true, Ordering::SeqCst);
        waker.wake();
        let (received, receiver) = receiving.end()?;
        let ((time, send_time), (receive_time, arrived)) = (sent?, received?);
        let choice = sender.engine().segment_choice(RECEIVER);
        let stats = sender.engine().stats();
        let segments = stats.data_segments_sent - before.data_segments_sent;
        let all = stats.segments_sent - before.segments_sent;
        let row = Row {
            mode: way.mode.name(),
            segment_bytes: choice.map_or(0, |choice| choice.data_bytes),
            gbit_per_s: gbit(way.block.len(), time),
            send_us_per_segment: per_segment(send_time, segments),
            receive_us_per_segment: per_segment(receive_time, segments),
            // Of all transfers together.
            share_of_ceiling: 0.0,
            share_of_best_fixed: None,
            beside: Vec::new(),
            pairs: 0,
            lost: all.saturating_sub(arrived),
            reason: choice
                .map(|choice| choice.reason)
                .filter(|reason| *reason != SizeReason::Fixed)
                .map(|reason| reason.to_string()),
        };
        Ok((row, Self { sender, receiver }))
    }
}

/// An end on this host, with segments of this size.
pub(super) fn driver(
    id: EngineId,
    mode: IoMode,
    segment: SegmentSize,
    options: &Options,
) -> Result<LtpDriver, Error> {
    let engine = engine(id, (segment, options.profile), options.block_bytes, true)?;
    Ok(LtpDriver::bind(([127, 0, 0, 1], 0).into(), mode, engine)?)
}

/// One of the two engines, which sends or takes a block of so many bytes.
pub(super) fn engine(
    id: EngineId,
    (segment, profile): (SegmentSize, Profile),
    block_bytes: usize,
    integrity: bool,
) -> Result<Engine, Error> {
    let mut engine = Engine::new(EngineConfig::new(id, [id.0.to_le_bytes()[0]; 32]));
    let mut config = PeerConfig::new(Duration::ZERO, None);
    config.set_segment_size(segment);
    config.profile = profile;
    config.receive_memory = config.receive_memory.max(2 * block_bytes);
    config.block_bytes = config.block_bytes.max(block_bytes as u64);
    config.integrity = integrity;
    let peer = if id == SENDER { RECEIVER } else { SENDER };
    engine.add_peer(Instant::now(), peer, config)?;
    engine.open_service(SERVICE);
    Ok(engine)
}

/// Sends the block; how long that took, and the processor time of this thread.
fn send(driver: &mut LtpDriver, block: &Bytes) -> Result<(Duration, Duration), Error> {
    let (start, before) = (Instant::now(), thread_time());
    let (red, service, to) = (block.len() as u64, SERVICE, RECEIVER);
    driver.engine().send(
        start,
        Outgoing {
            to,
            service,
            block: block.clone(),
            red,
        },
    )?;
    loop {
        driver.turn(Some(start + LONGEST))?;
        while let Some(event) = driver.poll_event() {
            match event {
                Event::Sent { .. } => {
                    let took = (start.elapsed(), thread_time().saturating_sub(before));
                    // The last acknowledgement of a report leaves.
                    driver.turn(Some(Instant::now()))?;
                    return Ok(took);
                }
                Event::SendCancelled { reason, .. } => return Err(Error::GivenUp(reason)),
                _ => {}
            }
        }
        if start.elapsed() > LONGEST {
            return Err(Error::Bench("it took longer than a minute"));
        }
    }
}

/// Receives the block; the processor time of this thread, and how many segments came.
fn receive(
    driver: &mut LtpDriver,
    is_over: &AtomicBool,
    block: &Bytes,
) -> Result<(Duration, u64), Error> {
    let (before, mut received) = (thread_time(), None);
    let (mut took, mut limit) = (None, None);
    let arrived_before = driver.engine().stats().segments_received;
    // The sender's last acknowledgement is still to come when it is done.
    while limit.is_none_or(|limit| Instant::now() < limit) {
        if is_over.load(Ordering::SeqCst) {
            took.get_or_insert_with(|| thread_time().saturating_sub(before));
            limit.get_or_insert_with(|| Instant::now() + SILENCE);
            if driver.engine().sessions() == (0, 0) {
                break;
            }
        }
        driver.turn(Some(Instant::now() + SILENCE))?;
        while let Some(event) = driver.poll_event() {
            if let Event::RedPart { block, .. } = event {
                received = Some(block);
            }
        }
    }
    let took = took.unwrap_or_default();
    let arrived = driver.engine().stats().segments_received - arrived_before;
    match received.is_some_and(|received| is_same(&received, block)) {
        true => Ok((took, arrived)),
        false => Err(Error::Bench(
            "the received block is not the one that was sent",
        )),
    }
}

/// Whether a block that arrived is the one that was sent.
pub(super) fn is_same(received: &Block, sent: &Bytes) -> bool {
    let mut at = 0;
    received.len() == sent.len()
        && received.parts().iter().all(|part| {
            at += part.len();
            sent.get(at - part.len()..at) == Some(part)
        })
}
