//! The clocks of both sides: what time it is for the session, and what the peer's times mean here.

use std::time::{Duration, Instant};

use starhaul_paths::ClockOffset;

use crate::wire::{Header, unwrap, wrap};

/// The clocks of both sides: ours counts from the session's start, the peer's has an unknown offset.
#[derive(Debug)]
pub(crate) struct Clocks {
    epoch: Instant,
    /// The time of the input that is handled.
    now: Instant,
    /// The same in microseconds of our clock: each datagram says it.
    now_micros: u64,
    offset: ClockOffset,
    /// The latest time heard from the peer, to unwrap the next by.
    peer_latest: u64,
}

impl Clocks {
    pub(crate) fn new(now: Instant) -> Self {
        Self {
            epoch: now,
            now,
            now_micros: 0,
            offset: ClockOffset::new(),
            peer_latest: 0,
        }
    }

    /// An input of this time. Time never runs backwards inside.
    pub(crate) fn advance(&mut self, now: Instant) {
        if now > self.now {
            self.now = now;
            self.now_micros = self.micros(now);
        }
    }

    /// The time of the latest input.
    pub(crate) const fn now(&self) -> Instant {
        self.now
    }

    /// Microseconds of our clock.
    pub(crate) fn micros(&self, at: Instant) -> u64 {
        u64::try_from(at.saturating_duration_since(self.epoch).as_micros()).unwrap_or(u64::MAX)
    }

    /// The header of a datagram that leaves now.
    pub(crate) fn header(&self, sequence: u64) -> Header {
        Header {
            sequence: wrap(sequence),
            sent_micros: wrap(self.now_micros),
        }
    }

    /// A time of the peer's clock in full.
    pub(crate) fn peer_time(&mut self, wire: u32) -> u64 {
        let time = unwrap(wire, self.peer_latest);
        self.peer_latest = self.peer_latest.max(time);
        time
    }

    /// An exchange: sent by us, received and answered by the peer, heard by us now.
    pub(crate) fn on_exchange(&mut self, sent: Instant, received: u64, replied: u64) {
        let ours = |at| Duration::from_micros(self.micros(at));
        let (sent, heard) = (ours(sent), ours(self.now));
        self.offset.on_sample(
            self.now,
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

    /// From the peer's `sent` until now.
    pub(crate) fn since_peer(&self, sent: u64) -> Option<Duration> {
        let offset = i128::from(self.offset.offset_micros()?);
        let elapsed = i128::from(self.now_micros) + offset - i128::from(sent);
        Some(Duration::from_micros(u64::try_from(elapsed).unwrap_or(0)))
    }

    /// When the peer's clock shows `time`, at the epoch at the earliest.
    pub(crate) fn when_peer(&self, time: u64) -> Option<Instant> {
        let ours = i128::from(time) - i128::from(self.offset.offset_micros()?);
        let ours = u64::try_from(ours.max(0)).unwrap_or(u64::MAX);
        self.epoch.checked_add(Duration::from_micros(ours))
    }
}
