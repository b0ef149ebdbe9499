//! SQLite for what is known of bundles, whose data are in files: the store of `hardy-sqlite-storage` as the agent needs it.
//!
//! Version 0.6 of that store waits for the disk in the threads of the runtime, and panics where the system gives it no further connection.
//! A change of a bundle that is gone brings it back. A search for bundles that wait fills a table and empties it piece by piece: of one
//! that was cut short the next one is told what does not wait any more, and two at a time take each other's. Here whatever writes has a
//! thread to itself and is done to its end, a panic is an error, what is gone stays gone, and such searches come one after the other.

mod names;

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
    sync::{Mutex, mpsc},
};

use self::names::Names;
use super::opened;
use crate::{Error, bundle_log, names::Forgetful};

/// The database in the folder, as earlier versions called theirs: a log takes it over.
const FILE: &str = "metadata.db";
/// Bundles that a search has found, and the agent has not taken yet.
const AHEAD: usize = 64;

/// Opens the database of a folder, or makes it.
pub(super) async fn database(folder: &Path) -> std::result::Result<Arc<dyn Forgetful>, Error> {
    if folder.join(bundle_log::FOLDER).is_dir() {
        return Err(Error::HasLog(folder.to_owned()));
    }
    let at = folder.to_owned();
    let store = opened(move || Sqlite::open(&at)).await?;
    let store = store.map_err(|error| Error::Agent(format!("SQLite: {error}")))?;
    Ok(Arc::new(store))
}

/// The store of the library, whose writes come one after the other.
struct Sqlite {
    store: Arc<dyn MetadataStorage>,
    names: Arc<Names>,
    /// Held by what writes.
    turn: Arc<Mutex<()>>,
    /// Held by a search for bundles that wait.
    waiting: Arc<Mutex<()>>,
}

/// Where a search puts what it finds; it ends when the agent takes no more.
struct Found(mpsc::Sender<Bundle>);

#[async_trait]
impl Sender<Bundle> for Found {
    async fn send(&self, bundle: Bundle) -> std::result::Result<(), SendError<Bundle>> {
        let sent = self.0.send(bundle).await;
        sent.map_err(|refused| SendError(refused.0))
    }
}

impl Sqlite {
    fn open(folder: &Path) -> Result<Self> {
        let settings = hardy_sqlite_storage::Config {
            db_dir: folder.to_owned(),
            db_name: FILE.to_owned(),
        };
        let store = hardy_sqlite_storage::new(&settings, true);
        let names = Names::open(&folder.join(FILE))?;
        // A database that was just made has its name on the medium before the first bundle is accepted.
        File::open(folder)?.sync_all()?;
        Ok(Self {
            store,
            names: Arc::new(names),
            turn: Arc::default(),
            waiting: Arc::default(),
        })
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
        let (store, names) = (self.store.clone(), self.names.clone());
        let runtime = Handle::current();
        let writing = tokio::task::spawn_blocking(move || {
            let _turn = turn;
            runtime.block_on(work(store, names))
        });
        writing.await?
    }

    /// Runs a search in a task of its own until it is done, or `stream` takes no more.
    async fn search<F>(
        &self,
        stream: &dyn Sender<Bundle>,
        search: impl FnOnce(Arc<dyn MetadataStorage>, Found) -> F,
    ) -> Result<()>
    where
        F: Future<Output = Result<()>> + Send + 'static,
    {
        let (found, mut taken) = mpsc::channel(AHEAD);
        let searching = tokio::spawn(search(self.store.clone(), Found(found)));
        while let Some(bundle) = taken.recv().await {
            if stream.send(bundle).await.is_err() {
                return Ok(());
            }
        }
        searching.await?
    }
}

#[async_trait]
impl MetadataStorage for Sqlite {
    async fn get(&self, id: &Id) -> Result<Option<Bundle>> {
        let (store, id) = (self.store.clone(), id.clone());
        tokio::spawn(async move { store.get(&id).await }).await?
    }

    async fn insert(&self, bundle: &Bundle) -> Result<bool> {
        let bundle = bundle.clone();
        self.write(move |store, names| async move {
            let is_new = store.insert(&bundle).await?;
            if is_new || !names.is_free(&bundle.bundle.id)? {
                return Ok(is_new);
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
        self.search(stream, |store, found| async move {
            store.poll_expiry(&found, limit).await
        })
        .await
    }

    async fn poll_waiting(&self, stream: &dyn Sender<Bundle>) -> Result<()> {
        let alone = self.waiting.clone().lock_owned().await;
        self.write(|_, names| async move { names.end_search() })
            .await?;
        self.search(stream, |store, found| async move {
            let _alone = alone;
            store.poll_waiting(&found).await
        })
        .await
    }

    async fn poll_service_waiting(&self, source: Eid, stream: &dyn Sender<Bundle>) -> Result<()> {
        self.search(stream, |store, found| async move {
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
        self.search(stream, |store, found| async move {
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
        self.search(stream, |store, found| async move {
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
mod tests {
    use std::{collections::BTreeSet, time::Duration};

    use hardy_bpv7::{builder::Builder, creation_timestamp::CreationTimestamp, dtn_time::DtnTime};

    use super::*;

    const HOUR: Duration = Duration::from_secs(3600);

    /// A bundle that was made an hour ago and lives for so long.
    fn bundle(number: u64, lifetime: Duration) -> Bundle {
        let builder = Builder::new("ipn:1.5".parse().unwrap(), "ipn:2.5".parse().unwrap());
        let builder = builder
            .with_lifetime(lifetime)
            .with_payload(b"x".as_slice().into());
        let made = DtnTime::new(DtnTime::now().millisecs() - 3_600_000);
        let stamp = CreationTimestamp::from_parts(Some(made), number);
        Bundle {
            bundle: builder.build(stamp).unwrap().0,
            metadata: BundleMetadata::default(),
        }
    }

    /// Takes so many bundles, and then no more.
    struct Taker {
        most: usize,
        taken: parking_lot::Mutex<Vec<Id>>,
    }

    #[async_trait]
    impl Sender<Bundle> for Taker {
        async fn send(&self, bundle: Bundle) -> std::result::Result<(), SendError<Bundle>> {
            let mut taken = self.taken.lock();
            if taken.len() == self.most {
                return Err(SendError(bundle));
            }
            taken.push(bundle.bundle.id);
            Ok(())
        }
    }

    async fn waiting(store: &Sqlite, most: usize) -> BTreeSet<String> {
        let taken = parking_lot::Mutex::default();
        let taker = Taker { most, taken };
        store.poll_waiting(&taker).await.unwrap();
        let taken = taker.taken.into_inner();
        let names: BTreeSet<String> = taken.iter().map(ToString::to_string).collect();
        assert_eq!(names.len(), taken.len(), "one is found twice");
        names
    }

    #[tokio::test]
    async fn what_is_gone_does_not_come_back_when_a_change_of_it_is_noted() {
        let folder = tempfile::tempdir().unwrap();
        let store = Sqlite::open(folder.path()).unwrap();
        let mut bundle = bundle(1, 2 * HOUR);
        let id = bundle.bundle.id.clone();
        assert!(store.insert(&bundle).await.unwrap());
        bundle.metadata.status = BundleStatus::Waiting;
        store.update_status(&bundle).await.unwrap();
        assert_eq!(waiting(&store, 9).await.len(), 1);
        store.tombstone(&id).await.unwrap();
        store.replace(&bundle).await.unwrap();
        store.update_status(&bundle).await.unwrap();
        // As the agent may.
        store.tombstone(&id).await.unwrap();
        assert!(store.get(&id).await.unwrap().is_none());
        assert_eq!(waiting(&store, 9).await.len(), 0);
        assert!(!store.insert(&bundle).await.unwrap(), "a copy is taken");
    }

    #[tokio::test]
    async fn the_name_of_a_bundle_is_free_when_it_has_expired_or_is_forgotten() {
        let folder = tempfile::tempdir().unwrap();
        let store = Sqlite::open(folder.path()).unwrap();
        let (living, expired) = (bundle(1, 2 * HOUR), bundle(2, HOUR / 2));
        for bundle in [&living, &expired] {
            assert!(store.insert(bundle).await.unwrap());
            store.tombstone(&bundle.bundle.id).await.unwrap();
        }
        assert!(!store.insert(&living).await.unwrap());
        assert!(store.insert(&expired).await.unwrap());
        // One that is here is no name to be freed.
        assert!(!store.insert(&expired).await.unwrap());
        // It is removed by a search for such names, too, at the start of another life.
        store.tombstone(&expired.bundle.id).await.unwrap();
        drop(store);
        let store = Sqlite::open(folder.path()).unwrap();
        store.tombstone(&living.bundle.id).await.unwrap();
        assert_eq!(store.names.kept().unwrap(), 1);
        store.forget(&living.bundle.id).await.unwrap();
        assert!(store.insert(&living).await.unwrap());
        store.forget(&living.bundle.id).await.unwrap();
        assert!(store.get(&living.bundle.id).await.unwrap().is_none());
        assert!(store.insert(&living).await.unwrap());
    }

    #[tokio::test]
    async fn a_search_finds_all_that_waits_whatever_one_before_it_has_left() {
        let folder = tempfile::tempdir().unwrap();
        let store = Sqlite::open(folder.path()).unwrap();
        let mut all: Vec<Bundle> = (0..150).map(|number| bundle(number, 2 * HOUR)).collect();
        for bundle in &mut all {
            bundle.metadata.status = BundleStatus::Waiting;
            assert!(store.insert(bundle).await.unwrap());
        }
        for most in [1, 70, 3] {
            assert_eq!(waiting(&store, most).await.len(), most);
        }
        // Those of the first half wait no more.
        let (sent, left) = all.split_at_mut(75);
        for bundle in sent {
            bundle.metadata.status = BundleStatus::Dispatching;
            store.update_status(bundle).await.unwrap();
        }
        let left: BTreeSet<String> = left.iter().map(|left| left.bundle.id.to_string()).collect();
        assert_eq!(waiting(&store, 1000).await, left);
    }
}
