//! The contacts from here to one node, among which the open ones are found fast.

use crate::plan::{Contact, ContactPlan, Moment};

/// The contacts from here to one node, by their begin: a plan may have a million.
#[derive(Debug, Default)]
pub(super) struct Ways {
    ways: Vec<Way>,
    /// The latest ends of spans of them, as a tree: that of all at 1, those of the halves of the span at `n` at `2n` and `2n + 1`.
    /// One long contact that began early hides no end of those after it.
    latest_ends: Vec<Moment>,
    /// How many the tree has place for, a power of two.
    width: usize,
}

#[derive(Debug)]
pub(super) struct Way {
    start: Moment,
    /// The place in the plan.
    pub(super) place: usize,
    /// The most bytes that this one or any that begins later carries.
    pub(super) most_bytes: u64,
}

/// Those that have begun and are open, each found by as many steps as the tree is high.
pub(super) struct Begun<'a> {
    ways: &'a Ways,
    now: Moment,
    /// Spans that have begun.
    count: usize,
    /// Spans that may hold some: the place in the tree, the first one, and how many.
    spans: Vec<(usize, usize, usize)>,
    #[cfg(test)]
    pub(super) steps: usize,
}

impl Iterator for Begun<'_> {
    type Item = usize;

    fn next(&mut self) -> Option<usize> {
        while let Some((at, first, width)) = self.spans.pop() {
            #[cfg(test)]
            {
                self.steps += 1;
            }
            let latest_end = self.ways.latest_ends.get(at);
            if first >= self.count || latest_end.is_none_or(|end| *end <= self.now) {
                continue;
            }
            if width <= 1 {
                if let Some(way) = self.ways.ways.get(first) {
                    return Some(way.place);
                }
                continue;
            }
            let half = width / 2;
            self.spans.push((2 * at, first, half));
            self.spans.push((2 * at + 1, first + half, half));
        }
        None
    }
}

/// Bytes that a contact carries from now on, or in all if it has not begun.
pub(super) fn carries(contact: &Contact, now: Moment) -> u64 {
    let length = contact.end.since(now.max(contact.start));
    contact.rate.bytes_in(length)
}

impl Ways {
    /// `places`, ordered by when they begin.
    pub(super) fn of(plan: &ContactPlan, mut places: Vec<usize>) -> Self {
        let contact = |place: usize| plan.contacts().get(place);
        places.sort_by_key(|place| contact(*place).map(|contact| contact.start));
        let ways = places.into_iter().filter_map(|place| {
            let contact = contact(place)?;
            let way = Way {
                start: contact.start,
                place,
                most_bytes: carries(contact, contact.start),
            };
            Some((way, contact.end))
        });
        let (mut ways, ends): (Vec<Way>, Vec<Moment>) = ways.unzip();
        let mut most_bytes = 0;
        for way in ways.iter_mut().rev() {
            most_bytes = way.most_bytes.max(most_bytes);
            way.most_bytes = most_bytes;
        }
        let width = ways.len().next_power_of_two();
        let mut latest_ends = vec![Moment::default(); width];
        latest_ends.extend(ends);
        latest_ends.resize(2 * width, Moment::default());
        for at in (1..width).rev() {
            let halves = latest_ends.get(2 * at..2 * at + 2).unwrap_or_default();
            let latest = halves.iter().max().copied().unwrap_or_default();
            if let Some(end) = latest_ends.get_mut(at) {
                *end = latest;
            }
        }
        Self {
            ways,
            latest_ends,
            width,
        }
    }

    /// Those that have begun and are open, the last one first.
    pub(super) fn begun(&self, now: Moment) -> Begun<'_> {
        Begun {
            ways: self,
            now,
            count: self.ways.partition_point(|way| way.start <= now),
            spans: vec![(1, 0, self.width)],
            #[cfg(test)]
            steps: 0,
        }
    }

    /// The next that begins.
    pub(super) fn next(&self, now: Moment) -> Option<&Way> {
        let begun = self.ways.partition_point(|way| way.start <= now);
        self.ways.get(begun)
    }
}
