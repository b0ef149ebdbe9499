//! Token bucket that spaces packets at a controller's rate (RFC 9002 §7.7). Tokens are counted in
//! billionths of a bit, so rate × nanoseconds is exact and nothing drifts at any rate.

use std::time::{Duration, Instant};

use starhaul_units::Bandwidth;

use crate::limits::{MAX_PACING_RATE, max_datagram_bytes, packet_bytes};

/// Tokens in one bit.
const BIT: i128 = 1_000_000_000;
/// A bucket holds this much of the rate: the lateness of a timer that costs no throughput.
const BURST: Duration = Duration::from_millis(2);
const MIN_BURST_PACKETS: u64 = 2;
const MAX_BURST_PACKETS: u64 = 64;
/// … or what the rate carries in this time, up to so many packets: timers are late by as much at any rate.
const FAST_BURST: Duration = Duration::from_millis(1);
const FAST_BURST_PACKETS: u64 = 256;
/// Upper bound of a wait; a caller that returns then gets the rest.
const MAX_WAIT: Duration = Duration::from_secs(60);

/// Computes when the next packet may leave. Packets of one burst may leave together: 2 ms of the rate, at least 2 and
/// at most 64 packets or 1 ms of the rate, whichever is more, and never more than 256.
///
/// ```
/// use std::time::{Duration, Instant};
/// use starhaul_cc::Pacer;
/// use starhaul_units::Bandwidth;
///
/// let (now, rate) = (Instant::now(), Bandwidth::from_mbit(1));
/// let mut pacer = Pacer::new(now, 1250);
/// for _ in 0..2 {
///     assert_eq!(pacer.next_send(now, rate, 1250), None);
///     pacer.on_sent(now, 1250);
/// }
/// assert_eq!(pacer.next_send(now, rate, 1250), Some(now + Duration::from_millis(10)));
/// ```
#[derive(Clone, Debug)]
pub struct Pacer {
    /// Below zero after packets that left before their time.
    tokens: i128,
    /// The last rate passed in, at which tokens have accumulated since `refilled`.
    rate: Bandwidth,
    refilled: Instant,
    max_datagram_bytes: u64,
}

impl Pacer {
    /// Creates a bucket from which two packets may leave at once.
    pub fn new(now: Instant, mtu_bytes: u16) -> Self {
        let max_datagram_bytes = max_datagram_bytes(mtu_bytes);
        Self {
            tokens: tokens(MIN_BURST_PACKETS * max_datagram_bytes),
            rate: Bandwidth::ZERO,
            refilled: now,
            max_datagram_bytes,
        }
    }

    /// When a packet of `bytes` may leave at `rate`: now (`None`) or at that instant (`Some`), at
    /// most a minute ahead. A new rate counts from `now` on; an instant promised before is kept.
    pub fn next_send(&mut self, now: Instant, rate: Bandwidth, bytes: u64) -> Option<Instant> {
        self.refill(now);
        self.rate = rate.min(MAX_PACING_RATE);
        self.forget_saved();
        // A packet larger than the bucket leaves when the bucket is full; the rest is debt.
        let needed = packet_bytes(bytes).min(burst_bytes(self.rate, self.max_datagram_bytes));
        let missing = tokens(needed) - self.tokens;
        if missing <= 0 {
            return None;
        }
        let bits_per_second = i128::from(self.rate.bits_per_second());
        let wait = match bits_per_second {
            0 => MAX_WAIT,
            per_second => nanoseconds((missing + per_second - 1) / per_second).min(MAX_WAIT),
        };
        Some(now + wait)
    }

    /// Bytes that may leave now at `rate`, in packets each of which [`Pacer::next_send`] allows.
    pub fn allowance(&mut self, now: Instant, rate: Bandwidth) -> u64 {
        self.refill(now);
        self.rate = rate.min(MAX_PACING_RATE);
        self.forget_saved();
        u64::try_from(self.tokens / (8 * BIT)).unwrap_or(0)
    }

    /// A packet of `bytes` left. Packets that left before their time count too, up to a debt of 64 packets.
    pub fn on_sent(&mut self, now: Instant, bytes: u64) {
        self.refill(now);
        let most_owed = tokens(MAX_BURST_PACKETS * self.max_datagram_bytes);
        self.tokens = (self.tokens - tokens(packet_bytes(bytes))).max(-most_owed);
    }

    /// Sets the largest packet that the path carries.
    pub fn on_mtu_update(&mut self, mtu_bytes: u16) {
        self.max_datagram_bytes = max_datagram_bytes(mtu_bytes);
    }

    /// Bytes that may leave together at `rate` in packets of at most `mtu_bytes`.
    pub fn burst_bytes(rate: Bandwidth, mtu_bytes: u16) -> u64 {
        burst_bytes(rate, max_datagram_bytes(mtu_bytes))
    }

    /// What was saved up at a higher rate is no burst of this one, beyond what any may be.
    fn forget_saved(&mut self) {
        let any = MAX_BURST_PACKETS * self.max_datagram_bytes;
        let full = burst_bytes(self.rate, self.max_datagram_bytes).max(any);
        self.tokens = self.tokens.min(tokens(full));
    }

    fn refill(&mut self, now: Instant) {
        let elapsed = now.saturating_duration_since(self.refilled);
        if elapsed.is_zero() {
            return;
        }
        self.refilled = now;
        let full = tokens(burst_bytes(self.rate, self.max_datagram_bytes));
        let nanoseconds = i128::try_from(elapsed.as_nanos()).unwrap_or(i128::MAX);
        let income = nanoseconds.saturating_mul(self.rate.bits_per_second().into());
        self.tokens = self.tokens.saturating_add(income).min(full);
    }
}

fn burst_bytes(rate: Bandwidth, max_datagram_bytes: u64) -> u64 {
    let packets = |count: u64| count * max_datagram_bytes;
    let most = rate
        .bytes_in(FAST_BURST)
        .clamp(packets(MAX_BURST_PACKETS), packets(FAST_BURST_PACKETS));
    rate.bytes_in(BURST).clamp(packets(MIN_BURST_PACKETS), most)
}

fn tokens(bytes: u64) -> i128 {
    i128::from(bytes) * 8 * BIT
}

fn nanoseconds(count: i128) -> Duration {
    Duration::from_nanos(u64::try_from(count).unwrap_or(u64::MAX))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const MTU: u16 = 1452;

    /// Sends `count` packets, each when the pacer allows; returns the time from first to last.
    fn drain(rate: Bandwidth, count: u32, bytes: u64) -> Duration {
        let start = Instant::now();
        let mut pacer = Pacer::new(start, MTU);
        let mut now = start;
        for _ in 0..count {
            if let Some(at) = pacer.next_send(now, rate, bytes) {
                now = at;
                assert_eq!(
                    pacer.next_send(now, rate, bytes),
                    None,
                    "a promise was broken"
                );
            }
            pacer.on_sent(now, bytes);
        }
        now - start
    }

    #[test]
    fn keeps_the_rate_to_the_nanosecond_from_64_kbit_to_10_gbit() {
        for (rate, count) in [
            (Bandwidth::from_kbit(64), 1_000),
            (Bandwidth::from_mbit(7), 20_000),
            (Bandwidth::from_bits_per_second(123_456_789), 100_000),
            (Bandwidth::from_mbit(10_000), 500_000),
        ] {
            let bytes = 1400;
            let paced = u64::from(count) * bytes - 2 * u64::from(MTU);
            let exact = rate.time_to_send(paced);
            let took = drain(rate, count, bytes);
            let error = took.abs_diff(exact);
            assert!(
                error <= Duration::from_nanos(1),
                "{rate}: {took:?}, exact {exact:?}"
            );
        }
    }

    #[test]
    fn a_late_caller_loses_nothing_within_the_burst() {
        let (start, rate) = (Instant::now(), Bandwidth::from_mbit(100));
        let mut pacer = Pacer::new(start, MTU);
        let mut sent = 0;
        // A timer that fires each 1.9 ms only.
        for tick in 0..=1000u32 {
            let now = start + Duration::from_micros(1900) * tick;
            while pacer.next_send(now, rate, 1250).is_none() {
                pacer.on_sent(now, 1250);
                sent += 1250;
            }
        }
        let exact = rate.bytes_in(Duration::from_millis(1900));
        assert!(
            sent > exact - 2500 && sent <= exact + 2 * u64::from(MTU),
            "{sent} of {exact}"
        );
    }

    #[test]
    fn idleness_saves_up_one_burst_only() {
        for (mbit, burst) in [(1, 2), (40, 6), (500, 64), (100_000, 256)] {
            let (start, rate) = (Instant::now(), Bandwidth::from_mbit(mbit));
            let mut pacer = Pacer::new(start, MTU);
            pacer.next_send(start, rate, MTU.into());
            let now = start + Duration::from_secs(100);
            let mut together = 0;
            while pacer.next_send(now, rate, MTU.into()).is_none() {
                pacer.on_sent(now, MTU.into());
                together += 1;
            }
            assert_eq!(together, burst, "{rate}");
        }
    }

    #[test]
    fn unasked_packets_are_paid_back() {
        let (start, rate) = (Instant::now(), Bandwidth::from_kbit(80));
        let mut pacer = Pacer::new(start, 1000);
        for _ in 0..5 {
            pacer.on_sent(start, 1000);
        }
        // Two were free, three are debt and one is requested, at 100 ms each.
        assert_eq!(
            pacer.next_send(start, rate, 1000),
            Some(start + Duration::from_millis(400))
        );
    }

    #[test]
    fn a_stopped_rate_asks_to_come_back_and_a_new_rate_counts_at_once() {
        let start = Instant::now();
        let mut pacer = Pacer::new(start, 1000);
        pacer.on_sent(start, 2000);
        assert_eq!(
            pacer.next_send(start, Bandwidth::ZERO, 1000),
            Some(start + MAX_WAIT)
        );
        let fast = Bandwidth::from_mbit(8);
        let now = start + Duration::from_secs(3);
        assert_eq!(
            pacer.next_send(now, fast, 1000),
            Some(now + Duration::from_millis(1))
        );
    }

    proptest! {
        /// For any requests, no interval carries more than its rate and one burst.
        #[test]
        fn never_exceeds_rate_and_burst(
            kbit in 1..1_000_000u64,
            steps in prop::collection::vec((0..5_000u64, 1..1453u64), 1..200),
        ) {
            let (start, rate) = (Instant::now(), Bandwidth::from_kbit(kbit));
            let mut pacer = Pacer::new(start, MTU);
            let (mut now, mut sent) = (start, 0);
            for (micros, bytes) in steps {
                now += Duration::from_micros(micros);
                if let Some(at) = pacer.next_send(now, rate, bytes) {
                    prop_assert!(at > now);
                } else {
                    pacer.on_sent(now, bytes);
                    sent += bytes;
                }
                let allowed = rate.bytes_in(now - start) + Pacer::burst_bytes(rate, MTU) + 1;
                prop_assert!(sent <= allowed, "{} > {}", sent, allowed);
            }
        }
    }
}
