//! The published rule (LEOTP, eq. 6–8): a window that grows while the queue by round-trip times is short.

use std::{
    collections::VecDeque,
    time::{Duration, Instant},
};

use super::Arrived;

/// M: the queue up to which the window grows, in bytes.
const MOST_QUEUE: f64 = 3000.0;
/// k: the share of the bandwidth-delay product that is left of the window beyond.
const DECREASE: f64 = 0.8;
const SEGMENT: f64 = 1500.0;
/// Of the least round-trip time.
const MEMORY: Duration = Duration::from_secs(10);

/// The published rule.
#[derive(Debug)]
pub(crate) struct Published {
    window: f64,
    is_starting: bool,
    /// Round-trip times in ascending order, the least of [`MEMORY`] first.
    least: VecDeque<(Instant, Duration)>,
    rtt: Option<Duration>,
    /// Of the present round.
    since: Option<Instant>,
    bytes: f64,
}

impl Default for Published {
    fn default() -> Self {
        Self {
            window: 10.0 * SEGMENT,
            is_starting: true,
            least: VecDeque::new(),
            rtt: None,
            since: None,
            bytes: 0.0,
        }
    }
}

impl Published {
    pub(crate) fn on_data(&mut self, packet: &Arrived) {
        let since = *self.since.get_or_insert(packet.now);
        self.bytes += f64::from(packet.bytes);
        let (Some(rtt), Some((_, least))) = (self.rtt, self.least.front()) else {
            return;
        };
        let elapsed = packet.now.saturating_duration_since(since);
        if elapsed < rtt {
            return;
        }
        let throughput = self.bytes / elapsed.as_secs_f64().max(1e-6);
        let queue = throughput * rtt.saturating_sub(*least).as_secs_f64();
        if queue > MOST_QUEUE {
            self.is_starting = false;
            self.window = (DECREASE * throughput * least.as_secs_f64()).max(SEGMENT);
        } else if packet.is_limited {
            // What the sender lacks is no sign of the hop.
        } else if self.is_starting {
            self.window *= 2.0;
        } else {
            self.window += SEGMENT;
        }
        self.since = Some(packet.now);
        self.bytes = 0.0;
    }

    pub(crate) fn on_rtt(&mut self, now: Instant, rtt: Duration) {
        self.rtt = Some(rtt);
        while self.least.back().is_some_and(|(_, other)| *other >= rtt) {
            self.least.pop_back();
        }
        self.least.push_back((now, rtt));
        while self
            .least
            .front()
            .is_some_and(|(at, _)| now.saturating_duration_since(*at) > MEMORY)
        {
            self.least.pop_front();
        }
    }

    pub(crate) fn rate(&self) -> Option<f64> {
        Some(self.window / self.rtt?.as_secs_f64().max(1e-6))
    }

    pub(crate) fn forget_delays(&mut self) {
        self.least.clear();
        self.rtt = None;
    }
}
