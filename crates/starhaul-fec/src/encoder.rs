//! The library's encoder and its input.

use reed_solomon_simd::{EncoderResult, ReedSolomonEncoder};

use crate::FecError;

/// The library's encoder, made on first use.
#[derive(Default)]
pub(crate) struct Encoder(Option<ReedSolomonEncoder>);

impl Encoder {
    /// Encodes `data` (`data_count` shards of `length` bytes) and passes the result to `read`.
    pub(crate) fn encode<T: AsRef<[u8]>, R>(
        &mut self,
        data: impl Iterator<Item = T>,
        data_count: usize,
        redundancy_count: usize,
        length: usize,
        read: impl FnOnce(&EncoderResult<'_>) -> R,
    ) -> Result<R, FecError> {
        let encoder = match &mut self.0 {
            Some(encoder) => {
                encoder.reset(data_count, redundancy_count, length)?;
                encoder
            }
            none => none.insert(ReedSolomonEncoder::new(
                data_count,
                redundancy_count,
                length,
            )?),
        };
        for shard in data {
            encoder.add_original_shard(shard)?;
        }
        let result = encoder.encode()?;
        Ok(read(&result))
    }
}

/// Shards in the form that the library codes: all of one even length.
pub(crate) struct Shards<'a> {
    pub(crate) data: Vec<Option<&'a [u8]>>,
    pub(crate) redundancy_count: usize,
    /// Index among the redundancy fragments, and bytes; as many as data fragments are missing.
    pub(crate) redundancy: Vec<(usize, &'a [u8])>,
}
