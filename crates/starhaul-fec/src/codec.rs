//! Encodes redundancy fragments and recovers data from them (DMTP §V "Adaptive FEC").
//!
//! A code of one data fragment repeats it. Any other code is Reed–Solomon over GF(2¹⁶) by `reed-solomon-simd`.

use std::fmt;

use bytes::{Bytes, BytesMut};
use reed_solomon_simd::ReedSolomonDecoder;

use crate::{
    FecError, check_counts,
    encoder::{Encoder, Shards},
    few_losses,
    last_byte::Interpolation,
};

/// Encoder and decoder that reuse their working memory for all blocks.
#[derive(Default)]
pub struct Codec {
    encoder: Encoder,
    decoder: Option<ReedSolomonDecoder>,
}

impl fmt::Debug for Codec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Codec").finish_non_exhaustive()
    }
}

impl Codec {
    /// Creates a codec; working memory is allocated on first use.
    pub fn new() -> Self {
        Self::default()
    }

    /// Computes `redundancy` redundancy fragments of the same length as those of `data`, which must all have one length
    /// (any, odd and zero too). Takes at least one data fragment and at most 255 fragments in all.
    pub fn encode(&mut self, data: &[Bytes], redundancy: u8) -> Result<Vec<Bytes>, FecError> {
        let count = usize::from(redundancy);
        check_counts(data.len(), count)?;
        let length = equal_length(data.iter().enumerate())?;
        if count == 0 || length == 0 || data.len() == 1 {
            return Ok(vec![data[0].clone(); count]);
        }
        let even = length & !1;
        let mut fragments = vec![BytesMut::with_capacity(length); count];
        if even > 0 {
            let shards = data.iter().map(|fragment| &fragment[..even]);
            self.encoder
                .encode(shards, data.len(), count, even, |result| {
                    for (fragment, bytes) in fragments.iter_mut().zip(result.recovery_iter()) {
                        fragment.extend_from_slice(bytes);
                    }
                })?;
        }
        if even < length {
            let polynomial = Interpolation::new(
                (0..)
                    .zip(data.iter().map(|fragment| fragment[even]))
                    .collect(),
            );
            for (fragment, point) in fragments.iter_mut().zip((0..=u8::MAX).skip(data.len())) {
                fragment.extend_from_slice(&[polynomial.at(point)]);
            }
        }
        Ok(fragments.into_iter().map(BytesMut::freeze).collect())
    }

    /// Recovers the data fragments in order from any `data_count` of the fragments. `fragments` are (index, bytes),
    /// each index at most once and below `data_count + redundancy_count`; indices from `data_count` on are redundancy.
    pub fn decode(
        &mut self,
        data_count: u8,
        redundancy_count: u8,
        fragments: &[(u8, Bytes)],
    ) -> Result<Vec<Bytes>, FecError> {
        let Arrived {
            mut data,
            redundancy,
        } = Arrived::sort_out(data_count, redundancy_count, fragments)?;
        let Some((_, first)) = redundancy.first() else {
            return Ok(data.into_iter().flatten().collect());
        };
        let (length, even) = (first.len(), first.len() & !1);
        if data_count == 1 || length == 0 {
            return Ok(vec![Bytes::clone(first); data_count.into()]);
        }
        let mut found = if even > 0 {
            let shards = Shards {
                data: data
                    .iter()
                    .map(|fragment| fragment.as_ref().map(|bytes| &bytes[..even]))
                    .collect(),
                redundancy_count: redundancy_count.into(),
                redundancy: redundancy
                    .iter()
                    .map(|(index, bytes)| (usize::from(*index - data_count), &bytes[..even]))
                    .collect(),
            };
            self.recover(&shards, even)?
        } else {
            vec![Bytes::new(); redundancy.len()]
        };
        if even < length {
            append_last_bytes(&data, &redundancy, &mut found);
        }
        let mut found = found.into_iter();
        Ok(data
            .iter_mut()
            .filter_map(|fragment| fragment.take().or_else(|| found.next()))
            .collect())
    }

    /// The missing data fragments in order.
    fn recover(&mut self, shards: &Shards<'_>, length: usize) -> Result<Vec<Bytes>, FecError> {
        if shards.redundancy.len() <= few_losses::MOST
            && let Some(found) = few_losses::recover(&mut self.encoder, shards, length)?
        {
            return Ok(found);
        }
        let (data_count, redundancy_count) = (shards.data.len(), shards.redundancy_count);
        let decoder = match &mut self.decoder {
            Some(decoder) => {
                decoder.reset(data_count, redundancy_count, length)?;
                decoder
            }
            none => none.insert(ReedSolomonDecoder::new(
                data_count,
                redundancy_count,
                length,
            )?),
        };
        for (index, bytes) in shards.data.iter().enumerate() {
            if let Some(bytes) = bytes {
                decoder.add_original_shard(index, bytes)?;
            }
        }
        for (index, bytes) in &shards.redundancy {
            decoder.add_recovery_shard(*index, bytes)?;
        }
        let result = decoder.decode()?;
        Ok(result
            .restored_original_iter()
            .map(|(_, bytes)| Bytes::copy_from_slice(bytes))
            .collect())
    }
}

/// [`Codec::encode`] with working memory for this call only.
pub fn encode(data: &[Bytes], redundancy: u8) -> Result<Vec<Bytes>, FecError> {
    Codec::new().encode(data, redundancy)
}

/// [`Codec::decode`] with working memory for this call only.
pub fn decode(
    data_count: u8,
    redundancy_count: u8,
    fragments: &[(u8, Bytes)],
) -> Result<Vec<Bytes>, FecError> {
    Codec::new().decode(data_count, redundancy_count, fragments)
}

/// The validated fragments that arrived of one code.
struct Arrived<'a> {
    data: Vec<Option<Bytes>>,
    /// As many redundancy fragments as data fragments are missing, with their indices in the code.
    redundancy: Vec<(u8, &'a Bytes)>,
}

impl<'a> Arrived<'a> {
    fn sort_out(
        data_count: u8,
        redundancy_count: u8,
        fragments: &'a [(u8, Bytes)],
    ) -> Result<Self, FecError> {
        let (needed, count) = (
            usize::from(data_count),
            usize::from(data_count) + usize::from(redundancy_count),
        );
        check_counts(needed, redundancy_count.into())?;
        equal_length(
            fragments
                .iter()
                .map(|(index, bytes)| (usize::from(*index), bytes)),
        )?;
        let mut seen = [false; 256];
        let mut data = vec![None; needed];
        let mut redundancy = Vec::new();
        for (index, bytes) in fragments {
            let place = usize::from(*index);
            if place >= count {
                return Err(FecError::Index {
                    index: *index,
                    count,
                });
            }
            if std::mem::replace(&mut seen[place], true) {
                return Err(FecError::Duplicate { index: *index });
            }
            match data.get_mut(place) {
                Some(fragment) => *fragment = Some(bytes.clone()),
                None => redundancy.push((*index, bytes)),
            }
        }
        let missing = data.iter().filter(|fragment| fragment.is_none()).count();
        if redundancy.len() < missing {
            return Err(FecError::TooFew {
                given: fragments.len(),
                needed,
            });
        }
        redundancy.truncate(missing);
        Ok(Self { data, redundancy })
    }
}

/// Appends the last byte to the recovered data fragments of odd length.
fn append_last_bytes(data: &[Option<Bytes>], redundancy: &[(u8, &Bytes)], found: &mut [Bytes]) {
    let last = |bytes: &Bytes| bytes.last().copied().unwrap_or(0);
    let arrived = (0..)
        .zip(data)
        .filter_map(|(index, bytes)| Some((index, last(bytes.as_ref()?))));
    let more = redundancy
        .iter()
        .map(|(index, bytes)| (*index, last(bytes)));
    let polynomial = Interpolation::new(arrived.chain(more).collect());
    let missing = (0..).zip(data).filter(|(_, bytes)| bytes.is_none());
    for ((index, _), found) in missing.zip(found) {
        let mut bytes = BytesMut::with_capacity(found.len() + 1);
        bytes.extend_from_slice(found);
        bytes.extend_from_slice(&[polynomial.at(index)]);
        *found = bytes.freeze();
    }
}

/// The common length of all fragments; 0 when there are none.
fn equal_length<'a>(
    fragments: impl Iterator<Item = (usize, &'a Bytes)>,
) -> Result<usize, FecError> {
    let mut expected = None;
    for (index, bytes) in fragments {
        let expected = *expected.get_or_insert(bytes.len());
        if bytes.len() != expected {
            return Err(FecError::UnequalLength {
                index,
                expected,
                found: bytes.len(),
            });
        }
    }
    Ok(expected.unwrap_or(0))
}

#[cfg(test)]
mod tests;
