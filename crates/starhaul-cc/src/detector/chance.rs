//! Estimates how many probes in a row the path loses at random: probes that share an overfull queue with a flow are
//! dropped one by one, and a few in a row are no silence of the link.

/// Number of probes over which losses are counted: 2 s at the paper's interval. A flow that begins or ceases to
/// overfill the queue shows soon.
const MEMORY: f64 = 200.0;
/// Accepted rate of false alarms: one silence in this many probes, which is one in ten minutes at the paper's interval.
const FALSE_ALARM: f64 = 1.0 / 60_000.0;

/// Decayed counts of probes and losses.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct ChanceLoss {
    probes: f64,
    lost: f64,
}

impl ChanceLoss {
    /// A probe was answered after `lost` unanswered ones.
    pub(super) fn on_answer(&mut self, lost: u16) {
        let kept = 1.0 - 1.0 / MEMORY;
        for is_lost in std::iter::repeat_n(1.0, lost.into()).chain([0.0]) {
            self.probes = self.probes * kept + 1.0;
            self.lost = self.lost * kept + is_lost;
        }
    }

    /// A probe counted as lost was only overtaken.
    pub(super) fn on_overtaken(&mut self) {
        self.lost = (self.lost - 1.0).max(0.0);
    }

    /// Whether independent losses at the present rate explain this many losses in a row.
    pub(super) fn explains(&self, lost: u16) -> bool {
        if self.lost <= 0.0 {
            return lost == 0;
        }
        (self.lost / self.probes).powi(lost.into()) >= FALSE_ALARM
    }
}
