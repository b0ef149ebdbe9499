//! CRC32C of large buffers, and of bytes from that of their parts, without reading the bytes.
//!
//! A CRC is a remainder modulo a polynomial P, and each byte that follows multiplies it by x⁸. So the CRC of two texts one behind the other
//! is that of the first, times x⁸ to the power of the second's length, plus that of the second (as in zlib's `crc32_combine` of Mark
//! Adler). That is a product for each bit of the length, much less than reading the bytes. The crate that computes the CRCs squares
//! matrices for each bit.

use crc_fast::{CrcAlgorithm, Digest};

/// P without its highest term. The lowest bit stands for the highest power, here and in all remainders.
const POLYNOMIAL: u32 = 0x82f6_3b78;
/// The remainder 1.
const ONE: u32 = 1 << 31;
/// x⁸ to the power of 2ⁿ, for each n.
const POWERS: [u32; 64] = powers();

/// Below this the crate for large buffers takes longer to begin.
const LARGE_BYTES: usize = 1024;

/// CRC32C of some bytes of which it is `first`, and of `second` behind them. For buffers of any size; made for large ones.
#[expect(
    clippy::cast_possible_truncation,
    reason = "the upper half of a sum of 32 bits is empty"
)]
pub fn checksum_behind(first: u32, second: &[u8]) -> u32 {
    if second.len() < LARGE_BYTES {
        return crc32c::crc32c_append(first, second);
    }
    // A state is a sum before its last inversion.
    let mut digest = Digest::new_with_init_state(CrcAlgorithm::Crc32Iscsi, u64::from(!first));
    digest.update(second);
    digest.finalize() as u32
}

/// CRC32C of some bytes of which it is `first`, and of `second_bytes` behind them of which it is `second`.
pub fn combined_checksum(first: u32, second: u32, second_bytes: u64) -> u32 {
    shifted(first, second_bytes) ^ second
}

/// CRC32C of the last `rest_bytes` of some bytes: of all of these it is `all`, of what is before the rest `first`.
pub fn rest_checksum(all: u32, first: u32, rest_bytes: u64) -> u32 {
    // To add is to subtract.
    shifted(first, rest_bytes) ^ all
}

/// What a CRC becomes in that of it and so many bytes behind, beside what these are.
fn shifted(crc: u32, bytes: u64) -> u32 {
    let powers = POWERS.iter().enumerate();
    let needed = powers.filter(|(n, _)| (bytes >> n) & 1 == 1);
    needed.fold(crc, |crc, (_, power)| product(crc, *power))
}

/// The product of two polynomials modulo P.
const fn product(one: u32, other: u32) -> u32 {
    let (mut sum, mut shifted, mut bit) = (0, other, ONE);
    while bit != 0 {
        if one & bit != 0 {
            sum ^= shifted;
        }
        // Times x.
        let carried = if shifted & 1 == 1 { POLYNOMIAL } else { 0 };
        shifted = (shifted >> 1) ^ carried;
        bit >>= 1;
    }
    sum
}

const fn powers() -> [u32; 64] {
    let (mut powers, mut n) = ([ONE >> 8; 64], 1);
    while n < powers.len() {
        powers[n] = product(powers[n - 1], powers[n - 1]);
        n += 1;
    }
    powers
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn a_buffer_of_any_size_has_the_sum_of_all_its_bytes(
            first in any::<u32>(),
            skip in 0..64_usize,
            bytes in 0..300_000_usize,
        ) {
            let text: Vec<u8> = (0..=250).cycle().take(skip + bytes).collect();
            let part = text.split_at(skip).1;
            prop_assert_eq!(checksum_behind(first, part), crc32c::crc32c_append(first, part));
        }

        #[test]
        fn the_checksum_of_a_text_follows_from_its_parts_wherever_it_is_cut(
            text in prop::collection::vec(any::<u8>(), 0..5000),
            cuts in prop::collection::vec(any::<prop::sample::Index>(), 0..6),
        ) {
            let all = crc32c::crc32c(&text);
            let mut cuts: Vec<usize> = cuts.iter().map(|cut| cut.index(text.len() + 1)).collect();
            cuts.extend([0, text.len()]);
            cuts.sort_unstable();
            let parts = cuts.windows(2).map(|ends| &text[ends[0]..ends[1]]);
            let combined = parts.fold(0, |sum, part| {
                combined_checksum(sum, crc32c::crc32c(part), part.len() as u64)
            });
            prop_assert_eq!(combined, all);
            for cut in cuts {
                let (first, rest) = text.split_at(cut);
                let (sum, bytes) = (crc32c::crc32c(first), rest.len() as u64);
                prop_assert_eq!(rest_checksum(all, sum, bytes), crc32c::crc32c(rest));
            }
        }

        /// Longer than a test can compute.
        #[test]
        fn bytes_behind_others_count_like_as_many_at_once(crc: u32, one in 0..u64::MAX / 2, other in 0..u64::MAX / 2) {
            prop_assert_eq!(shifted(shifted(crc, one), other), shifted(crc, one + other));
        }

        #[test]
        fn it_is_what_the_crate_finds_with_its_matrices(first: u32, second: u32, bytes in 1..u64::from(u32::MAX)) {
            let length = usize::try_from(bytes).unwrap();
            let expected = crc32c::crc32c_combine(first, second, length);
            prop_assert_eq!(combined_checksum(first, second, bytes), expected);
        }
    }

    #[test]
    fn a_megabyte_is_combined_from_its_segments() {
        let text: Vec<u8> = (0..1_000_000_u32)
            .map(|at| (at % 251).to_le_bytes()[0])
            .collect();
        for size in [1360, 65_536, 999_999] {
            let combined = text.chunks(size).fold(0, |sum, part| {
                combined_checksum(sum, crc32c::crc32c(part), part.len() as u64)
            });
            assert_eq!(combined, crc32c::crc32c(&text), "{size}");
        }
    }
}
