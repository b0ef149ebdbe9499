//! A content that grows while it is served. Its segments have the lengths that they had when they first left, and are kept
//! until the other side has them, so that each is sealed once and always the same.

use std::{
    collections::VecDeque,
    time::{Duration, Instant},
};

use crate::{
    config::NeighbourId,
    keys::ContentKey,
    name::{SEAL_BYTES, Segment},
};

/// Neighbours that are remembered at most: one asks, and others may have before.
const MOST_ASKERS: usize = 4;
/// What a segment takes beside its bytes, about.
const ENTRY_BYTES: usize = 64;

/// A neighbour and its number of the content.
pub(crate) type Asker = (NeighbourId, u64);

/// The content that this side of a stream serves.
#[derive(Debug)]
pub(crate) struct Growing {
    key: ContentKey,
    /// Sealed and not released.
    segments: VecDeque<Segment>,
    bytes: usize,
    released: u64,
    end: u64,
    is_complete: bool,
    askers: Vec<Asking>,
}

/// What a neighbour asked for: all up to here.
#[derive(Clone, Copy, Debug)]
struct Asking {
    asker: Asker,
    until: u64,
    /// Time of its last Interest.
    at: Instant,
    /// It waits for what does not exist yet.
    is_parked: bool,
}

impl Growing {
    pub(crate) fn new(key: ContentKey) -> Self {
        Self {
            key,
            segments: VecDeque::new(),
            bytes: 0,
            released: 0,
            end: 0,
            is_complete: false,
            askers: Vec::new(),
        }
    }

    /// The end of what is sealed.
    pub(crate) fn end(&self) -> u64 {
        self.end
    }

    /// The end of what the other side has.
    pub(crate) fn released(&self) -> u64 {
        self.released
    }

    /// Bytes that are kept because the other side may not have them.
    pub(crate) fn unreleased(&self) -> usize {
        usize::try_from(self.end - self.released).unwrap_or(usize::MAX)
    }

    /// Bytes of memory.
    pub(crate) fn memory(&self) -> usize {
        self.bytes
    }

    /// Adds a segment; none follows the last.
    pub(crate) fn grow(&mut self, data: &[u8], is_last: bool) {
        let segment = self.key.seal(self.end, is_last, data);
        self.end = segment.end();
        self.is_complete |= is_last;
        self.bytes += size(&segment);
        self.segments.push_back(segment);
    }

    /// The segment that holds a byte, if it is kept.
    pub(crate) fn segment(&self, at: u64) -> Option<&Segment> {
        let index = self.segments.partition_point(|segment| segment.end() <= at);
        self.segments.get(index).filter(|it| it.offset <= at)
    }

    /// The other side has what comes before.
    pub(crate) fn release(&mut self, up_to: u64) {
        while let Some(first) = self.segments.pop_front_if(|first| first.end() <= up_to) {
            self.bytes -= size(&first);
            self.released = first.end();
        }
    }

    /// What of a range that is asked for can be served, if more can be had or not. What does not exist yet comes before what
    /// is asked for behind it. `None`: nothing, or the neighbour waits.
    pub(crate) fn ask(
        &mut self,
        now: Instant,
        asker: Asker,
        (start, end): (u64, u64),
        can_grow: bool,
    ) -> Option<(u64, u64)> {
        self.note(now, asker, end);
        let start = start.max(self.released).min(self.end);
        let end = if self.is_complete {
            end.min(self.end)
        } else {
            end
        };
        if start < self.end || can_grow {
            return (start < end).then_some((start, end));
        }
        self.park(asker);
        None
    }

    fn note(&mut self, now: Instant, asker: Asker, until: u64) {
        let known = self.askers.iter().position(|it| it.asker.0 == asker.0);
        let before = known.map(|index| self.askers.swap_remove(index));
        // A handle that is another was given anew: what was asked for under the former one means nothing.
        let before = before.filter(|before| before.asker == asker);
        if self.askers.len() >= MOST_ASKERS {
            let oldest = (0..self.askers.len()).min_by_key(|index| self.askers[*index].at);
            oldest.map(|index| self.askers.swap_remove(index));
        }
        self.askers.push(Asking {
            asker,
            until: before.map_or(until, |before| before.until.max(until)),
            at: now,
            is_parked: before.is_some_and(|before| before.is_parked),
        });
    }

    /// The neighbours that asked.
    pub(crate) fn askers(&self) -> Vec<Asker> {
        self.askers.iter().map(|it| it.asker).collect()
    }

    /// A neighbour waits for what does not exist yet.
    pub(crate) fn park(&mut self, asker: Asker) {
        let end = self.end;
        let known = self.askers.iter_mut().find(|it| it.asker == asker);
        if let Some(asking) = known.filter(|it| it.until > end && !self.is_complete) {
            asking.is_parked = true;
        }
    }

    /// Whether a neighbour asked not longer than `patience` ago.
    pub(crate) fn is_asked_by(&self, now: Instant, asker: Asker, patience: Duration) -> bool {
        let known = self.askers.iter().find(|it| it.asker == asker);
        known.is_some_and(|it| now.saturating_duration_since(it.at) < patience)
    }

    /// Takes out who waits, if it asked not longer than `patience` ago: there is more now.
    pub(crate) fn take_parked(&mut self, now: Instant, patience: Duration) -> Vec<(Asker, u64)> {
        self.askers
            .retain(|it| now.saturating_duration_since(it.at) < patience);
        let parked = self.askers.iter_mut().filter(|it| it.is_parked);
        parked
            .map(|it| {
                it.is_parked = false;
                (it.asker, it.until)
            })
            .collect()
    }

    /// A neighbour began a new life: its numbers mean nothing any more.
    pub(crate) fn forget(&mut self, neighbour: NeighbourId) {
        self.askers.retain(|it| it.asker.0 != neighbour);
    }
}

fn size(segment: &Segment) -> usize {
    segment.sealed.len().max(SEAL_BYTES) + ENTRY_BYTES
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{keys::ContentSecret, name::ContentId};

    const A: Asker = (NeighbourId(1), 0);
    const B: Asker = (NeighbourId(2), 7);
    const PATIENCE: Duration = Duration::from_secs(10);

    fn content() -> Growing {
        let id = ContentId([1; 16]);
        Growing::new(ContentSecret::new(&[2; 32]).of_stream(id, &[3; 8]))
    }

    #[test]
    fn segments_keep_their_bounds_until_they_are_released() {
        let now = Instant::now();
        let mut content = content();
        content.grow(b"hello", false);
        content.grow(b"w", false);
        content.grow(b"orld", true);
        let first = content.segment(4).unwrap().clone();
        assert_eq!((first.offset, first.end()), (0, 5));
        assert_eq!(content.segment(0), Some(&first));
        assert_eq!(content.ask(now, A, (0, 100), false), Some((0, 10)));
        assert_eq!(content.ask(now, A, (10, 100), false), None);
        content.release(7);
        assert_eq!((content.unreleased(), content.segment(5)), (4, None));
        assert_eq!(content.ask(now, A, (0, 100), false), Some((6, 10)));
        content.release(10);
        assert_eq!((content.unreleased(), content.memory()), (0, 0));
        assert_eq!(content.ask(now, A, (0, 100), false), None);
    }

    #[test]
    fn interests_wait_bounded_and_not_for_ever() {
        let now = Instant::now();
        let mut content = content();
        assert_eq!(content.ask(now, A, (0, 100), false), None);
        assert_eq!(content.ask(now, A, (100, 200), false), None);
        assert_eq!(content.ask(now, B, (0, 50), true), Some((0, 50)));
        content.park(B);
        assert_eq!(content.take_parked(now, PATIENCE), [(A, 200), (B, 50)]);
        assert_eq!(content.take_parked(now, PATIENCE), []);
        // Waiting again is no asking.
        content.park(A);
        assert!(content.is_asked_by(now + PATIENCE / 2, A, PATIENCE));
        assert!(!content.is_asked_by(now + PATIENCE, A, PATIENCE));
        assert_eq!(content.take_parked(now + PATIENCE, PATIENCE), []);
        for number in 0..100 {
            content.ask(now, (NeighbourId(number), 0), (0, 10), false);
        }
        assert_eq!(content.take_parked(now, PATIENCE).len(), MOST_ASKERS);
        content.forget(NeighbourId(99));
        assert_eq!(content.askers.len(), MOST_ASKERS - 1);
    }
}
