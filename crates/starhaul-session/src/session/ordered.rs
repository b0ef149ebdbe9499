//! Ordered streams: whole blocks of the peer wait for those sent before them, until these have ended or the deadline of those that wait
//! has come.

use std::time::Instant;

use super::Session;
use crate::{
    streams::{Kind, Stream},
    types::StreamId,
};

impl Session {
    /// Hands on the blocks of an ordered stream before which none is missing any more.
    pub(super) fn release_ordered(&mut self, stream: StreamId) {
        while let Some(blocks) = self.streams.receiving_mut(stream) {
            let next = blocks.next;
            if let Some(complete) = blocks.waiting.remove(&next) {
                blocks.next += 1;
                self.inbound.release(&complete.data);
                self.hand_on(stream, next, complete);
            } else if blocks.ended.contains(next) {
                let after = blocks
                    .ended
                    .gaps(next, u64::MAX)
                    .next()
                    .map_or(u64::MAX, |(start, _)| start);
                blocks.next = blocks
                    .waiting
                    .first_key_value()
                    .map_or(after, |(first, _)| after.min(*first));
            } else {
                break;
            }
        }
        if let Some(Stream {
            kind: Kind::Receiving(blocks),
            config,
            ..
        }) = self.streams.get_mut(stream)
        {
            self.inbound.plan_release(stream, blocks, config.deadline);
        }
    }

    /// When the next block of an ordered stream has waited until its deadline; unknown as long as the offset of the peer's clock is.
    pub(super) fn next_release(&self) -> Option<Instant> {
        let (due, _) = self.inbound.first_release()?;
        self.clocks.when_peer(due)
    }

    /// Gives up, of each ordered stream whose first waiting block must wait no longer, what that one waits for. The sender has given up
    /// these blocks too, or does so at their deadline: nothing is said of them, and what still comes of one is ignored as it is of any
    /// that has ended otherwise than whole.
    pub(super) fn release_due(&mut self) {
        while self
            .next_release()
            .is_some_and(|at| at <= self.clocks.now())
            && let Some(release) = self.inbound.first_release()
        {
            let waiting = self.streams.receiving_mut(release.1);
            let waiting = waiting.map(|blocks| blocks.waiting.len());
            if waiting.is_some_and(|waiting| waiting > 0) {
                self.skip_to_first(release.1);
            } else {
                self.inbound.forget_release(release);
            }
        }
    }

    /// Ordered streams hold too much: what they wait for is given up.
    pub(super) fn skip_missing(&mut self) {
        for stream in self.inbound.waiting() {
            let skipped = self.skip_to_first(stream);
            self.inbound.count_dropped(skipped);
        }
    }

    /// Hands on the first block that waits and those that follow it, without those before it; returns how many these are.
    fn skip_to_first(&mut self, stream: StreamId) -> u64 {
        let Some(blocks) = self.streams.receiving_mut(stream) else {
            return 0;
        };
        let Some((&first, _)) = blocks.waiting.first_key_value() else {
            return 0;
        };
        let next = blocks.next;
        let skipped = self.give_up(stream, next, first);
        self.release_ordered(stream);
        self.finish_received(stream);
        skipped
    }
}
