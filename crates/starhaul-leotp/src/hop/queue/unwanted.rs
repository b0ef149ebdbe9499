//! What waits of streams that the neighbour does not ask for any more. Who waits for data of a stream asks again each few seconds, while data may wait for
//! long: they leave at the rate that the neighbour said when it still took them.

use std::time::{Duration, Instant};

use super::SendQueue;
use crate::name::ContentId;

impl SendQueue {
    /// What waits of a content is of a stream.
    pub(crate) fn note_live(&mut self, now: Instant, handle: u64) {
        if let Some(flow) = self.flows.get_mut(&handle) {
            flow.wanted.get_or_insert(now);
        }
    }

    /// The neighbour asks for a content of a stream.
    pub(crate) fn note_wanted(&mut self, now: Instant, content: ContentId, handle: u64) {
        let flow = self.flows.get_mut(&handle);
        if let Some(flow) = flow.filter(|flow| flow.content == content) {
            flow.wanted = Some(now);
        }
    }

    /// Drops what waits of streams that the neighbour did not ask for so long. Returns whether any are left. The rates that it said go, too: a relay that does
    /// not ask for so long relays the stream no more, and says the rate anew when it does.
    pub(crate) fn forget_unwanted(&mut self, now: Instant, idle: Duration) -> bool {
        let is_idle = |at: Instant| now.saturating_duration_since(at) >= idle;
        let flows = self.flows.iter();
        let unwanted = flows.filter(|(_, flow)| flow.wanted.is_some_and(is_idle));
        let unwanted: Vec<_> = unwanted
            .map(|(handle, flow)| (*handle, flow.content))
            .collect();
        if !unwanted.is_empty() {
            self.forget_all(&unwanted);
        }
        self.flows.values().any(|flow| flow.wanted.is_some())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        hop::queue::{Item, Next},
        name::Segment,
    };

    const SECOND: Duration = Duration::from_secs(1);

    fn content(number: u64) -> ContentId {
        ContentId([number.to_le_bytes()[0]; 16])
    }

    fn segment(handle: u64, offset: u64) -> Next {
        Next {
            content: content(handle),
            handle,
            item: Item::Segment {
                segment: Segment {
                    offset,
                    is_end: false,
                    sealed: vec![0; 1000].into(),
                },
                is_repair: offset == 0,
                left: None,
            },
        }
    }

    /// They left at the rate that the neighbour had said when it still took them, for a minute.
    #[test]
    fn what_waits_of_a_stream_is_dropped_when_the_neighbour_does_not_ask_for_it() {
        let now = Instant::now();
        let mut queue = SendQueue::new(100_000, 10, Duration::ZERO);
        for handle in 0..4 {
            for offset in [984, 0, 1968] {
                assert!(queue.push(now, now, segment(handle, offset)));
            }
            queue.set_rate(handle, 100.0);
        }
        for handle in [1, 2, 3] {
            queue.note_live(now, handle);
        }
        queue.note_wanted(now + 4 * SECOND, content(2), 2);
        // Its number means another content by now.
        queue.note_wanted(now + 4 * SECOND, content(7), 3);
        // What comes from upstream is no wish of the neighbour.
        let later = now + 9 * SECOND;
        assert!(queue.push(later, later, segment(1, 5000)));
        queue.note_live(later, 1);
        assert!(queue.forget_unwanted(later, 10 * SECOND));
        assert_eq!(queue.bytes(), 13_000);
        assert!(queue.forget_unwanted(now + 10 * SECOND, 10 * SECOND));
        let left: Vec<u64> = queue.flows.keys().copied().collect();
        assert_eq!((left, queue.bytes()), (vec![0, 2], 6000));
        assert!(!queue.forget_unwanted(now + 14 * SECOND, 10 * SECOND));
        assert_eq!((queue.bytes(), queue.repairs.len()), (3000, 1));
        // A file's data wait on.
        assert!(!queue.forget_unwanted(now + 100 * SECOND, 10 * SECOND));
        assert_eq!((queue.bytes(), queue.items), (3000, 2));
    }
}
