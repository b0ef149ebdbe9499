//! The sender's RTT estimate (RFC 9002 §5).

use std::time::Duration;

/// Initial RTT before any sample (RFC 9002 §6.2.2).
const INITIAL_RTT: Duration = Duration::from_millis(333);
/// Timer granularity (RFC 9002 §6.1.2).
pub(crate) const GRANULARITY: Duration = Duration::from_millis(1);

/// Smoothed, least and latest RTT.
#[derive(Clone, Copy, Debug, Default)]
pub struct RttEstimator {
    sampled: Option<Sampled>,
}

#[derive(Clone, Copy, Debug)]
struct Sampled {
    latest: Duration,
    smoothed: Duration,
    variation: Duration,
    least: Duration,
}

impl RttEstimator {
    /// Takes a sample and the acknowledgement delay that the peer reports.
    pub fn update(&mut self, latest: Duration, ack_delay: Duration) {
        let Some(rtt) = &mut self.sampled else {
            self.sampled = Some(Sampled {
                latest,
                smoothed: latest,
                variation: latest / 2,
                least: latest,
            });
            return;
        };
        rtt.latest = latest;
        rtt.least = rtt.least.min(latest);
        let adjusted = if latest >= rtt.least + ack_delay {
            latest - ack_delay
        } else {
            latest
        };
        rtt.variation = (rtt.variation * 3 + rtt.smoothed.abs_diff(adjusted)) / 4;
        rtt.smoothed = (rtt.smoothed * 7 + adjusted) / 8;
    }

    /// The smoothed RTT; `None` before the first sample.
    pub fn smoothed(&self) -> Option<Duration> {
        self.sampled.map(|rtt| rtt.smoothed)
    }

    /// Time threshold of loss detection (RFC 9002 §6.1.2).
    pub(crate) fn loss_delay(&self) -> Duration {
        let rtt = self
            .sampled
            .map_or(INITIAL_RTT, |rtt| rtt.smoothed.max(rtt.latest));
        (rtt * 9 / 8).max(GRANULARITY)
    }

    /// Probe timeout without backoff (RFC 9002 §6.2.1).
    pub(crate) fn probe_timeout(&self, max_ack_delay: Duration) -> Duration {
        let (smoothed, variation) = self.sampled.map_or((INITIAL_RTT, INITIAL_RTT / 2), |rtt| {
            (rtt.smoothed, rtt.variation)
        });
        smoothed + (variation * 4).max(GRANULARITY) + max_ack_delay
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_peers_delay_is_taken_out_but_never_below_the_least() {
        let ms = Duration::from_millis;
        let mut rtt = RttEstimator::default();
        rtt.update(ms(40), ms(0));
        assert_eq!(rtt.probe_timeout(ms(25)), ms(40 + 80 + 25));
        for _ in 0..200 {
            rtt.update(ms(60), ms(20));
        }
        assert!(rtt.smoothed().unwrap().abs_diff(ms(40)) < ms(1), "{rtt:?}");
        for _ in 0..200 {
            rtt.update(ms(41), ms(20));
        }
        assert!(rtt.smoothed().unwrap().abs_diff(ms(41)) < ms(1), "{rtt:?}");
        assert_eq!(
            rtt.loss_delay(),
            rtt.smoothed().unwrap().max(ms(41)) * 9 / 8
        );
    }
}
