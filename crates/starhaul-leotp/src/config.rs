//! Configuration of a node and of its neighbours.

use std::time::Duration;

use crate::keys::NeighbourKey;

/// A neighbour of a node: the caller's number for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct NeighbourId(pub u32);

/// Who recovers what is lost, and who finds the rate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scope {
    /// Each hop by itself.
    Hop,
    /// The requester alone: the comparison that shows what hops are good for (table II of the publication).
    EndToEnd,
}

/// The rule by which the receiver of a hop finds its rate.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum RateRule {
    /// Ours: keeps a small queue by one-way delays.
    #[default]
    Adaptive,
    /// The published one: a window, by round-trip times.
    Published,
}

impl RateRule {
    /// Each rule by its name in configurations.
    pub const NAMED: [(&'static str, Self); 2] =
        [("ours", Self::Adaptive), ("published", Self::Published)];
    /// Segments of a content that wait at a relay by the published rule.
    pub const PUBLISHED_BACKLOG: f64 = 5.0;
}

/// Limits and habits of a node.
#[derive(Clone, Debug)]
pub struct NodeConfig {
    /// Bytes of memory for the cache; 0 for none.
    pub cache_bytes: usize,
    /// Bytes of data in a segment that this node serves; for datagrams of 1472 bytes at most
    /// [`NodeConfig::SEGMENT_BYTES`].
    pub segment_bytes: usize,
    /// Bytes that wait for one neighbour at most.
    pub queue_bytes: usize,
    /// Ranges asked for upstream at most, for all neighbours.
    pub pending_ranges: usize,
    /// Contents known of at most, for all neighbours.
    pub contents: usize,
    /// What was asked for upstream and did not come for this time is forgotten, unless more of its content comes.
    pub patience: Duration,
    /// Whether each hop or the requester alone recovers lost segments.
    pub recovery: Scope,
    /// Whether each hop or the requester alone finds the sending rate.
    pub control: Scope,
    /// How the rate of a hop is found.
    pub rate_rule: RateRule,
    /// Segments of a content that are to wait at a relay, so that the hop behind never lacks data (published: 5).
    pub backlog_segments: f64,
    /// Data may leave this much earlier than the pace says, to be sent in batches; what leaves late is made up for. Zero where the
    /// node is never late, as in a simulator.
    pub burst: Duration,
}

impl NodeConfig {
    /// Data in a segment whose packet fits into a datagram of 1472 bytes, an Ethernet frame over IPv4, whatever its header.
    pub const SEGMENT_BYTES: usize = Self::segment_in(1472);
    /// Bytes that wait for one neighbour at most by default. Three quarters of them, which one content may have, are what a hop of 10 Gbit/s brings in 20 ms:
    /// when the next hop slows down, as much comes until the news has passed a hop of that round trip.
    pub const QUEUE_BYTES: usize = 32 << 20;
    /// The smallest segments: enough for any path.
    pub const LEAST_SEGMENT_BYTES: usize = 64;

    /// With this rule for the rate of hops; with the published one the backlog is the published one, too.
    #[must_use]
    pub fn by_rule(self, rate_rule: RateRule) -> Self {
        let backlog_segments = match rate_rule {
            RateRule::Adaptive => self.backlog_segments,
            RateRule::Published => RateRule::PUBLISHED_BACKLOG,
        };
        Self {
            rate_rule,
            backlog_segments,
            ..self
        }
    }

    /// Data in a segment whose packet fits into a datagram of so many bytes (UDP payload), whatever its header. Below
    /// [`NodeConfig::LEAST_SEGMENT_BYTES`] for less than 118.
    pub const fn segment_in(datagram_bytes: usize) -> usize {
        datagram_bytes.saturating_sub(crate::wire::DATA_OVERHEAD + crate::wire::ECHO_BYTES)
    }
}

impl Default for NodeConfig {
    fn default() -> Self {
        Self {
            cache_bytes: 64 << 20,
            segment_bytes: Self::SEGMENT_BYTES,
            queue_bytes: Self::QUEUE_BYTES,
            pending_ranges: 1 << 16,
            contents: 1 << 12,
            patience: Duration::from_secs(10),
            recovery: Scope::Hop,
            control: Scope::Hop,
            rate_rule: RateRule::Adaptive,
            backlog_segments: 3.0,
            burst: Duration::ZERO,
        }
    }
}

/// A neighbour as a node is reported of it.
#[derive(Clone, Debug)]
pub struct NeighbourConfig {
    /// The secret that both share.
    pub key: NeighbourKey,
}
