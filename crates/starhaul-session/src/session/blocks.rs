//! Blocks of the peer: fragments become whole blocks and are handed on once, within the bound on memory.

use std::time::Duration;

use starhaul_paths::PathId;

use super::Session;
use crate::{
    facts::Fact,
    item::BlockKey,
    receive::blocks::Complete,
    streams::{Kind, Stream},
    types::{BlockId, Event, ProtocolError, StreamId},
    wire::{BlockAck, Fragment, unwrap, wrap},
};

/// A fragment may seem to leave so long before its block was born.
const MOST_AHEAD_MICROS: u32 = 1_000_000;
/// Most blocks of one message that are reported missing one by one.
pub(super) const MAX_MISSING_EVENTS: usize = 256;
/// Ranges of ended blocks that each stream may have, and all streams together beyond.
const SURE_ENDED_RANGES: usize = 64;
const MAX_ALL_ENDED_RANGES: usize = 1 << 17;

impl Session {
    pub(super) fn on_fragment(
        &mut self,
        path: PathId,
        sent: u64,
        fragment: &Fragment,
    ) -> Result<(), ProtocolError> {
        let stream = fragment.stream;
        if stream == StreamId::CONTROL || self.streams.is_ours(stream) {
            return Err(ProtocolError::StreamState {
                stream,
                what: "blocks on a stream that carries none from it",
            });
        }
        let number = match self.streams.get(stream).map(|entry| &entry.kind) {
            Some(Kind::Receiving(blocks)) => {
                let number = unwrap(fragment.block.0, blocks.ended.end());
                if blocks.ended.contains(number) {
                    self.acks
                        .on_query(self.clocks.now(), stream, fragment.block);
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
            None if self.streams.is_awaited(stream) => u64::from(fragment.block.0),
            None => {
                self.acks
                    .on_query(self.clocks.now(), stream, fragment.block);
                return Ok(());
            }
        };
        let key = (stream, number);
        let born = born(fragment.born_micros, sent);
        if self.inbound.holds_early(key) {
            return Ok(());
        }
        if let Some(complete) = self.inbound.insert(key, fragment, born, sent) {
            self.on_complete(path, sent, key, complete);
        }
        self.make_room();
        Ok(())
    }

    fn on_complete(&mut self, path: PathId, sent: u64, key: BlockKey, mut complete: Complete) {
        let (stream, number) = key;
        complete.completed_micros = wrap(self.clocks.micros(self.clocks.now()));
        complete.latency = self.latency(path, sent, &complete);
        let most_streams = self.streams.most_of_peer();
        let Some(entry) = self.streams.get_mut(stream) else {
            self.inbound.insert_early(key, complete, most_streams);
            return;
        };
        let Kind::Receiving(blocks) = &mut entry.kind else {
            return;
        };
        blocks.ended.insert(number, number + 1);
        self.acks
            .on_block(self.clocks.now(), complete.ack(stream, number));
        if entry.config.ordered {
            self.inbound.hold(&complete.data);
            blocks.waiting.insert(number, complete);
            self.release_ordered(stream);
        } else {
            self.hand_on(stream, number, complete);
        }
        self.bound_ended(stream);
        self.finish_received(stream);
    }

    /// Keeps what is known of ended blocks within its bound for all streams together: the oldest gaps of the one that has
    /// got one more are taken as ended.
    fn bound_ended(&mut self, stream: StreamId) {
        let ranges = self.streams.get(stream).map_or(0, Stream::ended_ranges);
        if ranges <= SURE_ENDED_RANGES || self.streams.ended_ranges() <= MAX_ALL_ENDED_RANGES {
            return;
        }
        if let Some(blocks) = self.streams.receiving_mut(stream) {
            let kept = blocks.ended.iter_rev().nth(SURE_ENDED_RANGES / 2);
            let first = kept.map_or(0, |(first, _)| first);
            let dropped = blocks.ended.insert(0, first);
            self.inbound.count_dropped(dropped);
            self.inbound.remove_range((stream, 0), (stream, first));
        }
    }

    fn latency(&self, path: PathId, sent: u64, complete: &Complete) -> Duration {
        self.clocks
            .since_peer(complete.born_micros)
            .unwrap_or_else(|| {
                let way = self
                    .paths
                    .get(path)
                    .map(|path| path.monitor.one_way_delay())
                    .unwrap_or_default();
                way + Duration::from_micros(sent.saturating_sub(complete.born_micros))
            })
    }

    pub(super) fn hand_on(&mut self, stream: StreamId, number: u64, complete: Complete) {
        self.observers
            .note(self.clocks.now(), || Fact::BlockReceived {
                stream,
                block: BlockId(wrap(number)),
                bytes: complete.data.len(),
                latency: complete.latency,
                is_recovered: complete.recovered,
            });
        let Complete { data, latency, .. } = complete;
        if let Some(entry) = self.streams.get_mut(stream) {
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

    /// Says so once the peer has finished a stream and every block of it has ended.
    pub(super) fn finish_received(&mut self, stream: StreamId) {
        if let Some(Stream {
            kind: Kind::Receiving(blocks),
            ..
        }) = self.streams.get(stream)
            && blocks.is_finished()
        {
            self.emit(Event::StreamFinished(stream));
            self.forget_if_done(stream);
        }
    }

    /// Keeps what is held of the peer's blocks within its bound: first those go that are not whole or whose stream is not open, the
    /// oldest first, then what is missing in ordered streams is not waited for, and at last go those that the application did not take.
    pub(super) fn make_room(&mut self) {
        self.inbound.drop_unfinished();
        if self.inbound.is_over_bound() {
            self.skip_missing();
        }
        self.events.make_room(&mut self.inbound);
    }

    /// Takes up what arrived before the stream's opening.
    pub(super) fn adopt_early(&mut self, stream: StreamId) {
        if let Some(receive) = self.inbound.take_early_bytes(stream)
            && let Some(pair) = self.streams.pair_mut(stream)
        {
            pair.receive = receive;
            if pair.receive.can_read() {
                pair.receive.announced = true;
                self.emit(Event::Readable(stream));
            }
        }
        for (number, complete) in self.inbound.take_early(stream) {
            let Some(Stream {
                kind: Kind::Receiving(blocks),
                config,
                ..
            }) = self.streams.get_mut(stream)
            else {
                // The peer opened a reliable stream and sent blocks on it.
                continue;
            };
            blocks.ended.insert(number, number + 1);
            // Not before, because until then it could still be dropped.
            self.acks
                .on_block(self.clocks.now(), complete.ack(stream, number));
            if config.ordered {
                self.inbound.hold(&complete.data);
                blocks.waiting.insert(number, complete);
            } else {
                self.hand_on(stream, number, complete);
            }
        }
        self.release_ordered(stream);
    }

    pub(super) fn on_finish(
        &mut self,
        stream: StreamId,
        end: BlockId,
    ) -> Result<(), ProtocolError> {
        match self.streams.get_mut(stream).map(|entry| &mut entry.kind) {
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

    /// Blocks of the peer from `first` to before `end` are not waited for any more: those that have not ended are missing. Returns
    /// how many these are.
    pub(super) fn give_up(&mut self, stream: StreamId, first: u64, end: u64) -> u64 {
        let mut told = MAX_MISSING_EVENTS;
        self.give_up_telling(stream, first, end, &mut told)
    }

    /// The same; of so many it is told.
    fn give_up_telling(&mut self, stream: StreamId, first: u64, end: u64, told: &mut usize) -> u64 {
        let Some(blocks) = self.streams.receiving_mut(stream) else {
            return 0;
        };
        let gaps = blocks.ended.gaps(first, end);
        let missing: Vec<u64> = gaps
            .flat_map(|(start, end)| start..end)
            .take(*told)
            .collect();
        *told -= missing.len();
        let fresh = blocks.ended.insert(first, end);
        self.inbound.remove_range((stream, first), (stream, end));
        for number in missing {
            self.emit(Event::BlockMissing {
                stream,
                block: BlockId(wrap(number)),
            });
        }
        fresh
    }

    pub(super) fn on_dropped(
        &mut self,
        stream: StreamId,
        ranges: &[(BlockId, BlockId)],
    ) -> Result<(), ProtocolError> {
        let mut told = MAX_MISSING_EVENTS;
        for &(first, last) in ranges {
            let Some(entry) = self.streams.get_mut(stream) else {
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
            self.give_up_telling(stream, first, last + 1, &mut told);
        }
        self.bound_ended(stream);
        self.release_ordered(stream);
        self.finish_received(stream);
        Ok(())
    }
}

impl Complete {
    fn ack(&self, stream: StreamId, number: u64) -> BlockAck {
        BlockAck {
            stream,
            block: BlockId(wrap(number)),
            completed_micros: self.completed_micros,
            recovered: self.recovered,
        }
    }
}

/// When a block was born of which a fragment left at `sent`, in microseconds: the latest time before that, up to an hour, or `sent` if it
/// seems to be born a moment later.
fn born(wire: u32, sent: u64) -> u64 {
    let age = wrap(sent).wrapping_sub(wire);
    match age > u32::MAX - MOST_AHEAD_MICROS {
        true => sent,
        false => sent.saturating_sub(age.into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_block_may_be_an_hour_old_when_it_leaves() {
        let hour = 3_600_000_000;
        for sent in [hour, 3 * hour, u64::from(u32::MAX) * 5 + 7] {
            for age in [0, 1, 1_000_000, hour / 2, 40 * 60_000_000, hour] {
                assert_eq!(born(wrap(sent - age), sent), sent - age);
            }
            assert_eq!(born(wrap(sent + 1000), sent), sent);
        }
    }
}
