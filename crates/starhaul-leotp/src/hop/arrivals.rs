//! Which packets of a neighbour arrived: replays, holes and when they are confirmed, reordering.

use std::{
    collections::BTreeMap,
    ops::Range,
    time::{Duration, Instant},
};

use crate::wire::ShortNumber;

/// Holes remembered at most; of more, the oldest are taken for lost.
const MOST_HOLES: usize = 1024;
/// A hole is confirmed by so many later packets, unless packets are known to be overtaken by more.
const LATER_PACKETS: u64 = 3;
/// Reordering that has not been seen for so long is forgotten, by half of it each.
const REORDERING_MEMORY: Duration = Duration::from_secs(10);

/// Whether an authentic packet is new.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Arrival {
    /// The newest, behind a hole of this many.
    Newest { missing: u64 },
    /// It was missing.
    Late,
    /// It came before, or too long ago to tell.
    Replayed,
}

/// The packets of one direction.
#[derive(Debug, Default)]
pub(crate) struct Arrivals {
    next: u64,
    /// Missing packets, by the first number of each hole.
    holes: BTreeMap<u64, Hole>,
    /// Holes that were taken for lost for want of room, to be reported.
    crowded_out: Vec<Range<u64>>,
    /// Where the first hole that is not reported may be.
    unreported_from: u64,
    reordering: Reordering,
}

#[derive(Clone, Copy, Debug)]
struct Hole {
    end: u64,
    noticed: Instant,
    is_reported: bool,
}

/// By how much packets were overtaken: the most of this period and of the last.
#[derive(Debug, Default)]
struct Reordering {
    since: Option<Instant>,
    time: [Duration; 2],
    packets: [u64; 2],
}

impl Arrivals {
    /// Packets are expected from this number on.
    pub(crate) fn starting_at(next: u64) -> Self {
        Self {
            next,
            ..Self::default()
        }
    }

    /// One more than the greatest number that arrived.
    pub(crate) fn next(&self) -> u64 {
        self.next
    }

    /// The whole number of a packet.
    pub(crate) fn expand(&self, number: ShortNumber) -> u64 {
        number.expand(self.next)
    }

    /// Whether a packet with this number would be no replay.
    pub(crate) fn is_new(&self, number: u64) -> bool {
        let hole = self.holes.range(..=number).next_back();
        number >= self.next || hole.is_some_and(|(_, hole)| hole.end > number)
    }

    /// Records a packet that is authentic. What was missing for longer than `longest` tells nothing of reordering: it was held back, and a
    /// receiver that waited so long for others would report them when the sender has them no more.
    pub(crate) fn accept(&mut self, now: Instant, number: u64, longest: Duration) -> Arrival {
        if let Some(missing) = number.checked_sub(self.next) {
            if missing > 0 {
                let hole = Hole {
                    end: number,
                    noticed: now,
                    is_reported: false,
                };
                self.holes.insert(self.next, hole);
                if self.holes.len() > MOST_HOLES
                    && let Some((start, hole)) = self.holes.pop_first()
                    && !hole.is_reported
                    && self.crowded_out.len() < MOST_HOLES
                {
                    self.crowded_out.push(start..hole.end);
                }
            }
            self.next = number.saturating_add(1);
            return Arrival::Newest { missing };
        }
        let Some((&start, &hole)) = self
            .holes
            .range(..=number)
            .next_back()
            .filter(|(_, hole)| hole.end > number)
        else {
            return Arrival::Replayed;
        };
        self.holes.remove(&start);
        let rest = [(start, number), (number + 1, hole.end)];
        for (start, end) in rest.into_iter().filter(|(start, end)| start < end) {
            self.holes.insert(start, Hole { end, ..hole });
        }
        let missed = now.saturating_duration_since(hole.noticed);
        if missed <= longest {
            self.reordering.saw(now, missed, self.next - number);
        }
        Arrival::Late
    }

    /// The numbers that are lost for sure and were not reported yet.
    pub(crate) fn take_lost(&mut self, now: Instant) -> Vec<Range<u64>> {
        let reordering = &self.reordering;
        let mut lost = std::mem::take(&mut self.crowded_out);
        let mut first_open = None;
        for (&start, hole) in self.holes.range_mut(self.unreported_from..) {
            if hole.is_reported {
                continue;
            }
            let (wait, later) = reordering.confirmation(hole.noticed);
            let is_overtaken = later.is_some_and(|later| self.next - hole.end >= later);
            if is_overtaken || now.saturating_duration_since(hole.noticed) >= wait {
                hole.is_reported = true;
                lost.push(start..hole.end);
            } else {
                first_open.get_or_insert(start);
            }
        }
        self.unreported_from = first_open.unwrap_or(self.next);
        lost
    }

    /// When a hole is confirmed by time.
    pub(crate) fn next_confirmation(&self) -> Option<Instant> {
        let mut open = self
            .holes
            .range(self.unreported_from..)
            .filter(|(_, hole)| !hole.is_reported);
        let (_, hole) = open.next()?;
        Some(hole.noticed + self.reordering.confirmation(hole.noticed).0)
    }
}

impl Reordering {
    fn saw(&mut self, now: Instant, time: Duration, packets: u64) {
        let since = *self.since.get_or_insert(now);
        if now.saturating_duration_since(since) > REORDERING_MEMORY {
            let (time, packets) = self.before(now);
            self.since = Some(now);
            self.time = [Duration::ZERO, time];
            self.packets = [0, packets];
        }
        self.time[0] = self.time[0].max(time);
        self.packets[0] = self.packets[0].max(packets);
    }

    /// For how long, or until how many later packets arrived, a hole that was noticed then may be reordering. Where no packet was
    /// overtaken by another of late, it is none.
    fn confirmation(&self, noticed: Instant) -> (Duration, Option<u64>) {
        let (mut time, mut packets) = self.before(noticed);
        if self.passed(noticed) <= REORDERING_MEMORY {
            time = time.max(self.time[0]);
            packets = packets.max(self.packets[0]);
        }
        (
            time + time / 4,
            (packets <= LATER_PACKETS).then_some(LATER_PACKETS),
        )
    }

    /// What counts at an instant of the period that is over then: of the last one, or of the present one when it is too old.
    fn before(&self, at: Instant) -> (Duration, u64) {
        match self.passed(at) {
            passed if passed <= REORDERING_MEMORY => (self.time[1], self.packets[1]),
            passed if passed <= 2 * REORDERING_MEMORY => (self.time[0] / 2, self.packets[0] / 2),
            _ => (Duration::ZERO, 0),
        }
    }

    fn passed(&self, at: Instant) -> Duration {
        let since = self.since.unwrap_or(at);
        at.saturating_duration_since(since)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lost(arrivals: &mut Arrivals, now: Instant) -> Vec<(u64, u64)> {
        let lost = arrivals.take_lost(now).into_iter();
        lost.map(|lost| (lost.start, lost.end)).collect()
    }

    const MS: Duration = Duration::from_millis(1);
    const LONGEST: Duration = Duration::from_millis(300);

    #[test]
    fn a_hole_is_reported_once_and_nothing_is_accepted_twice() {
        let now = Instant::now();
        let mut arrivals = Arrivals::default();
        assert_eq!(
            arrivals.accept(now, 0, LONGEST),
            Arrival::Newest { missing: 0 }
        );
        assert_eq!(
            arrivals.accept(now, 3, LONGEST),
            Arrival::Newest { missing: 2 }
        );
        assert_eq!(
            lost(&mut arrivals, now),
            [(1, 3)],
            "no packet was ever overtaken"
        );
        assert_eq!(lost(&mut arrivals, now), []);
        for number in [0, 3] {
            assert!(!arrivals.is_new(number));
            assert_eq!(arrivals.accept(now, number, LONGEST), Arrival::Replayed);
        }
        assert!(arrivals.is_new(2) && arrivals.is_new(4));
        assert_eq!(arrivals.accept(now, 1, LONGEST), Arrival::Late);
        assert_eq!(arrivals.accept(now, 1, LONGEST), Arrival::Replayed);
        assert_eq!(arrivals.accept(now, 2, LONGEST), Arrival::Late);
        assert!(arrivals.holes.is_empty());
    }

    #[test]
    fn reordering_that_was_seen_delays_reports() {
        let now = Instant::now();
        let mut arrivals = Arrivals::default();
        arrivals.accept(now, 1, LONGEST);
        lost(&mut arrivals, now);
        assert_eq!(arrivals.accept(now + MS * 4, 0, LONGEST), Arrival::Late);
        let now = now + MS * 10;
        arrivals.accept(now, 3, LONGEST);
        assert_eq!(lost(&mut arrivals, now), []);
        assert_eq!(arrivals.next_confirmation(), Some(now + MS * 5));
        assert_eq!(lost(&mut arrivals, now + MS * 5), [(2, 3)]);
        // It was overtaken by one packet: three later ones confirm a hole sooner.
        for number in 5..8 {
            arrivals.accept(now + MS * 6, number, LONGEST);
        }
        assert_eq!(lost(&mut arrivals, now + MS * 6), [(4, 5)]);
        // By more than three: only time does.
        arrivals.accept(now + MS * 7, 4, LONGEST);
        arrivals.accept(now + MS * 8, 20, LONGEST);
        assert_eq!(lost(&mut arrivals, now + MS * 9), []);
        assert_eq!(lost(&mut arrivals, now + MS * 13), [(8, 20)]);
    }

    #[test]
    fn a_packet_that_was_held_back_for_long_delays_no_reports() {
        let now = Instant::now();
        let mut arrivals = Arrivals::default();
        arrivals.accept(now, 1, LONGEST);
        assert_eq!(lost(&mut arrivals, now), [(0, 1)]);
        let now = now + MS * 30_000;
        assert_eq!(arrivals.accept(now, 0, LONGEST), Arrival::Late);
        arrivals.accept(now, 3, LONGEST);
        assert_eq!(lost(&mut arrivals, now), [(2, 3)]);
    }

    #[test]
    fn reordering_is_forgotten_though_no_packet_is_overtaken_any_more() {
        let now = Instant::now();
        let mut arrivals = Arrivals::default();
        arrivals.accept(now, 1, LONGEST);
        arrivals.accept(now + MS * 200, 0, LONGEST);
        let mut wait_at = |seconds: u32| {
            let at = now + MS * (200 + 1000 * seconds);
            let number = arrivals.next() + 1;
            arrivals.accept(at, number, LONGEST);
            let wait = arrivals.next_confirmation().map(|due| due - at);
            lost(&mut arrivals, at + MS * 1000);
            wait
        };
        assert_eq!(wait_at(9), Some(MS * 250));
        assert_eq!(wait_at(15), Some(MS * 125));
        assert_eq!(wait_at(21), Some(Duration::ZERO));
    }

    #[test]
    fn holes_are_bounded() {
        let now = Instant::now();
        let mut arrivals = Arrivals::default();
        for number in 0..10_000 {
            arrivals.accept(now, number * 2, LONGEST);
        }
        assert_eq!(arrivals.holes.len(), MOST_HOLES);
        let reported: u64 = arrivals
            .take_lost(now)
            .iter()
            .map(|it| it.end - it.start)
            .sum();
        assert_eq!(reported, 2 * MOST_HOLES as u64, "those without room, too");
        assert_eq!(arrivals.accept(now, 1, LONGEST), Arrival::Replayed);
        assert_eq!(arrivals.accept(now, 19_997, LONGEST), Arrival::Late);
    }
}
