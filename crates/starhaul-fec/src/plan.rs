//! Cuts a block into codes and fragments (DMTP fig. 3: fragment length = ceil(len / k), so that padding ≤ k − 1).

use crate::{FecError, MAX_FRAGMENTS};

/// One code of a block: a byte range, cut into equal fragments; zeros pad the last ones.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Code {
    /// Offset of its first byte in the block.
    pub offset: usize,
    /// Bytes of the block that this code carries.
    pub len: usize,
    /// Number k of data fragments.
    pub data_count: u8,
    /// Bytes of each fragment, ceil(len / k).
    pub fragment_len: usize,
}

impl Code {
    /// Zero bytes after the data, at most k − 1.
    pub fn padding(&self) -> u8 {
        let padded = self.fragment_len.saturating_mul(self.data_count.into());
        u8::try_from(padded - self.len).unwrap_or(u8::MAX)
    }
}

/// The division of a block into codes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Plan {
    len: usize,
    data_fragments: usize,
    codes: usize,
}

impl Plan {
    /// Number of data fragments of all codes.
    pub fn data_fragments(&self) -> usize {
        self.data_fragments
    }

    /// The codes in the order of the block's bytes; their sizes differ by at most one fragment.
    pub fn codes(self) -> impl ExactSizeIterator<Item = Code> {
        (0..self.codes).map(move |index| {
            let (first, end) = (self.boundary(index), self.boundary(index + 1));
            let (offset, until) = (self.byte_at(first), self.byte_at(end));
            Code {
                offset,
                len: until - offset,
                data_count: u8::try_from(end - first).unwrap_or(u8::MAX),
                fragment_len: (until - offset).div_ceil(end - first),
            }
        })
    }

    /// First data fragment of code `index`.
    fn boundary(&self, index: usize) -> usize {
        proportion(self.data_fragments, index, self.codes)
    }

    fn byte_at(&self, fragment: usize) -> usize {
        proportion(self.len, fragment, self.data_fragments)
    }
}

/// Cuts a block of `len` bytes into fragments of at most `fragment_bytes` bytes, and these into as few codes as leave
/// room in each for `max_coding_rate` (0.0 to 1.0) redundancy fragments per data fragment. An empty block is one empty
/// fragment.
pub fn plan(len: usize, fragment_bytes: usize, max_coding_rate: f64) -> Result<Plan, FecError> {
    if fragment_bytes == 0 {
        return Err(FecError::NoCapacity);
    }
    let data_fragments = len.div_ceil(fragment_bytes).max(1);
    // Most blocks are one code: then the most that one has room for is not looked for.
    let is_one = u8::try_from(data_fragments).is_ok_and(|data| has_room(data, max_coding_rate));
    let codes = match is_one {
        true => 1,
        false => data_fragments.div_ceil(most_data(max_coding_rate)),
    };
    Ok(Plan {
        len,
        data_fragments,
        codes,
    })
}

/// Greatest k with k + ceil(k · rate) ≤ 255.
fn most_data(rate: f64) -> usize {
    let most = (1..=u8::MAX).rev().find(|data| has_room(*data, rate));
    most.map_or(1, usize::from)
}

/// Whether a code of so many data fragments has room for `rate` (0.0 to 1.0) redundancy fragments for each.
fn has_room(data: u8, rate: f64) -> bool {
    let rate = if rate.is_nan() {
        1.0
    } else {
        rate.clamp(0.0, 1.0)
    };
    let data = f64::from(data);
    data + (data * rate).ceil() <= MAX_FRAGMENTS as f64
}

/// floor(`whole` · `part` / `parts`) without overflow.
fn proportion(whole: usize, part: usize, parts: usize) -> usize {
    let wide = |number| u128::try_from(number).unwrap_or(u128::MAX);
    usize::try_from(wide(whole) * wide(part) / wide(parts)).unwrap_or(usize::MAX)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_frame_of_dmtp_is_one_code_of_twenty() {
        let plan = plan(24_000, 1_200, 1.0).unwrap();
        let codes: Vec<_> = plan.codes().collect();
        assert_eq!(
            codes,
            [Code {
                offset: 0,
                len: 24_000,
                data_count: 20,
                fragment_len: 1_200
            }]
        );
        assert_eq!(codes[0].padding(), 0);
    }

    #[test]
    fn a_large_block_becomes_several_codes_with_room_for_their_redundancy() {
        let counts = |rate| -> Vec<_> {
            plan(300_000, 1_000, rate)
                .unwrap()
                .codes()
                .map(|code| code.data_count)
                .collect()
        };
        assert_eq!(counts(0.0), [150, 150]);
        assert_eq!(counts(1.0), [100, 100, 100]);
        assert_eq!(counts(0.2), [150, 150]);
    }

    #[test]
    fn an_empty_block_is_one_empty_fragment_and_no_room_is_an_error() {
        let codes: Vec<_> = plan(0, 1_000, 0.5).unwrap().codes().collect();
        assert_eq!(
            codes,
            [Code {
                offset: 0,
                len: 0,
                data_count: 1,
                fragment_len: 0
            }]
        );
        assert_eq!(plan(10, 0, 0.5), Err(FecError::NoCapacity));
    }

    proptest! {
        #[test]
        fn codes_cover_the_block_and_keep_every_bound(
            len in 0..3_000_000usize, fragment_bytes in 1..2_000usize, rate in 0.0..=1.0f64,
        ) {
            let plan = plan(len, fragment_bytes, rate).unwrap();
            let (mut next, mut fragments) = (0, 0);
            for code in plan.codes() {
                let data = usize::from(code.data_count);
                prop_assert_eq!(code.offset, next);
                prop_assert!(code.data_count >= 1 && code.fragment_len <= fragment_bytes);
                prop_assert!(f64::from(code.data_count) + (f64::from(code.data_count) * rate).ceil() <= 255.0);
                prop_assert_eq!(data * code.fragment_len - code.len, usize::from(code.padding()));
                prop_assert!(code.padding() < code.data_count);
                next += code.len;
                fragments += data;
            }
            prop_assert_eq!(plan.codes().len(), fragments.div_ceil(most_data(rate)), "no more than need be");
            prop_assert_eq!(next, len);
            prop_assert_eq!(fragments, plan.data_fragments());
            prop_assert_eq!(fragments, len.div_ceil(fragment_bytes).max(1));
        }
    }
}
