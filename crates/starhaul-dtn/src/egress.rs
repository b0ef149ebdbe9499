//! How many bundles are on their way to a neighbour at a time.
//!
//! The agent waits for each transmission before it begins the next; over a light time of seconds that is one bundle per round
//! trip. So each is given a task of its own, within a window. And the agent has one route for all bundles of a destination, also
//! for those that came from where it leads.

use std::{cell::Cell, collections::HashMap, future::Future, sync::Arc};

use hardy_bpa::{
    async_trait,
    bundle::{Bundle, BundleStatus},
    policy::{EgressController, EgressPolicy, EgressQueue},
    storage::MetadataStorage,
};
use hardy_bpv7::eid::Eid;
use tokio::sync::Semaphore;

use crate::{
    plan::NodeId,
    stock::{Stock, Task, bundle_bytes},
};

/// Greatest number of bundles on their way to a neighbour.
pub(crate) const MOST_BUNDLES: usize = 8192;
/// Unit in which the bytes on their way are counted: permits are 32-bit numbers.
const UNIT: u64 = 1 << 10;

tokio::task_local! {
    /// The neighbour for which the agent asks for a controller.
    static NEIGHBOUR: NodeId;
    /// Whether the neighbour refused the bundle that this task sends.
    static IS_REFUSED: Cell<bool>;
}

/// Tells the agent of a neighbour; the controller that it asks for meanwhile knows whom its bundles go to.
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

/// A policy without priorities that keeps a window of transmissions open for each neighbour.
pub(crate) struct Window {
    store: Arc<dyn MetadataStorage>,
    stock: Arc<Stock>,
    units: u32,
}

struct Controller {
    neighbour: Option<NodeId>,
    queue: Arc<dyn EgressQueue>,
    store: Arc<dyn MetadataStorage>,
    stock: Arc<Stock>,
    bundles: Arc<Semaphore>,
    bytes: Arc<Semaphore>,
    units: u32,
}

impl Window {
    /// At most `bytes` of bundles on their way to a neighbour; one larger bundle may go alone.
    pub(crate) fn new(store: Arc<dyn MetadataStorage>, stock: Arc<Stock>, bytes: u64) -> Arc<Self> {
        let units = u32::try_from(bytes / UNIT)
            .unwrap_or(u32::MAX)
            .clamp(1, MOST_UNITS);
        Arc::new(Self {
            store,
            stock,
            units,
        })
    }
}

/// What a semaphore of this width can count on every platform.
const MOST_UNITS: u32 = u32::MAX >> 4;

#[async_trait]
impl EgressPolicy for Window {
    fn queue_count(&self) -> u32 {
        0
    }

    fn classify(&self, _: Option<u32>) -> Option<u32> {
        None
    }

    async fn new_controller(
        &self,
        queues: HashMap<Option<u32>, Arc<dyn EgressQueue>>,
    ) -> Arc<dyn EgressController> {
        let queue = queues.get(&None).cloned();
        Arc::new(Controller {
            neighbour: NEIGHBOUR.try_with(Clone::clone).ok(),
            // The agent makes the queue without a number always.
            queue: queue.unwrap_or_else(|| Arc::new(Nowhere)),
            store: self.store.clone(),
            stock: self.stock.clone(),
            bundles: Arc::new(Semaphore::new(MOST_BUNDLES)),
            bytes: Arc::new(Semaphore::new(self.units as usize)),
            units: self.units,
        })
    }
}

#[async_trait]
impl EgressController for Controller {
    async fn forward(&self, _: Option<u32>, mut bundle: Bundle) {
        let neighbour = self.neighbour.as_ref();
        // One that has expired ends where it leaves (`filters`).
        let is_here_still = !bundle.has_expired();
        if is_here_still && neighbour.is_some_and(|neighbour| has_passed(&bundle, neighbour)) {
            // It is looked at again when a route changes.
            bundle.metadata.status = BundleStatus::Waiting;
            if let Err(error) = self.store.update_status(&bundle).await {
                tracing::warn!(%error, "a bundle that waits for another route waits for its contact to end");
            }
            return;
        }
        let units = u32::try_from(bundle_bytes(&bundle) / UNIT + 1)
            .unwrap_or(u32::MAX)
            .min(self.units);
        let count = self.bundles.clone().acquire_owned().await;
        let bytes = self.bytes.clone().acquire_many_owned(units).await;
        let (Ok(count), Ok(bytes)) = (count, bytes) else {
            return;
        };
        // The agent hands a bundle out again when its queue was full, or when a contact has ended and begun.
        let Some(busy) = self.stock.begin(&bundle.bundle.id, Task::Sending) else {
            return;
        };
        let queue = self.queue.clone();
        tokio::spawn(async move {
            let is_refused = is_refused(queue.forward(bundle)).await;
            // The agent ends a neighbour when nothing holds its queue.
            drop((queue, count, bytes));
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
    use hardy_bpa::bundle::BundleMetadata;
    use hardy_bpv7::{builder::Builder, creation_timestamp::CreationTimestamp};

    use super::*;

    #[test]
    fn a_node_that_has_had_a_bundle_is_known() {
        let builder = Builder::new("ipn:1.5".parse().unwrap(), "ipn:4.5".parse().unwrap());
        let builder = builder.with_payload(b"x".as_slice().into());
        let mut bundle = Bundle {
            bundle: builder.build(CreationTimestamp::now()).unwrap().0,
            metadata: BundleMetadata::default(),
        };
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
        // Its destination is to have it, whoever gave it.
        bundle.bundle.previous_node = Some("ipn:4.0".parse().unwrap());
        assert_eq!(passed(&bundle), ["ipn:1.0", "ipn:3.0"]);
    }
}
