//! The sending of all reliable streams together: whose turn it is, what they hold, and who waits for room.

use std::{
    collections::BTreeSet,
    time::{Duration, Instant},
};

use super::bytes::SendBytes;
use crate::types::StreamId;

/// Of this many datagrams one carries a reliable stream that waits, however much deadline data there is: a proxied TCP
/// connection that starves would be torn down by its ends.
const SHARE: u32 = 20;

/// Streams that wait for so long without a pause carry bulk, and so they do for a while after.
const BACKLOG: Duration = Duration::from_millis(200);
const LATELY: Duration = Duration::from_secs(1);

/// Streams that are looked at for a path which the first of them leave to a better one: it costs time for each.
const MAX_PASSED: usize = 8;

/// A stream that has something to send: its priority, its turn among those of that priority.
pub(crate) type Ready = (u8, u64, StreamId);

/// What reliable streams share when they send.
#[derive(Debug, Default)]
pub(crate) struct BytesOut {
    ready: BTreeSet<Ready>,
    /// Those that wait for a better path than the one that is being filled; empty between two paths.
    passed: Vec<Ready>,
    /// Since when a stream has waited at each moment.
    waits_since: Option<Instant>,
    /// When streams last had waited for [`BACKLOG`].
    bulk_at: Option<Instant>,
    /// The last turn that was given.
    turn: u64,
    /// Fragments that left since a stream that waits had its share.
    starved: u32,
    /// Bytes of all streams that wait or are not acknowledged.
    held: u64,
    /// Streams whose `write` was refused.
    blocked: BTreeSet<StreamId>,
    /// Some of them because the session was full.
    pub(crate) writers_starve: bool,
    /// They were told that there is room, and nothing was written since.
    pub(crate) writers_are_due: bool,
    /// Streams with frames under way on a path slower than another.
    pub(crate) straggling: BTreeSet<StreamId>,
}

impl BytesOut {
    /// A stream waits to send.
    pub(crate) fn waits(&self) -> bool {
        !self.ready.is_empty()
    }

    /// Notes at `now`, after a path was given what it may carry, whether a stream still waits.
    pub(crate) fn note_backlog(&mut self, now: Instant) {
        if !self.waits() {
            self.waits_since = None;
            return;
        }
        let since = *self.waits_since.get_or_insert(now);
        if now.saturating_duration_since(since) >= BACKLOG {
            self.bulk_at = Some(now);
        }
    }

    /// Whether streams lately had more to send than the paths carry, without a pause: a transfer does, single keys and short answers do
    /// not.
    pub(crate) fn has_bulk(&self, now: Instant) -> bool {
        self.bulk_at
            .is_some_and(|at| now.saturating_duration_since(at) < LATELY)
    }

    /// A stream waits and is due its share.
    pub(crate) fn is_starved(&self) -> bool {
        self.waits() && self.starved >= SHARE
    }

    /// How many fragments of blocks may leave before a stream that waits has its share, at least one.
    pub(crate) fn fragments_before_share(&mut self) -> usize {
        if self.ready.is_empty() {
            self.starved = 0;
            return usize::MAX;
        }
        SHARE.saturating_sub(self.starved).max(1) as usize
    }

    /// Fragments of blocks left.
    pub(crate) fn on_fragments(&mut self, count: usize) {
        if self.waits() {
            let count = u32::try_from(count).unwrap_or(u32::MAX);
            self.starved = self.starved.saturating_add(count);
        }
    }

    /// A stream has its share.
    pub(crate) fn on_share(&mut self) {
        self.starved = 0;
    }

    /// Puts a stream at the end of those of its priority; returns its turn.
    pub(crate) fn enqueue(&mut self, priority: u8, stream: StreamId) -> u64 {
        self.turn += 1;
        self.ready.insert((priority, self.turn, stream));
        self.turn
    }

    /// Takes the stream whose turn it is.
    pub(crate) fn take_first(&mut self) -> Option<Ready> {
        self.ready.pop_first()
    }

    /// A better path than the present one will take its frame, and this one is for those behind it. True while more of them may be
    /// looked at.
    pub(crate) fn pass(&mut self, ready: Ready) -> bool {
        self.passed.push(ready);
        self.passed.len() < MAX_PASSED
    }

    /// Those that were passed keep their turns.
    pub(crate) fn put_back_passed(&mut self) {
        self.ready.extend(self.passed.drain(..));
    }

    /// Whether the next in turn has this priority too.
    pub(crate) fn alternates(&self, priority: u8) -> bool {
        let next = self.ready.first();
        next.is_some_and(|(other, ..)| *other == priority)
    }

    /// Forgets a stream that has ended.
    pub(crate) fn forget(&mut self, stream: StreamId, turn: Option<(u8, u64)>) {
        if let Some((priority, turn)) = turn {
            self.ready.remove(&(priority, turn, stream));
        }
        self.blocked.remove(&stream);
    }

    /// Bytes that wait or are not acknowledged.
    pub(crate) const fn held(&self) -> u64 {
        self.held
    }

    /// The application wrote bytes.
    pub(crate) fn on_written(&mut self, bytes: u64) {
        self.held += bytes;
    }

    /// Bytes were acknowledged, or their stream was given up.
    pub(crate) fn on_freed(&mut self, bytes: u64) {
        self.held -= bytes;
    }

    /// The peer has a frame of a stream; what that frees is no longer held.
    pub(crate) fn on_acked(&mut self, send: &mut SendBytes, start: u64, end: u64, fin: bool) {
        let before = send.held();
        send.on_acked(start, end, fin);
        self.held -= before - send.held();
    }

    /// A `write` took less than all.
    pub(crate) fn block(&mut self, stream: StreamId, session_is_full: bool) {
        self.blocked.insert(stream);
        self.writers_starve |= session_is_full;
    }

    /// Whether the stream's last `write` took less than all, and it has not been woken since.
    pub(crate) fn is_blocked(&self, stream: StreamId) -> bool {
        self.blocked.contains(&stream)
    }

    /// The stream is told of room, or cannot be any more.
    pub(crate) fn unblock(&mut self, stream: StreamId) {
        self.blocked.remove(&stream);
    }

    /// All streams whose last `write` took less than all.
    pub(crate) fn all_blocked(&self) -> Vec<StreamId> {
        self.blocked.iter().copied().collect()
    }
}
