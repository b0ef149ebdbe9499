//! Losses that may follow from the rate: where a hop drops what it does not carry without a queue, as a policer does, no delay shows how much it
//! carries. Of a path that loses as much when less is sent, nothing is lowered again.

use std::time::{Duration, Instant};

use super::{Arrived, Shown};

/// Where a greater share than this is missing, beyond the path's own, the rate is lowered. Above the lesser one it grows slowly.
const MOST_LOST: f64 = 0.2;
const MUCH_LOST: f64 = 0.15;
/// The rate is then at most this multiple of what arrived, for so many rounds, and until the average is of packets that were sent at it: that
/// shows whether less is lost of less.
const LEFT_SHARE: f64 = 1.1;
const BOUND_ROUNDS: u32 = 6;
const LONGEST_BOUND: Duration = Duration::from_secs(10);
/// Where more than this share of the loss is left then, it is the path's own.
const STILL_LOST: f64 = 0.75;
/// Losses are averaged over so many rounds, and so many packets at least. Of losses in a row so many count: one outage is no rate that is too high.
const AVERAGED_ROUNDS: f64 = 2.0;
const AVERAGED_PACKETS: f64 = 64.0;
const MOST_IN_A_ROW: u32 = 6;

/// What is lost on a hop.
#[derive(Debug, Default)]
pub(super) struct Losses {
    /// The share that is missing, averaged.
    share: f64,
    /// The share that is missing however little is sent.
    own: f64,
    bound: Option<Bound>,
}

/// The most that a rate may be, since much is missing.
#[derive(Clone, Copy, Debug)]
struct Bound {
    rate: f64,
    /// When it is found anew: at first, what arrived may be of a hop that carried more. And when it is over.
    again: Option<Instant>,
    until: Instant,
    /// The greatest share that was missing meanwhile.
    most: f64,
}

impl Losses {
    /// Whether so much is missing that the rate must not grow fast.
    pub(super) fn are_many(&self) -> bool {
        self.share > self.own + MUCH_LOST
    }

    /// Takes a packet; returns the most that the rate may be, in bytes per second, if much is missing.
    pub(super) fn bound(
        &mut self,
        packet: &Arrived,
        round: Duration,
        shown: &Shown,
    ) -> Option<f64> {
        self.average(packet, round, shown);
        if let Some(bound) = &mut self.bound {
            bound.most = bound.most.max(self.share);
            // All that arrives by then left at the rate of before.
            if bound.again.take_if(|at| packet.now >= *at).is_some() {
                bound.rate = bound.rate.min(LEFT_SHARE * shown.received);
            }
            if packet.now < bound.until {
                return Some(bound.rate);
            }
            if self.share > STILL_LOST * bound.most {
                self.own = self.share;
            }
        }
        self.own = self.own.min(self.share);
        // Of one who has little to send no rate is the cause.
        let is_bound = self.share > self.own + MOST_LOST && !shown.is_limited;
        self.bound = is_bound.then(|| self.begin(packet, round, shown));
        self.bound.map(|bound| bound.rate)
    }

    fn begin(&self, packet: &Arrived, round: Duration, shown: &Shown) -> Bound {
        let averaged = AVERAGED_PACKETS * f64::from(packet.bytes) / shown.received.max(1.0);
        let averaged = Duration::try_from_secs_f64(2.0 * averaged).unwrap_or(LONGEST_BOUND);
        Bound {
            rate: LEFT_SHARE * shown.received,
            again: Some(packet.now + round),
            until: packet.now + (round * BOUND_ROUNDS).max(averaged.min(LONGEST_BOUND)),
            most: self.share,
        }
    }

    /// Whether the rate is lowered.
    #[cfg(test)]
    pub(super) fn is_bound(&self) -> bool {
        self.bound.is_some()
    }

    fn average(&mut self, packet: &Arrived, round: Duration, shown: &Shown) {
        let sent = f64::from(packet.missing.min(MOST_IN_A_ROW) + 1);
        let in_rounds =
            AVERAGED_ROUNDS * round.as_secs_f64() * shown.arrived / f64::from(packet.bytes.max(1));
        let part = sent / in_rounds.max(AVERAGED_PACKETS);
        self.share += (1.0 - 1.0 / sent - self.share) * part;
    }
}
