//! The payload of a bundle that is to be made, with room before it for what a bundle has there: the bundle is made where its payload is.

use std::io;

use hardy_bpa::Bytes;
use starhaul_ltp::{checksum_behind, combined_checksum};
use tokio::io::{AsyncRead, AsyncReadExt as _};

use crate::sums;

/// Bytes of the room. A bundle of endpoints whose names are longer is copied.
const ROOM: usize = 512;
/// Bytes that are summed up at once: enough for its speed, and still in the cache after they came.
const PIECE: usize = 64 << 10;
/// Bytes for which memory is taken when a payload is announced; beyond it, memory grows with what comes.
/// A chunk of a file, of 1 MiB and what tells of it, fits.
const MOST_ANNOUNCED: u64 = (1 << 20) + (64 << 10);

/// The bytes of a payload, with room for the blocks before it.
#[derive(Default)]
pub(crate) struct Payload {
    /// The room and the payload; nothing at all once a bundle was made here.
    buffer: Vec<u8>,
    /// The payload in the bundle that was made.
    made: Bytes,
    /// CRC32C of the payload before `summed`, which counts the room, too.
    sum: u32,
    summed: usize,
}

impl Payload {
    /// Without a byte; there is memory for so many.
    fn with_capacity(bytes: usize) -> Self {
        let mut buffer = Vec::with_capacity(ROOM + bytes + 1);
        buffer.resize(ROOM, 0);
        Self {
            buffer,
            summed: ROOM,
            ..Self::default()
        }
    }

    /// A copy of these bytes, which are summed up meanwhile.
    pub(crate) fn of(bytes: &[u8]) -> Self {
        let mut payload = Self::with_capacity(bytes.len());
        for piece in bytes.chunks(PIECE) {
            payload.buffer.extend_from_slice(piece);
            payload.sum_up(PIECE);
        }
        payload
    }

    /// A copy of these bytes that an application has made before: no checksum of them is known yet.
    pub(crate) fn prepared(bytes: &[u8]) -> Self {
        let mut payload = Self::with_capacity(bytes.len());
        payload.buffer.extend_from_slice(bytes);
        payload
    }

    /// Reads the bytes that were announced, and sums them up as they come.
    ///
    /// # Errors
    /// Those of the reader; [`io::ErrorKind::UnexpectedEof`] if it ends before.
    pub(crate) async fn read(from: &mut (impl AsyncRead + Unpin), bytes: u64) -> io::Result<Self> {
        let capacity = usize::try_from(bytes.min(MOST_ANNOUNCED));
        let mut payload = Self::with_capacity(capacity.unwrap_or_default());
        let mut from = from.take(bytes);
        loop {
            payload.make_room(from.limit());
            if from.read_buf(&mut payload.buffer).await? == 0 {
                break;
            }
            payload.sum_up(PIECE);
        }
        match from.limit() {
            0 => Ok(payload),
            _ => Err(io::ErrorKind::UnexpectedEof.into()),
        }
    }

    /// Has room for what is announced yet, as much as came at most, and for the bundle's end.
    fn make_room(&mut self, announced: u64) {
        if self.buffer.len() + 1 >= self.buffer.capacity() {
            let announced = usize::try_from(announced).unwrap_or(usize::MAX);
            self.buffer
                .reserve_exact(announced.min(self.buffer.len()) + 1);
        }
    }

    /// The bytes of the payload.
    pub(crate) fn bytes(&self) -> &[u8] {
        match self.buffer.get(ROOM..) {
            Some(bytes) => bytes,
            None => &self.made,
        }
    }

    /// CRC32C of its bytes.
    pub(crate) fn checksum(&mut self) -> u32 {
        self.sum_up(1);
        self.sum
    }

    /// A bundle: what is before the payload, the payload, and its end. The first one that is made of a payload has its memory.
    pub(crate) fn enclosed(&mut self, head: &[u8], end: u8) -> Bytes {
        let (sum, length) = (self.checksum(), self.bytes().len());
        let mut buffer = match self.buffer.is_empty() {
            false => std::mem::take(&mut self.buffer),
            true => Self::prepared(&self.made).buffer,
        };
        buffer.push(end);
        let bundle = match ROOM.checked_sub(head.len()) {
            Some(start) => {
                if let Some(room) = buffer.get_mut(start..ROOM) {
                    room.copy_from_slice(head);
                }
                Bytes::from(buffer).slice(start..)
            }
            None => {
                let behind = buffer.get(ROOM..).unwrap_or_default();
                [head, behind].concat().into()
            }
        };
        let sum = combined_checksum(crc32c::crc32c(head), sum, length as u64);
        let sum = crc32c::crc32c_append(sum, &[end]);
        let bundle = sums::note(bundle, sum);
        self.made = bundle.slice(head.len()..head.len() + length);
        bundle
    }

    /// Sums up what is new, if it has so many bytes.
    fn sum_up(&mut self, least: usize) {
        let new = self.buffer.get(self.summed..).unwrap_or_default();
        if new.len() >= least {
            self.sum = checksum_behind(self.sum, new);
            self.summed += new.len();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const END: u8 = 0xff;

    fn content(length: usize) -> Vec<u8> {
        (0..length).map(|at| (at % 251).to_le_bytes()[0]).collect()
    }

    #[test]
    fn a_bundle_is_made_where_its_payload_is_and_another_one_beside_it() {
        for length in [0, 1, PIECE - 1, PIECE, PIECE + 1, 1_000_000] {
            for head in [0, 100, ROOM, ROOM + 1, 3 * ROOM] {
                let (content, head) = (content(length), vec![3; head]);
                let expected = [&head[..], &content, &[END]].concat();
                for mut payload in [Payload::of(&content), Payload::prepared(&content)] {
                    assert_eq!(payload.checksum(), crc32c::crc32c(&content));
                    let place = payload.bytes().as_ptr();
                    let first = payload.enclosed(&head, END);
                    assert!(first == expected && payload.bytes() == content);
                    let is_there = first[head.len()..].as_ptr() == place;
                    assert_eq!(is_there, head.len() <= ROOM, "{length}, {}", head.len());
                    // As it has the name of another one.
                    let other = payload.enclosed(&head[..head.len() / 2], END);
                    assert!(other == expected[head.len() - head.len() / 2..]);
                    assert!(first == expected && payload.bytes() == content);
                    for bundle in [first, other] {
                        let sum = sums::of(&bundle);
                        assert_eq!(sum.is_some(), bundle.len() >= PIECE, "{length}");
                        assert!(sum.is_none_or(|sum| sum == crc32c::crc32c(&bundle)));
                    }
                }
            }
        }
    }

    #[tokio::test]
    async fn what_is_read_is_what_was_announced() {
        for length in [0, 1, PIECE, (1 << 20) + 300, 3_000_000] {
            let all = content(length + 7);
            let mut from = &all[..];
            let mut payload = Payload::read(&mut from, length as u64).await.unwrap();
            assert!(payload.bytes() == &all[..length], "{length}");
            assert_eq!(payload.checksum(), crc32c::crc32c(&all[..length]));
            // A store in memory holds the buffer, and counts the payload.
            let memory = payload.buffer.capacity();
            assert!(memory <= ROOM + length + 2, "{memory} for {length}");
            assert_eq!(from.len(), 7, "what follows is left");
            let read = Payload::read(&mut &all[..], length as u64 + 8).await;
            assert_eq!(read.err().unwrap().kind(), io::ErrorKind::UnexpectedEof);
        }
    }
}
