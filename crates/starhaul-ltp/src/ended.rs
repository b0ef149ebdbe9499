//! Sessions received in full or cancelled, so that their late segments start no new ones.

use std::time::Duration;

use crate::{clock::PeerTime, ranges::RangeSet};

/// Greatest number of separate runs of session numbers per generation. Engines that count sessions up need few.
const MOST_RUNS: usize = 1 << 15;

/// Numbers of ended sessions, each remembered for at least one lifetime and at most two: a peer that was started anew may
/// use them again after that.
#[derive(Debug)]
pub(crate) struct Ended {
    lifetime: Duration,
    began: PeerTime,
    present: RangeSet,
    previous: RangeSet,
}

impl Ended {
    pub(crate) fn new(lifetime: Duration) -> Self {
        Self {
            lifetime,
            began: PeerTime::default(),
            present: RangeSet::default(),
            previous: RangeSet::default(),
        }
    }

    pub(crate) fn insert(&mut self, now: PeerTime, number: u64) {
        self.turn(now);
        self.present.insert(number, number.saturating_add(1));
    }

    pub(crate) fn contains(&mut self, now: PeerTime, number: u64) -> bool {
        self.turn(now);
        self.present.contains(number) || self.previous.contains(number)
    }

    fn turn(&mut self, now: PeerTime) {
        let age = now.since(self.began);
        if age < self.lifetime && self.present.count() < MOST_RUNS {
            return;
        }
        self.previous = std::mem::take(&mut self.present);
        if age >= self.lifetime.saturating_mul(2) {
            self.previous = RangeSet::default();
        }
        self.began = now;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_known_for_a_lifetime_and_forgotten_after_two() {
        let at = |seconds| PeerTime::default().plus(Duration::from_secs(seconds));
        let mut ended = Ended::new(Duration::from_secs(100));
        ended.insert(at(99), 7);
        assert!(ended.contains(at(198), 7));
        assert!(!ended.contains(at(301), 7));
        ended.insert(at(400), 8);
        assert!(!ended.contains(at(10_000), 8), "nothing was asked for long");
    }

    #[test]
    fn random_numbers_are_bounded() {
        let mut ended = Ended::new(Duration::from_secs(100));
        for i in 0..200_000u64 {
            ended.insert(PeerTime::default(), i.wrapping_mul(0x9e37_79b9_7f4a_7c15));
        }
        assert!(ended.present.count() + ended.previous.count() <= 2 * MOST_RUNS);
        assert!(ended.contains(
            PeerTime::default(),
            199_999u64.wrapping_mul(0x9e37_79b9_7f4a_7c15)
        ));
    }
}
