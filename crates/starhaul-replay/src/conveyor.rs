//! One direction of an emulated link: the link and its clock, with deliveries per second and lateness.

use std::time::{Duration, Instant};

use starhaul_link::{Band, Dropped, Histogram, Link, LinkSpec, LinkStats, Outcome};

/// Seconds for which figures are kept.
const MAX_SECONDS: usize = 24 * 3600;

/// Figures of one second of a direction; bytes with IP headers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Second {
    /// Bytes that left the link.
    pub delivered_bytes: u64,
    /// Bytes that the link could have carried.
    pub capacity_bytes: u64,
}

/// Runs a link in real time for a caller that passes packets in and takes them out.
#[derive(Debug)]
pub(crate) struct Conveyor<P> {
    link: Link<P>,
    start: Instant,
    lateness: Histogram,
    /// Bytes by the second in which packets were due.
    delivered_bytes: Vec<u64>,
}

impl<P: Clone> Conveyor<P> {
    /// Creates a conveyor whose traces begin at `start`.
    pub(crate) fn new(spec: &LinkSpec, seed: u64, start: Instant) -> Self {
        Self {
            link: Link::new(spec, seed, start),
            start,
            lateness: Histogram::default(),
            delivered_bytes: Vec::new(),
        }
    }

    /// Takes a packet of this size, IP header included.
    pub(crate) fn enqueue(&mut self, band: Band, now: Instant, bytes: usize, packet: P) {
        self.link.enqueue_in(band, now, bytes, packet);
    }

    /// The fate of the next packet by `now`; a packet that arrived must leave at once.
    pub(crate) fn poll(&mut self, now: Instant) -> Option<Outcome<P>> {
        let outcome = self.link.poll(now)?;
        if let Outcome::Arrived(arrival) = &outcome {
            self.lateness
                .record(now.saturating_duration_since(arrival.due));
            self.count(arrival.due, arrival.bytes);
        }
        Some(outcome)
    }

    /// Notes that so many packets came to the link so much later than they were sent to it.
    pub(crate) fn note_late(&mut self, late: Duration, packets: usize) {
        for _ in 0..packets {
            self.lateness.record(late);
        }
    }

    /// The next unreported drop by `now`; never an arrival.
    pub(crate) fn poll_dropped(&mut self, now: Instant) -> Option<Dropped<P>> {
        if self.link.untold_drops() == 0 {
            return None;
        }
        match self.link.poll(now)? {
            Outcome::Dropped(dropped) => Some(dropped),
            Outcome::Arrived(_) => None,
        }
    }

    /// When the next packet may arrive; `None` if none is in flight.
    pub(crate) fn next_arrival(&self) -> Option<Instant> {
        self.link.next_arrival()
    }

    /// The link, to change it while it runs.
    pub(crate) fn link(&mut self) -> &mut Link<P> {
        &mut self.link
    }

    pub(crate) fn stats(&self) -> LinkStats {
        self.link.stats()
    }

    /// The lateness of packets.
    pub(crate) fn lateness(&self) -> &Histogram {
        &self.lateness
    }

    /// Figures of each second since the start, for a day at most; the last one ends at `end`.
    pub(crate) fn seconds(&self, end: Instant) -> Vec<Second> {
        let mut seconds = Vec::new();
        let mut from = self.start;
        while from < end && seconds.len() < MAX_SECONDS {
            let to = from + Duration::from_secs(1);
            let delivered = self.delivered_bytes.get(seconds.len());
            seconds.push(Second {
                delivered_bytes: delivered.copied().unwrap_or(0),
                capacity_bytes: self.link.capacity_bytes_between(from, to.min(end)),
            });
            from = to;
        }
        seconds
    }

    /// Bytes that the link could have carried from the start until `end`.
    pub(crate) fn capacity_bytes(&self, end: Instant) -> u64 {
        self.link.capacity_bytes_between(self.start, end)
    }

    /// The packets still in the link, at the end of a run.
    pub(crate) fn into_held(self) -> impl Iterator<Item = P> {
        self.link.into_held()
    }

    fn count(&mut self, due: Instant, bytes: usize) {
        let second = due.saturating_duration_since(self.start).as_secs();
        let second = usize::try_from(second).unwrap_or(usize::MAX);
        if second >= MAX_SECONDS {
            return;
        }
        if self.delivered_bytes.len() <= second {
            self.delivered_bytes.resize(second + 1, 0);
        }
        if let Some(sum) = self.delivered_bytes.get_mut(second) {
            *sum += u64::try_from(bytes).unwrap_or(u64::MAX);
        }
    }
}
