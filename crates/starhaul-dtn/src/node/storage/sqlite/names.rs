//! The names of bundles that are gone, which version 0.6 of the SQLite store keeps for ever: its table would grow without a bound, and a
//! node without a clock, which uses its names again after each start, would never be heard again.
//!
//! The row of a bundle that is gone still says when it came and when it expires, which tells until when its name is to be kept.

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

/// Names of bundles that were here.
pub(super) struct Names {
    database: Mutex<Connection>,
    forgot: Mutex<Option<Instant>>,
}

impl Names {
    /// Those in a database in which the store has made its tables.
    pub(super) fn open(file: &Path) -> rusqlite::Result<Self> {
        let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
        let database = Connection::open_with_flags(file, flags)?;
        // What refers to a row goes with it.
        database.execute_batch("PRAGMA foreign_keys = ON")?;
        Ok(Self {
            database: Mutex::new(database),
            forgot: Mutex::default(),
        })
    }

    /// Whether a bundle is here.
    pub(super) fn is_here(&self, id: &Id) -> Result<bool> {
        let (key, database) = (serde_json::to_vec(id)?, self.database.lock());
        let here = "SELECT 1 FROM bundles WHERE bundle_id = ?1 AND bundle IS NOT NULL";
        let mut here = database.prepare_cached(here)?;
        Ok(here.exists((key,))?)
    }

    /// Whether a name that was kept is free from now on.
    pub(super) fn is_free(&self, id: &Id) -> Result<bool> {
        let forget = format!(
            "DELETE FROM bundles WHERE bundle_id = ?1 AND bundle IS NULL AND {UNTIL} < julianday(?2)"
        );
        let values = (serde_json::to_vec(id)?, OffsetDateTime::now_utc());
        Ok(self.database.lock().execute(&forget, values)? > 0)
    }

    /// Removes a bundle, whose name is free from now on.
    pub(super) fn free(&self, id: &Id) -> Result<()> {
        let remove = "DELETE FROM bundles WHERE bundle_id = ?1";
        let key = serde_json::to_vec(id)?;
        self.database.lock().execute(remove, (key,))?;
        Ok(())
    }

    /// Forgets names that are kept no longer, if that was not done for a while.
    pub(super) fn forget(&self) -> Result<()> {
        let (mut forgot, now) = (self.forgot.lock(), Instant::now());
        if forgot.is_some_and(|at| now.saturating_duration_since(at) < FORGET_EVERY) {
            return Ok(());
        }
        let forget = format!(
            "DELETE FROM bundles WHERE id IN (SELECT id FROM bundles
                WHERE expiry < ?1 AND bundle IS NULL AND {UNTIL} < julianday(?1) LIMIT {AT_A_TIME})"
        );
        let database = self.database.lock();
        let forgotten = database.execute(&forget, (OffsetDateTime::now_utc(),))?;
        // More may be due: the next bundle that goes looks for them.
        *forgot = (forgotten < AT_A_TIME).then_some(now);
        Ok(())
    }

    /// Forgets what a search for bundles that wait has left.
    pub(super) fn end_search(&self) -> Result<()> {
        let database = self.database.lock();
        database.execute("DELETE FROM waiting_queue", ())?;
        Ok(())
    }

    /// How many names are kept of bundles that are gone.
    #[cfg(test)]
    pub(super) fn kept(&self) -> Result<i64> {
        let count = "SELECT COUNT(*) FROM bundles WHERE bundle IS NULL";
        let database = self.database.lock();
        Ok(database.query_row(count, (), |row| row.get(0))?)
    }
}
