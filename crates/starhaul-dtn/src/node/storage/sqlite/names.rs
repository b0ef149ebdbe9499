//! The names of bundles that are gone, which version 0.6 of the SQLite store keeps for ever: its table would grow without a bound, and a
//! node without a clock, which uses its names again after each start, would never be heard again.
//!
//! The row of a bundle that is gone still says when it came and when it expires, which tells until when its name is to be kept. Lifetimes
//! may be years: so many names are kept at most.

use std::{
    path::Path,
    time::{Duration, Instant},
};

use hardy_bpa::storage::Result;
use hardy_bpv7::bundle::Id;
use parking_lot::Mutex;
use rusqlite::{Connection, OpenFlags};
use time::OffsetDateTime;

/// How often names are forgotten.
const FORGET_EVERY: Duration = Duration::from_secs(60);
/// Names that are forgotten at a time: other changes wait meanwhile.
const AT_A_TIME: usize = 1000;
/// Until when a name is kept. As in the log, a copy of a bundle without a clock may live longer, by what was left of its lifetime when it
/// came, an hour at most. Those with a clock are kept as long: a copy that has expired is not taken anyway.
const UNTIL: &str =
    "julianday(expiry) + MIN(1.0 / 24, MAX(0.0, julianday(expiry) - julianday(received_at)))";
/// The status of a bundle goes with it, and has an index.
const COUNT: &str = "SELECT COUNT(*) FROM bundles WHERE status_code IS NULL";

/// Names of bundles that were here.
pub(super) struct Names {
    /// More are not kept, but for the last few.
    most: usize,
    state: Mutex<State>,
}

struct State {
    database: Connection,
    /// Names that are kept of bundles that are gone.
    count: usize,
    forgot: Option<Instant>,
}

impl State {
    /// Forgets names as this statement says; how many.
    fn forget(&mut self, statement: &str, values: impl rusqlite::Params) -> Result<usize> {
        let forgotten = self.database.execute(statement, values)?;
        self.count = self.count.saturating_sub(forgotten);
        Ok(forgotten)
    }
}

impl Names {
    /// Those in a database in which the store has made its tables; `most` are kept.
    pub(super) fn open(file: &Path, most: usize) -> rusqlite::Result<Self> {
        let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
        let database = Connection::open_with_flags(file, flags)?;
        // What refers to a row goes with it.
        database.execute_batch("PRAGMA foreign_keys = ON")?;
        let count: i64 = database.query_row(COUNT, (), |row| row.get(0))?;
        let state = State {
            database,
            count: usize::try_from(count).unwrap_or(usize::MAX),
            forgot: None,
        };
        Ok(Self {
            most,
            state: Mutex::new(state),
        })
    }

    /// Whether a bundle is here.
    pub(super) fn is_here(&self, id: &Id) -> Result<bool> {
        let (key, state) = (serde_json::to_vec(id)?, self.state.lock());
        let here = "SELECT 1 FROM bundles WHERE bundle_id = ?1 AND bundle IS NOT NULL";
        let mut here = state.database.prepare_cached(here)?;
        Ok(here.exists((key,))?)
    }

    /// Whether a name that was kept is free from now on.
    pub(super) fn is_free(&self, id: &Id) -> Result<bool> {
        let forget = format!(
            "DELETE FROM bundles WHERE bundle_id = ?1 AND bundle IS NULL AND {UNTIL} < julianday(?2)"
        );
        let values = (serde_json::to_vec(id)?, OffsetDateTime::now_utc());
        Ok(self.state.lock().forget(&forget, values)? > 0)
    }

    /// Removes a bundle, whose name is free from now on.
    pub(super) fn free(&self, id: &Id) -> Result<()> {
        let (key, mut state) = (serde_json::to_vec(id)?, self.state.lock());
        let name = "DELETE FROM bundles WHERE bundle_id = ?1 AND bundle IS NULL";
        if state.forget(name, (&key,))? == 0 {
            let remove = "DELETE FROM bundles WHERE bundle_id = ?1";
            state.database.execute(remove, (&key,))?;
        }
        Ok(())
    }

    /// Notes that a bundle has gone and its name is kept.
    pub(super) fn keep_one(&self) {
        let mut state = self.state.lock();
        state.count = state.count.saturating_add(1);
    }

    /// Forgets names that are kept no longer, if that was not done for a while, and of too many those that expire first.
    pub(super) fn forget(&self) -> Result<()> {
        let (mut state, now) = (self.state.lock(), Instant::now());
        if state.count > self.most {
            // Otherwise each bundle that goes would have a name forgotten; and a bound that is lower than before is reached in the end.
            let surplus = AT_A_TIME.min(self.most / 8 + 2);
            let forget = format!(
                "DELETE FROM bundles WHERE id IN
                    (SELECT id FROM bundles WHERE bundle IS NULL ORDER BY expiry LIMIT {surplus})"
            );
            state.forget(&forget, ())?;
        }
        let forgot = state.forgot;
        if forgot.is_some_and(|at| now.saturating_duration_since(at) < FORGET_EVERY) {
            return Ok(());
        }
        let forget = format!(
            "DELETE FROM bundles WHERE id IN (SELECT id FROM bundles
                WHERE expiry < ?1 AND bundle IS NULL AND {UNTIL} < julianday(?1) LIMIT {AT_A_TIME})"
        );
        let forgotten = state.forget(&forget, (OffsetDateTime::now_utc(),))?;
        // More may be due: the next bundle that goes looks for them.
        state.forgot = (forgotten < AT_A_TIME).then_some(now);
        Ok(())
    }

    /// How many names are kept of bundles that are gone.
    #[cfg(test)]
    pub(super) fn kept(&self) -> Result<usize> {
        let state = self.state.lock();
        let kept: i64 = state.database.query_row(COUNT, (), |row| row.get(0))?;
        assert_eq!(
            usize::try_from(kept)?,
            state.count,
            "what is counted is not what is kept"
        );
        Ok(state.count)
    }
}
