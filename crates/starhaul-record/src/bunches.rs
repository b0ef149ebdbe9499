//! Packets that left one after the other while the delay fell arrive together. A delay known to a millisecond or two
//! does not give each departure; the bound is that a link's capacity does not suddenly multiply.

/// Milliseconds in a block.
const BLOCK: usize = 10;
/// Blocks on either side of one whose mean gives the link's capacity.
const AROUND: usize = 50;
/// A block with this many times the mean is a bunch.
const BUNCH: u64 = 2;
/// Blocks with less than this fraction of the mean may have lost bytes to a bunch.
const EMPTY: u64 = 4;
/// Upper bound of a sudden fall of the delay, in blocks.
const REACH: usize = 20;

/// Moves bunches (bytes by millisecond) to the empty time right after them, or else right before them.
pub(crate) fn spread_bunches(bytes: &mut [u64]) {
    let mut sums: Vec<u64> = bytes
        .chunks(BLOCK)
        .map(|block| block.iter().sum())
        .collect();
    for index in 0..sums.len() {
        let mean = mean_around(&sums, index);
        let sum = sums.get(index).copied().unwrap_or(0);
        if mean == 0 || sum <= mean.saturating_mul(BUNCH) {
            continue;
        }
        let after = index + 1..(index + 1 + REACH).min(sums.len());
        let before = index.saturating_sub(REACH)..index;
        let is_empty = |block: &usize| sums.get(*block).is_some_and(|sum| *sum < mean / EMPTY);
        let mut empty: Vec<usize> = after.take_while(is_empty).collect();
        empty.extend(before.rev().take_while(is_empty));
        let mut excess = sum - mean;
        for block in empty {
            let room = mean
                .saturating_sub(sums.get(block).copied().unwrap_or(0))
                .min(excess);
            add(bytes, &mut sums, block, room);
            excess -= room;
        }
        let moved = sum - mean - excess;
        take(bytes, &mut sums, index, moved);
    }
}

/// The mean of the blocks around one, without that block and empty ones.
fn mean_around(sums: &[u64], index: usize) -> u64 {
    let from = index.saturating_sub(AROUND);
    let around = sums
        .get(from..(index + AROUND).min(sums.len()))
        .unwrap_or(&[]);
    let others = (from..)
        .zip(around)
        .filter(|(other, sum)| *other != index && **sum > 0);
    let (total, count) = others.fold((0, 0), |(total, count), (_, sum)| (total + sum, count + 1));
    total / u64::max(count, 1)
}

/// Adds bytes evenly to a block.
fn add(bytes: &mut [u64], sums: &mut [u64], block: usize, more: u64) {
    let Some(bins) = bytes.chunks_mut(BLOCK).nth(block) else {
        return;
    };
    let count = bins.len() as u64;
    for (index, bin) in (0..).zip(bins) {
        *bin += more / count + u64::from(index < more % count);
    }
    if let Some(sum) = sums.get_mut(block) {
        *sum += more;
    }
}

/// Removes bytes from a block, in proportion to those of each millisecond.
fn take(bytes: &mut [u64], sums: &mut [u64], block: usize, less: u64) {
    let (Some(bins), Some(sum)) = (bytes.chunks_mut(BLOCK).nth(block), sums.get_mut(block)) else {
        return;
    };
    let mut rest = less;
    for bin in bins.iter_mut() {
        let part = u128::from(*bin) * u128::from(less) / u128::from((*sum).max(1));
        let part = u64::try_from(part).unwrap_or(0).min(rest);
        *bin -= part;
        rest -= part;
    }
    // The remainder of the division.
    for bin in bins {
        let part = rest.min(*bin);
        *bin -= part;
        rest -= part;
    }
    *sum -= less - rest;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bunch_fills_the_empty_time_beside_it_and_no_byte_is_lost() {
        for (bunch, beside) in [(60, 61..66), (66, 61..66)] {
            let mut bytes = vec![6000_u64; 2000];
            // An outage of 50 ms, then 50 ms whose packets seem to have left within one block.
            bytes[560..610].fill(0);
            bytes[610..660].fill(0);
            bytes[bunch * BLOCK..(bunch + 1) * BLOCK].fill(6000 * 6);
            let total: u64 = bytes.iter().sum();
            spread_bunches(&mut bytes);
            assert_eq!(bytes.iter().sum::<u64>(), total);
            for block in beside {
                let sum: u64 = bytes[block * BLOCK..(block + 1) * BLOCK].iter().sum();
                assert!(
                    (54_000..=66_000).contains(&sum),
                    "block {block} has {sum} bytes"
                );
            }
            let outage: u64 = bytes[560..600].iter().sum();
            assert_eq!(outage, 0, "the outage is no place for them");
        }
    }
}
