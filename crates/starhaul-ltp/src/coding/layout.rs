//! How a red part is cut into codes, and how many repair symbols and parities go with it.
//!
//! The more symbols a code has, the less of it must be repaired for the same certainty: with losses one by one, the number of
//! those lost varies with the root of their number. One that is short therefore has shorter symbols if that saves bytes, and
//! one of many codes, all of which must be complete, has parities for the few that are not.

use starhaul_fec::{MAX_FRAGMENTS, redundancy_for_random_loss};

use super::{Code, Coding};
use crate::segment::LEAST_PARITY;

/// Data symbols per code where what is lost can be sent again, and greatest number of repair symbols.
const USUAL_SYMBOLS: u64 = 192;
const USUAL_REPAIRS: u8 = 63;
/// Greatest number of repair symbols per code without a return channel.
const MOST_REPAIRS: u8 = 127;
/// The share of the stated failures that a layout without a return channel may have: it is the cheapest of many, and so leaves nothing to
/// spare, as rounding does elsewhere.
const SPARE: f64 = 0.6;
/// Bytes that a segment has beside its symbol, about: with data, and for repair.
const DATA_HEADER: usize = 15;
const REPAIR_HEADER: usize = 25;
/// Red parts of more segments than this keep their symbols long: theirs are enough.
const MOST_SHORTENED: u64 = 1024;
/// So many lengths of symbols are compared; each step is such a part of the least number of symbols.
const SHORTER: u64 = 32;
const STEP: u64 = 24;
/// So many numbers of codes are compared: the least, and those behind it.
const NUMBERS: u32 = 4;
/// Red parts of so many codes have parities, if those cost less than what they replace.
const MANY_CODES: u64 = 16;
/// With parities, codes may fail so many times as often as their red part, and in no more than such a share of these: a receiver
/// that does not know parities has the others.
const MORE_FAILURES: f64 = 64.0;
const MOST_FAILURES: f64 = 0.02;
/// A code that fails lacks at most so many symbols more than it has for repair: more are rarer than all else.
const MOST_LACKING: u32 = 24;
/// Sums of probabilities may be rounded by so much.
const ROUNDING: f64 = 1e-12;

/// How a red part is cut into codes, and what goes with them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Layout {
    red: u64,
    /// Bytes of a symbol, which are those of a segment.
    pub(crate) symbol: usize,
    cut: Cut,
    extra: Extra,
}

/// The symbols of a red part in codes of nearly equal size: a short one would need more repair symbols for its certainty.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Cut {
    symbols: u64,
    /// Those of each code but the last, which has what is left.
    per_code: u64,
    codes: u64,
}

/// What is sent beside the data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Extra {
    /// Repair symbols of each code, and how many of the first have one less: so many as the certainty asks for lie between two numbers.
    repairs: u8,
    fewer: u64,
    /// Repair symbols of the last code.
    last: u8,
    parities: u8,
}

impl Layout {
    /// For a red part, which has a byte at least, in segments of so many bytes, of which those that are lost can be sent again.
    pub(crate) fn usual(red: u64, symbol: usize, coding: Coding) -> Self {
        let symbol = symbol.max(1);
        let symbols = red.div_ceil(symbol as u64);
        let codes = symbols.div_ceil(USUAL_SYMBOLS).max(1);
        let cut = Cut::new(symbols, codes);
        let failure = coding.failure / codes as f64;
        let repairs = |symbols: u64| {
            let symbols = u8::try_from(symbols).unwrap_or(u8::MAX);
            redundancy_for_random_loss(symbols, coding.loss, failure, USUAL_REPAIRS)
        };
        let extra = Extra {
            repairs: repairs(cut.per_code),
            fewer: 0,
            last: repairs(cut.last()),
            parities: 0,
        };
        Self {
            red,
            symbol,
            cut,
            extra,
        }
    }

    /// For a red part, which has a byte at least, to a peer that cannot answer: the fewest bytes with which no more of such red parts fail than
    /// `coding` allows, in segments of at most `most` bytes, each with `overhead` more of lower layers.
    pub(crate) fn without_return(red: u64, most: usize, coding: Coding, overhead: usize) -> Self {
        let fewest = red.div_ceil(most.max(1) as u64);
        let (steps, step) = match fewest <= MOST_SHORTENED {
            true => (SHORTER, (fewest / STEP).max(1)),
            false => (0, 1),
        };
        let losses = Losses::of(coding);
        let lengths = (0..=steps).map(|n| red.div_ceil(fewest + n * step));
        let layouts = lengths.filter_map(|symbol| {
            let symbol = usize::try_from(symbol).ok()?;
            best_with(red, symbol, losses, overhead)
        });
        let best = layouts.min_by_key(|(bytes, _)| *bytes);
        // With more losses than codes can repair nothing is certain.
        best.map_or_else(|| Self::usual(red, most, coding), |(_, layout)| layout)
    }

    /// The code that holds the byte at `offset`.
    pub(crate) fn code_at(&self, offset: u64) -> Code {
        let symbol = self.symbol as u64;
        let bytes = self.cut.per_code.saturating_mul(symbol);
        let number = offset / bytes;
        let start = number * bytes;
        let end = start.saturating_add(bytes).min(self.red);
        let symbols = end.saturating_sub(start).div_ceil(symbol);
        let repairs = match number + 1 >= self.cut.codes {
            true => self.extra.last,
            false if number < self.extra.fewer => self.extra.repairs.saturating_sub(1),
            false => self.extra.repairs,
        };
        Code {
            start,
            end,
            symbols: u8::try_from(symbols).unwrap_or(u8::MAX),
            repairs,
        }
    }

    /// Symbols of each code but the last.
    pub(crate) fn per_code(&self) -> u8 {
        u8::try_from(self.cut.per_code).unwrap_or(u8::MAX)
    }

    /// The places within their codes of the symbols that have a parity, far from each other: a burst is spread over them.
    pub(crate) fn columns(&self) -> impl Iterator<Item = u8> {
        let (count, symbols) = (u64::from(self.extra.parities), self.cut.per_code);
        let columns = (0..count).map(move |n| n * symbols / count);
        columns.map(|column| u8::try_from(column).unwrap_or(u8::MAX))
    }

    /// Bytes of all segments, each with `overhead` more.
    fn bytes(&self, overhead: usize) -> u64 {
        let Extra {
            repairs,
            fewer,
            last,
            parities,
        } = self.extra;
        let all = self.cut.codes.saturating_sub(1) * u64::from(repairs);
        let repairs = all.saturating_sub(fewer) + u64::from(last) + u64::from(parities);
        let data = (DATA_HEADER + overhead) as u64;
        let repair = (REPAIR_HEADER + overhead + self.symbol) as u64;
        self.red + self.cut.symbols * data + repairs * repair
    }
}

impl Cut {
    fn new(symbols: u64, codes: u64) -> Self {
        let per_code = symbols.div_ceil(codes.max(1)).max(1);
        Self {
            symbols,
            per_code,
            codes: symbols.div_ceil(per_code),
        }
    }

    /// Symbols of the last code.
    fn last(&self) -> u64 {
        let others = self.codes.saturating_sub(1) * self.per_code;
        self.symbols.saturating_sub(others)
    }
}

/// What is lost, and how often a red part may fail.
#[derive(Clone, Copy, Debug)]
struct Losses {
    share: f64,
    failure: f64,
}

impl Losses {
    /// What is no number counts as none.
    fn of(coding: Coding) -> Self {
        Self {
            share: match coding.loss.is_nan() {
                true => 0.0,
                false => coding.loss.clamp(0.0, 1.0),
            },
            failure: coding.failure.max(0.0) * SPARE,
        }
    }
}

/// The layout with symbols of this length that takes the fewest bytes, and how many.
fn best_with(red: u64, symbol: usize, losses: Losses, overhead: usize) -> Option<(u64, Layout)> {
    let symbols = red.div_ceil(symbol as u64);
    // As many as are lost on average have a place in each code.
    let most = whole(MAX_FRAGMENTS as f64 * (1.0 - losses.share)).max(1);
    let (mut codes, mut best, mut found) = (symbols.div_ceil(most), None, 0);
    loop {
        let cut = Cut::new(symbols, codes);
        let plain = fitted(cut, losses.share, losses.failure);
        let helped = with_parities(cut, losses, symbol);
        found += u32::from(plain.is_some() || helped.is_some());
        let layouts = [plain, helped].into_iter().flatten().map(|extra| {
            let layout = Layout {
                red,
                symbol,
                cut,
                extra,
            };
            (layout.bytes(overhead), layout)
        });
        best = layouts.chain(best).min_by_key(|(bytes, _)| *bytes);
        if found == NUMBERS || cut.per_code == 1 {
            return best;
        }
        // The next number of codes that makes them shorter.
        codes = (codes + 1).max(symbols.div_ceil(cut.per_code - 1));
    }
}

/// The fewest repair symbols with which a red part fails no more often than `failure`, if its codes have a place for them.
fn fitted(cut: Cut, loss: f64, failure: f64) -> Option<Extra> {
    let codes = cut.codes as f64;
    let symbols = u8::try_from(cut.per_code).ok()?;
    let (mut before, mut found) = (1.0, None);
    for (repairs, fails) in (0..=u8::MAX).zip(failures(symbols, loss)) {
        if codes * fails <= failure + ROUNDING {
            found = Some((repairs, fails));
            break;
        }
        before = fails;
    }
    let (repairs, fails) = found?;
    // What that is more certain than it must be lets some codes have one less.
    let fewer = match repairs {
        0 => 0,
        _ => whole((failure - codes * fails) / (before - fails)).min(cut.codes.saturating_sub(1)),
    };
    let last = u8::try_from(cut.last()).ok()?;
    let enough = |(_, of_last): &(u8, f64)| *of_last <= fails;
    let last = (0..=u8::MAX).zip(failures(last, loss)).find(enough);
    Some(Extra {
        repairs,
        fewer,
        last: last.map_or(repairs, |(repairs, _)| repairs).min(repairs),
        parities: 0,
    })
}

/// The same where codes fail more often, and parities help those that do.
fn with_parities(cut: Cut, losses: Losses, symbol: usize) -> Option<Extra> {
    if cut.codes < MANY_CODES || symbol < LEAST_PARITY {
        return None;
    }
    let helped = (losses.failure * MORE_FAILURES).min(MOST_FAILURES);
    let extra = fitted(cut, losses.share, helped)?;
    let symbols = u8::try_from(cut.per_code).ok()?;
    let repairs = extra.repairs - u8::from(extra.fewer > 0);
    let is_enough = |parities: &u8| {
        let fails = unsolved(symbols, repairs, losses.share, *parities);
        helped * fails <= losses.failure / 2.0
    };
    let parities = (1..=symbols).find(is_enough)?;
    Some(Extra { parities, ..extra })
}

/// The probability that a code of so many symbols cannot be recovered, for each number of repair symbols that it has a place for: that
/// more are lost before enough have arrived, a negative binomial variable.
fn failures(symbols: u8, loss: f64) -> impl Iterator<Item = f64> {
    let data = f64::from(symbols);
    let (mut term, mut fails) = ((1.0 - loss).powf(data), 1.0_f64);
    (0..=MOST_REPAIRS.min(u8::MAX - symbols)).map(move |lost| {
        fails = (fails - term).max(0.0);
        term *= loss * (data + f64::from(lost)) / (f64::from(lost) + 1.0);
        fails
    })
}

/// The probability, at most, that so many parities do not help a code that fails, alone of all. Such a one lacks a symbol or a few more than it
/// has for repair; a parity gives one back if its own is among those lost, and it arrives.
fn unsolved(symbols: u8, repairs: u8, loss: f64, parities: u8) -> f64 {
    let (repairs, parities) = (f64::from(repairs), f64::from(parities));
    let sent = f64::from(symbols) + repairs;
    let (mut weight, mut all, mut unsolved) = (1.0, 0.0, 0.0);
    for lacking in 1..=MOST_LACKING {
        let lost = repairs + f64::from(lacking);
        let gives = (1.0 - loss) * (lost / sent).min(1.0);
        // A binomial variable, as if each were chosen by itself.
        let (mut term, mut too_few) = ((1.0 - gives).powf(parities), 0.0_f64);
        for given in 0..lacking {
            too_few += term;
            let given = f64::from(given);
            term *= (parities - given).max(0.0) / (given + 1.0) * gives / (1.0 - gives);
        }
        unsolved += weight * too_few.min(1.0);
        all += weight;
        weight *= (sent - lost).max(0.0) / (lost + 1.0) * loss / (1.0 - loss);
    }
    unsolved / all
}

/// The whole part of a number; nothing of what is negative or no number.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "such a cast ends at the least and the greatest number that there is"
)]
fn whole(number: f64) -> u64 {
    number as u64
}

#[cfg(test)]
mod tests;
