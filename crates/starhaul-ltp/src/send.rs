//! A session that sends a block (RFC 5326 §8.1): what goes out next, what was acknowledged. Segments are made when they
//! leave; until then they are numbers.

mod checksum;
mod coded;
mod plan;
mod reports;
mod under_way;

use std::collections::{BTreeMap, VecDeque};

use bytes::Bytes;

pub(crate) use self::{
    coded::Basis,
    plan::{Plan, Run, Source},
    reports::ReportOutcome,
};
use self::{coded::Coded, under_way::UnderWay};
use crate::{
    clock::PeerTime,
    contents::Contents,
    fates::{Fates, SegmentFate},
    integrity::Losses,
    ranges::RangeSet,
    segment::{CancelReason, Checkpoint},
    window::Mark,
};

/// A block under way.
#[derive(Debug)]
pub(crate) struct SendSession {
    pub(crate) service: u64,
    block: Contents,
    red: u64,
    /// The first byte that was never sent, with the present time.
    next: u64,
    /// Whether something of it has left, at any time.
    has_begun: bool,
    segments_since_checkpoint: u32,
    /// CRC32C of the red part, if the application that sends it knows that.
    known: Option<u32>,
    /// If not, that of the red bytes before `checked`.
    crc: u32,
    checked: u64,
    acked: RangeSet,
    /// Bytes of data in a segment since the block was cut, and what decided that.
    unit: usize,
    basis: Option<Basis>,
    /// How often it is to be sent from now on, with the present time.
    pub(crate) passes: u32,
    /// What reports told of data that were lost.
    losses: Losses,
    coded: Coded,
    /// Segments sent once on which no report came yet, if it matters what becomes of them; and what the last report told of others.
    fates: Fates,
    told: Vec<SegmentFate>,
    repairs: VecDeque<Repair>,
    under_way: UnderWay,
    pub(crate) checkpoints: BTreeMap<u64, SentCheckpoint>,
    /// Serial numbers used are from the first to below the next.
    serials: (u64, u64),
    reports_seen: RangeSet,
    /// Bytes that reports left out, in all.
    left_out: u64,
    /// The number of the reception that the reports are of, if the receiver tells it.
    reception: Option<u32>,
    /// The first checkpoint serial number used after bytes were last acknowledged.
    acked_before: u64,
    /// Checkpoints sent because the receiver had fallen silent.
    pub(crate) solicitations: u32,
    /// When the timer of silence is due, if it is set.
    pub(crate) silence: Option<PeerTime>,
    pub(crate) cancel: Option<Cancelling>,
    /// Whether it stands in the peer's queue of sessions with something to repair.
    pub(crate) is_queued: bool,
}

/// A cancellation without acknowledgement, in either direction.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Cancelling {
    pub(crate) reason: CancelReason,
    pub(crate) attempts: u32,
    /// When the next attempt is due; `None` while one waits to leave.
    pub(crate) timer: Option<PeerTime>,
}

/// Bytes that a report left out.
#[derive(Debug)]
struct Repair {
    gaps: VecDeque<(u64, u64)>,
    /// Serial number of the report, or zero.
    report: u64,
    cycle: u32,
}

/// A checkpoint that was not answered yet.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SentCheckpoint {
    start: u64,
    end: u64,
    report: u64,
    cycle: u32,
    pub(crate) attempts: u32,
    /// Bytes of data of the last attempt.
    pub(crate) bytes: u64,
    pub(crate) sent: PeerTime,
    /// How often the peer's clock had been stopped then.
    pub(crate) stops: u32,
    /// What was sent to the peer in all when it left.
    pub(crate) mark: Mark,
    /// The same as the choice of sizes counts it, where the report comes at once.
    pub(crate) position: Option<u64>,
    /// When it is sent again; `None` while it waits to leave.
    pub(crate) timer: Option<PeerTime>,
}

impl SendSession {
    /// A block, of which the first `red` bytes are red, with CRC32C of these if it is known. `serial` is the first checkpoint serial number.
    /// It is to be [cut](Self::cut) before anything of it leaves.
    pub(crate) fn new(
        service: u64,
        block: Contents,
        (red, known): (u64, Option<u32>),
        serial: u64,
    ) -> Self {
        Self {
            service,
            block,
            red,
            next: 0,
            has_begun: false,
            segments_since_checkpoint: 0,
            known,
            crc: 0,
            checked: 0,
            acked: RangeSet::default(),
            unit: 1,
            basis: None,
            passes: 1,
            losses: Losses::default(),
            coded: Coded::default(),
            fates: Fates::default(),
            told: Vec::new(),
            repairs: VecDeque::new(),
            under_way: UnderWay::default(),
            checkpoints: BTreeMap::new(),
            serials: (serial, serial),
            reports_seen: RangeSet::default(),
            left_out: 0,
            reception: None,
            acked_before: serial,
            solicitations: 0,
            silence: None,
            cancel: None,
            is_queued: false,
        }
    }

    /// Length of the block.
    pub(crate) fn len(&self) -> u64 {
        self.block.len()
    }

    /// Whether something of it has left, so that a receiver may know of it.
    pub(crate) const fn was_begun(&self) -> bool {
        self.has_begun
    }

    pub(crate) fn is_transmitted(&self) -> bool {
        self.next == self.len()
    }

    /// Begins anew with a block all of which has left, if it is to be sent again; whether it is.
    pub(crate) fn begin_again(&mut self) -> bool {
        let is_due = self.passes > 1;
        if is_due {
            self.passes -= 1;
            self.next = 0;
            self.coded.begin_again();
        }
        is_due
    }

    /// Red bytes that were never sent.
    pub(crate) fn fresh_red(&self) -> u64 {
        self.red.saturating_sub(self.next)
    }

    /// Whether nothing is left to do (§6.12).
    pub(crate) fn is_complete(&self) -> bool {
        self.is_transmitted() && self.acked.covers(0, self.red)
    }

    /// Whether the receiver owes reports although no checkpoint waits for one, so that no other timer would end the
    /// session: one of several reports to a checkpoint may be missing, with its sender gone.
    pub(crate) fn waits_in_silence(&self) -> bool {
        let is_idle = self.repairs.is_empty() && self.checkpoints.is_empty();
        is_idle && self.is_transmitted() && self.cancel.is_none() && !self.is_complete()
    }

    pub(crate) fn has_repairs(&self) -> bool {
        !self.repairs.is_empty()
    }

    /// The data of a plan.
    pub(crate) fn data(&self, plan: &Plan) -> &[u8] {
        self.block.piece(plan.start, plan.end)
    }

    /// The data of a run, one behind the other.
    pub(crate) fn data_of_run(&self, run: &Run) -> &[u8] {
        self.block.piece(run.start, run.end())
    }

    /// The same without a copy, which keep the memory of the block.
    pub(crate) fn lend_run(&self, run: &Run) -> Bytes {
        self.block.slice(run.start, run.end())
    }

    /// Notes that a planned run has left.
    pub(crate) fn commit_run(&mut self, run: &Run, integrity: bool) {
        let segments = u32::try_from(run.segments).unwrap_or(u32::MAX);
        self.advance(run.end(), segments, integrity);
    }

    /// Notes that so many segments, the last of which ends there, have left for the first time.
    fn advance(&mut self, end: u64, segments: u32, integrity: bool) {
        self.segments_since_checkpoint = self.segments_since_checkpoint.saturating_add(segments);
        (self.next, self.has_begun) = (end, true);
        if integrity {
            self.check_sent();
        }
    }

    /// Notes that a planned segment has left, and returns the serial number of its checkpoint. `due` is when that is
    /// sent again without an answer.
    pub(crate) fn commit(
        &mut self,
        plan: &Plan,
        now: PeerTime,
        due: impl FnOnce(u32) -> PeerTime,
        integrity: bool,
    ) -> Option<u64> {
        match plan.source {
            Source::Fresh => self.advance(plan.end, 1, integrity),
            Source::Repair => {
                let serial = plan.checkpoint.map(|checkpoint| checkpoint.serial);
                self.under_way.sent((plan.start, plan.end), serial);
                self.shorten_repair(plan.end);
            }
            Source::Checkpoint => {}
        }
        let Checkpoint { serial, report } = plan.checkpoint?;
        if plan.source == Source::Checkpoint {
            let sent = self.checkpoints.get_mut(&serial)?;
            sent.attempts += 1;
            sent.bytes = plan.end - plan.start;
            sent.timer = Some(due(sent.attempts));
            return Some(serial);
        }
        self.segments_since_checkpoint = 0;
        // A segment may end the red part within a repair; both counts go on.
        self.serials.1 += 1;
        self.checkpoints.insert(
            serial,
            SentCheckpoint {
                start: plan.start,
                end: plan.end,
                report,
                cycle: plan.cycle,
                attempts: 0,
                bytes: plan.end - plan.start,
                sent: now,
                stops: 0,
                mark: Mark::default(),
                position: None,
                timer: Some(due(0)),
            },
        );
        Some(serial)
    }

    fn shorten_repair(&mut self, sent_until: u64) {
        let Some(repair) = self.repairs.front_mut() else {
            return;
        };
        if let Some(gap) = repair.gaps.front_mut() {
            gap.0 = sent_until;
            if gap.0 >= gap.1 {
                repair.gaps.pop_front();
            }
        }
        if repair.gaps.is_empty() {
            self.repairs.pop_front();
        }
    }

    /// Drops the block and all that was to be sent.
    pub(crate) fn give_up(&mut self, reason: CancelReason) {
        self.block = Contents::default();
        (self.red, self.next, self.checked) = (0, 0, 0);
        self.repairs.clear();
        self.under_way = UnderWay::default();
        self.coded.give_up();
        (self.fates, self.told) = Default::default();
        self.checkpoints.clear();
        self.acked = RangeSet::default();
        self.cancel = Some(Cancelling {
            reason,
            attempts: 0,
            timer: None,
        });
    }
}

#[cfg(test)]
mod tests;
