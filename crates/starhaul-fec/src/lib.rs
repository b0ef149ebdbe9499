//! Erasure coding of blocks over `reed-solomon-simd`, and the rules that compute the amount of redundancy.
//!
//! [`plan`] cuts a block into codes of at most [`MAX_FRAGMENTS`] fragments, a rule such as
//! [`redundancy_for_random_loss`] computes the number of redundancy fragments of each code, and a [`Codec`] encodes
//! them and recovers the data from any sufficient subset.
//!
//! ```
//! use bytes::Bytes;
//! use starhaul_fec::{Codec, redundancy_for_random_loss};
//!
//! let data: Vec<Bytes> = ["one", "two", "six"].map(Bytes::from).to_vec();
//! let count = redundancy_for_random_loss(3, 0.01, 1e-3, 10);
//! assert_eq!(count, 1);
//! let mut codec = Codec::new();
//! let redundancy = codec.encode(&data, count)?;
//! // Fragment 1 was lost; fragment 3 is the redundancy.
//! let arrived = [(0, data[0].clone()), (2, data[2].clone()), (3, redundancy[0].clone())];
//! assert_eq!(codec.decode(3, count, &arrived)?, data);
//! # Ok::<(), starhaul_fec::FecError>(())
//! ```

mod codec;
mod encoder;
mod few_losses;
mod last_byte;
mod losses;
mod plan;
mod redundancy;

pub use codec::{Codec, decode, encode};
pub use losses::{Losses, remaining_losses};
pub use plan::{Code, Plan, plan};
pub use redundancy::{
    redundancy_for_burst_loss, redundancy_for_most_blocks, redundancy_for_random_loss,
    redundancy_on_another_path, remaining_loss,
};

/// Greatest number of fragments, data and redundancy together, of one code.
pub const MAX_FRAGMENTS: usize = 255;

/// Errors of encoding and decoding.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FecError {
    /// The caller (or, when decoding, the peer) asked for an impossible code.
    #[error(
        "no code has {data} data and {redundancy} redundancy fragments: use at least 1 data fragment and at most 255 together"
    )]
    Counts {
        /// Data fragments requested.
        data: usize,
        /// Redundancy fragments requested.
        redundancy: usize,
    },
    /// The fragments given by the caller or the peer differ in length.
    #[error(
        "fragment {index} has {found} bytes and others of its code have {expected}: all must be equal"
    )]
    UnequalLength {
        /// The fragment that differs.
        index: usize,
        /// Bytes of the first fragment given.
        expected: usize,
        /// Bytes of this one.
        found: usize,
    },
    /// The peer sent a fragment index outside its code.
    #[error("fragment {index} does not exist in a code of {count} fragments")]
    Index {
        /// The fragment's number.
        index: u8,
        /// Data and redundancy fragments of the code.
        count: usize,
    },
    /// The caller passed a fragment twice; drop duplicates on arrival.
    #[error("fragment {index} was given twice")]
    Duplicate {
        /// The fragment's number.
        index: u8,
    },
    /// Too many fragments were lost: wait for more.
    #[error("{given} fragments cannot recover {needed} data fragments: wait for more")]
    TooFew {
        /// Number of fragments that were given.
        given: usize,
        /// Data fragments of the code, which is the number needed.
        needed: usize,
    },
    /// The local configuration leaves no room for data in a datagram.
    #[error("a fragment must hold at least 1 byte: raise the path's datagram size")]
    NoCapacity,
    /// The coding library refused validated input: a defect of this crate.
    #[error("the coding library refused: {0}")]
    Library(String),
}

impl From<reed_solomon_simd::Error> for FecError {
    fn from(error: reed_solomon_simd::Error) -> Self {
        Self::Library(error.to_string())
    }
}

pub(crate) fn check_counts(data: usize, redundancy: usize) -> Result<(), FecError> {
    if data == 0 || data.saturating_add(redundancy) > MAX_FRAGMENTS {
        return Err(FecError::Counts { data, redundancy });
    }
    Ok(())
}
