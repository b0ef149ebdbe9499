//! The streams of a session: which are open, which may be, and what is known of each and of those that have ended.

use std::{collections::BTreeMap, time::Instant};

use starhaul_paths::RangeSet;
use starhaul_units::Bandwidth;

use crate::{
    numbers::StreamNumbers,
    receive::{blocks::ReceiveBlocks, bytes::ReceiveBytes},
    send::bytes::{INITIAL_CREDIT, SendBytes},
    stats::{EndedStreams, StreamStats},
    types::{Mode, Outcome, ProtocolError, Side, StreamConfig, StreamError, StreamId},
};

/// Undelivered blocks remembered per stream, for the blocks that depend on them.
const MAX_UNDELIVERED_RANGES: usize = 256;

/// All streams but the control stream.
#[derive(Debug)]
pub(crate) struct Streams {
    side: Side,
    /// Most streams of one side that may be open at once.
    most: usize,
    table: BTreeMap<StreamId, Stream>,
    numbers: StreamNumbers,
    ended: EndedStreams,
}

/// An open stream.
#[derive(Debug)]
pub(crate) struct Stream {
    pub(crate) config: StreamConfig,
    pub(crate) stats: StreamStats,
    pub(crate) kind: Kind,
}

#[derive(Debug)]
pub(crate) enum Kind {
    Sending(SendBlocks),
    Receiving(ReceiveBlocks),
    Bytes(Box<BytesPair>),
}

/// Our own deadline stream.
#[derive(Debug)]
pub(crate) struct SendBlocks {
    pub(crate) next: u64,
    pub(crate) live: u64,
    pub(crate) finished: bool,
    pub(crate) undelivered: RangeSet,
    /// Undelivered blocks the peer has not been told of.
    untold: RangeSet,
}

/// Both directions of a reliable stream.
#[derive(Debug)]
pub(crate) struct BytesPair {
    pub(crate) send: SendBytes,
    pub(crate) receive: ReceiveBytes,
    /// Its place among the streams that have something to send.
    pub(crate) turn: Option<u64>,
    /// Until when the application counts as having more to send than it was given room for.
    pub(crate) bulk_until: Option<Instant>,
}

impl Streams {
    /// None are open yet; each side may have `most` at once.
    pub(crate) fn new(side: Side, most: usize) -> Self {
        Self {
            side,
            most,
            table: BTreeMap::new(),
            numbers: StreamNumbers::new(side),
            ended: EndedStreams::default(),
        }
    }

    pub(crate) fn get(&self, stream: StreamId) -> Option<&Stream> {
        self.table.get(&stream)
    }

    pub(crate) fn get_mut(&mut self, stream: StreamId) -> Option<&mut Stream> {
        self.table.get_mut(&stream)
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (StreamId, &Stream)> {
        self.table.iter().map(|(id, stream)| (*id, stream))
    }

    /// A reliable stream.
    pub(crate) fn pair_mut(&mut self, stream: StreamId) -> Option<&mut BytesPair> {
        match &mut self.table.get_mut(&stream)?.kind {
            Kind::Bytes(pair) => Some(pair),
            Kind::Sending(_) | Kind::Receiving(_) => None,
        }
    }

    /// The blocks of a stream of the peer's.
    pub(crate) fn receiving_mut(&mut self, stream: StreamId) -> Option<&mut ReceiveBlocks> {
        match &mut self.table.get_mut(&stream)?.kind {
            Kind::Receiving(blocks) => Some(blocks),
            Kind::Sending(_) | Kind::Bytes(_) => None,
        }
    }

    /// Whether a stream is opened by this side.
    pub(crate) fn is_ours(&self, stream: StreamId) -> bool {
        stream.opener() == self.side
    }

    /// Whether this side has opened it; it may have ended.
    pub(crate) fn was_ours(&self, stream: StreamId) -> bool {
        self.is_ours(stream) && self.numbers.was_opened(stream)
    }

    /// Whether a stream of the peer may still be opened: its opening is on its way.
    pub(crate) fn is_awaited(&self, stream: StreamId) -> bool {
        !self.is_ours(stream) && !self.numbers.was_passed(stream)
    }

    /// Whether this side may open one more.
    ///
    /// # Errors
    /// `most` streams of this side are open, or as many as the peer takes.
    pub(crate) fn check_room(&self) -> Result<(), StreamError> {
        let open = self.table.len() - self.numbers.peer_open();
        if open >= self.most {
            return Err(StreamError::TooManyStreams(self.most));
        }
        if !self.numbers.peer_takes(open) {
            return Err(StreamError::PeerStreams);
        }
        Ok(())
    }

    /// Opens a stream of ours, which may hold `most_held` bytes for sending if it is reliable; `None` when all numbers have been used.
    pub(crate) fn open(&mut self, config: StreamConfig, most_held: u64) -> Option<StreamId> {
        let id = self.numbers.next()?;
        let kind = match config.mode {
            Mode::Reliable => Kind::Bytes(Box::new(BytesPair::new(most_held))),
            _ => Kind::Sending(SendBlocks::new()),
        };
        self.table.insert(id, Stream::new(id, config, kind));
        Some(id)
    }

    /// The peer opens a stream.
    ///
    /// # Errors
    /// It cannot have this number, or has more open than any honest peer.
    pub(crate) fn accept(
        &mut self,
        stream: StreamId,
        config: StreamConfig,
        most_held: u64,
    ) -> Result<(), ProtocolError> {
        if stream == StreamId::CONTROL
            || self.is_ours(stream)
            || self.numbers.was_passed(stream)
            || stream == StreamNumbers::NO_STREAM
        {
            return Err(ProtocolError::StreamState {
                stream,
                what: "opened twice, or with a number of ours or of none",
            });
        }
        if self.numbers.peer_open() >= self.most_of_peer() {
            return Err(ProtocolError::Limit("streams"));
        }
        self.numbers.on_peer_opened(stream);
        let kind = match config.mode {
            Mode::Reliable => Kind::Bytes(Box::new(BytesPair::new(most_held))),
            _ => Kind::Receiving(ReceiveBlocks::new()),
        };
        self.table.insert(stream, Stream::new(stream, config, kind));
        Ok(())
    }

    /// More streams of the peer than any honest one has open here.
    pub(crate) fn most_of_peer(&self) -> usize {
        StreamNumbers::most_of_peer(self.most)
    }

    /// One past the greatest number the peer has opened.
    pub(crate) const fn peer_end(&self) -> u32 {
        self.numbers.peer_end()
    }

    /// The peer lets us open streams below `limit`.
    pub(crate) fn on_limit(&mut self, limit: u32) {
        self.numbers.on_limit(limit);
    }

    /// Below which number the peer may open streams, if it is to be told: see [`StreamNumbers::due_limit`].
    pub(crate) fn due_limit(&self) -> Option<u32> {
        self.numbers.due_limit(self.most)
    }

    /// The peer was told a limit.
    pub(crate) fn on_told(&mut self, limit: u32) {
        self.numbers.on_told(limit);
    }

    /// A block of ours has ended. True when the peer is to be told that it need not wait for it.
    pub(crate) fn on_block_ended(
        &mut self,
        stream: StreamId,
        number: u64,
        outcome: Outcome,
    ) -> bool {
        let Some(entry) = self.table.get_mut(&stream) else {
            return false;
        };
        entry.stats.count(outcome);
        match &mut entry.kind {
            Kind::Sending(blocks) => blocks.on_ended(number, outcome),
            Kind::Receiving(_) | Kind::Bytes(_) => false,
        }
    }

    /// Forgets a stream of which nothing more will be heard, but for its figures. Returns the priority and both directions of a reliable one.
    pub(crate) fn end(&mut self, stream: StreamId) -> Option<(u8, Box<BytesPair>)> {
        let gone = self.table.remove(&stream)?;
        if !self.is_ours(stream) {
            self.numbers.on_peer_ended();
        }
        match gone.kind {
            Kind::Bytes(pair) => {
                self.ended.push(gone.stats);
                Some((gone.config.priority, pair))
            }
            Kind::Sending(_) | Kind::Receiving(_) => {
                self.ended.push_blocks(gone.stats);
                None
            }
        }
    }

    /// The session ends: so do the figures of all streams.
    pub(crate) fn on_close(&mut self) {
        let open = self.table.values().map(|stream| stream.stats.clone());
        open.for_each(|stats| self.ended.push(stats));
    }

    /// Figures of every open stream, and of the last deadline streams that have ended.
    pub(crate) fn stats(&self) -> Vec<StreamStats> {
        let open = self.table.values().map(|stream| &stream.stats);
        self.ended.latest().chain(open).cloned().collect()
    }

    /// Last figures of the streams that have ended since the last call.
    pub(crate) fn take_ended(&mut self) -> Vec<StreamStats> {
        self.ended.take()
    }

    /// Reliable streams whose bytes wait because the peer's application has not read those before.
    pub(crate) fn without_credit(&self) -> Vec<StreamId> {
        let waits = |stream: &Stream| {
            let pair = stream.pair();
            pair.is_some_and(|pair| pair.send.waits_for_credit())
        };
        let waiting = self.iter().filter(|(_, stream)| waits(stream));
        waiting.map(|(id, _)| id).collect()
    }

    /// Bytes that reliable streams have received and hold.
    pub(crate) fn received_bytes(&self) -> usize {
        let pairs = self.table.values().filter_map(Stream::pair);
        pairs.map(|pair| pair.receive.held_bytes()).sum()
    }

    /// Frees what reliable streams keep for bytes to come.
    pub(crate) fn release_memory(&mut self) {
        for stream in self.table.values_mut() {
            if let Kind::Bytes(pair) = &mut stream.kind {
                pair.receive.release_memory();
            }
        }
    }

    /// Ranges of ended blocks that all streams of the peer have together.
    pub(crate) fn ended_ranges(&self) -> usize {
        self.table.values().map(Stream::ended_ranges).sum()
    }

    /// The bandwidth that the deadline streams of ours were opened for.
    pub(crate) fn hinted_bandwidth(&self) -> Bandwidth {
        let ours = self.table.values();
        let ours = ours.filter(|entry| matches!(entry.kind, Kind::Sending(_)));
        ours.filter_map(|entry| entry.config.bandwidth).sum()
    }
}

impl Stream {
    fn new(id: StreamId, config: StreamConfig, kind: Kind) -> Self {
        Self {
            stats: StreamStats::new(id, &config),
            config,
            kind,
        }
    }

    pub(crate) fn pair(&self) -> Option<&BytesPair> {
        match &self.kind {
            Kind::Bytes(pair) => Some(pair),
            Kind::Sending(_) | Kind::Receiving(_) => None,
        }
    }

    /// Ranges of ended blocks of the peer.
    pub(crate) fn ended_ranges(&self) -> usize {
        match &self.kind {
            Kind::Receiving(blocks) => blocks.ended.range_count(),
            Kind::Sending(_) | Kind::Bytes(_) => 0,
        }
    }

    /// Whether nothing more will be heard of it, but for what the peer has yet to be told of its blocks.
    pub(crate) fn is_done(&self) -> bool {
        match &self.kind {
            Kind::Sending(blocks) => blocks.finished && blocks.live == 0,
            Kind::Receiving(blocks) => blocks.is_finished(),
            Kind::Bytes(pair) => pair.send.is_done() && pair.receive.is_ended(),
        }
    }
}

impl SendBlocks {
    fn new() -> Self {
        Self {
            next: 0,
            live: 0,
            finished: false,
            undelivered: RangeSet::recent(MAX_UNDELIVERED_RANGES),
            untold: RangeSet::new(usize::MAX),
        }
    }

    /// A block has ended; true when the peer is to be told.
    fn on_ended(&mut self, number: u64, outcome: Outcome) -> bool {
        self.live -= 1;
        if matches!(outcome, Outcome::Delivered { .. }) {
            return false;
        }
        self.undelivered.insert(number, number + 1);
        self.untold.insert(number, number + 1);
        true
    }

    /// The blocks that the peer need not wait for, and is told of now.
    pub(crate) fn take_untold(&mut self) -> RangeSet {
        std::mem::replace(&mut self.untold, RangeSet::new(usize::MAX))
    }
}

impl BytesPair {
    fn new(most_held: u64) -> Self {
        Self {
            send: SendBytes::new(INITIAL_CREDIT, most_held),
            receive: ReceiveBytes::new(),
            turn: None,
            bulk_until: None,
        }
    }
}
