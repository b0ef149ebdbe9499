//! The rate of the heavy flow: doubles until the arrival rate falls behind the send rate, then stays a quarter above
//! the greatest recent arrival rate.

use std::{
    collections::VecDeque,
    time::{Duration, Instant},
};

use starhaul_units::Bandwidth;

use crate::wire::Feedback;

const FIRST_RATE: Bandwidth = Bandwidth::from_mbit(4);
const LEAST_RATE: Bandwidth = Bandwidth::from_kbit(500);
/// Interval of an arrival-rate sample.
const SAMPLE_MS: u64 = 100;
/// Arrival rates are kept for this long.
const MEMORY: Duration = Duration::from_secs(3);
/// Factor of the heavy flow's rate on the capacity.
const EXCESS: f64 = 1.25;
/// A link that delivers less than this share of the send rate is saturated; lies between 1 and 1 / [`EXCESS`].
const SATURATED: f64 = 0.88;
/// Saturation or the rate limit must last for this many samples.
const SAMPLES_TO_SETTLE: u32 = 5;

#[derive(Debug)]
pub(crate) struct RateSearch {
    max_rate: Bandwidth,
    rate: Bandwidth,
    /// When the rate was last doubled, by the sender's clock; packets sent before do not measure it.
    raised_us: u64,
    sample: (u64, u64),
    arrivals: VecDeque<(Instant, Bandwidth)>,
    settling: u32,
    settled: bool,
    saturated: bool,
}

impl RateSearch {
    pub(crate) fn new(max_rate: Bandwidth) -> Self {
        Self {
            max_rate,
            rate: FIRST_RATE.min(max_rate),
            raised_us: 0,
            sample: (0, 0),
            arrivals: VecDeque::new(),
            settling: 0,
            settled: false,
            saturated: false,
        }
    }

    /// The rate that keeps the link saturated.
    pub(crate) fn rate(&self) -> Bandwidth {
        self.rate
    }

    /// Half of the link's capacity, from the median of the last samples.
    pub(crate) fn rate_below(&self) -> Bandwidth {
        let mut rates: Vec<_> = self.arrivals.iter().map(|(_, rate)| *rate).collect();
        rates.sort_unstable();
        let median = rates.get(rates.len() / 2).copied().unwrap_or(self.rate);
        median.scaled(0.5).max(LEAST_RATE).min(self.max_rate)
    }

    /// Whether the capacity or the rate limit was found.
    pub(crate) fn is_settled(&self) -> bool {
        self.settled
    }

    /// The link was not saturated until now: discards the samples of that time.
    pub(crate) fn resume(&mut self, now_us: u64) {
        self.raised_us = now_us;
        self.sample = (0, 0);
    }

    /// Takes a feedback of the receiver. `now_us` is the sender's clock.
    pub(crate) fn on_feedback(&mut self, now: Instant, now_us: u64, feedback: &Feedback) {
        self.sample.0 += feedback.seen.bins.len() as u64;
        self.sample.1 += feedback
            .seen
            .bins
            .iter()
            .map(|bin| u64::from(*bin))
            .sum::<u64>();
        if self.sample.0 < SAMPLE_MS {
            return;
        }
        let (time_ms, bytes) = std::mem::take(&mut self.sample);
        // Until then the sample may include packets sent at the previous rate.
        if feedback.newest_sent_us < self.raised_us.saturating_add(SAMPLE_MS * 1000 * 3 / 2) {
            return;
        }
        let arrival = Bandwidth::from_bytes_over(bytes, Duration::from_millis(time_ms));
        self.arrivals.push_back((now, arrival));
        let is_old = |at: Instant| now.saturating_duration_since(at) > MEMORY;
        while self.arrivals.front().is_some_and(|(at, _)| is_old(*at)) {
            self.arrivals.pop_front();
        }
        self.saturated = arrival < self.rate.scaled(SATURATED);
        if self.settled {
            self.follow();
        } else {
            self.look(now_us);
        }
    }

    fn look(&mut self, now_us: u64) {
        if self.saturated {
            self.settling += 1;
            self.follow();
        } else if self.rate < self.max_rate {
            self.settling = 0;
            self.rate = self.rate.scaled(2.0).min(self.max_rate);
            self.raised_us = now_us;
            // Rates from before the last doubling do not measure the capacity.
            self.arrivals.clear();
        } else {
            self.settling += 1;
        }
        self.settled = self.settling >= SAMPLES_TO_SETTLE;
    }

    fn follow(&mut self) {
        let most = self.arrivals.iter().map(|(_, rate)| *rate).max();
        // An outage does not discard the known rate.
        let least = self.rate.scaled(0.5).max(LEAST_RATE);
        let wanted = most.unwrap_or(self.rate).scaled(EXCESS);
        self.rate = wanted.max(least).min(self.max_rate);
    }
}
