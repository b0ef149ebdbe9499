//! Which streams there may be: our own numbers, the peer's, and how many each side lets the other open.

use crate::types::{Side, StreamId};

/// Most streams of one side open at once before the other has said how many it takes.
const UNTOLD_STREAMS: usize = 1024;

/// The numbers of streams that were used, and those that may be.
#[derive(Debug)]
pub(crate) struct StreamNumbers {
    /// The next one of ours.
    next: u32,
    /// The peer lets us open streams below this number, once it said so.
    limit: Option<u32>,
    /// One past the greatest number the peer has opened.
    peer_end: u32,
    /// Streams of the peer that have not ended here.
    peer_open: usize,
    /// The peer was told that it may open streams below this number; 0 before.
    peer_told: u32,
}

impl StreamNumbers {
    /// No side opens it: there is no number past it.
    pub(crate) const NO_STREAM: StreamId = StreamId(u32::MAX);

    pub(crate) const fn new(side: Side) -> Self {
        Self {
            next: match side {
                Side::Client => 2,
                Side::Server => 1,
            },
            limit: None,
            peer_end: 0,
            peer_open: 0,
            peer_told: 0,
        }
    }

    /// A number for a new stream of ours; `None` when all have been used.
    pub(crate) fn next(&mut self) -> Option<StreamId> {
        let id = StreamId(self.next);
        self.next = self.next.checked_add(2)?;
        Some(id)
    }

    /// Whether a stream of this number, if it is one of ours, was ever opened.
    pub(crate) const fn was_opened(&self, stream: StreamId) -> bool {
        stream.0 < self.next
    }

    /// Whether the peer takes one more stream when `open` of ours are.
    pub(crate) fn peer_takes(&self, open: usize) -> bool {
        match self.limit {
            Some(limit) => self.next < limit,
            None => open < UNTOLD_STREAMS,
        }
    }

    /// The peer lets us open streams below `limit`.
    pub(crate) fn on_limit(&mut self, limit: u32) {
        self.limit = self.limit.max(Some(limit));
    }

    /// Whether the peer has opened a stream with this number, or skipped it.
    pub(crate) const fn was_passed(&self, stream: StreamId) -> bool {
        stream.0 < self.peer_end
    }

    /// One past the greatest number the peer has opened.
    pub(crate) const fn peer_end(&self) -> u32 {
        self.peer_end
    }

    /// Streams of the peer that have not ended here.
    pub(crate) const fn peer_open(&self) -> usize {
        self.peer_open
    }

    /// The peer opens a stream.
    pub(crate) fn on_peer_opened(&mut self, stream: StreamId) {
        self.peer_end = stream.0.saturating_add(1);
        self.peer_open += 1;
    }

    /// A stream of the peer has ended here.
    pub(crate) fn on_peer_ended(&mut self) {
        self.peer_open -= 1;
    }

    /// More streams of the peer than any honest one has open here: twice what it was told, or knows without being told. The surplus is
    /// for streams that it takes for ended before our application has read them, until it hears the first limit.
    pub(crate) fn most_of_peer(max_streams: usize) -> usize {
        max_streams.max(UNTOLD_STREAMS).saturating_mul(2)
    }

    /// The limit to tell the peer, if it is worth a message: as many streams as are not read to the end here and `max_streams` together
    /// allow. None while it has opened so few that what it knows without being told suffices.
    pub(crate) fn due_limit(&self, max_streams: usize) -> Option<u32> {
        let quarter = max_streams.min(UNTOLD_STREAMS) / 4;
        let step = u32::try_from(quarter.max(1) * 2).unwrap_or(u32::MAX);
        let room = max_streams - self.peer_open.min(max_streams);
        let room = u32::try_from(room).unwrap_or(u32::MAX).saturating_mul(2);
        let limit = self.peer_end.saturating_add(room);
        let is_due = match self.peer_told {
            0 => self.peer_end >= step,
            told => limit >= told.saturating_add(step) || (limit > told && told <= self.peer_end),
        };
        is_due.then_some(limit)
    }

    /// The peer was told a limit.
    pub(crate) fn on_told(&mut self, limit: u32) {
        self.peer_told = limit;
    }
}
