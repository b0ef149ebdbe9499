//! Bytes that any offset gives anew, so that a transfer of any length can be verified without being kept.

use sha2::{Digest as _, Sha256};
use starhaul_leotp::Source;

/// A content of pseudo-random bytes.
#[derive(Clone, Copy, Debug)]
pub struct Text {
    /// Other bytes for each.
    pub seed: u64,
    /// Length in bytes.
    pub length: u64,
}

impl Text {
    /// Writes the bytes from `offset` on.
    pub fn fill(&self, offset: u64, out: &mut [u8]) {
        let mut at = offset;
        let mut out = out;
        while !out.is_empty() {
            let word = mix(self.seed ^ (at / 8)).to_le_bytes();
            let skip = usize::from((at % 8).to_le_bytes()[0]);
            let count = (8 - skip).min(out.len());
            let (now, later) = out.split_at_mut(count);
            now.copy_from_slice(&word[skip..skip + count]);
            out = later;
            at += count as u64;
        }
    }

    /// The hash of the first bytes.
    pub fn hash(&self, length: u64) -> [u8; 32] {
        let mut hash = Sha256::new();
        let mut buffer = vec![0; 1 << 16];
        let mut at = 0;
        while at < length {
            let count = (length - at).min(buffer.len() as u64);
            let part = &mut buffer[..usize::try_from(count).unwrap_or(0)];
            self.fill(at, part);
            hash.update(part);
            at += count;
        }
        hash.finalize().into()
    }
}

impl Source for Text {
    fn length(&self) -> u64 {
        self.length
    }

    fn read(&mut self, offset: u64, out: &mut [u8]) -> bool {
        self.fill(offset, out);
        true
    }
}

/// One step of SplitMix64.
fn mix(seed: u64) -> u64 {
    let mut word = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    word = (word ^ (word >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    word = (word ^ (word >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    word ^ (word >> 31)
}
