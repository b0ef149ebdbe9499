//! Making redundancy fragments and recovering data from them (DMTP §V "Adaptive FEC").
//!
//! A code of one data fragment is copies of it. Any other is Reed–Solomon over GF(2¹⁶) by `reed-solomon-simd`.

use std::fmt;

use bytes::{Bytes, BytesMut};
use reed_solomon_simd::{ReedSolomonDecoder, ReedSolomonEncoder};

use crate::{FecError, check_counts, last_byte::Interpolation};

/// Encoder and decoder that keep their working space from one block to the next.
#[derive(Default)]
pub struct Codec {
    encoder: Option<ReedSolomonEncoder>,
    decoder: Option<ReedSolomonDecoder>,
}

impl fmt::Debug for Codec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Codec").finish_non_exhaustive()
    }
}

impl Codec {
    /// Working space is made on first use.
    pub fn new() -> Self {
        Self::default()
    }

    /// Computes `redundancy` redundancy fragments, each as long as those of `data`, which must be equally long (any length, odd
    /// and zero too). At least one data fragment, at most 255 fragments together.
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
            let encoder = prepared_encoder(&mut self.encoder, data.len(), count, even)?;
            for fragment in data {
                encoder.add_original_shard(&fragment[..even])?;
            }
            let result = encoder.encode()?;
            for (fragment, bytes) in fragments.iter_mut().zip(result.recovery_iter()) {
                fragment.extend_from_slice(bytes);
            }
        }
        if even < length {
            let polynomial = Interpolation::new(
                (0..)
                    .zip(data.iter().map(|fragment| fragment[even]))
                    .collect(),
            );
            for (fragment, point) in fragments.iter_mut().zip(redundancy_points(data.len())) {
                fragment.extend_from_slice(&[polynomial.at(point)]);
            }
        }
        Ok(fragments.into_iter().map(BytesMut::freeze).collect())
    }

    /// Recovers the data fragments in order from any `data_count` of the fragments. `fragments` are (index, bytes), each index
    /// at most once, with indices below `data_count + redundancy_count`; indices from `data_count` on are redundancy.
    pub fn decode(
        &mut self,
        data_count: u8,
        redundancy_count: u8,
        fragments: &[(u8, Bytes)],
    ) -> Result<Vec<Bytes>, FecError> {
        let mut data = vec![None; usize::from(data_count)];
        let used = sort_out(data_count, redundancy_count, fragments, &mut data)?;
        if data.iter().any(Option::is_none) {
            self.recover(data_count, redundancy_count, &used, &mut data)?;
        }
        Ok(data.into_iter().flatten().collect())
    }

    /// Fills the gaps of `data` from `used`, as many fragments as the code has data fragments.
    fn recover(
        &mut self,
        data_count: u8,
        redundancy_count: u8,
        used: &[(u8, &Bytes)],
        data: &mut [Option<Bytes>],
    ) -> Result<(), FecError> {
        let Some((_, first)) = used.first() else {
            return Ok(());
        };
        if data_count == 1 || first.is_empty() {
            data.fill(Some(Bytes::clone(first)));
            return Ok(());
        }
        let (length, even) = (first.len(), first.len() & !1);
        let polynomial = (even < length).then(|| {
            Interpolation::new(
                used.iter()
                    .map(|(index, bytes)| (*index, bytes[even]))
                    .collect(),
            )
        });
        let result = if even > 0 {
            let counts = (usize::from(data_count), usize::from(redundancy_count));
            let decoder = prepared_decoder(&mut self.decoder, counts.0, counts.1, even)?;
            for (index, bytes) in used {
                match index.checked_sub(data_count) {
                    None => decoder.add_original_shard(usize::from(*index), &bytes[..even])?,
                    Some(index) => {
                        decoder.add_recovery_shard(usize::from(index), &bytes[..even])?
                    }
                }
            }
            Some(decoder.decode()?)
        } else {
            None
        };
        for (index, gap) in (0..data_count)
            .zip(data)
            .filter(|(_, fragment)| fragment.is_none())
        {
            let mut bytes = BytesMut::with_capacity(length);
            if let Some(restored) = result
                .as_ref()
                .and_then(|result| result.restored_original(usize::from(index)))
            {
                bytes.extend_from_slice(restored);
            }
            if let Some(polynomial) = &polynomial {
                bytes.extend_from_slice(&[polynomial.at(index)]);
            }
            *gap = Some(bytes.freeze());
        }
        Ok(())
    }
}

/// [`Codec::encode`] with working space for this call only.
pub fn encode(data: &[Bytes], redundancy: u8) -> Result<Vec<Bytes>, FecError> {
    Codec::new().encode(data, redundancy)
}

/// [`Codec::decode`] with working space for this call only.
pub fn decode(
    data_count: u8,
    redundancy_count: u8,
    fragments: &[(u8, Bytes)],
) -> Result<Vec<Bytes>, FecError> {
    Codec::new().decode(data_count, redundancy_count, fragments)
}

/// Checks what arrived, puts data into its place in `data` and returns the fragments to decode from: all data, then as much
/// redundancy as is needed.
fn sort_out<'a>(
    data_count: u8,
    redundancy_count: u8,
    fragments: &'a [(u8, Bytes)],
    data: &mut [Option<Bytes>],
) -> Result<Vec<(u8, &'a Bytes)>, FecError> {
    let count = usize::from(data_count) + usize::from(redundancy_count);
    check_counts(data_count.into(), redundancy_count.into())?;
    equal_length(
        fragments
            .iter()
            .map(|(index, bytes)| (usize::from(*index), bytes)),
    )?;
    let mut seen = [false; 256];
    for (index, bytes) in fragments {
        if usize::from(*index) >= count {
            return Err(FecError::Index {
                index: *index,
                count,
            });
        }
        if std::mem::replace(&mut seen[usize::from(*index)], true) {
            return Err(FecError::Duplicate { index: *index });
        }
        if let Some(place) = data.get_mut(usize::from(*index)) {
            *place = Some(bytes.clone());
        }
    }
    let needed = usize::from(data_count);
    if fragments.len() < needed {
        return Err(FecError::TooFew {
            given: fragments.len(),
            needed,
        });
    }
    let (data, redundancy) = fragments
        .iter()
        .partition::<Vec<_>, _>(|(index, _)| *index < data_count);
    let used = data.into_iter().chain(redundancy).take(needed);
    Ok(used.map(|(index, bytes)| (*index, bytes)).collect())
}

/// The length that all have; 0 when there are none.
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

fn redundancy_points(data_count: usize) -> impl Iterator<Item = u8> {
    (0..=u8::MAX).skip(data_count)
}

fn prepared_encoder(
    encoder: &mut Option<ReedSolomonEncoder>,
    data: usize,
    redundancy: usize,
    length: usize,
) -> Result<&mut ReedSolomonEncoder, FecError> {
    match encoder {
        Some(encoder) => {
            encoder.reset(data, redundancy, length)?;
            Ok(encoder)
        }
        None => Ok(encoder.insert(ReedSolomonEncoder::new(data, redundancy, length)?)),
    }
}

fn prepared_decoder(
    decoder: &mut Option<ReedSolomonDecoder>,
    data: usize,
    redundancy: usize,
    length: usize,
) -> Result<&mut ReedSolomonDecoder, FecError> {
    match decoder {
        Some(decoder) => {
            decoder.reset(data, redundancy, length)?;
            Ok(decoder)
        }
        None => Ok(decoder.insert(ReedSolomonDecoder::new(data, redundancy, length)?)),
    }
}

#[cfg(test)]
mod tests;
