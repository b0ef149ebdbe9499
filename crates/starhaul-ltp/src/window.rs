//! Red data under way to a peer when the rate of the link is unknown: no more than the peer reports in time, so that its
//! socket's buffer loses nothing while it does not run.

mod room;

use std::time::{Duration, Instant};

use starhaul_units::Bandwidth;

use self::room::Room;
use crate::batch::begin_below;

/// Data that a receiver's socket holds where the system allows it as much as it asks for, with their memory in the kernel. A smaller one
/// limits more over a short way (`window/room.rs`).
const LEAST: u64 = 8 << 20;
/// A report is asked for at each of so many parts of the window.
const PARTS: u64 = 4;

/// Red data in segments, and the packets that carry them.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Load {
    /// Bytes of data.
    pub(crate) bytes: u64,
    /// IP packets.
    pub(crate) packets: u64,
}

/// Counts red bytes sent and reported on. The window is twice what was reported in the shortest time to a report.
#[derive(Debug)]
pub(crate) struct Window {
    sent: u64,
    reported: u64,
    /// Sent before the latest checkpoint.
    asked: u64,
    /// Sent before the latest one that was not the end of a red part: these are answered as soon as they come.
    asked_within: u64,
    size: u64,
    rate: Bandwidth,
    shortest: Duration,
    room: Room,
}

/// What was sent and reported on when a checkpoint left.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Mark {
    sent: u64,
    reported: u64,
    room: room::Mark,
}

impl Window {
    /// To a peer of this light time, one way; zero if that is not known.
    pub(crate) fn new(light: Duration) -> Self {
        Self {
            sent: 0,
            reported: 0,
            asked: 0,
            asked_within: 0,
            size: LEAST,
            rate: Bandwidth::ZERO,
            shortest: Duration::MAX,
            room: Room::new(light),
        }
    }

    /// Whether another segment like this may be sent. With no checkpoint under way nothing would ever make room: then the next one is one.
    pub(crate) fn has_room(&self, now: Instant, next: Load) -> bool {
        let is_within = self.sent - self.reported < self.size || self.reported >= self.asked;
        is_within && !self.room.is_full(now, self.shortest, next)
    }

    /// When there is room although nothing is reported, at the latest; `None` if only reports make it.
    pub(crate) fn opens_at(&self) -> Option<Instant> {
        let is_heard = self.shortest < Duration::MAX;
        self.room.opens_at().filter(|_| !is_heard)
    }

    /// Whether the next segment, which is like this, should ask for a report.
    pub(crate) fn wants_report(&self, now: Instant, next: Load) -> bool {
        self.sent - self.asked_within >= self.size / PARTS
            || self.room.wants_report(now, self.shortest, next)
    }

    /// How many segments like this may leave before one has to ask for a report, or to wait for one.
    pub(crate) fn run(&self, now: Instant, next: Load) -> u64 {
        let bytes = next.bytes;
        let unasked = begin_below(self.size / PARTS, self.sent - self.asked_within, bytes);
        let within = match self.reported >= self.asked {
            true => u64::MAX,
            false => begin_below(self.size, self.sent - self.reported, bytes),
        };
        let in_room = self.room.run(now, self.shortest, next);
        unasked.min(within).min(in_room)
    }

    /// The peer tells how many bytes of memory its kernel keeps for what comes and was not taken yet.
    pub(crate) fn tell_room(&mut self, bytes: u64) {
        self.room.tell(bytes);
    }

    /// The peer keeps probably so many, as long as it does not tell.
    pub(crate) fn guess_room(&mut self, bytes: u64) {
        self.room.guess(bytes);
    }

    /// The peer has an address on this host, or elsewhere.
    pub(crate) fn set_here(&mut self, is_here: bool) {
        if self.room.set_here(is_here) {
            self.forget_way();
        }
    }

    /// The way to the peer is another one: the shortest time to a report says nothing of it. The size is kept until a report comes.
    pub(crate) fn forget_way(&mut self) {
        (self.rate, self.shortest) = (Bandwidth::ZERO, Duration::MAX);
        self.room.forget_way();
    }

    /// Segments leave.
    pub(crate) fn sent(&mut self, load: Load) {
        self.sent += load.bytes;
        self.room.sent(load);
    }

    /// A checkpoint leaves.
    pub(crate) fn mark(&mut self, now: Instant) -> Mark {
        self.asked_within = self.sent;
        self.mark_with(now, true)
    }

    /// The checkpoint at the end of a red part leaves. The peer's client service may keep its answer back, as a store does until the
    /// block is on a medium: if nothing else were asked, all others would wait for that.
    pub(crate) fn mark_end(&mut self, now: Instant) -> Mark {
        self.mark_with(now, false)
    }

    fn mark_with(&mut self, now: Instant, is_within: bool) -> Mark {
        self.asked = self.sent;
        Mark {
            sent: self.sent,
            reported: self.reported,
            room: self.room.mark(now, is_within),
        }
    }

    /// A checkpoint was answered after `took`, or will not be answered.
    pub(crate) fn settle(&mut self, mark: Mark, took: Option<Duration>) {
        self.reported = self.reported.max(mark.sent);
        self.room.settle(mark.room, took);
        let Some(took) = took else { return };
        let now = Bandwidth::from_bytes_over(self.reported - mark.reported, took);
        // A rate of the past counts less with every report.
        self.rate = now.max(self.rate.scaled(0.97));
        self.shortest = self.shortest.min(took);
        let in_time = self.rate.bytes_in(self.shortest);
        self.size = in_time.saturating_mul(2).max(LEAST);
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// So many bytes in a packet.
    const fn load(bytes: u64) -> Load {
        Load { bytes, packets: 1 }
    }

    /// Segments of a run that a test sends, less one.
    const MOST_OF_RUN: u64 = 1000;

    #[test]
    fn the_window_follows_the_link_and_never_closes_for_good() {
        let (now, mut window) = (Instant::now(), Window::new(Duration::ZERO));
        // A link of 100 MB/s with a round trip of a second: the window doubles until it holds a round trip.
        let mut in_flight = Vec::new();
        let mut sent_before = 0;
        for _ in 0..12 {
            while window.has_room(now, load(100_000)) {
                window.sent(load(100_000));
                if window.wants_report(now, load(100_000)) {
                    in_flight.push(window.mark(now));
                }
            }
            let bytes = window.sent - sent_before;
            sent_before = window.sent;
            let busy = Duration::from_secs_f64(bytes as f64 / 100e6);
            let took = busy.max(Duration::from_secs(1));
            for mark in in_flight.drain(..) {
                window.settle(mark, Some(took));
            }
        }
        assert!(window.size >= 100_000_000, "{window:?}");
        assert!(window.size <= 400_000_000, "{window:?}");
        // Checkpoints that are never answered give their room back.
        while window.has_room(now, load(1_000_000)) {
            window.sent(load(1_000_000));
            if window.wants_report(now, load(1_000_000)) {
                in_flight.push(window.mark(now));
            }
        }
        for mark in in_flight {
            window.settle(mark, None);
        }
        assert!(window.has_room(now, load(1000)));
    }

    /// It was near by, where its socket is the limit.
    #[test]
    fn a_peer_that_moves_far_away_is_not_taken_for_near_any_more() {
        let (now, mut window) = (Instant::now(), Window::new(Duration::ZERO));
        window.guess_room(2 * 212_992);
        let fill = |window: &mut Window| {
            let (before, mut marks) = (window.sent, Vec::new());
            while window.has_room(now, load(1360)) {
                window.sent(load(1360));
                if window.wants_report(now, load(1360)) {
                    marks.push(window.mark(now));
                }
            }
            (window.sent - before, marks)
        };
        let answer = |window: &mut Window, marks: Vec<Mark>, took| {
            marks
                .into_iter()
                .for_each(|mark| window.settle(mark, Some(took)));
        };
        let (_, marks) = fill(&mut window);
        answer(&mut window, marks, Duration::from_micros(100));
        let (near, marks) = fill(&mut window);
        assert!(near < LEAST / 8, "{near}");
        answer(&mut window, marks, Duration::from_micros(100));
        window.forget_way();
        let (_, marks) = fill(&mut window);
        answer(&mut window, marks, Duration::from_millis(600));
        let (far, _) = fill(&mut window);
        assert!(far > LEAST / 2, "{far}");
    }

    #[test]
    fn red_parts_whose_ends_are_answered_late_do_not_close_the_window() {
        let (now, mut late) = (Instant::now(), Vec::new());
        let mut window = Window::new(Duration::ZERO);
        for block in 0..100 {
            for _ in 0..10 {
                let next = load(100_000);
                assert!(
                    window.has_room(now, next),
                    "{window:?} after {block} blocks"
                );
                let asks = window.wants_report(now, next);
                window.sent(next);
                if asks {
                    let mark = window.mark(now);
                    window.settle(mark, Some(Duration::from_millis(1)));
                }
            }
            late.push(window.mark_end(now));
        }
        // What nothing was heard of is bounded all the same.
        while window.has_room(now, load(100_000)) {
            window.sent(load(100_000));
        }
        assert!(window.sent - window.reported <= window.size + 100_000);
        for mark in late {
            window.settle(mark, Some(Duration::from_secs(1)));
        }
        assert!(window.sent - window.reported <= window.size + 100_000);
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]
        /// What is told of a run is what is told of each of its segments when those before it have left.
        #[test]
        fn a_run_ends_where_a_segment_asks_or_waits(
            (bytes, packets) in (1_u64..70_000, 1_u64..50),
            room in prop::option::of(0_u64..64 << 20),
            is_here: bool,
            steps in prop::collection::vec((0_u8..5, 0_u64..20_000), 1..40),
        ) {
            let (now, mut window) = (Instant::now(), Window::new(Duration::ZERO));
            if let Some(room) = room {
                window.guess_room(room);
            }
            window.set_here(is_here);
            let mut marks = Vec::new();
            for (step, amount) in steps {
                match step {
                    0 => marks.push(window.mark(now)),
                    1 => marks.push(window.mark_end(now)),
                    2 if !marks.is_empty() => {
                        window.settle(marks.remove(0), Some(Duration::from_micros(1 + amount)));
                    }
                    3 if !marks.is_empty() => window.settle(marks.remove(0), None),
                    _ => window.sent(Load {
                        bytes: amount * bytes / 1000,
                        packets: amount / 1000,
                    }),
                }
                let next = Load { bytes, packets };
                let run = window.run(now, next);
                let (sent, room_before) = (window.sent, window.room.clone());
                let mut left = 0;
                while left <= MOST_OF_RUN
                    && window.has_room(now, next)
                    && !window.wants_report(now, next)
                {
                    window.sent(next);
                    left += 1;
                }
                (window.sent, window.room) = (sent, room_before);
                prop_assert_eq!(run.min(MOST_OF_RUN + 1), left);
            }
        }
    }

    #[test]
    fn a_window_that_shrinks_below_what_was_sent_since_the_last_checkpoint_asks_again() {
        let (now, mut window) = (Instant::now(), Window::new(Duration::ZERO));
        window.sent(load(64 << 20));
        let first = window.mark(now);
        window.settle(first, Some(Duration::from_millis(10)));
        assert!(window.size >= 100 << 20, "{window:?}");
        let second = window.mark(now);
        window.sent(load(30 << 20));
        let next = load(1000);
        assert!(!window.wants_report(now, next), "{window:?}");
        // A short time to a report makes it smaller, and no other report is to come.
        window.settle(second, Some(Duration::from_millis(1)));
        assert!(window.size < 30 << 20, "{window:?}");
        assert!(
            window.has_room(now, next) && window.wants_report(now, next),
            "{window:?}"
        );
        window.sent(next);
        let last = window.mark(now);
        assert!(!window.has_room(now, next), "one segment is enough");
        window.settle(last, None);
        assert!(window.has_room(now, next));
    }
}
