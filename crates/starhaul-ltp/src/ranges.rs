//! Sets of byte ranges: received data, acknowledged data, serial numbers seen.

use std::collections::BTreeMap;

/// Disjoint ranges that do not touch, by first value. A range that continues the last one costs no search.
#[derive(Clone, Debug, Default)]
pub(crate) struct RangeSet {
    /// First value, and first value behind.
    ranges: BTreeMap<u64, u64>,
}

impl RangeSet {
    /// Adds `start..end` and returns how many of its values are new.
    pub(crate) fn insert(&mut self, start: u64, end: u64) -> u64 {
        if start >= end {
            return 0;
        }
        if let Some(mut last) = self.ranges.last_entry()
            && *last.get() == start
        {
            *last.get_mut() = end;
            return end - start;
        }
        let (mut first, mut behind, mut known) = (start, end, 0);
        // From the right end to the left, every range that overlaps or touches the new one.
        while let Some((&from, &to)) = self.ranges.range(..=behind).next_back() {
            if to < start {
                break;
            }
            known += to.min(end).saturating_sub(from.max(start));
            first = first.min(from);
            behind = behind.max(to);
            self.ranges.remove(&from);
        }
        self.ranges.insert(first, behind);
        end - start - known
    }

    /// Whether all of `start..end` is in the set.
    pub(crate) fn covers(&self, start: u64, end: u64) -> bool {
        start >= end || self.end_of(start) >= end
    }

    /// Whether `value` is in the set.
    pub(crate) fn contains(&self, value: u64) -> bool {
        self.end_of(value) > value
    }

    /// The end of the range that holds `value`, or `value` if none does.
    pub(crate) fn end_of(&self, value: u64) -> u64 {
        let range = self.ranges.range(..=value).next_back();
        range.map_or(value, |(_, &end)| end.max(value))
    }

    /// The parts of `start..end` in the set, ascending; none of them is empty.
    pub(crate) fn within(&self, start: u64, end: u64) -> impl Iterator<Item = (u64, u64)> {
        let before = self.ranges.range(..start).next_back();
        let first = before
            .filter(|(_, to)| **to > start)
            .map_or(start, |(&from, _)| from);
        let behind = if start < end { end } else { first };
        let ranges = self.ranges.range(first..behind.max(first));
        ranges.map(move |(&from, &to)| (from.max(start), to.min(end)))
    }

    /// The parts of `start..end` that are not in the set, ascending.
    pub(crate) fn gaps(&self, start: u64, end: u64) -> Vec<(u64, u64)> {
        let mut gaps = Vec::new();
        let mut at = start;
        for (from, to) in self.within(start, end) {
            if from > at {
                gaps.push((at, from));
            }
            at = to;
        }
        if at < end {
            gaps.push((at, end));
        }
        gaps
    }

    /// Whether `start..end` has more than `most` gaps; looks at no more ranges than it takes to know.
    pub(crate) fn has_more_gaps(&self, start: u64, end: u64, most: usize) -> bool {
        // Between so many ranges there are more.
        self.within(start, end).nth(most + 1).is_some() || self.gaps(start, end).len() > most
    }

    /// The first value behind all ranges; zero without any.
    pub(crate) fn end(&self) -> u64 {
        self.ranges.last_key_value().map_or(0, |(_, &end)| end)
    }

    /// Number of separate ranges.
    pub(crate) fn count(&self) -> usize {
        self.ranges.len()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn behaves_as_a_set_of_values(ranges in proptest::collection::vec((0u64..60, 0u64..20), 0..30)) {
            let (mut set, mut model) = (RangeSet::default(), [false; 80]);
            for (start, length) in ranges {
                let end = start + length;
                let values = usize::try_from(start).unwrap()..usize::try_from(end).unwrap();
                let fresh = model[values.clone()].iter().filter(|known| !**known).count() as u64;
                model[values].fill(true);
                prop_assert_eq!(set.insert(start, end), fresh);
                let runs = model.chunk_by(|a, b| a == b).filter(|run| run[0]).count();
                prop_assert_eq!(set.count(), runs);
            }
            for start in 0..80u64 {
                let is_in = |value: u64| model[usize::try_from(value).unwrap()];
                prop_assert_eq!(set.contains(start), is_in(start));
                for end in [start, start + 1, (start + 17).min(80)] {
                    prop_assert_eq!(set.covers(start, end), (start..end).all(is_in));
                    let gaps = set.gaps(start, end);
                    let missing: Vec<u64> = gaps.iter().flat_map(|&(from, to)| from..to).collect();
                    let expected: Vec<u64> = (start..end).filter(|value| !is_in(*value)).collect();
                    prop_assert_eq!(missing, expected);
                    for most in 0..4 {
                        prop_assert_eq!(set.has_more_gaps(start, end, most), gaps.len() > most);
                    }
                    prop_assert!(set.within(start, end).all(|(from, to)| from < to));
                    let held: Vec<u64> = set.within(start, end).flat_map(|(from, to)| from..to).collect();
                    let expected: Vec<u64> = (start..end).filter(|value| is_in(*value)).collect();
                    prop_assert_eq!(held, expected);
                }
            }
        }
    }
}
