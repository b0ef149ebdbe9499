//! What was sent on one path and what became of it: acknowledged, overtaken, or overdue (DMTP "Retransmission").

use std::{
    collections::VecDeque,
    time::{Duration, Instant},
};

use crate::types::StreamId;

/// A block within the sender: its stream and its number counted in 64 bits.
pub(crate) type BlockKey = (StreamId, u64);

/// A fragment within its block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct FragmentId {
    /// Of which cut of the block; what became of those of an earlier one no longer matters.
    pub(crate) cut: u8,
    pub(crate) code: u8,
    pub(crate) index: u8,
}

/// What a datagram carried, for when its fate is known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Item {
    Fragment {
        block: BlockKey,
        fragment: FragmentId,
    },
    Piece {
        stream: StreamId,
        start: u64,
        end: u64,
        fin: bool,
    },
    Probe,
    Ack,
    /// Nothing: it asks the path for packets of its size, and only the transport below is interested in its fate.
    Padding,
}

impl Item {
    /// The peer acknowledges everything but acknowledgements, and word of padding is not waited for.
    pub(crate) const fn elicits_ack(self) -> bool {
        !matches!(self, Self::Ack | Self::Padding)
    }

    /// Somebody wants something carried, so that the path is not idle.
    pub(crate) const fn is_use(self) -> bool {
        !matches!(self, Self::Ack | Self::Probe)
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fate {
    Outstanding,
    /// Sent again elsewhere because the path fell silent, but not yet counted as lost.
    Released,
    Acked,
    Lost,
}

#[derive(Clone, Copy, Debug)]
struct Record {
    sent: Instant,
    bytes: usize,
    item: Item,
    fate: Fate,
}

/// A datagram whose fate became known.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Fated {
    pub(crate) sequence: u64,
    pub(crate) sent: Instant,
    pub(crate) bytes: usize,
    pub(crate) item: Item,
    /// It had been given up before (released or declared lost).
    pub(crate) given_up: bool,
    /// It had been declared lost before.
    pub(crate) was_lost: bool,
}

/// Datagrams of one path in order of sending.
#[derive(Debug)]
pub(crate) struct SentLog {
    records: VecDeque<Record>,
    /// Sequence number of the front record.
    base: u64,
    largest_acked: Option<u64>,
    /// Everything below is known not to be outstanding any more.
    first_outstanding: u64,
    /// How many later datagrams may be acknowledged before one counts as lost; grows with the reordering seen.
    reordering: u64,
}

/// RFC 9002 §6.1.1.
const INITIAL_REORDERING: u64 = 3;
const MAX_REORDERING: u64 = 256;
/// Most datagrams remembered per path; the oldest are then taken as lost. 2.5 Gbit/s at a second of RTT.
const MAX_RECORDS: usize = 1 << 18;
/// How long a lost datagram is remembered for a late acknowledgement.
const MEMORY: Duration = Duration::from_secs(3);

impl SentLog {
    /// A log whose first datagram gets the number `first`.
    pub(crate) const fn starting_at(first: u64) -> Self {
        Self {
            records: VecDeque::new(),
            base: first,
            largest_acked: None,
            first_outstanding: first,
            reordering: INITIAL_REORDERING,
        }
    }

    /// The number of the next datagram.
    pub(crate) fn next_sequence(&self) -> u64 {
        self.base + self.records.len() as u64
    }

    /// The oldest number remembered.
    pub(crate) const fn base(&self) -> u64 {
        self.base
    }

    pub(crate) fn push(&mut self, now: Instant, bytes: usize, item: Item) -> u64 {
        let sequence = self.next_sequence();
        self.records.push_back(Record {
            sent: now,
            bytes,
            item,
            fate: Fate::Outstanding,
        });
        sequence
    }

    /// Marks a datagram as arrived; `None` when that was known before.
    pub(crate) fn ack(&mut self, sequence: u64) -> Option<Fated> {
        let index = usize::try_from(sequence.checked_sub(self.base)?).ok()?;
        let record = self.records.get_mut(index)?;
        let before = record.fate;
        if before == Fate::Acked {
            return None;
        }
        record.fate = Fate::Acked;
        let fated = Self::fated(sequence, *record, before);
        if before == Fate::Lost
            && let Some(largest) = self.largest_acked
        {
            let overtaken_by = largest.saturating_sub(sequence).saturating_add(1);
            self.reordering = self.reordering.max(overtaken_by.min(MAX_REORDERING));
        }
        self.largest_acked = self.largest_acked.max(Some(sequence));
        Some(fated)
    }

    /// Marks a datagram as lost on the word of the transport below; `None` when its fate was known.
    pub(crate) fn lose(&mut self, sequence: u64) -> Option<Fated> {
        let index = usize::try_from(sequence.checked_sub(self.base)?).ok()?;
        let record = self.records.get_mut(index)?;
        let before = record.fate;
        if !matches!(before, Fate::Outstanding | Fate::Released) {
            return None;
        }
        record.fate = Fate::Lost;
        Some(Self::fated(sequence, *record, before))
    }

    /// The next datagram that counts as lost: overtaken by `reordering` later ones, or without word for `overdue`.
    pub(crate) fn next_lost(&mut self, now: Instant, overdue: Duration) -> Option<Fated> {
        let (sequence, record) = self.oldest_outstanding()?;
        let overtaken = self
            .largest_acked
            .is_some_and(|largest| largest >= sequence + self.reordering);
        let too_many = self.records.len() > MAX_RECORDS;
        if !overtaken && !too_many && record.sent + overdue > now {
            return None;
        }
        self.lose(sequence)
    }

    /// When [`SentLog::next_lost`] will next find something by time.
    pub(crate) fn overdue_at(&self, overdue: Duration) -> Option<Instant> {
        self.peek_outstanding()
            .map(|(_, record)| record.sent + overdue)
    }

    /// Gives up all outstanding datagrams without calling them lost, because the path fell silent.
    pub(crate) fn release(&mut self) -> Vec<Fated> {
        let mut released = Vec::new();
        for (sequence, record) in (self.base..).zip(&mut self.records) {
            if record.fate == Fate::Outstanding && record.item.elicits_ack() {
                released.push(Self::fated(sequence, *record, Fate::Outstanding));
                record.fate = Fate::Released;
            }
        }
        released
    }

    /// Forgets what needs no memory any more.
    pub(crate) fn prune(&mut self, now: Instant) {
        while let Some(front) = self.records.front() {
            let settled = match front.fate {
                Fate::Acked => true,
                Fate::Lost => front.sent + MEMORY <= now,
                Fate::Outstanding | Fate::Released => {
                    !front.item.elicits_ack() && front.sent + MEMORY <= now
                }
            };
            // What is outstanding was taken as lost before, so that its content is sent again.
            let forgettable = front.fate == Fate::Lost || !front.item.elicits_ack();
            let full = self.records.len() > MAX_RECORDS;
            if !(settled || forgettable && full) {
                break;
            }
            self.records.pop_front();
            self.base += 1;
        }
    }

    fn oldest_outstanding(&mut self) -> Option<(u64, Record)> {
        let found = self.peek_outstanding();
        self.first_outstanding = found.map_or(self.next_sequence(), |(sequence, _)| sequence);
        found
    }

    fn peek_outstanding(&self) -> Option<(u64, Record)> {
        let skip = usize::try_from(self.first_outstanding.saturating_sub(self.base)).ok()?;
        let start = self.base + skip as u64;
        (start..)
            .zip(self.records.iter().skip(skip))
            .find(|(_, record)| {
                matches!(record.fate, Fate::Outstanding | Fate::Released)
                    && record.item.elicits_ack()
            })
            .map(|(sequence, record)| (sequence, *record))
    }

    fn fated(sequence: u64, record: Record, before: Fate) -> Fated {
        Fated {
            sequence,
            sent: record.sent,
            bytes: record.bytes,
            item: record.item,
            given_up: matches!(before, Fate::Released | Fate::Lost),
            was_lost: before == Fate::Lost,
        }
    }
}
