//! How many bundles are on their way to a neighbour at a time.
//!
//! The agent waits for each transmission before it begins the next; over a light time of seconds that is one bundle per round
//! trip. So each is given a task of its own, within a window. And the agent has one route for all bundles of a destination, also
//! for those that came from where it leads, and whatever their size. So each is looked at here once more, and waits or leaves over the
//! neighbour that is the first on the way of its size.

mod lanes;

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

use self::lanes::{Lane, Room, units};
pub(crate) use self::lanes::{Lanes, MOST_BUNDLES, Pool};
use crate::{
    halves,
    plan::NodeId,
    priority,
    schedule::{Fit, Schedule, Way},
    stock::{Busy, Stock, Task, bundle_bytes},
};

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
        let controller = Arc::new(Controller {
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
        });
        if let Some(neighbour) = &controller.neighbour {
            self.pool.open(neighbour, &controller);
            Lanes::open(&controller.urgent, &controller.usual);
        }
        controller
    }
}

/// Where a bundle leaves.
enum Exit {
    /// Where the agent has it leave.
    Own,
    /// To another neighbour.
    Other(Arc<Controller>),
    /// It waits.
    No,
}

impl Controller {
    fn lane(&self, is_urgent: bool) -> &Lane {
        match is_urgent {
            true => &self.urgent,
            false => &self.usual,
        }
    }

    /// Where a bundle leaves that the agent sends to this neighbour. Nothing of it has been read yet.
    fn exit(&self, bundle: &Bundle) -> Exit {
        // One that has expired ends where it leaves (`filters`).
        let own = self.neighbour.as_ref().filter(|_| !bundle.has_expired());
        let Some(own) = own else {
            return Exit::Own;
        };
        let (now, bytes) = (Schedule::now(), bundle_bytes(bundle));
        let way = match self.schedule.is_neighbour(own) {
            true => self.schedule.way(&bundle.bundle.destination, bytes, now),
            false => Way::Any,
        };
        let to = match way {
            Way::Any => own.clone(),
            Way::Over(to) => to,
            // It is looked at again when its route changes.
            Way::Later => return Exit::No,
            Way::Never => {
                self.tell_unfit(bundle, bytes);
                return Exit::No;
            }
        };
        if has_passed(bundle, &to) {
            self.schedule.await_other();
            return Exit::No;
        }
        match self.schedule.fit(&to, now, bytes) {
            Fit::Now if to == *own => Exit::Own,
            // The agent looks at it again when it knows the neighbour.
            Fit::Now => self.pool.exit(&to).map_or(Exit::No, Exit::Other),
            // What was booked for another may be given back.
            Fit::Later => {
                self.stock.changes.again();
                Exit::No
            }
            Fit::Never => {
                self.tell_unfit(bundle, bytes);
                Exit::No
            }
        }
    }

    fn tell_unfit(&self, bundle: &Bundle, bytes: u64) {
        if self.stock.fits_nowhere(&bundle.bundle.id)
            && let Some(others) = self.log.is_due(Instant::now())
        {
            tracing::warn!(
                to = %bundle.bundle.destination,
                bytes,
                others,
                "a bundle is larger than the contacts that are left on its way carry: it waits for another way"
            );
        }
    }

    async fn let_wait(&self, bundle: &mut Bundle) {
        bundle.metadata.status = BundleStatus::Waiting;
        if let Err(error) = self.store.update_status(bundle).await {
            tracing::warn!(%error, "a bundle that waits for another route waits for its contact to end");
        }
    }

    /// Returns a bundle that leaves here now. Another one leaves to another neighbour, or waits.
    async fn keep(&self, is_urgent: bool, mut bundle: Bundle) -> Option<Bundle> {
        match self.exit(&bundle) {
            Exit::Own => return Some(bundle),
            Exit::Other(other) => self.hand_over(&other, is_urgent, bundle).await,
            Exit::No => self.let_wait(&mut bundle).await,
        }
        None
    }

    /// Lets a bundle leave to another neighbour than the one for which the agent gave it, if there is room. Others for this one do not wait
    /// behind it.
    async fn hand_over(&self, exit: &Self, is_urgent: bool, mut bundle: Bundle) {
        let lane = exit.lane(is_urgent);
        let room = self.pool.take(lane, lane.units_of(bundle_bytes(&bundle)));
        // It belongs to no queue of the agent, which knows of no other neighbour: if it is not sent, the next search finds it.
        self.let_wait(&mut bundle).await;
        // Without room it is looked for when there is some.
        let Some(room) = room else {
            return;
        };
        // The store may have taken its time.
        let busy = match exit.exit(&bundle) {
            Exit::Own => self.stock.begin(&bundle.bundle.id, Task::Sending),
            Exit::Other(_) | Exit::No => {
                self.stock.changes.again();
                None
            }
        };
        match busy {
            Some(busy) => exit.send(is_urgent, bundle, busy, room),
            None => release(&self.stock, lane, room),
        }
    }

    /// Has the agent send a bundle that has room, in a task of its own.
    fn send(&self, is_urgent: bool, bundle: Bundle, busy: Busy, room: Room) {
        let (queue, stock) = (self.queue.clone(), self.stock.clone());
        let lane = self.lane(is_urgent).clone();
        tokio::spawn(async move {
            let sending = is_refused(halves::send(&*queue, bundle));
            let is_refused = IS_URGENT.scope(is_urgent, sending).await;
            // The agent ends a neighbour when nothing holds its queue.
            drop(queue);
            release(&stock, &lane, room);
            if let Some(rest) = busy.rest_after(is_refused) {
                tokio::time::sleep(rest).await;
            }
        });
    }
}

/// Gives room back, and has those looked at again that found none.
fn release(stock: &Stock, lane: &Lane, room: Room) {
    drop(room);
    if lane.take_awaited() {
        stock.changes.again();
    }
}

#[async_trait]
impl EgressController for Controller {
    async fn forward(&self, queue: Option<u32>, bundle: Bundle) {
        let is_urgent = queue == Some(priority::URGENT);
        let Some(bundle) = self.keep(is_urgent, bundle).await else {
            return;
        };
        let lane = self.lane(is_urgent);
        let units = lane.units_of(bundle_bytes(&bundle));
        let (bundle, room) = match self.pool.free(lane, units) {
            Some(room) => (Some(bundle), room),
            None => {
                let Some(room) = self.pool.wait(lane, units).await else {
                    return;
                };
                // It may have left another way meanwhile, and its own may be another one now.
                let bundle = match self.stock.has(&bundle.bundle.id) {
                    true => self.keep(is_urgent, bundle).await,
                    false => None,
                };
                (bundle, room)
            }
        };
        // The agent hands a bundle out again when its queue was full, or when a contact has ended and begun.
        let begin = |bundle: Bundle| {
            let busy = self.stock.begin(&bundle.bundle.id, Task::Sending)?;
            Some((bundle, busy))
        };
        match bundle.and_then(begin) {
            Some((bundle, busy)) => self.send(is_urgent, bundle, busy, room),
            None => release(&self.stock, lane, room),
        }
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

    use super::{lanes::UNIT, *};
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
        let told = "bundles that are larger than the contacts that are left on their way carry: 1";
        assert_eq!(met, [told]);
        controller.forward(None, bundle(b"small")).await;
        tokio::task::yield_now().await;
        assert_eq!((stuck.0.load(Ordering::SeqCst), stock.in_flight()), (1, 1));
        stock.remove(&large.bundle.id);
        assert_eq!(stock.limits_met(), Vec::<String>::new());
    }

    /// From 1 to 4 over 2, or over 3: the light takes longer where the link is faster.
    fn two_ways() -> ([NodeId; 3], Schedule) {
        let [own, near, far, end]: [NodeId; 4] =
            [1, 2, 3, 4].map(|number| format!("ipn:{number}.0").parse().unwrap());
        let now = Schedule::now();
        let contact = |from: &NodeId, to: &NodeId, rate, light| Contact {
            from: from.clone(),
            to: to.clone(),
            start: now,
            end: now.plus(Duration::from_secs(3600)),
            rate,
            light_time: Duration::from_secs(light),
        };
        let (slow, fast) = (
            Bandwidth::from_bits_per_second(9600),
            Bandwidth::from_mbit(100),
        );
        let plan = vec![
            contact(&own, &near, slow, 0),
            contact(&near, &end, slow, 0),
            contact(&own, &far, fast, 2),
            contact(&far, &end, fast, 2),
        ];
        let schedule = Schedule::new(own.clone(), ContactPlan::new(plan), Vec::new());
        ([own, near, far], schedule)
    }

    /// The agent has one route for all that is for a node.
    #[tokio::test]
    async fn a_bundle_leaves_over_the_neighbour_over_which_one_of_its_size_arrives_first() {
        let ([own, near, far], schedule) = two_ways();
        let stock = Stock::new(own, Storage::small());
        let store = Arc::new(Metadata::new(10));
        let pool = Pool::new(1 << 20, UNIT);
        let window = (1 << 20, BTreeMap::new());
        let window = Window::new(
            store.clone(),
            stock.clone(),
            Arc::new(schedule),
            window,
            pool,
        );
        let exit = async |neighbour: &NodeId| {
            let stuck = Arc::new(Stuck::default());
            let queue: Arc<dyn EgressQueue> = stuck.clone();
            let making = window.new_controller(HashMap::from([(None, queue)]));
            (to(neighbour.clone(), making).await, stuck)
        };
        let (over_near, over_far) = (exit(&near).await, exit(&far).await);
        let left = async || {
            for _ in 0..100 {
                tokio::task::yield_now().await;
            }
            [&over_near.1, &over_far.1].map(|stuck| stuck.0.load(Ordering::SeqCst))
        };
        let (small, large) = (bundle(b"small"), bundle(&[7; 500_000]));
        for bundle in [&small, &large] {
            stock.insert(bundle, false);
            store.insert(bundle).await.unwrap();
        }
        over_near.0.forward(None, large.clone()).await;
        assert_eq!(left().await, [0, 1]);
        // It is found when it was not sent, and not before.
        let known = store.get(&large.bundle.id).await.unwrap().unwrap();
        assert_eq!(known.metadata.status, BundleStatus::Waiting);
        assert_eq!(stock.in_flight(), 1);
        over_near.0.forward(None, large).await;
        assert_eq!(left().await, [0, 1]);
        over_far.0.forward(None, small).await;
        assert_eq!(left().await, [1, 1]);
        // Where the agent does not know that neighbour, it waits.
        let (far, stuck) = over_far;
        drop(far);
        let another = bundle(&[8; 500_000]);
        over_near.0.forward(None, another).await;
        tokio::task::yield_now().await;
        let left = [&over_near.1, &stuck].map(|stuck| stuck.0.load(Ordering::SeqCst));
        assert_eq!((left, stock.in_flight()), ([1, 1], 2));
    }

    /// Else it could not leave over any other neighbour until one that may not answer has room.
    #[tokio::test]
    async fn what_is_handed_over_without_room_stays_free_and_a_hidden_neighbour_holds_nothing() {
        let ([own, near, far], schedule) = two_ways();
        let stock = Stock::new(own, Storage::small());
        let store = Arc::new(Metadata::new(10));
        let pool = Pool::new(1 << 30, UNIT);
        // Room for one of the bundles.
        let window = (600 * UNIT, BTreeMap::new());
        let schedule = Arc::new(schedule);
        let window = Window::new(store.clone(), stock.clone(), schedule, window, pool);
        let exit = async |neighbour: &NodeId, lanes: &Lanes| {
            let stuck = Arc::new(Stuck::default());
            let queue: Arc<dyn EgressQueue> = stuck.clone();
            let making = window.new_controller(HashMap::from([(None, queue)]));
            (to(neighbour.clone(), lanes.of(making)).await, stuck)
        };
        let yielding = async || {
            for _ in 0..100 {
                tokio::task::yield_now().await;
            }
        };
        let (lanes, others) = (Lanes::default(), Lanes::default());
        let over_near = exit(&near, &others).await;
        let over_far = exit(&far, &lanes).await;
        let bundles = [1, 2, 3, 4].map(|byte| bundle(&[byte; 500_000]));
        for bundle in &bundles {
            stock.insert(bundle, false);
            store.insert(bundle).await.unwrap();
        }
        let [first, second, third, fourth] = bundles;
        let is_free = |bundle: &Bundle| {
            let busy = stock.begin(&bundle.bundle.id, Task::Delivering);
            busy.is_some()
        };
        over_near.0.forward(None, first.clone()).await;
        over_near.0.forward(None, second.clone()).await;
        yielding().await;
        assert_eq!(
            (over_far.1.0.load(Ordering::SeqCst), stock.in_flight()),
            (1, 1)
        );
        assert!(!is_free(&first) && is_free(&second));
        let known = store.get(&second.bundle.id).await.unwrap().unwrap();
        assert_eq!(known.metadata.status, BundleStatus::Waiting);
        // What its own queue has waits until the neighbour is hidden, and no longer.
        let (far_exit, waiting) = (over_far.0.clone(), third.clone());
        let waiting = tokio::spawn(async move { far_exit.forward(None, waiting).await });
        yielding().await;
        assert!(!waiting.is_finished());
        assert!(lanes.close(), "the second one awaits room");
        waiting.await.unwrap();
        assert!(is_free(&third));
        // Its exit of former times takes nothing.
        over_near.0.forward(None, fourth.clone()).await;
        yielding().await;
        assert!(is_free(&fourth));
        let anew = exit(&far, &lanes).await;
        over_near.0.forward(None, fourth.clone()).await;
        yielding().await;
        let given = [&over_near.1, &over_far.1, &anew.1];
        let given = given.map(|stuck| stuck.0.load(Ordering::SeqCst));
        assert_eq!((given, stock.in_flight()), ([0, 1, 1], 2));
        assert!(!is_free(&fourth));
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
