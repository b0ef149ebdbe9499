//! Figures of streams and paths, for people and for metrics.

use std::{collections::VecDeque, time::Duration};

use bytes::Bytes;
use starhaul_paths::{PathId, RttHistory, Sharing};
use starhaul_units::Bandwidth;

use crate::{
    class_bytes::ClassBytes,
    paths::Path,
    types::{ExpiredCause, Mode, Outcome, StreamConfig, StreamId},
};

/// Streams whose last figures wait each for itself.
const MAX_ENDED: usize = 1024;
/// Deadline streams that ended and are still shown.
const MAX_LATEST: usize = 256;

/// Counters of one stream. For a stream of ours the outcomes of its blocks; for a peer's what arrived.
#[derive(Clone, Debug)]
pub struct StreamStats {
    /// Number of the stream.
    pub stream: StreamId,
    /// What it was opened with.
    pub label: Bytes,
    /// Protection of its blocks.
    pub mode: Mode,
    /// 0 is the most important.
    pub priority: u8,
    /// Nothing more will be heard of it.
    pub ended: bool,
    /// Blocks given to the session.
    pub blocks_sent: u64,
    /// Whole blocks handed to the application.
    pub blocks_received: u64,
    /// Delivered within their deadline.
    pub on_time: u64,
    /// Delivered after their deadline.
    pub late: u64,
    /// Given up because other blocks went first.
    pub expired_capacity: u64,
    /// Given up because of losses.
    pub expired_loss: u64,
    /// Given up because no path is fast enough.
    pub expired_unreachable: u64,
    /// Retreated, or brought down by the block they depend on.
    pub cancelled: u64,
    /// Not ended when the stream or session did.
    pub failed: u64,
    /// Delivered blocks that redundancy rebuilt.
    pub recovered_by_redundancy: u64,
    /// Delivered blocks of which a fragment was sent again.
    pub recovered_by_retransmission: u64,
    /// Bytes of redundancy and of second copies that were sent, without headers.
    pub redundancy_bytes: u64,
    /// Application bytes given to the session.
    pub bytes_sent: u64,
    /// Application bytes handed to the application.
    pub bytes_received: u64,
}

impl StreamStats {
    /// Counters at zero, to which those of others can be added.
    pub fn none() -> Self {
        Self::new(StreamId::CONTROL, &StreamConfig::default())
    }

    pub(crate) fn new(stream: StreamId, config: &StreamConfig) -> Self {
        Self {
            stream,
            label: config.label.clone(),
            mode: config.mode,
            priority: config.priority,
            ended: false,
            blocks_sent: 0,
            blocks_received: 0,
            on_time: 0,
            late: 0,
            expired_capacity: 0,
            expired_loss: 0,
            expired_unreachable: 0,
            cancelled: 0,
            failed: 0,
            recovered_by_redundancy: 0,
            recovered_by_retransmission: 0,
            redundancy_bytes: 0,
            bytes_sent: 0,
            bytes_received: 0,
        }
    }

    /// Adds the counters of another stream.
    pub fn add(&mut self, other: &Self) {
        self.blocks_sent += other.blocks_sent;
        self.blocks_received += other.blocks_received;
        self.on_time += other.on_time;
        self.late += other.late;
        self.expired_capacity += other.expired_capacity;
        self.expired_loss += other.expired_loss;
        self.expired_unreachable += other.expired_unreachable;
        self.cancelled += other.cancelled;
        self.failed += other.failed;
        self.recovered_by_redundancy += other.recovered_by_redundancy;
        self.recovered_by_retransmission += other.recovered_by_retransmission;
        self.redundancy_bytes += other.redundancy_bytes;
        self.bytes_sent += other.bytes_sent;
        self.bytes_received += other.bytes_received;
    }

    pub(crate) fn count(&mut self, outcome: Outcome) {
        match outcome {
            Outcome::Delivered {
                on_time,
                recovered_by_redundancy,
                recovered_by_retransmission,
                ..
            } => {
                self.on_time += u64::from(on_time);
                self.late += u64::from(!on_time);
                self.recovered_by_redundancy += u64::from(recovered_by_redundancy);
                self.recovered_by_retransmission += u64::from(recovered_by_retransmission);
            }
            Outcome::Expired(ExpiredCause::Capacity) => self.expired_capacity += 1,
            Outcome::Expired(ExpiredCause::Loss) => self.expired_loss += 1,
            Outcome::Expired(ExpiredCause::Unreachable) => self.expired_unreachable += 1,
            Outcome::Cancelled { .. } => self.cancelled += 1,
            Outcome::Failed => self.failed += 1,
        }
    }
}

/// Last figures of streams that have ended, until the application takes them.
#[derive(Debug, Default)]
pub(crate) struct EndedStreams {
    streams: VecDeque<StreamStats>,
    /// The sum of those for which there was no room.
    others: Option<StreamStats>,
    /// The last deadline streams, oldest first; they stay when the others are taken.
    latest: VecDeque<StreamStats>,
}

impl EndedStreams {
    pub(crate) fn push(&mut self, stats: StreamStats) {
        if self.streams.len() >= MAX_ENDED
            && let Some(oldest) = self.streams.pop_front()
        {
            match &mut self.others {
                Some(others) => others.add(&oldest),
                None => {
                    self.others = Some(StreamStats {
                        label: Bytes::new(),
                        ..oldest
                    });
                }
            }
        }
        self.streams.push_back(StreamStats {
            ended: true,
            // Of the datagram in which it came nothing is kept.
            label: Bytes::copy_from_slice(&stats.label),
            ..stats
        });
    }

    /// The same for a deadline stream, whose figures are also shown for a while.
    pub(crate) fn push_blocks(&mut self, stats: StreamStats) {
        if self.latest.len() >= MAX_LATEST {
            self.latest.pop_front();
        }
        self.push(stats.clone());
        let ended = true;
        self.latest.push_back(StreamStats { ended, ..stats });
    }

    /// The last deadline streams, oldest first.
    pub(crate) fn latest(&self) -> impl Iterator<Item = &StreamStats> {
        self.latest.iter()
    }

    pub(crate) fn take(&mut self) -> Vec<StreamStats> {
        let streams = std::mem::take(&mut self.streams);
        self.others.take().into_iter().chain(streams).collect()
    }
}

/// What a session knows of one path.
#[derive(Clone, Debug)]
pub struct PathStats {
    /// Number of the path.
    pub path: PathId,
    /// Price per byte.
    pub cost: f64,
    /// It has been silent for longer than an RTT; data go elsewhere.
    pub suspect: bool,
    /// Smoothed round-trip time.
    pub smoothed_rtt: Duration,
    /// Lowest RTT lately.
    pub min_rtt: Duration,
    /// From us to the peer, by the estimated clock offset.
    pub one_way_delay: Duration,
    /// What the path can carry.
    pub bandwidth: Bandwidth,
    /// Share of datagrams lost.
    pub loss_rate: f64,
    /// Greatest share lost in a recent window.
    pub loss_window_max: f64,
    /// Mean number of datagrams lost in a row.
    pub burst_length: f64,
    /// Share of datagrams that a modem tells to be lost, if one does.
    pub told_loss: Option<f64>,
    /// Bytes of session datagrams sent.
    pub bytes_sent: u64,
    /// Bytes of session datagrams received.
    pub bytes_received: u64,
    /// Those of them that carried data of streams, by priority.
    pub sent_by_class: ClassBytes,
    /// The same of those received.
    pub received_by_class: ClassBytes,
    /// Session datagrams sent.
    pub datagrams_sent: u64,
    /// Session datagrams declared lost.
    pub datagrams_lost: u64,
    /// The peer has the newest datagram that asks for an acknowledgement: the session hears that over any path.
    pub newest_acked: bool,
    rtts: RttHistory,
}

impl PathStats {
    pub(crate) fn new(id: PathId, path: &Path) -> Self {
        let (monitor, counters) = (&path.monitor, path.counters);
        let loss = monitor.loss();
        Self {
            path: id,
            cost: monitor.cost(),
            suspect: monitor.is_suspect(),
            smoothed_rtt: monitor.smoothed_rtt(),
            min_rtt: monitor.min_rtt(),
            one_way_delay: monitor.one_way_delay(),
            bandwidth: monitor.bandwidth(),
            loss_rate: loss.rate,
            loss_window_max: loss.window_max,
            burst_length: loss.burst_length,
            told_loss: monitor.told_loss(),
            bytes_sent: counters.bytes_sent,
            bytes_received: counters.bytes_received,
            sent_by_class: path.sent_by_class.clone(),
            received_by_class: path.received_by_class.clone(),
            datagrams_sent: counters.datagrams_sent,
            datagrams_lost: counters.datagrams_lost,
            newest_acked: counters.asked > 0 && counters.answered >= counters.asked,
            rtts: monitor.rtts().clone(),
        }
    }

    /// Whether this path and another one of the session, at the same time, seem to share a bottleneck in either direction: the queues of both
    /// were of one length throughout the last half minute. A hint for people, and silent where no packets wait.
    pub fn shares_bottleneck_with(&self, other: &Self) -> bool {
        self.rtts.sharing(&other.rtts) == Sharing::Common
    }
}
