//! How many bundles are on their way to a neighbour at a time.
//!
//! The agent waits for each transmission before it begins the next; over a light time of seconds that is one bundle per round
//! trip. So each is given a task of its own, within a window.

use std::{collections::HashMap, sync::Arc};

use hardy_bpa::{
    async_trait,
    bundle::Bundle,
    policy::{EgressController, EgressPolicy, EgressQueue},
};
use tokio::sync::Semaphore;

use crate::stock::{Stock, Task, bundle_bytes};

/// Greatest number of bundles on their way to a neighbour.
pub(crate) const MOST_BUNDLES: usize = 8192;
/// Unit in which the bytes on their way are counted: permits are 32-bit numbers.
const UNIT: u64 = 1 << 10;

/// A policy without priorities that keeps a window of transmissions open for each neighbour.
#[derive(Debug)]
pub(crate) struct Window {
    stock: Arc<Stock>,
    units: u32,
}

struct Controller {
    queue: Arc<dyn EgressQueue>,
    stock: Arc<Stock>,
    bundles: Arc<Semaphore>,
    bytes: Arc<Semaphore>,
    units: u32,
}

impl Window {
    /// At most `bytes` of bundles on their way to a neighbour; one larger bundle may go alone.
    pub(crate) fn new(stock: Arc<Stock>, bytes: u64) -> Arc<Self> {
        let units = u32::try_from(bytes / UNIT)
            .unwrap_or(u32::MAX)
            .clamp(1, MOST_UNITS);
        Arc::new(Self { stock, units })
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
            // The agent makes the queue without a number always.
            queue: queue.unwrap_or_else(|| Arc::new(Nowhere)),
            stock: self.stock.clone(),
            bundles: Arc::new(Semaphore::new(MOST_BUNDLES)),
            bytes: Arc::new(Semaphore::new(self.units as usize)),
            units: self.units,
        })
    }
}

#[async_trait]
impl EgressController for Controller {
    async fn forward(&self, _: Option<u32>, bundle: Bundle) {
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
            queue.forward(bundle).await;
            drop((busy, count, bytes));
        });
    }
}

struct Nowhere;

#[async_trait]
impl EgressQueue for Nowhere {
    async fn forward(&self, _: Bundle) {}
}
