//! Takes over the folder of an earlier version, which kept what is known of bundles in SQLite. Their data stay in their files.

use std::{fs::File, io, path::Path};

use hardy_bpa::{
    bundle::{Bundle, BundleStatus},
    storage::Result,
};
use rusqlite::Connection;
use time::OffsetDateTime;
use tokio::runtime::Handle;

use super::{
    BundleLog,
    prepared::{key_of_json, milliseconds},
    queue::Waiting,
};

/// The file of the database.
const DATABASE: &str = "metadata.db";
/// What SQLite may have beside it.
const BESIDE: [&str; 2] = ["metadata.db-wal", "metadata.db-shm"];
/// Bundles on their way from the database to the log.
const AHEAD: usize = 4096;
/// All of a bundle; one without is gone, and not taken again until it expires.
const ALL: &str = "SELECT bundle_id, bundle, expiry, status_code, received_at FROM bundles";
/// The status of a bundle that was only received. The others are decided on again in any case, as after each restart.
const NEW: i64 = 0;

/// Takes over what a database in `folder` says, if one is there, and removes it. Cut short at any moment, it can be done again.
///
/// # Errors
/// The database cannot be read or removed, or the log not written.
pub(crate) fn take_over(folder: &Path, log: &BundleLog, runtime: &Handle) -> Result<()> {
    let file = folder.join(DATABASE);
    if !file.exists() {
        return Ok(());
    }
    tracing::info!(file = %file.display(), "the database of an earlier version is taken over");
    let database = Connection::open(&file)?;
    import(&database, log, runtime)?;
    database.close().map_err(|(_, error)| error)?;
    // The log may not be synced otherwise.
    rustix::fs::syncfs(File::open(folder)?)?;
    for name in BESIDE.iter().chain([&DATABASE]) {
        match std::fs::remove_file(folder.join(name)) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error.into()),
            _ => {}
        }
    }
    File::open(folder)?.sync_all()?;
    Ok(())
}

fn import(database: &Connection, log: &BundleLog, runtime: &Handle) -> Result<()> {
    let (now, mut waiting, mut count) = (OffsetDateTime::now_utc(), Vec::new(), 0_usize);
    let mut all = database.prepare(ALL)?;
    let mut rows = all.query([])?;
    while let Some(row) = rows.next()? {
        let (id, expiry): (Vec<u8>, OffsetDateTime) = (row.get(0)?, row.get(2)?);
        match row.get::<_, Option<Vec<u8>>>(1)? {
            Some(json) => match bundle(&json, row.get(3)?) {
                // One that an upgrade which was cut short has taken is not new.
                Ok(bundle) => waiting.extend(runtime.block_on(log.begin(&bundle))?),
                Err(error) => tracing::error!(%error, "what is known of a bundle cannot be read"),
            },
            None => {
                let until = kept_until(expiry, row.get(4)?);
                if until > now {
                    log.log.set_gone(key_of_json(&id), milliseconds(until));
                }
            }
        }
        count += 1;
        if count.is_multiple_of(AHEAD) {
            finish(log, &mut waiting)?;
        }
    }
    finish(log, &mut waiting)
}

/// Until when the name of a bundle is kept. A copy of one without a clock may live longer, by what was left of its lifetime when it came; one
/// with a clock has expired by then.
fn kept_until(expiry: OffsetDateTime, received: OffsetDateTime) -> OffsetDateTime {
    let left = (expiry - received).clamp(time::Duration::ZERO, time::Duration::HOUR);
    expiry.saturating_add(left)
}

fn bundle(json: &[u8], status: Option<i64>) -> serde_json::Result<Bundle> {
    let mut bundle: Bundle = serde_json::from_slice(json)?;
    bundle.metadata.status = match status {
        Some(NEW) => BundleStatus::New,
        _ => BundleStatus::Dispatching,
    };
    Ok(bundle)
}

fn finish(log: &BundleLog, waiting: &mut Vec<Waiting>) -> Result<()> {
    waiting.push(log.log.flush());
    for waiting in waiting.drain(..) {
        waiting.blocking_recv()??;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::{sync::Arc, time::Duration};

    use hardy_bpa::{bundle::BundleMetadata, storage::MetadataStorage as _};
    use hardy_bpv7::{builder::Builder, creation_timestamp::CreationTimestamp};

    use super::*;
    use crate::config::Storage;

    /// A bundle that came so many minutes ago from a node without a clock, and lived for two.
    fn came(minutes: i64) -> Bundle {
        let builder = Builder::new("ipn:1.5".parse().unwrap(), "ipn:2.5".parse().unwrap());
        let builder = builder
            .with_lifetime(Duration::from_secs(120))
            .with_payload(b"x".as_slice().into());
        let number = u64::try_from(minutes).unwrap();
        let stamp = CreationTimestamp::from_parts(None, number);
        let mut metadata = BundleMetadata::default();
        metadata.read_only.received_at -= time::Duration::minutes(minutes);
        Bundle {
            bundle: builder.build(stamp).unwrap().0,
            metadata,
        }
    }

    #[tokio::test]
    async fn the_name_of_a_bundle_without_a_clock_is_kept_as_long_as_its_copies_may_live() {
        let folder = tempfile::tempdir().unwrap();
        let settings = hardy_sqlite_storage::Config {
            db_dir: folder.path().to_owned(),
            db_name: DATABASE.to_owned(),
        };
        let database = hardy_sqlite_storage::new(&settings, true);
        // One has expired a minute ago, and one three.
        let bundles = [came(3), came(5)];
        for bundle in &bundles {
            assert!(database.insert(bundle).await.unwrap());
            database.tombstone(&bundle.bundle.id).await.unwrap();
        }
        drop(database);
        let log = Arc::new(BundleLog::open(folder.path(), &Storage::small(), ()).unwrap());
        let (at, taking, runtime) = (folder.path().to_owned(), log.clone(), Handle::current());
        let taken = tokio::task::spawn_blocking(move || take_over(&at, &taking, &runtime));
        taken.await.unwrap().unwrap();
        for (bundle, is_free) in bundles.iter().zip([false, true]) {
            assert_eq!(log.insert(bundle).await.unwrap(), is_free);
        }
    }
}
