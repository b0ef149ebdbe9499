//! Bundles beside each other on their way to neighbours.

use std::sync::{
    Mutex,
    atomic::{AtomicUsize, Ordering},
};

use hardy_bpa::{
    bundle::BundleMetadata,
    stream::{SendError, Sender},
};
use hardy_bpv7::{builder::Builder, creation_timestamp::CreationTimestamp};
use hardy_eid_patterns::EidPattern;
use starhaul_units::Bandwidth;

use super::{lanes::UNIT, *};
use crate::{
    config::Storage,
    plan::{Contact, ContactPlan},
    priority::{Class, Priorities},
    stock::{counted::Counted, memory::Metadata},
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

/// Notes what leaves, and takes 100 ms for each bundle.
#[derive(Default)]
struct Paced(Mutex<Vec<String>>);

#[async_trait]
impl EgressQueue for Paced {
    async fn forward(&self, bundle: Bundle) {
        let id = format!("{:?}", bundle.bundle.id);
        self.0.lock().unwrap().push(id);
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}

/// A queue that does not end would take all room as it becomes free.
#[tokio::test(start_paused = true)]
async fn what_is_handed_over_has_its_turn_beside_a_queue_that_does_not_end() {
    let ([own, near, far], schedule) = two_ways();
    let stock = Stock::new(own, Storage::small());
    let store = Arc::new(Metadata::new(2000));
    // Room for four of the bundles.
    let window = (2000 * UNIT, BTreeMap::new());
    let (pool, schedule) = (Pool::new(1 << 30, UNIT), Arc::new(schedule));
    let window = Window::new(store.clone(), stock.clone(), schedule, window, pool);
    let exit = async |neighbour: &NodeId| {
        let paced = Arc::new(Paced::default());
        let queue: Arc<dyn EgressQueue> = paced.clone();
        let making = window.new_controller(HashMap::from([(None, queue)]));
        (to(neighbour.clone(), making).await, paced)
    };
    let (over_near, over_far) = (exit(&near).await, exit(&far).await);
    let backlog = tokio::spawn({
        let (exit, stock) = (over_far.0.clone(), stock.clone());
        async move {
            loop {
                let next = bundle(&[7; 500_000]);
                stock.insert(&next, false);
                exit.forward(None, next).await;
            }
        }
    });
    tokio::time::sleep(Duration::from_secs(1)).await;
    let others = [1, 2].map(|byte| bundle(&[byte; 400_000]));
    for other in &others {
        stock.insert(other, false);
        store.insert(other).await.unwrap();
    }
    let has_left = |bundle: &Bundle| {
        let id = format!("{:?}", bundle.bundle.id);
        over_far.1.0.lock().unwrap().contains(&id)
    };
    // As the agent does when it is asked to look again.
    for _ in 0..20 {
        let _search = stock.searches.begin();
        for other in others.iter().filter(|other| !has_left(other)) {
            over_near.0.forward(None, other.clone()).await;
        }
        tokio::time::sleep(Duration::from_secs(1)).await;
    }
    assert!(others.iter().all(has_left));
    // And the queue goes on: about forty bundles a second.
    let before = over_far.1.0.lock().unwrap().len();
    tokio::time::sleep(Duration::from_secs(10)).await;
    let more = over_far.1.0.lock().unwrap().len() - before;
    assert!(more > 300, "{more}");
    backlog.abort();
}

/// Hands what a search finds to an exit. Until it is found the search takes its time.
struct Found<'a> {
    exit: &'a dyn EgressController,
    after: Duration,
}

#[async_trait]
impl Sender<Bundle> for Found<'_> {
    async fn send(&self, bundle: Bundle) -> Result<(), SendError<Bundle>> {
        tokio::time::sleep(self.after).await;
        self.exit.forward(None, bundle).await;
        Ok(())
    }
}

/// Its room was given back while the search went on, each time anew.
#[tokio::test(start_paused = true)]
async fn what_is_handed_over_has_its_turn_however_long_the_search_of_the_store_takes() {
    let ([own, near, far], schedule) = two_ways();
    let stock = Stock::new(own, Storage::small());
    let store = Counted::new(Arc::new(Metadata::new(2000)), stock.clone(), None);
    stock.begin_life();
    let window = (2000 * UNIT, BTreeMap::new());
    let (pool, schedule) = (Pool::new(1 << 30, UNIT), Arc::new(schedule));
    let window = Window::new(store.clone(), stock.clone(), schedule, window, pool);
    let exit = async |neighbour: &NodeId| {
        let paced = Arc::new(Paced::default());
        let queue: Arc<dyn EgressQueue> = paced.clone();
        let making = window.new_controller(HashMap::from([(None, queue)]));
        (to(neighbour.clone(), making).await, paced)
    };
    let (over_near, over_far) = (exit(&near).await, exit(&far).await);
    let backlog = tokio::spawn({
        let (exit, stock) = (over_far.0.clone(), stock.clone());
        async move {
            loop {
                let next = bundle(&[7; 500_000]);
                stock.insert(&next, false);
                exit.forward(None, next).await;
            }
        }
    });
    tokio::time::sleep(Duration::from_secs(1)).await;
    // Nearly all that may be on its way at a time.
    let large = bundle(&[1; 1_900_000]);
    store.insert(&large).await.unwrap();
    over_near.0.forward(None, large.clone()).await;
    let has_left = || {
        let id = format!("{:?}", large.bundle.id);
        over_far.1.0.lock().unwrap().contains(&id)
    };
    let search = Found {
        exit: &*over_near.0,
        after: Duration::from_secs(20),
    };
    assert!(!has_left());
    stock.changes.asked(Duration::from_secs(1)).await;
    store.poll_waiting(&search).await.unwrap();
    tokio::time::sleep(Duration::from_secs(6)).await;
    assert!(has_left());
    // The queue has all its room again.
    let before = over_far.1.0.lock().unwrap().len();
    tokio::time::sleep(Duration::from_secs(10)).await;
    let more = over_far.1.0.lock().unwrap().len() - before;
    assert!(more > 300, "{more}");
    backlog.abort();
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
