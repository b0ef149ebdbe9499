//! The fate of each datagram sent on a path. Fates arrive in any order and are reported in the order of sending, which
//! the statistics of loss bursts need. Sequence numbers wrap (RFC 1982).

use std::{collections::VecDeque, time::Instant};

/// Greatest number of datagrams tracked: 65 536 of 1.2 kB are 600 ms at 1 Gbit/s. Beyond it the oldest is forgotten.
const MAX_TRACKED: usize = 65_536;
/// Datagrams kept after their fate was reported, so that a late acknowledgement counts once.
const HISTORY: usize = 2_048;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fate {
    Outstanding,
    Acked,
    Lost,
    /// The number was never used, or its fate is open.
    Unknown,
}

#[derive(Clone, Copy, Debug)]
struct Slot {
    sent: Instant,
    /// Bytes sent on the path before this datagram.
    sent_before: u64,
    fate: Fate,
}

/// A datagram with a final fate, in the order of sending.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Settled {
    pub(crate) sequence: u32,
    pub(crate) sent: Instant,
    pub(crate) lost: bool,
}

/// What an acknowledgement means for a datagram.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ack {
    /// The first acknowledgement of this datagram.
    First,
    /// The datagram had been declared lost; `settled` if the loss had already been reported.
    Late { settled: bool },
    /// The datagram was never sent, is acknowledged already, or is no longer tracked.
    Meaningless,
}

#[derive(Clone, Debug, Default)]
pub(crate) struct Fates {
    /// Sequence of the first slot.
    base: u32,
    slots: VecDeque<Slot>,
    /// Number of slots from the front that were reported.
    settled: usize,
    outstanding: u64,
    bytes_sent: u64,
}

impl Fates {
    pub(crate) fn outstanding(&self) -> u64 {
        self.outstanding
    }

    /// Records a datagram. A number at or before the last one is ignored.
    pub(crate) fn on_sent(&mut self, now: Instant, sequence: u32, bytes: usize) {
        let next = self
            .base
            .wrapping_add(u32::try_from(self.slots.len()).unwrap_or(u32::MAX));
        let skipped = usize::try_from(sequence.wrapping_sub(next)).unwrap_or(usize::MAX);
        if self.slots.is_empty() || skipped < MAX_TRACKED {
            if self.slots.is_empty() {
                self.base = sequence;
            } else {
                for _ in 0..skipped {
                    self.push(now, Fate::Unknown);
                }
            }
        } else if sequence.wrapping_sub(next) < 1 << 31 {
            *self = Self {
                base: sequence,
                bytes_sent: self.bytes_sent,
                ..Self::default()
            };
        } else {
            return;
        }
        self.outstanding += 1;
        self.push(now, Fate::Outstanding);
        self.bytes_sent = self
            .bytes_sent
            .saturating_add(u64::try_from(bytes).unwrap_or(u64::MAX));
    }

    pub(crate) fn on_acked(&mut self, sequence: u32) -> Ack {
        let Some(index) = self.index(sequence) else {
            return Ack::Meaningless;
        };
        let settled = index < self.settled;
        let slot = &mut self.slots[index];
        match slot.fate {
            Fate::Outstanding => {
                slot.fate = Fate::Acked;
                self.outstanding -= 1;
                Ack::First
            }
            Fate::Lost => {
                slot.fate = Fate::Acked;
                Ack::Late { settled }
            }
            Fate::Acked | Fate::Unknown => Ack::Meaningless,
        }
    }

    /// Returns whether the datagram was outstanding until now.
    pub(crate) fn on_lost(&mut self, sequence: u32) -> bool {
        let Some(index) = self.index(sequence) else {
            return false;
        };
        let slot = &mut self.slots[index];
        if slot.fate != Fate::Outstanding {
            return false;
        }
        slot.fate = Fate::Lost;
        self.outstanding -= 1;
        true
    }

    /// The next datagram, in the order of sending, with a final fate that was not reported yet.
    pub(crate) fn next_settled(&mut self) -> Option<Settled> {
        loop {
            let slot = *self.slots.get(self.settled)?;
            if slot.fate == Fate::Outstanding {
                return None;
            }
            let offset = u32::try_from(self.settled).unwrap_or(u32::MAX);
            let sequence = self.base.wrapping_add(offset);
            self.settled += 1;
            if self.settled > HISTORY {
                self.forget_oldest();
            }
            if slot.fate != Fate::Unknown {
                return Some(Settled {
                    sequence,
                    sent: slot.sent,
                    lost: slot.fate == Fate::Lost,
                });
            }
        }
    }

    /// The send time of the datagram whose acknowledgement, if acknowledgements come in order, settles the first
    /// `bytes` outstanding bytes.
    pub(crate) fn sent_of_outstanding(&self, bytes: u64) -> Option<Instant> {
        let wanted = self
            .slots
            .get(self.settled)?
            .sent_before
            .saturating_add(bytes);
        let after = self.slots.partition_point(|slot| slot.sent_before < wanted);
        self.slots.get(after.checked_sub(1)?).map(|slot| slot.sent)
    }

    fn index(&self, sequence: u32) -> Option<usize> {
        let index = usize::try_from(sequence.wrapping_sub(self.base)).ok()?;
        (index < self.slots.len()).then_some(index)
    }

    fn push(&mut self, sent: Instant, fate: Fate) {
        if self.slots.len() == MAX_TRACKED {
            self.forget_oldest();
        }
        self.slots.push_back(Slot {
            sent,
            sent_before: self.bytes_sent,
            fate,
        });
    }

    fn forget_oldest(&mut self) {
        let Some(slot) = self.slots.pop_front() else {
            return;
        };
        self.base = self.base.wrapping_add(1);
        self.settled = self.settled.saturating_sub(1);
        if slot.fate == Fate::Outstanding {
            self.outstanding -= 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn settled(fates: &mut Fates) -> Vec<(u32, bool)> {
        std::iter::from_fn(|| fates.next_settled())
            .map(|datagram| (datagram.sequence, datagram.lost))
            .collect()
    }

    #[test]
    fn fates_are_handed_on_in_order_across_the_wrap() {
        let now = Instant::now();
        let mut fates = Fates::default();
        let first = u32::MAX - 1;
        for offset in 0..4 {
            fates.on_sent(now, first.wrapping_add(offset), 100);
        }
        assert_eq!(fates.on_acked(0), Ack::First);
        assert_eq!(fates.on_acked(1), Ack::First);
        assert_eq!(settled(&mut fates), []);
        assert!(fates.on_lost(u32::MAX));
        assert_eq!(fates.on_acked(first), Ack::First);
        assert_eq!(
            settled(&mut fates),
            [(first, false), (u32::MAX, true), (0, false), (1, false)]
        );
        assert_eq!(fates.outstanding(), 0);
        assert_eq!(fates.on_acked(u32::MAX), Ack::Late { settled: true });
        assert_eq!(fates.on_acked(u32::MAX), Ack::Meaningless);
    }

    #[test]
    fn an_endless_flow_without_answers_is_forgotten_from_its_oldest_end() {
        let now = Instant::now();
        let mut fates = Fates::default();
        for sequence in 0..200_000 {
            fates.on_sent(now, sequence, 1);
        }
        assert_eq!(fates.slots.len(), MAX_TRACKED);
        assert_eq!(fates.outstanding(), MAX_TRACKED as u64);
        assert_eq!(fates.on_acked(5), Ack::Meaningless);
        assert_eq!(fates.on_acked(199_999), Ack::First);
    }

    #[test]
    fn the_datagram_that_frees_the_window_is_found_by_its_bytes() {
        let start = Instant::now();
        let mut fates = Fates::default();
        for sequence in 0..10 {
            fates.on_sent(
                start + Duration::from_millis(sequence.into()),
                sequence,
                100,
            );
        }
        fates.on_acked(0);
        settled(&mut fates);
        let after = |bytes| fates.sent_of_outstanding(bytes).map(|sent| sent - start);
        assert_eq!(after(1), Some(Duration::from_millis(1)));
        assert_eq!(after(100), Some(Duration::from_millis(1)));
        assert_eq!(after(101), Some(Duration::from_millis(2)));
        assert_eq!(after(900), Some(Duration::from_millis(9)));
    }
}
