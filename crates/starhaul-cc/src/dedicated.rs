//! A link of known rate used by this flow alone (MPDTP's dedicated link): the rate comes from the configuration or from
//! a modem's live feed; losses do not change it.

use std::time::{Duration, Instant};

use starhaul_units::Bandwidth;

use crate::{
    AckedPacket, CongestionEvent, Controller, LostPacket, RateFeed,
    limits::{MAX_CWND_BYTES, clamp_rate, initial_window, max_datagram_bytes},
    rtt::SmoothedRtt,
};

/// A modem counts IP and UDP headers, which packets here do not: 28 of 1480 bytes. At the full rate a queue would also
/// never drain.
const RATE_SHARE: f64 = 0.98;
/// RTT assumed before the first sample: longer than any geostationary path.
const ASSUMED_RTT: Duration = Duration::from_secs(1);
/// Added to the window: lost packets stay in flight until they are declared lost, within one probe timeout.
const WINDOW_MARGIN: Duration = Duration::from_millis(500);

/// Paces at the feed's rate; its window never limits.
#[derive(Clone, Debug)]
pub(crate) struct Dedicated {
    feed: RateFeed,
    max_datagram_bytes: u64,
    rtt: SmoothedRtt,
}

impl Dedicated {
    /// Creates a controller that follows `feed`, for packets of at most `mtu_bytes`.
    pub(crate) fn new(feed: RateFeed, mtu_bytes: u16) -> Self {
        Self {
            feed,
            max_datagram_bytes: max_datagram_bytes(mtu_bytes),
            rtt: SmoothedRtt::default(),
        }
    }
}

impl Controller for Dedicated {
    fn on_packet_sent(
        &mut self,
        _now: Instant,
        _packet_number: u64,
        _bytes: u64,
        _bytes_in_flight: u64,
        _app_limited: bool,
    ) {
    }

    fn on_ack(&mut self, packet: AckedPacket) {
        self.rtt.on_ack(&packet);
    }

    fn on_end_of_acks(&mut self, _now: Instant, _bytes_in_flight: u64) {
        self.rtt.on_end_of_acks();
    }

    fn on_packet_lost(&mut self, _packet: LostPacket) {}

    fn on_congestion_event(&mut self, _event: CongestionEvent) {}

    fn on_spurious_congestion_event(&mut self, _now: Instant) {}

    fn on_mtu_update(&mut self, mtu_bytes: u16) {
        self.max_datagram_bytes = max_datagram_bytes(mtu_bytes);
    }

    fn cwnd(&self) -> u64 {
        let rtt = self.rtt.smoothed().unwrap_or(ASSUMED_RTT);
        self.feed
            .rate()
            .bytes_in(rtt * 2 + WINDOW_MARGIN)
            .clamp(initial_window(self.max_datagram_bytes), MAX_CWND_BYTES)
    }

    fn pacing_rate(&self) -> Option<Bandwidth> {
        Some(clamp_rate(self.feed.rate().scaled(RATE_SHARE)))
    }

    fn bandwidth_estimate(&self) -> Option<Bandwidth> {
        self.pacing_rate()
    }

    fn told_loss(&self) -> Option<f64> {
        self.feed.packet_loss(self.max_datagram_bytes)
    }

    fn name(&self) -> &'static str {
        "dedicated"
    }

    fn state(&self) -> &'static str {
        "fixed_rate"
    }
}
