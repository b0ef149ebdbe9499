use proptest::prelude::*;

use super::{
    PageSize::{Large, Small},
    page::overhead_bytes,
    *,
};

const PAGE: usize = Small.bytes();

/// What a page costs of which all bytes may come.
const fn cost(size: PageSize) -> usize {
    size.bytes() + overhead_bytes(size)
}

/// Stores in small pages.
fn store(pages: &mut Pages, read: u64, offset: u64, bytes: &[u8]) {
    pages.store(read, offset, bytes, Small);
}

#[test]
fn what_waits_counts_each_byte_once_and_no_gap() {
    let mut pages = Pages::new();
    store(&mut pages, 0, 0, &[1; 100]);
    store(&mut pages, 0, 50, &[1; 100]);
    store(&mut pages, 0, PAGE as u64 - 50, &[2; 200]);
    store(&mut pages, 0, PAGE as u64 - 60, &[2; 20]);
    assert_eq!(pages.waiting_bytes(), 150 + 210);
    assert_eq!(pages.take(0, 30).unwrap().len(), 30);
    assert_eq!(pages.waiting_bytes(), 120 + 210);
    pages.clear();
    assert_eq!(pages.waiting_bytes(), 0);
}

#[test]
fn a_page_that_was_read_is_let_go_and_begins_again_where_reading_stopped() {
    let mut pages = Pages::new();
    store(&mut pages, 0, 0, &[1; 5000]);
    assert_eq!(pages.held_bytes(), 2 * cost(Small));
    assert_eq!(pages.take(0, 10).unwrap(), [1; 10][..]);
    assert_eq!(pages.take(10, usize::MAX).unwrap().len(), PAGE - 10);
    assert_eq!(pages.take(4096, usize::MAX).unwrap().len(), 904);
    assert_eq!(pages.held_bytes(), 0);
    assert_eq!(pages.take(5000, 1), None);
    // Beyond a gap first, then the gap.
    store(&mut pages, 5000, 5100, &[3; 1]);
    assert!(!pages.is_ready(5000));
    store(&mut pages, 5000, 5000, &[2; 100]);
    let bytes = pages.take(5000, usize::MAX).unwrap();
    assert_eq!((bytes.len(), bytes[99], bytes[100]), (101, 2, 3));
    assert_eq!(pages.held_bytes(), 0);
}

#[test]
fn a_page_knows_its_gaps_and_forgets_them_once_they_are_filled() {
    let mut pages = Pages::new();
    store(&mut pages, 0, 0, &[1; 100]);
    assert_eq!(pages.take(0, 30).unwrap(), [1; 30][..]);
    let page = |pages: &Pages| {
        let page = pages.pages[0].as_ref().unwrap();
        (page.unread, page.present.is_some())
    };
    assert_eq!(page(&pages), (70, false));
    // Beyond two gaps, over the end of the second part, and once more.
    store(&mut pages, 30, 200, &[3; 50]);
    store(&mut pages, 30, 300, &[5; 10]);
    store(&mut pages, 30, 240, &[3; 20]);
    store(&mut pages, 30, 200, &[3; 60]);
    assert_eq!(page(&pages), (140, true));
    assert_eq!(pages.take(30, usize::MAX).unwrap(), [1; 70][..]);
    assert_eq!(pages.take(100, usize::MAX), None);
    assert!(!pages.is_ready(100));
    store(&mut pages, 100, 100, &[2; 120]);
    assert_eq!(page(&pages), (170, true));
    assert!(pages.is_ready(100));
    store(&mut pages, 100, 255, &[4; 45]);
    assert_eq!(page(&pages), (210, false), "no gap is left");
    // What comes again may overlap what is there and go on behind it.
    store(&mut pages, 100, 305, &[6; 20]);
    assert_eq!(page(&pages), (225, false));
    let bytes = pages.take(100, usize::MAX).unwrap();
    let runs: Vec<_> = bytes.chunk_by(|a, b| a == b).collect();
    let runs: Vec<_> = runs.iter().map(|run| (run[0], run.len())).collect();
    assert_eq!(runs, [(2, 120), (3, 35), (4, 45), (5, 5), (6, 20)]);
    assert_eq!(pages.held_bytes(), 0);
    store(&mut pages, 325, 325, &[7; 1]);
    assert!(pages.is_ready(325));
}

#[test]
fn bytes_cut_as_badly_as_can_be_cost_no_more_than_their_window() {
    for size in [Small, Large] {
        let mut pages = Pages::new();
        for offset in (1..65_536).step_by(2) {
            pages.store(0, offset, b"x", size);
        }
        // The places that the last of a window alone makes are counted, too.
        let most = 65_536 / size.bytes() * (size.bytes() * 5 / 4);
        assert!(pages.held_bytes() <= most, "{}", pages.held_bytes());
        assert!(!pages.is_ready(0));
        let mut pages = Pages::new();
        pages.store(0, 65_535, b"x", size);
        let held = pages.held_bytes();
        assert!((cost(size) + 3 * 64..=most).contains(&held), "{held}");
    }
}

/// The memory of chunks that were read, as far as it can be used again.
fn spare_of(chunks: Vec<Bytes>) -> Vec<SparePage> {
    chunks.into_iter().filter_map(SparePage::of).collect()
}

/// Stores and takes eight large pages; returns the chunks.
fn read_eight(pages: &mut Pages, read: &mut u64, byte: u8) -> Vec<Bytes> {
    pages.store(*read, *read, &vec![byte; 8 * Large.bytes()], Large);
    let mut chunks = Vec::new();
    while let Some(chunk) = pages.take(*read, usize::MAX) {
        *read += chunk.len() as u64;
        chunks.push(chunk);
    }
    chunks
}

#[test]
fn pages_that_were_read_are_used_again_without_what_was_in_them() {
    let (mut pages, mut read) = (Pages::new(), 0);
    let chunks = read_eight(&mut pages, &mut read, 7);
    assert_eq!(chunks.len(), 8);
    let mut memory: Vec<_> = chunks.iter().map(|chunk| chunk.as_ptr()).collect();
    memory.sort_unstable();
    pages.recycle(&mut spare_of(chunks), usize::MAX);
    let again = read_eight(&mut pages, &mut read, 8);
    let mut memory_again: Vec<_> = again.iter().map(|chunk| chunk.as_ptr()).collect();
    memory_again.sort_unstable();
    assert_eq!(memory, memory_again, "other memory was taken");
    // What a reader keeps, or a part of it, is not written again.
    let kept = [again[0].slice(..10), again[5].clone()];
    pages.recycle(&mut spare_of(again), usize::MAX);
    assert_eq!(pages.spare.len(), 6);
    let last = read_eight(&mut pages, &mut read, 9);
    assert!(kept.iter().flatten().all(|byte| *byte == 8));
    assert!(last.iter().flatten().all(|byte| *byte == 9));
    // A gap in a page that was used before is a gap.
    pages.recycle(&mut spare_of(last), usize::MAX);
    pages.store(read, read + 10_000, &[1; 10], Large);
    assert!(!pages.is_ready(read));
    assert_eq!(pages.take(read, usize::MAX), None);
    pages.store(read, read, &[2; 5_000], Large);
    assert_eq!(pages.take(read, usize::MAX).unwrap(), [2; 5_000][..]);
    assert_eq!(pages.take(read + 5_000, usize::MAX), None);
}

#[test]
fn spare_pages_are_counted_and_bounded_and_go_when_they_are_of_no_use() {
    let spares = |count| -> Vec<_> {
        let memory = (0..count).map(|_| Bytes::from(vec![7; SparePage::BYTES]));
        memory.filter_map(SparePage::of).collect()
    };
    let mut pages = Pages::new();
    let mut given = spares(40);
    pages.recycle(&mut given, usize::MAX);
    assert_eq!(
        (given.len(), pages.held_bytes()),
        (40, 0),
        "pages are small"
    );
    pages.store(0, 0, &[1; 100], Large);
    let page = pages.held_bytes();
    pages.recycle(&mut given, page + 3 * SPARE_COST);
    assert_eq!(
        (given.len(), pages.held_bytes()),
        (37, page + 3 * SPARE_COST)
    );
    pages.trim(page + 2 * SPARE_COST);
    assert_eq!(pages.held_bytes(), page + 2 * SPARE_COST);
    pages.recycle(&mut given, usize::MAX);
    assert_eq!((given.len(), pages.spare.len()), (7, MOST_SPARE));
    pages.trim(0);
    assert_eq!(pages.held_bytes(), page, "what waits is kept");
    pages.recycle(&mut given, usize::MAX);
    pages.release_memory();
    assert_eq!(pages.held_bytes(), page);
    pages.recycle(&mut spares(5), usize::MAX);
    // Back to small pages, behind the last large one.
    store(&mut pages, 0, 100, &[1; 100]);
    assert_eq!(pages.held_bytes(), page);
    pages.recycle(&mut spares(5), usize::MAX);
    assert_eq!(pages.take(0, usize::MAX).unwrap().len(), 200);
    assert_eq!(pages.held_bytes(), 0);
    pages.store(20_000, 20_000, &[1; 100], Large);
    pages.recycle(&mut spares(5), usize::MAX);
    assert_eq!(pages.spare.len(), 5, "small pages were read");
    pages.clear();
    assert_eq!(pages.held_bytes(), 0);
}

/// A byte of the stream, which tells its place.
fn byte_at(offset: usize) -> u8 {
    (offset ^ (offset >> 8) ^ (offset >> 16)).to_le_bytes()[0]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]
    #[test]
    fn whatever_the_sizes_and_whatever_is_used_again_bytes_come_out_as_they_came(
        // How far beyond what was read bytes begin, how many they are, the size of pages, how much is read after, and what becomes of that.
        steps in proptest::collection::vec((0usize..40_000, 1usize..20_000, any::<bool>(), 0usize..60_000, 0u8..3), 1..40),
    ) {
        let (mut pages, mut read, mut has_come) = (Pages::new(), 0, Vec::new());
        let mut kept = Vec::new();
        for (beyond, length, is_large, most, fate) in steps {
            let start = read + if beyond < 10_000 { 0 } else { beyond };
            let bytes: Vec<_> = (start..start + length).map(byte_at).collect();
            pages.store(read as u64, start as u64, &bytes, if is_large { Large } else { Small });
            has_come.resize(has_come.len().max(start + length + 1), false);
            has_come[start..start + length].fill(true);
            let mut left = most;
            while let Some(chunk) = pages.take(read as u64, left) {
                let expected = (read..read + chunk.len()).map(byte_at);
                prop_assert!(chunk.iter().copied().eq(expected), "at {read}");
                prop_assert!(has_come[read..read + chunk.len()].iter().all(|come| *come));
                read += chunk.len();
                left -= chunk.len();
                match fate {
                    0 => kept.push((read - chunk.len(), chunk)),
                    1 => pages.recycle(&mut spare_of(vec![chunk]), 1 << 20),
                    _ => {}
                }
            }
            prop_assert!(left == 0 || !has_come[read]);
            prop_assert_eq!(pages.is_ready(read as u64), has_come[read]);
            let waiting = has_come[read..].iter().filter(|come| **come).count();
            prop_assert_eq!(pages.waiting_bytes(), waiting);
            prop_assert!(waiting > 0 || pages.held == pages.spare.len() * SPARE_COST);
        }
        for (at, chunk) in kept {
            let expected = (at..at + chunk.len()).map(byte_at);
            prop_assert!(chunk.iter().copied().eq(expected), "what was read at {at} has changed");
        }
    }
}
