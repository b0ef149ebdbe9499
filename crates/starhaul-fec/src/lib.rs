//! Erasure coding of blocks over `reed-solomon-simd`, and the rules that choose how much redundancy.

use bytes::Bytes;

/// Most fragments, data and redundancy together, that one code may have.
pub const MAX_FRAGMENTS: usize = 255;

/// A code cannot be made or used as asked.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FecError {
    /// Stub.
    #[error("{0}")]
    Stub(&'static str),
}

/// Computes `redundancy` redundancy fragments for `data` (1..=254 fragments of one equal, non-zero length; sum with
/// redundancy at most 255). Every length is allowed, odd ones too.
pub fn encode(_data: &[Bytes], _redundancy: u8) -> Result<Vec<Bytes>, FecError> {
    todo!()
}

/// Recovers the data fragments in order from any `data_count` of the fragments. `fragments` are (index, bytes) with
/// indices below `data_count + redundancy_count`; indices from `data_count` on are redundancy.
pub fn decode(_data_count: u8, _redundancy_count: u8, _fragments: &[(u8, Bytes)]) -> Result<Vec<Bytes>, FecError> {
    todo!()
}

/// Smallest number n of redundancy fragments with P[Binomial(data + n, loss) > n] ≤ `epsilon` (deadline.md).
/// At most `cap`.
pub fn redundancy_for_random_loss(_data: u8, _loss: f64, _epsilon: f64, _cap: u8) -> u8 {
    todo!()
}
