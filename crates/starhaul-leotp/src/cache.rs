//! The cache: sealed segments by content and offset, bounded in bytes; the least recently used go first.

use std::collections::{BTreeMap, VecDeque, btree_map::Entry};

use crate::name::{Kind, SEAL_BYTES, Segment};

/// What an entry takes beside its bytes, about.
const ENTRY_BYTES: usize = 160;
/// Uses that were followed by later ones of the same segments are forgotten when there are more of them than segments, and than these.
const FEW_USES: usize = 1024;
/// Contents of which nothing is kept any more are forgotten when there are so many beside a quarter of the segments.
const FEW_CONTENTS: usize = 1024;

/// A segment: the cache's number of its content, and its offset.
type Key = (u64, u64);

/// Segments of all contents.
#[derive(Debug, Default)]
pub(crate) struct Cache {
    most: usize,
    bytes: usize,
    /// Numbers of contents, each given once: a search for one among all segments would compare two ids at each step. In order rather than by
    /// hash, for others choose the ids.
    numbers: BTreeMap<Kind, u64>,
    next_number: u64,
    segments: BTreeMap<Key, Kept>,
    /// Uses in order, and what was used: the last of each segment counts.
    by_use: VecDeque<(u64, Key)>,
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
    pub(crate) fn insert(&mut self, content: Kind, segment: &Segment) -> u64 {
        if size(segment) > self.most {
            return 0;
        }
        let key = (self.number_of(content), segment.offset);
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
            gone += u64::from(self.evict(used, oldest));
        }
        gone
    }

    /// The number of a content of which something is kept next.
    fn number_of(&mut self, content: Kind) -> u64 {
        if let Some(&number) = self.numbers.get(&content) {
            return number;
        }
        let most = self.segments.len() + self.segments.len() / 4 + FEW_CONTENTS;
        if self.numbers.len() > most {
            let segments = &self.segments;
            self.numbers.retain(|_, number| {
                let mut kept = segments.range((*number, 0)..=(*number, u64::MAX));
                kept.next().is_some()
            });
        }
        let number = self.next_number;
        self.next_number += 1;
        self.numbers.insert(content, number);
        number
    }

    fn note_use(&mut self, key: Key) -> u64 {
        self.uses += 1;
        if self.by_use.len() > 2 * self.segments.len() + FEW_USES {
            let mut by_use = std::mem::take(&mut self.by_use);
            by_use.retain(|(used, key)| self.is_last_use(*used, *key));
            self.by_use = by_use;
        }
        self.by_use.push_back((self.uses, key));
        self.uses
    }

    fn is_last_use(&self, used: u64, key: Key) -> bool {
        self.segments
            .get(&key)
            .is_some_and(|kept| kept.used == used)
    }

    /// The first segment that holds bytes of a range.
    pub(crate) fn first_in(&mut self, content: Kind, start: u64, end: u64) -> Option<Segment> {
        #[cfg(test)]
        {
            self.looks += 1;
        }
        let number = *self.numbers.get(&content)?;
        let before = self
            .segments
            .range((number, 0)..=(number, start))
            .next_back();
        let before = before.filter(|(_, kept)| kept.segment.end() > start);
        let found = before.or_else(|| self.segments.range((number, start)..(number, end)).next());
        let (&key, _) = found?;
        let used = self.note_use(key);
        let kept = self.segments.get_mut(&key)?;
        kept.used = used;
        Some(kept.segment.clone())
    }

    /// Drops the segments that hold bytes of a range.
    pub(crate) fn forget(&mut self, content: Kind, start: u64, end: u64) {
        while let Some(segment) = self.first_in(content, start, end) {
            if let Some(&number) = self.numbers.get(&content)
                && let Some(kept) = self.segments.remove(&(number, segment.offset))
            {
                self.bytes -= size(&kept.segment);
            }
        }
    }

    /// Drops a segment if this was its last use; returns whether it was.
    fn evict(&mut self, used: u64, key: Key) -> bool {
        let Entry::Occupied(entry) = self.segments.entry(key) else {
            return false;
        };
        if entry.get().used != used {
            return false;
        }
        let kept = entry.remove();
        self.bytes -= size(&kept.segment);
        true
    }
}

/// What a segment takes: its own bytes, the seal's and the entry's. An empty one counts too.
fn size(segment: &Segment) -> usize {
    segment.sealed.len().max(SEAL_BYTES) + ENTRY_BYTES
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::name::ContentId;

    const A: Kind = (ContentId([1; 16]), false);
    const B: Kind = (ContentId([2; 16]), false);

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
        assert_eq!(cache.first_in((A.0, true), 0, 1000), None, "of a stream");
        cache.forget(B, 100, 200);
        cache.forget(A, 50, 250);
        assert_eq!(cache.first_in(A, 0, 1000), None);
        assert_eq!(cache.bytes(), one);
    }

    /// What is left of a content says nothing of it when it comes back, and names without data take no memory for ever.
    #[test]
    fn contents_that_went_are_forgotten_and_may_come_again() {
        let one = size(&segment(0, 100));
        let mut cache = Cache::new(3 * one);
        let content = |number: u32| {
            let mut id = [0; 16];
            id[..4].copy_from_slice(&number.to_be_bytes());
            (ContentId(id), false)
        };
        for number in 0..20_000_u32 {
            let (id, last) = (content(number), content(number.saturating_sub(1)));
            let gone = cache.insert(id, &segment(0, 100));
            let is_full = (3..=10_000).contains(&number);
            assert_eq!(gone, u64::from(is_full), "{number}");
            assert!(cache.first_in(last, 0, 1).is_some(), "{number}");
            // One that was kept long ago is not found, and comes back as a new one.
            if number >= 10_000 {
                let former = content(number - 10_000);
                assert_eq!(cache.first_in(former, 0, 1000), None, "{number}");
                assert_eq!(cache.insert(former, &segment(7, 100)), 1);
                assert_eq!(cache.first_in(former, 0, 1000), Some(segment(7, 100)));
                cache.forget(former, 0, 1000);
            }
            assert!(cache.numbers.len() <= FEW_CONTENTS + 8, "{number}");
            assert!(cache.bytes() <= 3 * one);
        }
    }
}
