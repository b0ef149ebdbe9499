//! Which reconfigurations to act on: a hint must be safe when it is wrong (draft-lai-ccwg-lsncc-01), so that a
//! flood of them costs no more than some short adaptations.

use std::time::{Duration, Instant};

use crate::Reconfiguration;

/// No operator reconfigures more often; several detectors may tell of the same event.
const MIN_SPACING: Duration = Duration::from_secs(1);
/// What happened longer ago has shown in the flow's own samples.
const MAX_AGE: Duration = Duration::from_secs(2);
const MIN_CONFIDENCE: f64 = 0.25;

/// Remembers the last reconfiguration acted on.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct HintFilter {
    last: Option<Instant>,
}

impl HintFilter {
    /// Whether to act on this one.
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

    /// When the last one came that was acted on.
    pub(crate) fn last(&self) -> Option<Instant> {
        self.last
    }
}
