//! Blocks whose red part came damaged over a link without a way back: their senders are not told, and may send them once more.

use std::collections::BTreeMap;

/// Greatest number of blocks remembered: a sender sends one from its first pass to its last before it begins the next.
const MOST: usize = 64;

/// The first byte behind the latest data of each, by session number. Data leave in order: what is behind that is of the pass that was damaged,
/// and would make the beginning of a block that never becomes whole.
#[derive(Debug, Default)]
pub(crate) struct Damaged(BTreeMap<u64, u64>);

impl Damaged {
    /// A block was found damaged when data up to this byte had come.
    pub(crate) fn insert(&mut self, number: u64, passed: u64) {
        if self.0.len() >= MOST {
            self.0.pop_first();
        }
        self.0.insert(number, passed);
    }

    /// Whether a segment is of the rest of a damaged pass, by where its data begin and end; repair segments have none. The first that is
    /// not begins the block anew.
    pub(crate) fn is_rest(&mut self, number: u64, data: Option<(u64, u64)>) -> bool {
        let Some(passed) = self.0.get(&number).copied() else {
            return false;
        };
        match data {
            Some((start, _)) if start < passed => {
                self.0.remove(&number);
                false
            }
            Some((_, end)) => {
                self.0.insert(number, end);
                true
            }
            None => true,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_damaged_block_begins_anew_with_data_of_the_next_pass() {
        let mut damaged = Damaged::default();
        damaged.insert(7, 100);
        assert!(damaged.is_rest(7, None));
        assert!(damaged.is_rest(7, Some((100, 150))));
        assert!(!damaged.is_rest(8, Some((150, 200))), "another one");
        assert!(!damaged.is_rest(7, Some((0, 50))));
        assert!(!damaged.is_rest(7, Some((100, 150))), "it has begun");
        // One of a single segment, whose repair segments came before it.
        damaged.insert(9, 0);
        assert!(damaged.is_rest(9, Some((0, 50))));
        assert!(damaged.is_rest(9, None));
        assert!(!damaged.is_rest(9, Some((0, 50))));
        for number in 0..10_000 {
            damaged.insert(number, 1);
        }
        assert_eq!(damaged.0.len(), MOST);
    }
}
