//! The PostgreSQL store as the agent needs it: searches come to their end, what is gone needs no change, and its name is free again.
//!
//! Version 0.2 of the PostgreSQL store searches within a transaction that it begins by hand. When the agent drops the search or takes no
//! more of it, the connection goes back to the pool with that transaction open: it is read-only and sees the database as it was, so that
//! the task that gets the connection next finds bundles that are gone, and cannot write. Here a search is a task of its own: what the agent
//! takes no more is read and thrown away.
//!
//! A search sees the database of one moment, so the agent may be handed a bundle that is gone by then, and note a status of it. The
//! store calls that an error, which no other attempt would mend.

use std::{future::Future, sync::Arc};

use hardy_bpa::{
    async_trait,
    bundle::{Bundle, BundleMetadata, BundleStatus},
    storage::{MetadataStorage, Result},
    stream::{SendError, Sender},
};
use hardy_bpv7::{bundle::Id, eid::Eid};
use tokio::sync::mpsc;

use super::names::Names;
use crate::names::Forgetful;

/// Bundles that a search has found, and the agent has not taken yet.
const AHEAD: usize = 64;

/// A store whose searches are never cut short, and that takes changes of what is gone.
pub(super) struct Unbroken {
    pub(super) store: Arc<dyn MetadataStorage>,
    pub(super) names: Names,
}

/// Where a search puts what it finds; never refuses.
struct Found(mpsc::Sender<Bundle>);

#[async_trait]
impl Sender<Bundle> for Found {
    async fn send(&self, bundle: Bundle) -> std::result::Result<(), SendError<Bundle>> {
        // The search goes on, also where the agent takes no more.
        let _ = self.0.send(bundle).await;
        Ok(())
    }
}

impl Unbroken {
    /// Runs a search to its end, whatever becomes of `stream` and of the caller.
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

    /// What came of changing a bundle: no error if it is gone.
    async fn unless_gone(&self, bundle: &Bundle, changed: Result<()>) -> Result<()> {
        match changed {
            Err(_) if self.store.get(&bundle.bundle.id).await?.is_none() => Ok(()),
            changed => changed,
        }
    }
}

#[async_trait]
impl MetadataStorage for Unbroken {
    async fn get(&self, id: &Id) -> Result<Option<Bundle>> {
        self.store.get(id).await
    }

    async fn insert(&self, bundle: &Bundle) -> Result<bool> {
        if self.store.insert(bundle).await? {
            return Ok(true);
        }
        self.names.forget_one(&bundle.bundle.id).await?;
        // Also if that forgot nothing: another task may have done so in between, and who is told that a bundle is known drops it.
        self.store.insert(bundle).await
    }

    async fn replace(&self, bundle: &Bundle) -> Result<()> {
        let replaced = self.store.replace(bundle).await;
        self.unless_gone(bundle, replaced).await
    }

    async fn update_status(&self, bundle: &Bundle) -> Result<()> {
        let updated = self.store.update_status(bundle).await;
        self.unless_gone(bundle, updated).await
    }

    async fn tombstone(&self, id: &Id) -> Result<()> {
        // A life may end in between: as long as the bundle is there, its name is not free, whatever stands there.
        self.names.keep(id).await?;
        self.store.tombstone(id).await?;
        self.names.keep_one();
        self.names.forget().await
    }

    async fn start_recovery(&self) {
        self.store.start_recovery().await;
    }

    async fn confirm_exists(&self, id: &Id) -> Result<Option<BundleMetadata>> {
        self.store.confirm_exists(id).await
    }

    async fn remove_unconfirmed(&self, stream: &dyn Sender<Bundle>) -> Result<()> {
        self.store.remove_unconfirmed(stream).await
    }

    async fn reset_peer_queue(&self, peer: u32) -> Result<u64> {
        self.store.reset_peer_queue(peer).await
    }

    async fn poll_expiry(&self, stream: &dyn Sender<Bundle>, limit: usize) -> Result<()> {
        self.search(stream, |store, found| async move {
            store.poll_expiry(&found, limit).await
        })
        .await
    }

    async fn poll_waiting(&self, stream: &dyn Sender<Bundle>) -> Result<()> {
        self.search(stream, |store, found| async move {
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
impl Forgetful for Unbroken {
    async fn forget(&self, id: &Id) -> Result<()> {
        self.names.free(id).await?;
        self.store.tombstone(id).await?;
        self.names.keep_one();
        // At once: neighbours may send any number of bundles that are dropped as they come, and none that goes otherwise.
        self.names.forget_one(id).await
    }
}
