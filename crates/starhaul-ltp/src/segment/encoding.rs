//! The two encodings of segments: how one byte tells them apart, and how their numbers are written. All else of reading and writing is the
//! same for both, in `parse.rs` and `write.rs`; the layout of the one with fixed fields is a table in `docs/ltp.md`.

use crate::sdnv::{self, SdnvError};

/// How a segment is written. The version in the upper four bits of its first byte tells.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Encoding {
    /// As RFC 5326 §3 says: version 0, numbers are SDNVs.
    #[default]
    Rfc5326,
    /// Ours, with fields at fixed offsets: version 15, numbers have eight bytes, extensions stand behind the content, blocks have one
    /// colour.
    Fixed,
}

/// RFC 5326 defines version 0 alone, so that other engines refuse this one.
const FIXED_VERSION: u8 = 15;
/// Bytes of a number at a fixed offset.
const NUMBER_BYTES: usize = 8;
/// Bytes by which the header of a data segment or repair symbol with fixed fields is longer than one with the SDNVs of usual numbers.
const FURTHER_HEADER: usize = 28;

impl Encoding {
    /// The encoding of a segment with this first byte; `None` if it has none of the two.
    pub const fn of(first: u8) -> Option<Self> {
        match first >> 4 {
            0 => Some(Self::Rfc5326),
            FIXED_VERSION => Some(Self::Fixed),
            _ => None,
        }
    }

    /// The first byte of a segment of this type.
    pub(crate) const fn control(self, type_code: u8) -> u8 {
        match self {
            Self::Rfc5326 => type_code & 0xf,
            Self::Fixed => FIXED_VERSION << 4 | type_code & 0xf,
        }
    }

    /// Whether a block is red or green as a whole.
    pub(crate) const fn is_single_colour(self) -> bool {
        matches!(self, Self::Fixed)
    }

    /// Bytes of header of data beyond the usual ones of RFC 5326, about.
    pub(crate) const fn further_header(self) -> usize {
        match self {
            Self::Rfc5326 => 0,
            Self::Fixed => FURTHER_HEADER,
        }
    }

    /// Bytes of a number.
    pub(crate) const fn number_len(self, value: u64) -> usize {
        match self {
            Self::Rfc5326 => sdnv::encoded_len(value),
            Self::Fixed => NUMBER_BYTES,
        }
    }

    /// The smallest number that takes more bytes than this one; the greatest number if there is none.
    pub(crate) const fn first_longer(self, value: u64) -> u64 {
        match self {
            Self::Rfc5326 => sdnv::first_longer(value),
            Self::Fixed => u64::MAX,
        }
    }

    /// Appends a number.
    pub(crate) fn write_number(self, value: u64, out: &mut Vec<u8>) {
        match self {
            Self::Rfc5326 => sdnv::encode(value, out),
            Self::Fixed => out.extend_from_slice(&value.to_be_bytes()),
        }
    }

    /// Writes a number over one that takes as many bytes.
    pub(crate) fn overwrite_number(self, value: u64, bytes: &mut [u8]) {
        match self {
            Self::Rfc5326 => sdnv::encode_into(value, bytes),
            Self::Fixed => {
                for (byte, new) in bytes.iter_mut().zip(value.to_be_bytes()) {
                    *byte = new;
                }
            }
        }
    }

    /// Reads a number and returns the bytes behind it.
    pub(crate) fn read_number(self, bytes: &[u8]) -> Result<(u64, &[u8]), SdnvError> {
        match self {
            Self::Rfc5326 => sdnv::decode(bytes),
            Self::Fixed => {
                let split = bytes.split_first_chunk::<NUMBER_BYTES>();
                let (number, rest) = split.ok_or(SdnvError::Truncated)?;
                Ok((u64::from_be_bytes(*number), rest))
            }
        }
    }
}
