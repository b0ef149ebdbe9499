//! How much redundancy blocks get, and when it leaves although other data wait.

use std::time::Instant;

use starhaul_paths::{Loss, PathId};

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
/// Redundancy leaves with the data of a block that has no time to be sent again so often.
pub(super) const ROUNDS_TO_SPARE: u32 = 2;

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
/// takes the place of other blocks, no more than brings most of them. What losses in a row leave `may_repair` by being sent again.
pub(super) fn redundancy_rule(
    paths: &Paths,
    path: PathId,
    carriers: &Carriers,
    (max_coding_rate, codes): (f64, usize),
    is_overloaded: bool,
    may_repair: bool,
    in_time: impl Fn(&Path) -> bool,
) -> impl Fn(u8) -> u8 {
    let others = || paths.usable().filter(|(id, _)| *id != path);
    // Any of them may take it; those of the last resort do not while this one will do.
    let is_last_resort = |path: &Path| path.monitor.cost() >= LAST_RESORT;
    let is_left_to = paths.get(path).is_some_and(is_last_resort);
    let takes =
        || others().filter(|(_, other)| in_time(other) && (is_left_to || !is_last_resort(other)));
    let figures = |share: fn(&Loss) -> f64| {
        let others_share = takes().map(|(_, other)| share(&other.monitor.loss()));
        let own = carriers
            .iter()
            .map(|(id, part)| part * loss_of(paths, id, share));
        (own.sum(), others_share.reduce(f64::max))
    };
    // What shorter windows of a path now and then do not show costs little to make up for in short blocks alone.
    let (short, long) = (figures(Loss::feared), figures(|loss| loss.window_max));
    // That of the path which loses the most.
    let loses = |(id, part): (PathId, f64)| {
        let loss = paths.get(id)?.monitor.loss();
        Some((part * loss.window_max, loss.burst_length))
    };
    let worst = carriers.iter().filter_map(loses);
    let worst = worst.max_by(|a, b| a.0.total_cmp(&b.0));
    let burst_length = worst.map(|(_, burst_length)| burst_length);
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

/// A lost fragment could be sent again so often before the deadline, whichever of these paths lost it.
pub(super) fn has_time_for_rounds(
    rounds: u32,
    block: &SendBlock,
    now: Instant,
    paths: &Paths,
    carriers: &Carriers,
) -> bool {
    let known_after = carriers
        .iter()
        .filter_map(|(id, _)| Some(paths.get(id)?.monitor.overdue_after()))
        .max();
    let Some(known_after) = known_after else {
        return false;
    };
    let sent = paths.bandwidth().time_to_send(block.data.len() as u64);
    let rounds = known_after.saturating_mul(rounds);
    let needed = sent
        .saturating_add(rounds)
        .saturating_add(paths.least_delay());
    now.checked_add(needed)
        .is_some_and(|arrival| arrival <= block.deadline)
}
