//! How much redundancy blocks get, and when it leaves although other data wait.

mod last_round;

use std::{
    cell::OnceCell,
    time::{Duration, Instant},
};

use starhaul_paths::{Loss, PathId};
use starhaul_units::Bandwidth;

use self::last_round::{Lossy, redundancy_for_last_round};

use super::{
    BlocksOut,
    block::{SHORT_BLOCK, SendBlock},
    carriers::{Cargo, Carriers},
    fragment_bytes,
};
use crate::{
    item::{BlockKey, FragmentId},
    paths::{LAST_RESORT, Path, Paths},
    rules::{self, EPSILON, LAST_CHANCE_MARGIN},
    scheduler::View,
};

/// The same of what leaves with the last retransmission: with little time left nothing else makes up for it, and it costs only what blocks with losses cost.
const LAST_EPSILON: f64 = 1e-5;
/// Redundancy leaves with the data of a short block that has no time to be sent again so often; a longer one needs time for one round only.
pub(super) const ROUNDS_TO_SPARE: u32 = 2;
/// The greatest share lost in any of many windows is about so many times the mean, by chance alone.
const WINDOW_OVER_MEAN: f64 = 2.0;
/// After so many tries next to nothing is missing still.
const MOST_TRIES: i32 = 16;

impl BlocksOut {
    /// A fragment was sent again over the path of `view`. If it cannot be sent once more in time, and the path is likelier to lose it than
    /// a block may fail, more goes with it than what was lost: redundancy that is left, or a copy.
    pub(crate) fn insist(&mut self, view: &View<'_>, key: BlockKey, fragment: FragmentId) {
        let Some(path) = view.this() else {
            return;
        };
        if view.feared_of(path) <= EPSILON {
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
/// redundancy goes on another path, if one brings it in time). For short blocks no less than over ten seconds: see [`Loss::feared`]. Where it
/// takes the place of other blocks, no more than brings most of them. What losses in a row leave `may_repair` by being sent again; so may the losses of
/// longer blocks, and where redundancy would cost something they have only what the last of that may lose.
pub(super) fn redundancy_rule(
    paths: &Paths,
    path: PathId,
    carriers: &Carriers,
    (max_coding_rate, codes): (f64, usize),
    is_overloaded: bool,
    may_repair: bool,
    (now, cargo): (Instant, Cargo),
) -> impl Fn(u8) -> u8 {
    let in_time =
        |path: &Path| path.monitor.predict_arrival(now, 0, cargo.fragment) <= cargo.deadline;
    let others = others_that_take(paths, path, in_time);
    let burst_length = worst_burst_length(paths, carriers);
    // Found when a code asks for them, and the same for each: a short block needs one of them, and one without losses no last round.
    let (short, long, last_round) = (OnceCell::new(), OnceCell::new(), OnceCell::new());
    // One of its codes that falls short fails the block.
    let epsilon = EPSILON / codes.max(1) as f64;
    move |data_count| {
        let is_short = usize::from(data_count) <= SHORT_BLOCK;
        let figures = |share: fn(&Loss) -> f64| {
            let others_share = others.iter().map(|(_, other)| share(&other.monitor.loss()));
            (
                lost_by(paths, carriers, share),
                others_share.reduce(f64::max),
            )
        };
        // What shorter windows of a path now and then do not show costs little to make up for in short blocks alone.
        let (share, other) = match is_short {
            true => *short.get_or_init(|| figures(Loss::feared)),
            false => *long.get_or_init(|| figures(|loss| loss.window_max)),
        };
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "float casts saturate; both are small"
        )]
        let cap = (f64::from(data_count) * max_coding_rate).ceil() as u8;
        let Some(burst_length) = burst_length.filter(|_| share > 0.0) else {
            return 0;
        };
        let find_last_round = || {
            let is_repaired = may_repair && !is_overloaded && !is_free(paths, path, &others);
            is_repaired
                .then(|| LastRound::of(now, paths, carriers, cargo))
                .flatten()
        };
        if !is_short
            && let Some(LastRound { first, again }) = *last_round.get_or_init(find_last_round)
        {
            let epsilon = LAST_EPSILON / codes.max(1) as f64;
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
    /// Of data that leave over these. The last try goes where it is least likely to be lost (`Rules::takes_retransmission`), of the paths that are in
    /// time then; `None` if there is none.
    fn of(now: Instant, paths: &Paths, carriers: &Carriers, cargo: Cargo) -> Option<Self> {
        let tries = Tries::of(now, paths, carriers, cargo)?;
        let in_time = paths
            .carrying(cargo.fragment)
            .filter(|(_, path)| path.monitor.one_way_delay() <= tries.last);
        let risk = |id: PathId| loss_of(paths, id, Loss::feared);
        let (id, again) = in_time.min_by(|(a, path), (b, other)| {
            let is_spared = [path, other].map(|path| is_last_resort(path));
            let is_known = [path, other].map(|path| path.monitor.loss_is_known());
            let by_risk = risk(*a).total_cmp(&risk(*b));
            let by_cost = is_spared[0].cmp(&is_spared[1]);
            by_cost.then(by_risk).then(is_known[0].cmp(&is_known[1]))
        })?;
        // Of a path that has shown nothing only the means count: what is feared of both would be paid for at every loss until it has.
        let share: fn(&Loss) -> f64 = match again.monitor.loss_is_known() {
            true => |loss: &Loss| loss.rate.max(loss.window_max / WINDOW_OVER_MEAN),
            false => |loss: &Loss| loss.rate,
        };
        let lost = lost_by(paths, carriers, share);
        let lost_before = lost.max(loss_of(paths, tries.fastest, share));
        Some(Self {
            first: Lossy {
                share: lost * lost_before.powi(tries.before),
                burst_length: worst_burst_length(paths, carriers).unwrap_or(1.0),
            },
            again: Lossy {
                share: loss_of(paths, id, |loss| loss.rate),
                burst_length: again.monitor.loss().burst_length,
            },
        })
    }
}

/// How often what is lost of a block leaves again, and when for the last time.
#[derive(Clone, Copy, Debug)]
struct Tries {
    /// So often at least before the last time, where it arrives first.
    before: i32,
    fastest: PathId,
    /// The least time that is left to the last.
    last: Duration,
}

impl Tries {
    /// Of data that leave over these and are sent again as soon as their loss is known; `None` if there is no path.
    fn of(now: Instant, paths: &Paths, carriers: &Carriers, cargo: Cargo) -> Option<Self> {
        let left = cargo.deadline.saturating_duration_since(now);
        let carrying = || paths.carrying(cargo.fragment);
        let carriers = || carriers.iter().filter_map(|(id, _)| paths.get(id));
        let soonest = carriers()
            .map(|path| path.monitor.loss_known_after())
            .min()?;
        let latest = carriers().map(|path| path.monitor.overdue_after()).max()?;
        let once_more = carrying()
            .map(|(_, path)| path.monitor.overdue_after())
            .min()?;
        let (fastest, path) = carrying().min_by_key(|(_, path)| path.monitor.one_way_delay())?;
        let delay = path.monitor.one_way_delay();
        let sent = time_to_leave(paths, left, cargo.bytes);
        if soonest.saturating_add(once_more).saturating_add(delay) > left {
            // Each try is the last (`rules::is_last_try`).
            return Some(Self {
                before: 0,
                fastest,
                last: left.saturating_sub(sent.saturating_add(latest)),
            });
        }
        let round = latest.max(path.monitor.overdue_after());
        let rounds =
            left.saturating_sub(sent.saturating_add(delay)).as_nanos() / round.as_nanos().max(1);
        let rounds = i32::try_from(rounds).unwrap_or(i32::MAX).min(MOST_TRIES);
        // The last may leave at any time until it would be late over the fastest path.
        Some(Self {
            before: (rounds - 1).max(0),
            fastest,
            last: delay.saturating_add(LAST_CHANCE_MARGIN),
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
/// mostly by what arrives after it, and once is enough: what may be lost of that is made up for by what leaves with it, which takes time, too.
pub(super) fn has_time_for_rounds(
    rounds: u32,
    block: &SendBlock,
    now: Instant,
    paths: &Paths,
    carriers: &Carriers,
) -> bool {
    // Before a block is cut, nothing is known of its length.
    let is_short = block.is_split() && block.is_short();
    let is_long = block.is_split() && !is_short;
    let rounds = if is_long { rounds.min(1) } else { rounds };
    let is_sure = is_long && last_chance_is_sure(now, paths, block);
    let known_after = carriers.iter().filter_map(|(id, _)| {
        let path = paths.get(id)?;
        Some(match is_sure {
            true => most_known_after(path),
            false => path.monitor.overdue_after(),
        })
    });
    let Some(known_after) = known_after.max() else {
        return false;
    };
    let left = block.deadline.saturating_duration_since(now);
    let beside = if is_long {
        block.most_redundancy_bytes()
    } else {
        0
    };
    let sent = time_to_leave(paths, left, (block.data.len() + beside) as u64);
    // A single round has no other to spare if what is sent again is late.
    let arrives_after = if is_short {
        paths.least_delay()
    } else {
        surest_delay(paths)
    };
    let rounds = known_after.saturating_mul(rounds);
    let needed = sent.saturating_add(rounds).saturating_add(arrives_after);
    now.checked_add(needed)
        .is_some_and(|arrival| arrival <= block.deadline)
}

/// In how much time so many bytes leave over the paths that bring something within the time that is `left`.
fn time_to_leave(paths: &Paths, left: Duration, bytes: u64) -> Duration {
    let useful = paths
        .usable()
        .filter(|(_, path)| path.monitor.present_delay() <= left);
    let bandwidth: Bandwidth = useful.map(|(_, path)| path.monitor.bandwidth()).sum();
    bandwidth.time_to_send(bytes)
}

/// In how much time what leaves arrives, however much that varies, over the path where it is least.
fn surest_delay(paths: &Paths) -> Duration {
    let delays = paths.usable().map(|(_, path)| {
        let monitor = &path.monitor;
        monitor
            .one_way_delay()
            .saturating_add(monitor.arrival_margin())
    });
    delays.min().unwrap_or_default()
}

/// At its [last chance](super::chances) a fragment leaves alone, for redundancy with it would be late: there is a path that brings it all the same.
fn last_chance_is_sure(now: Instant, paths: &Paths, block: &SendBlock) -> bool {
    let bytes = fragment_bytes(block, paths.fragment_capacity());
    let due = now + paths.least_delay() + LAST_CHANCE_MARGIN;
    paths.carrying(bytes).any(|(id, path)| {
        path.monitor.predict_arrival(now, 0, bytes) <= due
            && path.monitor.arrival_margin() <= LAST_CHANCE_MARGIN
            && loss_of(paths, id, Loss::feared) <= EPSILON
    })
}

/// Time from sending until losses are noticed, but for those at the end of a block: these are sent again at its [last chance](super::chances), if
/// acknowledgements are late by their mean then, which is a little before it would be too late.
fn most_known_after(path: &Path) -> Duration {
    let monitor = &path.monitor;
    let missed_after = monitor
        .acknowledged_after()
        .saturating_add(LAST_CHANCE_MARGIN);
    let missed_after = missed_after.min(monitor.overdue_after());
    monitor.loss_known_after().max(missed_after)
}

#[cfg(test)]
mod tests;
