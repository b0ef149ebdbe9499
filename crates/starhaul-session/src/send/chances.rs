//! Each path has an instant after which a fragment sent again over it comes too late for its block. Then, fragments of which nothing was
//! heard though it was time are sent again over another path than the one that keeps them waiting: nothing is declared lost.

use std::time::{Duration, Instant};

use starhaul_paths::PathId;

use super::{
    block::{BlockTimer, SendBlock},
    fragment_bytes,
};
use crate::{
    item::FragmentId,
    paths::{LAST_RESORT, Path, Paths},
    rules::{self, EPSILON, LAST_CHANCE_MARGIN},
    scheduler::{Limit, Scheduler, View},
};

/// A timer that is further away than this part of the time left is looked at again by then: paths become longer, shorter, come and go.
const REVIEW_SHARE: u32 = 2;
/// A crowded block is examined again after so much at the least.
const LEAST_STEP: Duration = Duration::from_millis(1);
/// … and after this part, a 32nd, of the time until its last chance: its fragments may be many.
const MOST_STEPS: u32 = 32;
/// A path that loses so many times as many datagrams in a row as by chance is likelier to lose the next one after a loss.
const IN_A_ROW: f64 = 1.5;
/// Paths that change within less time than this are caught by the margins.
const LEAST_REVIEW: Duration = Duration::from_millis(10);

/// The first timer of a block, or its next after a change: when it can be sent again for the last time over some path.
pub(super) fn next_timer(now: Instant, paths: &Paths, block: &SendBlock) -> (Instant, BlockTimer) {
    let (at, timer) = next_chance(now, paths, block);
    let review = block.deadline.saturating_duration_since(now) / REVIEW_SHARE;
    if timer == BlockTimer::Deadline || review < LEAST_REVIEW || now + review >= at {
        return (at, timer);
    }
    (now + review, BlockTimer::Review)
}

fn next_chance(now: Instant, paths: &Paths, block: &SendBlock) -> (Instant, BlockTimer) {
    let end = (block.deadline, BlockTimer::Deadline);
    let last = block
        .deadline
        .checked_sub(paths.least_delay() + LAST_CHANCE_MARGIN);
    let Some(last) = last.filter(|last| *last > now && block.mode.retransmits()) else {
        return end;
    };
    let bytes = fragment_bytes(block, paths.fragment_capacity());
    let chances = paths.carrying(bytes).filter_map(|(_, path)| {
        let at = block.deadline.checked_sub(reach(now, path, bytes))?;
        (at > now + LAST_CHANCE_MARGIN && at + LAST_CHANCE_MARGIN < last).then_some(at)
    });
    let chance = chances.min().map(|at| (at, BlockTimer::Chance));
    let crowded = next_crowded(now, paths, block, last).map(|at| (at, BlockTimer::Crowded));
    let sooner = [chance, crowded].into_iter().flatten().min();
    sooner.unwrap_or((last, BlockTimer::LastChance))
}

/// When fragments that become doubtful can wait no longer for the `last` chance, for what is under way takes longer to be sent again than is left after
/// that: all of it may have been lost in a row.
fn next_crowded(now: Instant, paths: &Paths, block: &SendBlock, last: Instant) -> Option<Instant> {
    let from = crowded_from(now, paths, block)?;
    let at = match from > now {
        true => from,
        false => {
            let step = (last - now) / MOST_STEPS;
            block.next_doubtful(now)?.max(now + step.max(LEAST_STEP))
        }
    };
    (at < last).then_some(at)
}

/// From when on it would be too late to send all of a block again that is under way, over the path on which that may begin latest; `None` if that is
/// one fragment, for which the last chance is. The last resort does not count while there are others.
fn crowded_from(now: Instant, paths: &Paths, block: &SendBlock) -> Option<Instant> {
    let bytes = block.bytes_at_risk() as u64;
    if bytes <= block.fragment_length()? as u64 {
        return None;
    }
    let fragment = fragment_bytes(block, paths.fragment_capacity());
    let ways = paths.carrying(fragment).filter_map(|(_, path)| {
        let takes = path.monitor.predict_arrival(now, 0, bytes) - now;
        let at = block.deadline.checked_sub(takes + LAST_CHANCE_MARGIN)?;
        Some((path.monitor.cost() < LAST_RESORT, at))
    });
    ways.max().map(|(_, at)| at)
}

/// How long a fragment sent now takes over `path` at the most, as it is now.
fn reach(now: Instant, path: &Path, bytes: u64) -> Duration {
    let arrival = path.monitor.predict_arrival(now, 0, bytes);
    let margin = path
        .monitor
        .arrival_margin()
        .saturating_add(LAST_CHANCE_MARGIN);
    arrival
        .saturating_duration_since(now)
        .saturating_add(margin)
}

/// Queues again what should have been heard of. Before the last chance of all that is what was overdue by the measure of its sending: the
/// measure of a path that pauses grows with the pause. What is only doubtful leaves while it is too much for later, and never in an overload, where it
/// would take the place of other blocks.
pub(super) fn insure(
    now: Instant,
    paths: &Paths,
    timer: BlockTimer,
    block: &mut SendBlock,
    is_overloaded: bool,
) {
    let is_crowded = || crowded_from(now, paths, block).is_some_and(|from| from <= now);
    match timer {
        BlockTimer::Crowded if !is_overloaded && is_crowded() => {
            block.insure(now, |last| last.doubtful_at);
        }
        BlockTimer::Chance | BlockTimer::Crowded => block.insure(now, |last| last.overdue_at),
        _ => {
            let rows = match is_overloaded {
                true => Vec::new(),
                false => rows_in_doubt(now, paths, block),
            };
            block.insure(now, |last| {
                let goes_on =
                    |(path, since): &(PathId, Instant)| *path == last.path && *since <= last.at;
                match rows.iter().any(goes_on) {
                    true => now,
                    false => last.acknowledged_by,
                }
            });
        }
    }
}

/// On paths that lose in a row, what left after something doubtful is likelier lost with it than not, though its acknowledgement is not due: since when
/// on each.
fn rows_in_doubt(now: Instant, paths: &Paths, block: &SendBlock) -> Vec<(PathId, Instant)> {
    block.doubtful_since(now, |path| {
        let loss = paths.get(path).map(|path| path.monitor.loss());
        loss.is_some_and(|loss| loss.beyond_chance() >= IN_A_ROW)
    })
}

/// Queues again what is under way on a path that loses more than a block may, and could not be sent again in time once a loss is known: of
/// short blocks, whose copies cost little, and which have nothing to spare under way.
pub(super) fn insure_unrepairable(now: Instant, paths: &Paths, block: &mut SendBlock) {
    let (mode, deadline) = (block.mode, block.deadline);
    let is_open = mode.codes() && mode.retransmits() && deadline > now;
    if !is_open || !block.is_short() || block.is_insured() {
        return;
    }
    let least_delay = paths.least_delay();
    block.insure(now, |last| {
        let monitor = paths.get(last.path).map(|path| &path.monitor);
        let is_lost_last = monitor.is_some_and(|path| {
            // Acknowledgements came over the silent path, too; now they come over this one.
            let known = last.overdue_at.max(last.at + path.smoothed_rtt());
            !path.is_suspect() && path.loss().feared() > EPSILON && known + least_delay > deadline
        });
        if is_lost_last { now } else { deadline }
    });
}

/// Whether a fragment that waits to be sent again leaves on this path. One that may still arrive gains nothing on the path that keeps it
/// waiting.
pub(super) fn takes_again(
    block: &SendBlock,
    id: FragmentId,
    view: &View<'_>,
    scheduler: &dyn Scheduler,
    bytes: u64,
    limit: Limit,
) -> bool {
    let last = block.last_path(id);
    if block.is_in_flight(id)
        && let Some(affordable) = scheduler.affordable(view, limit)
        && let Some(other) = rules::soonest_other(&affordable, last, bytes, limit.deadline)
    {
        return other == view.path();
    }
    scheduler.takes_retransmission(view, last, bytes, limit)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a failed call is a failed test")]

    use bytes::Bytes;
    use starhaul_fec::Codec;
    use starhaul_paths::PathUpdate;
    use starhaul_units::Bandwidth;

    use super::{super::block::LastSent, *};
    use crate::{
        facts::Purpose,
        item::Item,
        rules,
        scheduler::{Class, Offer},
        thrifty::Thrifty,
        types::{Mode, StreamId},
    };

    const MS: Duration = Duration::from_millis(1);
    const FAST: PathId = PathId(0);
    const SLOW: PathId = PathId(1);

    fn update(rtt: Duration) -> PathUpdate {
        PathUpdate {
            cwnd: 1 << 20,
            bytes_in_flight: 0,
            bandwidth: Bandwidth::from_mbit(10),
            smoothed_rtt: rtt,
            min_rtt: rtt,
            max_datagram: 1_200,
        }
    }

    /// A path with 20 ms there and back, and one with 600 ms.
    fn paths(now: Instant) -> Paths {
        let mut paths = Paths::default();
        for (id, rtt) in [(FAST, 20 * MS), (SLOW, 600 * MS)] {
            paths.add(now, id, 0.0, update(rtt));
        }
        paths
    }

    /// A message that may take 800 ms and left over the fast path, which acknowledges within 30 ms or is overdue.
    fn message(now: Instant) -> (SendBlock, FragmentId) {
        message_over(now, Mode::Retransmit, FAST, [20, 30])
    }

    fn message_over(
        now: Instant,
        mode: Mode,
        path: PathId,
        [acknowledged, overdue]: [u32; 2],
    ) -> (SendBlock, FragmentId) {
        let mut block = SendBlock::new(
            (StreamId(1), 0),
            Bytes::from_static(&[7; 200]),
            mode,
            now,
            now + 800 * MS,
            1,
            0.0,
        );
        block.split(&mut Codec::new(), 1_000, |_| 0).unwrap();
        let fragment = block.next_fresh().unwrap();
        let sent = LastSent {
            path,
            at: now,
            acknowledged_by: now + acknowledged * MS,
            doubtful_at: now + overdue * MS,
            overdue_at: now + overdue * MS,
        };
        block.on_sent(fragment, sent, Purpose::Data);
        (block, fragment)
    }

    #[test]
    fn every_path_has_its_last_chance_and_the_fastest_the_last_of_all() {
        let now = Instant::now();
        let (paths, (block, _)) = (paths(now), message(now));
        let (review, timer) = next_timer(now, &paths, &block);
        assert_eq!((review, timer), (now + 400 * MS, BlockTimer::Review));
        let (slow, timer) = next_timer(review, &paths, &block);
        assert_eq!(timer, BlockTimer::Chance);
        assert!(
            (490 * MS..500 * MS).contains(&(slow - now)),
            "{:?}",
            slow - now
        );
        let (fast, timer) = next_chance(slow, &paths, &block);
        assert_eq!(timer, BlockTimer::LastChance);
        assert!(
            (780 * MS..790 * MS).contains(&(fast - now)),
            "{:?}",
            fast - now
        );
        let end = (now + 800 * MS, BlockTimer::Deadline);
        assert_eq!(next_timer(fast, &paths, &block), end);
    }

    #[test]
    fn what_is_overdue_leaves_over_the_path_that_does_not_keep_it_waiting() {
        let now = Instant::now();
        let (paths, (mut block, fragment)) = (paths(now), message(now));
        insure(now + 25 * MS, &paths, BlockTimer::Chance, &mut block, false);
        assert_eq!(block.next_retransmission(), None, "it is not overdue yet");
        let (chance, timer) = next_chance(now, &paths, &block);
        insure(chance, &paths, timer, &mut block, false);
        assert_eq!(block.next_retransmission(), Some(fragment));
        let limit = Limit {
            deadline: block.deadline,
            class: super::super::class_of(&block),
            is_spare: false,
        };
        let takes = |paths: &Paths, path| {
            let view = View::new(chance, paths, path, paths.overview(path));
            takes_again(&block, fragment, &view, &rules::Rules, 240, limit)
        };
        assert_eq!([FAST, SLOW].map(|path| takes(&paths, path)), [false, true]);
        // The last resort would be sooner.
        let mut paths = paths;
        let last = PathId(2);
        paths.add(now, last, crate::paths::LAST_RESORT, update(50 * MS));
        assert_eq!([SLOW, last].map(|path| takes(&paths, path)), [true, false]);
    }

    /// Of a second's budget a fifth is left, and blocks of two priorities are offered: the less important ones leave a third.
    #[test]
    fn what_is_overdue_takes_nothing_of_what_is_kept_for_more_important_blocks() {
        let start = Instant::now();
        let now = start + 35 * MS;
        let (mut paths, (mut block, fragment)) = (paths(start), message(start));
        insure(now, &paths, BlockTimer::Chance, &mut block, false);
        assert_eq!(block.next_retransmission(), Some(fragment));
        let dear = PathId(2);
        paths.add(start, dear, 1.0, update(60 * MS));
        paths.set_budget(start, Bandwidth::from_kbit(100));
        paths.pay(now, dear, 10_000);
        let mut scheduler = Thrifty::new(Box::new(rules::Rules));
        let offer = super::super::offer_of(&block);
        let limit = |priority| Limit {
            deadline: block.deadline,
            class: Class {
                priority,
                ..offer.class
            },
            is_spare: false,
        };
        for priority in [0, 1] {
            let class = limit(priority).class;
            scheduler.on_offered(now, Offer { class, ..offer });
        }
        let takes = |priority| {
            [FAST, SLOW, dear].map(|path| {
                let view = View::new(now, &paths, path, paths.overview(path));
                takes_again(&block, fragment, &view, &scheduler, 240, limit(priority))
            })
        };
        assert_eq!(takes(0), [false, false, true]);
        assert_eq!(takes(1), [false, true, false]);
    }

    /// Each tenth datagram of the slow path was lost.
    fn lossy_paths(now: Instant) -> Paths {
        let mut paths = paths(now);
        let slow = &mut paths.get_mut(SLOW).unwrap().monitor;
        let sent: Vec<_> = (0..200)
            .map(|_| slow.on_sent(now, 200, Item::Probe, true))
            .collect();
        for sequence in sent {
            let acked = now + 600 * MS;
            if sequence % 10 == 0 {
                slow.on_lost(acked, sequence);
            } else {
                slow.on_acked(acked, sequence, sequence, None, &mut Vec::new());
            }
        }
        assert!(slow.loss().window_max > 0.05);
        paths
    }

    #[test]
    fn what_a_silent_path_cannot_repair_any_more_leaves_once_more() {
        let start = Instant::now();
        let now = start + 700 * MS;
        let insured = |paths: &Paths, mode| {
            let (mut block, fragment) = message_over(now, mode, SLOW, [310, 350]);
            insure_unrepairable(now + 50 * MS, paths, &mut block);
            block.next_retransmission() == Some(fragment)
        };
        let mut paths = lossy_paths(start);
        let repairs = Mode::FecRetransmit;
        assert!(!insured(&paths, repairs), "the fast path is in time");
        paths.remove(FAST);
        assert!(insured(&paths, repairs));
        assert!(!insured(&paths, Mode::Retransmit), "nothing in addition");
    }

    /// A block of `fragments` and redundancy, of which the data left over the fast path, each 10 ms after the one before.
    fn block_of(now: Instant, fragments: usize, redundancy: u8) -> SendBlock {
        let data = vec![7; 1_000 * fragments].into();
        let (key, deadline) = ((StreamId(1), 0), now + 800 * MS);
        let mut block = SendBlock::new(key, data, Mode::FecRetransmit, now, deadline, 1, 1.0);
        block
            .split(&mut Codec::new(), 1_000, |_| redundancy)
            .unwrap();
        let mut at = now;
        while let Some(fragment) = block.next_fresh() {
            block.on_sent(fragment, sent_at(at), Purpose::Data);
            at += 10 * MS;
        }
        block
    }

    fn sent_at(at: Instant) -> LastSent {
        LastSent {
            path: FAST,
            at,
            acknowledged_by: at + 20 * MS,
            doubtful_at: at + 22 * MS,
            overdue_at: at + 30 * MS,
        }
    }

    fn fragment(index: u8) -> FragmentId {
        FragmentId {
            cut: 0,
            code: 0,
            index,
        }
    }

    /// Spare redundancy leaves only where nothing else wants a path.
    #[test]
    fn redundancy_that_may_never_leave_saves_no_fragment_its_last_chance() {
        let now = Instant::now();
        let paths = paths(now);
        let again = |is_urgent| {
            let mut block = block_of(now, 1, 1);
            block.redundancy_is_urgent = is_urgent;
            let at = now + 790 * MS;
            insure(at, &paths, BlockTimer::LastChance, &mut block, false);
            block.next_retransmission()
        };
        assert_eq!(again(false), Some(fragment(0)));
        assert_eq!(again(true), None, "it leaves by itself");
    }

    #[test]
    fn a_fragment_that_is_sent_again_while_it_may_still_come_counts_once() {
        let now = Instant::now();
        // The first is overdue, the second not yet; then both are lost, the first before or after it has left again.
        let paths = paths(now);
        for leaves_first in [false, true] {
            let mut block = block_of(now, 2, 0);
            insure(now + 35 * MS, &paths, BlockTimer::Chance, &mut block, false);
            assert_eq!(block.next_retransmission(), Some(fragment(0)));
            block.on_lost(fragment(0));
            if leaves_first {
                block.on_sent(fragment(0), sent_at(now + 36 * MS), Purpose::Retransmission);
            }
            assert!(block.on_lost(fragment(1)), "{leaves_first}");
            assert_eq!(block.bytes_in_flight(), 1_000 * usize::from(leaves_first));
        }
    }

    /// 16 fragments take 13 ms over the fast path: one after the other they would be late if the first left at the last chance.
    #[test]
    fn what_was_lost_in_a_row_leaves_as_much_sooner_as_it_takes_longer() {
        let now = Instant::now();
        let mut paths = paths(now);
        paths.remove(SLOW);
        let mut block = block_of(now, 16, 0);
        let chance = next_chance(now + 500 * MS, &paths, &block);
        assert_eq!(chance.1, BlockTimer::Crowded);
        let early = block.deadline - chance.0;
        assert!((20 * MS..30 * MS).contains(&early), "{early:?}");
        insure(chance.0, &paths, BlockTimer::Crowded, &mut block, false);
        let mut left = 0;
        while let Some(id) = block.next_retransmission() {
            block.on_sent(id, sent_at(chance.0), Purpose::Retransmission);
            left += 1;
        }
        assert_eq!(left, 16);
        // Those that were heard of wait for nothing, and the one that is left for its last chance.
        let mut block = block_of(now, 16, 0);
        for index in 1..16 {
            block.on_acked(fragment(index), false);
        }
        let (last, timer) = next_chance(now + 500 * MS, &paths, &block);
        assert_eq!(timer, BlockTimer::LastChance);
        assert!(last > chance.0 + 10 * MS);
    }

    /// Of ten fragments, 10 ms apart, nothing was heard since the fourth when the seventh could wait no longer: those behind it left into the same
    /// row of losses.
    #[test]
    fn the_last_chance_takes_what_left_behind_something_doubtful_where_losses_come_in_a_row() {
        let start = Instant::now();
        let now = start + 700 * MS;
        let left = |in_a_row: u64, heard: &[u8]| {
            let mut paths = paths(start);
            let fast = &mut paths.get_mut(FAST).unwrap().monitor;
            for number in 0..400 {
                fast.on_sent(start, 200, Item::Probe, true);
                if number % 100 < in_a_row {
                    fast.on_lost(start + 20 * MS, number);
                } else {
                    fast.on_acked(start + 20 * MS, number, number, None, &mut Vec::new());
                }
            }
            let mut block = block_of(now, 10, 0);
            for index in heard {
                block.on_acked(fragment(*index), false);
            }
            // Of the seventh the acknowledgement was due, the eighth left 19 ms ago.
            let at = now + 89 * MS;
            insure(at, &paths, BlockTimer::LastChance, &mut block, false);
            let mut left = Vec::new();
            while let Some(id) = block.next_retransmission() {
                block.on_sent(id, sent_at(at), Purpose::Retransmission);
                left.push(id.index);
            }
            left
        };
        assert_eq!(left(1, &[0, 1, 2, 3]), [4, 5, 6], "by chance");
        assert_eq!(left(10, &[0, 1, 2, 3]), [4, 5, 6, 7, 8, 9]);
        // The row has ended.
        assert_eq!(left(10, &[0, 1, 2, 3, 7]), [4, 5, 6]);
    }

    /// All of a block left 45 ms before its deadline: 22 ms later it is doubtful, and cannot wait until it is overdue.
    #[test]
    fn what_is_doubtful_waits_only_while_there_is_an_overload() {
        let start = Instant::now();
        let mut paths = paths(start);
        paths.remove(SLOW);
        let block = || {
            let mut block = block_of(start, 16, 0);
            let sent = block.deadline - 45 * MS;
            for index in 0..16 {
                block.on_sent(fragment(index), sent_at(sent), Purpose::Query);
            }
            block
        };
        let mut held_back = block();
        let (key, deadline) = (held_back.key, held_back.deadline);
        let doubtful = deadline - 23 * MS;
        insure(doubtful, &paths, BlockTimer::Crowded, &mut held_back, true);
        assert_eq!(held_back.next_retransmission(), None);
        // Others waited when blocks were weighed last, and have left since.
        let mut blocks = super::super::BlocksOut::new(start, 0.5, 1_000);
        blocks.order = super::super::pick::Order::overloaded();
        blocks.insert(deadline - 44 * MS, &paths, block());
        let mut again_at = None;
        while let Some(at) = blocks.next_expiry()
            && again_at.is_none()
        {
            blocks.expire(at, &paths);
            let block = blocks.get(key);
            again_at = block.and_then(SendBlock::next_retransmission).map(|_| at);
        }
        assert_eq!(again_at.map(|at| deadline - at), Some(23 * MS));
    }

    /// The fast path takes 10 ms when a block begins, and 100 when its end comes near.
    #[test]
    fn the_last_chance_moves_with_the_paths() {
        let now = Instant::now();
        let mut paths = paths(now);
        paths.remove(SLOW);
        let block = block_of(now, 1, 0);
        let deadline = block.deadline;
        let mut blocks = super::super::BlocksOut::new(now, 0.5, 1_000);
        let key = block.key;
        blocks.insert(now, &paths, block);
        let mut again_at = None;
        while let Some(at) = blocks.next_expiry()
            && again_at.is_none()
        {
            let fast = &mut paths.get_mut(FAST).unwrap().monitor;
            if at > now + 100 * MS {
                fast.update(at, update(200 * MS));
            }
            blocks.expire(at, &paths);
            let block = blocks.get(key);
            again_at = block.and_then(SendBlock::next_retransmission).map(|_| at);
        }
        let left = again_at.map(|at| deadline - at);
        assert!(
            left.is_some_and(|left| (100 * MS..120 * MS).contains(&left)),
            "{left:?}"
        );
    }
}
