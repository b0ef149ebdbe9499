//! What of a block is likely lost in a row with what is doubtful.

use std::time::Instant;

use starhaul_paths::PathId;

use super::{LastSent, SendBlock};

/// What a block knows of a path on which something is doubtful: when the last that arrived had left, and the first that is doubtful since.
struct Row {
    path: PathId,
    arrived: Option<Instant>,
    since: Option<Instant>,
}

impl SendBlock {
    /// For each of these paths on which something has become [doubtful](LastSent::doubtful_at) by `now`, when the first of it left since which
    /// nothing has arrived.
    pub(crate) fn doubtful_since(
        &self,
        now: Instant,
        of: impl Fn(PathId) -> bool,
    ) -> Vec<(PathId, Instant)> {
        let lasts = |acked: bool| {
            let states = self.codes.iter().flat_map(|code| code.fragments.iter());
            let states = states.filter(move |state| state.acked == acked);
            states.filter_map(|state| state.last)
        };
        let doubtful = |last: &LastSent| last.doubtful_at <= now;
        let mut rows: Vec<Row> = Vec::new();
        for last in lasts(false).filter(doubtful) {
            if rows.iter().all(|row| row.path != last.path) && of(last.path) {
                rows.push(Row {
                    path: last.path,
                    arrived: None,
                    since: None,
                });
            }
        }
        if rows.is_empty() {
            return Vec::new();
        }
        for last in lasts(true) {
            if let Some(row) = rows.iter_mut().find(|row| row.path == last.path) {
                row.arrived = row.arrived.max(Some(last.at));
            }
        }
        for last in lasts(false).filter(doubtful) {
            if let Some(row) = rows.iter_mut().find(|row| row.path == last.path)
                && row.arrived.is_none_or(|arrived| arrived <= last.at)
            {
                row.since = Some(row.since.map_or(last.at, |since| since.min(last.at)));
            }
        }
        let since = |row: Row| Some((row.path, row.since?));
        rows.into_iter().filter_map(since).collect()
    }
}
