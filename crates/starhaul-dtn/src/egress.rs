//! How many bundles are on their way to a neighbour at a time.
//!
//! The agent waits for each transmission before it begins the next; over a light time of seconds that is one bundle per round
//! trip. So each is given a task of its own, within a window. And the agent has one route for all bundles of a destination, also
//! for those that came from where it leads.

use std::{
    cell::Cell,
    collections::{BTreeMap, HashMap},
    future::Future,
    sync::Arc,
    time::Instant,
};

use hardy_bpa::{
    async_trait,
    bundle::{Bundle, BundleStatus},
    policy::{EgressController, EgressPolicy, EgressQueue},
    storage::MetadataStorage,
};
use hardy_bpv7::eid::Eid;
use starhaul_log::Seldom;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::{
    halves,
    plan::NodeId,
    priority,
    schedule::{Fit, Schedule},
    stock::{Stock, Task, bundle_bytes},
};

/// Greatest number of bundles of a class on their way to a neighbour.
pub(crate) const MOST_BUNDLES: usize = 8192;
/// Unit in which the bytes on their way are counted: permits are 32-bit numbers.
const UNIT: u64 = 1 << 10;

tokio::task_local! {
    /// The neighbour for which the agent asks for a controller.
    static NEIGHBOUR: NodeId;
    /// Whether the neighbour refused the bundle that this task sends.
    static IS_REFUSED: Cell<bool>;
    /// Whether the bundle that this task sends is urgent.
    static IS_URGENT: bool;
}

/// Whether the bundle that this task sends is to leave before others.
pub(crate) fn is_urgent() -> bool {
    // The agent sends in no other task.
    IS_URGENT.try_with(|is_urgent| *is_urgent).unwrap_or(false)
}

/// Tells the agent of a neighbour; the controller that it asks for meanwhile knows the neighbour to which its bundles go.
pub(crate) async fn to<T>(neighbour: NodeId, adding: impl Future<Output = T>) -> T {
    NEIGHBOUR.scope(neighbour, adding).await
}

/// Notes that the neighbour refused the bundle that this task sends.
pub(crate) fn refused() {
    // The agent sends in no other task.
    let _ = IS_REFUSED.try_with(|refused| refused.set(true));
}

/// Sends a bundle; whether the neighbour refused it.
pub(crate) async fn is_refused(sending: impl Future<Output = ()>) -> bool {
    let telling = async {
        sending.await;
        IS_REFUSED.with(Cell::get)
    };
    IS_REFUSED.scope(Cell::default(), telling).await
}

/// Bytes of bundles that are on their way to any neighbour, and so in memory, for all layers of a node together.
pub(crate) struct Pool {
    shared: Arc<Semaphore>,
    units: u32,
    own: u32,
}

impl Pool {
    /// At most `bytes` for all together. Where others have them all, each neighbour has `own` bytes more for each class, or one larger bundle: those that do
    /// not answer must not keep the others from theirs.
    pub(crate) fn new(bytes: u64, own: u64) -> Arc<Self> {
        let units = units(bytes);
        Arc::new(Self {
            shared: Arc::new(Semaphore::new(units as usize)),
            units,
            own: self::units(own),
        })
    }
}

/// So many bytes as a semaphore counts them.
fn units(bytes: u64) -> u32 {
    let units = u32::try_from(bytes / UNIT).unwrap_or(u32::MAX);
    units.clamp(1, MOST_UNITS)
}

/// What may be on its way to a neighbour of the bundles of a class.
struct Lane {
    bundles: Arc<Semaphore>,
    bytes: Arc<Semaphore>,
    units: u32,
    /// Its own part beyond the pool.
    own: Arc<Semaphore>,
}

impl Lane {
    fn new(units: u32, pool: &Pool) -> Self {
        Self {
            bundles: Arc::new(Semaphore::new(MOST_BUNDLES)),
            bytes: Arc::new(Semaphore::new(units as usize)),
            units,
            own: Arc::new(Semaphore::new(pool.own as usize)),
        }
    }

    /// Waits until a bundle of so many units may leave.
    async fn enter(&self, units: u32) -> Option<(OwnedSemaphorePermit, OwnedSemaphorePermit)> {
        let count = self.bundles.clone().acquire_owned().await.ok()?;
        let bytes = self.bytes.clone().acquire_many_owned(units).await.ok()?;
        Some((count, bytes))
    }
}

/// A policy that keeps a window of transmissions open for each neighbour, and another one for urgent bundles where there may be any.
pub(crate) struct Window {
    store: Arc<dyn MetadataStorage>,
    stock: Arc<Stock>,
    schedule: Arc<Schedule>,
    units: u32,
    /// Bytes on their way to neighbours of bundles that are not urgent, where others may be.
    usual: BTreeMap<NodeId, u64>,
    pool: Arc<Pool>,
    /// Of bundles for which no contact is long enough.
    log: Arc<Seldom>,
}

struct Controller {
    neighbour: Option<NodeId>,
    queue: Arc<dyn EgressQueue>,
    store: Arc<dyn MetadataStorage>,
    stock: Arc<Stock>,
    schedule: Arc<Schedule>,
    urgent: Lane,
    usual: Lane,
    pool: Arc<Pool>,
    log: Arc<Seldom>,
}

impl Window {
    /// At most [`MOST_BUNDLES`] and `bytes` of them on their way to a neighbour, if the pool has room; one larger bundle may go alone. Where some
    /// bundles are urgent, the others have no more than the `usual` bytes of a neighbour that has any, so that an urgent one waits for few.
    pub(crate) fn new(
        store: Arc<dyn MetadataStorage>,
        stock: Arc<Stock>,
        schedule: Arc<Schedule>,
        (bytes, usual): (u64, BTreeMap<NodeId, u64>),
        pool: Arc<Pool>,
    ) -> Arc<Self> {
        Arc::new(Self {
            store,
            stock,
            schedule,
            units: units(bytes),
            usual,
            pool,
            log: Arc::default(),
        })
    }
}

/// What a semaphore of this width can count on every platform.
const MOST_UNITS: u32 = u32::MAX >> 4;

#[async_trait]
impl EgressPolicy for Window {
    fn queue_count(&self) -> u32 {
        self.stock.priorities().queues()
    }

    fn classify(&self, label: Option<u32>) -> Option<u32> {
        self.stock.priorities().queue(label)
    }

    async fn new_controller(
        &self,
        queues: HashMap<Option<u32>, Arc<dyn EgressQueue>>,
    ) -> Arc<dyn EgressController> {
        let queue = queues.get(&None).cloned();
        let neighbour = NEIGHBOUR.try_with(Clone::clone).ok();
        let usual = neighbour.as_ref().and_then(|node| self.usual.get(node));
        let usual = usual.filter(|_| self.stock.priorities().are_any());
        let usual = usual.map_or(self.units, |bytes| units(*bytes).min(self.units));
        Arc::new(Controller {
            neighbour,
            // The agent makes the queue without a number always.
            queue: queue.unwrap_or_else(|| Arc::new(Nowhere)),
            store: self.store.clone(),
            stock: self.stock.clone(),
            schedule: self.schedule.clone(),
            urgent: Lane::new(self.units, &self.pool),
            usual: Lane::new(usual, &self.pool),
            pool: self.pool.clone(),
            log: self.log.clone(),
        })
    }
}

impl Controller {
    /// Room in memory for a bundle of so many units: among those of all neighbours, or beyond them, for each class, where they have none.
    async fn room(&self, lane: &Lane, units: u32) -> Option<OwnedSemaphorePermit> {
        let Pool {
            shared,
            units: all,
            own,
        } = &*self.pool;
        let shared = shared.clone().acquire_many_owned(units.min(*all));
        let own = lane.own.clone().acquire_many_owned(units.min(*own));
        let room = tokio::select! {
            biased;
            room = shared => room,
            room = own => room,
        };
        room.ok()
    }

    /// Whether a bundle that the agent sends to this neighbour cannot go there now. Nothing of it has been read yet.
    fn is_to_wait(&self, bundle: &Bundle) -> bool {
        let Some(neighbour) = &self.neighbour else {
            return false;
        };
        // It is looked at again when a route changes.
        if has_passed(bundle, neighbour) {
            return true;
        }
        let bytes = bundle_bytes(bundle);
        match self.schedule.fit(neighbour, Schedule::now(), bytes) {
            Fit::Now => return false,
            // What was booked for another may be given back.
            Fit::Later => self.stock.changes.again(),
            Fit::Never => {
                if self.stock.fits_nowhere(&bundle.bundle.id)
                    && let Some(others) = self.log.is_due(Instant::now())
                {
                    tracing::warn!(
                        node = %neighbour,
                        bytes,
                        others,
                        "a bundle is larger than any contact that is left with this node carries: it waits for another way"
                    );
                }
            }
        }
        true
    }
}

#[async_trait]
impl EgressController for Controller {
    async fn forward(&self, queue: Option<u32>, mut bundle: Bundle) {
        // One that has expired ends where it leaves (`filters`).
        if !bundle.has_expired() && self.is_to_wait(&bundle) {
            bundle.metadata.status = BundleStatus::Waiting;
            if let Err(error) = self.store.update_status(&bundle).await {
                tracing::warn!(%error, "a bundle that waits for another route waits for its contact to end");
            }
            return;
        }
        let is_urgent = queue == Some(priority::URGENT);
        let lane = match is_urgent {
            true => &self.urgent,
            false => &self.usual,
        };
        let units = u32::try_from(bundle_bytes(&bundle) / UNIT + 1)
            .unwrap_or(u32::MAX)
            .min(lane.units);
        let entered = lane.enter(units).await;
        let room = self.room(lane, units).await;
        let (Some(entered), Some(room)) = (entered, room) else {
            return;
        };
        // The agent hands a bundle out again when its queue was full, or when a contact has ended and begun.
        let Some(busy) = self.stock.begin(&bundle.bundle.id, Task::Sending) else {
            return;
        };
        let queue = self.queue.clone();
        tokio::spawn(async move {
            let sending = is_refused(halves::send(&*queue, bundle));
            let is_refused = IS_URGENT.scope(is_urgent, sending).await;
            // The agent ends a neighbour when nothing holds its queue.
            drop((queue, entered, room));
            if let Some(rest) = busy.rest_after(is_refused) {
                tokio::time::sleep(rest).await;
            }
        });
    }
}

/// Whether a node gave us a bundle, or is its source, and not its destination: it would take it for one that it has had already.
fn has_passed(bundle: &Bundle, node: &NodeId) -> bool {
    let is = |endpoint: &Eid| endpoint.to_node_id().is_ok_and(|of| of == *node);
    let (known, bundle) = (&bundle.metadata.read_only, &bundle.bundle);
    let gave = known.ingress_peer_node.as_ref() == Some(node)
        || bundle.previous_node.as_ref().is_some_and(is);
    (gave || is(&bundle.id.source)) && !is(&bundle.destination)
}

struct Nowhere;

#[async_trait]
impl EgressQueue for Nowhere {
    async fn forward(&self, _: Bundle) {}
}

#[cfg(test)]
mod tests {
    use std::{
        sync::atomic::{AtomicUsize, Ordering},
        time::Duration,
    };

    use hardy_bpa::bundle::BundleMetadata;
    use hardy_bpv7::{builder::Builder, creation_timestamp::CreationTimestamp};
    use hardy_eid_patterns::EidPattern;
    use starhaul_units::Bandwidth;

    use super::*;
    use crate::{
        config::Storage,
        plan::{Contact, ContactPlan},
        priority::{Class, Priorities},
        stock::memory::Metadata,
    };

    /// From 1 to 4, which live for a minute.
    fn bundle(payload: &[u8]) -> Bundle {
        let builder = Builder::new("ipn:1.5".parse().unwrap(), "ipn:4.5".parse().unwrap());
        let builder = builder.with_lifetime(Duration::from_secs(60));
        let builder = builder.with_payload(payload.into());
        Bundle {
            bundle: builder.build(CreationTimestamp::now()).unwrap().0,
            metadata: BundleMetadata::default(),
        }
    }

    /// Counts what it is given, and sends nothing.
    #[derive(Default)]
    struct Stuck(AtomicUsize);

    #[async_trait]
    impl EgressQueue for Stuck {
        async fn forward(&self, _: Bundle) {
            self.0.fetch_add(1, Ordering::SeqCst);
            std::future::pending().await
        }
    }

    /// A controller of a window for node 4, what it counts, and the stock.
    async fn controller(plan: Vec<Contact>) -> (Arc<dyn EgressController>, Arc<Stuck>, Arc<Stock>) {
        let own: NodeId = "ipn:1.0".parse().unwrap();
        let stock = Stock::new(own.clone(), Storage::small());
        let schedule = Schedule::new(own, ContactPlan::new(plan), Vec::new());
        let store = Arc::new(Metadata::new(10));
        let pool = Pool::new(1 << 20, UNIT);
        let window = (1 << 20, BTreeMap::new());
        let window = Window::new(store, stock.clone(), Arc::new(schedule), window, pool);
        let stuck = Arc::new(Stuck::default());
        let queue: Arc<dyn EgressQueue> = stuck.clone();
        let making = window.new_controller(HashMap::from([(None, queue)]));
        let controller = to("ipn:4.0".parse().unwrap(), making).await;
        (controller, stuck, stock)
    }

    /// It would be read and handed back each second of each pass.
    #[tokio::test]
    async fn a_bundle_that_no_contact_carries_is_not_read_and_is_told() {
        let now = Schedule::now();
        let contact = Contact {
            from: "ipn:1.0".parse().unwrap(),
            to: "ipn:4.0".parse().unwrap(),
            start: now,
            end: now.plus(Duration::from_secs(1000)),
            rate: Bandwidth::from_bits_per_second(8),
            light_time: Duration::ZERO,
        };
        let (controller, stuck, stock) = controller(vec![contact]).await;
        let large = bundle(&[7; 1000]);
        stock.insert(&large, false);
        // However often a search finds it, it is one.
        for _ in 0..3 {
            controller.forward(None, large.clone()).await;
        }
        let met = stock.limits_met();
        let told =
            "bundles that are larger than any contact that is left with their next node carries: 1";
        assert_eq!(met, [told]);
        controller.forward(None, bundle(b"small")).await;
        tokio::task::yield_now().await;
        assert_eq!((stuck.0.load(Ordering::SeqCst), stock.in_flight()), (1, 1));
        stock.remove(&large.bundle.id);
        assert_eq!(stock.limits_met(), Vec::<String>::new());
    }

    /// A backlog on its way over a slow link must not keep an urgent bundle waiting.
    #[tokio::test]
    async fn urgent_bundles_have_a_window_of_their_own_and_others_a_short_one() {
        let own: NodeId = "ipn:1.0".parse().unwrap();
        let node: NodeId = "ipn:4.0".parse().unwrap();
        for is_any_urgent in [false, true] {
            let stock = Stock::new(own.clone(), Storage::small());
            let pattern: EidPattern = "ipn:4.9".parse().unwrap();
            let rule = (pattern, Class::Urgent);
            let rules = is_any_urgent.then_some(rule);
            stock.set_priorities(Priorities::new(rules.into_iter().collect()));
            let schedule = Schedule::new(own.clone(), ContactPlan::new(Vec::new()), Vec::new());
            let windows = BTreeMap::from([(node.clone(), 8 * UNIT)]);
            let window = Window::new(
                Arc::new(Metadata::new(10)),
                stock.clone(),
                Arc::new(schedule),
                (40 * UNIT, windows),
                // The others use all of it up, and their part beyond it.
                match is_any_urgent {
                    true => Pool::new(4 * UNIT, 4 * UNIT),
                    false => Pool::new(1 << 20, UNIT),
                },
            );
            let stuck = Arc::new(Stuck::default());
            let queue: Arc<dyn EgressQueue> = stuck.clone();
            let making = window.new_controller(HashMap::from([(None, queue)]));
            let controller = to(node.clone(), making).await;
            let backlog = tokio::spawn({
                let controller = controller.clone();
                async move {
                    for _ in 0..100 {
                        controller.forward(None, bundle(&[7; 3500])).await;
                    }
                }
            });
            for _ in 0..1000 {
                tokio::task::yield_now().await;
            }
            // Four units each.
            let usual = if is_any_urgent { 2 } else { 10 };
            assert_eq!(stuck.0.load(Ordering::SeqCst), usual);
            assert_eq!(window.queue_count(), u32::from(is_any_urgent));
            if is_any_urgent {
                let label = stock.priorities().label(&"ipn:4.9".parse().unwrap());
                let queue = window.classify(label);
                controller.forward(queue, bundle(&[7; 3500])).await;
                tokio::task::yield_now().await;
                assert_eq!(stuck.0.load(Ordering::SeqCst), usual + 1);
            }
            backlog.abort();
        }
    }

    /// Neighbours that do not answer have all that there is for all, and another one goes on all the same.
    #[tokio::test]
    async fn all_neighbours_together_have_a_bound_and_each_has_a_few_bytes() {
        let own: NodeId = "ipn:1.0".parse().unwrap();
        let stock = Stock::new(own.clone(), Storage::small());
        let schedule = Schedule::new(own, ContactPlan::new(Vec::new()), Vec::new());
        let store = Arc::new(Metadata::new(10));
        let pool = Pool::new(64 * UNIT, 8 * UNIT);
        let schedule = Arc::new(schedule);
        let window = (40 * UNIT, BTreeMap::new());
        let window = Window::new(store, stock.clone(), schedule, window, pool.clone());
        let small = bundle(&[7; 3500]);
        // The unit that is begun, too.
        let units = u32::try_from(bundle_bytes(&small) / UNIT + 1).unwrap();
        assert_eq!(units, 4);
        let mut given = Vec::new();
        let mut sending = Vec::new();
        for neighbour in 4..8 {
            let stuck = Arc::new(Stuck::default());
            let queue: Arc<dyn EgressQueue> = stuck.clone();
            let making = window.new_controller(HashMap::from([(None, queue)]));
            let node: NodeId = format!("ipn:{neighbour}.0").parse().unwrap();
            let controller = to(node, making).await;
            let task = tokio::spawn(async move {
                for _ in 0..100 {
                    controller.forward(None, bundle(&[7; 3500])).await;
                }
            });
            // Until it has taken what it may: no other task works meanwhile.
            for _ in 0..1000 {
                tokio::task::yield_now().await;
            }
            assert!(!task.is_finished());
            sending.push(task);
            given.push(stuck.0.load(Ordering::SeqCst));
        }
        // The window of the first, what that leaves of the pool and two beyond it, and two of each of the others.
        assert_eq!(given, [10, 8, 2, 2]);
        assert_eq!(
            (pool.shared.available_permits(), stock.in_flight()),
            (0, 22)
        );
        // One that is larger than a neighbour's own part goes alone.
        let stuck = Arc::new(Stuck::default());
        let queue: Arc<dyn EgressQueue> = stuck.clone();
        let making = window.new_controller(HashMap::from([(None, queue)]));
        let controller = to("ipn:9.0".parse().unwrap(), making).await;
        controller.forward(None, bundle(&[7; 20_000])).await;
        tokio::task::yield_now().await;
        assert_eq!(stuck.0.load(Ordering::SeqCst), 1);
        sending.iter().for_each(tokio::task::JoinHandle::abort);
    }

    #[test]
    fn a_node_that_has_had_a_bundle_is_known() {
        let mut bundle = bundle(b"x");
        let passed = |bundle: &Bundle| {
            let nodes = (1..=5).map(|number| format!("ipn:{number}.0"));
            let passed = nodes.filter(|node| has_passed(bundle, &node.parse().unwrap()));
            passed.collect::<Vec<_>>()
        };
        assert_eq!(passed(&bundle), ["ipn:1.0"]);
        bundle.bundle.previous_node = Some("ipn:2.0".parse().unwrap());
        assert_eq!(passed(&bundle), ["ipn:1.0", "ipn:2.0"]);
        // Its link may tell more than it says itself.
        bundle.metadata.read_only.ingress_peer_node = Some("ipn:3.0".parse().unwrap());
        assert_eq!(passed(&bundle), ["ipn:1.0", "ipn:2.0", "ipn:3.0"]);
        // Its destination is to have it, whichever neighbour gave it.
        bundle.bundle.previous_node = Some("ipn:4.0".parse().unwrap());
        assert_eq!(passed(&bundle), ["ipn:1.0", "ipn:3.0"]);
    }
}
