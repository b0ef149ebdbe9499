//! What arrives from the peer: datagrams, bytes of reliable streams, control messages.

use std::time::Instant;

use bytes::Bytes;
use starhaul_paths::PathId;

use super::{
    MAX_CONTROL_BYTES, Session,
    runs::{Piece, StreamRun},
};
use crate::{
    control::Control,
    control_stream::CONTROL_WINDOW,
    facts::Fact,
    received::Arrival,
    streams::{BytesPair, Kind},
    types::{Event, ProtocolError, Side, StreamConfig, StreamId},
    wire::{self, Body, Header, StreamFrame},
};

impl Session {
    /// A datagram arrived over `path`. An error means that the peer broke the protocol: close the session.
    pub fn handle_datagram(
        &mut self,
        now: Instant,
        path: PathId,
        payload: Bytes,
    ) -> Result<(), ProtocolError> {
        self.handle_datagrams(now, path, [payload])
    }

    /// The same for datagrams that arrived together, oldest first, which costs less than one after the other.
    pub fn handle_datagrams(
        &mut self,
        now: Instant,
        path: PathId,
        payloads: impl IntoIterator<Item = Bytes>,
    ) -> Result<(), ProtocolError> {
        self.advance(now);
        let mut run = std::mem::take(&mut self.run);
        let taken = self.take_datagrams(path, payloads, &mut run);
        run.clear();
        self.run = run;
        taken?;
        self.settle();
        Ok(())
    }

    /// Takes datagrams in their order; those with data of streams as runs.
    fn take_datagrams(
        &mut self,
        path: PathId,
        payloads: impl IntoIterator<Item = Bytes>,
        run: &mut StreamRun,
    ) -> Result<(), ProtocolError> {
        for payload in payloads {
            if self.closed {
                continue;
            }
            let bytes = payload.len();
            match wire::decode(payload) {
                Ok((header, Body::StreamFrame(frame))) if frame.stream != StreamId::CONTROL => {
                    self.extend_run(path, run, header, Piece::Frame(frame))?;
                }
                Ok((header, Body::Fragment(fragment))) if fragment.stream != StreamId::CONTROL => {
                    self.extend_run(path, run, header, Piece::Fragment(fragment))?;
                }
                other => {
                    self.take_run(path, run)?;
                    let (header, body) = other?;
                    self.take_datagram(path, header, body, bytes)?;
                }
            }
        }
        self.take_run(path, run)
    }

    /// Adds to a run what continues it, or takes the run and begins another one.
    fn extend_run(
        &mut self,
        path: PathId,
        run: &mut StreamRun,
        header: Header,
        piece: Piece,
    ) -> Result<(), ProtocolError> {
        if !run.continues_with(header, &piece) {
            self.take_run(path, run)?;
        }
        run.push(header, piece);
        Ok(())
    }

    /// Takes a datagram of so many bytes in all, which carries data of no stream but the control stream.
    fn take_datagram(
        &mut self,
        path: PathId,
        header: Header,
        body: Body,
        bytes: usize,
    ) -> Result<(), ProtocolError> {
        let Some(entry) = self.paths.get_mut(path) else {
            return Ok(());
        };
        entry.counters.bytes_received += bytes as u64;
        entry.monitor.on_heard(self.clocks.now());
        if matches!(body, Body::Fragment(_) | Body::StreamFrame(_)) {
            entry.on_use(self.clocks.now());
        }
        let arrival = entry.received.insert(self.clocks.now(), header.sequence);
        let wants_ack = !matches!(body, Body::Ack(_));
        if wants_ack {
            // Probes ask for the time of their arrival.
            let now = self.clocks.now();
            match body {
                Body::Probe => self.acks.on_probe(now),
                _ => self.acks.on_arrival(now, arrival != Arrival::Next),
            }
        }
        if arrival == Arrival::Duplicate {
            return Ok(());
        }
        let sent = self.clocks.peer_time(header.sent_micros);
        match body {
            Body::Fragment(fragment) => self.on_fragment(path, sent, &fragment),
            Body::StreamFrame(frame) => self.on_control_frame(frame),
            Body::Ack(ack) => {
                self.paths.on_answer(path);
                self.on_ack(sent, ack)
            }
            Body::Probe | Body::Unknown => Ok(()),
        }
    }

    fn on_control_frame(&mut self, frame: StreamFrame) -> Result<(), ProtocolError> {
        if frame.fin {
            return Err(ProtocolError::StreamState {
                stream: StreamId::CONTROL,
                what: "the control stream does not end",
            });
        }
        self.control.receive.slide_credit(CONTROL_WINDOW);
        self.control
            .receive
            .insert(StreamId::CONTROL, frame.offset, false, frame.payload)?;
        while let Some(bytes) = self.control.receive.read(usize::MAX) {
            self.control.buffer.extend_from_slice(&bytes);
        }
        while let Some(message) = Control::decode(&mut self.control.buffer)? {
            if let Some(message) = message {
                self.on_control(message)?;
            }
        }
        // Honest peers acknowledge what answers their own messages.
        if self.control.held_for_sending() > MAX_CONTROL_BYTES {
            return Err(ProtocolError::Limit("unacknowledged control messages"));
        }
        Ok(())
    }

    fn on_control(&mut self, message: Control) -> Result<(), ProtocolError> {
        match message {
            Control::Open { stream, config } => self.on_open(stream, config),
            Control::Finish { stream, end } => self.on_finish(stream, end),
            Control::Dropped { stream, ranges } => self.on_dropped(stream, &ranges),
            Control::Reset { stream, code } => {
                let told = self.pair_of(stream, "reset")?.is_some_and(|pair| {
                    pair.receive.on_reset(code);
                    !pair.receive.stopped
                });
                self.count_share(stream);
                if told {
                    self.emit(Event::Reset { stream, code });
                }
                self.forget_if_done(stream);
                Ok(())
            }
            Control::Stop { stream, code } => {
                let freed = self.pair_of(stream, "stopped")?.and_then(|pair| {
                    let news = !pair.send.is_done();
                    let freed = pair.send.abandon();
                    news.then_some(freed)
                });
                if let Some(freed) = freed {
                    self.bytes_out.on_freed(freed);
                    // The reader forgets the stream once it knows that nothing more comes (as RFC 9000 §3.5).
                    self.tell(&Control::Reset { stream, code });
                    self.emit(Event::Stopped { stream, code });
                }
                self.forget_if_done(stream);
                Ok(())
            }
            Control::Credit { stream, limit } => {
                match self.streams.get_mut(stream).map(|entry| &mut entry.kind) {
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
                self.wake_writer(stream);
                Ok(())
            }
            Control::Cost { path, cost } => {
                // The side that opens the paths knows what they cost.
                if self.side == Side::Server {
                    self.paths.set_told_cost(path, cost);
                    self.note_cost(path, cost);
                }
                Ok(())
            }
            Control::Gone { path } => {
                // The side that opens the paths removes them.
                if self.side == Side::Server {
                    self.paths.on_gone_at_peer(path);
                }
                Ok(())
            }
            Control::Streams { limit } => {
                self.streams.on_limit(limit);
                Ok(())
            }
        }
    }

    fn pair_of(
        &mut self,
        stream: StreamId,
        what: &'static str,
    ) -> Result<Option<&mut BytesPair>, ProtocolError> {
        match self.streams.get_mut(stream).map(|entry| &mut entry.kind) {
            Some(Kind::Bytes(pair)) => Ok(Some(pair)),
            Some(_) => Err(ProtocolError::StreamState { stream, what }),
            None => Ok(None),
        }
    }

    fn on_open(&mut self, stream: StreamId, config: StreamConfig) -> Result<(), ProtocolError> {
        let most_held = self.config.most_held_for_sending();
        self.streams.accept(stream, config.clone(), most_held)?;
        self.observers
            .note(self.clocks.now(), || Fact::StreamOpened {
                stream,
                opener: stream.opener(),
                mode: config.mode,
            });
        self.emit(Event::StreamOpened { stream, config });
        self.adopt_early(stream);
        self.make_room();
        self.open_window(stream);
        self.offer_streams();
        // What came for numbers that were skipped belongs to no stream.
        self.inbound.forget_below(self.streams.peer_end());
        Ok(())
    }
}
