//! What left towards a neighbour, by packet number, so that what it reports lost can be sent again.

use std::{
    collections::VecDeque,
    time::{Duration, Instant},
};

use crate::{name::ContentId, wire::Frame};

/// Packets remembered at most.
const MOST: usize = 1 << 18;
/// Frames in them at most; who asked for what those of later packets say asks again.
const MOST_FRAMES: usize = 1 << 16;

/// What a packet carried, as far as it is sent again when the packet is lost.
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

impl Carried {
    fn frames(&self) -> usize {
        match self {
            Self::Frames(frames) => frames.len(),
            Self::Segment { .. } | Self::Nothing => 0,
        }
    }
}

/// Packets that left.
#[derive(Debug, Default)]
pub(crate) struct Departures {
    packets: VecDeque<(Instant, Carried)>,
    /// The number of the first of them.
    first: u64,
    frames: usize,
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
        self.frames = 0;
    }

    /// Records the next packet, and forgets those that left longer than `horizon` ago. Returns how many frames are not remembered for want
    /// of room.
    pub(crate) fn push(&mut self, now: Instant, mut carried: Carried, horizon: Duration) -> usize {
        let mut dropped = 0;
        if self.frames + carried.frames() > MOST_FRAMES {
            dropped = std::mem::take(&mut carried).frames();
        }
        self.frames += carried.frames();
        self.packets.push_back((now, carried));
        while self.packets.len() > MOST
            || self
                .packets
                .front()
                .is_some_and(|(at, _)| now.saturating_duration_since(*at) > horizon)
        {
            let gone = self.packets.pop_front();
            self.frames -= gone.map_or(0, |(_, carried)| carried.frames());
            self.first += 1;
        }
        dropped
    }

    /// Takes what a packet carried out, if it is remembered.
    pub(crate) fn take(&mut self, number: u64) -> Option<Carried> {
        let index = usize::try_from(number.checked_sub(self.first)?).ok()?;
        let (_, carried) = self.packets.get_mut(index)?;
        self.frames -= carried.frames();
        Some(std::mem::take(carried))
    }

    /// The numbers that are remembered.
    pub(crate) fn numbers(&self) -> std::ops::Range<u64> {
        self.first..self.next_number()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_frames_of_packets_that_left_are_bounded() {
        let (now, second) = (Instant::now(), Duration::from_secs(1));
        let frames = || Carried::Frames(vec![Frame::Refused { handle: 1 }; 100].into());
        let mut departures = Departures::default();
        let dropped: usize = (0..1000)
            .map(|_| departures.push(now, frames(), second))
            .sum();
        assert_eq!(dropped, 100_000 - MOST_FRAMES / 100 * 100);
        assert_eq!(departures.next_number(), 1000);
        assert!(matches!(departures.take(999), Some(Carried::Nothing)));
        assert!(matches!(departures.take(7), Some(Carried::Frames(_))));
        assert_eq!(
            departures.push(now, frames(), second),
            0,
            "there is room again"
        );
        assert_eq!(
            departures.push(now + 2 * second, Carried::Nothing, second),
            0
        );
        assert_eq!((departures.frames, departures.packets.len()), (0, 1));
    }
}
