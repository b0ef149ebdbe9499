//! The order of sending (MPDTP; the published DTP code): W = [(1−α)·R + α·priority/max]·unsent_ratio, smallest first.
//!
//! R, the slack as a share of the deadline, falls for all blocks alike as time passes, so within a class of equal priority
//! and similar deadline the order does not change while blocks wait: each class keeps a sorted set, and only the heads of
//! the classes are weighed. That keeps the cost logarithmic in the number of blocks.

use std::{
    cmp::Ordering,
    collections::{BTreeMap, BTreeSet, btree_set},
    iter::Take,
    time::{Duration, Instant},
};

use crate::{item::BlockKey, types::StreamId};

/// Priority, and the power of two below the relative deadline in milliseconds.
pub(crate) type Class = (u8, u32);

/// Blocks that have something to send.
#[derive(Debug, Default)]
pub(crate) struct BlockQueue {
    classes: BTreeMap<Class, BTreeSet<(Instant, BlockKey)>>,
    /// Counts what may change the block that goes first: what came to the head of a class, and heads that left before what came.
    revision: u64,
    /// Whether a block came behind the head of its class since the queue was weighed.
    has_news: bool,
}

/// Where a block stands: its class and deadline.
pub(crate) fn rank(
    priority: u8,
    relative_deadline: Duration,
    deadline: Instant,
) -> (u8, u32, Instant) {
    let bucket = relative_deadline
        .as_millis()
        .checked_ilog2()
        .unwrap_or_default();
    (priority, bucket, deadline)
}

impl BlockQueue {
    pub(crate) fn insert(
        &mut self,
        (priority, bucket, deadline): (u8, u32, Instant),
        key: BlockKey,
    ) {
        let class = self.classes.entry((priority, bucket)).or_default();
        class.insert((deadline, key));
        match class.first() == Some(&(deadline, key)) {
            true => self.revision += 1,
            false => self.has_news = true,
        }
    }

    pub(crate) fn remove(
        &mut self,
        (priority, bucket, deadline): (u8, u32, Instant),
        key: BlockKey,
    ) {
        if let Some(class) = self.classes.get_mut(&(priority, bucket)) {
            // The next head may be one that was not weighed.
            let led = class.first() == Some(&(deadline, key));
            self.revision += u64::from(led && self.has_news);
            class.remove(&(deadline, key));
            if class.is_empty() {
                self.classes.remove(&(priority, bucket));
            }
        }
    }

    /// Another number when the block that goes first may be one that came since the queue was weighed; what came behind others may
    /// wait to be weighed.
    pub(crate) const fn revision(&self) -> u64 {
        self.revision
    }

    /// Whether a block came, behind others, that was not weighed yet.
    pub(crate) const fn has_news(&self) -> bool {
        self.has_news
    }

    /// All that waits has been weighed.
    pub(crate) const fn on_weighed(&mut self) {
        self.has_news = false;
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.classes.is_empty()
    }

    /// How many blocks wait in a class.
    pub(crate) fn class_len(&self, (priority, bucket, _): (u8, u32, Instant)) -> usize {
        self.classes
            .get(&(priority, bucket))
            .map_or(0, BTreeSet::len)
    }

    /// The classes and how many blocks wait in each, the most important first.
    pub(crate) fn classes(&self) -> impl Iterator<Item = (Class, usize)> {
        self.classes
            .iter()
            .map(|(class, waiting)| (*class, waiting.len()))
    }

    /// The block of a class that goes first.
    pub(crate) fn first(&self, class: Class) -> Option<BlockKey> {
        self.classes.get(&class)?.first().map(|(_, key)| *key)
    }

    /// Of each class with more than `most` blocks the last of the first `most`.
    pub(crate) fn ends(&self, most: usize) -> impl Iterator<Item = BlockKey> {
        let long = self
            .classes
            .values()
            .filter(move |class| class.len() > most);
        let last = long.filter_map(move |class| class.iter().nth(most.saturating_sub(1)));
        last.map(|(_, key)| *key)
    }

    /// How many blocks of a class are due before an instant, of more than `most` about all.
    pub(crate) fn due_before(&self, class: Class, deadline: Instant, most: usize) -> usize {
        let Some(waiting) = self.classes.get(&class) else {
            return 0;
        };
        let sooner = waiting
            .iter()
            .take(most)
            .take_while(|(at, _)| *at < deadline);
        match sooner.count() {
            count if count < most => count,
            _ => waiting.len(),
        }
    }

    /// The block of a class that goes last.
    pub(crate) fn last(&self, class: Class) -> Option<BlockKey> {
        self.classes.get(&class)?.last().map(|(_, key)| *key)
    }

    /// About the block before which `place` others of its class wait: where it would be if deadlines, or the numbers of blocks of one
    /// deadline, were evenly spread from the first to the last.
    pub(crate) fn about(&self, class: Class, place: usize) -> Option<BlockKey> {
        let waiting = self.classes.get(&class)?;
        let (&(soonest, (stream, lowest)), &(latest, (last_stream, highest))) =
            (waiting.first()?, waiting.last()?);
        let last = waiting.len().saturating_sub(1).max(1);
        let place = place.min(last);
        let spread = latest.duration_since(soonest);
        let deadline = soonest + spread.mul_f64(place as f64 / last as f64);
        let key = if soonest == latest && stream == last_stream {
            let among = u128::from(highest.saturating_sub(lowest)) * place as u128 / last as u128;
            let among = u64::try_from(among).unwrap_or_default();
            (stream, lowest.saturating_add(among))
        } else {
            (StreamId(0), 0)
        };
        let found = waiting
            .range((deadline, key)..)
            .next()
            .or_else(|| waiting.last());
        found.map(|(_, key)| *key)
    }

    /// The greatest priority number that waits, at least 1.
    pub(crate) fn max_priority(&self) -> u8 {
        self.classes
            .last_key_value()
            .map_or(1, |((priority, _), _)| (*priority).max(1))
    }

    /// The first `most` blocks of each class by rising weight, lazily: `weigh` is asked for the head of each class and then for each
    /// next in turn. Those of a class keep their order, so that one class alone is not weighed.
    pub(crate) fn ranked<W: Fn(BlockKey) -> f64>(
        &self,
        most: usize,
        weigh: W,
    ) -> Ranked<'_, impl Fn(BlockKey) -> f64> {
        let is_alone = self.classes.len() == 1;
        let weigh = move |key: BlockKey| if is_alone { 0.0 } else { weigh(key) };
        let heads = self
            .classes
            .values()
            .filter_map(|class| Head::next(class.iter().take(most), &weigh))
            .collect();
        Ranked { heads, weigh }
    }
}

/// The iterator of [`BlockQueue::ranked`].
pub(crate) struct Ranked<'a, W> {
    heads: Vec<Head<'a>>,
    weigh: W,
}

struct Head<'a> {
    weight: f64,
    deadline: Instant,
    key: BlockKey,
    rest: Waiting<'a>,
}

type Waiting<'a> = Take<btree_set::Iter<'a, (Instant, BlockKey)>>;

impl<'a> Head<'a> {
    fn next(mut rest: Waiting<'a>, weigh: &impl Fn(BlockKey) -> f64) -> Option<Self> {
        let &(deadline, key) = rest.next()?;
        Some(Self {
            weight: weigh(key),
            deadline,
            key,
            rest,
        })
    }

    fn order(&self, other: &Self) -> Ordering {
        self.weight
            .total_cmp(&other.weight)
            .then(self.deadline.cmp(&other.deadline))
            .then(self.key.cmp(&other.key))
    }
}

impl<W: Fn(BlockKey) -> f64> Iterator for Ranked<'_, W> {
    type Item = BlockKey;

    fn next(&mut self) -> Option<BlockKey> {
        let at = (0..self.heads.len()).min_by(|&a, &b| self.heads[a].order(&self.heads[b]))?;
        let head = self.heads.swap_remove(at);
        self.heads.extend(Head::next(head.rest, &self.weigh));
        Some(head.key)
    }
}

/// Below this share of its deadline a block that has begun goes before others the more of it was sent.
const TIGHT_SLACK: f64 = 0.5;

/// MPDTP's weight of a block that can still arrive in time: `slack_ratio` and `unsent_ratio` from 0 to 1, `alpha` the share
/// of priority against slack, which does not count if the block `hurries`. The published code multiplies by `unsent_ratio` always, so that any block that has begun, however
/// unimportant and early, goes before a fresh one of the highest priority; finishing matters only when the slack runs out.
pub(crate) fn weight(
    slack_ratio: f64,
    hurries: bool,
    priority: u8,
    max_priority: u8,
    unsent_ratio: f64,
    alpha: f64,
) -> f64 {
    let slack_ratio = slack_ratio.clamp(0.0, 1.0);
    let importance = f64::from(priority) / f64::from(max_priority);
    let ease = (slack_ratio / TIGHT_SLACK).min(1.0);
    let unsent = unsent_ratio + (1.0 - unsent_ratio) * ease;
    let slack = if hurries { 0.0 } else { slack_ratio };
    ((1.0 - alpha) * slack + alpha * importance) * unsent
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_begun_block_goes_first_only_when_its_slack_runs_out() {
        let fresh_text = weight(0.95, false, 1, 3, 1.0, 0.5);
        let begun_video = |slack| weight(slack, false, 3, 3, 0.2, 0.5);
        assert!(fresh_text < begun_video(0.9));
        assert!(begun_video(0.05) < fresh_text);
        assert!(begun_video(0.05) < weight(0.05, false, 3, 3, 0.9, 0.5));
        let fresh_audio = weight(0.9, true, 2, 3, 1.0, 0.5);
        assert!(
            fresh_audio < weight(0.9, true, 3, 3, 0.2, 0.5),
            "what hurries goes by importance"
        );
    }

    #[test]
    fn more_important_goes_first_at_equal_slack_and_tighter_at_equal_importance() {
        assert!(weight(0.5, false, 1, 3, 1.0, 0.5) < weight(0.5, false, 2, 3, 1.0, 0.5));
        assert!(weight(0.4, false, 2, 3, 1.0, 0.5) < weight(0.5, false, 2, 3, 1.0, 0.5));
    }

    #[test]
    fn one_class_alone_keeps_its_order_and_two_go_by_weight() {
        let now = Instant::now();
        let key = |number| (StreamId(1), number);
        let mut queue = BlockQueue::default();
        for number in 0..4 {
            let deadline = now + Duration::from_millis(number);
            queue.insert((1, 5, deadline), key(number));
        }
        let backwards = |(_, number): BlockKey| -(number as f64);
        let alone: Vec<_> = queue.ranked(3, backwards).collect();
        assert_eq!(alone, [0, 1, 2].map(key));
        queue.insert((2, 5, now), key(9));
        let both: Vec<_> = queue.ranked(3, backwards).collect();
        assert_eq!(both, [9, 0, 1, 2].map(key));
    }

    #[test]
    fn what_came_behind_a_head_is_weighed_when_the_head_leaves() {
        let (now, class) = (Instant::now(), (1, 5));
        let at = |ms| now + Duration::from_millis(ms);
        let key = |number| (crate::types::StreamId(1), number);
        let mut queue = BlockQueue::default();
        queue.insert((class.0, class.1, at(10)), key(1));
        queue.on_weighed();
        let before = queue.revision();
        queue.insert((class.0, class.1, at(20)), key(2));
        assert!(queue.revision() == before && queue.has_news());
        queue.remove((class.0, class.1, at(10)), key(1));
        assert_ne!(
            queue.revision(),
            before,
            "2 would wait until what was weighed is over"
        );
    }

    #[test]
    fn a_place_far_behind_is_found_by_deadlines_and_among_equal_ones_by_numbers() {
        let (now, class) = (Instant::now(), (1, 5));
        let key = |number| (StreamId(1), number);
        let mut queue = BlockQueue::default();
        assert_eq!(queue.about(class, 0), None);
        for number in 0..100 {
            let deadline = now + Duration::from_millis(10 * number);
            queue.insert((class.0, class.1, deadline), key(number));
        }
        let of = [0, 16, 50, 99, 1000].map(|place| queue.about(class, place));
        assert_eq!(of, [0, 16, 50, 99, 99].map(|number| Some(key(number))));
        let burst = (2, 5);
        for number in 40..60 {
            queue.insert((burst.0, burst.1, now), key(number));
        }
        let of = [0, 10, 19].map(|place| queue.about(burst, place));
        assert_eq!(of, [40, 50, 59].map(|number| Some(key(number))));
        let waiting: Vec<_> = queue.classes().collect();
        assert_eq!(waiting, [(class, 100), (burst, 20)]);
    }
}
