//! How much redundancy blocks get, and when it leaves although other data wait.

use std::time::Instant;

use starhaul_paths::{Loss, PathId};

use super::{
    BlocksOut,
    block::{SHORT_BLOCK, SendBlock},
    fragment_bytes,
};
use crate::{
    item::{BlockKey, FragmentId},
    paths::{Path, Paths},
    rules,
    scheduler::{LAST_RESORT, View},
};

/// Probability with which redundancy may fall short.
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
        if path.loss().feared() <= EPSILON {
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

/// How much redundancy a code gets whose data leave over `path` (DMTP: by the greatest loss seen in a moving window; the
/// redundancy goes on another path, `in_time` if there is one). For short blocks no less than over ten seconds: see [`Loss::feared`]. Where it
/// takes the place of other blocks, no more than brings most of them. What losses in a row leave `may_repair` by being sent again.
pub(super) fn redundancy_rule(
    paths: &Paths,
    path: PathId,
    max_coding_rate: f64,
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
    // A path that has carried next to nothing is no safer than the others.
    let unknown = paths
        .get(path)
        .is_some_and(|path| !path.monitor.loss_is_known());
    let figures = |share: fn(&Loss) -> f64| {
        let share_of = move |path: &Path| share(&path.monitor.loss());
        let others_share = takes().map(|(_, other)| share_of(other));
        let own = paths.get(path).map_or(0.0, share_of);
        let own = others()
            .filter(|_| unknown)
            .fold(own, |most, (_, other)| most.max(share_of(other)));
        (own, others_share.reduce(f64::max))
    };
    // What shorter windows of a path now and then do not show costs little to make up for in short blocks alone.
    let (short, long) = (figures(Loss::feared), figures(|loss| loss.window_max));
    let burst_length = paths.get(path).map(|path| path.monitor.loss().burst_length);
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
                EPSILON,
                cap,
            ),
            None => starhaul_fec::redundancy_for_burst_loss(
                data_count,
                share,
                burst_length,
                EPSILON,
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

/// A lost fragment could be sent again so often before the deadline.
pub(super) fn has_time_for_rounds(
    rounds: u32,
    block: &SendBlock,
    now: Instant,
    paths: &Paths,
    path: PathId,
) -> bool {
    let Some(path) = paths.get(path) else {
        return false;
    };
    let sent = paths.bandwidth().time_to_send(block.data.len() as u64);
    let rounds = path.monitor.overdue_after().saturating_mul(rounds);
    let needed = sent
        .saturating_add(rounds)
        .saturating_add(paths.least_delay());
    now.checked_add(needed)
        .is_some_and(|arrival| arrival <= block.deadline)
}
