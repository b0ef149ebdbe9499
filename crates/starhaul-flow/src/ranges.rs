//! Packet numbers that arrived, as a short list of ranges: few holes are open at a time, near the end.

use std::collections::VecDeque;

/// A set of integers as closed ranges, the greatest first. Beyond its bound the lowest gap is closed: numbers that old
/// count as received.
#[derive(Clone, Debug, Default)]
pub struct Ranges {
    ranges: VecDeque<(u64, u64)>,
}

/// More holes than a window of any size here opens within an RTT.
const MAX_RANGES: usize = 1 << 16;

impl Ranges {
    /// Adds `value`; `false` if it was a member.
    pub fn insert(&mut self, value: u64) -> bool {
        // The greatest range whose start is not above the value; nearly always the first.
        let at = match self.ranges.front() {
            Some(&(first, _)) if first <= value => 0,
            _ => self.ranges.partition_point(|&(first, _)| first > value),
        };
        if let Some(&(_, last)) = self.ranges.get(at)
            && value <= last
        {
            return false;
        }
        let joins_below = self
            .ranges
            .get(at)
            .is_some_and(|&(_, last)| last.checked_add(1) == Some(value));
        let above = at.checked_sub(1);
        let joins_above = above
            .and_then(|above| self.ranges.get(above))
            .is_some_and(|&(first, _)| value.checked_add(1) == Some(first));
        match (joins_below, joins_above, above) {
            (true, true, Some(above)) => {
                let last = self.ranges.remove(above).map_or(value, |(_, last)| last);
                // The lower range moved up by one index.
                if let Some(range) = self.ranges.get_mut(above) {
                    range.1 = last;
                }
            }
            (true, ..) => {
                if let Some(range) = self.ranges.get_mut(at) {
                    range.1 = value;
                }
            }
            (false, true, Some(above)) => {
                if let Some(range) = self.ranges.get_mut(above) {
                    range.0 = value;
                }
            }
            _ => self.ranges.insert(at, (value, value)),
        }
        if self.ranges.len() > MAX_RANGES {
            self.close_lowest_gap();
        }
        true
    }

    /// Whether `value` is a member.
    pub fn contains(&self, value: u64) -> bool {
        let at = self.ranges.partition_point(|&(first, _)| first > value);
        self.ranges.get(at).is_some_and(|&(_, last)| value <= last)
    }

    /// The greatest member.
    pub fn greatest(&self) -> Option<u64> {
        self.ranges.front().map(|&(_, last)| last)
    }

    /// Closed ranges, greatest first.
    pub fn iter(&self) -> impl Iterator<Item = (u64, u64)> + '_ {
        self.ranges.iter().copied()
    }

    fn close_lowest_gap(&mut self) {
        if let Some((first, _)) = self.ranges.pop_back()
            && let Some(lowest) = self.ranges.back_mut()
        {
            lowest.0 = first;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn behaves_like_a_set(values in proptest::collection::vec(0u64..60, 0..80)) {
            let (mut ranges, mut set) = (Ranges::default(), BTreeSet::new());
            for value in values {
                prop_assert_eq!(ranges.insert(value), set.insert(value));
                prop_assert_eq!(ranges.greatest(), set.last().copied());
            }
            for value in 0..61 {
                prop_assert_eq!(ranges.contains(value), set.contains(&value));
            }
            let members: BTreeSet<u64> = ranges.iter().flat_map(|(first, last)| first..=last).collect();
            prop_assert_eq!(members, set);
            let apart = ranges.iter().zip(ranges.iter().skip(1)).all(|(high, low)| low.1 + 1 < high.0);
            prop_assert!(apart, "{:?}", ranges);
        }
    }

    #[test]
    fn holes_beyond_the_bound_count_as_filled_from_below() {
        let mut ranges = Ranges::default();
        for value in 0..=MAX_RANGES as u64 {
            ranges.insert(2 * value);
        }
        assert!(!ranges.insert(1), "the lowest hole should be closed");
        assert!(ranges.insert(3));
    }
}
