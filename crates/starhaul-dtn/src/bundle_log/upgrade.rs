//! Takes over the folder of an earlier version, which kept what is known of bundles in SQLite. Their data stay in their files.

use std::{
    io,
    path::Path,
    sync::{Arc, Mutex, PoisonError},
};

use hardy_bpa::{
    async_trait,
    bundle::{Bundle, BundleStatus},
    storage::{MetadataStorage, Result},
    stream::{SendError, Sender},
};
use time::OffsetDateTime;

use super::{
    BundleLog,
    queue::{Waiting, key_of_json},
};

/// The file of the database.
pub(crate) const DATABASE: &str = "metadata.db";
/// It, and what SQLite has beside it; the first one goes last.
const FILES: [&str; 3] = [DATABASE, "metadata.db-wal", "metadata.db-shm"];
/// Bundles on their way from the database to the log.
const AHEAD: usize = 4096;
/// Greatest number of bundles that are asked for: all.
const ALL: usize = u32::MAX as usize;

/// Whether there is such a database.
pub(crate) fn is_needed(folder: &Path) -> bool {
    folder.join(DATABASE).exists()
}

/// Puts bundles of a database into the log.
struct Import {
    log: Arc<BundleLog>,
    state: tokio::sync::Mutex<Vec<Waiting>>,
    fault: Mutex<Option<String>>,
}

#[async_trait]
impl Sender<Bundle> for Import {
    async fn send(&self, bundle: Bundle) -> std::result::Result<(), SendError<Bundle>> {
        match self.take(&bundle).await {
            Ok(()) => Ok(()),
            Err(error) => {
                let mut fault = self.fault.lock().unwrap_or_else(PoisonError::into_inner);
                *fault = Some(error.to_string());
                Err(SendError(bundle))
            }
        }
    }
}

impl Import {
    async fn take(&self, bundle: &Bundle) -> Result<()> {
        let mut waiting = self.state.lock().await;
        // One that an upgrade which was cut short has taken is not new.
        waiting.extend(self.log.begin(bundle).await?);
        if waiting.len() >= AHEAD {
            finish(&mut waiting).await?;
        }
        Ok(())
    }

    async fn end(self) -> Result<()> {
        let fault = self
            .fault
            .into_inner()
            .unwrap_or_else(PoisonError::into_inner);
        match fault {
            Some(fault) => Err(fault.into()),
            None => finish(&mut self.state.into_inner()).await,
        }
    }
}

async fn finish(waiting: &mut Vec<Waiting>) -> Result<()> {
    for waiting in waiting.drain(..) {
        waiting.await??;
    }
    Ok(())
}

/// Takes over what the database in `folder` says, and removes it. Cut short at any moment, it can be done again.
pub(crate) async fn take_over(
    folder: &Path,
    database: Arc<dyn MetadataStorage>,
    log: &Arc<BundleLog>,
) -> Result<()> {
    tracing::info!(folder = %folder.display(), "the database of an earlier version is taken over");
    let import = Import {
        log: log.clone(),
        state: tokio::sync::Mutex::default(),
        fault: Mutex::default(),
    };
    database.poll_expiry(&import, ALL).await?;
    database
        .poll_pending(&import, &BundleStatus::New, ALL)
        .await?;
    import.end().await?;
    drop(database);
    let (folder, log) = (folder.to_owned(), log.clone());
    tokio::task::spawn_blocking(move || end(&folder, &log)).await?
}

fn end(folder: &Path, log: &BundleLog) -> Result<()> {
    note_gone(folder, log)?;
    log.log.flush().blocking_recv()??;
    // The log may not be synced otherwise.
    rustix::fs::syncfs(std::fs::File::open(folder)?)?;
    for name in FILES.iter().rev() {
        match std::fs::remove_file(folder.join(name)) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error.into()),
            _ => {}
        }
    }
    std::fs::File::open(folder)?.sync_all()?;
    Ok(())
}

/// The database has them still, without what was known of them.
fn note_gone(folder: &Path, log: &BundleLog) -> Result<()> {
    let database = rusqlite::Connection::open(folder.join(DATABASE))?;
    let gone = "SELECT bundle_id, expiry FROM bundles WHERE bundle IS NULL";
    let mut gone = database.prepare(gone)?;
    let gone = gone.query_map([], |row| {
        Ok((row.get::<_, Vec<u8>>(0)?, row.get::<_, OffsetDateTime>(1)?))
    })?;
    let now = OffsetDateTime::now_utc();
    let gone = gone.filter(|row| row.as_ref().is_ok_and(|(_, expiry)| *expiry > now));
    for row in gone.take(log.log.settings.most_gone) {
        let (id, expiry) = row?;
        let expiry = expiry.unix_timestamp_nanos() / 1_000_000;
        let expiry = i64::try_from(expiry).unwrap_or(i64::MAX);
        log.log.set_gone(key_of_json(&id), expiry);
    }
    Ok(())
}
