//! How many probes in a row the path loses by chance: probes that share a queue with a flow that overfills it are dropped one by
//! one, and a few of them in a row are a silence of the probes, not of the link.

/// Probes over which losses are counted: 2 s of them at the paper's interval. A flow that begins to overfill the queue is known
/// soon, and one that ended is forgotten soon.
const MEMORY: f64 = 200.0;
/// By chance, one silence in so many probes may be taken for an outage: one in ten minutes at the paper's interval.
const FALSE_ALARM: f64 = 1.0 / 60_000.0;

/// Probes and losses, the older the less they count.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct ChanceLoss {
    probes: f64,
    lost: f64,
}

impl ChanceLoss {
    /// A probe was answered after `lost` before it were not.
    pub(super) fn on_answer(&mut self, lost: u16) {
        let kept = 1.0 - 1.0 / MEMORY;
        for is_lost in std::iter::repeat_n(1.0, lost.into()).chain([0.0]) {
            self.probes = self.probes * kept + 1.0;
            self.lost = self.lost * kept + is_lost;
        }
    }

    /// A probe that was counted as lost had only been overtaken.
    pub(super) fn on_overtaken(&mut self) {
        self.lost = (self.lost - 1.0).max(0.0);
    }

    /// Whether so many losses in a row are what losses as frequent as the last ones, each by itself, bring about.
    pub(super) fn explains(&self, lost: u16) -> bool {
        if self.lost <= 0.0 {
            return lost == 0;
        }
        (self.lost / self.probes).powi(lost.into()) >= FALSE_ALARM
    }
}
