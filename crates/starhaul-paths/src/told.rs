//! The loss that a modem tells of (MPDTP's dedicated link), from its bit-error rate, and what the path's own datagrams leave of it: it holds
//! at once, before any loss is seen, and gives way to what is seen.

/// What is told counts as so many losses seen at that rate (a conjugate prior of Poisson's distribution): with twice as many expected and none
/// seen, a third of it is left.
const WORD: f64 = 4.0;
/// Whatever a modem says, a path is not taken to lose more: one that does shows it by itself.
const MOST: f64 = 0.5;
/// A share that differs by less than this factor is the same statement, to which what was seen since still applies.
const SAME: f64 = 2.0;

/// See the [module](self).
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct ToldLoss(Option<Told>);

#[derive(Clone, Copy, Debug)]
struct Told {
    share: f64,
    /// The share of which the counting began.
    counted_from: f64,
    datagrams: f64,
    lost: f64,
}

impl ToldLoss {
    /// This share of full datagrams is told to be lost; `None` when nothing is told any more.
    pub(crate) fn set(&mut self, share: Option<f64>) {
        let share = share.filter(|share| !share.is_nan());
        self.0 = share.map(|share| {
            let share = share.clamp(0.0, MOST);
            match self.0 {
                Some(told) if told.is_about(share) => Told { share, ..told },
                _ => Told {
                    share,
                    counted_from: share,
                    datagrams: 0.0,
                    lost: 0.0,
                },
            }
        });
    }

    /// The share as it was told.
    pub(crate) fn told(&self) -> Option<f64> {
        self.0.map(|told| told.share)
    }

    /// What is left of it; zero where nothing is told.
    pub(crate) fn share(&self) -> f64 {
        self.0.map_or(0.0, |told| {
            let seen = (WORD + told.lost) / (WORD + told.share * told.datagrams);
            told.share * seen.min(1.0)
        })
    }

    /// The next datagram has its fate.
    pub(crate) fn count(&mut self, is_lost: bool) {
        let Some(told) = &mut self.0 else { return };
        told.datagrams += 1.0;
        if is_lost {
            // An outage is no evidence for what is told of single bits.
            let most = WORD + told.share * told.datagrams;
            told.lost = (told.lost + 1.0).min(most);
        }
    }

    /// The next ones, so many, have arrived.
    pub(crate) fn count_arrived(&mut self, datagrams: u32) {
        if let Some(told) = &mut self.0 {
            told.datagrams += f64::from(datagrams);
        }
    }

    /// A datagram counted as lost has arrived.
    pub(crate) fn take_back(&mut self) {
        if let Some(told) = &mut self.0 {
            told.lost = (told.lost - 1.0).max(0.0);
        }
    }
}

impl Told {
    fn is_about(&self, share: f64) -> bool {
        share <= self.counted_from * SAME && self.counted_from <= share * SAME
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn after(told: &mut ToldLoss, datagrams: u32, lost_each: u32) -> f64 {
        for number in 1..=datagrams {
            told.count(lost_each > 0 && number % lost_each == 0);
        }
        told.share()
    }

    fn told(share: f64) -> ToldLoss {
        let mut told = ToldLoss::default();
        told.set(Some(share));
        told
    }

    #[test]
    fn what_is_told_holds_at_once_and_gives_way_to_what_is_seen() {
        let mut wrong = told(0.01);
        assert!((wrong.share() - 0.01).abs() < 1e-12);
        // Eight losses were expected, and none seen.
        let left = after(&mut wrong, 800, 0);
        assert!((left - 0.01 / 3.0).abs() < 1e-6, "{left}");
        assert_eq!(wrong.told(), Some(0.01), "it is still said");
        let mut right = told(0.01);
        let left = after(&mut right, 10_000, 100);
        assert!((left - 0.01).abs() < 1e-4, "{left}");
    }

    #[test]
    fn another_statement_is_judged_anew_and_one_much_like_the_last_is_not() {
        let mut loss = told(0.001);
        let left = after(&mut loss, 100_000, 0);
        loss.set(Some(0.0015));
        assert!(loss.share() < left * 1.1, "{}", loss.share());
        // Rain.
        loss.set(Some(0.05));
        assert!((loss.share() - 0.05).abs() < 1e-12);
        loss.set(None);
        assert_eq!((loss.share(), loss.told()), (0.0, None));
    }

    #[test]
    fn an_outage_neither_raises_it_nor_holds_it_for_long() {
        let mut loss = told(0.01);
        after(&mut loss, 10_000, 0);
        let struck = after(&mut loss, 1_000, 1);
        assert!(struck <= 0.01, "{struck}");
        let left = after(&mut loss, 100_000, 0);
        assert!(left < 0.002, "{left}");
    }

    #[test]
    fn nonsense_is_bounded() {
        for (said, share) in [(f64::INFINITY, MOST), (-1.0, 0.0), (0.0, 0.0), (1.0, MOST)] {
            let mut loss = told(said);
            assert_eq!(loss.share().to_bits(), share.to_bits(), "{said}");
            let left = after(&mut loss, 1_000, 3);
            assert!((0.0..=MOST).contains(&left), "{said}: {left}");
        }
        assert_eq!(told(f64::NAN).told(), None);
    }
}
