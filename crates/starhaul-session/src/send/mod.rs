//! Blocks that have not ended, and which fragment of which goes next on a path.

mod aside;
pub(crate) mod block;
pub(crate) mod bytes;
pub(crate) mod bytes_out;
mod carriers;
mod chances;
pub(crate) mod demand;
mod few;
mod leaving;
mod lost;
mod outlook;
pub(crate) mod pick;
pub(crate) mod queue;
mod redundancy;

use std::{
    collections::{BTreeSet, VecDeque},
    time::{Duration, Instant},
};

use rustc_hash::FxHashMap;
use starhaul_fec::Codec;
use starhaul_paths::PathId;
use starhaul_units::Bandwidth;

use crate::{
    facts::Purpose,
    item::{BlockKey, FragmentId},
    paths::{Path, Paths},
    rules::LAST_CHANCE_MARGIN,
    scheduler::{Class, Offer, Scheduler, View},
    types::{BlockId, ExpiredCause, Outcome},
    wire::{FRAGMENT_HEADER_BYTES, wrap},
};
use aside::Aside;
use block::{BlockTimer, SendBlock};
use carriers::{Cargo, Carriers};
use demand::{Demand, QUIC_HEADER_BYTES};
use leaving::Left;
use outlook::Overload;
use pick::{Choice, Order, Place, asked_of};
use queue::{BlockQueue, rank};
use redundancy::{ROUNDS_TO_SPARE, has_time_for_rounds, redundancy_rule};

/// The same of blocks whose status queries wait.
const MAX_QUERIES_EXAMINED: usize = 16;
/// The acknowledgement of a block is waited for at least this long after its deadline.
const LEAST_GRACE: Duration = Duration::from_millis(100);

/// The receiver is asked for a block at least so often …
const LEAST_QUERIES: u8 = 6;
/// … and at most once in this time.
const LEAST_QUERY_INTERVAL: Duration = Duration::from_millis(20);
/// Room for so many blocks is kept when all have ended.
const MOST_IDLE_ROOM: usize = 4096;

#[derive(Debug)]
pub(crate) struct BlocksOut {
    /// Each is looked up many times on its way. Their numbers are ours: a peer cannot make them collide.
    blocks: FxHashMap<BlockKey, Box<SendBlock>>,
    queue: BlockQueue,
    order: Order,
    left: Left,
    aside: Aside,
    spare: BlockQueue,
    /// The next timer of each block.
    expiry: BTreeSet<(Instant, BlockTimer, BlockKey)>,
    /// Blocks for which the receiver is to be asked now.
    queries: VecDeque<BlockKey>,
    demand: Demand,
    codec: Codec,
    busy_since: Option<Instant>,
    priority_weight: f64,
    max_fragment_bytes: usize,
    pub(crate) held_bytes: usize,
    /// Blocks that ended since last asked.
    pub(crate) ended: Vec<(Box<SendBlock>, Outcome)>,
    /// The most that was asked for when a block was given up, or set aside, for want of capacity.
    pub(crate) overloaded: Option<Bandwidth>,
}

/// The blocks for which the receiver is asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Asked {
    /// Those that may still be in time.
    InTime,
    /// Those of which only the outcome is wanted.
    Late,
}

impl BlocksOut {
    pub(crate) fn new(now: Instant, priority_weight: f64, max_fragment_bytes: usize) -> Self {
        Self {
            blocks: FxHashMap::default(),
            queue: BlockQueue::default(),
            order: Order::default(),
            left: Left::default(),
            aside: Aside::default(),
            spare: BlockQueue::default(),
            expiry: BTreeSet::new(),
            queries: VecDeque::new(),
            demand: Demand::new(now),
            codec: Codec::new(),
            busy_since: None,
            priority_weight,
            max_fragment_bytes,
            held_bytes: 0,
            ended: Vec::new(),
            overloaded: None,
        }
    }

    pub(crate) fn insert(&mut self, now: Instant, paths: &Paths, mut block: SendBlock) {
        let key = block.key;
        let deadline = block.deadline.saturating_duration_since(block.born);
        let capacity = paths.fragment_capacity().unwrap_or(usize::MAX);
        let capacity = capacity.min(self.max_fragment_bytes).max(1);
        let fragments = block.data.len().div_ceil(capacity).max(1);
        let headers = fragments * (FRAGMENT_HEADER_BYTES + QUIC_HEADER_BYTES);
        let bytes = block.data.len() + headers;
        self.demand.on_offered(now, block.priority, bytes, deadline);
        block.counted = block.memory();
        self.held_bytes += block.counted;
        block.timer = chances::next_timer(now, paths, &block);
        self.expiry.insert((block.timer.0, block.timer.1, key));
        self.blocks.insert(key, Box::new(block));
        self.requeue(now, key);
        self.expire(now, paths);
    }

    pub(crate) fn get(&self, key: BlockKey) -> Option<&SendBlock> {
        self.blocks.get(&key).map(Box::as_ref)
    }

    pub(crate) fn get_mut(&mut self, key: BlockKey) -> Option<&mut SendBlock> {
        self.left.forget();
        self.blocks.get_mut(&key).map(Box::as_mut)
    }

    /// `key` is useless without `on`; false when `on` has ended.
    pub(crate) fn depend(&mut self, key: BlockKey, on: BlockKey) -> bool {
        let Some(base) = self.blocks.get_mut(&on) else {
            return false;
        };
        base.dependents.push(key.1);
        if let Some(block) = self.blocks.get_mut(&key) {
            block.depends_on = Some(on.1);
        }
        true
    }

    /// About the bytes of a class that wait: the last block stands for all, since of the first a part may have left.
    fn waiting_bytes(&self, class: queue::Class, waiting: usize) -> u64 {
        let last = self.queue.last(class).and_then(|key| self.blocks.get(&key));
        last.map_or(0, |last| last.waiting_bytes() as u64 * waiting as u64)
    }

    pub(crate) fn update(
        &mut self,
        now: Instant,
        paths: &Paths,
        key: BlockKey,
        deadline: Option<Instant>,
        priority: Option<u8>,
    ) {
        self.unqueue(key);
        if let Some(block) = self.blocks.get_mut(&key) {
            if let Some(deadline) = deadline {
                block.deadline = deadline;
            }
            if deadline.is_some() && !block.has_arrived {
                let timer = chances::next_timer(now, paths, block);
                set_timer(&mut self.expiry, block, timer);
            }
            block.priority = priority.unwrap_or(block.priority);
        }
        self.requeue(now, key);
        self.expire(now, paths);
    }

    /// Puts a block where it belongs after its needs have changed.
    pub(crate) fn requeue(&mut self, now: Instant, key: BlockKey) {
        self.left.forget();
        let Some(block) = self.blocks.get_mut(&key) else {
            return;
        };
        self.aside.forget(block);
        let wanted = (block.waiting_bytes() > 0).then(|| {
            rank(
                block.priority,
                block.deadline.saturating_duration_since(block.born),
                block.deadline,
            )
        });
        if block.rank != wanted {
            if let Some(rank) = block.rank {
                self.queue.remove(rank, key);
                self.order.forget(key);
            }
            if let Some(rank) = wanted {
                self.queue.insert(rank, key);
            }
            block.rank = wanted;
        }
        let spare_rank = (block.priority, 0, block.deadline);
        if block.in_spare != block.wants_spare() {
            block.in_spare = block.wants_spare();
            if block.in_spare {
                self.spare.insert(spare_rank, key)
            } else {
                self.spare.remove(spare_rank, key)
            }
        }
        self.busy_since = if self.queue.is_empty() {
            None
        } else {
            self.busy_since.or(Some(now))
        };
    }

    fn unqueue(&mut self, key: BlockKey) {
        self.left.forget();
        if let Some(block) = self.blocks.get_mut(&key) {
            self.aside.forget(block);
            if let Some(rank) = block.rank.take() {
                self.queue.remove(rank, key);
                self.order.forget(key);
            }
            if std::mem::take(&mut block.in_spare) {
                self.spare.remove((block.priority, 0, block.deadline), key);
            }
        }
        if self.queue.is_empty() {
            self.busy_since = None;
        }
    }

    /// Ends a block, and with it, unless it was delivered, the blocks that depend on it.
    pub(crate) fn end(&mut self, now: Instant, key: BlockKey, outcome: Outcome) {
        let (mut next, mut ending) = (Some((key, outcome)), Vec::new());
        while let Some((key, outcome)) = next.take().or_else(|| ending.pop()) {
            self.unqueue(key);
            let Some(mut block) = self.blocks.remove(&key) else {
                continue;
            };
            self.expiry.remove(&(block.timer.0, block.timer.1, key));
            self.held_bytes -= block.counted;
            if !matches!(outcome, Outcome::Delivered { .. }) {
                let because_of = Some(BlockId(wrap(key.1)));
                let fate = if outcome == Outcome::Failed {
                    outcome
                } else {
                    Outcome::Cancelled { because_of }
                };
                ending.extend(
                    std::mem::take(&mut block.dependents)
                        .into_iter()
                        .map(|number| ((key.0, number), fate)),
                );
            }
            self.ended.push((block, outcome));
        }
        if self.blocks.is_empty() && self.blocks.capacity() > MOST_IDLE_ROOM {
            self.blocks.shrink_to(MOST_IDLE_ROOM / 2);
        }
        if self.queue.is_empty() {
            self.busy_since = None;
        } else {
            self.busy_since.get_or_insert(now);
        }
    }

    /// All blocks, in order of their streams and numbers.
    pub(crate) fn keys(&self) -> Vec<BlockKey> {
        let mut keys: Vec<_> = self.blocks.keys().copied().collect();
        keys.sort_unstable();
        keys
    }

    pub(crate) fn waits(&self) -> bool {
        !self.queue.is_empty() || !self.aside.is_empty()
    }

    /// Whether a status query waits for a path, also for blocks that have ended.
    pub(crate) fn has_queries(&self) -> bool {
        !self.queries.is_empty()
    }

    /// Whether a status query waits for a path.
    pub(crate) fn asks(&mut self) -> bool {
        let blocks = &self.blocks;
        // Those of blocks that have ended are asked no more.
        while let Some(key) = self.queries.front()
            && !blocks.contains_key(key)
        {
            self.queries.pop_front();
        }
        !self.queries.is_empty()
    }

    /// Cuts the block of which a first fragment is chosen for the path that may send now.
    pub(crate) fn split(
        &mut self,
        view: &View<'_>,
        choice: Choice,
        scheduler: &mut dyn Scheduler,
    ) -> bool {
        let (now, paths, path, key) = (view.now(), view.paths(), view.path(), choice.block);
        let overload = self.order.overload();
        let Some(block) = self.blocks.get_mut(&key) else {
            return false;
        };
        let is_overloaded = overload.concerns(block.priority);
        if block.is_split() {
            return true;
        }
        let Some(capacity) = paths
            .fragment_capacity()
            .map(|capacity| capacity.min(self.max_fragment_bytes).max(1))
        else {
            return false;
        };
        let cargo = Cargo {
            bytes: block.data.len() as u64,
            fragment: fragment_bytes(block, Some(capacity)),
            deadline: block.deadline,
        };
        let planned = scheduler.coding(class_of(block), path);
        // Without redundancy nothing depends on who carries the data.
        let carriers = (block.mode.codes() && any_loses(paths)).then(|| {
            let (load, limit) = asked_of(block, view, choice.place);
            match scheduler.takes_whole(view, load, limit) {
                true => Carriers::alone(path),
                false => Carriers::of(now, paths, path, cargo),
            }
        });
        let rule = carriers.as_ref().map(|carriers| {
            // The paths that are left now may not carry a retransmission in time that a plan counts on.
            let may_repair = is_overloaded || has_time_for_rounds(1, block, now, paths, carriers);
            let planned = planned.filter(|planned| may_repair || !planned.counts_on_retransmission);
            let coding_rate = planned.map_or(block.max_coding_rate, |planned| {
                planned.rate.min(block.max_coding_rate)
            });
            let repairs = block.mode.retransmits() && may_repair;
            let plan = starhaul_fec::plan(block.data.len(), capacity, block.max_coding_rate);
            let codes = plan.map_or(1, |plan| plan.codes().len());
            redundancy_rule(
                paths,
                path,
                carriers,
                (coding_rate, codes),
                is_overloaded,
                repairs,
                (now, cargo),
            )
        });
        let redundancy_for = |data_count: u8| rule.as_ref().map_or(0, |rule| rule(data_count));
        if block
            .split(&mut self.codec, capacity, redundancy_for)
            .is_err()
        {
            self.end(now, key, Outcome::Failed);
            return false;
        }
        self.held_bytes -= block.counted;
        block.counted = block.memory();
        self.held_bytes += block.counted;
        if let Some(carriers) = &carriers {
            // Where the paths carry less than is asked for, redundancy takes the place of other blocks.
            let rounds = if is_overloaded { 1 } else { ROUNDS_TO_SPARE };
            block.redundancy_is_urgent = !block.mode.retransmits()
                || !has_time_for_rounds(rounds, block, now, paths, carriers);
        }
        true
    }

    /// Fragments arrived, of which some had been given up. If with them the block has, nothing more of it is sent, and it ends
    /// when the receiver names it: a receiver short of memory may have dropped what it had.
    pub(crate) fn on_acked(
        &mut self,
        now: Instant,
        paths: &Paths,
        key: BlockKey,
        fragments: impl Iterator<Item = (FragmentId, bool)>,
    ) {
        let Some(block) = self.blocks.get_mut(&key) else {
            return;
        };
        let mut is_whole = false;
        for (fragment, given_up) in fragments {
            // Those of an earlier cut say nothing of the whole.
            is_whole |= block.on_acked(fragment, given_up);
        }
        if is_whole && !block.has_arrived {
            block.has_arrived = true;
            let timer = (now + query_interval(paths), BlockTimer::Query);
            set_timer(&mut self.expiry, block, timer);
        }
        self.requeue(now, key);
    }

    /// A path fell silent over which others' losses could have been repaired in time. Short blocks under way on paths that lose more than a block
    /// may, which cannot be sent again any more once a loss is known, leave once more now.
    pub(crate) fn on_silence(&mut self, now: Instant, paths: &Paths) {
        let overload = Overload::of(self, now, paths);
        for key in self.keys() {
            let Some(block) = self.blocks.get_mut(&key) else {
                continue;
            };
            if overload.concerns(block.priority) {
                continue;
            }
            chances::insure_unrepairable(now, paths, block);
            if block.next_retransmission().is_some() {
                self.requeue(now, key);
            }
        }
    }

    /// A block of this kind for which the receiver is to be asked, and the fragment that does it; it fits the path.
    pub(crate) fn next_query(
        &mut self,
        now: Instant,
        paths: &Paths,
        path: PathId,
        asked: Asked,
    ) -> Option<Choice> {
        let mut put_back = 0;
        while put_back < MAX_QUERIES_EXAMINED.min(self.queries.len()) {
            let key = self.queries.pop_front()?;
            let Some(block) = self.blocks.get_mut(&key) else {
                continue;
            };
            if (now > block.deadline) != (asked == Asked::Late) {
                self.queries.push_back(key);
                put_back += 1;
                continue;
            }
            block.query_waits = false;
            if now <= block.deadline && is_stranded(block, paths) {
                // Any fragment of it asks.
                block.recut();
                self.requeue(now, key);
            }
            let Some(block) = self.blocks.get_mut(&key) else {
                continue;
            };
            if block.is_split() && !fits(block, paths.get(path).map_or(0, Path::max_datagram)) {
                // Another path carries it.
                block.query_waits = true;
                self.queries.push_back(key);
                put_back += 1;
            } else if block.is_split() {
                return Some(Choice {
                    block: key,
                    fragment: block.query(),
                    purpose: Purpose::Query,
                    place: Place::default(),
                });
            }
        }
        None
    }

    pub(crate) fn on_lost(&mut self, now: Instant, key: BlockKey, fragment: FragmentId) {
        if let Some(block) = self.blocks.get_mut(&key) {
            block.on_lost(fragment);
            self.requeue(now, key);
        }
    }

    /// A fragment of the block, if it is sent again when it is overdue over others that take `soonest`, may come too late. The rest of its
    /// block becomes overdue as fast as it left, at the rate `from`, and is sent at the rate `over`.
    pub(crate) fn cannot_wait(
        &self,
        key: BlockKey,
        overdue_at: Instant,
        soonest: Duration,
        [from, over]: [Bandwidth; 2],
    ) -> bool {
        let Some(block) = self.blocks.get(&key) else {
            return false;
        };
        let bytes = block.bytes_in_flight() as u64;
        let longer = over.time_to_send(bytes);
        let longer = longer.saturating_sub(from.time_to_send(bytes));
        let needed = soonest.saturating_add(longer);
        let arrival = overdue_at.checked_add(needed.saturating_add(LAST_CHANCE_MARGIN));
        arrival.is_none_or(|arrival| arrival > block.deadline)
    }

    /// When [`BlocksOut::expire`] has something to do.
    pub(crate) fn next_expiry(&self) -> Option<Instant> {
        self.expiry.first().map(|(at, _, _)| *at)
    }

    /// Handles the timers of blocks that are due. Blocks past their deadline end; if they may be whole at the receiver they get the time in
    /// which their acknowledgement may still come.
    pub(crate) fn expire(&mut self, now: Instant, paths: &Paths) {
        // As it is now: of what waited when blocks were weighed last, all may have left.
        let mut overload: Option<Overload> = None;
        while let Some(&(at, timer, key)) = self.expiry.first() {
            if at > now {
                break;
            }
            self.expiry.pop_first();
            let asks = matches!(timer, BlockTimer::Crowded | BlockTimer::LastChance);
            if asks && overload.is_none() {
                overload = Some(Overload::of(self, now, paths));
            }
            let Some(block) = self.blocks.get_mut(&key) else {
                continue;
            };
            block.timer = match timer {
                BlockTimer::Review => chances::next_timer(now, paths, block),
                BlockTimer::Chance | BlockTimer::Crowded | BlockTimer::LastChance => {
                    let is_overloaded =
                        overload.is_some_and(|overload| overload.concerns(block.priority));
                    chances::insure(now, paths, timer, block, is_overloaded);
                    chances::next_timer(now, paths, block)
                }
                BlockTimer::Deadline if block.may_be_whole() => {
                    let grace = (paths.longest_turnaround() * 2).max(LEAST_GRACE);
                    // Acknowledgements may wait to be read if this is late.
                    (now + grace, BlockTimer::Acknowledgement)
                }
                BlockTimer::Query if now <= block.deadline || block.queries < LEAST_QUERIES => {
                    block.queries = block.queries.saturating_add(1);
                    if !std::mem::replace(&mut block.query_waits, true) {
                        self.queries.push_back(key);
                    }
                    (now + query_interval(paths), BlockTimer::Query)
                }
                BlockTimer::Deadline | BlockTimer::Acknowledgement | BlockTimer::Query => {
                    self.give_up(now, key, paths);
                    continue;
                }
            };
            self.expiry.insert((block.timer.0, block.timer.1, key));
            let is_aside = block.aside_bytes.is_some();
            // What was cut again for narrower paths is to be sent still.
            let is_wanted =
                timer == BlockTimer::Query && !block.has_arrived && now <= block.deadline;
            let goes_on = matches!(
                timer,
                BlockTimer::Review
                    | BlockTimer::Chance
                    | BlockTimer::Crowded
                    | BlockTimer::LastChance
            );
            if goes_on && is_aside {
                // There is room for it or not, whatever its timer says.
            } else if goes_on || is_wanted {
                self.requeue(now, key)
            } else {
                self.unqueue(key)
            }
        }
    }

    fn give_up(&mut self, now: Instant, key: BlockKey, paths: &Paths) {
        let Some(block) = self.blocks.get(&key) else {
            return;
        };
        let cause = if block.is_untouched() && !is_reachable(block, paths) {
            ExpiredCause::Unreachable
        } else if block.any_lost || block.may_be_whole() {
            ExpiredCause::Loss
        } else {
            // Of one that was set aside that was told before.
            if !block.was_aside {
                self.note_overload(now);
            }
            ExpiredCause::Capacity
        };
        self.end(now, key, Outcome::Expired(cause));
    }

    /// The shortest deadline among the blocks of the last seconds.
    pub(crate) fn shortest_deadline(&self, now: Instant) -> Option<Duration> {
        self.demand.shortest_deadline(now)
    }

    fn note_overload(&mut self, now: Instant) {
        let wanted = self.demand.total(now);
        self.overloaded = self.overloaded.max(Some(wanted));
    }
}

/// All paths together could have carried the block in time, had they been idle.
fn is_reachable(block: &SendBlock, paths: &Paths) -> bool {
    let sent = paths.bandwidth().time_to_send(block.data.len() as u64);
    paths.len() > 0
        && block
            .born
            .checked_add(paths.least_delay().saturating_add(sent))
            .is_some_and(|arrival| arrival <= block.deadline)
}

/// The block's kind.
pub(crate) fn class_of(block: &SendBlock) -> Class {
    let deadline = block.deadline.saturating_duration_since(block.born);
    Class {
        priority: block.priority,
        span: rank(block.priority, deadline, block.deadline).1,
        retransmits: block.mode.retransmits(),
        codes: block.mode.codes(),
    }
}

/// Where the block waits in the queue, when it does.
fn class_in_queue(block: &SendBlock) -> queue::Class {
    let span = block.deadline.saturating_duration_since(block.born);
    let (priority, span, _) = rank(block.priority, span, block.deadline);
    (priority, span)
}

/// Blocks of the class go before those of the other: they are as important or more, and not due much later.
const fn goes_before(class: queue::Class, other: queue::Class) -> bool {
    class.0 <= other.0 && class.1 <= other.1
}

/// What a scheduler is told of a block.
pub(crate) fn offer_of(block: &SendBlock) -> Offer {
    Offer {
        class: class_of(block),
        bytes: block.data.len(),
        deadline: block.deadline.saturating_duration_since(block.born),
        max_coding_rate: block.max_coding_rate,
    }
}

/// The path carries the block's fragments: it may have come up, or its largest datagram may have shrunk, after the block was cut.
fn fits(block: &SendBlock, max_datagram: usize) -> bool {
    let largest = block.largest_fragment();
    largest.is_none_or(|largest| largest + FRAGMENT_HEADER_BYTES <= max_datagram)
}

/// Whether any path has lost anything of late, or is told of losses: where none has, no block gets redundancy.
fn any_loses(paths: &Paths) -> bool {
    paths
        .iter()
        .any(|(_, path)| path.monitor.loss().feared() > 0.0)
}

/// No path that is worth sending on carries the block's fragments: they became narrower, or the wide ones are gone.
fn is_stranded(block: &SendBlock, paths: &Paths) -> bool {
    block.largest_fragment().is_some_and(|largest| {
        let bytes = (largest + FRAGMENT_HEADER_BYTES) as u64;
        paths.carrying(bytes).next().is_none()
    })
}

/// Bytes of a datagram with a fragment of the block, for which paths have room for `capacity` bytes of payload.
fn fragment_bytes(block: &SendBlock, capacity: Option<usize>) -> u64 {
    let uncut = || block.data.len().min(capacity.unwrap_or_default());
    let payload = block.fragment_length().unwrap_or_else(uncut);
    (payload + FRAGMENT_HEADER_BYTES) as u64
}

/// Changes the timer of a block.
fn set_timer(
    expiry: &mut BTreeSet<(Instant, BlockTimer, BlockKey)>,
    block: &mut SendBlock,
    timer: (Instant, BlockTimer),
) {
    expiry.remove(&(block.timer.0, block.timer.1, block.key));
    block.timer = timer;
    expiry.insert((timer.0, timer.1, block.key));
}

/// The receiver's acknowledgement of a block comes this long after its fragments', at the latest, unless it is lost.
fn query_interval(paths: &Paths) -> Duration {
    paths.longest_turnaround().max(LEAST_QUERY_INTERVAL)
}
