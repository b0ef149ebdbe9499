//! Frames of a reliable stream, or fragments of blocks of a stream, that arrive one after the other, as most do: what is the same for all of
//! them is asked once.

use std::{collections::VecDeque, time::Instant};

use starhaul_paths::PathId;

use super::Session;
use crate::{
    received::Arrival,
    streams::Kind,
    types::{Event, ProtocolError, StreamId},
    wire::{FRAGMENT_HEADER_BYTES, Fragment, Header, STREAM_FRAME_HEADER_BYTES, StreamFrame},
};

/// Most datagrams of a run.
const MOST_DATAGRAMS: usize = 64;

/// What a datagram of a run carries.
#[derive(Debug)]
pub(super) enum Piece {
    Frame(StreamFrame),
    Fragment(Fragment),
}

/// Frames, or fragments, of one stream, which is not the control stream, of datagrams with consecutive numbers that arrived together.
#[derive(Debug, Default)]
pub(super) struct StreamRun {
    /// When each was sent, as its header says, and what it is.
    pieces: VecDeque<(u32, Piece)>,
    /// Number of the datagram of the first.
    first: u32,
    /// The number that continues the run.
    next: u32,
}

/// What was taken of a run, the datagram that breaks the protocol included.
#[derive(Clone, Copy, Debug, Default)]
struct Taken {
    datagrams: u32,
    bytes: u64,
}

impl Piece {
    const fn stream(&self) -> StreamId {
        match self {
            Self::Frame(frame) => frame.stream,
            Self::Fragment(fragment) => fragment.stream,
        }
    }

    /// Bytes of its datagram.
    fn bytes(&self) -> u64 {
        let bytes = match self {
            Self::Frame(frame) => STREAM_FRAME_HEADER_BYTES + frame.payload.len(),
            Self::Fragment(fragment) => FRAGMENT_HEADER_BYTES + fragment.payload.len(),
        };
        bytes as u64
    }

    /// Whether the other one may be of the same run. What follows the end of a stream begins another one: the stream may be forgotten by then.
    fn is_followed_by(&self, next: &Self) -> bool {
        let is_alike = match (self, next) {
            (Self::Frame(last), Self::Frame(_)) => !last.fin,
            (Self::Fragment(_), Self::Fragment(_)) => true,
            _ => false,
        };
        is_alike && self.stream() == next.stream()
    }
}

impl StreamRun {
    /// Whether this continues the run.
    pub(super) fn continues_with(&self, header: Header, piece: &Piece) -> bool {
        let last = self.pieces.back();
        last.is_some_and(|(_, last)| last.is_followed_by(piece))
            && header.sequence == self.next
            && self.pieces.len() < MOST_DATAGRAMS
    }

    pub(super) fn push(&mut self, header: Header, piece: Piece) {
        if self.pieces.is_empty() {
            self.first = header.sequence;
        }
        self.next = header.sequence.wrapping_add(1);
        self.pieces.push_back((header.sent_micros, piece));
    }

    pub(super) fn clear(&mut self) {
        self.pieces.clear();
    }

    fn stream(&self) -> Option<StreamId> {
        self.pieces.front().map(|(_, piece)| piece.stream())
    }

    fn pop(&mut self, taken: &mut Taken) -> Option<(u32, Piece)> {
        let (sent_micros, piece) = self.pieces.pop_front()?;
        self.first = self.first.wrapping_add(1);
        taken.datagrams += 1;
        taken.bytes += piece.bytes();
        Some((sent_micros, piece))
    }

    /// The next frame of a run of frames.
    fn pop_frame(&mut self, taken: &mut Taken) -> Option<(u32, StreamFrame)> {
        match self.pop(taken)? {
            (sent_micros, Piece::Frame(frame)) => Some((sent_micros, frame)),
            (_, Piece::Fragment(_)) => None,
        }
    }
}

impl Session {
    /// Takes all datagrams of a run that arrived over `path`.
    ///
    /// # Errors
    /// One breaks the protocol. Those before it were taken, those after it never arrived.
    pub(super) fn take_run(
        &mut self,
        path: PathId,
        run: &mut StreamRun,
    ) -> Result<(), ProtocolError> {
        let now = self.clocks.now();
        while let Some(stream) = run.stream() {
            self.take_part(now, path, stream, run)?;
        }
        Ok(())
    }

    /// Takes datagrams at the head of a run: all that are left when their numbers are the next ones of the path, else one.
    fn take_part(
        &mut self,
        now: Instant,
        path: PathId,
        stream: StreamId,
        run: &mut StreamRun,
    ) -> Result<(), ProtocolError> {
        let Some(entry) = self.paths.get_mut(path) else {
            run.clear();
            return Ok(());
        };
        entry.monitor.on_heard(now);
        entry.on_use(now);
        entry.carried_at = Some(now);
        let arrival = match entry.received.is_next(run.first) {
            true => Arrival::Next,
            false => entry.received.insert(now, run.first),
        };
        let priority = self.streams.get(stream).map(|of| of.config.priority);
        let (mut taken, mut result) = (Taken::default(), Ok(()));
        match arrival {
            Arrival::Next => result = self.take_pieces(path, stream, run, u32::MAX, &mut taken),
            Arrival::OutOfOrder => result = self.take_pieces(path, stream, run, 1, &mut taken),
            Arrival::Duplicate => drop(run.pop(&mut taken)),
        }
        let is_next = arrival == Arrival::Next;
        if let Some(entry) = self.paths.get_mut(path) {
            entry.counters.bytes_received += taken.bytes;
            entry.received_by_class.add(priority, taken.bytes);
            if is_next {
                entry.received.insert_next(now, taken.datagrams);
            }
        }
        self.acks.on_arrivals(now, taken.datagrams, !is_next);
        result
    }

    /// Takes up to `most` datagrams of a stream; maybe fewer where it is forgotten meanwhile.
    fn take_pieces(
        &mut self,
        path: PathId,
        stream: StreamId,
        run: &mut StreamRun,
        most: u32,
        taken: &mut Taken,
    ) -> Result<(), ProtocolError> {
        match run.pieces.front() {
            Some((_, Piece::Fragment(_))) => self.take_fragments(path, stream, run, most, taken),
            _ => self.take_frames(stream, run, most, taken),
        }
    }

    /// Takes up to `most` fragments of a stream, until it is forgotten.
    fn take_fragments(
        &mut self,
        path: PathId,
        stream: StreamId,
        run: &mut StreamRun,
        most: u32,
        taken: &mut Taken,
    ) -> Result<(), ProtocolError> {
        let is_open = self.streams.get(stream).is_some();
        while taken.datagrams < most
            && self.streams.get(stream).is_some() == is_open
            && let Some((sent_micros, Piece::Fragment(fragment))) = run.pop(taken)
        {
            let sent = self.clocks.peer_time(sent_micros);
            self.on_fragment(path, sent, &fragment)?;
        }
        Ok(())
    }

    /// Takes up to `most` frames of a stream.
    fn take_frames(
        &mut self,
        stream: StreamId,
        run: &mut StreamRun,
        most: u32,
        taken: &mut Taken,
    ) -> Result<(), ProtocolError> {
        while taken.datagrams < most && run.stream().is_some() {
            self.take_until_grown(stream, run, most, taken)?;
        }
        Ok(())
    }

    /// The same until the stream's window has grown, which changes what the sender may send.
    fn take_until_grown(
        &mut self,
        stream: StreamId,
        run: &mut StreamRun,
        most: u32,
        taken: &mut Taken,
    ) -> Result<(), ProtocolError> {
        let largest = self.config.largest_window();
        let Some(entry) = self.streams.get_mut(stream) else {
            return self.take_early(stream, run, taken);
        };
        let Kind::Bytes(pair) = &mut entry.kind else {
            run.pop(taken);
            return Err(ProtocolError::StreamState {
                stream,
                what: "bytes on a deadline stream",
            });
        };
        let receive = &mut pair.receive;
        let (mut has_any, mut has_grown, mut result) = (false, false, Ok(()));
        while taken.datagrams < most
            && !has_grown
            && let Some((sent_micros, frame)) = run.pop_frame(taken)
        {
            self.clocks.peer_time(sent_micros);
            result = receive.accept(stream, frame.offset, frame.fin, frame.payload);
            if result.is_err() {
                break;
            }
            has_any = true;
            has_grown = receive.widen(largest);
        }
        if !has_any {
            return result;
        }
        self.inbound.count_share(stream, receive);
        let is_ended = receive.is_ended();
        if receive.is_readable() && !receive.announced {
            receive.announced = true;
            self.emit(Event::Readable(stream));
        }
        if has_grown {
            self.offer_credit(stream);
        }
        if is_ended {
            self.forget_if_done(stream);
        }
        result
    }

    /// Takes one frame of a stream that is not open: its opening is on its way, or it has ended.
    fn take_early(
        &mut self,
        stream: StreamId,
        run: &mut StreamRun,
        taken: &mut Taken,
    ) -> Result<(), ProtocolError> {
        let Some((sent_micros, frame)) = run.pop_frame(taken) else {
            return Ok(());
        };
        self.clocks.peer_time(sent_micros);
        match self.streams.is_awaited(stream) {
            true => {
                let most = self.streams.most_of_peer();
                self.inbound.insert_early_bytes(frame, most)
            }
            false => Ok(()),
        }
    }
}
