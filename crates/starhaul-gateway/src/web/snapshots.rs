//! The status as HTTP clients get it: taken anew only when the last one is old, whatever number of clients asks.

use std::{
    sync::{Arc, OnceLock},
    time::{Duration, Instant},
};

use bytes::Bytes;
use parking_lot::Mutex;

use super::metrics;
use crate::{shared::Shared, status::Status};

/// Ages up to which a snapshot is given again, at least and at most.
const FRESH: [Duration; 2] = [Duration::from_millis(200), Duration::from_millis(1500)];
/// In between, taking one costs at most one part in so many of the time: with many streams it takes long.
const SPARE: u32 = 100;

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
    fresh_for: Duration,
    status: Arc<Status>,
    metrics: OnceLock<Bytes>,
    event: OnceLock<Bytes>,
}

impl Snapshots {
    pub(super) fn new(shared: Arc<Shared>) -> Self {
        let last = Mutex::default();
        Self { shared, last }
    }

    /// The present snapshot, which is as old as [`FRESH`] says at the most.
    pub(super) fn get(&self) -> Arc<Snapshot> {
        // Locked meanwhile, so that clients that ask at once get the same one.
        let mut last = self.last.lock();
        let is_fresh = |last: &&Arc<Snapshot>| last.taken.elapsed() < last.fresh_for;
        if let Some(snapshot) = last.as_ref().filter(is_fresh) {
            return snapshot.clone();
        }
        let began = Instant::now();
        let status = Arc::new(self.shared.summary());
        let took = began.elapsed();
        let snapshot = Arc::new(Snapshot {
            taken: began + took,
            fresh_for: (took * SPARE).clamp(FRESH[0], FRESH[1]),
            status,
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
