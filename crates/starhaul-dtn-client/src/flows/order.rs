//! The received side of a flow of datagrams: each batch once, and in order where that is asked for.

use std::{
    collections::BTreeMap,
    time::{Duration, Instant},
};

use bytes::Bytes;

use super::{seen::Seen, wire::Batch};

/// How long the first batch of a flow that is not number 0 waits for those before it: they are late, or came in a former life of
/// this gateway.
const SETTLE: Duration = Duration::from_secs(30);
/// Bytes that wait for a missing batch at most; then it is missed out.
const MOST_HELD: usize = 4 << 20;

/// What became of a batch.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Taken {
    /// These are delivered now, in this order.
    Deliver(Vec<Bytes>),
    /// It waits for others.
    Held,
    /// It came before, or after others had been delivered without it.
    Known,
}

/// The received side of a flow.
#[derive(Debug, Default)]
pub(super) struct Order {
    seen: Seen,
    /// The next batch in order.
    next: u64,
    /// Whether one has been delivered.
    has_begun: bool,
    held: BTreeMap<u64, (Instant, Vec<Bytes>)>,
    held_bytes: usize,
}

impl Order {
    /// Takes a batch.
    pub(super) fn take(&mut self, now: Instant, batch: Batch) -> Taken {
        if !self.seen.insert(batch.number) {
            return Taken::Known;
        }
        if !batch.is_ordered {
            return Taken::Deliver(batch.datagrams);
        }
        if batch.number < self.next {
            return Taken::Known;
        }
        self.held_bytes += bytes_of(&batch.datagrams);
        self.held.insert(batch.number, (now, batch.datagrams));
        if self.held_bytes > MOST_HELD {
            self.skip();
        }
        match self.release() {
            datagrams if datagrams.is_empty() => Taken::Held,
            datagrams => Taken::Deliver(datagrams),
        }
    }

    /// When the batch that is missing has expired, if bundles live for `lifetime`.
    pub(super) fn due(&self, lifetime: Duration) -> Option<Instant> {
        let first = self.held.values().map(|(since, _)| *since).min()?;
        let patience = match self.has_begun {
            true => lifetime,
            false => lifetime.min(SETTLE),
        };
        Some(first + patience)
    }

    /// Delivers without what is missing, if that has expired; each call passes over one hole.
    pub(super) fn give_up(&mut self, now: Instant, lifetime: Duration) -> Vec<Bytes> {
        if self.due(lifetime).is_none_or(|due| due > now) {
            return Vec::new();
        }
        self.skip();
        self.release()
    }

    /// All that waits, in order: what is missing is hardly to come.
    pub(super) fn flush(&mut self) -> Vec<Bytes> {
        let mut released = Vec::new();
        while !self.held.is_empty() {
            self.skip();
            released.extend(self.release());
        }
        released
    }

    fn skip(&mut self) {
        if let Some((first, _)) = self.held.first_key_value() {
            self.next = *first;
        }
    }

    fn release(&mut self) -> Vec<Bytes> {
        let mut released = Vec::new();
        while let Some((_, datagrams)) = self.held.remove(&self.next) {
            self.next += 1;
            self.has_begun = true;
            self.held_bytes -= bytes_of(&datagrams);
            released.extend(datagrams);
        }
        released
    }
}

/// Bytes that datagrams hold, with what their places need.
pub(crate) fn bytes_of(datagrams: &[Bytes]) -> usize {
    let bytes = datagrams
        .iter()
        .map(|datagram| size_of::<Bytes>() + datagram.len());
    bytes.sum::<usize>() + 64
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const LIFETIME: Duration = Duration::from_secs(600);

    fn batch(number: u64, is_ordered: bool) -> Batch {
        Batch {
            number,
            is_ordered,
            is_again: false,
            datagrams: vec![Bytes::from(number.to_string())],
        }
    }

    fn deliver(numbers: &[u64]) -> Taken {
        Taken::Deliver(
            numbers
                .iter()
                .map(|number| number.to_string().into())
                .collect(),
        )
    }

    #[test]
    fn a_missing_batch_is_waited_for_until_it_has_expired() {
        let start = Instant::now();
        let mut order = Order::default();
        assert_eq!(order.take(start, batch(0, true)), deliver(&[0]));
        assert_eq!(order.take(start, batch(2, true)), Taken::Held);
        assert_eq!(order.take(start, batch(4, true)), Taken::Held);
        assert!(order.give_up(start + LIFETIME / 2, LIFETIME).is_empty());
        let due = order.due(LIFETIME).unwrap();
        assert_eq!(due, start + LIFETIME);
        let told = Taken::Deliver(order.give_up(due, LIFETIME));
        assert_eq!(told, deliver(&[2]));
        assert_eq!(order.take(due, batch(1, true)), Taken::Known, "too late");
        assert_eq!(order.take(due, batch(3, true)), deliver(&[3, 4]));
        assert_eq!(order.due(LIFETIME), None);
    }

    #[test]
    fn a_receiver_that_restarted_begins_in_the_middle_after_a_moment() {
        let start = Instant::now();
        let mut order = Order::default();
        assert_eq!(order.take(start, batch(701, true)), Taken::Held);
        assert_eq!(order.take(start, batch(700, true)), Taken::Held);
        let due = order.due(LIFETIME).unwrap();
        assert!(due < start + LIFETIME / 2);
        assert_eq!(
            Taken::Deliver(order.give_up(due, LIFETIME)),
            deliver(&[700, 701])
        );
    }

    #[test]
    fn a_batch_that_thousands_have_overtaken_is_taken() {
        let start = Instant::now();
        let late = start + LIFETIME / 2;
        let mut order = Order::default();
        assert_eq!(order.take(start, batch(0, true)), deliver(&[0]));
        for number in 2..=3000 {
            assert_eq!(order.take(start, batch(number, true)), Taken::Held);
        }
        let all: Vec<u64> = (1..=3000).collect();
        assert_eq!(order.take(late, batch(1, true)), deliver(&all));
        let mut order = Order::default();
        for number in (0..=3000).filter(|number| *number != 1) {
            let taken = order.take(start, batch(number, false));
            assert_eq!(taken, deliver(&[number]));
        }
        assert_eq!(order.take(late, batch(1, false)), deliver(&[1]));
        assert_eq!(order.take(late, batch(1, false)), Taken::Known);
    }

    #[test]
    fn what_waits_is_bounded() {
        let start = Instant::now();
        let mut order = Order::default();
        let mut delivered = 0;
        for number in 1..1000 {
            let mut batch = batch(number, true);
            batch.datagrams = vec![Bytes::from(vec![0; 60_000])];
            if let Taken::Deliver(datagrams) = order.take(start, batch) {
                delivered += datagrams.len();
            }
            assert!(order.held_bytes <= MOST_HELD);
        }
        assert!(delivered > 900, "{delivered} of 999");
    }

    proptest! {
        #[test]
        fn each_batch_comes_once_and_in_order_if_asked(
            numbers in prop::collection::vec(0_u64..40, 1..120),
            is_ordered: bool,
        ) {
            let start = Instant::now();
            let mut order = Order::default();
            let mut delivered: Vec<u64> = Vec::new();
            let all = numbers.iter().copied().chain(0..40);
            for number in all {
                if let Taken::Deliver(datagrams) = order.take(start, batch(number, is_ordered)) {
                    let texts = datagrams.iter().map(|text| std::str::from_utf8(text).unwrap());
                    delivered.extend(texts.map(|text| text.parse::<u64>().unwrap()));
                }
            }
            if !is_ordered {
                delivered.sort_unstable();
            }
            prop_assert_eq!(delivered, (0..40).collect::<Vec<_>>());
        }
    }
}
