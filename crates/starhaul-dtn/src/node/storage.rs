//! Opens the stores.

mod kind;
mod remote;
mod sqlite;

use std::{fs, io, path::Path, sync::Arc};

use hardy_bpa::storage::{
    BundleMemStorage, BundleMemStorageConfig, BundleStorage, MetadataStorage,
};

use tokio::runtime::Handle;

use crate::{
    Error,
    bundle_files::BundleFiles,
    bundle_log::{BundleLog, LoggedBundles, upgrade},
    config::Storage,
    halves::PassingBy,
    journal::Journal,
    medium::Folder,
    names::Forgetful,
    schedule::Schedule,
    steady::{Place, SteadyBundles},
    stock::{Stock, counted::Counted, memory::Metadata},
};

/// The folder of the bundles' data.
const DATA: &str = "data";

/// The stores of a node.
pub(super) struct Stores {
    pub(super) metadata: Arc<dyn MetadataStorage>,
    pub(super) bundles: Arc<dyn BundleStorage>,
    pub(super) journal: Journal,
    /// To be closed at the end.
    pub(super) writer: Option<Writer>,
    /// Kept as long as the folder is in use.
    pub(super) lock: Option<Arc<Lock>>,
}

/// A store that writes to the folder until it is closed, whatever tasks of the agent are left.
pub(super) enum Writer {
    Log(Arc<BundleLog>),
    Sqlite(Arc<sqlite::Sqlite>),
}

impl Writer {
    /// Ends when nothing more is written.
    pub(super) async fn close(self) {
        match self {
            Self::Log(log) => {
                // If it panicked, it has said so.
                let _ = tokio::task::spawn_blocking(move || log.close()).await;
            }
            Self::Sqlite(store) => store.close().await,
        }
    }
}

/// Keeps other nodes out of a folder, also those of versions that look at one of the two only.
#[derive(Debug)]
pub(super) struct Lock {
    file: fs::File,
    /// Who takes the file for a leftover and removes it does not remove this.
    folder: Option<fs::File>,
}

impl Drop for Lock {
    fn drop(&mut self) {
        // Closing alone is late: a child process that is just being started has copies of the files until its program runs.
        for file in self.folder.iter().chain([&self.file]) {
            _ = file.unlock();
        }
    }
}

pub(super) async fn open(config: &Storage, stock: &Arc<Stock>) -> Result<Stores, Error> {
    let folder = config.folder.as_deref();
    let lock = folder.map(lock).transpose()?.map(Arc::new);
    folder.map_or(Ok(()), |folder| kind::check(folder, config))?;
    let journal =
        Journal::open(folder, config.sync, Schedule::now()).map_err(|reason| Error::Write {
            file: folder.unwrap_or(Path::new("")).join("delivered"),
            reason,
        })?;
    // As many as the stores remember.
    let most_gone = config.bundles.saturating_mul(GONE);
    let journal = journal.of_at_most(most_gone);
    let (mut writer, mut unread) = (None, None);
    let (metadata, bundles): (Arc<dyn Forgetful>, Arc<dyn BundleStorage>) =
        match (folder, &config.database) {
            (None, _) => (
                Arc::new(Metadata::new(most_gone)),
                SteadyBundles::new(Arc::new(bundles_in_memory(config)), Place::Memory),
            ),
            (Some(folder), Some(url)) => {
                let data = match &config.bucket {
                    Some(bucket) => {
                        SteadyBundles::new(remote::objects(bucket).await?, Place::Remote)
                    }
                    None => files(folder, config.sync).await?,
                };
                unread = Some(data.unread().clone());
                let opened = remote::database(url, most_gone).await?;
                kind::mark_database(folder)?;
                (opened, data)
            }
            (Some(folder), None) if config.sqlite => {
                let files = files(folder, config.sync).await?;
                unread = Some(files.unread().clone());
                let opened = sqlite::database(folder, most_gone, lock.clone()).await?;
                writer = Some(Writer::Sqlite(opened.clone()));
                (opened, files)
            }
            (Some(folder), None) => {
                let files = files(folder, config.sync).await?;
                unread = Some(files.unread().clone());
                let opened = open_log(folder, config, lock.clone()).await?;
                let bundles = LoggedBundles::new(opened.clone(), files, folder.to_owned());
                writer = Some(Writer::Log(opened.clone()));
                (opened, bundles)
            }
        };
    Ok(Stores {
        metadata: Counted::over(metadata, stock.clone(), unread, bundles.clone()),
        bundles: Arc::new(PassingBy::new(bundles, stock.clone())),
        journal,
        writer,
        lock,
    })
}

/// The files of bundles.
async fn files(folder: &Path, is_synced: bool) -> Result<Arc<SteadyBundles>, Error> {
    let path = folder.join(DATA);
    let made = path.clone();
    let medium = tokio::task::spawn_blocking(move || Folder::new(made)).await;
    let medium = medium.unwrap_or_else(|ended| Err(ended.into()));
    let medium = medium.map_err(|reason| Error::Write {
        file: path.clone(),
        reason,
    })?;
    let files = BundleFiles::new(Box::new(medium), is_synced);
    Ok(SteadyBundles::new(files, Place::Folder(path)))
}

/// The log writes as long as it holds the lock of the folder.
async fn open_log(
    folder: &Path,
    config: &Storage,
    lock: Option<Arc<Lock>>,
) -> Result<Arc<BundleLog>, Error> {
    let (at, config) = (folder.to_owned(), config.clone());
    let runtime = Handle::current();
    let open = move || {
        let log = Arc::new(BundleLog::open(&at, &config, lock)?);
        upgrade::take_over(&at, &log, &runtime).map(|()| log)
    };
    opened(open).await?.map_err(|error| {
        let folder = folder.display();
        Error::Agent(format!(
            "the log of bundles in {folder} cannot be opened: {error}"
        ))
    })
}

/// Opens a store in a thread that may wait for the medium.
async fn opened<T: Send + 'static>(open: impl FnOnce() -> T + Send + 'static) -> Result<T, Error> {
    let opened = tokio::task::spawn_blocking(open).await;
    opened.map_err(|_| {
        Error::Agent(
            "the store cannot be opened; the log says why. Another folder begins anew".to_owned(),
        )
    })
}

/// Makes a folder, if it is not there, and brings its name to the medium.
fn make(folder: &Path) -> io::Result<()> {
    let there = folder.ancestors().find(|above| above.exists());
    fs::create_dir_all(folder)?;
    for above in folder.ancestors().skip(1) {
        let path = match above.as_os_str().is_empty() {
            true => Path::new("."),
            false => above,
        };
        let synced = fs::File::open(path).and_then(|above| above.sync_all());
        if there == Some(folder) {
            // A former life may have ended before this; but who made it may not let us open what is above.
            return Ok(());
        }
        synced?;
        if there == Some(above) {
            break;
        }
    }
    Ok(())
}

fn lock(folder: &Path) -> Result<Lock, Error> {
    let write = |reason| Error::Write {
        file: folder.to_owned(),
        reason,
    };
    make(folder).map_err(write)?;
    let in_use = || Error::StorageInUse(folder.to_owned());
    let file = fs::File::create(folder.join("lock")).map_err(write)?;
    match file.try_lock() {
        Ok(()) => {}
        Err(fs::TryLockError::WouldBlock) => return Err(in_use()),
        Err(fs::TryLockError::Error(error)) => return Err(write(error)),
    }
    let locked = fs::File::open(folder).map_err(write)?;
    let locked = match locked.try_lock() {
        Ok(()) => Some(locked),
        Err(fs::TryLockError::WouldBlock) => return Err(in_use()),
        // A file system that locks no folders.
        Err(fs::TryLockError::Error(_)) => None,
    };
    Ok(Lock {
        file,
        folder: locked,
    })
}

/// Bundles that are remembered after they are gone, for each that may be there.
const GONE: usize = 4;

fn bundles_in_memory(config: &Storage) -> BundleMemStorage {
    let mut settings = BundleMemStorageConfig::default();
    let bytes = usize::try_from(config.bytes).unwrap_or(usize::MAX);
    settings.capacity = bytes.try_into().unwrap_or(settings.capacity);
    // It drops what was not used for longest beyond its capacity, but never below so many. What is let in is limited before.
    settings.min_bundles = usize::MAX;
    BundleMemStorage::new(&settings)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_folder_has_one_node_also_when_its_lock_is_removed() {
        let folder = tempfile::tempdir().unwrap();
        let first = lock(folder.path()).unwrap();
        let is_refused = || matches!(lock(folder.path()), Err(Error::StorageInUse(_)));
        assert!(is_refused());
        fs::remove_file(folder.path().join("lock")).unwrap();
        assert!(is_refused());
        // As a child process has them that is just being started.
        let copies = (
            first.file.try_clone().unwrap(),
            first.folder.as_ref().map(fs::File::try_clone),
        );
        drop(first);
        lock(folder.path()).unwrap();
        drop(copies);
    }
}
