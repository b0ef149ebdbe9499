//! Data that the application did not read yet. They hold at most about twice the memory that their bytes count: a few bytes
//! do not keep the segment alive that they came in, and many small parts are put together.

use std::collections::VecDeque;

use bytes::{Bytes, BytesMut};

/// Data of at least so many bytes may stay where they are in their segment.
const LEAST_KEPT: usize = 512;
/// Copies are put together up to this length.
const CHUNK_BYTES: usize = 1 << 12;

/// What waits for the application.
#[derive(Debug, Default)]
pub(super) struct Inbox {
    chunks: VecDeque<Chunk>,
    held: usize,
}

#[derive(Debug)]
enum Chunk {
    /// A part of a segment, and the memory that this holds.
    Kept(Bytes, usize),
    Copied(BytesMut),
}

impl Chunk {
    fn held(&self) -> usize {
        let data = match self {
            Self::Kept(_, held) => *held,
            Self::Copied(data) => data.capacity(),
        };
        data + size_of::<Self>()
    }
}

impl Inbox {
    pub(super) fn is_empty(&self) -> bool {
        self.chunks.is_empty()
    }

    /// Bytes of memory.
    pub(super) fn held(&self) -> usize {
        self.held
    }

    /// Adds data that are a part of `held` bytes of memory.
    pub(super) fn push(&mut self, data: Bytes, held: usize) {
        if data.len() >= LEAST_KEPT && data.len() >= held / 2 {
            let chunk = Chunk::Kept(data, held);
            self.held += chunk.held();
            self.chunks.push_back(chunk);
            return;
        }
        if let Some(last) = self.chunks.back_mut() {
            let before = last.held();
            if let Chunk::Copied(copied) = last
                && copied.len() + data.len() <= CHUNK_BYTES
            {
                copied.extend_from_slice(&data);
                self.held = self.held + last.held() - before;
                return;
            }
        }
        let chunk = Chunk::Copied(BytesMut::from(&data[..]));
        self.held += chunk.held();
        self.chunks.push_back(chunk);
    }

    /// Takes the next data.
    pub(super) fn pop(&mut self) -> Option<Bytes> {
        let chunk = self.chunks.pop_front()?;
        self.held -= chunk.held();
        let data = match chunk {
            Chunk::Kept(data, _) => data,
            Chunk::Copied(data) => data.freeze(),
        };
        if self.chunks.is_empty() {
            self.chunks = VecDeque::new();
        }
        Some(data)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_held_is_at_most_about_twice_what_is_counted() {
        for (part, segment) in [
            (1, 1),
            (1, 1400),
            (3, 5),
            (511, 700),
            (600, 1400),
            (900, 1400),
            (30_000, 65_000),
        ] {
            let mut inbox = Inbox::default();
            let mut sent = Vec::new();
            for number in 0..2000_u32 {
                let all = Bytes::from(vec![number.to_le_bytes()[0]; segment]);
                sent.extend_from_slice(&all[..part]);
                inbox.push(all.slice(..part), segment);
            }
            let most = 2 * sent.len() + sent.len() / 4 + CHUNK_BYTES;
            assert!(
                inbox.held() <= most,
                "{part} of {segment}: {}",
                inbox.held()
            );
            assert!(inbox.chunks.len() <= 2000.min(1 + sent.len() / LEAST_KEPT));
            let mut read = Vec::new();
            while let Some(data) = inbox.pop() {
                read.extend_from_slice(&data);
            }
            assert!(read == sent);
            assert_eq!(inbox.held(), 0);
        }
    }
}
