//! A neighbour that was sent something to which it answers sooner or later, and from which nothing has come since: it may have begun a
//! new life in which it does not know where this node is, so that it hears nothing but a hello.

use std::time::{Duration, Instant};

/// Who is sent more after so long is greeted, and again after each further wait: a relay that begins anew hears soon where this node is.
const FIRST: Duration = Duration::from_millis(250);
const NEXT: Duration = Duration::from_millis(100);
/// Who has not come back after so long is greeted less and less: each wait is twice as long, up to [`LONGEST`].
const SOON: Duration = Duration::from_secs(10);
const LONGEST: Duration = Duration::from_secs(4);
/// Nothing more leaves by itself to one that was not heard for so long.
const GIVE_UP: Duration = Duration::from_secs(30);
/// Who was sent fewer packets than these is greeted later, and only with another one: what idle streams ask for is answered when there is something.
const FEW: u32 = 4;
const FEW_FIRST: Duration = Duration::from_secs(5);
/// And after so many round trips.
const ROUND_TRIPS: u32 = 3;

/// What was sent since the neighbour was heard.
#[derive(Debug, Default)]
pub(super) struct Unheard {
    since: Option<Instant>,
    packets: u32,
    /// The last hello, and the wait after it.
    greeted: Option<(Instant, Duration)>,
}

impl Unheard {
    /// Something leaves. Returns whether a hello does, too.
    pub(super) fn sends(&mut self, now: Instant, rtt: Duration) -> bool {
        self.since.get_or_insert(now);
        self.packets = self.packets.saturating_add(1);
        self.greets(now, rtt)
    }

    /// When a hello is due though nothing else leaves: who sends waits for what the neighbour asks for.
    pub(super) fn timeout(&self, rtt: Duration) -> Option<Instant> {
        let since = self.since.filter(|_| self.packets > FEW)?;
        let at = self.due(rtt)?;
        (at <= since + GIVE_UP).then_some(at)
    }

    /// The time passes. Returns whether a hello leaves.
    pub(super) fn handle_timeout(&mut self, now: Instant, rtt: Duration) -> bool {
        self.timeout(rtt).is_some_and(|at| at <= now) && self.greets(now, rtt)
    }

    fn greets(&mut self, now: Instant, rtt: Duration) -> bool {
        let Some(since) = self.since else {
            return false;
        };
        let is_due = self.due(rtt).is_some_and(|at| at <= now);
        if is_due {
            let is_soon = now.saturating_duration_since(since) < SOON;
            let wait = match self.greeted {
                Some((_, wait)) if !is_soon => (wait * 2).min(LONGEST),
                _ => NEXT,
            };
            self.greeted = Some((now, wait.max(rtt)));
        }
        is_due
    }

    fn due(&self, rtt: Duration) -> Option<Instant> {
        let since = self.since?;
        let first = match self.packets > FEW {
            true => FIRST,
            false => FEW_FIRST,
        };
        Some(match self.greeted {
            Some((at, wait)) => at + wait,
            None => since + first.max(rtt * ROUND_TRIPS),
        })
    }

    /// The neighbour was heard.
    pub(super) fn heard(&mut self) {
        *self = Self::default();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const RTT: Duration = Duration::from_millis(20);

    #[test]
    fn who_is_sent_more_and_is_not_heard_is_greeted_less_and_less() {
        let start = Instant::now();
        let millis = |millis| start + Duration::from_millis(millis);
        let mut unheard = Unheard::default();
        let sent = (0..40_000).step_by(50);
        let greeted = sent.filter(|at| unheard.sends(millis(*at), RTT));
        let soon = (250..=10_050).step_by(100);
        let later = [10_250, 10_650, 11_450, 13_050, 16_250, 20_250, 24_250];
        let latest = [28_250, 32_250, 36_250];
        let expected: Vec<u64> = soon.chain(later).chain(latest).collect();
        assert_eq!(greeted.collect::<Vec<_>>(), expected);
        unheard.heard();
        let rtt = Duration::from_millis(600);
        let at = [50_000, 51_000, 51_799, 60_000, 60_100];
        let greeted = at.map(|at| unheard.sends(millis(at), rtt));
        assert_eq!(greeted, [false, false, false, true, false]);
        unheard.heard();
        let at = [80_000, 84_000, 85_000];
        let greeted = at.map(|at| unheard.sends(millis(at), rtt));
        assert_eq!(greeted, [false, false, true], "few packets");
    }

    /// A gateway had sent all that a relay asked for when that ended: it waited for Interests, and the relay for a hello.
    #[test]
    fn who_has_sent_all_greets_a_neighbour_that_does_not_answer_and_gives_up() {
        let start = Instant::now();
        let millis = |millis| start + Duration::from_millis(millis);
        for (packets, expected) in [(FEW, 0), (FEW + 1, 107)] {
            let mut unheard = Unheard::default();
            for _ in 0..packets {
                assert!(!unheard.sends(start, RTT));
            }
            let mut greeted = Vec::new();
            for at in (0..100_000).step_by(10) {
                if unheard.handle_timeout(millis(at), RTT) {
                    greeted.push(at);
                }
            }
            assert_eq!(greeted.len(), expected, "{greeted:?}");
            assert_eq!(unheard.timeout(RTT), None);
            unheard.heard();
            assert!(!unheard.handle_timeout(millis(100_000), RTT));
        }
    }
}
