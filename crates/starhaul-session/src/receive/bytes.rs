//! The receiving direction of a reliable stream: pieces in any order become bytes in order.

use std::collections::BTreeMap;

use bytes::{Buf, Bytes};

use crate::{
    send::bytes::INITIAL_CREDIT,
    types::{ProtocolError, StreamId},
};

/// Most pieces that may wait for an earlier one; a sender of full pieces needs far fewer.
const MAX_PIECES: usize = 1 << 16;
/// Largest window a stream is granted.
const MAX_WINDOW: u64 = 16 << 20;

#[derive(Debug)]
pub(crate) struct ReceiveBytes {
    pieces: BTreeMap<u64, Bytes>,
    /// First byte not yet read.
    read: u64,
    /// One past the greatest byte received.
    highest: u64,
    end: Option<u64>,
    /// What the sender was granted.
    credit: u64,
    /// The peer reset its direction with this code.
    pub(crate) reset: Option<u32>,
    /// The application was told that there is something to read and has not found it empty since.
    pub(crate) announced: bool,
    /// The application does not read any more.
    pub(crate) stopped: bool,
    /// The end, or the reset, was handed to the application.
    pub(crate) is_done: bool,
}

impl ReceiveBytes {
    pub(crate) const fn new() -> Self {
        Self {
            pieces: BTreeMap::new(),
            read: 0,
            highest: 0,
            end: None,
            credit: INITIAL_CREDIT,
            reset: None,
            announced: false,
            stopped: false,
            is_done: false,
        }
    }

    /// Takes a piece; true when the application can read on.
    pub(crate) fn insert(
        &mut self,
        stream: StreamId,
        offset: u64,
        fin: bool,
        payload: Bytes,
    ) -> Result<bool, ProtocolError> {
        let end = offset.saturating_add(payload.len() as u64);
        if end > self.credit {
            return Err(ProtocolError::Limit("stream credit"));
        }
        if self
            .end
            .is_some_and(|known| end > known || (fin && end != known))
            || (fin && end < self.highest)
        {
            return Err(ProtocolError::StreamState {
                stream,
                what: "bytes beyond its end",
            });
        }
        if fin {
            self.end = Some(end);
        }
        self.highest = self.highest.max(end);
        if self.stopped || self.reset.is_some() {
            self.read = self.read.max(self.highest);
            return Ok(false);
        }
        self.store(offset, payload);
        if self.pieces.len() > MAX_PIECES {
            return Err(ProtocolError::Limit("stream pieces"));
        }
        Ok(self.can_read())
    }

    /// Keeps only bytes that are new, so that no byte is held twice.
    fn store(&mut self, mut offset: u64, mut payload: Bytes) {
        let skip = |payload: &mut Bytes, from: u64, to: u64| {
            let count = usize::try_from(to.saturating_sub(from)).unwrap_or(usize::MAX);
            payload.advance(count.min(payload.len()));
        };
        let known = self
            .pieces
            .range(..=offset)
            .next_back()
            .map_or(self.read, |(start, piece)| {
                self.read.max(start + piece.len() as u64)
            });
        if known > offset {
            skip(&mut payload, offset, known);
            offset = known;
        }
        while !payload.is_empty() {
            let end = offset + payload.len() as u64;
            match self
                .pieces
                .range(offset..end)
                .next()
                .map(|(start, piece)| (*start, piece.len() as u64))
            {
                None => {
                    self.pieces.insert(offset, payload);
                    return;
                }
                Some((start, length)) => {
                    let fresh = usize::try_from(start - offset)
                        .unwrap_or(usize::MAX)
                        .min(payload.len());
                    if fresh > 0 {
                        self.pieces.insert(offset, payload.split_to(fresh));
                    }
                    skip(&mut payload, 0, length);
                    offset = start + length;
                }
            }
        }
    }

    /// Bytes in order, or the end, wait.
    pub(crate) fn can_read(&self) -> bool {
        self.pieces
            .first_key_value()
            .is_some_and(|(start, _)| *start == self.read)
            || self.end == Some(self.read)
    }

    /// Up to `max` bytes in order; empty at the end; `None` when nothing can be read now.
    pub(crate) fn read(&mut self, max: usize) -> Option<Bytes> {
        if let Some(entry) = self
            .pieces
            .first_entry()
            .filter(|entry| *entry.key() == self.read)
        {
            let mut piece = entry.remove();
            let taken = piece.split_to(max.min(piece.len()));
            self.read += taken.len() as u64;
            if !piece.is_empty() {
                self.pieces.insert(self.read, piece);
            }
            return Some(taken);
        }
        if self.end == Some(self.read) {
            self.is_done = true;
            return Some(Bytes::new());
        }
        self.announced = false;
        None
    }

    /// Bytes that wait for earlier ones or for a reader.
    pub(crate) fn held_bytes(&self) -> usize {
        self.pieces.values().map(Bytes::len).sum()
    }

    /// Bytes that the sender may still make us hold.
    pub(crate) const fn granted(&self) -> u64 {
        self.credit.saturating_sub(self.read)
    }

    pub(crate) fn stop(&mut self) {
        self.stopped = true;
        self.pieces.clear();
        self.read = self.highest;
    }

    pub(crate) fn on_reset(&mut self, code: u32) {
        self.reset = Some(code);
        self.pieces.clear();
    }

    /// No more is expected from the peer.
    pub(crate) const fn is_ended(&self) -> bool {
        self.is_done || (self.stopped && (self.end.is_some() || self.reset.is_some()))
    }

    /// Takes up to `window` bytes beyond what was read, as both sides know without a word.
    pub(crate) fn slide_credit(&mut self, window: u64) {
        self.credit = self.credit.max(self.read + window);
    }

    /// A new limit worth telling the sender, when `budget` bytes may be given to this stream.
    pub(crate) fn next_credit(&mut self, budget: u64) -> Option<u64> {
        if self.end.is_some() {
            return None;
        }
        let window = budget.clamp(INITIAL_CREDIT, MAX_WINDOW);
        let limit = self.read + window;
        if limit < self.credit + window / 4 {
            return None;
        }
        self.credit = limit;
        Some(limit)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const STREAM: StreamId = StreamId(2);

    proptest! {
        #[test]
        fn pieces_in_any_order_and_overlap_give_the_bytes_in_order(
            length in 1usize..400,
            cuts in proptest::collection::vec((0usize..400, 1usize..60), 0..40),
            seed in any::<u8>(),
        ) {
            let data: Vec<u8> = (0..length).map(|at| (at ^ usize::from(seed)).to_le_bytes()[0]).collect();
            let data = Bytes::from(data);
            let mut stream = ReceiveBytes::new();
            for (start, size) in cuts {
                let start = start.min(length);
                let end = (start + size).min(length);
                stream.insert(STREAM, start as u64, end == length, data.slice(start..end)).unwrap();
            }
            stream.insert(STREAM, 0, true, data.clone()).unwrap();
            let held: usize = stream.pieces.values().map(Bytes::len).sum();
            prop_assert_eq!(held, length);
            let mut read = Vec::new();
            while let Some(bytes) = stream.read(7) {
                if bytes.is_empty() { break; }
                read.extend_from_slice(&bytes);
            }
            prop_assert_eq!(read, data);
            prop_assert!(stream.is_done);
        }
    }

    #[test]
    fn a_sender_beyond_its_credit_or_its_end_is_refused() {
        let mut stream = ReceiveBytes::new();
        let byte = || Bytes::from_static(b"x");
        assert_eq!(
            stream.insert(STREAM, INITIAL_CREDIT, false, byte()),
            Err(ProtocolError::Limit("stream credit"))
        );
        assert_eq!(stream.insert(STREAM, 4, true, byte()), Ok(false));
        assert!(stream.insert(STREAM, 5, false, byte()).is_err());
        assert!(stream.insert(STREAM, 1, true, byte()).is_err());
        assert_eq!(
            stream.insert(STREAM, 0, false, Bytes::from_static(b"abcd")),
            Ok(true)
        );
    }
}
