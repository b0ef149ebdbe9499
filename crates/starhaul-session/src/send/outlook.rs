//! What the paths promise to the blocks that wait: how soon each must leave, and which cannot arrive in time any more.

use std::time::{Duration, Instant};

use starhaul_units::Bandwidth;

use super::{
    BlocksOut,
    block::SendBlock,
    fragment_bytes,
    queue::{BlockQueue, weight},
};
use crate::paths::Paths;

/// Estimates of bandwidth are trusted for giving blocks up only when the queue was never empty for this long (or an RTT).
const BUSY_BEFORE_TRUST: Duration = Duration::from_millis(200);
/// … and for so many round trips, in which a controller that starts doubles its rate each time.
const ROUNDS_BEFORE_TRUST: u32 = 8;
/// A class whose waiting blocks take less time than this, and less than a quarter of their deadline, …
const LIGHT_CLASS: Duration = Duration::from_millis(250);
/// … and which with all more important ones lately asked for at most this share of the paths, does not wait for its slack to
/// run out.
const LIGHT_SHARE: f64 = 0.75;
/// A block begins with this part of its time to spare at the most.
const MARGIN_SHARE: u32 = 3;

/// Blocks have waited without a break since `since` for so long that what the paths carry is known.
fn is_busy(since: Option<Instant>, now: Instant, paths: &Paths) -> bool {
    let rtt = paths
        .usable()
        .map(|(_, path)| path.monitor.smoothed_rtt())
        .max()
        .unwrap_or_default();
    since.is_some_and(|since| {
        now.saturating_duration_since(since) >= BUSY_BEFORE_TRUST.max(rtt * ROUNDS_BEFORE_TRUST)
    })
}

/// The paths are known to carry less than streams ask for.
pub(super) fn is_overloaded(blocks_out: &BlocksOut, now: Instant, paths: &Paths) -> bool {
    is_busy(blocks_out.busy_since, now, paths)
        && blocks_out
            .demand
            .by_importance(now)
            .last()
            .is_some_and(|(_, wanted)| *wanted > paths.bandwidth())
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
    /// The bandwidth was measured under load.
    is_trusted: bool,
    is_overloaded: bool,
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
            is_trusted: is_busy(blocks_out.busy_since, now, paths),
            is_overloaded: is_overloaded(blocks_out, now, paths),
        }
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
            if hurries { 0.0 } else { slack_ratio },
            block.priority,
            max_priority,
            block.unsent_ratio(),
            alpha,
        )
    }

    /// It cannot arrive in time over any path, behind the `ahead` bytes of those that go first.
    pub(super) fn is_hopeless(&self, block: &SendBlock, ahead: u64) -> bool {
        if block.deadline < self.near && !self.can_carry_one_more(block) {
            return true;
        }
        if !self.is_trusted {
            return false;
        }
        // More important blocks keep coming and go first.
        let all = self.bandwidth.bits_per_second().max(1);
        let above = self
            .wanted(|priority| priority < block.priority)
            .bits_per_second();
        let left = all.saturating_sub(above).max(all / 10);
        let mut time = block.deadline.saturating_duration_since(self.now);
        let mut bytes = block.waiting_bytes() as u128;
        if self.is_overloaded && block.is_untouched() {
            time = time.saturating_sub(self.margin(block));
            bytes += u128::from(ahead);
        }
        let deliverable: u64 = self
            .paths
            .usable()
            .map(|(_, path)| {
                let time = time.saturating_sub(path.monitor.present_delay());
                path.monitor.bandwidth().bytes_in(time)
            })
            .fold(0, u64::saturating_add);
        let ours = u128::from(deliverable) * u128::from(left) / u128::from(all);
        bytes > ours
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
