//! Memory of pages that were read, for pages to come.

use bytes::{Bytes, BytesMut};

use super::layout::PageSize;

/// The memory of a large page of a reliable stream, which nothing refers to any more; for [`Session::recycle`](crate::Session::recycle).
#[derive(Debug)]
pub struct SparePage(BytesMut);

impl SparePage {
    /// Bytes of each.
    pub const BYTES: usize = PageSize::Large.bytes();

    /// The memory of a chunk that [`Session::read_chunks`](crate::Session::read_chunks) passed on. `None` if others have parts of it, or it
    /// is not that of a large page.
    pub fn of(chunk: Bytes) -> Option<Self> {
        let mut memory = chunk.try_into_mut().ok()?;
        memory.clear();
        // The chunk may have been the end of the page.
        let is_page = memory.try_reclaim(Self::BYTES) && memory.capacity() == Self::BYTES;
        is_page.then_some(Self(memory))
    }

    /// The memory, in which nothing is.
    pub(super) fn into_memory(self) -> BytesMut {
        self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_whole_page_of_which_no_part_is_in_use_is_spare() {
        let page = || Bytes::from(vec![7; SparePage::BYTES]);
        let spare = SparePage::of(page()).unwrap().into_memory();
        assert_eq!((spare.len(), spare.capacity()), (0, SparePage::BYTES));
        // Of a page that is read in parts, the last part to go is all of it.
        let mut rest = page();
        let first = rest.split_to(5_000);
        assert!(SparePage::of(first).is_none());
        let end = rest.split_off(9_000);
        assert!(SparePage::of(rest).is_none());
        let spare = SparePage::of(end).unwrap().into_memory();
        assert_eq!((spare.len(), spare.capacity()), (0, SparePage::BYTES));
        for other in [4_096, SparePage::BYTES - 1, SparePage::BYTES + 1, 65_536] {
            let memory = Bytes::from(vec![7; other]);
            assert!(SparePage::of(memory).is_none(), "{other}");
        }
        assert!(SparePage::of(Bytes::from_static(&[7; SparePage::BYTES])).is_none());
        assert!(SparePage::of(Bytes::new()).is_none());
    }
}
