//! When packets left whose fate is not known. Those of one batch left at the same time and are kept as one entry.

use std::{collections::VecDeque, time::Instant};

/// Packets whose fate is not known, at most; earlier ones are forgotten.
const MOST_UNANSWERED: usize = 4_096;

/// Packets that are not acknowledged, nor are later ones, in the order of sending.
#[derive(Debug, Default)]
pub(super) struct Unanswered {
    /// When packets left, and how many at that time; never none.
    batches: VecDeque<(Instant, usize)>,
    packets: usize,
}

impl Unanswered {
    /// A packet leaves, no earlier than those before it.
    pub(super) fn push(&mut self, now: Instant) {
        if self.packets >= MOST_UNANSWERED {
            self.forget_first();
        }
        self.packets += 1;
        match self.batches.back_mut() {
            Some((sent, packets)) if *sent == now => *packets += 1,
            _ => self.batches.push_back((now, 1)),
        }
    }

    /// When the first of them left.
    pub(super) fn first(&self) -> Option<Instant> {
        self.batches.front().map(|(sent, _)| *sent)
    }

    /// Forgets those that left before `sent`; returns how many.
    pub(super) fn overtake(&mut self, sent: Instant) -> usize {
        let before = self.packets;
        while let Some((_, packets)) = self.batches.pop_front_if(|(at, _)| *at < sent) {
            self.packets -= packets;
        }
        before - self.packets
    }

    /// A packet that left at `sent` is acknowledged: it is forgotten if it is one of the first ones.
    pub(super) fn answer(&mut self, sent: Instant) {
        if self.first() == Some(sent) {
            self.forget_first();
        }
    }

    fn forget_first(&mut self) {
        let Some((_, packets)) = self.batches.front_mut() else {
            return;
        };
        *packets -= 1;
        self.packets -= 1;
        if *packets == 0 {
            self.batches.pop_front();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use proptest::prelude::*;

    use super::*;

    proptest! {
        /// As one entry for each packet.
        #[test]
        fn batches_are_counted_as_their_packets(
            steps in prop::collection::vec((0..4u8, 0..3u32, 1..1_500usize, 0..40u32), 1..60),
        ) {
            let start = Instant::now();
            let (mut batches, mut each) = (Unanswered::default(), VecDeque::<Instant>::new());
            let mut at = 0_u32;
            let time = |at: u32| start + at * Duration::from_millis(1);
            for (step, wait, packets, back) in steps {
                at += wait;
                let sent = time(at.saturating_sub(back));
                match step {
                    0 | 1 => (0..packets).for_each(|_| {
                        if each.len() >= MOST_UNANSWERED {
                            each.pop_front();
                        }
                        each.push_back(time(at));
                        batches.push(time(at));
                    }),
                    2 => {
                        let overtaken = each.partition_point(|other| *other < sent);
                        each.drain(..overtaken);
                        prop_assert_eq!(batches.overtake(sent), overtaken);
                    }
                    _ => {
                        if each.front() == Some(&sent) {
                            each.pop_front();
                        }
                        batches.answer(sent);
                    }
                }
                prop_assert_eq!(batches.packets, each.len());
                prop_assert_eq!(batches.first(), each.front().copied());
                let kept = batches.batches.iter().map(|(_, packets)| *packets);
                prop_assert_eq!(kept.sum::<usize>(), each.len());
            }
        }
    }
}
