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
