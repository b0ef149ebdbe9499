//! Detects that the bandwidth no longer grows although more is sent: once for startup, and again in each probe for
//! bandwidth (draft-ietf-ccwg-bbr-06 §5.3.1.2).

use starhaul_units::Bandwidth;

const GROWTH: f64 = 1.25;
const ROUNDS: u32 = 3;

/// The search for a plateau.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct FullPipe {
    reached: bool,
    now: bool,
    bandwidth: Bandwidth,
    rounds: u32,
}

impl FullPipe {
    /// A round began with a first sample that the application did not limit.
    pub(super) fn on_round(&mut self, delivery_rate: Option<Bandwidth>) {
        if self.now {
            return;
        }
        let rate = delivery_rate.unwrap_or_default();
        if rate >= self.bandwidth.scaled(GROWTH) {
            self.restart_from(rate);
            return;
        }
        self.rounds += 1;
        if self.rounds >= ROUNDS {
            self.set_reached();
        }
    }

    /// Searches for a plateau above this rate.
    pub(super) fn restart_from(&mut self, rate: Bandwidth) {
        self.restart();
        self.bandwidth = rate;
    }

    /// Restarts the search. [`FullPipe::reached`] is unchanged.
    pub(super) fn restart(&mut self) {
        *self = Self {
            reached: self.reached,
            ..Self::default()
        };
    }

    /// Sets the plateau as found because of losses.
    pub(super) fn set_reached(&mut self) {
        self.now = true;
        self.reached = true;
    }

    /// Whether the pipe was ever full.
    pub(super) fn reached(&self) -> bool {
        self.reached
    }

    /// Whether the present search found a plateau.
    pub(super) fn now(&self) -> bool {
        self.now
    }
}
