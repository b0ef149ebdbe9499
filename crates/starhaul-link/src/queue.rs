//! The queues before the sending end of a link: a droptail or CoDel queue for data, and beside it a band of its own for
//! ICMP, as on Starlink (LeoCC Appendix B: a ping does not wait behind TCP and UDP, but has their delay and loss).

use std::{collections::VecDeque, time::Instant};

use crate::{
    QueueLimit,
    codel::{Codel, CodelState, Head},
};

/// Greatest number of queued ICMP packets; the band is for light traffic.
const ICMP_PACKETS: usize = 500;

/// The queue of a link in which a packet waits. Light ICMP waits only in outages. Capacity, outages, delay and loss are
/// common to both bands, and if packets of both wait they are sent alternately.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Band {
    /// TCP, UDP and all other packets.
    Data,
    /// ICMP and ICMPv6 packets.
    Icmp,
}

impl Band {
    /// The band of an IP packet: ICMP for IPv4 protocol 1 and, directly behind the IPv6 header, 58.
    pub fn of_ip_packet(packet: &[u8]) -> Self {
        let protocol = match packet.first().map(|byte| byte >> 4) {
            Some(4) => packet.get(9).map(|&protocol| (4, protocol)),
            Some(6) => packet.get(6).map(|&protocol| (6, protocol)),
            _ => None,
        };
        match protocol {
            Some((4, 1) | (6, 58)) => Self::Icmp,
            _ => Self::Data,
        }
    }
}

/// A packet in a queue.
#[derive(Debug)]
pub(crate) struct Waiting<P> {
    pub(crate) since: Instant,
    pub(crate) bytes: usize,
    pub(crate) band: Band,
    pub(crate) packet: P,
}

/// The queues of one link.
#[derive(Debug)]
pub(crate) struct Queues<P> {
    data: VecDeque<Waiting<P>>,
    data_bytes: usize,
    limit: QueueLimit,
    codel: Option<CodelState>,
    icmp: VecDeque<Waiting<P>>,
    latest: Band,
}

impl<P> Queues<P> {
    pub(crate) fn new(limit: QueueLimit, codel: Option<Codel>) -> Self {
        Self {
            data: VecDeque::new(),
            data_bytes: 0,
            limit,
            codel: codel.map(CodelState::new),
            icmp: VecDeque::new(),
            latest: Band::Icmp,
        }
    }

    /// Number of data packets in the queue.
    pub(crate) fn data_packets(&self) -> usize {
        self.data.len()
    }

    /// Bytes of data in the queue.
    pub(crate) fn data_bytes(&self) -> usize {
        self.data_bytes
    }

    /// Appends a packet to its band; returns it when there is no room.
    pub(crate) fn push(&mut self, waiting: Waiting<P>) -> Result<(), Waiting<P>> {
        let room = match (waiting.band, self.limit) {
            (Band::Icmp, _) => self.icmp.len() < ICMP_PACKETS,
            (Band::Data, QueueLimit::Packets(limit)) => self.data.len() < limit,
            (Band::Data, QueueLimit::Bytes(limit)) => {
                self.data_bytes.saturating_add(waiting.bytes) <= limit
            }
        };
        match waiting.band {
            _ if !room => return Err(waiting),
            Band::Icmp => self.icmp.push_back(waiting),
            Band::Data => {
                self.data_bytes = self.data_bytes.saturating_add(waiting.bytes);
                self.data.push_back(waiting);
            }
        }
        Ok(())
    }

    /// Records that a packet of this band was sent ahead of the queue.
    pub(crate) fn pass(&mut self, band: Band) {
        self.latest = band;
    }

    /// The next packet to send at `now`; `dropped` gets the packets that CoDel drops.
    pub(crate) fn pop(
        &mut self,
        now: Instant,
        dropped: impl FnMut(Waiting<P>),
    ) -> Option<Waiting<P>> {
        let next = match self.latest {
            Band::Data => match self.icmp.pop_front() {
                Some(icmp) => Some(icmp),
                None => self.pop_data(now, dropped),
            },
            Band::Icmp => match self.pop_data(now, dropped) {
                Some(data) => Some(data),
                None => self.icmp.pop_front(),
            },
        };
        if let Some(next) = &next {
            self.latest = next.band;
        }
        next
    }

    /// Size of the first ICMP packet in the queue.
    pub(crate) fn first_icmp(&self) -> Option<usize> {
        self.icmp.front().map(|waiting| waiting.bytes)
    }

    /// Removes the first ICMP packet.
    pub(crate) fn pop_icmp(&mut self) -> Option<Waiting<P>> {
        self.icmp.pop_front()
    }

    /// Empties both queues.
    pub(crate) fn clear(&mut self) -> impl Iterator<Item = Waiting<P>> {
        self.data_bytes = 0;
        let (data, icmp) = (&mut self.data, &mut self.icmp);
        data.drain(..).chain(icmp.drain(..))
    }

    /// The packets of both queues.
    pub(crate) fn into_waiting(self) -> impl Iterator<Item = Waiting<P>> {
        self.data.into_iter().chain(self.icmp)
    }

    fn pop_data(&mut self, now: Instant, dropped: impl FnMut(Waiting<P>)) -> Option<Waiting<P>> {
        let (queue, bytes) = (&mut self.data, &mut self.data_bytes);
        let mut pop = || {
            let item = queue.pop_front()?;
            *bytes = bytes.saturating_sub(item.bytes);
            Some(Head {
                since: item.since,
                bytes_left: *bytes,
                item,
            })
        };
        match &mut self.codel {
            Some(codel) => codel.dequeue(now, pop, dropped),
            None => pop().map(|head| head.item),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_band_is_read_from_the_ip_header() {
        let ipv4 = |protocol| {
            let mut packet = [0; 20];
            (packet[0], packet[9]) = (0x45, protocol);
            packet
        };
        let ipv6 = |next| {
            let mut packet = [0; 40];
            (packet[0], packet[6]) = (0x60, next);
            packet
        };
        assert_eq!(Band::of_ip_packet(&ipv4(1)), Band::Icmp);
        assert_eq!(Band::of_ip_packet(&ipv6(58)), Band::Icmp);
        // TCP, UDP, and each version's number in the other
        for other in [6, 17, 58] {
            assert_eq!(Band::of_ip_packet(&ipv4(other)), Band::Data, "{other}");
        }
        assert_eq!(Band::of_ip_packet(&ipv6(1)), Band::Data);
        for short in [&[][..], &[0x45], &[0x60, 0, 0, 0, 0, 0], &[0x12; 20]] {
            assert_eq!(Band::of_ip_packet(short), Band::Data, "{short:?}");
        }
    }
}
