//! Bytes by the priority of the streams that they belong to.

/// Priorities counted each for itself; a peer chooses those of its streams.
const MOST: usize = 16;

/// Bytes by priority.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ClassBytes {
    /// Priority and its bytes, in order of priority.
    known: Vec<(u8, u64)>,
    others: u64,
}

impl ClassBytes {
    /// Bytes by priority, the most important first. There are at most 16 priorities.
    pub fn known(&self) -> impl Iterator<Item = (u8, u64)> {
        self.known.iter().copied()
    }

    /// Bytes of further priorities, and of streams whose priority was not known yet.
    pub fn others(&self) -> u64 {
        self.others
    }

    /// Adds bytes of a stream; `None` where its priority is not known.
    pub fn add(&mut self, priority: Option<u8>, bytes: u64) {
        let place = priority.map(|priority| {
            let place = self
                .known
                .binary_search_by_key(&priority, |(known, _)| *known);
            (priority, place)
        });
        match place {
            Some((_, Ok(place))) => self.known[place].1 += bytes,
            Some((priority, Err(place))) if self.known.len() < MOST => {
                self.known.insert(place, (priority, bytes));
            }
            _ => self.others += bytes,
        }
    }

    /// Adds all that another one counted.
    pub fn add_all(&mut self, other: &Self) {
        for (priority, bytes) in other.known() {
            self.add(Some(priority), bytes);
        }
        self.others += other.others;
    }

    /// What was counted since `before`; a counter that fell has begun again at zero.
    #[must_use]
    pub fn since(&self, before: &Self) -> Self {
        let since = |before: u64, now: u64| now.checked_sub(before).unwrap_or(now);
        let of = |all: &Self, priority: u8| {
            let place = all
                .known
                .binary_search_by_key(&priority, |(known, _)| *known);
            place.map_or(0, |place| all.known[place].1)
        };
        Self {
            known: self
                .known()
                .map(|(priority, bytes)| (priority, since(of(before, priority), bytes)))
                .collect(),
            others: since(before.others, self.others),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn priorities_that_a_peer_invents_are_bounded_and_lose_no_byte() {
        let mut bytes = ClassBytes::default();
        for priority in (0..=255).rev() {
            bytes.add(Some(priority), 10);
        }
        bytes.add(None, 7);
        let known: Vec<_> = bytes.known().collect();
        assert_eq!(known.len(), MOST);
        assert!(known.is_sorted());
        let sum: u64 = known.iter().map(|(_, bytes)| bytes).sum();
        assert_eq!((sum, bytes.others()), (160, 240 * 10 + 7));
    }

    #[test]
    fn what_was_counted_since_survives_a_counter_that_begins_again() {
        let (mut total, mut before) = (ClassBytes::default(), ClassBytes::default());
        for (first, second) in [(100, 0), (130, 5), (20, 5), (25, 9)] {
            let mut now = ClassBytes::default();
            now.add(Some(0), first);
            now.add(Some(9), second);
            total.add_all(&now.since(&before));
            before = now;
        }
        assert_eq!(total.known().collect::<Vec<_>>(), [(0, 155), (9, 9)]);
    }
}
