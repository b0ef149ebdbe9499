//! What has arrived and was not handed on: blocks in parts, and data of streams whose opening is still on its way; and what reliable
//! streams may still receive.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::{Duration, Instant},
};

use bytes::Bytes;
use starhaul_fec::Codec;

use super::{
    blocks::{Complete, Partial, ReceiveBlocks, Taken},
    bytes::{ReceiveBytes, Share},
    shares::Shares,
};
use crate::{
    item::BlockKey,
    types::{ProtocolError, StreamId},
    wire::{Fragment, StreamFrame},
};

/// What a received block costs besides its bytes.
const BLOCK_OVERHEAD_BYTES: usize = 128;

/// What is held of the peer's data, and how many bytes that is.
#[derive(Debug)]
pub(crate) struct Inbound {
    /// Blocks may take so many bytes, and reliable streams be granted as many.
    bound: usize,
    partials: BTreeMap<BlockKey, Partial>,
    by_arrival: BTreeMap<u64, BlockKey>,
    arrivals: u64,
    /// Whole blocks of streams whose opening is still on its way.
    early: BTreeMap<StreamId, BTreeMap<u64, Complete>>,
    /// Bytes of such streams; each holds at most what a stream takes before it has said more.
    early_bytes: BTreeMap<StreamId, ReceiveBytes>,
    /// Ordered streams of which blocks wait, by when the first of these must be handed on, in microseconds of the peer's clock.
    releases: BTreeSet<(u64, StreamId)>,
    codec: Codec,
    /// Bytes of blocks: of those in parts, of early ones, and of those that wait for others or for the application.
    held_bytes: usize,
    dropped: u64,
    shares: Shares,
}

impl Inbound {
    /// For a session that holds so many bytes of the peer's: half of them of blocks, half of reliable streams.
    pub(crate) fn new(max_receive_bytes: usize) -> Self {
        Self {
            bound: max_receive_bytes / 2,
            partials: BTreeMap::new(),
            by_arrival: BTreeMap::new(),
            arrivals: 0,
            early: BTreeMap::new(),
            early_bytes: BTreeMap::new(),
            releases: BTreeSet::new(),
            codec: Codec::default(),
            held_bytes: 0,
            dropped: 0,
            shares: Shares::default(),
        }
    }

    /// A whole block waits, until [`Inbound::release`].
    pub(crate) fn hold(&mut self, data: &Bytes) {
        self.held_bytes += data.len() + BLOCK_OVERHEAD_BYTES;
    }

    pub(crate) fn release(&mut self, data: &Bytes) {
        let freed = data.len() + BLOCK_OVERHEAD_BYTES;
        self.held_bytes = self.held_bytes.saturating_sub(freed);
    }

    /// Blocks take more than they may.
    pub(crate) const fn is_over_bound(&self) -> bool {
        self.held_bytes > self.bound
    }

    /// Bytes held of blocks, and of reliable streams whose opening is still on its way.
    pub(crate) fn held_bytes(&self) -> usize {
        let early = self.early_bytes.values();
        self.held_bytes + early.map(ReceiveBytes::held_bytes).sum::<usize>()
    }

    /// Blocks dropped because a bound was reached or the application did not take them.
    pub(crate) const fn dropped(&self) -> u64 {
        self.dropped
    }

    pub(crate) const fn count_dropped(&mut self, blocks: u64) {
        self.dropped += blocks;
    }

    /// Whether this is a whole block of a stream whose opening is still on its way.
    pub(crate) fn holds_early(&self, (stream, number): BlockKey) -> bool {
        let blocks = self.early.get(&stream);
        blocks.is_some_and(|blocks| blocks.contains_key(&number))
    }

    /// Takes a fragment that was sent at `sent` of a block born at `born`, in microseconds of the peer's clock. Returns the block when it
    /// is whole, of which nothing is held then.
    pub(crate) fn insert(
        &mut self,
        key: BlockKey,
        fragment: &Fragment,
        born: u64,
        sent: u64,
    ) -> Option<Complete> {
        if fragment.is_block() && !self.partials.contains_key(&key) {
            let data = Bytes::copy_from_slice(&fragment.payload);
            return Some(Complete::new(data, born, false));
        }
        let partial = self.partials.entry(key).or_insert_with(|| {
            let partial = Partial::new(fragment, born, self.arrivals);
            self.by_arrival.insert(self.arrivals, key);
            self.arrivals += 1;
            self.held_bytes += partial.held_bytes;
            partial
        });
        let before = partial.held_bytes;
        let taken = partial.insert(&mut self.codec, fragment, sent);
        self.held_bytes = (self.held_bytes + partial.held_bytes).saturating_sub(before);
        let Taken::Complete(complete) = taken else {
            return None;
        };
        self.remove(key);
        Some(complete)
    }

    /// Holds a whole block until its stream is opened, unless blocks of more than `most_streams` would wait so.
    pub(crate) fn insert_early(
        &mut self,
        (stream, number): BlockKey,
        complete: Complete,
        most_streams: usize,
    ) {
        if self.early.len() >= most_streams && !self.early.contains_key(&stream) {
            // More than can be opened.
            self.dropped += 1;
            return;
        }
        self.hold(&complete.data);
        let blocks = self.early.entry(stream).or_default();
        blocks.insert(number, complete);
    }

    /// Holds a frame until its stream is opened; it was acknowledged, so it must be kept.
    ///
    /// # Errors
    /// Frames of more than `most_streams`, or what no stream takes before it has said more.
    pub(crate) fn insert_early_bytes(
        &mut self,
        frame: StreamFrame,
        most_streams: usize,
    ) -> Result<(), ProtocolError> {
        let early = &mut self.early_bytes;
        if early.len() >= most_streams && !early.contains_key(&frame.stream) {
            return Err(ProtocolError::Limit("streams"));
        }
        let receive = early.entry(frame.stream).or_insert_with(ReceiveBytes::new);
        receive
            .insert(frame.stream, frame.offset, frame.fin, frame.payload)
            .map(drop)
    }

    /// The whole blocks that came before the stream's opening; they are not held any more.
    pub(crate) fn take_early(&mut self, stream: StreamId) -> BTreeMap<u64, Complete> {
        let blocks = self.early.remove(&stream).unwrap_or_default();
        let freed = blocks.values();
        freed.for_each(|complete| self.release(&complete.data));
        blocks
    }

    /// What came of a reliable stream before its opening.
    pub(crate) fn take_early_bytes(&mut self, stream: StreamId) -> Option<ReceiveBytes> {
        self.early_bytes.remove(&stream)
    }

    fn remove(&mut self, key: BlockKey) {
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

    /// While blocks take more than they may: drops the oldest of those in parts, then the early ones of the lowest stream.
    pub(crate) fn drop_unfinished(&mut self) {
        while self.is_over_bound()
            && let Some(key) = self.by_arrival.first_key_value().map(|(_, key)| *key)
        {
            self.remove(key);
            self.dropped += 1;
        }
        while self.is_over_bound()
            && let Some((_, blocks)) = self.early.pop_first()
        {
            self.dropped += blocks.len() as u64;
            let freed = blocks.values();
            freed.for_each(|complete| self.release(&complete.data));
        }
    }

    /// Notes until when the first block that waits in an ordered stream may do so. It is the one that was sent first.
    pub(crate) fn plan_release(
        &mut self,
        stream: StreamId,
        blocks: &mut ReceiveBlocks,
        deadline: Duration,
    ) {
        let deadline = u64::try_from(deadline.as_micros()).unwrap_or(u64::MAX);
        let due = blocks
            .waiting
            .first_key_value()
            .map(|(_, first)| first.born_micros.saturating_add(deadline));
        let before = std::mem::replace(&mut blocks.release_due, due);
        if before != due {
            before.map(|at| self.releases.remove(&(at, stream)));
            due.map(|at| self.releases.insert((at, stream)));
        }
    }

    /// The ordered stream of which a block must be handed on first, and when, in microseconds of the peer's clock.
    pub(crate) fn first_release(&self) -> Option<(u64, StreamId)> {
        self.releases.first().copied()
    }

    /// Nothing waits in the stream.
    pub(crate) fn forget_release(&mut self, release: (u64, StreamId)) {
        self.releases.remove(&release);
    }

    /// The ordered streams of which blocks wait, those first whose blocks must be handed on first.
    pub(crate) fn waiting(&self) -> Vec<StreamId> {
        let releases = self.releases.iter();
        releases.map(|(_, stream)| *stream).collect()
    }

    /// A reliable stream reads, ends or was granted more.
    pub(crate) fn count_share(&mut self, stream: StreamId, receive: &mut ReceiveBytes) {
        self.shares.count(stream, receive);
    }

    /// A reliable stream has ended.
    pub(crate) fn forget_share(&mut self, stream: StreamId, receive: &ReceiveBytes) {
        self.shares.forget(stream, receive);
    }

    /// What the other reliable streams leave to `stream`, which is `receive`, of the half of `max_receive_bytes` that is theirs. `lately` is
    /// the present and the time in which reading is counted.
    pub(crate) fn share_left_to(
        &mut self,
        stream: StreamId,
        receive: &ReceiveBytes,
        lately: (Instant, Duration),
    ) -> Share {
        let all = self.bound as u64;
        self.shares.left_to(stream, receive, lately, all)
    }

    #[cfg(test)]
    pub(crate) const fn shares(&self) -> &Shares {
        &self.shares
    }
}
