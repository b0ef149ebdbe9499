//! The status as HTTP clients get it: taken anew only when the last one is old, whatever number of clients asks.

use std::{
    sync::{Arc, OnceLock},
    time::{Duration, Instant},
};

use bytes::Bytes;
use parking_lot::Mutex;

use super::metrics;
use crate::{shared::Shared, status::Status};

/// Age up to which a snapshot is given again.
const FRESH: Duration = Duration::from_millis(200);

/// The last snapshot.
#[derive(Debug)]
pub(super) struct Snapshots {
    shared: Arc<Shared>,
    last: Mutex<Option<Arc<Snapshot>>>,
}

/// A status and the forms in which it was asked for.
#[derive(Debug)]
pub(super) struct Snapshot {
    taken: Instant,
    status: Arc<Status>,
    metrics: OnceLock<Bytes>,
    event: OnceLock<Bytes>,
}

impl Snapshots {
    pub(super) fn new(shared: Arc<Shared>) -> Self {
        let last = Mutex::default();
        Self { shared, last }
    }

    /// A snapshot of the last 200 ms.
    pub(super) fn get(&self) -> Arc<Snapshot> {
        // Locked meanwhile, so that clients that ask at once get the same one.
        let mut last = self.last.lock();
        if let Some(snapshot) = last.as_ref().filter(|last| last.taken.elapsed() < FRESH) {
            return snapshot.clone();
        }
        let snapshot = Arc::new(Snapshot {
            taken: Instant::now(),
            status: Arc::new(self.shared.summary()),
            metrics: OnceLock::new(),
            event: OnceLock::new(),
        });
        *last = Some(snapshot.clone());
        snapshot
    }
}

impl Snapshot {
    /// In OpenMetrics text.
    pub(super) fn metrics(&self) -> Bytes {
        let text = || metrics::encode(&self.status).into();
        self.metrics.get_or_init(text).clone()
    }

    /// As a server-sent event: the object of `starhaul status --json` without the lists of streams.
    pub(super) fn event(&self) -> Bytes {
        let text = || {
            // Neither a map with other keys than texts nor a failing writer is involved.
            let json = serde_json::to_string(&*self.status).unwrap_or_default();
            format!("data: {json}\n\n").into()
        };
        self.event.get_or_init(text).clone()
    }
}
