//! The search for bundles that wait. That of version 0.6 of the SQLite store fills a table with all of them, which it empties piece by piece:
//! one that was cut short leaves its rest to the next, two at a time take each other's, and a piece of bundles that have all gone
//! meanwhile ends it, whatever comes after. Here pages are read, and nothing is written.

use std::path::Path;

use hardy_bpa::{
    bundle::{Bundle, BundleStatus},
    storage::Result,
};
use parking_lot::Mutex;
use rusqlite::{Connection, OpenFlags};

/// Bundles of one page, in the order in which they came. 1 is the store's number for those that wait.
const PAGE: &str = "SELECT id, bundle FROM bundles
    WHERE status_code = 1 AND bundle IS NOT NULL AND id > ?1 ORDER BY id LIMIT 64";

/// Bundles that wait for a route.
pub(super) struct Waiting(Mutex<Connection>);

impl Waiting {
    /// Those in a database in which the store has made its tables.
    pub(super) fn open(file: &Path) -> rusqlite::Result<Self> {
        let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
        Ok(Self(Mutex::new(Connection::open_with_flags(file, flags)?)))
    }

    /// The bundles in the rows after this one, the first of which is 1, and the last of these rows; `None` if there are no more.
    pub(super) fn page(&self, after: i64) -> Result<Option<(i64, Vec<Bundle>)>> {
        let database = self.0.lock();
        let mut page = database.prepare_cached(PAGE)?;
        let rows = page.query_map((after,), |row| {
            Ok((row.get::<_, i64>(0)?, row.get::<_, Vec<u8>>(1)?))
        })?;
        let (mut last, mut waiting) = (None, Vec::new());
        for row in rows {
            let (id, json) = row?;
            last = Some(id);
            match serde_json::from_slice::<Bundle>(&json) {
                Ok(mut bundle) => {
                    bundle.metadata.status = BundleStatus::Waiting;
                    waiting.push(bundle);
                }
                Err(error) => tracing::warn!(%error, "what is known of a bundle cannot be read"),
            }
        }
        Ok(last.map(|last| (last, waiting)))
    }
}
