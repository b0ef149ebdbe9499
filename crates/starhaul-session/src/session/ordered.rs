//! Ordered streams: whole blocks of the peer wait for those sent before them, until these have ended or the deadline of those that wait
//! has come.

use std::time::Instant;

use super::{Kind, Session, Stream};
use crate::{receive::blocks::ReceiveBlocks, types::StreamId};

impl Session {
    /// Hands on the blocks of an ordered stream before which none is missing any more.
    pub(super) fn release_ordered(&mut self, stream: StreamId) {
        while let Some(blocks) = self.received(stream) {
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
        self.plan_release(stream);
    }

    /// Notes until when the first block that waits may do so. It is the one that was sent first.
    fn plan_release(&mut self, stream: StreamId) {
        let Some(Stream {
            kind: Kind::Receiving(blocks),
            config,
            ..
        }) = self.streams.get_mut(&stream)
        else {
            return;
        };
        let deadline = u64::try_from(config.deadline.as_micros()).unwrap_or(u64::MAX);
        let due = blocks
            .waiting
            .first_key_value()
            .map(|(_, first)| first.born_micros.saturating_add(deadline));
        let before = std::mem::replace(&mut blocks.release_due, due);
        if before != due {
            let releases = &mut self.inbound.releases;
            before.map(|at| releases.remove(&(at, stream)));
            due.map(|at| releases.insert((at, stream)));
        }
    }

    /// When the next block of an ordered stream has waited until its deadline; unknown as long as the offset of the peer's clock is.
    pub(super) fn next_release(&self) -> Option<Instant> {
        let (due, _) = self.inbound.releases.first()?;
        self.clocks.when_peer(*due)
    }

    /// Gives up, of each ordered stream whose first waiting block must wait no longer, what that one waits for. The sender has given up
    /// these blocks too, or does so at their deadline: nothing is said of them, and what still comes of one is ignored as it is of any
    /// that has ended otherwise than whole.
    pub(super) fn release_due(&mut self) {
        while self.next_release().is_some_and(|at| at <= self.now)
            && let Some(release) = self.inbound.releases.first().copied()
        {
            let waiting = self.received(release.1).map(|blocks| blocks.waiting.len());
            if waiting.is_some_and(|waiting| waiting > 0) {
                self.skip_to_first(release.1);
            } else {
                self.inbound.releases.remove(&release);
            }
        }
    }

    /// Ordered streams hold too much: what they wait for is given up.
    pub(super) fn skip_missing(&mut self) {
        let waiting: Vec<StreamId> = self
            .inbound
            .releases
            .iter()
            .map(|(_, stream)| *stream)
            .collect();
        for stream in waiting {
            self.inbound.dropped += self.skip_to_first(stream);
        }
    }

    /// Hands on the first block that waits and those that follow it, without those before it; returns how many these are.
    fn skip_to_first(&mut self, stream: StreamId) -> u64 {
        let Some(blocks) = self.received(stream) else {
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

    /// The blocks of a stream of the peer's.
    pub(super) fn received(&mut self, stream: StreamId) -> Option<&mut ReceiveBlocks> {
        match &mut self.streams.get_mut(&stream)?.kind {
            Kind::Receiving(blocks) => Some(blocks),
            Kind::Sending(_) | Kind::Bytes(_) => None,
        }
    }
}
