//! What has arrived and was not handed on: blocks in parts, and data of streams whose opening is still on its way.

use std::collections::{BTreeMap, BTreeSet};

use bytes::Bytes;
use starhaul_fec::Codec;

use super::{
    blocks::{Complete, Partial},
    bytes::ReceiveBytes,
};
use crate::{item::BlockKey, types::StreamId};

/// What a received block costs besides its bytes.
const BLOCK_OVERHEAD_BYTES: usize = 128;

/// What is held of the peer's data, and how many bytes that is.
#[derive(Debug, Default)]
pub(crate) struct Inbound {
    pub(crate) partials: BTreeMap<BlockKey, Partial>,
    pub(crate) by_arrival: BTreeMap<u64, BlockKey>,
    pub(crate) arrivals: u64,
    /// Whole blocks of streams whose opening is still on its way.
    pub(crate) early: BTreeMap<StreamId, BTreeMap<u64, Complete>>,
    /// Bytes of such streams; each holds at most what a stream takes before it has said more.
    pub(crate) early_bytes: BTreeMap<StreamId, ReceiveBytes>,
    /// Ordered streams of which blocks wait, by when the first of these must be handed on, in microseconds of the peer's clock.
    pub(crate) releases: BTreeSet<(u64, StreamId)>,
    pub(crate) codec: Codec,
    pub(crate) held_bytes: usize,
    /// Blocks dropped because the bound was reached or the application did not take them.
    pub(crate) dropped: u64,
}

impl Inbound {
    pub(crate) fn hold(&mut self, data: &Bytes) {
        self.held_bytes += data.len() + BLOCK_OVERHEAD_BYTES;
    }

    pub(crate) fn release(&mut self, data: &Bytes) {
        let freed = data.len() + BLOCK_OVERHEAD_BYTES;
        self.held_bytes = self.held_bytes.saturating_sub(freed);
    }

    pub(crate) fn remove(&mut self, key: BlockKey) {
        if let Some(partial) = self.partials.remove(&key) {
            self.by_arrival.remove(&partial.arrival);
            self.held_bytes = self.held_bytes.saturating_sub(partial.held_bytes);
        }
    }

    /// Drops the parts of blocks from `first` to before `end`.
    pub(crate) fn remove_range(&mut self, first: BlockKey, end: BlockKey) {
        let keys: Vec<BlockKey> = self
            .partials
            .range(first..end)
            .map(|(key, _)| *key)
            .collect();
        keys.into_iter().for_each(|key| self.remove(key));
    }

    /// Drops what belongs to streams below `end` that were never opened and now cannot be.
    pub(crate) fn forget_below(&mut self, end: u32) {
        self.early_bytes = self.early_bytes.split_off(&StreamId(end));
        let kept = self.early.split_off(&StreamId(end));
        for blocks in std::mem::replace(&mut self.early, kept).into_values() {
            blocks
                .values()
                .for_each(|complete| self.release(&complete.data));
        }
    }
}
