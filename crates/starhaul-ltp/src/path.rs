//! How long an answer of the peer may take, and when the next segment may leave.

use std::time::{Duration, Instant};

use starhaul_units::Bandwidth;

/// The time after which an unanswered segment is sent again (RFC 5326 §6.2, §6.3): the round trip of light, what the
/// peer was seen to need, and a margin, which doubles with each attempt.
#[derive(Debug)]
pub(crate) struct AnswerTime {
    light: Duration,
    margin: Duration,
    /// Attempts after which the margin no longer doubles while neither light time nor answers tell how far the peer is.
    blind_doublings: u32,
    /// Time to the reports on checkpoints, once measured.
    measured: Option<Measured>,
    /// Time to the acknowledgements of reports: all that an engine learns which only receives.
    acknowledged: Option<Measured>,
    /// Whether the peer was sent a report, from which it may have measured, too.
    has_reported: bool,
}

/// Smoothed time to an answer and its deviation (RFC 6298 §2).
#[derive(Clone, Copy, Debug)]
struct Measured {
    smoothed: Duration,
    deviation: Duration,
}

/// Attempts after which the margin no longer doubles.
pub(crate) const MOST_DOUBLINGS: u32 = 6;
/// Who has measured one answer waits for the next so many times as long: for as long, and four deviations of half of it (RFC 6298 §2).
const AFTER_FIRST_ANSWER: u32 = 3;

impl AnswerTime {
    pub(crate) fn new(
        one_way_light_time: Duration,
        margin: Duration,
        blind_doublings: u32,
    ) -> Self {
        Self {
            light: one_way_light_time.saturating_mul(2),
            margin,
            blind_doublings,
            measured: None,
            acknowledged: None,
            has_reported: false,
        }
    }

    /// A report leaves: the peer may measure from now on.
    pub(crate) fn reported(&mut self) {
        self.has_reported = true;
    }

    /// Takes the time to the report on a checkpoint that was sent once (Karn's rule).
    pub(crate) fn measure(&mut self, took: Duration) {
        self.measured = Some(Measured::with(self.measured, took));
    }

    /// Takes the time to the acknowledgement of a report that was sent once. It counts where nothing else is known: a report may wait for
    /// what its acknowledgement does not.
    pub(crate) fn measure_acknowledgement(&mut self, took: Duration) {
        if self.light.is_zero() {
            self.acknowledged = Some(Measured::with(self.acknowledged, took));
        }
    }

    /// Whether nothing tells how far the peer is.
    pub(crate) fn is_blind(&self) -> bool {
        self.light.is_zero() && self.measured.is_none() && self.acknowledged.is_none()
    }

    /// Smoothed time from a checkpoint to its report; `None` before the first.
    pub(crate) fn smoothed(&self) -> Option<Duration> {
        self.measured.map(|measured| measured.smoothed)
    }

    /// How long to wait for the answer after this many earlier attempts.
    pub(crate) fn timeout(&self, attempts: u32) -> Duration {
        let measured = self.measured.or(self.acknowledged);
        let measured = measured.map_or(Duration::ZERO, |measured| {
            let deviation = measured.deviation.saturating_mul(4);
            measured.smoothed.saturating_add(deviation)
        });
        self.light
            .max(measured)
            .saturating_add(self.margin(attempts))
    }

    /// The margin after this many earlier attempts.
    fn margin(&self, attempts: u32) -> Duration {
        let doublings = match self.is_blind() {
            true => self.blind_doublings,
            false => MOST_DOUBLINGS,
        };
        let doubled = 1_u32.checked_shl(attempts.min(doublings));
        self.margin.saturating_mul(doubled.unwrap_or(u32::MAX))
    }

    /// How long this engine retransmits something without an answer.
    pub(crate) fn silence(&self, limit: u32) -> Duration {
        let attempts = (0..=limit).map(|attempts| self.timeout(attempts));
        attempts.fold(self.timeout(0), Duration::saturating_add)
    }

    /// How long a sender with the same limits may not be heard before it has given up: a round trip after what was heard last its next
    /// checkpoint leaves, of which each attempt may be lost. That is bounded by what was measured and by the number of attempts.
    pub(crate) fn patience(&self, limit: u32) -> Duration {
        let attempts = (0..=limit).map(|attempts| self.peer_timeout(attempts));
        attempts.fold(self.timeout(0), Duration::saturating_add)
    }

    /// How long the peer waits for an answer after this many earlier attempts, at most: once it has measured one, longer than by the light
    /// time alone, until it has measured many.
    fn peer_timeout(&self, attempts: u32) -> Duration {
        let own = self.timeout(attempts);
        if !self.has_reported {
            return own;
        }
        let measured = self.measured.or(self.acknowledged);
        let answer = measured.map_or(Duration::ZERO, |measured| measured.smoothed);
        let first = self.light.max(answer).saturating_mul(AFTER_FIRST_ANSWER);
        own.max(first.saturating_add(self.margin(attempts)))
    }
}

impl Measured {
    /// What is known after an answer that took so long.
    fn with(before: Option<Self>, took: Duration) -> Self {
        match before {
            None => Self {
                smoothed: took,
                deviation: took / 2,
            },
            Some(before) => Self {
                smoothed: before.smoothed.saturating_mul(7) / 8 + took / 8,
                deviation: before.deviation.saturating_mul(3) / 4
                    + took.abs_diff(before.smoothed) / 4,
            },
        }
    }
}

/// Spreads segments over time at the rate of the link.
#[derive(Debug)]
pub(crate) struct Pacer {
    rate: Option<Bandwidth>,
    /// When the bytes sent so far have left at that rate.
    busy_until: Option<Instant>,
}

/// Data that leave at once, as time at the link's rate: a driver need not wake more often.
const BURST: Duration = Duration::from_millis(1);

impl Pacer {
    pub(crate) fn new(rate: Option<Bandwidth>) -> Self {
        Self {
            rate: rate.filter(|rate| *rate > Bandwidth::ZERO),
            busy_until: None,
        }
    }

    /// When the next batch may leave.
    pub(crate) fn ready_at(&self) -> Option<Instant> {
        self.busy_until
    }

    /// Bytes that may leave at once.
    pub(crate) fn burst(&self) -> usize {
        let bytes = self.rate.map_or(u64::MAX, |rate| rate.bytes_in(BURST));
        usize::try_from(bytes).unwrap_or(usize::MAX)
    }

    /// Counts what left. A sender that woke late makes up for at most one burst.
    pub(crate) fn sent(&mut self, now: Instant, bytes: usize) {
        let Some(rate) = self.rate else { return };
        let earliest = now.checked_sub(BURST).unwrap_or(now);
        let from = self.busy_until.map_or(now, |until| until.max(earliest));
        self.busy_until = from.checked_add(rate.time_to_send(bytes as u64));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn ms(ms: u64) -> Duration {
        Duration::from_millis(ms)
    }

    #[test]
    fn the_timeout_begins_with_light_time_and_margin_and_follows_what_is_measured() {
        let mut answer = AnswerTime::new(ms(4000), ms(100), 8);
        assert_eq!(answer.timeout(0), ms(8100));
        assert_eq!(answer.timeout(2), ms(8400));
        assert_eq!(answer.timeout(50), ms(14_400));
        for _ in 0..50 {
            answer.measure(ms(8005));
        }
        assert!(answer.timeout(0) < ms(8200), "{answer:?}");
        // An unknown light time is learnt, for which there is more time at first.
        let mut answer = AnswerTime::new(Duration::ZERO, ms(100), 8);
        assert_eq!(answer.timeout(50), ms(25_600));
        assert!(answer.silence(20) > ms(350_000), "{:?}", answer.silence(20));
        answer.measure_acknowledgement(ms(800));
        assert!(answer.timeout(0) >= ms(2500) && answer.timeout(50) < ms(10_000));
        assert_eq!(answer.smoothed(), None);
        answer.measure(ms(600));
        assert!(answer.timeout(0) < ms(2000), "reports count more");
        assert!(answer.timeout(0) >= ms(1900));
        assert_eq!(answer.smoothed(), Some(ms(600)));
        assert!(answer.silence(3) > answer.timeout(0) * 4);
    }

    /// What a sender does that knows the light time as its receiver does, whatever it has measured.
    #[test]
    fn a_receiver_waits_for_the_last_attempt_of_a_sender_that_has_measured() {
        const LIMIT: u32 = 3;
        let mut receiver = AnswerTime::new(ms(4000), ms(100), 8);
        assert_eq!(receiver.patience(LIMIT), receiver.silence(LIMIT));
        receiver.reported();
        let mut sender = AnswerTime::new(ms(4000), ms(100), 8);
        for _ in 0..20 {
            let given_up = sender.silence(LIMIT) - sender.timeout(0);
            // The checkpoint leaves a round trip after what was heard before.
            let needed = ms(8000) + given_up;
            assert!(receiver.patience(LIMIT) >= needed, "{sender:?}");
            sender.measure(ms(8000));
        }
        assert!(receiver.patience(LIMIT) < receiver.silence(LIMIT) * 3);
        // Where the light time is not known, what was measured counts.
        let mut receiver = AnswerTime::new(Duration::ZERO, ms(100), 8);
        receiver.reported();
        for _ in 0..50 {
            receiver.measure_acknowledgement(ms(8000));
        }
        assert!(receiver.patience(LIMIT) >= ms(8000) * (1 + 3 * (LIMIT + 1)));
    }

    #[test]
    fn a_pacer_keeps_the_rate_also_when_woken_late() {
        let start = Instant::now();
        let mut pacer = Pacer::new(Some(Bandwidth::from_mbit(8)));
        assert_eq!(pacer.burst(), 1000);
        pacer.sent(start, 1000);
        assert_eq!(pacer.ready_at(), Some(start + ms(1)));
        pacer.sent(start + ms(1) + ms(1) / 2, 1000);
        assert_eq!(pacer.ready_at(), Some(start + ms(2)));
        pacer.sent(start + ms(50), 1000);
        assert_eq!(pacer.ready_at(), Some(start + ms(50)));
    }
}
