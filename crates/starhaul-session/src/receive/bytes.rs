//! The receiving direction of a reliable stream: frames in any order become bytes in order.

use std::time::{Duration, Instant};

use bytes::{Buf, Bytes};

use super::pages::{PageSize, Pages, SparePage};
use crate::{
    send::bytes::INITIAL_CREDIT,
    types::{ProtocolError, StreamId},
};

/// The window moves on in steps of this part of it …
const CREDIT_STEPS: u64 = 16;
/// … but not in smaller ones than this, or a quarter: each costs a message.
const LEAST_STEP: u64 = 64 << 10;
/// Of what all readers ask for, who asks for this part leads. Three quarters of the memory are kept for such, and must not go to a
/// crowd, which fills the paths with little for each, and may stand still the next moment.
const LEADING_PART: u64 = 32;
/// Largest window of a stream of which nothing was read yet.
const MAX_FIRST_WINDOW: u64 = 1 << 20;

/// A stream that was granted so much, and of which as much was read as each is granted at first, carries much.
const MUCH_GRANTED: u64 = 512 << 10;
/// Reading is measured at each multiple of this, and where it ends: what a sender is granted depends on no size of pages.
const MEASURED_STEP: u64 = 4096;

/// How much memory the reliable streams of a session have left for one of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Share {
    /// Memory of all.
    pub(crate) all: u64,
    /// Of that, what the others were not granted.
    pub(crate) free: u64,
    /// How many streams there are, this one included.
    pub(crate) streams: u64,
    /// What the others ask for of which something was read lately.
    pub(crate) demand: u64,
}

impl Share {
    /// What is left of the quarter that even those may take who have read little.
    const fn for_everybody(&self) -> u64 {
        self.free.saturating_sub(self.all / 4 * 3)
    }
}

/// What the sums over all streams of a session have of one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Counted {
    pub(super) granted: u64,
    /// When its round of reading began, and what it asks for since.
    pub(super) reading: Option<(Instant, u64)>,
}

#[derive(Debug)]
pub(crate) struct ReceiveBytes {
    waiting: Pages,
    /// First byte not yet read.
    read: u64,
    /// One past the greatest byte received.
    highest: u64,
    end: Option<u64>,
    /// What the sender was granted.
    credit: u64,
    /// Bytes beyond the first unread one that the sender is to be granted, as far as memory allows.
    window: u64,
    /// What was granted when the window grew behind a lost byte the last time: it does once for each limit.
    widened_at: u64,
    /// Since when what is read is counted, and the first byte of that.
    round: Option<(Instant, u64)>,
    /// What the last whole round asks for.
    wanted: Option<u64>,
    /// The peer reset its direction with this code.
    pub(crate) reset: Option<u32>,
    /// The application was told that there is something to read and has not found it empty since.
    pub(crate) announced: bool,
    /// The application does not read any more.
    pub(crate) stopped: bool,
    /// The end, or the reset, was handed to the application.
    pub(crate) is_done: bool,
    /// What the sums of the session have of it.
    pub(super) counted: Option<Counted>,
}

impl ReceiveBytes {
    pub(crate) const fn new() -> Self {
        Self {
            waiting: Pages::new(),
            read: 0,
            highest: 0,
            end: None,
            credit: INITIAL_CREDIT,
            window: INITIAL_CREDIT,
            widened_at: 0,
            round: None,
            wanted: None,
            reset: None,
            announced: false,
            stopped: false,
            is_done: false,
            counted: None,
        }
    }

    /// Takes a frame; true when the application can read on.
    pub(crate) fn insert(
        &mut self,
        stream: StreamId,
        offset: u64,
        fin: bool,
        payload: Bytes,
    ) -> Result<bool, ProtocolError> {
        self.accept(stream, offset, fin, payload)?;
        Ok(self.is_readable())
    }

    /// The same, where it is asked for several frames together whether the application can read on.
    pub(crate) fn accept(
        &mut self,
        stream: StreamId,
        offset: u64,
        fin: bool,
        mut payload: Bytes,
    ) -> Result<(), ProtocolError> {
        let end = offset.saturating_add(payload.len() as u64);
        if end > self.credit {
            return Err(ProtocolError::Limit("stream credit"));
        }
        if self
            .end
            .is_some_and(|known| end > known || (fin && end != known))
            || (fin && end < self.highest)
        {
            return Err(ProtocolError::StreamState {
                stream,
                what: "bytes beyond its end",
            });
        }
        if fin {
            self.end = Some(end);
            self.trim();
        }
        self.highest = self.highest.max(end);
        if self.stopped || self.reset.is_some() {
            self.read = self.read.max(self.highest);
            return Ok(());
        }
        let known = self.read.saturating_sub(offset);
        let known = usize::try_from(known).map_or(payload.len(), |known| known.min(payload.len()));
        payload.advance(known);
        let size = self.page_size();
        self.waiting
            .store(self.read, offset + known as u64, &payload, size);
        Ok(())
    }

    /// The application can read on after what has arrived.
    pub(crate) fn is_readable(&self) -> bool {
        !self.stopped && self.reset.is_none() && self.can_read()
    }

    /// Of pages to come.
    const fn page_size(&self) -> PageSize {
        let much = match self.waiting.page_size() {
            PageSize::Small => MUCH_GRANTED,
            PageSize::Large => MUCH_GRANTED / 2,
        };
        match self.read >= INITIAL_CREDIT && self.granted() >= much {
            true => PageSize::Large,
            false => PageSize::Small,
        }
    }

    /// Bytes in order, or the end, wait.
    pub(crate) fn can_read(&self) -> bool {
        self.waiting.is_ready(self.read) || self.end == Some(self.read)
    }

    /// Up to `max` bytes in order; empty at the end; `None` when nothing can be read now.
    pub(crate) fn read(&mut self, max: usize) -> Option<Bytes> {
        if max == 0 && self.waiting.is_ready(self.read) {
            return None;
        }
        if let Some(taken) = self.waiting.take(self.read, max) {
            self.read += taken.len() as u64;
            self.trim();
            return Some(taken);
        }
        if self.end == Some(self.read) {
            self.is_done = true;
            return Some(Bytes::new());
        }
        self.announced = false;
        None
    }

    /// The same as [`Self::read`], and what follows from it for the window. `round` is now, the round trip and the largest window.
    pub(crate) fn read_measured(
        &mut self,
        max: usize,
        round: (Instant, Duration, u64),
    ) -> Option<Bytes> {
        let mut at = self.next_step();
        let taken = self.read(max)?;
        while at < self.read {
            self.measure_at(at, round);
            at += MEASURED_STEP;
        }
        self.measure_at(self.read, round);
        Some(taken)
    }

    /// Bytes up to where reading is measured next.
    pub(crate) fn step_left(&self) -> usize {
        usize::try_from(self.next_step() - self.read).unwrap_or(usize::MAX)
    }

    const fn next_step(&self) -> u64 {
        self.read - self.read % MEASURED_STEP + MEASURED_STEP
    }

    /// Keeps spare pages within what the sender was granted, which is for pages with bytes in them.
    pub(crate) fn recycle(&mut self, spare: &mut Vec<SparePage>) {
        let most = self.granted_memory();
        self.waiting.recycle(spare, most);
    }

    fn trim(&mut self) {
        let most = self.granted_memory();
        self.waiting.trim(most);
    }

    fn granted_memory(&self) -> usize {
        usize::try_from(self.granted()).unwrap_or(usize::MAX)
    }

    /// Frees what is kept for bytes to come.
    pub(crate) fn release_memory(&mut self) {
        self.waiting.release_memory();
    }

    /// Bytes that wait for earlier ones or for a reader.
    pub(crate) fn waiting_bytes(&self) -> usize {
        self.waiting.waiting_bytes()
    }

    /// What bytes that wait for earlier ones or for a reader cost, and pages that are kept for bytes to come.
    pub(crate) const fn held_bytes(&self) -> usize {
        self.waiting.held_bytes()
    }

    /// Bytes that the sender may still make us hold: none beyond the end, or once they are thrown away.
    pub(crate) const fn granted(&self) -> u64 {
        self.granted_from(self.read)
    }

    /// The same when those before `read` were read.
    const fn granted_from(&self, read: u64) -> u64 {
        if self.stopped || self.reset.is_some() {
            return 0;
        }
        let limit = match self.end {
            Some(end) if end < self.credit => end,
            _ => self.credit,
        };
        limit.saturating_sub(read)
    }

    pub(crate) fn stop(&mut self) {
        self.stopped = true;
        self.waiting.clear();
        self.read = self.highest;
    }

    pub(crate) fn on_reset(&mut self, code: u32) {
        self.reset = Some(code);
        self.waiting.clear();
    }

    /// No more is expected from the peer.
    pub(crate) const fn is_ended(&self) -> bool {
        self.is_done || (self.stopped && (self.end.is_some() || self.reset.is_some()))
    }

    /// Takes up to `window` bytes beyond what was read, as both sides know without a message.
    pub(crate) fn slide_credit(&mut self, window: u64) {
        self.credit = self.credit.max(self.read + window);
    }

    /// Whether enough was read since the last limit that a new one may be worth telling.
    pub(crate) fn wants_credit(&self) -> bool {
        self.end.is_none() && self.granted() <= self.window - step_of(self.window)
    }

    /// The sender has all but used up what it was granted while a lost byte keeps the application from reading; its window grows, or
    /// it would stand still until that byte has come. True if it grew, up to `largest`.
    pub(crate) fn widen(&mut self, largest: u64) -> bool {
        // Asked for each frame, of which most find this.
        if self.highest.saturating_add(self.window / 4) < self.credit {
            return false;
        }
        // Who has read nothing yet leaves memory to those who have.
        let largest = match self.read {
            0 => largest.min(MAX_FIRST_WINDOW),
            _ => largest,
        };
        let waits_for_a_byte = !self.can_read() && self.highest > self.read;
        let is_over = self.end.is_some() || self.window >= largest;
        if !waits_for_a_byte || is_over || self.widened_at >= self.credit {
            return false;
        }
        self.widened_at = self.credit;
        self.window = self.window.saturating_mul(2).min(largest);
        true
    }

    /// The application reads: twice what it reads in a round trip keeps it busy, and more would only be held for it when it stops.
    /// Round trips are longer than they seem from here where a queue stands in the sender's way; so a sender that has used its
    /// credit up while the application waits gets more all the same. It has read to `read`, and what it reads on from there by now.
    fn measure_at(&mut self, read: u64, (now, round_trip, largest): (Instant, Duration, u64)) {
        let used_up = self.highest.saturating_add(self.window / 4) >= self.credit;
        let has_read = self.granted_from(read) <= self.window - self.window / 4;
        let has_all = || read == self.read && !self.waiting.is_ready(read);
        if used_up && has_read && self.end.is_none() && has_all() {
            self.window = self.window.max(self.window.saturating_mul(2).min(largest));
        }
        let (since, from) = *self.round.get_or_insert((now, read));
        let elapsed = now.saturating_duration_since(since);
        let twice = (read - from).saturating_mul(2);
        if elapsed <= round_trip {
            self.window = self.window.max(twice.min(largest));
            return;
        }
        let share = u128::from(twice) * round_trip.as_micros() / elapsed.as_micros().max(1);
        self.wanted = Some(u64::try_from(share).unwrap_or(u64::MAX));
        self.round = Some((now, read));
    }

    /// What the application asks for, if it has read within the last two round trips.
    pub(crate) fn demand(&self, now: Instant, round_trip: Duration) -> u64 {
        let reading = self.reading();
        reading
            .filter(|(since, _)| Self::is_lately(*since, now, round_trip))
            .map_or(0, |(_, asks)| asks)
    }

    /// When the round of reading began, and what the application asks for since.
    pub(super) fn reading(&self) -> Option<(Instant, u64)> {
        let (since, from) = self.round?;
        let twice = (self.read - from).saturating_mul(2);
        Some((since, twice.max(self.wanted.unwrap_or_default())))
    }

    /// Whether who reads in a round since then still counts as reading.
    pub(super) fn is_lately(since: Instant, now: Instant, round_trip: Duration) -> bool {
        now.saturating_duration_since(since) <= round_trip.saturating_mul(2)
    }

    /// The first window: the more memory is left, the more, but never what is kept for those who read.
    pub(crate) fn open_window(&mut self, share: Share) {
        let spare = share.for_everybody() / 8;
        self.window = self.window.max(spare.min(MAX_FIRST_WINDOW));
    }

    /// A new limit worth telling the sender, where the application asks for `demand`. A stream may take some of what the others were
    /// not granted; of the part that is kept for those only if it leads.
    pub(crate) fn next_credit(&mut self, demand: u64, share: Share) -> Option<u64> {
        if self.end.is_some() {
            return None;
        }
        if share.free < share.all / 2
            && let Some(wanted) = self.wanted
        {
            // Memory is short: no stream keeps a window from better days.
            self.window = self.window.min(wanted.max(INITIAL_CREDIT));
        }
        let leads = demand.saturating_mul(LEADING_PART) >= share.demand.saturating_add(demand);
        let most = match leads {
            // The more there are, the more others may come to lead.
            true => share.free / (2 + share.streams / 16).min(4),
            false => share.for_everybody() / 2,
        };
        let window = self.window.min(most).max(INITIAL_CREDIT);
        let limit = self.read + window;
        if limit < self.credit + step_of(window) {
            return None;
        }
        self.credit = limit;
        Some(limit)
    }
}

fn step_of(window: u64) -> u64 {
    (window / CREDIT_STEPS).max(LEAST_STEP.min(window / 4))
}

#[cfg(test)]
mod tests;
