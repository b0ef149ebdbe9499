//! The responder's side: the contents that a node serves.

use rustc_hash::FxHashMap;

use crate::{
    keys::{ContentKey, ContentSecret},
    name::{ContentId, Segment},
};

/// The bytes of a content. They must never change.
pub trait Source: Send {
    /// Length of the content in bytes.
    fn length(&self) -> u64;

    /// Reads bytes from `offset` on; `false` if they cannot be had.
    fn read(&mut self, offset: u64, out: &mut [u8]) -> bool;

    /// Whether what the byte at `offset` belongs to can be read now, or never will. An Interest that comes too early is not answered, and its requester asks
    /// again, after five seconds at most.
    fn is_ready(&mut self, _offset: u64) -> bool {
        true
    }
}

impl Source for bytes::Bytes {
    fn length(&self) -> u64 {
        self.len() as u64
    }

    fn read(&mut self, offset: u64, out: &mut [u8]) -> bool {
        let rest = usize::try_from(offset)
            .ok()
            .and_then(|offset| self.get(offset..));
        let bytes = rest.and_then(|rest| rest.get(..out.len()));
        bytes.inspect(|bytes| out.copy_from_slice(bytes)).is_some()
    }
}

/// The contents of a node.
#[derive(Default)]
pub(crate) struct Responder {
    contents: FxHashMap<ContentId, Served>,
    buffer: Vec<u8>,
}

struct Served {
    key: ContentKey,
    source: Box<dyn Source>,
}

impl Responder {
    /// Serves a content from now on.
    pub(crate) fn serve(
        &mut self,
        content: ContentId,
        secret: &ContentSecret,
        source: Box<dyn Source>,
    ) {
        let key = secret.of(content);
        self.contents.insert(content, Served { key, source });
    }

    /// Serves a content no more.
    pub(crate) fn withdraw(&mut self, content: ContentId) {
        self.contents.remove(&content);
    }

    /// The length of a content, if it is served.
    pub(crate) fn length(&self, content: ContentId) -> Option<u64> {
        Some(self.contents.get(&content)?.source.length())
    }

    /// Whether the byte at `offset` can be read now, or never will.
    pub(crate) fn is_ready(&mut self, content: ContentId, offset: u64) -> bool {
        let served = self.contents.get_mut(&content);
        served.is_none_or(|served| served.source.is_ready(offset))
    }

    /// The segment that holds the byte at `offset`, if it can be read.
    pub(crate) fn segment(
        &mut self,
        content: ContentId,
        offset: u64,
        segment_bytes: u64,
    ) -> Option<Segment> {
        let Served { key, source } = self.contents.get_mut(&content)?;
        let length = source.length();
        let start = offset - offset % segment_bytes;
        let end = start.saturating_add(segment_bytes).min(length);
        let bytes = usize::try_from(end.checked_sub(start)?).ok()?;
        self.buffer.resize(bytes, 0);
        source
            .read(start, &mut self.buffer)
            .then(|| key.seal(start, end == length, &self.buffer))
    }
}

impl std::fmt::Debug for Responder {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_set().entries(self.contents.keys()).finish()
    }
}
