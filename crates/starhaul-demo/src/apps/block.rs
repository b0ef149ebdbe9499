//! What is inside an application's block: a mark, its number, when it was sent, and a body that can be checked.

use std::time::Duration;

const MARK: [u8; 4] = *b"hblk";
const HEADER: usize = 16;

/// What a receiving application reads from a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    /// The block's number within its class.
    pub sequence: u32,
    /// When it was sent, counted from the start of the run.
    pub sent_at: Duration,
}

/// A block of `bytes` bytes, at least its header of 16.
pub fn build(sequence: u32, sent_at: Duration, bytes: usize) -> Vec<u8> {
    let nanos = u64::try_from(sent_at.as_nanos()).unwrap_or(u64::MAX);
    let mut block = Vec::with_capacity(bytes.max(HEADER));
    block.extend(MARK);
    block.extend(sequence.to_be_bytes());
    block.extend(nanos.to_be_bytes());
    block.extend(body(sequence).take(bytes.saturating_sub(HEADER)));
    block
}

/// The header, if the block is one of ours and whole and every byte is the one that was sent.
pub fn parse(block: &[u8]) -> Option<Header> {
    let (mark, rest) = block.split_first_chunk()?;
    let (sequence, rest) = rest.split_first_chunk()?;
    let (nanos, rest) = rest.split_first_chunk()?;
    let sequence = u32::from_be_bytes(*sequence);
    let intact = *mark == MARK && rest.iter().copied().eq(body(sequence).take(rest.len()));
    intact.then(|| Header {
        sequence,
        sent_at: Duration::from_nanos(u64::from_be_bytes(*nanos)),
    })
}

/// A different sequence of bytes for each block (a xorshift generator; no pattern that a transport could repeat by chance).
fn body(sequence: u32) -> impl Iterator<Item = u8> {
    let mut state = u64::from(sequence) ^ 0x9e37_79b9_7f4a_7c15;
    std::iter::repeat_with(move || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state.to_le_bytes()
    })
    .flatten()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_changed_or_foreign_block_is_not_taken_for_a_good_one() {
        let sent_at = Duration::from_micros(1_234_567);
        let block = build(77, sent_at, 2_500);
        assert_eq!(block.len(), 2_500);
        assert_eq!(
            parse(&block),
            Some(Header {
                sequence: 77,
                sent_at
            })
        );
        for at in [0, 5, 16, 1_000, 2_499] {
            let mut changed = block.clone();
            changed[at] ^= 1;
            assert_eq!(parse(&changed), None, "byte {at}");
        }
        assert_eq!(parse(&block[..15]), None);
    }
}
