//! Parities: sums (exclusive or) of one symbol of each code. A code that lacks a few symbols more than it has for repair gets them from those
//! parities of whose symbols only its own is missing; then its repair symbols give back the rest.

use std::collections::{BTreeMap, btree_map::Entry};

use bytes::{Bytes, BytesMut};

use super::{Layout, SYMBOL_COST, narrow};
use crate::{block::Assembly, contents::Contents, ranges::RangeSet, segment::Parity};

/// With more gaps than some codes that fail leave, or more symbols missing, nothing is searched.
const MOST_GAPS: usize = 256;
const MOST_MISSING: u64 = 4096;
/// Symbols that a code may have.
const PLACES: usize = u8::MAX as usize;

/// The parity of the symbols at this place of the codes of `block`, whose red part has so many bytes.
pub(crate) fn parity(block: &Contents, red: u64, layout: &Layout, column: u8) -> Bytes {
    let mut sum = BytesMut::zeroed(layout.symbol);
    let shape = Shape {
        symbols: layout.per_code(),
        symbol: layout.symbol,
    };
    for (from, to) in shape.spans(column, red) {
        for (sum, byte) in sum.iter_mut().zip(&block.slice(from, to)) {
            *sum ^= byte;
        }
    }
    sum.freeze()
}

/// How many symbols a code has, but for the last one, and how many bytes a symbol.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Shape {
    symbols: u8,
    symbol: usize,
}

impl Shape {
    /// First byte of a symbol, and first byte behind it, by the numbers of the code and of the symbol within it.
    fn span(self, row: u64, column: u8, red: u64) -> (u64, u64) {
        let number = row * u64::from(self.symbols) + u64::from(column);
        let from = number * self.symbol as u64;
        (from, (from + self.symbol as u64).min(red))
    }

    /// The same of all symbols at one place of their codes.
    fn spans(self, column: u8, red: u64) -> impl Iterator<Item = (u64, u64)> {
        let spans = (0..).map(move |row| self.span(row, column, red));
        spans.take_while(move |(from, _)| *from < red)
    }
}

/// Parities that a receiver keeps until its red part is complete.
#[derive(Debug, Default)]
pub(crate) struct Parities {
    /// That of the first one, which all others have.
    shape: Option<Shape>,
    kept: BTreeMap<u8, Bytes>,
    held: usize,
}

impl Parities {
    /// Bytes of memory that it holds.
    pub(crate) fn held(&self) -> usize {
        self.held
    }

    /// Keeps a parity; `false` if it contradicts others.
    pub(crate) fn keep(&mut self, parity: &Parity<'_>) -> bool {
        let shape = Shape {
            symbols: parity.symbols,
            symbol: parity.payload.len(),
        };
        if *self.shape.get_or_insert(shape) != shape {
            return false;
        }
        if let Entry::Vacant(place) = self.kept.entry(parity.index) {
            place.insert(Bytes::copy_from_slice(parity.payload));
            self.held += parity.payload.len() + SYMBOL_COST;
        }
        true
    }

    /// Gives back a symbol into `assembly`, if one can be; returns its first byte, and how many are new. The red part has `red` bytes.
    pub(crate) fn solve(&mut self, red: u64, assembly: &mut Assembly) -> Option<(u64, u64)> {
        let shape = self.shape?;
        let (column, row) = self.solvable(shape, red, assembly.received())?;
        let sum = self.kept.remove(&column)?;
        self.held -= sum.len() + SYMBOL_COST;
        let missing = shape.span(row, column, red);
        let mut symbol = sum.to_vec();
        for (from, to) in shape.spans(column, red).filter(|span| *span != missing) {
            assembly.add_to(from, to, &mut symbol);
        }
        let (from, to) = missing;
        let data = symbol.get(..narrow(to.saturating_sub(from)))?;
        Some((from, assembly.write(from, data)))
    }

    /// A place whose parity is here and of whose symbols one is missing, and the code of that.
    fn solvable(&self, shape: Shape, red: u64, received: &RangeSet) -> Option<(u8, u64)> {
        if self.kept.is_empty() || received.count() > MOST_GAPS {
            return None;
        }
        let (symbol, symbols) = (shape.symbol as u64, u64::from(shape.symbols));
        // How many codes lack their symbol, by place, and the last of them. Anybody may have it looked for with each segment, and every few
        // nanoseconds for a symbol are many.
        let mut missing = [(0_u64, 0_u64); PLACES];
        let (mut behind, mut left) = (0, MOST_MISSING);
        for (start, end) in received.gaps(0, red) {
            // Several gaps may lie in one symbol.
            let (first, until) = ((start / symbol).max(behind), end.div_ceil(symbol));
            left = left.checked_sub(until.saturating_sub(first))?;
            let (mut row, mut column) = (first / symbols, first % symbols);
            for _ in first..until {
                if let Some(place) = missing.get_mut(narrow(column)) {
                    *place = (place.0 + 1, row);
                }
                column += 1;
                if column == symbols {
                    (row, column) = (row + 1, 0);
                }
            }
            behind = behind.max(until);
        }
        let alone = |column: u8| {
            let place = missing.get(usize::from(column));
            place.filter(|(lacking, _)| *lacking == 1)
        };
        let mut kept = self.kept.keys();
        kept.find_map(|column| Some((*column, alone(*column)?.1)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SHAPE: Shape = Shape {
        symbols: 5,
        symbol: 64,
    };

    fn content(red: usize) -> Vec<u8> {
        let bytes = (0..red).map(|i| (i.wrapping_mul(i + 7) >> 3).to_le_bytes()[0]);
        bytes.collect()
    }

    /// The sum of the symbols at a place, one byte after the other.
    fn sum(block: &[u8], column: u8) -> Vec<u8> {
        let mut sum = vec![0; SHAPE.symbol];
        for (at, byte) in block.iter().enumerate() {
            let place = at / SHAPE.symbol % usize::from(SHAPE.symbols);
            if place == usize::from(column) {
                sum[at % SHAPE.symbol] ^= byte;
            }
        }
        sum
    }

    fn kept(block: &[u8], columns: &[u8]) -> Parities {
        let mut parities = Parities::default();
        for column in columns {
            let is_kept = parities.keep(&Parity {
                service: 1,
                red: block.len() as u64,
                is_whole: true,
                symbols: SHAPE.symbols,
                index: *column,
                payload: &sum(block, *column),
            });
            assert!(is_kept);
        }
        parities
    }

    /// All of a block but these symbols.
    fn without(block: &[u8], missing: &[usize]) -> Assembly {
        let mut assembly = Assembly::default();
        for (number, symbol) in block.chunks(SHAPE.symbol).enumerate() {
            if !missing.contains(&number) {
                assembly.write((number * SHAPE.symbol) as u64, symbol);
            }
        }
        assembly
    }

    #[test]
    fn a_symbol_that_is_missing_alone_of_its_sum_is_given_back() {
        // The last code has three symbols, and the last of them 20 bytes.
        let block = content(12 * SHAPE.symbol + 20);
        let red = block.len() as u64;
        for missing in 0..13 {
            let column = u8::try_from(missing % 5).unwrap();
            let mut assembly = without(&block, &[missing]);
            let mut others = kept(&block, &[(column + 1) % 5]);
            assert_eq!(others.solve(red, &mut assembly), None, "{missing}");
            let mut parities = kept(&block, &[column]);
            let (from, new) = parities.solve(red, &mut assembly).unwrap();
            assert_eq!(from, (missing * SHAPE.symbol) as u64);
            assert_eq!(new, if missing == 12 { 20 } else { 64 });
            assert_eq!(parities.solve(red, &mut assembly), None);
            assert_eq!(parities.held(), 0);
            assert!(assembly.is_complete(red), "{missing}");
            assert_eq!(assembly.into_block(red).into_bytes(), block);
        }
    }

    /// A byte of a symbol may be there, and two gaps may lie in it.
    #[test]
    fn of_two_that_are_missing_of_a_sum_none_is_given_back() {
        let block = content(10 * SHAPE.symbol);
        let red = block.len() as u64;
        let mut parities = kept(&block, &[1, 2]);
        let mut assembly = without(&block, &[1, 6, 7]);
        assembly.write(7 * 64 + 10, &block[7 * 64 + 10..][..1]);
        assert_eq!(parities.solve(red, &mut assembly), Some((7 * 64, 63)));
        assert_eq!(parities.solve(red, &mut assembly), None);
        // Data that come later leave one.
        assembly.write(64, &block[64..128]);
        assert_eq!(parities.solve(red, &mut assembly), Some((6 * 64, 64)));
        assert_eq!(assembly.into_block(red).into_bytes(), block);
    }

    #[test]
    fn a_parity_of_another_shape_is_refused_and_one_that_comes_again_kept_once() {
        let block = content(10 * SHAPE.symbol);
        let mut parities = kept(&block, &[1, 1, 1]);
        assert_eq!(parities.held(), SHAPE.symbol + SYMBOL_COST);
        let mut other = Parity {
            service: 1,
            red: block.len() as u64,
            is_whole: true,
            symbols: 4,
            index: 1,
            payload: &sum(&block, 1),
        };
        assert!(!parities.keep(&other));
        other.symbols = 5;
        other.payload = &block[..65];
        assert!(!parities.keep(&other));
    }
}
