//! Whether the last packets to a neighbour arrived. Behind them short ones follow, which show their loss; where an outage took those, too, a
//! neighbour that waits for nothing would say nothing. So what nobody soon asks for again, the segments of streams and reports of losses, has to be confirmed: by the
//! greatest number that the neighbour tells, or by a stamp that it sends back. What is not confirmed is probed (as RFC 8985 §7 does, with a packet that asks to
//! be answered and carries nothing): the answer confirms it, or comes with a report of what is missing.

use std::time::{Duration, Instant};

/// Packets without content that follow the last data.
const TAILS: u32 = 2;
/// What was not confirmed for two round trips, or as long as an answer takes at most, and so much is probed.
const SLACK: Duration = Duration::from_millis(20);
const ROUND_TRIPS: u32 = 2;
/// The waits between probes are half of what has passed until they are so long, or half a round trip, and later so small a part of it: an outage lasts no longer
/// for that.
const WAIT: Duration = Duration::from_millis(100);
const PART: u32 = 32;
/// What was not confirmed for so long is not probed any more, and not remembered: its requester has asked for it again.
pub(super) const GIVE_UP: Duration = Duration::from_secs(10);

/// The packets behind the last ones, and what is to be confirmed.
#[derive(Debug, Default)]
pub(super) struct Tail {
    /// A packet without content follows then, and so many in all.
    follows_at: Option<Instant>,
    following: u32,
    unconfirmed: Option<Unconfirmed>,
    /// The stamp of the last packet, not shortened.
    stamped: Option<i64>,
}

/// The last packet that has to be confirmed.
#[derive(Clone, Copy, Debug)]
struct Unconfirmed {
    number: u64,
    sent: Instant,
    stamped: i64,
    /// No packet before it has this stamp.
    is_first: bool,
    probed: Option<Instant>,
}

impl Tail {
    /// A packet leaves, with this stamp. `must_arrive`: it has to be confirmed.
    pub(super) fn sent(&mut self, now: Instant, number: u64, stamped: i64, must_arrive: bool) {
        let is_first = self.stamped.replace(stamped) != Some(stamped);
        if must_arrive {
            self.unconfirmed = Some(Unconfirmed {
                number,
                sent: now,
                stamped,
                is_first,
                probed: None,
            });
        }
    }

    /// The neighbour has received the number before this one. Returns whether that confirms a packet that was probed.
    pub(super) fn confirm(&mut self, end: u64) -> bool {
        let confirmed = self.unconfirmed.take_if(|last| last.number < end);
        confirmed.is_some_and(|last| last.probed.is_some())
    }

    /// The neighbour has received a packet that left with this stamp: it tells of the last that has to be confirmed if it is that or a later one. Returns one more than
    /// the number of that.
    pub(super) fn shown_by(&self, stamped: i64) -> Option<u64> {
        let last = self.unconfirmed?;
        let is_shown = last.stamped < stamped || last.is_first && last.stamped == stamped;
        is_shown.then_some(last.number + 1)
    }

    /// When the next probe is due. `overdue_after`: as long as an answer takes at most.
    pub(super) fn probe_at(&self, rtt: Duration, overdue_after: Duration) -> Option<Instant> {
        let last = self.unconfirmed?;
        let at = match last.probed {
            None => last.sent + (rtt * ROUND_TRIPS).max(overdue_after) + SLACK,
            Some(probed) => {
                let passed = probed.saturating_duration_since(last.sent);
                let wait = (passed / 2).min(WAIT).max(passed / PART).max(rtt / 2);
                probed + wait
            }
        };
        (at < last.sent + GIVE_UP).then_some(at)
    }

    /// A probe leaves.
    pub(super) fn probed(&mut self, now: Instant) {
        if let Some(last) = &mut self.unconfirmed {
            last.probed = Some(now);
        }
    }

    /// Data leave; behind the last of them packets without content follow.
    pub(super) fn follows_data(&mut self, now: Instant, rtt: Duration, is_last: bool) {
        self.following = if is_last { TAILS } else { 0 };
        self.set(now, rtt);
    }

    /// A packet without data leaves. It shows the loss of what was sent before; that of a report of losses must show as well, later than that
    /// of data.
    pub(super) fn follows_control(&mut self, now: Instant, rtt: Duration, has_report: bool) {
        self.following = match has_report {
            true => TAILS - 1,
            false => self.following.saturating_sub(1),
        };
        self.set(now, rtt);
    }

    /// The first of the packets that show a loss comes after a quarter of the round trip, another after a whole one: both are
    /// hardly lost.
    fn set(&mut self, now: Instant, rtt: Duration) {
        let wait = match TAILS - self.following {
            0 => rtt / 4,
            later => rtt * later,
        };
        let wait = wait.max(Duration::from_millis(1));
        self.follows_at = (self.following > 0).then_some(now + wait);
    }

    /// When the next packet without content follows.
    pub(super) fn follows_at(&self) -> Option<Instant> {
        self.follows_at
    }

    /// The neighbour began a new life, which asks for what it wants.
    pub(super) fn forget(&mut self) {
        self.unconfirmed = None;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);
    const RTT: Duration = Duration::from_millis(20);

    /// When probes leave if nothing is confirmed, in milliseconds since the packet left.
    fn probes(tail: &mut Tail, start: Instant) -> Vec<u128> {
        let mut probes = Vec::new();
        while let Some(at) = tail.probe_at(RTT, RTT) {
            tail.probed(at);
            probes.push(at.duration_since(start).as_millis());
        }
        probes
    }

    #[test]
    fn what_is_not_confirmed_is_probed_at_short_intervals_and_given_up() {
        let start = Instant::now();
        let mut tail = Tail::default();
        tail.sent(start, 7, 0, true);
        let probes = probes(&mut tail, start);
        assert_eq!(&probes[..6], [60, 90, 135, 202, 302, 402]);
        let waits = probes.windows(2).map(|pair| (pair[0], pair[1] - pair[0]));
        for (passed, wait) in waits {
            assert!(wait <= 100.max(passed / 32 + 1), "{wait} after {passed}");
        }
        assert!(probes.len() < 80, "{} probes", probes.len());
        assert!((9000..10_000).contains(probes.last().unwrap()));
        // What leaves next is probed again.
        tail.sent(start + MS * 20_000, 90, 20_000_000, true);
        assert_eq!(tail.probe_at(RTT, RTT), Some(start + MS * 20_060));
    }

    #[test]
    fn only_what_left_with_it_or_later_confirms_a_packet() {
        let start = Instant::now();
        let mut tail = Tail::default();
        tail.sent(start, 5, 1000, false);
        assert_eq!(
            tail.probe_at(RTT, RTT),
            None,
            "nothing needs a confirmation"
        );
        // Two packets of one stamp: it does not tell which of them came.
        tail.sent(start, 6, 2000, false);
        tail.sent(start, 7, 2000, true);
        assert!(!tail.confirm(7));
        assert_eq!([1999, 2000].map(|at| tail.shown_by(at)), [None; 2]);
        tail.probed(start + MS * 60);
        tail.sent(start + MS * 60, 8, 62_000, false);
        assert_eq!(tail.shown_by(62_000), Some(8));
        assert!(tail.confirm(8), "it was probed");
        assert_eq!(tail.probe_at(RTT, RTT), None);
        tail.sent(start + MS * 70, 9, 72_000, true);
        assert_eq!(tail.shown_by(72_000), Some(10));
        assert!(!tail.confirm(11), "it was not");
        assert_eq!(
            (tail.shown_by(99_000), tail.probe_at(RTT, RTT)),
            (None, None)
        );
        tail.sent(start + MS * 90, 11, 92_000, true);
        tail.forget();
        assert_eq!(tail.probe_at(RTT, RTT), None);
    }
}
