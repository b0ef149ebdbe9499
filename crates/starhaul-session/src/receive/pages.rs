//! Bytes of a stream that wait for earlier ones or for a reader, in pages.
//!
//! A page costs the same whatever part of it has arrived, so what is held is bounded by the sender's window alone, however the bytes
//! are cut. They are copied into it: a frame is part of a buffer of many packets, of which one byte would keep all.
//!
//! A stream that carries much has larger pages, and a reader that has copied what it took gives their memory back for pages to come. What one
//! thread allocates and another frees costs more than the copy, and the allocator may have the kernel clear it in between.

mod layout;
mod page;
mod spare;

use std::collections::VecDeque;

use bytes::Bytes;

use self::{layout::Layout, page::Page};

pub(crate) use self::layout::PageSize;
pub use self::spare::SparePage;

/// Most spare pages of a stream: half a megabyte, which is more than its reader takes at a time.
const MOST_SPARE: usize = 32;
/// What each costs, with what tells who refers to it.
const SPARE_COST: usize = SparePage::BYTES + 64;
/// Room for the places of so many pages is kept while there are none.
const MOST_PLACES: usize = 8;

/// Pages in order of their numbers.
#[derive(Debug)]
pub(crate) struct Pages {
    pages: VecDeque<Option<Page>>,
    /// Number of the front page.
    first: u64,
    layout: Layout,
    /// Places that have a page.
    filled: usize,
    /// What these pages cost.
    cost: usize,
    /// Only while pages to come are large.
    spare: Vec<SparePage>,
    /// What all of it costs.
    held: usize,
}

impl Pages {
    pub(crate) const fn new() -> Self {
        Self {
            pages: VecDeque::new(),
            first: 0,
            layout: Layout::new(),
            filled: 0,
            cost: 0,
            spare: Vec::new(),
            held: 0,
        }
    }

    /// The size of pages to come.
    pub(crate) const fn page_size(&self) -> PageSize {
        self.layout.size()
    }

    /// Copies bytes that begin at `offset`, which is not below `read`, up to which all was handed on. The caller bounds `offset`. Pages behind
    /// those that there are have this size, as soon as no page is left of a former one.
    pub(crate) fn store(&mut self, read: u64, mut offset: u64, mut bytes: &[u8], size: PageSize) {
        self.begin_at(read, size);
        let unread = self.layout.place(read);
        while !bytes.is_empty() {
            let place = self.layout.place(offset);
            let start = if place.number == unread.number {
                unread.at
            } else {
                0
            };
            let Some(index) = self.index(place.number) else {
                break;
            };
            if index >= self.pages.len() {
                self.pages.resize_with(index + 1, || None);
            }
            let count = bytes.len().min(place.size.bytes() - place.at);
            let (now, later) = bytes.split_at(count);
            if let Some(slot) = self.pages.get_mut(index) {
                let page = slot.get_or_insert_with(|| {
                    let spare = match place.size {
                        PageSize::Large => self.spare.pop(),
                        PageSize::Small => None,
                    };
                    let page = Page::new(start, place.size, spare);
                    self.filled += 1;
                    self.cost += page.cost;
                    page
                });
                page.store(place.at, now);
            }
            offset += count as u64;
            bytes = later;
        }
        self.count();
    }

    /// The first page is that of the byte at `read`.
    fn begin_at(&mut self, read: u64, size: PageSize) {
        let number = self.layout.place(read).number;
        self.forget_before(number);
        if self.pages.is_empty() {
            self.first = number;
        }
        let next = self.first + self.pages.len() as u64;
        if self.layout.change(self.first, next, size) && size == PageSize::Small {
            self.spare = Vec::new();
        }
    }

    /// Forgets the places of pages before the one with this number: all of them were read.
    fn forget_before(&mut self, number: u64) {
        while self.first < number
            && let Some(place) = self.pages.pop_front()
        {
            self.first += 1;
            if let Some(page) = place {
                self.filled -= 1;
                self.cost -= page.cost;
            }
        }
    }

    /// The next bytes from `read` on, at most `max` and not empty; `None` when the first has not arrived.
    pub(crate) fn take(&mut self, read: u64, max: usize) -> Option<Bytes> {
        let place = self.layout.place(read);
        let index = self.index(place.number)?;
        let slot = self.pages.get_mut(index)?;
        let page = slot.as_mut()?;
        let taken = page.take(place.at, max)?;
        if page.unread == 0 {
            self.filled -= 1;
            self.cost -= page.cost;
            *slot = None;
            self.forget_before(self.layout.place(read + taken.len() as u64).number);
            if self.filled == 0 {
                self.forget_places();
            }
            self.count();
        }
        Some(taken)
    }

    /// The byte at `read` has arrived.
    pub(crate) fn is_ready(&self, read: u64) -> bool {
        let place = self.layout.place(read);
        let page = self
            .index(place.number)
            .and_then(|index| self.pages.get(index));
        page.and_then(Option::as_ref)
            .is_some_and(|page| page.has(place.at))
    }

    fn index(&self, number: u64) -> Option<usize> {
        usize::try_from(number.checked_sub(self.first)?).ok()
    }

    /// Keeps pages of `spare` for those to come, as long as all that is held costs at most `most` bytes. The caller has the others.
    pub(crate) fn recycle(&mut self, spare: &mut Vec<SparePage>, most: usize) {
        if self.layout.size() == PageSize::Small {
            return;
        }
        while self.spare.len() < MOST_SPARE
            && self.held + SPARE_COST <= most
            && let Some(page) = spare.pop()
        {
            self.spare.push(page);
            self.held += SPARE_COST;
        }
    }

    /// Frees spare pages while all that is held costs more than `most` bytes.
    pub(crate) fn trim(&mut self, most: usize) {
        while self.held > most && self.spare.pop().is_some() {
            self.held -= SPARE_COST;
        }
    }

    /// Frees what waits for nothing but bytes to come.
    pub(crate) fn release_memory(&mut self) {
        self.spare = Vec::new();
        self.pages.shrink_to_fit();
        self.count();
    }

    pub(crate) fn clear(&mut self) {
        *self = Self::new();
    }

    /// There is no page.
    fn forget_places(&mut self) {
        self.pages.clear();
        if self.pages.capacity() > MOST_PLACES {
            self.pages = VecDeque::new();
        }
    }

    /// Brings what is held up to date. A place without a page costs memory, too.
    fn count(&mut self) {
        let empty = (self.pages.len() - self.filled) * size_of::<Option<Page>>();
        self.held = self.cost + empty + self.spare.len() * SPARE_COST;
    }

    /// Bytes that have arrived and were not handed on.
    pub(crate) fn waiting_bytes(&self) -> usize {
        let pages = self.pages.iter().flatten();
        pages.map(|page| page.unread).sum()
    }

    /// Bytes of memory that the pages are counted as, spare ones included.
    pub(crate) const fn held_bytes(&self) -> usize {
        self.held
    }
}

#[cfg(test)]
mod tests;
