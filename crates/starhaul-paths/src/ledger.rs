//! What was sent on one path and what became of each datagram (DMTP "Retransmission"): acknowledged, overtaken, overdue,
//! or given up because the path fell silent. The one owner of a datagram's fate.

use std::{
    collections::VecDeque,
    time::{Duration, Instant},
};

use crate::RangeSet;

/// RFC 9002 §6.1.1.
const INITIAL_REORDERING: u64 = 3;
const MAX_REORDERING: u64 = 256;
/// Most datagrams remembered per path; the oldest are then taken as lost. 2.5 Gbit/s at a second of RTT.
const MAX_RECORDS: usize = 1 << 18;
/// How long a lost datagram is remembered for a late acknowledgement, from when it was sent; longer on paths where it is not overdue
/// until then.
const MEMORY: Duration = Duration::from_secs(3);
/// Ranges of acknowledged numbers, to look at each acknowledgement's news only. Numbers below the lowest are looked up one by one.
const MAX_ACKED_RANGES: usize = 64;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fate {
    Outstanding,
    /// Sent again elsewhere because the path fell silent, but not yet declared lost.
    Released,
    Acked,
    Lost,
}

#[derive(Clone, Copy, Debug)]
struct Record<T> {
    sent: Instant,
    /// Bytes sent on the path before this datagram, without those that nothing acknowledges.
    sent_before: u64,
    bytes: u32,
    fate: Fate,
    elicits_ack: bool,
    item: T,
}

impl<T> Record<T> {
    const fn is_outstanding(&self) -> bool {
        self.elicits_ack && matches!(self.fate, Fate::Outstanding | Fate::Released)
    }
}

/// A datagram whose fate became known.
#[derive(Clone, Copy, Debug)]
pub struct Fated<T> {
    /// Its number on the path.
    pub sequence: u64,
    /// When the datagram was sent.
    pub sent: Instant,
    /// Length of the datagram in bytes.
    pub bytes: usize,
    /// What the sender noted with it.
    pub item: T,
    /// The peer acknowledges such a datagram.
    pub elicits_ack: bool,
    /// It had been given up before: its path fell silent, or it was declared lost.
    pub given_up: bool,
    /// It had been declared lost before.
    pub was_lost: bool,
}

/// A datagram with a final fate, in the order of sending.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Settled {
    pub(crate) sequence: u64,
    pub(crate) sent: Instant,
    pub(crate) lost: bool,
}

/// Datagrams of one path in order of sending, each with what it carried (`T`).
#[derive(Clone, Debug)]
pub(crate) struct PathLedger<T> {
    records: VecDeque<Record<T>>,
    /// Sequence number of the front record.
    base: u64,
    acked: RangeSet,
    largest_acked: Option<u64>,
    /// Everything below is known not to be outstanding any more.
    first_outstanding: u64,
    /// Everything below was given to the statistics of loss.
    reported: u64,
    /// How many later datagrams may be acknowledged before one counts as lost; grows with the reordering seen.
    reordering: u64,
    bytes_sent: u64,
}

impl<T: Copy> PathLedger<T> {
    /// A ledger whose first datagram gets the number `first`.
    pub(crate) const fn starting_at(first: u64) -> Self {
        Self {
            records: VecDeque::new(),
            base: first,
            acked: RangeSet::recent(MAX_ACKED_RANGES),
            largest_acked: None,
            first_outstanding: first,
            reported: first,
            reordering: INITIAL_REORDERING,
            bytes_sent: 0,
        }
    }

    /// The number of the next datagram.
    pub(crate) fn next_sequence(&self) -> u64 {
        self.base + self.records.len() as u64
    }

    /// Enters a datagram that leaves now. One that does not elicit an acknowledgement is never declared lost.
    pub(crate) fn push(&mut self, now: Instant, bytes: usize, item: T, elicits_ack: bool) -> u64 {
        let sequence = self.next_sequence();
        let bytes = u32::try_from(bytes).unwrap_or(u32::MAX);
        self.records.push_back(Record {
            sent: now,
            sent_before: self.bytes_sent,
            bytes,
            fate: Fate::Outstanding,
            elicits_ack,
            item,
        });
        if elicits_ack {
            self.bytes_sent = self.bytes_sent.saturating_add(bytes.into());
        }
        sequence
    }

    /// When the datagram was sent, unless it is forgotten or was acknowledged before.
    pub(crate) fn unacknowledged_since(&self, sequence: u64) -> Option<Instant> {
        let record = self.records.get(self.index(sequence)?)?;
        (record.fate != Fate::Acked).then_some(record.sent)
    }

    /// Datagrams `first` to `last` have arrived: hands on those of which that is news, oldest first.
    pub(crate) fn ack(&mut self, first: u64, last: u64, mut arrived: impl FnMut(Fated<T>)) {
        // What lies below the base was settled long ago, or is of a former life of the path.
        let first = first.max(self.base);
        let end = last.saturating_add(1).min(self.next_sequence());
        if first >= end {
            return;
        }
        let mut at = first;
        while at < end {
            let gap = self.acked.gaps(at, end).next();
            let Some((start, stop)) = gap else { break };
            self.ack_range(start, stop, &mut arrived);
            at = stop;
        }
        self.acked.insert(first, end);
    }

    fn ack_range(&mut self, start: u64, end: u64, arrived: &mut impl FnMut(Fated<T>)) {
        let (Some(from), Some(to)) = (self.index(start), self.index(end)) else {
            return;
        };
        let to = to.min(self.records.len());
        let records = self.records.range_mut(from.min(to)..to);
        for (sequence, record) in (start..).zip(records) {
            let before = std::mem::replace(&mut record.fate, Fate::Acked);
            if before == Fate::Acked {
                continue;
            }
            arrived(fated(sequence, record, before));
            if before == Fate::Lost
                && let Some(largest) = self.largest_acked
            {
                let overtaken_by = largest.saturating_sub(sequence).saturating_add(1);
                self.reordering = self.reordering.max(overtaken_by.min(MAX_REORDERING));
            }
            self.largest_acked = self.largest_acked.max(Some(sequence));
        }
    }

    /// Declares a datagram lost because the transport below says so; `None` when its fate was known.
    pub(crate) fn lose(&mut self, sequence: u64) -> Option<Fated<T>> {
        let index = self.index(sequence)?;
        let record = self.records.get_mut(index)?;
        let before = record.fate;
        if !matches!(before, Fate::Outstanding | Fate::Released) {
            return None;
        }
        record.fate = Fate::Lost;
        Some(fated(sequence, record, before))
    }

    /// The next datagram that counts as lost: overtaken by `reordering` later ones, or unacknowledged for the time after which it is `overdue`.
    pub(crate) fn next_lost(
        &mut self,
        now: Instant,
        overdue: impl Fn(u64) -> Duration,
    ) -> Option<Fated<T>> {
        let found = self.oldest_outstanding();
        self.first_outstanding = found.map_or(self.next_sequence(), |(sequence, _)| sequence);
        let (sequence, sent) = found?;
        let overtaken = self
            .largest_acked
            .is_some_and(|largest| largest >= sequence + self.reordering);
        // By its own age: records behind one that is remembered for a late acknowledgement may be many, and all but the last settled.
        let too_many = self.next_sequence() - sequence > MAX_RECORDS as u64;
        if !overtaken && !too_many && sent + overdue(sequence) > now {
            return None;
        }
        self.lose(sequence)
    }

    /// The oldest datagram without a fate, and when it was sent.
    pub(crate) fn oldest_outstanding(&self) -> Option<(u64, Instant)> {
        let skip = usize::try_from(self.first_outstanding.saturating_sub(self.base)).ok()?;
        let start = self.base + skip as u64;
        (start..)
            .zip(self.records.range(skip.min(self.records.len())..))
            .find(|(_, record)| record.is_outstanding())
            .map(|(sequence, record)| (sequence, record.sent))
    }

    /// Gives up outstanding datagrams that `cannot_wait`, by when they were sent and what they carried, without declaring them lost,
    /// because the path fell silent.
    pub(crate) fn release(
        &mut self,
        mut cannot_wait: impl FnMut(Instant, T) -> bool,
    ) -> Vec<Fated<T>> {
        let mut released = Vec::new();
        for (sequence, record) in (self.base..).zip(&mut self.records) {
            if record.fate == Fate::Outstanding
                && record.elicits_ack
                && cannot_wait(record.sent, record.item)
            {
                released.push(fated(sequence, record, Fate::Outstanding));
                record.fate = Fate::Released;
            }
        }
        released
    }

    /// The next datagram, in the order of sending, with a final fate that was not reported yet.
    pub(crate) fn next_settled(&mut self) -> Option<Settled> {
        loop {
            self.reported = self.reported.max(self.base);
            let sequence = self.reported;
            let record = self.records.get(self.index(sequence)?)?;
            if record.is_outstanding() {
                return None;
            }
            self.reported += 1;
            if record.elicits_ack {
                return Some(Settled {
                    sequence,
                    sent: record.sent,
                    lost: record.fate == Fate::Lost,
                });
            }
        }
    }

    /// How many datagrams with the next numbers left with `last`, which was settled last, and arrived, too: they are settled with it.
    pub(crate) fn settle_alike(&mut self, last: Settled) -> u32 {
        let alike = |record: &&Record<T>| {
            record.sent == last.sent && record.fate == Fate::Acked && record.elicits_ack
        };
        let from = self.index(self.reported).unwrap_or(usize::MAX);
        let next = self.records.range(from.min(self.records.len())..);
        let count = next.take_while(alike).count();
        self.reported += count as u64;
        u32::try_from(count).unwrap_or(u32::MAX)
    }

    /// Whether the fate of the datagram was reported; what is forgotten was.
    pub(crate) const fn is_reported(&self, sequence: u64) -> bool {
        sequence < self.reported
    }

    /// Forgets what needs no memory any more, where acknowledgements are overdue after so long; call it after
    /// [`PathLedger::next_settled`] gave nothing.
    pub(crate) fn prune(&mut self, now: Instant, overdue_after: Duration) {
        let memory = MEMORY.max(overdue_after.saturating_mul(2));
        while let Some(front) = self.records.front() {
            let settled = match front.fate {
                Fate::Acked => true,
                Fate::Lost => front.sent + memory <= now,
                Fate::Outstanding | Fate::Released => {
                    !front.elicits_ack && front.sent + memory <= now
                }
            };
            // What is outstanding was declared lost before, so that its content is sent again.
            let forgettable = front.fate == Fate::Lost || !front.elicits_ack;
            let full = self.records.len() > MAX_RECORDS;
            if !(settled || forgettable && full) {
                break;
            }
            self.records.pop_front();
            self.base += 1;
        }
    }

    /// The send time of the datagram whose acknowledgement, if acknowledgements come in order, settles the first `bytes`
    /// outstanding bytes.
    pub(crate) fn sent_of_outstanding(&self, bytes: u64) -> Option<Instant> {
        let from = self.index(self.reported.max(self.base))?;
        let wanted = self.records.get(from)?.sent_before.saturating_add(bytes);
        let after = self
            .records
            .partition_point(|record| record.sent_before < wanted);
        let mut reached = self.records.range(from..after.max(from));
        reached
            .rfind(|record| record.elicits_ack)
            .map(|record| record.sent)
    }

    fn index(&self, sequence: u64) -> Option<usize> {
        usize::try_from(sequence.checked_sub(self.base)?).ok()
    }
}

const fn fated<T: Copy>(sequence: u64, record: &Record<T>, before: Fate) -> Fated<T> {
    Fated {
        sequence,
        sent: record.sent,
        bytes: record.bytes as usize,
        item: record.item,
        elicits_ack: record.elicits_ack,
        given_up: matches!(before, Fate::Released | Fate::Lost),
        was_lost: matches!(before, Fate::Lost),
    }
}

#[cfg(test)]
mod tests;
