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
/// Packets at most that are remembered for longer, since they have to arrive and are not known to have done so. Requesters notice the holes of more.
const MOST_KEPT: usize = 1 << 12;

/// What a packet carried, as far as it is sent again when the packet is lost.
#[derive(Clone, Debug, Default)]
pub(crate) enum Carried {
    /// A segment of a content, which the neighbour calls by the handle.
    Segment {
        content: ContentId,
        handle: u64,
        start: u64,
        end: u64,
        /// Of a stream: its requester asks again only for what others came behind.
        is_live: bool,
    },
    /// What the neighbour must be reported again, unless it is out of date; whether that are losses of what is of streams, among others.
    Frames {
        frames: Box<[Frame]>,
        reports_live: bool,
    },
    /// Nothing that is sent again.
    #[default]
    Nothing,
}

impl Carried {
    fn frames(&self) -> usize {
        match self {
            Self::Frames { frames, .. } => frames.len(),
            Self::Segment { .. } | Self::Nothing => 0,
        }
    }

    /// Whether nobody soon asks again for what it brings.
    pub(crate) fn must_arrive(&self) -> bool {
        match self {
            Self::Segment { is_live, .. } => *is_live,
            Self::Frames { reports_live, .. } => *reports_live,
            Self::Nothing => false,
        }
    }
}

/// Packets that left.
#[derive(Debug, Default)]
pub(crate) struct Departures {
    packets: VecDeque<(Instant, Carried)>,
    /// The number of the first of them.
    first: u64,
    /// Those before it that have to arrive and are not known to have, with their numbers.
    kept: VecDeque<(u64, Instant, Carried)>,
    /// One more than the greatest number that is known to have arrived; and as what it counts until then, since losses before it may not be told yet.
    confirmed: u64,
    before: Option<(u64, Instant)>,
    frames: usize,
}

/// How long packets are remembered.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Horizon {
    pub(crate) all: Duration,
    /// Those that have to arrive and are not known to have.
    pub(crate) kept: Duration,
}

impl Departures {
    /// The number of the next packet.
    pub(crate) fn next_number(&self) -> u64 {
        self.first + self.packets.len() as u64
    }

    /// Forgets all that left; the next packet has the next number.
    pub(crate) fn forget(&mut self) {
        *self = Self {
            first: self.next_number(),
            ..Self::default()
        };
    }

    /// Records the next packet, and forgets those that left longer ago than the horizon. Returns how many frames are not remembered for want
    /// of room.
    pub(crate) fn push(&mut self, now: Instant, mut carried: Carried, horizon: Horizon) -> usize {
        let mut dropped = 0;
        if self.frames + carried.frames() > MOST_FRAMES {
            dropped = std::mem::take(&mut carried).frames();
        }
        self.frames += carried.frames();
        self.packets.push_back((now, carried));
        self.before.take_if(|(_, until)| *until <= now);
        let is_old = |at: Instant, horizon| now.saturating_duration_since(at) > horizon;
        while let Some((at, carried)) = self
            .packets
            .pop_front_if(|(at, _)| is_old(*at, horizon.all))
        {
            self.keep(at, carried);
            self.first += 1;
        }
        if self.packets.len() > MOST {
            let gone = self.packets.pop_front();
            self.frames -= gone.map_or(0, |(_, carried)| carried.frames());
            self.first += 1;
        }
        while let Some((.., gone)) = self
            .kept
            .pop_front_if(|(_, at, _)| is_old(*at, horizon.kept))
        {
            self.frames -= gone.frames();
        }
        dropped
    }

    /// The first packet is forgotten, unless it has to arrive and may not have.
    fn keep(&mut self, at: Instant, carried: Carried) {
        let confirmed = self.before.map_or(self.confirmed, |(number, _)| number);
        let mut gone = Some(carried);
        if self.first >= confirmed
            && let Some(carried) = gone.take_if(|carried| carried.must_arrive())
        {
            self.kept.push_back((self.first, at, carried));
            if self.kept.len() > MOST_KEPT {
                gone = self.kept.pop_front().map(|(.., carried)| carried);
            }
        }
        self.frames -= gone.map_or(0, |carried| carried.frames());
    }

    /// The number before this one has arrived. What was lost before it may be told `until` then.
    pub(crate) fn confirm(&mut self, end: u64, until: Option<Instant>) {
        if let Some(until) = until {
            let number = self.before.map_or(self.confirmed, |(number, _)| number);
            self.before = Some((number, until));
        }
        self.confirmed = self.confirmed.max(end);
    }

    /// Takes what a packet carried out, if it is remembered.
    pub(crate) fn take(&mut self, number: u64) -> Option<Carried> {
        let carried = match number.checked_sub(self.first) {
            Some(index) => &mut self.packets.get_mut(usize::try_from(index).ok()?)?.1,
            None => {
                let kept = self
                    .kept
                    .binary_search_by_key(&number, |(number, ..)| *number);
                &mut self.kept.get_mut(kept.ok()?)?.2
            }
        };
        self.frames -= carried.frames();
        Some(std::mem::take(carried))
    }

    /// The first number from this one on that is remembered: what lies between those that are kept for longer costs nothing.
    pub(crate) fn next_known(&self, from: u64) -> Option<u64> {
        if from < self.first {
            let at = self.kept.partition_point(|(number, ..)| *number < from);
            if let Some((number, ..)) = self.kept.get(at) {
                return Some(*number);
            }
        }
        let from = from.max(self.first);
        (from < self.next_number()).then_some(from)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::name::ContentId;

    const SECOND: Duration = Duration::from_secs(1);
    const HORIZON: Horizon = Horizon {
        all: SECOND,
        kept: Duration::from_secs(10),
    };

    /// All numbers that are remembered.
    fn known(departures: &Departures) -> Vec<u64> {
        let after = |number: &u64| departures.next_known(number + 1);
        std::iter::successors(departures.next_known(0), after).collect()
    }

    fn segment(is_live: bool) -> Carried {
        Carried::Segment {
            content: ContentId([1; 16]),
            handle: 0,
            start: 0,
            end: 1,
            is_live,
        }
    }

    #[test]
    fn the_frames_of_packets_that_left_are_bounded() {
        let now = Instant::now();
        let frames = || Carried::Frames {
            frames: vec![Frame::Refused { handle: 1 }; 100].into(),
            reports_live: false,
        };
        let mut departures = Departures::default();
        let dropped: usize = (0..1000)
            .map(|_| departures.push(now, frames(), HORIZON))
            .sum();
        assert_eq!(dropped, 100_000 - MOST_FRAMES / 100 * 100);
        assert_eq!(departures.next_number(), 1000);
        assert!(matches!(departures.take(999), Some(Carried::Nothing)));
        assert!(matches!(departures.take(7), Some(Carried::Frames { .. })));
        assert_eq!(
            departures.push(now, frames(), HORIZON),
            0,
            "there is room again"
        );
        assert_eq!(
            departures.push(now + 2 * SECOND, Carried::Nothing, HORIZON),
            0
        );
        assert_eq!((departures.frames, departures.packets.len()), (0, 1));
    }

    #[test]
    fn what_has_to_arrive_and_may_not_have_is_remembered_for_longer() {
        let now = Instant::now();
        let mut departures = Departures::default();
        for number in 0..10 {
            departures.push(now, segment(number % 2 == 1), HORIZON);
        }
        departures.confirm(4, None);
        departures.push(now + 3 * SECOND, Carried::Nothing, HORIZON);
        let kept = (0..10).filter(|number| departures.take(*number).is_some());
        assert_eq!(kept.collect::<Vec<_>>(), [5, 7, 9]);
        assert_eq!(known(&departures), [5, 7, 9, 10]);
        assert!(matches!(departures.take(5), Some(Carried::Nothing)));
        departures.push(now + 11 * SECOND, Carried::Nothing, HORIZON);
        assert_eq!(known(&departures), [11]);
    }

    /// Its answer came, and the report of what was lost before it waits for what may only be late.
    #[test]
    fn what_a_probe_confirmed_may_be_reported_lost_a_moment_later() {
        let now = Instant::now();
        let mut departures = Departures::default();
        departures.push(now, segment(true), HORIZON);
        departures.confirm(1, Some(now + 3 * SECOND));
        departures.push(now + 2 * SECOND, segment(true), HORIZON);
        assert!(matches!(departures.take(0), Some(Carried::Segment { .. })));
        departures.push(now + 4 * SECOND, Carried::Nothing, HORIZON);
        assert_eq!(departures.take(1).map(|it| it.must_arrive()), Some(true));
        departures.confirm(3, None);
        departures.push(now + 20 * SECOND, Carried::Nothing, HORIZON);
        assert_eq!(known(&departures), [3]);
    }

    #[test]
    fn what_is_remembered_for_longer_is_bounded() {
        let now = Instant::now();
        let mut departures = Departures::default();
        for _ in 0..3 * MOST_KEPT {
            departures.push(now, segment(true), HORIZON);
        }
        departures.push(now + 2 * SECOND, Carried::Nothing, HORIZON);
        assert_eq!(departures.kept.len(), MOST_KEPT);
        let numbers = known(&departures);
        assert_eq!(numbers[0], 2 * MOST_KEPT as u64);
        departures.forget();
        assert_eq!(known(&departures), []);
    }
    /// Numbers that are forgotten took the looks for which one packet's reports pay, and what is kept behind them was not sent again.
    #[test]
    fn what_is_forgotten_between_those_that_are_kept_is_not_gone_through() {
        let now = Instant::now();
        let mut departures = Departures::default();
        for number in 0..200_001 {
            departures.push(now, segment(number % 100_000 == 7), HORIZON);
        }
        departures.push(now + 2 * SECOND, Carried::Nothing, HORIZON);
        assert_eq!(known(&departures), [7, 100_007, 200_001]);
    }
}
