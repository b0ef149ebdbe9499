//! What the reliable streams of a session were granted and what their readers ask for, as sums: to go over thousands of streams for each
//! one that opens would cost more than all else that a short connection costs.

use std::{
    collections::BTreeMap,
    time::{Duration, Instant},
};

use super::bytes::{Counted, ReceiveBytes, Share};
use crate::types::StreamId;

/// The sums over all streams that were counted and not forgotten.
#[derive(Debug, Default)]
pub(crate) struct Shares {
    streams: u64,
    granted: u64,
    demand: u64,
    /// What each stream asks for of which something was read lately, by when its round of reading began.
    readers: BTreeMap<(Instant, StreamId), u64>,
}

impl Shares {
    /// Brings a stream up to date in the sums, or into them. Everything that reads, ends or grants calls this after.
    pub(crate) fn count(&mut self, stream: StreamId, receive: &mut ReceiveBytes) {
        let after = Counted {
            granted: receive.granted(),
            reading: receive.reading(),
        };
        let before = receive.counted.replace(after);
        if before == Some(after) {
            return;
        }
        match before {
            Some(before) => self.granted -= before.granted,
            None => self.streams += 1,
        }
        self.granted += after.granted;
        let reading = before.and_then(|before| before.reading);
        self.set_reading(stream, reading, after.reading);
    }

    /// Takes a stream that has ended out of the sums.
    pub(crate) fn forget(&mut self, stream: StreamId, receive: &ReceiveBytes) {
        if let Some(counted) = receive.counted {
            self.streams -= 1;
            self.granted -= counted.granted;
            self.set_reading(stream, counted.reading, None);
        }
    }

    /// What the streams have of `all` memory and leave to `stream`, which is `receive`.
    pub(crate) fn left_to(
        &mut self,
        stream: StreamId,
        receive: &ReceiveBytes,
        (now, round_trip): (Instant, Duration),
        all: u64,
    ) -> Share {
        self.forget_idle(now, round_trip);
        let own = receive.counted;
        let own_granted = own.map_or(0, |own| own.granted);
        let own_demand = own.and_then(|own| {
            let (since, _) = own.reading?;
            self.readers.get(&(since, stream)).copied()
        });
        Share {
            all,
            free: all.saturating_sub(self.granted - own_granted),
            streams: self.streams + u64::from(own.is_none()),
            demand: self.demand - own_demand.unwrap_or_default(),
        }
    }

    fn set_reading(
        &mut self,
        stream: StreamId,
        before: Option<(Instant, u64)>,
        after: Option<(Instant, u64)>,
    ) {
        let round = after.map(|(since, _)| since);
        if let Some((since, _)) = before
            && Some(since) != round
            && let Some(asked) = self.readers.remove(&(since, stream))
        {
            self.demand -= asked;
        }
        if let Some((since, asks)) = after {
            let asked = self.readers.insert((since, stream), asks);
            self.demand = self.demand - asked.unwrap_or_default() + asks;
        }
    }

    /// Readers that have read nothing for two round trips ask for nothing, until they read again.
    fn forget_idle(&mut self, now: Instant, round_trip: Duration) {
        while let Some(first) = self.readers.first_entry()
            && !ReceiveBytes::is_lately(first.key().0, now, round_trip)
        {
            self.demand -= first.remove();
        }
    }
}

#[cfg(test)]
impl Shares {
    /// Whether these are the sums over `streams`.
    pub(crate) fn are_of<'a>(
        &self,
        streams: impl Iterator<Item = (StreamId, &'a ReceiveBytes)>,
    ) -> bool {
        let mut sums = Self::default();
        let mut is_counted = true;
        for (stream, receive) in streams {
            sums.streams += 1;
            sums.granted += receive.granted();
            let lately = |(since, _): &(Instant, u64)| self.readers.contains_key(&(*since, stream));
            sums.set_reading(stream, None, receive.reading().filter(lately));
            let counted = receive.counted;
            is_counted &= counted.map(|counted| (counted.granted, counted.reading))
                == Some((receive.granted(), receive.reading()));
        }
        is_counted
            && (sums.streams, sums.granted) == (self.streams, self.granted)
            && (sums.demand, &sums.readers) == (self.demand, &self.readers)
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use proptest::prelude::*;

    use super::*;
    use crate::send::bytes::INITIAL_CREDIT;

    const ALL: u64 = 4 << 20;
    const ROUND: Duration = Duration::from_millis(50);

    /// A stream, what its sender has sent, and what it was granted.
    struct Reader {
        receive: ReceiveBytes,
        sent: u64,
        limit: u64,
    }

    /// The definition: over all streams but one.
    fn left_by_others(readers: &BTreeMap<StreamId, Reader>, but: StreamId, now: Instant) -> Share {
        let others = readers.iter().filter(|(id, _)| **id != but);
        let alone = Share {
            all: ALL,
            free: ALL,
            streams: 1,
            demand: 0,
        };
        others.fold(alone, |share, (_, other)| Share {
            free: share.free.saturating_sub(other.receive.granted()),
            streams: share.streams + 1,
            demand: share.demand + other.receive.demand(now, ROUND),
            ..share
        })
    }

    proptest! {
        #[test]
        fn what_is_left_is_what_all_others_leave(
            steps in proptest::collection::vec((0u32..8, 0u8..10, 1usize..50_000, 0u64..30), 1..200),
        ) {
            let mut now = Instant::now();
            let mut shares = Shares::default();
            let mut readers: BTreeMap<StreamId, Reader> = BTreeMap::new();
            for (number, step, bytes, wait) in steps {
                now += Duration::from_millis(wait);
                let stream = StreamId(number);
                let reader = readers.entry(stream).or_insert_with(|| Reader {
                    receive: ReceiveBytes::new(),
                    sent: 0,
                    limit: INITIAL_CREDIT,
                });
                let receive = &mut reader.receive;
                match step {
                    0..=2 => {
                        let room = usize::try_from(reader.limit - reader.sent).unwrap();
                        let data = Bytes::from(vec![1; bytes.min(room)]);
                        let end = reader.sent + data.len() as u64;
                        // One after the end is refused, and changes nothing.
                        if receive.insert(stream, reader.sent, bytes % 11 == 0, data).is_ok() {
                            reader.sent = end;
                        }
                    }
                    3..=5 => {
                        let round = (now, ROUND, 1 << 20);
                        let mut read = || receive.read_measured(bytes, round);
                        while read().is_some_and(|read| !read.is_empty()) {}
                    }
                    6 | 7 => {
                        let share = shares.left_to(stream, receive, (now, ROUND), ALL);
                        let demand = receive.demand(now, ROUND);
                        let limit = receive.next_credit(demand, share);
                        reader.limit = limit.unwrap_or(reader.limit);
                    }
                    8 if bytes % 5 == 0 => receive.stop(),
                    8 => receive.on_reset(1),
                    _ => {
                        shares.forget(stream, receive);
                        readers.remove(&stream);
                    }
                }
                if let Some(reader) = readers.get_mut(&stream) {
                    shares.count(stream, &mut reader.receive);
                }
                for (id, reader) in &readers {
                    let left = shares.left_to(*id, &reader.receive, (now, ROUND), ALL);
                    prop_assert_eq!(left, left_by_others(&readers, *id, now));
                }
                let all = readers.iter().map(|(id, reader)| (*id, &reader.receive));
                prop_assert!(shares.are_of(all), "{shares:?}");
            }
        }
    }
}
