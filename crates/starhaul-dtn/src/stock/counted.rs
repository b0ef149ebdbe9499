//! The agent's store of metadata, wrapped.

use std::{
    collections::HashSet,
    io,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

use hardy_bpa::{
    async_trait,
    bundle::{Bundle, BundleMetadata, BundleStatus},
    storage::{BundleStorage, Error, MetadataStorage, Result},
    stream::{SendError, Sender},
};
use hardy_bpv7::{
    bundle::{Bundle as Parsed, Id},
    eid::Eid,
};

use super::{Stock, bundle_bytes, copies::Copies, payload_bytes};
use crate::{
    bundle_log::record::TooLong,
    names::Forgetful,
    priority::Class,
    reports,
    steady::{self, REFUSED, is_refused, refuse, send_back, until_done},
    unread::{self, Unread},
};

/// The agent's store of metadata, counted.
pub(crate) struct Counted {
    store: Arc<dyn Forgetful>,
    stock: Arc<Stock>,
    /// Bundles of a former life whose data were not found yet.
    unconfirmed: Mutex<HashSet<Id>>,
    /// Held while a fragment is noted, and its siblings are looked for.
    fragments: tokio::sync::Mutex<()>,
    copies: Copies,
    /// Data that are there and cannot be read.
    unread: Option<Arc<Unread>>,
    /// The data of bundles, where reports that nobody awaits end.
    data: Option<Arc<dyn BundleStorage>>,
}

impl Counted {
    fn unconfirmed(&self) -> MutexGuard<'_, HashSet<Id>> {
        self.unconfirmed
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    /// Notes a fragment that waits for others. Of two that came together the agent may have looked for each before the other was noted,
    /// and would not look again: the second one noted goes back to it.
    async fn note_fragment(&self, fragment: &Bundle, status: &BundleStatus) {
        let _alone = self.fragments.lock().await;
        until_done("note a fragment", || self.store.update_status(fragment)).await;
        let whole = fragment.bundle.id.fragment_info.as_ref();
        let whole = whole.map_or(u64::MAX, |info| info.total_adu_length);
        let here = until_done("find fragments", || async {
            let payloads = Payloads::default();
            self.store.poll_adu_fragments(&payloads, status).await?;
            Ok(payloads.0.into_inner())
        });
        if here.await >= whole {
            self.let_wait(fragment).await;
            self.stock.changes.again();
        }
    }

    /// Ends a report for an application that has left for ever. The agent would keep it until it expires, and look at it with all that waits.
    async fn end_report(&self, report: &Bundle) -> Result<()> {
        if let (Some(data), Some(name)) = (&self.data, data_name(report)) {
            until_done("remove a report", || data.delete(&name)).await;
        }
        self.tombstone(&report.bundle.id).await
    }

    /// Counts what goes through `store`.
    #[cfg(test)]
    pub(crate) fn new(
        store: Arc<dyn Forgetful>,
        stock: Arc<Stock>,
        unread: Option<Arc<Unread>>,
    ) -> Arc<Self> {
        Self::of(store, stock, unread, None)
    }

    /// Counts what goes through `store`, whose bundles have their `data` there; a bundle whose data are `unread` is not taken for one without
    /// data.
    pub(crate) fn over(
        store: Arc<dyn Forgetful>,
        stock: Arc<Stock>,
        unread: Option<Arc<Unread>>,
        data: Arc<dyn BundleStorage>,
    ) -> Arc<Self> {
        Self::of(store, stock, unread, Some(data))
    }

    fn of(
        store: Arc<dyn Forgetful>,
        stock: Arc<Stock>,
        unread: Option<Arc<Unread>>,
        data: Option<Arc<dyn BundleStorage>>,
    ) -> Arc<Self> {
        Arc::new(Self {
            store,
            stock,
            unconfirmed: Mutex::default(),
            fragments: tokio::sync::Mutex::default(),
            copies: Copies::default(),
            unread,
            data,
        })
    }

    /// Whether the data of a bundle are there, and could not be read at this start.
    fn is_unread(&self, bundle: &Bundle) -> bool {
        let name = data_name(bundle);
        let unread = self.unread.as_ref().zip(name);
        unread.is_some_and(|(unread, name)| unread.contains(&name))
    }

    /// Notes a bundle; whether it is new. If no store can note it, it is given up.
    async fn note(&self, bundle: &Bundle, is_given_up: &AtomicBool) -> bool {
        let attempt = || async {
            match self.store.insert(bundle).await {
                // The agent deletes its data then, as of a copy.
                Err(error) if is_final(&error) => {
                    tracing::error!(id = %bundle.bundle.id, %error, "a bundle cannot be stored, and is given up");
                    is_given_up.store(true, Ordering::Relaxed);
                    Ok(false)
                }
                inserted => inserted,
            }
        };
        match self.store.insert(bundle).await {
            Ok(is_new) => is_new,
            Err(error) if refuse(&error) => false,
            Err(_) => until_done("note a bundle", attempt).await,
        }
    }

    /// Notes a bundle for this node whose name another copy has, if that is being looked at, and turns out not to be what its source sent.
    async fn note_instead(&self, bundle: &Bundle, is_given_up: &AtomicBool) -> Result<bool> {
        let (id, began) = (&bundle.bundle.id, tokio::time::Instant::now());
        let mut place = None;
        loop {
            match self.get(id).await? {
                Some(held) if held.metadata.status == BundleStatus::New => {
                    place = place.or_else(|| self.copies.place(id));
                    if place.is_none() || began.elapsed() >= PATIENCE {
                        refuse(&"another copy of it is still being looked at");
                        return Ok(false);
                    }
                    tokio::time::sleep(LOOK_AGAIN).await;
                }
                Some(_) => return Ok(false),
                None => {
                    let is_new = self.note(bundle, is_given_up).await;
                    // It is gone: its name is kept, or this bundle has it now, or a third one.
                    if is_new || is_refused() || self.get(id).await?.is_none() {
                        return Ok(is_new);
                    }
                }
            }
        }
    }

    /// Notes that a bundle waits that the agent was about to send or to deliver.
    async fn let_wait(&self, bundle: &Bundle) {
        let mut waiting = bundle.clone();
        waiting.metadata.status = BundleStatus::Waiting;
        until_done("note a status", || self.store.update_status(&waiting)).await;
    }
}

/// The name of the data of a bundle, which the agent shows in its JSON only.
fn data_name(bundle: &Bundle) -> Option<String> {
    let metadata = serde_json::to_value(&bundle.metadata).ok()?;
    Some(metadata.get("storage_name")?.as_str()?.to_owned())
}

/// How long a copy of a bundle that is being looked at waits until it looks again, and until it stays with its sender.
const LOOK_AGAIN: Duration = Duration::from_millis(10);
const PATIENCE: Duration = Duration::from_secs(10);
/// Bundles that a recovery asks for at a time: all of them.
const MOST_RECOVERED: usize = u32::MAX as usize;

/// Whether another attempt to note a bundle would fail the same way.
fn is_final(error: &Error) -> bool {
    let read = error.downcast_ref::<io::Error>();
    error.is::<TooLong>()
        || error.is::<serde_json::Error>()
        || read.is_some_and(|error| error.kind() == io::ErrorKind::InvalidData)
}

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

/// Sums up the payloads of fragments.
#[derive(Default)]
struct Payloads(AtomicU64);

#[async_trait]
impl Sender<Bundle> for Payloads {
    async fn send(&self, bundle: Bundle) -> std::result::Result<(), SendError<Bundle>> {
        self.0.fetch_add(payload_bytes(&bundle), Ordering::Relaxed);
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
    async fn send(&self, mut bundle: Bundle) -> std::result::Result<(), SendError<Bundle>> {
        if !self.stock.is_begun.load(Ordering::SeqCst) {
            return Err(SendError(bundle));
        }
        // It may have come under other rules.
        let label = self.stock.priorities().label(&bundle.bundle.destination);
        bundle.metadata.writable.flow_label = label;
        self.stock.meet(&bundle);
        match self.stock.hand_out(&bundle.bundle.id) {
            true => self.stream.send(bundle).await,
            false => Ok(()),
        }
    }
}

/// Passes on such bundles of a class if they are for no application that takes no more now.
struct Wanted<'a>(Idle<'a>, Class);

#[async_trait]
impl Sender<Bundle> for Wanted<'_> {
    async fn send(&self, bundle: Bundle) -> std::result::Result<(), SendError<Bundle>> {
        let (stock, to) = (self.0.stock, &bundle.bundle.destination);
        // It is looked for again when the application has taken some of what it has.
        match stock.priorities().class(to) != self.1 || stock.is_full(to) {
            true => Ok(()),
            false => self.0.send(bundle).await,
        }
    }
}

/// Passes on such bundles as long as they live. The agent would pass over those that have expired, and ask for no more.
struct Living<'a> {
    idle: Idle<'a>,
    expired: Mutex<Vec<Bundle>>,
}

#[async_trait]
impl Sender<Bundle> for Living<'_> {
    async fn send(&self, bundle: Bundle) -> std::result::Result<(), SendError<Bundle>> {
        if !bundle.has_expired() {
            return self.idle.send(bundle).await;
        }
        let mut expired = self.expired.lock().unwrap_or_else(PoisonError::into_inner);
        expired.push(bundle);
        Ok(())
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
        let is_report = self.stock.is_report(bundle);
        // One whose data are not kept says nothing (`halves`).
        let is_void = || data_name(bundle).as_deref() == Some(REFUSED);
        if is_refused() || is_report && (unread::is_noted() || is_void()) {
            return Ok(false);
        }
        if steady::is_unreadable() {
            // The agent would drop it, and keep its name from a copy that is whole.
            return Ok(false);
        }
        let room = match is_report {
            true => self
                .stock
                .admit_report(bundle_bytes(bundle), Instant::now()),
            false => None,
        };
        if is_report && room.is_none() {
            return Ok(false);
        }
        // It would be put together in memory.
        let is_own = bundle
            .bundle
            .destination
            .to_node_id()
            .is_ok_and(|node| self.stock.is_own(&node));
        let whole = bundle
            .bundle
            .id
            .fragment_info
            .as_ref()
            .map(|info| info.total_adu_length);
        if is_own && whole.is_some_and(|bytes| bytes > self.stock.most_bundle_bytes()) {
            refuse(&"it is a part of more than max_bundle_bytes");
            return Ok(false);
        }
        let is_given_up = AtomicBool::new(false);
        let mut is_new = self.note(bundle, &is_given_up).await;
        // A recovery looks at one after the other: none would ever be done with another one.
        let is_known = !is_new && !is_refused() && !is_given_up.load(Ordering::Relaxed);
        if is_known && is_own && steady::is_taking() {
            is_new = self.note_instead(bundle, &is_given_up).await?;
        }
        let says = || self.stock.is_passed(bundle, steady::marks());
        if is_new {
            self.stock.insert(bundle, false);
            steady::stored(&bundle.bundle.id);
        } else if !is_refused() && self.stock.has_come_back(bundle, says()) {
            send_back();
        } else if !is_given_up.into_inner() {
            steady::known();
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
        if let BundleStatus::WaitingForService { service } = &bundle.metadata.status
            && bundle.bundle.flags.is_admin_record
            && reports::is_anonymous(service)
        {
            return self.end_report(bundle).await;
        }
        if let BundleStatus::WaitingForService { .. } = bundle.metadata.status {
            let mut waiting = bundle.clone();
            waiting.metadata.status = BundleStatus::Waiting;
            until_done("note a status", || self.store.update_status(&waiting)).await;
        } else if let status @ BundleStatus::AduFragment { .. } = &bundle.metadata.status {
            self.note_fragment(bundle, status).await;
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
        if unread::is_noted() && self.stock.has(id) {
            // Its name is enough for the log, which perhaps cannot read what is known of it either.
            let named = || Bundle {
                bundle: Parsed {
                    id: id.clone(),
                    ..Parsed::default()
                },
                metadata: BundleMetadata::default(),
            };
            let bundle = self.get(id).await?.unwrap_or_else(named);
            self.let_wait(&bundle).await;
            self.stock.put_aside(id);
            if id.fragment_info.is_none() {
                // A task of the agent ends with its bundle, unless that is one of the parts that it puts together.
                unread::end();
            }
            return Ok(());
        }
        // What is dropped as it comes, or is not what its source sent, leaves its name to another copy.
        let is_forgotten = steady::is_coming(id) || self.stock.unusable(id).is_some();
        let remove = || async {
            match is_forgotten {
                true => self.store.forget(id).await,
                false => self.store.tombstone(id).await,
            }
        };
        until_done("remove a bundle", remove).await;
        steady::gone(id);
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
            self.stock.insert(&bundle, true);
            bundle.metadata
        }))
    }

    async fn remove_unconfirmed(&self, stream: &dyn Sender<Bundle>) -> Result<()> {
        let lost = std::mem::take(&mut *self.unconfirmed());
        for id in lost {
            if let Some(bundle) = self.get(&id).await? {
                if self.is_unread(&bundle) {
                    self.stock.insert(&bundle, true);
                    self.let_wait(&bundle).await;
                    continue;
                }
                tracing::warn!(%id, "a bundle has no data: the node ended while it was removed, or a file is missing");
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
        let _search = stock.searches.begin();
        // What the agent gets first leaves first, whatever came first.
        for class in stock.priorities().classes() {
            let wanted = Wanted(Idle { stream, stock }, *class);
            until_done("find what waits", || self.store.poll_waiting(&wanted)).await;
        }
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
        let living = Living {
            idle: Idle { stream, stock },
            expired: Mutex::default(),
        };
        until_done("find what is to be sent", || {
            self.store.poll_pending(&living, status, limit)
        })
        .await;
        let expired = living.expired.into_inner();
        for mut bundle in expired.unwrap_or_else(PoisonError::into_inner) {
            // It is looked at with all that waits, and ends where it would leave.
            bundle.metadata.status = BundleStatus::Waiting;
            until_done("note a status", || self.store.update_status(&bundle)).await;
            stock.changes.again();
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
