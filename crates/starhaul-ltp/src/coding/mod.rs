//! Repair segments: erasure codes over the red part, so that losses cost no round trip. Not of RFC 5326: they are of the
//! undefined type 5, which other engines drop (§6), and are sent only to peers that are configured for them.
//!
//! The red part is cut into codes of symbols, each the data of one segment; any so many symbols of a code, data or repair,
//! give it back. The repair symbols of a code leave before its last data, so that the checkpoint at the end of the red part
//! is answered with all of them there. Where a peer cannot answer, parities follow those of the last code of a long red part:
//! each is the sum of a symbol of every code, and helps the few codes that lack some symbols more than they have for repair.

mod layout;
mod parities;
mod repairs;

use bytes::{Bytes, BytesMut};
use starhaul_fec::Codec;

pub(crate) use self::{
    layout::Layout,
    parities::{Parities, parity},
    repairs::Repairs,
};
use crate::contents::Contents;

/// What a repair symbol costs beside its bytes, and its code, which may have no other.
pub(crate) const SYMBOL_COST: usize = 320;

/// How much is repaired in advance.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Coding {
    /// The share of segments that is lost, 0 to 1.
    pub loss: f64,
    /// The probability that a red part cannot be recovered by its repair segments alone.
    pub failure: f64,
}

impl Coding {
    /// For this loss, with one red part in two thousand in need of a retransmission.
    pub const fn new(loss: f64) -> Self {
        Self {
            loss,
            failure: 5e-4,
        }
    }
}

/// A code: its first byte, how many bytes and symbols of data it has, and how many repair symbols.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Code {
    pub(crate) start: u64,
    pub(crate) end: u64,
    pub(crate) symbols: u8,
    pub(crate) repairs: u8,
}

/// The repair symbols of a code of `block`.
pub(crate) fn encode(codec: &mut Codec, block: &Contents, code: Code, symbol: usize) -> Vec<Bytes> {
    let data: Vec<Bytes> = (code.start..code.end)
        .step_by(symbol)
        .map(|from| {
            let to = (from + symbol as u64).min(code.end);
            padded(block.slice(from, to), symbol)
        })
        .collect();
    // Its counts are within the limits, and all symbols of one length.
    codec.encode(&data, code.repairs).unwrap_or_default()
}

fn padded(data: Bytes, symbol: usize) -> Bytes {
    if data.len() == symbol {
        return data;
    }
    let mut padded = BytesMut::from(&data[..]);
    padded.resize(symbol, 0);
    padded.freeze()
}

/// Offsets within a block in memory, which always fit.
fn narrow(offset: u64) -> usize {
    usize::try_from(offset).unwrap_or(usize::MAX)
}
