//! When a path counts as silent (deadline.md "Path monitor"): the oldest datagram sent after the newest one that was answered has
//! waited for longer than a round trip and a margin. What counts is how far the answers have come in what *we* sent: packets
//! of the peer say nothing of our direction, and late word of what left long ago says nothing of now.

use std::{
    collections::VecDeque,
    time::{Duration, Instant},
};

use crate::delay::Smoothed;

/// Datagrams sent within this time of each other are remembered together.
const GRAIN: Duration = Duration::from_millis(1);
/// Most such groups remembered: four seconds at least; beyond, the last one grows.
const MAX_GROUPS: usize = 4_096;
/// A receiver may keep the answer to a single packet back for so long (RFC 9000 §18.2, `max_ack_delay`).
const MAX_ACK_DELAY: Duration = Duration::from_millis(25);
/// What was sent so long after something else has an answer of its own.
const NEXT_ANSWER: Duration = Duration::from_millis(5);
/// Silence shorter than this beyond one RTT is the scheduling of the peer.
const LEAST_MARGIN: Duration = Duration::from_millis(10);
/// So few datagrams may all have been lost by chance; their retransmission is to be heard of first.
const FEW: u32 = 3;

/// Datagrams sent at about the same time.
#[derive(Clone, Copy, Debug)]
struct Group {
    last: u32,
    count: u32,
    sent: Instant,
}

/// What was sent and not answered, and what follows from it.
#[derive(Clone, Debug, Default)]
pub(crate) struct Silence {
    unanswered: VecDeque<Group>,
    /// Answers come from the transport, over the path itself; those of the session then prove nothing.
    pub(crate) transport_answers: bool,
    /// When the path was last heard to be alive.
    heard: Option<Instant>,
    round_trip: Option<Smoothed>,
    /// When answers were heard last, and the shortest round trip among those.
    sampled: Option<Instant>,
    sample: Option<Duration>,
    suspect: bool,
}

impl Silence {
    /// A datagram that will be answered was sent.
    pub(crate) fn on_sent(&mut self, now: Instant, sequence: u32) {
        let full = self.unanswered.len() >= MAX_GROUPS;
        match self.unanswered.back_mut() {
            Some(group) if full || now < group.sent + GRAIN => {
                group.last = sequence;
                group.count = group.count.saturating_add(1);
            }
            _ => self.unanswered.push_back(Group {
                last: sequence,
                count: 1,
                sent: now,
            }),
        }
    }

    /// A datagram was answered; `rtt` is the path's.
    pub(crate) fn on_answer(&mut self, now: Instant, sequence: u32, rtt: Duration) {
        let mut sent = None;
        while let Some(group) = self.unanswered.front_mut() {
            // Serial arithmetic (RFC 1982): how many of the group come after the answered one.
            let after = group.last.wrapping_sub(sequence);
            if after >= 1 << 31 {
                sent = Some(group.sent);
                self.unanswered.pop_front();
                continue;
            }
            if after < group.count {
                sent = Some(group.sent);
                group.count = after;
            }
            if group.count == 0 {
                self.unanswered.pop_front();
            }
            break;
        }
        let Some(sent) = sent else { return };
        if self.sampled != Some(now) {
            self.take_sample();
        }
        let sample = now.saturating_duration_since(sent);
        self.sample = Some(self.sample.map_or(sample, |least| least.min(sample)));
        self.sampled = Some(now);
        if self.transport_answers {
            self.heard = Some(now);
        }
        self.suspect &= self.due(rtt).is_some_and(|due| due <= now);
    }

    /// Something of the peer arrived over the path. While only the session answers, perhaps over another path, that is the best
    /// there is to tell a path that lost acknowledgements from a dead one.
    pub(crate) fn on_heard(&mut self, now: Instant) {
        if !self.transport_answers {
            self.heard = Some(now);
            self.suspect = false;
        }
    }

    /// The path is silent.
    pub(crate) const fn is_suspect(&self) -> bool {
        self.suspect
    }

    /// When it will be, if nothing is heard; `None` when it owes nothing or is silent already.
    pub(crate) fn deadline(&self, rtt: Duration) -> Option<Instant> {
        self.due(rtt).filter(|_| !self.suspect)
    }

    /// True when the path just fell silent.
    pub(crate) fn on_timeout(&mut self, now: Instant, rtt: Duration) -> bool {
        let silent = self.deadline(rtt).is_some_and(|due| due <= now);
        self.suspect |= silent;
        silent
    }

    fn due(&self, rtt: Duration) -> Option<Instant> {
        let due = self.due_from(0, rtt)?;
        let alone = self
            .unanswered
            .get(1)
            .is_some_and(|next| next.sent < due && next.sent + rtt + LEAST_MARGIN > due);
        // A single one may have been lost by chance; what left after it has had no time to be answered.
        if alone {
            self.due_from(1, rtt)
        } else {
            Some(due)
        }
    }

    /// When the groups from the one at `index` on are overdue.
    fn due_from(&self, index: usize, rtt: Duration) -> Option<Instant> {
        let groups = || self.unanswered.iter().skip(index);
        let first = groups().next()?.sent;
        // One answer may be lost, or kept back; the next one that is due speaks for both.
        let latest = first + MAX_ACK_DELAY;
        let answered = groups()
            .map(|group| group.sent)
            .find(|sent| *sent >= first + NEXT_ANSWER)
            .map_or(latest, |sent| sent.min(latest));
        let soon = answered + LEAST_MARGIN;
        let count = groups()
            .take_while(|group| group.sent < soon)
            .fold(0, |sum: u32, group| sum.saturating_add(group.count));
        let half = rtt / 2;
        let margin = if count <= FEW {
            half.max(LEAST_MARGIN)
        } else {
            let variation = self.round_trip.map_or(half, |rtt| rtt.variation);
            let most = half.max(LEAST_MARGIN);
            variation.saturating_mul(4).clamp(LEAST_MARGIN, most)
        };
        // While answers keep coming, though late, a queue grows and nobody is silent.
        let expected = answered.checked_add(rtt)?;
        let expected = self.heard.map_or(expected, |heard| {
            let wait = if self.transport_answers {
                Duration::ZERO
            } else {
                rtt
            };
            expected.max(heard + wait)
        });
        expected.checked_add(margin)
    }

    fn take_sample(&mut self) {
        let Some(sample) = self.sample.take() else {
            return;
        };
        match &mut self.round_trip {
            Some(round_trip) => round_trip.add(sample),
            None => self.round_trip = Some(Smoothed::first(sample)),
        }
    }
}
