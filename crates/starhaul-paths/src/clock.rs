//! The offset between two unsynchronised clocks, from samples of four timestamps as in NTP (RFC 5905 §8). Queues make
//! the two directions unequal, so the sample of least RTT is used until clock drift makes it too old, or a new one proves that
//! a clock was stopped or set.

use std::{
    collections::VecDeque,
    time::{Duration, Instant},
};

/// Greatest clock drift assumed between two computers (100 ppm).
const DRIFT_PARTS: i64 = 10_000;
const SUB_WINDOW: Duration = Duration::from_secs(1);
const SUB_WINDOWS: usize = 30;
/// Bounds of two samples' errors that are apart by more than this contradict each other: clocks tick, and drift, a little otherwise than assumed.
const TOLERANCE_MICROS: i64 = 1_000;

#[derive(Clone, Copy, Debug)]
struct Sample {
    at: Instant,
    offset_micros: i64,
    round_trip_micros: i64,
}

impl Sample {
    /// Bound of the offset's error at `now` from queues and drift, in microseconds.
    fn error_micros(&self, now: Instant) -> i64 {
        let age =
            i64::try_from(now.saturating_duration_since(self.at).as_micros()).unwrap_or(i64::MAX);
        (self.round_trip_micros / 2).saturating_add(age / DRIFT_PARTS)
    }

    /// No offset is within the bounds of both: one of the clocks stood still, or was set, between them. Delays alone, however unequal, widen the
    /// bounds by as much as they shift the offset.
    fn contradicts(&self, other: &Self, now: Instant) -> bool {
        let apart = self.offset_micros.saturating_sub(other.offset_micros);
        let errors = self
            .error_micros(now)
            .saturating_add(other.error_micros(now))
            .saturating_add(TOLERANCE_MICROS);
        apart.saturating_abs() > errors
    }
}

/// Offset between our clock and the peer's, both durations since each side's own epoch.
///
/// A constant asymmetry of the fastest path cannot be measured and shifts every one-way delay by half of it.
#[derive(Clone, Debug, Default)]
pub struct ClockOffset {
    /// Start and best sample of each sub-window, oldest first.
    windows: VecDeque<(Instant, Sample)>,
    best: Option<Sample>,
}

impl ClockOffset {
    /// Creates an estimate without samples.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds one exchange: we sent at `sent`, the peer received it at `received` and replied at `replied` by its own
    /// clock, and the reply arrived at `heard`. An impossible sample (a reply before its request) is ignored.
    pub fn on_sample(
        &mut self,
        now: Instant,
        sent: Duration,
        received: Duration,
        replied: Duration,
        heard: Duration,
    ) {
        let Some(sample) = sample(now, sent, received, replied, heard) else {
            return;
        };
        if self.best.is_some_and(|best| sample.contradicts(&best, now)) {
            self.windows.clear();
        }
        match self.windows.back_mut() {
            Some((start, best)) if now.saturating_duration_since(*start) < SUB_WINDOW => {
                if sample.error_micros(now) <= best.error_micros(now) {
                    *best = sample;
                }
            }
            _ => {
                if self.windows.len() == SUB_WINDOWS {
                    self.windows.pop_front();
                }
                self.windows.push_back((now, sample));
            }
        }
        self.best = self
            .windows
            .iter()
            .map(|(_, sample)| *sample)
            .min_by_key(|sample| sample.error_micros(now));
    }

    /// The peer's clock minus ours in microseconds, `None` before the first sample.
    pub fn offset_micros(&self) -> Option<i64> {
        self.best.map(|sample| sample.offset_micros)
    }

    /// One-way delay of a packet that we sent at `sent` by our clock and the peer received at `received` by its own.
    /// Never negative; `None` before the first sample.
    pub fn one_way(&self, sent: Duration, received: Duration) -> Option<Duration> {
        let elapsed = i128::from(micros(received)?)
            - i128::from(micros(sent)?)
            - i128::from(self.offset_micros()?);
        Some(Duration::from_micros(u64::try_from(elapsed).unwrap_or(0)))
    }
}

fn micros(time: Duration) -> Option<i64> {
    i64::try_from(time.as_micros()).ok()
}

fn sample(
    now: Instant,
    sent: Duration,
    received: Duration,
    replied: Duration,
    heard: Duration,
) -> Option<Sample> {
    let (sent, received) = (i128::from(micros(sent)?), i128::from(micros(received)?));
    let (replied, heard) = (i128::from(micros(replied)?), i128::from(micros(heard)?));
    let round_trip = (heard - sent) - (replied - received);
    if heard < sent || replied < received || round_trip < 0 {
        return None;
    }
    Some(Sample {
        at: now,
        offset_micros: i64::try_from(((received - sent) + (replied - heard)) / 2).ok()?,
        round_trip_micros: i64::try_from(round_trip).ok()?,
    })
}

#[cfg(test)]
mod tests;
