//! Computes how many redundancy fragments a code needs to fail with probability at most ε (docs/deadlines.md "Redundancy").
//!
//! Each rule is exact for its loss model and fast enough to be evaluated for every block.

use crate::{
    MAX_FRAGMENTS,
    losses::{Channel, Losses},
};

/// Tolerance for sums of probabilities, so that rounding does not raise n where the bound is met exactly.
const ROUNDING: f64 = 1e-12;

/// Smallest number n of redundancy fragments with `P(Binomial(data + n, loss) > n)` ≤ `epsilon`: every fragment is lost
/// independently with probability `loss`. At most `cap`, and at most what a code has room for.
pub fn redundancy_for_random_loss(data: u8, loss: f64, epsilon: f64, cap: u8) -> u8 {
    let limit = limit(data, cap);
    let (data, loss) = (f64::from(data), probability(loss));
    // The code fails when more than n are lost before the data-th arrives, a negative binomial variable.
    let mut term = (1.0 - loss).powf(data);
    let terms = (0..=u8::MAX).map(|lost| {
        let now = term;
        term *= loss * (data + f64::from(lost)) / (f64::from(lost) + 1.0);
        now
    });
    smallest_covering(terms, epsilon, limit)
}

/// Smallest n with `P(lost data + lost redundancy > n)` ≤ `epsilon`, where the data go over a path that loses the share
/// `data_loss`, `burst_length` in a row on average as for [`redundancy_for_burst_loss`], and the redundancy over another, independent
/// one that loses `redundancy_loss`, each for itself. At most `cap`, and at most what a code has room for.
pub fn redundancy_on_another_path(
    data: u8,
    data_loss: f64,
    burst_length: f64,
    redundancy_loss: f64,
    epsilon: f64,
    cap: u8,
) -> u8 {
    let limit = limit(data, cap);
    let more_lost = exceedance_in_bursts(data, probability(data_loss), burst_length);
    let mut failures = (0..limit).zip(failures(more_lost, redundancy_loss));
    let enough = failures.find(|(_, fails)| *fails <= epsilon + ROUNDING);
    enough.map_or(limit, |(n, _)| n)
}

/// The n up to `most` with which the most blocks arrive for what they take of the paths, where all that is sent takes the place of other blocks:
/// the greatest share of blocks that are whole, divided by their fragments. Over paths as for [`redundancy_on_another_path`], where all
/// losses are independent.
pub fn redundancy_for_most_blocks(data: u8, data_loss: f64, redundancy_loss: f64, most: u8) -> u8 {
    let most = limit(data, most);
    let (mut best, mut greatest) = (0, 0.0);
    let more_lost = exceedance(data, probability(data_loss));
    for (n, fails) in (0..=most).zip(failures(more_lost, redundancy_loss)) {
        let whole = (1.0 - fails) / (f64::from(data) + f64::from(n));
        if whole > greatest {
            (best, greatest) = (n, whole);
        }
    }
    best
}

/// P[more of the data are lost than of n redundancy fragments arrive], for n from 0 on, from P[more than j of the data are lost].
fn failures(
    more_lost: [f64; MAX_FRAGMENTS + 1],
    redundancy_loss: f64,
) -> impl Iterator<Item = f64> {
    let arrives = 1.0 - probability(redundancy_loss);
    // arrived[j] = P[j of n redundancy fragments arrive].
    let mut arrived = [0.0; MAX_FRAGMENTS + 1];
    arrived[0] = 1.0;
    (0..MAX_FRAGMENTS).map(move |n| {
        let fails = arrived.iter().zip(&more_lost).take(n + 1);
        let fails = fails.map(|(arrived, lost)| arrived * lost).sum();
        for j in (1..=n + 1).rev() {
            arrived[j] = arrived[j] * (1.0 - arrives) + arrived[j - 1] * arrives;
        }
        arrived[0] *= 1.0 - arrives;
        fails
    })
}

/// Smallest n with `P(more than n of data + n consecutive fragments are lost)` ≤ `epsilon` on a Gilbert–Elliott channel
/// that loses everything in its bad state and nothing in its good one, the share `loss` in all, `burst_length` in a row
/// on average (below 1/(1 − loss), where losses would avoid each other, independent losses are assumed). At most `cap`,
/// and at most what a code has room for.
pub fn redundancy_for_burst_loss(
    data: u8,
    loss: f64,
    burst_length: f64,
    epsilon: f64,
    cap: u8,
) -> u8 {
    let limit = limit(data, cap);
    let loss = probability(loss);
    if loss >= 1.0 {
        return limit;
    }
    let channel = Channel::of(loss, burst_length);
    // Each arrival leaves the channel in its good state, so the runs of losses before each arrival are independent: the
    // first run begins with the probability of the bad state, the later ones with that of leaving the good state.
    let mut lost = [0.0; MAX_FRAGMENTS + 1];
    lost[0] = 1.0;
    let lost = &mut lost[..=usize::from(limit)];
    add_run(lost, channel.share, channel.leave);
    for _ in 1..data {
        add_run(lost, channel.enter, channel.leave);
    }
    smallest_covering(lost.iter().copied(), epsilon, limit)
}

/// Convolves the distribution of a number of losses with a run of them that begins with probability `begin` and ends
/// after each loss with probability `end`.
fn add_run(lost: &mut [f64], begin: f64, end: f64) {
    // Σ P[i lost before] · P[the run reaches l − i], with the run still open.
    let mut running = 0.0;
    for share in lost {
        let before = *share;
        *share = before * (1.0 - begin) + running * end;
        running = running * (1.0 - end) + before * begin;
    }
}

/// Share of the data fragments that neither arrive nor can be decoded, where `data` of them go over a path that loses the share
/// `data_loss`, and `redundancy` for them over a path that loses `redundancy_loss`, all independently: a fragment stays lost if of the
/// others of its code as many are lost as there is redundancy.
pub fn remaining_loss(data: u8, redundancy: u8, data_loss: f64, redundancy_loss: f64) -> f64 {
    let (data_loss, redundancy_loss) = (probability(data_loss), probability(redundancy_loss));
    let more_lost = exceedance(data.saturating_sub(1), data_loss);
    let count = usize::from(redundancy);
    let mut lost = [0.0; MAX_FRAGMENTS + 1];
    lost[0] = 1.0;
    for sent in 1..=count {
        for j in (1..=sent).rev() {
            lost[j] = lost[j] * (1.0 - redundancy_loss) + lost[j - 1] * redundancy_loss;
        }
        lost[0] *= 1.0 - redundancy_loss;
    }
    // All redundancy is lost, or of the other data at least as many as arrive of it.
    let some = lost.iter().zip(more_lost[..count].iter().rev());
    data_loss * (lost[count] + some.map(|(lost, more)| lost * more).sum::<f64>())
}

/// P[Binomial(count, loss) > j] for each j.
fn exceedance(count: u8, loss: f64) -> [f64; MAX_FRAGMENTS + 1] {
    let mut lost = [0.0; MAX_FRAGMENTS + 1];
    lost[0] = 1.0;
    for sent in 1..=usize::from(count) {
        for j in (1..=sent).rev() {
            lost[j] = lost[j] * (1.0 - loss) + lost[j - 1] * loss;
        }
        lost[0] *= 1.0 - loss;
    }
    let mut more = 0.0;
    for share in lost.iter_mut().rev() {
        more += std::mem::replace(share, more);
    }
    lost
}

/// P[more than j of `count` consecutive fragments are lost] for each j, on the channel of [`redundancy_for_burst_loss`].
fn exceedance_in_bursts(count: u8, loss: f64, burst_length: f64) -> [f64; MAX_FRAGMENTS + 1] {
    if loss >= 1.0 || burst_length.is_nan() || burst_length * (1.0 - loss) <= 1.0 {
        return exceedance(count, loss);
    }
    let mut losses = Losses::of(loss, burst_length);
    losses.send_all(count.into());
    let mut more_lost = [0.0; MAX_FRAGMENTS + 1];
    for (more, sum) in more_lost.iter_mut().zip(losses.exceedance()) {
        *more = sum;
    }
    more_lost
}

/// First n whose terms up to it add up to 1 − `epsilon`; `limit` when none below it does.
fn smallest_covering(terms: impl Iterator<Item = f64>, epsilon: f64, limit: u8) -> u8 {
    let mut covered = 0.0;
    for (n, term) in (0..limit).zip(terms) {
        covered += term;
        if 1.0 - covered <= epsilon + ROUNDING {
            return n;
        }
    }
    limit
}

fn limit(data: u8, cap: u8) -> u8 {
    cap.min(u8::MAX - data)
}

/// Clamps a measured share to a probability; NaN counts as no loss.
fn probability(share: f64) -> f64 {
    if share.is_nan() {
        0.0
    } else {
        share.clamp(0.0, 1.0)
    }
}

#[cfg(test)]
mod tests;
