//! Repair segments: erasure codes over the red part, so that losses cost no round trip. Not of RFC 5326: they are of the
//! undefined type 5, which other engines drop (§6), and are sent only to peers that are configured for them.
//!
//! The red part is cut into codes of at most [`CODE_SYMBOLS`] symbols, each the data of one segment; any so many symbols of
//! a code, data or repair, give it back. The repair symbols of a code leave before its last data, so that the checkpoint
//! at the end of the red part is answered with all of them there.

use std::collections::BTreeMap;

use bytes::{Bytes, BytesMut};
use starhaul_fec::{Codec, redundancy_for_random_loss};

use crate::{block::Assembly, contents::Contents, segment::Repair};

/// Data symbols per code: the more, the less must be repaired for the same certainty, and with repair symbols at most 255.
const CODE_SYMBOLS: u64 = 192;
/// Greatest number of repair symbols per code.
const MOST_REPAIRS: u8 = 63;

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

/// The code that holds the byte at `offset` of a red part.
pub(crate) fn code_at(offset: u64, red: u64, symbol: u64, coding: Coding) -> Code {
    // Codes of nearly equal size: a short last one would need more repair symbols for its certainty.
    let symbols = red.div_ceil(symbol);
    let codes = symbols.div_ceil(CODE_SYMBOLS);
    let per_code = symbols.div_ceil(codes.max(1)).max(1);
    let start = offset / (per_code * symbol) * (per_code * symbol);
    let end = (start + per_code * symbol).min(red);
    let symbols = u8::try_from((end - start).div_ceil(symbol)).unwrap_or(u8::MAX);
    #[expect(clippy::cast_precision_loss, reason = "a share of a probability")]
    let failure = coding.failure / codes.max(1) as f64;
    let repairs = redundancy_for_random_loss(symbols, coding.loss, failure, MOST_REPAIRS);
    Code {
        start,
        end,
        symbols,
        repairs,
    }
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

/// What a repair symbol costs beside its bytes, and its code, which may have no other.
pub(crate) const SYMBOL_COST: usize = 320;

/// Repair symbols that a receiver keeps for codes with missing data.
#[derive(Debug, Default)]
pub(crate) struct Repairs {
    codes: BTreeMap<u64, Kept>,
    held: usize,
}

#[derive(Debug)]
struct Kept {
    symbols: u8,
    repairs: u8,
    symbol: usize,
    end: u64,
    kept: Vec<(u8, Bytes)>,
}

impl Repairs {
    /// Bytes of memory that it holds.
    pub(crate) fn held(&self) -> usize {
        self.held
    }

    /// Keeps a repair symbol of a code that is not complete; `false` if it contradicts others of the code.
    pub(crate) fn keep(&mut self, repair: &Repair<'_>) -> bool {
        let end = repair.code_end();
        let kept = self.codes.entry(repair.offset).or_insert_with(|| Kept {
            symbols: repair.symbols,
            repairs: repair.repairs,
            symbol: repair.payload.len(),
            end,
            kept: Vec::new(),
        });
        let known = (kept.symbols, kept.repairs, kept.symbol, kept.end);
        if known != (repair.symbols, repair.repairs, repair.payload.len(), end) {
            return false;
        }
        if kept.kept.iter().all(|(index, _)| *index != repair.index) {
            self.held += repair.payload.len() + SYMBOL_COST;
            let payload = Bytes::copy_from_slice(repair.payload);
            kept.kept.push((repair.index, payload));
        }
        true
    }

    /// Recovers the code that holds the byte at `offset`, if its repair symbols suffice, into `assembly`; returns how many
    /// bytes are new.
    pub(crate) fn recover(
        &mut self,
        codec: &mut Codec,
        offset: u64,
        assembly: &mut Assembly,
    ) -> u64 {
        let Some((&start, kept)) = self.codes.range(..=offset).next_back() else {
            return 0;
        };
        if offset >= kept.end {
            return 0;
        }
        let symbol = kept.symbol as u64;
        let span = |index: u64| {
            let from = start + index * symbol;
            (from, (from + symbol).min(kept.end))
        };
        // Each gap begins within a symbol; they are counted before any data are copied, and no further than they matter: a sender can
        // leave one behind each byte.
        if assembly
            .received()
            .has_more_gaps(start, kept.end, kept.kept.len())
        {
            return 0;
        }
        let all = 0..u64::from(kept.symbols);
        let is_missing = |&index: &u64| {
            let (from, to) = span(index);
            !assembly.received().covers(from, to)
        };
        let missing: Vec<u64> = all.clone().filter(is_missing).collect();
        if missing.len() > kept.kept.len() {
            return 0;
        }
        let present = all.filter(|index| !missing.contains(index));
        let mut fragments: Vec<(u8, Bytes)> = present
            .map(|index| {
                let (from, to) = span(index);
                let data = padded(assembly.copy(from, to), kept.symbol);
                (u8::try_from(index).unwrap_or(u8::MAX), data)
            })
            .collect();
        fragments.extend(kept.kept.iter().take(missing.len()).cloned());
        let mut new = 0;
        if !missing.is_empty()
            && let Ok(data) = codec.decode(kept.symbols, kept.repairs, &fragments)
        {
            for index in missing {
                let (from, to) = span(index);
                let symbol = data
                    .get(narrow(index))
                    .and_then(|data| data.get(..narrow(to - from)));
                new += symbol.map_or(0, |symbol| assembly.write(from, symbol));
            }
        }
        let dropped = self.codes.remove(&start);
        let cost = |(_, data): &(u8, Bytes)| data.len() + SYMBOL_COST;
        let bytes = dropped.map_or(0, |kept| kept.kept.iter().map(cost).sum());
        self.held -= bytes;
        new
    }
}

/// Offsets within a block in memory, which always fit.
fn narrow(offset: u64) -> usize {
    usize::try_from(offset).unwrap_or(usize::MAX)
}
