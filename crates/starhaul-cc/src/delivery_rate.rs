//! Delivery-rate samples from per-packet records (draft-cheng-iccrg-delivery-rate-estimation), for
//! every controller that models the path. Samples taken while the application had nothing to send are marked.

use std::time::{Duration, Instant};

use starhaul_units::Bandwidth;

use crate::{AckedPacket, LostPacket, limits::packet_bytes, rtt::rtt_sample, sent::SentPackets};

/// The rate sample of one incoming ACK.
#[derive(Clone, Copy, Debug)]
pub struct RateSample {
    /// Bytes delivered per time from the sending of the newest acknowledged packet until now; `None` when no time
    /// passed.
    pub delivery_rate: Option<Bandwidth>,
    /// The rate is limited by the application, not by the path.
    pub app_limited: bool,
    /// Bytes that had been delivered when the newest acknowledged packet was sent; rounds are counted by it.
    pub prior_delivered: u64,
    /// Bytes delivered from the newest acknowledged packet's sending until now.
    pub delivered_bytes: u64,
    /// Bytes in flight after the newest acknowledged packet was sent, itself included.
    pub tx_in_flight_bytes: u64,
    /// Bytes declared lost from the newest acknowledged packet's sending until now.
    pub lost_since_sent_bytes: u64,
    /// Bytes this ACK delivered.
    pub acked_bytes: u64,
    /// Bytes declared lost since the last sample.
    pub lost_bytes: u64,
    /// Least round-trip time among the packets of this ACK.
    pub rtt: Duration,
}

/// The sample of one lost packet.
#[derive(Clone, Copy, Debug)]
pub struct LossSample {
    /// Size of the packet in bytes.
    pub bytes: u64,
    /// Bytes in flight after it was sent, itself included.
    pub tx_in_flight_bytes: u64,
    /// Bytes declared lost from its sending until now, itself included.
    pub lost_since_sent_bytes: u64,
    /// The packet was sent while the application had too little to send.
    pub app_limited: bool,
}

/// Turns the fates of packets into [`RateSample`]s.
#[derive(Clone, Debug)]
pub struct DeliveryRateSampler {
    sent: SentPackets<Record>,
    in_flight_bytes: u64,
    delivered_bytes: u64,
    delivered_at: Option<Instant>,
    first_sent: Option<Instant>,
    newest_sent: Option<u64>,
    /// Samples are marked until this packet has a fate.
    app_limited_until: Option<u64>,
    /// All bytes declared lost so far.
    lost_bytes: u64,
    /// The part of them included in the last sample.
    reported_lost_bytes: u64,
    batch: Option<Batch>,
}

#[derive(Clone, Copy, Debug)]
struct Record {
    bytes: u64,
    sent: Instant,
    delivered_bytes: u64,
    delivered_at: Instant,
    first_sent: Instant,
    in_flight_bytes: u64,
    lost_bytes: u64,
    app_limited: bool,
}

/// The packets of the ACK in progress.
#[derive(Clone, Copy, Debug)]
struct Batch {
    newest: Record,
    acked_bytes: u64,
    rtt: Duration,
}

impl DeliveryRateSampler {
    /// Creates a sampler without packets.
    pub fn new() -> Self {
        Self {
            sent: SentPackets::new(),
            in_flight_bytes: 0,
            delivered_bytes: 0,
            delivered_at: None,
            first_sent: None,
            newest_sent: None,
            app_limited_until: None,
            lost_bytes: 0,
            reported_lost_bytes: 0,
            batch: None,
        }
    }

    /// A packet was sent, with the arguments of [`Controller::on_packet_sent`](crate::Controller::on_packet_sent).
    pub fn on_packet_sent(
        &mut self,
        now: Instant,
        packet_number: u64,
        bytes: u64,
        bytes_in_flight: u64,
        app_limited: bool,
    ) {
        let idle = bytes_in_flight == 0;
        if idle && self.in_flight_bytes > 0 {
            // Their sender gave them up, as those to a peer whose port changed: none will have a fate.
            self.sent = SentPackets::new();
            self.in_flight_bytes = 0;
        }
        let (first_sent, delivered_at) = match (self.first_sent, self.delivered_at) {
            (Some(first_sent), Some(delivered_at)) if !idle => (first_sent, delivered_at),
            _ => (now, now),
        };
        self.first_sent = Some(first_sent);
        self.delivered_at = Some(delivered_at);
        self.newest_sent = self.newest_sent.max(Some(packet_number));
        if app_limited {
            self.mark_app_limited();
        }
        let bytes = packet_bytes(bytes);
        let record = Record {
            bytes,
            sent: now,
            delivered_bytes: self.delivered_bytes,
            delivered_at,
            first_sent,
            in_flight_bytes: self.in_flight_bytes.saturating_add(bytes),
            lost_bytes: self.lost_bytes,
            app_limited: self.app_limited_until.is_some(),
        };
        let evicted = self.sent.insert(packet_number, record);
        self.in_flight_bytes += bytes;
        self.settle_bytes(evicted.map_or(0, |r| r.bytes));
    }

    /// A packet was acknowledged; returns its size, or `None` when it is unknown or already settled.
    pub fn on_ack(&mut self, packet: &AckedPacket) -> Option<u64> {
        let record = self.settle(packet.packet_number)?;
        self.delivered_bytes = self.delivered_bytes.saturating_add(record.bytes);
        self.delivered_at = Some(packet.now);
        self.first_sent = self.first_sent.max(Some(record.sent));
        let rtt = rtt_sample(packet);
        let batch = self.batch.get_or_insert(Batch {
            newest: record,
            acked_bytes: 0,
            rtt,
        });
        batch.acked_bytes += record.bytes;
        batch.rtt = batch.rtt.min(rtt);
        if record.sent >= batch.newest.sent {
            batch.newest = record;
        }
        Some(record.bytes)
    }

    /// A packet was lost; returns its sample, or `None` when it is unknown or already settled.
    pub fn on_packet_lost(&mut self, packet: &LostPacket) -> Option<LossSample> {
        let record = self.settle(packet.packet_number)?;
        self.lost_bytes = self.lost_bytes.saturating_add(record.bytes);
        Some(LossSample {
            bytes: record.bytes,
            tx_in_flight_bytes: record.in_flight_bytes,
            lost_since_sent_bytes: self.lost_bytes - record.lost_bytes.min(self.lost_bytes),
            app_limited: record.app_limited,
        })
    }

    /// Ends the packets of one ACK; returns their sample, if any of them was known.
    pub fn on_end_of_acks(&mut self, now: Instant) -> Option<RateSample> {
        let batch = self.batch.take()?;
        let newest = batch.newest;
        // The slower of send and ACK rate bounds the path's rate: sending may have been slow, and ACKs may have been
        // compressed.
        let interval = newest
            .sent
            .saturating_duration_since(newest.first_sent)
            .max(now.saturating_duration_since(newest.delivered_at));
        let delivered = self.delivered_bytes - newest.delivered_bytes.min(self.delivered_bytes);
        Some(RateSample {
            delivery_rate: (!interval.is_zero())
                .then(|| Bandwidth::from_bytes_over(delivered, interval)),
            app_limited: newest.app_limited,
            prior_delivered: newest.delivered_bytes,
            delivered_bytes: delivered,
            tx_in_flight_bytes: newest.in_flight_bytes,
            lost_since_sent_bytes: self.lost_bytes - newest.lost_bytes.min(self.lost_bytes),
            acked_bytes: batch.acked_bytes,
            lost_bytes: self.lost_bytes
                - std::mem::replace(&mut self.reported_lost_bytes, self.lost_bytes),
            rtt: batch.rtt,
        })
    }

    /// Marks packets sent from now on until the newest packet sent so far has a fate.
    pub fn mark_app_limited(&mut self) {
        self.app_limited_until = self.newest_sent;
    }

    /// All bytes acknowledged so far.
    pub fn delivered_bytes(&self) -> u64 {
        self.delivered_bytes
    }

    /// Bytes of packets with open fate.
    pub fn in_flight_bytes(&self) -> u64 {
        self.in_flight_bytes
    }

    /// The greatest packet number sent; `None` before the first.
    pub fn newest_sent(&self) -> Option<u64> {
        self.newest_sent
    }

    fn settle(&mut self, packet_number: u64) -> Option<Record> {
        let record = self.sent.take(packet_number)?;
        self.settle_bytes(record.bytes);
        if self
            .app_limited_until
            .is_some_and(|until| packet_number >= until)
        {
            self.app_limited_until = None;
        }
        Some(record)
    }

    fn settle_bytes(&mut self, bytes: u64) {
        self.in_flight_bytes = self.in_flight_bytes.saturating_sub(bytes);
    }
}

impl Default for DeliveryRateSampler {
    fn default() -> Self {
        Self::new()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    struct Path {
        start: Instant,
        sampler: DeliveryRateSampler,
    }

    impl Path {
        fn new() -> Self {
            Self {
                start: Instant::now(),
                sampler: DeliveryRateSampler::new(),
            }
        }

        fn send(&mut self, at_ms: u32, packet_number: u64, app_limited: bool) {
            let in_flight = self.sampler.in_flight_bytes();
            let now = self.start + MS * at_ms;
            self.sampler
                .on_packet_sent(now, packet_number, 1000, in_flight, app_limited);
        }

        fn ack(&mut self, at_ms: u32, sent_ms: u32, packet_numbers: &[u64]) -> Option<RateSample> {
            let now = self.start + MS * at_ms;
            for &packet_number in packet_numbers {
                self.sampler.on_ack(&AckedPacket {
                    now,
                    sent: self.start + MS * sent_ms,
                    packet_number,
                    bytes: 1000,
                });
            }
            self.sampler.on_end_of_acks(now)
        }
    }

    /// Packets paced 10 ms apart over 50 ms are 0.8 Mbit/s, however the ACKs are compressed.
    #[test]
    fn compressed_acks_do_not_raise_the_rate() {
        let mut path = Path::new();
        for n in 0..10 {
            path.send(10 * n, u64::from(n), false);
        }
        path.ack(100, 0, &[0]);
        let sample = path.ack(140, 40, &[1, 2, 3, 4]).unwrap();
        assert_eq!(
            sample.delivery_rate,
            Some(Bandwidth::from_bytes_over(5000, MS * 140))
        );
        path.send(141, 10, false);
        let sample = path.ack(142, 90, &[5, 6, 7, 8, 9]).unwrap();
        assert_eq!(sample.acked_bytes, 5000);
        let rate = sample.delivery_rate.unwrap();
        assert!(rate <= Bandwidth::from_kbit(800), "{rate}");
    }

    #[test]
    fn an_idle_spell_is_not_counted_as_slowness() {
        let mut path = Path::new();
        path.send(0, 0, false);
        path.ack(50, 0, &[0]);
        path.send(10_000, 1, false);
        let sample = path.ack(10_050, 10_000, &[1]).unwrap();
        assert_eq!(
            sample.delivery_rate,
            Some(Bandwidth::from_bytes_over(1000, MS * 50))
        );
    }

    #[test]
    fn samples_are_marked_until_the_bubble_has_passed() {
        let mut path = Path::new();
        path.send(0, 0, false);
        path.send(1, 1, true);
        path.send(2, 2, false);
        assert!(!path.ack(50, 0, &[0]).unwrap().app_limited);
        assert!(path.ack(51, 1, &[1]).unwrap().app_limited);
        path.send(52, 3, false);
        assert!(
            path.ack(53, 2, &[2]).unwrap().app_limited,
            "sent inside the bubble"
        );
        assert!(!path.ack(102, 52, &[3]).unwrap().app_limited);
    }

    /// Losses during a packet's flight belong to the flight in which it was sent.
    #[test]
    fn losses_are_counted_against_the_flight_they_fell_in() {
        let mut path = Path::new();
        for n in 0..10 {
            path.send(n, u64::from(n), false);
        }
        for packet_number in [3, 5] {
            let now = path.start + 50 * MS;
            let lost = LostPacket {
                now,
                packet_number,
                bytes: 1000,
            };
            let sample = path.sampler.on_packet_lost(&lost).unwrap();
            assert_eq!(sample.tx_in_flight_bytes, (packet_number + 1) * 1000);
        }
        let sample = path.ack(60, 9, &[9]).unwrap();
        assert_eq!(sample.tx_in_flight_bytes, 10_000);
        assert_eq!(sample.lost_since_sent_bytes, 2000);
        assert_eq!((sample.lost_bytes, sample.delivered_bytes), (2000, 1000));
        path.send(61, 10, false);
        let sample = path.ack(90, 61, &[10]).unwrap();
        assert_eq!((sample.lost_since_sent_bytes, sample.lost_bytes), (0, 0));
    }

    /// The peer's port changed, after which the sender hears of no packet that left before.
    #[test]
    fn packets_that_were_given_up_are_in_no_later_flight() {
        let mut path = Path::new();
        for n in 0..10 {
            path.send(n, u64::from(n), false);
        }
        let now = path.start + MS * 20;
        path.sampler.on_packet_sent(now, 10, 1000, 0, false);
        assert_eq!(path.sampler.in_flight_bytes(), 1000);
        path.send(21, 11, false);
        let sample = path.ack(70, 21, &[11]).unwrap();
        assert_eq!(sample.tx_in_flight_bytes, 2000);
        assert!(path.ack(71, 9, &[9]).is_none());
    }

    #[test]
    fn a_settled_packet_counts_no_more() {
        let mut path = Path::new();
        path.send(0, 0, false);
        let lost = LostPacket {
            now: path.start + MS,
            packet_number: 0,
            bytes: 1000,
        };
        let sample = path.sampler.on_packet_lost(&lost).unwrap();
        assert_eq!((sample.bytes, sample.tx_in_flight_bytes), (1000, 1000));
        assert!(path.sampler.on_packet_lost(&lost).is_none());
        assert!(path.ack(50, 0, &[0]).is_none());
        assert_eq!(path.sampler.delivered_bytes(), 0);
        assert_eq!(path.sampler.in_flight_bytes(), 0);
    }
}
