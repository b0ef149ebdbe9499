//! A set of numbers kept as ranges, with a bound on how many ranges it holds: sequence numbers, block numbers, offsets.

use std::collections::BTreeMap;

/// A set of numbers as ranges. When more than `limit` ranges are needed the lowest gap is closed, so the set may then
/// claim low members it never saw.
#[derive(Clone, Debug)]
pub struct RangeSet {
    /// First member to one past the last.
    ranges: BTreeMap<u64, u64>,
    limit: usize,
    floor: u64,
    /// Forget the lowest range instead of closing the lowest gap.
    forgets: bool,
}

impl RangeSet {
    /// An empty set of at most `limit` ranges.
    pub const fn new(limit: usize) -> Self {
        Self {
            ranges: BTreeMap::new(),
            limit,
            floor: 0,
            forgets: false,
        }
    }

    /// A set that forgets its lowest range when it would need more than `limit`.
    pub const fn recent(limit: usize) -> Self {
        Self {
            ranges: BTreeMap::new(),
            limit,
            floor: 0,
            forgets: true,
        }
    }

    /// Adds `start..end`; returns how many of them were new.
    pub fn insert(&mut self, mut start: u64, mut end: u64) -> u64 {
        start = start.max(self.floor);
        if start >= end {
            return 0;
        }
        if let Some(mut newest) = self.ranges.last_entry()
            && *newest.key() <= start
            && start <= *newest.get()
        {
            let before = newest.insert(end.max(*newest.get()));
            return end.saturating_sub(before);
        }
        let wanted = end - start;
        let mut known = 0;
        if let Some((&first, &last)) = self.ranges.range(..=start).next_back()
            && last >= start
        {
            known += last.min(end) - start;
            start = first;
            end = end.max(last);
            self.ranges.remove(&first);
        }
        while let Some((&first, &last)) = self.ranges.range(start..=end).next() {
            known += last.min(end).saturating_sub(first);
            end = end.max(last);
            self.ranges.remove(&first);
        }
        self.ranges.insert(start, end);
        while self.ranges.len() > self.limit {
            self.close_lowest_gap();
        }
        wanted.saturating_sub(known)
    }

    fn close_lowest_gap(&mut self) {
        if self.forgets {
            self.ranges.pop_first();
            return;
        }
        if let (Some((first, _)), Some((second, end))) =
            (self.ranges.pop_first(), self.ranges.pop_first())
        {
            self.floor = second;
            self.ranges.insert(first, end);
        }
    }

    /// Whether `value` is a member.
    pub fn contains(&self, value: u64) -> bool {
        value < self.floor
            || self
                .ranges
                .range(..=value)
                .next_back()
                .is_some_and(|(_, &end)| value < end)
    }

    /// One past the run of members that begins at 0.
    pub fn contiguous(&self) -> u64 {
        match self.ranges.first_key_value() {
            Some((&first, &end)) if first <= self.floor => end,
            _ => self.floor,
        }
    }

    /// The number of its ranges.
    pub fn range_count(&self) -> usize {
        self.ranges.len()
    }

    /// One past the greatest member.
    pub fn end(&self) -> u64 {
        self.ranges.last_key_value().map_or(0, |(_, &end)| end)
    }

    /// Closed ranges, greatest first.
    pub fn iter_rev(&self) -> impl Iterator<Item = (u64, u64)> + '_ {
        self.ranges
            .iter()
            .rev()
            .map(|(&first, &end)| (first, end - 1))
    }

    /// The parts of `start..end` that are not members, lowest first.
    pub fn gaps(&self, start: u64, end: u64) -> impl Iterator<Item = (u64, u64)> + '_ {
        let start = start.max(self.floor);
        let mut at = match self.ranges.range(..=start).next_back() {
            Some((_, &last)) => start.max(last),
            None => start,
        };
        let mut inner = self
            .ranges
            .range(start.saturating_add(1)..end.max(start.saturating_add(1)));
        let mut done = false;
        std::iter::from_fn(move || {
            while !done {
                let (gap, next) = match inner.next() {
                    Some((&first, &last)) => ((at, first.min(end)), last),
                    None => {
                        done = true;
                        ((at, end), end)
                    }
                };
                at = at.max(next);
                if gap.0 < gap.1 {
                    return Some(gap);
                }
            }
            None
        })
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;

    #[test]
    fn the_bound_closes_the_lowest_gap() {
        let mut set = RangeSet::new(2);
        for start in [10, 20, 30] {
            assert_eq!(set.insert(start, start + 2), 2);
        }
        assert!(set.contains(15) && !set.contains(25));
        assert_eq!(set.iter_rev().collect::<Vec<_>>(), [(30, 31), (10, 21)]);
    }

    proptest! {
        #[test]
        fn behaves_like_a_set(inserts in proptest::collection::vec((0u64..200, 0u64..20), 0..40)) {
            let mut ranges = RangeSet::new(1000);
            let mut set = BTreeSet::new();
            for (start, length) in inserts {
                let fresh = (start..start + length).filter(|value| set.insert(*value)).count();
                prop_assert_eq!(ranges.insert(start, start + length), fresh as u64);
            }
            for value in 0..230 {
                prop_assert_eq!(ranges.contains(value), set.contains(&value));
            }
            let gaps: Vec<u64> = ranges.gaps(5, 210).flat_map(|(first, end)| first..end).collect();
            prop_assert_eq!(gaps, (5..210).filter(|value| !set.contains(value)).collect::<Vec<_>>());
            prop_assert_eq!(ranges.contiguous(), (0..).find(|value| !set.contains(value)).unwrap());
            prop_assert_eq!(ranges.end(), set.last().map_or(0, |last| last + 1));
        }
    }
}
