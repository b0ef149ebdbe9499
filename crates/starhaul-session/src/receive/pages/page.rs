//! A page: the bytes that have arrived of a part of a stream.

use bytes::{Bytes, BytesMut};

use super::{layout::PageSize, spare::SparePage};

/// Bytes for which a word of [`Page::present`] has a bit each.
const WORD: usize = 64;

#[derive(Debug)]
pub(super) struct Page {
    /// From `start` to the last byte that has arrived.
    bytes: BytesMut,
    /// The first byte that was not handed on, within the page.
    start: usize,
    /// A bit for each byte of the page that has arrived, while some of `bytes` have not: most arrive in order.
    pub(super) present: Option<Box<[u64]>>,
    /// How many that have arrived were not handed on.
    pub(super) unread: usize,
    size: PageSize,
    /// Bytes of memory that it is counted as.
    pub(super) cost: usize,
}

impl Page {
    /// A page of whose bytes those before `start` were handed on. A large one may have the memory of one that was read.
    pub(super) fn new(start: usize, size: PageSize, spare: Option<SparePage>) -> Self {
        let (bytes, memory) = match spare {
            Some(spare) => (spare.into_memory(), SparePage::BYTES),
            None => {
                let room = size.bytes() - start;
                (BytesMut::with_capacity(room), room)
            }
        };
        Self {
            bytes,
            start,
            present: None,
            unread: 0,
            size,
            cost: memory + overhead_bytes(size),
        }
    }

    /// Copies bytes that begin at `at`, not before what was handed on, and end within the page.
    pub(super) fn store(&mut self, at: usize, bytes: &[u8]) {
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
        let (start, words) = (self.start, self.size.bytes() / WORD);
        let present = self.present.get_or_insert_with(|| {
            let mut present = vec![0; words].into_boxed_slice();
            set(&mut present, start, start + known);
            present
        });
        self.unread += set(present, at, at + bytes.len());
        if self.unread == self.bytes.len() {
            self.present = None;
        }
    }

    /// The next bytes from `at` on, where the first is that was not handed on, at most `max`; `None` when that has not arrived.
    pub(super) fn take(&mut self, at: usize, max: usize) -> Option<Bytes> {
        let count = self.run(at).min(max);
        if count == 0 {
            return None;
        }
        let taken = match count == self.bytes.len() {
            // A part would share its memory with what is left, which takes an allocation.
            true => std::mem::take(&mut self.bytes).freeze(),
            false => self.bytes.split_to(count).freeze(),
        };
        self.start += count;
        self.unread -= count;
        Some(taken)
    }

    /// Whether the byte at `at`, which was not handed on, is there.
    pub(super) fn has(&self, at: usize) -> bool {
        match &self.present {
            Some(present) => {
                let word = present.get(at / WORD);
                word.is_some_and(|word| word >> (at % WORD) & 1 == 1)
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
        while let Some(word) = present.get(end / WORD) {
            let ones = (word >> (end % WORD)).trailing_ones() as usize;
            end += ones;
            if ones == 0 || !end.is_multiple_of(WORD) {
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

/// What a page costs besides its bytes, at most.
pub(super) const fn overhead_bytes(size: PageSize) -> usize {
    size_of::<Page>() + size.bytes() / 8 + 64
}

/// Sets the bits from `from` to before `to`; returns how many were not set.
fn set(present: &mut [u64], from: usize, to: usize) -> usize {
    let mut new = 0;
    let words = present.iter_mut().enumerate();
    for (word, present) in words.take(to.div_ceil(WORD)).skip(from / WORD) {
        let low = from.max(word * WORD);
        let high = to.min(word * WORD + WORD);
        if low < high {
            let mask = (u64::MAX >> (WORD - (high - low))) << (low % WORD);
            new += (mask & !*present).count_ones() as usize;
            *present |= mask;
        }
    }
    new
}
