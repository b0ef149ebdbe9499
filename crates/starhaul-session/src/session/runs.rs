//! Frames of a reliable stream that arrive one after the other, as most do: what is the same for all of them is asked once.

use std::{collections::VecDeque, time::Instant};

use starhaul_paths::PathId;

use super::Session;
use crate::{
    received::Arrival,
    streams::Kind,
    types::{Event, ProtocolError, StreamId},
    wire::{Header, STREAM_FRAME_HEADER_BYTES, StreamFrame},
};

/// Most frames of a run.
const MOST_FRAMES: usize = 64;

/// Frames of one stream, which is not the control stream, of datagrams with consecutive numbers that arrived together.
#[derive(Debug, Default)]
pub(super) struct FrameRun {
    /// When each was sent, as its header says, and what it is.
    frames: VecDeque<(u32, StreamFrame)>,
    /// Number of the datagram of the first.
    first: u32,
    /// The number that continues the run.
    next: u32,
}

/// What was taken of a run, the frame that breaks the protocol included.
#[derive(Clone, Copy, Debug, Default)]
struct Taken {
    datagrams: u32,
    bytes: u64,
}

impl FrameRun {
    /// Whether this frame continues the run. What follows the end of a stream begins another one: the stream may be forgotten by then.
    pub(super) fn continues_with(&self, header: Header, frame: &StreamFrame) -> bool {
        let last = self.frames.back();
        last.is_some_and(|(_, last)| last.stream == frame.stream && !last.fin)
            && header.sequence == self.next
            && self.frames.len() < MOST_FRAMES
    }

    pub(super) fn push(&mut self, header: Header, frame: StreamFrame) {
        if self.frames.is_empty() {
            self.first = header.sequence;
        }
        self.next = header.sequence.wrapping_add(1);
        self.frames.push_back((header.sent_micros, frame));
    }

    pub(super) fn clear(&mut self) {
        self.frames.clear();
    }

    fn stream(&self) -> Option<StreamId> {
        self.frames.front().map(|(_, frame)| frame.stream)
    }

    fn pop(&mut self, taken: &mut Taken) -> Option<(u32, StreamFrame)> {
        let (sent_micros, frame) = self.frames.pop_front()?;
        self.first = self.first.wrapping_add(1);
        taken.datagrams += 1;
        taken.bytes += (STREAM_FRAME_HEADER_BYTES + frame.payload.len()) as u64;
        Some((sent_micros, frame))
    }
}

impl Session {
    /// Takes the frames of a run that arrived over `path`, all of them.
    ///
    /// # Errors
    /// One breaks the protocol. Those before it were taken, those after it never arrived.
    pub(super) fn take_run(
        &mut self,
        path: PathId,
        run: &mut FrameRun,
    ) -> Result<(), ProtocolError> {
        let now = self.clocks.now();
        while let Some(stream) = run.stream() {
            self.take_part(now, path, stream, run)?;
        }
        Ok(())
    }

    /// Takes frames at the head of a run: all that are left when their numbers are the next ones of the path, else one.
    fn take_part(
        &mut self,
        now: Instant,
        path: PathId,
        stream: StreamId,
        run: &mut FrameRun,
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
            Arrival::Next => result = self.take_frames(stream, run, u32::MAX, &mut taken),
            Arrival::OutOfOrder => result = self.take_frames(stream, run, 1, &mut taken),
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

    /// Takes up to `most` frames of a stream.
    fn take_frames(
        &mut self,
        stream: StreamId,
        run: &mut FrameRun,
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
        run: &mut FrameRun,
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
            && let Some((sent_micros, frame)) = run.pop(taken)
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
        run: &mut FrameRun,
        taken: &mut Taken,
    ) -> Result<(), ProtocolError> {
        let Some((sent_micros, frame)) = run.pop(taken) else {
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
