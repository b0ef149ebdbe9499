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
        }
    }

    /// Every block of a finished stream has ended.
    pub(crate) fn is_finished(&self) -> bool {
        self.waiting.is_empty() && self.end.is_some_and(|end| self.ended.contiguous() >= end)
    }
}

/// A block of which fragments have arrived.
#[derive(Debug)]
pub(crate) struct Partial {
    codes: Vec<PartialCode>,
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
    fragments: Vec<(u8, Bytes)>,
    data: Option<Bytes>,
}

/// What a fragment did.
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
        if self.contradicts(fragment) && sent > self.newest {
            *self = Self::new(fragment, self.born_micros, self.arrival);
        }
        if self.codes.len() != usize::from(fragment.last_code) + 1 {
            return Taken::Ignored;
        }
        let Some(code) = self.codes.get_mut(usize::from(fragment.code)) else {
            return Taken::Ignored;
        };
        if !code.fits(fragment) {
            return Taken::Ignored;
        }
        self.newest = self.newest.max(sent);
        // A copy: the payload is part of a buffer of many packets, and would keep it all.
        let payload = Bytes::copy_from_slice(&fragment.payload);
        code.fragments.push((fragment.index, payload));
        self.held_bytes += fragment.payload.len() + FRAGMENT_OVERHEAD_BYTES;
        if code.fragments.len() < usize::from(code.data_count) {
            return Taken::Kept;
        }
        self.recovered |= code
            .fragments
            .iter()
            .any(|(index, _)| *index >= code.data_count);
        if !code.rebuild(codec) {
            return Taken::Ignored;
        }
        if self.codes.iter().any(|code| code.data.is_none()) {
            return Taken::Kept;
        }
        Taken::Complete(Complete {
            data: self.join(),
            born_micros: self.born_micros,
            recovered: self.recovered,
            latency: Duration::ZERO,
            completed_micros: 0,
        })
    }

    fn contradicts(&self, fragment: &Fragment) -> bool {
        let code = self.codes.get(usize::from(fragment.code));
        self.codes.len() != usize::from(fragment.last_code) + 1
            || code.is_some_and(|code| code.contradicts(fragment))
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

impl PartialCode {
    fn fits(&mut self, fragment: &Fragment) -> bool {
        if self.data.is_some() {
            return false;
        }
        if self.fragments.is_empty() {
            self.data_count = fragment.data_count;
            self.redundancy_count = fragment.redundancy_count;
            self.padding = fragment.padding;
            self.fragment_length = fragment.payload.len();
            return true;
        }
        !self.contradicts(fragment)
            && self
                .fragments
                .iter()
                .all(|(index, _)| *index != fragment.index)
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

    /// Puts the data together from enough fragments. False when they cannot be a code's.
    fn rebuild(&mut self, codec: &mut Codec) -> bool {
        let fragments = std::mem::take(&mut self.fragments);
        let Ok(data) = codec.decode(self.data_count, self.redundancy_count, &fragments) else {
            return false;
        };
        let length: usize = data.iter().map(Bytes::len).sum();
        let Some(length) = length
            .checked_sub(usize::from(self.padding))
            .filter(|length| *length > 0)
        else {
            return false;
        };
        let mut joined = match <[Bytes; 1]>::try_from(data) {
            Ok([only]) => only,
            Err(parts) => {
                let mut joined = BytesMut::with_capacity(length + usize::from(self.padding));
                parts.iter().for_each(|part| joined.extend_from_slice(part));
                joined.freeze()
            }
        };
        joined.truncate(length);
        self.data = Some(joined);
        true
    }
}
