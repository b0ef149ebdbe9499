//! A session that sends a block (RFC 5326 §8.1): what goes out next, what was acknowledged. Segments are made when they
//! leave; until then they are numbers.

use std::collections::{BTreeMap, VecDeque};

use bytes::Bytes;

use starhaul_fec::Codec;

use crate::{
    clock::PeerTime,
    coding::{Code, Layout, encode, parity},
    contents::Contents,
    fates::{Fate, Fates},
    integrity::Losses,
    ranges::RangeSet,
    segment::{Body, CancelReason, Checkpoint, DataKind, Parity, Repair as RepairSymbol, Report},
    window::Mark,
};

/// Bytes whose checksum is computed at once: enough for its speed, and still in the cache when they are copied.
const CHECKED_AT_ONCE: u64 = 64 << 10;
/// Bytes from which copying a segment reads memory as fast as the checksum does.
const LONG_COPY: u64 = 2 << 10;
/// Greatest number of separate runs of report serial numbers remembered; a peer counts them up by one.
const MOST_REPORT_RUNS: usize = 1024;

/// Greatest number of reports whose gaps wait to be repaired; a receiver has far fewer without acknowledgement.
const MOST_REPAIRS: usize = 4096;

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
    /// Bytes of data in a segment when the block came.
    pub(crate) unit: usize,
    /// How often it is to be sent from now on, with the present time.
    pub(crate) passes: u32,
    /// What reports told of data that were lost.
    losses: Losses,
    /// How its red part is cut into codes, if it is.
    layout: Option<Layout>,
    /// The code that holds `next`, and its repair symbols that are to be sent before its last data.
    code: Option<Code>,
    symbols: VecDeque<(u8, Bytes)>,
    /// The places of the parities that follow those of the last code, and the first of them once it is computed.
    columns: VecDeque<u8>,
    parity: Option<Bytes>,
    /// Segments sent once on which no report came yet, if it matters what becomes of them; and what the last report told of others.
    fates: Fates,
    told: Vec<Fate>,
    /// The codes before this byte were sent with their repair symbols.
    coded: u64,
    repairs: VecDeque<Repair>,
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

/// The next data segment of a session.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Plan {
    pub(crate) kind: DataKind,
    pub(crate) start: u64,
    pub(crate) end: u64,
    pub(crate) checkpoint: Option<Checkpoint>,
    pub(crate) source: Source,
    cycle: u32,
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
    /// A block, of which the first `red` bytes are red, with CRC32C of these if it is known. `serial` is the first checkpoint serial number;
    /// a red part that is coded has a `layout`.
    pub(crate) fn new(
        service: u64,
        block: Contents,
        (red, known): (u64, Option<u32>),
        serial: u64,
        layout: Option<Layout>,
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
            passes: 1,
            losses: Losses::default(),
            layout,
            code: None,
            symbols: VecDeque::new(),
            columns: VecDeque::new(),
            parity: None,
            fates: Fates::default(),
            told: Vec::new(),
            coded: 0,
            repairs: VecDeque::new(),
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

    /// Whether repair symbols go with its red part.
    pub(crate) const fn is_coded(&self) -> bool {
        self.layout.is_some()
    }

    /// Cuts its red part into codes, of which nothing must have been sent.
    pub(crate) fn set_layout(&mut self, layout: Option<Layout>) {
        self.layout = layout;
    }

    /// Begins anew with a block all of which has left, if it is to be sent again; whether it is.
    pub(crate) fn begin_again(&mut self) -> bool {
        let is_due = self.passes > 1;
        if is_due {
            self.passes -= 1;
            (self.next, self.coded, self.code) = (0, 0, None);
        }
        is_due
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

    /// Red bytes that were never sent.
    pub(crate) fn fresh_red(&self) -> u64 {
        self.red.saturating_sub(self.next)
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
    pub(crate) fn take_fates(&mut self) -> Vec<Fate> {
        std::mem::take(&mut self.told)
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

    /// Makes the repair symbols of a code when all of its data but the last segment have left.
    pub(crate) fn make_symbols(&mut self, codec: &mut Codec) {
        let Some(layout) = self.layout else { return };
        if self.next >= self.red || self.next < self.coded || self.cancel.is_some() {
            return;
        }
        let code = self.code.filter(|code| self.next < code.end);
        let code = code.unwrap_or_else(|| layout.code_at(self.next));
        self.code = Some(code);
        if self.next + layout.symbol as u64 >= code.end {
            let symbols = encode(codec, &self.block, code, layout.symbol);
            self.symbols = (code.symbols..=u8::MAX).zip(symbols).collect();
            self.coded = code.end;
            if code.end == self.red {
                // Each repair symbol of the last code carries it.
                (self.crc, self.checked) = (self.red_checksum(), self.red);
                self.columns = layout.columns().collect();
            }
            self.make_parity();
        }
    }

    /// Makes the next parity, if no repair symbol is to be sent before it: one at a time, since each is computed of a part of all the block.
    fn make_parity(&mut self) {
        if self.parity.is_none()
            && self.symbols.is_empty()
            && let (Some(layout), Some(column)) = (self.layout, self.columns.front())
        {
            self.parity = Some(parity(&self.block, self.red, &layout, *column));
        }
    }

    /// The next repair symbol or parity, and the checksum of the red part if it is of the last code or of all.
    pub(crate) fn symbol(&self) -> Option<(Body<'_>, Option<u32>)> {
        let (service, red, is_whole) = (self.service, self.red, self.red == self.len());
        if let (Some((index, payload)), Some(code)) = (self.symbols.front(), self.code) {
            let checksum = (code.end == red).then(|| self.red_checksum());
            let symbol = RepairSymbol {
                service,
                offset: code.start,
                red,
                is_whole,
                symbols: code.symbols,
                repairs: code.repairs,
                index: *index,
                payload,
            };
            return Some((Body::Repair(symbol), checksum));
        }
        let (payload, index, layout) = (self.parity.as_ref()?, self.columns.front()?, self.layout?);
        let parity = Parity {
            service,
            red,
            is_whole,
            symbols: layout.per_code(),
            index: *index,
            payload,
        };
        Some((Body::Parity(parity), Some(self.red_checksum())))
    }

    /// Notes that the repair symbol or parity has left.
    pub(crate) fn commit_symbol(&mut self) {
        self.has_begun = true;
        if self.symbols.pop_front().is_none() {
            self.parity = None;
            self.columns.pop_front();
        }
        self.make_parity();
    }

    fn red_checksum(&self) -> u32 {
        let computed = || self.block.checksum(self.crc, self.checked, self.red);
        self.known.unwrap_or_else(computed)
    }

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
        let (most, safe) = match &self.layout {
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

    /// Notes that a planned run has left.
    pub(crate) fn commit_run(&mut self, run: &Run, integrity: bool) {
        let segments = u32::try_from(run.segments).unwrap_or(u32::MAX);
        self.advance(run.end(), segments, integrity);
    }

    /// Notes that so many segments, the last of which ends there, have left for the first time.
    fn advance(&mut self, end: u64, segments: u32, integrity: bool) {
        self.segments_since_checkpoint = self.segments_since_checkpoint.saturating_add(segments);
        (self.next, self.has_begun) = (end, true);
        if integrity && self.next >= self.checked + CHECKED_AT_ONCE {
            // The copies of long segments have just read it.
            self.check(self.next);
        }
    }

    /// The next segment of the oldest repair, with at most `most` bytes of data; a checkpoint at its end, and if `asks`, which has at most
    /// `safe`. Bytes that were acknowledged meanwhile are left out.
    pub(crate) fn plan_repair(&mut self, (most, safe): (usize, usize), asks: bool) -> Option<Plan> {
        let (most, safe) = (most as u64, safe as u64);
        loop {
            let repair = self.repairs.front_mut()?;
            let Some((start, end)) = repair.gaps.pop_front() else {
                self.repairs.pop_front();
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
            Source::Repair => self.shorten_repair(plan.end),
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

    /// Takes the claims of a report (§6.13). The caller stops the timer of the checkpoint that it gets back.
    pub(crate) fn handle_report(
        &mut self,
        report: &Report<'_>,
        reception: Option<u32>,
        cycle_limit: u32,
    ) -> (ReportOutcome, Option<(u64, SentCheckpoint)>) {
        let (first, next) = self.serials;
        let is_mine = report.checkpoint == 0 || (first..next).contains(&report.checkpoint);
        if !is_mine || report.upper > self.next.min(self.red).max(self.coded) {
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
        let gaps = self.not_queued(self.acked.gaps(report.lower, report.upper));
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

    /// What of these gaps no report has left out before that waits to be repaired: several checkpoints of one repair are answered with all
    /// that is missing before them.
    fn not_queued(&self, gaps: Vec<(u64, u64)>) -> Vec<(u64, u64)> {
        if self.repairs.is_empty() {
            return gaps;
        }
        let mut queued = RangeSet::default();
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

    /// Drops the block and all that was to be sent.
    pub(crate) fn give_up(&mut self, reason: CancelReason) {
        self.block = Contents::default();
        (self.red, self.next, self.checked) = (0, 0, 0);
        self.repairs.clear();
        self.symbols.clear();
        self.columns.clear();
        self.parity = None;
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
