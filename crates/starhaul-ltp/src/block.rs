//! Assembly of a received red part, and the block that the client service gets.

use std::collections::BTreeMap;

use bytes::Bytes;

use crate::ranges::RangeSet;

/// Bytes of a page. One forged segment costs one page at most; a page's fixed cost is small beside it.
const PAGE_BYTES: u64 = 64 << 10;
/// What a separate range of received bytes costs beside its data.
const RANGE_COST: usize = 64;

/// The red part of a block, in parts that lie one behind the other in memory as they came from the engine.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Block {
    parts: Vec<Bytes>,
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

    /// Its bytes in one piece of memory; copies unless it has only one part.
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

/// The bytes of a red part received so far. Pages are allocated when their first byte arrives.
#[derive(Debug, Default)]
pub(crate) struct Assembly {
    pages: BTreeMap<u64, Vec<u8>>,
    /// The page that data arrive in, taken out of the others: in order, a segment searches none.
    open: Option<(u64, Vec<u8>)>,
    received: RangeSet,
    held: usize,
    /// CRC32C of the bytes before `checked`.
    crc: u32,
    checked: u64,
}

impl Assembly {
    /// Bytes of memory that it holds.
    pub(crate) fn held(&self) -> usize {
        self.held
    }

    /// Greatest number of bytes of memory that writing `length` bytes at `offset` can add.
    pub(crate) fn cost(&self, offset: u64, length: usize) -> usize {
        let last = (offset + length as u64).saturating_sub(1) / PAGE_BYTES;
        let pages = (offset / PAGE_BYTES..=last).filter(|page| self.page(*page).is_none());
        let pages = pages.map(|page| capacity(page, offset, length));
        pages.sum::<usize>() + RANGE_COST
    }

    /// Which bytes were received.
    pub(crate) fn received(&self) -> &RangeSet {
        &self.received
    }

    /// Stores data and returns how many bytes are new. Bytes that were received before keep their first value.
    pub(crate) fn write(&mut self, offset: u64, data: &[u8]) -> u64 {
        let end = offset + data.len() as u64;
        if offset >= self.received.end() {
            // In order, or behind a gap: nothing to compare with.
            self.write_fresh(offset, data);
        } else {
            for (from, to) in self.received.gaps(offset, end) {
                let (skip, until) = (narrow(from - offset), narrow(to - offset));
                self.write_fresh(from, &data[skip..until]);
            }
        }
        let ranges = self.received.count();
        let new = self.received.insert(offset, end);
        self.held = self.held + self.received.count() * RANGE_COST - ranges * RANGE_COST;
        new
    }

    /// A copy of bytes that were received.
    pub(crate) fn copy(&self, mut from: u64, to: u64) -> Bytes {
        let mut copy = Vec::with_capacity(narrow(to - from));
        while from < to {
            let (number, within) = (from / PAGE_BYTES, narrow(from % PAGE_BYTES));
            let here = narrow((to - from).min(PAGE_BYTES - from % PAGE_BYTES));
            let page = self
                .page(number)
                .and_then(|page| page.get(within..within + here));
            copy.extend_from_slice(page.unwrap_or_default());
            from += here as u64;
        }
        copy.into()
    }

    /// Whether the first `length` bytes are complete.
    pub(crate) fn is_complete(&self, length: u64) -> bool {
        self.received.covers(0, length)
    }

    /// CRC32C of the first `length` bytes, which are complete.
    pub(crate) fn checksum(&mut self, length: u64) -> u32 {
        self.check_pages(length);
        let (page, within) = (self.checked / PAGE_BYTES, narrow(self.checked % PAGE_BYTES));
        let rest = narrow(length.saturating_sub(self.checked));
        let bytes = self.page(page);
        let bytes = bytes.and_then(|bytes| bytes.get(within..within + rest));
        crc32c::crc32c_append(self.crc, bytes.unwrap_or_default())
    }

    /// Adds to the checksum the pages that are complete now and follow those checked, while they are in the cache.
    pub(crate) fn check_pages(&mut self, limit: u64) {
        let complete = self.received.end_of(self.checked).min(limit);
        while complete - self.checked >= PAGE_BYTES {
            let page = self.page(self.checked / PAGE_BYTES);
            self.crc = crc32c::crc32c_append(self.crc, page.map_or(&[], Vec::as_slice));
            self.checked += PAGE_BYTES;
        }
    }

    /// The first `length` bytes, which are complete.
    pub(crate) fn into_block(mut self, length: u64) -> Block {
        self.pages.extend(self.open.take());
        let parts = self.pages.into_iter().map(|(page, mut bytes)| {
            bytes.truncate(narrow(length.saturating_sub(page * PAGE_BYTES)));
            Bytes::from(bytes)
        });
        Block {
            parts: parts.filter(|part| !part.is_empty()).collect(),
        }
    }

    fn page(&self, number: u64) -> Option<&Vec<u8>> {
        let open = self.open.as_ref().filter(|(open, _)| *open == number);
        open.map(|(_, page)| page)
            .or_else(|| self.pages.get(&number))
    }

    fn write_fresh(&mut self, mut offset: u64, mut data: &[u8]) {
        while !data.is_empty() {
            let (number, within) = (offset / PAGE_BYTES, narrow(offset % PAGE_BYTES));
            let room = narrow(PAGE_BYTES) - within;
            let (here, rest) = data.split_at(room.min(data.len()));
            let page = open_page(&mut self.open, &mut self.pages, number);
            let before = page.capacity();
            if within + here.len() > before {
                let doubled = (2 * before).min(narrow(PAGE_BYTES));
                let first = capacity(number, offset, here.len());
                let wanted = if before == 0 { first } else { doubled };
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

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]
        #[test]
        fn any_order_of_segments_gives_the_block(seed: u64, size in 1u64..90_000, length in 1u64..300_000) {
            let mut assembly = Assembly::default();
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

    #[test]
    fn a_far_offset_costs_a_page_not_the_bytes_below_it() {
        let mut assembly = Assembly::default();
        assembly.write(u64::MAX - 10, b"far");
        assert!(assembly.held() <= narrow(PAGE_BYTES) + RANGE_COST);
    }
}
