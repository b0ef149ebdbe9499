//! Recovers a small number of lost fragments. The decoder of `reed-solomon-simd` takes the same 0.2 ms for one lost
//! fragment of five as for thousands, so few losses are solved as a linear system: the contribution of the lost
//! fragments is the redundancy received minus the redundancy of the rest, and a unit fragment gives each coefficient.

use bytes::Bytes;
use reed_solomon_simd::engine::{
    DefaultEngine, Engine, GF_MODULUS, GfElement,
    tables::{self, get_exp_log},
};

use crate::{
    FecError,
    encoder::{Encoder, Shards},
};

/// Greatest number of lost fragments recovered this way: their unit fragments must fit one chunk. The work grows with
/// its square and stays below that of the library's decoder up to here.
pub(crate) const MOST: usize = HALF;

/// Field elements in the library's layout: 32 low bytes, then their 32 high bytes.
type Chunk = [u8; 64];
const HALF: usize = 32;

/// Recovers the lost data fragments of `length` bytes, in order. `None` if the redundancy does not determine them; the
/// library's redundancy always does.
pub(crate) fn recover(
    encoder: &mut Encoder,
    shards: &Shards<'_>,
    length: usize,
) -> Result<Option<Vec<Bytes>>, FecError> {
    let coefficients = coefficients(encoder, shards)?;
    let zeros = vec![0; length];
    let rest = shards
        .data
        .iter()
        .map(|fragment| fragment.unwrap_or(&zeros));
    let syndromes = encoder.encode(
        rest,
        shards.data.len(),
        shards.redundancy_count,
        length,
        |result| {
            let syndrome = |(index, bytes): &(usize, &[u8])| {
                let mut chunks = to_chunks(bytes);
                add(
                    &mut chunks,
                    &to_chunks(result.recovery(*index).unwrap_or_default()),
                );
                chunks
            };
            shards.redundancy.iter().map(syndrome).collect()
        },
    )?;
    let solution = solve(coefficients, syndromes);
    Ok(solution.map(|found| {
        found
            .iter()
            .map(|chunks| to_bytes(chunks, length))
            .collect()
    }))
}

/// The factor of each lost data fragment in each redundancy fragment, found by encoding unit fragments: element m of
/// the m-th lost fragment is 1, all others are 0.
fn coefficients(
    encoder: &mut Encoder,
    shards: &Shards<'_>,
) -> Result<Vec<Vec<GfElement>>, FecError> {
    let mut lost = 0;
    let units = shards.data.iter().map(|fragment| {
        let mut unit: Chunk = [0; 64];
        if fragment.is_none() {
            unit[lost] = 1;
            lost += 1;
        }
        unit
    });
    let length = size_of::<Chunk>();
    encoder.encode(
        units,
        shards.data.len(),
        shards.redundancy_count,
        length,
        |result| {
            let row = |(index, _): &(usize, &[u8])| {
                let row = result.recovery(*index).unwrap_or_default();
                let (low, high) = row.split_at(row.len() / 2);
                let elements = low
                    .iter()
                    .zip(high)
                    .map(|(low, high)| u16::from_le_bytes([*low, *high]));
                elements.take(shards.redundancy.len()).collect()
            };
            shards.redundancy.iter().map(row).collect()
        },
    )
}

/// Gauss–Jordan elimination of a square system with whole fragments as right-hand sides.
fn solve(mut rows: Vec<Vec<GfElement>>, mut sides: Vec<Vec<Chunk>>) -> Option<Vec<Vec<Chunk>>> {
    let engine = DefaultEngine::new();
    let tables = get_exp_log();
    let log = |element: GfElement| tables.log[usize::from(element)];
    let multiply = |row: &mut [GfElement], log_factor| {
        for element in row {
            *element = tables::mul(*element, log_factor, &tables.exp, &tables.log);
        }
    };
    for column in 0..rows.len() {
        let pivot = (column..rows.len()).find(|row| rows[*row][column] != 0)?;
        rows.swap(column, pivot);
        sides.swap(column, pivot);
        let inverse = (GF_MODULUS - log(rows[column][column])) % GF_MODULUS;
        multiply(&mut rows[column], inverse);
        engine.mul(&mut sides[column], inverse);
        let (pivot_row, pivot_side) = (rows[column].clone(), sides[column].clone());
        for (index, (row, side)) in rows.iter_mut().zip(&mut sides).enumerate() {
            if index == column || row[column] == 0 {
                continue;
            }
            let factor = log(row[column]);
            let (mut scaled_row, mut scaled_side) = (pivot_row.clone(), pivot_side.clone());
            multiply(&mut scaled_row, factor);
            engine.mul(&mut scaled_side, factor);
            row.iter_mut()
                .zip(scaled_row)
                .for_each(|(element, other)| *element ^= other);
            add(side, &scaled_side);
        }
    }
    Some(sides)
}

fn add(chunks: &mut [Chunk], other: &[Chunk]) {
    for (byte, other) in chunks
        .as_flattened_mut()
        .iter_mut()
        .zip(other.as_flattened())
    {
        *byte ^= other;
    }
}

/// Converts bytes to the library's layout: an incomplete last chunk is half low and half high bytes.
fn to_chunks(bytes: &[u8]) -> Vec<Chunk> {
    let (whole, tail) = bytes.as_chunks::<64>();
    let mut chunks = whole.to_vec();
    if !tail.is_empty() {
        let (low, high) = tail.split_at(tail.len() / 2);
        let mut chunk = [0; 64];
        chunk[..low.len()].copy_from_slice(low);
        chunk[HALF..HALF + high.len()].copy_from_slice(high);
        chunks.push(chunk);
    }
    chunks
}

fn to_bytes(chunks: &[Chunk], length: usize) -> Bytes {
    let mut bytes = chunks.as_flattened().to_vec();
    let tail = length % size_of::<Chunk>();
    let whole = length - tail;
    if tail > 0 {
        bytes.copy_within(whole + HALF..whole + HALF + tail / 2, whole + tail / 2);
    }
    bytes.truncate(length);
    bytes.into()
}
