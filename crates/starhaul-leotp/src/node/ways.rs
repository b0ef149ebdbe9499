//! Where the openers of streams are: a relay asks for the opener's content where the Interests for the other one come from.

use std::{
    collections::hash_map::Entry,
    time::{Duration, Instant},
};

use rustc_hash::FxHashMap;

use crate::{
    config::NeighbourId,
    name::ContentId,
    pending::SHARE,
    stream::id::{self, Number},
};

/// The learned routes of a node, as long as the streams are relayed.
#[derive(Debug)]
pub(super) struct Ways {
    ways: FxHashMap<Number, Way>,
    most: usize,
    /// How many of them each neighbour began.
    begun: FxHashMap<NeighbourId, usize>,
}

#[derive(Debug)]
struct Way {
    begun_by: NeighbourId,
    /// Who asked last for what the accepting side serves.
    opener: Option<NeighbourId>,
    /// The content that the opener serves.
    forward: Option<ContentId>,
    used: Instant,
}

impl Ways {
    /// At most so many streams.
    pub(super) fn new(most: usize) -> Self {
        Self {
            ways: FxHashMap::default(),
            most,
            begun: FxHashMap::default(),
        }
    }

    /// Notes who asks for a content of a stream. Returns whether there was room, and the content whose route is another now.
    pub(super) fn note(
        &mut self,
        now: Instant,
        content: ContentId,
        from: NeighbourId,
    ) -> (bool, Option<ContentId>) {
        let (number, salt) = id::parts(content);
        let free = self.most.saturating_sub(self.ways.len());
        let way = match self.ways.entry(number) {
            Entry::Occupied(entry) => entry.into_mut(),
            Entry::Vacant(entry) => {
                let begun = self.begun.entry(from).or_default();
                // As in the table of Interests that wait, no neighbour takes all the room.
                if *begun >= SHARE * free {
                    return (false, None);
                }
                *begun += 1;
                entry.insert(Way {
                    begun_by: from,
                    opener: None,
                    forward: None,
                    used: now,
                })
            }
        };
        way.used = now;
        if salt.is_some() {
            way.forward = Some(content);
            return (true, None);
        }
        let is_other = way.opener.replace(from) != Some(from);
        (true, way.forward.filter(|_| is_other))
    }

    /// The route of a content that an opener serves: `Some(None)` while none asks for the other one.
    pub(super) fn route(&self, content: ContentId) -> Option<Option<NeighbourId>> {
        let way = self.ways.get(&id::parts(content).0)?;
        (way.forward == Some(content)).then_some(way.opener)
    }

    /// Whether the opener of a stream is behind a neighbour.
    pub(super) fn knows(&self, content: ContentId) -> bool {
        let way = self.ways.get(&id::parts(content).0);
        way.is_some_and(|way| way.opener.is_some())
    }

    /// Whether a content is one of a stream whose other one is asked for.
    pub(super) fn holds(&self, content: ContentId) -> bool {
        let (number, salt) = id::parts(content);
        let way = self.ways.get(&number);
        way.is_some_and(|way| match salt {
            Some(_) => way.forward == Some(content),
            None => way.opener.is_some(),
        })
    }

    /// A content is none that an opener serves. Returns whether it was taken for one.
    pub(super) fn release(&mut self, content: ContentId) -> bool {
        let way = self.ways.get_mut(&id::parts(content).0);
        way.is_some_and(|way| way.forward.take_if(|known| *known == content).is_some())
    }

    /// What the accepting side of a stream serves is refused: the stream is over.
    pub(super) fn forget(&mut self, content: ContentId) {
        let (number, salt) = id::parts(content);
        if salt.is_none()
            && let Some(way) = self.ways.remove(&number)
        {
            self.begun.entry(way.begun_by).and_modify(|it| *it -= 1);
        }
    }

    /// Forgets streams that were not asked for so long.
    pub(super) fn forget_idle(&mut self, now: Instant, idle: Duration) {
        let begun = &mut self.begun;
        self.ways.retain(|_, way| {
            let is_kept = now.saturating_duration_since(way.used) < idle;
            let gone = usize::from(!is_kept);
            begun.entry(way.begun_by).and_modify(|it| *it -= gone);
            is_kept
        });
    }

    pub(super) fn len(&self) -> usize {
        self.ways.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_neighbour_begins_three_quarters_of_them_at_most() {
        let now = Instant::now();
        let mut ways = Ways::new(100);
        for (neighbour, most) in [(1, 75), (2, 19)] {
            let begun = (0..100).filter(|number| {
                let number = [neighbour, *number, 0, 0, 0, 0, 0, 0];
                let from = NeighbourId(neighbour.into());
                ways.note(now, id::backward(number), from).0
            });
            assert_eq!(begun.count(), most);
        }
        ways.forget(id::backward([1, 0, 0, 0, 0, 0, 0, 0]));
        ways.forget_idle(now + Duration::from_secs(9), Duration::from_secs(9));
        assert!(ways.begun.values().all(|begun| *begun == 0));
    }

    #[test]
    fn the_opener_is_where_the_last_interest_came_from() {
        let now = Instant::now();
        let (a, b, up) = (NeighbourId(1), NeighbourId(2), NeighbourId(3));
        let (backward, forward) = (id::backward([7; 8]), id::forward([7; 8], [1; 8]));
        let mut ways = Ways::new(2);
        assert_eq!(ways.route(forward), None);
        assert_eq!(ways.note(now, forward, up), (true, None));
        assert_eq!(
            (ways.route(forward), ways.knows(forward)),
            (Some(None), false)
        );
        assert_eq!(ways.note(now, backward, a), (true, Some(forward)));
        assert_eq!(ways.note(now, backward, a), (true, None));
        assert_eq!(ways.route(forward), Some(Some(a)));
        assert_eq!(ways.note(now, backward, b), (true, Some(forward)));
        assert_eq!(ways.route(forward), Some(Some(b)));
        assert_eq!(ways.route(backward), None);
        let other = id::forward([7; 8], [2; 8]);
        assert_eq!(ways.note(now, other, up), (true, None), "accepted anew");
        assert_eq!(
            (ways.route(forward), ways.route(other)),
            (None, Some(Some(b)))
        );
        assert!(ways.holds(other) && !ways.holds(forward));
        assert_eq!([(); 2].map(|()| ways.release(other)), [true, false]);
        assert_eq!((ways.route(other), ways.holds(other)), (None, false));
        assert!(ways.holds(backward), "its opener is where it was");
        assert!(ways.note(now, id::backward([8; 8]), a).0);
        assert!(!ways.note(now, id::backward([9; 8]), a).0);
        ways.forget_idle(now + Duration::from_secs(9), Duration::from_secs(9));
        assert_eq!(ways.len(), 0);
    }
}
