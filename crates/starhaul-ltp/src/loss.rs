//! The share of segments that is lost, as reports tell it, and how sure that is.
//!
//! Losses are binomial: the bounds are Wilson's ("Probable Inference, the Law of Succession, and Statistical Inference", 1927, the score
//! interval). Older segments count for less and less; where the latest contradict the others beyond chance, those are forgotten at once.

/// Standard deviations of the bounds: the true share is above the upper one once in 740 times.
const CERTAINTY: f64 = 3.0;
/// Segments of a chunk, the latest of all: these show that more is lost than before. So few are enough, and more are not awaited.
const CHUNK: std::ops::Range<f64> = 64.0..256.0;
/// Segments of a span, which shows that less is lost than before: more than a burst or the time between two.
const SPAN: f64 = 2048.0;
/// Older segments than so many count half.
const MOST: f64 = 8192.0;
/// So much of a lost segment that counts ever less is none: some 40 000 segments have arrived since.
const NOTHING: f64 = 1.0 / 256.0;

/// What reports tell of a link.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct LossEstimate {
    /// Of spans that are over, the older the less.
    settled: Counts,
    /// Of the present span, and of the present chunk, which is a part of it.
    span: Counts,
    chunk: Counts,
    /// Whether a report showed that the peer does not tell what was lost.
    is_hidden: bool,
}

/// Segments that were sent, and those of them that were lost.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct Counts {
    sent: f64,
    lost: f64,
}

impl LossEstimate {
    /// Reports told of so many segments that were sent, and that so many of these were lost.
    pub(crate) fn take(&mut self, sent: u64, lost: u64) {
        let told = Counts {
            sent: sent as f64,
            lost: lost.min(sent) as f64,
        };
        self.span = self.span.with(told);
        self.chunk = self.chunk.with(told);
        let has_risen = self.chunk.sent >= CHUNK.start && self.chunk.least() > self.all().most();
        if has_risen {
            (self.settled, self.span) = (Counts::default(), self.chunk);
        }
        if has_risen || self.chunk.sent >= CHUNK.end {
            self.chunk = Counts::default();
        }
        if self.span.sent >= SPAN {
            if self.span.most() < self.settled.least() {
                self.settled = Counts::default();
            }
            self.settled = self.all();
            self.span = Counts::default();
            while self.settled.sent > MOST {
                self.settled = self.settled.half();
            }
        }
    }

    /// A report left out what it does not tell to be lost: neither do others of this engine, and what they told is nothing.
    pub(crate) fn hide(&mut self) {
        *self = Self {
            is_hidden: true,
            ..Self::default()
        };
    }

    /// A report told of losses: others do, too.
    pub(crate) const fn show(&mut self) {
        self.is_hidden = false;
    }

    /// Whether the peer does not tell what was lost, as far as its reports show.
    pub(crate) const fn is_hidden(&self) -> bool {
        self.is_hidden
    }

    /// The share that is lost at most; `None` if none was lost lately, or nothing is known.
    pub(crate) fn bound(&self) -> Option<f64> {
        let all = self.all();
        (all.lost >= NOTHING).then(|| all.most())
    }

    /// Whether reports have told of segments.
    pub(crate) fn is_known(&self) -> bool {
        self.all().sent > 0.0
    }

    /// The share of the segments told of that was lost; zero if nothing is known.
    pub(crate) fn share(&self) -> f64 {
        let all = self.all();
        all.lost / all.sent.max(1.0)
    }

    fn all(&self) -> Counts {
        self.settled.with(self.span)
    }
}

impl Counts {
    fn with(self, other: Self) -> Self {
        Self {
            sent: self.sent + other.sent,
            lost: self.lost + other.lost,
        }
    }

    fn half(self) -> Self {
        Self {
            sent: self.sent / 2.0,
            lost: self.lost / 2.0,
        }
    }

    /// The lower bound of the share that is lost: zero where nothing is known.
    fn least(self) -> f64 {
        let (middle, reach) = self.interval();
        (middle - reach).max(0.0)
    }

    /// The upper bound: one where nothing is known.
    fn most(self) -> f64 {
        let (middle, reach) = self.interval();
        (middle + reach).min(1.0)
    }

    /// The middle of Wilson's interval, and how far it reaches to both sides.
    fn interval(self) -> (f64, f64) {
        if self.sent <= 0.0 {
            return (0.5, 0.5);
        }
        let (share, doubt) = (self.lost / self.sent, CERTAINTY * CERTAINTY / self.sent);
        let variance = share * (1.0 - share) / self.sent + doubt / (4.0 * self.sent);
        let scale = 1.0 + doubt;
        (
            (share + doubt / 2.0) / scale,
            CERTAINTY * variance.sqrt() / scale,
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// So many blocks of a hundred segments, of each of which so many are lost.
    fn even(estimate: &mut LossEstimate, blocks: u64, lost: u64) {
        for _ in 0..blocks {
            estimate.take(100, lost);
        }
    }

    /// Wilson's interval of 10 in 100 at three deviations, computed by his formula by hand.
    #[test]
    fn the_bounds_are_those_of_wilson() {
        let ten = Counts {
            sent: 100.0,
            lost: 10.0,
        };
        assert!((ten.least() - 0.0407).abs() < 1e-4, "{}", ten.least());
        assert!((ten.most() - 0.2253).abs() < 1e-4, "{}", ten.most());
        let nothing = Counts::default();
        assert_eq!((nothing.least(), nothing.most()), (0.0, 1.0));
    }

    #[test]
    fn while_nothing_is_lost_there_is_no_bound() {
        let mut estimate = LossEstimate::default();
        assert!(!estimate.is_known());
        assert_eq!(estimate.bound(), None);
        even(&mut estimate, 1000, 0);
        assert!(estimate.is_known());
        assert_eq!((estimate.bound(), estimate.share()), (None, 0.0));
    }

    /// The bound is above the true share, and close to it after some hundred blocks.
    #[test]
    fn a_steady_loss_is_bounded_closely_from_above() {
        for (lost, share) in [(1, 0.01), (5, 0.05), (10, 0.1)] {
            let mut estimate = LossEstimate::default();
            for blocks in 1..=500 {
                even(&mut estimate, 1, lost);
                let bound = estimate.bound().unwrap();
                assert!(bound > share, "{share}: {bound} after {blocks} blocks");
            }
            let bound = estimate.bound().unwrap();
            assert!(bound < share * 1.5, "{share}: {bound}");
        }
    }

    #[test]
    fn what_rises_is_believed_after_some_blocks_and_what_falls_after_a_span() {
        let mut estimate = LossEstimate::default();
        even(&mut estimate, 1000, 0);
        even(&mut estimate, 5, 5);
        assert!(estimate.bound().unwrap() > 0.05, "{estimate:?}");
        even(&mut estimate, 1000, 5);
        // A burst-free time shorter than a span changes little.
        even(&mut estimate, 10, 0);
        assert!(estimate.bound().unwrap() > 0.045, "{estimate:?}");
        even(&mut estimate, 45, 0);
        assert_eq!(estimate.bound(), None, "{estimate:?}");
    }

    /// One that was lost counts for a long time, since such a link may lose one block in a hundred, and not for ever.
    #[test]
    fn a_single_loss_is_forgotten_in_the_end() {
        let mut estimate = LossEstimate::default();
        estimate.take(100, 1);
        even(&mut estimate, 150, 0);
        assert!(estimate.bound().unwrap() < 0.01, "{estimate:?}");
        even(&mut estimate, 800, 0);
        assert_eq!(estimate.bound(), None, "{estimate:?}");
    }
}
