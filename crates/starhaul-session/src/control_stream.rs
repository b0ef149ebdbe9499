//! The session's own stream, number 0: control messages in order, over all paths.

use std::collections::BTreeSet;

use bytes::BytesMut;
use starhaul_paths::PathId;

use crate::{
    receive::bytes::ReceiveBytes,
    send::bytes::{NextFrame, SendBytes},
    types::StreamId,
};

/// Bytes on their way are kept below this, by both sides.
pub(crate) const CONTROL_WINDOW: u64 = 256 << 10;
/// Control messages that only say how things stand wait while this much is on its way.
const MAX_STATE_HELD: u64 = CONTROL_WINDOW / 2;

/// Both directions of the stream, and what it has yet to tell of the session's state.
#[derive(Debug)]
pub(crate) struct ControlStream {
    pub(crate) send: SendBytes,
    pub(crate) receive: ReceiveBytes,
    pub(crate) buffer: BytesMut,
    /// A frame that leaves a second time, on another path, since everything waits for control messages.
    pub(crate) copy: Option<(NextFrame, PathId)>,
    /// Streams with blocks whose end the peer must be told.
    dropping: BTreeSet<StreamId>,
    /// Those of them of which it is told at once: blocks wait there for those that do not come, or none comes any more.
    hurried: BTreeSet<StreamId>,
    /// Up to here all streams were told of.
    dropped_told: u64,
    /// Reliable streams whose credit was not weighed because too much is not acknowledged.
    pub(crate) crediting: BTreeSet<StreamId>,
}

impl ControlStream {
    pub(crate) fn new() -> Self {
        Self {
            send: SendBytes::new(CONTROL_WINDOW, u64::MAX),
            receive: ReceiveBytes::new(),
            buffer: BytesMut::new(),
            copy: None,
            dropping: BTreeSet::new(),
            hurried: BTreeSet::new(),
            dropped_told: 0,
            crediting: BTreeSet::new(),
        }
    }

    /// Bytes that the peer has not acknowledged.
    pub(crate) fn held_for_sending(&self) -> usize {
        usize::try_from(self.send.held()).unwrap_or(usize::MAX)
    }

    /// Bytes received that are not a whole message yet.
    pub(crate) fn held_of_peer(&self) -> usize {
        self.receive.held_bytes() + self.buffer.len()
    }

    /// Messages about present state may be added.
    pub(crate) fn has_room(&self) -> bool {
        self.send.held() < MAX_STATE_HELD
    }

    /// Blocks of a stream have ended of which the peer must be told, at once if it is `hurried`.
    pub(crate) fn add_dropping(&mut self, stream: StreamId, hurried: bool) {
        self.dropping.insert(stream);
        if hurried {
            self.hurried.insert(stream);
        }
    }

    /// If the peer must be told of blocks of the stream, it is told at once, and this is true.
    pub(crate) fn hurry_dropping(&mut self, stream: StreamId) -> bool {
        let is_dropping = self.dropping.contains(&stream);
        if is_dropping {
            self.hurried.insert(stream);
        }
        is_dropping
    }

    /// Whether the peer has what it was told last of all streams. Where one block after another is dropped, a message for each would take what the
    /// paths carry. Other messages do not count: there may always be some on their way.
    pub(crate) fn may_tell_dropped(&self) -> bool {
        self.send.acknowledged() >= self.dropped_told
    }

    /// The next stream of whose blocks the peer is told: of `all`, or of those that are hurried.
    pub(crate) fn next_dropping(&mut self, all: bool) -> Option<StreamId> {
        let stream = match all {
            true => self.dropping.pop_first(),
            false => self.hurried.pop_first(),
        }?;
        self.dropping.remove(&stream);
        self.hurried.remove(&stream);
        Some(stream)
    }

    /// Messages about blocks of all streams were added.
    pub(crate) const fn on_dropped_told(&mut self) {
        self.dropped_told = self.send.written();
    }

    /// The peer acknowledged a frame, which opens the window further.
    pub(crate) fn on_acked(&mut self, start: u64, end: u64, fin: bool) {
        self.send.on_acked(start, end, fin);
        let limit = self.send.acknowledged() + CONTROL_WINDOW;
        self.send.grant(limit);
    }

    /// Forgets the second copy if the first left on a path that is gone.
    pub(crate) fn on_path_gone(&mut self, path: PathId) {
        if self.copy.is_some_and(|(_, first)| first == path) {
            self.copy = None;
        }
    }
}
