//! The application data of a flow.

use std::time::Instant;

use starhaul_units::Bandwidth;

use super::PACKET_BYTES;

/// The rate at which the application offers data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Source {
    /// The application always has data to send.
    Saturating,
    /// The application offers one packet at a time, evenly at this rate.
    Rate(Bandwidth),
    /// The application has offered so many packets, and may offer more ([`Sender::offer`](crate::Sender::offer)).
    Given(u64),
}

impl Source {
    /// When the application, which began at `start`, offers the packet after the first `taken`; `None` for never.
    pub(crate) fn ready_at(self, start: Instant, taken: u64) -> Option<Instant> {
        match self {
            Self::Saturating => Some(start),
            Self::Given(offered) => (taken < offered).then_some(start),
            Self::Rate(rate) if rate == Bandwidth::ZERO => None,
            Self::Rate(rate) => {
                start.checked_add(rate.time_to_send(taken.saturating_mul(PACKET_BYTES)))
            }
        }
    }
}
