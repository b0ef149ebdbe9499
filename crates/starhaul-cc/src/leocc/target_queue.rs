//! `leocc2`: what is in flight is bounded by the moderate estimate, the middle of the band and a small target queue, as long as
//! somebody tells of reconfigurations and nobody fills the queue.

use std::time::{Duration, Instant};

use super::{BURST_GAIN, LeoCc};
use crate::limits::{MAX_CWND_BYTES, real, window_bytes};

/// The queue aimed at. Inside an interval satellites deliver in bunches up to 6 ms apart, as their frames have it; with less
/// than this queued the link idles between.
const TARGET_QUEUE: Duration = Duration::from_millis(7);
/// Each flow queues so many packets besides, whatever its rate, which makes flows equal (FAST TCP's α).
const FAIR_PACKETS: u64 = 6;
/// Who hears no prober, nor for so long, four intervals of Starlink's, of a reconfiguration, has nobody who tells. A path that
/// became longer unnoticed would then starve by the narrow window, and the paper's is kept.
const INFORMED: Duration = Duration::from_secs(60);
/// The window has drained most of what a burst left, so that less draining will do.
pub(super) const DRAIN_GAIN: f64 = 0.9;

impl LeoCc {
    /// Somebody tells of reconfigurations, so that the band is that of the path as it is.
    fn is_informed(&self) -> bool {
        let told = self.hints.last();
        self.updated_at.is_some_and(|now| {
            self.options.detector && self.bottleneck.is_probed(now)
                || told.is_some_and(|last| now.saturating_duration_since(last) < INFORMED)
        })
    }

    /// The window may be narrow: nobody else would take what is left free.
    pub(super) fn is_narrow(&self) -> bool {
        self.options.target_queue && self.is_informed() && !self.competition.is_present()
    }

    /// Beside greedy flows the target is the aggressive one and twice its BDP may be in flight, as BBR has it.
    pub(super) fn is_competing(&self) -> bool {
        self.options.target_queue && self.is_informed() && self.competition.is_present()
    }

    /// What fits into the path at bBW_m and the middle of the band, and the target queue. Both estimates come from what was
    /// really delivered, so that the window follows the path within rounds, and a burst has its room.
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

    /// Flows of our kind, all with the rate this one had after Adaptation, queue the target and α / rate.
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
