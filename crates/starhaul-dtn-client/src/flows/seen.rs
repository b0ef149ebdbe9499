//! Numbers that have been seen, in bounded memory.

use std::collections::BTreeSet;

/// Numbers above the least that are kept one by one.
const MOST: usize = 1024;

/// A set of numbers that grows from zero. Where it has too many holes, the lowest count as seen: what is late is dropped, and
/// nothing is taken twice.
#[derive(Clone, Debug, Default)]
pub(super) struct Seen {
    /// All below have been seen, or count so.
    below: u64,
    above: BTreeSet<u64>,
}

impl Seen {
    /// Whether a number has been seen.
    pub(super) fn contains(&self, number: u64) -> bool {
        number < self.below || self.above.contains(&number)
    }

    /// Notes a number; `false` if it had been seen.
    pub(super) fn insert(&mut self, number: u64) -> bool {
        if self.contains(number) {
            return false;
        }
        self.above.insert(number);
        if self.above.len() > MOST
            && let Some(least) = self.above.first()
        {
            self.below = *least;
        }
        while self.above.first() == Some(&self.below) {
            self.above.pop_first();
            self.below += 1;
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_number_is_new_once_and_memory_is_bounded() {
        let mut seen = Seen::default();
        assert!(seen.insert(0) && seen.insert(2) && !seen.insert(2));
        assert!(seen.insert(1) && !seen.insert(0) && seen.contains(1));
        assert!(seen.above.is_empty());
        // Every second number never comes.
        for number in (4..100_000).step_by(2) {
            assert!(seen.insert(number) && !seen.insert(number));
            assert!(seen.above.len() <= MOST);
        }
        assert!(!seen.insert(5), "long ago, so it counts as seen");
        assert!(seen.insert(99_997), "late, but not too late");
    }
}
