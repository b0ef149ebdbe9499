//! What the application asks of a session: streams, blocks, bytes.

use std::time::{Duration, Instant};

use bytes::Bytes;

use super::Session;
use crate::{
    control::Control,
    facts::Fact,
    item::BlockKey,
    receive::{
        SparePage,
        bytes::{ReceiveBytes, Share},
    },
    send::{
        block::{SEND_OVERHEAD_BYTES, SendBlock},
        offer_of,
    },
    streams::{BytesPair, Kind, Stream},
    types::{
        BlockId, BlockOptions, Event, MAX_BLOCK_BYTES, MAX_LABEL_BYTES, MAX_LIVE_BLOCKS, Outcome,
        StreamConfig, StreamError, StreamId,
    },
    wire::{unwrap, wrap},
};

/// A stream may have this much unsent before `write` refuses more, so that what waits stays young.
const LEAST_UNSENT_BYTES: u64 = 256 << 10;
/// … or as much as the paths carry in this time …
const UNSENT_TIME: Duration = Duration::from_millis(50);
/// … up to this: what waits is read again when it leaves, and beyond what the processor's caches hold that costs more than all else that is
/// done with it here.
const MOST_UNSENT_BYTES: u64 = 2 << 20;
/// A stream whose `write` was refused counts as bulk for this long after it got room again.
const BULK_MEMORY: Duration = Duration::from_millis(50);
/// This part of what a session holds for sending is left to bytes that wait.
const BYTES_SHARE: usize = 16;
/// Control bytes waiting beyond which no stream is opened.
const MAX_OPENING_BYTES: usize = super::MAX_CONTROL_BYTES / 2;
/// Room for so many blocks that end together is kept for the next ones.
const MOST_ENDED_ROOM: usize = 128;
/// Longer deadlines of single blocks count as this, as long as a stream's may be.
const MAX_DEADLINE: Duration = Duration::from_millis(u32::MAX as u64);

impl Session {
    /// Opens a stream. The peer hears of it with [`Event::StreamOpened`]. A reliable stream carries bytes in both directions, any
    /// other carries blocks from here to the peer.
    pub fn open_stream(
        &mut self,
        now: Instant,
        config: StreamConfig,
    ) -> Result<StreamId, StreamError> {
        self.advance(now);
        self.check_open()?;
        if config.label.len() > MAX_LABEL_BYTES {
            return Err(StreamError::Config("the label is longer than 1024 bytes"));
        }
        if !(0.0..=1.0).contains(&config.max_coding_rate) {
            return Err(StreamError::Config(
                "max_coding_rate is not between 0.0 and 1.0",
            ));
        }
        if config.deadline.is_zero() || u32::try_from(config.deadline.as_millis()).is_err() {
            return Err(StreamError::Config(
                "the deadline is not between 1 ms and 49 days",
            ));
        }
        self.streams.check_room()?;
        let held = usize::try_from(self.control.send.held()).unwrap_or(usize::MAX);
        let has_room = held < MAX_OPENING_BYTES;
        let most_held = self.config.most_held_for_sending();
        let open = || self.streams.open(config.clone(), most_held);
        let Some(id) = has_room.then(open).flatten() else {
            return Err(StreamError::QueueFull {
                held,
                limit: MAX_OPENING_BYTES,
            });
        };
        let mode = config.mode;
        self.tell(&Control::Open { stream: id, config });
        self.observers
            .note(self.clocks.now(), || Fact::StreamOpened {
                stream: id,
                opener: self.side,
                mode,
            });
        self.open_window(id);
        Ok(id)
    }

    /// Gives the session a block to deliver. It never waits: what cannot be taken is refused.
    pub fn send_block(
        &mut self,
        now: Instant,
        stream: StreamId,
        data: Bytes,
        options: BlockOptions,
    ) -> Result<BlockId, StreamError> {
        self.advance(now);
        self.check_open()?;
        // What it depends on may have just ended.
        self.blocks_out.expire(self.clocks.now(), &self.paths);
        self.settle();
        let takes = |entry: &&Stream| match &entry.kind {
            Kind::Sending(blocks) => !blocks.finished && blocks.live < MAX_LIVE_BLOCKS as u64,
            _ => false,
        };
        if let Some(entry) = self.streams.get(stream).filter(takes)
            && (1..=MAX_BLOCK_BYTES).contains(&data.len())
        {
            let priority = options.priority.unwrap_or(entry.config.priority);
            self.make_room_for_block(data.len(), priority);
        }
        let (held, limit) = (self.held_for_sending(), self.config.max_send_bytes);
        let kept = self.kept_for_writers();
        let entry = self
            .streams
            .get_mut(stream)
            .ok_or(StreamError::Unknown(stream))?;
        let Kind::Sending(blocks) = &mut entry.kind else {
            return Err(StreamError::WrongKind(stream));
        };
        if blocks.finished {
            return Err(StreamError::NotWritable(stream));
        }
        if data.is_empty() || data.len() > MAX_BLOCK_BYTES {
            return Err(StreamError::BlockSize(data.len()));
        }
        if held + data.len() + SEND_OVERHEAD_BYTES + kept > limit {
            return Err(StreamError::QueueFull { held, limit });
        }
        if blocks.live >= MAX_LIVE_BLOCKS as u64 {
            return Err(StreamError::TooManyBlocks(stream));
        }
        let number = blocks.next;
        blocks.next += 1;
        blocks.live += 1;
        entry.stats.blocks_sent += 1;
        entry.stats.bytes_sent += data.len() as u64;
        let key = (stream, number);
        let deadline = options.deadline.unwrap_or(entry.config.deadline);
        let deadline = self.clocks.now() + deadline.min(MAX_DEADLINE);
        let priority = options.priority.unwrap_or(entry.config.priority);
        let depends_on = options.depends_on.map(|on| unwrap(on.0, number));
        let lost_dependency = depends_on.filter(|on| blocks.undelivered.contains(*on));
        let config = &entry.config;
        let mut block = SendBlock::new(
            key,
            data,
            config.mode,
            self.clocks.now(),
            deadline,
            priority,
            config.max_coding_rate,
        );
        block.is_ordered = config.ordered;
        self.observers
            .note(self.clocks.now(), || Fact::BlockQueued {
                stream,
                block: BlockId(wrap(number)),
                bytes: block.data.len(),
                deadline: deadline.saturating_duration_since(self.clocks.now()),
                priority,
            });
        self.scheduler
            .on_offered(self.clocks.now(), offer_of(&block));
        self.blocks_out
            .insert(self.clocks.now(), &self.paths, block);
        if let Some(on) = lost_dependency {
            self.blocks_out.end(
                self.clocks.now(),
                key,
                Outcome::Cancelled {
                    because_of: Some(BlockId(wrap(on))),
                },
            );
        } else if let Some(on) = depends_on.filter(|on| *on < number) {
            self.blocks_out.depend(key, (stream, on));
        }
        self.settle();
        Ok(BlockId(wrap(number)))
    }

    /// Blocks for which there is no room make room for one of so many bytes that is not less important.
    fn make_room_for_block(&mut self, bytes: usize, priority: u8) {
        let wanted = bytes + SEND_OVERHEAD_BYTES + self.kept_for_writers();
        let limit = self.config.max_send_bytes;
        let missing = |session: &Self| (session.held_for_sending() + wanted).saturating_sub(limit);
        if !self.blocks_out.holds_aside(priority, missing(self)) {
            return;
        }
        while missing(self) > 0
            && self
                .blocks_out
                .end_one_aside(self.clocks.now(), priority, &self.paths)
        {
            self.settle();
        }
    }

    /// Room that writers of bytes wait for is not taken again by blocks.
    fn kept_for_writers(&self) -> usize {
        match self.bytes_out.writers_starve || self.bytes_out.writers_are_due {
            true => self.config.max_send_bytes / BYTES_SHARE,
            false => 0,
        }
    }

    /// Changes the deadline (from now) or the priority of a block that has not ended.
    pub fn update_block(
        &mut self,
        now: Instant,
        stream: StreamId,
        block: BlockId,
        deadline: Option<Duration>,
        priority: Option<u8>,
    ) -> Result<(), StreamError> {
        self.advance(now);
        let key = self.live_block(stream, block)?;
        self.observers
            .note(self.clocks.now(), || Fact::BlockUpdated {
                stream,
                block,
                deadline,
                priority,
            });
        self.blocks_out.update(
            self.clocks.now(),
            &self.paths,
            key,
            deadline.map(|deadline| self.clocks.now() + deadline.min(MAX_DEADLINE)),
            priority,
        );
        self.settle();
        Ok(())
    }

    /// Cancels a block, and with it the blocks that depend on it.
    pub fn retreat(
        &mut self,
        now: Instant,
        stream: StreamId,
        block: BlockId,
    ) -> Result<(), StreamError> {
        self.advance(now);
        let key = self.live_block(stream, block)?;
        self.blocks_out.end(
            self.clocks.now(),
            key,
            Outcome::Cancelled { because_of: None },
        );
        self.settle();
        Ok(())
    }

    fn live_block(&self, stream: StreamId, block: BlockId) -> Result<BlockKey, StreamError> {
        let entry = self
            .streams
            .get(stream)
            .ok_or(StreamError::Unknown(stream))?;
        let Kind::Sending(blocks) = &entry.kind else {
            return Err(StreamError::WrongKind(stream));
        };
        let key = (stream, unwrap(block.0, blocks.next));
        self.blocks_out
            .get(key)
            .map(|_| key)
            .ok_or(StreamError::UnknownBlock(stream, block))
    }

    /// Ends our direction: a deadline stream takes no more blocks, a reliable one is half closed after what was written.
    pub fn finish(&mut self, now: Instant, stream: StreamId) -> Result<(), StreamError> {
        self.advance(now);
        let entry = self
            .streams
            .get_mut(stream)
            .ok_or(StreamError::Unknown(stream))?;
        match &mut entry.kind {
            Kind::Sending(blocks) if !blocks.finished => {
                blocks.finished = true;
                let end = BlockId(wrap(blocks.next));
                self.tell(&Control::Finish { stream, end });
                self.forget_if_done(stream);
            }
            Kind::Bytes(pair) if pair.send.is_writable() => {
                pair.send.finish();
                self.make_ready(stream);
            }
            _ => return Err(StreamError::NotWritable(stream)),
        }
        Ok(())
    }

    /// Up to `max` bytes in order: `None` when nothing can be read now, empty bytes at the end of the stream.
    pub fn read(
        &mut self,
        now: Instant,
        stream: StreamId,
        max: usize,
    ) -> Result<Option<Bytes>, StreamError> {
        let mut read = None;
        let (_, is_end) = self.take_chunks(now, stream, [max, 1], |bytes| read = Some(bytes))?;
        Ok(read.or_else(|| is_end.then(Bytes::new)))
    }

    /// Bytes of a reliable stream that have arrived and wait for earlier ones or for [`Session::read`]; none of what is not such a stream.
    pub fn waiting_bytes(&self, stream: StreamId) -> usize {
        let pair = self.streams.get(stream).and_then(Stream::pair);
        pair.map_or(0, |pair| pair.receive.waiting_bytes())
    }

    /// Passes up to `max` bytes in order to `take`, in chunks as they are kept, at less cost than one [`Session::read`] for each. Returns how
    /// many bytes that were, and whether the stream ends after them.
    pub fn read_chunks(
        &mut self,
        now: Instant,
        stream: StreamId,
        max: usize,
        take: impl FnMut(Bytes),
    ) -> Result<(usize, bool), StreamError> {
        self.take_chunks(now, stream, [max, usize::MAX], take)
    }

    fn take_chunks(
        &mut self,
        now: Instant,
        stream: StreamId,
        [max, most_chunks]: [usize; 2],
        mut take: impl FnMut(Bytes),
    ) -> Result<(usize, bool), StreamError> {
        self.advance(now);
        let entry = self
            .streams
            .get_mut(stream)
            .ok_or(StreamError::Unknown(stream))?;
        let Kind::Bytes(pair) = &mut entry.kind else {
            return Err(StreamError::WrongKind(stream));
        };
        let receive = &mut pair.receive;
        if let Some(code) = receive.reset {
            receive.is_done = true;
            self.forget_if_done(stream);
            return Err(StreamError::Reset { stream, code });
        }
        let (now, largest) = (self.clocks.now(), self.config.largest_window());
        let round = (now, self.paths.read_round(), largest);
        let (mut taken, mut chunks, mut is_end) = (0, 0, false);
        loop {
            // Credit is offered after each call: calls for one chunk each offer the same whatever pages there are.
            let left = match most_chunks {
                1 => (max - taken).min(receive.step_left()),
                _ => max - taken,
            };
            let Some(bytes) = receive.read_measured(left, round) else {
                break;
            };
            taken += bytes.len();
            chunks += 1;
            is_end = bytes.is_empty();
            if is_end {
                break;
            }
            take(bytes);
            if taken >= max || chunks >= most_chunks {
                break;
            }
        }
        if chunks > 0 {
            entry.stats.bytes_received += taken as u64;
            self.inbound.count_share(stream, receive);
            if receive.wants_credit() {
                self.offer_credit(stream);
            }
        }
        if is_end {
            self.forget_if_done(stream);
        }
        Ok((taken, is_end))
    }

    /// Takes the memory of chunks that were read ([`Session::read_chunks`]) and copied for bytes of the stream to come: what it has use for,
    /// within what the peer was granted. The others stay in `spare`. Kept pages count as held ([`Session::held_bytes`]) until the stream
    /// ends or is granted little, or [`Session::release_memory`]. Asks for no poll.
    pub fn recycle(&mut self, stream: StreamId, spare: &mut Vec<SparePage>) {
        if let Some(pair) = self.streams.pair_mut(stream) {
            pair.receive.recycle(spare);
        }
    }

    /// Frees memory that is kept for bytes to come. Asks for no poll.
    pub fn release_memory(&mut self) {
        self.streams.release_memory();
    }

    /// Abandons our direction of a reliable stream; the peer sees [`Event::Reset`].
    pub fn reset(&mut self, now: Instant, stream: StreamId, code: u32) -> Result<(), StreamError> {
        self.advance(now);
        let pair = self.pair(stream)?;
        if pair.send.is_done() {
            return Err(StreamError::NotWritable(stream));
        }
        let held = pair.send.abandon();
        self.bytes_out.on_freed(held);
        self.tell(&Control::Reset { stream, code });
        self.forget_if_done(stream);
        Ok(())
    }

    /// Reads no more of a reliable stream; the peer sees [`Event::Stopped`].
    pub fn stop(&mut self, now: Instant, stream: StreamId, code: u32) -> Result<(), StreamError> {
        self.advance(now);
        let pair = self.pair(stream)?;
        if !pair.receive.stopped {
            pair.receive.stop();
            self.count_share(stream);
            self.tell(&Control::Stop { stream, code });
            self.forget_if_done(stream);
        }
        Ok(())
    }

    pub(super) fn pair(&mut self, stream: StreamId) -> Result<&mut BytesPair, StreamError> {
        match self.streams.get_mut(stream).map(|entry| &mut entry.kind) {
            Some(Kind::Bytes(pair)) => Ok(pair),
            Some(_) => Err(StreamError::WrongKind(stream)),
            None => Err(StreamError::Unknown(stream)),
        }
    }

    pub(super) const fn check_open(&self) -> Result<(), StreamError> {
        if self.closed {
            Err(StreamError::Closed)
        } else {
            Ok(())
        }
    }

    /// Queues a control message.
    pub(super) fn tell(&mut self, message: &Control) {
        self.control.send.push(&message.encode());
        self.poll_requests += 1;
    }

    /// Grows with each call that leaves something to send for which the session may not be polled by itself. Of the calls for byte streams
    /// ([`Session::read`], [`Session::read_chunks`], [`Session::write`], [`Session::write_room`], [`Session::write_bytes`],
    /// [`Session::finish`], [`Session::reset`], [`Session::stop`]) those after which it is the same need no poll: there is nothing to send, or
    /// what was there before is waiting for a path, and no timer is due sooner.
    pub const fn poll_requests(&self) -> u64 {
        self.poll_requests
    }

    /// How much of a stream may wait unsent; a quarter of it is always less than what a stream may hold.
    pub(super) fn unsent_limit(&self) -> u64 {
        let paced = self.paths.bandwidth().bytes_in(UNSENT_TIME);
        paced
            .clamp(LEAST_UNSENT_BYTES, MOST_UNSENT_BYTES)
            .min(self.config.most_held_for_sending())
    }

    /// Tells the application whose `write` was refused that there is room again, in its stream and in the session.
    pub(super) fn wake_writer(&mut self, stream: StreamId) {
        if !self.bytes_out.is_blocked(stream) {
            return;
        }
        let limit = self.unsent_limit();
        if !self.has_session_room(limit) {
            self.bytes_out.writers_starve = true;
            return;
        }
        let until = self.clocks.now() + BULK_MEMORY;
        let Some(pair) = self.streams.pair_mut(stream) else {
            self.bytes_out.unblock(stream);
            return;
        };
        if pair.send.has_room(limit) {
            pair.bulk_until = Some(until);
            self.bytes_out.unblock(stream);
            self.emit(Event::Writable(stream));
        }
    }

    /// The same for all who were refused because the session was full.
    pub(super) fn wake_starved_writers(&mut self) {
        if !self.bytes_out.writers_starve || !self.has_session_room(self.unsent_limit()) {
            return;
        }
        self.bytes_out.writers_starve = false;
        self.bytes_out.writers_are_due = true;
        let blocked = self.bytes_out.all_blocked();
        blocked
            .into_iter()
            .for_each(|stream| self.wake_writer(stream));
    }

    fn has_session_room(&self, unsent_limit: u64) -> bool {
        let limit = self.config.max_send_bytes;
        let room = limit.saturating_sub(self.held_for_sending()) as u64;
        room >= (unsent_limit / 4).min((limit / BYTES_SHARE) as u64)
    }

    /// Puts a reliable stream that has something to send at the end of those of its priority.
    pub(super) fn make_ready(&mut self, stream: StreamId) {
        let Some(entry) = self.streams.get_mut(stream) else {
            return;
        };
        let Kind::Bytes(pair) = &mut entry.kind else {
            return;
        };
        // A path that was left to a better one may be taken for more bytes.
        let is_news = pair.turn.is_none() || self.timers.rechecks();
        if is_news && pair.send.has_something_to_send() {
            self.poll_requests += 1;
        }
        if pair.turn.is_none() {
            let priority = entry.config.priority;
            pair.turn = Some(self.bytes_out.enqueue(priority, stream));
        }
    }

    /// Tells the sender of a new reliable stream how much it may send.
    pub(super) fn open_window(&mut self, stream: StreamId) {
        let Some((share, receive)) = self.share_of(stream) else {
            return;
        };
        receive.open_window(share);
        self.count_share(stream);
        self.offer_credit(stream);
    }

    /// Tells the sender of a reliable stream how much more it may send, within its share of the half of `max_receive_bytes` that
    /// is theirs.
    pub(super) fn offer_credit(&mut self, stream: StreamId) {
        if !self.control.has_room() {
            self.control.crediting.insert(stream);
            return;
        }
        let (now, round) = (self.clocks.now(), self.paths.read_round());
        let Some((share, receive)) = self.share_of(stream) else {
            return;
        };
        let demand = receive.demand(now, round);
        if let Some(limit) = receive.next_credit(demand, share) {
            self.count_share(stream);
            self.tell(&Control::Credit { stream, limit });
        }
    }

    /// Tells the peer how many streams it may open: as many as are not read to the end here and `max_streams` together allow. Nothing
    /// is said while it has opened so few that what it knows without a message suffices.
    pub(super) fn offer_streams(&mut self) {
        if let Some(limit) = self.streams.due_limit()
            && self.control.has_room()
        {
            self.streams.on_told(limit);
            self.tell(&Control::Streams { limit });
        }
    }

    /// What the other reliable streams leave to one, and its receiving direction.
    fn share_of(&mut self, stream: StreamId) -> Option<(Share, &mut ReceiveBytes)> {
        let lately = (self.clocks.now(), self.paths.read_round());
        let receive = &mut self.streams.pair_mut(stream)?.receive;
        let share = self.inbound.share_left_to(stream, receive, lately);
        Some((share, receive))
    }

    /// A reliable stream reads, ends or was granted more.
    pub(super) fn count_share(&mut self, stream: StreamId) {
        if let Some(pair) = self.streams.pair_mut(stream) {
            self.inbound.count_share(stream, &mut pair.receive);
        }
    }

    /// Hands out what has ended, and tells the peer of blocks it need not wait for.
    pub(super) fn settle(&mut self) {
        let mut ended = std::mem::take(&mut self.blocks_out.ended);
        for (block, outcome) in ended.drain(..) {
            let (stream, number) = block.key;
            if self.streams.on_block_ended(stream, number, outcome) {
                let entry = self.streams.get(stream);
                let is_ordered = entry.is_some_and(|entry| entry.config.ordered);
                self.control.add_dropping(stream, is_ordered);
            }
            let block = BlockId(wrap(number));
            self.observers.note(self.clocks.now(), || Fact::BlockEnded {
                stream,
                block,
                outcome,
            });
            self.emit(Event::BlockOutcome {
                stream,
                block,
                outcome,
            });
            self.forget_if_done(stream);
        }
        // Blocks end with each acknowledgement.
        if self.blocks_out.ended.is_empty() && ended.capacity() <= MOST_ENDED_ROOM {
            self.blocks_out.ended = ended;
        }
        self.wake_starved_writers();
        self.warn_of_overload();
    }

    fn warn_of_overload(&mut self) {
        if !self.timers.may_warn(self.clocks.now()) {
            return;
        }
        let Some(wanted) = self.blocks_out.overloaded.take() else {
            return;
        };
        self.timers.on_overload(self.clocks.now());
        let wanted = wanted.max(self.streams.hinted_bandwidth());
        let available = self.paths.bandwidth();
        // A single burst may cost a block although the paths carry the rate.
        if wanted > available && available > starhaul_units::Bandwidth::ZERO {
            self.emit(Event::Overload { wanted, available });
        }
    }

    /// Forgets a stream of which nothing more will be heard.
    pub(super) fn forget_if_done(&mut self, stream: StreamId) {
        let is_done = self.streams.get(stream).is_some_and(Stream::is_done);
        // The end of a stream does not wait for that of others.
        if !is_done || self.control.hurry_dropping(stream) {
            return;
        }
        if let Some((priority, pair)) = self.streams.end(stream) {
            let turn = pair.turn.map(|turn| (priority, turn));
            self.bytes_out.forget(stream, turn);
            self.inbound.forget_share(stream, &pair.receive);
        }
        self.offer_streams();
    }
}

#[cfg(test)]
mod tests;
