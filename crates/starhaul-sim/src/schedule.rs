//! The next event of each link, on a heap: idle links cost nothing.

use std::{cmp::Reverse, collections::BinaryHeap, time::Instant};

/// The next event of each link by its number.
#[derive(Debug, Default)]
pub(crate) struct Schedule {
    at: Vec<Option<Instant>>,
    /// An entry that disagrees with `at` is out of date and is removed when it reaches the top.
    heap: BinaryHeap<Reverse<(Instant, usize)>>,
}

impl Schedule {
    /// Adds a link without an event.
    pub(crate) fn add(&mut self) {
        self.at.push(None);
    }

    /// Sets a link's next event, in place of the former one.
    pub(crate) fn set(&mut self, link: usize, at: Option<Instant>) {
        let Some(known) = self.at.get_mut(link).filter(|known| **known != at) else {
            return;
        };
        *known = at;
        if let Some(at) = at {
            self.heap.push(Reverse((at, link)));
        }
    }

    /// The earliest event of all links.
    pub(crate) fn next(&mut self) -> Option<Instant> {
        self.first().map(|(at, _)| at)
    }

    /// The least number of the links due first, if any are due by `now`.
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
