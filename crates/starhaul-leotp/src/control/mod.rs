//! The rate of a hop, found by its receiver, who tells it to the sender.

mod adaptive;
mod published;

use std::time::{Duration, Instant};

use adaptive::Adaptive;
use published::Published;

use crate::config::RateRule;

/// Rates change within a round: a round trip, but where that is shorter than hosts let a program wait for a processor.
pub(crate) const LEAST_ROUND: Duration = Duration::from_millis(8);

/// The least queue that is kept at a hop, however many packets it is: less cannot be told from what hosts do.
pub(crate) fn least_queue(round: Duration) -> Duration {
    (round / 32).min(Duration::from_millis(1))
}

/// A data packet as the receiver of a hop sees it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Arrived {
    pub(crate) now: Instant,
    /// When it left, in microseconds of the sender's clock.
    pub(crate) sent: i64,
    /// Its one-way delay plus a constant, in microseconds: the clocks of the ends differ.
    pub(crate) delay: i64,
    pub(crate) bytes: u32,
    /// Packets that were lost before it.
    pub(crate) missing: u32,
    /// The sender had nothing to send after it.
    pub(crate) is_limited: bool,
    /// The round-trip time of the hop; from end to end, that of the path without queues.
    pub(crate) rtt: Duration,
}

/// Finds the rate of a hop.
#[derive(Debug)]
pub(crate) enum RateControl {
    Adaptive(Box<Adaptive>),
    Published(Published),
}

impl RateControl {
    pub(crate) fn new(rule: RateRule) -> Self {
        match rule {
            RateRule::Adaptive => Self::Adaptive(Box::default()),
            RateRule::Published => Self::Published(Published::new()),
        }
    }

    /// Takes a packet.
    pub(crate) fn on_data(&mut self, packet: &Arrived) {
        match self {
            Self::Adaptive(control) => control.on_data(packet),
            Self::Published(control) => control.on_data(packet),
        }
    }

    /// Takes data that a relay sent again, where the responder alone is paced: the path carried them.
    pub(crate) fn on_repair(&mut self, bytes: usize) {
        match self {
            Self::Adaptive(control) => control.on_repair(bytes),
            Self::Published(control) => control.on_repair(bytes),
        }
    }

    /// Takes a sample of the round-trip time that stamps tell, of the hop, or of the path with control from end to end.
    pub(crate) fn on_rtt(&mut self, now: Instant, rtt: Duration) {
        if let Self::Published(control) = self {
            control.on_rtt(now, rtt);
        }
    }

    /// The rate in bytes per second, if packets have shown one.
    pub(crate) fn rate(&self) -> Option<f64> {
        match self {
            Self::Adaptive(control) => control.rate(),
            Self::Published(control) => control.rate(),
        }
    }

    /// Whether the rate is that of the hop, and not of a sender that had little to send.
    pub(crate) fn is_proven(&self) -> bool {
        match self {
            Self::Adaptive(control) => control.is_proven(),
            Self::Published(_) => true,
        }
    }

    /// The hop was reconfigured, as far as is known: its base delay may be another one.
    pub(crate) fn on_reconfiguration(&mut self) {
        match self {
            Self::Adaptive(control) => control.on_reconfiguration(),
            Self::Published(control) => control.on_reconfiguration(),
        }
    }

    /// Whether it was told of a reconfiguration and has not taken it into account yet.
    #[cfg(test)]
    pub(crate) fn is_told(&self) -> bool {
        matches!(self, Self::Adaptive(control) if control.is_told())
    }

    /// The neighbour's clock is another, and so are the delays.
    pub(crate) fn forget_delays(&mut self) {
        match self {
            Self::Adaptive(control) => control.forget_delays(),
            Self::Published(control) => control.forget_delays(),
        }
    }
}
