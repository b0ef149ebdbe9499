//! The status as HTTP clients get it.

use std::sync::{Arc, OnceLock};

use bytes::Bytes;

use crate::status::Status;

/// A status and the forms in which it was asked for.
#[derive(Debug)]
pub(super) struct Snapshot {
    status: Arc<Status>,
    metrics: OnceLock<Bytes>,
    event: OnceLock<Bytes>,
}

impl Snapshot {
    pub(super) fn new(status: Status) -> Self {
        Self {
            status: Arc::new(status),
            metrics: OnceLock::new(),
            event: OnceLock::new(),
        }
    }

    /// The status as OpenMetrics text.
    pub(super) fn metrics(&self) -> Bytes {
        let text = || starhaul_metrics::encode(&self.status).into();
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
