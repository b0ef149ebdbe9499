//! Which kind of store a folder was used with: another one would pass over what is there in silence.

use std::{fs::File, io::Write as _, path::Path};

use super::sqlite;
use crate::{Error, bundle_log, config::Storage};

/// What a store leaves in its folder: a name, and what that is for people.
type Trace = (&'static str, &'static str);

const LOG: Trace = (
    bundle_log::FOLDER,
    "a log of bundles (log, of kind = \"disk\" without database)",
);
const SQLITE: Trace = (
    sqlite::FILE,
    "a database of SQLite (metadata.db, of kind = \"sqlite\")",
);
/// What is known of the bundles is elsewhere: the file says so.
const POSTGRESQL: Trace = (
    "postgresql",
    "data of bundles that a database of PostgreSQL knows (postgresql, of database)",
);

/// Refuses a folder that another kind of store has used, unless the configured one takes over what that has left: the log does so for
/// SQLite.
///
/// # Errors
/// [`Error::OtherStore`].
pub(super) fn check(folder: &Path, config: &Storage) -> Result<(), Error> {
    let (store, others): (&'static str, &[Trace]) = match (&config.database, config.sqlite) {
        (Some(_), _) => ("PostgreSQL", &[LOG, SQLITE]),
        (None, true) => ("SQLite", &[LOG, POSTGRESQL]),
        (None, false) => ("a log", &[POSTGRESQL]),
    };
    let found = others.iter().find(|(name, _)| folder.join(name).exists());
    match found {
        Some(&(_, holds)) => Err(Error::OtherStore {
            folder: folder.to_owned(),
            holds,
            store,
        }),
        None => Ok(()),
    }
}

/// Leaves the file that tells that a folder belongs to a database elsewhere, if it is not there.
///
/// # Errors
/// [`Error::Write`].
pub(super) fn mark_database(folder: &Path) -> Result<(), Error> {
    let file = folder.join(POSTGRESQL.0);
    if file.exists() {
        return Ok(());
    }
    let mark = || {
        let mut made = File::create(&file)?;
        made.write_all(
            b"What is known of the bundles of this folder is in a PostgreSQL database.\n",
        )?;
        made.sync_all()?;
        File::open(folder)?.sync_all()
    };
    mark().map_err(|reason| Error::Write {
        file: file.clone(),
        reason,
    })
}
