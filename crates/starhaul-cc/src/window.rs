//! What all window-based controllers share (RFC 9002 §7): the window and its bounds, the recovery period, growth only
//! by packets that needed the window, pacing. Each law adds growth and decrease.

use std::time::{Duration, Instant};

use starhaul_units::Bandwidth;

use crate::{
    AckedPacket, CongestionEvent, LostPacket,
    limits::{clamp_rate, initial_window, max_datagram_bytes, packet_bytes, real, window_bytes},
    rtt::SmoothedRtt,
    sent::SentPackets,
};

/// Least window (RFC 9002 §7.2).
const MIN_WINDOW_PACKETS: u64 = 2;
/// RFC 9002 §7.7 requires a small factor above one, so that pacing never becomes the limit.
const PACING_GAIN: f64 = 1.25;
/// The window doubles each round in slow start; pacing must not limit that.
const SLOW_START_PACING_GAIN: f64 = 2.0;

/// State that window-based controllers embed.
#[derive(Clone, Debug)]
pub(crate) struct Window {
    max_datagram_bytes: u64,
    /// Real-valued, so that fractions of a byte accumulate.
    cwnd: f64,
    ssthresh: f64,
    recovery_start: Option<Instant>,
    sent: SentPackets<Sent>,
    newest_sent: u64,
    /// The most that was in flight in the last round trip, and in the present one, which ends with this packet.
    most_in_flight: [u64; 2],
    round_end: u64,
    rtt: SmoothedRtt,
}

#[derive(Clone, Copy, Debug)]
struct Sent {
    bytes: u64,
    /// The window did not limit sending.
    underused: bool,
}

/// The effect of an acknowledgement on the window.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Growth {
    /// These bytes may increase the window.
    Bytes(f64),
    /// The window was not used, so it must not grow (RFC 9002 §7.8).
    Underused,
    /// The packet was sent before the recovery period began.
    InRecovery,
    /// The packet was never sent, or has a fate already.
    Unknown,
}

impl Window {
    pub(crate) fn new(mtu_bytes: u16) -> Self {
        let max_datagram_bytes = max_datagram_bytes(mtu_bytes);
        Self {
            max_datagram_bytes,
            cwnd: real(initial_window(max_datagram_bytes)),
            ssthresh: f64::INFINITY,
            recovery_start: None,
            sent: SentPackets::new(),
            newest_sent: 0,
            most_in_flight: [0; 2],
            round_end: 0,
            rtt: SmoothedRtt::default(),
        }
    }

    pub(crate) fn on_packet_sent(
        &mut self,
        packet_number: u64,
        bytes: u64,
        bytes_in_flight: u64,
        app_limited: bool,
    ) {
        let bytes = packet_bytes(bytes);
        let [_, most] = &mut self.most_in_flight;
        *most = bytes_in_flight.saturating_add(bytes).max(*most);
        // The packet that fills the window is limited by it, whatever the application does next.
        let fills = bytes_in_flight
            .saturating_add(bytes)
            .saturating_add(self.max_datagram_bytes)
            > self.cwnd();
        self.newest_sent = self.newest_sent.max(packet_number);
        self.sent.insert(
            packet_number,
            Sent {
                bytes,
                underused: app_limited && !fills,
            },
        );
    }

    pub(crate) fn on_ack(&mut self, packet: &AckedPacket) -> Growth {
        let Some(sent) = self.sent.take(packet.packet_number) else {
            return Growth::Unknown;
        };
        self.rtt.on_ack(packet);
        if packet.packet_number >= self.round_end {
            self.round_end = self.newest_sent.saturating_add(1);
            self.most_in_flight = [self.most_in_flight[1], 0];
        }
        if self.in_recovery(packet.sent) {
            Growth::InRecovery
        } else if sent.underused || self.is_half_empty() {
            Growth::Underused
        } else {
            Growth::Bytes(real(sent.bytes))
        }
    }

    /// Whether no more than half of the window was in flight for a round trip. A sender that has more to say than fits one batch, but
    /// less than the window, is limited only at the end of it.
    fn is_half_empty(&self) -> bool {
        let most = self.most_in_flight.into_iter().max();
        most.unwrap_or_default() < self.cwnd() / 2
    }

    pub(crate) fn on_end_of_acks(&mut self) {
        self.rtt.on_end_of_acks();
    }

    pub(crate) fn on_packet_lost(&mut self, packet: &LostPacket) {
        self.sent.take(packet.packet_number);
    }

    /// Whether this event requires a decrease: one per recovery period (RFC 9002 §7.3.2).
    pub(crate) fn enter_recovery(&mut self, event: &CongestionEvent) -> bool {
        if self.in_recovery(event.sent) {
            return false;
        }
        self.recovery_start = Some(event.now);
        true
    }

    /// Sets window and threshold after a decrease.
    pub(crate) fn decrease_to(&mut self, cwnd: f64) {
        self.set_cwnd(cwnd);
        self.ssthresh = self.cwnd;
    }

    /// RFC 9002 §7.6.2: restarts with the least window.
    pub(crate) fn collapse(&mut self) {
        self.set_cwnd(0.0);
        self.recovery_start = None;
    }

    /// Undoes a decrease (RFC 9438 §4.9.2, RFC 4015 §3.2).
    pub(crate) fn restore(&mut self, cwnd: f64, ssthresh: f64) {
        self.set_cwnd(cwnd.max(self.cwnd));
        self.ssthresh = ssthresh;
        self.recovery_start = None;
    }

    pub(crate) fn on_mtu_update(&mut self, mtu_bytes: u16) {
        self.max_datagram_bytes = max_datagram_bytes(mtu_bytes);
        self.set_cwnd(self.cwnd);
    }

    pub(crate) fn set_cwnd(&mut self, cwnd: f64) {
        let min = MIN_WINDOW_PACKETS * self.max_datagram_bytes;
        let max = real(window_bytes(f64::MAX, min));
        // `max` first: NaN becomes the least window.
        self.cwnd = cwnd.max(real(min)).min(max);
    }

    /// Goes on from this window, if it is greater and nothing has ended the first slow start.
    pub(crate) fn widen_start(&mut self, window_bytes: u64) {
        if self.in_initial_slow_start() {
            self.set_cwnd(self.cwnd.max(real(window_bytes)));
        }
    }

    /// Leaves slow start with the present window.
    pub(crate) fn end_slow_start(&mut self) {
        self.ssthresh = self.cwnd;
    }

    pub(crate) fn in_slow_start(&self) -> bool {
        self.cwnd < self.ssthresh
    }

    /// Sets the window at which slow start ends.
    pub(crate) fn set_ssthresh(&mut self, ssthresh: f64) {
        self.ssthresh = ssthresh;
    }

    /// Whether no loss, mark or delay has ended the first slow start.
    pub(crate) fn in_initial_slow_start(&self) -> bool {
        self.ssthresh.is_infinite()
    }

    pub(crate) fn cwnd(&self) -> u64 {
        window_bytes(self.cwnd, MIN_WINDOW_PACKETS * self.max_datagram_bytes)
    }

    pub(crate) fn cwnd_real(&self) -> f64 {
        self.cwnd
    }

    pub(crate) fn ssthresh(&self) -> f64 {
        self.ssthresh
    }

    pub(crate) fn max_datagram(&self) -> f64 {
        real(self.max_datagram_bytes)
    }

    pub(crate) fn newest_sent(&self) -> u64 {
        self.newest_sent
    }

    pub(crate) fn smoothed_rtt(&self) -> Option<Duration> {
        self.rtt.smoothed()
    }

    /// Slightly more than a window per round, so that pacing never becomes the limit.
    pub(crate) fn default_pacing_gain(&self) -> f64 {
        if self.in_slow_start() {
            SLOW_START_PACING_GAIN
        } else {
            PACING_GAIN
        }
    }

    /// A rate of `gain` windows per RTT; `None` before the first RTT sample.
    pub(crate) fn pacing_rate(&self, gain: f64) -> Option<Bandwidth> {
        let rate = Bandwidth::from_bytes_over(self.cwnd(), self.rtt.smoothed()?);
        Some(clamp_rate(rate.scaled(gain)))
    }

    pub(crate) fn state(&self) -> &'static str {
        if self.in_slow_start() {
            "slow_start"
        } else {
            "congestion_avoidance"
        }
    }

    fn in_recovery(&self, sent: Instant) -> bool {
        self.recovery_start.is_some_and(|start| sent <= start)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Growth by the last packet of a burst of so many packets in each of ten round trips; no packet says that it is limited.
    fn growth(packets: u64) -> Growth {
        let start = Instant::now();
        let mut window = Window::new(1_250);
        let (mut number, mut last) = (0, Growth::Unknown);
        for round in 0..10_u32 {
            let sent = start + round * Duration::from_millis(100);
            let first = number;
            for in_flight in 0..packets {
                window.on_packet_sent(number, 1_250, in_flight * 1_250, false);
                number += 1;
            }
            for packet_number in first..number {
                last = window.on_ack(&AckedPacket {
                    now: sent + Duration::from_millis(50),
                    sent,
                    packet_number,
                    bytes: 1_250,
                });
            }
        }
        last
    }

    #[test]
    fn a_window_of_which_half_is_never_filled_does_not_grow() {
        // Ten packets are the first window.
        assert_eq!(growth(4), Growth::Underused);
        assert_eq!(growth(6), Growth::Bytes(1_250.0));
    }
}
