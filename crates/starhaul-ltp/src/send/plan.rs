//! The next segments of a block: those that were never sent, those that a report left out, and checkpoints again.

use super::SendSession;
use crate::segment::{Checkpoint, DataKind};

/// The next data segment of a session.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Plan {
    pub(crate) kind: DataKind,
    pub(crate) start: u64,
    pub(crate) end: u64,
    pub(crate) checkpoint: Option<Checkpoint>,
    pub(crate) source: Source,
    /// Rounds of retransmissions of its range before it.
    pub(super) cycle: u32,
}

/// Segments of red data that were never sent, one behind the other: each has as many bytes, and none asks for a report or ends anything.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Run {
    pub(crate) start: u64,
    /// Bytes of data in each.
    pub(crate) bytes: u64,
    pub(crate) segments: u64,
}

/// Why a segment is sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Source {
    /// It was never sent.
    Fresh,
    /// A report left it out.
    Repair,
    /// A checkpoint was not answered.
    Checkpoint,
}

impl Run {
    /// Bytes of data in all.
    pub(crate) const fn length(&self) -> u64 {
        self.segments * self.bytes
    }

    /// The first byte behind it.
    pub(crate) const fn end(&self) -> u64 {
        self.start + self.length()
    }
}

impl SendSession {
    /// The next segment that was never sent, with at most `most` bytes of data, and at most `safe` if it asks for a report, as it does if
    /// `asks`.
    pub(crate) fn plan_fresh(
        &self,
        (most, safe): (usize, usize),
        checkpoint_every: Option<u32>,
        asks: bool,
    ) -> Option<Plan> {
        if self.is_transmitted() || self.cancel.is_some() {
            return None;
        }
        let is_red = self.next < self.red;
        // Symbols of a code are segments.
        let (most, safe) = match self.coded.layout() {
            Some(layout) if is_red => (layout.symbol, layout.symbol),
            Some(_) => (safe, safe),
            None => (most, safe),
        };
        let is_due =
            checkpoint_every.is_some_and(|n| self.segments_since_checkpoint >= n.saturating_sub(1));
        let asks = is_due || asks;
        let most = if asks && is_red { safe } else { most };
        let part = if is_red { self.red } else { self.len() };
        let end = self.next.saturating_add(most as u64).min(part);
        let end = end.min(self.block.piece_end(self.next));
        // What ends the red part asks for a report.
        let end = match is_red && end == part && end - self.next > safe as u64 {
            true => end - safe as u64,
            false => end,
        };
        Some(self.plan((self.next, end), (0, 0), asks, Source::Fresh))
    }

    /// The next segments that were never sent, at most so many, if they are a run; `sizes` and `checkpoint_every` as for
    /// [`Self::plan_fresh`], which plans the same one by one. The red part must not be coded.
    pub(crate) fn plan_run(
        &self,
        sizes: (usize, usize),
        checkpoint_every: Option<u32>,
        most: u64,
    ) -> Option<Run> {
        let first = self.plan_fresh(sizes, checkpoint_every, false)?;
        if most == 0 || first.kind != DataKind::Red {
            return None;
        }
        let (start, bytes) = (first.start, first.end - first.start);
        // One that is cut short has no second of its length behind it. The last byte ends the red part.
        let until = self.block.piece_end(start).min(self.red - 1);
        let alike = match bytes == sizes.0 as u64 {
            true => until.saturating_sub(start) / bytes.max(1),
            false => 1,
        };
        let unasked = checkpoint_every.map_or(u64::MAX, |every| {
            let others = every.saturating_sub(1);
            others.saturating_sub(self.segments_since_checkpoint).into()
        });
        Some(Run {
            start,
            bytes,
            segments: alike.min(unasked).min(most).max(1),
        })
    }

    /// The next segment of the oldest repair, with at most `most` bytes of data; a checkpoint at its end, and if `asks`, which has at most
    /// `safe`. Bytes that were acknowledged meanwhile are left out.
    pub(crate) fn plan_repair(&mut self, (most, safe): (usize, usize), asks: bool) -> Option<Plan> {
        let (most, safe) = (most as u64, safe as u64);
        loop {
            let repair = self.repairs.front_mut()?;
            let Some((start, end)) = repair.gaps.pop_front() else {
                self.repairs.pop_front();
                self.under_way.leave();
                continue;
            };
            let missing = self.acked.gaps(start, end);
            for gap in missing.into_iter().rev() {
                repair.gaps.push_front(gap);
            }
            if let Some(&(start, gap_end)) = repair.gaps.front() {
                let end = gap_end.min(start.saturating_add(if asks { safe } else { most }));
                let end = end.min(self.block.piece_end(start));
                let ends = |end: u64| end == self.red || repair.gaps.len() == 1 && end == gap_end;
                let end = match ends(end) && end - start > safe {
                    true => end - safe,
                    false => end,
                };
                let is_last = repair.gaps.len() == 1 && end == gap_end;
                let (report, cycle) = (repair.report, repair.cycle);
                let is_due = is_last || asks;
                return Some(self.plan((start, end), (report, cycle), is_due, Source::Repair));
            }
        }
    }

    /// A checkpoint again: as it was sent before, or its last `most` bytes, if packets as long as it was may not arrive any more. The report
    /// on it is the same, but for what it lacks.
    pub(crate) fn plan_checkpoint(&self, serial: u64, most: usize) -> Option<Plan> {
        let sent = self.checkpoints.get(&serial)?;
        let start = sent.start.max(sent.end.saturating_sub(most as u64));
        let range = (start, sent.end);
        let mut plan = self.plan(range, (sent.report, sent.cycle), true, Source::Checkpoint);
        if let Some(checkpoint) = &mut plan.checkpoint {
            checkpoint.serial = serial;
        }
        Some(plan)
    }

    fn plan(
        &self,
        (start, end): (u64, u64),
        (report, cycle): (u64, u32),
        is_checkpoint: bool,
        source: Source,
    ) -> Plan {
        let kind = match (start < self.red, end == self.red, end == self.len()) {
            (true, true, true) => DataKind::RedEndOfBlock,
            (true, true, false) => DataKind::RedEnd,
            (true, ..) if is_checkpoint => DataKind::RedCheckpoint,
            (true, ..) => DataKind::Red,
            (false, _, false) => DataKind::Green,
            (false, _, true) => DataKind::GreenEndOfBlock,
        };
        let has_serials = !matches!(
            kind,
            DataKind::Red | DataKind::Green | DataKind::GreenEndOfBlock
        );
        let serial = self.serials.1;
        Plan {
            kind,
            start,
            end,
            checkpoint: has_serials.then_some(Checkpoint { serial, report }),
            source,
            cycle,
        }
    }
}
