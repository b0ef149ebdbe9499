//! What the peer, or the transport below, says of our datagrams: arrived or lost.

use std::time::Instant;

use starhaul_paths::{Fated, PathId};

use super::Session;
use crate::{
    facts::{Datagram, Fact, Observers},
    item::{BlockKey, Item},
    streams::Kind,
    types::{BlockId, Outcome, ProtocolError, StreamId},
    wire::{Ack, BlockAck, PathAck, unwrap, wrap},
};

impl Session {
    /// The transport below saw the datagrams with these sequence numbers acknowledged at once.
    pub fn handle_transport_acks(
        &mut self,
        now: Instant,
        path: PathId,
        sequences: impl IntoIterator<Item = u32>,
    ) {
        let ranges = sequences.into_iter().map(|sequence| (sequence, sequence));
        self.handle_transport_ack_ranges(now, path, ranges);
    }

    /// The same by ranges, each from its first sequence number to its last; these may have wrapped between.
    pub fn handle_transport_ack_ranges(
        &mut self,
        now: Instant,
        path: PathId,
        ranges: impl IntoIterator<Item = (u32, u32)>,
    ) {
        self.advance(now);
        let Some(entry) = self.paths.get_mut(path) else {
            return;
        };
        let mut arrived = std::mem::take(&mut self.fated);
        let next = entry.monitor.next_sequence();
        let ranges = ranges.into_iter().map(|(start, end)| {
            let first = unwrap(start, next);
            (first, first.saturating_add(end.wrapping_sub(start).into()))
        });
        for (first, last) in joined(ranges) {
            entry
                .monitor
                .on_transport_acked(self.clocks.now(), first, last, &mut arrived);
        }
        let any = !arrived.is_empty();
        self.on_arrived(path, &arrived);
        arrived.clear();
        self.fated = arrived;
        if any {
            self.on_heard_again();
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
        let sequence = unwrap(sequence, entry.monitor.next_sequence());
        if let Some(fated) = entry.monitor.on_lost(self.clocks.now(), sequence) {
            entry.counters.datagrams_lost += 1;
            if !fated.given_up {
                self.on_datagram_lost(path, &fated);
            }
            self.settle();
        }
    }

    pub(super) fn on_ack(&mut self, replied: u64, ack: Ack) -> Result<(), ProtocolError> {
        for block in ack.blocks {
            self.on_block_ack(block)?;
        }
        for path in ack.paths {
            self.on_path_ack(path, replied)?;
        }
        let (events, segments) = (&ack.reconfigurations, &ack.segments);
        self.signals.hear(self.clocks.now(), events, segments, || {
            // Without a common clock, the way back takes what the way there does.
            let way = self.clocks.since_peer(replied);
            way.unwrap_or_else(|| self.paths.least_delay())
        });
        self.on_heard_again();
        self.find_lost();
        Ok(())
    }

    fn on_path_ack(&mut self, ack: PathAck, replied: u64) -> Result<(), ProtocolError> {
        let id = PathId(ack.path);
        let received = self.clocks.peer_time(ack.received_micros);
        let Some(path) = self.paths.get_mut(id) else {
            return Ok(());
        };
        let next = path.monitor.next_sequence();
        let ranges = ack
            .ranges
            .into_iter()
            .map(|(first, last)| (unwrap(first, next), unwrap(last, next)));
        if path.train.is_some() {
            let ranges: Vec<_> = ranges.clone().collect();
            if let Some(rate) = path.on_train_ack(self.clocks.now(), &ranges, received) {
                self.signals.on_train(id, rate);
            }
        }
        let mut arrived = std::mem::take(&mut self.fated);
        // The oldest first: what a late acknowledgement brings together with newer datagrams was not overtaken by these.
        for (index, (first, last)) in ranges.enumerate().rev() {
            if last >= next || first > last {
                return Err(ProtocolError::NeverSent("a datagram"));
            }
            let newest = path
                .monitor
                .unacknowledged_since(last)
                .filter(|_| index == 0);
            let one_way = newest.and_then(|sent| {
                self.clocks.on_exchange(sent, received, replied);
                self.clocks.one_way(sent, received)
            });
            path.monitor
                .on_acked(self.clocks.now(), first, last, one_way, &mut arrived);
        }
        self.on_arrived(id, &arrived);
        arrived.clear();
        self.fated = arrived;
        Ok(())
    }

    /// The first acknowledgement of datagrams of ours: blocks and streams hear of each run of fragments or stream frames at once.
    fn on_arrived(&mut self, id: PathId, arrived: &[Fated<Item>]) {
        if let Some(path) = self.paths.get_mut(id) {
            let late = arrived.iter().filter(|fated| fated.was_lost).count() as u64;
            path.counters.datagrams_lost = path.counters.datagrams_lost.saturating_sub(late);
            let newest = arrived.iter().map(|fated| fated.sequence + 1).max();
            path.counters.answered = path.counters.answered.max(newest.unwrap_or_default());
        }
        for run in arrived.chunk_by(|fated, next| fated.item.continues_with(next.item)) {
            let (Some(first), Some(last)) = (run.first(), run.last()) else {
                continue;
            };
            match (first.item, last.item) {
                (Item::Fragment { block, .. }, _) => {
                    let fragments = run.iter().filter_map(|fated| match fated.item {
                        Item::Fragment { fragment, .. } => Some((fragment, fated.given_up)),
                        _ => None,
                    });
                    self.blocks_out
                        .on_acked(self.clocks.now(), &self.paths, block, fragments);
                }
                (Item::Frame { stream, start, .. }, Item::Frame { end, fin, .. }) => {
                    self.on_frame_arrived(stream, start, end, fin);
                }
                _ => {}
            }
        }
    }

    fn on_frame_arrived(&mut self, stream: StreamId, start: u64, end: u64, fin: bool) {
        if stream == StreamId::CONTROL {
            self.control.on_acked(start, end, fin);
            return;
        }
        let Some(pair) = self.streams.pair_mut(stream) else {
            return;
        };
        self.bytes_out.on_acked(&mut pair.send, start, end, fin);
        self.wake_writer(stream);
        self.forget_if_done(stream);
    }

    fn on_block_ack(&mut self, ack: BlockAck) -> Result<(), ProtocolError> {
        let completed = self.clocks.peer_time(ack.completed_micros);
        let Some(entry) = self.streams.get(ack.stream) else {
            return if self.streams.was_ours(ack.stream) {
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
        if self
            .blocks_out
            .get(key)
            .is_some_and(|block| !block.was_split())
        {
            return Err(ProtocolError::NeverSent("a block"));
        }
        self.deliver_outcome(key, completed, ack.recovered);
        Ok(())
    }

    /// A block of ours is whole at the receiver since `completed` of the peer's clock.
    fn deliver_outcome(&mut self, key: BlockKey, completed: u64, recovered_by_redundancy: bool) {
        let Some(block) = self.blocks_out.get(key) else {
            return;
        };
        let measured = self.clocks.one_way(block.born, completed);
        let elapsed = self.clocks.now().saturating_duration_since(block.born);
        // Without a common clock the acknowledgement's way back is taken off.
        let latency = measured
            .unwrap_or_else(|| elapsed.saturating_sub(self.paths.least_delay()))
            .min(elapsed);
        let outcome = Outcome::Delivered {
            latency,
            on_time: latency <= block.deadline.saturating_duration_since(block.born),
            recovered_by_redundancy: recovered_by_redundancy || block.needed_redundancy(),
            recovered_by_retransmission: block.retransmitted,
        };
        self.blocks_out.end(self.clocks.now(), key, outcome);
    }

    /// Declares lost what was overtaken or is overdue on any path.
    pub(super) fn find_lost(&mut self) {
        let mut lost = std::mem::take(&mut self.fated);
        for (id, path) in self.paths.iter_mut() {
            let before = lost.len();
            path.monitor.find_lost(self.clocks.now(), &mut lost);
            path.counters.datagrams_lost += (lost.len() - before) as u64;
            for fated in lost.iter().skip(before).filter(|fated| !fated.given_up) {
                note_loss(&mut self.observers, self.clocks.now(), id, fated);
            }
        }
        for fated in lost.drain(..).filter(|fated| !fated.given_up) {
            self.on_item_lost(fated.item);
        }
        self.fated = lost;
    }

    /// A datagram was lost, or its path fell silent with it.
    pub(super) fn on_datagram_lost(&mut self, path: PathId, fated: &Fated<Item>) {
        note_loss(&mut self.observers, self.clocks.now(), path, fated);
        self.on_item_lost(fated.item);
    }

    /// What a datagram carried must be sent again, if that still makes sense.
    fn on_item_lost(&mut self, item: Item) {
        match item {
            Item::Fragment { block, fragment } => {
                self.blocks_out.on_lost(self.clocks.now(), block, fragment);
            }
            Item::Frame {
                stream: StreamId::CONTROL,
                start,
                end,
                fin,
            } => {
                self.control.send.on_lost(start, end, fin);
            }
            Item::Frame {
                stream,
                start,
                end,
                fin,
            } => {
                if let Some(pair) = self.streams.pair_mut(stream)
                    && pair.send.on_lost(start, end, fin)
                {
                    self.make_ready(stream);
                }
            }
            Item::Probe | Item::Ack | Item::Padding => {}
        }
    }
}

fn note_loss(observers: &mut Observers, now: Instant, path: PathId, fated: &Fated<Item>) {
    observers.note(now, || {
        let (stream, block) = match fated.item {
            Item::Fragment {
                block: (stream, number),
                ..
            } => (Some(stream), Some(BlockId(wrap(number)))),
            Item::Frame { stream, .. } => (Some(stream), None),
            Item::Probe | Item::Ack | Item::Padding => (None, None),
        };
        let sequence = fated.sequence;
        Fact::DatagramLost {
            datagram: Datagram { path, sequence },
            stream,
            block,
        }
    });
}

/// Ranges, given by first and last number, of which those that continue the one before are joined with it.
fn joined(ranges: impl Iterator<Item = (u64, u64)>) -> impl Iterator<Item = (u64, u64)> {
    let mut ranges = ranges.peekable();
    std::iter::from_fn(move || {
        let (first, mut last) = ranges.next()?;
        while let Some((_, end)) = ranges.next_if(|(start, _)| *start == last + 1) {
            last = end;
        }
        Some((first, last))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_that_follow_each_other_are_one() {
        let ranges = [(3, 5), (6, 6), (8, 9), (10, 12), (10, 10)];
        let joined: Vec<_> = joined(ranges.into_iter()).collect();
        assert_eq!(joined, [(3, 6), (8, 12), (10, 10)]);
    }
}
