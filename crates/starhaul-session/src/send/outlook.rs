//! What the paths promise to the blocks that wait: how soon each must leave, and which cannot arrive in time any more.

use std::time::{Duration, Instant};

use starhaul_units::Bandwidth;

use super::{
    BlocksOut,
    block::SendBlock,
    fragment_bytes,
    queue::{BlockQueue, weight},
};
use crate::paths::{Path, Paths};

/// Blocks are given up for want of bandwidth only when the queue was never empty for this long.
const BUSY_BEFORE_TRUST: Duration = Duration::from_millis(200);
/// Within so many round trips of a path a controller that starts, and doubles its rate in each, has reached what it carries.
const ROUNDS_BEFORE_TRUST: u32 = 8;
/// A class whose waiting blocks take less time than this, and less than a quarter of their deadline, …
const LIGHT_CLASS: Duration = Duration::from_millis(250);
/// … and which with all more important ones lately asked for at most this share of the paths, does not wait for its slack to
/// run out.
const LIGHT_SHARE: f64 = 0.75;
/// Blocks that take a greater part of their time to send than this wait for each other.
const BEHIND_SHARE: u32 = 4;
/// Less important blocks may hope for this part of what the paths bring, whatever more important ones ask for.
const LEAST_SHARE: u64 = 10;
/// A block begins with this part of its time to spare at the most.
const MARGIN_SHARE: u32 = 3;

/// Since when blocks have waited without a break.
#[derive(Clone, Copy, Debug)]
struct Wait {
    since: Option<Instant>,
    now: Instant,
}

impl Wait {
    /// They wait because the paths are in use, not because they have just come.
    fn is_long(self) -> bool {
        self.lasts() >= Some(BUSY_BEFORE_TRUST)
    }

    fn lasts(self) -> Option<Duration> {
        self.since
            .map(|since| self.now.saturating_duration_since(since))
    }

    /// What the path carries is known: its rate has stopped growing, or had time for it.
    fn shows(self, path: &Path) -> bool {
        let rounds = path.monitor.smoothed_rtt() * ROUNDS_BEFORE_TRUST;
        path.monitor.bandwidth_is_known() || self.lasts() >= Some(rounds)
    }

    /// What all of these paths carry is known.
    fn shows_all<'a>(self, mut paths: impl Iterator<Item = &'a Path>) -> bool {
        self.is_long() && paths.all(|path| self.shows(path))
    }
}

/// Whether the paths carry less than streams ask for.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Overload {
    asks_too_much: bool,
    /// The most important priority whose blocks wait for each other.
    waits_from: Option<u8>,
    /// The same while no path is spared that may bring them in time.
    behind_from: Option<u8>,
}

impl BlocksOut {
    const fn wait(&self, now: Instant) -> Wait {
        Wait {
            since: self.busy_since,
            now,
        }
    }
}

impl Overload {
    pub(super) fn of(blocks_out: &BlocksOut, now: Instant, paths: &Paths) -> Self {
        let mut overload = Self {
            asks_too_much: asks_too_much(blocks_out, now, paths),
            ..Self::default()
        };
        overload.find_waiting(blocks_out, now, paths);
        overload
    }

    /// One that concerns all blocks.
    #[cfg(test)]
    pub(super) fn of_all() -> Self {
        Self {
            asks_too_much: true,
            ..Self::default()
        }
    }

    /// Whatever was asked for: the first block of a priority has waited for half of its time, and it and those behind it take long to send. What is
    /// sent beside them, where all paths are in use, makes more of them wait as long.
    fn find_waiting(&mut self, blocks_out: &BlocksOut, now: Instant, paths: &Paths) {
        let wait = blocks_out.wait(now);
        let mut bytes = 0;
        for (class, waiting) in blocks_out.queue.classes() {
            let first = blocks_out.queue.first(class);
            let Some(first) = first.and_then(|key| blocks_out.get(key)) else {
                continue;
            };
            bytes += blocks_out.waiting_bytes(class, waiting);
            let whole = first.deadline.saturating_duration_since(first.born);
            let left = first.deadline.saturating_duration_since(now);
            let fragment = fragment_bytes(first, paths.fragment_capacity());
            let useful = || useful(paths, fragment, whole);
            let takes = || useful_bandwidth(paths, fragment, whole).time_to_send(bytes);
            // A path in its startup is not known to be full.
            let is_known = || wait.shows_all(useful());
            // Those that have waited longest may be aside.
            let is_early = !blocks_out.has_aside(class.0)
                && (left >= whole / 2 || takes() <= whole / BEHIND_SHARE);
            // What only a silent path may bring does not wait for others.
            if is_early || useful().next().is_none() || !is_known() {
                continue;
            }
            self.waits_from.get_or_insert(class.0);
            if useful().all(|path| path.monitor.is_in_full_use()) {
                self.behind_from = Some(class.0);
                return;
            }
        }
    }

    /// What is sent beside a block of this priority takes the place of blocks that are as important.
    pub(super) fn concerns(self, priority: u8) -> bool {
        self.asks_too_much || self.is_behind(priority)
    }

    fn is_behind(self, priority: u8) -> bool {
        self.behind_from.is_some_and(|from| from <= priority)
    }

    /// [`Load::waits`](crate::scheduler::Load::waits) for a block of this priority.
    pub(super) fn waits(self, priority: u8) -> bool {
        self.waits_from.is_some_and(|from| from <= priority)
    }
}

/// The paths are known to carry less than streams ask for.
fn asks_too_much(blocks_out: &BlocksOut, now: Instant, paths: &Paths) -> bool {
    let usable = paths.usable().map(|(_, path)| path);
    blocks_out.wait(now).shows_all(usable)
        && blocks_out
            .demand
            .by_importance(now)
            .last()
            .is_some_and(|(_, wanted)| *wanted > paths.bandwidth())
}

/// Paths over which something of `bytes` may arrive within `time`.
fn useful(paths: &Paths, bytes: u64, time: Duration) -> impl Iterator<Item = &Path> {
    let carrying = paths.carrying(bytes).map(|(_, path)| path);
    carrying.filter(move |path| path.monitor.least_flight(bytes) <= time)
}

/// Bandwidth of these paths together.
fn useful_bandwidth(paths: &Paths, bytes: u64, time: Duration) -> Bandwidth {
    paths.bandwidth_of(useful(paths, bytes, time))
}

/// What the paths as they are now mean for all blocks.
pub(super) struct Outlook<'a> {
    now: Instant,
    paths: &'a Paths,
    /// By then a fragment of any size would arrive on every path.
    near: Instant,
    least_delay: Duration,
    /// Time in which the path that tells first tells of a loss.
    soonest_overdue: Duration,
    bandwidth: Bandwidth,
    fragment_capacity: Option<usize>,
    /// What was offered lately by blocks of each priority and of more important ones.
    demand: Vec<(u8, Bandwidth)>,
    wait: Wait,
    overload: Overload,
}

impl<'a> Outlook<'a> {
    pub(super) fn new(blocks_out: &BlocksOut, now: Instant, paths: &'a Paths) -> Self {
        let soonest_overdue = paths.usable().map(|(_, path)| path.monitor.overdue_after());
        let slowest = paths.iter().map(|(_, path)| {
            path.monitor
                .least_flight(blocks_out.max_fragment_bytes as u64)
        });
        Self {
            now,
            paths,
            near: now + slowest.max().unwrap_or_default(),
            least_delay: paths.least_delay(),
            soonest_overdue: soonest_overdue.min().unwrap_or_default(),
            bandwidth: paths.bandwidth(),
            fragment_capacity: paths.fragment_capacity(),
            demand: blocks_out.demand.by_importance(now),
            wait: blocks_out.wait(now),
            overload: Overload::of(blocks_out, now, paths),
        }
    }

    pub(super) const fn overload(&self) -> Overload {
        self.overload
    }

    /// Sending all that waits of the block's class takes so little of the paths that there is no reason to put it off.
    pub(super) fn is_light(&self, block: &SendBlock, queue: &BlockQueue) -> bool {
        let waiting = block.rank.map_or(0, |rank| queue.class_len(rank)) as u64;
        let bytes = waiting.saturating_mul(block.waiting_bytes() as u64);
        let whole = block.deadline.saturating_duration_since(block.born);
        if self.bandwidth.time_to_send(bytes) > LIGHT_CLASS.min(whole / 4) {
            return false;
        }
        self.wanted(|priority| priority <= block.priority) <= self.bandwidth.scaled(LIGHT_SHARE)
    }

    /// What was offered lately by blocks of the most important priorities, up to the last that `counts`.
    fn wanted(&self, counts: impl Fn(u8) -> bool) -> Bandwidth {
        let end = self
            .demand
            .partition_point(|(priority, _)| counts(*priority));
        let last = self.demand.get(..end).and_then(<[_]>::last);
        last.map_or(Bandwidth::ZERO, |(_, wanted)| *wanted)
    }

    pub(super) fn weigh(
        &self,
        block: &SendBlock,
        hurries: bool,
        max_priority: u8,
        alpha: f64,
    ) -> f64 {
        let waiting = block.waiting_bytes() as u64;
        let needed = self
            .least_delay
            .saturating_add(self.bandwidth.time_to_send(waiting));
        let slack = block
            .deadline
            .saturating_duration_since(self.now)
            .saturating_sub(needed);
        let whole = block
            .deadline
            .saturating_duration_since(block.born)
            .max(Duration::from_micros(1));
        let slack_ratio = slack.as_secs_f64() / whole.as_secs_f64();
        weight(
            slack_ratio,
            hurries,
            block.priority,
            max_priority,
            block.unsent_ratio(),
            alpha,
        )
    }

    /// No path brings anything more of it in time.
    pub(super) fn is_too_late(&self, block: &SendBlock) -> bool {
        block.deadline < self.near && !self.can_carry_one_more(block)
    }

    /// The paths do not bring it in time behind the `ahead` bytes of those that go first.
    pub(super) fn is_hopeless(&self, block: &SendBlock, ahead: u64) -> bool {
        if self.is_too_late(block) {
            return true;
        }
        let whole = block.deadline.saturating_duration_since(block.born);
        let fragment = fragment_bytes(block, self.fragment_capacity);
        let useful = || useful(self.paths, fragment, whole);
        // What only a silent path may bring waits for it.
        if useful().next().is_none() || !self.wait.is_long() {
            return false;
        }
        let mut time = block.deadline.saturating_duration_since(self.now);
        let mut bytes = block.needed_bytes() as u64;
        if self.asks_too_much(block) && block.is_untouched() {
            time = time.saturating_sub(self.margin(block));
            bytes = bytes.saturating_add(ahead);
        }
        bytes > self.share_of(block, time)
    }

    /// What the paths bring of the block's class within so long: more important blocks keep coming and go first.
    fn share_of(&self, block: &SendBlock, time: Duration) -> u64 {
        let deliverable = self.deliverable(time);
        let above = self.wanted(|priority| priority < block.priority);
        // For so long the paths carry at the rates that are known, all together.
        let carrying = self.bandwidth.time_to_send(deliverable).min(time);
        let ours = deliverable.saturating_sub(above.bytes_in(carrying));
        ours.max(deliverable / LEAST_SHARE)
    }

    /// What the paths bring within so long.
    fn deliverable(&self, time: Duration) -> u64 {
        let usable = self.paths.usable().map(|(_, path)| {
            let time = time.saturating_sub(path.monitor.present_delay());
            (path, time, self.brings(path, time))
        });
        self.paths.bytes_of(usable)
    }

    /// What a path carries within so long, also while its controller starts.
    fn brings(&self, path: &Path, time: Duration) -> u64 {
        match self.wait.shows(path) {
            true => path.monitor.bandwidth().bytes_in(time),
            false => path.monitor.most_of_startup(time),
        }
    }

    /// What the paths bring until the block is due.
    pub(super) fn room(&self, block: &SendBlock) -> u64 {
        self.deliverable(block.deadline.saturating_duration_since(self.now))
    }

    /// The paths bring it in time behind the `ahead` bytes of those that go first, with time to spare.
    pub(super) fn fits(&self, block: &SendBlock, ahead: u64) -> bool {
        let left = block.deadline.saturating_duration_since(self.now);
        let time = left.saturating_sub(self.margin(block));
        let bytes = ahead.saturating_add(block.waiting_bytes() as u64);
        !self.is_too_late(block) && bytes <= self.share_of(block, time)
    }

    /// What a path carries is not known yet, or not any more.
    pub(super) fn may_rise(&self) -> bool {
        let mut usable = self.paths.usable();
        usable.any(|(_, path)| !path.monitor.bandwidth_is_known())
    }

    /// The paths bring it in time if nothing else is sent.
    pub(super) fn fits_alone(&self, block: &SendBlock) -> bool {
        !self.is_too_late(block) && block.waiting_bytes() as u64 <= self.room(block)
    }

    /// All that is asked for is more than the paths carry, or what is as important as the block more than those carry over which it may arrive.
    fn asks_too_much(&self, block: &SendBlock) -> bool {
        let bytes = fragment_bytes(block, self.fragment_capacity);
        let whole = block.deadline.saturating_duration_since(block.born);
        let left = block.deadline.saturating_duration_since(self.now);
        let useful = useful(self.paths, bytes, whole);
        let carried = useful.map(|path| (path, left, self.brings(path, left)));
        let carried = self.paths.bytes_of(carried);
        let wanted = self.wanted(|priority| priority <= block.priority);
        self.overload.asks_too_much || wanted.bytes_in(left) > carried
    }

    /// In overload, a block begins only if it would arrive so long before its deadline: the time in which a loss is noticed, and at most a part of
    /// what the paths leave. Without a margin, each block would begin at the last moment, and most would be given up half
    /// sent for the least of delays.
    fn margin(&self, block: &SendBlock) -> Duration {
        let whole = block.deadline.saturating_duration_since(block.born);
        let most = whole.saturating_sub(self.least_delay) / MARGIN_SHARE;
        self.soonest_overdue.min(most)
    }

    /// Another fragment of the block could arrive in time over some path: also over a silent one, which may come back.
    fn can_carry_one_more(&self, block: &SendBlock) -> bool {
        let bytes = fragment_bytes(block, self.fragment_capacity).min(block.waiting_bytes() as u64);
        self.paths
            .iter()
            .any(|(_, path)| self.now + path.monitor.least_flight(bytes) <= block.deadline)
    }
}
