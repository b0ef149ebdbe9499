//! What the streams of a node take over from those before them, which are forgotten.

use super::{StreamId, Streams};
use crate::name::ContentId;

impl Streams {
    /// Follows the streams of before, which end. What still waits for them, or comes late, is not taken for one of these: ids go on, and numbers stay over.
    /// Returns what they waited for.
    pub(crate) fn follow(&mut self, mut before: Self) -> Vec<(StreamId, ContentId)> {
        let ids: Vec<StreamId> = before.streams.values().map(|stream| stream.id).collect();
        for id in ids {
            before.remove(id);
        }
        self.begun = before.begun;
        (self.over, self.over_set) = (before.over, before.over_set);
        before.dropped
    }
}
