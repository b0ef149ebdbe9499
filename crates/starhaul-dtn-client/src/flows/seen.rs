//! Numbers that have been seen, in bounded memory.

use std::collections::BTreeMap;

/// Runs of numbers above the least that are kept.
const MOST: usize = 1024;

/// A set of numbers that grows from zero. Where it has too many holes, the lowest count as seen: what is late is dropped, and
/// nothing is taken twice.
#[derive(Clone, Debug, Default)]
pub(super) struct Seen {
    /// All below have been seen, or count so.
    below: u64,
    /// The first and the last number of each run above, with a hole before each: one hole costs the same however many follow it.
    runs: BTreeMap<u64, u64>,
}

impl Seen {
    /// Whether a number has been seen.
    pub(super) fn contains(&self, number: u64) -> bool {
        let run = self.runs.range(..=number).next_back();
        number < self.below || run.is_some_and(|(_, last)| number <= *last)
    }

    /// Notes a number; `false` if it had been seen.
    pub(super) fn insert(&mut self, number: u64) -> bool {
        if self.contains(number) {
            return false;
        }
        let before = self.runs.range(..number).next_back();
        let first = match before {
            Some((first, last)) if last + 1 == number => *first,
            _ => number,
        };
        let after = number.checked_add(1);
        let last = after.and_then(|after| self.runs.remove(&after));
        self.runs.insert(first, last.unwrap_or(number));
        if self.runs.len() > MOST
            && let Some((first, _)) = self.runs.first_key_value()
        {
            self.below = *first;
        }
        while let Some(run) = self.runs.first_entry()
            && *run.key() == self.below
            && let Some(after) = run.get().checked_add(1)
        {
            self.below = after;
            run.remove();
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;

    #[test]
    fn each_number_is_new_once_and_memory_is_bounded() {
        let mut seen = Seen::default();
        assert!(seen.insert(0) && seen.insert(2) && !seen.insert(2));
        assert!(seen.insert(1) && !seen.insert(0) && seen.contains(1));
        assert!(seen.runs.is_empty());
        // Every second number never comes.
        for number in (4..100_000).step_by(2) {
            assert!(seen.insert(number) && !seen.insert(number));
            assert!(seen.runs.len() <= MOST);
        }
        assert!(!seen.insert(5), "long ago, so it counts as seen");
        assert!(seen.insert(99_997), "late, but not too late");
        assert!(seen.insert(u64::MAX) && !seen.insert(u64::MAX));
    }

    proptest! {
        #[test]
        fn any_order_of_numbers_is_a_set(numbers in prop::collection::vec(0_u64..60, 0..120)) {
            let (mut seen, mut all) = (Seen::default(), BTreeSet::new());
            for number in numbers {
                prop_assert_eq!(seen.insert(number), all.insert(number));
                for number in 0..62 {
                    prop_assert_eq!(seen.contains(number), all.contains(&number));
                }
            }
        }
    }
}
