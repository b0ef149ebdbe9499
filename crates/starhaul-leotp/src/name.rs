//! Names: a content and a range of its bytes.

use bytes::Bytes;

/// Bytes that the end-to-end seal adds to the data of a segment.
pub const SEAL_BYTES: usize = 16;

/// Names a content among all contents of a network. Its responder chooses it; bytes that differ must have different
/// ids, since the keys of the segments follow from the id.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ContentId(pub [u8; 16]);

/// A content, and whether it is asked for as one of a stream, which grows meanwhile. Any neighbour may turn the way of those to itself: nothing that comes of one is
/// given to those who ask for a content that does not grow under the same name.
pub(crate) type Kind = (ContentId, bool);

impl std::fmt::Display for ContentId {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl std::fmt::Debug for ContentId {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "ContentId({self})")
    }
}

/// Data of a content from an offset on, sealed end to end. Relays keep and pass it as it is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Segment {
    pub(crate) offset: u64,
    /// The content ends behind it.
    pub(crate) is_end: bool,
    /// Ciphertext and tag.
    pub(crate) sealed: Bytes,
}

impl Segment {
    /// The bytes of the content that it holds.
    pub(crate) fn length(&self) -> u64 {
        self.sealed.len().saturating_sub(SEAL_BYTES) as u64
    }

    /// The offset behind it.
    pub(crate) fn end(&self) -> u64 {
        self.offset.saturating_add(self.length())
    }
}
