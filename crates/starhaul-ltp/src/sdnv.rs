//! Self-delimiting numeric values (RFC 5326 §2, RFC 6256): seven bits per byte, the highest bit set on all but the last.

/// Bytes of the longest encoding of a `u64`.
pub(crate) const MAX_BYTES: usize = 10;

/// Why bytes are no SDNV that this engine can hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SdnvError {
    /// The input ended inside the number.
    #[error("the segment ends inside a number")]
    Truncated,
    /// The number needs more than 64 bits, or its encoding more than ten bytes.
    #[error("a number has more than 64 bits")]
    TooLarge,
}

/// Bytes of the shortest encoding of `value`.
pub(crate) const fn encoded_len(value: u64) -> usize {
    let bits = u64::BITS - (value | 1).leading_zeros();
    bits.div_ceil(7) as usize
}

/// The smallest number whose shortest encoding is longer than that of `value`; the greatest number if there is none.
pub(crate) const fn first_longer(value: u64) -> u64 {
    let bits = 7 * encoded_len(value);
    if bits < u64::BITS as usize {
        1 << bits
    } else {
        u64::MAX
    }
}

/// Appends the shortest encoding of `value`.
pub(crate) fn encode(value: u64, out: &mut Vec<u8>) {
    let mut bytes = [0; MAX_BYTES];
    let length = encoded_len(value);
    encode_into(value, &mut bytes[..length]);
    out.extend_from_slice(&bytes[..length]);
}

/// Writes `value` over an encoding of as many bytes as its own has.
pub(crate) fn encode_into(value: u64, bytes: &mut [u8]) {
    let mut rest = value;
    for (i, byte) in bytes.iter_mut().rev().enumerate() {
        let more = if i == 0 { 0 } else { 0x80 };
        *byte = (rest & 0x7f).to_le_bytes()[0] | more;
        rest >>= 7;
    }
}

/// Decodes one number and returns the bytes after it. Leading zero bytes are allowed within ten bytes.
pub(crate) fn decode(bytes: &[u8]) -> Result<(u64, &[u8]), SdnvError> {
    let mut value: u64 = 0;
    for (i, &byte) in bytes.iter().enumerate() {
        if i == MAX_BYTES || value > u64::MAX >> 7 {
            return Err(SdnvError::TooLarge);
        }
        value = value << 7 | u64::from(byte & 0x7f);
        if byte & 0x80 == 0 {
            return Ok((value, &bytes[i + 1..]));
        }
    }
    Err(SdnvError::Truncated)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_examples_of_the_rfc_and_the_limits() {
        let examples: [(u64, &[u8]); 6] = [
            (0, &[0]),
            (0x7f, &[0x7f]),
            (0xabc, &[0x95, 0x3c]),
            (0x1234, &[0xa4, 0x34]),
            (0x4234, &[0x81, 0x84, 0x34]),
            (
                u64::MAX,
                &[0x81, 255, 255, 255, 255, 255, 255, 255, 255, 0x7f],
            ),
        ];
        for (value, bytes) in examples {
            let mut out = Vec::new();
            encode(value, &mut out);
            assert_eq!(out, bytes);
            assert_eq!(encoded_len(value), bytes.len());
            assert_eq!(decode(&[bytes, &[9]].concat()), Ok((value, [9].as_slice())));
            assert_eq!(decode(&bytes[..bytes.len() - 1]), Err(SdnvError::Truncated));
        }
        assert_eq!(decode(&[0x80, 0x80, 5]), Ok((5, [].as_slice())));
        for length in 1..MAX_BYTES {
            let longest = (1_u64 << (7 * length)) - 1;
            assert_eq!(encoded_len(longest), length);
            assert_eq!(first_longer(longest), longest + 1);
            assert_eq!(first_longer(longest / 100 + longest / 2), longest + 1);
        }
        assert_eq!(first_longer(u64::MAX), u64::MAX);
        let too_large = [0x82, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0];
        assert_eq!(decode(&too_large), Err(SdnvError::TooLarge));
        assert_eq!(decode(&[0x80; 12]), Err(SdnvError::TooLarge));
    }
}
