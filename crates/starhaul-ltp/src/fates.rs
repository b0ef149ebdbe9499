//! What became of segments that were sent for the first time, by their size: counted once each, with the first report on them.

use std::collections::VecDeque;

use crate::ranges::RangeSet;

/// Runs of segments of one size that are remembered: of a block they are as many as sizes were changed within what is under way.
const MOST_RUNS: usize = 1024;

/// Segments of one size on which a report came.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SegmentFate {
    /// Bytes of data in each.
    pub(crate) data: usize,
    /// Segments that were sent.
    pub(crate) sent: u64,
    /// Segments among them that the report did not claim.
    pub(crate) lost: u64,
}

/// Segments of a block on which no report came yet.
#[derive(Debug, Default)]
pub(crate) struct Fates {
    runs: VecDeque<Run>,
    /// Reports told of the bytes before this one.
    judged: u64,
}

/// Segments of equal size, one behind the other.
#[derive(Clone, Copy, Debug)]
struct Run {
    start: u64,
    end: u64,
    data: usize,
}

impl Fates {
    /// A segment leaves for the first time.
    pub(crate) fn sent(&mut self, start: u64, end: u64) {
        self.sent_run(start, end, end.saturating_sub(start));
    }

    /// Segments of so many bytes each leave for the first time, one behind the other.
    pub(crate) fn sent_run(&mut self, start: u64, end: u64, bytes: u64) {
        let data = usize::try_from(bytes).unwrap_or(0);
        if let Some(last) = self.runs.back_mut()
            && last.end == start
            && last.data == data
        {
            last.end = end;
        } else if data > 0 && self.runs.len() < MOST_RUNS {
            self.runs.push_back(Run { start, end, data });
        }
    }

    /// A report on `lower..upper` came, after which these bytes are acknowledged. What an earlier report told is left out.
    pub(crate) fn judge(&mut self, acked: &RangeSet, lower: u64, upper: u64) -> Vec<SegmentFate> {
        let mut fates: Vec<SegmentFate> = Vec::new();
        let from = lower.max(self.judged);
        self.judged = self.judged.max(upper);
        while let Some(run) = self.runs.front().copied().filter(|run| run.start < upper) {
            self.runs.pop_front();
            let data = run.data as u64;
            // Segments that lie in it as a whole.
            let first = run.start + from.saturating_sub(run.start).div_ceil(data) * data;
            let behind = run.start + (upper.min(run.end) - run.start) / data * data;
            let fate = SegmentFate {
                data: run.data,
                sent: behind.saturating_sub(first) / data,
                lost: lost_in(acked, (run.start, data), (first, behind)),
            };
            match fates.iter_mut().find(|other| other.data == fate.data) {
                Some(other) => {
                    other.sent += fate.sent;
                    other.lost += fate.lost;
                }
                None if fate.sent > 0 => fates.push(fate),
                None => {}
            }
            if behind < run.end {
                let start = behind.max(run.start);
                self.runs.push_front(Run { start, ..run });
                break;
            }
        }
        fates
    }
}

/// How many segments of so many bytes, from `start` on, are missing in part within `first..behind`.
fn lost_in(acked: &RangeSet, (start, data): (u64, u64), (first, behind): (u64, u64)) -> u64 {
    if first >= behind {
        return 0;
    }
    let (mut lost, mut counted) = (0, first);
    for (from, to) in acked.gaps(first, behind) {
        // Each segment counts once, however many gaps are in it.
        let from = (start + (from - start) / data * data).max(counted);
        let to = start + (to - start).div_ceil(data) * data;
        lost += to.saturating_sub(from) / data;
        counted = counted.max(to);
    }
    lost
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fate(data: usize, sent: u64, lost: u64) -> SegmentFate {
        SegmentFate { data, sent, lost }
    }

    #[test]
    fn each_segment_is_judged_once_by_the_first_report_on_it() {
        let mut fates = Fates::default();
        for start in (0..600).step_by(100) {
            fates.sent(start, start + 100);
        }
        fates.sent_run(600, 1000, 100);
        // A shorter one, which is no run of another size before it is there.
        fates.sent(1000, 1050);
        fates.sent(1050, 2050);
        let mut acked = RangeSet::default();
        acked.insert(0, 300);
        acked.insert(400, 450);
        acked.insert(460, 500);
        let found = fates.judge(&acked, 0, 500);
        assert_eq!(found, [fate(100, 5, 2)]);
        assert!(fates.judge(&acked, 0, 500).is_empty());
        // What was repaired meanwhile does not count as sent well.
        acked.insert(0, 2050);
        let found = fates.judge(&acked, 0, 2050);
        let expected = [fate(100, 5, 0), fate(50, 1, 0), fate(1000, 1, 0)];
        assert_eq!(found, expected);
        assert!(fates.judge(&acked, 0, u64::MAX).is_empty());
    }

    #[test]
    fn a_report_that_was_lost_leaves_its_segments_uncounted() {
        let mut fates = Fates::default();
        for start in (0..1000).step_by(100) {
            fates.sent(start, start + 100);
        }
        let mut acked = RangeSet::default();
        acked.insert(650, 1000);
        // It tells of 450 and later; the segments at 450 and 600 are missing in part, and the first is not judged.
        assert_eq!(fates.judge(&acked, 450, 1000), [fate(100, 5, 2)]);
        assert!(fates.judge(&acked, 0, 450).is_empty());
        let mut at = 1000;
        for i in 0..5000 {
            fates.sent(at, at + i % 7 + 1);
            at += i % 7 + 1;
        }
        assert_eq!(fates.runs.len(), MOST_RUNS);
    }
}
