//! Which fragment of which block leaves next on a path.

use std::{
    collections::BTreeSet,
    time::{Duration, Instant},
};

use starhaul_paths::PathId;

use super::{
    BlocksOut,
    block::SendBlock,
    chances, class_in_queue, class_of, fits, fragment_bytes, goes_before, is_stranded,
    outlook::{Outlook, Overload},
    queue::Class,
};
use crate::{
    facts::Purpose,
    item::{BlockKey, FragmentId},
    paths::Paths,
    rules,
    scheduler::{Limit, Load, Scheduler, View},
};

/// Blocks examined for one packet before a path is left idle …
const MAX_EXAMINED: usize = 16;
/// … and of as few classes as text, audio and video are, so that each has several: what a path declines of many that are alike must not
/// hide the others from it.
const MAX_OF_FEW_CLASSES: usize = 32;
const FEW_CLASSES: usize = 3;
const LEAST_OF_A_CLASS: usize = 4;
/// The order of the same waiting blocks is taken as unchanged for so long.
const REWEIGH_AFTER: Duration = Duration::from_millis(1);
/// Places far behind that are tried, of all classes.
const MAX_TRIES: usize = 32;
/// Between the last place that a path declines and the first that it takes, as many are tried.
const FINER: usize = 3;

/// A fragment to send.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Choice {
    pub(crate) block: BlockKey,
    pub(crate) fragment: FragmentId,
    pub(crate) purpose: Purpose,
    pub(crate) place: Place,
}

/// Where a block stands among those that wait.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Place {
    /// Bytes that go before it.
    ahead: u64,
    /// Whether blocks as important wait for each other, as in [`Load::waits`].
    waits: bool,
}

impl Place {
    pub(super) fn new(ahead: u64, overload: Overload, priority: u8) -> Self {
        let waits = overload.waits(priority);
        Self { ahead, waits }
    }
}

/// A block that was weighed.
#[derive(Clone, Copy, Debug)]
struct Weighed {
    key: BlockKey,
    /// Bytes that were not weighed, and go before it.
    unseen: u64,
}

/// The blocks that go first, as they were weighed.
#[derive(Debug, Default)]
pub(super) struct Order {
    keys: Vec<Weighed>,
    /// The last ones of classes of which others were not weighed.
    ends: Vec<BlockKey>,
    /// Of the queue that was weighed.
    revision: u64,
    until: Option<Instant>,
    overload: Overload,
    /// Paths that took nothing of what is further behind.
    declined: Vec<PathId>,
}

impl Order {
    /// As it was when blocks were weighed.
    pub(super) const fn overload(&self) -> Overload {
        self.overload
    }

    /// The blocks in their order, and the bytes that were not weighed and go before each.
    pub(super) fn weighed_blocks(&self) -> impl Iterator<Item = (BlockKey, u64)> {
        self.keys
            .iter()
            .map(|weighed| (weighed.key, weighed.unseen))
    }

    /// What was found in an overload.
    #[cfg(test)]
    pub(super) fn overloaded() -> Self {
        Self {
            overload: Overload::of_all(),
            ..Self::default()
        }
    }

    /// A block ends, or waits elsewhere. Where it was the last that was weighed of its class, those behind it have their turn.
    pub(super) fn forget(&mut self, key: BlockKey) {
        self.keys.retain(|waits| waits.key != key);
        if self.ends.contains(&key) {
            self.until = None;
        }
    }
}

impl BlocksOut {
    /// The fragment that should leave on the path now. Blocks that cannot arrive in time any more end on the way.
    pub(crate) fn pick(&mut self, view: &View<'_>, scheduler: &dyn Scheduler) -> Option<Choice> {
        self.put_in_order(view.now(), view.paths());
        let mut choice = self.examine(view, scheduler);
        if choice.is_none() && self.queue.has_news() {
            // What came behind the others may suit this path.
            self.order.until = None;
            self.put_in_order(view.now(), view.paths());
            choice = self.examine(view, scheduler);
        }
        if choice.is_none() && self.tend_aside(view.now(), view.paths()) {
            self.order.until = None;
            self.put_in_order(view.now(), view.paths());
            choice = self.examine(view, scheduler);
        }
        if choice.is_none() && !self.order.declined.contains(&view.path()) {
            choice = self.look_further(view, scheduler);
            if choice.is_none() {
                self.order.declined.push(view.path());
            }
        }
        choice
    }

    /// The first of the weighed blocks that the path takes.
    fn examine(&mut self, view: &View<'_>, scheduler: &dyn Scheduler) -> Option<Choice> {
        if self.left.is_by(view) {
            return None;
        }
        let paths = view.paths();
        let mut ahead = 0;
        for number in 0..self.order.keys.len() {
            // A path that declines the first mostly declines them all.
            if number == 1 && self.leaves_all(view, scheduler) {
                return None;
            }
            let Weighed { key, unseen } = self.order.keys[number];
            let Some(block) = self.blocks.get_mut(&key) else {
                continue;
            };
            if !fits(block, view.max_datagram()) && is_stranded(block, paths) {
                block.recut();
            }
            let place = Place::new(ahead + unseen, self.order.overload, block.priority);
            if let Some((fragment, purpose)) = choose(block, view, scheduler, place) {
                return Some(Choice {
                    block: key,
                    fragment,
                    purpose,
                    place,
                });
            }
            ahead += block.waiting_bytes() as u64;
        }
        None
    }

    /// Weighs what waits, if that was not done lately, if another block may go first, or if nothing is left of what was weighed.
    fn put_in_order(&mut self, now: Instant, paths: &Paths) {
        let is_fresh = self.order.until.is_some_and(|until| now < until)
            && self.order.revision == self.queue.revision();
        if self.queue.is_empty() || is_fresh && !self.order.keys.is_empty() {
            return;
        }
        self.tend_aside(now, paths);
        let mut keys = std::mem::take(&mut self.order.keys);
        let mut overload;
        loop {
            let (of_a_class, most) = self.weighed();
            let unseen = self.not_weighed(of_a_class);
            self.order.ends = self.queue.ends(of_a_class).collect();
            let outlook = Outlook::new(self, now, paths);
            overload = outlook.overload();
            let max_priority = self.queue.max_priority();
            let weigh = |key: BlockKey| {
                self.blocks.get(&key).map_or(f64::MAX, |block| {
                    let hurries = outlook.is_light(block, &self.queue);
                    outlook.weigh(block, hurries, max_priority, self.priority_weight)
                })
            };
            keys.clear();
            let ranked = self.queue.ranked(of_a_class, weigh).take(most);
            keys.extend(ranked.map(|key| {
                let block = self.blocks.get(&key);
                let unseen = block.map_or(0, |block| unseen_before(block, &unseen));
                Weighed { key, unseen }
            }));
            let hopeless = self.hopeless_among(&keys, &outlook);
            if hopeless.is_empty() {
                break;
            }
            for (key, room) in hopeless {
                // Its acknowledgement may still come.
                if self.get(key).is_some_and(SendBlock::may_be_whole) {
                    self.unqueue(key);
                } else if !room.is_some_and(|room| self.set_aside(now, key, room, paths)) {
                    self.give_up(now, key, paths);
                }
            }
        }
        self.queue.on_weighed();
        self.left.forget();
        self.order = Order {
            keys,
            ends: std::mem::take(&mut self.order.ends),
            revision: self.queue.revision(),
            until: Some(now + REWEIGH_AFTER),
            overload,
            declined: Vec::new(),
        };
    }

    /// How many blocks are weighed of each class, and of all.
    fn weighed(&self) -> (usize, usize) {
        let classes = self.queue.classes().count().max(1);
        let all = match classes <= FEW_CLASSES {
            true => MAX_OF_FEW_CLASSES,
            false => MAX_EXAMINED,
        };
        ((all / classes).clamp(LEAST_OF_A_CLASS, MAX_EXAMINED), all)
    }

    /// Bytes of each class beyond the first blocks.
    fn not_weighed(&self, of_a_class: usize) -> Vec<(Class, u64)> {
        let long = self
            .queue
            .classes()
            .filter(|(_, waiting)| *waiting > of_a_class);
        let unseen =
            long.map(|(class, waiting)| (class, self.waiting_bytes(class, waiting - of_a_class)));
        unseen.collect()
    }

    /// Those of the blocks, in their order, that cannot arrive in time, each with the bytes for which there would be room until then if nothing
    /// else was sent; `None` if it comes too late whatever happens.
    fn hopeless_among(
        &self,
        keys: &[Weighed],
        outlook: &Outlook<'_>,
    ) -> Vec<(BlockKey, Option<u64>)> {
        let (mut ahead, mut aside) = (0, BTreeSet::new());
        let mut hopeless = Vec::new();
        for &Weighed { key, unseen } in keys {
            let Some(block) = self.blocks.get(&key) else {
                continue;
            };
            let on = block.depends_on.map(|on| (key.0, on));
            let needs_one_aside =
                on.is_some_and(|on| aside.contains(&on)) || self.waits_for_one_aside(block);
            if outlook.is_too_late(block) {
                hopeless.push((key, None));
            } else if needs_one_aside && !block.may_be_whole()
                || outlook.is_hopeless(block, ahead + unseen)
            {
                aside.insert(key);
                // Others would wait for one aside.
                let room = (!block.is_ordered).then(|| outlook.room(block));
                hopeless.push((key, room));
            } else {
                ahead += block.waiting_bytes() as u64;
            }
        }
        hopeless
    }

    /// Redundancy for which there is room because nothing else wants the path.
    pub(crate) fn pick_spare(&self, view: &View<'_>, scheduler: &dyn Scheduler) -> Option<Choice> {
        if self.spare.is_empty() {
            return None;
        }
        self.spare
            .ranked(MAX_EXAMINED, |_| 0.0)
            .take(MAX_EXAMINED)
            .find_map(|key| {
                let block = self.blocks.get(&key)?;
                let fragment = redundancy(block, view, scheduler)?;
                Some(Choice {
                    block: key,
                    fragment,
                    purpose: Purpose::Redundancy,
                    place: Place::default(),
                })
            })
    }

    /// A block behind those that were weighed which the path takes. Where blocks are many and small, the first of them arrive sooner over the
    /// fastest path, and one far behind sooner over another than the fastest comes to it. Of places twice as far behind each time about the first
    /// is taken.
    fn look_further(&self, view: &View<'_>, scheduler: &dyn Scheduler) -> Option<Choice> {
        let waiting: usize = self.queue.classes().map(|(_, waiting)| waiting).sum();
        if waiting <= self.order.keys.len() {
            return None;
        }
        let (mut before, mut tries) = (0, MAX_TRIES);
        for (class, waiting) in self.queue.classes() {
            let bytes = self.waiting_bytes(class, waiting);
            let take = |number: usize| {
                let key = self.queue.about(class, number)?;
                let ahead = before + bytes / waiting.max(1) as u64 * number as u64;
                self.take_far_behind(key, ahead, view, scheduler)
            };
            let last = waiting.saturating_sub(1);
            let mut place = self.weighed().0.min(last);
            let mut declined = place.saturating_sub(1);
            while place > declined {
                if tries == 0 {
                    return None;
                }
                tries -= 1;
                if let Some(mut choice) = take(place) {
                    for _ in 0..FINER {
                        let between = declined.midpoint(place);
                        if between <= declined {
                            break;
                        }
                        match take(between) {
                            Some(sooner) => (choice, place) = (sooner, between),
                            None => declined = between,
                        }
                    }
                    return Some(choice);
                }
                (declined, place) = (place, (2 * place).min(last));
            }
            before += bytes;
        }
        None
    }

    /// The fragment of a block far behind that arrives in time over the path. One that others need, or that needs others, is not sent before
    /// those between.
    fn take_far_behind(
        &self,
        key: BlockKey,
        ahead: u64,
        view: &View<'_>,
        scheduler: &dyn Scheduler,
    ) -> Option<Choice> {
        let block = self.blocks.get(&key)?;
        let is_chained = block.depends_on.is_some() || !block.dependents.is_empty();
        if is_chained || self.order.keys.iter().any(|weighed| weighed.key == key) {
            return None;
        }
        let bytes = fragment_bytes(block, view.fragment_capacity());
        if view.this()?.predict_arrival(view.now(), 0, bytes) > block.deadline {
            return None;
        }
        let place = Place::new(ahead, self.order.overload, block.priority);
        let (fragment, purpose) = choose(block, view, scheduler, place)?;
        Some(Choice {
            block: key,
            fragment,
            purpose,
            place,
        })
    }
}

/// What was not weighed of other classes, and goes before the block.
fn unseen_before(block: &SendBlock, unseen: &[(Class, u64)]) -> u64 {
    let own = class_in_queue(block);
    let before = unseen
        .iter()
        .filter(|(class, _)| *class != own && goes_before(*class, own));
    before.map(|(_, bytes)| bytes).sum()
}

/// The fragment of the block that should leave on the path now.
pub(crate) fn choose(
    block: &SendBlock,
    view: &View<'_>,
    scheduler: &dyn Scheduler,
    place: Place,
) -> Option<(FragmentId, Purpose)> {
    if !fits(block, view.max_datagram()) {
        return None;
    }
    let (load, limit) = asked_of(block, view, place);
    let bytes = load.fragment;
    if let Some(id) = block.next_retransmission()
        && chances::takes_again(block, id, view, scheduler, bytes, limit)
    {
        return Some((id, Purpose::Retransmission));
    }
    if block.has_fresh() && scheduler.takes_data(view, load, limit) {
        return Some((block.next_fresh().unwrap_or(block.query()), Purpose::Data));
    }
    if let Some((id, first)) = block.next_copy()
        && scheduler.takes_copy(view, first, bytes, limit)
    {
        return Some((id, Purpose::Copy));
    }
    if block.redundancy_is_urgent {
        return redundancy(block, view, scheduler).map(|id| (id, Purpose::Redundancy));
    }
    None
}

/// What a scheduler is asked of the block.
pub(super) fn asked_of(block: &SendBlock, view: &View<'_>, place: Place) -> (Load, Limit) {
    let bytes = fragment_bytes(block, view.fragment_capacity());
    let load = Load {
        ahead: place.ahead,
        waits: place.waits,
        waiting: (block.waiting_bytes() as u64).max(bytes),
        fragment: bytes,
        is_bare: block.is_bare(),
    };
    let limit = Limit {
        deadline: block.deadline,
        class: class_of(block),
        is_spare: false,
    };
    (load, limit)
}

fn redundancy(block: &SendBlock, view: &View<'_>, scheduler: &dyn Scheduler) -> Option<FragmentId> {
    let id = block
        .next_redundancy()
        .filter(|_| fits(block, view.max_datagram()))?;
    let main = block.main_path();
    let recovered_by = rules::recovered_by(view, main).filter(|_| !block.redundancy_is_urgent);
    let limit = Limit {
        deadline: recovered_by.map_or(block.deadline, |at| at.min(block.deadline)),
        class: class_of(block),
        is_spare: !block.redundancy_is_urgent,
    };
    let bytes = fragment_bytes(block, view.fragment_capacity());
    scheduler
        .takes_redundancy(view, main, bytes, limit)
        .then_some(id)
}
