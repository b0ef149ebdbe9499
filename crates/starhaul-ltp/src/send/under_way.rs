//! Data on their way again, until a report comes that can tell of them. The checkpoint behind them has that report; those on checkpoints
//! before it, which may have been held up as an interrupted link holds up many, leave the same data out and tell nothing new.

use std::collections::BTreeMap;

use crate::ranges::RangeSet;

/// Greatest number of separate ranges that are remembered; what is beyond it may be sent once more than it must.
const MOST_RANGES: usize = 1 << 16;

/// What was sent again and is not reported on.
#[derive(Debug, Default)]
pub(super) struct UnderWay {
    /// Behind which no checkpoint has left.
    open: RangeSet,
    /// By the serial number of the checkpoint behind them.
    asked: BTreeMap<u64, RangeSet>,
    /// How many ranges these are.
    ranges: usize,
}

impl UnderWay {
    /// Data leave again; a checkpoint with this serial number, if they have one.
    pub(super) fn sent(&mut self, (start, end): (u64, u64), checkpoint: Option<u64>) {
        self.open.insert(start, end);
        let Some(serial) = checkpoint else { return };
        let open = std::mem::take(&mut self.open);
        if self.ranges + open.count() <= MOST_RANGES {
            self.ranges += open.count();
            self.asked.insert(serial, open);
        }
    }

    /// No checkpoint follows what has left since the last one: the rest of it came meanwhile.
    pub(super) fn leave(&mut self) {
        self.open = RangeSet::default();
    }

    /// The report on a checkpoint came.
    pub(super) fn answered(&mut self, serial: u64) {
        if let Some(ranges) = self.asked.remove(&serial) {
            self.ranges -= ranges.count();
        }
    }

    /// What left behind a checkpoint, between two bytes of the block. Zero is none: a report that answers none may have been made at any time,
    /// and know of all.
    pub(super) fn behind(
        &self,
        serial: u64,
        (lower, upper): (u64, u64),
    ) -> impl Iterator<Item = (u64, u64)> {
        let later = self.asked.range(serial.saturating_add(1)..);
        let ranges = later.map(|(_, ranges)| ranges).chain([&self.open]);
        let ranges = ranges.filter(move |_| serial != 0);
        ranges.flat_map(move |ranges| ranges.within(lower, upper))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_left_behind_a_checkpoint_is_unknown_to_its_report() {
        let mut under_way = UnderWay::default();
        under_way.sent((10, 20), None);
        under_way.sent((30, 40), Some(5));
        under_way.sent((50, 60), Some(7));
        under_way.sent((70, 80), None);
        let behind = |under_way: &UnderWay, serial| -> Vec<(u64, u64)> {
            under_way.behind(serial, (15, 75)).collect()
        };
        assert_eq!(
            behind(&under_way, 4),
            [(15, 20), (30, 40), (50, 60), (70, 75)]
        );
        assert_eq!(behind(&under_way, 5), [(50, 60), (70, 75)]);
        assert_eq!(behind(&under_way, 0), []);
        under_way.answered(7);
        assert_eq!(behind(&under_way, 4), [(15, 20), (30, 40), (70, 75)]);
        under_way.leave();
        assert_eq!(behind(&under_way, 5), []);
        under_way.answered(5);
        assert_eq!(under_way.ranges, 0);
    }

    #[test]
    fn a_peer_that_asks_for_tiny_gaps_costs_little() {
        let mut under_way = UnderWay::default();
        for number in 0..200_000 {
            under_way.sent((3 * number, 3 * number + 1), Some(number));
        }
        let held = under_way.asked.len();
        assert_eq!((held, under_way.ranges), (MOST_RANGES, MOST_RANGES));
        (0..200_000).for_each(|number| under_way.answered(number));
        assert_eq!(under_way.ranges, 0);
    }
}
