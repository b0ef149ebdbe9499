//! Integers of 1, 2, 4 or 8 bytes (RFC 9000 §16).

/// The greatest value.
pub(crate) const MAX: u64 = (1 << 62) - 1;

/// Takes an integer from the front.
pub(crate) fn read(from: &mut &[u8]) -> Option<u64> {
    let length = 1_usize << (from.first()? >> 6);
    let (bytes, rest) = from.split_at_checked(length)?;
    let value = bytes
        .iter()
        .fold(0, |value, byte| value << 8 | u64::from(*byte));
    *from = rest;
    Some(value & (MAX >> (62 - (8 * length - 2))))
}

/// Appends an integer; one above [`MAX`] becomes [`MAX`].
pub(crate) fn write(value: u64, out: &mut Vec<u8>) {
    let value = value.min(MAX);
    let (length, prefix) = match value {
        0..0x40 => (1, 0),
        0x40..0x4000 => (2, 1_u64 << 14),
        0x4000..0x4000_0000 => (4, 2 << 30),
        _ => (8, 3 << 62),
    };
    out.extend_from_slice(&(value | prefix).to_be_bytes()[8 - length..]);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read() {
        for value in [0, 63, 64, 16_383, 16_384, (1 << 30) - 1, 1 << 30, MAX] {
            let mut bytes = Vec::new();
            write(value, &mut bytes);
            for cut in 0..bytes.len() {
                assert_eq!(read(&mut &bytes[..cut]), None);
            }
            bytes.push(7);
            let mut rest = bytes.as_slice();
            assert_eq!((read(&mut rest), rest), (Some(value), &[7][..]));
        }
        // RFC 9000 §A.1.
        assert_eq!(read(&mut &[0x9d, 0x7f, 0x3e, 0x7d][..]), Some(494_878_333));
    }
}
