//! What leaves: for a path that may send now, the one datagram that should.

use std::time::{Duration, Instant};

use bytes::Bytes;
use starhaul_paths::{PathId, RangeSet};

use super::{Kind, RECHECK, Session, Stream};
use crate::{
    choice,
    control::{Control, MAX_DROPPED},
    send::{Choice, block::Purpose, bytes::NextPiece},
    item::Item,
    types::{BlockId, StreamId},
    wire::{self, Ack, Fragment, MAX_ACK_PATHS, PIECE_HEADER_BYTES, PathAck, Piece, wrap},
};

/// After waiting this long for the fastest path an acknowledgement takes any.
pub(super) const ACK_PATIENCE: Duration = Duration::from_millis(2);
/// Of this many datagrams one carries a reliable stream that waits, however much deadline data there is: a proxied TCP
/// connection that starves would be torn down by its ends.
const BYTES_SHARE: u32 = 20;
/// Control messages that only say how things stand wait while this much is on its way.
pub(super) const MAX_CONTROL_HELD: u64 = super::CONTROL_WINDOW / 2;

/// A datagram to put on a path.
#[derive(Clone, Debug)]
pub struct PathDatagram {
    /// The payload of one QUIC DATAGRAM frame.
    pub payload: Bytes,
    /// Its number on the path; report its fate with it.
    pub sequence: u32,
}

impl Session {
    /// What should leave on `path` now; call it only when the path's window and pacer allow a datagram of the largest size, and
    /// until it gives nothing. `None` also means that another path is the better choice for what waits.
    pub fn poll_datagram(&mut self, now: Instant, path: PathId) -> Option<PathDatagram> {
        self.advance(now);
        if self.closed || self.paths.get(path).is_none() {
            return None;
        }
        self.tell_state();
        let datagram = self.poll_ack(path).or_else(|| self.poll_probe(path));
        if datagram.is_some() || !self.paths.is_usable(path) {
            return datagram;
        }
        self.poll_control_piece(path)
            .or_else(|| self.poll_question(path))
            .or_else(|| self.poll_data(path))
    }

    /// A datagram of `bytes` without content, to find out whether packets of that size come through on `path`; `None` when the session
    /// has no such path. Its fate is for the caller alone: do not report it.
    pub fn poll_size_probe(
        &mut self,
        now: Instant,
        path: PathId,
        bytes: usize,
    ) -> Option<PathDatagram> {
        self.advance(now);
        if self.closed {
            return None;
        }
        let padded = |header| wire::encode_padded_probe(header, bytes);
        self.number(path, Item::Padding, padded)
    }

    fn poll_data(&mut self, path: PathId) -> Option<PathDatagram> {
        let share = !self.bytes_ready.is_empty() && self.bytes_starved >= BYTES_SHARE;
        if share && let Some(datagram) = self.poll_bytes(path) {
            return Some(datagram);
        }
        if let Some(datagram) = self.poll_block(path) {
            self.bytes_starved = if self.bytes_ready.is_empty() {
                0
            } else {
                self.bytes_starved.saturating_add(1)
            };
            return Some(datagram);
        }
        let datagram = self
            .poll_bytes(path)
            .or_else(|| self.poll_straggler(path))
            .or_else(|| self.poll_spare(path));
        if datagram.is_none() && (self.sender.waits() || !self.bytes_ready.is_empty()) {
            self.recheck_at = Some(self.now + RECHECK);
        }
        datagram
    }

    fn poll_ack(&mut self, path: PathId) -> Option<PathDatagram> {
        let due = self.ack_due().filter(|due| *due <= self.now)?;
        let fastest = self.paths.fastest(self.now);
        // A repetition tries another path than the first saying, if there is one about as fast.
        let here = fastest == Some(path)
            || due + ACK_PATIENCE <= self.now
            || (self.acks.is_repeat() && self.is_about_as_fast(path));
        if !here {
            return None;
        }
        let clocks = &self.clocks;
        let paths = self
            .paths
            .iter()
            .filter(|(_, path)| path.received.newest_at.is_some())
            .take(MAX_ACK_PATHS);
        let paths = paths.map(|(id, path)| {
            let received = path
                .received
                .newest_at
                .map(|at| clocks.micros(at))
                .unwrap_or_default();
            PathAck::new(id.0, wrap(received), &path.received.ranges)
        });
        let mut ack = Ack {
            paths: paths.collect(),
            blocks: self.acks.take(self.now),
            reconfigurations: self.outgoing_signals.take_events(self.now),
            segments: self.outgoing_signals.take_segments(self.now),
        };
        ack.fit(self.paths.get(path)?.max_datagram());
        self.number(path, Item::Ack, |header| ack.encode(header))
    }

    /// When an acknowledgement should leave next.
    pub(super) fn ack_due(&self) -> Option<Instant> {
        let signals = self.outgoing_signals.due();
        self.acks.due().into_iter().chain(signals).min()
    }

    fn is_about_as_fast(&self, path: PathId) -> bool {
        let least = self.paths.least_delay();
        self.paths.is_usable(path)
            && self
                .paths
                .get(path)
                .is_some_and(|path| path.monitor.one_way_delay() <= least * 2)
    }

    fn poll_probe(&mut self, path: PathId) -> Option<PathDatagram> {
        let entry = self.paths.get_mut(path)?;
        if entry.probe_at > self.now {
            return None;
        }
        self.number(path, Item::Probe, wire::encode_probe)
    }

    fn poll_control_piece(&mut self, path: PathId) -> Option<PathDatagram> {
        let capacity = self.piece_capacity(path)?;
        if let Some((mut piece, first)) = self.control.copy
            && first != path
        {
            self.control.copy = None;
            // It was cut for the other path.
            piece.end = piece.end.min(piece.start + capacity);
            return self.send_control(path, piece);
        }
        let piece = self.control.send.next_piece(capacity)?;
        let backlog = self.control.send.unsent();
        if !choice::takes_at_any_cost(
            &self.paths,
            self.now,
            path,
            backlog,
            piece.end - piece.start,
        ) {
            return None;
        }
        self.control.send.on_sent(piece);
        self.control.copy = (self.paths.len() > 1).then_some((piece, path));
        self.send_control(path, piece)
    }

    fn send_control(&mut self, path: PathId, piece: NextPiece) -> Option<PathDatagram> {
        let slices: Vec<u8> = self
            .control
            .send
            .slices(piece.start, piece.end)
            .flatten()
            .copied()
            .collect();
        let NextPiece {
            start, end, fin, ..
        } = piece;
        let whole = slices.len() as u64 == end - start;
        // A copy may have been overtaken by the acknowledgement of the first.
        if !whole {
            return None;
        }
        self.number(
            path,
            Item::Piece {
                stream: StreamId::CONTROL,
                start,
                end,
                fin,
            },
            |header| {
                Piece::encode(
                    StreamId::CONTROL,
                    start,
                    fin,
                    slices.len(),
                    std::iter::once(slices.as_slice()),
                    header,
                )
            },
        )
    }

    fn poll_question(&mut self, path: PathId) -> Option<PathDatagram> {
        let question = self.sender.next_question(self.now, &self.paths, path)?;
        self.send_fragment(path, question)
    }

    fn poll_block(&mut self, path: PathId) -> Option<PathDatagram> {
        let choice = self.sender.pick(self.now, &self.paths, path);
        self.settle();
        self.send_fragment(path, choice?)
    }

    fn poll_spare(&mut self, path: PathId) -> Option<PathDatagram> {
        let choice = self.sender.pick_spare(self.now, &self.paths, path)?;
        self.send_fragment(path, choice)
    }

    fn send_fragment(&mut self, path: PathId, mut choice: Choice) -> Option<PathDatagram> {
        if !self.sender.split(self.now, &self.paths, path, choice.block) {
            self.settle();
            return None;
        }
        let block = self.sender.get(choice.block)?;
        if choice.purpose == Purpose::Data {
            choice.fragment = block.next_fresh()?;
        }
        let id = choice.fragment;
        let (payload, length) = block.payload(id)?;
        let (last_code, data_count, redundancy_count, padding) = block.shape(id.code)?;
        let (stream, number) = choice.block;
        let fragment = Fragment {
            stream,
            block: BlockId(wrap(number)),
            born_micros: wrap(self.clocks.micros(block.born)),
            code: id.code,
            last_code,
            index: id.index,
            data_count,
            redundancy_count,
            padding,
            payload,
        };
        // The path's largest datagram may have shrunk since the block was cut.
        if length + wire::FRAGMENT_HEADER_BYTES > self.paths.get(path)?.max_datagram() {
            return None;
        }
        let acknowledged_after = self.paths.get(path)?.monitor.acknowledged_after();
        self.sender.on_sent(self.now, choice, path, acknowledged_after);
        let item = Item::Fragment {
            block: choice.block,
            fragment: id,
        };
        self.number(path, item, |header| fragment.encode(header, length))
    }

    /// A piece of the first reliable stream, by priority and in turn, for which this path is a good choice.
    fn poll_bytes(&mut self, path: PathId) -> Option<PathDatagram> {
        let capacity = self.piece_capacity(path)?;
        while let Some(ready) = self.bytes_ready.pop_first() {
            let (_, turn, stream) = ready;
            let Some(Stream {
                kind: Kind::Bytes(pair),
                ..
            }) = self.streams.get_mut(&stream)
            else {
                continue;
            };
            let Some(piece) = pair.send.next_piece(capacity) else {
                pair.turn = None;
                continue;
            };
            let bulk = self.blocked.contains(&stream)
                || pair.bulk_until.is_some_and(|until| until > self.now);
            let bytes = piece.end - piece.start;
            let (paths, now) = (&self.paths, self.now);
            let takes = match (piece.retransmission, bulk) {
                (true, true) => choice::takes_at_any_cost(paths, now, path, bytes, bytes),
                (true, false) => choice::takes_piece(paths, now, path, bytes, bytes),
                (false, true) => choice::takes_piece(paths, now, path, u64::MAX, bytes),
                (false, false) => choice::takes_piece(paths, now, path, pair.send.unsent(), bytes),
            };
            if !takes {
                self.bytes_ready.insert((ready.0, turn, stream));
                return None;
            }
            self.bytes_starved = 0;
            return self.send_piece(path, ready, piece);
        }
        None
    }

    fn send_piece(
        &mut self,
        path: PathId,
        (priority, _, stream): (u8, u64, StreamId),
        piece: NextPiece,
    ) -> Option<PathDatagram> {
        let sequence = self.paths.get(path)?.monitor.next_sequence();
        let header = self.clocks.header(self.now, sequence);
        let Some(Stream {
            kind: Kind::Bytes(pair),
            ..
        }) = self.streams.get_mut(&stream)
        else {
            return None;
        };
        let NextPiece {
            start, end, fin, ..
        } = piece;
        let length = usize::try_from(end - start).ok()?;
        let payload = Piece::encode(
            stream,
            start,
            fin,
            length,
            pair.send.slices(start, end),
            header,
        );
        pair.send.on_sent(piece);
        if let Some(arrives) = choice::straggles(&self.paths, self.now, path, length as u64) {
            pair.send.on_straggling(piece, arrives);
            self.straggling.insert(stream);
        }
        self.bytes_turn += 1;
        pair.turn = Some(self.bytes_turn);
        self.bytes_ready.insert((priority, self.bytes_turn, stream));
        self.wake_writer(stream);
        self.number(
            path,
            Item::Piece {
                stream,
                start,
                end,
                fin,
            },
            |_| payload,
        )
    }

    /// When nothing else wants the path: a piece that is under way on a slower path and would arrive sooner over this one, so
    /// that a slow path never delays the end of a transfer.
    fn poll_straggler(&mut self, path: PathId) -> Option<PathDatagram> {
        let capacity = self.piece_capacity(path)?;
        let entry = self.paths.get(path)?;
        // A copy is not worth the price of a dearer path.
        if choice::cheaper_than(&self.paths, entry) > 0 {
            return None;
        }
        let arrives = entry.monitor.predict_arrival(self.now, 0, capacity);
        let streams = &mut self.streams;
        let mut found = None;
        self.straggling.retain(|stream| {
            let Some(Kind::Bytes(pair)) = streams.get_mut(stream).map(|entry| &mut entry.kind)
            else {
                return false;
            };
            if found.is_none() {
                let piece = pair.send.next_straggler(arrives, capacity);
                found = piece.map(|piece| (*stream, piece));
            }
            pair.send.has_stragglers()
        });
        let (
            stream,
            NextPiece {
                start, end, fin, ..
            },
        ) = found?;
        let sequence = self.paths.get(path)?.monitor.next_sequence();
        let header = self.clocks.header(self.now, sequence);
        let pair = self.streams.get(&stream).and_then(Stream::pair)?;
        let length = usize::try_from(end - start).ok()?;
        let slices = pair.send.slices(start, end);
        let payload = Piece::encode(stream, start, fin, length, slices, header);
        let item = Item::Piece {
            stream,
            start,
            end,
            fin,
        };
        self.number(path, item, |_| payload)
    }

    fn piece_capacity(&self, path: PathId) -> Option<u64> {
        let capacity = self
            .paths
            .get(path)?
            .max_datagram()
            .checked_sub(PIECE_HEADER_BYTES)?;
        (capacity > 0).then_some(capacity as u64)
    }

    /// Gives a datagram its number and remembers what it carries.
    fn number(
        &mut self,
        id: PathId,
        item: Item,
        encode: impl FnOnce(wire::Header) -> Bytes,
    ) -> Option<PathDatagram> {
        let path = self.paths.get_mut(id)?;
        let payload = encode(self.clocks.header(self.now, path.monitor.next_sequence()));
        let elicits_ack = item.elicits_ack();
        let sequence = path
            .monitor
            .on_sent(self.now, payload.len(), item, elicits_ack);
        path.counters.bytes_sent += payload.len() as u64;
        path.counters.datagrams_sent += 1;
        let wakes = item.is_use() && path.on_use(self.now);
        if elicits_ack {
            path.delay_probe(self.now, self.config.keepalive);
        }
        if wakes {
            self.paths.wake(self.now, id);
        }
        Some(PathDatagram {
            payload,
            sequence: wrap(sequence),
        })
    }

    /// Tells the peer what had to wait for room on the control stream: which blocks it need not wait for, how much it may send, how
    /// many streams it may open.
    fn tell_state(&mut self) {
        while self.has_control_room()
            && let Some(stream) = self.crediting.pop_first()
        {
            self.offer_credit(stream);
        }
        self.offer_streams();
        while self.has_control_room()
            && let Some(stream) = self.dropping.pop_first()
        {
            let Some(Stream {
                kind: Kind::Sending(blocks),
                ..
            }) = self.streams.get_mut(&stream)
            else {
                continue;
            };
            let untold =
                std::mem::replace(&mut blocks.untold, RangeSet::new(usize::MAX));
            let ranges: Vec<_> = untold
                .iter_rev()
                .map(|(first, last)| (BlockId(wrap(first)), BlockId(wrap(last))))
                .collect();
            for ranges in ranges.chunks(MAX_DROPPED) {
                self.tell(&Control::Dropped {
                    stream,
                    ranges: ranges.to_vec(),
                });
            }
            self.forget_if_done(stream);
        }
    }
}
