//! When each of many is due, so that the next of them is found without a search of all.

use std::{collections::BTreeSet, hash::Hash, time::Instant};

use rustc_hash::FxHashMap;

/// At most one instant for each key.
#[derive(Debug)]
pub(crate) struct Deadlines<K> {
    by_time: BTreeSet<(Instant, K)>,
    by_key: FxHashMap<K, Instant>,
}

impl<K> Default for Deadlines<K> {
    fn default() -> Self {
        Self {
            by_time: BTreeSet::new(),
            by_key: FxHashMap::default(),
        }
    }
}

impl<K: Copy + Ord + Hash> Deadlines<K> {
    /// Sets when a key is due; `None`: never.
    pub(crate) fn set(&mut self, key: K, at: Option<Instant>) {
        let before = match at {
            Some(at) => self.by_key.insert(key, at),
            None => self.by_key.remove(&key),
        };
        if before == at {
            return;
        }
        if let Some(before) = before {
            self.by_time.remove(&(before, key));
        }
        self.by_time.extend(at.map(|at| (at, key)));
    }

    /// Sets when a key is due at the latest. An earlier instant stays: who takes it out then finds that it is not due yet, and sets it anew. So it may be put off
    /// for each packet at little cost.
    pub(crate) fn set_by(&mut self, key: K, at: Instant) {
        if self.by_key.get(&key).is_none_or(|known| *known > at) {
            self.set(key, Some(at));
        }
    }

    /// When the first is due.
    pub(crate) fn next(&self) -> Option<Instant> {
        self.by_time.first().map(|(at, _)| *at)
    }

    /// Takes out those that are due, the longest ones first.
    pub(crate) fn take_due(&mut self, now: Instant) -> Vec<K> {
        let mut due = Vec::new();
        while let Some((_, key)) = self.by_time.first().filter(|(at, _)| *at <= now).copied() {
            self.by_time.pop_first();
            self.by_key.remove(&key);
            due.push(key);
        }
        due
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn each_key_is_due_once_at_its_last_instant() {
        let start = Instant::now();
        let after = |seconds| start + Duration::from_secs(seconds);
        let mut deadlines = Deadlines::default();
        for (key, at) in [(1, 5), (2, 3), (3, 4), (1, 1), (2, 6), (1, 1)] {
            deadlines.set(key, Some(after(at)));
        }
        deadlines.set(3, None);
        deadlines.set(4, None);
        assert_eq!(deadlines.next(), Some(after(1)));
        assert_eq!(deadlines.take_due(start), []);
        assert_eq!(deadlines.take_due(after(6)), [1, 2]);
        assert_eq!((deadlines.next(), deadlines.by_key.len()), (None, 0));
        for (at, first) in [(5, 5), (7, 5), (3, 3), (4, 3)] {
            deadlines.set_by(1, after(at));
            assert_eq!(deadlines.next(), Some(after(first)));
        }
        assert_eq!(deadlines.take_due(after(9)), [1]);
        deadlines.set_by(1, after(20));
        assert_eq!(deadlines.next(), Some(after(20)));
    }
}
