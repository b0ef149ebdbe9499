//! Blocks that tell their number, by all of their bytes.

use bytes::Bytes;

/// The bytes of a block, different for each number: it repeated, of which `bytes` is a multiple.
pub(crate) fn payload(number: u32, bytes: usize) -> Bytes {
    number.to_be_bytes().repeat(bytes / size_of::<u32>()).into()
}

/// The number of a block, of which `bytes_of` tells the length; `None` if a byte is missing or wrong.
pub(crate) fn number_of(data: &[u8], bytes_of: impl Fn(u32) -> usize) -> Option<u32> {
    let word: [u8; 4] = *data.first_chunk()?;
    let (words, rest) = data.as_chunks::<4>();
    let number = u32::from_be_bytes(word);
    let is_whole = data.len() == bytes_of(number)
        && rest.is_empty()
        && words.iter().all(|other| *other == word);
    is_whole.then_some(number)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_block_tells_its_number_only_when_it_is_whole() {
        let data = payload(70_000, 24_000);
        assert_eq!(number_of(&data, |_| 24_000), Some(70_000));
        for cut in [1, 4] {
            assert_eq!(number_of(&data[cut..], |_| 24_000), None);
        }
        let mut wrong = data.to_vec();
        wrong[23_999] ^= 1;
        assert_eq!(number_of(&wrong, |_| 24_000), None);
        assert_eq!(number_of(b"", |_| 0), None);
        let by_number = |number| if number == 70_000 { 24_000 } else { 200 };
        assert_eq!(number_of(&data, by_number), Some(70_000));
        assert_eq!(number_of(&payload(3, 24_000), by_number), None);
    }
}
