//! The cache: sealed segments by content and offset, bounded in bytes; the least recently used go first.

use std::collections::{BTreeMap, VecDeque};

use crate::name::{ContentId, SEAL_BYTES, Segment};

/// What an entry takes beside its bytes, about.
const ENTRY_BYTES: usize = 160;
/// Uses that were followed by later ones of the same segments are forgotten when there are more of them than segments, and than these.
const FEW_USES: usize = 1024;

/// Segments of all contents.
#[derive(Debug, Default)]
pub(crate) struct Cache {
    most: usize,
    bytes: usize,
    segments: BTreeMap<(ContentId, u64), Kept>,
    /// Uses in order, and what was used: the last of each segment counts.
    by_use: VecDeque<(u64, (ContentId, u64))>,
    uses: u64,
    /// How often a segment was looked for.
    #[cfg(test)]
    pub(crate) looks: usize,
}

#[derive(Debug)]
struct Kept {
    segment: Segment,
    used: u64,
}

impl Cache {
    /// A cache that takes so many bytes of memory at most.
    pub(crate) fn new(most: usize) -> Self {
        Self {
            most,
            ..Self::default()
        }
    }

    /// Bytes of memory in use.
    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }

    /// Keeps a segment, in place of a former one at its offset. Returns how many others had to go.
    pub(crate) fn insert(&mut self, content: ContentId, segment: &Segment) -> u64 {
        if size(segment) > self.most {
            return 0;
        }
        let key = (content, segment.offset);
        let kept = Kept {
            segment: segment.clone(),
            used: self.note_use(key),
        };
        self.bytes += size(segment);
        if let Some(former) = self.segments.insert(key, kept) {
            self.bytes -= size(&former.segment);
        }
        let mut gone = 0;
        while self.bytes > self.most
            && let Some((used, oldest)) = self.by_use.pop_front()
        {
            if self.is_last_use(used, oldest) {
                self.remove(oldest);
                gone += 1;
            }
        }
        gone
    }

    fn note_use(&mut self, key: (ContentId, u64)) -> u64 {
        self.uses += 1;
        if self.by_use.len() > 2 * self.segments.len() + FEW_USES {
            let mut by_use = std::mem::take(&mut self.by_use);
            by_use.retain(|(used, key)| self.is_last_use(*used, *key));
            self.by_use = by_use;
        }
        self.by_use.push_back((self.uses, key));
        self.uses
    }

    fn is_last_use(&self, used: u64, key: (ContentId, u64)) -> bool {
        self.segments
            .get(&key)
            .is_some_and(|kept| kept.used == used)
    }

    /// The first segment that holds bytes of a range.
    pub(crate) fn first_in(&mut self, content: ContentId, start: u64, end: u64) -> Option<Segment> {
        #[cfg(test)]
        {
            self.looks += 1;
        }
        let before = self
            .segments
            .range((content, 0)..=(content, start))
            .next_back();
        let before = before.filter(|(_, kept)| kept.segment.end() > start);
        let found = before.or_else(|| self.segments.range((content, start)..(content, end)).next());
        let (&key, _) = found?;
        let used = self.note_use(key);
        let kept = self.segments.get_mut(&key)?;
        kept.used = used;
        Some(kept.segment.clone())
    }

    /// Drops the segments that hold bytes of a range.
    pub(crate) fn forget(&mut self, content: ContentId, start: u64, end: u64) {
        while let Some(segment) = self.first_in(content, start, end) {
            self.remove((content, segment.offset));
        }
    }

    fn remove(&mut self, key: (ContentId, u64)) {
        if let Some(kept) = self.segments.remove(&key) {
            self.bytes -= size(&kept.segment);
        }
    }
}

/// What a segment takes: its own bytes, the seal's and the entry's. An empty one counts too.
fn size(segment: &Segment) -> usize {
    segment.sealed.len().max(SEAL_BYTES) + ENTRY_BYTES
}

#[cfg(test)]
mod tests {
    use super::*;

    const A: ContentId = ContentId([1; 16]);
    const B: ContentId = ContentId([2; 16]);

    fn segment(offset: u64, length: usize) -> Segment {
        Segment {
            offset,
            is_end: false,
            sealed: vec![0; length + SEAL_BYTES].into(),
        }
    }

    #[test]
    fn the_least_recently_used_go_first_and_the_bound_holds() {
        let one = size(&segment(0, 100));
        let mut cache = Cache::new(3 * one);
        assert_eq!(
            (0..3)
                .map(|i| cache.insert(A, &segment(i * 100, 100)))
                .sum::<u64>(),
            0
        );
        assert!(cache.first_in(A, 0, 1).is_some());
        assert_eq!(cache.insert(B, &segment(0, 100)), 1);
        assert_eq!(cache.first_in(A, 100, 200), None);
        assert_eq!(cache.first_in(A, 100, 300), Some(segment(200, 100)));
        assert_eq!(cache.first_in(A, 99, 100), Some(segment(0, 100)));
        assert_eq!(cache.insert(B, &segment(0, 100)), 0, "it replaces itself");
        assert_eq!(cache.bytes(), 3 * one);
        cache.insert(B, &segment(0, 4 * one));
        assert!(cache.bytes() <= 3 * one);
        // Uses leave nothing behind.
        for _ in 0..10_000 {
            assert_eq!(cache.first_in(A, 99, 100), Some(segment(0, 100)));
        }
        assert!(cache.by_use.len() <= 2 * cache.segments.len() + FEW_USES + 1);
        cache.insert(B, &segment(100, 100));
        assert!(cache.first_in(A, 0, 1).is_some(), "it was used last");
        assert_eq!(cache.first_in(A, 200, 300), None, "and it before all");
        cache.forget(B, 100, 200);
        cache.forget(A, 50, 250);
        assert_eq!(cache.first_in(A, 0, 1000), None);
        assert_eq!(cache.bytes(), one);
    }
}
