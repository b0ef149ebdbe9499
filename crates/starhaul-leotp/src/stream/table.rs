//! The streams of a node by their ids, and when each is due.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Instant,
};

use super::{StreamId, machine::Stream, memory::Limits};
use crate::deadlines::Deadlines;

/// Streams, and when each is due: found again only for those that were changed.
#[derive(Debug, Default)]
pub(super) struct Table {
    streams: BTreeMap<StreamId, Stream>,
    deadlines: Deadlines<StreamId>,
    changed: BTreeSet<StreamId>,
}

impl Table {
    pub(super) fn insert(&mut self, id: StreamId, stream: Stream) {
        self.streams.insert(id, stream);
        self.changed.insert(id);
    }

    pub(super) fn remove(&mut self, id: StreamId) -> Option<Stream> {
        self.deadlines.set(id, None);
        self.changed.remove(&id);
        self.streams.remove(&id)
    }

    pub(super) fn contains(&self, id: StreamId) -> bool {
        self.streams.contains_key(&id)
    }

    pub(super) fn get(&self, id: StreamId) -> Option<&Stream> {
        self.streams.get(&id)
    }

    /// The stream, which may be due at another time from now on.
    pub(super) fn get_mut(&mut self, id: StreamId) -> Option<&mut Stream> {
        let stream = self.streams.get_mut(&id)?;
        self.changed.insert(id);
        Some(stream)
    }

    pub(super) fn values(&self) -> impl Iterator<Item = &Stream> {
        self.streams.values()
    }

    /// All streams, for what changes no time.
    pub(super) fn values_mut(&mut self) -> impl Iterator<Item = &mut Stream> {
        self.streams.values_mut()
    }

    pub(super) fn len(&self) -> usize {
        self.streams.len()
    }

    /// When the first is due.
    pub(super) fn timeout(&self, limits: &Limits) -> Option<Instant> {
        let changed = self.changed.iter().filter_map(|id| self.streams.get(id));
        let changed = changed.filter_map(|stream| stream.timeout(limits));
        changed.chain(self.deadlines.next()).min()
    }

    /// Finds again when those are due that were changed, and what they hold.
    pub(super) fn note_changes(&mut self, limits: &mut Limits) {
        for id in std::mem::take(&mut self.changed) {
            let stream = self.streams.get_mut(&id);
            let at = stream.and_then(|stream| {
                let held = stream.reserved();
                let before = std::mem::replace(&mut stream.counted, held);
                limits.reserved = limits.reserved.saturating_sub(before) + held;
                stream.timeout(limits)
            });
            self.deadlines.set(id, at);
        }
    }

    /// Those that are due; each is to be taken with [`Table::get_mut`].
    pub(super) fn take_due(&mut self, now: Instant, limits: &mut Limits) -> Vec<StreamId> {
        self.note_changes(limits);
        self.deadlines.take_due(now)
    }
}
