//! Trailer extensions with tags for private use (RFC 5326 §3.1.4, the IANA registry of LTP extension tags), which other
//! engines skip.
//!
//! The checksum of a block is CRC32C. On the segment that ends the red part it covers the red part, on a green segment its
//! data. UDP's own checksum lets one in 65 536 wrong reassemblies of IP fragments pass (RFC 4963).
//!
//! The reception number on a report is random for each session at the receiver. A receiver that was started anew has
//! another one, so that the sender never unites what two lives of it claim into a block that neither has.

use crate::segment::Extensions;

/// Tag of the checksum: "C3" as in CRC-32C.
pub(crate) const CHECKSUM: u8 = 0xc3;
/// Tag of the reception number.
const RECEPTION: u8 = 0xc4;
const VALUE_BYTES: usize = 4;

/// A trailer extension as on the wire.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Trailer([u8; 2 + VALUE_BYTES]);

impl Trailer {
    pub(crate) fn checksum(checksum: u32) -> Self {
        Self::new(CHECKSUM, checksum)
    }

    pub(crate) fn reception(number: u32) -> Self {
        Self::new(RECEPTION, number)
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

fn value(trailer: Extensions<'_>, tag: u8) -> Option<u32> {
    let value: [u8; VALUE_BYTES] = trailer.value(tag)?.try_into().ok()?;
    Some(u32::from_be_bytes(value))
}
