//! Selects the reconfigurations to act on: a hint must be safe when it is wrong (draft-lai-ccwg-lsncc-01), so a flood
//! of hints costs no more than some short adaptations.

use std::time::{Duration, Instant};

use crate::Reconfiguration;

/// No operator reconfigures more often; several detectors may report the same event.
const MIN_SPACING: Duration = Duration::from_secs(1);
/// Older events are reflected in the flow's own samples.
const MAX_AGE: Duration = Duration::from_secs(2);
const MIN_CONFIDENCE: f64 = 0.25;

/// The last reconfiguration acted on.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct HintFilter {
    last: Option<Instant>,
}

impl HintFilter {
    /// Returns whether to act on this one.
    pub(crate) fn accept(&mut self, now: Instant, hint: &Reconfiguration) -> bool {
        let spaced = self
            .last
            .is_none_or(|last| now.saturating_duration_since(last) >= MIN_SPACING);
        let fresh = now.saturating_duration_since(hint.at) <= MAX_AGE;
        let accepted = spaced && fresh && hint.confidence >= MIN_CONFIDENCE;
        if accepted {
            self.last = Some(now);
        }
        accepted
    }

    /// When the last accepted reconfiguration was signalled.
    pub(crate) fn last(&self) -> Option<Instant> {
        self.last
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ReconfigurationSource;

    #[test]
    fn stale_doubtful_and_crowding_hints_are_refused() {
        let start = Instant::now() + Duration::from_secs(100);
        let hint = |at, confidence| Reconfiguration {
            at,
            outage: Duration::ZERO,
            source: ReconfigurationSource::Peer,
            confidence,
        };
        let mut filter = HintFilter::default();
        assert!(!filter.accept(start, &hint(start - Duration::from_secs(3), 1.0)));
        assert!(!filter.accept(start, &hint(start, 0.1)));
        assert!(!filter.accept(start, &hint(start, f64::NAN)));
        assert!(filter.accept(start, &hint(start, 0.6)));
        let soon = start + Duration::from_millis(900);
        assert!(!filter.accept(soon, &hint(soon, 1.0)));
        assert_eq!(filter.last(), Some(start));
        let later = start + Duration::from_millis(1100);
        assert!(filter.accept(later, &hint(later, 1.0)));
    }
}
