//! Blocks that tell their number, by all of their bytes.

use bytes::Bytes;

/// The bytes of a block, different for each number: it repeated, of which `bytes` is a multiple.
pub(crate) fn payload(number: u32, bytes: usize) -> Bytes {
    number.to_be_bytes().repeat(bytes / size_of::<u32>()).into()
}

/// The number of a block of so many bytes; `None` if a byte is missing or wrong.
pub(crate) fn number_of(data: &[u8], bytes: usize) -> Option<u32> {
    let number = *data.first_chunk()?;
    let (words, rest) = data.as_chunks();
    let is_whole =
        data.len() == bytes && rest.is_empty() && words.iter().all(|word| *word == number);
    is_whole.then(|| u32::from_be_bytes(number))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_block_tells_its_number_only_when_it_is_whole() {
        let data = payload(70_000, 24_000);
        assert_eq!(number_of(&data, 24_000), Some(70_000));
        for cut in [1, 4] {
            assert_eq!(number_of(&data[cut..], 24_000), None);
        }
        let mut wrong = data.to_vec();
        wrong[23_999] ^= 1;
        assert_eq!(number_of(&wrong, 24_000), None);
        assert_eq!(number_of(b"", 0), None);
    }
}
