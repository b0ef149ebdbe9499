//! What a node tells of itself: the JSON of `starhaul dtn status --json`.

use serde::{Deserialize, Serialize};

/// A node at one moment.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Status {
    /// Number or name of the node.
    pub node: String,
    /// When this was told (RFC 3339).
    pub time: String,
    /// Seconds since it started.
    pub uptime_s: f64,
    /// Bundles in the store, and the limits.
    pub storage: StorageStatus,
    /// What is stored for each node, and how it will travel; for more than 1000 nodes those with most, and last all `others` together.
    pub stored: Vec<StoredFor>,
    /// The links to neighbours; those of the configuration also while they are not connected.
    pub neighbours: Vec<NeighbourStatus>,
    /// Bundles and segments since the start.
    pub counters: Counters,
    /// Limits that are reached, for people.
    pub limits_met: Vec<String>,
}

/// Bundles in the store, and the limits.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct StorageStatus {
    /// `memory`, or the folder.
    pub place: String,
    /// Number of bundles.
    pub bundles: u64,
    /// Bytes that they and what is known of them take up.
    pub bytes: u64,
    /// Bundles that are being sent, until they are acknowledged.
    pub in_flight: u64,
    /// Greatest number of bundles.
    pub max_bundles: u64,
    /// Greatest number of bytes.
    pub max_bytes: u64,
}

/// What is stored for one node.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct StoredFor {
    /// Number or name of the destination node.
    pub node: String,
    /// Number of bundles.
    pub bundles: u64,
    /// Bytes that they and what is known of them take up.
    pub bytes: u64,
    /// The next node on the way, if the contact plan or a route knows one.
    pub next_hop: Option<String>,
    /// When the contact with it begins (RFC 3339); `None` while it is open or needs no plan.
    pub leaves: Option<String>,
    /// When the last byte of a bundle that leaves then arrives, by the plan.
    pub arrives: Option<String>,
}

/// The link to a neighbour.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct NeighbourStatus {
    /// Number or name of the neighbour.
    pub node: String,
    /// `ltp` or `tcp`.
    pub by: String,
    /// Whether bundles may be sent to it now.
    pub is_open: bool,
    /// When the present contact ends.
    pub closes: Option<String>,
    /// When the next one begins.
    pub opens: Option<String>,
    /// Bytes of data in a segment to it at present, over LTP.
    #[serde(default)]
    pub segment_bytes: Option<usize>,
    /// Why they are so many.
    #[serde(default)]
    pub segment_reason: Option<String>,
}

/// Counters since the start.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Counters {
    /// Bundles that came from neighbours and were stored; what was here already is not counted again.
    pub received: u64,
    /// Bundles that came from neighbours and were dropped at once: damaged, expired, or against a rule.
    #[serde(default)]
    pub dropped: u64,
    /// Bundles that neighbours took.
    pub sent: u64,
    /// Bundles whose lifetime ended here.
    pub expired: u64,
    /// Bundles for which there was no room.
    pub refused: u64,
    /// Bundles that were larger than any may be here.
    #[serde(default)]
    pub too_large: u64,
    /// LTP data segments sent.
    pub ltp_segments: u64,
    /// Those among them that were sent again.
    pub ltp_resent: u64,
    /// LTP segments that were dropped.
    pub ltp_dropped: u64,
    /// Datagrams at LTP's port from addresses of no neighbour.
    pub ltp_strangers: u64,
    /// LTP blocks that held something else than bundles, and were refused.
    #[serde(default)]
    pub ltp_unreadable: u64,
}
