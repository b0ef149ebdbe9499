//! The receiving direction of a reliable stream: frames in any order become bytes in order.

use std::time::{Duration, Instant};

use bytes::{Buf, Bytes};

use super::pages::Pages;
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
        mut payload: Bytes,
    ) -> Result<bool, ProtocolError> {
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
        }
        self.highest = self.highest.max(end);
        if self.stopped || self.reset.is_some() {
            self.read = self.read.max(self.highest);
            return Ok(false);
        }
        let known = self.read.saturating_sub(offset);
        let known = usize::try_from(known).map_or(payload.len(), |known| known.min(payload.len()));
        payload.advance(known);
        self.waiting
            .store(self.read, offset + known as u64, &payload);
        Ok(self.can_read())
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
            return Some(taken);
        }
        if self.end == Some(self.read) {
            self.is_done = true;
            return Some(Bytes::new());
        }
        self.announced = false;
        None
    }

    /// Bytes that wait for earlier ones or for a reader.
    pub(crate) fn waiting_bytes(&self) -> usize {
        self.waiting.waiting_bytes()
    }

    /// What bytes that wait for earlier ones or for a reader cost.
    pub(crate) const fn held_bytes(&self) -> usize {
        self.waiting.held_bytes()
    }

    /// Bytes that the sender may still make us hold: none beyond the end, or once they are thrown away.
    pub(crate) const fn granted(&self) -> u64 {
        if self.stopped || self.reset.is_some() {
            return 0;
        }
        let limit = match self.end {
            Some(end) if end < self.credit => end,
            _ => self.credit,
        };
        limit.saturating_sub(self.read)
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
        // Who has read nothing yet leaves memory to those who have.
        let largest = match self.read {
            0 => largest.min(MAX_FIRST_WINDOW),
            _ => largest,
        };
        let waits_for_a_byte = !self.can_read() && self.highest > self.read;
        let used_up = self.highest.saturating_add(self.window / 4) >= self.credit;
        let is_over = self.end.is_some() || self.window >= largest;
        if !(waits_for_a_byte && used_up) || is_over || self.widened_at >= self.credit {
            return false;
        }
        self.widened_at = self.credit;
        self.window = self.window.saturating_mul(2).min(largest);
        true
    }

    /// The application reads: twice what it reads in a round trip keeps it busy, and more would only be held for it when it stops.
    /// Round trips are longer than they seem from here where a queue stands in the sender's way; so a sender that has used its
    /// credit up while the application waits gets more all the same.
    pub(crate) fn measure(&mut self, now: Instant, round_trip: Duration, largest: u64) {
        let used_up = self.highest.saturating_add(self.window / 4) >= self.credit;
        let has_read = self.granted() <= self.window - self.window / 4;
        if used_up && has_read && self.end.is_none() && !self.waiting.is_ready(self.read) {
            self.window = self.window.max(self.window.saturating_mul(2).min(largest));
        }
        let (since, from) = *self.round.get_or_insert((now, self.read));
        let elapsed = now.saturating_duration_since(since);
        let twice = (self.read - from).saturating_mul(2);
        if elapsed <= round_trip {
            self.window = self.window.max(twice.min(largest));
            return;
        }
        let share = u128::from(twice) * round_trip.as_micros() / elapsed.as_micros().max(1);
        self.wanted = Some(u64::try_from(share).unwrap_or(u64::MAX));
        self.round = Some((now, self.read));
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
mod tests {
    use proptest::prelude::*;

    use super::*;

    const STREAM: StreamId = StreamId(2);

    proptest! {
        #[test]
        fn frames_in_any_order_and_overlap_give_the_bytes_in_order(
            length in 1usize..10_000,
            // Where a frame begins, its length, and how much is read after it, if there is so much.
            steps in proptest::collection::vec((0usize..10_000, 1usize..3_000, 0usize..3_000), 0..40),
            seed in any::<u8>(),
        ) {
            let data: Vec<u8> = (0..length).map(|at| (at ^ (at >> 8) ^ usize::from(seed)).to_le_bytes()[0]).collect();
            let data = Bytes::from(data);
            let mut stream = ReceiveBytes::new();
            let (mut has_come, mut read) = (vec![false; length], Vec::new());
            for (start, size, most) in steps {
                let start = start.min(length);
                let end = (start + size).min(length);
                stream.insert(STREAM, start as u64, end == length, data.slice(start..end)).unwrap();
                has_come[start..end].fill(true);
                let can_read = has_come[read.len()..].iter().take_while(|come| **come).count();
                let until = read.len() + can_read.min(most);
                while read.len() < until {
                    let bytes = stream.read(until - read.len()).unwrap_or_default();
                    prop_assert!(!bytes.is_empty(), "at {} of {until}", read.len());
                    read.extend_from_slice(&bytes);
                }
                let next_has_come = has_come.get(read.len()).copied();
                prop_assert_eq!(stream.can_read(), next_has_come.unwrap_or(true));
            }
            stream.insert(STREAM, 0, true, data.clone()).unwrap();
            while let Some(bytes) = stream.read(7) {
                if bytes.is_empty() { break; }
                read.extend_from_slice(&bytes);
            }
            prop_assert_eq!(read, data);
            prop_assert!(stream.is_done);
            prop_assert_eq!(stream.held_bytes(), 0);
        }
    }

    const ALONE: Share = Share {
        all: 32 << 20,
        free: 32 << 20,
        streams: 1,
        demand: 0,
    };

    /// Lets the application read `bytes` at `now`.
    fn read(stream: &mut ReceiveBytes, now: Instant, bytes: u64) {
        stream.read += bytes;
        stream.measure(now, Duration::from_millis(100), 16 << 20);
    }

    #[test]
    fn the_window_follows_what_is_read_in_a_round_trip() {
        let now = Instant::now();
        let mut stream = ReceiveBytes::new();
        stream.open_window(ALONE);
        assert_eq!(stream.next_credit(0, ALONE), Some(1 << 20));
        read(&mut stream, now, 1);
        read(&mut stream, now + Duration::from_millis(50), 400 << 10);
        assert_eq!(stream.window, 1 << 20);
        read(&mut stream, now + Duration::from_millis(60), 1 << 20);
        assert_eq!(stream.window, (2 << 20) + (800 << 10));
        // The same in ten times as long asks for a tenth, which counts only when memory is short.
        read(&mut stream, now + Duration::from_millis(101), 0);
        read(&mut stream, now + Duration::from_millis(1101), 400 << 10);
        assert_eq!(
            (stream.wanted, stream.window),
            (Some(81_920), (2 << 20) + (800 << 10))
        );
        let short = Share {
            free: 15 << 20,
            ..ALONE
        };
        stream.next_credit(0, short);
        assert_eq!(stream.window, 81_920);
    }

    #[test]
    fn the_window_grows_behind_a_lost_byte_and_not_before_a_reader_that_stands_still() {
        let large = || Bytes::from(vec![0; 60 << 10]);
        let mut behind_a_loss = ReceiveBytes::new();
        behind_a_loss.insert(STREAM, 1, false, large()).unwrap();
        assert!(behind_a_loss.widen(1 << 20));
        assert_eq!(
            behind_a_loss.next_credit(0, ALONE),
            Some(2 * INITIAL_CREDIT)
        );
        assert!(!behind_a_loss.widen(1 << 20), "the sender has not used it");
        let mut unread = ReceiveBytes::new();
        unread.insert(STREAM, 0, false, large()).unwrap();
        assert!(!unread.widen(1 << 20));
    }

    #[test]
    fn many_that_are_granted_all_they_ask_for_leave_memory_to_the_next() {
        let mut granted = 0;
        for streams in 1..=200 {
            let mut stream = ReceiveBytes::new();
            let share = Share {
                free: ALONE.all - granted,
                streams,
                ..ALONE
            };
            stream.open_window(share);
            granted += stream.next_credit(0, share).unwrap_or(INITIAL_CREDIT);
        }
        assert!(granted < ALONE.all * 7 / 8, "{granted}");
    }

    #[test]
    fn a_crowd_leaves_memory_to_who_reads_more_than_it() {
        let now = Instant::now();
        let mut granted = 0;
        for _ in 0..200 {
            let mut stream = ReceiveBytes::new();
            read(&mut stream, now, 1);
            read(&mut stream, now, 1 << 20);
            let share = Share {
                free: ALONE.all.saturating_sub(granted),
                streams: 200,
                demand: 400 << 20,
                ..ALONE
            };
            let before = stream.granted();
            let demand = stream.demand(now, Duration::from_millis(100));
            stream.next_credit(demand, share);
            granted += stream.granted().max(before);
        }
        let left = Share {
            free: ALONE.all.saturating_sub(granted),
            streams: 201,
            ..ALONE
        };
        let mut leader = ReceiveBytes::new();
        read(&mut leader, now, 1);
        read(&mut leader, now, 4 << 20);
        let demand = leader.demand(now, Duration::from_millis(100));
        leader.next_credit(demand, left);
        assert!(
            leader.granted() > 2 << 20,
            "{granted} leave {}",
            leader.granted()
        );
        assert_eq!(
            leader.demand(now + Duration::from_secs(1), Duration::from_millis(100)),
            0
        );
    }

    #[test]
    fn a_sender_beyond_its_credit_or_its_end_is_refused() {
        let mut stream = ReceiveBytes::new();
        let byte = || Bytes::from_static(b"x");
        assert_eq!(
            stream.insert(STREAM, INITIAL_CREDIT, false, byte()),
            Err(ProtocolError::Limit("stream credit"))
        );
        assert_eq!(stream.insert(STREAM, 4, true, byte()), Ok(false));
        assert!(stream.insert(STREAM, 5, false, byte()).is_err());
        assert!(stream.insert(STREAM, 1, true, byte()).is_err());
        assert_eq!(
            stream.insert(STREAM, 0, false, Bytes::from_static(b"abcd")),
            Ok(true)
        );
    }
}
