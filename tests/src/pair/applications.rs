//! The actions of the applications of both sides, and their checks of the sessions' answers.

use starhaul_session::{BlockId, BlockOptions, Mode, StreamConfig, StreamError, StreamId};

use super::{
    ledger::{block_data, stream_data},
    operation::{Operation, Side},
    world::{World, nth},
};

impl World<'_> {
    pub(super) fn open(&mut self, operation: &Operation) {
        let Operation::Open {
            side,
            mode,
            deadline,
            priority,
            max_coding_rate,
            ordered,
            label_bytes,
        } = *operation
        else {
            return;
        };
        let config = StreamConfig {
            mode,
            deadline,
            priority,
            max_coding_rate,
            ordered,
            bandwidth: None,
            label: vec![b'l'; label_bytes].into(),
        };
        match self.sessions[side].open_stream(self.now, config.clone()) {
            Ok(stream) => self.ledger.on_opened(side, stream, config),
            Err(StreamError::QueueFull { .. }) => {}
            Err(error) => panic!("open_stream: {error}"),
        }
    }

    pub(super) fn send(&mut self, operation: &Operation) {
        let Operation::Send {
            side,
            stream,
            bytes,
            deadline,
            priority,
            depends_back,
        } = *operation
        else {
            return;
        };
        let streams = self
            .ledger
            .matching(|stream| stream.opener == side && stream.config.mode != Mode::Reliable);
        let Some(stream) = nth(&streams, stream) else {
            return;
        };
        let next = u32::try_from(self.ledger.streams[&stream].blocks.len()).unwrap_or(u32::MAX);
        let options = BlockOptions {
            deadline,
            priority,
            depends_on: depends_back
                .and_then(|back| next.checked_sub(back))
                .map(BlockId),
        };
        let data = block_data(stream, BlockId(next), bytes);
        match self.sessions[side].send_block(self.now, stream, data, options) {
            Ok(block) => self
                .ledger
                .on_sent(self.now, stream, block, bytes, &options),
            Err(StreamError::QueueFull { held, limit }) => {
                // So much counts for a block beside its bytes, and may be kept for writers of bytes (docs/deadlines.md "Memory").
                assert!(
                    held + bytes + 768 > limit - limit / 16,
                    "refused {bytes} bytes with {held} of {limit} held"
                );
            }
            Err(StreamError::BlockSize(0)) => assert_eq!(bytes, 0),
            Err(StreamError::NotWritable(_) | StreamError::Unknown(_)) => {
                assert!(
                    self.ledger.stream(stream).finished,
                    "{stream:?} takes no blocks but was not finished"
                );
            }
            Err(error) => panic!("send_block: {error}"),
        }
    }

    /// Reliable streams known to `side`.
    pub(super) fn reliable_of(&self, side: Side) -> Vec<StreamId> {
        self.ledger.matching(|stream| {
            stream.config.mode == Mode::Reliable && (stream.opener == side || stream.is_known)
        })
    }

    /// Streams of any kind on which `side` may send.
    pub(super) fn writable_by(&self, side: Side) -> Vec<StreamId> {
        self.ledger.matching(|stream| {
            stream.opener == side || (stream.config.mode == Mode::Reliable && stream.is_known)
        })
    }

    pub(super) fn finish_direction(&mut self, side: Side, stream: StreamId) {
        let result = self.sessions[side].finish(self.now, stream);
        let entry = self.ledger.stream(stream);
        let direction = &mut entry.bytes[side];
        match (result, entry.config.mode) {
            (Ok(()), Mode::Reliable) => {
                assert!(
                    !direction.finished && direction.reset.is_none(),
                    "{stream:?} finished twice"
                );
                direction.finished = true;
                direction.blocked = false;
            }
            (Ok(()), _) => {
                assert!(!entry.finished, "{stream:?} finished twice");
                entry.finished = true;
            }
            (Err(StreamError::NotWritable(_) | StreamError::Unknown(_)), _) => {}
            (Err(error), _) => panic!("finish: {error}"),
        }
    }

    pub(super) fn write(&mut self, side: Side, stream: usize, bytes: usize) {
        let Some(stream) = nth(&self.reliable_of(side), stream) else {
            return;
        };
        let direction = &self.ledger.streams[&stream].bytes[side];
        let data = stream_data(stream, side, direction.written, bytes);
        let result = self.sessions[side].write(self.now, stream, &data);
        let direction = &mut self.ledger.stream(stream).bytes[side];
        match result {
            Ok(taken) => {
                assert!(
                    taken <= bytes && !direction.finished,
                    "{stream:?} took {taken} of {bytes} bytes"
                );
                direction.written += taken as u64;
                direction.blocked |= taken < bytes;
            }
            Err(StreamError::NotWritable(_) | StreamError::Unknown(_)) => {}
            Err(error) => panic!("write: {error}"),
        }
    }

    pub(super) fn read(&mut self, side: Side, stream: StreamId, max: usize) {
        let direction = &self.ledger.streams[&stream].bytes[1 - side];
        if direction.ended || direction.stopped.is_some() || max == 0 {
            return;
        }
        let announced = direction.readable || self.ledger.unheard[side];
        match self.sessions[side].read(self.now, stream, max) {
            Ok(Some(data)) => {
                assert!(
                    announced || self.ledger.is_tainted,
                    "{stream:?} has bytes that were not announced"
                );
                assert!(data.len() <= max, "more was read than asked for");
                self.ledger.on_read(side, stream, &data);
            }
            Ok(None) => self.ledger.stream(stream).bytes[1 - side].readable = false,
            Err(StreamError::Reset { code, .. }) => {
                let direction = &mut self.ledger.stream(stream).bytes[1 - side];
                direction.ended = true;
                let asked = direction.reset == Some(code);
                assert!(
                    asked || self.ledger.is_tainted,
                    "{stream:?} reset with another code"
                );
            }
            Err(StreamError::Unknown(_)) if self.ledger.is_tainted => {}
            Err(error) => panic!(
                "read of {stream:?}: {error}; {direction:?}",
                direction = self.ledger.stream(stream)
            ),
        }
    }

    pub(super) fn finish_if_reliable(&mut self, side: Side, stream: StreamId) {
        if self.ledger.streams[&stream].config.mode == Mode::Reliable {
            self.finish_direction(side, stream);
        }
    }

    pub(super) fn read_all(&mut self, side: Side, stream: StreamId) {
        let is_open = |world: &Self| {
            let direction = &world.ledger.streams[&stream].bytes[1 - side];
            direction.readable && !direction.ended && direction.stopped.is_none()
        };
        while is_open(self) {
            self.read(side, stream, usize::MAX);
        }
    }
}
