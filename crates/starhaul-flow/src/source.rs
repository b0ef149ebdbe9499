//! What a flow has to send.

use std::time::Instant;

use starhaul_units::Bandwidth;

use super::PACKET_BYTES;

/// How much the application offers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Source {
    /// Always more than can be sent.
    Saturating,
    /// A packet at a time, evenly at this rate.
    Rate(Bandwidth),
}

impl Source {
    /// When the packet after `taken` others is there, for an application that began at `start`; `None` for never.
    pub(crate) fn ready_at(self, start: Instant, taken: u64) -> Option<Instant> {
        match self {
            Self::Saturating => Some(start),
            Self::Rate(rate) if rate == Bandwidth::ZERO => None,
            Self::Rate(rate) => {
                start.checked_add(rate.time_to_send(taken.saturating_mul(PACKET_BYTES)))
            }
        }
    }
}
