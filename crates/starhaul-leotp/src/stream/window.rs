//! How many data the other side may send before this side's application has read them. As the receive buffers of TCP (dynamic right-sizing: M. Fisk,
//! W. Feng, 2001) it follows the path and the reader, but without a round-trip time: the other side says when the window is all that it waits for. It
//! doubles then, unless the reader is what it waits for, so it becomes what the reader takes in one or two round trips.

use std::time::{Duration, Instant};

use super::{StreamConfig, memory::Limits};

/// A window that is larger than the first one and that nothing used for so long is the first one again.
const UNUSED: Duration = Duration::from_secs(10);
/// What was read is reported after so many bytes at the latest.
const MOST_UNREPORTED: usize = 1 << 18;
/// Bytes of a content that are asked for ahead at most: what one Interest may ask for.
const MOST_AHEAD: u64 = 64 << 20;

/// The receiving side of one direction.
#[derive(Debug)]
pub(super) struct Window {
    /// Bytes that may be unread. Its lowest bit is set, which says in the header that it may become another one.
    bytes: usize,
    /// The other side takes other windows than the first.
    may_change: bool,
    arrived: u64,
    read: u64,
    /// The end of what the other side may send, as far as it may know.
    promised: u64,
    /// The other side has sent what it may, and waits.
    is_short: bool,
    /// That is news of the present window only at or behind this place.
    since: u64,
    /// Where the content ends that tells of the present window, if that is not known to have arrived.
    told: Option<u64>,
    /// When data last arrived.
    came: Instant,
    /// No more data come.
    has_ended: bool,
}

impl Window {
    /// What every side may send before it is told more.
    pub(super) const fn new(now: Instant) -> Self {
        let bytes = StreamConfig::LEAST_WINDOW;
        Self {
            bytes,
            may_change: false,
            arrived: 0,
            read: 0,
            promised: bytes as u64,
            is_short: false,
            since: bytes as u64,
            told: None,
            came: now,
            has_ended: false,
        }
    }

    /// The first window that the other side is told of; returns how.
    pub(super) fn open(&mut self, bytes: usize) -> u64 {
        self.set(bytes);
        self.bytes as u64
    }

    /// The other side takes other windows.
    pub(super) fn allow_changes(&mut self) {
        self.may_change = true;
    }

    fn set(&mut self, bytes: usize) {
        self.bytes = bytes | 1;
        self.since = self.end();
        self.promise(self.promised.max(self.since));
        self.is_short = false;
        self.told = None;
    }

    fn promise(&mut self, end: u64) {
        if !self.has_ended {
            self.promised = end;
        }
    }

    fn end(&self) -> u64 {
        self.read + self.bytes as u64
    }

    /// Bytes that may be unread.
    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }

    /// Bytes of data that were read.
    pub(super) fn read(&self) -> u64 {
        self.read
    }

    fn unread(&self) -> u64 {
        self.arrived - self.read
    }

    /// Whether the reader lags: it is what the other side waits for.
    fn is_full(&self) -> bool {
        2 * self.unread() > self.bytes as u64
    }

    /// Bytes that may be unread, now or later.
    pub(super) fn promised(&self) -> usize {
        usize::try_from(self.promised.saturating_sub(self.read)).unwrap_or(usize::MAX)
    }

    /// Bytes of the content to ask for ahead: records that are no data take a part of it, too.
    pub(super) fn ahead(&self) -> u64 {
        (self.bytes as u64 * 5 / 4).min(MOST_AHEAD)
    }

    /// Bytes after which the other side is told at once what arrived and was read.
    pub(super) fn report_after(&self) -> u64 {
        (self.bytes / 4).min(MOST_UNREPORTED) as u64
    }

    // What happens.

    /// Data came. Returns whether they may.
    pub(super) fn take(&mut self, now: Instant, length: usize) -> bool {
        self.came = now;
        self.arrived += length as u64;
        // More came than when the other side waited, and the reader has not gone on.
        self.is_short &= !self.is_full();
        self.arrived <= self.promised
    }

    /// The application has read.
    pub(super) fn note_read(&mut self, length: usize) {
        self.read += length as u64;
        self.promise(self.promised.max(self.end()));
    }

    /// All data came.
    pub(super) fn note_end(&mut self) {
        self.has_ended = true;
        self.may_change = false;
        self.promised = self.arrived;
    }

    /// The other side has sent all that it may, and has more.
    pub(super) fn note_short(&mut self) {
        self.is_short = self.arrived >= self.since;
    }

    /// The content up to here tells of the present window.
    pub(super) fn note_told(&mut self, end: u64) {
        self.told = Some(end);
    }

    /// The other side has this much of the content: what it sends from now on obeys what that says.
    pub(super) fn has_heard(&mut self, received: u64) {
        if self.told.take_if(|end| *end <= received).is_some() {
            self.promise(self.arrived.max(self.end()));
        }
    }

    // What follows.

    /// Makes the window larger if it is what the other side waits for, as far as a stream may that has `own` bytes of memory; returns what the other side is
    /// to be told.
    pub(super) fn grow(&mut self, limits: &Limits, own: usize) -> Option<u64> {
        if !self.is_short || !self.may_change || self.is_full() {
            return None;
        }
        self.is_short = false;
        let wanted = limits.first_window.max(2 * self.bytes);
        let bytes = wanted.min(limits.window).min(limits.share(own));
        // Less is not worth a packet.
        if bytes < self.bytes + self.bytes / 4 {
            return None;
        }
        self.set(bytes);
        Some(self.bytes as u64)
    }

    /// Whether it is larger than this and may become less.
    pub(super) fn may_shrink(&self, to: usize) -> bool {
        self.may_change && self.bytes > to | 1
    }

    /// Makes it as small as this; returns what the other side is to be told.
    pub(super) fn shrink(&mut self, to: usize) -> Option<u64> {
        self.may_shrink(to).then(|| {
            self.set(to);
            self.bytes as u64
        })
    }

    /// Whether no data came for this time.
    pub(super) fn is_unused(&self, now: Instant, time: Duration) -> bool {
        now.saturating_duration_since(self.came) >= time
    }

    /// When it is to be the first one again.
    pub(super) fn ends_at(&self, limits: &Limits) -> Option<Instant> {
        self.may_shrink(limits.first_window)
            .then(|| self.came + UNUSED)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ContentSecret;

    const FIRST: usize = 1 << 20;

    fn limits() -> Limits {
        let config = StreamConfig::new(ContentSecret::new(&[1; 32]));
        let time = Duration::from_secs(1);
        Limits::new(&config, time, time, time)
    }

    /// A window that may change, and when it opened.
    fn opened() -> (Window, Instant) {
        let now = Instant::now();
        let mut window = Window::new(now);
        assert_eq!(window.open(FIRST), FIRST as u64 | 1);
        window.allow_changes();
        (window, now)
    }

    /// Data come up to the end of what was promised.
    fn fill(window: &mut Window, now: Instant) {
        let left = usize::try_from(window.promised - window.arrived).unwrap();
        assert!(window.take(now, left));
    }

    #[test]
    fn it_doubles_while_the_other_side_waits_for_it_and_the_reader_keeps_up() {
        let (mut window, now) = opened();
        let limits = limits();
        for doubled in 1..=6 {
            fill(&mut window, now);
            window.note_short();
            assert_eq!(window.grow(&limits, 0), None, "nothing was read");
            window.note_read(window.bytes / 2);
            assert_eq!(window.grow(&limits, 0), None, "more than half is unread");
            window.note_read(1);
            let grown = window.grow(&limits, 0).unwrap();
            assert_eq!(grown >> 20, 1 << doubled);
            window.note_short();
            assert_eq!(window.grow(&limits, 0), None, "the news is of the former");
            window.note_read(usize::try_from(window.unread()).unwrap());
        }
        fill(&mut window, now);
        window.note_short();
        window.note_read(usize::try_from(window.unread()).unwrap());
        assert_eq!(window.grow(&limits, 0), None, "it is the greatest");
        assert!(
            !window.take(now, window.bytes + 1),
            "more than was promised"
        );
    }

    #[test]
    fn a_slow_reader_keeps_it_small() {
        let (mut window, now) = opened();
        let limits = limits();
        for _ in 0..100 {
            fill(&mut window, now);
            window.note_short();
            window.note_read(FIRST / 4);
            assert_eq!(window.grow(&limits, 0), None);
        }
        // What came last was all: the sender waits for no more room.
        let more = usize::try_from(window.promised - window.arrived).unwrap() / 2;
        window.take(now, more);
        window.note_read(usize::try_from(window.unread()).unwrap());
        assert_eq!((window.grow(&limits, 0), window.bytes), (None, FIRST | 1));
    }

    #[test]
    fn without_memory_or_with_a_peer_that_takes_no_other_it_stays() {
        for (may_change, reserved, grows) in [
            (true, 0, true),
            (true, 256 << 20, false),
            (true, 255 << 20, false),
            (true, 250 << 20, true),
            (false, 0, false),
        ] {
            let (mut window, now) = opened();
            window.may_change = may_change;
            let mut limits = limits();
            limits.reserved = reserved;
            fill(&mut window, now);
            window.note_short();
            window.note_read(FIRST);
            assert_eq!(window.grow(&limits, 0).is_some(), grows, "{reserved}");
        }
    }

    #[test]
    fn what_was_promised_counts_until_the_other_side_has_heard_of_less() {
        let (mut window, now) = opened();
        assert!(window.take(now, 1000));
        window.note_read(1000);
        let small = StreamConfig::LEAST_WINDOW;
        assert_eq!(window.shrink(small), Some(small as u64 | 1));
        assert_eq!(window.shrink(small), None);
        window.has_heard(u64::MAX);
        assert_eq!(window.promised(), FIRST | 1, "it was not told yet");
        window.note_told(500);
        window.has_heard(499);
        assert!(window.take(now, FIRST), "it is under way");
        window.has_heard(500);
        assert_eq!(window.promised(), FIRST, "what came stays");
        assert!(!window.take(now, 1), "the other side knows");
        window.note_read(FIRST + 1);
        assert_eq!(window.promised(), small | 1);
    }

    #[test]
    fn behind_the_end_nothing_is_promised() {
        let (mut window, now) = opened();
        assert!(window.take(now, 100));
        window.note_end();
        assert_eq!(window.promised(), 100);
        window.note_read(60);
        assert_eq!(window.promised(), 40);
        assert!(!window.may_shrink(0));
    }

    #[test]
    fn one_that_nothing_uses_is_the_first_again() {
        let (mut window, now) = opened();
        let limits = limits();
        assert_eq!(window.ends_at(&limits), None);
        fill(&mut window, now);
        window.note_short();
        window.note_read(FIRST);
        window.grow(&limits, 0);
        assert_eq!(window.ends_at(&limits), Some(now + UNUSED));
        window.shrink(limits.first_window);
        assert_eq!(window.ends_at(&limits), None);
    }
}
