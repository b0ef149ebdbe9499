//! A neighbour that was sent something to which it answers sooner or later, and from which nothing has come since: it may have begun a
//! new life in which it does not know where this node is, so that it hears nothing but a hello.

use std::time::{Duration, Instant};

/// Who is sent more after so long is greeted; and again after each further wait, which is twice as long, up to [`LONGEST`].
const FIRST: Duration = Duration::from_secs(1);
const LONGEST: Duration = Duration::from_secs(4);
/// Who was sent fewer packets than these has the longest wait: what idle streams ask for is answered when there is something.
const FEW: u32 = 4;
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
        let since = *self.since.get_or_insert(now);
        self.packets = self.packets.saturating_add(1);
        let first = match self.packets > FEW {
            true => FIRST,
            false => LONGEST + FIRST,
        };
        let (at, wait) = match self.greeted {
            Some((at, wait)) => (at + wait, wait * 2),
            None => (since + first.max(rtt * ROUND_TRIPS), FIRST),
        };
        let greets = now >= at;
        if greets {
            self.greeted = Some((now, wait.min(LONGEST)));
        }
        greets
    }

    /// The neighbour was heard.
    pub(super) fn heard(&mut self) {
        *self = Self::default();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_is_sent_more_and_is_not_heard_is_greeted_less_and_less() {
        let start = Instant::now();
        let millis = |millis| start + Duration::from_millis(millis);
        let mut unheard = Unheard::default();
        let rtt = Duration::from_millis(20);
        let sent = (0..20_000).step_by(100);
        let greeted = sent.filter(|at| unheard.sends(millis(*at), rtt));
        let expected = [1000, 2000, 4000, 8000, 12_000, 16_000];
        assert_eq!(greeted.collect::<Vec<_>>(), expected);
        unheard.heard();
        let rtt = Duration::from_millis(600);
        let at = [30_000, 31_000, 31_799, 40_000, 40_100];
        let greeted = at.map(|at| unheard.sends(millis(at), rtt));
        assert_eq!(greeted, [false, false, false, true, false]);
        unheard.heard();
        let at = [60_000, 64_000, 65_000];
        let greeted = at.map(|at| unheard.sends(millis(at), rtt));
        assert_eq!(greeted, [false, false, true], "few packets");
    }
}
