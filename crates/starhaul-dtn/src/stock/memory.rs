//! What is known of bundles, in memory. The library's own store of this kind forgets what was not used for longest when it is
//! full of bundles that are gone: those that wait.

use std::{
    collections::{BTreeSet, HashMap, HashSet},
    sync::{Mutex, MutexGuard, PoisonError},
};

use hardy_bpa::{
    async_trait,
    bundle::{Bundle, BundleMetadata, BundleStatus},
    storage::{MetadataStorage, Result},
    stream::Sender,
};
use hardy_bpv7::{bundle::Id, eid::Eid};
use time::OffsetDateTime;

use super::grace;
use crate::names::Forgetful;

/// A store that never forgets a bundle that it has. What is let in is limited before.
pub(crate) struct Metadata {
    held: Mutex<Held>,
    most_gone: usize,
}

#[derive(Default)]
struct Held {
    bundles: HashMap<Id, Bundle>,
    /// Bundles that were here and have not expired, or not for long where copies may: they are not taken again.
    gone: HashSet<Id>,
    by_expiry: BTreeSet<(OffsetDateTime, Id)>,
}

impl Held {
    /// Forgets bundles that are gone and whose lifetime has ended, and others beyond `most_gone`.
    fn forget(&mut self, most_gone: usize) {
        let now = OffsetDateTime::now_utc();
        while let Some((expiry, _)) = self.by_expiry.first()
            && (*expiry <= now || self.gone.len() > most_gone)
            && let Some((_, id)) = self.by_expiry.pop_first()
        {
            self.gone.remove(&id);
        }
    }
}

impl Metadata {
    /// Remembers at most so many bundles that are gone; beyond it, those that expire first are forgotten.
    pub(crate) fn new(most_gone: usize) -> Self {
        Self {
            held: Mutex::default(),
            most_gone,
        }
    }

    fn held(&self) -> MutexGuard<'_, Held> {
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Sends the bundles that are wanted, in this order, until the receiver has enough.
    async fn send<K: Ord>(
        &self,
        stream: &dyn Sender<Bundle>,
        limit: usize,
        is_wanted: impl Fn(&Bundle) -> bool,
        order: impl Fn(&Bundle) -> K,
    ) {
        let wanted = |held: &Held| -> Vec<Bundle> {
            let wanted = held.bundles.values().filter(|bundle| is_wanted(bundle));
            wanted.cloned().collect()
        };
        let mut bundles = wanted(&self.held());
        bundles.sort_by_key(order);
        for bundle in bundles.into_iter().take(limit) {
            if stream.send(bundle).await.is_err() {
                return;
            }
        }
    }

    async fn send_oldest(
        &self,
        stream: &dyn Sender<Bundle>,
        limit: usize,
        is_wanted: impl Fn(&Bundle) -> bool,
    ) {
        let received = |bundle: &Bundle| bundle.metadata.read_only.received_at;
        self.send(stream, limit, is_wanted, received).await;
    }
}

#[async_trait]
impl MetadataStorage for Metadata {
    async fn get(&self, id: &Id) -> Result<Option<Bundle>> {
        Ok(self.held().bundles.get(id).cloned())
    }

    async fn insert(&self, bundle: &Bundle) -> Result<bool> {
        let mut held = self.held();
        held.forget(self.most_gone);
        let id = &bundle.bundle.id;
        let is_new = !held.bundles.contains_key(id) && !held.gone.contains(id);
        if is_new {
            held.bundles.insert(id.clone(), bundle.clone());
        }
        Ok(is_new)
    }

    async fn replace(&self, bundle: &Bundle) -> Result<()> {
        // One that is gone does not come back.
        if let Some(held) = self.held().bundles.get_mut(&bundle.bundle.id) {
            *held = bundle.clone();
        }
        Ok(())
    }

    // Who sends a bundle knows less of it (`halves`).
    async fn update_status(&self, bundle: &Bundle) -> Result<()> {
        if let Some(held) = self.held().bundles.get_mut(&bundle.bundle.id) {
            held.metadata.status = bundle.metadata.status.clone();
        }
        Ok(())
    }

    async fn tombstone(&self, id: &Id) -> Result<()> {
        let mut held = self.held();
        let held = &mut *held;
        if let Some(bundle) = held.bundles.remove(id) {
            held.gone.insert(id.clone());
            let grace = grace(id, bundle.bundle.lifetime);
            let grace = grace.try_into().unwrap_or(time::Duration::ZERO);
            let expiry = bundle.expiry().saturating_add(grace);
            held.by_expiry.insert((expiry, id.clone()));
        }
        held.forget(self.most_gone);
        Ok(())
    }

    async fn start_recovery(&self) {}

    async fn confirm_exists(&self, _: &Id) -> Result<Option<BundleMetadata>> {
        Ok(None)
    }

    async fn remove_unconfirmed(&self, _: &dyn Sender<Bundle>) -> Result<()> {
        Ok(())
    }

    async fn reset_peer_queue(&self, peer: u32) -> Result<u64> {
        let mut count = 0;
        for bundle in self.held().bundles.values_mut() {
            let status = &mut bundle.metadata.status;
            if matches!(status, BundleStatus::ForwardPending { peer: of, .. } if *of == peer) {
                *status = BundleStatus::Waiting;
                count += 1;
            }
        }
        Ok(count)
    }

    async fn poll_expiry(&self, stream: &dyn Sender<Bundle>, limit: usize) -> Result<()> {
        let is_known = |bundle: &Bundle| bundle.metadata.status != BundleStatus::New;
        self.send(stream, limit, is_known, Bundle::expiry).await;
        Ok(())
    }

    async fn poll_waiting(&self, stream: &dyn Sender<Bundle>) -> Result<()> {
        self.poll_pending(stream, &BundleStatus::Waiting, usize::MAX)
            .await
    }

    async fn poll_service_waiting(&self, source: Eid, stream: &dyn Sender<Bundle>) -> Result<()> {
        let status = BundleStatus::WaitingForService { service: source };
        self.poll_pending(stream, &status, usize::MAX).await
    }

    async fn poll_adu_fragments(
        &self,
        stream: &dyn Sender<Bundle>,
        status: &BundleStatus,
    ) -> Result<()> {
        let offset = |bundle: &Bundle| {
            let fragment = bundle.bundle.id.fragment_info.as_ref();
            fragment.map(|fragment| fragment.offset)
        };
        let is_part =
            |bundle: &Bundle| bundle.metadata.status == *status && offset(bundle).is_some();
        self.send(stream, usize::MAX, is_part, offset).await;
        Ok(())
    }

    async fn poll_pending(
        &self,
        stream: &dyn Sender<Bundle>,
        status: &BundleStatus,
        limit: usize,
    ) -> Result<()> {
        let is_wanted = |bundle: &Bundle| bundle.metadata.status == *status;
        self.send_oldest(stream, limit, is_wanted).await;
        Ok(())
    }
}

#[async_trait]
impl Forgetful for Metadata {
    async fn forget(&self, id: &Id) -> Result<()> {
        self.held().bundles.remove(id);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use hardy_bpv7::{builder::Builder, creation_timestamp::CreationTimestamp, dtn_time::DtnTime};

    use super::*;

    fn bundle(number: u64, lifetime: Duration) -> Bundle {
        let builder = Builder::new("ipn:1.5".parse().unwrap(), "ipn:2.5".parse().unwrap());
        let stamp = CreationTimestamp::from_parts(Some(DtnTime::now()), number);
        let builder = builder.with_lifetime(lifetime);
        let builder = builder.with_payload(b"x".as_slice().into());
        Bundle {
            bundle: builder.build(stamp).unwrap().0,
            metadata: BundleMetadata::default(),
        }
    }

    #[tokio::test]
    async fn a_bundle_stays_and_is_not_taken_twice_while_many_pass() {
        let (store, hour) = (Metadata::new(2), Duration::from_secs(3600));
        let stays = bundle(0, hour);
        assert!(store.insert(&stays).await.unwrap());
        for number in 1..100 {
            let passes = bundle(number, hour * u32::try_from(number).unwrap());
            assert!(store.insert(&passes).await.unwrap());
            store.tombstone(&passes.bundle.id).await.unwrap();
            // Nothing that the agent says of it later brings it back.
            store.replace(&passes).await.unwrap();
            assert!(!store.insert(&passes).await.unwrap());
            assert!(store.get(&passes.bundle.id).await.unwrap().is_none());
        }
        assert!(!store.insert(&stays).await.unwrap());
        assert!(store.get(&stays.bundle.id).await.unwrap().is_some());
        let held = store.held();
        assert_eq!((held.bundles.len(), held.gone.len()), (1, 2));
        assert_eq!(held.by_expiry.len(), 2);
    }

    /// The agent has a bundle wait that it cannot rewrite, of which it knows no payload then.
    #[tokio::test]
    async fn a_status_changes_nothing_else() {
        let store = Metadata::new(2);
        let known = bundle(0, Duration::from_secs(3600));
        store.insert(&known).await.unwrap();
        let mut sent = known.clone();
        sent.metadata.status = BundleStatus::Waiting;
        sent.bundle.blocks.clear();
        store.update_status(&sent).await.unwrap();
        let found = store.get(&known.bundle.id).await.unwrap().unwrap();
        assert_eq!(found.metadata.status, BundleStatus::Waiting);
        assert_eq!(found.bundle.blocks.len(), known.bundle.blocks.len());
    }

    #[tokio::test]
    async fn what_has_expired_is_forgotten() {
        let store = Metadata::new(10);
        for number in 0..3 {
            let bundle = bundle(number, Duration::ZERO);
            store.insert(&bundle).await.unwrap();
            store.tombstone(&bundle.bundle.id).await.unwrap();
        }
        assert!(store.held().gone.is_empty() && store.held().by_expiry.is_empty());
    }
}
