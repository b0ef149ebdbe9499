//! Blocks for which there is no room as far as one can see. They wait beside the queue until their deadline comes too near: others may end
//! sooner, applications may ask for less, a path may become faster.

use std::{
    collections::{BTreeMap, BTreeSet},
    ops::Bound,
    time::{Duration, Instant},
};

use super::{BlocksOut, block::SendBlock, outlook::Outlook};
use crate::{item::BlockKey, paths::Paths, types::StreamId};

/// So many are weighed again at once …
const MAX_WEIGHED: usize = 64;
/// … and none within this time.
const WEIGH_AFTER: Duration = Duration::from_millis(1);
/// So many of those that are due before one are counted.
const MAX_COUNTED: usize = 256;
/// So many wait at the most.
const MAX_ASIDE: usize = 4096;

/// Its priority, when it is due, and which.
type Place = (u8, Instant, BlockKey);

/// See the [module](self).
#[derive(Debug, Default)]
pub(super) struct Aside {
    /// The most important first, and of these the one that is due first.
    by_worth: BTreeSet<Place>,
    due: BTreeSet<(Instant, BlockKey)>,
    /// Bytes of blocks set aside, by priority.
    bytes: BTreeMap<u8, u64>,
    weighed_at: Option<Instant>,
    /// The last one that was weighed.
    cursor: Option<Place>,
}

impl Aside {
    pub(super) fn is_empty(&self) -> bool {
        self.due.is_empty()
    }

    fn add(&mut self, block: &mut SendBlock) {
        let bytes = block.waiting_bytes() as u64;
        block.aside_bytes = Some(bytes);
        *self.bytes.entry(block.priority).or_default() += bytes;
        self.by_worth.insert(place(block));
        self.due.insert((block.deadline, block.key));
    }

    /// The block waits aside no longer, if it did.
    pub(super) fn forget(&mut self, block: &mut SendBlock) {
        if let Some(bytes) = block.aside_bytes.take() {
            if let Some(of_all) = self.bytes.get_mut(&block.priority) {
                *of_all -= bytes;
            }
            self.bytes.retain(|_, bytes| *bytes > 0);
            self.by_worth.remove(&place(block));
            self.due.remove(&(block.deadline, block.key));
        }
    }

    fn has_less_important(&self, priority: u8) -> bool {
        self.by_worth
            .last()
            .is_some_and(|(least, ..)| *least > priority)
    }

    /// Those of one priority, in the order of their deadlines.
    fn of(&self, priority: u8) -> impl Iterator<Item = &Place> {
        let first = self
            .due
            .first()
            .map(|(due, _)| (priority, *due, (StreamId(0), 0)));
        let from = first
            .into_iter()
            .flat_map(|first| self.by_worth.range(first..));
        from.take_while(move |(of, ..)| *of == priority)
    }

    /// Those that are weighed now: the most important, and of the others those whose turn it is.
    fn next(&mut self) -> Vec<BlockKey> {
        let mut next: Vec<Place> = self
            .by_worth
            .iter()
            .copied()
            .take(MAX_WEIGHED / 2)
            .collect();
        let Some(&head) = next.last() else {
            return Vec::new();
        };
        let after = self.cursor.map_or(head, |cursor| cursor.max(head));
        let rest = self
            .by_worth
            .range((Bound::Excluded(after), Bound::Unbounded));
        next.extend(rest.take(MAX_WEIGHED / 2));
        self.cursor = next.last().copied().filter(|_| next.len() == MAX_WEIGHED);
        next.into_iter().map(|(.., key)| key).collect()
    }
}

fn place(block: &SendBlock) -> Place {
    (block.priority, block.deadline, block.key)
}

impl BlocksOut {
    /// Takes a block for which there is no room out of the queue. No more that is as important waits than would fit if nothing else did: for one that
    /// others need, or that needs another, those end which have less time; false if it is one too many.
    pub(super) fn set_aside(
        &mut self,
        now: Instant,
        key: BlockKey,
        most_bytes: u64,
        paths: &Paths,
    ) -> bool {
        let Some(block) = self.blocks.get(&key) else {
            return true;
        };
        let (priority, deadline) = (block.priority, block.deadline);
        let wanted = block.waiting_bytes() as u64;
        let as_important = self.aside.bytes.range(..=priority);
        let bytes = as_important.map(|(_, bytes)| bytes).sum::<u64>() + wanted;
        let excess = bytes.saturating_sub(most_bytes);
        // Of blocks that stand alone those that are due first go first if there is room again.
        if excess > 0 && block.depends_on.is_none() && !self.is_needed(block) {
            return false;
        }
        let Some(others) = self.with_less_time(priority, deadline, excess) else {
            return false;
        };
        for other in others {
            self.give_up(now, other, paths);
        }
        if self.aside.due.len() >= MAX_ASIDE
            && !(self.aside.has_less_important(priority)
                && self.end_one_aside(now, priority, paths))
        {
            return false;
        }
        self.unqueue(key);
        if let Some(block) = self.blocks.get_mut(&key) {
            self.aside.add(block);
            // The application is told once of each.
            if !std::mem::replace(&mut block.was_aside, true) {
                self.note_overload(now);
            }
        }
        true
    }

    /// Blocks aside of this priority that hold so many bytes, are due before this deadline and which no other needs: those that are due first had as
    /// many chances as there are and have the fewest left.
    fn with_less_time(&self, priority: u8, deadline: Instant, bytes: u64) -> Option<Vec<BlockKey>> {
        let (mut others, mut held) = (Vec::new(), 0);
        let class = self.aside.of(priority);
        let mut sooner = class
            .take(MAX_WEIGHED)
            .take_while(|(_, due, _)| *due < deadline);
        while held < bytes {
            let (.., key) = sooner.next()?;
            let Some(block) = self.blocks.get(key) else {
                continue;
            };
            if !self.is_needed(block) {
                held += block.aside_bytes.unwrap_or_default();
                others.push(*key);
            }
        }
        Some(others)
    }

    /// Another block that has not ended needs this one.
    fn is_needed(&self, block: &SendBlock) -> bool {
        let mut dependents = block.dependents.iter().rev();
        dependents.any(|number| self.blocks.contains_key(&(block.key.0, *number)))
    }

    /// What the block needs waits aside.
    pub(super) fn waits_for_one_aside(&self, block: &SendBlock) -> bool {
        let on = block.depends_on.map(|on| (block.key.0, on));
        let base = on.and_then(|on| self.blocks.get(&on));
        base.is_some_and(|base| base.aside_bytes.is_some())
    }

    /// Ends what cannot arrive any more whatever happens, and puts back into the queue what there is room for now; whether there was any.
    pub(super) fn tend_aside(&mut self, now: Instant, paths: &Paths) -> bool {
        let is_due = |at: Instant| now.saturating_duration_since(at) >= WEIGH_AFTER;
        if self.aside.is_empty() || !self.aside.weighed_at.is_none_or(is_due) {
            return false;
        }
        self.aside.weighed_at = Some(now);
        let outlook = Outlook::new(self, now, paths);
        let is_late = |key: &BlockKey| {
            let block = self.blocks.get(key);
            block.is_some_and(|block| outlook.is_too_late(block))
        };
        let due = self.aside.due.iter().map(|(_, key)| *key);
        let late: Vec<_> = due.take_while(is_late).collect();
        for key in late {
            self.give_up(now, key, paths);
        }
        let keys = self.aside.next();
        let fitting = self.fitting_of(&keys, &outlook);
        for key in &fitting {
            self.requeue(now, *key);
        }
        !fitting.is_empty()
    }

    /// Those of the blocks that arrive in time behind what waits in the queue.
    fn fitting_of(&self, keys: &[BlockKey], outlook: &Outlook<'_>) -> Vec<BlockKey> {
        let is_idle = self.queue.is_empty();
        let mut fitting = Vec::new();
        let mut taken = 0;
        for &key in keys {
            let Some(block) = self.blocks.get(&key) else {
                continue;
            };
            // What this one needs may be among those that fit.
            let on = block.depends_on.map(|on| (key.0, on));
            let waits =
                self.waits_for_one_aside(block) && !fitting.iter().any(|base| Some(*base) == on);
            if waits {
                continue;
            }
            // A path that nothing else wants is not kept for what may come.
            let fits = match is_idle {
                true => fitting.is_empty() && outlook.fits_alone(block),
                false => outlook.fits(block, self.before(block, outlook) + taken),
            };
            if fits {
                taken += block.waiting_bytes() as u64;
                fitting.push(key);
            }
        }
        fitting
    }

    /// About the bytes in the queue that go before the block: all of its class, so that it takes the place of none. While a path may soon carry
    /// more, those that are due later have more time for it, and do not go before.
    fn before(&self, block: &SendBlock, outlook: &Outlook<'_>) -> u64 {
        let may_rise = outlook.may_rise();
        let own = super::class_in_queue(block);
        let classes = self.queue.classes();
        let before = classes.filter(|(class, _)| super::goes_before(*class, own));
        before
            .map(|(class, waiting)| {
                let count = match class == own && may_rise {
                    true => self.queue.due_before(class, block.deadline, MAX_COUNTED),
                    false => waiting,
                };
                self.waiting_bytes(class, count)
            })
            .sum()
    }

    /// Blocks of this priority wait aside.
    pub(super) fn has_aside(&self, priority: u8) -> bool {
        self.aside.bytes.contains_key(&priority)
    }

    /// Ends the least important of those aside, for one of this priority, which is not less important; false if there is none.
    pub(crate) fn end_one_aside(&mut self, now: Instant, priority: u8, paths: &Paths) -> bool {
        let least = self.aside.by_worth.last();
        let Some(&(.., key)) = least.filter(|(least, ..)| *least >= priority) else {
            return false;
        };
        self.give_up(now, key, paths);
        true
    }

    /// Whether those aside that are not more important hold so many bytes.
    pub(crate) fn holds_aside(&self, priority: u8, bytes: usize) -> bool {
        let worst = self.aside.by_worth.iter().rev();
        let worst = worst.take_while(|(least, ..)| *least >= priority);
        let mut blocks = worst.filter_map(|(.., key)| self.blocks.get(key));
        let mut held = 0;
        blocks.any(|block| {
            held += block.counted;
            held >= bytes
        })
    }
}
