//! What a path was told of reconfigurations. Several detectors may tell of the same event, and the peer's may tell
//! anything: each event reaches the controller once, or again when somebody is surer of it.

use std::time::{Duration, Instant};

use starhaul_cc::Reconfiguration;

use crate::Reconfigurations;

/// No operator reconfigures more often: what is told closer to the last one is the same event.
const SPACING: Duration = Duration::from_secs(1);

impl Reconfigurations {
    /// Notes a reconfiguration; returns what the controller should hear of it.
    pub(super) fn note(
        &mut self,
        now: Instant,
        mut event: Reconfiguration,
    ) -> Option<Reconfiguration> {
        if event.confidence.is_nan() {
            return None;
        }
        event.confidence = event.confidence.clamp(0.0, 1.0);
        event.at = event.at.min(now);
        match &mut self.last {
            Some(last) if event.at < last.at + SPACING => {
                let surer = event.confidence > last.confidence;
                last.outage = last.outage.max(event.outage);
                if surer {
                    last.confidence = event.confidence;
                    last.source = event.source;
                }
                surer.then_some(event)
            }
            last => {
                *last = Some(event);
                self.count += 1;
                Some(event)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use starhaul_cc::ReconfigurationSource::{Peer, Probe};

    use super::*;

    const MS: Duration = Duration::from_millis(1);

    #[test]
    fn one_event_told_by_several_counts_once() {
        let start = Instant::now();
        let event = |at, outage_ms, source, confidence| Reconfiguration {
            at,
            outage: MS * outage_ms,
            source,
            confidence,
        };
        let mut told = Reconfigurations::default();
        let later = start + 80 * MS;
        assert!(told.note(start, event(start, 0, Peer, 0.5)).is_some());
        let by_probe = event(later, 70, Probe, 0.9);
        assert_eq!(told.note(later, by_probe), Some(by_probe), "surer");
        assert_eq!(told.note(later, event(start, 60, Peer, 0.9)), None);
        assert_eq!(told.note(later, event(later, 60, Peer, f64::NAN)), None);
        assert_eq!(
            (told.count, told.last),
            (1, Some(event(start, 70, Probe, 0.9)))
        );

        let next = start + 15_000 * MS;
        // Nobody knows the future, and nobody is surer than sure.
        let wild = event(next + 900 * MS, 50, Peer, f64::INFINITY);
        let tamed = event(next, 50, Peer, 1.0);
        assert_eq!(told.note(next, wild), Some(tamed));
        assert_eq!((told.count, told.last), (2, Some(tamed)));
    }
}
