//! Repair symbols at a receiver.

use std::collections::BTreeMap;

use bytes::Bytes;
use starhaul_fec::Codec;

use super::{SYMBOL_COST, narrow, padded};
use crate::{block::Assembly, segment::Repair};

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
