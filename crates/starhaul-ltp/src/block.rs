//! Assembly of a received red part, and the block that the client service gets.

use std::collections::BTreeMap;

use bytes::Bytes;

use crate::{combine::checksum_behind, ranges::RangeSet};

/// Bytes of a page. One forged segment costs one page at most; a page's fixed cost is small beside it.
const PAGE_BYTES: u64 = 64 << 10;
/// What a separate range of received bytes costs beside its data.
const RANGE_COST: usize = 64;
/// Longest block, in bytes, that is put together in one buffer: longer ones would ask the system for theirs each time.
const MOST_WIDE: u64 = 16 << 20;
/// The first page becomes at most so many times as long when it is full: a block that is shorter than those before it holds no more than this.
const WIDER: u64 = 4;

/// The red part of a block, in parts that lie one behind the other in memory as they came from the engine.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Block {
    parts: Vec<Bytes>,
    checksum: Option<u32>,
}

impl Block {
    /// Its length in bytes.
    pub fn len(&self) -> usize {
        self.parts.iter().map(Bytes::len).sum()
    }

    /// Whether it has no byte.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Its parts in order; no copy.
    pub fn parts(&self) -> &[Bytes] {
        &self.parts
    }

    /// CRC32C of its bytes; `None` if it carried none, and so was compared with nothing.
    pub fn checksum(&self) -> Option<u32> {
        self.checksum
    }

    /// The same, of which this is the CRC32C.
    pub(crate) fn with_checksum(self, checksum: Option<u32>) -> Self {
        Self { checksum, ..self }
    }

    /// The bytes of the block in one buffer; copies unless it has only one part.
    pub fn into_bytes(mut self) -> Bytes {
        match self.parts.len() {
            0 => Bytes::new(),
            1 => self.parts.swap_remove(0),
            _ => self.parts.concat().into(),
        }
    }
}

impl std::fmt::Debug for Block {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Block({} bytes)", self.len())
    }
}

/// The bytes of a red part received so far. Pages are allocated when their first byte arrives. A block like those before it lies in one
/// buffer: its first page becomes as long as they were, once it is full and nothing is missing.
#[derive(Debug, Default)]
pub(crate) struct Assembly {
    pages: BTreeMap<u64, Vec<u8>>,
    /// Bytes of the first page beyond those of others; whole pages.
    widened: u64,
    /// Length of the block, probably; zero if nothing tells.
    expected: u64,
    /// The page that data arrive in, taken out of the others: in order, a segment searches none.
    open: Option<(u64, Vec<u8>)>,
    received: RangeSet,
    held: usize,
    /// CRC32C of the bytes before `checked`.
    crc: u32,
    checked: u64,
}

impl Assembly {
    /// That of a block which has probably so many bytes.
    pub(crate) fn expecting(bytes: u64) -> Self {
        Self {
            expected: if bytes > MOST_WIDE { 0 } else { bytes },
            ..Self::default()
        }
    }

    /// Bytes of memory that it holds.
    pub(crate) fn held(&self) -> usize {
        self.held
    }

    /// Greatest number of bytes of memory that writing `length` bytes at `offset` can add.
    pub(crate) fn cost(&self, offset: u64, length: usize) -> usize {
        let end = offset + length as u64;
        let (widened, last) = (self.widening(offset, end), end.saturating_sub(1));
        let first = PAGE_BYTES + widened;
        let own = match self.page(0) {
            _ if offset >= first => 0,
            None => capacity(0, offset, length),
            Some(page) if widened > self.widened => {
                let wide = self.wide_capacity(widened).max(narrow(end.min(first)));
                wide.saturating_sub(page.capacity())
            }
            Some(_) => 0,
        };
        let others = offset.max(first) / PAGE_BYTES..=last / PAGE_BYTES;
        let others = others.filter(|page| last >= first && self.page(*page).is_none());
        let others = others.map(|page| capacity(page, offset, length));
        own + others.sum::<usize>() + RANGE_COST
    }

    /// The ranges of bytes that were received.
    pub(crate) fn received(&self) -> &RangeSet {
        &self.received
    }

    /// Stores data and returns how many bytes are new. Bytes that were received before keep their first value.
    pub(crate) fn write(&mut self, offset: u64, data: &[u8]) -> u64 {
        let end = offset + data.len() as u64;
        self.widened = self.widening(offset, end);
        if offset >= self.received.end() {
            // In order, or behind a gap: nothing to compare with.
            self.write_fresh(offset, data);
        } else {
            for (from, to) in self.received.gaps(offset, end) {
                let (skip, until) = (narrow(from - offset), narrow(to - offset));
                self.write_fresh(from, &data[skip..until]);
            }
        }
        self.note(offset, end)
    }

    /// The same with data that lie one behind the other in the block, of `length` bytes in all; what is counted is so once.
    pub(crate) fn write_run(&mut self, offset: u64, payloads: &[&[u8]], length: u64) -> u64 {
        let (mut at, is_fresh) = (offset, offset >= self.received.end());
        if is_fresh {
            self.widened = self.widening(offset, offset + length);
        }
        let mut new = 0;
        for payload in payloads {
            match is_fresh {
                true => self.write_fresh(at, payload),
                false => new += self.write(at, payload),
            }
            at += payload.len() as u64;
        }
        match is_fresh {
            true => self.note(offset, at),
            false => new,
        }
    }

    /// Notes that these bytes are here, and returns how many are new.
    fn note(&mut self, start: u64, end: u64) -> u64 {
        let ranges = self.received.count();
        let new = self.received.insert(start, end);
        self.held = self.held + self.received.count() * RANGE_COST - ranges * RANGE_COST;
        new
    }

    /// A copy of bytes that were received.
    pub(crate) fn copy(&self, mut from: u64, to: u64) -> Bytes {
        let mut copy = Vec::with_capacity(narrow(to - from));
        while from < to {
            let (number, start) = self.place(from);
            let here = to.min(start + self.page_bytes(number));
            copy.extend_from_slice(self.bytes(from, here));
            from = here;
        }
        copy.into()
    }

    /// Adds (exclusive or) bytes that were received to as many of `sum`.
    pub(crate) fn add_to(&self, mut from: u64, to: u64, mut sum: &mut [u8]) {
        while from < to {
            let (number, start) = self.place(from);
            let until = to.min(start + self.page_bytes(number));
            let bytes = self.bytes(from, until);
            let length = bytes.len().min(sum.len());
            let (here, behind) = std::mem::take(&mut sum).split_at_mut(length);
            for (sum, byte) in here.iter_mut().zip(bytes) {
                *sum ^= byte;
            }
            (from, sum) = (until, behind);
        }
    }

    /// Whether the first `length` bytes are complete.
    pub(crate) fn is_complete(&self, length: u64) -> bool {
        self.received.covers(0, length)
    }

    /// CRC32C of the first `length` bytes, which are complete.
    pub(crate) fn checksum(&mut self, length: u64) -> u32 {
        self.check_pages(length);
        // Less than a page.
        let rest = self.bytes(self.checked, length.max(self.checked));
        checksum_behind(self.crc, rest)
    }

    /// Adds to the checksum the pages that are complete now and follow those checked, while they are in the cache.
    pub(crate) fn check_pages(&mut self, limit: u64) {
        let complete = self.received.end_of(self.checked).min(limit);
        while complete - self.checked >= PAGE_BYTES {
            let until = self.checked + PAGE_BYTES;
            self.crc = checksum_behind(self.crc, self.bytes(self.checked, until));
            self.checked = until;
        }
    }

    /// The first `length` bytes, which are complete.
    pub(crate) fn into_block(mut self, length: u64) -> Block {
        self.pages.extend(self.open.take());
        let is_wide = self.widened > 0;
        let parts = self.pages.into_iter().map(|(page, mut bytes)| {
            bytes.truncate(narrow(length.saturating_sub(page * PAGE_BYTES)));
            // A block that is kept would keep memory of which a fifth or more is not used.
            match is_wide && bytes.capacity() > bytes.len() + bytes.len() / 4 {
                true => Bytes::copy_from_slice(&bytes),
                false => Bytes::from(bytes),
            }
        });
        Block {
            parts: parts.filter(|part| !part.is_empty()).collect(),
            checksum: None,
        }
    }

    /// Bytes by which its first page may still become longer, at most.
    pub(crate) fn width(&self) -> usize {
        let most = self.expected.next_multiple_of(PAGE_BYTES);
        narrow(most).saturating_sub(self.page(0).map_or(0, Vec::capacity))
    }

    /// There is no room for that: its first page stays as long as it is.
    pub(crate) const fn stay(&mut self) {
        self.expected = 0;
    }

    /// By how much the first page is longer than others when these data arrive: by more than before if they are what follows it, and
    /// nothing is missing.
    fn widening(&self, offset: u64, end: u64) -> u64 {
        let first = PAGE_BYTES + self.widened;
        let is_next = end > first && (1..=first).contains(&offset) && self.expected > first;
        if !is_next || self.received.count() != 1 || self.received.end_of(0) != offset {
            return self.widened;
        }
        let most = first.saturating_mul(WIDER);
        most.min(self.expected.next_multiple_of(PAGE_BYTES)) - PAGE_BYTES
    }

    /// Bytes to allocate for a first page that is so much longer than others: blocks of one kind differ by a few.
    fn wide_capacity(&self, widened: u64) -> usize {
        narrow((self.expected + self.expected / 16).min(PAGE_BYTES + widened))
    }

    /// The page that holds this byte, and where that begins.
    fn place(&self, offset: u64) -> (u64, u64) {
        match offset / PAGE_BYTES {
            _ if offset < PAGE_BYTES + self.widened => (0, 0),
            page => (page, page * PAGE_BYTES),
        }
    }

    fn page_bytes(&self, number: u64) -> u64 {
        match number {
            0 => PAGE_BYTES + self.widened,
            _ => PAGE_BYTES,
        }
    }

    /// Bytes of one page.
    fn bytes(&self, from: u64, to: u64) -> &[u8] {
        let (number, start) = self.place(from);
        let within = narrow(from - start)..narrow(to - start);
        let page = self.page(number).and_then(|page| page.get(within));
        page.unwrap_or_default()
    }

    fn page(&self, number: u64) -> Option<&Vec<u8>> {
        let open = self.open.as_ref().filter(|(open, _)| *open == number);
        open.map(|(_, page)| page)
            .or_else(|| self.pages.get(&number))
    }

    /// Appends data to the open page if that ends where they begin, and they need neither more memory nor another page.
    fn append(&mut self, offset: u64, data: &[u8]) -> bool {
        let widened = self.widened;
        let Some((number, page)) = &mut self.open else {
            return false;
        };
        let (start, size) = match *number {
            0 => (0, PAGE_BYTES + widened),
            number => (number * PAGE_BYTES, PAGE_BYTES),
        };
        let room = narrow(size).min(page.capacity()).saturating_sub(page.len());
        let is_next = start + page.len() as u64 == offset && data.len() <= room;
        if is_next {
            page.extend_from_slice(data);
        }
        is_next
    }

    fn write_fresh(&mut self, mut offset: u64, mut data: &[u8]) {
        // So come almost all.
        if self.append(offset, data) {
            return;
        }
        while !data.is_empty() {
            let ((number, start), wide) = (self.place(offset), self.wide_capacity(self.widened));
            let (within, size) = (narrow(offset - start), narrow(self.page_bytes(number)));
            let (here, rest) = data.split_at((size - within).min(data.len()));
            let page = open_page(&mut self.open, &mut self.pages, number);
            let before = page.capacity();
            if within + here.len() > before {
                let wanted = match before {
                    0 => capacity(number, offset, here.len()),
                    // What it holds is copied, so that it gets at once what it probably needs.
                    _ if size > narrow(PAGE_BYTES) && before < wide => wide,
                    _ => (2 * before).min(size),
                };
                page.reserve_exact(wanted.max(within + here.len()) - page.len());
            }
            let overwritten = page.len().saturating_sub(within).min(here.len());
            // In order, bytes are appended; zeros are written only below a gap.
            if page.len() < within {
                page.resize(within, 0);
            }
            page[within..within + overwritten].copy_from_slice(&here[..overwritten]);
            page.extend_from_slice(&here[overwritten..]);
            self.held = self.held + page.capacity() - before;
            offset += here.len() as u64;
            data = rest;
        }
    }
}

/// The page with this number, which becomes the open one.
fn open_page<'a>(
    open: &'a mut Option<(u64, Vec<u8>)>,
    pages: &mut BTreeMap<u64, Vec<u8>>,
    number: u64,
) -> &'a mut Vec<u8> {
    if open.as_ref().is_none_or(|(open, _)| *open != number) {
        pages.extend(open.take());
    }
    let page = || (number, pages.remove(&number).unwrap_or_default());
    &mut open.get_or_insert_with(page).1
}

/// Bytes to allocate for a page when these data arrive: many blocks are smaller than a page.
fn capacity(page: u64, offset: u64, length: usize) -> usize {
    let begins_block = page == 0 && offset == 0;
    match begins_block && (length as u64) < PAGE_BYTES {
        true => length,
        false => narrow(PAGE_BYTES),
    }
}

/// Bytes within a segment or a page, which always fit.
fn narrow(bytes: u64) -> usize {
    usize::try_from(bytes).unwrap_or(usize::MAX)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn content(from: u64, to: u64) -> Vec<u8> {
        (from..to).map(|i| (i % 251).to_le_bytes()[0]).collect()
    }

    /// Writes bytes that are new, for no more memory than was told before.
    fn write(assembly: &mut Assembly, start: u64, end: u64) {
        let (held, cost) = (assembly.held(), assembly.cost(start, narrow(end - start)));
        assert_eq!(assembly.write(start, &content(start, end)), end - start);
        // The first page grows a little without being asked for.
        let most = held + cost + narrow(PAGE_BYTES);
        assert!(assembly.held() <= most, "{} > {most}", assembly.held());
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]
        #[test]
        fn any_order_of_segments_gives_the_block(seed: u64, size in 1u64..90_000, length in 1u64..300_000, expected in 0u64..400_000) {
            let mut assembly = Assembly::expecting(expected);
            let mut starts: Vec<u64> = (0..length).step_by(narrow(size)).collect();
            let count = starts.len() as u64;
            starts.sort_by_key(|start| start.wrapping_mul(seed | 1) % (count + 1));
            for start in &starts {
                let end = (start + size).min(length);
                let cost = assembly.cost(*start, narrow(end - start));
                let held = assembly.held();
                prop_assert_eq!(assembly.write(*start, &content(*start, end)), end - start);
                // The first page of a block that began with less than a page grows without being asked for.
                prop_assert!(assembly.held() <= held + cost + narrow(PAGE_BYTES));
                prop_assert_eq!(assembly.write(*start, &[0xff; 1]), 0);
                assembly.check_pages(length);
            }
            prop_assert!(assembly.is_complete(length));
            prop_assert_eq!(assembly.checksum(length), crc32c::crc32c(&content(0, length)));
            prop_assert_eq!(assembly.into_block(length).into_bytes(), content(0, length));
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]
        /// Runs of segments overlap, and leave gaps that others fill.
        #[test]
        fn runs_of_segments_are_written_as_each_segment_is(
            size in 1u64..3000,
            length in 1u64..200_000,
            expected in 0u64..300_000,
            runs in prop::collection::vec((0u64..200, 1u64..60), 0..12),
        ) {
            let (mut one, mut other) = (Assembly::expecting(expected), Assembly::expecting(expected));
            let all = (0, length.div_ceil(size));
            for (first, segments) in runs.into_iter().chain([all]) {
                let start = (first * size).min(length - 1);
                let end = (start + segments * size).min(length);
                let bytes = content(start, end);
                let payloads: Vec<&[u8]> = bytes.chunks(narrow(size)).collect();
                let most = one.held() + one.width() + one.cost(start, bytes.len());
                let new = one.write_run(start, &payloads, end - start);
                prop_assert!(one.held() <= most + narrow(PAGE_BYTES));
                let mut at = start;
                let each = payloads.iter().map(|payload| {
                    at += payload.len() as u64;
                    other.write(at - payload.len() as u64, payload)
                });
                prop_assert_eq!(new, each.sum::<u64>());
                one.check_pages(length);
            }
            prop_assert!(one.is_complete(length) && other.is_complete(length));
            prop_assert_eq!(one.checksum(length), crc32c::crc32c(&content(0, length)));
            prop_assert_eq!(one.into_block(length).into_bytes(), content(0, length));
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]
        /// What is lost comes when all others are there.
        #[test]
        fn segments_in_order_of_which_some_are_lost_give_the_block(
            size in 1000u64..90_000,
            length in 1u64..300_000,
            expected in 0u64..400_000,
            lost in prop::collection::vec(any::<bool>(), 0..20),
            far in any::<bool>(),
        ) {
            let mut assembly = Assembly::expecting(expected);
            let is_lost = |number: usize| lost.get(number).copied().unwrap_or(false);
            let starts = (0..length).step_by(narrow(size));
            let mut order: Vec<(usize, u64)> = starts.enumerate().collect();
            order.sort_by_key(|(number, _)| is_lost(*number));
            if far {
                // The last overtakes all.
                order.rotate_right(1);
            }
            for (_, start) in order {
                write(&mut assembly, start, (start + size).min(length));
                assembly.check_pages(length);
            }
            prop_assert!(assembly.is_complete(length));
            let (from, to) = (length / 3, length - length / 3);
            prop_assert_eq!(assembly.copy(from, to), content(from, to));
            prop_assert_eq!(assembly.checksum(length), crc32c::crc32c(&content(0, length)));
            prop_assert_eq!(assembly.into_block(length).into_bytes(), content(0, length));
        }
    }

    /// A reader that needs the block in one buffer need not copy it.
    #[test]
    fn a_block_like_those_before_it_lies_in_one_piece() {
        let pages = |length: u64| narrow(length.div_ceil(PAGE_BYTES));
        for (length, expected, parts) in [
            (1_000_000, 1_000_000, 1),
            (1_000_100, 1_000_000, 1),
            (1_048_900, 1_048_700, 1),
            (100_000, 1_000_000, 1),
            (2_500_000, 2_500_000, 1),
            (1_000_000, 0, pages(1_000_000)),
            (1_000_000, MOST_WIDE + 1, pages(1_000_000)),
        ] {
            let mut assembly = Assembly::expecting(expected);
            for start in (0..length).step_by(1360) {
                write(&mut assembly, start, (start + 1360).min(length));
            }
            let block = assembly.into_block(length);
            assert_eq!(block.parts().len(), parts, "{length} of {expected}");
            let bytes = block.into_bytes();
            assert_eq!(bytes, content(0, length));
            // What is kept is not much more than the block.
            let capacity = bytes.try_into_mut().unwrap().capacity();
            assert!(capacity as u64 <= length + length / 4, "{capacity}");
        }
    }

    /// Three quarters of what is held are wrong at the most, and nothing of it where there was no room.
    #[test]
    fn a_short_block_after_long_ones_holds_little_more_than_itself() {
        for stays in [false, true] {
            let mut assembly = Assembly::expecting(MOST_WIDE);
            for start in (0..200_000).step_by(1000) {
                if stays && assembly.width() > 0 {
                    assembly.stay();
                }
                write(&mut assembly, start, start + 1000);
            }
            let most = if stays { 4 } else { 5 } * narrow(PAGE_BYTES) + 4 * RANGE_COST;
            assert!(assembly.held() <= most, "{} held", assembly.held());
            assert_eq!(
                assembly.into_block(200_000).into_bytes(),
                content(0, 200_000)
            );
        }
    }

    #[test]
    fn segments_that_do_not_fill_the_first_page_cost_their_pages_alone() {
        for first in [0, 1] {
            let mut assembly = Assembly::expecting(MOST_WIDE);
            write(&mut assembly, first, PAGE_BYTES - 1 + first);
            write(&mut assembly, PAGE_BYTES, PAGE_BYTES + 1000);
            let most = 2 * (narrow(PAGE_BYTES) + RANGE_COST);
            assert!(assembly.held() <= most, "{}", assembly.held());
        }
    }

    #[test]
    fn a_far_offset_costs_a_page_not_the_bytes_below_it() {
        let mut assembly = Assembly::default();
        assembly.write(u64::MAX - 10, b"far");
        assert!(assembly.held() <= narrow(PAGE_BYTES) + RANGE_COST);
    }
}
