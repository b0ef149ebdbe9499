//! What reports tell of a block: what of it arrived, what is to be sent again, what was lost, and what became of each segment.

use super::{Plan, Repair, Run, SendSession, SentCheckpoint};
use crate::{fates::SegmentFate, integrity::Losses, ranges::RangeSet, segment::Report};

/// Greatest number of separate runs of report serial numbers remembered; a peer counts them up by one.
const MOST_REPORT_RUNS: usize = 1024;
/// Greatest number of reports whose gaps wait to be repaired; a receiver has far fewer without acknowledgement.
const MOST_REPAIRS: usize = 4096;

/// The effect of a report on the session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ReportOutcome {
    /// Nothing, or fewer bytes are missing.
    Noted,
    /// There are bytes to repair.
    Repair,
    /// It claims bytes that were never sent, or answers no checkpoint of this session.
    False,
    /// Too many rounds of repairs.
    TooManyCycles,
    /// The receiver lost data that it had reported: it was started anew.
    Forgotten,
}

impl SendSession {
    /// Takes the claims of a report (§6.13). The caller stops the timer of the checkpoint that it gets back.
    pub(crate) fn handle_report(
        &mut self,
        report: &Report<'_>,
        reception: Option<u32>,
        cycle_limit: u32,
    ) -> (ReportOutcome, Option<(u64, SentCheckpoint)>) {
        let (first, next) = self.serials;
        let is_mine = report.checkpoint == 0 || (first..next).contains(&report.checkpoint);
        if !is_mine || report.upper > self.next.min(self.red).max(self.coded.until()) {
            return (ReportOutcome::False, None);
        }
        let known = reception.map(|new| *self.reception.get_or_insert(new));
        if known != reception {
            return (ReportOutcome::Forgotten, None);
        }
        if self.reports_seen.contains(report.serial)
            || self.reports_seen.count() >= MOST_REPORT_RUNS
        {
            return (ReportOutcome::Noted, None);
        }
        self.reports_seen.insert(report.serial, report.serial + 1);
        let answered = self.checkpoints.remove(&report.checkpoint);
        self.under_way.answered(report.checkpoint);
        let cycle = answered.map_or(0, |sent| sent.cycle) + 1;
        let answered = answered.map(|sent| (report.checkpoint, sent));
        if self.was_forgotten(report) {
            return (ReportOutcome::Forgotten, answered);
        }
        let claims = report.claims.ranges(report.lower);
        let new: u64 = claims
            .map(|(start, end)| self.acked.insert(start, end))
            .sum();
        if new > 0 {
            self.acked_before = self.serials.1;
        }
        // Of another life of the receiver, and of a report whose claims are not taken, it says nothing.
        self.told = self.fates.judge(&self.acked, report.lower, report.upper);
        let gaps = self.acked.gaps(report.lower, report.upper);
        let gaps = self.not_under_way(report.checkpoint, gaps);
        if gaps.is_empty() {
            return (ReportOutcome::Noted, answered);
        }
        self.left_out += gaps.iter().map(|(start, end)| end - start).sum::<u64>();
        // Reports that answer no checkpoint know no cycle, but no cycle leaves out more than all.
        let most = self.red.saturating_mul(cycle_limit.into());
        if cycle > cycle_limit || self.left_out > most || self.repairs.len() >= MOST_REPAIRS {
            return (ReportOutcome::TooManyCycles, answered);
        }
        self.repairs.push_back(Repair {
            gaps: gaps.into(),
            report: report.serial,
            cycle,
        });
        (ReportOutcome::Repair, answered)
    }

    /// What of these gaps no report has left out before that waits to be repaired, or has left again behind this checkpoint: several
    /// checkpoints of one repair, and those that an interrupted link has held up, are answered with all that is missing before them.
    fn not_under_way(&self, checkpoint: u64, gaps: Vec<(u64, u64)>) -> Vec<(u64, u64)> {
        let (Some(&(lower, _)), Some(&(_, upper))) = (gaps.first(), gaps.last()) else {
            return gaps;
        };
        let mut queued = RangeSet::default();
        for (start, end) in self.under_way.behind(checkpoint, (lower, upper)) {
            queued.insert(start, end);
        }
        for (start, end) in self.repairs.iter().flat_map(|repair| &repair.gaps) {
            queued.insert(*start, *end);
        }
        let gaps = gaps.into_iter();
        gaps.flat_map(|(start, end)| queued.gaps(start, end))
            .collect()
    }

    /// Whether a report leaves out bytes that were acknowledged before the checkpoint that it answers was sent. Claims of
    /// two lives of a receiver together would make a block complete that neither has.
    fn was_forgotten(&self, report: &Report<'_>) -> bool {
        if report.checkpoint < self.acked_before || report.checkpoint == 0 {
            return false;
        }
        let mut at = report.lower;
        let claims = report.claims.ranges(report.lower);
        let bounds = claims.chain([(report.upper, report.upper)]);
        for (start, end) in bounds {
            if self.acked.within(at, start).next().is_some() {
                return true;
            }
            at = end;
        }
        false
    }

    /// Asks for a report by sending the last missing bytes again, as a checkpoint, to a receiver that fell silent.
    pub(crate) fn solicit(&mut self, most: usize) {
        self.solicitations += 1;
        if let Some((start, end)) = self.acked.gaps(0, self.red).pop() {
            let start = start.max(end.saturating_sub(most as u64));
            self.repairs.push_back(Repair {
                gaps: [(start, end)].into(),
                report: 0,
                cycle: 0,
            });
        }
    }

    /// What a report tells of lost data that reports before it did not: how many segments were sent before the last that came, and how many
    /// of these were lost. One that tells of none says that all came before its upper bound. The last one is not counted: that it came is why
    /// there is a report, unless that tells of less than it is on. Then repair symbols came, which leave behind all of these.
    pub(crate) fn take_losses(&mut self, told: Option<Losses>, upper: u64) -> (u64, u64) {
        let passed = upper.min(self.next);
        let Losses { passed, lost } = told.unwrap_or(Losses { passed, lost: 0 });
        let before = self.losses;
        if lost > passed || passed > self.next || passed <= before.passed {
            return (0, 0);
        }
        self.losses = Losses {
            passed,
            lost: lost.max(before.lost),
        };
        let segments = |bytes: u64| bytes.div_ceil(self.unit.max(1) as u64);
        let is_by_last = told.is_none() || passed >= upper;
        let sent = segments(passed - before.passed).saturating_sub(is_by_last.into());
        (sent, segments(lost.saturating_sub(before.lost)).min(sent))
    }

    /// It matters what becomes of the segment of a plan.
    pub(crate) fn watch(&mut self, plan: &Plan) {
        self.fates.sent(plan.start, plan.end);
    }

    /// The same of all segments of a run.
    pub(crate) fn watch_run(&mut self, run: &Run) {
        self.fates.sent_run(run.start, run.end(), run.bytes);
    }

    /// What the last report told of segments that were sent once; nothing that was told before.
    pub(crate) fn take_fates(&mut self) -> Vec<SegmentFate> {
        std::mem::take(&mut self.told)
    }
}
