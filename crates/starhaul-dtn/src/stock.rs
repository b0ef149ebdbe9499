//! What the node holds: how many bundles for whom, whether there is room for more, and which of them are on their way.
//!
//! The agent's stores are wrapped, so that all that is inserted and removed is counted, and so that bundles whose transmission
//! has begun are not handed out again: their acknowledgement may take minutes, or the next contact. Nor are those that an
//! application has and did not acknowledge yet.

use std::{
    collections::{BTreeMap, HashMap, HashSet, hash_map::Entry},
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use hardy_bpa::{
    async_trait,
    bundle::{Bundle, BundleMetadata, BundleStatus},
    storage::{MetadataStorage, Result},
    stream::{SendError, Sender},
};
use hardy_bpv7::{bundle::Id, eid::Eid};
use time::OffsetDateTime;
use tokio::sync::Notify;

use crate::{
    changes::{Changes, Seen},
    config::Storage,
    plan::NodeId,
    steady::{is_refused, refuse, until_done},
};

/// Bundles and the bytes of their payloads.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Amount {
    /// How many.
    pub bundles: u64,
    /// Bytes of their payloads.
    pub bytes: u64,
}

/// What a node holds.
#[derive(Debug)]
pub struct Stock {
    held: Mutex<Held>,
    limits: Storage,
    changed: Notify,
    recovered: Notify,
    is_begun: AtomicBool,
    /// Of the routes that the agent knows.
    pub(crate) changes: Changes,
}

#[derive(Debug, Default)]
struct Held {
    bundles: HashMap<Id, Item>,
    total: Amount,
    by_node: BTreeMap<NodeId, Amount>,
    /// Bundles that a convergence layer is sending, or that an application has.
    busy: HashMap<Id, Task>,
    /// Bytes of bundles that were let in, but are not stored yet.
    coming: Amount,
    expired: u64,
    refused: u64,
}

#[derive(Debug)]
struct Item {
    node: Option<NodeId>,
    bytes: u64,
    expiry: OffsetDateTime,
    /// When it was last handed to the agent.
    seen: Seen,
}

/// What is being done with a bundle.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Task {
    /// A convergence layer sends it.
    Sending,
    /// An application has it.
    Delivering,
}

/// Why a bundle is not taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NoRoom {
    /// It is larger than `max_bundle_bytes` allows.
    #[error("the bundle is larger than max_bundle_bytes allows")]
    TooLarge,
    /// All of `max_bytes` or `max_bundles` is in use.
    #[error("the storage is full")]
    Full,
}

/// Room for a bundle that is about to be stored; given back when dropped.
#[derive(Debug)]
pub struct Room<'a> {
    stock: &'a Stock,
    bytes: u64,
}

/// A bundle that something is done with; it is handed out again after this is dropped.
#[derive(Debug)]
pub(crate) struct Busy {
    stock: Arc<Stock>,
    id: Id,
}

impl Stock {
    /// An empty one with these limits.
    pub fn new(limits: Storage) -> Arc<Self> {
        Arc::new(Self {
            held: Mutex::default(),
            limits,
            changed: Notify::new(),
            recovered: Notify::new(),
            is_begun: AtomicBool::new(false),
            changes: Changes::default(),
        })
    }

    /// All that is held.
    pub fn total(&self) -> Amount {
        self.held().total
    }

    /// What is held for each node.
    pub fn by_node(&self) -> BTreeMap<NodeId, Amount> {
        self.held().by_node.clone()
    }

    /// How many bundles are being sent.
    pub fn in_flight(&self) -> usize {
        let held = self.held();
        let tasks = held.busy.values();
        tasks.filter(|task| **task == Task::Sending).count()
    }

    /// How many bundles reached the end of their lifetime here, and how many were refused for want of room.
    pub fn expired_and_refused(&self) -> (u64, u64) {
        let held = self.held();
        (held.expired, held.refused)
    }

    /// Room for a bundle of this size.
    ///
    /// # Errors
    /// All of [`NoRoom`].
    pub fn admit(&self, bytes: u64) -> std::result::Result<Room<'_>, NoRoom> {
        let mut held = self.held();
        let (bundles, all) = (
            held.total.bundles + held.coming.bundles,
            held.total.bytes + held.coming.bytes,
        );
        let is_full =
            bundles >= self.limits.bundles as u64 || all.saturating_add(bytes) > self.limits.bytes;
        let is_large = bytes > self.limits.bundle_bytes.saturating_add(OVERHEAD);
        if is_full || is_large {
            held.refused += 1;
            return Err(if is_large {
                NoRoom::TooLarge
            } else {
                NoRoom::Full
            });
        }
        held.coming.bundles += 1;
        held.coming.bytes += bytes;
        Ok(Room { stock: self, bytes })
    }

    /// Notes that a bundle which was let in could not be stored.
    pub(crate) fn refused(&self) {
        self.held().refused += 1;
    }

    /// The limits that are reached, for people.
    pub fn limits_met(&self) -> Vec<String> {
        let held = self.held();
        let mut met = Vec::new();
        if held.total.bundles >= self.limits.bundles as u64 {
            met.push(format!(
                "storage holds {} bundles, as many as max_bundles allows",
                held.total.bundles
            ));
        }
        if held.total.bytes.saturating_add(self.limits.bundle_bytes) > self.limits.bytes {
            met.push(format!(
                "storage holds {} bytes: a bundle of the greatest size has no room",
                held.total.bytes
            ));
        }
        if held.refused > 0 {
            met.push(format!(
                "{} times a bundle was refused for want of room",
                held.refused
            ));
        }
        met
    }

    /// Notes what is being done with a bundle; `None` if something is done with it already.
    pub(crate) fn begin(self: &Arc<Self>, id: &Id, task: Task) -> Option<Busy> {
        let mut held = self.held();
        let Entry::Vacant(entry) = held.busy.entry(id.clone()) else {
            return None;
        };
        entry.insert(task);
        Some(Busy {
            stock: self.clone(),
            id: id.clone(),
        })
    }

    /// Waits until something is removed, or a moment.
    pub async fn wait_for_room(&self) {
        // Something may have been removed before this began to wait.
        let _ = tokio::time::timeout(LOOK_AGAIN, self.changed.notified()).await;
    }

    /// Lets bundles of a former life be handed to the agent, which is whole now.
    pub(crate) fn begin_life(&self) {
        self.is_begun.store(true, Ordering::SeqCst);
    }

    /// Waits until the stores of a former life have been read.
    pub async fn recovered(&self) {
        self.recovered.notified().await;
    }

    fn held(&self) -> MutexGuard<'_, Held> {
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn insert(&self, bundle: &Bundle) {
        let item = Item {
            node: bundle.bundle.destination.to_node_id().ok(),
            bytes: payload_bytes(bundle),
            expiry: bundle.expiry(),
            seen: self.changes.seen(),
        };
        let mut held = self.held();
        let held = &mut *held;
        if held.bundles.contains_key(&bundle.bundle.id) {
            return;
        }
        add(&mut held.total, item.bytes);
        if let Some(node) = &item.node {
            add(held.by_node.entry(node.clone()).or_default(), item.bytes);
        }
        held.bundles.insert(bundle.bundle.id.clone(), item);
    }

    fn remove(&self, id: &Id) {
        let mut held = self.held();
        let held = &mut *held;
        let Some(item) = held.bundles.remove(id) else {
            return;
        };
        take(&mut held.total, item.bytes);
        if let Some(node) = item.node
            && let Some(amount) = held.by_node.get_mut(&node)
        {
            take(amount, item.bytes);
            if amount.bundles == 0 {
                held.by_node.remove(&node);
            }
        }
        if item.expiry <= OffsetDateTime::now_utc() {
            held.expired += 1;
        }
        self.changed.notify_waiters();
    }

    /// Whether a bundle may be handed to the agent, which is noted: nothing is being done with it.
    fn hand_out(&self, id: &Id) -> bool {
        let mut held = self.held();
        let is_idle = !held.busy.contains_key(id);
        if is_idle && let Some(item) = held.bundles.get_mut(id) {
            item.seen = self.changes.seen();
        }
        is_idle
    }

    /// Notes that a bundle waits for a route or an application from now on.
    fn waits(&self, id: &Id) {
        let seen = self.held().bundles.get(id).map(|item| item.seen);
        seen.into_iter().for_each(|seen| self.changes.waits(seen));
    }

    /// Bundles that are not handed out.
    fn busy(&self) -> usize {
        self.held().busy.len()
    }
}

/// How long a bundle without room waits until it is tried again at the latest.
const LOOK_AGAIN: Duration = Duration::from_millis(500);
/// What a bundle's blocks may add to its payload.
const OVERHEAD: u64 = 64 << 10;

fn add(amount: &mut Amount, bytes: u64) {
    amount.bundles += 1;
    amount.bytes += bytes;
}

fn take(amount: &mut Amount, bytes: u64) {
    amount.bundles = amount.bundles.saturating_sub(1);
    amount.bytes = amount.bytes.saturating_sub(bytes);
}

/// Bytes of the payload as it lies in the bundle.
pub(crate) fn payload_bytes(bundle: &Bundle) -> u64 {
    let payload = bundle.bundle.blocks.get(&1);
    payload.map_or(0, |block| block.payload_range().len() as u64)
}

impl Drop for Room<'_> {
    fn drop(&mut self) {
        take(&mut self.stock.held().coming, self.bytes);
    }
}

impl Drop for Busy {
    fn drop(&mut self) {
        let mut held = self.stock.held();
        let task = held.busy.remove(&self.id);
        // It was not sent. All searches for waiting bundles since then have passed it over.
        if task == Some(Task::Sending) && held.bundles.contains_key(&self.id) {
            self.stock.changes.again();
        }
    }
}

/// The agent's store of metadata, counted.
pub(crate) struct Counted {
    store: Arc<dyn MetadataStorage>,
    stock: Arc<Stock>,
    /// Bundles of a former life whose data were not found yet.
    unconfirmed: Mutex<HashSet<Id>>,
}

impl Counted {
    fn unconfirmed(&self) -> MutexGuard<'_, HashSet<Id>> {
        self.unconfirmed
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    /// Counts what goes through `store`.
    pub(crate) fn new(store: Arc<dyn MetadataStorage>, stock: Arc<Stock>) -> Arc<Self> {
        Arc::new(Self {
            store,
            stock,
            unconfirmed: Mutex::default(),
        })
    }
}

/// Bundles that a recovery asks for at a time: all of them.
const MOST_RECOVERED: usize = u32::MAX as usize;

/// Collects the names of bundles.
#[derive(Default)]
struct AllIds(Mutex<HashSet<Id>>);

#[async_trait]
impl Sender<Bundle> for AllIds {
    async fn send(&self, bundle: Bundle) -> std::result::Result<(), SendError<Bundle>> {
        let mut ids = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        ids.insert(bundle.bundle.id);
        Ok(())
    }
}

/// Passes on bundles with which nothing is being done.
struct Idle<'a> {
    stream: &'a dyn Sender<Bundle>,
    stock: &'a Stock,
}

#[async_trait]
impl Sender<Bundle> for Idle<'_> {
    async fn send(&self, bundle: Bundle) -> std::result::Result<(), SendError<Bundle>> {
        match self.stock.hand_out(&bundle.bundle.id) {
            true => self.stream.send(bundle).await,
            false => Ok(()),
        }
    }
}

#[async_trait]
impl MetadataStorage for Counted {
    async fn get(&self, id: &Id) -> Result<Option<Bundle>> {
        let attempt = || async {
            match self.store.get(id).await {
                // Another attempt would find the same.
                Err(error) if error.is::<serde_json::Error>() => {
                    tracing::error!(%id, %error, "what is known of a bundle cannot be read");
                    Ok(None)
                }
                got => got,
            }
        };
        Ok(until_done("find a bundle", attempt).await)
    }

    async fn insert(&self, bundle: &Bundle) -> Result<bool> {
        if is_refused() {
            return Ok(false);
        }
        let is_new = match self.store.insert(bundle).await {
            Ok(is_new) => is_new,
            Err(error) if refuse(&error) => false,
            Err(_) => until_done("note a bundle", || self.store.insert(bundle)).await,
        };
        if is_new {
            self.stock.insert(bundle);
        }
        Ok(is_new)
    }

    async fn replace(&self, bundle: &Bundle) -> Result<()> {
        until_done("note a change", || self.store.replace(bundle)).await;
        Ok(())
    }

    // The agent hands a bundle that no application took to the next one that registers, if that does not come before this is
    // written. As one that waits for a route, it is found by every search.
    async fn update_status(&self, bundle: &Bundle) -> Result<()> {
        if let BundleStatus::WaitingForService { .. } = bundle.metadata.status {
            let mut waiting = bundle.clone();
            waiting.metadata.status = BundleStatus::Waiting;
            until_done("note a status", || self.store.update_status(&waiting)).await;
        } else {
            until_done("note a status", || self.store.update_status(bundle)).await;
        }
        if let BundleStatus::WaitingForService { .. } | BundleStatus::Waiting =
            bundle.metadata.status
        {
            self.stock.waits(&bundle.bundle.id);
        }
        Ok(())
    }

    async fn tombstone(&self, id: &Id) -> Result<()> {
        until_done("remove a bundle", || self.store.tombstone(id)).await;
        self.stock.remove(id);
        Ok(())
    }

    // Version 0.6 of the SQLite store panics in its own recovery, at each start anew, when the data of a bundle are gone or those
    // of a removed one are still there. So what it knows is compared with the data here.
    async fn start_recovery(&self) {
        let all = AllIds::default();
        until_done("list its bundles", || async {
            self.store.poll_expiry(&all, MOST_RECOVERED).await?;
            self.store
                .poll_pending(&all, &BundleStatus::New, MOST_RECOVERED)
                .await
        })
        .await;
        *self.unconfirmed() = all.0.into_inner().unwrap_or_else(PoisonError::into_inner);
    }

    async fn confirm_exists(&self, id: &Id) -> Result<Option<BundleMetadata>> {
        self.unconfirmed().remove(id);
        let bundle = self.get(id).await?;
        Ok(bundle.map(|bundle| {
            self.stock.insert(&bundle);
            bundle.metadata
        }))
    }

    async fn remove_unconfirmed(&self, stream: &dyn Sender<Bundle>) -> Result<()> {
        let lost = std::mem::take(&mut *self.unconfirmed());
        for id in lost {
            if let Some(bundle) = self.get(&id).await? {
                tracing::warn!(%id, "the data of a bundle are gone");
                self.tombstone(&id).await?;
                // The agent reports the loss, if it still runs.
                let _ = stream.send(bundle).await;
            }
        }
        self.stock.recovered.notify_one();
        Ok(())
    }

    async fn reset_peer_queue(&self, peer: u32) -> Result<u64> {
        let reset = until_done("note a contact's end", || self.store.reset_peer_queue(peer)).await;
        if reset > 0 {
            self.stock.changes.again();
        }
        Ok(reset)
    }

    async fn poll_expiry(&self, stream: &dyn Sender<Bundle>, limit: usize) -> Result<()> {
        until_done("find what expires", || {
            self.store.poll_expiry(stream, limit)
        })
        .await;
        Ok(())
    }

    async fn poll_waiting(&self, stream: &dyn Sender<Bundle>) -> Result<()> {
        let stock = &*self.stock;
        let idle = Idle { stream, stock };
        until_done("find what waits", || self.store.poll_waiting(&idle)).await;
        Ok(())
    }

    async fn poll_service_waiting(&self, source: Eid, stream: &dyn Sender<Bundle>) -> Result<()> {
        let stock = &*self.stock;
        let idle = Idle { stream, stock };
        until_done("find what waits", || {
            self.store.poll_service_waiting(source.clone(), &idle)
        })
        .await;
        Ok(())
    }

    async fn poll_adu_fragments(
        &self,
        stream: &dyn Sender<Bundle>,
        status: &BundleStatus,
    ) -> Result<()> {
        until_done("find fragments", || {
            self.store.poll_adu_fragments(stream, status)
        })
        .await;
        Ok(())
    }

    async fn poll_pending(
        &self,
        stream: &dyn Sender<Bundle>,
        status: &BundleStatus,
        limit: usize,
    ) -> Result<()> {
        let stock = &*self.stock;
        // The agent begins to ask for bundles to route before it can route any, and panics. A recovery finds them.
        if !stock.is_begun.load(Ordering::SeqCst) {
            return Ok(());
        }
        // The first ones may all be busy.
        let limit = limit.saturating_add(stock.busy());
        let idle = Idle { stream, stock };
        until_done("find what is to be sent", || {
            self.store.poll_pending(&idle, status, limit)
        })
        .await;
        Ok(())
    }
}
