//! Segments of equal size in one buffer, as segmentation offload takes them.

/// Segments to one peer: all of one size, of which the last may be shorter. The engine fills it; it is reused.
#[derive(Debug)]
pub struct Batch {
    contents: Vec<u8>,
    segment_size: usize,
    segments: usize,
    is_closed: bool,
    most_bytes: usize,
    most_segments: usize,
}

impl Batch {
    /// An empty batch with these limits: 65 507 bytes and 64 segments for UDP segmentation offload, one segment without.
    /// A single segment may exceed `most_bytes`.
    pub fn new(most_bytes: usize, most_segments: usize) -> Self {
        Self {
            contents: Vec::with_capacity(most_bytes),
            segment_size: 0,
            segments: 0,
            is_closed: false,
            most_bytes,
            most_segments,
        }
    }

    /// The segments, one behind the other.
    pub fn contents(&self) -> &[u8] {
        &self.contents
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
        (self.segment_size, self.segments, self.is_closed) = (0, 0, false);
    }

    /// Whether a segment of `bytes` may follow, with `most_bytes` as a further limit of the whole.
    pub(crate) fn fits(&self, bytes: usize, most_bytes: usize) -> bool {
        let limit = most_bytes.min(self.most_bytes);
        self.is_empty()
            || !self.is_closed
                && self.segments < self.most_segments
                && bytes <= self.segment_size
                && self.contents.len() + bytes <= limit
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
        let by_bytes = room.saturating_sub(self.contents.len()) / bytes.max(1);
        let by_count = self.most_segments.saturating_sub(self.segments);
        by_bytes.min(by_count).max(1)
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
        fn segments_of_a_run_begin_as_long_as_there_is_room(limit in 0_u64..1000, taken in 0_u64..1000, step in 1_u64..100) {
            let expected = (0_u64..).take_while(|number| taken + number * step < limit).count() as u64;
            prop_assert_eq!(begin_below(limit, taken, step), expected);
        }
    }
}
