//! Bytes of a stream that wait for earlier ones or for a reader, in pages.
//!
//! A page costs the same whatever part of it has arrived, so what is held is bounded by the sender's window alone, however the bytes
//! are cut. They are copied into it: a frame is part of a buffer of many packets, of which one byte would keep all.

use std::collections::VecDeque;

use bytes::{Bytes, BytesMut};

/// Bytes of a page.
const PAGE: usize = 4096;
const WORDS: usize = PAGE / 64;
/// What a page costs besides its bytes.
const OVERHEAD_BYTES: usize = size_of::<Page>() + 64;

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
    /// A bit for each byte of the page, set once it has arrived.
    present: [u64; WORDS],
    /// How many of them were not handed on.
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
            present: [0; WORDS],
            unread: 0,
        }
    }

    fn store(&mut self, at: usize, bytes: &[u8]) {
        let from = at - self.start;
        let to = from + bytes.len();
        if from == self.bytes.len() {
            self.bytes.extend_from_slice(bytes);
        } else {
            self.bytes.resize(to.max(self.bytes.len()), 0);
            if let Some(place) = self.bytes.get_mut(from..to) {
                place.copy_from_slice(bytes);
            }
        }
        let end = at + bytes.len();
        let words = self.present.iter_mut().enumerate();
        for (word, present) in words.take(end.div_ceil(64)).skip(at / 64) {
            let low = at.max(word * 64);
            let high = end.min(word * 64 + 64);
            let mask = (u64::MAX >> (64 - (high - low))) << (low % 64);
            self.unread += (mask & !*present).count_ones() as usize;
            *present |= mask;
        }
    }

    /// Whether the byte at `at` is there.
    fn has(&self, at: usize) -> bool {
        let word = self.present.get(at / 64);
        word.is_some_and(|word| word >> (at % 64) & 1 == 1)
    }

    /// How many bytes from `at` on are there without a gap.
    fn run(&self, at: usize) -> usize {
        let mut end = at;
        while let Some(word) = self.present.get(end / 64) {
            let ones = (word >> (end % 64)).trailing_ones() as usize;
            end += ones;
            if ones == 0 || !end.is_multiple_of(64) {
                break;
            }
        }
        end - at
    }
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
