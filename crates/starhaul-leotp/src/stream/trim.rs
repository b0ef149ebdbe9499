//! Windows give way where memory is short.

use std::time::{Duration, Instant};

use super::{StreamConfig, StreamId, Streams, machine::Stream, memory::level};

/// Where windows and what is held are more than three of four parts of the memory, windows give way, this far apart.
const TRIM_EVERY: Duration = Duration::from_secs(1);
/// First those that nothing used for this time.
const UNUSED: Duration = Duration::from_secs(2);

impl Streams {
    /// What a stream holds may have become more: where memory is short, windows give way soon.
    pub(super) fn watch_memory(&mut self, now: Instant) {
        if self.limits.is_memory_short() {
            self.trim_at.get_or_insert(now + TRIM_EVERY);
        }
    }

    /// Takes back windows if memory is short: those that are not used, or else what some have more than others.
    pub(super) fn trim(&mut self, now: Instant) {
        if self.trim_at.take_if(|at| *at <= now).is_none() || !self.limits.is_memory_short() {
            return;
        }
        let streams = || self.streams.values().filter(|stream| !stream.is_over());
        let unused = |stream: &&Stream| stream.window.is_unused(now, UNUSED);
        let shrinks = |stream: &Stream, to| stream.window.may_shrink(to).then_some(stream.id);
        // The largest give half of what they have, and again if that was too little: a burst that begins finds a window.
        let largest = streams().filter(unused).map(|stream| stream.window.bytes());
        let mut to = (largest.max().unwrap_or(0) / 2).max(StreamConfig::LEAST_WINDOW);
        let mut ids: Vec<StreamId> = streams()
            .filter(unused)
            .filter_map(|stream| shrinks(stream, to))
            .collect();
        if ids.is_empty() {
            let held = self.streams.values().map(Stream::reserved);
            to = level(held.collect(), self.limits.most_reserved()).max(to);
            ids.extend(streams().filter_map(|stream| shrinks(stream, to)));
        }
        for id in ids {
            if let Some(stream) = self.streams.get_mut(id) {
                stream.shrink(to);
                self.touched.insert(id);
            }
        }
        self.trim_at = Some(now + TRIM_EVERY);
    }
}
