//! Blocks of a file transfer. Numbers are big-endian.
//!
//! | block | bytes |
//! |---|---|
//! | chunk | 1, transfer (8), offset (8), length of the file (8), length of the name (2), name, data |
//! | verdict | 2, transfer (8), 0 stored or 1 not, SHA-256 of what was stored (32), reason as text |

use bytes::{BufMut as _, Bytes, BytesMut};

/// The client service of file transfers; 64 to 127 are for private use.
pub const SERVICE: u64 = 65;
/// Bytes of a file per block: small beside the memory of either end, large beside a report.
pub const CHUNK_BYTES: u64 = 16 << 20;

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Chunk {
    pub(crate) transfer: u64,
    pub(crate) offset: u64,
    pub(crate) length: u64,
    pub(crate) name: String,
    pub(crate) data: Bytes,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Verdict {
    pub(crate) transfer: u64,
    pub(crate) result: Result<[u8; 32], String>,
}

impl Chunk {
    /// The header of a chunk; its data follow.
    pub(crate) fn header(transfer: u64, offset: u64, length: u64, name: &str) -> BytesMut {
        let mut out = BytesMut::with_capacity(27 + name.len());
        out.put_u8(1);
        out.put_u64(transfer);
        out.put_u64(offset);
        out.put_u64(length);
        out.put_u16(u16::try_from(name.len()).unwrap_or(u16::MAX));
        out.put_slice(name.as_bytes());
        out
    }

    pub(crate) fn parse(block: &Bytes) -> Option<Self> {
        let mut input = Input(block);
        if input.take::<1>()? != [1] {
            return None;
        }
        let transfer = u64::from_be_bytes(input.take()?);
        let offset = u64::from_be_bytes(input.take()?);
        let length = u64::from_be_bytes(input.take()?);
        let name_length = usize::from(u16::from_be_bytes(input.take()?));
        let name = std::str::from_utf8(input.0.get(..name_length)?)
            .ok()?
            .to_owned();
        let data = block.slice_ref(input.0.get(name_length..)?);
        let fits = offset.checked_add(data.len() as u64)? <= length;
        let is_plain = !name.is_empty() && !name.contains(['/', '\0']) && !name.starts_with('.');
        (fits && !data.is_empty() && is_plain).then_some(Self {
            transfer,
            offset,
            length,
            name,
            data,
        })
    }
}

impl Verdict {
    pub(crate) fn encode(&self) -> Bytes {
        let mut out = BytesMut::new();
        out.put_u8(2);
        out.put_u64(self.transfer);
        out.put_u8(self.result.is_err().into());
        out.put_slice(self.result.as_ref().unwrap_or(&[0; 32]));
        out.put_slice(
            self.result
                .as_ref()
                .err()
                .map_or(&[], |reason| reason.as_bytes()),
        );
        out.freeze()
    }

    pub(crate) fn parse(block: &Bytes) -> Option<Self> {
        let mut input = Input(block);
        if input.take::<1>()? != [2] {
            return None;
        }
        let transfer = u64::from_be_bytes(input.take()?);
        let [failed] = input.take()?;
        let hash = input.take()?;
        let reason = String::from_utf8_lossy(input.0).into_owned();
        let result = if failed == 0 { Ok(hash) } else { Err(reason) };
        Some(Self { transfer, result })
    }
}

struct Input<'a>(&'a [u8]);

impl Input<'_> {
    fn take<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (taken, rest) = self.0.split_first_chunk()?;
        self.0 = rest;
        Some(*taken)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_are_read_as_written_and_names_cannot_leave_their_folder() {
        let block = |name: &str, offset| {
            let mut block = Chunk::header(7, offset, 10, name);
            block.put_slice(b"data");
            block.freeze()
        };
        let chunk = Chunk::parse(&block("a b.bin", 6)).unwrap();
        assert_eq!((chunk.transfer, chunk.offset, chunk.length), (7, 6, 10));
        assert_eq!(
            (chunk.name.as_str(), &chunk.data[..]),
            ("a b.bin", b"data".as_slice())
        );
        for name in ["", ".", "..", "../x", ".x", "/x", "a/b", "x\0"] {
            assert_eq!(Chunk::parse(&block(name, 0)), None, "{name:?}");
        }
        assert_eq!(Chunk::parse(&block("x", 7)), None, "behind the end");
        for result in [Ok([3; 32]), Err("no room".to_owned())] {
            let verdict = Verdict {
                transfer: 9,
                result,
            };
            assert_eq!(Verdict::parse(&verdict.encode()), Some(verdict));
        }
        for length in 0..27 {
            assert_eq!(Chunk::parse(&block("x", 0).slice(..length)), None);
            assert_eq!(Verdict::parse(&block("x", 0).slice(..length)), None);
        }
    }
}
