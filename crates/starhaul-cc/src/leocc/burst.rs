//! The bursts by which `leocc2` finds more capacity: they double the target queue, and grow while they are delivered
//! faster and leave no queue.

use std::time::Duration;

use starhaul_units::Bandwidth;

use super::{BURST_GAIN, CYCLE_ROUNDS, LeoCc};

/// A burst has paid when the rate has grown by this share of what it added.
const PAID_SHARE: f64 = 0.5;
/// Least gain of the drain round: the window has already drained most of the burst, so less draining is enough.
const DRAIN_GAIN: f64 = 0.9;

/// The burst in progress.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Burst {
    /// Bursts in a row that paid.
    paid: u32,
    /// bBW_m before it, or the rate of the last round if that is less.
    before: Bandwidth,
    /// bRTT_latest before it.
    rtt: Duration,
}

impl LeoCc {
    /// The phase of cruise after `phase`, whose round has ended. A burst's deliveries end with the round after it.
    pub(super) fn next_phase(&mut self, phase: usize) -> usize {
        let next = (phase + 1) % CYCLE_ROUNDS;
        if phase == 1 && self.is_narrow() && self.burst_has_paid() {
            self.estimate.raise(self.round_rate);
            self.begin_burst(self.burst.paid.saturating_add(1));
            return 0;
        }
        if next == 0 {
            self.begin_burst(0);
        }
        next
    }

    /// The time by which a burst extends the window: the target queue, twice as much after each burst that paid, at most
    /// LeoCC's quarter.
    pub(super) fn burst_queue(&self, window: Duration) -> Duration {
        let doubled = 1_u32.checked_shl(self.burst.paid).unwrap_or(u32::MAX);
        let queue = self.target_queue().saturating_mul(doubled.max(1));
        queue.min(window.mul_f64(BURST_GAIN - 1.0))
    }

    /// Whether bursts are paced above bBW_a also where the RTT is beyond the band: where no signal tells of another path that may be
    /// a longer one, and bBW_m what its idle link carried. The window bounds the burst.
    pub(super) fn bursts_in_full(&self) -> bool {
        self.is_narrow() && !self.is_informed()
    }

    /// The gain of the round after a burst: it drains what the burst left.
    pub(super) fn burst_drain_gain(&self) -> f64 {
        let middle = self.estimate.middle_rtt().unwrap_or_default();
        DRAIN_GAIN.max(1.0 - share(self.target_queue(), middle))
    }

    pub(super) fn begin_burst(&mut self, paid: u32) {
        let before = self.estimate.moderate().unwrap_or(self.pacing_rate);
        // Where the path became longer each round delivers less than the one before: a burst adds to the last one.
        let before = match self.round_rate > Bandwidth::ZERO {
            true => before.min(self.round_rate),
            false => before,
        };
        let rtt = self.estimate.latest_rtt().unwrap_or_default();
        self.burst = Burst { paid, before, rtt };
    }

    fn burst_has_paid(&self) -> bool {
        let (Some(middle), Some(latest)) = (self.estimate.middle_rtt(), self.estimate.latest_rtt())
        else {
            return false;
        };
        let window = middle + self.target_queue();
        let queue = self.burst_queue(window);
        let added = share(queue, window);
        // The path may have become longer by more than the target since it was measured: then no RTT is below the window.
        let most = window.max(self.burst.rtt + queue.mul_f64(PAID_SHARE));
        latest <= most && self.round_rate > self.burst.before.scaled(1.0 + added * PAID_SHARE)
    }
}

fn share(part: Duration, whole: Duration) -> f64 {
    part.as_secs_f64() / whole.as_secs_f64().max(f64::MIN_POSITIVE)
}
