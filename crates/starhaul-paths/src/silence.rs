//! When a path counts as silent (docs/deadlines.md): the oldest datagram sent after the newest acknowledged
//! one has waited for longer than an RTT and a margin. Progress is measured in *our* sequence of datagrams: packets of
//! the peer prove nothing about our direction, and a late acknowledgement of an old datagram nothing about the present.

use std::{
    collections::VecDeque,
    time::{Duration, Instant},
};

use crate::delay::Smoothed;

/// Datagrams sent within this time of each other form one group.
const GRAIN: Duration = Duration::from_millis(1);
/// Greatest number of groups kept: four seconds at least; beyond, the last one grows.
const MAX_GROUPS: usize = 4_096;
/// A receiver may delay the acknowledgement of a single packet by this much (RFC 9000 §18.2, `max_ack_delay`).
const MAX_ACK_DELAY: Duration = Duration::from_millis(25);
/// A datagram sent this long after the one before it gets an acknowledgement of its own.
const NEXT_ANSWER: Duration = Duration::from_millis(5);
/// Silence shorter than this beyond one RTT may be scheduling delay at the peer.
const LEAST_MARGIN: Duration = Duration::from_millis(10);
/// So few datagrams may all be lost by chance; wait for the acknowledgement of their retransmission first.
const FEW: u32 = 3;
/// Of the losses in a row, or of acknowledgements, so many are longer than those that show nothing yet where the path loses in a row.
const RARE: f64 = 0.03;
/// No more datagrams than this are waited for to tell losses in a row from silence.
const MOST_IN_A_ROW: f64 = 256.0;

/// Datagrams sent at about the same time.
#[derive(Clone, Copy, Debug)]
struct Group {
    last: u64,
    count: u32,
    sent: Instant,
}

/// Unacknowledged datagrams and the silence deadline derived from them.
#[derive(Clone, Debug, Default)]
pub(crate) struct Silence {
    unanswered: VecDeque<Group>,
    /// The transport acknowledges over the path itself; acknowledgements of the session then prove nothing.
    pub(crate) transport_answers: bool,
    /// When the path last showed a sign of life.
    heard: Option<Instant>,
    round_trip: Option<Smoothed>,
    /// When the last acknowledgements arrived, and the shortest RTT among them.
    sampled: Option<Instant>,
    sample: Option<Duration>,
    suspect: bool,
    /// Beyond [`FEW`], how many datagrams in a row may go unanswered by chance.
    in_a_row: u32,
}

impl Silence {
    /// The path loses so many datagrams in a row on average, and takes acknowledgements for likely to be lost alike: as many unanswered ones as
    /// come in a row three times in a hundred do not yet show that it is silent.
    pub(crate) fn expect_in_a_row(&mut self, mean: f64) {
        let most = RARE.ln() / (1.0 - 1.0 / mean.max(1.0)).ln();
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "it is from 0 to 256"
        )]
        let most = most.clamp(0.0, MOST_IN_A_ROW).ceil() as u32;
        self.in_a_row = most;
    }

    /// A datagram that the peer will acknowledge was sent.
    pub(crate) fn on_sent(&mut self, now: Instant, sequence: u64) {
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

    /// Datagrams up to this one were acknowledged; `rtt` is the path's. When the newest of them left, if that is news.
    pub(crate) fn on_answer(
        &mut self,
        now: Instant,
        sequence: u64,
        rtt: Duration,
    ) -> Option<Instant> {
        let mut sent = None;
        while let Some(group) = self.unanswered.front_mut() {
            // How many of the group come after the acknowledged one.
            let Some(after) = group.last.checked_sub(sequence) else {
                sent = Some(group.sent);
                self.unanswered.pop_front();
                continue;
            };
            let after = u32::try_from(after).unwrap_or(u32::MAX);
            if after < group.count {
                sent = Some(group.sent);
                group.count = after;
            }
            if group.count == 0 {
                self.unanswered.pop_front();
            }
            break;
        }
        let sent = sent?;
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
        Some(sent)
    }

    /// A packet of the peer arrived over the path. While only the session acknowledges, perhaps over another path, this
    /// is the best way to tell a path that lost acknowledgements from a dead one.
    pub(crate) fn on_heard(&mut self, now: Instant) {
        if !self.transport_answers {
            self.heard = Some(now);
            self.suspect = false;
        }
    }

    /// Whether the path is silent.
    pub(crate) const fn is_suspect(&self) -> bool {
        self.suspect
    }

    /// When the path becomes silent if nothing arrives; `None` when nothing is unacknowledged or it is silent already.
    pub(crate) fn deadline(&self, rtt: Duration) -> Option<Instant> {
        self.due(rtt).filter(|_| !self.suspect)
    }

    /// Returns true when the path has just become silent.
    pub(crate) fn on_timeout(&mut self, now: Instant, rtt: Duration) -> bool {
        let silent = self.deadline(rtt).is_some_and(|due| due <= now);
        self.suspect |= silent;
        silent
    }

    /// For how long the acknowledgement of the oldest datagram after the newest acknowledged one has been overdue.
    pub(crate) fn overdue_for(&self, now: Instant, rtt: Duration) -> Duration {
        let overdue = self.unanswered.front().and_then(|oldest| {
            // Asked for each prediction, and hardly ever more than an RTT has passed.
            if now.saturating_duration_since(oldest.sent) <= rtt {
                return None;
            }
            let variation = self.round_trip.map_or(rtt / 2, |rtt| rtt.variation());
            let margin = variation.saturating_mul(4).max(LEAST_MARGIN);
            let due = oldest
                .sent
                .checked_add(rtt)?
                .checked_add(MAX_ACK_DELAY + margin)?;
            Some(now.saturating_duration_since(due))
        });
        overdue.unwrap_or_default()
    }

    fn due(&self, rtt: Duration) -> Option<Instant> {
        let due = self.due_from(0, rtt)?;
        let alone = self
            .unanswered
            .get(1)
            .is_some_and(|next| next.sent < due && next.sent + rtt + LEAST_MARGIN > due);
        // A single datagram may be lost by chance; there was no time yet to acknowledge what was sent after it.
        if alone {
            self.due_from(1, rtt)
        } else {
            Some(due)
        }
    }

    /// When the groups from the one at `index` on become overdue.
    fn due_from(&self, index: usize, rtt: Duration) -> Option<Instant> {
        let groups = || self.unanswered.iter().skip(index);
        let first = groups().next()?.sent;
        // One acknowledgement may be lost or delayed; the next one due covers both.
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
        let most = half.max(LEAST_MARGIN);
        let patient = self.expected(answered, rtt)?.checked_add(most)?;
        if count <= FEW {
            return Some(patient);
        }
        let variation = self.round_trip.map_or(half, |rtt| rtt.variation());
        let margin = variation.saturating_mul(4).clamp(LEAST_MARGIN, most);
        // What leaves soon after the first may be acknowledged together with it.
        let shown = self.shown_by(index).map(|sent| match sent < soon {
            true => answered,
            false => sent,
        });
        let due = shown.and_then(|sent| self.expected(sent, rtt)?.checked_add(margin));
        Some(due.map_or(patient, |due| due.min(patient)))
    }

    /// When the datagram left that, with those unanswered before it, is one more than may be lost in a row by chance.
    fn shown_by(&self, index: usize) -> Option<Instant> {
        let by_chance = self.in_a_row.max(FEW);
        let mut count = 0_u32;
        let shows = |group: &&Group| {
            count = count.saturating_add(group.count);
            count > by_chance
        };
        let group = self.unanswered.iter().skip(index).find(shows);
        group.map(|group| group.sent)
    }

    /// When the acknowledgement of what was `sent` then is expected. While acknowledgements keep arriving, though late, a queue grows and the path
    /// is not silent.
    fn expected(&self, sent: Instant, rtt: Duration) -> Option<Instant> {
        let expected = sent.checked_add(rtt)?;
        let wait = match self.transport_answers {
            true => Duration::ZERO,
            false => rtt,
        };
        Some(
            self.heard
                .map_or(expected, |heard| expected.max(heard + wait)),
        )
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
