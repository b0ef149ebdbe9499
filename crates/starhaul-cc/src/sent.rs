//! A controller's record of each packet in flight, in order of packet numbers. Bounded: the oldest record is dropped
//! when fates do not arrive.

use std::collections::VecDeque;

/// Enough for four times what 10 Gbit/s over 600 ms hold in packets of 1450 bytes: controllers that find the rate keep two and
/// three times that in flight, and learn nothing from packets that are forgotten.
const MAX_RECORDS: usize = 1 << 21;
/// Beyond this many records, at most this share may be holes: packets overtaken by thousands with a fate will never get
/// one.
const SPARSE: (usize, usize) = (4_096, 8);

/// Records by packet number. A settled packet leaves a hole, which is removed with the oldest records.
#[derive(Clone, Debug)]
pub(crate) struct SentPackets<R> {
    records: VecDeque<(u64, Option<R>)>,
    /// Number of records that are no holes.
    unsettled: usize,
}

impl<R> SentPackets<R> {
    pub(crate) fn new() -> Self {
        Self {
            records: VecDeque::new(),
            unsettled: 0,
        }
    }

    /// Records a packet and returns the record that it replaces: an older one of the same number, or the oldest of all
    /// when there are too many.
    pub(crate) fn insert(&mut self, packet_number: u64, record: R) -> Option<R> {
        match self.records.back() {
            Some(&(newest, _)) if packet_number <= newest => match self.position(packet_number) {
                Ok(at) => {
                    let slot = self.records.get_mut(at).map(|(_, slot)| slot);
                    let before = slot.and_then(|slot| slot.replace(record));
                    self.unsettled += usize::from(before.is_none());
                    before
                }
                Err(at) => {
                    self.records.insert(at, (packet_number, Some(record)));
                    self.unsettled += 1;
                    self.evict()
                }
            },
            _ => {
                self.records.push_back((packet_number, Some(record)));
                self.unsettled += 1;
                self.evict()
            }
        }
    }

    /// Removes a packet that has a fate; `None` when it is unknown or was already settled.
    pub(crate) fn take(&mut self, packet_number: u64) -> Option<R> {
        let at = self.position(packet_number).ok()?;
        let record = self.records.get_mut(at)?.1.take();
        self.unsettled -= usize::from(record.is_some());
        self.drop_holes();
        record
    }

    #[cfg(test)]
    fn len(&self) -> usize {
        self.records.len()
    }

    fn position(&self, packet_number: u64) -> Result<usize, usize> {
        // Numbers are mostly consecutive, so the distance from the oldest is mostly the index.
        if let Some(&(oldest, _)) = self.records.front()
            && let Some(distance) = packet_number.checked_sub(oldest)
            && let Ok(at) = usize::try_from(distance)
            && self
                .records
                .get(at)
                .is_some_and(|(n, _)| *n == packet_number)
        {
            return Ok(at);
        }
        self.records
            .binary_search_by_key(&packet_number, |(n, _)| *n)
    }

    fn evict(&mut self) -> Option<R> {
        let (most, share) = SPARSE;
        let is_sparse = self.records.len() > most && self.unsettled * share < self.records.len();
        let evicted = if is_sparse || self.records.len() > MAX_RECORDS {
            self.records.pop_front().and_then(|(_, record)| record)
        } else {
            None
        };
        self.unsettled -= usize::from(evicted.is_some());
        self.drop_holes();
        evicted
    }

    fn drop_holes(&mut self) {
        while self.records.front().is_some_and(|(_, r)| r.is_none()) {
            self.records.pop_front();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_packet_is_settled_once_in_any_order() {
        let mut sent = SentPackets::new();
        for n in [3, 4, 9, 7, 10] {
            assert_eq!(sent.insert(n, n), None);
        }
        for n in [9, 3, 7, 10, 4] {
            assert_eq!(sent.take(n), Some(n));
            assert_eq!(sent.take(n), None, "{n} was settled twice");
        }
        assert_eq!(sent.take(8), None);
        assert_eq!(sent.len(), 0);
    }

    #[test]
    fn a_number_used_again_replaces_its_record() {
        let mut sent = SentPackets::new();
        sent.insert(1, "old");
        assert_eq!(sent.insert(1, "new"), Some("old"));
        assert_eq!(sent.take(1), Some("new"));
    }

    #[test]
    fn a_packet_that_all_others_have_overtaken_keeps_nothing() {
        let mut sent = SentPackets::new();
        let mut evicted = Vec::new();
        for n in 0..100_000u64 {
            evicted.extend(sent.insert(n, n));
            // One in twenty thousand never gets a fate, and each is preceded by a thousand with an open one.
            if let Some(settled) = n.checked_sub(1_000).filter(|n| n % 20_000 != 7) {
                assert_eq!(sent.take(settled), Some(settled), "{n}");
            }
            assert!(sent.len() <= 8 * 1_010, "{n}: {}", sent.len());
        }
        assert_eq!(evicted, [7, 20_007, 40_007, 60_007, 80_007]);
    }

    #[test]
    fn packets_that_never_meet_their_fate_are_forgotten() {
        let mut sent = SentPackets::new();
        let count = u64::try_from(MAX_RECORDS).unwrap();
        for n in 0..count {
            assert_eq!(sent.insert(n, n), None);
        }
        assert_eq!(sent.insert(count, count), Some(0));
        assert_eq!(sent.len(), MAX_RECORDS);
        assert_eq!(sent.take(0), None);
    }
}
