//! How many bundles are on their way to a neighbour at a time.
//!
//! The agent waits for each transmission before it begins the next; over a light time of seconds that is one bundle per round
//! trip. So each is given a task of its own, within a window. And the agent has one route for all bundles of a destination, also
//! for those that came from where it leads, and whatever their size. So each is looked at here once more, and waits or leaves over the
//! neighbour that is the first on the way of its size.

mod lanes;
#[cfg(test)]
mod tests;

use std::{
    cell::Cell,
    collections::{BTreeMap, HashMap},
    future::Future,
    sync::Arc,
    time::{Duration, Instant},
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

/// For how long room is kept for bundles that are handed over when a search has found them: the agent routes them one after the other. The
/// search of a large store takes its time; what it does not reach in `MOST_KEPT` has its room in a later turn, if there is none without one.
const KEPT: Duration = Duration::from_secs(5);
const MOST_KEPT: Duration = Duration::from_secs(300);

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
    /// behind it. What the other one's own queue has does not keep it from room for ever: such bundles have their turns.
    async fn hand_over(&self, exit: &Self, is_urgent: bool, mut bundle: Bundle) {
        let lane = exit.lane(is_urgent);
        let room = self.pool.take(lane, lane.units_of(bundle_bytes(&bundle)));
        // It belongs to no queue of the agent, which knows of no other neighbour: if it is not sent, the next search finds it.
        self.let_wait(&mut bundle).await;
        // Without room it is looked for when there is some.
        let Some(room) = room else {
            self.keep_room(lane, lane.units_of(bundle_bytes(&bundle)));
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

    /// Has room kept, in its turn, for bundles that are handed over, until a search that begins from now on has found them: one that is under
    /// way may have passed them.
    fn keep_room(&self, lane: &Lane, units: u32) {
        let (pool, stock, lane) = (self.pool.clone(), self.stock.clone(), lane.clone());
        tokio::spawn(async move {
            let Some(turn) = pool.keep(&lane, units).await else {
                return;
            };
            let before = stock.searches.begun();
            stock.changes.again();
            let found = async {
                stock.searches.ended_after(before).await;
                tokio::time::sleep(KEPT).await;
            };
            // Else the store does not answer, or takes too long.
            let _ = tokio::time::timeout(MOST_KEPT, found).await;
            let rest = lane.turn().end(turn);
            if let Some(rest) = rest {
                release(&stock, &lane, rest);
            }
        });
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
