//! The stores as the agent needs them. It panics when a store fails, and takes a new bundle that was not stored for one that it
//! has. Here such a bundle is refused with the reason, so that its sender keeps it; whatever else fails is tried again until it
//! succeeds. The agent's task waits for that, which pushes back in the end.

use std::{
    cell::RefCell,
    fs::File,
    future::Future,
    path::{Path, PathBuf},
    sync::{Arc, LazyLock},
    time::{Duration, Instant},
};

use hardy_bpa::{
    Bytes, async_trait,
    storage::{BundleStorage, RecoveryResponse, Result},
    stream::Sender,
};
use starhaul_log::Seldom;

/// How long a store that failed is left alone.
const TRY_AGAIN: Duration = Duration::from_secs(1);
/// How long the data of a bundle may fail to be read.
const LOAD_PATIENCE: Duration = Duration::from_secs(60);
/// Bytes of the disk that new bundles leave free: what is known of bundles is written before one is sent and removed, so that a
/// disk without any room would never have room again.
const RESERVE: u64 = 16 << 20;
/// A full disk refuses bundle after bundle.
static REFUSED_LOG: LazyLock<Seldom> = LazyLock::new(Seldom::default);
/// The name of the data of a bundle that could not be stored.
pub(crate) const REFUSED: &str = "refused";

tokio::task_local! {
    /// Why the bundle that this task gives to the agent was not stored.
    static FAULT: RefCell<Option<String>>;
}

/// Gives a bundle to the agent.
///
/// # Errors
/// Why it was not stored, whatever the agent believes.
pub(crate) async fn accept<T>(taking: impl Future<Output = T>) -> std::result::Result<T, String> {
    let accepting = async {
        let taken = taking.await;
        FAULT.with(RefCell::take).map_or(Ok(taken), Err)
    };
    FAULT.scope(RefCell::default(), accepting).await
}

/// Notes that the bundle being accepted is not stored; `false` if none is, as in a recovery.
pub(crate) fn refuse(error: &impl std::fmt::Display) -> bool {
    let fault = error.to_string();
    let refused = FAULT.try_with(|held| held.replace(Some(fault)));
    if refused.is_ok()
        && let Some(others) = REFUSED_LOG.is_due(Instant::now())
    {
        tracing::error!(%error, others, "a bundle is refused: it cannot be stored");
    }
    refused.is_ok()
}

/// Whether the data of the bundle being accepted were not stored.
pub(crate) fn is_refused() -> bool {
    FAULT
        .try_with(|held| held.borrow().is_some())
        .unwrap_or(false)
}

/// Tries again until the store does what it is asked.
pub(crate) async fn until_done<T, F: Future<Output = Result<T>>>(
    what: &str,
    mut attempt: impl FnMut() -> F,
) -> T {
    let mut attempts = 0_u64;
    loop {
        match attempt().await {
            Ok(done) => return done,
            Err(error) if attempts == 0 => {
                tracing::error!(what, %error, "the store fails; it is tried again until it works");
            }
            Err(error) => tracing::debug!(what, %error, attempts, "the store still fails"),
        }
        attempts += 1;
        tokio::time::sleep(TRY_AGAIN).await;
    }
}

/// Whether new data of so many bytes leave enough of the disk on which a folder is, or will be.
pub(crate) fn check_room(folder: &Path, bytes: usize) -> Result<()> {
    // The library makes the folder with the first bundle.
    let there = folder.ancestors().find(|path| path.exists());
    let disk = rustix::fs::statvfs(there.unwrap_or(folder))?;
    let free = disk.f_bavail.saturating_mul(disk.f_frsize);
    match free >= RESERVE + bytes as u64 {
        true => Ok(()),
        false => Err(format!(
            "{} has {} MiB free, and {} MiB are kept to forward and deliver what is stored",
            folder.display(),
            free >> 20,
            RESERVE >> 20
        )
        .into()),
    }
}

/// The data of bundles.
pub(crate) struct SteadyBundles {
    store: Arc<dyn BundleStorage>,
    folder: Option<Folder>,
}

/// Where the data of bundles are.
pub(crate) struct Folder {
    /// The folder.
    pub(crate) path: PathBuf,
    /// Whether a bundle is on the medium before it is accepted.
    pub(crate) is_synced: bool,
}

impl SteadyBundles {
    /// What `store` keeps, in a folder if not in memory.
    pub(crate) fn new(store: Arc<dyn BundleStorage>, folder: Option<Folder>) -> Arc<Self> {
        Arc::new(Self { store, folder })
    }

    async fn try_save(&self, data: Bytes) -> Result<Arc<str>> {
        let name = self.store.save(data).await?;
        let Some(folder) = self.folder.as_ref().filter(|folder| folder.is_synced) else {
            return Ok(name);
        };
        let file = folder.path.join(&*name);
        // The library may have made the folder itself, too.
        let top = folder.path.parent().unwrap_or(&folder.path).to_owned();
        // The library brings the file and its folder to the medium, but not the new folders above.
        let sync = move || -> std::io::Result<()> {
            let above = file.ancestors().skip(2);
            for folder in above.take_while(|folder| folder.starts_with(&top)) {
                File::open(folder)?.sync_all()?;
            }
            Ok(())
        };
        let synced = tokio::task::spawn_blocking(sync).await?;
        if synced.is_err() {
            // Otherwise the next life would take it in, although it is refused.
            self.store.delete(&name).await?;
        }
        synced.map(|()| name).map_err(Into::into)
    }
}

#[async_trait]
impl BundleStorage for SteadyBundles {
    async fn recover(&self, stream: &dyn Sender<RecoveryResponse>) -> Result<()> {
        self.store.recover(stream).await
    }

    async fn load(&self, name: &str) -> Result<Option<Bytes>> {
        let loading = until_done("load a bundle", || self.store.load(name));
        // One bad sector must not keep the node from starting.
        let loaded = tokio::time::timeout(LOAD_PATIENCE, loading).await;
        Ok(loaded.unwrap_or_else(|_| {
            tracing::error!(name, "the data of a bundle cannot be read: it is given up");
            None
        }))
    }

    async fn save(&self, data: Bytes) -> Result<Arc<str>> {
        let folder = self.folder.as_ref();
        let room = folder.map_or(Ok(()), |folder| check_room(&folder.path, data.len()));
        if room.is_err_and(|error| refuse(&error)) {
            return Ok(REFUSED.into());
        }
        match self.try_save(data.clone()).await {
            Ok(name) => Ok(name),
            Err(error) if refuse(&error) => Ok(REFUSED.into()),
            Err(_) => Ok(until_done("save a bundle", || self.try_save(data.clone())).await),
        }
    }

    async fn replace(&self, name: &str, data: Bytes) -> Result<()> {
        until_done("replace a bundle", || {
            self.store.replace(name, data.clone())
        })
        .await;
        Ok(())
    }

    async fn delete(&self, name: &str) -> Result<()> {
        if name != REFUSED {
            until_done("delete a bundle", || self.store.delete(name)).await;
        }
        Ok(())
    }
}
