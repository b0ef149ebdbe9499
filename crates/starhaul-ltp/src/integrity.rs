//! Trailer extensions with tags for private use (RFC 5326 §3.1.4, the IANA registry of LTP extension tags), which other
//! engines skip.
//!
//! The checksum of a block is CRC32C. On the segment that ends the red part it covers the red part, on a green segment its
//! data. UDP's own checksum lets one in 65 536 wrong reassemblies of IP fragments pass (RFC 4963).
//!
//! The reception number on a report is random for each session at the receiver. A receiver that was started anew has
//! another one, so that the sender never unites what two lives of it claim into a block that neither has.
//!
//! Beside it stands how much the receiver's kernel keeps of what comes and was not taken yet: a sender near by has no more under way.

use crate::segment::Extensions;

/// Tag of the checksum: "C3" as in CRC-32C.
pub(crate) const CHECKSUM: u8 = 0xc3;
/// Tag of the reception number.
const RECEPTION: u8 = 0xc4;
/// Tag of the room in the socket.
const ROOM: u8 = 0xc5;
const VALUE_BYTES: usize = 4;
const TRAILER_BYTES: usize = 2 + VALUE_BYTES;

/// A trailer extension as on the wire.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Trailer([u8; TRAILER_BYTES]);

/// The trailer extensions of a report.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ReportTrailers {
    bytes: [u8; 2 * TRAILER_BYTES],
    count: u8,
}

impl ReportTrailers {
    /// The number of the reception and, if that is known, the bytes of memory that the kernel keeps for what the sender sends.
    pub(crate) fn new(reception: u32, room: Option<u32>) -> Self {
        let mut bytes = [0; 2 * TRAILER_BYTES];
        let (first, second) = bytes.split_at_mut(TRAILER_BYTES);
        first.copy_from_slice(&Trailer::new(RECEPTION, reception).0);
        if let Some(room) = room {
            second.copy_from_slice(&Trailer::new(ROOM, room).0);
        }
        Self {
            bytes,
            count: 1 + u8::from(room.is_some()),
        }
    }

    pub(crate) fn extensions(&self) -> Extensions<'_> {
        let length = usize::from(self.count) * TRAILER_BYTES;
        Extensions {
            count: self.count,
            bytes: self.bytes.get(..length).unwrap_or_default(),
        }
    }
}

impl Trailer {
    pub(crate) fn checksum(checksum: u32) -> Self {
        Self::new(CHECKSUM, checksum)
    }

    fn new(tag: u8, value: u32) -> Self {
        let [a, b, c, d] = value.to_be_bytes();
        Self([tag, 4, a, b, c, d])
    }

    pub(crate) fn extensions(&self) -> Extensions<'_> {
        Extensions {
            count: 1,
            bytes: &self.0,
        }
    }
}

/// The checksum that a segment carries.
pub(crate) fn checksum(trailer: Extensions<'_>) -> Option<u32> {
    value(trailer, CHECKSUM)
}

/// The reception number that a report carries.
pub(crate) fn reception(trailer: Extensions<'_>) -> Option<u32> {
    value(trailer, RECEPTION)
}

/// The bytes of memory that the kernel of whoever reports keeps for what comes, if the report tells.
pub(crate) fn room(trailer: Extensions<'_>) -> Option<u32> {
    value(trailer, ROOM)
}

fn value(trailer: Extensions<'_>, tag: u8) -> Option<u32> {
    let value: [u8; VALUE_BYTES] = trailer.value(tag)?.try_into().ok()?;
    Some(u32::from_be_bytes(value))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_report_tells_the_number_of_its_reception_and_the_room_that_is_known() {
        for told in [None, Some(0), Some(425_984), Some(u32::MAX)] {
            let trailers = ReportTrailers::new(0x0102_0304, told);
            let found = trailers.extensions();
            assert_eq!(reception(found), Some(0x0102_0304));
            assert_eq!((room(found), checksum(found)), (told, None));
            // Each as engines of former versions read it: tag, length, value.
            let all: Vec<(u8, &[u8])> = found.iter().collect();
            assert_eq!(all.len(), 1 + usize::from(told.is_some()));
            assert_eq!(all[0], (RECEPTION, &[1, 2, 3, 4][..]));
        }
    }
}
