//! A session that receives a block (RFC 5326 §8.2): its data, the reports on them, and when it ends.

use std::{collections::BTreeMap, time::Duration};

use bytes::Bytes;
use starhaul_fec::Codec;

use crate::{
    block::{Assembly, Block},
    clock::PeerTime,
    coding::{Parities, Repairs},
    integrity::Losses,
    ranges::RangeSet,
    sdnv,
    segment::{Checkpoint, Claims, Data, Encoding, Parity, PlainRun, Repair, Report},
    send::Cancelling,
};

/// Greatest number of checkpoints and reports remembered, per session.
const MOST_REPORTS: usize = 4096;
/// Bytes of memory of the reports without acknowledgement of a session: no more than some of its pages.
const MOST_REPORT_BYTES: usize = 64 << 10;
/// Greatest number of separate runs of green bytes remembered.
const MOST_GREEN_RUNS: usize = 1024;

/// A block that is arriving.
#[derive(Debug)]
pub(crate) struct ReceiveSession {
    pub(crate) service: u64,
    /// How its segments are written.
    encoding: Encoding,
    assembly: Assembly,
    symbols: Repairs,
    parities: Parities,
    /// Length of the red part, once known, and whether the block ends there.
    red: Option<(u64, bool)>,
    checksum: Option<u32>,
    /// Bytes of the red part that are here.
    here: u64,
    /// What became of red data on their way here.
    pub(crate) losses: Losses,
    green: RangeSet,
    green_lowest: Option<u64>,
    green_end: Option<u64>,
    is_delivered: bool,
    /// Whether the client service has the red part, but has not accepted it; then the checkpoint to answer.
    is_held: bool,
    unanswered: Option<Checkpoint>,
    pub(crate) reports: BTreeMap<u64, SentReport>,
    /// Told with each report, so that the sender notices a receiver that was started anew.
    pub(crate) reception: u32,
    first_serial: u64,
    next_serial: u64,
    /// The serial numbers of the reports that answered a checkpoint, by that of the checkpoint.
    answers: BTreeMap<u64, (u64, u64)>,
    /// The lower bounds of past reports.
    lower_bounds: BTreeMap<u64, u64>,
    /// Where the next report that answers no retransmission begins.
    primary: u64,
    /// When data last arrived.
    pub(crate) heard: PeerTime,
    /// The longest time from data to the next.
    pub(crate) spacing: Duration,
    pub(crate) silence: Option<PeerTime>,
    pub(crate) cancel: Option<Cancelling>,
}

/// A report that was not acknowledged yet.
#[derive(Debug)]
pub(crate) struct SentReport {
    encoding: Encoding,
    checkpoint: u64,
    lower: u64,
    upper: u64,
    claims: Box<[u8]>,
    count: u64,
    pub(crate) attempts: u32,
    /// When it first left, and how often the peer's clock had been stopped then.
    pub(crate) sent: (PeerTime, u32),
    /// Whether it waits to leave.
    pub(crate) is_queued: bool,
    /// When it is sent again; `None` while it waits to leave.
    pub(crate) timer: Option<PeerTime>,
}

/// Why data were not taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Refusal {
    /// Red behind green, or green before red (§6.21); both in one block where that has one colour.
    Miscolored,
    /// They contradict earlier data.
    Contradiction,
}

impl ReceiveSession {
    /// `serial` is the first report serial number, `reception` the random number that reports carry.
    pub(crate) fn new(service: u64, serial: u64, reception: u32, now: PeerTime) -> Self {
        Self {
            service,
            encoding: Encoding::default(),
            assembly: Assembly::default(),
            symbols: Repairs::default(),
            parities: Parities::default(),
            red: None,
            checksum: None,
            here: 0,
            losses: Losses::default(),
            green: RangeSet::default(),
            green_lowest: None,
            green_end: None,
            is_delivered: false,
            is_held: false,
            unanswered: None,
            reports: BTreeMap::new(),
            reception,
            first_serial: serial,
            next_serial: serial,
            answers: BTreeMap::new(),
            lower_bounds: BTreeMap::new(),
            primary: 0,
            heard: now,
            spacing: Duration::ZERO,
            silence: None,
            cancel: None,
        }
    }

    /// The same, of a red part that has probably so many bytes, in segments of this encoding.
    pub(crate) fn expecting(self, bytes: u64, encoding: Encoding) -> Self {
        Self {
            encoding,
            assembly: Assembly::expecting(bytes),
            ..self
        }
    }

    /// Data of it arrive.
    pub(crate) fn hear(&mut self, now: PeerTime) {
        self.spacing = self.spacing.max(now.since(self.heard));
        self.heard = now;
    }

    /// Red data from `start` to `end` came, whether or not they are taken, or something that leaves between the data before and behind `start`.
    /// They leave in order, so that what is missing before them was lost, unless it comes before anything is reported: then it was only
    /// overtaken. What is here already makes up for nothing. Returns whether data came behind later ones after a report.
    pub(crate) fn pass(&mut self, start: u64, end: u64) -> bool {
        let is_unreported = self.next_serial == self.first_serial && !self.is_delivered;
        let Losses { passed, lost } = &mut self.losses;
        let late_end = end.min(*passed);
        let is_again = !is_unreported && start < late_end;
        if is_unreported && start < late_end {
            let known = self.assembly.received().within(start, late_end);
            let known: u64 = known.map(|(from, to)| to - from).sum();
            *lost = lost.saturating_sub((late_end - start).saturating_sub(known));
        }
        if end > *passed {
            *lost += start.saturating_sub(*passed);
            *passed = end;
        }
        is_again
    }

    /// Bytes that are here of a red part that is not complete.
    pub(crate) const fn partial(&self) -> u64 {
        match self.is_delivered {
            true => 0,
            false => self.here,
        }
    }

    /// The first bytes of a red part that is not complete, at most so many, as far as none is missing.
    pub(crate) fn head(&self, most: u64) -> Bytes {
        let end = self.assembly.received().end_of(0).min(most);
        self.assembly.copy(0, end)
    }

    /// Bytes of memory of the data it holds.
    pub(crate) fn held(&self) -> usize {
        self.assembly.held() + self.symbols.held() + self.parities.held()
    }

    /// Bytes of memory that its red part may take at once for what has not come yet.
    pub(crate) fn width(&self) -> usize {
        match self.is_delivered {
            true => 0,
            false => self.assembly.width(),
        }
    }

    /// There is no room for that: what comes takes its own pages.
    pub(crate) const fn stay(&mut self) {
        self.assembly.stay();
    }

    /// Greatest number of bytes of memory that taking red data can add.
    pub(crate) fn cost(&self, data: &Data<'_>) -> usize {
        match self.is_delivered {
            true => 0,
            false => self.assembly.cost(data.offset, data.payload.len()),
        }
    }

    pub(crate) fn is_delivered(&self) -> bool {
        self.is_delivered
    }

    /// Whether nothing is reported because the client service has not accepted the red part.
    pub(crate) fn is_held(&self) -> bool {
        self.is_held
    }

    /// Reports nothing from now on until the client service accepts the red part.
    pub(crate) fn hold(&mut self) {
        self.is_held = true;
    }

    /// Keeps a checkpoint until the red part is accepted. One that was answered before, and is repeated since that report was lost, does
    /// not take the place of one that was not.
    pub(crate) fn answer_later(&mut self, checkpoint: Option<Checkpoint>) {
        let is_open = |at: &Checkpoint| !self.answers.contains_key(&at.serial);
        self.unanswered = checkpoint
            .filter(|at| is_open(at) || self.unanswered.is_none())
            .or(self.unanswered);
    }

    /// The client service has accepted the red part; returns the reports to send. They tell that all of it is here, whatever was reported
    /// before: they are the first from which the sender learns that it is stored.
    pub(crate) fn accept(&mut self, most: usize) -> Vec<u64> {
        self.is_held = false;
        let checkpoint = self.unanswered.take();
        self.report_completion(checkpoint, most)
    }

    /// Whether data agree with those before.
    pub(crate) fn check(&self, data: &Data<'_>) -> Result<(), Refusal> {
        let end = data.offset + data.payload.len() as u64;
        let red_end = self.red.map(|(end, _)| end);
        if data.service != self.service {
            return Err(Refusal::Contradiction);
        }
        if !data.kind.is_red() {
            let before_red = self
                .assembly
                .received()
                .within(data.offset, u64::MAX)
                .next();
            let is_miscolored = before_red.is_some()
                || red_end.is_some_and(|red| data.offset < red)
                || self.encoding.is_single_colour() && self.has_red();
            let is_beyond = self.green_end.is_some_and(|last| end > last);
            return match (is_miscolored, is_beyond) {
                (true, _) => Err(Refusal::Miscolored),
                (false, true) => Err(Refusal::Contradiction),
                (false, false) => Ok(()),
            };
        }
        if self.is_green_before(end) {
            return Err(Refusal::Miscolored);
        }
        let is_beyond = red_end.is_some_and(|red| end > red);
        let other_end = data.kind.ends_red() && red_end.is_some_and(|red| end != red);
        // Bytes behind the end that this segment tells.
        let past_end = data.kind.ends_red() && self.has_received_beyond(end);
        match is_beyond || other_end || past_end {
            true => Err(Refusal::Contradiction),
            false => Ok(()),
        }
    }

    /// Whether some of the block is known to be red.
    fn has_red(&self) -> bool {
        self.red.is_some() || self.assembly.received().count() > 0
    }

    /// Whether some of the block is green where it could only be red if red data end at `end`.
    fn is_green_before(&self, end: u64) -> bool {
        let is_single = self.encoding.is_single_colour();
        self.green_lowest
            .is_some_and(|green| is_single || end > green)
    }

    fn has_received_beyond(&self, end: u64) -> bool {
        self.assembly
            .received()
            .within(end, u64::MAX)
            .next()
            .is_some()
    }

    /// Takes red data that agree with those before, and returns how many bytes are new.
    pub(crate) fn take_red(&mut self, data: &Data<'_>, checksum: Option<u32>) -> u64 {
        let end = data.offset + data.payload.len() as u64;
        if data.kind.ends_red() {
            self.red.get_or_insert((end, data.kind.ends_block()));
            self.checksum = self.checksum.or(checksum);
        }
        if self.is_delivered {
            return 0;
        }
        let new = self.assembly.write(data.offset, data.payload);
        self.here += new;
        self.check_pages();
        new
    }

    /// Whether red data for this client service are taken several segments at a time: not where each may complete a code.
    pub(crate) fn takes_runs(&self, service: u64) -> bool {
        let is_coded = self.symbols.held() + self.parities.held() > 0;
        let is_over = self.is_delivered || self.cancel.is_some();
        service == self.service && !is_coded && !is_over
    }

    /// Whether red data that end there agree with those before, if nothing ends with them.
    pub(crate) fn is_within_red(&self, end: u64) -> bool {
        let is_beyond = self.red.is_some_and(|(red, _)| end > red);
        !self.is_green_before(end) && !is_beyond
    }

    /// Greatest number of bytes of memory that taking these segments can add.
    pub(crate) fn cost_of_run(&self, run: &PlainRun<'_>) -> usize {
        let length = usize::try_from(run.length()).unwrap_or(usize::MAX);
        self.assembly.cost(run.start, length)
    }

    /// Takes segments that agree with those before, of a red part that takes runs, and returns how many bytes are new.
    pub(crate) fn take_run(&mut self, run: &PlainRun<'_>) -> u64 {
        let new = self
            .assembly
            .write_run(run.start, &run.payloads, run.length());
        self.here += new;
        self.check_pages();
        new
    }

    /// Adds complete pages to the checksum, unless the block has none.
    fn check_pages(&mut self) {
        if self.checksum.is_some() || self.red.is_none() {
            let red = self.red.map_or(u64::MAX, |(end, _)| end);
            self.assembly.check_pages(red);
        }
    }

    /// Takes a repair symbol, and returns how many bytes were recovered; `None` if it contradicts others.
    pub(crate) fn take_symbol(
        &mut self,
        codec: &mut Codec,
        repair: &Repair<'_>,
        checksum: Option<u32>,
    ) -> Option<u64> {
        let red = (repair.red, repair.is_whole);
        if !self.agrees(repair.service, red) {
            return None;
        }
        self.red = Some(red);
        self.checksum = self.checksum.or(checksum);
        let last = repair.last_data();
        self.pass(last, last);
        if self.is_delivered
            || self
                .assembly
                .received()
                .covers(repair.offset, repair.code_end())
        {
            return Some(0);
        }
        if !self.symbols.keep(repair) {
            return None;
        }
        Some(self.recover(codec, repair.offset))
    }

    /// Takes a parity, and returns how many bytes were recovered; `None` if it contradicts others.
    pub(crate) fn take_parity(
        &mut self,
        codec: &mut Codec,
        parity: &Parity<'_>,
        checksum: Option<u32>,
    ) -> Option<u64> {
        let red = (parity.red, parity.is_whole);
        let is_kept =
            self.agrees(parity.service, red) && (self.is_delivered || self.parities.keep(parity));
        if !is_kept {
            return None;
        }
        self.red = Some(red);
        self.checksum = self.checksum.or(checksum);
        Some(self.solve(codec))
    }

    /// Whether what a repair segment tells of the block, its service and its red part, is so as far as that is known.
    fn agrees(&self, service: u64, red: (u64, bool)) -> bool {
        let is_other = self.red.is_some_and(|known| known != red);
        let past_end = self.has_received_beyond(red.0);
        let is_green = self.is_green_before(red.0);
        service == self.service && !is_other && !is_green && !past_end
    }

    /// Recovers missing data of the code that holds the byte at `offset`, and what follows from these; returns how many bytes.
    pub(crate) fn recover(&mut self, codec: &mut Codec, offset: u64) -> u64 {
        if self.is_delivered {
            return 0;
        }
        let recovered = match self.symbols.held() {
            0 => 0,
            _ => self.symbols.recover(codec, offset, &mut self.assembly),
        };
        self.here += recovered;
        recovered + self.solve(codec)
    }

    /// Gives back what parities can, and what repair symbols can then; returns how many bytes.
    fn solve(&mut self, codec: &mut Codec) -> u64 {
        let Some((red, _)) = self.red.filter(|_| !self.is_delivered) else {
            return 0;
        };
        let mut all = 0;
        while let Some((offset, new)) = self.parities.solve(red, &mut self.assembly) {
            all += new + self.symbols.recover(codec, offset, &mut self.assembly);
        }
        self.here += all;
        all
    }

    /// Takes green data, and returns whether they are new.
    pub(crate) fn take_green(&mut self, data: &Data<'_>) -> bool {
        let end = data.offset + data.payload.len() as u64;
        let lowest = self.green_lowest.unwrap_or(data.offset);
        self.green_lowest = Some(lowest.min(data.offset));
        if data.kind.ends_block() {
            self.green_end = Some(end);
        }
        let is_new = !self.green.covers(data.offset, end);
        let around = (data.offset.saturating_sub(1), end.saturating_add(1));
        let joins = self.green.within(around.0, around.1).next().is_some();
        // What joins a run is no further one.
        if joins || self.green.count() < MOST_GREEN_RUNS {
            self.green.insert(data.offset, end);
        }
        is_new
    }

    /// Whether the red part is complete and was not delivered before.
    pub(crate) fn is_newly_complete(&self) -> bool {
        let red = self.red.filter(|_| !self.is_delivered);
        red.is_some_and(|(length, _)| self.assembly.is_complete(length))
    }

    /// The complete red part, whether the block ends with it, and whether it had a checksum; `None` if its checksum is
    /// another one.
    pub(crate) fn deliver(&mut self) -> Option<(Block, bool, bool)> {
        let (length, is_whole) = self.red?;
        if let Some(expected) = self.checksum
            && self.assembly.checksum(length) != expected
        {
            return None;
        }
        self.is_delivered = true;
        (self.symbols, self.parities) = Default::default();
        let block = std::mem::take(&mut self.assembly).into_block(length);
        let block = block.with_checksum(self.checksum);
        Some((block, is_whole, self.checksum.is_some()))
    }

    /// Whether nothing is left to do: all data are here and all reports were acknowledged.
    pub(crate) fn is_finished(&self) -> bool {
        let (red, is_whole) = self.red.unwrap_or((0, false));
        let has_red =
            self.is_delivered || self.red.is_none() && self.assembly.received().count() == 0;
        let green_start = self.red.map_or(0, |_| red);
        let has_green = is_whole
            || self
                .green_end
                .is_some_and(|end| self.green.covers(green_start, end));
        self.reports.is_empty() && has_red && has_green && !self.is_held
    }

    /// Whether some red data arrived and others are missing.
    pub(crate) fn has_part_of_red(&self) -> bool {
        !self.is_delivered && self.assembly.received().count() > 0
    }

    /// Whether red data may be missing; a block whose first byte is green has none.
    pub(crate) fn awaits_red(&self) -> bool {
        !self.is_delivered && !self.green.contains(0)
    }

    /// Whether a checkpoint follows from a report that this session never made. A former life of this engine made it, and
    /// what that claimed is not here: with the claims of this session the sender would believe that all arrived.
    pub(crate) fn is_of_former_life(&self, at: Checkpoint) -> bool {
        at.report != 0 && !self.has_reported(at.report) && !self.is_delivered
    }

    /// Whether a report of this session had that serial number.
    pub(crate) fn has_reported(&self, serial: u64) -> bool {
        (self.first_serial..self.next_serial).contains(&serial)
    }

    /// Makes the reports that answer a checkpoint (§6.11), each with at most `most` bytes of claims, and returns their
    /// serial numbers. A checkpoint seen before gives those of its reports that were not acknowledged.
    pub(crate) fn answer(&mut self, at: Checkpoint, end: u64, most: usize) -> Vec<u64> {
        if let Some(&(first, behind)) = self.answers.get(&at.serial) {
            return self
                .reports
                .range(first..behind)
                .map(|(serial, _)| *serial)
                .collect();
        }
        // What is left out is answered when the checkpoint comes again.
        let unacknowledged: usize = self.reports.values().map(SentReport::cost).sum();
        if unacknowledged >= MOST_REPORT_BYTES {
            return Vec::new();
        }
        let lower = match at.report {
            // A checkpoint at or before an earlier one asks for the state of all.
            0 if end > self.primary => self.primary,
            0 => 0,
            report => self.lower_bounds.get(&report).copied().unwrap_or(0),
        };
        if at.report == 0 {
            self.primary = self.primary.max(end);
        }
        // The peer names a report that begins behind this checkpoint only by mistake.
        let lower = if lower < end { lower } else { 0 };
        let first = self.next_serial;
        self.report(at.serial, lower, end, most);
        self.answers.insert(at.serial, (first, self.next_serial));
        if self.answers.len() > MOST_REPORTS {
            self.answers.pop_first();
        }
        (first..self.next_serial).collect()
    }

    /// Makes the report that all of the red part is here, in answer to a checkpoint or unasked. It claims what reports before it left out,
    /// too: of data that came after their checkpoint, or that repair symbols gave back, the sender learns nowhere else. When this report
    /// is acknowledged the session may end, and repairs that are on their way are not answered.
    pub(crate) fn report_completion(
        &mut self,
        checkpoint: Option<Checkpoint>,
        most: usize,
    ) -> Vec<u64> {
        let (first, Some((red, _))) = (self.next_serial, self.red) else {
            return Vec::new();
        };
        let serial = checkpoint.map_or(0, |at| at.serial);
        self.report(serial, 0, red, most);
        if serial != 0 {
            self.answers.insert(serial, (first, self.next_serial));
        }
        (first..self.next_serial).collect()
    }

    /// Makes reports on `lower..upper`. Each but the last ends with a claim; what is missing behind it is told by the
    /// next, whose first claim begins behind its lower bound.
    fn report(&mut self, checkpoint: u64, lower: u64, upper: u64, most: usize) {
        let all = [(lower, upper)];
        let received: Vec<(u64, u64)> = match self.is_delivered {
            true => all.into(),
            false => self.assembly.received().within(lower, upper).collect(),
        };
        let (mut from, mut to) = (lower, lower);
        let (mut claims, mut count) = (Vec::new(), 0);
        for (start, end) in received {
            if !claims.is_empty() && claims.len() + 2 * sdnv::MAX_BYTES > most {
                self.add_report(checkpoint, (from, to), std::mem::take(&mut claims), count);
                (from, count) = (to, 0);
            }
            self.encoding.write_number(start - from, &mut claims);
            self.encoding.write_number(end - start, &mut claims);
            (to, count) = (end, count + 1);
        }
        if count > 0 {
            self.add_report(checkpoint, (from, upper), claims, count);
        }
    }

    fn add_report(&mut self, checkpoint: u64, bounds: (u64, u64), claims: Vec<u8>, count: u64) {
        let (lower, upper) = bounds;
        let serial = self.next_serial;
        self.next_serial = self.next_serial.wrapping_add(1).max(1);
        self.lower_bounds.insert(serial, lower);
        if self.lower_bounds.len() > MOST_REPORTS {
            self.lower_bounds.pop_first();
        }
        let report = SentReport {
            encoding: self.encoding,
            checkpoint,
            lower,
            upper,
            claims: claims.into(),
            count,
            attempts: 0,
            sent: (PeerTime::default(), 0),
            is_queued: false,
            timer: None,
        };
        self.reports.insert(serial, report);
    }
}

impl SentReport {
    /// Bytes of memory that it takes, with its places in the tables of reports.
    fn cost(&self) -> usize {
        self.claims.len() + 200
    }

    /// The report as a segment's content.
    pub(crate) fn content(&self, serial: u64) -> Report<'_> {
        Report {
            serial,
            checkpoint: self.checkpoint,
            upper: self.upper,
            lower: self.lower,
            claims: Claims {
                encoding: self.encoding,
                count: self.count,
                bytes: &self.claims,
            },
        }
    }
}

#[cfg(test)]
mod tests;
