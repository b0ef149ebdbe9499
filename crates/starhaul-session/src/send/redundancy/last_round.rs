//! How much redundancy leaves with fragments that are sent again for the last time, should some of them be lost once more.

use starhaul_paths::optimizer::Losses;

/// Tolerance for sums of probabilities, so that rounding does not ask for one more where the bound is met exactly.
const ROUNDING: f64 = 1e-12;

/// What a path loses: a share of what leaves, so many fragments in a row on average.
#[derive(Clone, Copy, Debug)]
pub(super) struct Lossy {
    pub(super) share: f64,
    pub(super) burst_length: f64,
}

/// The smallest number n of redundancy fragments with which a code of `data` fails with a probability of at most `epsilon`. They leave over
/// `first`; what is lost there is sent again over `again`, and with the first of that leaves all redundancy. It stands in for further losses,
/// too: where l are lost, n + 1 fragments leave again, or l if that is more. At most `cap`, and at most what a code has room for.
pub(super) fn redundancy_for_last_round(
    data: u8,
    first: Lossy,
    again: Lossy,
    epsilon: f64,
    cap: u8,
) -> u8 {
    let cap = cap.min(u8::MAX - data);
    if first.share <= 0.0 || again.share <= 0.0 {
        return 0;
    }
    let of = |path: Lossy| Losses::of(path.share, path.burst_length);
    let mut lost = of(first);
    (0..data).for_each(|_| lost.send());
    // As many leave again as were lost, and one of them or more is lost.
    let mut sent_again = of(again);
    let any_lost = (0..=data).map(|_| {
        let any = 1.0 - sent_again.share(0);
        sent_again.send();
        any
    });
    let any_lost: Vec<f64> = any_lost.collect();
    let mut with_redundancy = of(again);
    for redundancy in 0..cap {
        with_redundancy.send();
        let more_lost = with_redundancy.exceedance();
        let leave = usize::from(redundancy) + 1;
        let fails = (1..=usize::from(data)).map(|missing| {
            let again = match leave.checked_sub(missing) {
                Some(to_spare) => more_lost[to_spare],
                None => any_lost[missing],
            };
            lost.share(missing) * again
        });
        if fails.sum::<f64>() <= epsilon + ROUNDING {
            return redundancy;
        }
    }
    cap
}

#[cfg(test)]
mod tests {
    use rand::{Rng as _, SeedableRng as _};
    use rand_chacha::ChaCha8Rng;

    use super::*;

    const EPSILON: f64 = 1e-3;

    fn needed(first: (f64, f64), again: (f64, f64)) -> u8 {
        let [first, again] = [first, again].map(|(share, burst_length)| Lossy {
            share,
            burst_length,
        });
        redundancy_for_last_round(20, first, again, EPSILON, 60)
    }

    #[test]
    fn a_path_that_loses_nothing_needs_none_and_others_little() {
        // Computed independently for 20 fragments.
        for (first, again, wanted) in [
            ((0.1, 1.0), (0.0, 1.0), 0),
            ((0.0, 1.0), (0.1, 1.0), 0),
            ((0.005, 1.0), (0.005, 1.0), 0),
            ((0.01, 1.0), (0.01, 1.0), 1),
            ((0.02, 1.0), (0.02, 1.0), 2),
            ((0.05, 1.0), (0.05, 1.0), 4),
            ((0.1, 1.0), (0.001, 1.0), 3),
            ((0.1, 1.0), (0.01, 1.0), 5),
            ((0.1, 5.0), (0.01, 1.0), 16),
            ((0.05, 5.0), (0.05, 5.0), 22),
        ] {
            assert_eq!(needed(first, again), wanted, "{first:?}, {again:?}");
        }
        let lossy = Lossy {
            share: 0.5,
            burst_length: f64::NAN,
        };
        assert_eq!(redundancy_for_last_round(20, lossy, lossy, EPSILON, 3), 3);
        assert_eq!(redundancy_for_last_round(255, lossy, lossy, EPSILON, 9), 0);
    }

    /// Share of blocks that fail, one by one.
    fn failing(loss: f64, again: f64, redundancy: usize) -> f64 {
        const BLOCKS: u32 = 60_000;
        let mut random = ChaCha8Rng::seed_from_u64(7);
        let mut lost_of = |count: usize, share: f64| {
            let lost = (0..count).filter(|_| random.random_bool(share));
            lost.count()
        };
        let fails = (0..BLOCKS).filter(|_| {
            let lost = lost_of(20, loss);
            let sent = lost.max(redundancy + 1);
            lost > 0 && lost_of(sent, again) > sent - lost
        });
        fails.count() as f64 / f64::from(BLOCKS)
    }

    #[test]
    fn it_is_enough_and_one_less_is_not() {
        for (loss, again) in [(0.05, 0.05), (0.1, 0.02)] {
            let enough = usize::from(needed((loss, 1.0), (again, 1.0)));
            assert!(failing(loss, again, enough) < 1.5 * EPSILON, "{loss}");
            assert!(failing(loss, again, enough - 1) > EPSILON, "{loss}");
        }
    }
}
