//! What the machine is asked and tells: names of flows, events, bundles, bounds and counters.

use std::time::Duration;

use bytes::Bytes;
use serde::{Deserialize, Serialize};

/// Bounds of the flows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Streams, and as many flows of datagrams, that each far gateway may have open.
    pub flows: usize,
    /// Bytes of a stream that may come before they are read. At least 1 MiB, which the far side may send unasked.
    pub window: u64,
    /// Bytes of a stream in one bundle.
    pub part_bytes: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            flows: 256,
            window: 4 << 20,
            part_bytes: 256 << 10,
        }
    }
}

/// Names a flow.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FlowId {
    /// The far gateway.
    pub(super) peer: usize,
    /// The life that opened it.
    pub(super) opener: u64,
    pub(super) number: u64,
    /// Whether this side opened it.
    pub(super) is_ours: bool,
}

impl FlowId {
    /// The far gateway.
    pub const fn peer(&self) -> usize {
        self.peer
    }
}

/// An event for the driver of the flows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// The far side opened a stream with this header.
    Accepted(FlowId, Bytes),
    /// Something can be read, or the stream broke off.
    Readable(FlowId),
    /// More can be written, or the stream broke off.
    Writable(FlowId),
    /// The far side sends datagrams with this header.
    FlowBegan(FlowId, Bytes),
    /// Datagrams of a flow, to be delivered in this order.
    Datagrams(FlowId, Vec<Bytes>),
    /// A flow of the far side is forgotten: nothing passed for a lifetime, or there are too many.
    FlowEnded(FlowId),
}

/// A bundle to send.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Transmit {
    /// The far gateway.
    pub peer: usize,
    /// Payload of the bundle.
    pub payload: Bytes,
    /// How long the bundle lives.
    pub lifetime: Duration,
}

/// What was carried since the start, and what is open.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Counters {
    /// Streams that are open now.
    pub streams: u64,
    /// Streams since the start.
    pub streams_total: u64,
    /// Streams that broke off.
    pub streams_failed: u64,
    /// Flows of datagrams that are open.
    pub flows: u64,
    /// Bundles that the node has taken.
    pub bundles_sent: u64,
    /// Bytes of their payloads.
    pub bytes_sent: u64,
    /// Bundles of far gateways.
    pub bundles_received: u64,
    /// Bytes of their payloads.
    pub bytes_received: u64,
    /// Bundles that held no message, or came from others than the far gateways.
    pub unreadable: u64,
    /// Messages of a former life of either gateway.
    pub former_life: u64,
    /// Batches of datagrams that had come before, or too late to be in order.
    pub repeated: u64,
    /// Streams of far gateways that [`Limits::flows`] refused, and flows of datagrams that it ended early.
    #[serde(default)]
    pub limited: u64,
    /// Datagrams dropped since too many waited, or since the node refuses them.
    pub dropped: u64,
}
