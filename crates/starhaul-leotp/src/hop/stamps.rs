//! Stamps of packets, and what those that come back tell of round trips: no wait at either end, since a stamp is that of the departure, and who
//! sends it back says how long it was held.
//!
//! Where control is from end to end, only data bring stamps back, and each relay adds the round trip behind it, so that the requester has that of
//! the path, as the published code passes on the stamps of Interests and data.

use std::time::{Duration, Instant};

use super::{Hop, queue::Left};
use crate::{
    config::Scope,
    wire::{Echo, STAMP_MASK},
};

/// What is sent back for a stamp by a relay behind which the responder is so far.
pub(super) fn further((echo, beyond): (Echo, Duration)) -> Echo {
    let beyond = u32::try_from(beyond.as_micros()).unwrap_or(STAMP_MASK);
    Echo {
        stamp: echo.stamp.wrapping_sub(beyond) & STAMP_MASK,
        ..echo
    }
}

impl Hop {
    /// The round trip that the packet that was checked last has told, if it did.
    pub(crate) fn sample(&self) -> Option<Duration> {
        self.sample
    }

    /// This node's stamp of an instant.
    pub(super) fn stamp(&self, now: Instant) -> u32 {
        u32::try_from(self.micros(now) & i64::from(STAMP_MASK)).unwrap_or(0)
    }

    pub(super) fn micros(&self, now: Instant) -> i64 {
        i64::try_from(now.saturating_duration_since(self.epoch).as_micros()).unwrap_or(i64::MAX)
    }

    /// Whether a data packet takes the neighbour's stamp back.
    pub(super) fn is_echo_due(&self, now: Instant, is_repair: bool, left: Option<Left>) -> bool {
        match left {
            // It tells of the path where it told this relay of what is behind it.
            Some(left) => left.beyond.is_some(),
            // Of what a relay repairs nobody knows how far the responder is.
            None if is_repair && self.scope == Scope::EndToEnd => false,
            None => {
                // A packet with an echo is longer than the others: it ends a batch.
                let round = match self.burst.is_zero() {
                    true => self.rtt(),
                    false => self.round(),
                };
                self.echoed
                    .is_none_or(|at| now.saturating_duration_since(at) > round / 4)
            }
        }
    }

    /// The last stamp of the neighbour, which leaves now.
    pub(super) fn poll_echo(&mut self, now: Instant) -> Option<Echo> {
        let (stamp, came) = self.stamp?;
        let held = u32::try_from(now.saturating_duration_since(came).as_micros()).ok();
        let held = held.filter(|held| *held <= STAMP_MASK)?;
        self.echoed = Some(now);
        // From end to end each of the responder's packets that takes one back has to find one at each relay.
        if self.scope == Scope::Hop {
            self.stamp = None;
        }
        Some(Echo { stamp, held })
    }

    pub(super) fn handle_echo(&mut self, now: Instant, echo: Echo) {
        let since = self.stamp(now).wrapping_sub(echo.stamp) & STAMP_MASK;
        if let Some(sample) = since
            .checked_sub(echo.held)
            .filter(|sample| *sample < STAMP_MASK / 2)
        {
            let sample = Duration::from_micros(sample.into());
            self.sample = Some(sample);
            self.rtt.add(sample);
            let stamped = self.micros(now) - i64::from(since);
            if let Some(end) = self.tail.shown_by(stamped) {
                self.note_received(end);
            }
            self.expect_waits(self.wait);
            self.control.on_rtt(now, sample);
        }
    }
}
