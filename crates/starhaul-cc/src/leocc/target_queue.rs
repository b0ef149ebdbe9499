//! `leocc2`: bounds the flight by the rate, the middle of the band and a small target queue, as long as no other flow fills
//! the queue.

use std::time::{Duration, Instant};

use starhaul_units::Bandwidth;

use super::{LeoCc, Mode};
use crate::limits::{MAX_CWND_BYTES, real, window_bytes};

/// The target queue until the deviation of the RTT is known, and at least: Starlink delivers in bursts up to 6 ms apart,
/// because of its frames, and a flow whose queue is always empty sees no deviation.
const LEAST_TARGET: Duration = Duration::from_millis(7);
/// The target per mean deviation of the RTT. A queue that the link empties now and then deviates from its mean by 0.74
/// of it (2/e, that of an exponential distribution), so that below 1.36 the target would shrink together with what is
/// left of the queue; from there on it grows until the queue is hardly ever empty.
const TARGET_DEVIATIONS: f64 = 1.4;
/// Where interactive data share the path with bulk the target, and what is added for bunching, are so many times shorter. The additional
/// packets stay, so that flows with and without such data have equal rates.
const SHORTER: u32 = 2;
/// Half a burst is missing from the flight where pacing fills the window evenly; where bursts are part of what the RTT's
/// deviation shows, the target covers half of that.
const BUNCHING_SHARE: f64 = 0.25;
/// Additional packets queued per flow at any rate, which makes rates equal (FAST TCP's α).
const FAIR_PACKETS: u64 = 6;
/// At higher rates more: there they wait for less than 1.4 ms.
const FAIR_RATE: Bandwidth = Bandwidth::from_mbit(50);
/// At low rates fewer, at least one, since six would wait for longer than a user notices.
const LONGEST_FAIR: Duration = Duration::from_millis(100);
/// Signals count as absent without a prober and without a reconfiguration for this long, four intervals of Starlink's. The
/// rate is then averaged over time, since nothing tells when it changed for good.
const INFORMED: Duration = Duration::from_secs(60);

impl LeoCc {
    /// Whether reconfigurations are signalled, so that the band is that of the present path.
    pub(super) fn is_informed(&self) -> bool {
        let told = self.last_reconfiguration;
        self.updated_at.is_some_and(|now| {
            self.bottleneck.is_probed(now)
                || told.is_some_and(|last| now.saturating_duration_since(last) < INFORMED)
        })
    }

    /// Whether this is `leocc2` with all that its narrow window needs.
    fn has_target_queue(&self) -> bool {
        self.options.target_queue && self.options.detector
    }

    /// Whether the window may be narrow: no other flow would take the capacity left free.
    pub(super) fn is_narrow(&self) -> bool {
        self.has_target_queue() && !self.competition.is_present()
    }

    /// Whether greedy flows are present: the target is then the aggressive one, and twice its BDP may be in flight, as
    /// in BBR.
    pub(super) fn is_competing(&self) -> bool {
        self.has_target_queue() && self.competition.is_present()
    }

    /// The BDP at bBW_m, or without signals at the mean rate, and the middle of the band, plus the target queue. All of these
    /// estimates come from actual deliveries, so the window follows the path within rounds, and a burst has room.
    pub(super) fn target_queue_window(&self, phase: usize) -> u64 {
        let Some(middle) = self.estimate.middle_rtt() else {
            return self.cwnd_bytes;
        };
        let rate = match self.is_informed() {
            true => self.estimate.moderate(),
            // The capacity fell, or another flow came: what is delivered now is the rate.
            false if self.competition.is_suspected() => {
                self.estimate.mean_rate().min(self.estimate.moderate())
            }
            false => self.estimate.mean_rate(),
        };
        let rate = rate.unwrap_or(self.pacing_rate);
        let bunching = self.bunching.get().mul_f64(BUNCHING_SHARE) / self.shortening();
        let mut time = middle + self.target_queue() + bunching;
        if phase == 0 {
            time += self.burst_queue(time);
        }
        let bytes = rate.bytes_in(time).saturating_add(self.fair_bytes(rate));
        window_bytes(real(bytes), self.min_cwnd()).min(MAX_CWND_BYTES)
    }

    /// The queue that this flow aims at.
    pub(super) fn target_queue(&self) -> Duration {
        self.usual_target() / self.shortening()
    }

    /// The queue that keeps the link busy while the RTT moves as it does by itself. Other flows leave this one, whatever is preferred here.
    pub(super) fn usual_target(&self) -> Duration {
        let deviation = self.deviation.get().unwrap_or_default();
        let middle = self.estimate.middle_rtt().unwrap_or_default();
        // Adaptation gives up no more than half the BDP: it could not drain a longer target.
        let target = deviation.mul_f64(TARGET_DEVIATIONS).min(middle / 2);
        LEAST_TARGET.max(target)
    }

    fn shortening(&self) -> u32 {
        match self.prefers_short_queue {
            true => SHORTER,
            false => 1,
        }
    }

    /// Whether there is more of a queue than the target.
    pub(super) fn is_queued(&self) -> bool {
        match (self.estimate.latest_rtt(), self.estimate.middle_rtt()) {
            (Some(latest), Some(middle)) => latest > middle + self.target_queue(),
            _ => true,
        }
    }

    /// Adds an RTT to the deviation, unless the queue is not this flow's target.
    pub(super) fn watch_deviation(&mut self, now: Instant, rtt: Duration) {
        if matches!(self.mode, Mode::Cruise { .. }) && self.is_narrow() {
            self.deviation.update(now, rtt);
        } else {
            self.deviation.pause();
        }
    }

    /// Compares the queue with that of `leocc2` flows, all with this flow's rate after Adaptation: the target and α /
    /// rate each.
    pub(super) fn look_for_competition(&mut self, now: Instant) {
        if self.has_target_queue()
            && let (Some(latest), Some(middle)) =
                (self.estimate.latest_rtt(), self.estimate.middle_rtt())
        {
            let fair = self.restored_rate;
            let fair = fair.time_to_send(self.fair_bytes(fair));
            let own = self.usual_target().saturating_add(fair);
            self.competition
                .on_queue(now, latest, latest.saturating_sub(middle), own);
        }
    }

    fn fair_bytes(&self, rate: Bandwidth) -> u64 {
        let packet = self.max_datagram_bytes;
        // Each round trip brings the rates nearer by this share of the window: at high rates six packets would take minutes. By the root of
        // the flow's own rate, equal rates are still where it leads to.
        let faster = real(rate.bits_per_second()) / real(FAIR_RATE.bits_per_second());
        let most = real(FAIR_PACKETS * packet) * faster.max(1.0).sqrt();
        rate.bytes_in(LONGEST_FAIR)
            .clamp(packet, window_bytes(most, packet))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Controller as _, LeoCcOptions};

    /// Whether others are taken for greedy that leave a queue of so many milliseconds, where `leocc2` flows leave 57 and this one half of that.
    fn is_competing_with(queue_ms: u64) -> bool {
        let ms = Duration::from_millis;
        let start = Instant::now();
        let mut flow = LeoCc::new(LeoCcOptions::TARGET_QUEUE, 1452);
        flow.prefer_short_queue(true);
        flow.restored_rate = Bandwidth::from_mbit(40);
        for step in 0..10_000 {
            let now = start + ms(step);
            flow.estimate.on_rtt(now, ms(200), true);
            flow.deviation.update(now, ms(160 + 80 * (step / 50 % 2)));
        }
        for step in 10_000..14_000 {
            let now = start + ms(step);
            flow.estimate.on_rtt(now, ms(200 + queue_ms), false);
            flow.look_for_competition(now);
        }
        flow.is_competing()
    }

    #[test]
    fn the_usual_queue_of_others_is_no_rival_of_who_prefers_a_shorter_one() {
        assert!(!is_competing_with(60));
        assert!(is_competing_with(120));
    }
}
