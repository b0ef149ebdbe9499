//! Locates the bottleneck (LeoCC §4.3): the excess of the end-to-end RTT over that of the satellite segment belongs to
//! the ground, and a spike of it shows a queue there.

use std::time::{Duration, Instant};

use crate::filter::WindowedFilter;

/// RTT_non-sat without a queue is its least value over this time (W_RT).
const WINDOW: Duration = Duration::from_secs(20);
/// A spike exceeds the minimum by this much, or by half of it when that is more: beyond the variation of a satellite
/// path.
const SPIKE: Duration = Duration::from_millis(30);
const SPIKE_SHARE: f64 = 0.5;
/// Minimum length of a spike: that of an outage ends sooner.
const LASTING: Duration = Duration::from_millis(300);
/// It must also last this many RTTs: both RTTs tell of a queue up to a round trip late, and not at the same time.
const LASTING_ROUNDS: u32 = 4;
/// Measurements of a prober that has been silent for this long are ignored.
const FRESH: Duration = Duration::from_secs(1);

/// Compares end-to-end and satellite-segment RTT.
#[derive(Clone, Debug)]
pub(super) struct Bottleneck {
    segment: Option<(Instant, Duration)>,
    ground: WindowedFilter<Duration, Instant>,
    spike_since: Option<Instant>,
    /// End-to-end RTT, RTT_e2e of the publication.
    rtt: Duration,
}

impl Default for Bottleneck {
    fn default() -> Self {
        Self {
            segment: None,
            ground: WindowedFilter::min(WINDOW),
            spike_since: None,
            rtt: Duration::ZERO,
        }
    }
}

impl Bottleneck {
    /// Takes RTT_term-PoP from the prober.
    pub(super) fn on_segment_rtt(&mut self, now: Instant, rtt: Duration) {
        self.segment = Some((now, rtt));
    }

    /// Whether the prober gives measurements.
    pub(super) fn is_probed(&self, now: Instant) -> bool {
        self.segment
            .is_some_and(|(at, _)| now.saturating_duration_since(at) <= FRESH)
    }

    /// Takes RTT_e2e, which is bRTT_latest.
    pub(super) fn on_end_to_end_rtt(&mut self, now: Instant, rtt: Duration) {
        let Some((at, segment)) = self.segment else {
            return;
        };
        if now.saturating_duration_since(at) > FRESH {
            self.spike_since = None;
            return;
        }
        self.rtt = rtt;
        let ground = rtt.saturating_sub(segment);
        self.ground.update(now, ground);
        let least = self.ground.best().unwrap_or(ground);
        if ground <= least + SPIKE.max(least.mul_f64(SPIKE_SHARE)) {
            self.spike_since = None;
        } else if self.spike_since.is_none() {
            self.spike_since = Some(now);
        }
    }

    /// Whether a queue has stood in the terrestrial segment for a while.
    pub(super) fn is_on_the_ground(&self, now: Instant) -> bool {
        self.spike_since.is_some_and(|since| {
            let lasting = LASTING.max(self.rtt.saturating_mul(LASTING_ROUNDS));
            now.saturating_duration_since(since) >= lasting
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    /// Feeds both RTTs each 10 ms for four seconds, half of them spiked; returns whether the bottleneck is then on the
    /// ground.
    fn after(end_to_end_ms: u32, segment_ms: Option<u32>) -> bool {
        let start = Instant::now();
        let mut bottleneck = Bottleneck::default();
        let mut now = start;
        for n in 0..400u32 {
            now = start + 10 * MS * n;
            let spiked = n >= 200;
            let segment = if spiked { segment_ms } else { Some(20) };
            if let Some(ms) = segment {
                bottleneck.on_segment_rtt(now, MS * ms);
            }
            bottleneck.on_end_to_end_rtt(now, MS * if spiked { end_to_end_ms } else { 45 });
        }
        bottleneck.is_on_the_ground(now)
    }

    /// A queue behind the PoP shows only end to end; a longer satellite path shows in both.
    #[test]
    fn only_what_the_satellite_segment_does_not_explain_is_on_the_ground() {
        assert!(after(120, Some(20)));
        assert!(!after(120, Some(95)));
        assert!(!after(60, Some(20)), "within the swing");
        assert!(!after(120, None), "the prober fell silent");
    }

    #[test]
    fn a_short_spike_is_an_outage() {
        let start = Instant::now();
        let mut bottleneck = Bottleneck::default();
        bottleneck.on_segment_rtt(start, 20 * MS);
        bottleneck.on_end_to_end_rtt(start, 45 * MS);
        bottleneck.on_end_to_end_rtt(start + 10 * MS, 140 * MS);
        assert!(!bottleneck.is_on_the_ground(start + 150 * MS));
    }
}
