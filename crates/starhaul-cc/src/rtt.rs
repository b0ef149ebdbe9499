//! Smoothed RTT of acknowledged packets (RFC 9002 §5.3). It includes the peer's ack delay, since controllers pace and
//! probe by the time until feedback arrives.

use std::time::Duration;

use crate::AckedPacket;

const MIN_RTT: Duration = Duration::from_micros(1);
const MAX_RTT: Duration = Duration::from_secs(3600);

/// The time from sending to acknowledgement, at least 1 µs and at most an hour.
pub(crate) fn rtt_sample(packet: &AckedPacket) -> Duration {
    packet
        .now
        .saturating_duration_since(packet.sent)
        .clamp(MIN_RTT, MAX_RTT)
}

/// Takes one sample for each incoming ACK: that of the newest packet it names.
#[derive(Clone, Debug, Default)]
pub(crate) struct SmoothedRtt {
    smoothed: Option<Duration>,
    newest: Option<(u64, Duration)>,
}

impl SmoothedRtt {
    pub(crate) fn on_ack(&mut self, packet: &AckedPacket) {
        if self
            .newest
            .is_none_or(|(newest, _)| packet.packet_number > newest)
        {
            self.newest = Some((packet.packet_number, rtt_sample(packet)));
        }
        if self.smoothed.is_none() {
            self.on_end_of_acks();
        }
    }

    pub(crate) fn on_end_of_acks(&mut self) {
        if let Some((_, sample)) = self.newest.take() {
            self.smoothed = Some(match self.smoothed {
                Some(smoothed) => (smoothed * 7 + sample) / 8,
                None => sample,
            });
        }
    }

    /// The smoothed RTT; `None` before the first acknowledgement.
    pub(crate) fn smoothed(&self) -> Option<Duration> {
        self.smoothed
    }
}
