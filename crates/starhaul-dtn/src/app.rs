//! Applications of the node: those on the control socket, and the one that sends back what it gets.

use std::{
    borrow::Cow,
    sync::{
        Arc, OnceLock,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    time::{Duration, Instant},
};

use hardy_bpa::{
    Bytes, async_trait,
    services::{self, Service, ServiceSink, StatusNotify},
};
use hardy_bpv7::{
    bpsec::no_keys,
    builder::Builder,
    bundle::{Bundle, Flags, Id, ParsedBundle},
    creation_timestamp::CreationTimestamp,
    eid::{self, Eid},
    hop_info::HopInfo,
    status_report::ReasonCode,
};
use starhaul_dtn_client::{Error, control::Report};
use starhaul_log::Seldom;
use time::OffsetDateTime;
use tokio::sync::{
    Semaphore,
    mpsc::{self, error::TrySendError},
    oneshot,
};

use crate::{
    checksum,
    journal::Journal,
    payload::Payload,
    plan::Moment,
    reports,
    schedule::Schedule,
    security::{Keys, Refused},
    steady,
    stock::{Stock, Task, grace},
};

/// Hops after which a bundle that goes in circles is dropped (RFC 9171 §4.4.3).
const MOST_HOPS: u64 = 64;
/// How long an application may take to acknowledge a bundle.
const PATIENCE: Duration = Duration::from_secs(30);
/// Greatest number of applications on the control socket.
pub(crate) const MOST_APPLICATIONS: usize = 64;
/// Bundles that may be with each application at a time, whatever the others have.
const OWN: usize = 4;
/// Bundles beyond these that may be with all applications together.
const SHARED: usize = 256;
/// Bundles that are with applications at a time; one more endpoint is the echo.
pub(crate) const MOST_DELIVERING: usize = (MOST_APPLICATIONS + 1) * OWN + SHARED;
/// Attempts to find a creation timestamp that no bundle of this source has.
const ATTEMPTS: usize = 16;

/// What applications of a node share.
#[derive(Debug)]
pub struct Desk {
    /// To protect and to open payloads.
    pub keys: Arc<Keys>,
    /// The bundles that were acknowledged.
    pub journal: Journal,
    /// Whether there is room for more, and which bundles are with an application now.
    pub stock: Arc<Stock>,
    /// Permits for bundles that are being delivered, for whichever application asks first.
    shared: Semaphore,
    /// Of bundles that are not what they say.
    log: Seldom,
    /// Of bundles whose key is not here.
    closed: Seldom,
    /// Of reports that an application does not take.
    untaken: Seldom,
}

impl Desk {
    /// A desk at which no application is registered yet.
    pub(crate) fn new(keys: Arc<Keys>, journal: Journal, stock: Arc<Stock>) -> Self {
        let shared = Semaphore::new(SHARED);
        Self {
            keys,
            journal,
            stock,
            shared,
            log: Seldom::default(),
            closed: Seldom::default(),
            untaken: Seldom::default(),
        }
    }
}

/// A bundle for an application.
#[derive(Debug)]
pub struct Delivery {
    /// The bundle's name, unique among all bundles.
    pub id: String,
    /// The endpoint that sent it.
    pub source: Eid,
    /// Its payload, verified and decrypted.
    pub payload: Bytes,
    /// Until when its name is kept, once it is acknowledged: when it has expired, and its copies, too.
    pub kept_until: Moment,
    /// Told when the application has acknowledged it; dropped when it will not.
    pub acknowledged: oneshot::Sender<()>,
}

/// An endpoint of the node.
pub struct App {
    desk: Arc<Desk>,
    deliveries: Option<mpsc::Sender<Delivery>>,
    reports: Option<mpsc::Sender<Report>>,
    /// Whether one of its bundles has asked for reports: other applications may not know what they are.
    has_asked: AtomicBool,
    registered: OnceLock<(Eid, Box<dyn ServiceSink>)>,
    /// Permits for bundles that are being delivered, for this application alone.
    own: Semaphore,
    /// How many are being delivered.
    delivering: AtomicUsize,
    /// How many were when another found no permit, and waits; zero if none does.
    refused_at: AtomicUsize,
    /// Without permits; closed when the endpoint is given up, so that no delivery waits for it.
    end: Semaphore,
}

impl App {
    /// An endpoint whose bundles go to `deliveries`.
    pub fn new(desk: Arc<Desk>, deliveries: mpsc::Sender<Delivery>) -> Arc<Self> {
        Self::of(desk, Some(deliveries), None)
    }

    /// The same; what nodes report of its bundles goes to `reports`, if these have asked for it.
    pub(crate) fn reporting(
        desk: Arc<Desk>,
        deliveries: mpsc::Sender<Delivery>,
        reports: mpsc::Sender<Report>,
    ) -> Arc<Self> {
        Self::of(desk, Some(deliveries), Some(reports))
    }

    /// An endpoint that sends back what it gets.
    pub fn echo(desk: Arc<Desk>) -> Arc<Self> {
        Self::of(desk, None, None)
    }

    fn of(
        desk: Arc<Desk>,
        deliveries: Option<mpsc::Sender<Delivery>>,
        reports: Option<mpsc::Sender<Report>>,
    ) -> Arc<Self> {
        Arc::new(Self {
            desk,
            deliveries,
            reports,
            has_asked: AtomicBool::new(false),
            registered: OnceLock::new(),
            own: Semaphore::new(OWN),
            delivering: AtomicUsize::new(0),
            refused_at: AtomicUsize::new(0),
            end: Semaphore::new(0),
        })
    }

    /// Sends a copy of a payload, and returns the name of its bundle when it is stored.
    ///
    /// # Errors
    /// [`Error::Full`], [`Error::NotNow`] and [`Error::Refused`].
    pub async fn send(&self, to: Eid, payload: &[u8], lifetime: Duration) -> Result<String, Error> {
        self.send_prepared(to, Payload::of(payload), lifetime, false)
            .await
    }

    /// Sends a payload from where it is, and returns the name of its bundle when it is stored. The bundle `asks` for reports of its delivery and
    /// of its deletion, or for none.
    ///
    /// # Errors
    /// As [`App::send`].
    pub(crate) async fn send_prepared(
        &self,
        to: Eid,
        mut payload: Payload,
        lifetime: Duration,
        asks: bool,
    ) -> Result<String, Error> {
        let registered = self.registered.get();
        let (source, sink) =
            registered.ok_or_else(|| Error::NotNow("the endpoint is not registered".to_owned()))?;
        let to = expanded(to, source)?;
        let bytes = payload.bytes().len() as u64;
        let _room = self.desk.stock.admit(bytes)?;
        self.has_asked.fetch_or(asks, Ordering::SeqCst);
        for _ in 0..ATTEMPTS {
            let data = new_bundle((source, &to), &mut payload, lifetime, &self.desk.keys, asks);
            let data = data.map_err(Error::Refused)?;
            match steady::accept(sink.send(data)).await {
                Err(fault) => {
                    self.desk.stock.refused();
                    let reason = format!("the bundle cannot be stored: {fault}");
                    return Err(Error::NotNow(reason));
                }
                Ok(Ok(id)) => return Ok(id.to_key()),
                Ok(Err(services::Error::DuplicateBundle)) => {}
                Ok(Err(error @ services::Error::Disconnected)) => {
                    return Err(Error::NotNow(error.to_string()));
                }
                Ok(Err(error)) => return Err(Error::Refused(error.to_string())),
            }
        }
        let reason = "no creation timestamp is free: send more slowly";
        Err(Error::NotNow(reason.to_owned()))
    }

    /// Gives the endpoint up; its bundles wait for the next one of the name.
    pub async fn close(&self) {
        if let Some((_, sink)) = self.registered.get() {
            let _change = self.desk.stock.changes.begin();
            sink.unregister().await;
        }
    }

    async fn receive(&self, data: &Bytes, expiry: OffsetDateTime) -> services::Result<()> {
        let (bundle, payload) = match self.desk.keys.open(data) {
            Ok(opened) => opened,
            // Its key may be configured before it expires.
            Err(error @ Refused::NoKey) => {
                if let Some(others) = self.desk.closed.is_due(Instant::now()) {
                    tracing::warn!(%error, others, "a bundle for an application waits for its key");
                }
                return Err(internal(&error));
            }
            Err(error) => {
                if let Some(others) = self.desk.log.is_due(Instant::now()) {
                    tracing::warn!(%error, others, "a bundle for an application is dropped");
                }
                // As it is handed out again, it ends (`filters`): what is taken here counts as delivered.
                self.set_unusable(data, &error);
                return Err(internal(&error));
            }
        };
        let changes = &self.desk.stock.changes;
        let permit = self.own.try_acquire();
        let Ok(permit) = permit.or_else(|_| self.desk.shared.try_acquire()) else {
            // Before it is noted that one waits: the delivery that sees that takes this back.
            self.set_full(true);
            let delivering = self.delivering.load(Ordering::SeqCst);
            self.refused_at
                .fetch_max(delivering.max(1), Ordering::SeqCst);
            // All may have ended meanwhile, and none sees that this one waits.
            if self.delivering.load(Ordering::SeqCst) == 0 {
                self.set_full(false);
                changes.again();
            }
            return Err(services::Error::Disconnected);
        };
        self.delivering.fetch_add(1, Ordering::SeqCst);
        let taken = self.take(&bundle, payload, expiry).await;
        drop(permit);
        let left = self.delivering.fetch_sub(1, Ordering::SeqCst) - 1;
        match &taken {
            Err(_) => {
                self.set_full(false);
                changes.again();
            }
            Ok(()) => {
                // Each time costs a search of the store.
                let has_room = left * 2 <= self.refused_at.load(Ordering::SeqCst);
                if has_room && self.refused_at.swap(0, Ordering::SeqCst) > 0 {
                    self.set_full(false);
                    changes.at_once();
                }
            }
        }
        taken
    }

    /// Notes why a bundle cannot be delivered to any application.
    fn set_unusable(&self, data: &Bytes, error: &Refused) {
        let reason = self.desk.keys.reason(error);
        // The agent has parsed it without keys, too.
        if let Ok(parsed) = ParsedBundle::parse(data, no_keys) {
            let stock = &self.desk.stock;
            stock.set_unusable(&parsed.bundle.id, reason);
            stock.changes.again();
        }
    }

    /// Notes whether there are permits for more bundles. While there are none, no search reads what waits for this endpoint.
    fn set_full(&self, is_full: bool) {
        if let Some((endpoint, _)) = self.registered.get() {
            self.desk.stock.set_full(endpoint, is_full);
        }
    }

    async fn take(
        &self,
        bundle: &Bundle,
        payload: Bytes,
        expiry: OffsetDateTime,
    ) -> services::Result<()> {
        // The agent may hand out a bundle a second time before it was acknowledged once.
        let Some(_busy) = self.desk.stock.begin(&bundle.id, Task::Delivering) else {
            return Err(services::Error::Disconnected);
        };
        let id = bundle.id.to_key();
        if self.desk.journal.contains(&id, Schedule::now()) {
            return Ok(());
        }
        let Some(deliveries) = &self.deliveries else {
            return self.answer(bundle, &payload, expiry).await;
        };
        let delivery = deliver(deliveries, bundle, id.clone(), payload, expiry);
        let taken = tokio::select! {
            delivered = tokio::time::timeout(PATIENCE, delivery) => {
                // It waits for another attempt, or for the next application at this endpoint.
                delivered.unwrap_or(Err(services::Error::Disconnected))
            }
            _ = self.end.acquire() => Err(services::Error::Disconnected),
        };
        // The application may have left as soon as it was told that its acknowledgement counts.
        let is_acknowledged = || self.desk.journal.contains(&id, Schedule::now());
        taken.or_else(|error| match is_acknowledged() {
            true => Ok(()),
            false => Err(error),
        })
    }

    async fn answer(
        &self,
        bundle: &Bundle,
        payload: &[u8],
        expiry: OffsetDateTime,
    ) -> services::Result<()> {
        // Two that answer each other would never end; others that echo end with the lifetime of the first request.
        let left = expiry - OffsetDateTime::now_utc();
        let left =
            u64::try_from(left.whole_milliseconds()).map_or(Duration::ZERO, Duration::from_millis);
        let is_from_echo = self
            .registered
            .get()
            .is_some_and(|(own, _)| own.service() == bundle.id.source.service());
        if !bundle.id.source.is_null() && !is_from_echo && !left.is_zero() {
            let lifetime = left.min(bundle.lifetime);
            let sent = self.send(bundle.id.source.clone(), payload, lifetime).await;
            sent.inspect_err(|error| tracing::warn!(%error, "no echo"))
                .ok();
        }
        Ok(())
    }
}

async fn deliver(
    to: &mpsc::Sender<Delivery>,
    bundle: &Bundle,
    id: String,
    payload: Bytes,
    expiry: OffsetDateTime,
) -> services::Result<()> {
    let (acknowledged, answer) = oneshot::channel();
    let milliseconds = u64::try_from(expiry.unix_timestamp_nanos() / 1_000_000).unwrap_or(0);
    let grace = grace(&bundle.id, bundle.lifetime);
    let delivery = Delivery {
        id,
        source: bundle.id.source.clone(),
        payload,
        kept_until: Moment(Duration::from_millis(milliseconds)).plus(grace),
        acknowledged,
    };
    to.send(delivery)
        .await
        .map_err(|_| services::Error::Disconnected)?;
    answer.await.map_err(|_| services::Error::Disconnected)
}

/// An endpoint of the local node (`ipn:!.7`) with the number of the node that has the endpoint `own`. The agent takes no other to be here.
fn expanded(to: Eid, own: &Eid) -> Result<Eid, Error> {
    let Eid::LocalNode(service) = to else {
        return Ok(to);
    };
    let node = own.to_node_id();
    let here = node.and_then(|node| Eid::try_from((node, eid::Service::Ipn(service))));
    here.map_err(|_| Error::Refused(format!("{to}: this node has no number, write its name")))
}

fn internal(error: &Refused) -> services::Error {
    services::Error::Internal(error.clone().into())
}

fn new_bundle(
    (source, to): (&Eid, &Eid),
    payload: &mut Payload,
    lifetime: Duration,
    keys: &Keys,
    asks: bool,
) -> Result<Bytes, String> {
    let mut builder = Builder::new(source.clone(), to.clone());
    if asks {
        // The agent hears reports at its own endpoint, and knows whose bundles they are of.
        let node = source.to_node_id().map_err(|error| error.to_string())?;
        let flags = Flags {
            delivery_report_requested: true,
            delete_report_requested: true,
            ..Flags::default()
        };
        builder = builder.with_flags(flags).with_report_to(node.into());
    }
    let builder = builder.with_lifetime(lifetime).with_hop_count(&HopInfo {
        limit: MOST_HOPS,
        count: 0,
    });
    let stamp = CreationTimestamp::now();
    if !keys.protects() {
        return checksum::build(builder, payload, stamp);
    }
    let builder = builder.with_payload(Cow::Borrowed(payload.bytes()));
    let built = builder.build(stamp);
    let (bundle, data) = built.map_err(|error| error.to_string())?;
    keys.protect(bundle, data, source)
        .map(|data| Bytes::from(data.into_vec()))
}

#[async_trait]
impl Service for App {
    async fn on_register(&self, endpoint: &Eid, sink: Box<dyn ServiceSink>) {
        // It is registered once.
        let _ = self.registered.set((endpoint.clone(), sink));
    }

    async fn on_unregister(&self) {
        self.end.close();
    }

    async fn on_receive(&self, data: Bytes, expiry: OffsetDateTime) -> services::Result<()> {
        self.receive(&data, expiry).await
    }

    async fn on_status_notify(
        &self,
        id: &Id,
        from: &Eid,
        kind: StatusNotify,
        reason: ReasonCode,
        _: Option<OffsetDateTime>,
    ) {
        let has_asked = self.has_asked.load(Ordering::SeqCst);
        let Some(taker) = self.reports.as_ref().filter(|_| has_asked) else {
            return;
        };
        // The agent would wait with all else.
        let taken = taker.try_send(reports::told(id, from, kind, reason));
        if let Err(TrySendError::Full(_)) = taken
            && let Some(others) = self.desk.untaken.is_due(Instant::now())
        {
            tracing::warn!(
                others,
                "an application does not read its status reports, and gets no more"
            );
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Storage;

    fn desk() -> Arc<Desk> {
        let journal = Journal::open(None, true, Schedule::now()).unwrap();
        Arc::new(Desk::new(
            Arc::new(Keys::default()),
            journal,
            Stock::new("ipn:1.0".parse().unwrap(), Storage::small()),
        ))
    }

    #[tokio::test]
    async fn what_an_application_acknowledged_counts_although_it_left_at_once() {
        for is_acknowledged in [false, true] {
            let desk = desk();
            let (deliveries, mut delivered) = mpsc::channel(1);
            let app = App::new(desk.clone(), deliveries);
            let (from, to) = ("ipn:2.1".parse().unwrap(), "ipn:1.50".parse().unwrap());
            let lifetime = Duration::from_secs(60);
            let mut payload = Payload::of(b"content");
            let keys = Keys::default();
            let data = new_bundle((&from, &to), &mut payload, lifetime, &keys, false).unwrap();
            let receiving = tokio::spawn({
                let app = app.clone();
                async move {
                    app.on_receive(data, OffsetDateTime::now_utc() + lifetime)
                        .await
                }
            });
            let delivery = delivered.recv().await.unwrap();
            if is_acknowledged {
                let journal = &desk.journal;
                journal
                    .record(&delivery.id, delivery.kept_until, Schedule::now())
                    .unwrap();
            }
            // The agent may hear of the end before it hears of the acknowledgement.
            app.on_unregister().await;
            let taken = receiving.await.unwrap();
            assert_eq!(taken.is_ok(), is_acknowledged);
        }
    }

    /// A sink that takes nothing.
    struct Nowhere;

    #[async_trait]
    impl ServiceSink for Nowhere {
        async fn unregister(&self) {}

        async fn send(&self, _: Bytes) -> services::Result<Id> {
            Err(services::Error::Disconnected)
        }

        async fn cancel(&self, _: &Id) -> services::Result<bool> {
            Ok(false)
        }
    }

    /// Each search would read all that waits for it.
    #[tokio::test]
    async fn an_application_that_takes_no_more_is_passed_over_until_it_has_taken_half() {
        let desk = desk();
        let (deliveries, mut delivered) = mpsc::channel(OWN + SHARED);
        let app = App::new(desk.clone(), deliveries);
        let (from, to): (Eid, Eid) = ("ipn:2.1".parse().unwrap(), "ipn:1.50".parse().unwrap());
        app.on_register(&to, Box::new(Nowhere)).await;
        let lifetime = Duration::from_secs(60);
        let expiry = OffsetDateTime::now_utc() + lifetime;
        let receive = |number: usize| {
            let (app, mut payload) = (app.clone(), Payload::of(&number.to_be_bytes()));
            let keys = Keys::default();
            let data = new_bundle((&from, &to), &mut payload, lifetime, &keys, false).unwrap();
            tokio::spawn(async move { app.on_receive(data, expiry).await })
        };
        let mut receiving: Vec<_> = (0..OWN + SHARED).map(receive).collect();
        let mut with_it = Vec::new();
        for _ in 0..OWN + SHARED {
            with_it.push(delivered.recv().await.unwrap());
        }
        assert!(!desk.stock.is_full(&to));
        assert!(receive(OWN + SHARED).await.unwrap().is_err());
        assert!(desk.stock.is_full(&to));
        // It has more than half of them still.
        let mut take = |count: usize| {
            let taken: Vec<_> = with_it.drain(..count).collect();
            for delivery in taken {
                delivery.acknowledged.send(()).unwrap();
            }
        };
        take(OWN);
        while receiving
            .iter()
            .filter(|taking| taking.is_finished())
            .count()
            < OWN
        {
            tokio::task::yield_now().await;
        }
        assert!(desk.stock.is_full(&to));
        take(SHARED);
        for taking in receiving.drain(..) {
            taking.await.unwrap().unwrap();
        }
        assert!(!desk.stock.is_full(&to));
    }

    #[test]
    fn the_local_node_is_this_one() {
        let (number, name): (Eid, Eid) = (
            "ipn:3.1".parse().unwrap(),
            "dtn://station/in".parse().unwrap(),
        );
        let local: Eid = "ipn:!.7".parse().unwrap();
        let here = expanded(local.clone(), &number).unwrap();
        assert_eq!(here.to_string(), "ipn:3.7");
        assert_eq!(expanded(name.clone(), &number).unwrap(), name);
        let error = expanded(local, &name).unwrap_err().to_string();
        assert!(error.contains("has no number"), "{error}");
    }
}
