//! Bytes of a reliable stream that were lost and have to leave again.

use std::collections::VecDeque;

use starhaul_paths::RangeSet;

/// Lost ranges, lowest first: the reader waits for the lowest byte.
#[derive(Debug, Default)]
pub(super) struct Lost {
    ranges: VecDeque<(u64, u64)>,
    bytes: u64,
}

impl Lost {
    pub(super) fn insert(&mut self, (start, end): (u64, u64)) {
        let at = self.ranges.partition_point(|range| range.0 < start);
        self.ranges.insert(at, (start, end));
        self.bytes += end - start;
    }

    pub(super) fn clear(&mut self) {
        *self = Self::default();
    }

    pub(super) fn is_empty(&self) -> bool {
        self.ranges.is_empty()
    }

    /// All of them, those included that were acknowledged late and have not been found yet.
    pub(super) const fn bytes(&self) -> u64 {
        self.bytes
    }

    /// The lowest bytes that are missing still, at most `capacity` of them.
    pub(super) fn first(&mut self, acked: &RangeSet, capacity: u64) -> Option<(u64, u64)> {
        while let Some(&(start, end)) = self.ranges.front() {
            if let Some((start, end)) = acked.gaps(start, end).next() {
                return Some((start, end.min(start + capacity)));
            }
            self.take_first(end);
        }
        None
    }

    /// The highest ones.
    pub(super) fn last(&mut self, acked: &RangeSet, capacity: u64) -> Option<(u64, u64)> {
        while let Some(&(start, end)) = self.ranges.back() {
            if let Some((start, end)) = acked.gaps(start, end).last() {
                return Some((start.max(end.saturating_sub(capacity)), end));
            }
            self.take_last(start);
        }
        None
    }

    /// Those of the first range below `end` leave.
    pub(super) fn take_first(&mut self, end: u64) {
        let Some(front) = self.ranges.front_mut() else {
            return;
        };
        let start = end.clamp(front.0, front.1);
        self.bytes -= start - front.0;
        front.0 = start;
        if front.0 == front.1 {
            self.ranges.pop_front();
        }
    }

    /// Those of the last range from `start` on leave.
    pub(super) fn take_last(&mut self, start: u64) {
        let Some(back) = self.ranges.back_mut() else {
            return;
        };
        let end = start.clamp(back.0, back.1);
        self.bytes -= back.1 - end;
        back.1 = end;
        if back.0 == back.1 {
            self.ranges.pop_back();
        }
    }
}
