//! Text, audio and video at once, each on a stream of its own, and what became of their blocks.

use std::time::{Duration, Instant};

use bytes::Bytes;
use starhaul_demo::{
    apps::block,
    load::{self, BlockSpec, Class, Classes},
    score::{ClassLog, ClassScore},
};
use starhaul_session::{BlockId, BlockOptions, Event, Mode, Session, StreamConfig, StreamId};
use starhaul_units::Bandwidth;

use crate::worlds::stack::{Starhaul, World};

/// The streams of a sender, opened with their first block.
#[derive(Debug, Default)]
pub(crate) struct Sending {
    streams: Vec<(StreamId, Class)>,
    last_key: Option<BlockId>,
    mode: Mode,
}

impl Sending {
    /// With this protection of all blocks.
    pub(crate) fn protected(mode: Mode) -> Self {
        Self {
            mode,
            ..Self::default()
        }
    }

    /// Sends the blocks that are due, logs those that have come, and says when the next one is due.
    pub(crate) fn pump(
        &mut self,
        world: &mut World<Starhaul>,
        logs: &mut Logs,
    ) -> Option<Duration> {
        let (now, elapsed) = (world.now(), world.elapsed());
        if let Some(session) = world.sender().session() {
            while let Some(block) = logs.next_block(elapsed) {
                self.send(session, now, &block, logs.payload(&block, elapsed));
            }
        }
        for event in world.receiver().events() {
            if let Event::BlockReceived { stream, data, .. } = event {
                logs.received(self.class_of(stream), elapsed, &data);
            }
        }
        logs.next_at()
    }

    fn send(&mut self, session: &mut Session, now: Instant, block: &BlockSpec, data: Bytes) {
        let Some(stream) = self.stream(session, now, block.class) else {
            return;
        };
        let depends_on = self
            .last_key
            .filter(|_| block.class == Class::Video && !block.key);
        let options = BlockOptions {
            depends_on,
            ..BlockOptions::default()
        };
        // A block that is refused because the session's memory is full counts as lost.
        let sent = session.send_block(now, stream, data, options).ok();
        if block.key {
            self.last_key = sent;
        }
    }

    fn stream(&mut self, session: &mut Session, now: Instant, class: Class) -> Option<StreamId> {
        if let Some((stream, _)) = self.streams.iter().find(|(_, other)| *other == class) {
            return Some(*stream);
        }
        let config = StreamConfig {
            mode: self.mode,
            ..stream_config(class)
        };
        let stream = session.open_stream(now, config).ok()?;
        self.streams.push((stream, class));
        Some(stream)
    }

    pub(crate) fn class_of(&self, stream: StreamId) -> Option<Class> {
        self.streams
            .iter()
            .find(|(other, _)| *other == stream)
            .map(|(_, class)| *class)
    }
}

/// What an application says of the stream of a class.
pub(crate) fn stream_config(class: Class) -> StreamConfig {
    StreamConfig {
        deadline: class.deadline(),
        priority: class.priority(),
        bandwidth: Some(Bandwidth::from_bytes_per_second(class.bytes_per_second())),
        label: Bytes::from_static(class.name().as_bytes()),
        ..StreamConfig::default()
    }
}

/// The blocks still to be sent, and what became of those that were.
#[derive(Debug)]
pub(crate) struct Logs {
    schedule: std::vec::IntoIter<BlockSpec>,
    next: Option<BlockSpec>,
    logs: Classes<ClassLog>,
}

impl Logs {
    pub(crate) fn new(duration: Duration) -> Self {
        let mut schedule = load::schedule(duration).into_iter();
        Self {
            next: schedule.next(),
            schedule,
            logs: Classes::from_fn(ClassLog::new),
        }
    }

    pub(crate) const fn logs(&self) -> &Classes<ClassLog> {
        &self.logs
    }

    pub(crate) fn next_at(&self) -> Option<Duration> {
        self.next.map(|block| block.at)
    }

    pub(crate) fn next_block(&mut self, elapsed: Duration) -> Option<BlockSpec> {
        let block = self.next.filter(|block| block.at <= elapsed)?;
        self.next = self.schedule.next();
        self.logs.of_mut(block.class).on_sent(elapsed);
        Some(block)
    }

    pub(crate) fn payload(&self, block: &BlockSpec, elapsed: Duration) -> Bytes {
        block::build(block.sequence, elapsed, block.bytes).into()
    }

    pub(crate) fn received(&mut self, class: Option<Class>, elapsed: Duration, data: &[u8]) {
        if let (Some(class), Some(header)) = (class, block::parse(data)) {
            self.arrived(
                class,
                header.sequence,
                elapsed.saturating_sub(header.sent_at),
            );
        }
    }

    /// A block has come, whole and so long after it was sent.
    pub(crate) fn arrived(&mut self, class: Class, sequence: u32, latency: Duration) {
        self.logs.of_mut(class).on_received(sequence, latency);
    }

    /// The latencies of all blocks that have arrived, ascending, in ms.
    pub(crate) fn latencies_ms(&self) -> Vec<f64> {
        let blocks = Class::ALL.map(|class| self.logs.of(class).blocks());
        let arrived = blocks.into_iter().flatten();
        let arrived = arrived.filter_map(|block| block.latency);
        let mut found: Vec<f64> = arrived.map(|latency| latency.as_secs_f64() * 1e3).collect();
        found.sort_by(f64::total_cmp);
        found
    }

    pub(crate) fn scores(&self) -> Classes<ClassScore> {
        Classes::from_fn(|class| self.logs.of(class).score())
    }
}
