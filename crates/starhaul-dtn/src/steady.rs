//! The stores as the agent needs them. It panics when a store fails, and takes a new bundle that was not stored for one that it
//! has. Here such a bundle is refused with the reason, so that its sender keeps it; whatever else fails is tried again until it
//! succeeds. The agent's task waits for that, which pushes back in the end.

use std::{
    cell::RefCell,
    future::Future,
    path::{Path, PathBuf},
    sync::{Arc, LazyLock},
    time::{Duration, Instant},
};

use hardy_bpa::{
    Bytes, async_trait,
    storage::{BundleStorage, RecoveryResponse, Result},
    stream::{SendError, Sender},
};
use hardy_bpv7::bundle::Id;
use parking_lot::Mutex;
use starhaul_log::Seldom;

use crate::{
    trail::Marks,
    unread::{self, PATIENCE, Unread},
};

/// How long a store that failed is left alone.
const TRY_AGAIN: Duration = Duration::from_secs(1);
/// Bytes of the disk that new bundles leave free: what is known of bundles is written before one is sent and removed, so that a
/// disk without any room would never have room again.
const RESERVE: u64 = 16 << 20;
/// A full disk refuses bundle after bundle.
static REFUSED_LOG: LazyLock<Seldom> = LazyLock::new(Seldom::default);
/// The name of the data of a bundle that could not be stored.
pub(crate) const REFUSED: &str = "refused";

tokio::task_local! {
    /// What becomes of the bundle that this task gives to the agent.
    static TAKING: RefCell<Taking>;
}

#[derive(Debug, Default)]
struct Taking {
    /// Why it was not taken.
    fault: Option<Fault>,
    became: Became,
    /// Its name, once it is stored.
    stored: Option<Id>,
    /// Which nodes have sent it on, so far as it says.
    marks: Option<Marks>,
    /// Whether its data were saved: the agent saves those of all bundles that it can read.
    has_data: bool,
}

/// What became of a bundle that was not refused.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Became {
    /// It is stored.
    Stored,
    /// It is here already, or was.
    Known,
    /// The agent has dropped it: it is damaged, has expired, or breaks a rule.
    #[default]
    Dropped,
}

/// Why a bundle was not taken, whatever the agent believes.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Fault {
    /// It could not be stored.
    #[error("{0}")]
    NotStored(String),
    /// It was here before and has left: the neighbour that sends it may have the only copy.
    #[error("the bundle was here before and comes back")]
    CameBack,
}

/// Gives a bundle to the agent.
///
/// # Errors
/// Why it was not taken.
pub(crate) async fn accept<T>(taking: impl Future<Output = T>) -> std::result::Result<T, Fault> {
    arrive(None, taking).await.map(|(taken, _)| taken)
}

/// The same for a bundle that a neighbour gives, which may say which nodes have sent it on; tells what became of it.
///
/// # Errors
/// Why it was not taken.
pub(crate) async fn arrive<T>(
    marks: Option<Marks>,
    taking: impl Future<Output = T>,
) -> std::result::Result<(T, Became), Fault> {
    let arriving = async {
        let taken = taking.await;
        let Taking { fault, became, .. } = TAKING.with(RefCell::take);
        fault.map_or(Ok((taken, became)), Err)
    };
    let taking = Taking {
        marks,
        ..Taking::default()
    };
    TAKING.scope(RefCell::new(taking), arriving).await
}

/// The marks of the nodes that have sent the bundle being accepted on, if it has any.
pub(crate) fn marks() -> Option<Marks> {
    let marks = TAKING.try_with(|taking| taking.borrow().marks);
    marks.ok().flatten()
}

/// Notes that the data of the bundle being accepted are saved, or refused.
pub(crate) fn saved() {
    // A recovery has no sender.
    let _ = TAKING.try_with(|taking| taking.borrow_mut().has_data = true);
}

/// Whether the bundle being accepted is one of which the agent could read no more than its name.
pub(crate) fn is_unreadable() -> bool {
    let has_data = TAKING.try_with(|taking| taking.borrow().has_data);
    has_data.is_ok_and(|has_data| !has_data)
}

/// Whether this task gives the agent a bundle.
pub(crate) fn is_taking() -> bool {
    TAKING.try_with(|_| ()).is_ok()
}

/// Whether a bundle is the one being accepted, which is stored.
pub(crate) fn is_coming(id: &Id) -> bool {
    let is_this = TAKING.try_with(|taking| taking.borrow().stored.as_ref() == Some(id));
    is_this.unwrap_or(false)
}

/// Notes that the bundle being accepted is stored. What the agent stores after it are reports of it.
pub(crate) fn stored(id: &Id) {
    // A recovery has no sender.
    let _ = TAKING.try_with(|taking| {
        let mut taking = taking.borrow_mut();
        if taking.stored.is_none() {
            (taking.became, taking.stored) = (Became::Stored, Some(id.clone()));
        }
    });
}

/// Notes that the bundle being accepted is known already.
pub(crate) fn known() {
    let _ = TAKING.try_with(|taking| {
        let mut taking = taking.borrow_mut();
        if taking.stored.is_none() {
            taking.became = Became::Known;
        }
    });
}

/// Notes that a bundle is gone: while it is being accepted, the agent drops it.
pub(crate) fn gone(id: &Id) {
    let _ = TAKING.try_with(|taking| {
        let mut taking = taking.borrow_mut();
        if taking.stored.as_ref() == Some(id) {
            taking.became = Became::Dropped;
        }
    });
}

/// Notes that the bundle being accepted is not stored; `false` if none is, as in a recovery.
pub(crate) fn refuse(error: &impl std::fmt::Display) -> bool {
    let fault = Fault::NotStored(error.to_string());
    let refused = TAKING.try_with(|taking| taking.borrow_mut().fault = Some(fault));
    if refused.is_ok()
        && let Some(others) = REFUSED_LOG.is_due(Instant::now())
    {
        tracing::error!(%error, others, "a bundle is refused: it cannot be stored");
    }
    refused.is_ok()
}

/// Notes that the bundle being accepted stays with its sender.
pub(crate) fn send_back() {
    // A recovery has no sender.
    let _ = TAKING.try_with(|taking| taking.borrow_mut().fault = Some(Fault::CameBack));
}

/// Whether the data of the bundle being accepted were not stored.
pub(crate) fn is_refused() -> bool {
    TAKING
        .try_with(|taking| taking.borrow().fault.is_some())
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

/// What is known of a bundle, if it can be read within [`PATIENCE`]: one bad sector must not keep all others waiting.
pub(crate) async fn in_a_minute<T>(
    name: impl std::fmt::Display,
    reading: impl Future<Output = Option<T>>,
) -> Option<T> {
    let read = tokio::time::timeout(PATIENCE, reading).await;
    read.unwrap_or_else(|_| {
        tracing::error!(%name, "what is known of a bundle cannot be read for a minute: it is passed over");
        None
    })
}

/// Whether new data of so many bytes leave enough of the disk on which a folder is, or will be; how many more would.
pub(crate) fn check_room(folder: &Path, bytes: usize) -> Result<u64> {
    // The library makes the folder with the first bundle.
    let there = folder.ancestors().find(|path| path.exists());
    let disk = rustix::fs::statvfs(there.unwrap_or(folder))?;
    let free = disk.f_bavail.saturating_mul(disk.f_frsize);
    match free.checked_sub(RESERVE + bytes as u64) {
        Some(beyond) => Ok(beyond),
        None => Err(format!(
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
    place: Place,
    unread: Arc<Unread>,
}

/// Where the data of bundles are.
pub(crate) enum Place {
    /// In memory, without a file.
    Memory,
    /// In files of this folder.
    Folder(PathBuf),
    /// On another machine, which may be away for any time.
    Remote,
}

impl SteadyBundles {
    /// Wraps a store, whose data are in `place`.
    pub(crate) fn new(store: Arc<dyn BundleStorage>, place: Place) -> Arc<Self> {
        Self::with_patience(store, place, PATIENCE)
    }

    /// The same; data that cannot be read for `patience` are put aside.
    pub(crate) fn with_patience(
        store: Arc<dyn BundleStorage>,
        place: Place,
        patience: Duration,
    ) -> Arc<Self> {
        let unread = Unread::new(patience);
        Arc::new(Self {
            store,
            place,
            unread,
        })
    }

    /// Which data cannot be read.
    pub(crate) fn unread(&self) -> &Arc<Unread> {
        &self.unread
    }

    async fn try_delete(&self, name: &str) -> Result<()> {
        let deleted = self.store.delete(name).await;
        let is_remote = matches!(self.place, Place::Remote);
        match deleted {
            // Some servers of S3 refuse to delete what is gone.
            Err(_) if is_remote && self.store.load(name).await?.is_none() => Ok(()),
            deleted => deleted,
        }
    }

    /// The data of former lives, if they outlive the process. Nothing that this life saves may be among them, since the agent would take
    /// it for a copy: they are to be found before it gets the first.
    pub(crate) async fn find(&self) -> Vec<RecoveryResponse> {
        if let Place::Memory = self.place {
            return Vec::new();
        }
        // What is not found now is taken for lost, and what is found twice for a copy: each attempt begins anew.
        let search = || async {
            let found = Found::default();
            self.store.recover(&found).await?;
            Ok(found.0.into_inner())
        };
        until_done("find the bundles", search).await
    }
}

/// Tells the agent of all of these.
pub(crate) async fn tell(stream: &dyn Sender<RecoveryResponse>, found: Vec<RecoveryResponse>) {
    for found in found {
        if stream.send(found).await.is_err() {
            return;
        }
    }
}

#[async_trait]
impl BundleStorage for SteadyBundles {
    async fn recover(&self, stream: &dyn Sender<RecoveryResponse>) -> Result<()> {
        self.unread.begin_start();
        match self.place {
            Place::Memory => self.store.recover(stream).await,
            Place::Folder(_) | Place::Remote => {
                tell(stream, self.find().await).await;
                Ok(())
            }
        }
    }

    async fn load(&self, name: &str) -> Result<Option<Bytes>> {
        let load = || self.store.load(name);
        Ok(match self.place {
            Place::Remote => until_done("load a bundle", load).await,
            Place::Memory | Place::Folder(_) => self.unread.read(name, load).await,
        })
    }

    async fn save(&self, data: Bytes) -> Result<Arc<str>> {
        saved();
        if unread::is_noted() {
            // A report that the bundle is lost, which it is not.
            return Ok(REFUSED.into());
        }
        let room = match &self.place {
            Place::Folder(path) => check_room(path, data.len()).map(drop),
            Place::Memory | Place::Remote => Ok(()),
        };
        if room.is_err_and(|error| refuse(&error)) {
            return Ok(REFUSED.into());
        }
        match self.store.save(data.clone()).await {
            Ok(name) => Ok(name),
            Err(error) if refuse(&error) => Ok(REFUSED.into()),
            Err(_) => Ok(until_done("save a bundle", || self.store.save(data.clone())).await),
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
        if name != REFUSED && !unread::is_noted() {
            self.unread.forget(name);
            until_done("delete a bundle", || self.try_delete(name)).await;
        }
        Ok(())
    }
}

/// Names that were found, until the search is complete.
#[derive(Default)]
pub(crate) struct Found(pub(crate) Mutex<Vec<RecoveryResponse>>);

#[async_trait]
impl Sender<RecoveryResponse> for Found {
    async fn send(
        &self,
        found: RecoveryResponse,
    ) -> std::result::Result<(), SendError<RecoveryResponse>> {
        self.0.lock().push(found);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::{
        fs::{self, File},
        time::SystemTime,
    };

    use super::*;
    use crate::{bundle_files::BundleFiles, medium::Folder};

    #[tokio::test]
    async fn all_files_are_found_whatever_their_times_as_soon_as_their_folder_can_be_read() {
        let folder = tempfile::tempdir().unwrap();
        let (path, away) = (folder.path().join("data"), folder.path().join("away"));
        let (full, empty) = (path.join("aa/bb"), path.join("cc/dd"));
        fs::create_dir_all(&full).unwrap();
        fs::create_dir_all(&empty).unwrap();
        for (name, content) in [("1", "data"), ("2.tmp", "part"), ("3", "")] {
            fs::write(full.join(name), content).unwrap();
        }
        // The clock was set back since then.
        let later = SystemTime::now() + Duration::from_secs(1_000_000);
        let file = File::options().write(true).open(full.join("1")).unwrap();
        file.set_modified(later).unwrap();
        let store = BundleFiles::new(Box::new(Folder::of(&path)), false);
        let place = Place::Folder(path.clone());
        let (bundles, all) = (SteadyBundles::new(store, place), Found::default());
        // The store cannot list this folder.
        fs::rename(&path, &away).unwrap();
        std::os::unix::fs::symlink("data", &path).unwrap();
        let recovering = bundles.recover(&all);
        tokio::pin!(recovering);
        tokio::select! {
            biased;
            _ = &mut recovering => panic!("a folder that cannot be read passes for an empty one"),
            () = tokio::time::sleep(Duration::from_millis(100)) => {}
        }
        fs::remove_file(&path).unwrap();
        fs::rename(&away, &path).unwrap();
        recovering.await.unwrap();
        let all = all.0.lock().clone();
        let names: Vec<&str> = all.iter().map(|(name, _)| &**name).collect();
        assert_eq!(names, ["aa/bb/1"]);
        assert!(all.iter().all(|(_, time)| *time <= SystemTime::now()));
        let left: Vec<_> = fs::read_dir(&full).unwrap().collect();
        assert_eq!(left.len(), 1, "what was cut short stays");
        assert!(!empty.exists());
    }
}
