//! How much redundancy blocks get, and when it leaves although other data wait.

mod last_round;

use std::time::{Duration, Instant};

use starhaul_paths::{Loss, PathId};
use starhaul_units::Bandwidth;

use self::last_round::{Lossy, redundancy_for_last_round};

use super::{
    BlocksOut,
    block::{SHORT_BLOCK, SendBlock},
    carriers::Carriers,
    fragment_bytes,
};
use crate::{
    item::{BlockKey, FragmentId},
    paths::{LAST_RESORT, Path, Paths},
    rules,
    scheduler::View,
};

/// Probability with which the redundancy of a block may fall short.
pub(super) const EPSILON: f64 = 1e-3;
/// Redundancy leaves with the data of a short block that has no time to be sent again so often; a longer one needs time for one round only.
pub(super) const ROUNDS_TO_SPARE: u32 = 2;
/// The greatest share lost in any of many windows is about so many times the mean, by chance alone.
const WINDOW_OVER_MEAN: f64 = 2.0;

impl BlocksOut {
    /// A fragment was sent again over the path of `view`. If it cannot be sent once more in time, and the path is likelier to lose it than
    /// a block may fail, more goes with it than what was lost: redundancy that is left, or a copy.
    pub(crate) fn insist(&mut self, view: &View<'_>, key: BlockKey, fragment: FragmentId) {
        let Some(path) = view.this() else {
            return;
        };
        if view.feared_of(path, Loss::feared) <= EPSILON {
            return;
        }
        let overload = self.order.overload();
        let block = self.blocks.get_mut(&key);
        // Where the paths carry less than is asked for, it would take the place of other blocks.
        let Some(block) = block.filter(|block| !overload.concerns(block.priority)) else {
            return;
        };
        let bytes = fragment_bytes(block, view.fragment_capacity());
        if block.mode.codes() && rules::is_last_on(view, path, bytes, block.deadline) {
            block.insist(fragment);
        }
    }
}

/// How much redundancy a code gets whose data leave over these, most of them or the first over `path` (DMTP: by the greatest loss seen in a moving window; the
/// redundancy goes on another path, `in_time` if there is one). For short blocks no less than over ten seconds: see [`Loss::feared`]. Where it
/// takes the place of other blocks, no more than brings most of them. What losses in a row leave `may_repair` by being sent again; so may the losses of
/// longer blocks, and where redundancy would cost something they have only what the last of that may lose.
pub(super) fn redundancy_rule(
    paths: &Paths,
    path: PathId,
    carriers: &Carriers,
    (max_coding_rate, codes): (f64, usize),
    is_overloaded: bool,
    may_repair: bool,
    in_time: impl Fn(&Path) -> bool,
) -> impl Fn(u8) -> u8 {
    let others = others_that_take(paths, path, in_time);
    let figures = |share: fn(&Loss) -> f64| {
        let others_share = others.iter().map(|(_, other)| share(&other.monitor.loss()));
        (
            lost_by(paths, carriers, share),
            others_share.reduce(f64::max),
        )
    };
    // What shorter windows of a path now and then do not show costs little to make up for in short blocks alone.
    let (short, long) = (figures(Loss::feared), figures(|loss| loss.window_max));
    let burst_length = worst_burst_length(paths, carriers);
    let is_repaired = may_repair && !is_overloaded && !is_free(paths, path, &others);
    let last_round = is_repaired.then(|| LastRound::of(paths, path, carriers, &others));
    // One of its codes that falls short fails the block.
    let epsilon = EPSILON / codes.max(1) as f64;
    move |data_count| {
        let is_short = usize::from(data_count) <= SHORT_BLOCK;
        let (share, other) = if is_short { short } else { long };
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "float casts saturate; both are small"
        )]
        let cap = (f64::from(data_count) * max_coding_rate).ceil() as u8;
        let Some(burst_length) = burst_length.filter(|_| share > 0.0) else {
            return 0;
        };
        if let Some(LastRound { first, again }) = last_round.flatten().filter(|_| !is_short) {
            return redundancy_for_last_round(data_count, first, again, epsilon, cap);
        }
        let wanted = match other {
            Some(other) => starhaul_fec::redundancy_on_another_path(
                data_count,
                share,
                if may_repair { 1.0 } else { burst_length },
                other,
                epsilon,
                cap,
            ),
            None => starhaul_fec::redundancy_for_burst_loss(
                data_count,
                share,
                burst_length,
                epsilon,
                cap,
            ),
        };
        match is_overloaded {
            true => starhaul_fec::redundancy_for_most_blocks(
                data_count,
                share,
                other.unwrap_or(share),
                wanted,
            ),
            false => wanted,
        }
    }
}

/// What is lost of a block, and of what is sent again of it.
#[derive(Clone, Copy, Debug)]
struct LastRound {
    first: Lossy,
    again: Lossy,
}

impl LastRound {
    /// Of data that leave over these, the first over `path`. The last try goes where it is least likely to be lost (`Rules::takes_retransmission`); `None`
    /// if there is no path.
    fn of(
        paths: &Paths,
        path: PathId,
        carriers: &Carriers,
        others: &[(PathId, &Path)],
    ) -> Option<Self> {
        let main = paths.get(path).map(|main| (path, main));
        let takes = main.into_iter().chain(others.iter().copied());
        let risk = |id: PathId| loss_of(paths, id, Loss::feared);
        let (id, again) = takes.min_by(|(a, path), (b, other)| {
            let is_known = [path, other].map(|path| path.monitor.loss_is_known());
            let by_risk = risk(*a).total_cmp(&risk(*b));
            by_risk.then(is_known[0].cmp(&is_known[1]))
        })?;
        // Of a path that has shown nothing only the means count: what is feared of both would be paid for at every loss until it has.
        let share: fn(&Loss) -> f64 = match again.monitor.loss_is_known() {
            true => |loss: &Loss| loss.rate.max(loss.window_max / WINDOW_OVER_MEAN),
            false => |loss: &Loss| loss.rate,
        };
        Some(Self {
            first: Lossy {
                share: lost_by(paths, carriers, share),
                burst_length: worst_burst_length(paths, carriers).unwrap_or(1.0),
            },
            again: Lossy {
                share: loss_of(paths, id, |loss| loss.rate),
                burst_length: again.monitor.loss().burst_length,
            },
        })
    }
}

fn is_last_resort(path: &Path) -> bool {
    path.monitor.cost() >= LAST_RESORT
}

/// The paths other than `path`, over which data leave, that bring redundancy in time. Any of them may take it; those of the last resort do not
/// while `path` will do.
fn others_that_take(
    paths: &Paths,
    path: PathId,
    in_time: impl Fn(&Path) -> bool,
) -> Vec<(PathId, &Path)> {
    let is_left_to = paths.get(path).is_some_and(is_last_resort);
    let others = paths.usable().filter(|(id, other)| {
        *id != path && in_time(other) && (is_left_to || !is_last_resort(other))
    });
    others.collect()
}

/// Redundancy that a retransmission could replace leaves at no price: sooner than that, and over no path that is dearer than another
/// (`Rules::takes_redundancy`). Data leave over `path`.
fn is_free(paths: &Paths, path: PathId, others: &[(PathId, &Path)]) -> bool {
    let Some(main) = paths.get(path) else {
        return false;
    };
    let known_after = main.monitor.overdue_after();
    let recovered_after = known_after.saturating_add(paths.least_delay());
    let is_cheapest = |path: &Path| {
        let cost = path.monitor.cost();
        let mut usable = paths.usable();
        usable.all(|(_, other)| cost.total_cmp(&other.monitor.cost()).is_le())
    };
    let mut sooner = others
        .iter()
        .filter(|(_, other)| other.monitor.one_way_delay() <= recovered_after)
        .peekable();
    if sooner.peek().is_none() {
        return is_cheapest(main);
    }
    sooner.any(|(_, other)| is_cheapest(other))
}

/// What these paths lose of the data that they carry.
fn lost_by(paths: &Paths, carriers: &Carriers, share: fn(&Loss) -> f64) -> f64 {
    let lost = carriers
        .iter()
        .map(|(id, part)| part * loss_of(paths, id, share));
    lost.sum()
}

/// How many in a row are lost on the path which loses the most of the data.
fn worst_burst_length(paths: &Paths, carriers: &Carriers) -> Option<f64> {
    let loses = |(id, part): (PathId, f64)| {
        let loss = paths.get(id)?.monitor.loss();
        Some((part * loss.window_max, loss.burst_length))
    };
    let worst = carriers.iter().filter_map(loses);
    let worst = worst.max_by(|a, b| a.0.total_cmp(&b.0));
    worst.map(|(_, burst_length)| burst_length)
}

/// What a path loses. One that has carried next to nothing is no safer than the others.
fn loss_of(paths: &Paths, id: PathId, share: fn(&Loss) -> f64) -> f64 {
    let Some(path) = paths.get(id) else {
        return 0.0;
    };
    let own = share(&path.monitor.loss());
    let others = paths
        .usable()
        .filter(|(other, _)| *other != id && !path.monitor.loss_is_known());
    others.fold(own, |most, (_, other)| {
        most.max(share(&other.monitor.loss()))
    })
}

/// A lost fragment could be sent again so often before the deadline, whichever of these paths lost it. What is lost of a longer block shows
/// mostly by what arrives after it, and once is enough: what may be lost of that is made up for by what leaves with it.
pub(super) fn has_time_for_rounds(
    rounds: u32,
    block: &SendBlock,
    now: Instant,
    paths: &Paths,
    carriers: &Carriers,
) -> bool {
    // Before a block is cut, nothing is known of its length.
    let is_long = block.is_split() && !block.is_short();
    let rounds = if is_long { rounds.min(1) } else { rounds };
    let known_after = carriers.iter().filter_map(|(id, _)| {
        let path = paths.get(id)?;
        Some(match is_long {
            true => most_known_after(path),
            false => path.monitor.overdue_after(),
        })
    });
    let Some(known_after) = known_after.max() else {
        return false;
    };
    // Slower paths than that carry nothing of it in time.
    let left = block.deadline.saturating_duration_since(now);
    let useful = paths
        .usable()
        .filter(|(_, path)| path.monitor.present_delay() <= left);
    let bandwidth: Bandwidth = useful.map(|(_, path)| path.monitor.bandwidth()).sum();
    let sent = bandwidth.time_to_send(block.data.len() as u64);
    let rounds = known_after.saturating_mul(rounds);
    let needed = sent
        .saturating_add(rounds)
        .saturating_add(paths.least_delay());
    now.checked_add(needed)
        .is_some_and(|arrival| arrival <= block.deadline)
}

/// Time from sending until losses are noticed, but for those at the end of a block: these are sent again at its [last chance](super::chances), at which
/// acknowledgements are late by their mean.
fn most_known_after(path: &Path) -> Duration {
    let known_after = path.monitor.loss_known_after();
    known_after.max(path.monitor.acknowledged_after())
}
