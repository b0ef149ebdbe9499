//! Segments of equal size, as segmentation offload takes them: in one buffer, or with the data of long segments where the block has them.

use bytes::Bytes;

/// Bytes of a segment's data that are lent, at least. The system calls take time for each place that they read from: to copy less costs
/// no more than that.
const LEAST_LENT: usize = 2 << 10;

/// Segments to one peer: all of one size, of which the last may be shorter. The engine fills it; it is reused.
#[derive(Debug)]
pub struct Batch {
    /// The segments without what is lent.
    contents: Vec<u8>,
    lent: Vec<Lent>,
    /// Bytes of data that are lent.
    lent_bytes: usize,
    /// Whether data are lent at all.
    is_lending: bool,
    segment_size: usize,
    segments: usize,
    is_closed: bool,
    most_bytes: usize,
    most_segments: usize,
}

/// Segments one behind the other, of which the batch has the headers alone.
#[derive(Debug)]
struct Lent {
    /// Where the header of the first is in the contents of the batch; those of the others follow it.
    at: usize,
    /// Bytes of each header.
    header: usize,
    /// Bytes of data of each segment.
    each: usize,
    /// The data of all of them.
    data: Bytes,
}

impl Batch {
    /// An empty batch with these limits: 65 507 bytes and 64 segments for UDP segmentation offload, one segment without.
    /// A single segment may exceed `most_bytes`.
    pub fn new(most_bytes: usize, most_segments: usize) -> Self {
        Self {
            contents: Vec::with_capacity(most_bytes),
            lent: Vec::new(),
            lent_bytes: 0,
            is_lending: false,
            segment_size: 0,
            segments: 0,
            is_closed: false,
            most_bytes,
            most_segments,
        }
    }

    /// The same, into which the data of long segments are not copied: it holds the memory of their block until it is filled again, and
    /// [`Batch::for_each_part`] tells where all is.
    #[must_use]
    pub fn lending(self) -> Self {
        Self {
            is_lending: true,
            ..self
        }
    }

    /// The segments, one behind the other; of a [lending](Batch::lending) batch only once it was [gathered](Batch::gather).
    pub fn contents(&self) -> &[u8] {
        &self.contents
    }

    /// Bytes of all segments.
    pub fn len(&self) -> usize {
        self.contents.len() + self.lent_bytes
    }

    /// Whether some of its data are where their block has them.
    pub fn is_scattered(&self) -> bool {
        !self.lent.is_empty()
    }

    /// Calls `take` with the parts of the segments, in order: one behind the other they are what [`Batch::contents`] are once it was
    /// [gathered](Batch::gather).
    pub fn for_each_part<'a>(&'a self, mut take: impl FnMut(&'a [u8])) {
        let (mut written, mut at) = (self.contents.as_slice(), 0);
        for lent in &self.lent {
            let before = lent.at.saturating_sub(at).min(written.len());
            let (before, behind) = written.split_at(before);
            if !before.is_empty() {
                take(before);
            }
            let count = lent.data.len().div_ceil(lent.each.max(1));
            let (headers, behind) = behind.split_at((count * lent.header).min(behind.len()));
            let headers = headers.chunks(lent.header.max(1));
            for (header, data) in headers.zip(lent.data.chunks(lent.each.max(1))) {
                take(header);
                take(data);
            }
            (written, at) = (behind, lent.at + count * lent.header);
        }
        if !written.is_empty() {
            take(written);
        }
    }

    /// Copies what is lent, so that [`Batch::contents`] are all of it.
    pub fn gather(&mut self) {
        if self.lent.is_empty() {
            return;
        }
        let mut all = Vec::with_capacity(self.len().max(self.contents.capacity()));
        self.for_each_part(|part| all.extend_from_slice(part));
        self.contents = all;
        self.lent.clear();
        self.lent_bytes = 0;
    }

    /// Bytes of each segment but the last.
    pub fn segment_size(&self) -> usize {
        self.segment_size
    }

    /// How many segments it holds.
    pub fn segments(&self) -> usize {
        self.segments
    }

    /// Whether it holds none.
    pub fn is_empty(&self) -> bool {
        self.segments == 0
    }

    pub(crate) fn clear(&mut self) {
        self.contents.clear();
        self.lent.clear();
        self.lent_bytes = 0;
        (self.segment_size, self.segments, self.is_closed) = (0, 0, false);
    }

    /// Whether a segment of `bytes` may follow, with `most_bytes` as a further limit of the whole.
    pub(crate) fn fits(&self, bytes: usize, most_bytes: usize) -> bool {
        let limit = most_bytes.min(self.most_bytes);
        self.is_empty()
            || !self.is_closed
                && self.segments < self.most_segments
                && bytes <= self.segment_size
                && self.len() + bytes <= limit
    }

    /// How many segments of `bytes` each may follow, with `most_bytes` as a further limit of the whole.
    pub(crate) fn takes(&self, bytes: usize, most_bytes: usize) -> usize {
        if !self.fits(bytes, most_bytes) {
            return 0;
        }
        if !self.is_empty() && bytes < self.segment_size {
            // A shorter one is the last.
            return 1;
        }
        let room = most_bytes.min(self.most_bytes);
        let by_bytes = room.saturating_sub(self.len()) / bytes.max(1);
        let by_count = self.most_segments.saturating_sub(self.segments);
        by_bytes.min(by_count).max(1)
    }

    /// Whether data of a segment of so many bytes are to be lent.
    pub(crate) fn lends(&self, data_bytes: u64) -> bool {
        self.is_lending && data_bytes >= LEAST_LENT as u64
    }

    /// Appends segments of `bytes` each, no more than it [takes](Self::takes), of which the last `each` are `data`, one behind the other;
    /// `write` writes the headers.
    pub(crate) fn push_lent(
        &mut self,
        bytes: usize,
        (data, each): (Bytes, usize),
        write: impl FnOnce(&mut Vec<u8>),
    ) {
        let at = self.contents.len();
        write(&mut self.contents);
        if self.is_empty() {
            self.segment_size = bytes;
        }
        self.is_closed = bytes < self.segment_size;
        self.segments += data.len().div_ceil(each.max(1));
        self.lent_bytes += data.len();
        self.lent.push(Lent {
            at,
            header: bytes.saturating_sub(each),
            each,
            data,
        });
    }

    /// Appends segments of `bytes` each, no more than it [takes](Self::takes), written by `write`.
    pub(crate) fn push_run(&mut self, bytes: usize, write: impl FnOnce(&mut Vec<u8>)) {
        let before = self.contents.len();
        write(&mut self.contents);
        let written = self.contents.len() - before;
        if self.is_empty() {
            self.segment_size = bytes;
        }
        self.is_closed = bytes < self.segment_size;
        self.segments += written / bytes.max(1);
    }

    /// Appends a segment that fits, written by `write`.
    pub(crate) fn push(&mut self, write: impl FnOnce(&mut Vec<u8>)) {
        let before = self.contents.len();
        write(&mut self.contents);
        let bytes = self.contents.len() - before;
        if self.is_empty() {
            self.segment_size = bytes;
        }
        self.is_closed = bytes < self.segment_size;
        self.segments += 1;
    }
}

/// How many segments of a run, each of which takes `step`, begin while less than `limit` is taken, of which `taken` is by others.
pub(crate) const fn begin_below(limit: u64, taken: u64, step: u64) -> u64 {
    let step = if step == 0 { 1 } else { step };
    limit.saturating_sub(taken).div_ceil(step)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn a_batch_takes_as_many_at_once_as_one_after_the_other(
            limits in (1_usize..5000, 0_usize..20),
            burst in 1_usize..5000,
            runs in prop::collection::vec((1_usize..400, 0_usize..30), 1..6),
        ) {
            let new = || Batch::new(limits.0, limits.1);
            let (mut together, mut alone) = (new(), new());
            for (bytes, wanted) in runs {
                let taken = together.takes(bytes, burst).min(wanted);
                if taken > 0 {
                    together.push_run(bytes, |out| out.resize(out.len() + taken * bytes, 7));
                }
                let mut pushed = 0;
                while pushed < wanted && alone.fits(bytes, burst) {
                    alone.push(|out| out.resize(out.len() + bytes, 7));
                    pushed += 1;
                }
                prop_assert_eq!(taken, pushed);
                prop_assert_eq!(together.contents(), alone.contents());
                prop_assert_eq!(together.segment_size(), alone.segment_size());
                prop_assert_eq!(together.segments(), alone.segments());
                prop_assert_eq!(together.fits(1, burst), alone.fits(1, burst));
            }
        }

        #[test]
        fn what_is_lent_is_what_would_be_copied(
            limits in (1_usize..200_000, 1_usize..70),
            runs in prop::collection::vec((1_usize..20, 1_usize..9000, 0_usize..30, any::<bool>()), 1..6),
        ) {
            let new = || Batch::new(limits.0, limits.1);
            let (mut lent, mut copied) = (new().lending(), new());
            for (header, each, wanted, is_lent) in runs {
                let bytes = header + each;
                let taken = copied.takes(bytes, usize::MAX).min(wanted);
                prop_assert_eq!(lent.takes(bytes, usize::MAX).min(wanted), taken);
                if taken == 0 {
                    continue;
                }
                let data: Vec<u8> = (0..taken * each).map(|at| (at % 251).to_le_bytes()[0]).collect();
                let headers = vec![0xff; header];
                let write = |out: &mut Vec<u8>| data.chunks(each).for_each(|data| {
                    out.extend_from_slice(&headers);
                    out.extend_from_slice(data);
                });
                copied.push_run(bytes, write);
                match is_lent {
                    true => lent.push_lent(bytes, (data.clone().into(), each), |out| {
                        out.resize(out.len() + taken * header, 0xff);
                    }),
                    false => lent.push_run(bytes, write),
                }
                prop_assert_eq!(lent.len(), copied.contents().len());
                prop_assert_eq!(lent.segment_size(), copied.segment_size());
                prop_assert_eq!(lent.segments(), copied.segments());
                prop_assert_eq!(lent.fits(1, usize::MAX), copied.fits(1, usize::MAX));
            }
            let mut parts = Vec::new();
            lent.for_each_part(|part| parts.push(part));
            prop_assert!(parts.iter().all(|part| !part.is_empty()));
            prop_assert!(parts.concat() == copied.contents());
            lent.gather();
            prop_assert!(!lent.is_scattered() && lent.contents() == copied.contents());
            // As before, whatever was in it.
            lent.clear();
            prop_assert_eq!((lent.is_empty(), lent.len()), (true, 0));
        }

        #[test]
        fn segments_of_a_run_begin_as_long_as_there_is_room(limit in 0_u64..1000, taken in 0_u64..1000, step in 1_u64..100) {
            let expected = (0_u64..).take_while(|number| taken + number * step < limit).count() as u64;
            prop_assert_eq!(begin_below(limit, taken, step), expected);
        }
    }
}
