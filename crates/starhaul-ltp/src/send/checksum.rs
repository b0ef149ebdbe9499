//! CRC32C of a red part, computed while its data are in the processor's cache.

use super::{Plan, Run, SendSession, Source};
use crate::segment::DataKind;

/// Bytes whose checksum is computed at once: enough for its speed, and still in the cache when they are copied.
const CHECKED_AT_ONCE: u64 = 64 << 10;
/// Bytes from which copying a segment reads memory as fast as the checksum does.
const LONG_COPY: u64 = 2 << 10;

impl SendSession {
    /// CRC32C of the red part, when the plan's segment ends it; of the segment itself, when that is green.
    pub(crate) fn checksum(&self, plan: &Plan) -> Option<u32> {
        match plan.kind {
            DataKind::Red | DataKind::RedCheckpoint => None,
            DataKind::Green | DataKind::GreenEndOfBlock => Some(crc32c::crc32c(self.data(plan))),
            DataKind::RedEnd | DataKind::RedEndOfBlock => Some(self.red_checksum()),
        }
    }

    /// Adds to the checksum what a plan of a short segment sends for the first time, and some data behind it: one long
    /// read from memory is faster than one for each segment, and the copy of the segment finds the data in the cache. That holds
    /// also where the checksum is known.
    pub(crate) fn check_ahead(&mut self, plan: &Plan) {
        if plan.source == Source::Fresh {
            self.check_before(plan.end, plan.end - plan.start);
        }
    }

    /// The same of a run of segments.
    pub(crate) fn check_run_ahead(&mut self, run: &Run) {
        self.check_before(run.end(), run.bytes);
    }

    /// Adds to the checksum what leaves before `end` in segments of so many bytes, if these are short.
    fn check_before(&mut self, end: u64, bytes: u64) {
        if bytes < LONG_COPY && end.min(self.red) > self.checked {
            let until = end.max(self.checked + CHECKED_AT_ONCE);
            if self.known.is_some() {
                self.block.fetch(self.checked, until.min(self.red));
            }
            self.check(until);
        }
    }

    /// Adds the red data before `until` to the checksum, unless that is known.
    fn check(&mut self, until: u64) {
        let until = until.min(self.red);
        if self.known.is_none() {
            self.crc = self.block.checksum(self.crc, self.checked, until);
        }
        self.checked = self.checked.max(until);
    }

    /// Adds to the checksum what has left, once that is much: the copies of long segments have just read it.
    pub(super) fn check_sent(&mut self) {
        if self.next >= self.checked + CHECKED_AT_ONCE {
            self.check(self.next);
        }
    }

    /// That of the red part as a whole.
    pub(super) fn red_checksum(&self) -> u32 {
        let computed = || self.block.checksum(self.crc, self.checked, self.red);
        self.known.unwrap_or_else(computed)
    }
}
