//! The published rule (LEOTP, eq. 6–8): a window that grows while the queue by round-trip times is short. These are of stamps, in which nothing counts
//! that waits for its rate at either end: of a hop, or of the path with control from end to end.

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
    /// Start of the present round.
    since: Option<Instant>,
    bytes: f64,
}

impl Published {
    pub(crate) fn new() -> Self {
        Self {
            window: 10.0 * SEGMENT,
            is_starting: true,
            least: VecDeque::new(),
            rtt: None,
            since: None,
            bytes: 0.0,
        }
    }

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

    /// Takes data that a relay sent again, where the responder alone is paced: the throughput is of all that came.
    pub(crate) fn on_repair(&mut self, bytes: usize) {
        self.bytes += f64::from(u32::try_from(bytes).unwrap_or(u32::MAX));
    }

    /// Takes a round trip.
    pub(crate) fn on_rtt(&mut self, now: Instant, rtt: Duration) {
        self.rtt = Some(rtt);
        while self.least.pop_back_if(|(_, other)| *other >= rtt).is_some() {}
        self.least.push_back((now, rtt));
        let is_old = |at: Instant| now.saturating_duration_since(at) > MEMORY;
        while self.least.pop_front_if(|(at, _)| is_old(*at)).is_some() {}
    }

    pub(crate) fn rate(&self) -> Option<f64> {
        Some(self.window / self.rtt?.as_secs_f64().max(1e-6))
    }

    /// The least round trips of 10 s are those of another path. What that was given, this one is given at first.
    pub(crate) fn on_reconfiguration(&mut self) {
        self.least.clear();
    }

    pub(crate) fn forget_delays(&mut self) {
        self.least.clear();
        self.rtt = None;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_is_filled_without_a_long_queue() {
        const BYTES: u32 = 1500;
        // Bytes per second of the narrowest link.
        const LINK: f64 = 1_250_000.0;
        let (start, base) = (Instant::now(), Duration::from_millis(100));
        let after = |seconds: f64| start + Duration::from_secs_f64(seconds);
        let mut control = Published::new();
        // Rates as the sender hears of them, half a round trip later.
        let mut news = VecDeque::from([(0.0, 150_000.0)]);
        let (mut sent, mut free, mut rate) = (0.0_f64, 0.0_f64, 150_000.0_f64);
        let (mut arrived, mut longest) = (0_u32, 0.0_f64);
        while sent < 60.0 {
            let leaves = sent.max(free) + f64::from(BYTES) / LINK;
            free = leaves;
            let (at, queue) = (leaves + 0.05, leaves - sent);
            #[expect(clippy::cast_possible_truncation, reason = "microseconds of a minute")]
            let micros = |seconds: f64| (seconds * 1e6) as i64;
            control.on_rtt(after(at), base + Duration::from_secs_f64(queue));
            control.on_data(&Arrived {
                now: after(at),
                sent: micros(sent),
                delay: micros(at - sent),
                bytes: BYTES,
                missing: 0,
                is_limited: false,
                rtt: base,
            });
            news.push_back((at + 0.05, control.rate().unwrap()));
            if sent > 10.0 {
                arrived += 1;
                longest = longest.max(queue);
            }
            while let Some((_, heard)) = news.pop_front_if(|(heard, _)| *heard <= sent) {
                rate = heard;
            }
            sent += f64::from(BYTES) / rate;
        }
        let share = f64::from(arrived * BYTES) / (50.0 * LINK);
        assert!(share > 0.75, "{share} of the link");
        assert!(longest < 0.05, "{longest} s of queue");
    }

    /// What relays sent again was missing from the throughput, and the window was cut to the rest.
    #[test]
    fn what_relays_repaired_was_carried_too() {
        let start = Instant::now();
        let rate_with = |repairs: u32| {
            let mut control = Published::new();
            for number in 0..200_u32 {
                let now = start + Duration::from_millis(number.into());
                // A queue of 20 ms from the second packet on.
                let rtt = if number == 0 { 100 } else { 120 };
                control.on_rtt(now, Duration::from_millis(rtt));
                (0..repairs).for_each(|_| control.on_repair(1500));
                control.on_data(&Arrived {
                    now,
                    sent: 0,
                    delay: 0,
                    bytes: 1500,
                    missing: 0,
                    is_limited: false,
                    rtt: Duration::from_millis(100),
                });
            }
            control.rate().unwrap()
        };
        let (alone, repaired) = (rate_with(0), rate_with(1));
        assert!(repaired > 1.9 * alone, "{repaired} and {alone} B/s");
    }

    /// A round trip that became longer was a queue for 10 s: the window was cut to a part of what the former path held.
    #[test]
    fn a_longer_round_trip_that_is_told_is_no_queue() {
        let start = Instant::now();
        let millis = Duration::from_millis;
        let window_after = |is_told: bool| {
            let mut control = Published::new();
            let mut at = start;
            for (rtt, packets) in [(20, 1000), (60, 1000)] {
                if is_told && rtt == 60 {
                    control.on_reconfiguration();
                }
                for _ in 0..packets {
                    at += millis(1);
                    control.on_rtt(at, millis(rtt));
                    control.on_data(&Arrived {
                        now: at,
                        sent: 0,
                        delay: 0,
                        bytes: 1500,
                        missing: 0,
                        // The window grows for some rounds.
                        is_limited: at > start + millis(100),
                        rtt: millis(rtt),
                    });
                }
            }
            control.window
        };
        let (told, untold) = (window_after(true), window_after(false));
        assert!(told > 150.0 * SEGMENT, "{told} bytes");
        assert!(untold < told / 4.0, "{untold} of {told} bytes");
    }
}
