//! A block to send, in one buffer or in two: an application that puts a header before a large buffer need not copy that.

use bytes::Bytes;

use crate::combine::checksum_behind;

/// Bytes that the processors of our time read from memory at once.
const CACHE_LINE: usize = 64;

/// A block whose first buffer holds whole segments once it is cut, unless it is all: then each segment lies in one of the two.
#[derive(Debug, Default)]
pub(crate) struct Contents {
    /// The head, and what its last segment lacks.
    first: Bytes,
    /// Bytes of the head.
    head: usize,
    /// What follows the head.
    rest: Bytes,
}

impl Contents {
    /// A block that begins with `head` and goes on with `rest`; both are shared.
    pub(crate) fn new(head: Bytes, rest: Bytes) -> Self {
        Self {
            head: head.len(),
            first: head,
            rest,
        }
    }

    /// Cuts it into segments of so many bytes, whatever it was cut into before. A head that does not end with a segment is copied, with what
    /// its last segment lacks.
    pub(crate) fn cut(&mut self, segment: usize) {
        let lacking = match self.head % segment.max(1) {
            0 => 0,
            over => (segment - over).min(self.rest.len()),
        };
        if self.first.len() == self.head + lacking {
            return;
        }
        let head = self.first.slice(..self.head);
        self.first = match lacking {
            0 => head,
            _ => [&head[..], &self.rest[..lacking]].concat().into(),
        };
    }

    /// Its length in bytes.
    pub(crate) fn len(&self) -> u64 {
        (self.head + self.rest.len()) as u64
    }

    /// The end of the buffer that holds this byte, as an offset in the block.
    pub(crate) fn piece_end(&self, at: u64) -> u64 {
        match self.seam() {
            seam if at < seam => seam,
            _ => self.len(),
        }
    }

    /// The bytes from `from` to `to`, or as many of them as lie in the buffer that holds the first.
    pub(crate) fn piece(&self, from: u64, to: u64) -> &[u8] {
        let (piece, start) = match from < self.seam() {
            true => (&self.first, 0),
            false => (&self.rest, self.head as u64),
        };
        let end = narrow(to.saturating_sub(start)).min(piece.len());
        piece.get(narrow(from - start)..end).unwrap_or_default()
    }

    /// CRC32C of these bytes behind others of which it is `crc`.
    pub(crate) fn checksum(&self, crc: u32, from: u64, to: u64) -> u32 {
        let [first, second] = self.pieces(from, to);
        checksum_behind(checksum_behind(crc, first), second)
    }

    /// Has these bytes brought into the cache: one is read of each line.
    pub(crate) fn fetch(&self, from: u64, to: u64) {
        for piece in self.pieces(from, to) {
            let lines = piece.iter().step_by(CACHE_LINE);
            // The compiler would leave out reads whose result is not used.
            std::hint::black_box(lines.fold(0_u8, |all, byte| all ^ byte));
        }
    }

    /// These bytes, as they lie in the two buffers.
    fn pieces(&self, from: u64, to: u64) -> [&[u8]; 2] {
        let first = self.piece(from, to);
        let at = from + first.len() as u64;
        let second = match at < to {
            true => self.piece(at, to),
            false => &[],
        };
        [first, second]
    }

    /// These bytes; no copy if they lie in one buffer.
    pub(crate) fn slice(&self, from: u64, to: u64) -> Bytes {
        let first = self.piece(from, to);
        let at = from + first.len() as u64;
        if at < to {
            return [first, self.piece(at, to)].concat().into();
        }
        let piece = match from < self.seam() {
            true => &self.first,
            false => &self.rest,
        };
        piece.slice_ref(first)
    }

    /// Where the first buffer ends.
    fn seam(&self) -> u64 {
        self.first.len() as u64
    }
}

/// Offsets below the length of a `Bytes` fit.
fn narrow(offset: u64) -> usize {
    usize::try_from(offset).unwrap_or(usize::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    const SEGMENT: usize = 7;

    #[test]
    fn a_block_is_the_same_wherever_it_is_cut_and_each_segment_lies_in_one_piece() {
        let all: Bytes = (0..40).collect::<Vec<u8>>().into();
        for cut in 0..=all.len() {
            let rest = all.slice(cut..);
            let mut block = Contents::new(all.slice(..cut), rest.clone());
            // What it was cut into before leaves nothing.
            for segment in [1, 2 * SEGMENT + 1, SEGMENT] {
                block.cut(segment);
                assert_eq!(block.slice(0, 40), all, "cut at {cut}, by {segment}");
            }
            assert_eq!(block.len(), 40, "cut at {cut}");
            for start in (0..40).step_by(SEGMENT) {
                let end = (start + SEGMENT as u64).min(40);
                let segment = &all[narrow(start)..narrow(end)];
                assert_eq!(block.piece(start, end), segment, "cut at {cut}");
                assert!(block.piece_end(start) >= end, "cut at {cut}");
            }
            for from in 0..=40 {
                for to in from..=40 {
                    let expected = &all[narrow(from)..narrow(to)];
                    let found = block.slice(from, to);
                    assert_eq!(found, expected, "cut at {cut}: {from} to {to}");
                    let crc = block.checksum(5, from, to);
                    assert_eq!(crc, crc32c::crc32c_append(5, expected));
                }
            }
            // The rest is where it was.
            if let Some(last) = rest.last() {
                let found = block.piece(39, 40);
                let is_copied = cut % SEGMENT > 0 && rest.len() <= SEGMENT - cut % SEGMENT;
                assert_eq!(!is_copied, std::ptr::eq(&found[0], last), "cut at {cut}");
            }
        }
    }
}
