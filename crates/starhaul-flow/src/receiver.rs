//! The receiving end: records which packets arrived and acknowledges them (RFC 9000 §13.2).

use std::time::{Duration, Instant};

use crate::{Ack, DataPacket, Ranges};

/// Greatest number of ranges in one acknowledgement.
const MAX_ACK_RANGES: usize = 32;

/// The rule by which a receiver sends acknowledgements.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AckPolicy {
    /// Acknowledge after this many packets; at once when one is missing (RFC 9000 §13.2.1).
    pub every_packets: u32,
    /// Acknowledge after this time at the latest.
    pub max_delay: Duration,
}

impl Default for AckPolicy {
    /// Each second packet or after 25 ms, as in RFC 9000 §13.2.2 and §18.2.
    fn default() -> Self {
        Self {
            every_packets: 2,
            max_delay: Duration::from_millis(25),
        }
    }
}

/// The receiver of a flow: takes data packets, gives acknowledgements.
#[derive(Clone, Debug)]
pub struct Receiver {
    policy: AckPolicy,
    numbers: Ranges,
    chunks: Ranges,
    received: u64,
    unacknowledged: u32,
    greatest_at: Option<Instant>,
    ack_at: Option<Instant>,
}

impl Receiver {
    /// Creates a receiver without packets.
    pub fn new(policy: AckPolicy) -> Self {
        Self {
            policy,
            numbers: Ranges::default(),
            chunks: Ranges::default(),
            received: 0,
            unacknowledged: 0,
            greatest_at: None,
            ack_at: None,
        }
    }

    /// Takes a packet. Returns whether its data chunk was new.
    pub fn handle_data(&mut self, now: Instant, packet: DataPacket) -> bool {
        let expected = self.numbers.greatest().map_or(0, |last| last + 1);
        self.received += 1;
        self.numbers.insert(packet.number);
        if packet.number >= expected {
            self.greatest_at = Some(now);
        }
        self.unacknowledged += 1;
        let at_once = packet.number != expected || self.unacknowledged >= self.policy.every_packets;
        let latest = if at_once {
            now
        } else {
            now + self.policy.max_delay
        };
        self.ack_at = Some(self.ack_at.map_or(latest, |at| at.min(latest)));
        self.chunks.insert(packet.chunk)
    }

    /// When [`Receiver::poll_transmit`] has an acknowledgement to send.
    pub fn poll_timeout(&self) -> Option<Instant> {
        self.ack_at
    }

    /// The acknowledgement that is due, if one is.
    pub fn poll_transmit(&mut self, now: Instant) -> Option<Ack> {
        if self.ack_at.is_none_or(|at| at > now) {
            return None;
        }
        self.ack_at = None;
        self.unacknowledged = 0;
        Some(Ack {
            ranges: self.numbers.iter().take(MAX_ACK_RANGES).collect(),
            delay: self
                .greatest_at
                .map_or(Duration::ZERO, |at| now.saturating_duration_since(at)),
        })
    }

    /// Whether the packet of this number arrived.
    pub fn has(&self, number: u64) -> bool {
        self.numbers.contains(number)
    }

    /// Number of packets that arrived, duplicates included.
    pub fn received(&self) -> u64 {
        self.received
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn packet(number: u64) -> DataPacket {
        DataPacket {
            number,
            chunk: number,
        }
    }

    #[test]
    fn acknowledges_each_second_packet_a_lone_one_late_and_a_gap_at_once() {
        let start = Instant::now();
        let ms = |ms| start + Duration::from_millis(ms);
        let mut receiver = Receiver::new(AckPolicy::default());
        receiver.handle_data(ms(0), packet(0));
        assert_eq!(receiver.poll_transmit(ms(1)), None);
        receiver.handle_data(ms(2), packet(1));
        let ack = receiver.poll_transmit(ms(2)).unwrap();
        assert_eq!((ack.ranges, ack.delay), (vec![(0, 1)], Duration::ZERO));

        receiver.handle_data(ms(3), packet(2));
        assert_eq!(receiver.poll_timeout(), Some(ms(28)));
        let ack = receiver.poll_transmit(ms(28)).unwrap();
        assert_eq!(
            (ack.ranges, ack.delay),
            (vec![(0, 2)], Duration::from_millis(25))
        );

        receiver.handle_data(ms(30), packet(4));
        assert_eq!(
            receiver.poll_transmit(ms(30)).unwrap().ranges,
            [(4, 4), (0, 2)]
        );
        // The missing packet closes the gap, which is acknowledged at once too.
        receiver.handle_data(ms(31), packet(3));
        assert_eq!(receiver.poll_transmit(ms(31)).unwrap().ranges, [(0, 4)]);
    }

    #[test]
    fn a_piece_that_comes_twice_counts_once() {
        let now = Instant::now();
        let mut receiver = Receiver::new(AckPolicy::default());
        assert!(receiver.handle_data(
            now,
            DataPacket {
                number: 0,
                chunk: 7
            }
        ));
        assert!(!receiver.handle_data(
            now,
            DataPacket {
                number: 1,
                chunk: 7
            }
        ));
        assert_eq!(receiver.received(), 2);
    }
}
