//! What arrives: datagrams of the peer, and the word of the transport below.

use std::time::{Duration, Instant};

use bytes::Bytes;
use starhaul_paths::PathId;

use super::{CONTROL_WINDOW, Kind, Session, Stream};
use crate::{
    control::Control,
    receive::{
        blocks::{Complete, Partial, Taken},
        bytes::ReceiveBytes,
    },
    received::Arrival,
    send::block::FragmentId,
    sent::{BlockKey, Fated, Item},
    types::{BlockId, Event, Outcome, ProtocolError, StreamId},
    wire::{self, Ack, BlockAck, Body, Fragment, PathAck, Piece, unwrap, wrap},
};

/// Most blocks of one message that are reported missing one by one.
const MAX_MISSING_EVENTS: u64 = 256;

impl Session {
    /// A datagram arrived over `path`. An error means that the peer broke the protocol: close the session.
    pub fn handle_datagram(
        &mut self,
        now: Instant,
        path: PathId,
        payload: Bytes,
    ) -> Result<(), ProtocolError> {
        self.advance(now);
        if self.closed {
            return Ok(());
        }
        let bytes = payload.len();
        let (header, body) = wire::decode(payload)?;
        let Some(entry) = self.paths.get_mut(path) else {
            return Ok(());
        };
        entry.counters.bytes_received += bytes as u64;
        entry.monitor.on_heard(self.now);
        let arrival = entry.received.insert(self.now, header.sequence);
        let wants_ack = !matches!(body, Body::Ack(_));
        if wants_ack {
            self.acks.on_arrival(self.now, arrival != Arrival::Next);
        }
        if arrival == Arrival::Duplicate {
            return Ok(());
        }
        let sent = self.clocks.peer_time(header.sent_micros);
        match body {
            Body::Fragment(fragment) => self.on_fragment(path, sent, &fragment)?,
            Body::Piece(piece) => self.on_piece(piece)?,
            Body::Ack(ack) => self.on_ack(sent, ack)?,
            Body::Probe | Body::Unknown => {}
        }
        self.settle();
        Ok(())
    }

    /// The transport below saw the datagram with this sequence number acknowledged, `rtt` after it was sent.
    pub fn handle_transport_ack(
        &mut self,
        now: Instant,
        path: PathId,
        sequence: u32,
        _rtt: Duration,
    ) {
        self.advance(now);
        let Some(entry) = self.paths.get_mut(path) else {
            return;
        };
        let sequence = unwrap(sequence, entry.sent.next_sequence());
        if let Some(fated) = entry.sent.ack(sequence) {
            entry.acked.insert(sequence, sequence + 1);
            self.on_arrived(path, fated, None);
            self.find_lost();
            self.settle();
        }
    }

    /// The transport below declared the datagram with this sequence number lost.
    pub fn handle_transport_loss(&mut self, now: Instant, path: PathId, sequence: u32) {
        self.advance(now);
        let Some(entry) = self.paths.get_mut(path) else {
            return;
        };
        let sequence = unwrap(sequence, entry.sent.next_sequence());
        if let Some(fated) = entry.sent.lose(sequence) {
            self.on_loss(path, fated);
            self.settle();
        }
    }

    fn on_ack(&mut self, replied: u64, ack: Ack) -> Result<(), ProtocolError> {
        for block in ack.blocks {
            self.on_block_ack(block)?;
        }
        for path in ack.paths {
            self.on_path_ack(path, replied)?;
        }
        self.find_lost();
        Ok(())
    }

    fn on_path_ack(&mut self, ack: PathAck, replied: u64) -> Result<(), ProtocolError> {
        let id = PathId(ack.path);
        let received = self.clocks.peer_time(ack.received_micros);
        let Some(path) = self.paths.get_mut(id) else {
            return Ok(());
        };
        let next = path.sent.next_sequence();
        let newest = ack.ranges.first().map(|(_, last)| unwrap(*last, next));
        let mut arrived = Vec::new();
        for (first, last) in ack.ranges {
            let (first, last) = (unwrap(first, next), unwrap(last, next));
            if last >= next || first > last {
                return Err(ProtocolError::NeverSent("a datagram"));
            }
            let gaps: Vec<_> = path
                .acked
                .gaps(first.max(path.sent.base()), last + 1)
                .collect();
            for (start, end) in gaps {
                arrived.extend((start..end).filter_map(|sequence| path.sent.ack(sequence)));
            }
            path.acked.insert(first, last + 1);
        }
        for fated in arrived {
            let is_newest = Some(fated.sequence) == newest;
            if is_newest {
                self.clocks
                    .on_exchange(self.now, fated.sent, received, replied);
            }
            self.on_arrived(id, fated, is_newest.then_some(received));
        }
        Ok(())
    }

    /// First word that a datagram of ours arrived.
    fn on_arrived(&mut self, id: PathId, fated: Fated, received: Option<u64>) {
        let one_way = received.and_then(|received| self.clocks.one_way(fated.sent, received));
        if let Some(path) = self.paths.get_mut(id) {
            if fated.was_lost {
                path.monitor
                    .on_late_ack(self.now, wrap(fated.sequence), fated.sent);
                path.counters.datagrams_lost = path.counters.datagrams_lost.saturating_sub(1);
            } else {
                path.monitor.on_acked(
                    self.now,
                    wrap(fated.sequence),
                    fated.sent,
                    fated.bytes,
                    one_way,
                );
            }
        }
        match fated.item {
            Item::Fragment { block, code, index } => {
                let fragment = FragmentId { code, index };
                if self
                    .sender
                    .on_acked(self.now, block, fragment, fated.given_up)
                {
                    self.deliver_outcome(block, received, false);
                }
            }
            Item::Piece {
                stream,
                start,
                end,
                fin,
            } => self.on_piece_arrived(stream, start, end, fin),
            Item::Probe | Item::Ack => {}
        }
    }

    fn on_piece_arrived(&mut self, stream: StreamId, start: u64, end: u64, fin: bool) {
        if stream == StreamId::CONTROL {
            self.control.send.on_acked(start, end, fin);
            let limit = self.control.send.acknowledged() + CONTROL_WINDOW;
            self.control.send.grant(limit);
            return;
        }
        let unsent_limit = self.unsent_limit();
        let Some(Stream {
            kind: Kind::Bytes(pair),
            ..
        }) = self.streams.get_mut(&stream)
        else {
            return;
        };
        pair.send.on_acked(start, end, fin);
        if pair.send.blocked && pair.send.room(unsent_limit) >= unsent_limit / 4 {
            pair.send.blocked = false;
            self.emit(Event::Writable(stream));
        }
        self.forget_if_done(stream);
    }

    fn on_block_ack(&mut self, ack: BlockAck) -> Result<(), ProtocolError> {
        let completed = self.clocks.peer_time(ack.completed_micros);
        let Some(entry) = self.streams.get(&ack.stream) else {
            let ours = ack.stream.opener() == self.side && ack.stream.0 < self.next_stream;
            return if ours {
                Ok(())
            } else {
                Err(ProtocolError::NeverSent("a block"))
            };
        };
        let Kind::Sending(blocks) = &entry.kind else {
            return Err(ProtocolError::NeverSent("a block"));
        };
        let number = unwrap(ack.block.0, blocks.next);
        if number >= blocks.next {
            return Err(ProtocolError::NeverSent("a block"));
        }
        let key = (ack.stream, number);
        if self.sender.get(key).is_some_and(|block| !block.is_split()) {
            return Err(ProtocolError::NeverSent("a block"));
        }
        self.deliver_outcome(key, Some(completed), ack.recovered);
        Ok(())
    }

    /// A block of ours is whole at the receiver since `completed` of the peer's clock.
    fn deliver_outcome(
        &mut self,
        key: BlockKey,
        completed: Option<u64>,
        recovered_by_redundancy: bool,
    ) {
        let Some(block) = self.sender.get(key) else {
            return;
        };
        let measured = completed.and_then(|completed| self.clocks.one_way(block.born, completed));
        let elapsed = self.now.saturating_duration_since(block.born);
        // Without a common clock the acknowledgement's way back is taken off.
        let latency = measured
            .unwrap_or_else(|| elapsed.saturating_sub(self.paths.least_delay()))
            .min(elapsed);
        let outcome = Outcome::Delivered {
            latency,
            on_time: latency <= block.deadline.saturating_duration_since(block.born),
            recovered_by_redundancy,
            recovered_by_retransmission: block.retransmitted,
        };
        self.sender.end(self.now, key, outcome);
    }

    /// Declares lost what was overtaken or is overdue on any path.
    pub(super) fn find_lost(&mut self) {
        let ids: Vec<PathId> = self.paths.iter().map(|(id, _)| id).collect();
        for id in ids {
            while let Some(path) = self.paths.get_mut(id) {
                let Some(fated) = path.sent.next_lost(self.now, path.monitor.overdue_after())
                else {
                    path.sent.prune(self.now);
                    break;
                };
                self.on_loss(id, fated);
            }
        }
    }

    fn on_loss(&mut self, id: PathId, fated: Fated) {
        if let Some(path) = self.paths.get_mut(id) {
            path.counters.datagrams_lost += 1;
            path.monitor
                .on_lost(self.now, wrap(fated.sequence), fated.bytes);
        }
        if !fated.given_up {
            self.on_item_lost(fated.item);
        }
    }

    /// What a datagram carried must be sent again, if that still makes sense.
    pub(super) fn on_item_lost(&mut self, item: Item) {
        match item {
            Item::Fragment { block, code, index } => {
                self.sender
                    .on_lost(self.now, block, FragmentId { code, index });
            }
            Item::Piece {
                stream: StreamId::CONTROL,
                start,
                end,
                fin,
            } => {
                self.control.send.on_lost(start, end, fin);
            }
            Item::Piece {
                stream,
                start,
                end,
                fin,
            } => {
                if let Some(Stream {
                    kind: Kind::Bytes(pair),
                    ..
                }) = self.streams.get_mut(&stream)
                    && pair.send.on_lost(start, end, fin)
                {
                    self.make_ready(stream);
                }
            }
            Item::Probe | Item::Ack => {}
        }
    }

    fn on_fragment(
        &mut self,
        path: PathId,
        sent: u64,
        fragment: &Fragment,
    ) -> Result<(), ProtocolError> {
        let stream = fragment.stream;
        if stream == StreamId::CONTROL || stream.opener() == self.side {
            return Err(ProtocolError::StreamState {
                stream,
                what: "blocks on a stream that carries none from it",
            });
        }
        let number = match self.streams.get(&stream).map(|entry| &entry.kind) {
            Some(Kind::Receiving(blocks)) => {
                let number = unwrap(fragment.block.0, blocks.ended.end());
                if blocks.ended.contains(number) {
                    return Ok(());
                }
                number
            }
            Some(_) => {
                return Err(ProtocolError::StreamState {
                    stream,
                    what: "blocks on a reliable stream",
                });
            }
            // Its opening is still on its way, or the stream has ended.
            None if stream.0 >= self.peer_streams_end => u64::from(fragment.block.0),
            None => return Ok(()),
        };
        let key = (stream, number);
        let born = unwrap(fragment.born_micros, sent).min(sent);
        let receiver = &mut self.receiver;
        if receiver
            .early
            .get(&stream)
            .is_some_and(|blocks| blocks.contains_key(&number))
        {
            return Ok(());
        }
        let partial = receiver.partials.entry(key).or_insert_with(|| {
            let partial = Partial::new(fragment, born, receiver.arrivals);
            receiver.by_arrival.insert(receiver.arrivals, key);
            receiver.arrivals += 1;
            receiver.held_bytes += partial.held_bytes;
            partial
        });
        let before = partial.held_bytes;
        let taken = partial.insert(&mut receiver.codec, fragment);
        receiver.held_bytes += partial.held_bytes - before;
        if let Taken::Complete(complete) = taken {
            self.receiver.remove(key);
            self.on_complete(path, sent, key, complete);
        }
        self.make_room();
        Ok(())
    }

    fn on_complete(&mut self, path: PathId, sent: u64, key: BlockKey, complete: Complete) {
        let (stream, number) = key;
        let completed_micros = wrap(self.clocks.micros(self.now));
        let block = BlockId(wrap(number));
        self.acks.on_block(
            self.now,
            BlockAck {
                stream,
                block,
                completed_micros,
                recovered: complete.recovered,
            },
        );
        let latency = self.latency(path, sent, &complete);
        let Some(entry) = self.streams.get_mut(&stream) else {
            self.receiver.held_bytes += complete.data.len();
            self.receiver
                .early
                .entry(stream)
                .or_default()
                .insert(number, complete);
            return;
        };
        let Kind::Receiving(blocks) = &mut entry.kind else {
            return;
        };
        blocks.ended.insert(number, number + 1);
        if entry.config.ordered {
            self.receiver.held_bytes += complete.data.len();
            blocks.waiting.insert(number, complete);
            self.release_ordered(stream);
        } else {
            self.hand_on(stream, number, complete.data, latency);
        }
        self.finish_received(stream);
    }

    fn latency(&self, path: PathId, sent: u64, complete: &Complete) -> Duration {
        self.clocks
            .since_peer(self.now, complete.born_micros)
            .unwrap_or_else(|| {
                let way = self
                    .paths
                    .get(path)
                    .map(|path| path.monitor.one_way_delay())
                    .unwrap_or_default();
                way + Duration::from_micros(sent.saturating_sub(complete.born_micros))
            })
    }

    fn hand_on(&mut self, stream: StreamId, number: u64, data: Bytes, latency: Duration) {
        if let Some(entry) = self.streams.get_mut(&stream) {
            entry.stats.blocks_received += 1;
            entry.stats.bytes_received += data.len() as u64;
        }
        self.emit(Event::BlockReceived {
            stream,
            block: BlockId(wrap(number)),
            data,
            latency,
        });
    }

    /// Hands on the blocks of an ordered stream before which none is missing any more.
    fn release_ordered(&mut self, stream: StreamId) {
        while let Some(Stream {
            kind: Kind::Receiving(blocks),
            ..
        }) = self.streams.get_mut(&stream)
        {
            if let Some(complete) = blocks.waiting.remove(&blocks.next) {
                let number = blocks.next;
                blocks.next += 1;
                self.receiver.held_bytes -= complete.data.len();
                let latency = self
                    .clocks
                    .since_peer(self.now, complete.born_micros)
                    .unwrap_or_default();
                self.hand_on(stream, number, complete.data, latency);
            } else if blocks.ended.contains(blocks.next) {
                let after = blocks
                    .ended
                    .gaps(blocks.next, u64::MAX)
                    .next()
                    .map_or(u64::MAX, |(start, _)| start);
                blocks.next = blocks
                    .waiting
                    .first_key_value()
                    .map_or(after, |(first, _)| after.min(*first));
            } else {
                return;
            }
        }
    }

    /// Says so once the peer has finished a stream and every block of it has ended.
    fn finish_received(&mut self, stream: StreamId) {
        if let Some(Stream {
            kind: Kind::Receiving(blocks),
            ..
        }) = self.streams.get(&stream)
            && blocks.is_finished()
        {
            self.emit(Event::StreamFinished(stream));
            self.forget_if_done(stream);
        }
    }

    /// Keeps what waits for reassembly within its bound: the oldest goes.
    fn make_room(&mut self) {
        while self.receiver.held_bytes > self.config.max_receive_bytes {
            let Some((_, key)) = self
                .receiver
                .by_arrival
                .first_key_value()
                .map(|(at, key)| (*at, *key))
            else {
                break;
            };
            self.receiver.remove(key);
            self.receiver.dropped += 1;
        }
        while self.receiver.held_bytes > self.config.max_receive_bytes {
            let Some((_, blocks)) = self.receiver.early.pop_first() else {
                break;
            };
            self.receiver.dropped += blocks.len() as u64;
            let freed: usize = blocks.values().map(|complete| complete.data.len()).sum();
            self.receiver.held_bytes = self.receiver.held_bytes.saturating_sub(freed);
        }
        if self.receiver.held_bytes > self.config.max_receive_bytes {
            self.skip_missing();
        }
        self.make_room_for_events();
    }

    /// An ordered stream holds too much: what it waits for is given up.
    fn skip_missing(&mut self) {
        let waiting: Vec<StreamId> = self
            .streams
            .iter()
            .filter(|(_, entry)| matches!(&entry.kind, Kind::Receiving(blocks) if !blocks.waiting.is_empty()))
            .map(|(id, _)| *id)
            .collect();
        for stream in waiting {
            if let Some(Stream {
                kind: Kind::Receiving(blocks),
                ..
            }) = self.streams.get_mut(&stream)
                && let Some((&first, _)) = blocks.waiting.first_key_value()
            {
                self.receiver.dropped += blocks.ended.insert(blocks.next, first);
                self.release_ordered(stream);
            }
        }
    }

    fn on_piece(&mut self, piece: Piece) -> Result<(), ProtocolError> {
        let stream = piece.stream;
        if stream == StreamId::CONTROL {
            return self.on_control_piece(piece);
        }
        let Some(entry) = self.streams.get_mut(&stream) else {
            if stream.opener() != self.side && stream.0 >= self.peer_streams_end {
                return self.on_early_piece(piece);
            }
            return Ok(());
        };
        let Kind::Bytes(pair) = &mut entry.kind else {
            return Err(ProtocolError::StreamState {
                stream,
                what: "bytes on a deadline stream",
            });
        };
        let readable = pair
            .receive
            .insert(stream, piece.offset, piece.fin, piece.payload)?;
        if readable && !pair.receive.announced {
            pair.receive.announced = true;
            self.emit(Event::Readable(stream));
        }
        self.forget_if_done(stream);
        Ok(())
    }

    /// A piece of a stream whose opening is still on its way; it was acknowledged, so it must be kept.
    fn on_early_piece(&mut self, piece: Piece) -> Result<(), ProtocolError> {
        let early = &mut self.receiver.early_bytes;
        if early.len() >= self.config.max_streams && !early.contains_key(&piece.stream) {
            return Err(ProtocolError::Limit("streams"));
        }
        let receive = early.entry(piece.stream).or_insert_with(ReceiveBytes::new);
        receive
            .insert(piece.stream, piece.offset, piece.fin, piece.payload)
            .map(drop)
    }

    fn on_control_piece(&mut self, piece: Piece) -> Result<(), ProtocolError> {
        if piece.fin {
            return Err(ProtocolError::StreamState {
                stream: StreamId::CONTROL,
                what: "the control stream does not end",
            });
        }
        self.control.receive.slide_credit(CONTROL_WINDOW);
        self.control
            .receive
            .insert(StreamId::CONTROL, piece.offset, false, piece.payload)?;
        while let Some(bytes) = self.control.receive.read(usize::MAX) {
            self.control.buffer.extend_from_slice(&bytes);
        }
        while let Some(message) = Control::decode(&mut self.control.buffer)? {
            if let Some(message) = message {
                self.on_control(message)?;
            }
        }
        Ok(())
    }

    fn on_control(&mut self, message: Control) -> Result<(), ProtocolError> {
        match message {
            Control::Open { stream, config } => self.on_open(stream, config),
            Control::Finish { stream, end } => self.on_finish(stream, end),
            Control::Dropped { stream, ranges } => self.on_dropped(stream, &ranges),
            Control::Reset { stream, code } => self.with_pair(stream, |pair| {
                pair.receive.on_reset(code);
                Event::Reset { stream, code }
            }),
            Control::Stop { stream, code } => self.with_pair(stream, |pair| {
                pair.send.abandon();
                Event::Stopped { stream, code }
            }),
            Control::Credit { stream, limit } => {
                match self.streams.get_mut(&stream).map(|entry| &mut entry.kind) {
                    Some(Kind::Bytes(pair)) => pair.send.grant(limit),
                    Some(_) => {
                        return Err(ProtocolError::StreamState {
                            stream,
                            what: "credit on a deadline stream",
                        });
                    }
                    None => return Ok(()),
                }
                self.make_ready(stream);
                Ok(())
            }
        }
    }

    fn with_pair(
        &mut self,
        stream: StreamId,
        act: impl FnOnce(&mut super::BytesPair) -> Event,
    ) -> Result<(), ProtocolError> {
        match self.streams.get_mut(&stream).map(|entry| &mut entry.kind) {
            Some(Kind::Bytes(pair)) => {
                let event = act(pair);
                self.emit(event);
                self.forget_if_done(stream);
                Ok(())
            }
            Some(_) => Err(ProtocolError::StreamState {
                stream,
                what: "reset or stop on a deadline stream",
            }),
            None => Ok(()),
        }
    }

    fn on_open(
        &mut self,
        stream: StreamId,
        config: crate::types::StreamConfig,
    ) -> Result<(), ProtocolError> {
        if stream == StreamId::CONTROL
            || stream.opener() == self.side
            || stream.0 < self.peer_streams_end
        {
            return Err(ProtocolError::StreamState {
                stream,
                what: "opened twice or with a number of ours",
            });
        }
        let open = self
            .streams
            .keys()
            .filter(|id| id.opener() != self.side)
            .count();
        if open >= self.config.max_streams {
            return Err(ProtocolError::Limit("streams"));
        }
        self.peer_streams_end = stream.0.saturating_add(1);
        self.streams
            .insert(stream, Stream::of_peer(stream, config.clone()));
        self.emit(Event::StreamOpened { stream, config });
        self.adopt_early(stream);
        self.offer_credit(stream);
        // What came for numbers that were skipped belongs to no stream.
        self.receiver.forget_below(self.peer_streams_end);
        Ok(())
    }

    /// Takes up what arrived before the stream's opening.
    fn adopt_early(&mut self, stream: StreamId) {
        if let Some(receive) = self.receiver.early_bytes.remove(&stream)
            && let Some(Stream {
                kind: Kind::Bytes(pair),
                ..
            }) = self.streams.get_mut(&stream)
        {
            pair.receive = receive;
            if pair.receive.can_read() {
                pair.receive.announced = true;
                self.emit(Event::Readable(stream));
            }
        }
        for (number, complete) in self.receiver.early.remove(&stream).unwrap_or_default() {
            self.receiver.held_bytes = self.receiver.held_bytes.saturating_sub(complete.data.len());
            let Some(entry) = self.streams.get_mut(&stream) else {
                return;
            };
            let Kind::Receiving(blocks) = &mut entry.kind else {
                return;
            };
            blocks.ended.insert(number, number + 1);
            if entry.config.ordered {
                self.receiver.held_bytes += complete.data.len();
                blocks.waiting.insert(number, complete);
            } else {
                let latency = self
                    .clocks
                    .since_peer(self.now, complete.born_micros)
                    .unwrap_or_default();
                self.hand_on(stream, number, complete.data, latency);
            }
        }
        self.release_ordered(stream);
    }

    fn on_finish(&mut self, stream: StreamId, end: BlockId) -> Result<(), ProtocolError> {
        match self.streams.get_mut(&stream).map(|entry| &mut entry.kind) {
            Some(Kind::Receiving(blocks)) => blocks.end = Some(unwrap(end.0, blocks.ended.end())),
            Some(_) => {
                return Err(ProtocolError::StreamState {
                    stream,
                    what: "finished, but it is not a deadline stream of the peer",
                });
            }
            None => {}
        }
        self.finish_received(stream);
        Ok(())
    }

    fn on_dropped(
        &mut self,
        stream: StreamId,
        ranges: &[(BlockId, BlockId)],
    ) -> Result<(), ProtocolError> {
        for &(first, last) in ranges {
            let Some(entry) = self.streams.get_mut(&stream) else {
                return Ok(());
            };
            let Kind::Receiving(blocks) = &mut entry.kind else {
                return Err(ProtocolError::StreamState {
                    stream,
                    what: "blocks dropped on a stream that carries none",
                });
            };
            let first = unwrap(first.0, blocks.ended.end());
            let last = unwrap(last.0, first);
            if last < first {
                return Err(ProtocolError::Malformed("control message"));
            }
            let fresh: Vec<u64> = blocks
                .ended
                .gaps(first, last + 1)
                .flat_map(|(start, end)| start..end)
                .take(MAX_MISSING_EVENTS as usize)
                .collect();
            blocks.ended.insert(first, last + 1);
            self.receiver.remove_range((stream, first), (stream, last));
            for number in fresh {
                self.emit(Event::BlockMissing {
                    stream,
                    block: BlockId(wrap(number)),
                });
            }
        }
        self.release_ordered(stream);
        self.finish_received(stream);
        Ok(())
    }
}

impl super::Receiver {
    pub(super) fn remove(&mut self, key: BlockKey) {
        if let Some(partial) = self.partials.remove(&key) {
            self.by_arrival.remove(&partial.arrival);
            self.held_bytes = self.held_bytes.saturating_sub(partial.held_bytes);
        }
    }

    fn remove_range(&mut self, first: BlockKey, last: BlockKey) {
        let keys: Vec<BlockKey> = self
            .partials
            .range(first..=last)
            .map(|(key, _)| *key)
            .collect();
        keys.into_iter().for_each(|key| self.remove(key));
    }

    /// Drops what belongs to streams below `end` that were never opened and now cannot be.
    fn forget_below(&mut self, end: u32) {
        self.early_bytes = self.early_bytes.split_off(&StreamId(end));
        let kept = self.early.split_off(&StreamId(end));
        for blocks in std::mem::replace(&mut self.early, kept).into_values() {
            let freed: usize = blocks.values().map(|complete| complete.data.len()).sum();
            self.held_bytes = self.held_bytes.saturating_sub(freed);
        }
    }
}
