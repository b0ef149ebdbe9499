//! Rates of bytes: over the last second, and on average.

use std::{
    collections::{HashMap, VecDeque},
    time::{Duration, Instant},
};

use parking_lot::{Mutex, MutexGuard};
use serde::{Deserialize, Serialize};
use starhaul_endpoint::{PathId, StreamId};
use starhaul_units::Bandwidth;

use crate::ledger::Group;

/// Time over which a rate is computed.
const WINDOW: Duration = Duration::from_secs(1);
/// Interval of sampling the counters.
pub(crate) const INTERVAL: Duration = Duration::from_millis(500);
/// A rate needs two samples at least so far apart.
const LEAST_WINDOW: Duration = Duration::from_millis(100);

/// Bytes in both directions and their rates.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Traffic {
    /// Bytes to the peer.
    pub sent_bytes: u64,
    /// Bytes from the peer.
    pub received_bytes: u64,
    /// Rate to the peer over the last second; absent just after the start.
    pub sent_bit_per_s: Option<u64>,
    /// Rate from the peer over the last second.
    pub received_bit_per_s: Option<u64>,
    /// Mean rate to the peer since the start.
    pub mean_sent_bit_per_s: u64,
    /// Mean rate from the peer since the start.
    pub mean_received_bit_per_s: u64,
}

impl std::iter::Sum for Traffic {
    fn sum<I: Iterator<Item = Self>>(all: I) -> Self {
        let either = |a: Option<u64>, b: Option<u64>| match (a, b) {
            (Some(a), Some(b)) => Some(a + b),
            (a, b) => a.or(b),
        };
        all.fold(Self::default(), |a, b| Self {
            sent_bytes: a.sent_bytes + b.sent_bytes,
            received_bytes: a.received_bytes + b.received_bytes,
            sent_bit_per_s: either(a.sent_bit_per_s, b.sent_bit_per_s),
            received_bit_per_s: either(a.received_bit_per_s, b.received_bit_per_s),
            mean_sent_bit_per_s: a.mean_sent_bit_per_s + b.mean_sent_bit_per_s,
            mean_received_bit_per_s: a.mean_received_bit_per_s + b.mean_received_bit_per_s,
        })
    }
}

/// A thing with counters of its own; sessions by their numbers.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Counted {
    Path(u64, PathId),
    Stream(u64, StreamId),
    /// Of the peer of this name.
    Group(String, Group),
}

/// Bytes in both directions.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Volume {
    pub(crate) sent: u64,
    pub(crate) received: u64,
}

/// All counters at one instant.
pub(crate) type Volumes = HashMap<Counted, Volume>;

/// The counters of the last second or so.
#[derive(Debug, Default)]
pub(crate) struct Rates(Mutex<VecDeque<(Instant, Volumes)>>);

/// The counters of an earlier instant, to which the present ones are compared.
pub(crate) struct Meter<'r> {
    rates: MutexGuard<'r, VecDeque<(Instant, Volumes)>>,
    at: usize,
    elapsed: Option<Duration>,
}

impl Rates {
    /// Stores the counters of `now`.
    pub(crate) fn sample(&self, now: Instant, counters: Volumes) {
        let mut samples = self.0.lock();
        samples.push_back((now, counters));
        // The newest one that is a window old is enough.
        while samples
            .get(1)
            .is_some_and(|(at, _)| now.saturating_duration_since(*at) >= WINDOW)
        {
            samples.pop_front();
        }
    }

    /// The sample from which rates are computed at `now`.
    pub(crate) fn meter(&self, now: Instant) -> Meter<'_> {
        let rates = self.0.lock();
        let age = |at: Instant| now.saturating_duration_since(at);
        let old_enough = rates.iter().rposition(|(at, _)| age(*at) >= WINDOW);
        let at = old_enough.unwrap_or(0);
        let elapsed = rates.get(at).map(|(at, _)| age(*at));
        Meter {
            elapsed: elapsed.filter(|elapsed| *elapsed >= LEAST_WINDOW),
            rates,
            at,
        }
    }
}

impl Meter<'_> {
    /// The traffic of a thing with the counters `now` that began `age` ago.
    pub(crate) fn traffic(&self, counted: &Counted, now: Volume, age: Duration) -> Traffic {
        let before = self.rates.get(self.at);
        // A thing without a sample has begun since.
        let before = before
            .and_then(|(_, counters)| counters.get(counted))
            .copied()
            .unwrap_or_default();
        let rate = |now: u64, before: u64| {
            let bytes = now.saturating_sub(before);
            Some(bits_over(bytes, self.elapsed?))
        };
        Traffic {
            sent_bytes: now.sent,
            received_bytes: now.received,
            sent_bit_per_s: rate(now.sent, before.sent),
            received_bit_per_s: rate(now.received, before.received),
            mean_sent_bit_per_s: bits_over(now.sent, age),
            mean_received_bit_per_s: bits_over(now.received, age),
        }
    }
}

fn bits_over(bytes: u64, time: Duration) -> u64 {
    Bandwidth::from_bytes_over(bytes, time.max(LEAST_WINDOW)).bits_per_second()
}

#[cfg(test)]
mod tests {
    use super::*;

    const PATH: Counted = Counted::Path(1, PathId(0));

    fn after(rates: &Rates, now: Instant, sent: u64) -> Option<u64> {
        let bytes = Volume { sent, received: 0 };
        let age = Duration::from_secs(10);
        rates.meter(now).traffic(&PATH, bytes, age).sent_bit_per_s
    }

    #[test]
    fn a_rate_is_that_of_the_last_second_whenever_it_is_asked_for() {
        let (rates, start) = (Rates::default(), Instant::now());
        assert_eq!(after(&rates, start, 0), None, "nothing to compare with");
        // 1 Mbit/s for three seconds, and then nothing.
        let mut sent = 0;
        for tick in 0..7 {
            let bytes = Volume { sent, received: 0 };
            rates.sample(start + INTERVAL * tick, [(PATH, bytes)].into());
            sent += 62_500;
        }
        let (now, sent) = (start + INTERVAL * 6, 375_000);
        assert_eq!(after(&rates, now, sent), Some(1_000_000));
        let late = now + Duration::from_millis(300);
        assert_eq!(after(&rates, late, sent + 37_500), Some(1_000_000));
        let later = now + Duration::from_secs(1);
        assert_eq!(after(&rates, later, sent), Some(0));
        assert!(rates.0.lock().len() <= 4, "old samples are kept");
    }

    #[test]
    fn what_began_a_moment_ago_has_a_rate_too() {
        let (rates, start) = (Rates::default(), Instant::now());
        rates.sample(start, Volumes::new());
        assert_eq!(after(&rates, start + WINDOW, 125_000), Some(1_000_000));
    }
}
