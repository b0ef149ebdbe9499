//! What arrived, per path, and when the peer must be told (docs/deadlines.md "Retransmission": acknowledgements are ranges with
//! receive timestamps, batched, sent over the fastest path and repeated).

use std::{
    collections::VecDeque,
    time::{Duration, Instant},
};

use rustc_hash::FxHashMap;
use starhaul_paths::RangeSet;

use crate::{
    types::{BlockId, StreamId},
    wire::{BlockAck, MAX_ACK_BLOCKS, unwrap},
};

/// An acknowledgement waits at most this long for more to report.
const MAX_ACK_DELAY: Duration = Duration::from_millis(1);
/// … or for this many datagrams: of as many a sender bears at the most that they overtake one. What comes out of order is reported at once, and the
/// transport below acknowledges each batch besides; each report costs a packet of that, too.
const MAX_UNREPORTED: u32 = 256;
/// The last acknowledgement of a burst is said again after this long, before its sender takes for lost what it tells, if that is more
/// than a probe.
const FIRST_REPEAT_AFTER: Duration = MAX_ACK_DELAY;
/// … and once more after this long, which a gap in time does not take as well.
const REPEAT_AFTER: Duration = Duration::from_millis(5);
/// So often an acknowledgement is said again if no news come.
const REPEATS: u8 = 2;
/// How often each completed block is named.
const BLOCK_REPEATS: u8 = 3;
/// So many blocks are remembered for a sender that asks for them again, the last that became whole.
const MAX_REMEMBERED: usize = 1 << 13;
/// Ranges kept per path; only the newest travel. What is older is forgotten, never taken as received: the peer would drop
/// bytes that did not arrive. A duplicate of it is read again, which changes nothing.
const MAX_RANGES: usize = 64;
/// So many last rows of missing datagrams count, and so long: of datagrams that are lost each by itself, 20 % of them, 1.25 are missing in a
/// row. One row alone may be a few probes of a size that does not pass.
const ROWS_COUNTED: f64 = 8.0;
const ROWS_FORGOTTEN: Duration = Duration::from_secs(60);
const ROWS: f64 = 2.0;
/// Longer rows count as this long.
const MOST_MISSING: u64 = 8;
/// A row this long is a pause, or a path with a former life.
const OUTAGE: u64 = 64;

/// Datagrams received on one path.
#[derive(Debug)]
pub(crate) struct ReceiveLog {
    pub(crate) ranges: RangeSet,
    /// When the datagram with the greatest number arrived.
    pub(crate) newest_at: Option<Instant>,
    /// The mean number of datagrams missing in a row, of the last few rows, and when the last one was seen.
    missing: f64,
    missing_at: Option<Instant>,
}

/// What a datagram's number says about it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Arrival {
    Next,
    /// Others before it are missing or came later.
    OutOfOrder,
    Duplicate,
}

impl ReceiveLog {
    pub(crate) const fn new() -> Self {
        Self {
            ranges: RangeSet::recent(MAX_RANGES),
            newest_at: None,
            missing: 1.0,
            missing_at: None,
        }
    }

    /// Whether datagrams go missing, or are overtaken, several in a row.
    pub(crate) fn misses_rows(&self, now: Instant) -> bool {
        let is_recent = |at: Instant| now.saturating_duration_since(at) < ROWS_FORGOTTEN;
        self.missing_at.is_some_and(is_recent) && self.missing >= ROWS
    }

    /// Whether this number follows the greatest one.
    pub(crate) fn is_next(&self, wire_sequence: u32) -> bool {
        let end = self.ranges.end();
        unwrap(wire_sequence, end) == end
    }

    /// So many datagrams arrived, with the numbers that follow the greatest one.
    pub(crate) fn insert_next(&mut self, now: Instant, datagrams: u32) {
        let end = self.ranges.end();
        let new = self
            .ranges
            .insert(end, end.saturating_add(datagrams.into()));
        if new > 0 {
            self.newest_at = Some(now);
        }
    }

    pub(crate) fn insert(&mut self, now: Instant, wire_sequence: u32) -> Arrival {
        let end = self.ranges.end();
        let sequence = unwrap(wire_sequence, end);
        if self.ranges.insert(sequence, sequence.saturating_add(1)) == 0 {
            return Arrival::Duplicate;
        }
        let row = sequence.saturating_sub(end);
        if (1..OUTAGE).contains(&row) && self.newest_at.is_some() {
            #[expect(clippy::cast_precision_loss, reason = "a mean of small numbers")]
            let row = row.min(MOST_MISSING) as f64;
            self.missing += (row - self.missing) / ROWS_COUNTED;
            self.missing_at = Some(now);
        }
        if sequence >= end {
            self.newest_at = Some(now);
        }
        if sequence == end {
            Arrival::Next
        } else {
            Arrival::OutOfOrder
        }
    }
}

/// When to acknowledge, for all paths together.
#[derive(Debug, Default)]
pub(crate) struct AckSchedule {
    unreported: u32,
    due: Option<Instant>,
    repeat: Option<Instant>,
    /// Repetitions since the last news, and whether they may tell of data.
    repeats: u8,
    is_urgent: bool,
    /// When the last one left.
    last: Option<Instant>,
    /// Completed blocks that have not been named yet.
    unnamed: VecDeque<BlockAck>,
    /// Those that have, and how often they are to be named again.
    named: VecDeque<(BlockAck, u8)>,
    /// The peer chooses their numbers; those that collide cost it and us no more than a look through all that are remembered.
    whole: FxHashMap<(StreamId, BlockId), BlockAck>,
    /// Keys of `whole`, oldest first.
    remembered: VecDeque<(StreamId, BlockId)>,
}

impl AckSchedule {
    /// A datagram arrived that wants an acknowledgement; `at_once` when waiting would delay a recovery.
    pub(crate) fn on_arrival(&mut self, now: Instant, at_once: bool) {
        self.on_arrivals(now, 1, at_once);
    }

    /// The same of so many, at least one.
    pub(crate) fn on_arrivals(&mut self, now: Instant, datagrams: u32, at_once: bool) {
        self.unreported = self.unreported.saturating_add(datagrams);
        self.is_urgent = true;
        let due = if at_once || self.unreported >= MAX_UNREPORTED {
            now
        } else {
            now + MAX_ACK_DELAY
        };
        self.due = Some(self.due.map_or(due, |earlier| earlier.min(due)));
    }

    /// A probe arrived, which waits for nothing.
    pub(crate) fn on_probe(&mut self, now: Instant) {
        self.unreported = self.unreported.saturating_add(1);
        self.due = Some(now);
    }

    /// A block is complete; the sender learns it at once, but of many that are complete one after the other together.
    pub(crate) fn on_block(&mut self, now: Instant, block: BlockAck) {
        self.name(block);
        self.is_urgent = true;
        let mut at = self.last.map_or(now, |last| now.max(last + MAX_ACK_DELAY));
        if self.unnamed.len() >= MAX_ACK_BLOCKS {
            // As many as one acknowledgement names.
            at = now;
        }
        self.due = Some(self.due.map_or(at, |due| due.min(at)));
        let key = (block.stream, block.block);
        if self.whole.insert(key, block).is_none() {
            self.remembered.push_back(key);
        }
        if self.remembered.len() > MAX_REMEMBERED
            && let Some(oldest) = self.remembered.pop_front()
        {
            self.whole.remove(&oldest);
        }
    }

    /// A fragment came of a block that has ended here. If it ended whole, the sender, who seems not to know, is told again.
    pub(crate) fn on_query(&mut self, now: Instant, stream: StreamId, block: BlockId) {
        let Some(whole) = self.whole.get(&(stream, block)).copied() else {
            return;
        };
        let is_it = |queued: &BlockAck| (queued.stream, queued.block) == (stream, block);
        let is_queued =
            self.unnamed.iter().any(is_it) || self.named.iter().any(|(queued, _)| is_it(queued));
        if !is_queued {
            self.due = Some(now);
            self.name(whole);
        }
    }

    /// Names a block in the next acknowledgements.
    fn name(&mut self, block: BlockAck) {
        self.unnamed.push_back(block);
        // Their sender can ask for no older ones either.
        if self.unnamed.len() > MAX_REMEMBERED {
            self.unnamed.pop_front();
        }
    }

    /// When the next acknowledgement should leave.
    pub(crate) fn due(&self) -> Option<Instant> {
        match (self.due, self.repeat) {
            (Some(due), Some(repeat)) => Some(due.min(repeat)),
            (due, repeat) => due.or(repeat),
        }
    }

    /// When the next one that says something new should leave.
    pub(crate) fn news_due(&self) -> Option<Instant> {
        self.due
    }

    /// It is a repetition that is due, not news.
    pub(crate) fn is_repeat(&self) -> bool {
        self.due.is_none()
    }

    /// An acknowledgement leaves now; returns the blocks it names.
    pub(crate) fn take(&mut self, now: Instant) -> Vec<BlockAck> {
        let is_news = self.due.take().is_some();
        self.unreported = 0;
        self.last = Some(now);
        let news = self.unnamed.len().min(MAX_ACK_BLOCKS);
        let mut named: Vec<BlockAck> = self.unnamed.drain(..news).collect();
        let again = self.named.len().min(MAX_ACK_BLOCKS - news);
        for (block, left) in self.named.drain(..again).collect::<Vec<_>>() {
            named.push(block);
            if left > 1 {
                self.named.push_back((block, left - 1));
            }
        }
        let new = named.iter().take(news);
        self.named
            .extend(new.map(|block| (*block, BLOCK_REPEATS - 1)));
        let surplus = self.named.len().saturating_sub(4 * MAX_ACK_BLOCKS);
        self.named.drain(..surplus);
        if !self.unnamed.is_empty() {
            self.due = Some(now);
        }
        let is_urgent = std::mem::take(&mut self.is_urgent);
        self.repeats = match is_news {
            true => u8::from(!is_urgent),
            false => self.repeats.saturating_add(1),
        };
        self.repeat = match self.repeats {
            0 => Some(now + FIRST_REPEAT_AFTER),
            repeats => (repeats < REPEATS || !self.named.is_empty()).then(|| now + REPEAT_AFTER),
        };
        named
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::types::{BlockId, StreamId};

    #[test]
    fn the_last_acknowledgement_is_said_three_times_at_once_and_over_a_gap_in_time() {
        let start = Instant::now();
        let mut schedule = AckSchedule::default();
        schedule.on_arrival(start, false);
        assert_eq!(schedule.due(), Some(start + MAX_ACK_DELAY));
        let block = BlockAck {
            stream: StreamId(2),
            block: BlockId(0),
            completed_micros: 0,
            recovered: false,
        };
        schedule.on_block(start, block);
        assert_eq!(schedule.due(), Some(start));
        assert_eq!(schedule.take(start), [block]);
        let first = start + FIRST_REPEAT_AFTER;
        assert_eq!(schedule.due(), Some(first));
        assert!(schedule.is_repeat());
        assert_eq!(schedule.take(first), [block]);
        assert_eq!(schedule.due(), Some(first + REPEAT_AFTER));
        assert_eq!(schedule.take(first + REPEAT_AFTER), [block]);
        assert_eq!(schedule.due(), None);
        schedule.on_arrival(start, true);
        for at in [start, first, first + REPEAT_AFTER] {
            assert_eq!(schedule.due(), Some(at));
            assert_eq!(schedule.take(at), []);
        }
        assert_eq!(schedule.due(), None);
    }

    #[test]
    fn what_arrives_in_order_is_reported_once_a_millisecond_and_disorder_at_once() {
        let start = Instant::now();
        let mut schedule = AckSchedule::default();
        for _ in 1..MAX_UNREPORTED {
            schedule.on_arrival(start, false);
            assert_eq!(schedule.due(), Some(start + MAX_ACK_DELAY));
        }
        schedule.on_arrival(start, false);
        assert_eq!(schedule.due(), Some(start), "as many as may wait");
        schedule.take(start);
        schedule.on_arrival(start, false);
        schedule.on_arrival(start, true);
        assert_eq!(schedule.due(), Some(start));
    }

    #[test]
    fn rows_of_missing_datagrams_are_seen_and_forgotten() {
        let start = Instant::now();
        let after_every = |kept: u32, missing: u32| {
            let mut log = ReceiveLog::new();
            for number in (0..600).filter(|number| number % (kept + missing) < kept) {
                log.insert(start, number);
            }
            log
        };
        assert!(!after_every(4, 1).misses_rows(start));
        let log = after_every(20, 5);
        assert!(log.misses_rows(start));
        assert!(!log.misses_rows(start + ROWS_FORGOTTEN));
        assert!(!after_every(600, 0).misses_rows(start));
        assert!(!after_every(400, 20).misses_rows(start), "a single row");
        // Neither the first number nor a pause is a row.
        let mut log = ReceiveLog::new();
        for number in [1_000, 1_001, 1_100, 1_200, 1_300] {
            log.insert(start, number);
        }
        assert!(!log.misses_rows(start));
    }

    #[test]
    fn blocks_that_are_complete_one_after_the_other_are_named_together() {
        let start = Instant::now();
        let mut schedule = AckSchedule::default();
        let block = |number| BlockAck {
            stream: StreamId(2),
            block: BlockId(number),
            completed_micros: 0,
            recovered: false,
        };
        schedule.on_block(start, block(0));
        assert_eq!(schedule.take(start), [block(0)]);
        for number in 1..4 {
            let now = start + MAX_ACK_DELAY / 8 * number;
            schedule.on_arrival(now, false);
            schedule.on_block(now, block(number));
            assert_eq!(schedule.due(), Some(start + MAX_ACK_DELAY));
        }
        let named = schedule.take(start + MAX_ACK_DELAY);
        // What was named already comes last.
        assert_eq!(named, [1, 2, 3, 0].map(block));
        // As many as one acknowledgement names do not wait for more.
        for number in 4..64 {
            schedule.on_block(start + MAX_ACK_DELAY, block(number));
        }
        assert_eq!(schedule.due(), Some(start + MAX_ACK_DELAY));
        // All of them are, at once.
        let mut named = Vec::new();
        while schedule.due() == Some(start + MAX_ACK_DELAY) {
            named.extend(schedule.take(start + MAX_ACK_DELAY));
        }
        assert!(
            (4..64).all(|number| named.contains(&block(number))),
            "{named:?}"
        );
        // After a pause the next is named at once.
        while let Some(due) = schedule.due() {
            schedule.take(due);
        }
        let later = start + 100 * MAX_ACK_DELAY;
        schedule.on_block(later, block(64));
        assert_eq!(schedule.due(), Some(later));
    }

    #[test]
    fn duplicates_and_gaps_are_told_apart() {
        let now = Instant::now();
        let mut log = ReceiveLog::new();
        let arrivals = [0, 1, 1, 4, 2, 5].map(|sequence| log.insert(now, sequence));
        use Arrival::{Duplicate, Next, OutOfOrder};
        assert_eq!(
            arrivals,
            [Next, Next, Duplicate, OutOfOrder, OutOfOrder, Next]
        );
        assert_eq!(log.ranges.iter_rev().collect::<Vec<_>>(), [(4, 5), (0, 2)]);
    }

    /// Also where the number on the wire begins anew.
    #[test]
    fn datagrams_that_follow_are_the_same_one_by_one_and_together() {
        let now = Instant::now();
        for first in [0, 7, u32::MAX - 2] {
            let [mut single, mut together] = [ReceiveLog::new(), ReceiveLog::new()];
            let mut schedules = [AckSchedule::default(), AckSchedule::default()];
            for log in [&mut single, &mut together] {
                log.ranges.insert(0, first.into());
            }
            for count in [1, 5, 300] {
                for _ in 0..count {
                    let end = crate::wire::wrap(single.ranges.end());
                    assert!(single.is_next(end) && !single.is_next(end.wrapping_add(1)));
                    assert_eq!(single.insert(now, end), Arrival::Next);
                    schedules[0].on_arrival(now, false);
                }
                together.insert_next(now, count);
                schedules[1].on_arrivals(now, count, false);
                let [one, other] = [&single, &together].map(|log| {
                    let ranges: Vec<_> = log.ranges.iter_rev().collect();
                    (ranges, log.newest_at)
                });
                assert_eq!(one, other);
                assert_eq!(schedules[0].due(), schedules[1].due());
            }
        }
    }

    #[test]
    fn what_is_older_than_the_bound_remembers_is_no_duplicate() {
        let now = Instant::now();
        let mut log = ReceiveLog::new();
        for sequence in (0..400).step_by(2) {
            log.insert(now, sequence);
        }
        assert_eq!(log.insert(now, 1), Arrival::OutOfOrder);
        assert!(
            !log.ranges.contains(3),
            "never received, so never acknowledged"
        );
    }
}
