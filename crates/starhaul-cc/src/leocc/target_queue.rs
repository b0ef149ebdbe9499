//! `leocc2`: bounds the flight by the moderate estimate, the middle of the band and a small target queue, as long as
//! reconfigurations are signalled and no other flow fills the queue.

use std::time::{Duration, Instant};

use super::{BURST_GAIN, LeoCc};
use crate::limits::{MAX_CWND_BYTES, real, window_bytes};

/// The target queue. Between reconfigurations satellites deliver in bursts up to 6 ms apart, because of their frames;
/// with a shorter queue the link idles between them.
const TARGET_QUEUE: Duration = Duration::from_millis(7);
/// Additional packets queued per flow at any rate, which makes rates equal (FAST TCP's α).
const FAIR_PACKETS: u64 = 6;
/// Signals count as absent without a prober and without a reconfiguration for this long, four intervals of Starlink's.
/// The narrow window would then starve on a path that became longer unnoticed, so the paper's window is used.
const INFORMED: Duration = Duration::from_secs(60);
/// Gain of the drain round: the window has already drained most of the burst, so less draining is enough.
pub(super) const DRAIN_GAIN: f64 = 0.9;

impl LeoCc {
    /// Whether reconfigurations are signalled, so that the band is that of the present path.
    fn is_informed(&self) -> bool {
        let told = self.last_reconfiguration;
        self.updated_at.is_some_and(|now| {
            self.options.detector && self.bottleneck.is_probed(now)
                || told.is_some_and(|last| now.saturating_duration_since(last) < INFORMED)
        })
    }

    /// Whether the window may be narrow: no other flow would take the capacity left free.
    pub(super) fn is_narrow(&self) -> bool {
        self.options.target_queue && self.is_informed() && !self.competition.is_present()
    }

    /// Whether greedy flows are present: the target is then the aggressive one, and twice its BDP may be in flight, as
    /// in BBR.
    pub(super) fn is_competing(&self) -> bool {
        self.options.target_queue && self.is_informed() && self.competition.is_present()
    }

    /// The BDP at bBW_m and the middle of the band, plus the target queue. Both estimates come from actual deliveries,
    /// so the window follows the path within rounds, and a burst has room.
    pub(super) fn target_queue_window(&self, phase: usize) -> u64 {
        let Some(middle) = self.estimate.middle_rtt() else {
            return self.cwnd_bytes;
        };
        let rate = self.estimate.moderate().unwrap_or(self.pacing_rate);
        let gain = if phase == 0 { BURST_GAIN } else { 1.0 };
        let window = real(rate.bytes_in(middle + TARGET_QUEUE)) * gain;
        window_bytes(window, self.min_cwnd())
            .saturating_add(self.fair_bytes())
            .min(MAX_CWND_BYTES)
    }

    /// Compares the queue with that of `leocc2` flows, all with this flow's rate after Adaptation: the target and α /
    /// rate each.
    pub(super) fn look_for_competition(&mut self, now: Instant) {
        if self.is_informed()
            && let (Some(latest), Some(middle)) =
                (self.estimate.latest_rtt(), self.estimate.middle_rtt())
        {
            let own =
                TARGET_QUEUE.saturating_add(self.restored_rate.time_to_send(self.fair_bytes()));
            self.competition
                .on_queue(now, latest.saturating_sub(middle), own);
        }
    }

    fn fair_bytes(&self) -> u64 {
        FAIR_PACKETS * self.max_datagram_bytes
    }
}
