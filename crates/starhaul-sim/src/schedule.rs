//! When each link has something to do, on a heap: what idle links cost does not grow with their number.

use std::{cmp::Reverse, collections::BinaryHeap, time::Instant};

/// The next event of each link by its number.
#[derive(Debug, Default)]
pub(crate) struct Schedule {
    at: Vec<Option<Instant>>,
    /// An entry that disagrees with `at` is out of date, and goes when it comes to the top.
    heap: BinaryHeap<Reverse<(Instant, usize)>>,
}

impl Schedule {
    /// Another link, with nothing to do.
    pub(crate) fn add(&mut self) {
        self.at.push(None);
    }

    /// Says when a link has something to do, in place of what was said before.
    pub(crate) fn set(&mut self, link: usize, at: Option<Instant>) {
        let Some(known) = self.at.get_mut(link).filter(|known| **known != at) else {
            return;
        };
        *known = at;
        if let Some(at) = at {
            self.heap.push(Reverse((at, link)));
        }
    }

    /// When the first of all has something to do.
    pub(crate) fn next(&mut self) -> Option<Instant> {
        self.first().map(|(at, _)| at)
    }

    /// The least number of those that are due first, if any are by `now`.
    pub(crate) fn due(&mut self, now: Instant) -> Option<usize> {
        self.first()
            .filter(|(at, _)| *at <= now)
            .map(|(_, link)| link)
    }

    fn first(&mut self) -> Option<(Instant, usize)> {
        while let Some(&Reverse((at, link))) = self.heap.peek() {
            if self.at.get(link) == Some(&Some(at)) {
                return Some((at, link));
            }
            self.heap.pop();
        }
        None
    }
}
