use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;

use super::*;

/// The table of docs/deadlines.md, computed independently of the rule.
#[test]
fn random_loss_gives_the_published_table() {
    let losses = [0.005, 0.01, 0.02, 0.05, 0.1];
    for (data, expected) in [
        (10, [2, 2, 3, 4, 6]),
        (20, [2, 3, 4, 6, 9]),
        (40, [3, 3, 5, 8, 13]),
    ] {
        assert_eq!(
            losses.map(|loss| redundancy_for_random_loss(data, loss, 1e-3, 255)),
            expected,
            "{data} data fragments"
        );
    }
}

/// What DMTP's blocks of 20 fragments lose without protection, and with four fragments of redundancy that all arrive.
#[test]
fn blocks_of_twenty_fragments_fail_as_often_as_computed_independently() {
    for (loss, redundancy, fails) in [
        (0.01, 0, 0.182),
        (0.02, 0, 0.332),
        (0.1, 0, 0.878),
        (0.1, 4, 0.043),
    ] {
        let found = exceedance(20, loss)[redundancy];
        assert!(
            (found - fails).abs() < 5e-4,
            "{loss}, {redundancy}: {found}"
        );
    }
}

#[test]
fn the_cap_and_the_room_of_a_code_hold() {
    for rule in [
        |data, loss, cap| redundancy_for_random_loss(data, loss, 1e-3, cap),
        |data, loss, cap| redundancy_on_another_path(data, loss, 3.0, loss, 1e-3, cap),
        |data, loss, cap| redundancy_for_burst_loss(data, loss, 3.0, 1e-3, cap),
    ] {
        assert_eq!(rule(20, 0.1, 4), 4);
        assert_eq!(rule(250, 0.1, 255), 5);
        assert_eq!(rule(20, 1.0, 255), 235);
        assert_eq!(rule(255, 0.5, 255), 0);
        assert_eq!(rule(20, 0.0, 255), 0);
        assert_eq!(rule(20, f64::NAN, 255), 0);
        assert_eq!(rule(20, -1.0, 255), 0);
        assert_eq!(rule(1, 0.0, 0), 0);
    }
}

/// By counting which of 20 000 blocks are whole with each number of redundancy fragments.
#[test]
fn most_blocks_arrive_with_as_much_redundancy_as_pays() {
    // A copy of a lone fragment costs as much as another block.
    assert_eq!(redundancy_for_most_blocks(1, 0.02, 0.02, 4), 0);
    assert_eq!(redundancy_for_most_blocks(1, 0.45, 0.0, 4), 0);
    assert_eq!(redundancy_for_most_blocks(1, 0.6, 0.0, 4), 1);
    assert_eq!(redundancy_for_most_blocks(20, 0.02, 0.02, 0), 0);
    assert_eq!(redundancy_for_most_blocks(20, 0.02, 0.02, 9), 2);
    assert_eq!(redundancy_for_most_blocks(255, 0.5, 0.5, 255), 0);
    assert_eq!(redundancy_for_most_blocks(20, f64::NAN, 0.1, 9), 0);
    let mut random = ChaCha8Rng::seed_from_u64(5);
    for (data, data_loss, redundancy_loss) in [(20, 0.02, 0.02), (20, 0.1, 0.01), (5, 0.2, 0.2)] {
        let mut lost =
            |count: u8, loss: f64| (0..count).filter(|_| random.random_bool(loss)).count();
        let mut yield_of = |n: u8| {
            let whole = (0..20_000)
                .filter(|_| lost(data, data_loss) + lost(n, redundancy_loss) <= usize::from(n));
            whole.count() as f64 / f64::from(data + n)
        };
        let best = redundancy_for_most_blocks(data, data_loss, redundancy_loss, 12);
        assert!(best > 0);
        let chosen = yield_of(best);
        for n in 0..=12 {
            assert!(
                yield_of(n) < 1.01 * chosen,
                "{n} for {data} is better than {best}"
            );
        }
    }
}

#[test]
fn bursts_of_independent_loss_need_what_independent_loss_needs() {
    for data in [1, 5, 20, 100] {
        for loss in [0.001, 0.01, 0.1, 0.4] {
            assert_eq!(
                redundancy_for_burst_loss(data, loss, 1.0, 1e-4, 150),
                redundancy_for_random_loss(data, loss, 1e-4, 150),
                "{data} data fragments, loss {loss}"
            );
        }
    }
}

#[test]
fn redundancy_over_an_equal_path_needs_what_one_path_needs() {
    for data in [1, 5, 20, 100] {
        for loss in [0.001, 0.01, 0.1, 0.4] {
            assert_eq!(
                redundancy_on_another_path(data, loss, 1.0, loss, 1e-4, 150),
                redundancy_for_random_loss(data, loss, 1e-4, 150),
                "{data} data fragments, loss {loss}"
            );
        }
    }
}

#[test]
fn a_clean_second_path_needs_fewer_and_a_bad_one_more() {
    let n = |redundancy_loss| redundancy_on_another_path(20, 0.1, 1.0, redundancy_loss, 1e-3, 255);
    assert!(n(0.0) < n(0.1), "{} {}", n(0.0), n(0.1));
    assert!(n(0.1) < n(0.5), "{} {}", n(0.1), n(0.5));
    assert_eq!(redundancy_on_another_path(20, 0.0, 3.0, 1.0, 1e-3, 255), 0);
}

#[test]
fn longer_bursts_need_more() {
    let n = |burst| redundancy_for_burst_loss(20, 0.02, burst, 1e-3, 255);
    assert!(
        n(1.0) < n(3.0) && n(3.0) < n(8.0),
        "{} {} {}",
        n(1.0),
        n(3.0),
        n(8.0)
    );
}

/// Share of `trials` codes that cannot be decoded under a loss process (true = lost).
fn failures(trials: u32, data: u8, n: u8, mut lost: impl FnMut(u8) -> bool) -> f64 {
    let failed = (0..trials)
        .filter(|_| (0..data + n).filter(|index| lost(*index)).count() > usize::from(n))
        .count();
    failed as f64 / f64::from(trials)
}

/// Simulates the rule's channel: n must meet ε and n − 1 must miss it, both by more than the sampling error of these
/// fixed seeds.
fn check_by_simulation(name: &str, epsilon: f64, n: u8, share: impl Fn(u8) -> f64) {
    let (at, below) = (share(n), share(n - 1));
    let slack = 3.0 * (epsilon / f64::from(TRIALS)).sqrt();
    assert!(at <= epsilon + slack, "{name}: {n} fail in {at}");
    assert!(
        below > epsilon - slack,
        "{name}: {} already suffice ({below})",
        n - 1
    );
}

const TRIALS: u32 = 40_000;

/// The next state of a channel with a mean loss of 4 % and bursts of 3: bad → good 1/3, good → bad 1/3 · 4/96.
fn bursts_of_three(rng: &mut ChaCha8Rng, index: u8, bad: bool) -> bool {
    match (index, bad) {
        (0, _) => rng.random_bool(0.04),
        (_, true) => !rng.random_bool(1.0 / 3.0),
        (_, false) => rng.random_bool(4.0 / 96.0 / 3.0),
    }
}

#[test]
fn the_rules_hold_in_simulation() {
    let epsilon = 0.01;
    for seed in 1..=3 {
        let rng = || ChaCha8Rng::seed_from_u64(seed);
        let n = redundancy_for_random_loss(20, 0.05, epsilon, 255);
        check_by_simulation(&format!("random, seed {seed}"), epsilon, n, |n| {
            let mut rng = rng();
            failures(TRIALS, 20, n, |_| rng.random_bool(0.05))
        });

        let n = redundancy_on_another_path(20, 0.1, 1.0, 0.3, epsilon, 255);
        check_by_simulation(&format!("two paths, seed {seed}"), epsilon, n, |n| {
            let mut rng = rng();
            failures(TRIALS, 20, n, |index| {
                rng.random_bool(if index < 20 { 0.1 } else { 0.3 })
            })
        });

        let n = redundancy_on_another_path(20, 0.04, 3.0, 0.1, epsilon, 255);
        check_by_simulation(&format!("bursts beside, seed {seed}"), epsilon, n, |n| {
            let (mut rng, mut bad) = (rng(), false);
            failures(TRIALS, 20, n, |index| match index < 20 {
                true => {
                    bad = bursts_of_three(&mut rng, index, bad);
                    bad
                }
                false => rng.random_bool(0.1),
            })
        });

        let n = redundancy_for_burst_loss(20, 0.04, 3.0, epsilon, 255);
        check_by_simulation(&format!("bursts, seed {seed}"), epsilon, n, |n| {
            let mut rng = rng();
            let mut bad = false;
            failures(TRIALS, 20, n, |index| {
                bad = bursts_of_three(&mut rng, index, bad);
                bad
            })
        });
    }
}

#[test]
fn the_remaining_loss_is_that_of_a_simulation() {
    // (data, redundancy, loss of data, loss of redundancy)
    for case @ (data, redundancy, data_loss, redundancy_loss) in [
        (1, 1, 0.3, 0.1),
        (20, 4, 0.1, 0.1),
        (20, 4, 0.1, 0.5),
        (10, 0, 0.2, 0.0),
        (5, 9, 0.4, 0.2),
    ] {
        let mut rng = ChaCha8Rng::seed_from_u64(7);
        let mut lost = 0_u32;
        for _ in 0..TRIALS {
            let missing = (0..data).filter(|_| rng.random_bool(data_loss)).count();
            let arrived = (0..redundancy).filter(|_| !rng.random_bool(redundancy_loss));
            if missing > arrived.count() {
                lost += u32::try_from(missing).unwrap();
            }
        }
        let measured = f64::from(lost) / f64::from(TRIALS) / f64::from(data);
        let computed = remaining_loss(data, redundancy, data_loss, redundancy_loss);
        assert!(
            (measured - computed).abs() < 0.003 + 0.05 * computed,
            "{case:?}: {computed}, measured {measured}"
        );
    }
    assert!((remaining_loss(20, 255, 1.0, 1.0) - 1.0).abs() < 1e-9);
    assert_eq!(remaining_loss(255, 255, f64::NAN, 0.5), 0.0);
}
