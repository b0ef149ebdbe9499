//! What left towards a neighbour, by packet number, so that what it reports lost can be sent again.

use std::{
    collections::VecDeque,
    time::{Duration, Instant},
};

use crate::{name::ContentId, wire::Frame};

/// Packets remembered at most.
const MOST: usize = 1 << 18;

/// What a packet carried.
#[derive(Clone, Debug, Default)]
pub(crate) enum Carried {
    /// A segment of a content, which the neighbour calls by the handle.
    Segment {
        content: ContentId,
        handle: u64,
        start: u64,
        end: u64,
    },
    /// What the neighbour must be reported again, unless it is out of date.
    Frames(Box<[Frame]>),
    /// Nothing that is sent again.
    #[default]
    Nothing,
}

/// Packets that left.
#[derive(Debug, Default)]
pub(crate) struct Departures {
    packets: VecDeque<(Instant, Carried)>,
    /// The number of the first of them.
    first: u64,
}

impl Departures {
    /// The number of the next packet.
    pub(crate) fn next_number(&self) -> u64 {
        self.first + self.packets.len() as u64
    }

    /// Forgets all that left; the next packet has the next number.
    pub(crate) fn forget(&mut self) {
        self.first = self.next_number();
        self.packets.clear();
    }

    /// Records the next packet, and forgets those that left longer than `horizon` ago.
    pub(crate) fn push(&mut self, now: Instant, carried: Carried, horizon: Duration) {
        self.packets.push_back((now, carried));
        while self.packets.len() > MOST
            || self
                .packets
                .front()
                .is_some_and(|(at, _)| now.saturating_duration_since(*at) > horizon)
        {
            self.packets.pop_front();
            self.first += 1;
        }
    }

    /// Takes what a packet carried out, if it is remembered.
    pub(crate) fn take(&mut self, number: u64) -> Option<Carried> {
        let index = usize::try_from(number.checked_sub(self.first)?).ok()?;
        let (_, carried) = self.packets.get_mut(index)?;
        Some(std::mem::take(carried))
    }

    /// The numbers that are remembered.
    pub(crate) fn numbers(&self) -> std::ops::Range<u64> {
        self.first..self.next_number()
    }
}
