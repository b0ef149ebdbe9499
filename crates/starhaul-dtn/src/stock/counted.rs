//! The agent's store of metadata, wrapped.

use std::{
    collections::HashSet,
    io,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::Duration,
};

use hardy_bpa::{
    async_trait,
    bundle::{Bundle, BundleMetadata, BundleStatus},
    storage::{Error, MetadataStorage, Result},
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
    steady::{self, is_refused, refuse, send_back, until_done},
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

    /// Whether this node has made a bundle to report of another one: nothing has let it in, as the gate and applications do others.
    fn is_report(&self, bundle: &Bundle) -> bool {
        let source = bundle.bundle.id.source.to_node_id();
        bundle.bundle.flags.is_admin_record
            && bundle.metadata.read_only.ingress_cla.is_none()
            && source.is_ok_and(|node| self.stock.is_own(&node))
    }

    /// Counts what goes through `store`; a bundle whose data are `unread` is not taken for one without data.
    pub(crate) fn new(
        store: Arc<dyn Forgetful>,
        stock: Arc<Stock>,
        unread: Option<Arc<Unread>>,
    ) -> Arc<Self> {
        Arc::new(Self {
            store,
            stock,
            unconfirmed: Mutex::default(),
            fragments: tokio::sync::Mutex::default(),
            copies: Copies::default(),
            unread,
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
    async fn send(&self, bundle: Bundle) -> std::result::Result<(), SendError<Bundle>> {
        if !self.stock.is_begun.load(Ordering::SeqCst) {
            return Err(SendError(bundle));
        }
        match self.stock.hand_out(&bundle.bundle.id) {
            true => self.stream.send(bundle).await,
            false => Ok(()),
        }
    }
}

/// Passes on such bundles if they are for no application that takes no more now.
struct Wanted<'a>(Idle<'a>);

#[async_trait]
impl Sender<Bundle> for Wanted<'_> {
    async fn send(&self, bundle: Bundle) -> std::result::Result<(), SendError<Bundle>> {
        // It is looked for again when the application has taken some of what it has.
        match self.0.stock.is_full(&bundle.bundle.destination) {
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
        if is_refused() || unread::is_noted() && self.is_report(bundle) {
            return Ok(false);
        }
        if steady::is_unreadable() {
            // The agent would drop it, and keep its name from a copy that is whole.
            return Ok(false);
        }
        let room = self
            .is_report(bundle)
            .then(|| self.stock.admit(bundle_bytes(bundle)));
        let Ok(_room) = room.transpose() else {
            return Ok(false);
        };
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
        let wanted = Wanted(Idle { stream, stock });
        until_done("find what waits", || self.store.poll_waiting(&wanted)).await;
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
mod tests {
    use hardy_bpv7::{
        builder::Builder, bundle::Flags, creation_timestamp::CreationTimestamp,
        status_report::ReasonCode,
    };

    use super::*;
    use crate::{
        bundle_log::BundleLog,
        config::Storage,
        stock::{copies::MOST_OF_ONE, memory::Metadata},
    };

    #[tokio::test]
    async fn a_bundle_that_no_store_can_note_is_given_up() {
        let folder = tempfile::tempdir().unwrap();
        let limits = Storage {
            folder: Some(folder.path().to_owned()),
            ..Storage::small()
        };
        let log = BundleLog::open(folder.path(), &limits, ()).unwrap();
        let counted = Counted::new(
            Arc::new(log),
            Stock::new("ipn:3.0".parse().unwrap(), limits),
            None,
        );
        let builder = Builder::new("ipn:1.5".parse().unwrap(), "ipn:2.5".parse().unwrap());
        let builder = builder.with_payload(b"x".as_slice().into());
        let mut bundle = Bundle {
            bundle: builder.build(CreationTimestamp::now()).unwrap().0,
            metadata: BundleMetadata::default(),
        };
        // What is known of it is longer than a record may be.
        let long = "a".repeat(20 << 20);
        bundle.bundle.report_to = format!("dtn://{long}/a").parse().unwrap();
        let inserting = counted.insert(&bundle);
        let inserted = tokio::time::timeout(Duration::from_secs(30), inserting).await;
        let is_new = inserted.expect("it is tried for ever").unwrap();
        assert!(!is_new);
        assert_eq!(counted.stock.total().bundles, 0);
    }

    fn counted(limits: Storage) -> Arc<Counted> {
        let stock = Stock::new("ipn:3.0".parse().unwrap(), limits);
        stock.begin_life();
        Counted::new(Arc::new(Metadata::new(10)), stock, None)
    }

    fn bundle(builder: Builder<'_>) -> Bundle {
        let builder = builder.with_payload(b"x".as_slice().into());
        Bundle {
            bundle: builder.build(CreationTimestamp::now()).unwrap().0,
            metadata: BundleMetadata::default(),
        }
    }

    #[tokio::test]
    async fn reports_beyond_the_limits_are_not_stored_and_are_counted() {
        let counted = counted(Storage {
            bundles: 2,
            ..Storage::small()
        });
        let report = || {
            let builder = Builder::new("ipn:3.0".parse().unwrap(), "ipn:2.0".parse().unwrap());
            bundle(builder.with_flags(Flags {
                is_admin_record: true,
                ..Flags::default()
            }))
        };
        for is_stored in [true, true, false] {
            assert_eq!(counted.insert(&report()).await.unwrap(), is_stored);
        }
        let stock = &counted.stock;
        assert_eq!((stock.total().bundles, stock.ended().refused), (2, 1));
        // What a neighbour gives was let in by the gate.
        let builder = Builder::new("ipn:1.5".parse().unwrap(), "ipn:2.5".parse().unwrap());
        assert!(counted.insert(&bundle(builder)).await.unwrap());
    }

    #[tokio::test]
    async fn a_search_passes_over_what_is_for_an_application_that_takes_no_more() {
        let counted = counted(Storage::small());
        let to = ["ipn:3.5", "ipn:3.6"].map(|to| to.parse::<Eid>().unwrap());
        for to in &to {
            let mut waiting = bundle(Builder::new("ipn:1.5".parse().unwrap(), to.clone()));
            waiting.metadata.status = BundleStatus::Waiting;
            assert!(counted.insert(&waiting).await.unwrap());
        }
        for (is_full, found) in [(true, 1), (false, 2)] {
            counted.stock.set_full(&to[0], is_full);
            let all = AllIds::default();
            counted.poll_waiting(&all).await.unwrap();
            assert_eq!(all.0.into_inner().unwrap().len(), found, "{is_full}");
        }
    }

    /// A node without a clock counts its bundles anew when it starts, but a copy of one may live longer.
    #[tokio::test]
    async fn the_name_of_a_bundle_is_free_again_when_its_lifetime_is_over() {
        let folder = tempfile::tempdir().unwrap();
        let open = || Arc::new(BundleLog::open(folder.path(), &Storage::small(), ()).unwrap());
        let log = open();
        let stores: [Arc<dyn MetadataStorage>; 2] = [log.clone(), Arc::new(Metadata::new(10))];
        let named = |lifetime| {
            let builder = Builder::new("ipn:1.5".parse().unwrap(), "ipn:2.5".parse().unwrap());
            bundle(builder.with_lifetime(lifetime))
        };
        let (short, long) = (
            named(Duration::from_millis(1)),
            named(Duration::from_secs(3600)),
        );
        // It expired a while ago, and its name is kept for as long as it lived, or for an hour.
        let without_clock = |number, lifetime: u64, expired: u64| {
            let builder = Builder::new("ipn:1.5".parse().unwrap(), "ipn:2.5".parse().unwrap());
            let builder = builder.with_lifetime(Duration::from_secs(lifetime));
            let builder = builder.with_payload(b"x".as_slice().into());
            let stamp = CreationTimestamp::from_parts(None, number);
            let mut bundle = Bundle {
                bundle: builder.build(stamp).unwrap().0,
                metadata: BundleMetadata::default(),
            };
            let ago = Duration::from_secs(lifetime + expired);
            bundle.metadata.read_only.received_at -= ago;
            bundle
        };
        let kept = [without_clock(7, 600, 300), without_clock(8, 100_000, 1800)];
        let free = [without_clock(9, 600, 900), without_clock(10, 100_000, 5400)];
        for store in &stores {
            for bundle in [&short, &long].into_iter().chain(&kept).chain(&free) {
                assert!(store.insert(bundle).await.unwrap());
                store.tombstone(&bundle.bundle.id).await.unwrap();
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
            assert!(store.insert(&short).await.unwrap());
            assert!(!store.insert(&long).await.unwrap());
            for bundle in &kept {
                assert!(!store.insert(bundle).await.unwrap());
            }
            for bundle in &free {
                assert!(store.insert(bundle).await.unwrap());
            }
        }
        // The next life finds the later one.
        log.close();
        let log = open();
        assert!(log.get(&short.bundle.id).await.unwrap().is_some());
        assert!(log.get(&long.bundle.id).await.unwrap().is_none());
    }

    /// Two bundles of one name: a forged one, and what its source sent.
    fn copies(to: &str) -> [Bundle; 2] {
        let builder = Builder::new("ipn:1.5".parse().unwrap(), to.parse().unwrap());
        let forged = bundle(builder.with_lifetime(Duration::from_secs(3600)));
        let mut good = forged.clone();
        good.metadata.writable.flow_label = Some(7);
        [forged, good]
    }

    #[tokio::test]
    async fn a_bundle_that_is_forgotten_leaves_its_name_to_another() {
        let folder = tempfile::tempdir().unwrap();
        let open = || Arc::new(BundleLog::open(folder.path(), &Storage::small(), ()).unwrap());
        let log = open();
        let stores: [Arc<dyn Forgetful>; 2] = [log.clone(), Arc::new(Metadata::new(10))];
        let ([forged, good], [lost, _]) = (copies("ipn:3.5"), copies("ipn:3.5"));
        let (id, other) = (&good.bundle.id, &lost.bundle.id);
        for store in &stores {
            assert!(store.insert(&lost).await.unwrap());
            assert!(store.insert(&forged).await.unwrap());
            assert!(!store.insert(&good).await.unwrap());
            store.forget(other).await.unwrap();
            store.forget(id).await.unwrap();
            assert!(store.get(id).await.unwrap().is_none());
            assert!(store.insert(&good).await.unwrap());
            assert!(!store.insert(&forged).await.unwrap());
        }
        // So it is in the next life.
        log.close();
        let log = open();
        let found = log.get(id).await.unwrap().unwrap();
        assert_eq!(found.metadata.writable.flow_label, Some(7));
        assert!(log.get(other).await.unwrap().is_none());
        assert!(log.insert(&lost).await.unwrap());
    }

    /// As the agent gives it to the store when it comes.
    async fn arrives(
        counted: Arc<Counted>,
        bundle: Bundle,
    ) -> std::result::Result<bool, steady::Fault> {
        let taking = async {
            steady::saved();
            counted.insert(&bundle).await.unwrap()
        };
        steady::accept(taking).await
    }

    #[tokio::test]
    async fn a_copy_waits_until_it_is_known_what_the_first_is() {
        for is_forged in [true, false] {
            let counted = counted(Storage::small());
            let [forged, good] = copies("ipn:3.5");
            let id = good.bundle.id.clone();
            assert_eq!(arrives(counted.clone(), forged.clone()).await, Ok(true));
            let copy = arrives(counted.clone(), good);
            tokio::pin!(copy);
            let early = tokio::time::timeout(Duration::from_millis(50), &mut copy);
            assert!(early.await.is_err(), "the first is still being looked at");
            if is_forged {
                let reason = ReasonCode::FailedSecurityOperation;
                counted.stock.set_unusable(&id, reason);
                counted.tombstone(&id).await.unwrap();
            } else {
                let mut known = forged;
                known.metadata.status = BundleStatus::Dispatching;
                counted.update_status(&known).await.unwrap();
            }
            assert_eq!(copy.await, Ok(is_forged));
            assert_eq!(counted.stock.total().bundles, 1);
        }
    }

    /// A neighbour that sends the same bundle hundreds of times while the first is being looked at would have all others wait with them.
    #[tokio::test]
    async fn few_copies_wait_for_the_first() {
        let counted = counted(Storage::small());
        let [first, copy] = copies("ipn:3.5");
        assert_eq!(arrives(counted.clone(), first.clone()).await, Ok(true));
        let arriving = |_| tokio::spawn(arrives(counted.clone(), copy.clone()));
        let waiting: Vec<_> = (0..MOST_OF_ONE).map(arriving).collect();
        while counted.copies.count() < MOST_OF_ONE {
            tokio::task::yield_now().await;
        }
        for _ in 0..100 {
            let one_more = arrives(counted.clone(), copy.clone());
            let refused = tokio::time::timeout(PATIENCE / 2, one_more).await;
            let refused = refused.expect("it waits, too");
            assert!(matches!(refused, Err(steady::Fault::NotStored(_))));
        }
        let mut known = first;
        known.metadata.status = BundleStatus::Dispatching;
        counted.update_status(&known).await.unwrap();
        for copy in waiting {
            assert_eq!(copy.await.unwrap(), Ok(false));
        }
        assert_eq!(counted.copies.count(), 0, "no place is left behind");
    }

    /// The agent notes the name of a bundle that it cannot read, and drops it.
    #[tokio::test]
    async fn a_bundle_that_cannot_be_read_does_not_take_the_name_of_one_that_can() {
        for to in ["ipn:2.5", "ipn:3.5"] {
            let counted = counted(Storage::small());
            let [unreadable, good] = copies(to);
            let taking = steady::accept(counted.insert(&unreadable)).await;
            assert!(!taking.unwrap().unwrap());
            assert_eq!(arrives(counted.clone(), good).await, Ok(true), "{to}");
        }
    }

    /// Too many hops over one way say nothing of a copy that comes over another.
    #[tokio::test]
    async fn a_bundle_that_is_dropped_as_it_comes_leaves_its_name_to_another() {
        let counted = counted(Storage::small());
        let [dropped, good] = copies("ipn:2.5");
        let taking = async {
            steady::saved();
            assert!(counted.insert(&dropped).await.unwrap());
            counted.tombstone(&dropped.bundle.id).await.unwrap();
        };
        steady::accept(taking).await.unwrap();
        assert_eq!(arrives(counted.clone(), good.clone()).await, Ok(true));
        // One that was sent on or delivered keeps it.
        counted.tombstone(&good.bundle.id).await.unwrap();
        assert_eq!(arrives(counted.clone(), good).await, Ok(false));
    }
}
