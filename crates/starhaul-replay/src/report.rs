//! What emulated links have carried.

use std::time::Duration;

use starhaul_link::{Histogram, LinkStats, Passage};

use crate::{Second, TimeSeries};

/// A run is invalid when one packet in a hundred left later than this.
pub const LATENESS_BOUND: Duration = Duration::from_millis(1);

/// The report of one link.
#[derive(Clone, Debug)]
pub struct LinkReport {
    /// The link's name.
    pub name: String,
    /// The direction from the command.
    pub up: DirectionReport,
    /// The direction toward the command.
    pub down: DirectionReport,
}

/// What all links of a network carried.
#[derive(Clone, Debug)]
pub struct LinksReport {
    /// Reports of the links in their order.
    pub links: Vec<LinkReport>,
    /// Warnings to show to the user.
    pub warnings: Vec<String>,
}

/// The report of one direction; bytes are those of IP packets.
#[derive(Clone, Debug)]
pub struct DirectionReport {
    /// The link's counters.
    pub stats: LinkStats,
    /// Bytes that the link could have carried in all; saturates without a rate limit.
    pub capacity_bytes: u64,
    /// Figures of each second since the start, for a day at most; the last one is incomplete.
    pub seconds: Vec<Second>,
    /// Delays from a packet's arrival at the link until it left at the far end.
    pub delay: Histogram,
    /// Time from a packet's arrival until its last byte was sent, without ICMP.
    pub queueing: Histogram,
    /// Delays between due and actual departures.
    pub lateness: Histogram,
    /// Processor time of the forwarding thread, including system calls.
    pub cpu: Duration,
    /// Throughput, delay and drops over time.
    pub series: TimeSeries,
    /// Every packet that arrived, without ICMP, if [`ReplaySpec::keep_passages`](crate::ReplaySpec::keep_passages) is set.
    pub passages: Vec<Passage>,
}

impl LinksReport {
    /// Whether p99 of the lateness of all packets is within [`LATENESS_BOUND`].
    pub fn is_valid(&self) -> bool {
        is_in_time(&self.links)
    }
}

impl DirectionReport {
    /// Processor time per packet, zero without packets.
    pub fn cpu_per_packet(&self) -> Duration {
        let packets = u32::try_from(self.stats.enqueued).unwrap_or(u32::MAX);
        self.cpu.checked_div(packets).unwrap_or_default()
    }
}

/// The lateness of all packets of these links.
pub(crate) fn lateness(links: &[LinkReport]) -> Histogram {
    let mut all = Histogram::default();
    for link in links {
        all.merge(&link.up.lateness);
        all.merge(&link.down.lateness);
    }
    all
}

/// Whether its p99 is within [`LATENESS_BOUND`].
pub(crate) fn is_in_time(links: &[LinkReport]) -> bool {
    lateness(links).quantile(0.99) <= LATENESS_BOUND
}
