//! SQLite for what is known of bundles, whose data are in files: the store of `hardy-sqlite-storage` as the agent needs it.
//!
//! Version 0.6 of that store waits for the disk in the threads of the runtime, and panics where the system gives it no further connection.
//! A change of a bundle that is gone brings it back, and a bundle of which it can read nothing any more keeps its name. Here whatever waits
//! for the disk runs to its end in a thread that may wait, a panic is an error, and what is gone stays gone. Names and the search for
//! bundles that wait have files of their own below.

mod names;
mod waiting;

use std::{fs::File, future::Future, path::Path, sync::Arc};

use hardy_bpa::{
    async_trait,
    bundle::{Bundle, BundleMetadata, BundleStatus},
    storage::{MetadataStorage, Result},
    stream::{SendError, Sender},
};
use hardy_bpv7::{bundle::Id, eid::Eid};
use tokio::{
    runtime::Handle,
    sync::{Mutex, Semaphore},
};

use self::{names::Names, waiting::Waiting};
use super::{Lock, opened};
use crate::{Error, names::Forgetful};

/// The database in the folder, as earlier versions called theirs: a log takes it over.
pub(super) const FILE: &str = "metadata.db";
/// Reads at a time: the store opens a connection for each, and keeps it.
const READERS: usize = 4;

/// Opens the database of a folder, or makes it. It keeps at most so many names of bundles that are gone, and holds the lock of the folder as
/// long as it may write.
pub(super) async fn database(
    folder: &Path,
    most_gone: usize,
    lock: Option<Arc<Lock>>,
) -> std::result::Result<Arc<Sqlite>, Error> {
    let at = folder.to_owned();
    let store = opened(move || Sqlite::open(&at, most_gone, lock)).await?;
    let store = store.map_err(|error| Error::Agent(format!("SQLite: {error}")))?;
    Ok(Arc::new(store))
}

/// The store of the library, whose writes come one after the other.
pub(in crate::node) struct Sqlite {
    store: Arc<dyn MetadataStorage>,
    names: Arc<Names>,
    waiting: Arc<Waiting>,
    /// Held by what writes.
    turn: Arc<Mutex<Turn>>,
    reads: Arc<Semaphore>,
}

/// Who has it may write.
struct Turn {
    is_open: bool,
    /// Tasks of the agent that did not end may still have the store.
    lock: Option<Arc<Lock>>,
}

/// Where a search puts what it finds, until it has found all: what the agent takes slowly keeps no thread.
#[derive(Clone, Default)]
struct Found(Arc<parking_lot::Mutex<Vec<Bundle>>>);

#[async_trait]
impl Sender<Bundle> for Found {
    async fn send(&self, bundle: Bundle) -> std::result::Result<(), SendError<Bundle>> {
        self.0.lock().push(bundle);
        Ok(())
    }
}

impl Sqlite {
    fn open(folder: &Path, most_gone: usize, lock: Option<Arc<Lock>>) -> Result<Self> {
        let settings = hardy_sqlite_storage::Config {
            db_dir: folder.to_owned(),
            db_name: FILE.to_owned(),
        };
        let store = hardy_sqlite_storage::new(&settings, true);
        let file = folder.join(FILE);
        let names = Names::open(&file, most_gone)?;
        let waiting = Waiting::open(&file)?;
        // A database that was just made has its name on the medium before the first bundle is accepted.
        File::open(folder)?.sync_all()?;
        let turn = Turn {
            is_open: true,
            lock,
        };
        Ok(Self {
            store,
            names: Arc::new(names),
            waiting: Arc::new(waiting),
            turn: Arc::new(Mutex::new(turn)),
            reads: Arc::new(Semaphore::new(READERS)),
        })
    }

    /// Ends what writes, and lets the folder go.
    pub(super) async fn close(&self) {
        let mut turn = self.turn.lock().await;
        turn.is_open = false;
        drop(turn.lock.take());
    }

    /// Does what writes, to its end, whatever becomes of the caller.
    async fn write<T, F>(
        &self,
        work: impl FnOnce(Arc<dyn MetadataStorage>, Arc<Names>) -> F + Send + 'static,
    ) -> Result<T>
    where
        T: Send + 'static,
        F: Future<Output = Result<T>> + Send + 'static,
    {
        let turn = self.turn.clone().lock_owned().await;
        if !turn.is_open {
            return Err("the store has ended".into());
        }
        let (store, names) = (self.store.clone(), self.names.clone());
        in_thread(turn, move || work(store, names)).await
    }

    /// Does what only reads.
    async fn read<T, F>(
        &self,
        work: impl FnOnce(Arc<dyn MetadataStorage>) -> F + Send + 'static,
    ) -> Result<T>
    where
        T: Send + 'static,
        F: Future<Output = Result<T>> + Send + 'static,
    {
        let reading = self.reads.clone().acquire_owned().await?;
        let store = self.store.clone();
        in_thread(reading, move || work(store)).await
    }

    /// Runs a search, and passes on what it has found as long as `stream` takes it.
    async fn search<F>(
        &self,
        stream: &dyn Sender<Bundle>,
        search: impl FnOnce(Arc<dyn MetadataStorage>, Found) -> F + Send + 'static,
    ) -> Result<()>
    where
        F: Future<Output = Result<()>> + Send + 'static,
    {
        let found = Found::default();
        let all = found.clone();
        self.read(move |store| search(store, found)).await?;
        let all = std::mem::take(&mut *all.0.lock());
        for bundle in all {
            if stream.send(bundle).await.is_err() {
                break;
            }
        }
        Ok(())
    }
}

/// Does what waits for the disk in a thread that may, to its end; `held` is held until then.
async fn in_thread<T, F>(
    held: impl Send + 'static,
    work: impl FnOnce() -> F + Send + 'static,
) -> Result<T>
where
    T: Send + 'static,
    F: Future<Output = Result<T>> + Send + 'static,
{
    let runtime = Handle::current();
    let working = tokio::task::spawn_blocking(move || {
        let _held = held;
        runtime.block_on(work())
    });
    working.await?
}

/// Whether a bundle is here of which nothing can be read.
async fn is_damaged(store: &dyn MetadataStorage, names: &Names, id: &Id) -> Result<bool> {
    match store.get(id).await {
        Ok(Some(_)) => Ok(false),
        Ok(None) => names.is_here(id),
        Err(error) => Ok(error.is::<serde_json::Error>()),
    }
}

#[async_trait]
impl MetadataStorage for Sqlite {
    async fn get(&self, id: &Id) -> Result<Option<Bundle>> {
        let id = id.clone();
        self.read(move |store| async move { store.get(&id).await })
            .await
    }

    async fn insert(&self, bundle: &Bundle) -> Result<bool> {
        let bundle = bundle.clone();
        self.write(move |store, names| async move {
            let id = &bundle.bundle.id;
            if store.insert(&bundle).await? {
                return Ok(true);
            }
            if is_damaged(&*store, &names, id).await? {
                // A start has found its data: they would be removed as those of a copy.
                tracing::error!(%id, "what was known of a bundle cannot be read, and is written anew");
                names.free(id)?;
            } else if !names.is_free(id)? {
                return Ok(false);
            }
            store.insert(&bundle).await
        })
        .await
    }

    async fn replace(&self, bundle: &Bundle) -> Result<()> {
        let bundle = bundle.clone();
        self.write(move |store, names| async move {
            match names.is_here(&bundle.bundle.id)? {
                true => store.replace(&bundle).await,
                false => Ok(()),
            }
        })
        .await
    }

    async fn update_status(&self, bundle: &Bundle) -> Result<()> {
        let bundle = bundle.clone();
        self.write(move |store, names| async move {
            match names.is_here(&bundle.bundle.id)? {
                true => store.update_status(&bundle).await,
                false => Ok(()),
            }
        })
        .await
    }

    async fn tombstone(&self, id: &Id) -> Result<()> {
        let id = id.clone();
        self.write(move |store, names| async move {
            if names.is_here(&id)? {
                store.tombstone(&id).await?;
                names.keep_one();
            }
            names.forget()
        })
        .await
    }

    async fn start_recovery(&self) {
        self.store.start_recovery().await;
    }

    async fn confirm_exists(&self, id: &Id) -> Result<Option<BundleMetadata>> {
        let id = id.clone();
        self.write(move |store, _| async move { store.confirm_exists(&id).await })
            .await
    }

    async fn remove_unconfirmed(&self, stream: &dyn Sender<Bundle>) -> Result<()> {
        self.store.remove_unconfirmed(stream).await
    }

    async fn reset_peer_queue(&self, peer: u32) -> Result<u64> {
        self.write(move |store, _| async move { store.reset_peer_queue(peer).await })
            .await
    }

    async fn poll_expiry(&self, stream: &dyn Sender<Bundle>, limit: usize) -> Result<()> {
        self.search(stream, move |store, found| async move {
            store.poll_expiry(&found, limit).await
        })
        .await
    }

    async fn poll_waiting(&self, stream: &dyn Sender<Bundle>) -> Result<()> {
        let mut after = 0;
        loop {
            let waiting = self.waiting.clone();
            let page = self
                .read(move |_| async move { waiting.page(after) })
                .await?;
            let Some((last, bundles)) = page else {
                return Ok(());
            };
            for bundle in bundles {
                if stream.send(bundle).await.is_err() {
                    return Ok(());
                }
            }
            after = last;
        }
    }

    async fn poll_service_waiting(&self, source: Eid, stream: &dyn Sender<Bundle>) -> Result<()> {
        self.search(stream, move |store, found| async move {
            store.poll_service_waiting(source, &found).await
        })
        .await
    }

    async fn poll_adu_fragments(
        &self,
        stream: &dyn Sender<Bundle>,
        status: &BundleStatus,
    ) -> Result<()> {
        let status = status.clone();
        self.search(stream, move |store, found| async move {
            store.poll_adu_fragments(&found, &status).await
        })
        .await
    }

    async fn poll_pending(
        &self,
        stream: &dyn Sender<Bundle>,
        status: &BundleStatus,
        limit: usize,
    ) -> Result<()> {
        let status = status.clone();
        self.search(stream, move |store, found| async move {
            store.poll_pending(&found, &status, limit).await
        })
        .await
    }
}

#[async_trait]
impl Forgetful for Sqlite {
    async fn forget(&self, id: &Id) -> Result<()> {
        let id = id.clone();
        self.write(move |_, names| async move { names.free(&id) })
            .await
    }
}

#[cfg(test)]
mod tests;
