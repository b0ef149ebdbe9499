//! The checksum of a block: CRC32C in a trailer extension with a tag for private use (RFC 5326 §3.1.4, the IANA registry of
//! LTP extension tags), which other engines skip. On the segment that ends the red part it covers the red part, on a green
//! segment its data. UDP's own checksum lets one in 65 536 wrong reassemblies of IP fragments pass (RFC 4963).

use crate::segment::Extensions;

/// Tag of the extension: "C3" as in CRC-32C.
pub(crate) const TAG: u8 = 0xc3;
const VALUE_BYTES: usize = 4;

/// A trailer extension as on the wire.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Trailer([u8; 2 + VALUE_BYTES]);

impl Trailer {
    pub(crate) fn new(checksum: u32) -> Self {
        let [a, b, c, d] = checksum.to_be_bytes();
        Self([TAG, 4, a, b, c, d])
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
    let value: [u8; VALUE_BYTES] = trailer.value(TAG)?.try_into().ok()?;
    Some(u32::from_be_bytes(value))
}
