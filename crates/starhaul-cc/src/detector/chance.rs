//! Estimates how many probes in a row the path loses at random: probes that share an overfull queue with a flow are
//! dropped one by one, and a few in a row are no silence of the link.

/// Numbers of probes over which losses are counted: 2 s and 0.4 s at the paper's interval. The longer memory has the truer rate of a
/// flow that goes on; the shorter one soon shows a flow that begins to overfill the queue.
const MEMORIES: [f64; 2] = [200.0, 40.0];
/// Accepted rate of false alarms: one silence in this many probes, which is one in ten minutes at the paper's interval.
const FALSE_ALARM: f64 = 1.0 / 60_000.0;

/// Decayed counts of probes and losses, in each memory.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct ChanceLoss([Counts; MEMORIES.len()]);

#[derive(Clone, Copy, Debug, Default)]
struct Counts {
    probes: f64,
    lost: f64,
}

impl ChanceLoss {
    /// A probe was answered after `lost` unanswered ones.
    pub(super) fn on_answer(&mut self, lost: u16) {
        for (counts, memory) in self.0.iter_mut().zip(MEMORIES) {
            let kept = 1.0 - 1.0 / memory;
            for is_lost in std::iter::repeat_n(1.0, lost.into()).chain([0.0]) {
                counts.probes = counts.probes * kept + 1.0;
                counts.lost = counts.lost * kept + is_lost;
            }
        }
    }

    /// A probe counted as lost was only overtaken.
    pub(super) fn on_overtaken(&mut self) {
        for counts in &mut self.0 {
            counts.lost = (counts.lost - 1.0).max(0.0);
        }
    }

    /// Whether independent losses explain this many in a row, by either memory.
    pub(super) fn explains(&self, lost: u16) -> bool {
        self.0
            .iter()
            .any(|counts| counts.chance_of(lost) >= FALSE_ALARM)
    }
}

impl Counts {
    /// The probability that the next probes, so many, are all lost.
    fn chance_of(&self, lost: u16) -> f64 {
        if lost == 0 {
            return 1.0;
        }
        if self.lost <= 0.0 {
            return 0.0;
        }
        (self.lost / self.probes).powi(lost.into())
    }
}
