//! Opens the stores.

mod remote;

use std::{fs, path::Path, sync::Arc};

use hardy_bpa::storage::{
    BundleMemStorage, BundleMemStorageConfig, BundleStorage, MetadataStorage,
};

use crate::{
    Error,
    config::Storage,
    journal::Journal,
    schedule::Schedule,
    steady::{Folder, SteadyBundles},
    stock::{Stock, counted::Counted, memory::Metadata},
};

/// The folder of the bundles' data.
const DATA: &str = "data";

/// The stores of a node.
pub(super) struct Stores {
    pub(super) metadata: Arc<dyn MetadataStorage>,
    pub(super) bundles: Arc<dyn BundleStorage>,
    pub(super) journal: Journal,
    /// Kept as long as the folder is in use.
    pub(super) lock: Option<fs::File>,
}

pub(super) async fn open(config: &Storage, stock: &Arc<Stock>) -> Result<Stores, Error> {
    let (metadata, bundles, lock): (Arc<dyn MetadataStorage>, Arc<dyn BundleStorage>, _) =
        match &config.folder {
            None => (
                Arc::new(Metadata::new(config.bundles.saturating_mul(GONE))),
                Arc::new(bundles_in_memory(config)),
                None,
            ),
            Some(folder) => {
                let lock = lock(folder)?;
                let metadata = match &config.database {
                    Some(url) => remote::database(url).await?,
                    None => {
                        opened({
                            let settings = hardy_sqlite_storage::Config {
                                db_dir: folder.clone(),
                                db_name: "metadata.db".to_owned(),
                            };
                            move || hardy_sqlite_storage::new(&settings, true)
                        })
                        .await?
                    }
                };
                let settings = hardy_localdisk_storage::Config {
                    store_dir: folder.join(DATA),
                    fsync: config.sync,
                };
                let open = move || hardy_localdisk_storage::new(&settings, true);
                let bundles = opened(open).await?;
                (metadata, bundles, Some(lock))
            }
        };
    let folder = config.folder.as_deref();
    let data = folder.map(|folder| Folder {
        path: folder.join(DATA),
        is_synced: config.sync,
    });
    let journal = Journal::open(folder, Schedule::now()).map_err(|reason| Error::Write {
        file: folder.unwrap_or(Path::new("")).join("delivered"),
        reason,
    })?;
    Ok(Stores {
        metadata: Counted::new(metadata, stock.clone()),
        bundles: SteadyBundles::new(bundles, data),
        journal,
        lock,
    })
}

/// What the libraries open; they panic where a file cannot be.
async fn opened<T: Send + 'static>(open: impl FnOnce() -> T + Send + 'static) -> Result<T, Error> {
    let opened = tokio::task::spawn_blocking(open).await;
    opened.map_err(|_| {
        Error::Agent(
            "the store cannot be opened; the log says why. Another folder begins anew".to_owned(),
        )
    })
}

fn lock(folder: &Path) -> Result<fs::File, Error> {
    let write = |reason| Error::Write {
        file: folder.to_owned(),
        reason,
    };
    fs::create_dir_all(folder).map_err(write)?;
    let file = fs::File::create(folder.join("lock")).map_err(write)?;
    match file.try_lock() {
        Ok(()) => Ok(file),
        Err(fs::TryLockError::WouldBlock) => Err(Error::StorageInUse(folder.to_owned())),
        Err(fs::TryLockError::Error(error)) => Err(write(error)),
    }
}

/// Bundles in memory that are remembered after they are gone, for each that may be there.
const GONE: usize = 4;

fn bundles_in_memory(config: &Storage) -> BundleMemStorage {
    let mut settings = BundleMemStorageConfig::default();
    let bytes = usize::try_from(config.bytes).unwrap_or(usize::MAX);
    settings.capacity = bytes.try_into().unwrap_or(settings.capacity);
    // It drops what was not used for longest beyond its capacity, but never below so many. What is let in is limited before.
    settings.min_bundles = usize::MAX;
    BundleMemStorage::new(&settings)
}
