//! The receiving side of deadline streams: fragments become blocks, each handed on once.

use std::{collections::BTreeMap, time::Duration};

use bytes::{Bytes, BytesMut};
use starhaul_fec::Codec;
use starhaul_paths::RangeSet;

use crate::wire::Fragment;

/// Ranges of ended blocks kept per stream, more than a sender leaves open; when more are needed the oldest gaps are taken as
/// ended.
const MAX_ENDED_RANGES: usize = 1 << 15;
/// What a partial block costs besides its bytes.
pub(crate) const PARTIAL_OVERHEAD_BYTES: usize = 256;
const FRAGMENT_OVERHEAD_BYTES: usize = 96;

/// What a peer's deadline stream knows of its blocks.
#[derive(Debug)]
pub(crate) struct ReceiveBlocks {
    /// Blocks that were delivered or given up.
    pub(crate) ended: RangeSet,
    /// Number after the last block, once the sender has finished.
    pub(crate) end: Option<u64>,
    /// Complete blocks of an ordered stream that wait for earlier ones.
    pub(crate) waiting: BTreeMap<u64, Complete>,
    /// The next block an ordered stream hands on.
    pub(crate) next: u64,
    /// Until when, by the peer's clock, the first of `waiting` waits; as [`super::inbound::Inbound::plan_release`] noted it.
    pub(crate) release_due: Option<u64>,
}

/// A whole block.
#[derive(Clone, Debug)]
pub(crate) struct Complete {
    pub(crate) data: Bytes,
    pub(crate) born_micros: u64,
    /// Redundancy was needed to rebuild it.
    pub(crate) recovered: bool,
    /// From the peer's sending to its completion.
    pub(crate) latency: Duration,
    /// When it became whole, on the wire.
    pub(crate) completed_micros: u32,
}

impl ReceiveBlocks {
    pub(crate) const fn new() -> Self {
        Self {
            ended: RangeSet::new(MAX_ENDED_RANGES),
            end: None,
            waiting: BTreeMap::new(),
            next: 0,
            release_due: None,
        }
    }

    /// Every block of a finished stream has ended.
    pub(crate) fn is_finished(&self) -> bool {
        self.waiting.is_empty() && self.end.is_some_and(|end| self.ended.contiguous() >= end)
    }
}

impl Complete {
    pub(crate) const fn new(data: Bytes, born_micros: u64, recovered: bool) -> Self {
        Self {
            data,
            born_micros,
            recovered,
            latency: Duration::ZERO,
            completed_micros: 0,
        }
    }
}

/// A block of which fragments have arrived.
#[derive(Debug)]
pub(crate) struct Partial {
    codes: Vec<PartialCode>,
    /// Bytes and fragments of the first code that was heard of, without redundancy: by them the other codes of its cut are known.
    sample: Option<(usize, usize)>,
    pub(crate) born_micros: u64,
    pub(crate) held_bytes: usize,
    /// When its newest fragment was sent, by the peer's clock.
    newest: u64,
    /// Position in the order of first arrival.
    pub(crate) arrival: u64,
    recovered: bool,
}

#[derive(Debug, Default)]
struct PartialCode {
    data_count: u8,
    redundancy_count: u8,
    padding: u8,
    /// 0 before the first has come.
    fragment_length: usize,
    /// Data fragments, each in its place; grows up to the last that has come.
    buffer: BytesMut,
    /// A bit for each data fragment in it, and how many these are.
    present: [u64; 4],
    present_count: u8,
    redundancy: Vec<(u8, Bytes)>,
    data: Option<Bytes>,
}

/// The effect of a fragment that came.
#[derive(Debug)]
pub(crate) enum Taken {
    /// Nothing: known already, or it contradicts the fragments before it.
    Ignored,
    Kept,
    Complete(Complete),
}

impl Partial {
    pub(crate) fn new(fragment: &Fragment, born_micros: u64, arrival: u64) -> Self {
        let mut codes = Vec::new();
        codes.resize_with(usize::from(fragment.last_code) + 1, PartialCode::default);
        let held_bytes = PARTIAL_OVERHEAD_BYTES + codes.len() * size_of::<PartialCode>();
        Self {
            codes,
            sample: None,
            born_micros,
            held_bytes,
            newest: 0,
            arrival,
            recovered: false,
        }
    }

    /// Takes a fragment that was sent at `sent`. One that contradicts those before it is of a newer cut of the block, made when no path
    /// carried the larger fragments any more: they are given up for it. If it is older it is ignored.
    pub(crate) fn insert(&mut self, codec: &mut Codec, fragment: &Fragment, sent: u64) -> Taken {
        if self.contradicts(fragment) {
            if sent <= self.newest {
                return Taken::Ignored;
            }
            *self = Self::new(fragment, self.born_micros, self.arrival);
        }
        let Some(code) = self.codes.get_mut(usize::from(fragment.code)) else {
            return Taken::Ignored;
        };
        if !code.fits(fragment) {
            return Taken::Ignored;
        }
        self.newest = self.newest.max(sent);
        self.sample.get_or_insert_with(|| code_size(fragment));
        self.held_bytes += code.keep(fragment);
        if usize::from(code.present_count) + code.redundancy.len() < usize::from(code.data_count) {
            return Taken::Kept;
        }
        self.recovered |= code.present_count < code.data_count;
        if !code.rebuild(codec) {
            return Taken::Ignored;
        }
        if self.codes.iter().any(|code| code.data.is_none()) {
            return Taken::Kept;
        }
        let data = self.join();
        Taken::Complete(Complete::new(data, self.born_micros, self.recovered))
    }

    fn contradicts(&self, fragment: &Fragment) -> bool {
        let code = self.codes.get(usize::from(fragment.code));
        self.codes.len() != usize::from(fragment.last_code) + 1
            || code.is_some_and(|code| code.contradicts(fragment))
            || self
                .sample
                .is_some_and(|sample| !are_of_one_cut(sample, code_size(fragment)))
    }

    fn join(&mut self) -> Bytes {
        let mut parts: Vec<Bytes> = self
            .codes
            .iter_mut()
            .filter_map(|code| code.data.take())
            .collect();
        if let [_] = parts.as_slice() {
            return parts.remove(0);
        }
        parts.concat().into()
    }
}

/// Bytes and fragments of data of the fragment's code.
fn code_size(fragment: &Fragment) -> (usize, usize) {
    let count = usize::from(fragment.data_count);
    let bytes = (count * fragment.payload.len()).saturating_sub(fragment.padding.into());
    (bytes, count)
}

/// Codes of one cut have equally many bytes per fragment, but for what rounding to whole bytes makes of the two ends of each code. Data of
/// another cut begin and end elsewhere in the block.
const fn are_of_one_cut((bytes, count): (usize, usize), other: (usize, usize)) -> bool {
    (bytes * other.1).abs_diff(other.0 * count) < count + other.1
}

impl PartialCode {
    fn fits(&mut self, fragment: &Fragment) -> bool {
        if self.data.is_some() {
            return false;
        }
        if self.fragment_length == 0 {
            self.data_count = fragment.data_count;
            self.redundancy_count = fragment.redundancy_count;
            self.padding = fragment.padding;
            self.fragment_length = fragment.payload.len();
            return true;
        }
        !self.contradicts(fragment) && !self.has(fragment.index)
    }

    fn has(&self, index: u8) -> bool {
        if index < self.data_count {
            let word = self.present.get(usize::from(index / 64));
            return word.is_some_and(|word| word >> (index % 64) & 1 == 1);
        }
        self.redundancy.iter().any(|(known, _)| *known == index)
    }

    /// Copies a fragment, since its payload is part of a buffer with other things that would be kept with it; returns how many bytes
    /// are held for it. The first data fragment takes the room of all.
    fn keep(&mut self, fragment: &Fragment) -> usize {
        let (index, length) = (fragment.index, self.fragment_length);
        if index >= self.data_count {
            let payload = Bytes::copy_from_slice(&fragment.payload);
            self.redundancy.push((index, payload));
            return length + FRAGMENT_OVERHEAD_BYTES;
        }
        let room = usize::from(self.data_count) * length;
        let reserved = if self.present_count == 0 { room } else { 0 };
        self.buffer.reserve(reserved);
        let (start, end) = (
            usize::from(index) * length,
            usize::from(index) * length + length,
        );
        if start == self.buffer.len() {
            self.buffer.extend_from_slice(&fragment.payload);
        } else {
            if end > self.buffer.len() {
                self.buffer.resize(end, 0);
            }
            if let Some(place) = self.buffer.get_mut(start..end) {
                place.copy_from_slice(&fragment.payload);
            }
        }
        if let Some(word) = self.present.get_mut(usize::from(index / 64)) {
            *word |= 1 << (index % 64);
        }
        self.present_count += 1;
        reserved
    }

    /// It is of another shape than those before it.
    fn contradicts(&self, fragment: &Fragment) -> bool {
        let shape = (
            self.data_count,
            self.redundancy_count,
            self.padding,
            self.fragment_length,
        );
        let other = (
            fragment.data_count,
            fragment.redundancy_count,
            fragment.padding,
            fragment.payload.len(),
        );
        self.fragment_length > 0 && shape != other
    }

    /// Puts the data together from enough fragments. False when they cannot be a code's; it then waits for others.
    fn rebuild(&mut self, codec: &mut Codec) -> bool {
        let arrived = std::mem::take(&mut self.buffer).freeze();
        let whole = if self.present_count == self.data_count {
            Some(arrived)
        } else {
            self.decode(codec, &arrived)
        };
        let padding = usize::from(self.padding);
        let data = whole.filter(|whole| whole.len() > padding);
        let data = data.map(|mut whole| {
            whole.truncate(whole.len() - padding);
            whole
        });
        let is_whole = data.is_some();
        *self = Self {
            data_count: self.data_count,
            redundancy_count: self.redundancy_count,
            padding: self.padding,
            // A whole code keeps its shape, by which fragments of a newer cut are known.
            fragment_length: if is_whole { self.fragment_length } else { 0 },
            data,
            ..Self::default()
        };
        is_whole
    }

    fn decode(&self, codec: &mut Codec, arrived: &Bytes) -> Option<Bytes> {
        let length = self.fragment_length;
        let present = (0..self.data_count).filter(|index| self.has(*index));
        let data = present.map(|index| {
            let start = usize::from(index) * length;
            (index, arrived.slice(start..start + length))
        });
        let fragments: Vec<_> = data.chain(self.redundancy.iter().cloned()).collect();
        let data = codec.decode(self.data_count, self.redundancy_count, &fragments);
        let mut whole = BytesMut::with_capacity(usize::from(self.data_count) * length);
        data.ok()?
            .iter()
            .for_each(|part| whole.extend_from_slice(part));
        Some(whole.freeze())
    }
}
