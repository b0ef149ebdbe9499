//! The session's paths: a monitor each, what was sent and received on it, and the clocks of both sides.

use std::{
    collections::BTreeMap,
    time::{Duration, Instant},
};

use starhaul_paths::{ClockOffset, PathId, PathMonitor, PathUpdate};
use starhaul_units::Bandwidth;

use crate::{
    ranges::RangeSet,
    received::ReceiveLog,
    sent::SentLog,
    wire::{FRAGMENT_HEADER_BYTES, Header, unwrap, wrap},
};

/// An idle path is probed this often.
const PROBE_INTERVAL: Duration = Duration::from_secs(1);
/// A silent one is probed at once, and then each time after twice as long.
const SUSPECT_INTERVALS: [Duration; 2] = [Duration::from_millis(50), Duration::from_millis(400)];
/// Ranges of acknowledged numbers kept per path, to look at each acknowledgement's news only.
const MAX_ACKED_RANGES: usize = 64;

#[derive(Debug)]
pub(crate) struct Path {
    pub(crate) monitor: PathMonitor,
    pub(crate) sent: SentLog,
    pub(crate) acked: RangeSet,
    pub(crate) received: ReceiveLog,
    pub(crate) probe_at: Instant,
    /// Between the next two probes of the silent path.
    suspect_interval: Duration,
    pub(crate) counters: Counters,
}

#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Counters {
    pub(crate) bytes_sent: u64,
    pub(crate) bytes_received: u64,
    pub(crate) datagrams_sent: u64,
    pub(crate) datagrams_lost: u64,
}

impl Path {
    fn new(now: Instant, cost: f64, update: PathUpdate) -> Self {
        Self {
            monitor: PathMonitor::new(now, cost, update),
            sent: SentLog::new(),
            acked: RangeSet::new(MAX_ACKED_RANGES),
            received: ReceiveLog::new(),
            probe_at: now,
            suspect_interval: SUSPECT_INTERVALS[0],
            counters: Counters::default(),
        }
    }

    /// The path fell silent.
    pub(crate) fn probe_soon(&mut self, now: Instant) {
        self.probe_at = now;
        self.suspect_interval = SUSPECT_INTERVALS[0];
    }

    /// A datagram that will be acknowledged leaves.
    pub(crate) fn delay_probe(&mut self, now: Instant) {
        if !self.monitor.is_suspect() {
            self.probe_at = now + PROBE_INTERVAL;
        } else if self.probe_at <= now {
            self.probe_at = now + self.suspect_interval;
            self.suspect_interval = (self.suspect_interval * 2).min(SUSPECT_INTERVALS[1]);
        }
    }

    pub(crate) fn max_datagram(&self) -> usize {
        self.monitor.transport().max_datagram
    }
}

/// All paths of a session.
#[derive(Debug, Default)]
pub(crate) struct Paths {
    table: BTreeMap<PathId, Path>,
}

impl Paths {
    pub(crate) fn add(&mut self, now: Instant, id: PathId, cost: f64, update: PathUpdate) {
        self.table.insert(id, Path::new(now, cost, update));
    }

    pub(crate) fn remove(&mut self, id: PathId) -> Option<Path> {
        self.table.remove(&id)
    }

    pub(crate) fn get(&self, id: PathId) -> Option<&Path> {
        self.table.get(&id)
    }

    pub(crate) fn get_mut(&mut self, id: PathId) -> Option<&mut Path> {
        self.table.get_mut(&id)
    }

    pub(crate) fn len(&self) -> usize {
        self.table.len()
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (PathId, &Path)> {
        self.table.iter().map(|(id, path)| (*id, path))
    }

    pub(crate) fn iter_mut(&mut self) -> impl Iterator<Item = (PathId, &mut Path)> {
        self.table.iter_mut().map(|(id, path)| (*id, path))
    }

    /// Paths worth sending on: those not silent, or all when all are.
    pub(crate) fn usable(&self) -> impl Iterator<Item = (PathId, &Path)> {
        let all_silent = self.table.values().all(|path| path.monitor.is_suspect());
        self.iter()
            .filter(move |(_, path)| all_silent || !path.monitor.is_suspect())
    }

    /// Usable paths whose datagrams are large enough for `bytes`.
    pub(crate) fn carrying(&self, bytes: u64) -> impl Iterator<Item = (PathId, &Path)> {
        self.usable()
            .filter(move |(_, path)| path.max_datagram() as u64 >= bytes)
    }

    pub(crate) fn is_usable(&self, id: PathId) -> bool {
        self.usable().any(|(usable, _)| usable == id)
    }

    /// The usable path on which a small datagram sent now arrives first.
    pub(crate) fn fastest(&self, now: Instant) -> Option<PathId> {
        let arrival = |path: &Path| path.monitor.predict_arrival(now, 0, 200);
        self.usable()
            .min_by_key(|(id, path)| (arrival(path), *id))
            .map(|(id, _)| id)
    }

    /// Payload of a fragment that fits every path.
    pub(crate) fn fragment_capacity(&self) -> Option<usize> {
        let least = self.table.values().map(Path::max_datagram).min()?;
        least
            .checked_sub(FRAGMENT_HEADER_BYTES)
            .filter(|capacity| *capacity > 0)
    }

    pub(crate) fn bandwidth(&self) -> Bandwidth {
        self.usable()
            .map(|(_, path)| path.monitor.bandwidth())
            .sum()
    }

    /// The least one-way delay of any usable path.
    pub(crate) fn least_delay(&self) -> Duration {
        self.usable()
            .map(|(_, path)| path.monitor.one_way_delay())
            .min()
            .unwrap_or_default()
    }

    /// The longest that word of a datagram's arrival may take on any path.
    pub(crate) fn longest_turnaround(&self) -> Duration {
        self.iter()
            .map(|(_, path)| path.monitor.overdue_after())
            .max()
            .unwrap_or_default()
    }
}

/// The clocks of both sides: ours counts from the session's start, the peer's has an unknown offset.
#[derive(Debug)]
pub(crate) struct Clocks {
    epoch: Instant,
    offset: ClockOffset,
    /// The latest time heard from the peer, to unwrap the next by.
    peer_latest: u64,
}

impl Clocks {
    pub(crate) fn new(now: Instant) -> Self {
        Self {
            epoch: now,
            offset: ClockOffset::new(),
            peer_latest: 0,
        }
    }

    /// Microseconds of our clock.
    pub(crate) fn micros(&self, at: Instant) -> u64 {
        u64::try_from(at.saturating_duration_since(self.epoch).as_micros()).unwrap_or(u64::MAX)
    }

    pub(crate) fn header(&self, now: Instant, sequence: u64) -> Header {
        Header {
            sequence: wrap(sequence),
            sent_micros: wrap(self.micros(now)),
        }
    }

    /// A time of the peer's clock in full.
    pub(crate) fn peer_time(&mut self, wire: u32) -> u64 {
        let time = unwrap(wire, self.peer_latest);
        self.peer_latest = self.peer_latest.max(time);
        time
    }

    /// An exchange: sent by us, received and answered by the peer, heard by us.
    pub(crate) fn on_exchange(&mut self, now: Instant, sent: Instant, received: u64, replied: u64) {
        let ours = |at| Duration::from_micros(self.micros(at));
        let (sent, heard) = (ours(sent), ours(now));
        self.offset.on_sample(
            now,
            sent,
            Duration::from_micros(received),
            Duration::from_micros(replied),
            heard,
        );
    }

    /// From our `sent` to the peer's `received`.
    pub(crate) fn one_way(&self, sent: Instant, received: u64) -> Option<Duration> {
        self.offset.one_way(
            Duration::from_micros(self.micros(sent)),
            Duration::from_micros(received),
        )
    }

    /// From the peer's `sent` until our `now`.
    pub(crate) fn since_peer(&self, now: Instant, sent: u64) -> Option<Duration> {
        let offset = i128::from(self.offset.offset_micros()?);
        let elapsed = i128::from(self.micros(now)) + offset - i128::from(sent);
        Some(Duration::from_micros(u64::try_from(elapsed).unwrap_or(0)))
    }
}
