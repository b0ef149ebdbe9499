//! Bytes of a stream that wait for earlier ones or for a reader, in pages.
//!
//! A page costs the same whatever part of it has arrived, so what is held is bounded by the sender's window alone, however the bytes
//! are cut. They are copied into it: a frame is part of a buffer of many packets, of which one byte would keep all.

use std::collections::VecDeque;

use bytes::{Bytes, BytesMut};

/// Bytes of a page.
const PAGE: usize = 4096;
const WORDS: usize = PAGE / 64;
/// A bit for each byte of a page.
type Bits = [u64; WORDS];
/// What a page costs besides its bytes, at most.
const OVERHEAD_BYTES: usize = size_of::<Page>() + size_of::<Bits>() + 64;

/// Pages in order of their numbers.
#[derive(Debug, Default)]
pub(crate) struct Pages {
    pages: VecDeque<Option<Box<Page>>>,
    /// Number of the front page.
    first: u64,
    held: usize,
}

#[derive(Debug)]
struct Page {
    /// From `start` to the last byte that has arrived.
    bytes: BytesMut,
    /// The first byte that was not handed on, within the page.
    start: usize,
    /// Which bytes of the page have arrived, while some of `bytes` have not: most arrive in order.
    present: Option<Box<Bits>>,
    /// How many that have arrived were not handed on.
    unread: usize,
    cost: usize,
}

impl Pages {
    pub(crate) const fn new() -> Self {
        Self {
            pages: VecDeque::new(),
            first: 0,
            held: 0,
        }
    }

    /// Copies bytes that begin at `offset`, which is not below `read`, up to which all was handed on. The caller bounds `offset`.
    pub(crate) fn store(&mut self, read: u64, mut offset: u64, mut bytes: &[u8]) {
        let (first_unread, read_at) = split(read);
        while self.first < first_unread && self.pages.pop_front().is_some() {
            self.first += 1;
        }
        if self.pages.is_empty() {
            self.first = first_unread;
        }
        while !bytes.is_empty() {
            let (number, at) = split(offset);
            let start = if number == first_unread { read_at } else { 0 };
            let Some(index) = self.index(number) else {
                return;
            };
            if index >= self.pages.len() {
                self.pages.resize_with(index + 1, || None);
            }
            let count = bytes.len().min(PAGE - at);
            let (now, later) = bytes.split_at(count);
            if let Some(page) = self.pages.get_mut(index) {
                let page = page.get_or_insert_with(|| {
                    let page = Page::new(start);
                    self.held += page.cost;
                    Box::new(page)
                });
                page.store(at, now);
            }
            offset += count as u64;
            bytes = later;
        }
    }

    /// The next bytes from `read` on, at most `max` and not empty; `None` when the first has not arrived.
    pub(crate) fn take(&mut self, read: u64, max: usize) -> Option<Bytes> {
        let (number, at) = split(read);
        let index = self.index(number)?;
        let place = self.pages.get_mut(index)?;
        let page = place.as_mut()?;
        let count = page.run(at).min(max);
        if count == 0 {
            return None;
        }
        let taken = match count == page.bytes.len() {
            // A part would share its memory with what is left, which takes an allocation.
            true => std::mem::take(&mut page.bytes).freeze(),
            false => page.bytes.split_to(count).freeze(),
        };
        page.start += count;
        page.unread -= count;
        if page.unread == 0 {
            self.held -= page.cost;
            *place = None;
        }
        Some(taken)
    }

    /// The byte at `read` has arrived.
    pub(crate) fn is_ready(&self, read: u64) -> bool {
        let (number, at) = split(read);
        let page = self.index(number).and_then(|index| self.pages.get(index));
        page.and_then(Option::as_ref)
            .is_some_and(|page| page.has(at))
    }

    fn index(&self, number: u64) -> Option<usize> {
        usize::try_from(number.checked_sub(self.first)?).ok()
    }

    pub(crate) fn clear(&mut self) {
        *self = Self::new();
    }

    /// Bytes that have arrived and were not handed on.
    pub(crate) fn waiting_bytes(&self) -> usize {
        let pages = self.pages.iter().flatten();
        pages.map(|page| page.unread).sum()
    }

    /// Bytes of memory that the pages are counted as.
    pub(crate) const fn held_bytes(&self) -> usize {
        self.held
    }
}

impl Page {
    fn new(start: usize) -> Self {
        let room = PAGE - start;
        Self {
            cost: room + OVERHEAD_BYTES,
            bytes: BytesMut::with_capacity(room),
            start,
            present: None,
            unread: 0,
        }
    }

    fn store(&mut self, at: usize, bytes: &[u8]) {
        let (from, known) = (at - self.start, self.bytes.len());
        let to = from + bytes.len();
        if from <= known && self.present.is_none() {
            let (again, new) = bytes.split_at(bytes.len().min(known - from));
            if let Some(place) = self.bytes.get_mut(from..from + again.len()) {
                place.copy_from_slice(again);
            }
            self.bytes.extend_from_slice(new);
            self.unread += new.len();
            return;
        }
        self.bytes.resize(to.max(known), 0);
        if let Some(place) = self.bytes.get_mut(from..to) {
            place.copy_from_slice(bytes);
        }
        let start = self.start;
        let present = self.present.get_or_insert_with(|| {
            let mut present = Box::new([0; WORDS]);
            set(&mut present, start, start + known);
            present
        });
        self.unread += set(present, at, at + bytes.len());
        if self.unread == self.bytes.len() {
            self.present = None;
        }
    }

    /// Whether the byte at `at`, which was not handed on, is there.
    fn has(&self, at: usize) -> bool {
        match &self.present {
            Some(present) => {
                let word = present.get(at / 64);
                word.is_some_and(|word| word >> (at % 64) & 1 == 1)
            }
            None => self.end() > at,
        }
    }

    /// How many bytes from `at` on, where the first is that was not handed on, are there without a gap.
    fn run(&self, at: usize) -> usize {
        let Some(present) = &self.present else {
            return self.end().saturating_sub(at);
        };
        let mut end = at;
        while let Some(word) = present.get(end / 64) {
            let ones = (word >> (end % 64)).trailing_ones() as usize;
            end += ones;
            if ones == 0 || !end.is_multiple_of(64) {
                break;
            }
        }
        end - at
    }

    /// One past the last byte that has arrived, within the page.
    fn end(&self) -> usize {
        self.start + self.bytes.len()
    }
}

/// Sets the bits from `from` to before `to`; returns how many were not set.
fn set(present: &mut Bits, from: usize, to: usize) -> usize {
    let mut new = 0;
    let words = present.iter_mut().enumerate();
    for (word, present) in words.take(to.div_ceil(64)).skip(from / 64) {
        let low = from.max(word * 64);
        let high = to.min(word * 64 + 64);
        if low < high {
            let mask = (u64::MAX >> (64 - (high - low))) << (low % 64);
            new += (mask & !*present).count_ones() as usize;
            *present |= mask;
        }
    }
    new
}

/// The page of an offset, and the place in it.
fn split(offset: u64) -> (u64, usize) {
    let at = usize::try_from(offset % PAGE as u64).unwrap_or(0);
    (offset / PAGE as u64, at)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_waits_counts_each_byte_once_and_no_gap() {
        let mut pages = Pages::new();
        pages.store(0, 0, &[1; 100]);
        pages.store(0, 50, &[1; 100]);
        pages.store(0, PAGE as u64 - 50, &[2; 200]);
        pages.store(0, PAGE as u64 - 60, &[2; 20]);
        assert_eq!(pages.waiting_bytes(), 150 + 210);
        assert_eq!(pages.take(0, 30).unwrap().len(), 30);
        assert_eq!(pages.waiting_bytes(), 120 + 210);
        pages.clear();
        assert_eq!(pages.waiting_bytes(), 0);
    }

    #[test]
    fn a_page_that_was_read_is_let_go_and_begins_again_where_reading_stopped() {
        let mut pages = Pages::new();
        pages.store(0, 0, &[1; 5000]);
        assert_eq!(pages.held_bytes(), 2 * (PAGE + OVERHEAD_BYTES));
        assert_eq!(pages.take(0, 10).unwrap(), [1; 10][..]);
        assert_eq!(pages.take(10, usize::MAX).unwrap().len(), PAGE - 10);
        assert_eq!(pages.take(4096, usize::MAX).unwrap().len(), 904);
        assert_eq!(pages.held_bytes(), 0);
        assert_eq!(pages.take(5000, 1), None);
        // Beyond a gap first, then the gap.
        pages.store(5000, 5100, &[3; 1]);
        assert!(!pages.is_ready(5000));
        pages.store(5000, 5000, &[2; 100]);
        let bytes = pages.take(5000, usize::MAX).unwrap();
        assert_eq!((bytes.len(), bytes[99], bytes[100]), (101, 2, 3));
        assert_eq!(pages.held_bytes(), 0);
    }

    #[test]
    fn a_page_knows_its_gaps_and_forgets_them_once_they_are_filled() {
        let mut pages = Pages::new();
        pages.store(0, 0, &[1; 100]);
        assert_eq!(pages.take(0, 30).unwrap(), [1; 30][..]);
        let page = |pages: &Pages| {
            let page = pages.pages[0].as_ref().unwrap();
            (page.unread, page.present.is_some())
        };
        assert_eq!(page(&pages), (70, false));
        // Beyond two gaps, over the end of the second part, and once more.
        pages.store(30, 200, &[3; 50]);
        pages.store(30, 300, &[5; 10]);
        pages.store(30, 240, &[3; 20]);
        pages.store(30, 200, &[3; 60]);
        assert_eq!(page(&pages), (140, true));
        assert_eq!(pages.take(30, usize::MAX).unwrap(), [1; 70][..]);
        assert_eq!(pages.take(100, usize::MAX), None);
        assert!(!pages.is_ready(100));
        pages.store(100, 100, &[2; 120]);
        assert_eq!(page(&pages), (170, true));
        assert!(pages.is_ready(100));
        pages.store(100, 255, &[4; 45]);
        assert_eq!(page(&pages), (210, false), "no gap is left");
        // What comes again may overlap what is there and go on behind it.
        pages.store(100, 305, &[6; 20]);
        assert_eq!(page(&pages), (225, false));
        let bytes = pages.take(100, usize::MAX).unwrap();
        let runs: Vec<_> = bytes.chunk_by(|a, b| a == b).collect();
        let runs: Vec<_> = runs.iter().map(|run| (run[0], run.len())).collect();
        assert_eq!(runs, [(2, 120), (3, 35), (4, 45), (5, 5), (6, 20)]);
        assert_eq!(pages.held_bytes(), 0);
        pages.store(325, 325, &[7; 1]);
        assert!(pages.is_ready(325));
    }

    #[test]
    fn bytes_cut_as_badly_as_can_be_cost_no_more_than_their_window() {
        let mut pages = Pages::new();
        for offset in (1..65_536).step_by(2) {
            pages.store(0, offset, b"x");
        }
        assert!(
            pages.held_bytes() <= 16 * (PAGE + 1024),
            "{}",
            pages.held_bytes()
        );
        assert!(!pages.is_ready(0));
    }
}
