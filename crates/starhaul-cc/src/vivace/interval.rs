//! Monitor intervals (Vivace §3): the packets sent in each, their fates, and the resulting utility.

use std::{
    collections::VecDeque,
    time::{Duration, Instant},
};

use super::{Purpose, gradient::RttGradient};
use starhaul_units::Bandwidth;

use crate::{AckedPacket, limits::packet_bytes, rtt::rtt_sample, sent::SentPackets};

/// §4: U = x^t − b·x·max(0, dRTT/dt) − c·x·L, with x in Mbit/s.
const RATE_EXPONENT: f64 = 0.9;
const LATENCY_COEFFICIENT: f64 = 900.0;
const LOSS_COEFFICIENT: f64 = 11.35;
/// Fewer packets give no estimate of loss or of the RTT's slope.
const MIN_PACKETS: u32 = 10;
/// An interval that sent less than this share of its rate was limited by the window and gives no result for the rate.
const LEAST_SHARE: f64 = 0.8;
const SHORTEST: Duration = Duration::from_micros(1);
/// Bound on intervals in flight, for packets whose fates never arrive.
const MAX_INTERVALS: usize = 32;
/// An interval is complete once a packet sent this many intervals later is acknowledged: losses are detected within a
/// round.
const OVERDUE_INTERVALS: u64 = 4;

/// The result of one interval.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Outcome {
    pub(super) mbit: f64,
    pub(super) utility: f64,
    /// Share of its packets that were lost.
    pub(super) loss: f64,
}

impl Outcome {
    /// The utility gained per Mbit/s if all of the added rate were lost, as on a link with a full queue.
    pub(super) fn gradient_of_loss(&self) -> f64 {
        RATE_EXPONENT * self.mbit.powf(RATE_EXPONENT - 1.0) - LOSS_COEFFICIENT
    }
}

/// Intervals with packets in flight, the one in progress last.
#[derive(Clone, Debug)]
pub(super) struct Intervals {
    queue: VecDeque<Interval>,
    /// The id of the first interval in the queue.
    first_id: u64,
    /// The newest interval of which a packet was acknowledged.
    newest_acked: u64,
    sent: SentPackets<u64>,
}

#[derive(Clone, Copy, Debug)]
struct Interval {
    purpose: Purpose,
    mbit: f64,
    began: Instant,
    sent: u32,
    acked: u32,
    lost: u32,
    gradient: RttGradient,
    /// The application, not the rate, limited what was sent.
    limited: bool,
    ended: Option<Instant>,
    sent_bytes: u64,
}

impl Intervals {
    pub(super) fn new() -> Self {
        Self {
            queue: VecDeque::new(),
            first_id: 0,
            newest_acked: 0,
            sent: SentPackets::new(),
        }
    }

    /// Drops the interval in progress if nothing was sent in it. Returns whether its purpose is unfulfilled.
    pub(super) fn drop_unsent(&mut self) -> bool {
        let dropped = self.queue.pop_back_if(|last| last.sent == 0);
        dropped.is_some_and(|interval| interval.purpose != Purpose::Waiting)
    }

    /// Ends the interval in progress and begins another.
    pub(super) fn begin(&mut self, now: Instant, purpose: Purpose, mbit: f64) {
        if let Some(last) = self.queue.back_mut() {
            last.ended = Some(now);
        }
        self.queue.push_back(Interval {
            purpose,
            mbit,
            began: now,
            sent: 0,
            acked: 0,
            lost: 0,
            gradient: RttGradient::default(),
            limited: false,
            ended: None,
            sent_bytes: 0,
        });
    }

    /// Whether too many intervals wait for the fates of their packets.
    pub(super) fn is_full(&self) -> bool {
        self.queue.len() >= MAX_INTERVALS
    }

    /// Whether the interval in progress has lasted an RTT and has enough packets.
    pub(super) fn is_over(&self, now: Instant, rtt: Duration) -> bool {
        self.queue.back().is_none_or(|interval| {
            now.saturating_duration_since(interval.began) >= rtt && interval.sent >= MIN_PACKETS
        })
    }

    /// The rate of the interval in progress.
    pub(super) fn mbit(&self) -> Option<f64> {
        self.queue.back().map(|interval| interval.mbit)
    }

    /// Whether an interval of this purpose is in progress or its result is outstanding.
    pub(super) fn awaits(&self, purpose: Purpose) -> bool {
        self.queue.iter().any(|i| i.purpose == purpose)
    }

    pub(super) fn on_packet_sent(&mut self, packet_number: u64, bytes: u64, limited: bool) {
        let id = self.first_id + (self.queue.len() as u64).saturating_sub(1);
        let Some(interval) = self.queue.back_mut() else {
            return;
        };
        interval.sent = interval.sent.saturating_add(1);
        interval.sent_bytes = interval.sent_bytes.saturating_add(packet_bytes(bytes));
        interval.limited |= limited;
        if let Some(evicted) = self.sent.insert(packet_number, id)
            && let Some(interval) = self.interval(evicted)
        {
            interval.lost = interval.lost.saturating_add(1);
        }
    }

    /// Takes an acknowledgement. Returns whether the packet was in flight.
    pub(super) fn on_ack(&mut self, packet: &AckedPacket) -> bool {
        let Some(id) = self.sent.take(packet.packet_number) else {
            return false;
        };
        self.newest_acked = self.newest_acked.max(id);
        if let Some(interval) = self.interval(id) {
            interval.acked = interval.acked.saturating_add(1);
            interval.gradient.update(packet.sent, rtt_sample(packet));
        }
        true
    }

    pub(super) fn on_packet_lost(&mut self, packet_number: u64) {
        if let Some(id) = self.sent.take(packet_number)
            && let Some(interval) = self.interval(id)
        {
            interval.lost = interval.lost.saturating_add(1);
        }
    }

    /// The next interval whose packets all have a fate; its outcome is `None` if it gives no result for its rate.
    pub(super) fn next_outcome(&mut self) -> Option<(Purpose, Option<Outcome>)> {
        let first = self.queue.front()?;
        let overdue = self.newest_acked >= self.first_id + OVERDUE_INTERVALS;
        let settled = first.acked.saturating_add(first.lost) >= first.sent;
        if first.ended.is_none() || !(settled || overdue) {
            return None;
        }
        let mut interval = self.queue.pop_front()?;
        self.first_id += 1;
        interval.lost = interval.sent.saturating_sub(interval.acked);
        Some((interval.purpose, interval.outcome()))
    }

    /// Discards the results of everything sent so far.
    pub(super) fn forget(&mut self) {
        self.first_id += self.queue.len() as u64;
        self.queue.clear();
    }

    fn interval(&mut self, id: u64) -> Option<&mut Interval> {
        let at = usize::try_from(id.checked_sub(self.first_id)?).ok()?;
        self.queue.get_mut(at)
    }
}

impl Interval {
    fn outcome(&self) -> Option<Outcome> {
        let time = self.ended?.saturating_duration_since(self.began);
        let sent = Bandwidth::from_bytes_over(self.sent_bytes, time.max(SHORTEST)).mbit();
        if self.limited || self.sent < MIN_PACKETS || sent < LEAST_SHARE * self.mbit {
            return None;
        }
        let loss = f64::from(self.lost) / f64::from(self.sent);
        let latency = LATENCY_COEFFICIENT * self.gradient.rise();
        let utility =
            self.mbit.powf(RATE_EXPONENT) - self.mbit * (latency + LOSS_COEFFICIENT * loss);
        Some(Outcome {
            mbit: self.mbit,
            utility,
            loss,
        })
    }
}
