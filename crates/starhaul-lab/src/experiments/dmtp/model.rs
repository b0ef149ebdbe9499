//! The least that must be sent beside the data so that blocks are in time, by a model of independent losses, when all data go over
//! the cheap path.

use starhaul_paths::optimizer::{Demand, OfferedPath, Problem, Protection, optimize};
use starhaul_session::Mode;
use starhaul_units::Bandwidth;

use super::{
    BLOCK_BYTES, BLOCKS_PER_STEP, COSTS, DEADLINE, DmtpSetup, FRAGMENTS, INTERVAL, ONE_WAY, RATE,
    Step,
};

/// How many blocks may be missing where redundancy alone protects them: less than one in a thousand.
const MISSING: f64 = 0.001;

/// Share of the data; `None` where the protection cannot make nearly all blocks arrive in time.
///
/// A retransmission of what the cheap path loses fits the deadline once, and only over a path that loses nothing is once enough: it
/// costs the lost share. Redundancy alone must be enough for the worst of a thousand blocks.
pub fn least_extra_share(setup: DmtpSetup, step: Step) -> Option<f64> {
    let p = step.loss;
    match setup.mode {
        Mode::None => (p == 0.0).then_some(0.0),
        Mode::Retransmit if setup.both_paths => Some(p),
        Mode::FecRetransmit if setup.both_paths => Some(p),
        Mode::Retransmit => (missing_after_one(p) <= MISSING).then_some(p),
        // Losses in a row are not independent.
        _ if step.burst > 1.0 => None,
        Mode::FecRetransmit if missing_after_one(p) <= MISSING => Some(p),
        _ => {
            let redundancy = (0..=2 * FRAGMENTS).find(|n| {
                // Redundancy goes over the path that loses nothing, if there is one.
                let at_risk = FRAGMENTS + if setup.both_paths { 0 } else { *n };
                missing_with(*n, at_risk, p) <= MISSING
            });
            redundancy.map(|n| f64::from(n) / f64::from(FRAGMENTS))
        }
    }
}

/// Bytes of data that the least costly plan of the greatest quality puts on the dear path in a step, as the linear program has it: with the
/// true figures of both paths, and without headers.
pub fn needed_bytes(loss: f64) -> f64 {
    let path = |loss, cost| OfferedPath {
        bandwidth: RATE,
        delay: ONE_WAY,
        loss,
        cost,
        loss_known_after: None,
    };
    let demand = Demand {
        rate: Bandwidth::from_bytes_over(BLOCK_BYTES as u64, INTERVAL),
        lifetime: DEADLINE,
        priority: 0,
        protection: Protection::RETRANSMISSION,
        negligible_loss: 0.0,
    };
    let problem = Problem {
        paths: &[path(loss, COSTS[0]), path(0.0, COSTS[1])],
        demands: &[demand],
        budget: None,
    };
    let step = INTERVAL * BLOCKS_PER_STEP;
    // The figures are constants that the solver takes; a failure shows as no number.
    optimize(&problem).map_or(f64::NAN, |plan| plan.loads[1] / 8.0 * step.as_secs_f64())
}

/// Share of blocks that miss a fragment after each was sent again once over the same path.
fn missing_after_one(p: f64) -> f64 {
    let times = i32::try_from(FRAGMENTS).unwrap_or(i32::MAX);
    1.0 - (1.0 - p * p).powi(times)
}

/// Share of blocks of which more than `n` fragments of `all` are lost.
fn missing_with(n: u32, all: u32, p: f64) -> f64 {
    if p == 0.0 || n >= all {
        return 0.0;
    }
    let power = |base: f64, exponent: u32| base.powi(i32::try_from(exponent).unwrap_or(i32::MAX));
    let (mut ways, mut kept) = (1.0, 0.0);
    for lost in 0..=n {
        kept += ways * power(p, lost) * power(1.0 - p, all - lost);
        ways *= f64::from(all - lost) / f64::from(lost + 1);
    }
    (1.0 - kept).max(0.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn redundancy_for_one_block_in_a_thousand() {
        // Computed independently for 20 fragments.
        for (p, n) in [(0.005, 2), (0.01, 3), (0.02, 4), (0.05, 6), (0.1, 9)] {
            let found = (0..40).find(|n| missing_with(*n, FRAGMENTS + n, p) <= MISSING);
            assert_eq!(found, Some(n), "at {p}");
        }
    }
}
