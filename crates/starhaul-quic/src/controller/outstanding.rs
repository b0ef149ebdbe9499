//! Which datagram travels in which packet, until the packet is acknowledged or lost. Bounded: what
//! no ack ever mentions falls out.

use std::{collections::VecDeque, time::Instant};

/// Most packet numbers between the oldest datagram without a fate and the newest: as many as controllers remember.
const MAX_OUTSTANDING: usize = 1 << 21;

/// Datagrams without a fate, by packet number.
#[derive(Debug, Default)]
pub(super) struct Outstanding {
    /// Packet number of the first entry.
    base: u64,
    entries: VecDeque<Option<(Instant, u32)>>,
}

impl Outstanding {
    /// Packet numbers only grow. What falls out of the bounded memory is handed to `dropped`.
    pub(super) fn insert(
        &mut self,
        number: u64,
        sent: Instant,
        sequence: u32,
        mut dropped: impl FnMut(u32),
    ) {
        let next = self.base.saturating_add(self.entries.len() as u64);
        if number < next || number - next >= MAX_OUTSTANDING as u64 {
            self.drain(&mut dropped);
        }
        if self.entries.is_empty() {
            self.base = number;
        }
        while self.base.saturating_add(self.entries.len() as u64) < number {
            self.entries.push_back(None);
        }
        self.entries.push_back(Some((sent, sequence)));
        while self.entries.len() > MAX_OUTSTANDING {
            self.base += 1;
            if let Some((_, sequence)) = self.entries.pop_front().flatten() {
                dropped(sequence);
            }
        }
    }

    /// The datagram in packet `number`, which must have been sent at `sent` if that is known.
    pub(super) fn remove(&mut self, number: u64, sent: Option<Instant>) -> Option<u32> {
        let index = usize::try_from(number.checked_sub(self.base)?).ok()?;
        let entry = self.entries.get_mut(index)?;
        if sent.is_some() && sent != entry.map(|(sent, _)| sent) {
            return None;
        }
        let removed = entry.take();
        while let Some(None) = self.entries.front() {
            self.entries.pop_front();
            self.base += 1;
        }
        removed.map(|(_, sequence)| sequence)
    }

    pub(super) fn drain(&mut self, mut dropped: impl FnMut(u32)) {
        for (_, sequence) in self.entries.drain(..).flatten() {
            dropped(sequence);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn each_datagram_gets_one_fate_and_gaps_are_skipped() {
        let now = Instant::now();
        let mut outstanding = Outstanding::default();
        let none = |sequence| panic!("dropped {sequence}");
        for (number, sequence) in [(10, 0), (11, 1), (15, 2)] {
            outstanding.insert(number, now, sequence, none);
        }
        assert_eq!(outstanding.remove(12, None), None);
        assert_eq!(outstanding.remove(11, Some(now)), Some(1));
        assert_eq!(outstanding.remove(11, Some(now)), None, "one fate only");
        let other = now + Duration::from_secs(1);
        assert_eq!(outstanding.remove(10, Some(other)), None, "another packet");
        assert_eq!(outstanding.remove(10, None), Some(0));
        assert_eq!(outstanding.entries.len(), 1, "the front is pruned");
        assert_eq!(outstanding.remove(15, None), Some(2));
        assert_eq!(outstanding.remove(3, None), None);
        assert!(outstanding.entries.is_empty());
    }

    #[test]
    fn memory_is_bounded_when_nothing_is_ever_acknowledged() {
        let now = Instant::now();
        let mut outstanding = Outstanding::default();
        let mut dropped = 0;
        let total = u32::try_from(MAX_OUTSTANDING).unwrap() + 100;
        for number in 0..total {
            outstanding.insert(number.into(), now, number, |_| dropped += 1);
        }
        assert_eq!((outstanding.entries.len(), dropped), (MAX_OUTSTANDING, 100));
        outstanding.insert(1 << 40, now, 0, |_| dropped += 1);
        assert_eq!(outstanding.entries.len(), 1);
        assert_eq!(dropped, total);
    }
}
